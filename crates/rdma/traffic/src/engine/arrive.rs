//! The receiving half of a data end's loop: completions of receives, polled memory, reposted receives.

use super::data::{DATAGRAM_HEADER, landing_bytes};
use super::drive::{Drive, PAIR_SHIFT, SEQUENCE_MASK};
use super::error::EndError;
use super::pattern::{self, Stamp};
use crate::worker::{Arrival, Operation, Side};
use isolane_rdma_scenario::model::Transport;
use isolane_rdma_verbs_sys::safe::Element;
use isolane_rdma_verbs_sys::{IBV_WC_SUCCESS, ibv_wc};
use std::time::{Duration, Instant};

/// The last byte of a ping-pong message is 1 to this; zero means that no message has arrived.
const MARKERS: u64 = 251;

/// How long the other bytes of a WRITE may arrive after its last one. Soft-RoCE copies with the kernel's `memcpy`,
/// which copies from the end where the low bits of the two addresses would make it slow from the start.
const LATE_BYTES: Duration = Duration::from_millis(100);

impl Drive<'_> {
    /// Handles completions of receives.
    pub(super) fn take_receives(&mut self) -> Result<usize, EndError> {
        if !self.expects_receives() {
            return Ok(0);
        }
        let mut completions = std::mem::take(&mut self.completions);
        let count = self.end.receives.poll(&mut completions)?;
        let now = self.shared.now();
        for completion in &completions[..count] {
            self.got(completion, now)?;
        }
        self.completions = completions;
        Ok(count)
    }

    pub(super) fn got(&mut self, completion: &ibv_wc, now: u64) -> Result<(), EndError> {
        let pair = (completion.wr_id >> PAIR_SHIFT) as usize;
        let slot = completion.wr_id & SEQUENCE_MASK;
        if completion.status != IBV_WC_SUCCESS {
            self.failed(pair, completion);
            return Ok(());
        }
        let header = match self.end.work.transport {
            Transport::Ud => DATAGRAM_HEADER,
            Transport::Rc | Transport::Uc => 0,
        };
        let bytes = u64::from(completion.byte_len).saturating_sub(header);
        self.meter.received(now, bytes);
        if self.end.check {
            let sequence = u64::from(u32::from_be(completion.imm_data));
            self.verify_received(pair, slot, sequence, header, bytes);
        }
        self.used
            .push_back((now + self.end.work.receive_delay_ns, pair, slot));
        if self.end.work.arrival == Arrival::PingPong {
            self.answer(pair, now)?;
        }
        Ok(())
    }

    /// Ping-pong: handles the peer's message.
    pub(super) fn answer(&mut self, pair: usize, now: u64) -> Result<(), EndError> {
        let sequence = self.heard[pair];
        self.heard[pair] += 1;
        if self.end.work.side == Side::To {
            if self.flows[pair].dead {
                return Ok(());
            }
            self.flows[pair].awaiting = false;
            return self.post(pair, 1, now);
        }
        let round = now.saturating_sub(self.flows[pair].due_of(sequence));
        let bytes = self.message(sequence).bytes().get();
        self.meter.posted(now, pair, bytes, round / 2);
        self.flows[pair].awaiting = false;
        self.wake(pair);
        Ok(())
    }

    /// Ping-pong by WRITE: polls the last byte of the peer's message.
    pub(super) fn look(&mut self, now: u64) -> Result<usize, EndError> {
        let work = &self.end.work;
        if work.arrival != Arrival::PingPong || work.operation != Operation::Write {
            return Ok(0);
        }
        let mut seen = 0;
        for pair in 0..self.flows.len() {
            let sequence = self.heard[pair];
            let place = self.end.own_places.of(pair as u64, 0);
            let length = self.message(sequence).bytes().get();
            let (region, last) = (&self.end.open[place.region], place.offset + length - 1);
            if region.load(last) != marker(sequence) {
                continue;
            }
            seen += 1;
            if self.end.check {
                let stamp = Stamp {
                    direction: self.end.other_direction(),
                    ..self.end.stamp(pair as u64, sequence)
                };
                let wrong = wrong_after(LATE_BYTES, || {
                    pattern::wrong_bytes(region, place.offset, stamp, 0, length - 1)
                });
                self.meter.checked(length, wrong);
            }
            region.store(last, 0);
            if work.side == Side::To {
                self.meter.received(now, length);
            }
            self.answer(pair, self.shared.now())?;
        }
        Ok(seen)
    }

    /// Reposts the receives whose delay is over, in batches.
    pub(super) fn post_back(&mut self, now: u64) -> Result<(), EndError> {
        let batch = self.end.work.receive_batch as usize;
        while let Some(&(due, pair, slot)) = self.used.front() {
            if due > now {
                break;
            }
            self.used.pop_front();
            self.back[pair].push(slot);
            if batch > 0 && self.back[pair].len() >= batch {
                for slot in std::mem::take(&mut self.back[pair]) {
                    self.push_receive(pair, slot)?;
                }
                self.receives.post(&self.end.queue_pairs[pair])?;
            }
        }
        Ok(())
    }

    pub(super) fn push_receive(&mut self, pair: usize, slot: u64) -> Result<(), EndError> {
        let element = (self.end.work.operation == Operation::Send).then(|| {
            let place = self.end.receive_places.of(pair as u64, slot);
            Element {
                region: place.region,
                offset: place.offset,
                length: u32::try_from(landing_bytes(&self.end.work)).unwrap_or(u32::MAX),
            }
        });
        let id = (pair as u64) << PAIR_SHIFT | slot;
        self.receives.push(id, element)?;
        Ok(())
    }
}

/// The number of wrong bytes once there are none, or after `wait`.
fn wrong_after(wait: Duration, mut wrong: impl FnMut() -> u64) -> u64 {
    let mut found = wrong();
    let begin = Instant::now();
    while found > 0 && begin.elapsed() < wait {
        std::thread::yield_now();
        found = wrong();
    }
    found
}

/// The last byte of ping-pong message `sequence`.
pub(super) fn marker(sequence: u64) -> u8 {
    (sequence % MARKERS + 1) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_arrive_after_the_last_one_are_not_wrong() {
        let mut missing = [32, 32, 8, 0].into_iter();
        assert_eq!(wrong_after(LATE_BYTES, || missing.next().unwrap_or(99)), 0);
        assert_eq!(wrong_after(Duration::ZERO, || 32), 32);
    }
}
