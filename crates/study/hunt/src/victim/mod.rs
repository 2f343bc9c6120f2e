//! A victim beside an attacker: what it is owed, what it got, and what the attacker took.
//!
//! Problem: the catalogue's attackers hurt the victims that their authors had in mind; an operator of another victim or
//! another policy needs to know which attackers could hurt it. Method: the victim runs alone under the policy, which
//! says by the audit's predicate what it is owed ([`isolane_study_audit::predicate`]); then every experiment is the
//! victim with one workload of the space of attackers ([`crate::space::Space::attackers`]) beside it. An attack counts
//! where the victim gets less than it is owed though the attacker stays within its own guarantee: its part of the link.
//! Taking more than that is no attack on anything hidden but the absence of a limit, so it counts only where that was
//! asked for.
//!
//! Units: gigabits per second, messages per second, microseconds; shares are fractions. Limits: one attacker; the
//! victim is no distributed application; traffic that stays inside a host takes nothing of a link. Source: husky 4.4
//! (the predicate and the resources), collie 3.5 (the search).

mod siege;
#[cfg(test)]
mod tests;

use crate::experiment::Measured;
use crate::monitor::{Judgement, Symptom};
use crate::space::Point;
use crate::space::point;
use isolane_rdma_scenario::catalogue::Column;
use isolane_rdma_scenario::model::Host;
use isolane_rdma_scenario::stack::is_on_sale;
use isolane_study_audit::cell::{JudgedMetric, Metrics};
use isolane_study_audit::exhaustion::Ratios;
use isolane_study_audit::predicate::{Judged, Predicate, judge};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use siege::{Siege, SiegeOptions};

/// The counter that says what part of its solo performance the victim kept; a search drives it down.
pub const RETAINED: &str = "victim_retained";
/// What an attacker may take over its part of a link before it counts as beyond: headers and the swings of a policy.
pub const LINK_SLACK: f64 = 0.05;

/// What the victim does alone: medians over the seeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Alone {
    /// Rates and latency.
    pub metrics: Metrics,
    /// Counter ratios of each host.
    pub ratios: BTreeMap<Host, Ratios>,
}

/// What the victim is owed.
#[derive(Clone, Debug, PartialEq)]
pub struct Owed {
    /// The victim.
    pub victim: String,
    /// The policy.
    pub policy: String,
    /// What of it counts.
    pub judged: Judged,
    /// The rule, with the victim's part of the NIC.
    pub predicate: Predicate,
    /// What it does alone.
    pub alone: Metrics,
    /// The attacker's part of the link.
    pub attacker_part: f64,
    /// Whether attackers beyond their guarantee count too.
    pub beyond: bool,
    /// The rule in words.
    pub rule: String,
}

/// The victim of a hunt, in its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VictimSummary {
    /// Its name.
    pub victim: String,
    /// The policy that was to protect it.
    pub policy: String,
    /// False where the policy needs hardware that is not on sale.
    #[serde(default = "on_sale")]
    pub on_sale: bool,
    /// What it does alone.
    pub alone: Metrics,
    /// What it is owed, in words.
    pub rule: String,
    /// The attacker's guarantee: part of the link.
    pub attacker_part: f64,
}

/// Of results that do not say it.
fn on_sale() -> bool {
    true
}

/// What an attack does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Harm {
    /// Part of its solo performance that the victim kept.
    pub retained: f64,
    /// Part of a link that the attacker took.
    pub link_share: f64,
    /// What the victim got.
    pub victim: Metrics,
    /// The column of husky's table 4.3 that the attack belongs to, by what it does and what ran out; none where it
    /// belongs to no column.
    pub column: Option<Column>,
    /// The resource that ran out, in words.
    pub exhausted: Option<String>,
}

impl Owed {
    /// Judges what the victim got. On a real device, a rate of a run that did not settle is too low only if that of its best quarter is
    /// too; a latency decides nothing then.
    pub fn judge(&self, measured: &Measured) -> Judgement {
        let Some(beside) = &measured.beside else {
            return Judgement::default();
        };
        let expected = self
            .predicate
            .expected(self.judged, &self.alone, &beside.victim);
        let Ok(expected) = expected else {
            return Judgement::default();
        };
        let verdict = judge(&expected, &beside.victim);
        let within = beside.link_share <= self.attacker_part * (1.0 + LINK_SLACK);
        let counts = !verdict.kept && (within || self.beyond);
        let decides = measured.best_quarter.is_none_or(|best| {
            let rate = verdict.measured.unwrap_or(0.0);
            expected.metric != JudgedMetric::P99Us && rate * best < expected.bound
        });
        Judgement {
            pause_ratio: measured.pause_ratio,
            retained: Some(verdict.retained),
            link_share: Some(beside.link_share),
            symptom: (counts && decides).then_some(Symptom::Interference),
            unsettled: counts && !decides,
            ..Judgement::default()
        }
    }

    /// For the result.
    pub fn summary(&self) -> VictimSummary {
        VictimSummary {
            victim: self.victim.clone(),
            policy: self.policy.clone(),
            on_sale: is_on_sale(&self.policy),
            alone: self.alone,
            rule: self.rule.clone(),
            attacker_part: self.attacker_part,
        }
    }
}

impl Harm {
    /// By the attack `point`, which gave `measured`; none where no victim was there.
    pub fn of(owed: &Owed, point: &Point, measured: &Measured) -> Option<Self> {
        let beside = measured.beside.as_ref()?;
        let judgement = owed.judge(measured);
        Some(Self {
            retained: judgement.retained?,
            link_share: beside.link_share,
            victim: beside.victim,
            column: column(point, beside.exhausted.as_deref()),
            exhausted: beside.exhausted.clone(),
        })
    }
}

/// Which column of husky's table 4.3 the attack `point` belongs to: by its verbs where these say it, else by what ran
/// out. The search does not use it.
pub fn column(point: &Point, exhausted: Option<&str>) -> Option<Column> {
    if point.control != 0 {
        return Some(Column::CacheControl);
    }
    if point.receives == point::NEVER {
        return Some(match point::SERVICES[point.service as usize] {
            "rc-send" => Column::PuErrorRc,
            _ => Column::PuErrorUnreliable,
        });
    }
    let out = exhausted?;
    let says = |part: &str| out.contains(part);
    match () {
        () if says("cache") => Some(Column::CacheData),
        () if says("PCIe") => Some(Column::PcieData),
        () if says("processing units") => Some(Column::PuData),
        () if says("link") => Some(Column::Bandwidth),
        () => None,
    }
}
