//! Aequitas 2: admission that keeps the allowed part of misses, with evidence shared among the channels of a port.
//!
//! Problem: algorithm 2 ([`crate::aequitas`]) comes to rest at one miss in seven windows per channel, whatever the number
//! of calls in a window, so a channel with few calls misses too often. Each late call of one congestion lowers the
//! probability again, and each channel learns alone.
//! Method: a *channel* is a caller, a called host and a class; a *port* is a called host and a class. The port has one
//! *gap*: the shortest mean time between two MTUs of one channel. A channel admits a call if the time of its admitted
//! calls is over, so channels that ask for more than the port's level get equal parts, and others are admitted
//! completely. No random number is drawn, so admitted calls are more even than the requested ones. Three rules change the
//! gap:
//!
//! * A call that met its objective shortens the gap by `cut` times the allowed part of misses. So the growth follows the
//!   rate of calls, and rest is where the part of misses is the allowed one.
//! * A missed call lengthens the gap by `cut`, if the call was issued after the last cut and the latency of the miss that
//!   caused this cut. Other misses belong to the same congestion: its queue lasts about as long as the late call waited.
//! * The port's *budget* counts all misses: a met call adds the allowed part, a miss takes 1. The growth is multiplied by
//!   2 to the power of the budget, so misses that cause no cut count too.
//!
//! Units: picoseconds, MTUs of calls; the budget in parts of 2^32 of a call.
//! Rounding: a change of the gap rounds away from zero, a gap never shortens below 1 ps.
//! Limits: the first cut starts from the rate of the fastest channel, counted in windows of [`RATE_TARGETS`] objectives.
//! The evidence has to reach the port's state; how is outside of this module.
//! Cost: no allocation, no clock, no randomness; 56 bytes for a channel, 64 for a port and class.

use crate::aequitas::{AequitasOptions, Decision, Probability};
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{Duration, Instant};

/// Parameters of one class. `increment`, `decrement_per_mtu` and `window` of the base have no effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aequitas2Options {
    /// Objective, percentile, floor and idle time, as in algorithm 2. The floor is the least level: a part of one MTU in
    /// each `target_per_mtu`.
    pub base: AequitasOptions,
    /// Change of the gap by one cut, relative to the gap.
    pub cut: Probability,
}

impl Aequitas2Options {
    /// The defaults for an objective of `target_per_mtu` at `percentile`.
    pub fn new(target_per_mtu: Duration, percentile: f64) -> Self {
        let mut base = AequitasOptions::new(target_per_mtu, percentile);
        base.floor = Probability::from_f64(0.01);
        Self {
            base,
            cut: Probability::from_f64(CUT),
        }
    }

    /// Rejects options that cannot control a class. The error has the option's name, its value and what is allowed.
    pub fn check(&self) -> Result<(), OptionError> {
        self.base.check()?;
        if self.cut == Probability::ZERO || self.cut > Probability::ONE {
            return Err(OptionError::new(
                "cut",
                self.cut.as_f64(),
                "give a value above 0 and at most 1, or the level can never change again",
            ));
        }
        Ok(())
    }

    /// The part of misses to keep, of 2^32: what the percentile allows less [`MARGIN`].
    fn allowed(&self) -> u64 {
        let allowed = (1.0 - self.base.percentile / 100.0) * (1.0 - MARGIN);
        Probability::from_f64(allowed).parts().max(1)
    }

    fn longest_gap(&self) -> u64 {
        let target = u128::from(self.base.target_per_mtu.as_ps());
        let gap = (target << 32) / u128::from(self.base.floor.parts().max(1));
        u64::try_from(gap).unwrap_or(u64::MAX).max(1)
    }

    fn rate_window(&self) -> u64 {
        self.base
            .target_per_mtu
            .as_ps()
            .saturating_mul(RATE_TARGETS)
    }
}

