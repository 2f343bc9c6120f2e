//! Schedulers and rate limits as pure data structures, in exact integer arithmetic.
//!
//! A scheduler holds packets (or messages, or work requests: anything with a size) of many flows and names
//! the next one to serve. It knows no time: the caller serves one packet after another at whatever rate, and
//! calls [`Scheduler::dequeue`] when the resource is free. Packets of one flow never overtake each other, and
//! a scheduler with packets always gives one (it is work-conserving).
//!
//! | scheduler | shares by | decision | at most off by |
//! |---|---|---|---|
//! | [`RoundRobin`] | packets | O(1) | one packet |
//! | [`WeightedRoundRobin`] | packets and weight | O(1) | one turn |
//! | [`DeficitRoundRobin`] | bytes and weight | O(1) for quanta of a packet or more | one quantum and one packet |
//! | [`FairQueueing`] | bytes and weight | O(log flows) | one packet |
//! | [`StrictPriority`] | rank | O(levels) | - |
//!
//! [`TokenBucket`] limits a rate and takes the time as an argument.
//!
//! Limits: flow ids are dense from zero; memory grows with the highest id. Queues keep their memory when they
//! empty, so a steady load allocates nothing.

mod deficit_round_robin;
mod fair_queueing;
mod flow_queues;
mod round_robin;
mod strict_priority;
#[cfg(test)]
mod tests;
mod token_bucket;
mod weighted_round_robin;

pub use crate::policy::FlowId;
pub use deficit_round_robin::DeficitRoundRobin;
pub use fair_queueing::FairQueueing;
pub use round_robin::RoundRobin;
pub use strict_priority::StrictPriority;
pub use token_bucket::TokenBucket;
pub use weighted_round_robin::WeightedRoundRobin;

use crate::units::Bytes;

/// Packets of many flows in, one packet at a time out.
pub trait Scheduler {
    /// Queues a packet of `size` behind the others of its flow.
    fn enqueue(&mut self, flow: FlowId, size: Bytes);

    /// Takes the packet to serve next; `None` exactly when none is queued.
    fn dequeue(&mut self) -> Option<(FlowId, Bytes)>;

    /// Packets queued.
    fn len(&self) -> usize;

    /// True when no packet is queued.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
