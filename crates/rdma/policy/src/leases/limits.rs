//! Limits: a rate that some members may not exceed together, in any groups.
//!
//! Problem: the enforcer of guarantees has tenants of its own, which may differ from the groups of the division, and
//! its limit holds even where the device has room. Method: before each division the limit is divided among its active
//! members as a rate of its own. A member's part of the limit caps both its demand and its part of the rate without
//! demand. What a limit keeps from its members flows to the others. Limits: one per member; payload only, operations
//! follow at the device's ratio. Units: bytes per second.

use super::fill::{EVERYTHING, Want, fill, part};
use super::{Leases, MemberId};

/// A limit, dense from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitId(pub u32);

#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    bytes_per_s: u64,
    /// Summed weights of its active members.
    active_weight: u64,
}

impl Leases {
    /// A limit without members; [`EVERYTHING`] does not limit.
    pub fn open_limit(&mut self, bytes_per_s: u64) -> LimitId {
        self.limits.push(Limit {
            bytes_per_s,
            active_weight: 0,
        });
        LimitId((self.limits.len() - 1) as u32)
    }

    /// The limit's rate from the next division on.
    pub fn set_limit_rate(&mut self, limit: LimitId, bytes_per_s: u64) {
        self.limits[limit.0 as usize].bytes_per_s = bytes_per_s;
    }

    /// From the next division on `member` is held to `limit`, or to none.
    ///
    /// ```
    /// use isolane_rdma_policy::leases::{LeaseOptions, Leases, Rates, Usage};
    /// use isolane_common_quantities::units::{Duration, Instant};
    ///
    /// let device = Rates { bytes_per_s: 6_000_000_000, operations_per_s: 30_000_000 };
    /// let options = LeaseOptions { idle_after: Duration::from_ms(20), hungry_for: Duration::from_ms(8) };
    /// let mut leases = Leases::new(options, device);
    /// let (one, two) = (leases.open(1), leases.open(1));
    /// let members = [leases.join(one, 1), leases.join(two, 1)];
    /// let limit = leases.open_limit(1_000_000_000);
    /// leases.limit(members[0], Some(limit));
    /// for member in members {
    ///     leases.observe(Instant::ZERO, member, Usage { waiting: true, ..Usage::default() });
    /// }
    /// leases.divide();
    /// assert_eq!(leases.share(members[0]).bytes_per_s, 1_000_000_000);
    /// assert_eq!(leases.share(members[1]).bytes_per_s, 5_000_000_000);
    /// ```
    pub fn limit(&mut self, member: MemberId, limit: Option<LimitId>) {
        let is_active = self.members[member.0 as usize].active;
        if is_active {
            self.count_in_limit(member.0, false);
        }
        let state = &mut self.members[member.0 as usize];
        state.limit = limit;
        state.cap = EVERYTHING;
        if is_active {
            self.count_in_limit(member.0, true);
        }
    }

    /// What `member` may use of its limit: its part as of the last division, or, while it is idle, what it would get if
    /// it were the next to come. [`EVERYTHING`] where nothing limits it.
    pub fn cap(&self, member: MemberId) -> u64 {
        match self.is_active(member) {
            true => self.members[member.0 as usize].cap,
            false => self.cap_if_active(member),
        }
    }

    /// Takes an active member that is not observed any more out of the division.
    pub fn rest(&mut self, member: MemberId) {
        if self.is_active(member) {
            self.deactivate(member.0);
        }
    }

    /// What an idle `member` would get of its limit if it were the next to come.
    pub(super) fn cap_if_active(&self, member: MemberId) -> u64 {
        let state = &self.members[member.0 as usize];
        let Some(limit) = state.limit else {
            return EVERYTHING;
        };
        let limit = &self.limits[limit.0 as usize];
        if limit.bytes_per_s == EVERYTHING {
            return EVERYTHING;
        }
        let own = u64::from(state.weight);
        part(limit.bytes_per_s, own, limit.active_weight + own)
    }

    /// An active member joins its limit, or leaves it.
    pub(super) fn count_in_limit(&mut self, member: u32, comes: bool) {
        let state = &self.members[member as usize];
        let Some(limit) = state.limit else { return };
        let weight = u64::from(state.weight);
        let sum = &mut self.limits[limit.0 as usize].active_weight;
        match comes {
            true => *sum += weight,
            false => *sum -= weight,
        }
    }

    /// Divides every limit among its active members.
    pub(super) fn divide_limits(&mut self) {
        if self.limits.is_empty() {
            return;
        }
        let mut wants = std::mem::take(&mut self.among_members);
        wants.clear();
        let active = self.groups_active.iter();
        let members = active.flat_map(|&group| &self.groups[group as usize].active);
        let limited = members.filter(|&&id| self.members[id as usize].limit.is_some());
        wants.extend(limited.map(|&id| Want {
            id,
            weight: self.members[id as usize].weight,
            demand: self.demand(id),
            most: EVERYTHING,
            share: 0,
        }));
        wants.sort_unstable_by_key(|want| self.members[want.id as usize].limit);
        let of = |want: &Want| self.members[want.id as usize].limit;
        for wants in wants.chunk_by_mut(|a, b| of(a) == of(b)) {
            let limit = of(&wants[0]).expect("only those with a limit");
            match self.limits[limit.0 as usize].bytes_per_s {
                EVERYTHING => wants.iter_mut().for_each(|want| want.share = EVERYTHING),
                rate => fill(rate, wants),
            }
        }
        for want in &wants {
            self.members[want.id as usize].cap = want.share;
        }
        self.among_members = wants;
    }
}

#[cfg(test)]
mod tests;
