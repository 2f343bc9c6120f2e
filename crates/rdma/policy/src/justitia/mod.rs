//! Justitia: latency flows stay fast next to hungry ones on one RDMA NIC (Zhang et al., NSDI 2022).
//!
//! Problem: a NIC serves posted work greedily, so a large message delays the small ones of all flows, and a host cannot
//! withdraw a posted request. Method: bandwidth and throughput flows post only what their tokens cover; latency flows
//! are not paced. Tokens are issued at rate SafeUtil, weighted round robin among the flows that wait. While a latency
//! flow exists, a reference flow of small messages is timed: every RefPeriod SafeUtil is halved, though never below the
//! guaranteed R_min, if the exact 99th percentile of its last RefCount latencies exceeds the target, and raised by one
//! step otherwise (pseudocode 1). Without latency flows SafeUtil is the device's maximum and tokens are large. READs
//! are paced where they are posted, at the rate that the host they read from grants (section 4.5).
//!
//! Cases the paper leaves open:
//! * Before the first reference latency SafeUtil keeps its value. With fewer than RefCount samples the
//!   percentile is over those there are: by nearest rank the largest of the first 99. The window is emptied
//!   whenever the reference flow starts.
//! * SafeUtil rises only on a new sample: a reference message that is stuck proves nothing good.
//! * While no hungry flow is active there is nothing to learn, and SafeUtil keeps its value.
//! * A hungry flow counts from its first posted work, and no longer once it has no work in the device either and
//!   has been idle for `idle_after`; a latency flow counts from joining to leaving, since its silence is no reason
//!   to stop protecting it.
//! * Remote READs are granted their part of R_min rather than of SafeUtil, so hosts exchange messages only when flows
//!   arrive or leave.
//!
//! Units: picoseconds, bytes, bits per second, all integers. Source: sections 4, 5.2 and appendices C.3, D, F.
//! Limits: one reference flow and one peer per instance (several peers: see [`RemoteState`]); a flow is one
//! class at a time; memory grows only when a flow joins.

mod divided;
mod foreign;
mod options;
mod share;

pub use options::JustitiaOptions;
pub use share::Weights;

use super::classify::FlowClassifier;
use super::pacing::Pacer;
use super::{
    Action, Completion, Direction, FlowClass, FlowId, FlowSpec, Policy, RemoteState, Signal,
};
use isolane_common_quantities::OptionError;
use isolane_common_quantities::stats::SlidingQuantile;
use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant, Ratio};
use share::Shares;
use std::collections::{BTreeMap, VecDeque};

/// The policy of one host.
///
/// A caller reports events, performs actions, and comes back at the time the policy names:
///
/// ```
/// use isolane_rdma_policy::justitia::{Justitia, JustitiaOptions};
/// use isolane_rdma_policy::{Action, Direction, FlowClass, FlowId, FlowSpec, Policy, Signal};
/// use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant};
///
/// let options = JustitiaOptions::for_device(BitRate::from_gbps(48), 30_000_000, Duration::from_us(2));
/// let mut policy = Justitia::new(options)?;
/// let mut now = Instant::ZERO;
/// for class in [FlowClass::Latency, FlowClass::Bandwidth] {
///     let spec = FlowSpec { class: Some(class), weight: 1, direction: Direction::Outgoing };
///     policy.on_signal(now, &Signal::Joined(spec));
/// }
/// let mut waiting = Bytes::from_mib(1);
/// policy.on_signal(now, &Signal::Backlog { flow: FlowId(1), bytes: waiting, operations: 1 });
/// while waiting > Bytes::ZERO {
///     while let Some(action) = policy.poll_action() {
///         match action {
///             // The daemon would post this much of the message to the NIC.
///             Action::Grant { bytes, .. } => waiting -= bytes,
///             // It would send 10 bytes and report the completion; here it took 3 us, above the target.
///             Action::SendReference => {
///                 policy.on_signal(now, &Signal::ReferenceLatency(Duration::from_us(3)));
///             }
///             _ => {}
///         }
///     }
///     now = policy.poll_timeout().expect("work waits and a latency flow is there");
///     policy.handle_timeout(now);
/// }
/// // The target is missed, so the bandwidth flow gets what it is guaranteed: half of the device.
/// assert_eq!(policy.safe_util(), BitRate::from_gbps(24));
/// # Ok::<(), isolane_common_quantities::OptionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Justitia {
    options: JustitiaOptions,
    flows: Vec<Flow>,
    local: Weights,
    remote: RemoteState,
    announced: RemoteState,
    /// Flows that send, at their part of SafeUtil.
    sending: Pacer,
    /// Flows that READ, at the rate the other host grants.
    reading: Pacer,
    window: SlidingQuantile,
    has_new_sample: bool,
    safe_util: BitRate,
    minimum: BitRate,
    chunk: Bytes,
    timers: [Instant; TIMERS],
    actions: VecDeque<Action>,
    references_sent: u64,
    reclassified: u64,
    foreign: foreign::Foreign,
}

