//! Leases: a rate divided among those who use it, for the time of one period.
//!
//! Problem: a token for every few kilobytes costs a message each, and a daemon that grants tokens never sleeps. A
//! *lease* is the rate at which a sender may post until the next observation; between two observations there are no
//! messages. An idle member must not keep its part from the others, and a new member must not wait for a period.
//! Method: members (processes) belong to groups (tenants). Each period the caller reports the use of every active
//! member and whether it had to wait. From this report follows a *demand*. It is unlimited for a member that waits,
//! used most of its lease, or did so a moment ago; otherwise it is half as much again as the member's decaying peak.
//! The rate is divided by weighted max-min over the groups, then inside each group over its members: no member gets
//! more than its demand before each member has either its demand or its weight's part of the remainder. Rate without
//! demand is added by weight, so a sender that returns has room before the next observation. Members of any groups may
//! have a common *limit*: see [`Leases::limit`]. One amount represents both resources of a device: an operation counts
//! as the rate divided by the message rate, and a member's demand is the larger of the two, as with a token that is
//! used up in one resource (justitia 4.3.4).
//!
//! Newcomers: a member that was idle demands everything as soon as it is seen, and gets its part by the next
//! [`Leases::divide`], which the caller may do at once. Until then it uses what it was left with: the overshoot of
//! one newcomer is bounded by that lease times the caller's time to react, plus its burst.
//!
//! Invariants: the shares sum to at most the rate; the same calls give the same shares; nothing is allocated unless
//! a member or a group is new. Cost: O(active log active) for each division; who is idle is never looked at.
//! Units: bytes and operations per second, rounded down; at most one byte per second and member is lost.
//! Source: ours; weighted max-min is the textbook's progressive filling.

mod fill;
mod limits;

use super::pacing::Turns;
use fill::part;
pub use fill::{EVERYTHING, Want, fill};
use isolane_common_quantities::units::{Duration, Instant};
use limits::Limit;
pub use limits::{LimitId, LimitKind};

/// A group, dense from zero; ids of closed ones are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// A member, dense from zero; ids of those that left are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u32);

/// Two rates: of what there is, or of what one may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Payload.
    pub bytes_per_s: u64,
    /// Messages.
    pub operations_per_s: u64,
}

/// What a member did since it was last observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Payload that it gave to the device.
    pub bytes: u64,
    /// Messages that it gave to the device.
    pub operations: u64,
    /// Whether work of it waits for credit.
    pub waiting: bool,
}

/// What an observation changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// It uses the device from now on: divide again.
    Active,
    /// It has been idle for long and gave its share back.
    Idle,
}

/// What may wait, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// A member that uses nothing for this long is idle.
    pub idle_after: Duration,
    /// A member that waited demands everything for this long: longer than the pauses of a closed loop.
    pub hungry_for: Duration,
}

/// The members of one stream of data, and what each may use.
///
/// ```
/// use isolane_rdma_policy::leases::{Change, LeaseOptions, Leases, Rates, Usage};
/// use isolane_common_quantities::units::{Duration, Instant};
///
/// let device = Rates { bytes_per_s: 6_000_000_000, operations_per_s: 30_000_000 };
/// let options = LeaseOptions { idle_after: Duration::from_ms(20), hungry_for: Duration::from_ms(8) };
/// let mut leases = Leases::new(options, device);
/// let (small, large) = (leases.open(1), leases.open(2));
/// let members = [leases.join(small, 1), leases.join(large, 1), leases.join(large, 1)];
/// let hungry = Usage { waiting: true, ..Usage::default() };
/// for member in members {
///     assert_eq!(leases.observe(Instant::ZERO, member, hungry), Change::Active);
/// }
/// leases.divide();
/// assert_eq!(members.map(|member| leases.share(member).bytes_per_s), [2_000_000_000; 3]);
/// // The second falls idle, and its tenant's other process has all of the tenant's part.
/// let later = Instant::ZERO + Duration::from_ms(20);
/// assert_eq!(leases.observe(later, members[1], Usage::default()), Change::Idle);
/// leases.divide();
/// assert_eq!(leases.share(members[2]).bytes_per_s, 4_000_000_000);
/// ```
#[derive(Clone, Debug)]
pub struct Leases {
    options: LeaseOptions,
    rates: Rates,
    groups: Vec<Group>,
    groups_free: Vec<u32>,
    groups_active: Vec<u32>,
    members: Vec<Member>,
    members_free: Vec<u32>,
    active: usize,
    active_weight: u64,
    changes: u64,
    limits: Vec<Limit>,
    among_groups: Vec<Want>,
    among_members: Vec<Want>,
}

