//! The senders of one direction of a device, and the leases that divide its rate among them.

use super::seat::Place;
use isolane_rdma_policy::leases::{GroupId, LeaseOptions, Leases, LimitId, MemberId, Rates};
use std::collections::BTreeMap;

/// The senders of one direction.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) leases: Leases,
    /// Meter of each member, by member id.
    pub(super) owners: Vec<Place>,
    /// Group and weight of each tenant or session, by its number.
    groups: Vec<Option<(GroupId, u32)>>,
    /// Limits of the enforcer's tenants that had a process here, by the tenant's number.
    pub(super) limits: BTreeMap<u32, LimitId>,
}

impl Stream {
    pub(super) fn new(options: LeaseOptions, rates: Rates) -> Self {
        Self {
            leases: Leases::new(options, rates),
            owners: Vec::new(),
            groups: Vec::new(),
            limits: BTreeMap::new(),
        }
    }

    /// Adds a member to the group with that number.
    pub(super) fn join(
        &mut self,
        number: u32,
        group_weight: u32,
        weight: u32,
        owner: Place,
    ) -> MemberId {
        let at = number as usize;
        if self.groups.len() <= at {
            self.groups.resize(at + 1, None);
        }
        let leases = &mut self.leases;
        let (group, members) =
            self.groups[at].get_or_insert_with(|| (leases.open(group_weight), 0));
        *members += 1;
        let member = self.leases.join(*group, weight);
        let at = member.0 as usize;
        if self.owners.len() <= at {
            self.owners.resize(at + 1, owner);
        }
        self.owners[at] = owner;
        member
    }

    /// Removes a member from the group with that number. Returns whether the member was active.
    pub(super) fn leave(&mut self, number: u32, member: MemberId) -> bool {
        let was_active = self.leases.leave(member);
        let place = &mut self.groups[number as usize];
        let (group, members) = place.as_mut().expect("a member's group is open");
        *members -= 1;
        if *members == 0 {
            self.leases.close(*group);
            *place = None;
        }
        was_active
    }

    /// Changes the weight of the group with that number.
    pub(super) fn set_weight(&mut self, number: u32, weight: u32) {
        if let Some(Some((group, _))) = self.groups.get(number as usize) {
            self.leases.set_group_weight(*group, weight);
        }
    }
}
