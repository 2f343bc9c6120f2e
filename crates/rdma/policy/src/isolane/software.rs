//! `isolane-sw`: Justitia's pacing, counted in what requests cost, with a bound on queue pairs in use.
//!
//! Problem: Justitia shares bytes and messages, but a NIC runs out of other things first (husky 4.5.3). An atomic
//! costs as much of the responder as twenty WRITEs; a tenant with many queue pairs throws the others' contexts out
//! of the NIC's cache; a SEND that finds no receive stops the receive units.
//! Method: everything that follows is decided where Justitia decides, before a request is posted.
//!
//! * **Normalised requests.** The caller counts operations in [`Signal::Backlog`] and [`Completion`] by what they
//!   cost on the device, not one by one. Token arithmetic is unchanged.
//! * **Headroom.** Tokens come at less than what the device can do, so that no queue builds inside it: latency flows
//!   need no reference flow and no target. They go first inside the NIC (a hardware queue of strict priority, which
//!   the caller sets up), and while one is there hungry flows' chunks are small and their requests fewer: processing
//!   units serve in order of arrival, so what keeps waits short there is the load alone.
//! * **Both directions.** Units that answer are the same that take answers, so hungry flows of both hosts share the
//!   request rate by weight. Bytes they share as in Justitia, for the link is full duplex.
//! * **Working sets.** While tenants share the NIC, a flow keeps at most its part of the context cache's entries in
//!   use at a time, by weight, both hosts' flows counted, since a responder's contexts fill the same cache. The
//!   caller lets the flow's other queue pairs wait and changes the set every [`SLICE`] or, beside latency flows,
//!   every [`SLICE_BESIDE_LATENCY`]. A flow that is alone uses
//!   as many as it likes.
//! * **Receives.** A SEND waits in the shim until the other end has said that a receive is posted, so no
//!   receiver-not-ready happens. That is the caller's, which knows both ends.
//!
//! Units: picoseconds, bytes, normalised requests. Source: ours; the parts are those of justitia 4, harmonic 5.5 and
//! husky 4.6, put together after the audit's table. Limits: tenants must run under the shim, as with Justitia.
//! Translation misses are not counted: with one rate for all requests, a tenant whose misses hide behind each other
//! would pay for others'. Work without a work request, such as registering memory, is limited elsewhere.

use crate::justitia::{Justitia, JustitiaOptions};
use crate::{Action, Completion, FlowClass, FlowId, Policy, RemoteState, Signal};
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant, Ratio};
use std::collections::{BTreeMap, VecDeque};

/// How long a queue pair stays in its flow's working set at least: long against a round trip, so that fetching its
/// context again is spread over many messages, short against what an application calls a stall.
pub const SLICE: Duration = Duration::from_us(100);
/// The same while a latency flow is there. Every change of the set throws out a context at random; at this pace
/// fewer than one latency message in a hundred finds its own missing.
pub const SLICE_BESIDE_LATENCY: Duration = Duration::from_us(500);
/// Part of the context cache that working sets fill: completion queues live there too, and the cache replaces at
/// random, so the last entries cannot be relied on.
const CACHE_PART: Ratio = Ratio::new(3, 4);
/// No reference flow's latency is ever above it: the target that switches pseudocode 1 off.
const NO_TARGET: Duration = Duration::from_secs(1_000);

/// The policy's parameters of the device.
#[derive(Clone, Debug, PartialEq)]
pub struct SoftwareOptions {
    /// Pacing, as for Justitia. The target is ignored.
    pub pacing: JustitiaOptions,
    /// Part of the device's rates that tokens are made of.
    pub headroom: Ratio,
    /// Part of the request rate that is used while a latency flow exists.
    pub request_headroom: Ratio,
    /// Entries of the NIC's context cache.
    pub context_entries: u32,
}

impl SoftwareOptions {
    /// For a device with these rates (normalised requests per second) and that many context cache entries.
    pub fn for_device(rate_max: BitRate, requests_per_s: u64, context_entries: u32) -> Self {
        Self {
            pacing: JustitiaOptions::for_device(rate_max, requests_per_s, NO_TARGET),
            headroom: Ratio::new(95, 100),
            request_headroom: Ratio::new(70, 100),
            context_entries,
        }
    }
}

/// The policy of one host.
#[derive(Clone, Debug)]
pub struct Software {
    pacing: Justitia,
    context_entries: u32,
    requests_per_s: u64,
    request_headroom: Ratio,
    /// Request rate of the tokens now, for flows that send and for those that READ.
    requests_now: [u64; 2],
    /// Weight of each flow, zero once it has left.
    weights: Vec<u32>,
    /// The limit and the slice last announced for each flow.
    limits: Vec<(u32, Duration)>,
    remote: RemoteState,
    actions: VecDeque<Action>,
}

