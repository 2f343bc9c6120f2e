//! Aequitas: which class a remote procedure call (RPC) may use, so that admitted ones keep their latency objective.
//!
//! Problem: under overload a class of a weighted fair port keeps its delay bound only while its share of the traffic
//! stays small enough ([`crate::queueing`]), and no host sees the others' traffic. Method (algorithm 2, section 3.5.1):
//! for each destination and class the sending host keeps an admit probability. A call is admitted with this
//! probability, and otherwise runs in the lowest class with a notice to the application; nothing is dropped or delayed.
//! A call that ran in a class and met the class's objective raises the probability by `increment`, at most once in a
//! window; each one that missed lowers it by `decrement` for each of its MTUs, not below `floor`, because a class in
//! which nothing runs could not learn that the overload has passed. Downgraded calls do not count for the class that
//! they requested. Units: latencies in picoseconds per MTU of the call, probabilities as parts of 2^32 (so decisions
//! are integers and equal on all machines), sizes in MTUs. Left open by the paper, and decided here: the floor's value
//! (an option; the public simulator has 0.1); a destination that had no call for `idle_after` starts again as new, for
//! what it learned is about an overload of then; the window's clock does not restart on a miss unless asked (the public
//! simulator restarts it, the paper's text does not). An objective may hold for a whole call instead of each MTU: then
//! the caller judges it ([`AdmitState::on_outcome`]) and gives the window ([`AequitasOptions::window`]). Cost: no
//! allocation, no clock, no shared state: one [`AdmitState`] for a destination and class, 24 bytes. Source: Aequitas
//! (in the thesis "cloud QoS"), section 3.5, algorithm 2.

use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{Duration, Instant};

/// A probability in parts of 2^32; 1 is `Probability::ONE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Probability(u64);

impl Probability {
    /// Never.
    pub const ZERO: Self = Self(0);
    /// Always.
    pub const ONE: Self = Self(1 << 32);

    /// `value` from 0 to 1, rounded down to parts of 2^32; outside values are set to the nearer end.
    pub fn from_f64(value: f64) -> Self {
        Self((value.clamp(0.0, 1.0) * Self::ONE.0 as f64) as u64)
    }

    /// From 0 to 1.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / Self::ONE.0 as f64
    }

    /// `parts` of 2^32; more than all of them are all.
    pub const fn from_parts(parts: u64) -> Self {
        match parts < Self::ONE.0 {
            true => Self(parts),
            false => Self::ONE,
        }
    }

    /// Parts of 2^32, for callers that keep the state in words of their own (an atomic, a file).
    pub const fn parts(self) -> u64 {
        self.0
    }

    /// Whether an evenly distributed `random` number means yes (line 7).
    #[inline]
    pub const fn draws(self, random: u32) -> bool {
        (random as u64) < self.0
    }

    /// What a window without a miss makes of it (line 17).
    #[inline]
    pub fn raised(self, increment: Self) -> Self {
        Self(self.0 + increment.0).min(Self::ONE)
    }

    /// What a miss of a call of `mtus` MTUs makes of it (line 20).
    #[inline]
    pub fn lowered(self, decrement_per_mtu: Self, mtus: u32, floor: Self) -> Self {
        let lowered = decrement_per_mtu.0.saturating_mul(u64::from(mtus.max(1)));
        Self(self.0.saturating_sub(lowered)).max(floor)
    }
}

/// Parameters of the control of one class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AequitasOptions {
    /// The objective: longest network latency of a call, for each MTU of its size.
    pub target_per_mtu: Duration,
    /// The part of calls that must meet it, in percent, above 0 and below 100 (99.9 in the paper's experiments).
    pub percentile: f64,
    /// Increase after a window without a miss (alpha; 0.01 in 3.6.1).
    pub increment: Probability,
    /// Decrease per MTU of a miss (beta; 0.01 in 3.6.1).
    pub decrement_per_mtu: Probability,
    /// Smallest admit probability.
    pub floor: Probability,
    /// How long a destination without calls keeps its learned state.
    pub idle_after: Duration,
    /// Time between two increases; `None` derives it from target and percentile.
    pub window: Option<Duration>,
    /// Whether a miss restarts the window, so that only a whole window without one raises the probability.
    pub window_restarts_on_miss: bool,
}