/// Default of [`Aequitas2Options::cut`].
pub const CUT: f64 = 0.0625;
/// Length of the window in which rates are counted, in objectives.
pub const RATE_TARGETS: u64 = 256;
/// Part of the allowed misses that is kept in reserve.
pub const MARGIN: f64 = 0.4;
/// Most misses that the budget saves: the growth is then 4 times that at an empty budget.
const SAVED_MAX: i64 = 2 << 32;
/// Most misses that the budget lacks. A larger lack would delay the growth after a long congestion.
const LACK_MAX: i64 = 4 << 32;
/// The same until the budget is first made good. The first congestion ends in this lack, and the level grows slowly until
/// thousands of calls have met their objective: with a lack of 4 misses, ports of 33 hosts needed 400 ms for it.
const FIRST_LACK_MAX: i64 = 2 << 32;

/// MTUs counted in two consecutive windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rate {
    start: u64,
    now: u64,
    before: u64,
}

impl Rate {
    fn count(&mut self, now: u64, window: u64, mtus: u64) {
        let passed = now.saturating_sub(self.start);
        if passed >= window {
            self.before = if passed < 2 * window { self.now } else { 0 };
            self.now = 0;
            self.start = now;
        }
        self.now += mtus;
    }

    /// Time between two MTUs, the shorter of both windows; `u64::MAX` without a count.
    fn gap(&self, now: u64, window: u64) -> u64 {
        let passed = now.saturating_sub(self.start).max(window / 16);
        let gap = |time: u64, mtus| time.checked_div(mtus).unwrap_or(u64::MAX);
        gap(passed, self.now).min(gap(window, self.before))
    }
}

/// A caller's state for one called host and class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channel {
    /// Time up to which the admitted calls use the channel's part, ps.
    used: u64,
    rate: Rate,
    asked: Rate,
}

impl Channel {
    /// Decides on a call of `mtus` MTUs at `now`, with the port's gap.
    #[inline]
    pub fn decide(
        &mut self,
        options: &Aequitas2Options,
        gap: u64,
        now: Instant,
        mtus: u32,
    ) -> Decision {
        let now = now.as_ps();
        let window = options.rate_window();
        let mtus = u64::from(mtus.max(1));
        self.asked.count(now, window, mtus);
        if self.used > now {
            return Decision::Downgrade;
        }
        // A channel saves the time of one call at most: arrivals between two ends of gaps lose nothing, bursts gain nothing.
        let cost = gap.saturating_mul(mtus);
        self.used = self.used.max(now.saturating_sub(cost)).saturating_add(cost);
        self.rate.count(now, window, mtus);
        Decision::Admit
    }

    /// The time between two admitted MTUs of late, ps.
    pub fn gap(&self, options: &Aequitas2Options, now: Instant) -> u64 {
        self.rate.gap(now.as_ps(), options.rate_window())
    }

    /// The time between two requested MTUs of late, ps; `u64::MAX` without a request.
    #[inline]
    pub fn requested_gap(&self, options: &Aequitas2Options, now: Instant) -> u64 {
        self.asked.gap(now.as_ps(), options.rate_window())
    }

    /// The part of its calls that the channel admits, estimated from the asked rate of the last whole window.
    pub fn probability(&self, options: &Aequitas2Options, gap: u64) -> Probability {
        let asked = u128::from(gap) * u128::from(self.asked.before);
        let part = (u128::from(options.rate_window()) << 32).checked_div(asked);
        let part = part.and_then(|part| u64::try_from(part).ok());
        part.map_or(Probability::ONE, Probability::from_parts)
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// When the call was passed to the transport.
    pub issued: Instant,
    /// How long it took.
    pub latency: Duration,
    /// Whether the call met its objective.
    pub met: bool,
    /// [`Channel::gap`] of its channel.
    pub gap: u64,
}

/// The state of a port and class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    gap: u64,
    budget: i64,
    /// Whether the budget has been made good after the first congestion.
    descended: bool,
    answered: Instant,
    last_outcome: Instant,
    /// Shortest gap of a channel in this window and in the one before.
    natural: [u64; 2],
    window: u64,
}

impl Port {
    /// A port without evidence: all calls are admitted.
    pub fn new(now: Instant) -> Self {
        Self {
            gap: 0,
            budget: 0,
            descended: false,
            answered: now,
            last_outcome: now,
            natural: [u64::MAX; 2],
            window: now.as_ps(),
        }
    }

    /// Shortest time between two MTUs of one channel, ps; 0 without a limit.
    #[inline]
    pub fn gap(&self) -> u64 {
        self.gap
    }

