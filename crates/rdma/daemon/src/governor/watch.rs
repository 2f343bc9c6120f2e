//! Reads the processes' counters and writes their leases.

use super::device::{DIRECTIONS, READS};
use super::seat::Place;
use super::{CALM_PERIODS, Governor};
use isolane_rdma_policy::leases::{Change, EVERYTHING, LimitKind, Usage};
use isolane_rdma_session::region::Lease;

impl Governor {
    /// Reads the session's meters. Returns whether a counter changed.
    pub(super) fn look_at(&mut self, now_ns: u64, index: u32) -> bool {
        let Some(seat) = &self.seats[index as usize].1 else {
            return false;
        };
        let mut any = false;
        for meter in 0..seat.meters.len() as u16 {
            any |= self.observe(now_ns, Place { seat: index, meter });
        }
        any
    }

    /// Reads one meter and reports it to the leases of its stream. Returns whether it is in use.
    fn observe(&mut self, now_ns: u64, place: Place) -> bool {
        let now = self.instant(now_ns);
        let rest_ns = self.rest_ns();
        let (_, seat) = &mut self.seats[place.seat as usize];
        let seat = seat
            .as_mut()
            .expect("members are of sessions that are there");
        let state = &mut seat.meters[place.meter as usize];
        let counters = seat.region.meters[place.meter as usize].counters();
        let device = &mut self.devices[state.device];
        let rates = [
            device.options.rate_max.as_bps() / 8,
            device.options.message_rate_max_per_s,
        ];
        let look = state.look(counters, now_ns, rates);
        self.figures.implausible_total += u64::from(look.implausible);
        let (at, member) = (state.device, state.member);
        let is_read = state.direction == READS;
        let Usage {
            bytes, operations, ..
        } = look.usage;
        device.foreign.count(is_read, bytes, operations);
        let rests = device.is_calm() && (1..rest_ns).contains(&state.rests_ns());
        let leases = &mut device.streams[state.direction].leases;
        if device.policy.is_none() && leases.cap(member, LimitKind::Tenant) == EVERYTHING {
            // A limit may have made it active.
            leases.rest(member);
            return true;
        }
        if rests && leases.is_active(member) {
            // No other sender would use the returned share.
            return false;
        }
        match leases.observe(now, member, look.usage) {
            Change::None => {}
            Change::Active => device.dirty = true,
            Change::Idle => {
                device.dirty = true;
                self.grant(at, place, now_ns);
            }
        }
        look.usage.bytes > 0 || look.usage.operations > 0 || look.usage.waiting
    }

    /// Reads all active meters once.
    pub(super) fn period(&mut self, now_ns: u64) {
        let pause_ns = self.pause_ns().unwrap_or(self.period_ns());
        let next = self.next_period_ns.unwrap_or(now_ns) + pause_ns;
        self.next_period_ns = Some(next.max(now_ns + pause_ns / 2));
        self.figures.periods_total += 1;
        self.look_at_services(now_ns);
        for at in 0..self.devices.len() {
            self.each_active(at, |governor, place| {
                governor.observe(now_ns, place);
            });
            self.devices[at].dirty |= self.devices[at].is_active();
        }
    }

    /// Visits the active meters of a device.
    fn each_active(&mut self, at: usize, mut visit: impl FnMut(&mut Self, Place)) {
        let mut members = std::mem::take(&mut self.devices[at].scratch);
        for direction in 0..DIRECTIONS.len() {
            members.clear();
            members.extend(self.devices[at].streams[direction].leases.active_members());
            for &member in &members {
                let place = self.devices[at].streams[direction].owners[member.0 as usize];
                visit(self, place);
            }
        }
        self.devices[at].scratch = members;
    }

    /// Divides a device's rates and writes the leases of all active meters.
    pub(super) fn divide(&mut self, now_ns: u64, at: usize) {
        self.devices[at].divide();
        self.each_active(at, |governor, place| governor.grant(at, place, now_ns));
        if std::mem::take(&mut self.devices[at].refresh_idle) {
            self.grant_all(at, now_ns);
        }
        self.devices[at].dirty = false;
    }

    /// Writes the leases of all meters of a device, including idle ones.
    fn grant_all(&mut self, at: usize, now_ns: u64) {
        for index in 0..self.seats.len() as u32 {
            let Some(seat) = &self.seats[index as usize].1 else {
                continue;
            };
            for meter in 0..seat.meters.len() as u16 {
                let seat = self.seats[index as usize].1.as_ref().expect("as above");
                if seat.meters[meter as usize].device == at {
                    self.grant(at, Place { seat: index, meter }, now_ns);
                }
            }
        }
    }

    /// Writes a meter's lease if it changed or ends soon.
    pub(super) fn grant(&mut self, at: usize, place: Place, now_ns: u64) {
        let valid_ns = VALID_NS.max(VALID_PERIODS * self.period_ns());
        let (_, seat) = &mut self.seats[place.seat as usize];
        let seat = seat
            .as_mut()
            .expect("leases are of sessions that are there");
        let state = &mut seat.meters[place.meter as usize];
        let lease = self.devices[at].lease(state.direction, state.member, now_ns + valid_ns);
        let same = Lease {
            valid_until_ns: state.written.valid_until_ns,
            ..lease
        } == state.written;
        if same && state.written.valid_until_ns >= lease.valid_until_ns - valid_ns / 2 {
            return;
        }
        state.written = lease;
        seat.region.meters[place.meter as usize].grant(&lease);
        self.figures.leases_total += 1;
    }
}

/// Validity of a lease: longer than a busy machine delays the daemon. When a lease ends, the process posts all waiting
/// work at once, and the device sends it for seconds regardless of later leases. A dead daemon is detected by its
/// closed socket at once; this time matters only for a hanging daemon.
const VALID_NS: u64 = 1_000_000_000;
/// And longer than the pause between two readings of a lone process, twice over: half of the time a lease is not renewed.
const VALID_PERIODS: u64 = 4 * CALM_PERIODS;
