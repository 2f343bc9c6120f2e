//! DCQCN: the reaction point of one sender (stage 11).
//!
//! A sender that has never been notified sends unpaced. A notification makes the current rate the target, cuts
//! the rate by alpha / 2 and raises alpha. Without another one, a timer lowers alpha, and two clocks recover the
//! rate: a timer, and a count of the bytes sent. Each clock's tick moves the rate half way to the target. The
//! first `fast_steps` ticks of either do only that; then every tick first raises the target, additively, and by
//! the hyper increase once both clocks are past them. A sender back at line rate forgets everything.
//!
//! A queue pair has two of these: one at the requester for WRITEs, SENDs and atomics, one at the responder for
//! the READ responses it sends, each slowed by the notifications of its own packets.
//!
//! Method: timers are no events. Code that reads a sender first advances it to the clock, tick by tick
//! ([`ReactionPoint::catch_up`]): of thousands of paced queue pairs most are looked at once in many ticks, and an event
//! for each tick would fetch the pair into a cache for nothing. A tick at the very time of a look comes before it.
//!
//! Harmonic's variant with explicit rates (harmonic 5.7) puts a cap on a sender beside DCQCN's rate: the lower one
//! paces.
//!
//! Units: rates are bits per second, times picoseconds, alpha is a fraction of 2^16; divisions round down.
//! Source: Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, section 5;
//! parameters in the profile's `[congestion]`. Limits: every notification cuts, as published; a NIC may bound
//! cuts per interval. The hyper increase is one step per tick, it does not grow with the number of ticks.

mod pace;

use super::device::Device;
use isolane_common_quantities::units::{BitRate, Bytes};

/// Alpha of one.
const ONE: u64 = 1 << 16;

/// What paces one sender of a queue pair.
///
/// A sender that is not paced looks at the first two fields only.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Limiter {
    /// Not before this time may the next packet leave, ps.
    pub(crate) not_before: u64,
    pub(crate) point: ReactionPoint,
    /// When the receiver of its packets last sent a notification, ps.
    pub(crate) notified_at: u64,
    /// The explicit rate that is on its way to the sender, bit/s.
    explicit: u64,
}

/// The rate of one sender.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct ReactionPoint {
    /// The current rate, bit/s; zero while never notified.
    rate: u64,
    /// The explicit rate, bit/s; zero for none.
    cap: u64,
    target: u64,
    alpha: u64,
    timer_steps: u32,
    byte_steps: u32,
    /// Bytes since the last tick of the byte counter.
    counted: u64,
    /// When the increase timer ticks, ps.
    increase_due: u64,
    /// When alpha falls, ps.
    alpha_due: u64,
    /// When the timer looks next, ps; zero while none runs. After a notification it may look before anything is due.
    timer: u64,
}

/// How often the timers of all senders have looked, as far as these have caught up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timers {
    pub(crate) looks: u64,
    running: u64,
    /// When all senders had caught up, ps.
    swept: u64,
}

impl Timers {
    /// Lets `point` catch up with `now`.
    #[inline]
    fn catch_up(&mut self, point: &mut ReactionPoint, now: u64, device: &Device) {
        if !point.is_timed() {
            return;
        }
        self.looks += point.catch_up(now, device);
        self.running -= u64::from(!point.is_timed());
    }

    /// Most looks until `now` that senders have yet to catch up with: of each timer those due at the ends of both its
    /// intervals, and one that finds nothing due.
    fn missing_most(&self, now: u64, device: &Device) -> u64 {
        let time = now - self.swept;
        self.running * (time / device.increase.max(1) + time / device.alpha.max(1) + 3)
    }
}

impl ReactionPoint {
    /// True while the sender is paced.
    #[inline]
    pub(crate) fn active(&self) -> bool {
        self.rate | self.cap != 0
    }

    /// True while DCQCN paces it.
    #[inline]
    fn is_cut(&self) -> bool {
        self.rate != 0
    }