impl AequitasOptions {
    /// The paper's experiments with an objective of `target_per_mtu` at `percentile`.
    pub fn new(target_per_mtu: Duration, percentile: f64) -> Self {
        Self {
            target_per_mtu,
            percentile,
            increment: Probability::from_f64(0.01),
            decrement_per_mtu: Probability::from_f64(0.01),
            floor: Probability::from_f64(0.1),
            idle_after: Duration::from_secs(60),
            window: None,
            window_restarts_on_miss: false,
        }
    }

    /// Time between two increases: `target / (1 - percentile / 100)` (line 4), so that about one miss is allowed in it;
    /// or [`Self::window`].
    #[inline]
    pub fn increment_window(&self) -> Duration {
        if let Some(window) = self.window {
            return window;
        }
        let factor = 100.0 / (100.0 - self.percentile);
        Duration::from_ps((self.target_per_mtu.as_ps() as f64 * factor).min(u64::MAX as f64) as u64)
    }

    /// Rejects options that cannot control a class. The error has the option's name, its value and what is allowed.
    pub fn check(&self) -> Result<(), OptionError> {
        if self.target_per_mtu == Duration::ZERO {
            return Err(OptionError::new(
                "target_per_mtu",
                self.target_per_mtu,
                "no call takes no time; give at least the time of one MTU on the wire",
            ));
        }
        if !(self.percentile > 0.0 && self.percentile < 100.0) {
            return Err(OptionError::new(
                "percentile",
                self.percentile,
                "give a percentile above 0 and below 100, like 99.9",
            ));
        }
        for (name, value) in [
            ("increment", self.increment),
            ("decrement_per_mtu", self.decrement_per_mtu),
            ("floor", self.floor),
        ] {
            if value == Probability::ZERO || value > Probability::ONE {
                return Err(OptionError::new(
                    name,
                    value.as_f64(),
                    "give a value above 0 and at most 1, or the probability can never change again",
                ));
            }
        }
        Ok(())
    }
}

/// What to do with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Send it in the requested class.
    Admit,
    /// Send it in the lowest class, and notify the application.
    Downgrade,
}

/// The admit probability of one destination and class.
///
/// ```
/// use isolane_rpc_policy::aequitas::{AdmitState, AequitasOptions, Decision};
/// use isolane_common_quantities::units::{Duration, Instant};
/// let options = AequitasOptions::new(Duration::from_us(15), 99.9);
/// let mut state = AdmitState::new(Instant::ZERO);
/// assert_eq!(state.decide(&options, Instant::ZERO, u32::MAX), Decision::Admit); // Every destination begins trusted.
/// // A call of 7 MTUs took twice as long as it may.
/// state.on_completion(&options, Instant::ZERO, Duration::from_us(2 * 15 * 7), 7);
/// assert!((state.probability().as_f64() - 0.93).abs() < 1e-6);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmitState {
    probability: Probability,
    last_increase: Instant,
    last_call: Instant,
}

impl AdmitState {
    /// The state of a destination that is new at `now`: everything is admitted.
    pub fn new(now: Instant) -> Self {
        Self {
            probability: Probability::ONE,
            last_increase: now,
            last_call: now,
        }
    }

    /// Decides on a call at `now` with an evenly distributed `random` number (lines 5 to 12).
    #[inline]
    pub fn decide(&mut self, options: &AequitasOptions, now: Instant, random: u32) -> Decision {
        if now.saturating_since(self.last_call) > options.idle_after {
            *self = Self::new(now);
        }
        self.last_call = now;
        match self.probability.draws(random) {
            true => Decision::Admit,
            false => Decision::Downgrade,
        }
    }

    /// A call of `mtus` MTUs that ran in the class ended at `now`, `latency` after its first packet was handed to the
    /// transport (lines 13 to 20). Calls that were downgraded do not count here.
    #[inline]
    pub fn on_completion(
        &mut self,
        options: &AequitasOptions,
        now: Instant,
        latency: Duration,
        mtus: u32,
    ) {
        let allowed = options
            .target_per_mtu
            .as_ps()
            .saturating_mul(u64::from(mtus.max(1)));
        self.on_outcome(options, now, latency.as_ps() < allowed, mtus);
    }

    /// Like [`Self::on_completion`], for a caller that has compared latency and objective itself.
    #[inline]
    pub fn on_outcome(&mut self, options: &AequitasOptions, now: Instant, met: bool, mtus: u32) {
        if met {
            if now.saturating_since(self.last_increase) > options.increment_window() {
                self.probability = self.probability.raised(options.increment);
                self.last_increase = now;
            }
        } else {
            self.probability =
                self.probability
                    .lowered(options.decrement_per_mtu, mtus, options.floor);
            if options.window_restarts_on_miss {
                self.last_increase = now;
            }
        }
    }

