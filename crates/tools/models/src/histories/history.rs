//! What happened in a run with real processes, and the promise that it must keep.
//!
//! Method: every time is of the checker's own monotonic clock. A lease is in use from a reading at which the client's
//! table had it to the last reading at which the table still had it, or to its end. So a recorded use lies within the
//! real one, and a slow checker raises no false alarm. Units: nanoseconds, bytes per second. Limits: a use that is
//! shorter than the time between two readings is not seen.

use isolane_rpc::quota::protocol::Terms;
use std::collections::BTreeMap;

/// A lease that a client could use without a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Number of the client.
    pub client: usize,
    /// Place of the pool in [`History::pools`].
    pub pool: usize,
    /// Rate, bytes per second.
    pub rate: u64,
    /// First time at which it was in use.
    pub from_ns: u64,
    /// Time until which it was in use.
    pub to_ns: u64,
}

/// What the server answered to a change of terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Acknowledged.
    Done,
    /// The server could not store it, and said so.
    Failed,
    /// Not permitted.
    Rejected,
    /// No answer: the server may apply it at any later time.
    Unknown,
}

/// A change of terms by the operator. Changes follow one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The new terms; no two changes have the same guarantee.
    pub terms: Terms,
    /// The server's answer.
    pub outcome: Outcome,
}

/// The rate of a tenant after the calm time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calm {
    /// The tenant, its pool and its guarantee.
    pub terms: Terms,
    /// Number of its clients: each division loses less than a byte per second.
    pub clients: u64,
    /// The rate that its clients held together at the last reading.
    pub held: u64,
}

impl Calm {
    /// Whether the tenant has its guarantee.
    pub fn is_kept(&self) -> bool {
        self.held + self.clients >= self.terms.guarantee_bytes_per_s
    }
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Names and bounds of the pools, bytes per second.
    pub pools: Vec<(String, u64)>,
    /// Uses of leases.
    pub held: Vec<Held>,
    /// Changes of terms, in their order.
    pub changes: Vec<Change>,
    /// Number of a server, and when it had taken the store over and listened. Numbers grow.
    pub starts: Vec<(u64, u64)>,
    /// Number of a server, and when a client made the request that the server answered with a lease.
    pub grants: Vec<(u64, u64)>,
    /// Rates after the calm time.
    pub calm: Vec<Calm>,
    /// Terms that the last server read from the store.
    pub terms: Vec<Terms>,
}

impl History {
    /// Checks the promise. The error is the first part of it that was broken.
    pub fn check(&self) -> Result<(), String> {
        self.check_bounds()?;
        self.check_leaders()?;
        self.check_terms()?;
        self.check_guarantees()
    }

    /// The rates in use fit the bound at every moment.
    fn check_bounds(&self) -> Result<(), String> {
        for (place, (name, bound)) in self.pools.iter().enumerate() {
            let here = self.held.iter().enumerate();
            let here = here.filter(|(_, held)| held.pool == place && held.from_ns < held.to_ns);
            // At equal times an end comes first.
            let mut edges: Vec<(u64, bool, usize)> = here
                .flat_map(|(index, held)| [(held.from_ns, true, index), (held.to_ns, false, index)])
                .collect();
            edges.sort_unstable();
            let mut using = BTreeMap::new();
            for (at_ns, begins, index) in edges {
                let held = &self.held[index];
                match begins {
                    true => using.insert(index, held.rate),
                    false => using.remove(&index),
                };
                let sum: u64 = using.values().sum();
                if sum > *bound {
                    let all: Vec<&Held> = using.keys().map(|index| &self.held[*index]).collect();
                    return Err(format!(
                        "{name}: clients use {sum} of {bound} bytes/s at {at_ns} ns: {all:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// A server grants nothing on a request that was made after a later server had begun.
    fn check_leaders(&self) -> Result<(), String> {
        for (server, asked_ns) in &self.grants {
            let mut starts = self.starts.iter();
            if let Some((later, at_ns)) = starts.find(|(later, at)| later > server && at < asked_ns)
            {
                return Err(format!(
                    "server {server} granted a lease on a request of {asked_ns} ns, server {later} began at {at_ns} ns"
                ));
            }
        }
        Ok(())
    }

    /// Acknowledged terms are in the store, unless a change after them, or one without an answer, replaced them. A
    /// change whose failure the operator was told does not come back after a later acknowledged one of the same tenant
    /// and class.
    fn check_terms(&self) -> Result<(), String> {
        for (place, last) in self.changes.iter().enumerate() {
            let same = |other: &Terms| {
                let of = |terms: &Terms| {
                    let Terms {
                        tenant,
                        group,
                        class,
                        ..
                    } = terms.clone();
                    (tenant, group, class)
                };
                of(other) == of(&last.terms)
            };
            let later = &self.changes[place + 1..];
            let is_last = !later
                .iter()
                .any(|change| change.outcome == Outcome::Done && same(&change.terms));
            if last.outcome != Outcome::Done || !is_last {
                continue;
            }
            let may_be = |found: &&Terms| {
                let unsettled = later
                    .iter()
                    .any(|change| change.outcome == Outcome::Failed && change.terms == **found);
                let open = self.changes.iter();
                let mut open = open.filter(|change| change.outcome == Outcome::Unknown);
                **found == last.terms || unsettled || open.any(|change| change.terms == **found)
            };
            let found = self.terms.iter().find(|terms| same(terms));
            if found.filter(may_be).is_none() {
                return Err(format!(
                    "acknowledged terms {:?} are not in the store, which has {found:?}",
                    last.terms
                ));
            }
        }
        Ok(())
    }

    /// After the calm time each tenant has its guarantee.
    fn check_guarantees(&self) -> Result<(), String> {
        for calm in &self.calm {
            if !calm.is_kept() {
                let Calm { terms, held, .. } = calm;
                return Err(format!(
                    "tenant {} has {held} of its guaranteed {} bytes/s in class {} after the calm time",
                    terms.tenant, terms.guarantee_bytes_per_s, terms.class
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
