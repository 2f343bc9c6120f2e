//! Software chunking: split what is large, and keep little of it in the NIC (palos V-B, as in Flor).
//!
//! Problem: a NIC that serves queue pairs in turns is held up by large messages, and once posted they cannot be
//! taken back. Method: every message above `chunk` is posted as chunks of that size, and at most `outstanding`
//! chunks of a queue pair are in the NIC; the next one goes when the completion of an earlier one is seen. Messages
//! up to `chunk` go as they are. Nothing is paced: no rates, no classes, no weights, no timer.
//!
//! With chunks of one bandwidth-delay product, two of them keep the link busy. Every queue pair still has its own
//! window, so many pairs together fill the NIC as before; that is why chunking alone does not isolate.
//!
//! Units: bytes, chunks. Cost: posting each further chunk and polling its completion takes the application's core
//! (reported as `policy_cores`); the policy itself does nothing after a flow has joined.
//! Limits: datagrams and atomics are never split.

use super::{Action, Completion, FlowClass, FlowId, Policy, Signal};
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant};
use std::collections::{BTreeMap, VecDeque};

/// Parameters of [`Chunking`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkingOptions {
    /// Size of a chunk; larger messages are split.
    pub chunk: Bytes,
    /// Chunks a queue pair may have in the NIC.
    pub outstanding: u32,
}

impl ChunkingOptions {
    /// Chunks of one bandwidth-delay product, two at a time.
    pub fn for_device(link: BitRate, round_trip: Duration) -> Self {
        Self {
            chunk: link.bytes_in(round_trip).max(Bytes::new(1)),
            outstanding: 2,
        }
    }

    /// Refuses options under which nothing would move. The error names the first option that is zero.
    pub fn check(&self) -> Result<(), OptionError> {
        OptionError::require_positive(&[
            ("chunk", self.chunk.get()),
            ("outstanding", u64::from(self.outstanding)),
        ])
    }
}

/// The policy of one host.
///
/// ```
/// use isolane_rdma_policy::chunking::{Chunking, ChunkingOptions};
/// use isolane_rdma_policy::{Action, Direction, FlowId, FlowSpec, Policy, Signal};
/// use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant};
/// let options = ChunkingOptions::for_device(BitRate::from_gbps(100), Duration::from_us(2));
/// let mut policy = Chunking::new(options)?;
/// let spec = FlowSpec { class: None, weight: 1, direction: Direction::Outgoing };
/// policy.on_signal(Instant::ZERO, &Signal::Joined(spec));
/// assert_eq!(policy.poll_action(), Some(Action::ChunkSize(Bytes::new(25_000))));
/// assert_eq!(policy.poll_action(), Some(Action::ChunksOutstanding(2)));
/// assert_eq!(policy.poll_action(), Some(Action::Release(FlowId(0))));
/// # Ok::<(), isolane_common_quantities::OptionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Chunking {
    options: ChunkingOptions,
    classes: Vec<Option<FlowClass>>,
    actions: VecDeque<Action>,
}

impl Chunking {
    /// A host without flows. Fails as [`ChunkingOptions::check`] does.
    pub fn new(options: ChunkingOptions) -> Result<Self, OptionError> {
        options.check()?;
        Ok(Self {
            options,
            classes: Vec::new(),
            actions: VecDeque::new(),
        })
    }
}

impl Policy for Chunking {
    fn on_sent(&mut self, _now: Instant, _flow: FlowId, _bytes: Bytes) {}

    fn on_completion(&mut self, _now: Instant, _completion: &Completion) {}

    fn on_signal(&mut self, _now: Instant, signal: &Signal) {
        match signal {
            Signal::Joined(spec) => {
                let flow = FlowId(self.classes.len() as u32);
                if self.classes.is_empty() {
                    self.actions
                        .push_back(Action::ChunkSize(self.options.chunk));
                    self.actions
                        .push_back(Action::ChunksOutstanding(self.options.outstanding));
                }
                self.classes.push(spec.class);
                self.actions.push_back(Action::Release(flow));
            }
            Signal::Left(flow) => self.classes[flow.0 as usize] = None,
            Signal::Backlog { .. } | Signal::ReferenceLatency(_) | Signal::Remote(_) => {}
        }
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn snapshot(&self) -> BTreeMap<&'static str, f64> {
        BTreeMap::from([
            ("chunk_bytes", self.options.chunk.get() as f64),
            (
                "chunks_outstanding_max",
                f64::from(self.options.outstanding),
            ),
        ])
    }

    fn class_of(&self, flow: FlowId) -> Option<FlowClass> {
        self.classes.get(flow.0 as usize).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Direction, FlowSpec};

    fn options() -> ChunkingOptions {
        ChunkingOptions::for_device(BitRate::from_gbps(100), Duration::from_us(2))
    }

    #[test]
    fn a_chunk_is_one_bandwidth_delay_product() {
        assert_eq!(options().chunk, Bytes::new(25_000));
        let slow = ChunkingOptions::for_device(BitRate::from_bps(1), Duration::from_ns(1));
        assert_eq!(slow.check(), Ok(()));
    }

    #[test]
    fn options_of_zero_are_refused_by_name() {
        let refused = |options: ChunkingOptions| Chunking::new(options).unwrap_err().name;
        let zero_chunk = ChunkingOptions {
            chunk: Bytes::ZERO,
            ..options()
        };
        let none_out = ChunkingOptions {
            outstanding: 0,
            ..options()
        };
        assert_eq!(
            (refused(zero_chunk), refused(none_out)),
            ("chunk", "outstanding")
        );
    }

    #[test]
    fn the_size_is_said_once_and_every_flow_goes() {
        let mut policy = Chunking::new(options()).unwrap();
        let spec = FlowSpec {
            class: Some(FlowClass::Bandwidth),
            weight: 1,
            direction: Direction::Outgoing,
        };
        for _ in 0..2 {
            policy.on_signal(Instant::ZERO, &Signal::Joined(spec));
        }
        let actions: Vec<Action> = std::iter::from_fn(|| policy.poll_action()).collect();
        assert_eq!(
            actions,
            [
                Action::ChunkSize(Bytes::new(25_000)),
                Action::ChunksOutstanding(2),
                Action::Release(FlowId(0)),
                Action::Release(FlowId(1)),
            ]
        );
        policy.on_signal(Instant::ZERO, &Signal::Left(FlowId(0)));
        assert_eq!(policy.class_of(FlowId(0)), None);
        assert_eq!(policy.class_of(FlowId(1)), Some(FlowClass::Bandwidth));
        assert_eq!(policy.poll_timeout(), None);
    }
}
