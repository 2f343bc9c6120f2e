//! The result as text for a terminal: one row per anomaly, in the columns of the paper's table 3.2.
//!
//! A dash marks a feature that does not matter. Conditions without a column in the paper's table (memory, regions,
//! receive queues) are in the last but one. Below each row's number: how it was found, what the experiment showed, and
//! what the verification said.

use crate::hunt::{Anomaly, Ended, HuntResult};
use crate::mfs::FeatureSet;
use crate::monitor::Symptom;
use crate::region::{Region, condition};
use crate::space::{Feature, Space};
use isolane_common_text_output::{Table, counted};
use isolane_rdma_scenario::stack::{NOT_ON_SALE, marked};
use std::fmt::Write;

/// Columns and the features that they show.
const COLUMNS: [(&str, &[Feature]); 9] = [
    ("direction", &[Feature::Direction]),
    ("transport", &[Feature::Service]),
    ("MTU", &[Feature::Mtu]),
    ("WQE batch", &[Feature::PostList]),
    ("SGE", &[Feature::Elements]),
    ("WQ depth", &[Feature::Depth]),
    (
        "message pattern",
        &[Feature::Requests, Feature::Smallest, Feature::Largest],
    ),
    ("queue pairs", &[Feature::QueuePairs]),
    (
        "others",
        &[
            Feature::MemoryA,
            Feature::MemoryB,
            Feature::Regions,
            Feature::RegionBytes,
            Feature::ReceiveDepth,
            Feature::ReceiveBatch,
            Feature::Control,
            Feature::Receives,
            Feature::Second,
            Feature::SecondQueuePairs,
            Feature::SecondMtu,
            Feature::SecondPostList,
            Feature::SecondDepth,
            Feature::SecondReceiveDepth,
            Feature::SecondReceiveBatch,
            Feature::SecondRequests,
            Feature::SecondElements,
            Feature::SecondSmallest,
            Feature::SecondLargest,
        ],
    ),
];

/// The table, a summary and the details, ending in a newline; the table folds where it is wider than `width`.
pub fn render(result: &HuntResult, space: &Space, width: Option<usize>) -> String {
    let mut text = String::new();
    if result.anomalies.iter().any(|one| one.set.is_some()) {
        rows(&mut text, result, space, width);
        text.push('\n');
    }
    for anomaly in result.ranked() {
        details(&mut text, anomaly, space);
    }
    if let Some(victim) = &result.victim {
        let _ = writeln!(
            text,
            "victim {} under {}: {}; an attacker may take {:.0} % of a link",
            victim.victim,
            marked(&victim.policy),
            victim.rule,
            victim.attacker_part * 100.0
        );
        if !victim.on_sale {
            let _ = writeln!(text, "{NOT_ON_SALE}");
        }
    }
    let unreduced = result.anomalies.iter().filter(|one| one.set.is_none());
    if unreduced.count() > 1 {
        text.push_str("those that were not reduced may be one anomaly\n");
    }
    let ended = match result.ended {
        Ended::Budget => "the budget is used",
        Ended::Interrupted => "interrupted",
        Ended::Unfinished => "not finished",
        Ended::Exhausted => "no new workload outside the known anomalies is left",
    };
    let _ = writeln!(
        text,
        "{} on {} after {} ({:.1} h on real hardware, modelled): {ended}",
        counted(
            result.anomalies.len() as u64,
            match &result.victim {
                None => "anomaly",
                Some(_) => "attack",
            }
        ),
        result.target,
        counted(result.spent.experiments, "experiment"),
        result.spent.modelled_s / 3600.0,
    );
    if let Some(settling) = &result.settling {
        let _ = writeln!(text, "{}", settling.words("experiment"));
    }
    if result.not_repeated > 0 {
        let _ = writeln!(
            text,
            "{} showed nothing when repeated",
            counted(u64::from(result.not_repeated), "anomalous experiment")
        );
    }
    if result.unsettled > 0 {
        let _ = writeln!(
            text,
            "{} of the search not settled, so not judged: give a longer --measure",
            counted(u64::from(result.unsettled), "experiment")
        );
    }
    text
}

/// A row for each anomaly. One that was not reduced has no conditions in its row; the details show its workload.
fn rows(text: &mut String, result: &HuntResult, space: &Space, width: Option<usize>) {
    let mut headings = vec!["#"];
    headings.extend(COLUMNS.map(|(name, _)| name));
    headings.push(match &result.victim {
        Some(_) => "victim",
        None => "symptom",
    });
    let mut table = Table::new("l".repeat(headings.len()), &headings);
    for anomaly in result.ranked() {
        let mut row = vec![anomaly.number.to_string()];
        match &anomaly.set {
            Some(set) => {
                let region = set.region.clone().bare(space);
                row.extend(COLUMNS.map(|(_, features)| cell(&region, features, space)));
            }
            None => {
                row.push("not reduced".to_owned());
                row.resize(COLUMNS.len() + 1, String::new());
            }
        }
        row.push(match &anomaly.harm {
            Some(harm) => format!("{:.0} % kept", harm.retained * 100.0),
            None => anomaly.symptom.name().to_owned(),
        });
        table.row(row);
    }
    text.push_str(&table.render_within(width, false));
}

fn cell(region: &Region, features: &[Feature], space: &Space) -> String {
    let conditions: Vec<String> = features
        .iter()
        .filter_map(|&feature| {
            let text = condition(feature, region.features.get(&feature)?, space);
            // The column says which feature it is, where it has one.
            let bare = text
                .strip_prefix(feature.name())
                .map(|rest| rest.trim_start().to_owned());
            let bare = bare.map(|rest| rest.strip_prefix("= ").map(str::to_owned).unwrap_or(rest));
            Some(if features.len() == 1 {
                bare.unwrap_or(text)
            } else {
                text
            })
        })
        .collect();
    match conditions.is_empty() {
        true => "-".to_owned(),
        false => conditions.join(", "),
    }
}