    /// Reacts to a notification at `now`, up to which it has caught up; whether that starts its timer.
    pub(crate) fn notified(&mut self, now: u64, device: &Device) -> bool {
        if !self.is_cut() {
            self.rate = device.link_rate.as_bps();
            self.alpha = ONE;
        }
        self.target = self.rate;
        let cut = (u128::from(self.rate) * u128::from(self.alpha)) >> 17;
        self.rate = (self.rate - cut as u64).max(device.rate_min.as_bps());
        self.alpha = (self.alpha - (self.alpha >> device.alpha_shift)
            + (ONE >> device.alpha_shift))
            .min(ONE);
        (self.timer_steps, self.byte_steps, self.counted) = (0, 0, 0);
        self.increase_due = now + device.increase;
        self.alpha_due = now + device.alpha;
        // A timer that runs finds the later due times when it looks.
        let starts = self.timer == 0;
        if starts {
            self.timer = self.increase_due.min(self.alpha_due);
        }
        starts
    }

    /// Lets the timer look as often as it should have until `now`; how often that was.
    #[inline]
    pub(crate) fn catch_up(&mut self, now: u64, device: &Device) -> u64 {
        let mut looks = 0;
        while self.timer != 0 && self.timer <= now {
            self.tick(self.timer, device);
            looks += 1;
        }
        looks
    }

