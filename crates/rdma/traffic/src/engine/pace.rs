//! Paces a process: in the device if it supports that, otherwise in the process.
//!
//! Problem: a loop that delays messages sends each of them at line rate, in bursts as large as the message, and costs a
//! processor. Some devices pace a queue pair packet by packet instead. Method: a device with that capability gets each
//! queue pair's part of the rate, rounded down so that all together keep the rate; [`Pace`] paces what the device
//! cannot. Units: bits per second of payload for processes; the device's kbit/s may include headers. Limits: a device
//! paces what an end sends. The peer answers READs and atomics, so the process paces them. Not tested on a device with
//! pacing.

use super::error::EndError;
use crate::worker::{Arrival, DataWork, Operation};
use isolane_rdma_scenario::model::Transport;
use isolane_rdma_verbs_sys::pacing::Pacing;
use isolane_rdma_verbs_sys::safe::{Context, QueuePair};
use isolane_rdma_verbs_sys::{IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};

/// Sets the device's pacing of a paced process. Returns whether the device paces it.
pub(super) fn by_device(
    context: &Context,
    work: &DataWork,
    queue_pairs: &[QueuePair],
) -> Result<bool, EndError> {
    if device_rate(work).is_none() {
        return Ok(false);
    }
    let Some(kbps) = context.pacing()?.and_then(|pacing| part(pacing, work)) else {
        return Ok(false);
    };
    for (done, pair) in queue_pairs.iter().enumerate() {
        if pair.limit_rate(kbps).is_err() {
            // The device failed: the process paces all queue pairs, and none is paced twice.
            for limited in &queue_pairs[..done] {
                limited.limit_rate(0)?;
            }
            return Ok(false);
        }
    }
    Ok(true)
}

/// Rate of each queue pair, kbit/s; `None` if the device cannot keep it.
fn part(pacing: Pacing, work: &DataWork) -> Option<u32> {
    let kind = match work.transport {
        Transport::Rc => IBV_QPT_RC,
        Transport::Uc => IBV_QPT_UC,
        Transport::Ud => IBV_QPT_UD,
    };
    pacing.part_kbps(kind, device_rate(work)?, work.queue_pairs)
}

/// The rate for the device, bits per second, of what the end sends on its own.
fn device_rate(work: &DataWork) -> Option<u64> {
    let sends = matches!(
        work.operation,
        Operation::Write | Operation::WriteImm | Operation::Send
    );
    match work.arrival {
        Arrival::Paced { rate_bps } if sends && work.posts() => Some(rate_bps),
        _ => None,
    }
}

/// Keeps a process at a rate: a message may go when the earlier ones have used their time.
#[derive(Debug)]
pub(crate) struct Pace {
    rate_bps: u64,
    next_ns: u64,
}

impl Pace {
    /// Unused time is kept for at most this long, nanoseconds: a thread that overslept may catch up.
    const KEEP_NS: u64 = 1_000_000;

    pub(crate) fn new(rate_bps: u64) -> Self {
        Self {
            rate_bps: rate_bps.max(1),
            next_ns: 0,
        }
    }

    /// When the next message may go.
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Records that messages of `bytes` were posted at `now_ns`.
    pub(crate) fn took(&mut self, now_ns: u64, bytes: u64) {
        let needs = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(self.rate_bps);
        let needs = u64::try_from(needs).unwrap_or(u64::MAX);
        let from = self.next_ns.max(now_ns.saturating_sub(Self::KEEP_NS));
        self.next_ns = from.saturating_add(needs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::Side;
    use isolane_rdma_scenario::model::MemoryPlace;

    fn work(operation: Operation, side: Side, arrival: Arrival) -> DataWork {
        DataWork {
            side,
            operation,
            transport: Transport::Rc,
            pattern: Vec::new(),
            queue_pairs: 4,
            post_list: 1,
            depth: 16,
            completion_every: 1,
            receive_depth: 0,
            receive_batch: 0,
            receive_delay_ns: 0,
            min_rnr_timer: 12,
            max_read_atomic: 1,
            inline_bytes: 0,
            mtu: 4_096,
            memory_regions: 1,
            region_bytes: 65_536,
            memory: MemoryPlace::Local,
            arrival,
            bidirectional: false,
            iterations: None,
        }
    }

    const PACED: Arrival = Arrival::Paced {
        rate_bps: 1_000_000_000,
    };

    #[test]
    fn the_device_is_asked_for_what_it_can_keep() {
        let pacing = Pacing {
            least_kbps: 1_000,
            most_kbps: 100_000_000,
            services: 1 << IBV_QPT_RC,
        };
        let write = work(Operation::Write, Side::From, PACED);
        assert_eq!(part(pacing, &write), Some(250_000));
        let send = work(Operation::Send, Side::From, PACED);
        assert_eq!(part(pacing, &send), Some(250_000));
        let datagrams = DataWork {
            transport: Transport::Ud,
            ..send
        };
        assert_eq!(part(pacing, &datagrams), None, "not this transport");
        let slow = Pacing {
            least_kbps: 250_001,
            ..pacing
        };
        assert_eq!(part(slow, &write), None, "not so slowly");
    }

    #[test]
    fn what_the_other_end_sends_is_not_the_devices() {
        for operation in [Operation::Read, Operation::FetchAdd, Operation::CompareSwap] {
            assert_eq!(device_rate(&work(operation, Side::From, PACED)), None);
        }
        assert_eq!(device_rate(&work(Operation::Write, Side::To, PACED)), None);
        let both = DataWork {
            bidirectional: true,
            ..work(Operation::Write, Side::To, PACED)
        };
        assert_eq!(device_rate(&both), Some(1_000_000_000));
        let free = Arrival::Closed { think_ns: 0 };
        assert_eq!(device_rate(&work(Operation::Write, Side::From, free)), None);
    }

    #[test]
    fn a_pace_gives_its_rate_over_time() {
        let mut pace = Pace::new(8_000_000_000);
        let mut sent = 0;
        for now in 0..100_000 {
            while pace.next_ns() <= now {
                pace.took(now, 100);
                sent += 100;
            }
        }
        assert!((99_900..=100_100).contains(&sent), "{sent}");
    }
}
