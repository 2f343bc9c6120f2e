//! LITE-style software priority: throttle the others while important work is about (justitia C.4).
//!
//! Problem: give high-priority flows a fast NIC from an indirection layer in software, without hardware queues.
//! Method: as we read LITE's software priority (Tsai and Zhang, SOSP 2017, its SW-Pri), latency flows are of
//! high priority and all others of low, and low-priority senders are limited together to one rate
//!   * while high-priority load is about: `load_messages_min` messages or more in the last `window`; or
//!   * while high-priority messages take longer than they can: their smoothed latency exceeds the least seen
//!     by `slowdown`;
//!
//! and not otherwise. Messages are not split and batches not cut, which is what the paper compares with: a large
//! message that has begun blocks the NIC as ever. Low-priority flows take turns by weight within the rate. The limit is
//! lifted at the end of the first window that needs none.
//!
//! Units: bits per second, picoseconds, messages. The smoothed latency is an integer average with weight 1/8.
//! Limits: LITE's own limits of rates and loads are not published in the seed papers; ours are parameters. The
//! limited rate is granted in pieces of `quantum`, and a message goes when all of it is granted.

use super::classify::{ClassifierOptions, FlowClassifier};
use super::pacing::{Capacity, Pacer};
use super::{Action, Completion, FlowClass, FlowId, Policy, Signal};
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant, Ratio};
use std::collections::{BTreeMap, VecDeque};

/// Parameters of [`Lite`].
#[derive(Clone, Debug, PartialEq)]
pub struct LiteOptions {
    /// Application-level bandwidth of the idle device.
    pub rate_max: BitRate,
    /// Messages per second of the idle device.
    pub message_rate_max_per_s: u64,
    /// What all low-priority flows together may use while limited.
    pub limited_share: Ratio,
    /// Over which time high-priority load is counted, and how long a limit lasts at least.
    pub window: Duration,
    /// High-priority messages in a window that make it loaded.
    pub load_messages_min: u64,
    /// Smoothed over least latency of high-priority messages from which low priority is limited.
    pub slowdown: Ratio,
    /// Bytes granted at a time while limited.
    pub quantum: Bytes,
    /// How to find the class of flows that declare none; `None` treats them as bandwidth for ever.
    pub classifier: Option<ClassifierOptions>,
}

impl LiteOptions {
    /// Half of the device for low priority while 1 high-priority message or more is seen in 100 us, or while
    /// they take 1.5 times their best; 64 KiB at a time.
    pub fn for_device(rate_max: BitRate, message_rate_max_per_s: u64) -> Self {
        Self {
            rate_max,
            message_rate_max_per_s,
            limited_share: Ratio::new(1, 2),
            window: Duration::from_us(100),
            load_messages_min: 1,
            slowdown: Ratio::new(3, 2),
            quantum: Bytes::from_kib(64),
            classifier: Some(ClassifierOptions::for_device(message_rate_max_per_s)),
        }
    }

    /// Refuses options under which the policy cannot work. The error names the first option that is wrong, and what it
    /// may be.
    pub fn check(&self) -> Result<(), OptionError> {
        let limited = self.limited_share.of(self.rate_max.as_bps());
        let positive = [
            ("rate_max", self.rate_max.as_bps()),
            ("message_rate_max_per_s", self.message_rate_max_per_s),
            ("limited_share", limited),
            ("window", self.window.as_ps()),
            ("load_messages_min", self.load_messages_min),
            ("quantum", self.quantum.get()),
        ];
        OptionError::require_positive(&positive)?;
        self.classifier
            .as_ref()
            .map_or(Ok(()), ClassifierOptions::check)?;
        let token = Pacer::new(self.capacity(), self.quantum, 1).token();
        if token.operations == 0 {
            let remedy = "give a quantum in whose time the device sends a message";
            return Err(OptionError::new("quantum", self.quantum, remedy));
        }
        Ok(())
    }

    fn capacity(&self) -> Capacity {
        Capacity {
            rate: self.rate_max,
            messages_per_s: self.message_rate_max_per_s,
        }
    }
}

/// The policy of one host.
///
/// ```
/// use isolane_rdma_policy::lite::{Lite, LiteOptions};
/// use isolane_rdma_policy::{Action, Direction, FlowClass, FlowId, FlowSpec, Policy, Signal};
/// use isolane_common_quantities::units::{BitRate, Bytes, Instant};
/// let mut policy = Lite::new(LiteOptions::for_device(BitRate::from_gbps(48), 30_000_000))?;
/// for class in [FlowClass::Latency, FlowClass::Bandwidth] {
///     let spec = FlowSpec { class: Some(class), weight: 1, direction: Direction::Outgoing };
///     policy.on_signal(Instant::ZERO, &Signal::Joined(spec));
/// }
/// assert_eq!(policy.poll_action(), Some(Action::Release(FlowId(0))));
/// assert_eq!(policy.poll_action(), Some(Action::Release(FlowId(1))));
/// // The latency flow sends: the other is held from now on.
/// policy.on_sent(Instant::ZERO, FlowId(0), Bytes::new(16));
/// assert_eq!(policy.poll_action(), Some(Action::Hold(FlowId(1))));
/// # Ok::<(), isolane_common_quantities::OptionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Lite {
    options: LiteOptions,
    flows: Vec<Flow>,
    pacer: Pacer,
    limited: bool,
    /// High-priority messages of the present window.
    load: u64,
    /// End of the present window; [`Instant::MAX`] while not limited.
    window_end: Instant,
    /// Start of the window while not limited.
    window_start: Instant,
    smoothed: Duration,
    least: Duration,
    actions: VecDeque<Action>,
    limits: u64,
}

