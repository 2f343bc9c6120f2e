//! From claims to runs: each distinct (scenario, policy, profile, seed) runs once, however many claims need it, and
//! so does each audit, with the columns of all of them.

use crate::audit::{AuditRequest, Findings};
use crate::claim::{Claim, ClaimRun};
use crate::device::DeviceChanges;
use crate::expression::{Audits, Evaluation, Expression, Runs, Value};
use crate::hunt::HuntRun;
use crate::lab::LabRun;
use crate::nic::NicNumbers;
use crate::report::ClaimReport;
use crate::verdict::{Over, Published, enough, over_seeds, within};
use crate::world::{RunOutcome, World};
use isolane_common_toml_input::kind::ScenarioKind;
use isolane_ethernet_scenario as nic;
use isolane_ethernet_scenario::model::NicStudy;
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Scenario files by their name under `scenarios/claims/`.
pub type ScenarioFiles<'a> = BTreeMap<&'a str, &'a str>;

/// What a claim asks to be run, for one seed, or why it cannot be.
type Planned = Result<Work, String>;

/// One run, for all claims that need it.
#[derive(Clone, Debug)]
enum Work {
    /// A scenario as text, what is changed of its device, and both as text, by which equal ones are known.
    Scenario(String, DeviceChanges, String),
    /// A study of a network card, what is changed of the card, and both as text.
    Nic(Box<NicStudy>, DeviceChanges, String),
    /// A hunt with its seed, and its text.
    Hunt(HuntRun, u64, String),
    /// A proof of the lab, and its text.
    Lab(LabRun, String),
}

impl Work {
    /// Equal for equal runs.
    fn key(&self) -> &str {
        match self {
            Self::Scenario(_, _, text)
            | Self::Nic(_, _, text)
            | Self::Hunt(_, _, text)
            | Self::Lab(_, text) => text,
        }
    }
}

/// Audits by what they have in common, with the columns that some claim needs.
type Audited = BTreeMap<String, Result<Findings, String>>;