    /// The admit probability now.
    pub fn probability(&self) -> Probability {
        self.probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn options() -> AequitasOptions {
        AequitasOptions::new(Duration::from_us(15), 99.9)
    }

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_us(us)
    }

    #[test]
    fn the_window_allows_for_one_miss_of_the_percentile() {
        assert_eq!(
            options().increment_window().as_us_f64().round(),
            15_000.0,
            "15 us at 99.9 % is 15 ms"
        );
    }

    #[test]
    fn an_increase_comes_once_in_a_window() {
        let options = options();
        let mut state = AdmitState::new(at(0));
        state.on_completion(&options, at(0), Duration::from_ms(1), 10);
        let low = state.probability();
        for us in 1..15_000 {
            state.on_completion(&options, at(us), Duration::from_us(1), 1);
        }
        assert_eq!(state.probability(), low);
        state.on_completion(&options, at(15_001), Duration::from_us(1), 1);
        assert!(state.probability() > low);
    }

    #[test]
    fn a_miss_restarts_the_window_only_if_asked() {
        for restarts in [false, true] {
            let options = AequitasOptions {
                window: Some(Duration::from_us(100)),
                window_restarts_on_miss: restarts,
                ..options()
            };
            let mut state = AdmitState::new(at(0));
            state.on_outcome(&options, at(60), false, 50);
            let low = state.probability();
            state.on_outcome(&options, at(101), true, 1);
            assert_eq!(state.probability() > low, !restarts);
            state.on_outcome(&options, at(202), true, 1);
            assert!(state.probability() > low);
        }
    }

    #[test]
    fn ten_small_misses_cost_what_one_of_ten_packets_does() {
        let options = options();
        let mut many = AdmitState::new(at(0));
        let mut one = many;
        for _ in 0..10 {
            many.on_completion(&options, at(0), Duration::from_us(20), 1);
        }
        one.on_completion(&options, at(0), Duration::from_us(200), 10);
        assert_eq!(many, one);
    }

    #[test]
    fn a_latency_on_the_target_is_a_miss() {
        let options = options();
        let mut state = AdmitState::new(at(0));
        state.on_completion(&options, at(0), Duration::from_us(15), 1);
        assert!(state.probability() < Probability::ONE);
    }

    #[test]
    fn a_destination_that_was_idle_begins_again() {
        let options = options();
        let mut state = AdmitState::new(at(0));
        state.on_completion(&options, at(0), Duration::from_ms(9), 500);
        assert_eq!(state.probability(), options.floor);
        let later = at(61_000_000);
        assert_eq!(state.decide(&options, later, u32::MAX), Decision::Admit);
    }

    #[test]
    fn options_that_control_nothing_are_refused() {
        let mut bad = options();
        bad.percentile = 100.0;
        assert!(
            bad.check()
                .unwrap_err()
                .to_string()
                .contains("percentile is 100")
        );
        bad = options();
        bad.floor = Probability::ZERO;
        assert!(bad.check().unwrap_err().to_string().contains("floor is 0"));
        assert_eq!(options().check(), Ok(()));
    }

    proptest! {
        #[test]
        fn the_probability_stays_between_floor_and_one(
            calls in prop::collection::vec((0u64..1_000_000, 0u64..1_000, 0u32..100), 0..200),
        ) {
            let options = options();
            let mut state = AdmitState::new(at(0));
            let mut now = 0;
            for (gap_us, latency_us, mtus) in calls {
                now += gap_us;
                state.on_completion(&options, at(now), Duration::from_us(latency_us), mtus);
                prop_assert!(state.probability() >= options.floor);
                prop_assert!(state.probability() <= Probability::ONE);
            }
        }

        #[test]
        fn the_share_of_admitted_calls_is_the_probability(misses in 0u32..90) {
            let options = options();
            let mut state = AdmitState::new(at(0));
            for _ in 0..misses {
                state.on_completion(&options, at(0), Duration::from_us(20), 1);
            }
            // Evenly spread numbers instead of random ones: the count is exact to one.
            let admitted = (0..1000u64)
                .filter(|i| {
                    let random = (i * (1 << 32) / 1000) as u32;
                    state.decide(&options, at(0), random) == Decision::Admit
                })
                .count() as f64;
            prop_assert!((admitted / 1000.0 - state.probability().as_f64()).abs() <= 0.001);
        }
    }
}
