//! Recall and precision of searchers where it is known which mechanisms there are.
//!
//! Recall after n experiments is the part of all mechanisms of all hunts that a finding of the first n experiments belongs
//! to. Precision is the part of all findings that belong to some mechanism. Hunts may be on devices with different numbers of
//! mechanisms.

use super::Race;

/// Parts of the largest budget after which recall is given.
const STEPS: [f64; 5] = [0.125, 0.25, 0.5, 0.75, 1.0];
/// Recall for which the experiments are given.
const LEVELS: [f64; 3] = [0.5, 0.75, 0.85];

/// Recall and precision of the races of one contestant.
#[derive(Clone, Debug, PartialEq)]
pub struct Recall {
    /// Experiments and the recall after them.
    pub after: Vec<(u64, f64)>,
    /// Recall, and after how many experiments it is reached; none where it is not.
    pub levels: Vec<(f64, Option<u64>)>,
    /// Part of the findings that belong to a mechanism.
    pub precision: f64,
}

impl Recall {
    /// Of `races`; each has its number of mechanisms.
    pub fn of(races: &[&Race]) -> Self {
        let all: u32 = races.iter().map(|race| race.mechanisms).sum();
        let mut times: Vec<u64> = races
            .iter()
            .flat_map(|race| race.found.values().map(|spent| spent.experiments))
            .collect();
        times.sort_unstable();
        let all = f64::from(all.max(1));
        let longest = races.iter().map(|race| race.spent.experiments).max();
        let longest = longest.unwrap_or(0);
        let after = STEPS.map(|part| {
            let experiments = (longest as f64 * part).round() as u64;
            let found = times.partition_point(|&time| time <= experiments);
            (experiments, found as f64 / all)
        });
        let levels = LEVELS.map(|level| {
            let needed = (level * all).ceil() as usize;
            let at = needed.checked_sub(1).and_then(|place| times.get(place));
            (level, at.copied())
        });
        let findings: u32 = races.iter().map(|race| race.findings).sum();
        let false_ones: u32 = races.iter().map(|race| race.others).sum();
        Self {
            after: after.to_vec(),
            levels: levels.to_vec(),
            precision: 1.0 - f64::from(false_ones) / f64::from(findings.max(1)),
        }
    }

    /// Two lines for people.
    pub fn text(&self) -> String {
        let after: Vec<String> = self
            .after
            .iter()
            .map(|(experiments, recall)| format!("{:.0} % after {experiments}", recall * 100.0))
            .collect();
        let levels: Vec<String> = self
            .levels
            .iter()
            .map(|(level, at)| match at {
                Some(at) => format!("{:.0} % takes {at}", level * 100.0),
                None => format!("{:.0} % is not reached", level * 100.0),
            })
            .collect();
        format!(
            "  recall {}; precision {:.0} %\n  experiments: {}\n",
            after.join(", "),
            self.precision * 100.0,
            levels.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Spent;
    use crate::compare::Contestant;

    fn race(mechanisms: u32, findings: u32, others: u32, times: &[u64]) -> Race {
        let spent = |experiments: u64| Spent {
            experiments,
            modelled_s: 0.0,
        };
        Race {
            contestant: Contestant::parse("random").unwrap(),
            seed: 1,
            spent: spent(800),
            found: (1..)
                .zip(times)
                .map(|(n, &t): (i32, _)| (n.to_string(), spent(t)))
                .collect(),
            others,
            findings,
            mechanisms,
            conditions: Default::default(),
            compared: Vec::new(),
            other_causes: Default::default(),
            search_experiments: 100,
            counter_max: 0.0,
        }
    }

    #[test]
    fn recall_is_over_all_mechanisms_of_all_hunts() {
        let races = [race(4, 5, 1, &[50, 300, 700]), race(6, 5, 0, &[90, 100])];
        let races: Vec<&Race> = races.iter().collect();
        let recall = Recall::of(&races);
        assert_eq!(
            recall.text(),
            "  recall 30 % after 100, 30 % after 200, 40 % after 400, 40 % after 600, 50 % after 800; precision 90 %\n  \
             experiments: 50 % takes 700, 75 % is not reached, 85 % is not reached\n"
        );
    }
}
