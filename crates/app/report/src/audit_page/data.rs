//! The audit as compact JSON for the page's script: positions in place of names, equal texts and equal series once,
//! numbers with four significant digits.
//!
//! The layout, which `assets/audit.js` and `assets/drill.js` read (`t` is an index into `texts`, `n` into `numbers`):
//!
//! ```text
//! metrics  [goodput Gb/s, messages/s, control verbs/s, p50 us or null, p99 us or null], and of applications
//!          operations/s, p50 us or null, p99 us or null of an operation
//! solo     [metrics or null, t of the reason or -1] per policy and victim
//! cell     [policy, victim, attacker, verdict 0 pass 1 violation 2 not applicable, achieved/owed or null, t why,
//!           expected or 0, measured or null, retained or null, [min, max] or 0, victim metrics or 0,
//!           attacker metrics or 0, [[seed, victim metrics, attacker metrics], ...], exhausted or 0, series or 0]
//! expected [metric 0 Gb/s 1 messages/s 2 p99 us 3 operations/s, bound, solo, guarantee or null, t rule]
//! exhausted [t resource, host A 0 B 1, t counter, solo, contended, t evidence]
//! series   [seed, sample us, n solo goodput, n victim goodput, n attacker goodput, n solo p99, n victim p99]; a percentile
//!          is null where nothing completed
//! ```

