//! Parts of the audit as runs of a claim: "is there a pair of this column that violates under this policy?"
//!
//! Problem: husky's table 4.3 is a statement about many pairs at once, which no single scenario can check. So a
//! claim may name an `[[audit]]`: a policy, and the columns of the table whose attackers take part. Audits that
//! differ in their columns only are done together and their solo runs shared, however many claims need them.
//!
//! Units: none, cells are counted. Method: [`isolane_study_audit`] with its own windows, which last until a pair has settled,
//! and the share predicate for two tenants, half of the link each; every rate victim of the catalogue. Limits: one finding
//! per pair, no counters; a pair that has not settled by the cap counts neither as kept nor as broken.
//! Source: husky 4.4 and 4.5.1.

use crate::device::DeviceChanges;
use isolane_rdma_scenario::catalogue::{Catalogue, Column};
use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::model::{PolicySpec, Tenant, Traffic, Verb};
use isolane_rdma_scenario::profile::Profile;
use isolane_rdma_scenario::stack;
use isolane_study_audit::cell::{Verdict, VictimKind};
use isolane_study_audit::plan::{self, Plan};
use isolane_study_audit::predicate::{Part, Predicate};
use isolane_study_audit::run::RunOptions;
use isolane_study_audit::select::Selection;
use isolane_study_testbed::Testbed;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;

/// One part of an audit that a claim needs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimAudit {
    /// The name the metric uses.
    pub label: String,
    /// Device profile.
    pub profile: String,
    /// The policy.
    pub policy: String,
    /// Parameters of the policy.
    #[serde(default)]
    pub set: BTreeMap<String, f64>,
    /// Columns of husky's table 4.3 whose attackers take part.
    pub columns: Vec<Column>,
    /// Globs of victims, separated by commas; every one whose rate counts unless given.
    #[serde(default)]
    pub victims: Option<String>,
    /// Only workloads that post no other data verbs take part, on both sides; all unless given.
    #[serde(default)]
    pub verbs: Vec<Verb>,
    /// The part that a victim may lose of what it is owed, 0 to 1.
    #[serde(default = "default_alpha")]
    pub alpha: f64,
    /// Parameters of the device to change, by `section.name`.
    #[serde(default)]
    pub device: DeviceChanges,
}

fn default_alpha() -> f64 {
    plan::ALPHA
}

/// An audit to run: what several claims need, together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditRequest {
    /// Device profile.
    pub profile: String,
    /// The policy.
    pub policy: String,
    /// Its parameters.
    pub parameters: BTreeMap<String, f64>,
    /// Globs of victims; every one whose rate counts if absent.
    pub victims: Option<String>,
    /// Data verbs that may take part; all if empty.
    pub verbs: Vec<Verb>,
    /// Tolerance, 0 to 1.
    pub alpha: f64,
    /// Parameters of the device to change.
    pub device: DeviceChanges,
    /// Run seed.
    pub seed: u64,
    /// Columns whose attackers take part.
    pub columns: BTreeSet<Column>,
}

impl AuditRequest {
    /// What `audit` asks with one seed.
    pub fn of(audit: &ClaimAudit, seed: u64) -> Self {
        Self {
            profile: audit.profile.clone(),
            policy: audit.policy.clone(),
            parameters: audit.set.clone(),
            victims: audit.victims.clone(),
            verbs: audit.verbs.clone(),
            alpha: audit.alpha,
            device: audit.device.clone(),
            seed,
            columns: audit.columns.iter().copied().collect(),
        }
    }

    /// Equal for requests that can be done together.
    pub fn key(&self) -> String {
        let alone = Self {
            columns: BTreeSet::new(),
            ..self.clone()
        };
        serde_json::to_string(&alone).expect("names and numbers are plain data")
    }
}

/// One cell of an audit.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The attacker's column.
    pub column: Column,
    /// The victim's name.
    pub victim: String,
    /// The attacker's name.
    pub attacker: String,
    /// Whether isolation was violated; nothing where the device cannot run one of the two.
    pub violated: Option<bool>,
}

/// What an audit found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Every pair, in the catalogue's order.
    pub cells: Vec<Finding>,
}

impl Findings {
    /// The cells of these columns.
    pub fn within(&self, columns: &[Column]) -> Self {
        let inside = |cell: &&Finding| columns.contains(&cell.column);
        Self {
            cells: self.cells.iter().filter(inside).cloned().collect(),
        }
    }

    /// Cells with a verdict.
    pub fn judged(&self) -> usize {
        let judged = self.cells.iter().filter(|cell| cell.violated.is_some());
        judged.count()
    }