/// Runs what `claims` need, in parallel, and judges them; `progress` is called after each run with (done, all).
/// All grows when an audit begins, whose runs are not known before.
pub fn check(
    claims: &[&Claim],
    files: &ScenarioFiles<'_>,
    world: &dyn World,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Vec<ClaimReport> {
    let mut results: BTreeMap<String, Result<RunOutcome, String>> = BTreeMap::new();
    let planned: Vec<Vec<Vec<Planned>>> = claims.iter().map(|claim| works(claim, files)).collect();
    let mut sources: BTreeMap<&str, (&Work, String)> = BTreeMap::new();
    for (claim, seeds) in claims.iter().zip(&planned) {
        for runs in seeds {
            for (run, work) in claim.runs.iter().zip(runs) {
                if let Ok(work) = work {
                    sources
                        .entry(work.key())
                        .or_insert_with(|| (work, format!("{}, run {:?}", claim.file, run.label)));
                }
            }
        }
    }
    let done = std::sync::atomic::AtomicUsize::new(0);
    let all = sources.len();
    let finished: Vec<(&str, Result<RunOutcome, String>)> = sources
        .par_iter()
        .map(|(key, (work, source))| {
            let result = run_one(work, source, world);
            let count = done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
            progress(count, all);
            (*key, result)
        })
        .collect();
    results.extend(
        finished
            .into_iter()
            .map(|(key, result)| (key.to_owned(), result)),
    );
    let audited = audits(claims, world, &|done, total| {
        progress(all + done, all + total)
    });
    let measured = Measured {
        results: &results,
        audited: &audited,
        world,
    };
    claims
        .iter()
        .zip(&planned)
        .map(|(claim, seeds)| judge(claim, seeds, &measured))
        .collect()
}

fn run_one(work: &Work, source: &str, world: &dyn World) -> Result<RunOutcome, String> {
    let (text, device) = match work {
        Work::Nic(study, device, _) => {
            let result = match device.is_empty() {
                true => world.nic(study)?,
                false => world.nic_on(study, device)?,
            };
            return Ok(RunOutcome::Nic(NicNumbers::of(&result)));
        }
        Work::Hunt(run, seed, _) => return world.hunt(run, *seed).map(RunOutcome::Hunt),
        Work::Lab(run, _) => return world.lab(run).map(RunOutcome::Lab),
        Work::Scenario(text, device, _) => (text, device),
    };
    Ok(
        match ScenarioKind::of(text, source).map_err(|error| error.to_string())? {
            ScenarioKind::Ethernet => {
                let study = nic::parse::parse(text, source).map_err(|error| error.to_string())?;
                RunOutcome::Nic(NicNumbers::of(&match device.is_empty() {
                    true => world.nic(&study)?,
                    false => world.nic_on(&study, device)?,
                }))
            }
            ScenarioKind::Memory => RunOutcome::Memory(Box::new(world.memory(text, source)?)),
            ScenarioKind::Network => RunOutcome::Network(Box::new(world.network(text, source)?)),
            ScenarioKind::Rdma => {
                let scenario = world.scenario(text, source)?;
                RunOutcome::Hosts(Box::new(match device.is_empty() {
                    true => world.run(&scenario)?,
                    false => world.run_on(&scenario, device)?,
                }))
            }
        },
    )
}

/// Runs the audits of `claims`, each with every column that some claim needs. One after the other: an audit
/// spreads over all threads by itself.
fn audits(
    claims: &[&Claim],
    world: &dyn World,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Audited {
    let mut requests: BTreeMap<String, AuditRequest> = BTreeMap::new();
    for claim in claims {
        for (audit, seed) in claim
            .audits
            .iter()
            .flat_map(|audit| claim.seeds.iter().map(move |seed| (audit, *seed)))
        {
            let request = AuditRequest::of(audit, seed);
            let known = requests
                .entry(request.key())
                .or_insert_with(|| request.clone());
            known.columns.extend(&request.columns);
        }
    }
    let mut before = 0;
    let mut audited = Audited::new();
    for (key, request) in requests {
        let mut own = 0;
        let found = world.audit(&request, &mut |done, total| {
            own = total;
            progress(before + done, before + total);
        });
        before += own;
        audited.insert(key, found);
    }
    audited
}

/// Each run of `claim`, per seed.
fn works(claim: &Claim, files: &ScenarioFiles<'_>) -> Vec<Vec<Planned>> {
    claim
        .seeds
        .iter()
        .map(|seed| {
            claim
                .runs
                .iter()
                .map(|run| match (&run.nic, &run.hunt, &run.lab) {
                    (_, _, Some(lab)) => {
                        let text = format!("lab {} {}", lab.proof, lab.device);
                        Ok(Work::Lab(lab.clone(), text))
                    }
                    (_, Some(hunt), _) => {
                        let text = format!("hunt {} {seed}", hunt.contestant());
                        Ok(Work::Hunt(hunt.clone(), *seed, text))
                    }
                    (Some(nic), _, _) => {
                        let study = nic.study(*seed)?;
                        let text = serde_json::to_string(&(&study, &run.device))
                            .map_err(|error| error.to_string())?;
                        Ok(Work::Nic(Box::new(study), run.device.clone(), text))
                    }
                    (None, None, None) => {
                        let text = run_text(run, *seed, files)?;
                        let key = match run.device.is_empty() {
                            true => text.clone(),
                            false => format!("{text}{:?}", run.device),
                        };
                        Ok(Work::Scenario(text, run.device.clone(), key))
                    }
                })
                .collect()
        })
        .collect()
}

/// The outcome of what was planned.
fn outcome<'a>(
    work: &Planned,
    results: &'a BTreeMap<String, Result<RunOutcome, String>>,
) -> Result<&'a RunOutcome, String> {
    let work = work.as_ref().map_err(Clone::clone)?;
    let result = results.get(work.key()).ok_or("the run was not planned")?;
    result.as_ref().map_err(Clone::clone)
}

/// The value of a formula over measurements that are the means of these seeds.
fn of_means<'a>(
    claim: &Claim,
    seeds: impl Iterator<Item = &'a Vec<Planned>> + Clone,
    results: &BTreeMap<String, Result<RunOutcome, String>>,
    world: &dyn World,
) -> Result<Value, String> {
    let mut means = Vec::new();
    for index in 0..claim.runs.len() {
        let mut numbers = Vec::new();
        for works in seeds.clone() {
            match outcome(&works[index], results)? {
                RunOutcome::Nic(run) => numbers.push(run),
                _ => return Err("only runs of network cards are averaged".to_owned()),
            }
        }
        means.push(RunOutcome::Nic(NicNumbers::mean(&numbers)));
    }
    let labels = claim.runs.iter().map(|run| run.label.as_str());
    let evaluation = Evaluation {
        runs: labels.zip(&means).collect(),
        audits: Audits::new(),
        world,
    };
    evaluation.value(&claim.metric)
}

/// Everything that was run, to judge a claim by.
struct Measured<'a> {
    results: &'a BTreeMap<String, Result<RunOutcome, String>>,
    audited: &'a Audited,
    world: &'a dyn World,
}

