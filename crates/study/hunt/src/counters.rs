//! Which counters guide a search, in which order, and what a change of one is worth.
//!
//! Performance counters are driven down, diagnostic ones up. From A to B the energy differs by (B - A) / A for the
//! first and by (A - B) / B for the second: less is better, and the unit of a counter does not matter. Ten random
//! points say how much each counter moves; the one whose deviation is largest against its mean comes first. Limits:
//! a counter that is 0 on both sides makes no difference, and one that leaves or reaches 0 makes an infinite one.
//! Source: collie 3.5.1, 3.7.2.

use crate::HuntError;
use crate::experiment::Measured;
use crate::vocabulary::Names;
pub use crate::vocabulary::{DIAGNOSTIC, OCCUPANCY, PERFORMANCE};

/// Random points that order counters.
pub const RANKING_POINTS: usize = 10;

/// A counter that a search follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Its name on the target.
    pub name: String,
    /// True where the search drives it up.
    pub up: bool,
}

/// The words of `--counters` that stand for several counters, and these.
const GROUPS: [(&str, &[Names]); 3] = [
    ("perf", &PERFORMANCE),
    ("diag", &DIAGNOSTIC),
    ("occupancy", &OCCUPANCY),
];

/// The counters that `--counters` asks for: `perf`, `diag`, `occupancy` or names, of which `known` is what `target` has. Of a
/// group those are taken that the target has. Fails for a name or a group of names that the target does not have.
pub fn choose(asked: &[String], target: &str, known: &[String]) -> Result<Vec<Counter>, HuntError> {
    let has = |name: &str| known.iter().any(|other| other == name);
    let mut counters: Vec<Counter> = Vec::new();
    for word in asked {
        let group = GROUPS.iter().find(|(name, _)| name == word);
        let names: Vec<&str> = match group {
            Some((_, group)) => {
                let group = group.iter();
                let first = |names: &Names| names.iter().copied().find(|name| has(name));
                group.filter_map(first).collect()
            }
            None => vec![word.as_str()],
        };
        if names.is_empty() || !names.iter().all(|name| has(name)) {
            let near = match group {
                Some(_) => None,
                None => crate::nearest(word, known.iter().map(String::as_str)),
            };
            return Err(HuntError::NoCounter {
                name: word.clone(),
                target: target.to_owned(),
                nearest: near,
                known: known.to_vec(),
            });
        }
        for name in names {
            if counters.iter().all(|counter| counter.name != name) {
                counters.push(Counter {
                    name: name.to_owned(),
                    up: !PERFORMANCE.iter().any(|names| names.contains(&name)),
                });
            }
        }
    }
    Ok(counters)
}

/// The group that a search follows unless the user names another: `diag`, or `perf` on a target without any of it.
pub fn usual(target: &str, known: &[String]) -> &'static str {
    match choose(&["diag".to_owned()], target, known) {
        Ok(_) => "diag",
        Err(_) => "perf",
    }
}

/// `counters` by how much they moved over `samples`, most first; those that never counted stay at the end, as listed.
pub fn rank(mut counters: Vec<Counter>, samples: &[Measured]) -> Vec<Counter> {
    counters.sort_by(|left, right| {
        let (left, right) = (spread(left, samples), spread(right, samples));
        right.total_cmp(&left)
    });
    counters
}

/// Deviation over mean.
fn spread(counter: &Counter, samples: &[Measured]) -> f64 {
    let values = || samples.iter().map(|sample| sample.counter(&counter.name));
    let count = samples.len().max(1) as f64;
    let mean = values().sum::<f64>() / count;
    if mean == 0.0 {
        return 0.0;
    }
    let variance = values().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    libm::sqrt(variance) / mean
}

impl Counter {
    /// Energy of `new` over that of `old`; negative where `new` is nearer to an extreme.
    pub fn energy(&self, old: &Measured, new: &Measured) -> f64 {
        let (old, new) = (old.counter(&self.name), new.counter(&self.name));
        let (change, base) = match self.up {
            true => (old - new, new),
            false => (new - old, old),
        };
        match (change == 0.0, base == 0.0) {
            (true, _) => 0.0,
            (false, true) => f64::INFINITY,
            (false, false) => change / base,
        }
    }

    /// How far `measured` is in the direction of the search, for searchers that want one number: more is better.
    pub fn score(&self, measured: &Measured) -> f64 {
        let value = libm::log1p(measured.counter(&self.name).max(0.0));
        if self.up { value } else { -value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn measured(value: f64) -> Measured {
        Measured {
            counters: BTreeMap::from([("c".to_owned(), value), ("flat".to_owned(), 5.0)]),
            ..Measured::default()
        }
    }

    fn counter(name: &str, up: bool) -> Counter {
        Counter {
            name: name.to_owned(),
            up,
        }
    }

    #[test]
    fn energies_are_the_papers() {
        let (low, high) = (measured(2.0), measured(8.0));
        assert_eq!(counter("c", false).energy(&high, &low), -0.75);
        assert_eq!(counter("c", false).energy(&low, &high), 3.0);
        assert_eq!(counter("c", true).energy(&low, &high), -0.75);
        assert_eq!(counter("c", true).energy(&high, &low), 3.0);
        let zero = measured(0.0);
        assert_eq!(counter("c", true).energy(&zero, &zero), 0.0);
        assert_eq!(counter("c", true).energy(&low, &zero), f64::INFINITY);
        assert_eq!(counter("c", true).energy(&zero, &low), -1.0);
        assert_eq!(counter("c", false).energy(&zero, &low), f64::INFINITY);
    }

    #[test]
    fn what_moves_most_comes_first() {
        let samples = [measured(1.0), measured(9.0)];
        let counters = vec![
            counter("none", true),
            counter("flat", true),
            counter("c", true),
        ];
        let names: Vec<String> = rank(counters, &samples)
            .into_iter()
            .map(|c| c.name)
            .collect();
        assert_eq!(names, ["c", "none", "flat"]);
    }

    #[test]
    fn groups_are_what_the_target_has_of_them() {
        let known = ["context_misses", "pcie_read_stalls", "rx_packets"].map(str::to_owned);
        let names = |word: &str| -> Vec<String> {
            let chosen = choose(&[word.to_owned()], "verbs:r0,r1", &known).unwrap();
            chosen.into_iter().map(|counter| counter.name).collect()
        };
        assert_eq!(names("diag"), ["context_misses", "pcie_read_stalls"]);
        assert_eq!(names("perf"), ["rx_packets"]);
        assert_eq!(usual("verbs:r0,r1", &known), "diag");
        assert_eq!(usual("verbs:r0,r1", &known[2..]), "perf");
        let simulated = ["icm_cache_miss", "gpu_path_utilisation"].map(str::to_owned);
        let chosen = choose(&["occupancy".to_owned()], "sim:x", &simulated).unwrap();
        assert_eq!(chosen, [counter("gpu_path_utilisation", true)]);
        assert!(choose(&["occupancy".to_owned()], "verbs:r0,r1", &known).is_err());
    }

    #[test]
    fn a_counter_that_the_target_lacks_is_named() {
        let known = ["icm_cache_miss".to_owned()];
        let ask = |word: &str| choose(&[word.to_owned()], "sim:x", &known);
        assert_eq!(
            ask("icm_cache_miss").unwrap(),
            [counter("icm_cache_miss", true)]
        );
        let error = ask("icm_cache_mis").unwrap_err().to_string();
        assert!(error.contains("did you mean icm_cache_miss?"), "{error}");
        let error = ask("perf").unwrap_err().to_string();
        assert!(error.contains("sim:x has no such counter"), "{error}");
    }
}
