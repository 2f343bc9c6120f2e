//! Virtual functions on the receiving side: each handles its receiver-not-ready errors by itself (stage 9).
//!
//! Problem: without SR-IOV the processing units that serve everybody wait while firmware handles a reliable
//! connection's receiver-not-ready (husky 4.3.3). With a virtual function per tenant other functions go on (husky
//! 4.5.1). Method: the exception keeps the function, not the units, busy for `rnr_stall_us`. What arrives for that
//! function meanwhile waits in the receive buffer, in order; packets that the exception made void are thrown away at
//! once. Messages that unreliable transports drop take another path in firmware, which all functions share.
//!
//! Units: picoseconds. Limits: the buffer is shared among functions, so a function that waits for long and is sent
//! much can still fill it for all; classes of their own (`hw-tc`) split it.

use super::world::{Arrived, Event, PacketKind, World};
use std::collections::VecDeque;

/// The receiving side of one virtual function.
#[derive(Clone, Debug, Default)]
pub(crate) struct Function {
    /// Until when it handles an exception, ps.
    busy_until: u64,
    /// Arrivals that wait for it, in order.
    waiting: VecDeque<(u32, Arrived)>,
}

impl World {
    /// Whether an arrival belongs to a message that its sender has to repeat anyway.
    fn is_void(&self, pair: u32, arrived: Arrived) -> bool {
        match arrived {
            Arrived::Packet(packet) => {
                packet.kind != PacketKind::ReadResponse
                    && packet.epoch != self.pairs[pair as usize].expected_epoch
            }
            Arrived::Ack { .. } => false,
        }
    }

    /// Keeps an arrival back while its function handles an exception; false when it may be processed.
    pub(crate) fn function_waits(
        &mut self,
        now: u64,
        host: usize,
        pair: u32,
        arrived: Arrived,
    ) -> bool {
        if self.nics[host].functions.is_empty() || self.is_void(pair, arrived) {
            return false;
        }
        let number = self.pairs[pair as usize].function;
        let function = &mut self.nics[host].functions[usize::from(number)];
        if function.busy_until <= now && function.waiting.is_empty() {
            return false;
        }
        function.waiting.push_back((pair, arrived));
        if function.waiting.len() == 1 {
            let at = function.busy_until;
            self.function_resumes_at(at, host, number);
        }
        true
    }

    /// The function of a pair handles an exception found at `at`; when it is done, or nothing where functions are
    /// not apart.
    pub(crate) fn function_stalls(&mut self, at: u64, host: usize, pair: u32) -> Option<u64> {
        let number = usize::from(self.pairs[pair as usize].function);
        let function = self.nics[host].functions.get_mut(number)?;
        function.busy_until = function.busy_until.max(at) + self.device.rnr_stall;
        Some(function.busy_until)
    }

    fn function_resumes_at(&mut self, at: u64, host: usize, function: u8) {
        let host = host as u8;
        self.schedule(at, Event::FunctionResumes { host, function });
    }

    /// A function may have done with its exception: what waited for it is processed.
    pub(crate) fn function_resumes(&mut self, now: u64, host: usize, number: u8) {
        loop {
            let function = &self.nics[host].functions[usize::from(number)];
            let busy_until = function.busy_until;
            let Some(&(pair, arrived)) = function.waiting.front() else {
                return;
            };
            if busy_until > now && !self.is_void(pair, arrived) {
                self.function_resumes_at(busy_until, host, number);
                return;
            }
            self.nics[host].functions[usize::from(number)]
                .waiting
                .pop_front();
            self.enqueue_shared(now, host, pair, arrived);
        }
    }
}