use super::{View, achieved, group};
use crate::number::rounded;
use isolane_study_audit::cell::{
    Cell, Exhausted, Expected, JudgedMetric, Metrics, Series, Verdict, VictimKind,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Significant digits of embedded numbers.
const DIGITS: u32 = 4;

pub(super) fn compact(view: &View<'_>) -> Value {
    let result = view.result;
    let mut pool = Pool::default();
    let victims: Vec<Value> = result
        .victims
        .iter()
        .map(|victim| {
            let latency = victim.kind == VictimKind::Latency;
            json!([victim.name, u8::from(latency), victim.category])
        })
        .collect();
    let attackers: Vec<Value> = result
        .attackers
        .iter()
        .map(|attacker| {
            json!([
                attacker.name,
                attacker.category,
                attacker.resource,
                group(attacker)
            ])
        })
        .collect();
    let solo: Vec<Value> = result
        .policies
        .iter()
        .flat_map(|policy| {
            result
                .victims
                .iter()
                .map(move |victim| (policy, &victim.name))
        })
        .map(|(policy, victim)| {
            let solo = result
                .solo
                .iter()
                .find(|solo| solo.policy == *policy && solo.victim == *victim);
            let median = solo.and_then(|solo| solo.median.as_ref());
            let reason = solo.and_then(|solo| solo.not_applicable.as_deref());
            json!([
                median.map_or(Value::Null, metrics),
                reason.map_or(json!(-1), |reason| json!(pool.text(reason)))
            ])
        })
        .collect();
    let mut cells = Vec::new();
    for policy in 0..result.policies.len() {
        for (victim, attacker) in view.positions() {
            if let Some(cell) = view.cell(policy, victim, attacker) {
                cells.push(pool.cell([policy, victim, attacker], cell));
            }
        }
    }
    json!({
        "profile": result.profile,
        "policies": result.policies,
        "victims": victims,
        "attackers": attackers,
        "rerun": rerun_of_a_pair(&result.rerun),
        "explain": explain_of_a_pair(&result.rerun),
        "solo": solo,
        "cells": cells,
        "texts": pool.texts,
        "numbers": pool.numbers,
    })
}

/// Texts and series that occur more than once, each kept once.
#[derive(Default)]
struct Pool {
    texts: Vec<String>,
    text_index: BTreeMap<String, usize>,
    numbers: Vec<Value>,
    number_index: BTreeMap<String, usize>,
}

impl Pool {
    fn text(&mut self, text: &str) -> usize {
        if let Some(&index) = self.text_index.get(text) {
            return index;
        }
        let index = self.texts.len();
        self.texts.push(text.to_owned());
        self.text_index.insert(text.to_owned(), index);
        index
    }

    fn numbers(&mut self, values: impl IntoIterator<Item = Option<f64>>) -> usize {
        let value: Value = values.into_iter().map(optional).collect();
        let key = value.to_string();
        if let Some(&index) = self.number_index.get(&key) {
            return index;
        }
        let index = self.numbers.len();
        self.numbers.push(value);
        self.number_index.insert(key, index);
        index
    }

    fn cell(&mut self, [policy, victim, attacker]: [usize; 3], cell: &Cell) -> Value {
        let verdict = match cell.verdict {
            Verdict::Pass => 0,
            Verdict::Violation => 1,
            Verdict::NotApplicable => 2,
            Verdict::NotSettled => 3,
        };
        let runs: Vec<Value> = cell
            .runs
            .iter()
            .map(|run| json!([run.seed, metrics(&run.victim), metrics(&run.attacker)]))
            .collect();
        let spread = cell.spread.as_ref();
        json!([
            policy,
            victim,
            attacker,
            verdict,
            optional(achieved(cell)),
            self.text(&cell.why),
            cell.expected
                .as_ref()
                .map_or(json!(0), |expected| self.expected(expected)),
            optional(cell.measured),
            optional(cell.retained),
            spread.map_or(json!(0), |spread| json!([
                number(spread.min),
                number(spread.max)
            ])),
            cell.victim_median.as_ref().map_or(json!(0), metrics),
            cell.attacker_median.as_ref().map_or(json!(0), metrics),
            runs,
            cell.exhausted
                .as_ref()
                .map_or(json!(0), |exhausted| self.exhausted(exhausted)),
            cell.series
                .as_ref()
                .map_or(json!(0), |series| self.series(series)),
        ])
    }

    fn expected(&mut self, expected: &Expected) -> Value {
        let metric = match expected.metric {
            JudgedMetric::GoodputGbps => 0,
            JudgedMetric::MessageRatePerS => 1,
            JudgedMetric::P99Us => 2,
            JudgedMetric::OperationsPerS => 3,
        };
        json!([
            metric,
            number(expected.bound),
            number(expected.solo),
            optional(expected.guarantee),
            self.text(&expected.rule)
        ])
    }

    fn exhausted(&mut self, exhausted: &Exhausted) -> Value {
        json!([
            self.text(&exhausted.resource),
            exhausted.host.index(),
            self.text(&exhausted.counter),
            number(exhausted.solo),
            number(exhausted.contended),
            self.text(&exhausted.evidence)
        ])
    }

    fn series(&mut self, series: &Series) -> Value {
        json!([
            series.seed,
            number(series.sample_us),
            self.numbers(every(&series.solo_goodput_gbps)),
            self.numbers(every(&series.victim_goodput_gbps)),
            self.numbers(every(&series.attacker_goodput_gbps)),
            self.numbers(series.solo_p99_us.iter().copied()),
            self.numbers(series.victim_p99_us.iter().copied())
        ])
    }
}

fn metrics(metrics: &Metrics) -> Value {
    let mut list = vec![
        number(metrics.goodput_gbps),
        number(metrics.message_rate_per_s),
        number(metrics.control_rate_per_s),
        optional(metrics.p50_us),
        optional(metrics.p99_us),
    ];
    if let Some(operations) = metrics.operations_per_s {
        list.push(number(operations));
        list.push(optional(metrics.operation_p50_us));
        list.push(optional(metrics.operation_p99_us));
    }
    Value::Array(list)
}

/// A series without gaps.
fn every(values: &[f64]) -> impl Iterator<Item = Option<f64>> {
    values.iter().copied().map(Some)
}

fn optional(value: Option<f64>) -> Value {
    value.map_or(Value::Null, number)
}

/// Four significant digits; whole numbers without a point; what is not finite becomes null.
fn number(value: f64) -> Value {
    if !value.is_finite() {
        return Value::Null;
    }
    let value = rounded(value, DIGITS);
    if value.fract() == 0.0 && value.abs() < 1e15 {
        json!(value as i64)
    } else {
        json!(value)
    }
}

/// The audit's command line without its choice of policies, victims and attackers, and without its directory, which a
/// second audit would overwrite; the script appends a pair's choice.
fn rerun_of_a_pair(rerun: &str) -> String {
    let mut kept = Vec::new();
    let mut words = shell_words(rerun).into_iter();
    while let Some(word) = words.next() {
        let option = word.split('=').next().unwrap_or(word);
        if word == "--quick" || word == "--resume" {
            continue;
        }
        if matches!(
            option,
            "--policies" | "--victims" | "--attackers" | "--report"
        ) {
            if !word.contains('=') {
                words.next();
            }
            continue;
        }
        kept.push(word);
    }
    kept.join(" ")
}

/// The options that `isolane explain` takes over from the audit's command line, and whether its names are tenants of
/// a scenario: then they are options too.
fn explain_of_a_pair(rerun: &str) -> Value {
    let mut kept = Vec::new();
    let words = shell_words(rerun);
    for (index, word) in words.iter().enumerate() {
        match *word {
            "--scenario" | "--profile" => kept.extend(words.get(index..index + 2).unwrap_or(&[])),
            joined if joined.starts_with("--scenario=") || joined.starts_with("--profile=") => {
                kept.push(joined);
            }
            _ => {}
        }
    }
    let own = kept.iter().any(|word| word.starts_with("--scenario"));
    json!([own, kept.join(" ")])
}

/// The words of a command line as a POSIX shell separates them, each as it is written, quotes included.
fn shell_words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let (mut start, mut quote, mut escaped) = (None, None, false);
    for (at, character) in line.char_indices() {
        if character.is_whitespace() && quote.is_none() && !escaped {
            if let Some(from) = start.take() {
                words.push(&line[from..at]);
            }
            continue;
        }
        start.get_or_insert(at);
        match (character, quote) {
            _ if escaped => escaped = false,
            ('\\', None | Some('"')) => escaped = true,
            ('\'' | '"', None) => quote = Some(character),
            (end, Some(open)) if end == open => quote = None,
            _ => {}
        }
    }
    words.extend(start.map(|from| &line[from..]));
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_pair_reruns_with_the_audit_s_other_options() {
        let rerun = "isolane audit --quick --profile cx5-100g-roce --policies none,justitia --victims='lat_*' \
                     --attackers * --report out/audit --alpha 0.25 --seeds 1,2,3";
        expect!["isolane audit --profile cx5-100g-roce --alpha 0.25 --seeds 1,2,3"]
            .assert_eq(&rerun_of_a_pair(rerun));
    }

    #[test]
    fn a_quoted_path_stays_one_word() {
        let rerun = r"isolane audit --scenario 'my tenants/it'\''s.toml' --policies none --report 'a b' --seeds 2";
        expect![[r"isolane audit --scenario 'my tenants/it'\''s.toml' --seeds 2"]]
            .assert_eq(&rerun_of_a_pair(rerun));
        expect![[r#"[true,"--scenario 'my tenants/it'\\''s.toml'"]"#]]
            .assert_eq(&explain_of_a_pair(rerun).to_string());
    }

    #[test]
    fn numbers_are_short() {
        let values = [0.0, 97.123_456, 12_345_678.9, 1e-7, f64::NAN, 5.0, -0.0].map(number);
        expect!["[0,97.12,12350000,1e-7,null,5,0]"].assert_eq(&json!(values).to_string());
    }
}
