//! Finding out what a flow needs when it says nothing, or says it wrongly.
//!
//! Problem: applications do not always state their class, or not truthfully (justitia F, "dynamic classification"), and
//! some change their mind. A flow treated as latency is not paced, so a bulk flow under that label breaks the isolation
//! of all flows. Method: classify by posted messages, not by the declaration. Four panes of a quarter interval slide
//! over the flow's messages and give
//!   * the mean message size: small, large or in between;
//!   * the mean depth a message finds when posted (itself included): a closed loop of depth d shows d, a batch
//!     of b into an empty queue (b + 1) / 2; deep, shallow or in between;
//!   * the message rate: fast or not.
//!
//! Large is bandwidth; small and deep, or small and fast, is throughput; small, shallow and slow is latency.
//! Hysteresis twice: a value in between votes for the present class, and a new class must win several panes
//! in a row: few to lose the latency class (others suffer meanwhile), more to gain it (so that alternating
//! between modes does not pay).
//!
//! Units: bytes, messages, messages per second. Division: none; means are compared by products.
//! Parameters: 1,024 B and batches of 16 are the limits the public prototype's benchmarks use to declare their
//! classes; the rest is chosen here (see `docs/internals/justitia.md`).
//! Limits: a flow is judged while it posts; silence changes nothing. A flow of several queue pairs is judged as
//! one, so its depth is their sum.

use super::{FlowClass, FlowSpec};
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{Bytes, Duration, Instant};

/// Panes per sliding interval.
const PANES: usize = 4;

/// Thresholds, the same for all flows.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassifierOptions {
    /// Take a declared class as it is; otherwise check that `Latency` behaves so.
    pub trust_declared: bool,
    /// The sliding interval.
    pub interval: Duration,
    /// Messages an interval needs before it counts; a quarter of them closes a pane.
    pub messages_min: u64,
    /// Mean size up to which messages are small.
    pub small_max: Bytes,
    /// Mean size from which they are large.
    pub large_min: Bytes,
    /// Mean depth up to which a flow is shallow.
    pub shallow_max: u64,
    /// Mean depth from which it is deep.
    pub deep_min: u64,
    /// Messages per second from which a flow is fast.
    pub fast_min_per_s: u64,
    /// Panes in a row that must agree before a flow loses the latency class or moves between the others.
    pub panes_to_hold: u32,
    /// Panes in a row that must agree before a flow gains the latency class.
    pub panes_to_release: u32,
}

impl ClassifierOptions {
    /// The defaults for a device of `message_rate_max_per_s`: an eighth of it is fast, since flows that wait
    /// for each answer reach less (one pair at 1.3 us: 0.8 of 30 million per second).
    pub fn for_device(message_rate_max_per_s: u64) -> Self {
        Self {
            trust_declared: true,
            interval: Duration::from_ms(1),
            messages_min: 16,
            small_max: Bytes::new(1_024),
            large_min: Bytes::new(4_096),
            shallow_max: 4,
            deep_min: 8,
            fast_min_per_s: message_rate_max_per_s / 8,
            panes_to_hold: 2,
            panes_to_release: 8,
        }
    }

