//! Who may count on what: the weighted hose model (justitia 4.3.1, 4.5), as plain arithmetic.
//!
//! Units: weights are plain numbers, rates bits per second, rounded down.
//! What leaves a NIC are its own sending flows and the READs the other host directs at it (justitia 4.5). The
//! flows with which it competes elsewhere are those of other senders at the same receiver.

use crate::{Direction, FlowClass, FlowSpec, RemoteState};
use isolane_common_quantities::units::{BitRate, Ratio};

/// Summed weights of this host's flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weights {
    /// Hungry flows that send and are active.
    pub sending_hungry: u64,
    /// Latency flows that send.
    pub sending_latency: u64,
    /// Hungry flows that READ and are active.
    pub reading_hungry: u64,
    /// Latency flows that READ.
    pub reading_latency: u64,
}

impl Weights {
    /// The sum a flow of this kind belongs to.
    pub(crate) fn of(&mut self, spec: &FlowSpec, class: FlowClass) -> &mut u64 {
        match (spec.direction, class == FlowClass::Latency) {
            (Direction::Outgoing, false) => &mut self.sending_hungry,
            (Direction::Outgoing, true) => &mut self.sending_latency,
            (Direction::RemoteRead, false) => &mut self.reading_hungry,
            (Direction::RemoteRead, true) => &mut self.reading_latency,
        }
    }
}

/// Both hosts' weights, seen from one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares<'a> {
    pub(crate) local: &'a Weights,
    pub(crate) remote: &'a RemoteState,
    pub(crate) rate_max: BitRate,
    pub(crate) count_latency_as_one: bool,
}

impl Shares<'_> {
    /// True while any latency flow is known, here or at the other host: reason for reference flows.
    pub(crate) fn has_latency(&self) -> bool {
        let remote = self.remote.sending_latency_weight + self.remote.receiving_latency_weight;
        remote > 0 || self.latency_weight() > 0
    }

    /// Hungry weight whose data leaves this NIC.
    pub(crate) fn leaving(&self) -> u64 {
        self.local.sending_hungry + self.remote.reading_hungry_weight
    }

    /// R_min of what leaves this NIC. Zero when nothing hungry leaves it.
    pub(crate) fn minimum(&self) -> BitRate {
        let leaving = self.leaving();
        let others = self
            .remote
            .receiving_hungry_weight
            .saturating_sub(self.local.sending_hungry);
        let latency = match self.latency_weight() {
            weight if self.count_latency_as_one => weight.min(1),
            weight => weight,
        };
        self.part_of(self.rate_max, leaving, leaving + others + latency)
    }

    /// What this host's own senders get of `rate`; the rest is the remote READs'.
    pub(crate) fn sending_part(&self, rate: BitRate) -> BitRate {
        match self.remote.reading_hungry_weight {
            0 => rate,
            _ => self.part_of(rate, self.local.sending_hungry, self.leaving()),
        }
    }

    /// What this host grants to the other's READs: their part of R_min, which changes only when a flow comes
    /// or goes.
    pub(crate) fn read_grant(&self) -> BitRate {
        let reading = self.remote.reading_hungry_weight;
        self.part_of(self.minimum(), reading, self.leaving())
    }

    /// Weight of latency flows that this NIC itself delays: requests and data of its own, and the answers to
    /// remote READs.
    fn latency_weight(&self) -> u64 {
        self.local.sending_latency + self.local.reading_latency + self.remote.reading_latency_weight
    }

    fn part_of(&self, rate: BitRate, part: u64, whole: u64) -> BitRate {
        match part {
            0 => BitRate::ZERO,
            _ => BitRate::from_bps(Ratio::new(part, whole).of(rate.as_bps())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minimum_gbps(local: Weights, remote: RemoteState, as_one: bool) -> f64 {
        let shares = Shares {
            local: &local,
            remote: &remote,
            rate_max: BitRate::from_gbps(48),
            count_latency_as_one: as_one,
        };
        shares.minimum().as_gbps_f64()
    }

    fn local(hungry: u64, latency: u64) -> Weights {
        Weights {
            sending_hungry: hungry,
            sending_latency: latency,
            ..Weights::default()
        }
    }

    #[test]
    fn without_latency_the_minimum_is_everything() {
        assert_eq!(
            minimum_gbps(local(3, 0), RemoteState::default(), true),
            48.0
        );
    }

    #[test]
    fn eight_against_eight_keep_eight_ninths_when_latency_counts_as_one() {
        let none = RemoteState::default();
        assert_eq!(minimum_gbps(local(8, 8), none, true), 42.666_666_666);
        assert_eq!(minimum_gbps(local(8, 8), none, false), 24.0);
    }

    #[test]
    fn four_flows_of_weight_two_keep_eight_ninths() {
        assert_eq!(
            minimum_gbps(local(8, 1), RemoteState::default(), true),
            42.666_666_666
        );
    }

    #[test]
    fn each_of_32_incast_senders_keeps_a_32nd() {
        let receiver = RemoteState {
            receiving_hungry_weight: 32,
            receiving_latency_weight: 1,
            ..RemoteState::default()
        };
        assert_eq!(minimum_gbps(local(1, 0), receiver, true), 1.5);
    }

    #[test]
    fn remote_reads_share_the_nic_they_read_from() {
        let weights = local(1, 0);
        let remote = RemoteState {
            reading_hungry_weight: 1,
            reading_latency_weight: 1,
            ..RemoteState::default()
        };
        let shares = Shares {
            local: &weights,
            remote: &remote,
            rate_max: BitRate::from_gbps(48),
            count_latency_as_one: true,
        };
        assert_eq!(shares.minimum(), BitRate::from_gbps(32));
        assert_eq!(shares.read_grant(), BitRate::from_gbps(16));
        assert_eq!(
            shares.sending_part(BitRate::from_gbps(40)),
            BitRate::from_gbps(20)
        );
    }
}
