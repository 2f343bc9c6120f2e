//! Configurations in turns: every round runs each once, so that their ratios within a round can be trusted on a machine
//! that others use too.
//!
//! Method: each round begins one study later than the last one, so that none is always the first after a pause. Plain `mq`
//! runs without the programs, as the device is without us. A run's seed is its round.
//! Units: the types say them. Limits: see [`crate::testbed`].
//! Source: the aims are ours ([`isolane_study_results::ethernet::paired`]).

use crate::error::SoftNicError;
use crate::testbed::{self, TestbedOptions};
use isolane_ethernet_scenario::config::PLAIN;
use isolane_ethernet_scenario::model::NicStudy;
use isolane_study_results::ethernet::NicResult;

/// How many numbers of flows `studies` have; each number has its own rounds.
pub fn loads(studies: &[NicStudy]) -> usize {
    blocks(studies).count()
}

/// Runs `studies` round after round; those of one traffic, which follow each other, are one block. `ended` gets each run.
pub fn run(
    studies: &[NicStudy],
    rounds: u64,
    options: &TestbedOptions<'_>,
    ended: &mut dyn FnMut(NicResult),
) -> Result<(), SoftNicError> {
    for study in &order(studies, rounds) {
        let options = TestbedOptions {
            programs: study.config.name != PLAIN.name,
            ..*options
        };
        ended(testbed::run(study, &options, &mut |_| {})?);
    }
    Ok(())
}

fn blocks(studies: &[NicStudy]) -> impl Iterator<Item = &[NicStudy]> {
    studies.chunk_by(|one, other| one.traffic == other.traffic)
}

/// Every study once a round, whose number is the seed.
fn order(studies: &[NicStudy], rounds: u64) -> Vec<NicStudy> {
    let mut order = Vec::new();
    for block in blocks(studies) {
        for round in 1..=rounds {
            let first = (round - 1) as usize % block.len();
            let turn = block[first..].iter().chain(&block[..first]);
            order.extend(turn.cloned().map(|mut study| {
                study.seed = round;
                study
            }));
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_ethernet_scenario::config::{NicConfig, named};

    #[test]
    fn every_round_runs_each_once_and_begins_one_later() {
        let of = |config: NicConfig, flows| NicStudy::of_paper(config, flows, 1);
        let c6 = *named("C6").expect("known");
        let studies = [of(PLAIN, 3), of(c6, 3), of(PLAIN, 12), of(c6, 12)];
        assert_eq!(loads(&studies), 2);
        let words: Vec<String> = order(&studies, 3)
            .iter()
            .map(|study| format!("{} {}", study.name, study.seed))
            .collect();
        assert_eq!(
            words,
            [
                "mq-3-flows 1",
                "C6-3-flows 1",
                "C6-3-flows 2",
                "mq-3-flows 2",
                "mq-3-flows 3",
                "C6-3-flows 3",
                "mq-12-flows 1",
                "C6-12-flows 1",
                "C6-12-flows 2",
                "mq-12-flows 2",
                "mq-12-flows 3",
                "C6-12-flows 3",
            ]
        );
    }
}
