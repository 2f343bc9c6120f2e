//! The two tables of the control path: queue pair weights and group granularities (palos IV-B).
//!
//! Problem: equation 2 ties the chunk of one queue pair to the weights of all others,
//!
//! ```text
//! chunk = Grp_W / sum(Grp_W) x W_QP / sum_group(W_QP) x N
//! ```
//!
//! and a table of chunk sizes would have to be rewritten as a whole when one weight changes. Method: the chunk is the
//! product of a weight, one entry per queue pair, and of the rest, one entry per group (figure 6). A changed weight
//! writes one entry of the first table and makes one of the second stale; a group's entry is worked out again when it
//! is used next, so a change costs one division for each group at most, for any number of queue pairs.
//!
//! Which queue pairs count is not said in the paper. Here it is those in the scheduling round, in both sums and
//! in N: then a group's share goes to those of its pairs that have work, and a group without work leaves its share to the
//! others in proportion to their weights. With all pairs active this is the equation as printed.
//!
//! Units: a granularity is a number of 2^-20 bytes per unit of weight, rounded down and at least one. A chunk is
//! therefore at most one granularity unit per unit of weight, less than a byte in all, below equation 2.

use super::error::{Object, PalosError};

/// Largest weight of a group or a queue pair: a granularity's rounding times this stays below a byte.
pub const WEIGHT_MAX: u32 = 1 << 20;
/// Groups, and queue pairs, that one instance holds: more than any NIC has contexts for.
pub const OBJECTS_MAX: u32 = 1 << 22;
/// Binary digits of a granularity below one byte.
pub(super) const FRACTION_BITS: u32 = 20;

/// Entries written so far: what a change of configuration costs the NIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableWrites {
    /// Entries of the queue pair weight table.
    pub weights: u64,
    /// Entries of the group granularity table.
    pub granularities: u64,
}

#[derive(Clone, Debug)]
struct GroupEntry {
    weight: u32,
    /// Queue pairs that exist, and the sum of their weights.
    members: u32,
    member_weight: u64,
    /// The sum over those in the round, and how many they are.
    active: u32,
    active_weight: u64,
    /// 2^-20 bytes per unit of weight; true while `version` is the tables'.
    granularity: u64,
    version: u64,
}

#[derive(Clone, Copy, Debug)]
struct PairEntry {
    group: u32,
    weight: u32,
    active: bool,
}

/// Weights and what follows from them.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    /// N of equation 2 for each queue pair in the round, bytes.
    quantum: u64,
    groups: Vec<GroupEntry>,
    pairs: Vec<PairEntry>,
    active: u64,
    active_group_weight: u64,
    version: u64,
    writes: TableWrites,
}

impl Tables {
    pub(super) fn new(quantum: u64) -> Self {
        Self {
            quantum,
            groups: Vec::new(),
            pairs: Vec::new(),
            active: 0,
            active_group_weight: 0,
            version: 1,
            writes: TableWrites::default(),
        }
    }

    pub(super) fn quantum(&self) -> u64 {
        self.quantum
    }

    pub(super) fn writes(&self) -> TableWrites {
        self.writes
    }

    pub(super) fn add_group(&mut self, weight: u32) -> Result<u32, PalosError> {
        let group = self.groups.len() as u32;
        check_room(Object::Group(group), group)?;
        check_weight(Object::Group(group), weight)?;
        self.groups.push(GroupEntry {
            weight,
            members: 0,
            member_weight: 0,
            active: 0,
            active_weight: 0,
            granularity: 0,
            version: 0,
        });
        Ok(group)
    }

    pub(super) fn add_pair(&mut self, group: u32, weight: u32) -> Result<u32, PalosError> {
        let pair = self.pairs.len() as u32;
        check_room(Object::QueuePair(pair), pair)?;
        self.check_group(group)?;
        check_weight(Object::QueuePair(pair), weight)?;
        self.pairs.push(PairEntry {
            group,
            weight,
            active: false,
        });
        self.writes.weights += 1;
        let entry = &mut self.groups[group as usize];
        entry.members += 1;
        entry.member_weight += u64::from(weight);
        Ok(pair)
    }

    pub(super) fn set_pair(&mut self, pair: u32, weight: u32) -> Result<(), PalosError> {
        self.check_pair(pair)?;
        check_weight(Object::QueuePair(pair), weight)?;
        let entry = &mut self.pairs[pair as usize];
        let old = std::mem::replace(&mut entry.weight, weight);
        self.writes.weights += 1;
        let group = &mut self.groups[entry.group as usize];
        group.member_weight = group.member_weight - u64::from(old) + u64::from(weight);
        if entry.active {
            group.active_weight = group.active_weight - u64::from(old) + u64::from(weight);
            group.version = 0;
        }
        Ok(())
    }

