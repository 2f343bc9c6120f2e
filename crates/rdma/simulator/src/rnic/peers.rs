//! Which hosts' daemons exchange reports, and the input of a policy with several peers.
//!
//! Daemons with common tenants exchange reports: a tenant with queue pairs that end on both hosts joins their daemons.
//! A policy has one peer only, so it gets one sum of all latest reports (see [`RemoteState`]). The sum counts every
//! sender of a peer, for any receiver, so a policy grants rather too little than too much.

use super::queue_pair::QueuePair;
use isolane_common_quantities::units::BitRate;
use isolane_rdma_policy::RemoteState;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// The reports that a daemon received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reports {
    /// The hosts of its peer daemons.
    pub(crate) peers: Vec<u8>,
    /// The latest report of each host.
    latest: Vec<RemoteState>,
}

impl Reports {
    /// Nothing yet, of `peers` among `hosts` hosts.
    pub(crate) fn of(peers: Vec<u8>, hosts: usize) -> Self {
        Self {
            peers,
            latest: vec![RemoteState::default(); hosts],
        }
    }

    /// Takes a peer's report; one sum of what all peers reported last. The fan-in is that of the receiver with the
    /// most senders.
    pub(crate) fn update(&mut self, from: u8, report: RemoteState) -> RemoteState {
        self.latest[usize::from(from)] = report;
        let mut all = RemoteState::default();
        for report in self
            .peers
            .iter()
            .map(|&host| &self.latest[usize::from(host)])
        {
            all.sending_hungry_weight += report.sending_hungry_weight;
            all.sending_latency_weight += report.sending_latency_weight;
            all.reading_hungry_weight += report.reading_hungry_weight;
            all.reading_latency_weight += report.reading_latency_weight;
            let rate = all
                .read_rate
                .as_bps()
                .saturating_add(report.read_rate.as_bps());
            all.read_rate = BitRate::from_bps(rate);
            if senders(report) > senders(&all) {
                all.receiving_hungry_weight = report.receiving_hungry_weight;
                all.receiving_latency_weight = report.receiving_latency_weight;
            }
        }
        all
    }
}

fn senders(report: &RemoteState) -> u64 {
    report.receiving_hungry_weight + report.receiving_latency_weight
}

/// Which tenants each host sends to each other host for.
pub(crate) struct Talks {
    in_use: Vec<bool>,
    /// By sending host: for each host, the tenants that send there.
    sends: Vec<Vec<BTreeSet<u16>>>,
}

impl Talks {
    /// What `pairs` say, between hosts that are `in_use`.
    pub(crate) fn of(pairs: &[QueuePair], in_use: Vec<bool>) -> Self {
        let hosts = in_use.len();
        let mut sends = vec![vec![BTreeSet::new(); hosts]; hosts];
        for pair in pairs {
            sends[usize::from(pair.host)][usize::from(pair.peer)].insert(pair.tenant);
        }
        Self { in_use, sends }
    }

    fn others(&self, host: usize) -> impl Iterator<Item = usize> {
        (0..self.in_use.len()).filter(move |&other| other != host && self.in_use[other])
    }

    /// The host that most of the tenants here send to; the first one of equals.
    pub(crate) fn favourite(&self, host: usize) -> usize {
        let tenants = |other: usize| {
            let (to, from) = (self.sends[host][other].len(), self.sends[other][host].len());
            (to, from, Reverse(other))
        };
        let favourite = self.others(host).max_by_key(|&other| tenants(other));
        favourite.expect("at least two hosts are in use")
    }

    /// The hosts of this daemon's peers: those with a common tenant. Two hosts are always peers.
    pub(crate) fn peers(&self, host: usize) -> Vec<u8> {
        let at = |host: usize| -> BTreeSet<u16> {
            let sent = self.sends[host].iter().flatten();
            let received = self.sends.iter().flat_map(|sends| &sends[host]);
            sent.chain(received).copied().collect()
        };
        let here = at(host);
        let alone = self.in_use.len() == 2;
        self.others(host)
            .filter(|&other| alone || !here.is_disjoint(&at(other)))
            .map(|other| other as u8)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_peer_s_report_is_handed_over_as_it_is() {
        let report = RemoteState {
            sending_hungry_weight: 3,
            sending_latency_weight: 1,
            reading_hungry_weight: 4,
            reading_latency_weight: 1,
            receiving_hungry_weight: 5,
            receiving_latency_weight: 9,
            read_rate: BitRate::from_gbps(2),
        };
        assert_eq!(Reports::of(vec![1], 2).update(1, report), report);
    }

    #[test]
    fn weights_and_grants_add_up_and_the_widest_fan_in_counts() {
        let mut reports = Reports::of(vec![1, 2], 3);
        let report = |sending, receiving| RemoteState {
            sending_hungry_weight: sending,
            receiving_hungry_weight: receiving,
            read_rate: BitRate::from_gbps(1),
            ..RemoteState::default()
        };
        reports.update(1, report(2, 7));
        let sum = reports.update(2, report(3, 4));
        assert_eq!(sum.sending_hungry_weight, 5);
        assert_eq!(sum.receiving_hungry_weight, 7);
        assert_eq!(sum.read_rate, BitRate::from_gbps(2));
        // A newer report takes the place of the older one.
        assert_eq!(reports.update(1, report(1, 0)).receiving_hungry_weight, 4);
    }
}