impl Software {
    /// A host without flows. Fails if an option cannot work.
    pub fn new(options: SoftwareOptions) -> Result<Self, OptionError> {
        if options.context_entries == 0 {
            return Err(OptionError::new(
                "context_entries",
                0,
                "give the entries of the NIC's context cache, at least 1",
            ));
        }
        let mut pacing = options.pacing;
        let part = |whole: u64| options.headroom.of(whole).max(1);
        pacing.target = NO_TARGET;
        pacing.rate_max = BitRate::from_bps(part(pacing.rate_max.as_bps()));
        pacing.message_rate_max_per_s = part(pacing.message_rate_max_per_s);
        let scaled =
            |(rate, token): &(BitRate, Bytes)| (BitRate::from_bps(part(rate.as_bps())), *token);
        pacing.token_dictionary = pacing.token_dictionary.iter().map(scaled).collect();
        Ok(Self {
            requests_per_s: pacing.message_rate_max_per_s,
            requests_now: [pacing.message_rate_max_per_s; 2],
            request_headroom: options.request_headroom,
            pacing: Justitia::new(pacing)?,
            context_entries: options.context_entries,
            weights: Vec::new(),
            limits: Vec::new(),
            remote: RemoteState::default(),
            actions: VecDeque::new(),
        })
    }

    /// Computes every flow's working set after a flow arrived or left, and announces those that changed.
    fn refresh(&mut self) {
        let here: u64 = self.weights.iter().map(|&weight| u64::from(weight)).sum();
        let remote = &self.remote;
        let there = remote.sending_hungry_weight
            + remote.sending_latency_weight
            + remote.reading_hungry_weight
            + remote.reading_latency_weight;
        let slice = match self.pacing.has_latency() {
            true => SLICE_BESIDE_LATENCY,
            false => SLICE,
        };
        let entries = CACHE_PART.of(u64::from(self.context_entries));
        for (flow, &weight) in self.weights.iter().enumerate() {
            let weight = u64::from(weight);
            let limit = if weight == here + there {
                u32::MAX
            } else {
                (entries * weight / (here + there)).clamp(1, u64::from(u32::MAX)) as u32
            };
            if weight > 0 && self.limits[flow] != (limit, slice) {
                self.limits[flow] = (limit, slice);
                self.actions.push_back(Action::WorkingSet {
                    flow: FlowId(flow as u32),
                    queue_pairs: limit,
                    slice,
                });
            }
        }
    }
}

impl Software {
    /// Sets the request rate for the active flows: this host's part of it, and all of it or less.
    fn share_requests(&mut self, now: Instant) {
        let here = self.pacing.hungry_weights();
        let there = self.remote.sending_hungry_weight + self.remote.reading_hungry_weight;
        let all = here[0] + here[1] + there;
        if here == [0, 0] {
            return;
        }
        let whole = match self.pacing.has_latency() {
            true => self.request_headroom.of(self.requests_per_s),
            false => self.requests_per_s,
        };
        self.requests_now = here.map(|weight| match weight {
            0 => 0,
            weight => Ratio::new(weight, all).of(whole).max(1),
        });
        self.pacing.set_messages_per_s(now, self.requests_now);
    }
}

impl Policy for Software {
    fn on_sent(&mut self, now: Instant, flow: FlowId, bytes: Bytes) {
        self.pacing.on_sent(now, flow, bytes);
    }

    fn on_completion(&mut self, now: Instant, completion: &Completion) {
        self.pacing.on_completion(now, completion);
    }

