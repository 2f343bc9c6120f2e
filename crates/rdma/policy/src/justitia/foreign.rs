//! Traffic on the NIC that no tenant of the caller sends: it delays the reference flow, and pacing tenants does not help.
//!
//! Problem: pseudocode 1 takes every late reference message as the work of the paced tenants, so a process that is not
//! paced makes the policy halve those that cooperate. Method: the caller measures whether such traffic is there
//! ([`Justitia::set_foreign`]). While it is there, SafeUtil is not halved. Halvings since the last measurement but one
//! without such traffic are taken back, because the traffic may have begun after that measurement. When it ends, the
//! window of latencies starts again. Limits: while it is there, a late message that the paced tenants cause halves
//! nothing either; chunks and the rate of the idle device still bound their part. Source: ours.

use super::Justitia;
use isolane_common_quantities::units::{BitRate, Instant};

/// What is known of such traffic.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Foreign {
    is_there: bool,
    /// SafeUtil before the first halving since the last measurement, and since the one before.
    before: [Option<BitRate>; 2],
}

impl Foreign {
    /// Whether a late message may halve `safe_util`; if so, notes the rate for [`Justitia::set_foreign`].
    pub(super) fn permits_halving(&mut self, safe_util: BitRate) -> bool {
        if !self.is_there {
            self.before[0].get_or_insert(safe_util);
        }
        !self.is_there
    }
}

impl Justitia {
    /// Reports a measurement: whether traffic that the caller does not pace is on the NIC.
    pub fn set_foreign(&mut self, now: Instant, is_there: bool) {
        let [newer, older] = self.foreign.before;
        let had = std::mem::replace(&mut self.foreign.is_there, is_there);
        self.foreign.before = [None, newer.filter(|_| !is_there)];
        match (had, is_there) {
            (_, true) => {
                let rates = [newer, older].into_iter().flatten();
                if let Some(before) = rates.max().filter(|before| *before > self.safe_util) {
                    self.safe_util = before;
                    self.apply(now);
                }
            }
            (true, false) => {
                self.window.clear();
                self.has_new_sample = false;
            }
            (false, false) => {}
        }
    }

    /// Whether the last measurement found traffic that the caller does not pace.
    pub fn has_foreign(&self) -> bool {
        self.foreign.is_there
    }
}