#[derive(Clone, Debug)]
struct Flow {
    spec: FlowSpec,
    classifier: FlowClassifier,
    class: FlowClass,
    /// False once it has left.
    present: bool,
    /// True while its weight is part of the share arithmetic.
    counted: bool,
}

/// The percentile that the target bounds.
const TAIL: Ratio = Ratio::new(99, 100);

/// Actions queued between two polls without growing: a burst of backlog tokens for each stream and the rest.
const ACTIONS: usize = 64;

const SEND_TOKEN: usize = 0;
const READ_TOKEN: usize = 1;
const REFERENCE: usize = 2;
const IDLE: usize = 3;
const TIMERS: usize = 4;

impl Justitia {
    /// A host without flows. Fails if an option cannot work; see [`JustitiaOptions::check`].
    pub fn new(options: JustitiaOptions) -> Result<Self, OptionError> {
        options.check()?;
        let chunk = options.token_without_latency;
        let pacer = Pacer::new(options.capacity(), chunk, options.token_backlog_max);
        let mut actions = VecDeque::with_capacity(ACTIONS);
        actions.push_back(Action::ChunkSize(chunk));
        Ok(Self {
            window: SlidingQuantile::with_target(options.reference_count, TAIL),
            safe_util: options.rate_max,
            minimum: BitRate::ZERO,
            flows: Vec::new(),
            local: Weights::default(),
            remote: RemoteState::default(),
            announced: RemoteState::default(),
            sending: pacer.clone(),
            reading: pacer,
            has_new_sample: false,
            chunk,
            timers: [Instant::MAX; TIMERS],
            actions,
            references_sent: 0,
            reclassified: 0,
            foreign: foreign::Foreign::default(),
            options,
        })
    }

    /// The rate at which hungry flows, remote READs included, may use this NIC now.
    pub fn safe_util(&self) -> BitRate {
        self.safe_util
    }

    /// R_min: the guaranteed rate at any latency; zero while none is active.
    pub fn minimum_rate(&self) -> BitRate {
        self.minimum
    }

    /// The reference flow's 99th percentile over its window; `None` before the first sample.
    pub fn estimated_p99(&self) -> Option<Duration> {
        self.window.target_quantile().map(Duration::from_ps)
    }

    /// Summed weights of this host's hungry flows that are active: those that send, and those that READ.
    pub(crate) fn hungry_weights(&self) -> [u64; 2] {
        [self.local.sending_hungry, self.local.reading_hungry]
    }

    /// Whether a latency flow is known here or at the other host.
    pub fn has_latency(&self) -> bool {
        self.shares().has_latency()
    }

    /// Lets the tokens of flows that send and of those that READ carry so many messages per second, at any rate in
    /// bytes. A stream without a rate keeps what it has.
    pub(crate) fn set_messages_per_s(&mut self, now: Instant, messages_per_s: [u64; 2]) {
        for (pacer, wanted) in [&mut self.sending, &mut self.reading]
            .into_iter()
            .zip(messages_per_s)
        {
            let rate = pacer.rate().as_bps();
            if rate == 0 || wanted == 0 {
                continue;
            }
            // A token of so many bytes carries messages at the ratio of the two full rates.
            let at_full_rate = u128::from(wanted) * u128::from(self.options.rate_max.as_bps());
            let at_full_rate = u64::try_from(at_full_rate / u128::from(rate)).unwrap_or(u64::MAX);
            pacer.set_messages_per_s(now, at_full_rate.max(1));
        }
        self.arm();
    }

