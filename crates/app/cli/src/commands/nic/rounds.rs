//! Studies in rounds: rounds that have ended are kept when the rest is interrupted or fails.

use crate::output;
use crate::progress::Bar;
use crate::status::Status;
use crate::text::counted;
use anyhow::Result;
use isolane_ethernet_software_card::SoftNicError;
use isolane_study_results::ethernet::NicResult;
use serde::Serialize;

/// Runs of whole rounds, and how many rounds there should have been.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Measured<'a> {
    /// Of all numbers of flows together.
    pub(super) rounds_requested: u64,
    pub(super) rounds_measured: u64,
    pub(super) runs: &'a [NicResult],
}

/// The runs of a study that have ended, in order, and its progress.
pub(super) struct Rounds {
    bar: Bar,
    rounds: u64,
    runs_per_round: usize,
    results: Vec<NicResult>,
}

impl Rounds {
    /// Of a study of `rounds` rounds with `runs_per_round` runs each, at least one.
    pub(super) fn new(rounds: u64, runs_per_round: usize) -> Self {
        assert!(runs_per_round > 0, "a round has runs");
        let bar = Bar::of_rounds(rounds);
        bar.set_length(rounds * runs_per_round as u64);
        Self {
            bar,
            rounds,
            runs_per_round,
            results: Vec::new(),
        }
    }

    /// Adds the next run.
    pub(super) fn ended(&mut self, result: NicResult) {
        self.results.push(result);
        self.bar.inc(1);
    }

    /// Passes the runs of whole rounds to `write`, if there is a whole round, and says how many rounds are missing. Fails as
    /// the study did, or as `write`.
    pub(super) fn finish(
        mut self,
        outcome: Result<()>,
        write: impl FnOnce(Measured<'_>) -> Result<()>,
    ) -> Result<Status> {
        self.bar.finish_and_clear();
        let whole = self.results.len() / self.runs_per_round;
        self.results.truncate(whole * self.runs_per_round);
        if whole > 0 {
            write(Measured {
                rounds_requested: self.rounds,
                rounds_measured: whole as u64,
                runs: &self.results,
            })?;
        }
        let missing = self.rounds - whole as u64;
        if missing > 0 {
            output::note(&missing_of(missing, self.rounds));
        }
        match outcome {
            Ok(()) => Ok(Status::Done),
            Err(error) if is_interruption(&error) => Ok(Status::Interrupted),
            Err(error) => Err(error),
        }
    }
}

fn missing_of(missing: u64, rounds: u64) -> String {
    let kept = match rounds - missing {
        0 => "nothing was written".to_owned(),
        whole => format!("the results are of {}", counted(whole, "round")),
    };
    format!(
        "isolane: {missing} of {} did not end; {kept}",
        counted(rounds, "round")
    )
}

fn is_interruption(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref::<SoftNicError>(),
        Some(SoftNicError::Interrupted)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, bail};

    fn after(runs: u64, outcome: Result<()>) -> (Result<Status>, Vec<u64>) {
        let mut rounds = Rounds::new(3, 2);
        for run in 0..runs {
            rounds.ended(NicResult::simulated("C6", 12, run));
        }
        let mut written = Vec::new();
        let status = rounds.finish(outcome, |measured| {
            assert_eq!(
                (measured.rounds_requested, measured.rounds_measured),
                (3, runs / 2)
            );
            written = measured.runs.iter().map(|run| run.seed).collect();
            Ok(())
        });
        (status, written)
    }

    #[test]
    fn an_interrupted_study_keeps_its_whole_rounds() {
        let interrupted = || Err(SoftNicError::Interrupted).context("of a kernel");
        let (status, written) = after(5, interrupted());
        assert_eq!(
            (status.unwrap(), written),
            (Status::Interrupted, vec![0, 1, 2, 3])
        );
        let (status, written) = after(1, interrupted());
        assert_eq!((status.unwrap(), written), (Status::Interrupted, vec![]));
    }

    #[test]
    fn a_study_that_fails_keeps_its_whole_rounds() {
        let fails = || -> Result<()> { bail!("the machine ended") };
        let (status, written) = after(3, fails());
        assert_eq!(status.unwrap_err().to_string(), "the machine ended");
        assert_eq!(written, [0, 1]);
    }

    #[test]
    fn the_line_says_how_many_rounds_are_missing() {
        assert_eq!(
            missing_of(4, 7),
            "isolane: 4 of 7 rounds did not end; the results are of 3 rounds"
        );
        assert_eq!(
            missing_of(1, 1),
            "isolane: 1 of 1 round did not end; nothing was written"
        );
    }
}