    /// True while the timer runs.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.timer != 0
    }

    /// The timer looks at `now`, and goes on if the sender is still paced.
    fn tick(&mut self, now: u64, device: &Device) {
        if self.is_cut() && self.alpha_due <= now {
            self.alpha -= self.alpha >> device.alpha_shift;
            self.alpha_due = now + device.alpha;
        }
        if self.is_cut() && self.increase_due <= now {
            self.timer_steps += 1;
            self.increase_due = now + device.increase;
            self.increase(device);
        }
        self.timer = match self.is_cut() {
            true => self.increase_due.min(self.alpha_due),
            false => 0,
        };
    }

    /// The paced sender has sent `bytes`; how long they keep it from sending, ps.
    #[inline]
    pub(crate) fn sent(&mut self, bytes: u64, device: &Device) -> u64 {
        let rate = match (self.rate, self.cap) {
            (0, cap) => cap,
            (rate, 0) => rate,
            (rate, cap) => rate.min(cap),
        };
        let gap = BitRate::from_bps(rate).time_for(Bytes::new(bytes));
        if !self.is_cut() {
            return gap.as_ps();
        }
        self.counted += bytes;
        if self.counted >= device.byte_counter {
            self.counted -= device.byte_counter;
            self.byte_steps += 1;
            self.increase(device);
        }
        gap.as_ps()
    }

    /// One tick of a clock: towards the target, which rises once fast recovery is over.
    fn increase(&mut self, device: &Device) {
        let (first, last) = (
            self.timer_steps.min(self.byte_steps),
            self.timer_steps.max(self.byte_steps),
        );
        let step = if first > device.fast_steps {
            device.hyper.as_bps()
        } else if last > device.fast_steps {
            device.additive.as_bps()
        } else {
            0
        };
        self.target = (self.target + step).min(device.link_rate.as_bps());
        self.rate = self.rate.midpoint(self.target);
        if self.rate + device.additive.as_bps() >= device.link_rate.as_bps() {
            // The limiter is released. A timer that runs finds it so.
            *self = Self {
                timer: self.timer,
                cap: self.cap,
                ..Self::default()
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_rdma_scenario::library::Library;

    const US: u64 = 1_000_000;

    /// A 25 Gb/s device with the settings of DCQCN's publication.
    fn device() -> Device {
        let library = Library::embedded();
        let mut profile = library.profile("cx6dx-25g-roce").unwrap().clone();
        let published = &library.profile("cx5-100g-roce").unwrap().congestion;
        profile.congestion.clone_from(published);
        Device::of(&profile)
    }

    fn gbps(point: &ReactionPoint) -> f64 {
        point.rate as f64 / 1e9
    }

    #[test]
    fn the_first_notification_halves_the_line_rate_and_five_ticks_recover_it() {
        let device = device();
        let mut point = ReactionPoint::default();
        assert!(point.notified(0, &device));
        assert_eq!(gbps(&point), 12.5);
        // Five timer ticks of 55 us leave 12.5 / 2^5 Gb/s to go.
        point.catch_up(275 * US, &device);
        assert_eq!(gbps(&point), 25.0 - 12.5 / 32.0);
    }

    #[test]
    fn four_notifications_at_once_make_an_eighth_the_target() {
        let device = device();
        let mut point = ReactionPoint::default();
        assert!(point.notified(0, &device));
        for _ in 0..3 {
            assert!(!point.notified(0, &device), "its timer runs");
        }
        assert_eq!(gbps(&point), 25.0 / 16.0);
        point.catch_up(275 * US, &device);
        assert!(gbps(&point) < 25.0 / 8.0 && gbps(&point) > 3.0);
    }

    #[test]
    fn additive_increase_follows_fast_recovery_and_hyper_needs_both_clocks() {
        let device = device();
        let mut point = ReactionPoint::default();
        for _ in 0..4 {
            point.notified(0, &device);
        }
        let target = point.target;
        point.catch_up(5 * 55 * US, &device);
        assert_eq!(point.target, target);
        point.catch_up(7 * 55 * US, &device);
        assert_eq!(point.target, target + 2 * device.additive.as_bps());
        for _ in 0..5 {
            point.sent(device.byte_counter, &device);
        }
        assert_eq!(point.target, target + 7 * device.additive.as_bps());
        point.sent(device.byte_counter, &device);
        let additive = target + 7 * device.additive.as_bps();
        assert_eq!(point.target, additive + device.hyper.as_bps());
    }

    #[test]
    fn an_explicit_rate_paces_alone_and_the_lower_of_both_rates_paces() {
        let device = device();
        let mut point = ReactionPoint {
            cap: 1_000_000_000,
            ..ReactionPoint::default()
        };
        assert!(point.active());
        assert_eq!(point.sent(1_000, &device), 8 * US, "1000 B at 1 Gb/s");
        point.notified(0, &device);
        assert_eq!(point.sent(1_000, &device), 8 * US, "DCQCN allows 12.5 Gb/s");
        point.catch_up(100_000 * US, &device);
        assert!(point.active() && !point.is_cut(), "the cap stays");
    }

    #[test]
    fn the_byte_counter_alone_recovers_too() {
        let device = device();
        let mut point = ReactionPoint::default();
        point.notified(0, &device);
        point.sent(device.byte_counter - 1, &device);
        assert_eq!(gbps(&point), 12.5);
        point.sent(1, &device);
        assert_eq!(gbps(&point), 18.75);
    }

    #[test]
    fn notifications_never_take_the_rate_below_the_least() {
        let device = device();
        let mut point = ReactionPoint::default();
        for _ in 0..100 {
            point.notified(0, &device);
        }
        assert_eq!(point.rate, device.rate_min.as_bps());
    }

    #[test]
    fn alpha_falls_without_notifications_so_that_a_later_cut_is_smaller() {
        let device = device();
        let mut point = ReactionPoint::default();
        // Low enough that it is still paced after 20 ms.
        for _ in 0..8 {
            point.notified(0, &device);
        }
        point.catch_up(10_000 * US, &device);
        let (before, alpha) = (point.rate, point.alpha);
        assert!(alpha < ONE * 6 / 10, "{alpha}");
        point.notified(10_000 * US, &device);
        assert_eq!(
            before - point.rate,
            ((u128::from(before) * u128::from(alpha)) >> 17) as u64
        );
    }

    #[test]
    fn a_released_limiter_starts_over_with_one_timer() {
        let device = device();
        let mut point = ReactionPoint::default();
        assert!(point.notified(0, &device));
        point.catch_up(100_000 * US, &device);
        assert!(!point.active() && !point.is_timed());
        assert!(point.notified(200_000 * US, &device));
        assert_eq!(gbps(&point), 12.5);
        // Released by bytes while its timer runs: the next notification starts no second one.
        while point.active() {
            point.sent(device.byte_counter, &device);
        }
        assert!(point.is_timed());
        assert!(!point.notified(200_001 * US, &device));
    }
}