#[derive(Clone, Debug, Default)]
struct Group {
    weight: u32,
    members: u32,
    active: Vec<u32>,
    /// Place in `groups_active`, where any member is active.
    place: usize,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    group: u32,
    weight: u32,
    present: bool,
    active: bool,
    /// Place in its group's `active`.
    place: usize,
    observed: Instant,
    alive: Instant,
    hungry_until: Instant,
    /// Decaying peak of what it used, bytes per second or what its operations are worth.
    peak: u64,
    share: u64,
    /// The limits that hold for it together with others, by [`LimitKind`], and its parts of them as of the last
    /// division.
    limits: [Option<LimitId>; LimitKind::COUNT],
    caps: [u64; LimitKind::COUNT],
}

impl Member {
    /// Its part of all its limits.
    fn cap(&self) -> u64 {
        self.caps.iter().copied().min().unwrap_or(EVERYTHING)
    }
}

impl Leases {
    /// No members yet.
    pub fn new(options: LeaseOptions, rates: Rates) -> Self {
        Self {
            options,
            rates,
            groups: Vec::new(),
            groups_free: Vec::new(),
            groups_active: Vec::new(),
            members: Vec::new(),
            members_free: Vec::new(),
            active: 0,
            active_weight: 0,
            changes: 0,
            limits: Vec::new(),
            among_groups: Vec::new(),
            among_members: Vec::new(),
        }
    }

    /// A group. Panics if `weight` is not in `1..=Turns::WEIGHT_MAX`.
    pub fn open(&mut self, weight: u32) -> GroupId {
        check_weight(weight);
        let group = Group {
            weight,
            ..Group::default()
        };
        let id = self.groups_free.pop().unwrap_or_else(|| {
            self.groups.push(Group::default());
            (self.groups.len() - 1) as u32
        });
        self.groups[id as usize] = group;
        GroupId(id)
    }

    /// The group is gone. Panics if it still has members.
    pub fn close(&mut self, group: GroupId) {
        assert_eq!(
            self.groups[group.0 as usize].members, 0,
            "a group is closed after its members left"
        );
        self.groups_free.push(group.0);
    }

    /// The group's weight from the next division on. Panics as [`Self::open`] does.
    pub fn set_group_weight(&mut self, group: GroupId, weight: u32) {
        check_weight(weight);
        self.changes += 1;
        let group = &mut self.groups[group.0 as usize];
        if !group.active.is_empty() {
            self.active_weight = self.active_weight - u64::from(group.weight) + u64::from(weight);
        }
        group.weight = weight;
    }

    /// One more member of `group`, idle. Panics if `weight` is not in `1..=Turns::WEIGHT_MAX`.
    pub fn join(&mut self, group: GroupId, weight: u32) -> MemberId {
        check_weight(weight);
        self.groups[group.0 as usize].members += 1;
        let member = Member {
            group: group.0,
            weight,
            present: true,
            active: false,
            place: 0,
            observed: Instant::ZERO,
            alive: Instant::ZERO,
            hungry_until: Instant::ZERO,
            peak: 0,
            share: 0,
            limits: [None; LimitKind::COUNT],
            caps: [EVERYTHING; LimitKind::COUNT],
        };
        match self.members_free.pop() {
            Some(id) => {
                self.members[id as usize] = member;
                MemberId(id)
            }
            None => {
                self.members.push(member);
                MemberId((self.members.len() - 1) as u32)
            }
        }
    }

    /// The member is gone; whether it was active. Panics if it is not there.
    pub fn leave(&mut self, member: MemberId) -> bool {
        let Member {
            group,
            present,
            active,
            ..
        } = self.members[member.0 as usize];
        assert!(present, "a member leaves once");
        if active {
            self.deactivate(member.0);
        }
        self.members[member.0 as usize].present = false;
        self.groups[group as usize].members -= 1;
        self.members_free.push(member.0);
        active
    }

    /// What there is to divide from now on; whether that is news.
    pub fn set_rates(&mut self, rates: Rates) -> bool {
        let is_new = rates != self.rates;
        self.rates = rates;
        is_new
    }

