//! Processors: each executes one job at a time.
//!
//! Method: all work of software is a job on a processor. A job takes effect when it begins and occupies its processor
//! for what its steps cost; the next one begins then. Busy time is the sum of costs, so that a processor that cannot
//! keep up delays its jobs and, through that, its flows.
//! Soft interrupts go before processes, in passes as Linux makes them. A pass executes the kinds that were raised when it began, in
//! this order: timers, software queues (`NET_TX`), polls (`NET_RX`), flows that completions woke (`TASKLET`). When a kind
//! has its turn, it takes all of its jobs; what is raised meanwhile waits for the next pass, unless its kind is still to come. So the software
//! queue that a poll's completions reopened goes before the flows that they woke, unless a later poll was raised meanwhile. Flows
//! take turns from the one that was woken last. After ten passes a process that waits executes one job (the kernel's
//! `ksoftirqd` shares the processor with it).
//! Processors p and p + n/2 of n are the threads of one core, as Linux counts them: a job that begins while the other thread is busy
//! takes longer. A processor without a job sleeps ([`crate::sleep`]).
//! Limits: a soft interrupt waits for the job of a process that is running (at most one write); no other work runs.
//! Source: Linux 4.4, `__do_softirq`, `net_tx_action`, `net_rx_action`, `tcp_tasklet_func`.

use crate::sleep::Governor;
use isolane_common_quantities::units::{Duration, Instant};
use std::collections::VecDeque;

/// Kinds of soft interrupts.
const KINDS: usize = 4;
/// Passes before a process that waits gets a turn (`MAX_SOFTIRQ_RESTART`).
const PASSES_MOST: u32 = 10;

/// Something that software does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// A poll of a vector after its interrupt, or again.
    Poll { vector: u16 },
    /// A flow that waited for completions sends again.
    Wake { flow: u32 },
    /// A run of a software queue.
    RunQueue { queue: u16 },
    /// A run of a software queue after a batch of flows (Titan's kernel).
    RunBatch { queue: u16 },
    /// An application writes.
    Write { flow: u32 },
    /// A retransmission timer.
    Timeout { flow: u32 },
    /// A delayed acknowledgement.
    DelayedAck { flow: u32 },
    /// A ping is sent.
    Ping,
}

/// A hardware thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Processor {
    /// Jobs of the kind of soft interrupt that has its turn.
    running: VecDeque<Job>,
    /// Kinds that have their turn later in this pass, one bit each.
    pass: u8,
    passes: u32,
    raised: [VecDeque<Job>; KINDS],
    processes: VecDeque<Job>,
    /// A job is running or an event will start the next.
    active: bool,
    /// When it has woken from its last sleep.
    pub(crate) awake: Instant,
    pub(crate) busy: Duration,
    pub(crate) governor: Governor,
}

impl Processor {
    /// Adds a job. True if the processor was idle: the caller must schedule its start.
    pub(crate) fn plan(&mut self, job: Job) -> bool {
        match job {
            Job::Timeout { .. } | Job::DelayedAck { .. } => self.raised[0].push_back(job),
            Job::RunQueue { .. } => self.raised[1].push_back(job),
            Job::Poll { .. } => self.raised[2].push_back(job),
            // Each goes to the head of the list, so the last one is the first.
            Job::Wake { .. } => self.raised[3].push_front(job),
            Job::RunBatch { .. } => self.running.push_back(job),
            Job::Write { .. } | Job::Ping => self.processes.push_back(job),
        }
        !std::mem::replace(&mut self.active, true)
    }

    /// The next job; without one the processor sleeps from `now` on.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Job> {
        let job = self.next_soft().or_else(|| {
            self.passes = 0;
            self.processes.pop_front()
        });
        self.active = job.is_some();
        if !self.active {
            self.governor.sleep(now);
        }
        job
    }

    /// The next job of soft interrupts. None if nothing is raised, or if a process gets a turn.
    fn next_soft(&mut self) -> Option<Job> {
        loop {
            if let Some(job) = self.running.pop_front() {
                return Some(job);
            }
            if self.pass == 0 {
                let is_raised = |kind: &usize| !self.raised[*kind].is_empty();
                self.pass = (0..KINDS).filter(is_raised).map(|kind| 1 << kind).sum();
                let process_waits = !self.processes.is_empty();
                if self.pass == 0 || self.passes >= PASSES_MOST && process_waits {
                    self.pass = 0;
                    return None;
                }
                self.passes += 1;
            }
            let kind = self.pass.trailing_zeros() as usize;
            self.pass &= self.pass - 1;
            std::mem::swap(&mut self.running, &mut self.raised[kind]);
        }
    }

    /// Whether a job is running or about to.
    pub(crate) fn is_active(&self) -> bool {
        self.active
    }

    /// Whether a job is running at `now`.
    pub(crate) fn is_running(&self, now: Instant) -> bool {
        self.active && self.awake <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: Job = Job::Poll { vector: 0 };
    const QUEUE: Job = Job::RunQueue { queue: 0 };
    const WRITE: Job = Job::Write { flow: 9 };

    fn wake(flow: u32) -> Job {
        Job::Wake { flow }
    }

    fn next(processor: &mut Processor) -> Option<Job> {
        processor.next(Instant::ZERO)
    }

    #[test]
    fn a_queue_goes_before_the_flows_of_the_same_poll_and_the_last_flow_first() {
        let mut processor = Processor::default();
        assert!(processor.plan(POLL));
        assert_eq!(next(&mut processor), Some(POLL));
        for job in [WRITE, wake(1), wake(2), QUEUE] {
            assert!(!processor.plan(job));
        }
        for job in [QUEUE, wake(2), wake(1), WRITE] {
            assert_eq!(next(&mut processor), Some(job));
        }
        assert_eq!(next(&mut processor), None);
        assert!(!processor.is_active());
    }

    /// The second poll is raised with the first one's flows, so its own flows still have their turn in that pass; its queue
    /// has not.
    #[test]
    fn flows_go_before_the_queue_that_a_poll_of_their_pass_reopened() {
        let mut processor = Processor::default();
        processor.plan(POLL);
        assert_eq!(next(&mut processor), Some(POLL));
        processor.plan(wake(1));
        processor.plan(POLL);
        assert_eq!(next(&mut processor), Some(POLL));
        processor.plan(QUEUE);
        processor.plan(wake(2));
        for job in [wake(2), wake(1), QUEUE] {
            assert_eq!(next(&mut processor), Some(job));
        }
    }

    #[test]
    fn a_batch_runs_its_queues_after_all_of_its_flows() {
        let mut processor = Processor::default();
        processor.plan(wake(1));
        processor.plan(wake(2));
        assert_eq!(next(&mut processor), Some(wake(2)));
        processor.plan(Job::RunBatch { queue: 3 });
        processor.plan(QUEUE);
        for job in [wake(1), Job::RunBatch { queue: 3 }, QUEUE] {
            assert_eq!(next(&mut processor), Some(job));
        }
    }

    #[test]
    fn a_process_gets_a_turn_after_ten_passes() {
        let mut processor = Processor::default();
        processor.plan(POLL);
        processor.plan(WRITE);
        for _ in 0..PASSES_MOST {
            assert_eq!(next(&mut processor), Some(POLL));
            processor.plan(POLL);
        }
        assert_eq!(next(&mut processor), Some(WRITE));
        assert_eq!(next(&mut processor), Some(POLL));
    }
}
