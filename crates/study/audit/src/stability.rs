//! Do verdicts depend on how long a run is, or on its seed? Two audits of the same pairs, compared cell by cell.
//!
//! The second audit has every time doubled and other seeds ([`doubled`]). A verdict has changed when one audit says kept
//! and the other broken. A changed verdict has to carry the mark of disagreement in one of the two. Pairs that did not
//! settle in one of them are counted apart: they have no verdict there.

use crate::cell::{Cell, Verdict};
use crate::matrix::AuditResult;
use crate::plan::Plan;
use isolane_common_quantities::units::Duration;
use std::fmt::Write;

/// Most verdicts that may change, a part of all.
pub const CHANGED_MAX: f64 = 0.01;

/// How two audits of the same pairs differ.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stability {
    /// Pairs with a verdict in both.
    pub judged: usize,
    /// Pairs that did not settle in the first, and in the second.
    pub not_settled: [usize; 2],
    /// Pairs that settled in only one of them.
    pub settled_once: usize,
    /// Pairs kept in one and broken in the other.
    pub changed: Vec<Change>,
}

/// A verdict that changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Policy, victim and attacker.
    pub pair: [String; 3],
    /// Why, in the first and in the second.
    pub why: [String; 2],
    /// Whether one of the two is borderline.
    pub marked: bool,
}

/// `plan` with every time doubled and as many other seeds.
pub fn doubled(plan: &Plan) -> Plan {
    let last = plan.seeds.iter().max().copied().unwrap_or(0);
    let mut plan = plan.clone();
    plan.warmup += plan.warmup;
    plan.duration += plan.duration;
    plan.cap = plan.cap.map(|cap| cap + cap);
    plan.least_times = plan.least_times.max(1) * 2;
    for victim in &mut plan.victims {
        victim.duration = victim
            .duration
            .map(|duration: Duration| duration + duration);
    }
    for seed in &mut plan.seeds {
        *seed += last;
    }
    plan
}

/// Compares the cells that both have.
pub fn compare(first: &AuditResult, second: &AuditResult) -> Stability {
    let mut stability = Stability::default();
    for one in &first.cells {
        let Some(other) = second.cell(&one.policy, &one.victim, &one.attacker) else {
            continue;
        };
        stability.add(one, other);
    }
    stability
}

impl Stability {
    fn add(&mut self, one: &Cell, other: &Cell) {
        let open = [one, other].map(|cell| cell.verdict == Verdict::NotSettled);
        for (count, open) in self.not_settled.iter_mut().zip(open) {
            *count += usize::from(open);
        }
        self.settled_once += usize::from(open[0] != open[1]);
        if !one.verdict.is_judged() || !other.verdict.is_judged() {
            return;
        }
        self.judged += 1;
        if one.verdict != other.verdict {
            self.changed.push(Change {
                pair: [&one.policy, &one.victim, &one.attacker].map(String::clone),
                why: [one.why.clone(), other.why.clone()],
                marked: one.borderline || other.borderline,
            });
        }
    }

    /// Part of the verdicts that changed.
    pub fn part(&self) -> f64 {
        self.changed.len() as f64 / self.judged.max(1) as f64
    }

    /// Changes that neither audit marks.
    pub fn unmarked(&self) -> usize {
        self.changed.iter().filter(|change| !change.marked).count()
    }

    /// Whether verdicts are as stable as they have to be.
    pub fn is_enough(&self) -> bool {
        self.part() <= CHANGED_MAX && self.unmarked() == 0
    }

    /// For people: the changes, then the sums.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for change in &self.changed {
            let [policy, victim, attacker] = &change.pair;
            let mark = if change.marked { "~" } else { "not marked" };
            let _ = writeln!(text, "{policy}: {victim} under {attacker} ({mark})");
            for why in &change.why {
                let _ = writeln!(text, "    {why}");
            }
        }
        let _ = writeln!(
            text,
            "{} of {} verdicts change ({:.2} %) when every time is doubled and the seeds are others; {} of them are not marked",
            self.changed.len(),
            self.judged,
            100.0 * self.part(),
            self.unmarked()
        );
        let [first, second] = self.not_settled;
        let _ = writeln!(
            text,
            "{first} pairs do not settle, {second} with doubled times; {} settle in only one of the two",
            self.settled_once
        );
        text
    }
}