#[derive(Clone, Debug)]
struct Flow {
    classifier: FlowClassifier,
    present: bool,
}

impl Flow {
    fn is_low(&self) -> bool {
        self.present && self.classifier.class() != FlowClass::Latency
    }
}

impl Lite {
    /// A host without flows. Fails if an option cannot work; see [`LiteOptions::check`].
    pub fn new(options: LiteOptions) -> Result<Self, OptionError> {
        options.check()?;
        let mut pacer = Pacer::new(options.capacity(), options.quantum, 1);
        let limited = options.limited_share.of(options.rate_max.as_bps());
        pacer.set_rate(Instant::ZERO, BitRate::from_bps(limited));
        Ok(Self {
            options,
            flows: Vec::new(),
            pacer,
            limited: false,
            load: 0,
            window_end: Instant::MAX,
            window_start: Instant::ZERO,
            smoothed: Duration::ZERO,
            least: Duration::MAX,
            actions: VecDeque::new(),
            limits: 0,
        })
    }

    /// True while low-priority flows are limited.
    pub fn is_limited(&self) -> bool {
        self.limited
    }

    fn is_slow(&self) -> bool {
        self.least < Duration::MAX
            && self.smoothed.as_ps() > self.options.slowdown.of(self.least.as_ps())
    }

    /// A high-priority message was posted or completed.
    fn observe(&mut self, now: Instant, messages: u64) {
        if !self.limited && now.saturating_since(self.window_start) >= self.options.window {
            self.window_start = now;
            self.load = 0;
        }
        self.load += messages;
        if !self.limited && (self.load >= self.options.load_messages_min || self.is_slow()) {
            self.set_limited(now, true);
        }
    }

    fn set_limited(&mut self, now: Instant, limited: bool) {
        self.limited = limited;
        self.limits += u64::from(limited);
        self.window_start = now;
        self.window_end = match limited {
            true => now.saturating_add(self.options.window),
            false => Instant::MAX,
        };
        self.load = 0;
        for flow in 0..self.flows.len() as u32 {
            if self.flows[flow as usize].is_low() {
                self.treat(now, FlowId(flow));
            }
        }
    }

    /// Says how the flow is treated from now on.
    fn treat(&mut self, now: Instant, flow: FlowId) {
        let is_held = self.limited && self.flows[flow.0 as usize].is_low();
        if is_held {
            self.actions.push_back(Action::Hold(flow));
        } else {
            self.pacer.forget(now, flow);
            self.actions.push_back(Action::Release(flow));
        }
    }
}

impl Policy for Lite {
    fn on_sent(&mut self, now: Instant, flow: FlowId, bytes: Bytes) {
        let state = &mut self.flows[flow.0 as usize];
        if !state.present {
            return;
        }
        let was_low = state.is_low();
        if let Some(options) = &self.options.classifier {
            state.classifier.on_sent(options, now, bytes);
        }
        let is_low = state.is_low();
        if was_low != is_low && self.limited {
            self.treat(now, flow);
        }
        if !is_low {
            self.observe(now, 1);
        }
    }

    fn on_completion(&mut self, now: Instant, completion: &Completion) {
        let state = &mut self.flows[completion.flow.0 as usize];
        state.classifier.on_completion();
        if !state.present || state.is_low() {
            return;
        }
        self.least = self.least.min(completion.latency);
        self.smoothed = match self.smoothed {
            Duration::ZERO => completion.latency,
            smoothed => (smoothed * 7 + completion.latency) / 8,
        };
        self.observe(now, 0);
    }

