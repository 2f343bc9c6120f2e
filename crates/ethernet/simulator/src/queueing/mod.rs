//! Software queues above a hardware queue, and the limit on bytes in it.
//!
//! * [`limit`] - byte limits, fixed and dynamic;
//! * [`stochastic`] - `prio` over `sfq`; [`paced`] - `fq`; [`codel`] - `fq_codel`, and `cake` in essentials.
//!
//! A queue takes segments whole. What it drops, at the tail or in its midst, the caller frees.

pub(crate) mod codel;
pub(crate) mod limit;
pub(crate) mod paced;
pub(crate) mod stochastic;

use crate::segment::{Kind, List, Segments};
use crate::settings::Settings;
use codel::FairCodel;
use isolane_common_quantities::units::Instant;
use isolane_ethernet_scenario::config::Qdisc;
use paced::Paced;
use stochastic::Stochastic;

#[derive(Debug)]
pub(crate) enum SoftQueue {
    /// First in, first out, up to so many segments.
    Fifo(List, u32),
    /// Pings first, then flows by stochastic fair queueing.
    Prio(List, Stochastic),
    /// `fq`.
    Paced(Paced),
    /// `fq_codel` and `cake`.
    Codel(FairCodel),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Segment(u32),
    /// Nothing before then.
    At(Instant),
    Nothing,
}

impl SoftQueue {
    pub(crate) fn new(settings: &Settings) -> Self {
        let quantum = settings.mss + settings.header;
        match settings.config.qdisc {
            Qdisc::Fifo => Self::Fifo(List::default(), settings.fifo_segments),
            Qdisc::SfqPrio => Self::Prio(
                List::default(),
                Stochastic::new(settings.sfq_segments, quantum),
            ),
            Qdisc::Fq => Self::Paced(Paced::new(quantum)),
            Qdisc::FqCodel | Qdisc::Cake => Self::Codel(FairCodel::new(quantum)),
        }
    }

    /// Takes a segment; gives back the one that is dropped for it.
    #[inline]
    pub(crate) fn enqueue(&mut self, segments: &mut Segments, id: u32) -> Option<u32> {
        match self {
            Self::Fifo(list, most) => {
                if list.len() >= *most {
                    return Some(id);
                }
                list.push(segments, id);
                None
            }
            Self::Prio(urgent, flows) => {
                let kind = segments.get(id).kind;
                if matches!(kind, Kind::Ping | Kind::Pong) {
                    urgent.push(segments, id);
                    return None;
                }
                flows.enqueue(segments, id)
            }
            Self::Paced(queue) => queue.enqueue(segments, id),
            Self::Codel(queue) => queue.enqueue(segments, id),
        }
    }

    /// The next segment; what is dropped on the way goes to `drops`.
    #[inline]
    pub(crate) fn dequeue(
        &mut self,
        segments: &mut Segments,
        now: Instant,
        drops: &mut Vec<u32>,
    ) -> Next {
        let next = match self {
            Self::Fifo(list, _) => list.pop(segments),
            Self::Prio(urgent, flows) => urgent.pop(segments).or_else(|| flows.dequeue(segments)),
            Self::Paced(queue) => return queue.dequeue(segments, now),
            Self::Codel(queue) => queue.dequeue(segments, now, drops),
        };
        next.map_or(Next::Nothing, Next::Segment)
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Fifo(list, _) => list.is_empty(),
            Self::Prio(urgent, flows) => urgent.is_empty() && flows.is_empty(),
            Self::Paced(queue) => queue.is_empty(),
            Self::Codel(queue) => queue.is_empty(),
        }
    }
}

/// The key of one flow in software queues: each direction of a connection, each kind of ping.
#[inline]
pub(crate) fn flow_key(segments: &Segments, id: u32) -> u32 {
    let segment = segments.get(id);
    segment.flow.wrapping_mul(4) + segment.kind as u32
}

/// One of 1,024 buckets.
#[inline]
pub(crate) fn bucket(key: u32) -> u16 {
    (key.wrapping_mul(0x9E37_79B1) >> 22) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{NIL, Segment};

    pub(crate) fn segment(flow: u32, kind: Kind, bytes: u32) -> Segment {
        Segment {
            seq: 0,
            entered: Instant::ZERO,
            rate: u64::MAX,
            flow,
            next: NIL,
            payload: bytes,
            taken: 0,
            memory: bytes,
            info: NIL,
            bytes,
            descriptors: 2,
            header: 66,
            kind,
            again: false,
        }
    }

    fn order(mut queue: SoftQueue, pattern: &[(u32, Kind, u32)], take: usize) -> Vec<u32> {
        let mut segments = Segments::new();
        let mut drops = Vec::new();
        for &(flow, kind, bytes) in pattern {
            let id = segments.insert(segment(flow, kind, bytes));
            assert_eq!(queue.enqueue(&mut segments, id), None);
        }
        let mut flows = Vec::new();
        for _ in 0..take {
            if let Next::Segment(id) = queue.dequeue(&mut segments, Instant::ZERO, &mut drops) {
                flows.push(segments.remove(id).flow);
            }
        }
        assert!(drops.is_empty());
        flows
    }

    /// Flow 0 sends large segments, flow 1 small ones; fair queues give both the same bytes, the first-in first-out
    /// queue does not.
    #[test]
    fn fair_queues_divide_bytes_and_fifo_keeps_order() {
        let mut pattern = vec![(0, Kind::Data, 30_000); 20];
        pattern.extend(vec![(1, Kind::Data, 3_000); 100]);
        let quantum = 1_514;
        let share = |queue| {
            let order = order(queue, &pattern, 60);
            let large = order.iter().filter(|flow| **flow == 0).count();
            (large * 30_000) as f64 / ((order.len() - large) * 3_000) as f64
        };
        let fair = [
            SoftQueue::Prio(List::default(), Stochastic::new(127, quantum)),
            SoftQueue::Paced(Paced::new(quantum)),
            SoftQueue::Codel(FairCodel::new(quantum)),
        ];
        for queue in fair {
            let ratio = share(queue);
            assert!((0.75..1.4).contains(&ratio), "{ratio}");
        }
        let fifo = order(SoftQueue::Fifo(List::default(), 1_000), &pattern, 20);
        assert!(fifo.iter().all(|flow| *flow == 0));
    }

    #[test]
    fn pings_go_first_only_under_prio() {
        let pattern = [
            (0, Kind::Data, 1_000),
            (0, Kind::Data, 1_000),
            (9, Kind::Ping, 100),
        ];
        let prio = SoftQueue::Prio(List::default(), Stochastic::new(127, 1_514));
        assert_eq!(order(prio, &pattern, 3), [9, 0, 0]);
        let fifo = SoftQueue::Fifo(List::default(), 10);
        assert_eq!(order(fifo, &pattern, 3), [0, 0, 9]);
    }
}