    fn on_signal(&mut self, now: Instant, signal: &Signal) {
        match signal {
            Signal::Joined(spec) => {
                self.weights.push(spec.weight);
                self.limits.push((u32::MAX, SLICE));
            }
            Signal::Left(flow) => self.weights[flow.0 as usize] = 0,
            Signal::Remote(state) => self.remote = *state,
            Signal::Backlog { .. } | Signal::ReferenceLatency(_) => {}
        }
        self.pacing.on_signal(now, signal);
        if matches!(
            signal,
            Signal::Joined(_) | Signal::Left(_) | Signal::Remote(_)
        ) {
            self.refresh();
        }
        self.share_requests(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.pacing.handle_timeout(now);
        self.share_requests(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.pacing.poll_timeout()
    }

    fn poll_action(&mut self) -> Option<Action> {
        loop {
            match self.pacing.poll_action() {
                // Headroom takes the place of the reference flow.
                Some(Action::SendReference) => {}
                None => return self.actions.pop_front(),
                action => return action,
            }
        }
    }

    fn snapshot(&self) -> BTreeMap<&'static str, f64> {
        let mut figures = self.pacing.snapshot();
        let limits = self.limits.iter().map(|&(limit, _)| limit);
        let smallest = limits.min().unwrap_or(u32::MAX);
        if smallest < u32::MAX {
            figures.insert("working_set_queue_pairs", f64::from(smallest));
        }
        figures
    }

    fn class_of(&self, flow: FlowId) -> Option<FlowClass> {
        self.pacing.class_of(flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Direction, FlowSpec};

    fn policy() -> Software {
        let options = SoftwareOptions::for_device(BitRate::from_gbps(100), 90_000_000, 400);
        Software::new(options).expect("the options are sensible")
    }

    fn join(policy: &mut Software, weight: u32) -> Vec<Action> {
        let spec = FlowSpec {
            class: Some(FlowClass::Bandwidth),
            weight,
            direction: Direction::Outgoing,
        };
        policy.on_signal(Instant::ZERO, &Signal::Joined(spec));
        working_sets(policy)
    }

    fn working_sets(policy: &mut Software) -> Vec<Action> {
        std::iter::from_fn(|| policy.poll_action())
            .filter(|action| matches!(action, Action::WorkingSet { .. }))
            .collect()
    }

    fn set(flow: u32, queue_pairs: u32) -> Action {
        Action::WorkingSet {
            flow: FlowId(flow),
            queue_pairs,
            slice: SLICE,
        }
    }

    #[test]
    fn a_flow_that_is_alone_uses_as_many_queue_pairs_as_it_likes() {
        assert_eq!(join(&mut policy(), 1), []);
    }

    #[test]
    fn flows_share_three_quarters_of_the_cache_by_weight_until_one_leaves() {
        let mut policy = policy();
        join(&mut policy, 1);
        assert_eq!(join(&mut policy, 2), [set(0, 100), set(1, 200)]);
        policy.on_signal(Instant::ZERO, &Signal::Left(FlowId(1)));
        assert_eq!(working_sets(&mut policy), [set(0, u32::MAX)]);
    }

    #[test]
    fn flows_of_the_other_host_fill_the_same_cache() {
        let mut policy = policy();
        join(&mut policy, 1);
        let remote = RemoteState {
            sending_hungry_weight: 2,
            reading_latency_weight: 1,
            ..RemoteState::default()
        };
        policy.on_signal(Instant::ZERO, &Signal::Remote(remote));
        let mut expected = set(0, 75);
        if let Action::WorkingSet { slice, .. } = &mut expected {
            *slice = SLICE_BESIDE_LATENCY;
        }
        assert_eq!(working_sets(&mut policy), [expected]);
    }

    #[test]
    fn there_is_no_reference_flow_and_no_cut_of_the_rate() {
        let mut policy = policy();
        join(&mut policy, 1);
        let latency = FlowSpec {
            class: Some(FlowClass::Latency),
            weight: 1,
            direction: Direction::Outgoing,
        };
        policy.on_signal(Instant::ZERO, &Signal::Joined(latency));
        let mut now = Instant::ZERO;
        for _ in 0..1_000 {
            let backlog = Signal::Backlog {
                flow: FlowId(0),
                bytes: Bytes::from_mib(1),
                operations: 1,
            };
            policy.on_signal(now, &backlog);
            while let Some(action) = policy.poll_action() {
                assert_ne!(action, Action::SendReference);
            }
            now = policy.poll_timeout().expect("work waits");
            policy.handle_timeout(now);
        }
        assert_eq!(policy.snapshot()["safe_util_gbps"], 95.0);
    }

    #[test]
    fn hungry_flows_of_both_hosts_share_the_request_rate() {
        let mut policy = policy();
        join(&mut policy, 1);
        let backlog = Signal::Backlog {
            flow: FlowId(0),
            bytes: Bytes::from_mib(1),
            operations: 1,
        };
        policy.on_signal(Instant::ZERO, &backlog);
        assert_eq!(policy.requests_now, [85_500_000, 0]);
        let mut remote = RemoteState {
            reading_hungry_weight: 2,
            ..RemoteState::default()
        };
        policy.on_signal(Instant::ZERO, &Signal::Remote(remote));
        assert_eq!(policy.requests_now, [28_500_000, 0]);
        remote.sending_latency_weight = 1;
        policy.on_signal(Instant::ZERO, &Signal::Remote(remote));
        assert_eq!(policy.requests_now, [19_950_000, 0]);
    }

    #[test]
    fn a_device_without_a_context_cache_is_refused() {
        let options = SoftwareOptions::for_device(BitRate::from_gbps(100), 90_000_000, 0);
        let error = Software::new(options).expect_err("nothing can be shared");
        assert_eq!(error.name, "context_entries");
    }
}