    /// Learns from the end of a call that ran in the class. The order of outcomes is free.
    #[inline]
    pub fn on_outcome(&mut self, options: &Aequitas2Options, now: Instant, outcome: Outcome) {
        if now.saturating_since(self.last_outcome) > options.base.idle_after {
            *self = Self::new(now);
        }
        self.last_outcome = now;
        self.note(options, now.as_ps(), outcome.gap);
        let allowed = options.allowed();
        if outcome.met {
            let lacked = self.budget < 0;
            self.budget = (self.budget + allowed as i64).min(SAVED_MAX);
            self.descended |= lacked && self.budget >= 0;
            self.grow(options, allowed);
            return;
        }
        let most = match self.descended {
            true => LACK_MAX,
            false => FIRST_LACK_MAX,
        };
        self.budget = (self.budget - (1 << 32)).max(-most);
        if outcome.issued > self.answered {
            self.cut(options);
            self.answered = now + outcome.latency;
        }
    }

    fn note(&mut self, options: &Aequitas2Options, now: u64, gap: u64) {
        let (passed, window) = (now.saturating_sub(self.window), options.rate_window());
        if passed >= window {
            let before = if passed < 2 * window {
                self.natural[0]
            } else {
                u64::MAX
            };
            self.natural = [u64::MAX, before];
            self.window = now;
        }
        self.natural[0] = self.natural[0].min(gap);
    }

    /// Shortens the gap by `cut x allowed x 2^budget`.
    fn grow(&mut self, options: &Aequitas2Options, allowed: u64) {
        if self.gap <= 1 {
            return;
        }
        let step = u128::from(self.gap) * u128::from(options.cut.parts()) * u128::from(allowed);
        // 2^budget: the whole misses shift, the rest is a straight line between two powers.
        let rest = (self.budget & ((1 << 32) - 1)) as u128;
        let step = (step >> 32) * ((1 << 32) + rest);
        let step = step >> (64 - (self.budget >> 32));
        self.gap -= (step as u64).clamp(1, self.gap - 1);
    }

    /// Lengthens the gap, at least from that of the fastest channel.
    fn cut(&mut self, options: &Aequitas2Options) {
        let natural = self.natural[0].min(self.natural[1]);
        let gap = match natural {
            u64::MAX => self.gap,
            _ => self.gap.max(natural),
        };
        let more = (u128::from(gap) * u128::from(options.cut.parts())) >> 32;
        let longer = u64::try_from(u128::from(gap) + more + 1).unwrap_or(u64::MAX);
        self.gap = longer.min(options.longest_gap());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_common_quantities::rng::Stream;
    use proptest::prelude::*;

    const TARGET: Duration = Duration::from_us(15);

    fn options() -> Aequitas2Options {
        Aequitas2Options::new(TARGET, 99.9)
    }

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_us(us)
    }

    /// A call that ended at `us` after `latency_us`, of a channel with an MTU in each microsecond.
    fn outcome(us: u64, latency_us: u64, met: bool) -> Outcome {
        Outcome {
            issued: at(us - latency_us),
            latency: Duration::from_us(latency_us),
            met,
            gap: 1_000_000,
        }
    }

    #[test]
    fn all_calls_are_admitted_before_the_first_miss() {
        let (options, port) = (options(), Port::new(at(0)));
        let mut channel = Channel::default();
        for us in 0..1_000 {
            let decision = channel.decide(&options, port.gap(), at(us), 7);
            assert_eq!(decision, Decision::Admit);
        }
        assert_eq!(channel.probability(&options, port.gap()), Probability::ONE);
    }

    #[test]
    fn one_congestion_causes_one_cut() {
        let options = options();
        let mut port = Port::new(at(0));
        port.on_outcome(&options, at(100), outcome(100, 40, false));
        let first = port.gap();
        assert!(first > 1_000_000, "{first}: longer than the channel's own");
        // Issued before the cut, or within the 40 us after the cut in which the queue drains.
        for (end, latency) in [(101, 50), (120, 15), (155, 16)] {
            port.on_outcome(&options, at(end), outcome(end, latency, false));
        }
        assert_eq!(port.gap(), first);
        port.on_outcome(&options, at(157), outcome(157, 16, false));
        assert!(port.gap() > first);
    }