    fn on_signal(&mut self, now: Instant, signal: &Signal) {
        match *signal {
            Signal::Joined(spec) => {
                let flow = FlowId(self.flows.len() as u32);
                let classifier = FlowClassifier::new(&spec);
                self.flows.push(Flow {
                    classifier,
                    present: true,
                });
                self.pacer.join(spec.weight);
                // One change of the limit says something to every flow.
                self.actions.reserve(2 * self.flows.len());
                self.treat(now, flow);
            }
            Signal::Left(flow) => {
                self.pacer.forget(now, flow);
                self.flows[flow.0 as usize].present = false;
            }
            Signal::Backlog {
                flow,
                bytes,
                operations,
            } if self.limited && self.flows[flow.0 as usize].is_low() => {
                self.pacer
                    .want(now, flow, bytes, operations, &mut self.actions);
                self.pacer.advance(now, &mut self.actions);
            }
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if now >= self.window_end {
            let loaded = self.load >= self.options.load_messages_min;
            // Slow high-priority messages of the past are no reason once there are none.
            if loaded || (self.load > 0 && self.is_slow()) {
                self.load = 0;
                self.window_end = now.saturating_add(self.options.window);
            } else {
                self.set_limited(now, false);
            }
        }
        if self.limited {
            self.pacer.advance(now, &mut self.actions);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if !self.limited {
            return None;
        }
        let token = self.pacer.next_token().unwrap_or(Instant::MAX);
        Some(token.min(self.window_end))
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn snapshot(&self) -> BTreeMap<&'static str, f64> {
        BTreeMap::from([
            ("is_limited", f64::from(u8::from(self.limited))),
            ("limits", self.limits as f64),
            ("limited_rate_gbps", self.pacer.rate().as_gbps_f64()),
            ("high_priority_latency_us", self.smoothed.as_us_f64()),
            ("waiting_flows", f64::from(self.pacer.waiting_flows())),
        ])
    }

    fn class_of(&self, flow: FlowId) -> Option<FlowClass> {
        let flow = self.flows.get(flow.0 as usize)?;
        flow.present.then(|| flow.classifier.class())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Direction, FlowSpec};

    fn lite(classes: &[FlowClass]) -> Lite {
        let options = LiteOptions::for_device(BitRate::from_gbps(48), 30_000_000);
        let mut policy = Lite::new(options).unwrap();
        join(&mut policy, classes);
        drain(&mut policy);
        policy
    }

    fn join(policy: &mut Lite, classes: &[FlowClass]) {
        for &class in classes {
            let direction = Direction::Outgoing;
            let spec = FlowSpec {
                class: Some(class),
                weight: 1,
                direction,
            };
            policy.on_signal(Instant::ZERO, &Signal::Joined(spec));
        }
    }

    fn drain(policy: &mut Lite) -> Vec<Action> {
        std::iter::from_fn(|| policy.poll_action()).collect()
    }

    const HIGH: FlowId = FlowId(0);
    const LOW: FlowId = FlowId(1);

    #[test]
    fn low_priority_is_limited_only_while_high_priority_sends() {
        let mut policy = lite(&[FlowClass::Latency, FlowClass::Bandwidth]);
        let us = |us| Instant::ZERO + Duration::from_us(us);
        policy.on_sent(us(0), LOW, Bytes::from_mib(1));
        assert_eq!(drain(&mut policy), []);
        policy.on_sent(us(10), HIGH, Bytes::new(16));
        assert_eq!(drain(&mut policy), [Action::Hold(LOW)]);
        policy.on_sent(us(60), HIGH, Bytes::new(16));
        assert_eq!(policy.poll_timeout(), Some(us(110)));
        policy.handle_timeout(us(110));
        assert_eq!(drain(&mut policy), []);
        policy.handle_timeout(us(210));
        assert_eq!(drain(&mut policy), [Action::Release(LOW)]);
        assert_eq!(policy.poll_timeout(), None);
    }

    #[test]
    fn limited_flows_share_half_of_the_device() {
        let mut policy = lite(&[
            FlowClass::Latency,
            FlowClass::Bandwidth,
            FlowClass::Bandwidth,
        ]);
        let mut granted = [0u64; 3];
        let mut now = Instant::ZERO;
        let end = now + Duration::from_ms(10);
        policy.on_sent(now, HIGH, Bytes::new(16));
        for flow in [FlowId(1), FlowId(2)] {
            let bytes = Bytes::from_mib(1 << 20);
            let operations = 1;
            policy.on_signal(
                now,
                &Signal::Backlog {
                    flow,
                    bytes,
                    operations,
                },
            );
        }
        while now < end {
            policy.on_sent(now, HIGH, Bytes::new(16));
            now = policy.poll_timeout().unwrap();
            policy.handle_timeout(now);
            for action in drain(&mut policy) {
                if let Action::Grant { flow, bytes, .. } = action {
                    granted[flow.0 as usize] += bytes.get();
                }
            }
        }
        // 24 Gb/s for 10 ms are 30 MB.
        assert!(granted[1].abs_diff(15_000_000) < 100_000, "{granted:?}");
        assert!(granted[1].abs_diff(granted[2]) <= 65_536, "{granted:?}");
    }

    #[test]
    fn rising_latency_alone_limits_too() {
        let mut options = LiteOptions::for_device(BitRate::from_gbps(48), 30_000_000);
        options.load_messages_min = 1_000;
        let mut policy = Lite::new(options).unwrap();
        join(&mut policy, &[FlowClass::Latency, FlowClass::Bandwidth]);
        let complete = |policy: &mut Lite, us| {
            policy.on_completion(Instant::ZERO, &Completion::one(HIGH, 16, us));
        };
        complete(&mut policy, 2);
        assert!(!policy.is_limited());
        (0..4).for_each(|_| complete(&mut policy, 8));
        assert!(policy.is_limited());
    }

    #[test]
    fn a_quantum_without_a_message_is_refused() {
        let mut options = LiteOptions::for_device(BitRate::from_gbps(48), 30_000_000);
        options.quantum = Bytes::new(10);
        assert!(Lite::new(options).is_err());
    }
}