    fn shares(&self) -> Shares<'_> {
        Shares {
            local: &self.local,
            remote: &self.remote,
            rate_max: self.options.rate_max,
            count_latency_as_one: self.options.count_latency_as_one,
        }
    }

    fn pacer(&mut self, direction: Direction) -> &mut Pacer {
        match direction {
            Direction::Outgoing => &mut self.sending,
            Direction::RemoteRead => &mut self.reading,
        }
    }

    fn join(&mut self, now: Instant, spec: FlowSpec) {
        let flow = FlowId(self.flows.len() as u32);
        let classifier = FlowClassifier::new(&spec);
        self.flows.push(Flow {
            spec,
            class: classifier.class(),
            classifier,
            present: true,
            counted: false,
        });
        self.sending.join(spec.weight);
        self.reading.join(spec.weight);
        self.announce(now, flow);
    }

    /// Says how a flow of its class is treated, and counts it if it is a latency flow.
    fn announce(&mut self, now: Instant, flow: FlowId) {
        if self.flows[flow.0 as usize].class == FlowClass::Latency {
            self.actions.push_back(Action::Release(flow));
            self.count(flow);
            self.refresh(now);
        } else {
            self.actions.push_back(Action::Hold(flow));
        }
    }

    /// Takes `flow` out of everything that knows its class.
    fn withdraw(&mut self, now: Instant, flow: FlowId) {
        self.uncount(flow);
        let Flow { spec, class, .. } = self.flows[flow.0 as usize];
        if class != FlowClass::Latency {
            self.pacer(spec.direction).forget(now, flow);
        }
    }

    fn count(&mut self, flow: FlowId) {
        let flow = &mut self.flows[flow.0 as usize];
        if !flow.counted {
            flow.counted = true;
            *self.local.of(&flow.spec, flow.class) += u64::from(flow.spec.weight);
        }
    }

    fn uncount(&mut self, flow: FlowId) {
        let flow = &mut self.flows[flow.0 as usize];
        if flow.counted {
            flow.counted = false;
            *self.local.of(&flow.spec, flow.class) -= u64::from(flow.spec.weight);
        }
    }

    fn leave(&mut self, now: Instant, flow: FlowId) {
        if !self.flows[flow.0 as usize].present {
            return;
        }
        self.withdraw(now, flow);
        self.flows[flow.0 as usize].present = false;
        self.refresh(now);
    }

    fn backlog(&mut self, now: Instant, flow: FlowId, bytes: Bytes, operations: u64) {
        let Flow {
            spec,
            class,
            present,
            counted,
            ..
        } = self.flows[flow.0 as usize];
        if !present || class == FlowClass::Latency {
            return;
        }
        if !counted && (bytes > Bytes::ZERO || operations > 0) {
            self.count(flow);
            self.refresh(now);
        }
        let pacer = match spec.direction {
            Direction::Outgoing => &mut self.sending,
            Direction::RemoteRead => &mut self.reading,
        };
        pacer.want(now, flow, bytes, operations, &mut self.actions);
        pacer.advance(now, &mut self.actions);
        self.arm();
    }

    #[cold]
    fn reclassify(&mut self, now: Instant, flow: FlowId, class: FlowClass) {
        self.reclassified += 1;
        let before = self.flows[flow.0 as usize].class;
        let changes_kind = (before == FlowClass::Latency) != (class == FlowClass::Latency);
        if changes_kind {
            self.withdraw(now, flow);
        }
        self.flows[flow.0 as usize].class = class;
        if changes_kind {
            self.announce(now, flow);
            self.refresh(now);
        }
    }

    /// Works out everything that depends on who is there, after an arrival, a departure or a remote report.
    fn refresh(&mut self, now: Instant) {
        let has_latency = self.shares().has_latency();
        match (has_latency, self.timers[REFERENCE] == Instant::MAX) {
            (true, true) => {
                self.window.clear();
                self.has_new_sample = false;
                self.send_reference(now);
            }
            (false, false) => self.timers[REFERENCE] = Instant::MAX,
            _ => {}
        }
        self.minimum = self.shares().minimum();
        self.safe_util = match has_latency {
            true => self.safe_util.max(self.minimum),
            false => self.options.rate_max,
        };
        self.apply(now);
        self.tell();
    }

    /// Pseudocode 1, at the end of each RefPeriod.
    fn adapt(&mut self, now: Instant) {
        let is_new = std::mem::take(&mut self.has_new_sample);
        if let Some(estimated) = self.estimated_p99()
            && self.shares().leaving() > 0
        {
            if estimated > self.options.target {
                if self.foreign.permits_halving(self.safe_util) {
                    let half = BitRate::from_bps(self.safe_util.as_bps() / 2);
                    self.safe_util = half.max(self.minimum);
                }
            } else if is_new {
                let step = self.options.additive_step.as_bps();
                let raised = self.safe_util.as_bps().saturating_add(step);
                self.safe_util = BitRate::from_bps(raised).min(self.options.rate_max);
            }
            self.apply(now);
        }
    }

    /// Sets token streams and token size from SafeUtil and the rate granted to READs.
    fn apply(&mut self, now: Instant) {
        let sending = self.shares().sending_part(self.safe_util);
        let reading = match self.remote.read_rate {
            BitRate::ZERO => self.options.rate_max,
            granted => granted.min(self.options.rate_max),
        };
        self.sending.set_rate(now, sending);
        self.reading.set_rate(now, reading);
        let chunk = match self.shares().has_latency() {
            true => self.options.token_for(self.safe_util),
            false => self.options.token_without_latency,
        };
        if chunk != self.chunk {
            self.chunk = chunk;
            self.sending.set_token_bytes(now, chunk);
            self.reading.set_token_bytes(now, chunk);
            self.actions.push_back(Action::ChunkSize(chunk));
        }
        self.sending.advance(now, &mut self.actions);
        self.reading.advance(now, &mut self.actions);
        self.arm();
    }

    /// Sends this host's report to the other host, if it changed.
    fn tell(&mut self) {
        let state = RemoteState {
            sending_hungry_weight: self.local.sending_hungry,
            sending_latency_weight: self.local.sending_latency,
            reading_hungry_weight: self.local.reading_hungry,
            reading_latency_weight: self.local.reading_latency,
            receiving_hungry_weight: self.remote.sending_hungry_weight,
            receiving_latency_weight: self.remote.sending_latency_weight,
            read_rate: self.shares().read_grant(),
        };
        if state != self.announced {
            self.announced = state;
            self.actions.push_back(Action::Tell(state));
        }
    }

    fn send_reference(&mut self, now: Instant) {
        self.references_sent += 1;
        self.actions.push_back(Action::SendReference);
        self.timers[REFERENCE] = now + self.options.reference_period;
    }

    /// Lets go of flows that have been idle for long.
    fn expire(&mut self, now: Instant) {
        let idle_after = self.options.idle_after;
        let mut any = false;
        while let Some(flow) = self
            .sending
            .pop_idle(now, idle_after)
            .or_else(|| self.reading.pop_idle(now, idle_after))
        {
            self.uncount(flow);
            any = true;
        }
        if any {
            self.refresh(now);
        }
    }

    /// Sets the timers that follow from the streams' state.
    #[inline]
    fn arm(&mut self) {
        self.timers[SEND_TOKEN] = self.sending.next_token().unwrap_or(Instant::MAX);
        self.timers[READ_TOKEN] = self.reading.next_token().unwrap_or(Instant::MAX);
        self.arm_idle();
    }

    #[inline]
    fn arm_idle(&mut self) {
        let quiet = |pacer: &Pacer| pacer.quiet_since().unwrap_or(Instant::MAX);
        let since = quiet(&self.sending).min(quiet(&self.reading));
        self.timers[IDLE] = since.saturating_add(self.options.idle_after);
    }
}

