//! For callers that divide the rate by themselves: leases ([`crate::leases`]) instead of tokens.

use super::{Justitia, Weights};
use isolane_common_quantities::units::{BitRate, Bytes, Instant, Ratio};

impl Justitia {
    /// For callers that grant leases instead of tokens ([`crate::leases`]): the weights of those that are active now.
    /// Such a caller has no flows join; it keeps time, reference flow and peers as every caller does, performs
    /// [`crate::Action::SendReference`], [`crate::Action::Tell`] and [`crate::Action::ChunkSize`], and divides
    /// [`Self::sending_rate`] and [`Self::reading_rate`] by itself. Panics if a flow has joined: its weight would be
    /// forgotten.
    pub fn set_weights(&mut self, now: Instant, weights: Weights) {
        assert!(self.flows.is_empty(), "either flows or leases");
        if weights != self.local {
            self.local = weights;
            self.refresh(now);
        }
    }

    /// What this host's own hungry senders may use together: their part of SafeUtil.
    pub fn sending_rate(&self) -> BitRate {
        self.sending.rate()
    }

    /// What this host's hungry READs may use together.
    pub fn reading_rate(&self) -> BitRate {
        self.reading.rate()
    }

    /// The rate at which the peers' READs may take data from this NIC; zero while no peer has reported READs.
    pub fn granted_reads(&self) -> BitRate {
        let remote = &self.remote;
        match (
            remote.reading_hungry_weight + remote.reading_latency_weight,
            self.announced.read_rate,
        ) {
            (0, _) => BitRate::ZERO,
            // A peer without a grant may use the whole NIC.
            (_, BitRate::ZERO) => self.options.rate_max,
            (_, granted) => granted,
        }
    }

    /// Messages that go with `rate`, in proportion to the device's two limits.
    pub fn messages_per_s_at(&self, rate: BitRate) -> u64 {
        Ratio::new(rate.as_bps(), self.options.rate_max.as_bps())
            .of(self.options.message_rate_max_per_s)
    }

    /// The present chunk: messages of bandwidth flows are split above it.
    pub fn chunk(&self) -> Bytes {
        self.chunk
    }
}