    #[test]
    fn the_first_congestion_leaves_a_smaller_lack_than_later_ones() {
        let options = options();
        let mut port = Port::new(at(0));
        let mut congestion = |from: u64| {
            for us in from..from + 20 {
                port.on_outcome(&options, at(us), outcome(us, 5, false));
            }
            // Calls that meet their objective until the budget is made good.
            let met = (0..10_000).find(|us| {
                let end = from + 20 + us;
                port.on_outcome(&options, at(end), outcome(end, 5, true));
                port.budget >= 0
            });
            met.expect("the budget is made good")
        };
        let (first, second) = (congestion(1_000), congestion(20_000));
        // One miss is allowed in 1,667 calls.
        assert!((3_320..3_350).contains(&first), "{first}");
        assert!((6_650..6_690).contains(&second), "{second}");
    }

    #[test]
    fn channels_above_the_level_get_equal_parts_and_others_all() {
        let options = options();
        // An MTU in each 2 us; the channels ask for one in 0.5, 1 and 4 us, in calls of 8.
        let gap = 2_000_000;
        let admitted = [4, 8, 32].map(|period| {
            let mut channel = Channel::default();
            let calls = (0..100_000).step_by(period);
            let decide = |us| channel.decide(&options, gap, at(us as u64), 8) == Decision::Admit;
            calls.map(decide).filter(|admitted| *admitted).count()
        });
        // 100 ms of 16 us per call.
        assert_eq!(admitted, [6_250, 6_250, 3_125]);
    }

    #[test]
    fn rest_is_at_the_allowed_part_of_misses() {
        // A port whose misses rise with the third power of the admitted rate: 0.1 % at one MTU in 4 us.
        for calls_in_a_burst_of_misses in [1, 3] {
            let options = options();
            let mut stream = Stream::named(7, "port");
            let (mut port, mut channel) = (Port::new(at(0)), Channel::default());
            let (mut ran, mut missed, mut late) = (0u64, 0u64, 0u32);
            for us in (10..40_000_000).step_by(10) {
                if channel.decide(&options, port.gap(), at(us), 7) == Decision::Downgrade {
                    continue;
                }
                let rate = 4e6 / port.gap().max(1_400_000) as f64;
                let miss = 0.001 * rate.powi(3) / f64::from(calls_in_a_burst_of_misses);
                if stream.below(1 << 32) as f64 / (1u64 << 32) as f64 <= miss {
                    late = calls_in_a_burst_of_misses;
                }
                let met = late == 0;
                late = late.saturating_sub(1);
                ran += 1;
                missed += u64::from(!met);
                port.on_outcome(&options, at(us + 5), outcome(us + 5, 5, met));
            }
            let part = missed as f64 / ran as f64;
            assert!((0.000_5..0.001).contains(&part), "{part} of {ran}");
        }
    }

    #[test]
    fn a_port_without_evidence_forgets() {
        let options = options();
        let mut port = Port::new(at(0));
        port.on_outcome(&options, at(100), outcome(100, 40, false));
        assert!(port.gap() > 0);
        port.on_outcome(&options, at(70_000_000), outcome(70_000_000, 1, true));
        assert_eq!(port.gap(), 0);
    }

    #[test]
    fn a_cut_of_zero_is_rejected() {
        let mut bad = options();
        bad.cut = Probability::ZERO;
        let said = bad.check().unwrap_err().to_string();
        assert!(said.contains("cut is 0"), "{said}");
        assert_eq!(options().check(), Ok(()));
    }

    proptest! {
        #[test]
        fn the_gap_stays_within_its_ends(
            ends in prop::collection::vec((0u64..100_000, 1u64..1_000, any::<bool>(), any::<u64>()), 1..300),
        ) {
            let options = options();
            let mut port = Port::new(at(0));
            let mut now = 1_000;
            for (pause, latency, met, gap) in ends {
                now += pause;
                port.on_outcome(&options, at(now), Outcome { gap, ..outcome(now, latency, met) });
                prop_assert!(port.gap() <= options.longest_gap());
            }
        }
    }
}
