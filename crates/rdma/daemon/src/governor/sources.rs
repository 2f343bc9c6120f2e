//! READs by the device that they read.
//!
//! Problem: the device that is read grants the READs of other hosts a rate (justitia 4.5), and needs the weights of those
//! READs alone. With several peers a sum over all of them is wrong both ways: READs from a device that grants half would
//! use what another device grants, and every peer would keep a part for READs from elsewhere. Method: a session has a
//! meter for each port that it READs. Each peer's ports follow from the handshake, so a meter belongs to a peer, and the
//! peer's grant limits all its meters together ([`LimitKind::Source`]). Each peer gets a report of the READs from its own
//! ports. READs from a port that no peer has are limited and reported nowhere. READs whose port is not known count for
//! every peer, and all grants together limit them. Limits: ports beyond [`isolane_rdma_session::region::SOURCES`] of a
//! session are not known; a session that READs from several ports has several members in its tenant's share.

use super::stream::Stream;
use super::tally::Tally;
use crate::order::{Grant, Reads};
use isolane_common_quantities::units::BitRate;
use isolane_rdma_policy::leases::{EVERYTHING, LimitId, LimitKind, MemberId};
use isolane_rdma_session::message::PortAddress;
use std::collections::BTreeMap;

/// The port from which a flow READs; `None`: not known.
pub(super) type Source = Option<PortAddress>;

/// The sources of one device's READs.
#[derive(Debug, Default)]
pub(super) struct Sources {
    grants: Vec<Grant>,
    /// Place of a port's peer in `grants`.
    peers: BTreeMap<PortAddress, usize>,
    /// The limit of READs whose source is not known, then those of the peers.
    limits: Vec<LimitId>,
    of_member: Vec<Source>,
    /// Latency flows that READ, by their source.
    readers: BTreeMap<Source, Tally>,
    /// State of the leases for the last report.
    seen: u64,
    /// Whether peers or readers changed since then.
    changed: bool,
    reported: Reads,
}

impl Sources {
    /// A member READs from `source` from now on.
    pub(super) fn join(&mut self, stream: &mut Stream, member: MemberId, source: Source) {
        let at = member.0 as usize;
        if self.of_member.len() <= at {
            self.of_member.resize(at + 1, None);
        }
        self.of_member[at] = source;
        self.hold(stream, member);
    }

    /// Takes over the peers' newest grants. Returns whether anything changed.
    pub(super) fn set_grants(&mut self, stream: &mut Stream, grants: Vec<Grant>) -> bool {
        if grants == self.grants {
            return false;
        }
        let names = |grants: &[Grant]| -> Vec<_> {
            let names = |grant: &Grant| (grant.peer.clone(), grant.ports.clone());
            grants.iter().map(names).collect()
        };
        let others = names(&grants) != names(&self.grants);
        self.grants = grants;
        while self.limits.len() <= self.grants.len() {
            self.limits.push(stream.leases.open_limit(EVERYTHING));
        }
        let rates = self.grants.iter().map(|grant| grant.rate.as_bps());
        let all = rates.clone().fold(0, u64::saturating_add);
        for (&limit, rate) in self.limits.iter().zip(std::iter::once(all).chain(rates)) {
            // A peer grants nothing before it knows of READs.
            let bytes_per_s = if rate == 0 { EVERYTHING } else { rate / 8 };
            stream.leases.set_limit_rate(limit, bytes_per_s);
        }
        if others {
            let places = self.grants.iter().enumerate();
            let ports =
                places.flat_map(|(at, grant)| grant.ports.iter().map(move |&port| (port, at)));
            self.peers = ports.collect();
            for member in 0..self.of_member.len() as u32 {
                self.hold(stream, MemberId(member));
            }
        }
        self.changed = true;
        true
    }

    /// Counts one more latency flow that READs. Returns whether the weights changed.
    pub(super) fn add_reader(&mut self, source: Source, number: u32, weight: u32) -> bool {
        let is_new = self.readers.entry(source).or_default().add(number, weight);
        self.changed |= is_new;
        is_new
    }

    /// Counts one less.
    pub(super) fn remove_reader(&mut self, source: Source, number: u32) -> bool {
        let tally = self.readers.get_mut(&source).expect("it was added");
        let is_last = tally.remove(number);
        if is_last && tally.weight == 0 {
            self.readers.remove(&source);
        }
        self.changed |= is_last;
        is_last
    }

    pub(super) fn set_weight(&mut self, number: u32, weight: u32) {
        for tally in self.readers.values_mut() {
            tally.set_weight(number, weight);
        }
        self.changed = true;
    }

    /// Takes over what the device that this one replaces has heard and reported.
    pub(super) fn inherit(&mut self, stream: &mut Stream, before: &Self) {
        self.set_grants(stream, before.grants.clone());
        self.reported = before.reported.clone();
    }

    /// The rate that the source of a member grants.
    pub(super) fn granted(&self, stream: &Stream, member: MemberId) -> Option<BitRate> {
        let limit = self.limit_of(*self.of_member.get(member.0 as usize)?)?;
        let bytes_per_s = stream.leases.limit_rate(limit)?;
        Some(BitRate::from_bps(bytes_per_s.saturating_mul(8)))
    }

    /// The weights for the peers' reports, if they changed.
    pub(super) fn news(&mut self, stream: &Stream) -> Option<Reads> {
        let seen = stream.leases.changes();
        if self.seen == seen && !self.changed {
            return None;
        }
        (self.seen, self.changed) = (seen, false);
        let reads = self.reads(stream);
        if reads == self.reported {
            return None;
        }
        self.reported = reads.clone();
        Some(reads)
    }

    fn reads(&self, stream: &Stream) -> Reads {
        let peers = self.grants.len();
        // The first sum is of READs whose source is not known; they count for every peer too.
        let mut hungry = vec![0; peers + 1];
        let everywhere = (1 << (peers + 1)) - 1;
        let sums_of = |member: MemberId| match self.of_member[member.0 as usize] {
            None => everywhere,
            Some(port) => self.peers.get(&port).map_or(0, |at| 1 << (at + 1)),
        };
        stream.leases.add_active_weights(sums_of, &mut hungry);
        let mut latency = vec![0; peers + 1];
        for (source, tally) in &self.readers {
            let sums = match source {
                None => &mut latency[..],
                Some(port) => match self.peers.get(port) {
                    Some(at) => &mut latency[at + 1..=at + 1],
                    None => &mut [],
                },
            };
            sums.iter_mut().for_each(|sum| *sum += tally.weight);
        }
        let mut sums = hungry.into_iter().zip(latency).map(|(a, b)| [a, b]);
        let unknown = sums.next().expect("one more than peers");
        let peers = self.grants.iter().map(|grant| grant.peer.clone());
        Reads {
            unknown,
            by_peer: peers.zip(sums).collect(),
        }
    }

    fn hold(&self, stream: &mut Stream, member: MemberId) {
        let limit = self.limit_of(self.of_member[member.0 as usize]);
        stream.leases.limit(member, LimitKind::Source, limit);
    }

    fn limit_of(&self, source: Source) -> Option<LimitId> {
        let place = match source {
            None => 0,
            Some(port) => self.peers.get(&port)? + 1,
        };
        self.limits.get(place).copied()
    }
}

const _: () = assert!(crate::settings::PEERS_MAX < 127, "a bit for each peer");