    /// The queue pair takes part in the round from now on.
    pub(super) fn join(&mut self, pair: u32) {
        let entry = &mut self.pairs[pair as usize];
        debug_assert!(!entry.active, "queue pair {pair} joins the round twice");
        entry.active = true;
        let group = &mut self.groups[entry.group as usize];
        if group.active == 0 {
            self.active_group_weight += u64::from(group.weight);
        }
        group.active += 1;
        group.active_weight += u64::from(entry.weight);
        self.active += 1;
        self.version += 1;
    }

    /// It takes no part any more.
    pub(super) fn leave(&mut self, pair: u32) {
        let entry = &mut self.pairs[pair as usize];
        debug_assert!(
            entry.active,
            "queue pair {pair} leaves a round it is not in"
        );
        entry.active = false;
        let group = &mut self.groups[entry.group as usize];
        group.active -= 1;
        group.active_weight -= u64::from(entry.weight);
        if group.active == 0 {
            self.active_group_weight -= u64::from(group.weight);
        }
        self.active -= 1;
        self.version += 1;
    }

    /// Chunk of a queue pair in the round, 2^-20 bytes.
    #[inline]
    pub(super) fn chunk(&mut self, pair: u32) -> u64 {
        let entry = self.pairs[pair as usize];
        let group = &mut self.groups[entry.group as usize];
        if group.version != self.version {
            group.granularity = granularity(
                self.quantum * self.active,
                (group.weight, self.active_group_weight),
                group.active_weight,
            );
            group.version = self.version;
            self.writes.granularities += 1;
        }
        u64::from(entry.weight) * group.granularity
    }

    /// What one round gives the group while all queue pairs there are have work, 2^-20 bytes.
    pub(super) fn planned_round(&self, group: u32) -> Result<u64, PalosError> {
        self.check_group(group)?;
        let entry = &self.groups[group as usize];
        if entry.members == 0 {
            return Err(PalosError::NoMembers { group });
        }
        let (mut members, mut weights) = (0, 0);
        for other in self.groups.iter().filter(|other| other.members > 0) {
            members += u64::from(other.members);
            weights += u64::from(other.weight);
        }
        let granularity = granularity(
            self.quantum * members,
            (entry.weight, weights),
            entry.member_weight,
        );
        Ok(granularity * entry.member_weight)
    }

    #[inline]
    pub(super) fn group_of(&self, pair: u32) -> u32 {
        self.pairs[pair as usize].group
    }

    pub(super) fn group_weight(&self, group: u32) -> u32 {
        self.groups[group as usize].weight
    }

    pub(super) fn check_pair(&self, pair: u32) -> Result<(), PalosError> {
        if (pair as usize) < self.pairs.len() {
            return Ok(());
        }
        Err(PalosError::Unknown {
            object: Object::QueuePair(pair),
            numbers: self.pairs.len() as u32,
        })
    }

    fn check_group(&self, group: u32) -> Result<(), PalosError> {
        if (group as usize) < self.groups.len() {
            return Ok(());
        }
        Err(PalosError::Unknown {
            object: Object::Group(group),
            numbers: self.groups.len() as u32,
        })
    }
}

/// `total x weight / weights / members`, in 2^-20 bytes: rounded down, at least one. With all sums at their largest
/// the product still fits 128 bits; the usual ones fit 64, which divide several times faster.
fn granularity(total: u64, (weight, weights): (u32, u64), members: u64) -> u64 {
    let numerator = (u128::from(total) * u128::from(weight)) << FRACTION_BITS;
    let denominator = u128::from(weights) * u128::from(members);
    let quotient = match (u64::try_from(numerator), u64::try_from(denominator)) {
        (Ok(numerator), Ok(denominator)) => numerator / denominator,
        _ => u64::try_from(numerator / denominator).unwrap_or(u64::MAX),
    };
    quotient.max(1)
}

fn check_weight(object: Object, weight: u32) -> Result<(), PalosError> {
    if (1..=WEIGHT_MAX).contains(&weight) {
        return Ok(());
    }
    Err(PalosError::Weight { object, weight })
}

fn check_room(object: Object, used: u32) -> Result<(), PalosError> {
    if used < OBJECTS_MAX {
        return Ok(());
    }
    Err(PalosError::Full { object })
}