    /// Cells that violate.
    pub fn violations(&self) -> usize {
        let violated = self.cells.iter().filter(|cell| cell.violated == Some(true));
        violated.count()
    }
}

/// Runs what `request` asks on `testbed`, as many runs at once as this thread pool has threads. Fails for unknown
/// names, nothing left after the choice of verbs, or a run that fails.
pub fn run(
    request: &AuditRequest,
    profile: &Profile,
    library: &Library,
    testbed: &dyn Testbed,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Findings, String> {
    let plan = plan_of(request, profile, &library.catalogue)?;
    let cancel = AtomicBool::new(false);
    let options = RunOptions {
        jobs: rayon::current_num_threads(),
        cancel: &cancel,
        journal: None,
        build: "claims",
        resume: false,
        on_resume: &mut |_| {},
        on_progress: &mut |at| progress(at.runs_done as usize, at.runs_total as usize),
    };
    let result = isolane_study_audit::run::run(&plan, testbed, options)
        .map_err(|error| error.to_string())?;
    let columns = columns_of(&library.catalogue);
    let cells = result.cells.into_iter().map(|cell| {
        let column = columns.get(cell.attacker.as_str()).copied();
        let column = column.ok_or_else(|| format!("attacker {} has no column", cell.attacker))?;
        Ok(Finding {
            column,
            violated: match cell.verdict {
                Verdict::Pass => Some(false),
                Verdict::Violation => Some(true),
                Verdict::NotApplicable | Verdict::NotSettled => None,
            },
            victim: cell.victim,
            attacker: cell.attacker,
        })
    });
    let cells = cells.collect::<Result<Vec<Finding>, String>>()?;
    Ok(Findings { cells })
}

fn plan_of(
    request: &AuditRequest,
    profile: &Profile,
    catalogue: &Catalogue,
) -> Result<Plan, String> {
    let policy = stack::canonical(&request.policy).map_err(|error| error.to_string())?;
    stack::check_device(&policy, profile, plan::TENANTS as usize)
        .map_err(|error| error.to_string())?;
    let known = stack::parameters(&policy);
    for (name, value) in &request.parameters {
        let known = known.iter().find(|known| known.name == name);
        if !known.is_some_and(|known| (known.min..=known.max).contains(value)) {
            return Err(format!("policy {policy}: {name} = {value} does not fit"));
        }
    }
    let selection = Selection {
        victims: request.victims.clone(),
        attackers: None,
        quick: false,
    };
    let (mut victims, mut attackers) = selection
        .of(catalogue, profile)
        .map_err(|error| error.to_string())?;
    let columns = columns_of(catalogue);
    victims.retain(|victim| {
        victim.info.kind == VictimKind::Rate
            && victim
                .tenant
                .as_ref()
                .is_ok_and(|tenant| posts_only(tenant, &request.verbs))
    });
    attackers.retain(|attacker| {
        let column = columns.get(attacker.info.name.as_str());
        column.is_some_and(|column| request.columns.contains(column))
            && attacker.tenants.as_ref().is_ok_and(|tenants| {
                tenants
                    .iter()
                    .all(|tenant| posts_only(tenant, &request.verbs))
            })
    });
    if victims.is_empty() || attackers.is_empty() {
        return Err("no victim or no attacker is left of this choice".to_owned());
    }
    Ok(Plan {
        profile: profile.clone(),
        policies: vec![PolicySpec {
            name: policy,
            parameters: request.parameters.clone(),
        }],
        left_out: Vec::new(),
        victims,
        attackers,
        seeds: vec![request.seed],
        predicate: Predicate::Share {
            alpha: request.alpha,
            part: Part::one_of(plan::TENANTS),
        },
        warmup: plan::WARMUP,
        duration: plan::DURATION,
        cap: Some(plan::CAP),
        least_times: 1,
        topology: plan::TOPOLOGY,
        rerun: String::new(),
    })
}

fn columns_of(catalogue: &Catalogue) -> BTreeMap<&str, Column> {
    let attackers = catalogue.attackers();
    attackers
        .filter_map(|entry| Some((entry.name.as_str(), entry.column?)))
        .collect()
}

/// Whether all data verbs of `tenant` are among `verbs`; control verbs do not count.
fn posts_only(tenant: &Tenant, verbs: &[Verb]) -> bool {
    let mut posted = tenant
        .workloads
        .iter()
        .filter_map(|workload| match &workload.traffic {
            Traffic::Data(data) => Some(data.verb),
            Traffic::Application(application) => Some(application.verb),
            Traffic::Control(_) => None,
        });
    verbs.is_empty() || posted.all(|verb| verbs.contains(&verb))
}

#[cfg(test)]
mod tests;
