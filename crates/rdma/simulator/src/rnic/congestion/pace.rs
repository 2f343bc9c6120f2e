//! Notifications and explicit rates reach senders, and pace them.

use crate::rnic::event::Event;
use crate::rnic::transmit::REQUESTER;
use crate::rnic::world::World;

impl<const RECORDS: bool> World<RECORDS> {
    /// Whether DCQCN may pace a sender: it was notified, and was paced when last looked at.
    #[inline]
    pub(crate) fn paces(&self, pair: u32, response: bool) -> bool {
        self.pairs[pair as usize].limiters[usize::from(response)]
            .point
            .active()
    }

    /// Keeps a sender that DCQCN paces from sending for a while behind a packet of `payload`; whether it does.
    pub(crate) fn pace(&mut self, now: u64, pair: u32, response: bool, payload: u64) -> bool {
        if !self.is_paced(now, pair, response) {
            return false;
        }
        let limiter = &mut self.pairs[pair as usize].limiters[usize::from(response)];
        let gap = limiter
            .point
            .sent(payload + self.device.frame, &self.device);
        limiter.not_before = limiter.not_before.max(now) + gap;
        let at = limiter.not_before;
        self.schedule(at, Event::Unpaced { pair, response });
        true
    }

    /// A sender catches up with the clock; whether it is paced.
    #[inline]
    fn is_paced(&mut self, now: u64, pair: u32, response: bool) -> bool {
        let limiter = &mut self.pairs[pair as usize].limiters[usize::from(response)];
        if limiter.point.active() {
            self.timers.catch_up(&mut limiter.point, now, &self.device);
        }
        limiter.point.active()
    }

    /// A sender learns at `now` that it has to slow down.
    pub(crate) fn slow_down(&mut self, now: u64, pair: u32, response: bool) {
        let limiter = &mut self.pairs[pair as usize].limiters[usize::from(response)];
        self.timers.catch_up(&mut limiter.point, now, &self.device);
        self.timers.running += u64::from(limiter.point.notified(now, &self.device));
    }

    /// The daemon sends a sender an explicit rate, bit/s.
    pub(crate) fn tell_rate(&mut self, pair: u32, response: bool, rate: u64) {
        self.pairs[pair as usize].limiters[usize::from(response)].explicit = rate;
    }

    /// A sender learns the explicit rate that it was sent; the line's rate frees it.
    pub(crate) fn limited(&mut self, pair: u32, response: bool) {
        let queue_pair = &mut self.pairs[pair as usize];
        let host = usize::from(if response {
            queue_pair.peer
        } else {
            queue_pair.host
        });
        let limiter = &mut queue_pair.limiters[usize::from(response)];
        let explicit = limiter.explicit;
        limiter.point.cap = match explicit < self.device.link_rate.as_bps() {
            true => explicit,
            false => 0,
        };
        self.nics[host].count.notifications_handled += 1;
    }

    /// The owner of a queue pair limits what it sends, bit/s with headers; zero lifts the limit. The new rate holds from the
    /// next packet on.
    pub(crate) fn limit_sender(&mut self, now: u64, pair: u32, rate: u64) {
        let limiter = &mut self.pairs[pair as usize].limiters[REQUESTER];
        limiter.point.cap = rate;
        limiter.not_before = limiter.not_before.min(now);
        self.activate(now, pair, false);
    }

    /// Whether timers have looked at least `least` times until `now`. All senders catch up where that is open.
    pub(crate) fn timers_looked(&mut self, now: u64, least: u64) -> bool {
        if self.timers.looks >= least {
            return true;
        }
        if self.timers.looks + self.timers.missing_most(now, &self.device) < least {
            return false;
        }
        for pair in &mut self.pairs {
            for limiter in &mut pair.limiters {
                self.timers.catch_up(&mut limiter.point, now, &self.device);
            }
        }
        self.timers.swept = now;
        self.timers.looks >= least
    }
}
