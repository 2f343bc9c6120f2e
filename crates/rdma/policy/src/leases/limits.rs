//! Limits: a rate that some members may not exceed together, in any groups.
//!
//! Problem: the enforcer of guarantees has tenants of its own, which may differ from the groups of the division, and
//! its limit holds even where the device has room. A device that is read limits those that read it, in any tenant. Method: before each division the limit is divided among its active
//! members as a rate of its own. A member's part of the limit caps both its demand and its part of the rate without
//! demand. What a limit keeps from its members flows to the others. Limits: one of each kind per member; payload only,
//! operations follow at the device's ratio. Units: bytes per second.

use super::fill::{EVERYTHING, Want, fill, part};
use super::{Leases, Member, MemberId};

/// A limit, dense from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitId(pub u32);

/// Why members are limited. Of each kind, a member has one limit at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// They are of one tenant of the enforcer.
    Tenant = 0,
    /// They READ from one device, which grants a rate.
    Source = 1,
}

impl LimitKind {
    /// Number of kinds.
    pub(super) const COUNT: usize = 2;
}

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

    /// The limit's rate, if it limits.
    pub fn limit_rate(&self, limit: LimitId) -> Option<u64> {
        let rate = self.limits[limit.0 as usize].bytes_per_s;
        (rate != EVERYTHING).then_some(rate)
    }

    /// From the next division on `member` is held to `limit` of this kind, or to none.
    ///
    /// ```
    /// use isolane_rdma_policy::leases::{LeaseOptions, Leases, LimitKind, Rates, Usage};
    /// use isolane_common_quantities::units::{Duration, Instant};
    ///
    /// let device = Rates { bytes_per_s: 6_000_000_000, operations_per_s: 30_000_000 };
    /// let options = LeaseOptions { idle_after: Duration::from_ms(20), hungry_for: Duration::from_ms(8) };
    /// let mut leases = Leases::new(options, device);
    /// let (one, two) = (leases.open(1), leases.open(1));
    /// let members = [leases.join(one, 1), leases.join(two, 1)];
    /// let limit = leases.open_limit(1_000_000_000);
    /// leases.limit(members[0], LimitKind::Tenant, Some(limit));
    /// for member in members {
    ///     leases.observe(Instant::ZERO, member, Usage { waiting: true, ..Usage::default() });
    /// }
    /// leases.divide();
    /// assert_eq!(leases.share(members[0]).bytes_per_s, 1_000_000_000);
    /// assert_eq!(leases.share(members[1]).bytes_per_s, 5_000_000_000);
    /// ```
    pub fn limit(&mut self, member: MemberId, kind: LimitKind, limit: Option<LimitId>) {
        let is_active = self.members[member.0 as usize].active;
        if is_active {
            self.count_in_limit(member.0, false);
        }
        let state = &mut self.members[member.0 as usize];
        state.limits[kind as usize] = limit;
        state.caps[kind as usize] = EVERYTHING;
        if is_active {
            self.count_in_limit(member.0, true);
        }
    }

    /// What `member` may use of its limit of this kind: its part as of the last division, or, while it is idle, what it
    /// would get if it were the next to come. [`EVERYTHING`] where nothing limits it.
    pub fn cap(&self, member: MemberId, kind: LimitKind) -> u64 {
        let state = &self.members[member.0 as usize];
        match state.active {
            true => state.caps[kind as usize],
            false => self.part_if_active(state, kind as usize),
        }
    }

    /// Takes an active member that is not observed any more out of the division.
    pub fn rest(&mut self, member: MemberId) {
        if self.is_active(member) {
            self.deactivate(member.0);
        }
    }

    /// What an idle `member` would get of its limits if it were the next to come.
    pub(super) fn cap_if_active(&self, member: MemberId) -> u64 {
        let state = &self.members[member.0 as usize];
        let parts = (0..LimitKind::COUNT).map(|kind| self.part_if_active(state, kind));
        parts.min().unwrap_or(EVERYTHING)
    }

    fn part_if_active(&self, state: &Member, kind: usize) -> u64 {
        let Some(limit) = state.limits[kind] else {
            return EVERYTHING;
        };
        let limit = &self.limits[limit.0 as usize];
        if limit.bytes_per_s == EVERYTHING {
            return EVERYTHING;
        }
        let own = u64::from(state.weight);
        part(limit.bytes_per_s, own, limit.active_weight + own)
    }

    /// An active member joins its limits, or leaves them.
    pub(super) fn count_in_limit(&mut self, member: u32, comes: bool) {
        let state = &self.members[member as usize];
        let weight = u64::from(state.weight);
        for limit in state.limits.into_iter().flatten() {
            let sum = &mut self.limits[limit.0 as usize].active_weight;
            match comes {
                true => *sum += weight,
                false => *sum -= weight,
            }
        }
    }

    /// Divides every limit among its active members.
    pub(super) fn divide_limits(&mut self) {
        if self.limits.is_empty() {
            return;
        }
        for kind in [LimitKind::Tenant, LimitKind::Source] {
            self.divide_limits_of(kind as usize);
        }
    }

    /// A member demands of a later kind no more than its part of the earlier one.
    fn divide_limits_of(&mut self, kind: usize) {
        let mut wants = std::mem::take(&mut self.among_members);
        wants.clear();
        let active = self.groups_active.iter();
        let members = active.flat_map(|&group| &self.groups[group as usize].active);
        let limited = members.filter(|&&id| self.members[id as usize].limits[kind].is_some());
        let earlier = |id: u32| match kind {
            0 => EVERYTHING,
            _ => self.members[id as usize].caps[kind - 1],
        };
        wants.extend(limited.map(|&id| Want {
            id,
            weight: self.members[id as usize].weight,
            demand: self.demand(id).min(earlier(id)),
            most: EVERYTHING,
            share: 0,
        }));
        wants.sort_unstable_by_key(|want| self.members[want.id as usize].limits[kind]);
        let of = |want: &Want| self.members[want.id as usize].limits[kind];
        for wants in wants.chunk_by_mut(|a, b| of(a) == of(b)) {
            let limit = of(&wants[0]).expect("only those with a limit");
            match self.limits[limit.0 as usize].bytes_per_s {
                EVERYTHING => wants.iter_mut().for_each(|want| want.share = EVERYTHING),
                rate => fill(rate, wants),
            }
        }
        for want in &wants {
            self.members[want.id as usize].caps[kind] = want.share;
        }
        self.among_members = wants;
    }
}

#[cfg(test)]
mod tests;