fn details(text: &mut String, anomaly: &Anomaly, space: &Space) {
    let judgement = &anomaly.judgement;
    let percent = |part: f64| format!("{:.1} %", part * 100.0);
    let figures = match (&anomaly.harm, judgement.of_latency) {
        (Some(harm), _) => format!(
            "the victim kept {} while the attacker took {} of a link{}",
            percent(harm.retained),
            percent(harm.link_share),
            harm.exhausted
                .as_ref()
                .map_or(String::new(), |out| format!("; {out}")),
        ),
        (None, Some(over)) if anomaly.symptom == Symptom::HighLatency => {
            format!("p99 {over:.1} times what its queues and the baseline explain")
        }
        _ => format!(
            "the workload that showed it first paused the link for {} of the time, and reached {} of the highest bit rate and {} of the highest packet rate",
            percent(judgement.pause_ratio),
            percent(judgement.of_bits),
            percent(judgement.of_packets)
        ),
    };
    let _ = writeln!(
        text,
        "#{} {}: found after {} ({:.1} h), met {}; {figures}",
        anomaly.number,
        anomaly.symptom.name(),
        counted(anomaly.found_at.experiments, "experiment"),
        anomaly.found_at.modelled_s / 3600.0,
        counted(u64::from(anomaly.times), "time"),
    );
    let Some(set) = &anomaly.set else {
        let _ = writeln!(
            text,
            "   not reduced: the hunt ended before; workload: {}",
            anomaly.point.text()
        );
        return;
    };
    let _ = writeln!(text, "   when {}", set.region.text(space));
    let _ = writeln!(
        text,
        "   the simplest workload that shows it: {}",
        set.witness.text()
    );
    let _ = writeln!(text, "   {}", checked(set));
}

/// What the checks of a reduced anomaly showed.
fn checked(set: &FeatureSet) -> String {
    let Some(checks) = &set.checks else {
        return "not verified: the budget ended before the test".to_owned();
    };
    let names = |features: &[Feature]| {
        let names: Vec<&str> = features.iter().map(|feature| feature.name()).collect();
        names.join(", ")
    };
    let mut words = match (checks.reproduces, checks.broken_without_effect.is_empty()) {
        (true, true) => "verified: it reproduces, and not where one condition is broken".to_owned(),
        (true, false) => format!(
            "it reproduces, and also where a condition is broken: {}",
            names(&checks.broken_without_effect)
        ),
        (false, _) => "it did not reproduce with fresh random numbers".to_owned(),
    };
    let _ = write!(
        words,
        "; {} of {} random workloads inside show it",
        checks.shown, checks.tried
    );
    if !set.unsure.is_empty() {
        let _ = write!(words, "; comes and goes with {}", names(&set.unsure));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hunt::{Settings, hunt};
    use crate::search::Stages;
    use crate::synthetic::{Synthetic, bench, counters, five_faults, space};
    use expect_test::expect;

    fn rendered(experiments: u64) -> String {
        render(&found(experiments), &space(), None)
    }

    fn found(experiments: u64) -> HuntResult {
        let mut faults = five_faults();
        faults.truncate(3);
        let target = Synthetic {
            faults,
            ..Synthetic::default()
        };
        let settings = Settings {
            seed: 1,
            searcher: "random".to_owned(),
            counters: counters(&target),
            reduces: true,
            stages: Stages::default(),
            tests: true,
        };
        let mut bench = bench(&target, experiments, 1);
        hunt(&mut bench, &space(), &settings).unwrap()
    }

    /// An anomaly that was not reduced has a row too.
    #[test]
    fn every_anomaly_has_a_row() {
        let mut result = found(600);
        let ranked: Vec<u32> = result.ranked().iter().map(|one| one.number).collect();
        let last = ranked.last().copied();
        let one = result.anomalies.iter_mut();
        let one = one.filter(|one| Some(one.number) == last);
        one.for_each(|one| one.set = None);
        let text = render(&result, &space(), None);
        let table = text.split("\n\n").next().unwrap();
        assert_eq!(table.lines().count(), 1 + ranked.len(), "{table}");
        assert_eq!(table.matches("not reduced").count(), 1, "{table}");
    }

    #[test]
    fn a_table_reads_like_the_papers() {
        let text = rendered(600);
        let table = text.split("\n\n").next().unwrap_or("");
        // Expected texts lose the margin that all their lines have.
        let table: Vec<&str> = table.lines().map(str::trim_start).collect();
        expect![[r#"
              #  direction                 transport  MTU  WQE batch  SGE  WQ depth  message pattern  queue pairs  others  symptom
              1  loopback                  -          -    -          -    -         -                -            -       pause frames
              2  one-way or bidirectional  rc-write   -    -          -    <= 16     -                >= 512       -       low throughput
              3  -                         ud-send    -    >= 64      -    >= 256    -                -            -       pause frames"#]]
        .assert_eq(&table.join("\n"));
    }

    #[test]
    fn a_budget_that_ended_too_early_is_reported() {
        let text = rendered(15);
        assert!(
            text.contains("not reduced: the hunt ended before"),
            "{text}"
        );
        assert!(text.contains("3 anomalies on synthetic after"), "{text}");
        assert!(!text.contains('?') && text.starts_with('#'), "{text}");
    }
}