impl Measured<'_> {
    /// The value of `formula` with one seed's runs of `claim`.
    fn value(
        &self,
        claim: &Claim,
        formula: &Expression,
        works: &[Planned],
        seed: u64,
    ) -> Result<Value, String> {
        let runs = claim
            .runs
            .iter()
            .zip(works)
            .map(|(run, work)| Ok((run.label.as_str(), outcome(work, self.results)?)))
            .collect::<Result<Runs<'_>, String>>()?;
        let audits = claim
            .audits
            .iter()
            .map(|audit| {
                let found = self.audited.get(&AuditRequest::of(audit, seed).key());
                let found = found.ok_or("the audit was not planned")?;
                let found = found.as_ref().map_err(Clone::clone)?;
                Ok((audit.label.as_str(), found.within(&audit.columns)))
            })
            .collect::<Result<Audits<'_>, String>>()?;
        let evaluation = Evaluation {
            runs,
            audits,
            world: self.world,
        };
        evaluation.value(formula)
    }

    /// The values that are judged one by one: those of the seeds, or the means that leave out one seed each.
    fn single(&self, claim: &Claim, seeds: &[Vec<Planned>]) -> Vec<Result<Value, String>> {
        let of_seed =
            |(works, seed): (&Vec<Planned>, &u64)| self.value(claim, &claim.metric, works, *seed);
        match (claim.over, seeds.len()) {
            (Over::MeanOfRuns, 0 | 1) => {
                vec![of_means(claim, seeds.iter(), self.results, self.world)]
            }
            (Over::MeanOfRuns, count) => (0..count)
                .map(|left_out| {
                    let kept = seeds.iter().enumerate();
                    let kept = kept.filter(move |(at, _)| *at != left_out);
                    let kept = kept.map(|(_, works)| works);
                    of_means(claim, kept, self.results, self.world)
                })
                .collect(),
            _ => seeds.iter().zip(&claim.seeds).map(of_seed).collect(),
        }
    }

    /// Why `claim` says nothing, where its premise does not hold.
    fn vacuous(&self, claim: &Claim, seeds: &[Vec<Planned>]) -> Option<String> {
        let premise = claim.premise.as_ref()?;
        let values: Result<Vec<Value>, String> = seeds
            .iter()
            .zip(&claim.seeds)
            .map(|(works, seed)| self.value(claim, premise, works, *seed))
            .collect();
        let text = claim.premise_text.as_deref().unwrap_or_default();
        match values {
            Ok(values) => {
                let held = values.iter().map(|value| *value == Value::Truth(true));
                (!enough(held)).then(|| format!("Says nothing: {text} does not hold."))
            }
            Err(error) => Some(format!("Says nothing: {error}")),
        }
    }
}

fn judge(claim: &Claim, seeds: &[Vec<Planned>], measured: &Measured<'_>) -> ClaimReport {
    let single = measured.single(claim, seeds);
    let failure = single
        .iter()
        .find_map(|value| value.as_ref().err().cloned());
    let values: Vec<Value> = single.into_iter().flatten().collect();
    let ours = match (&failure, claim.over) {
        (Some(_), _) => None,
        (None, Over::MeanOfRuns) => {
            of_means(claim, seeds.iter(), measured.results, measured.world).ok()
        }
        (None, over) => over_seeds(&values, over),
    };
    let verdict = match ours {
        Some(ours) => within(claim.published, claim.tolerance, ours),
        None if claim.published == Published::Withheld => None,
        None => Some(false),
    };
    let objection = match verdict {
        Some(true) => few_seeds(claim, &values).or_else(|| measured.vacuous(claim, seeds)),
        _ => None,
    };
    let verdict = match objection {
        Some(_) => Some(false),
        None => verdict,
    };
    ClaimReport::new(claim, ours, values, verdict, failure.or(objection))
}

/// How few of single seeds hold, where too few do: the value of all of them is then right by chance.
fn few_seeds(claim: &Claim, values: &[Value]) -> Option<String> {
    let single = || {
        values
            .iter()
            .map(|value| within(claim.published, claim.tolerance, *value) == Some(true))
    };
    if !claim.over.is_judged_by_seed() || enough(single()) {
        return None;
    }
    let held = single().filter(|held| *held).count();
    let all = values.len();
    Some(match claim.over {
        Over::MeanOfRuns => format!("Only {held} of {all} means that leave out one seed hold."),
        _ => format!("Only {held} of {all} seeds hold."),
    })
}

