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
//! Units: rates are bits per second, times picoseconds, alpha is a fraction of 2^16; divisions round down.
//! Source: Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, section 5;
//! parameters in the profile's `[congestion]`. Limits: every notification cuts, as published; a NIC may bound
//! cuts per interval. The hyper increase is one step per tick, it does not grow with the number of ticks.

use super::device::Device;
use isolane_core::units::{BitRate, Bytes};

/// Alpha of one.
const ONE: u64 = 1 << 16;

/// What paces one sender of a queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limiter {
    pub(crate) point: ReactionPoint,
    /// Not before this time may the next packet leave, ps.
    pub(crate) not_before: u64,
    /// When the receiver of its packets last sent a notification, ps.
    pub(crate) notified_at: u64,
}

/// The rate of one sender.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReactionPoint {
    /// The current rate, bit/s; zero while never notified.
    rate: u64,
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
    /// A timer event is on its way.
    ticking: bool,
}

impl ReactionPoint {
    /// True while the sender is paced.
    #[inline]
    pub(crate) fn active(&self) -> bool {
        self.rate != 0
    }

    /// Reacts to a notification at `now`; when the first timer is due if none is on its way.
    pub(crate) fn notified(&mut self, now: u64, device: &Device) -> Option<u64> {
        if !self.active() {
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
        if self.ticking {
            // The timer on its way finds the later due times when it arrives.
            return None;
        }
        self.ticking = true;
        Some(self.increase_due.min(self.alpha_due))
    }

    /// A timer event at `now`; when the next one is due, if the sender is still paced.
    pub(crate) fn tick(&mut self, now: u64, device: &Device) -> Option<u64> {
        if self.active() && self.alpha_due <= now {
            self.alpha -= self.alpha >> device.alpha_shift;
            self.alpha_due = now + device.alpha;
        }
        if self.active() && self.increase_due <= now {
            self.timer_steps += 1;
            self.increase_due = now + device.increase;
            self.increase(device);
        }
        self.ticking = self.active();
        self.ticking
            .then_some(self.increase_due.min(self.alpha_due))
    }

    /// The paced sender has sent `bytes`; how long they keep it from sending, ps.
    #[inline]
    pub(crate) fn sent(&mut self, bytes: u64, device: &Device) -> u64 {
        let gap = BitRate::from_bps(self.rate).time_for(Bytes::new(bytes));
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
            // The limiter is released. A timer that is on its way finds it so.
            *self = Self {
                ticking: self.ticking,
                ..Self::default()
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_scenario::library::Library;

    const US: u64 = 1_000_000;

    fn device() -> Device {
        Device::of(Library::embedded().profile("cx6dx-25g-roce").unwrap())
    }

    fn gbps(point: &ReactionPoint) -> f64 {
        point.rate as f64 / 1e9
    }

    /// Takes timer events from `due` on, until `end`.
    fn tick_until(point: &mut ReactionPoint, device: &Device, due: Option<u64>, end: u64) {
        let mut due = due;
        while let Some(at) = due.filter(|&at| at <= end) {
            due = point.tick(at, device);
        }
    }

    #[test]
    fn the_first_notification_halves_the_line_rate_and_five_ticks_recover_it() {
        let device = device();
        let mut point = ReactionPoint::default();
        let due = point.notified(0, &device);
        assert_eq!(gbps(&point), 12.5);
        // Five timer ticks of 55 us leave 12.5 / 2^5 Gb/s to go.
        tick_until(&mut point, &device, due, 275 * US);
        assert_eq!(gbps(&point), 25.0 - 12.5 / 32.0);
    }

    #[test]
    fn four_notifications_at_once_make_an_eighth_the_target() {
        let device = device();
        let mut point = ReactionPoint::default();
        let due = point.notified(0, &device);
        for _ in 0..3 {
            assert_eq!(point.notified(0, &device), None, "one timer is on its way");
        }
        assert_eq!(gbps(&point), 25.0 / 16.0);
        tick_until(&mut point, &device, due, 275 * US);
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
        tick_until(&mut point, &device, Some(0), 5 * 55 * US);
        assert_eq!(point.target, target);
        tick_until(&mut point, &device, Some(5 * 55 * US), 7 * 55 * US);
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
        tick_until(&mut point, &device, Some(0), 10_000 * US);
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
        let due = point.notified(0, &device);
        tick_until(&mut point, &device, due, 100_000 * US);
        assert!(!point.active() && !point.ticking);
        let again = point.notified(200_000 * US, &device);
        assert!(again.is_some());
        assert_eq!(gbps(&point), 12.5);
        // Released by bytes while its timer is on its way: the next notification starts no second one.
        while point.active() {
            point.sent(device.byte_counter, &device);
        }
        assert!(point.ticking);
        assert_eq!(point.notified(200_001 * US, &device), None);
    }
}