    /// Refuses thresholds that contradict each other. The error names the first option that is wrong, and what it may
    /// be.
    pub fn check(&self) -> Result<(), OptionError> {
        let positive = [
            ("interval", self.interval.as_ps()),
            ("messages_min", self.messages_min),
            ("small_max", self.small_max.get()),
            ("fast_min_per_s", self.fast_min_per_s),
            ("panes_to_hold", u64::from(self.panes_to_hold)),
            ("panes_to_release", u64::from(self.panes_to_release)),
        ];
        OptionError::require_positive(&positive)?;
        if self.large_min <= self.small_max {
            let remedy = format!("give more than small_max, {}", self.small_max);
            return Err(OptionError::new("large_min", self.large_min, remedy));
        }
        if self.deep_min <= self.shallow_max {
            let remedy = format!("give more than shallow_max, {}", self.shallow_max);
            return Err(OptionError::new("deep_min", self.deep_min, remedy));
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Pane {
    start: Instant,
    messages: u64,
    bytes: u64,
    depths: u64,
}

/// What a flow did in a stretch of time, as counters show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// How long it was.
    pub length: Duration,
    /// Messages posted.
    pub messages: u64,
    /// Their payload in bytes.
    pub bytes: u64,
    /// Mean depth that they found, themselves included; one where nothing else is known.
    pub depth: u64,
}

/// What is known of one flow.
///
/// ```
/// use isolane_rdma_policy::classify::{ClassifierOptions, FlowClassifier};
/// use isolane_rdma_policy::{Direction, FlowClass, FlowSpec};
/// use isolane_common_quantities::units::{Bytes, Duration, Instant};
///
/// let options = ClassifierOptions::for_device(30_000_000);
/// let silent = FlowSpec { class: None, weight: 1, direction: Direction::Outgoing };
/// let mut flow = FlowClassifier::new(&silent);
/// assert_eq!(flow.class(), FlowClass::Bandwidth); // Until it has shown otherwise.
/// let mut now = Instant::ZERO;
/// for _ in 0..10_000 {
///     flow.on_sent(&options, now, Bytes::new(16)); // One message at a time, every 2 us.
///     now += Duration::from_us(2);
///     flow.on_completion();
/// }
/// assert_eq!(flow.class(), FlowClass::Latency);
/// ```
#[derive(Clone, Debug)]
pub struct FlowClassifier {
    class: FlowClass,
    declared: Option<FlowClass>,
    outstanding: u64,
    /// A ring; the pane being filled is `panes[current]`.
    panes: [Pane; PANES],
    current: usize,
    candidate: FlowClass,
    votes: u32,
    changes: u32,
}

impl FlowClassifier {
    /// A flow with only its declaration. A flow without a declaration starts as bandwidth (justitia 4.2).
    pub fn new(spec: &FlowSpec) -> Self {
        let class = spec.class.unwrap_or(FlowClass::Bandwidth);
        Self {
            class,
            declared: spec.class,
            outstanding: 0,
            panes: [Pane::default(); PANES],
            current: 0,
            candidate: class,
            votes: 0,
            changes: 0,
        }
    }

    /// The class it is treated as.
    pub fn class(&self) -> FlowClass {
        self.class
    }

    /// How often the class changed.
    pub fn changes(&self) -> u32 {
        self.changes
    }

    /// The flow posted a message. Returns its new class when that changes.
    #[inline]
    pub fn on_sent(
        &mut self,
        options: &ClassifierOptions,
        now: Instant,
        bytes: Bytes,
    ) -> Option<FlowClass> {
        if self.is_settled(options) {
            return None;
        }
        self.outstanding += 1;
        let pane = &mut self.panes[self.current];
        if pane.messages == 0 {
            pane.start = now;
        }
        pane.messages += 1;
        pane.bytes += bytes.get();
        pane.depths += self.outstanding;
        self.close_pane_if_full(options, now)
    }

    #[inline]
    fn close_pane_if_full(
        &mut self,
        options: &ClassifierOptions,
        now: Instant,
    ) -> Option<FlowClass> {
        let pane = &self.panes[self.current];
        let quarter = PANES as u64;
        let full = pane.messages.saturating_mul(quarter) >= options.messages_min
            || pane.bytes >= options.large_min.get() * options.messages_min;
        let ended = now.saturating_since(pane.start).as_ps() * quarter >= options.interval.as_ps();
        if full && ended {
            return self.close_pane(options, now);
        }
        None
    }

    /// What happened since the last window, for callers that see counters instead of single messages; `now` is the
    /// window's end. Returns the new class when that changes.
    pub fn on_window(
        &mut self,
        options: &ClassifierOptions,
        now: Instant,
        window: Window,
    ) -> Option<FlowClass> {
        if self.is_settled(options) || window.messages == 0 {
            return None;
        }
        let pane = &mut self.panes[self.current];
        if pane.messages == 0 {
            pane.start = Instant::from_ps(now.as_ps().saturating_sub(window.length.as_ps()));
        }
        pane.messages = pane.messages.saturating_add(window.messages);
        pane.bytes = pane.bytes.saturating_add(window.bytes);
        let depths = window.messages.saturating_mul(window.depth);
        pane.depths = pane.depths.saturating_add(depths);
        self.close_pane_if_full(options, now)
    }

    /// One of its messages completed.
    #[inline]
    pub fn on_completion(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(1);
    }

    /// True when nothing the flow does can change its class: it is trusted, or it requested pacing, which harms no
    /// other flow.
    fn is_settled(&self, options: &ClassifierOptions) -> bool {
        match self.declared {
            None => false,
            Some(FlowClass::Latency) => options.trust_declared,
            Some(_) => true,
        }
    }

    #[cold]
    fn close_pane(&mut self, options: &ClassifierOptions, now: Instant) -> Option<FlowClass> {
        let verdict = self.judge(options, now);
        self.current = (self.current + 1) % PANES;
        self.panes[self.current] = Pane::default();
        if verdict == self.class {
            self.votes = 0;
            return None;
        }
        // What counts is leaving the class; of the classes to go to, the last seen wins, except that bandwidth
        // and throughput do not vote a flow into latency.
        let same_kind = (verdict == FlowClass::Latency) == (self.candidate == FlowClass::Latency);
        self.votes = if same_kind { self.votes + 1 } else { 1 };
        self.candidate = verdict;
        let needed = match verdict {
            FlowClass::Latency => options.panes_to_release,
            _ => options.panes_to_hold,
        };
        if self.votes < needed {
            return None;
        }
        self.votes = 0;
        self.changes += 1;
        self.class = verdict;
        Some(verdict)
    }

    /// The class that the sliding interval shows; the present one when it is not clear.
    fn judge(&self, options: &ClassifierOptions, now: Instant) -> FlowClass {
        let mut sum = Pane {
            start: now,
            ..Pane::default()
        };
        for pane in self.panes.iter().filter(|pane| pane.messages > 0) {
            sum.start = sum.start.min(pane.start);
            sum.messages = sum.messages.saturating_add(pane.messages);
            sum.bytes = sum.bytes.saturating_add(pane.bytes);
            sum.depths = sum.depths.saturating_add(pane.depths);
        }
        if sum.bytes >= options.large_min.get().saturating_mul(sum.messages) {
            return FlowClass::Bandwidth;
        }
        let small = sum.bytes <= options.small_max.get().saturating_mul(sum.messages);
        if !small && self.class == FlowClass::Bandwidth || sum.messages < options.messages_min {
            return self.class;
        }
        let elapsed_ps = u128::from(now.saturating_since(sum.start).as_ps());
        let fast = u128::from(sum.messages) * 1_000_000_000_000
            >= u128::from(options.fast_min_per_s) * elapsed_ps;
        if fast || sum.depths >= options.deep_min.saturating_mul(sum.messages) {
            return FlowClass::Throughput;
        }
        if sum.depths <= options.shallow_max.saturating_mul(sum.messages) {
            return FlowClass::Latency;
        }
        self.class
    }
}

#[cfg(test)]
mod tests;