/// The scenario of `run` with everything it changes, as TOML text.
pub fn run_text(run: &ClaimRun, seed: u64, files: &ScenarioFiles<'_>) -> Result<String, String> {
    let text = match (&run.scenario, &run.inline) {
        (Some(file), _) => *files.get(file.as_str()).ok_or_else(|| {
            format!(
                "run {:?}: scenarios/claims/{file} does not exist{}",
                run.label,
                crate::error::nearest(file, files.keys().copied())
            )
        })?,
        (None, Some(text)) => text,
        (None, None) if run.plan.is_some() => {
            return Err("run by `isolane edge plan --check-claims`".to_owned());
        }
        (None, None) => return Err(format!("run {:?} needs scenario or inline", run.label)),
    };
    let name = run.scenario.as_deref().unwrap_or("inline");
    let mut table: toml::Table =
        toml::from_str(text).map_err(|error| format!("{name}: {}", error.message()))?;
    let stem = name.trim_end_matches(".toml");
    table
        .entry("name")
        .or_insert_with(|| toml::Value::String(stem.to_owned()));
    keep_only(&mut table, &run.only).map_err(|error| format!("run {:?}: {error}", run.label))?;
    copy_tenants(&mut table, &run.copies)
        .map_err(|error| format!("run {:?}: {error}", run.label))?;
    if let Some(policy) = &run.policy {
        let mut section = toml::Table::new();
        section.insert("name".to_owned(), policy.clone().into());
        table.insert("policy".to_owned(), section.into());
    }
    if let Some(profile) = &run.profile {
        table.insert("profile".to_owned(), profile.clone().into());
    }
    let seed = i64::try_from(seed).map_err(|_| format!("seed {seed}: must be below 2^63"))?;
    table.insert("seed".to_owned(), seed.into());
    let mut root = toml::Value::Table(table);
    for (path, value) in &run.set {
        assign(&mut root, path, value)
            .map_err(|error| format!("run {:?}: set {path:?}: {error}", run.label))?;
    }
    toml::to_string(&root).map_err(|error| format!("run {:?}: {error}", run.label))
}

fn tenants(table: &mut toml::Table) -> Result<&mut Vec<toml::Value>, String> {
    let list = match table.contains_key("app") {
        true => "app",
        false => "tenant",
    };
    table
        .get_mut(list)
        .and_then(toml::Value::as_array_mut)
        .ok_or_else(|| "the scenario has no [[tenant]] and no [[app]]".to_owned())
}

fn tenant_name(tenant: &toml::Value) -> &str {
    tenant
        .get("name")
        .and_then(toml::Value::as_str)
        .unwrap_or_default()
}

fn unknown_tenant(name: &str, tenants: &[toml::Value]) -> String {
    format!(
        "no tenant is called {name:?}{}",
        crate::error::nearest(name, tenants.iter().map(tenant_name))
    )
}

fn keep_only(table: &mut toml::Table, only: &[String]) -> Result<(), String> {
    if only.is_empty() {
        return Ok(());
    }
    let tenants = tenants(table)?;
    if let Some(name) = only
        .iter()
        .find(|name| !tenants.iter().any(|tenant| tenant_name(tenant) == *name))
    {
        return Err(unknown_tenant(name, tenants));
    }
    tenants.retain(|tenant| only.iter().any(|name| name == tenant_name(tenant)));
    Ok(())
}

fn copy_tenants(table: &mut toml::Table, copies: &toml::Table) -> Result<(), String> {
    for (name, count) in copies {
        let count = count
            .as_integer()
            .filter(|count| (1..=1024).contains(count))
            .ok_or_else(|| format!("copies of {name:?}: must be 1 to 1024"))?;
        let tenants = tenants(table)?;
        let at = tenants
            .iter()
            .position(|tenant| tenant_name(tenant) == name)
            .ok_or_else(|| unknown_tenant(name, tenants))?;
        let original = tenants.remove(at);
        for copy in (1..=count).rev() {
            let mut tenant = original.clone();
            if let Some(entry) = tenant.get_mut("name") {
                *entry = format!("{name}-{copy}").into();
            }
            tenants.insert(at, tenant);
        }
    }
    Ok(())
}

/// Sets the value at a dotted path, making tables on the way; list members are named by `name` or by index.
fn assign(root: &mut toml::Value, path: &str, value: &toml::Value) -> Result<(), String> {
    let mut place = root;
    let mut segments = path.split('.').peekable();
    while let Some(segment) = segments.next() {
        place = match place {
            toml::Value::Table(table) => {
                if segments.peek().is_none() {
                    table.insert(segment.to_owned(), value.clone());
                    return Ok(());
                }
                table
                    .entry(segment.to_owned())
                    .or_insert_with(|| toml::Value::Table(toml::Table::new()))
            }
            toml::Value::Array(members) => {
                let at = members
                    .iter()
                    .position(|member| tenant_name(member) == segment)
                    .or_else(|| segment.parse().ok().filter(|at| *at < members.len()))
                    .ok_or_else(|| format!("the list has no member {segment:?}"))?;
                &mut members[at]
            }
            other => return Err(format!("{segment:?} is inside a {}", other.type_str())),
        };
    }
    *place = value.clone();
    Ok(())
}

#[cfg(test)]
mod tests;
