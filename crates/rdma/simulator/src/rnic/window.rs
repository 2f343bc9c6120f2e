//! Windows of chunks: how software chunking bounds what a queue pair has in the NIC.
//!
//! The policy lets flows go, but its messages above the chunk size are posted as chunks, so many at a time. A
//! chunk's completion is written and polled like any other; when the application's core has seen it, the core posts
//! the next chunk. Messages up to the chunk size go at once, unless chunks of an older message wait before them.

use super::enforce::Daemon;
use super::world::World;

impl<const RECORDS: bool> World<RECORDS> {
    /// Bounds the chunks that the flow's queue pairs may have in the NIC.
    pub(crate) fn set_window(&mut self, daemon: &mut Daemon, chunks: u32) {
        daemon.window = chunks;
        for pair in daemon.flows.iter().flat_map(|flow| &flow.pairs) {
            self.pairs[*pair as usize].window = chunks;
        }
    }

    /// Posts what the window of a pair has room for.
    pub(crate) fn fill_window(
        &mut self,
        at: u64,
        daemon: &mut Daemon,
        (flow, pair): (u32, u32),
        mut posting: bool,
    ) {
        let state = &mut daemon.flows[flow as usize];
        loop {
            let (written, _) = self.let_through(at, state, (daemon.chunk, posting), pair);
            state.chunks += written;
            posting = false;
            if written == 0 {
                break;
            }
        }
        let queue_pair = &mut self.pairs[pair as usize];
        queue_pair.in_backlog = queue_pair.released < queue_pair.app_posted;
    }

    /// The application's core sees the completion of chunks and posts the next ones.
    pub(crate) fn window_moves(&mut self, now: u64, daemon: &mut Daemon, (flow, pair): (u32, u32)) {
        let queue_pair = &self.pairs[pair as usize];
        if queue_pair.chunks_out >= queue_pair.window {
            return;
        }
        let spread = self.device.host_jitter;
        let jitter = if spread == 0 {
            0
        } else {
            self.host_jitter.below(spread + 1)
        };
        let seen = now + self.device.pcie_write + jitter;
        let process = &mut self.processes[queue_pair.process as usize];
        process.cpu_free = process.cpu_free.max(seen) + self.device.poll;
        daemon.flows[flow as usize].polls += 1;
        self.fill_window(seen, daemon, (flow, pair), false);
    }
}