impl Policy for Justitia {
    fn on_sent(&mut self, now: Instant, flow: FlowId, bytes: Bytes) {
        let state = &mut self.flows[flow.0 as usize];
        if !state.present {
            return;
        }
        let class = match &self.options.classifier {
            Some(options) => state.classifier.on_sent(options, now, bytes),
            None => None,
        };
        if let Some(class) = class {
            self.reclassify(now, flow, class);
        }
    }

    fn on_completion(&mut self, now: Instant, completion: &Completion) {
        let flow = &mut self.flows[completion.flow.0 as usize];
        flow.classifier.on_completion();
        if flow.counted && flow.class != FlowClass::Latency {
            let direction = flow.spec.direction;
            if self
                .pacer(direction)
                .completed(now, completion.flow, completion.operations)
            {
                self.arm();
            } else {
                self.arm_idle();
            }
        }
    }

    fn on_signal(&mut self, now: Instant, signal: &Signal) {
        match *signal {
            Signal::Joined(spec) => self.join(now, spec),
            Signal::Left(flow) => self.leave(now, flow),
            Signal::Backlog {
                flow,
                bytes,
                operations,
            } => self.backlog(now, flow, bytes, operations),
            Signal::ReferenceLatency(latency) => {
                // A message that was under way when the reference flow stopped says nothing of its successor.
                if self.timers[REFERENCE] != Instant::MAX {
                    self.window.push(latency.as_ps());
                    self.has_new_sample = true;
                }
            }
            Signal::Remote(state) => {
                self.remote = state;
                self.refresh(now);
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if now >= self.timers[REFERENCE] {
            self.adapt(now);
            // The period is kept exactly unless the caller came a whole period late.
            let due = self.timers[REFERENCE];
            let missed = now.saturating_since(due) >= self.options.reference_period;
            self.send_reference(if missed { now } else { due });
        }
        if now >= self.timers[IDLE] {
            self.expire(now);
        }
        if now >= self.timers[SEND_TOKEN] {
            self.sending.advance(now, &mut self.actions);
        }
        if now >= self.timers[READ_TOKEN] {
            self.reading.advance(now, &mut self.actions);
        }
        self.arm();
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        let [a, b, c, d] = self.timers;
        let first = a.min(b).min(c.min(d));
        (first < Instant::MAX).then_some(first)
    }

    #[inline]
    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn snapshot(&self) -> BTreeMap<&'static str, f64> {
        let token = self.sending.token();
        let tau = self.sending.rate().time_for(Bytes::new(token.bytes));
        let weights = &self.local;
        let mut figures = BTreeMap::from([
            ("target_us", self.options.target.as_us_f64()),
            ("safe_util_gbps", self.safe_util.as_gbps_f64()),
            ("minimum_rate_gbps", self.minimum.as_gbps_f64()),
            ("sending_rate_gbps", self.sending.rate().as_gbps_f64()),
            ("reading_rate_gbps", self.reading.rate().as_gbps_f64()),
            (
                "read_rate_granted_gbps",
                self.announced.read_rate.as_gbps_f64(),
            ),
            ("token_bytes", token.bytes as f64),
            ("token_operations", token.operations as f64),
            ("tokens_sending", self.sending.tokens_taken() as f64),
            ("tokens_reading", self.reading.tokens_taken() as f64),
            ("references_sent", self.references_sent as f64),
            ("reference_samples", self.window.len() as f64),
            ("sending_hungry_weight", weights.sending_hungry as f64),
            ("sending_latency_weight", weights.sending_latency as f64),
            ("reading_hungry_weight", weights.reading_hungry as f64),
            ("reading_latency_weight", weights.reading_latency as f64),
            (
                "waiting_flows",
                self.sending.waiting_flows() as f64 + self.reading.waiting_flows() as f64,
            ),
            ("reclassified_flows", self.reclassified as f64),
        ]);
        if tau < Duration::MAX {
            figures.insert("token_interval_us", tau.as_us_f64());
        }
        if let Some(estimated) = self.estimated_p99() {
            figures.insert("reference_p99_us", estimated.as_us_f64());
        }
        figures
    }

    fn class_of(&self, flow: FlowId) -> Option<FlowClass> {
        let flow = self.flows.get(flow.0 as usize)?;
        flow.present.then_some(flow.class)
    }
}

#[cfg(test)]
mod by_leases;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