    /// What there is to divide.
    pub fn rates(&self) -> Rates {
        self.rates
    }

    /// What `member` did since it was last observed.
    pub fn observe(&mut self, now: Instant, member: MemberId, usage: Usage) -> Change {
        let worth = self.worth(usage.bytes, usage.operations);
        let LeaseOptions {
            idle_after,
            hungry_for,
        } = self.options;
        let state = &mut self.members[member.0 as usize];
        let is_alive = worth > 0 || usage.waiting;
        if !state.active {
            if !is_alive {
                return Change::None;
            }
            state.observed = now;
            state.alive = now;
            state.peak = 0;
            state.hungry_until = now.saturating_add(hungry_for);
            self.activate(member.0);
            return Change::Active;
        }
        let elapsed = now.saturating_since(state.observed);
        if is_alive {
            state.alive = now;
        } else if now.saturating_since(state.alive) >= idle_after {
            self.deactivate(member.0);
            return Change::Idle;
        }
        if elapsed.is_zero() {
            // Two looks at one time; what was used counts with the next.
            state.peak = state.peak.max(worth);
        } else {
            state.observed = now;
            let rate = u128::from(worth) * PS_PER_S / u128::from(elapsed.as_ps());
            let rate = u64::try_from(rate).unwrap_or(u64::MAX);
            state.peak = rate.max(state.peak - state.peak / DECAY);
            if usage.waiting || rate > state.share - state.share / 4 {
                state.hungry_until = now.saturating_add(hungry_for);
            }
        }
        Change::None
    }

    /// Divides the rates among all that are active.
    pub fn divide(&mut self) {
        let rate = self.rates.bytes_per_s;
        self.divide_limits();
        let mut among_groups = std::mem::take(&mut self.among_groups);
        let mut among_members = std::mem::take(&mut self.among_members);
        among_groups.clear();
        among_groups.extend(self.groups_active.iter().map(|&id| {
            let group = &self.groups[id as usize];
            let sum = |of: fn(&Self, u32) -> u64| {
                let each = group.active.iter().map(|&member| of(self, member));
                each.fold(0, u64::saturating_add)
            };
            Want {
                id,
                weight: group.weight,
                demand: sum(Self::demand_within_limit),
                most: sum(|leases, member| leases.members[member as usize].cap()),
                share: 0,
            }
        }));
        fill(rate, &mut among_groups);
        for want in &among_groups {
            let active = &self.groups[want.id as usize].active;
            if let &[member] = active.as_slice() {
                self.members[member as usize].share = want.share;
                continue;
            }
            among_members.clear();
            among_members.extend(active.iter().map(|&member| Want {
                id: member,
                weight: self.members[member as usize].weight,
                demand: self.demand_within_limit(member),
                most: self.members[member as usize].cap(),
                share: 0,
            }));
            fill(want.share, &mut among_members);
            for inner in &among_members {
                self.members[inner.id as usize].share = inner.share;
            }
        }
        self.among_groups = among_groups;
        self.among_members = among_members;
    }

    /// What `member` may use; nothing while it is idle.
    pub fn share(&self, member: MemberId) -> Rates {
        let Member { active, share, .. } = self.members[member.0 as usize];
        match active {
            true => self.rates_of(share),
            false => Rates::default(),
        }
    }

    /// What an idle `member` would get if it returned next and all others kept their demand: its lease until the next
    /// observation.
    pub fn share_if_active(&self, member: MemberId) -> Rates {
        let Member { group, weight, .. } = self.members[member.0 as usize];
        let group = &self.groups[group as usize];
        let others = match group.active.is_empty() {
            true => self.active_weight,
            false => self.active_weight - u64::from(group.weight),
        };
        let own = u64::from(group.weight);
        let of_group = part(self.rates.bytes_per_s, own, others + own);
        let inside: u64 = group
            .active
            .iter()
            .filter(|&&id| id != member.0)
            .map(|&id| u64::from(self.members[id as usize].weight))
            .sum();
        let share = part(of_group, u64::from(weight), inside + u64::from(weight));
        self.rates_of(share.min(self.cap_if_active(member)))
    }

    /// Whether `member` is active.
    pub fn is_active(&self, member: MemberId) -> bool {
        self.members[member.0 as usize].active
    }

