//! How long several runs took to settle, in one record and one line.
//!
//! Units: microseconds, of simulated time where the runs are simulated. `docs/internals/settling.md` says when a run has settled.

use crate::rdma::Settling;
use isolane_common_quantities::units::Duration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How long several runs took to settle.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SettlingSummary {
    /// Runs that were measured until they settled.
    pub runs: u64,
    /// Runs that settled; the others ended at their longest time.
    pub settled: u64,
    /// From the start of a run until its measured time, microseconds.
    pub settled_after_us: Extent,
    /// Measured time, microseconds.
    pub measured_us: Extent,
}

/// The least and the greatest value over several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Extent {
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl SettlingSummary {
    /// One run that was measured for `measured_us` after `after_us`.
    pub fn of_run(settled: bool, after_us: f64, measured_us: f64) -> Self {
        let only = |value| Extent {
            min: value,
            max: value,
        };
        Self {
            runs: 1,
            settled: u64::from(settled),
            settled_after_us: only(after_us),
            measured_us: only(measured_us),
        }
    }

    /// All of `runs`; none where no run says how it settled.
    pub fn of<'a>(runs: impl IntoIterator<Item = &'a Settling>) -> Option<Self> {
        let each = runs.into_iter().map(|one| {
            let Settling {
                settled_after_us,
                measured_us,
                ..
            } = *one;
            Self::of_run(one.settled, settled_after_us, measured_us)
        });
        each.reduce(Self::and)
    }

    /// The runs of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let both = |one: Extent, other: Extent| Extent {
            min: one.min.min(other.min),
            max: one.max.max(other.max),
        };
        Self {
            runs: self.runs + other.runs,
            settled: self.settled + other.settled,
            settled_after_us: both(self.settled_after_us, other.settled_after_us),
            measured_us: both(self.measured_us, other.measured_us),
        }
    }

    /// One line for people: how many of what is called `run` settled, and the times.
    pub fn words(&self, run: &str) -> String {
        let plural = if self.runs == 1 { "" } else { "s" };
        format!(
            "{} of {} {run}{plural} settled; measured for {}, from {} after the start",
            self.settled,
            self.runs,
            self.measured_us.words(),
            self.settled_after_us.words()
        )
    }
}

impl Extent {
    fn words(&self) -> String {
        let [min, max] = [self.min, self.max].map(|us| Duration::from_us(us.round() as u64));
        match min == max {
            true => min.to_string(),
            false => format!("{min} to {max}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_add_up_to_counts_and_extents() {
        let one = SettlingSummary::of_run(true, 150.0, 400.0);
        assert_eq!(
            one.words("run"),
            "1 of 1 run settled; measured for 400us, from 150us after the start"
        );
        let both = one.and(SettlingSummary::of_run(false, 1_350.4, 6_400.0));
        assert_eq!(
            both.words("experiment"),
            "1 of 2 experiments settled; measured for 400us to 6.4ms, from 150us to 1.35ms after the start"
        );
        assert_eq!(SettlingSummary::of([]), None);
    }
}