    /// Those that are active, group by group.
    pub fn active_members(&self) -> impl Iterator<Item = MemberId> {
        let groups = self.groups_active.iter();
        groups.flat_map(|&id| {
            self.groups[id as usize]
                .active
                .iter()
                .map(|&id| MemberId(id))
        })
    }

    /// How many members are active.
    pub fn active(&self) -> usize {
        self.active
    }

    /// Summed weight of the groups with an active member.
    pub fn active_weight(&self) -> u64 {
        self.active_weight
    }

    /// Rises whenever [`Self::active_weight`] or [`Self::add_active_weights`] may give other sums.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Adds each group's weight once to all sums that any of its active members belongs to: bit N of `sums_of` stands for
    /// sum N. Panics for a bit without a sum.
    pub fn add_active_weights(&self, sums_of: impl Fn(MemberId) -> u128, sums: &mut [u64]) {
        for &id in &self.groups_active {
            let group = &self.groups[id as usize];
            let members = group.active.iter();
            let mut bits = members.fold(0, |bits, &member| bits | sums_of(MemberId(member)));
            while bits != 0 {
                sums[bits.trailing_zeros() as usize] += u64::from(group.weight);
                bits &= bits - 1;
            }
        }
    }

    /// Summed shares, bytes per second.
    pub fn leased_bytes_per_s(&self) -> u64 {
        let groups = self.groups_active.iter();
        let members = groups.flat_map(|&id| &self.groups[id as usize].active);
        members.map(|&id| self.members[id as usize].share).sum()
    }

    fn demand(&self, member: u32) -> u64 {
        let Member {
            hungry_until,
            observed,
            peak,
            ..
        } = self.members[member as usize];
        if observed < hungry_until {
            return EVERYTHING;
        }
        let least = self.rates.bytes_per_s / LEAST;
        peak.saturating_add(peak / 2).saturating_add(least)
    }

    /// The larger of two uses, in bytes.
    fn worth(&self, bytes: u64, operations: u64) -> u64 {
        let Rates {
            bytes_per_s,
            operations_per_s,
        } = self.rates;
        bytes.max(part(bytes_per_s, operations, operations_per_s.max(1)))
    }

    /// No more than its parts of its limits, as of this division.
    fn demand_within_limit(&self, member: u32) -> u64 {
        self.demand(member).min(self.members[member as usize].cap())
    }

    fn rates_of(&self, share: u64) -> Rates {
        let whole = self.rates.bytes_per_s.max(1);
        Rates {
            bytes_per_s: share,
            operations_per_s: part(self.rates.operations_per_s, share, whole),
        }
    }

    fn activate(&mut self, member: u32) {
        self.changes += 1;
        let state = &mut self.members[member as usize];
        let group = &mut self.groups[state.group as usize];
        if group.active.is_empty() {
            group.place = self.groups_active.len();
            self.groups_active.push(state.group);
            self.active_weight += u64::from(group.weight);
        }
        state.active = true;
        state.place = group.active.len();
        group.active.push(member);
        self.active += 1;
        self.count_in_limit(member, true);
    }

    fn deactivate(&mut self, member: u32) {
        self.changes += 1;
        let Member { group, place, .. } = self.members[member as usize];
        self.members[member as usize].active = false;
        self.members[member as usize].share = 0;
        self.active -= 1;
        self.count_in_limit(member, false);
        let owner = &mut self.groups[group as usize];
        owner.active.swap_remove(place);
        if let Some(&moved) = owner.active.get(place) {
            self.members[moved as usize].place = place;
        }
        if owner.active.is_empty() {
            self.active_weight -= u64::from(owner.weight);
            let place = owner.place;
            self.groups_active.swap_remove(place);
            if let Some(&moved) = self.groups_active.get(place) {
                self.groups[moved as usize].place = place;
            }
        }
    }
}

fn check_weight(weight: u32) {
    assert!(
        (1..=Turns::WEIGHT_MAX).contains(&weight),
        "weight {weight} is not between 1 and {}",
        Turns::WEIGHT_MAX
    );
}

const PS_PER_S: u128 = 1_000_000_000_000;
/// A peak loses this part of itself per observation: halved after about five.
const DECAY: u64 = 8;
/// This part of the rate is demanded even by who uses next to nothing, so that its first message need not wait.
const LEAST: u64 = 1_024;

#[cfg(test)]
mod tests;
