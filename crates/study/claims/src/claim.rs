//! One claim: what a paper says, and how we measure the same thing.
//!
//! A claim is a TOML file `claims/<system>/<id>.toml`; `docs/internals/claims.md` describes the keys. Reading
//! checks everything that needs no run: labels, fields, units, and that what is published fits the metric.

use crate::audit::ClaimAudit;
use crate::check::Check;
use crate::device::DeviceChanges;
use crate::error::{ClaimError, nearest};
use crate::expression::{self, Expression};
use crate::hunt::HuntRun;
use crate::lab::LabRun;
use crate::nic::NicRun;
use crate::planner::PlannerRun;
use crate::verdict::{Over, Published, Tolerance, Unit};
use serde::{Deserialize, Serialize};
use toml::Spanned;

/// Seeds of a claim that names none.
const SEEDS: [u64; 3] = [1, 2, 3];

/// A checked claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Unique over all systems; the file's stem.
    pub id: String,
    /// The published system it is about; the file's directory.
    pub system: String,
    /// Short title and section or figure.
    pub paper: String,
    /// What is claimed, in our own words.
    pub statement: String,
    /// How our number relates to it.
    pub kind: ClaimKind,
    /// What the paper prints.
    pub published: Published,
    /// The unit of the published value and of the metric.
    pub unit: Unit,
    /// How far ours may be off.
    pub tolerance: Tolerance,
    /// The runs the metric names.
    pub runs: Vec<ClaimRun>,
    /// The parts of the audit the metric names.
    pub audits: Vec<ClaimAudit>,
    /// Run seeds.
    pub seeds: Vec<u64>,
    /// How their values become one.
    pub over: Over,
    /// What its runs are made on.
    pub testbed: ClaimTestbed,
    /// The formula.
    pub metric: Expression,
    /// The formula as written.
    pub metric_text: String,
    /// Whether it is in-sample: a change after its outcome was known moved its value, or its system as a whole was changed.
    pub seen: bool,
    /// What must be so for the claim to say anything: an attack that hurts without isolation. Where it is not, the claim misses.
    pub premise: Option<Expression>,
    /// The same as written.
    pub premise_text: Option<String>,
    /// How our experiment differs from the paper's.
    pub note: Option<String>,
    /// Why ours is off, where it is known to be. Without `check` it is a supposition.
    pub miss_reason: Option<String>,
    /// What shows that the reason is right.
    pub check: Option<Check>,
    /// Path of the file inside the repository.
    pub file: String,
}

/// What a claim's runs are made on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimTestbed {
    /// The simulators.
    #[default]
    Simulated,
    /// The soft network card below a real kernel: `isolane nic study --check-claims`.
    SoftNic,
    /// The query planner of the Python package: `isolane edge plan --check-claims`.
    Planner,
    /// Hunts for anomalies, many of them: `isolane hunt bench --check-claims`.
    Hunt,
    /// Real devices, in the virtual machine of the lab: `isolane claims --lab`.
    Lab,
}

/// How our number relates to a published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimKind {
    /// Parameters were fitted to it.
    Calibration,
    /// Nothing was fitted to it.
    Prediction,
    /// It follows from formats, definitions or formulas, or its result is fixed by design.
    Arithmetic,
    /// Words that are read as a number, or a comparison that hardly can fail. Counted apart.
    Ordering,
}

impl ClaimKind {
    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Calibration => "calibration",
            Self::Prediction => "prediction",
            Self::Arithmetic => "arithmetic",
            Self::Ordering => "ordering",
        }
    }
}

/// One run of a claim: a shared scenario and what to change in it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimRun {
    /// The name the metric uses.
    pub label: String,
    /// File under `scenarios/claims/`, or with its directory under `scenarios/`.
    #[serde(default)]
    pub scenario: Option<String>,
    /// A whole scenario as text, instead of a file.
    #[serde(default)]
    pub inline: Option<String>,
    /// An experiment on a host's network card, instead of a scenario.
    #[serde(default)]
    pub nic: Option<NicRun>,
    /// An experiment of the query planner, instead of a scenario.
    #[serde(default)]
    pub plan: Option<PlannerRun>,
    /// A hunt for anomalies, instead of a scenario.
    #[serde(default)]
    pub hunt: Option<HuntRun>,
    /// A proof of the lab, instead of a scenario.
    #[serde(default)]
    pub lab: Option<LabRun>,
    /// Replaces the scenario's policy, with none of its parameters.
    #[serde(default)]
    pub policy: Option<String>,
    /// Replaces the scenario's device profile.
    #[serde(default)]
    pub profile: Option<String>,
    /// Keeps only the tenants with these names.
    #[serde(default)]
    pub only: Vec<String>,
    /// Repeats a tenant: `bulk = 3` makes `bulk-1`, `bulk-2` and `bulk-3` of `bulk`.
    #[serde(default)]
    pub copies: toml::Table,
    /// Values to set, by dotted path; a tenant is named by its name: `tenant.bulk.weight = 2`.
    #[serde(default)]
    pub set: toml::Table,
    /// Parameters of the device to change, by `section.name`.
    #[serde(default)]
    pub device: DeviceChanges,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawClaim {
    id: Spanned<String>,
    system: Spanned<String>,
    paper: String,
    statement: Spanned<String>,
    kind: ClaimKind,
    unit: Unit,
    published: Option<f64>,
    at_least: Option<f64>,
    at_most: Option<f64>,
    #[serde(default)]
    withheld: bool,
    tolerance: Option<Spanned<Tolerance>>,
    metric: Spanned<String>,
    seeds: Option<Spanned<Vec<u64>>>,
    #[serde(default)]
    over: Over,
    #[serde(default)]
    testbed: ClaimTestbed,
    #[serde(default)]
    seen: bool,
    premise: Option<Spanned<String>>,
    note: Option<String>,
    miss_reason: Option<String>,
    check: Option<Spanned<Check>>,
    #[serde(default, rename = "run")]
    runs: Vec<Spanned<ClaimRun>>,
    #[serde(default, rename = "audit")]
    audits: Vec<Spanned<ClaimAudit>>,
}

impl Claim {
    /// Reads the claim of `text`; `file` is its path inside the repository, `claims/<system>/<id>.toml`.
    pub fn parse(text: &str, file: &str) -> Result<Self, ClaimError> {
        let reader = Reader { text, file };
        let raw: RawClaim = toml::from_str(text).map_err(|error| reader.syntax(&error))?;
        reader.check_place(&raw)?;
        let metric_at = raw.metric.span().start;
        let metric_text = raw.metric.get_ref().trim().to_owned();
        let metric = expression::parse(&metric_text)
            .map_err(|error| reader.error(metric_at, format!("metric: {error}")))?;
        let published = reader.published(&raw, &metric)?;
        let tolerance = reader.tolerance(&raw, published)?;
        let premise = reader.premise(&raw)?;
        reader.check_runs(&raw, &metric, premise.as_ref())?;
        reader.check_audits(&raw, &metric)?;
        let seeds = match &raw.seeds {
            Some(seeds) if seeds.get_ref().is_empty() => {
                return Err(reader.error(seeds.span().start, "seeds: name at least one".into()));
            }
            Some(seeds) if raw.testbed == ClaimTestbed::Lab => {
                let message = "seeds: what was measured on a device has no seeds";
                return Err(reader.error(seeds.span().start, message.into()));
            }
            Some(seeds) => seeds.get_ref().clone(),
            None if raw.testbed == ClaimTestbed::Lab => vec![1],
            None => SEEDS.to_vec(),
        };
        let check_at = raw.check.as_ref().map_or(0, |check| check.span().start);
        let claim = Self {
            id: raw.id.into_inner(),
            system: raw.system.into_inner(),
            paper: raw.paper,
            statement: raw.statement.into_inner(),
            kind: raw.kind,
            published,
            unit: raw.unit,
            tolerance,
            runs: raw.runs.into_iter().map(Spanned::into_inner).collect(),
            audits: raw.audits.into_iter().map(Spanned::into_inner).collect(),
            seeds,
            over: raw.over,
            testbed: raw.testbed,
            metric,
            metric_text,
            seen: raw.seen || raw.kind == ClaimKind::Calibration,
            premise,
            premise_text: raw.premise.map(Spanned::into_inner),
            note: raw.note,
            miss_reason: raw.miss_reason,
            check: raw.check.map(Spanned::into_inner),
            file: file.to_owned(),
        };
        if let Some(check) = &claim.check {
            if claim.miss_reason.is_none() {
                let message = "check: say in miss_reason what it checks";
                return Err(reader.error(check_at, message.to_owned()));
            }
            check
                .apply(&claim)
                .map_err(|message| reader.error(check_at, message))?;
        }
        Ok(claim)
    }
}

/// A file being read: turns byte offsets into lines.
struct Reader<'a> {
    text: &'a str,
    file: &'a str,
}

impl Reader<'_> {
    fn error(&self, at: usize, message: String) -> ClaimError {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        ClaimError::File {
            file: self.file.to_owned(),
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            message,
        }
    }

    /// The parser's message, with the nearest valid spelling where it lists the valid ones.
    fn syntax(&self, error: &toml::de::Error) -> ClaimError {
        let message = error.message();
        let mut quoted = message.split('`').skip(1).step_by(2);
        let hint = match quoted.next() {
            Some(wrong) if message.starts_with("unknown ") => nearest(wrong, quoted),
            _ => String::new(),
        };
        let at = error.span().map_or(0, |span| span.start);
        self.error(at, format!("{message}{hint}"))
    }

    fn check_place(&self, raw: &RawClaim) -> Result<(), ClaimError> {
        let (id, system) = (raw.id.get_ref(), raw.system.get_ref());
        let place = format!("claims/{system}/{id}.toml");
        if place != self.file {
            let message = format!("id {id:?} of system {system:?} belongs into {place}");
            return Err(self.error(raw.id.span().start, message));
        }
        if raw.statement.get_ref().trim().is_empty() {
            return Err(self.error(
                raw.statement.span().start,
                "statement: say what is claimed".to_owned(),
            ));
        }
        Ok(())
    }

    fn published(&self, raw: &RawClaim, metric: &Expression) -> Result<Published, ClaimError> {
        let at = raw.metric.span().start;
        let stated = [
            raw.published.map(Published::Value),
            raw.at_least.map(Published::AtLeast),
            raw.at_most.map(Published::AtMost),
            raw.withheld.then_some(Published::Withheld),
        ];
        let mut stated = stated.into_iter().flatten();
        let published = match (stated.next(), stated.next()) {
            (Some(_), Some(_)) => {
                let message = "give one of published, at_least, at_most and withheld";
                return Err(self.error(0, message.to_owned()));
            }
            (Some(published), None) if metric.is_ordering() => {
                let message =
                    format!("an ordering has no published value, but {published:?} is given");
                return Err(self.error(at, message));
            }
            (Some(published), None) => published,
            (None, _) if metric.is_ordering() => Published::Ordering,
            (None, _) => {
                let message = "one of published, at_least, at_most and withheld is missing, or a comparison in the metric";
                return Err(self.error(at, message.to_owned()));
            }
        };
        if metric.is_ordering() != (raw.unit == Unit::Ordering) {
            let message = "unit = \"ordering\" and a comparison in the metric go together";
            return Err(self.error(at, message.to_owned()));
        }
        Ok(published)
    }

    fn tolerance(&self, raw: &RawClaim, published: Published) -> Result<Tolerance, ClaimError> {
        let Some(tolerance) = &raw.tolerance else {
            return Ok(match published {
                Published::Value(_) if raw.kind == ClaimKind::Arithmetic => Tolerance::Exact,
                Published::Value(_) | Published::Withheld => raw.unit.default_tolerance(),
                _ => Tolerance::Exact,
            });
        };
        let at = tolerance.span().start;
        match (*tolerance.get_ref(), published) {
            (Tolerance::Relative(value) | Tolerance::Absolute(value), _)
                if !value.is_finite() || value < 0.0 =>
            {
                Err(self.error(at, format!("tolerance {value}: must be 0 or more")))
            }
            (stated, Published::Value(_) | Published::Withheld) => Ok(stated),
            (Tolerance::Exact, _) => Ok(Tolerance::Exact),
            (stated, _) => Err(self.error(
                at,
                format!("tolerance {stated}: bounds and orderings are exact"),
            )),
        }
    }

    /// The premise, which must be a comparison.
    fn premise(&self, raw: &RawClaim) -> Result<Option<Expression>, ClaimError> {
        let Some(text) = &raw.premise else {
            return Ok(None);
        };
        let at = text.span().start;
        let premise = expression::parse(text.get_ref())
            .map_err(|error| self.error(at, format!("premise: {error}")))?;
        match premise.is_ordering() {
            true => Ok(Some(premise)),
            false => Err(self.error(at, "premise: must be a comparison".to_owned())),
        }
    }

    /// Whether each of the `needed` labels is one of `labels`, those of `[[table]]`.
    fn check_labels<'a>(
        &self,
        raw: &RawClaim,
        table: &str,
        needed: impl IntoIterator<Item = &'a &'a str>,
        labels: &[&str],
    ) -> Result<(), ClaimError> {
        let mut needed = needed.into_iter();
        let Some(label) = needed.find(|label| !labels.contains(label)) else {
            return Ok(());
        };
        let hint = nearest(label, labels.iter().copied());
        let message = format!("metric: no [[{table}]] has the label {label:?}{hint}");
        Err(self.error(raw.metric.span().start, message))
    }

    fn check_runs(
        &self,
        raw: &RawClaim,
        metric: &Expression,
        premise: Option<&Expression>,
    ) -> Result<(), ClaimError> {
        let mut needed = metric.labels();
        needed.extend(premise.map(Expression::labels).unwrap_or_default());
        let labels: Vec<&str> = raw
            .runs
            .iter()
            .map(|run| run.get_ref().label.as_str())
            .collect();
        self.check_labels(raw, "run", &needed, &labels)?;
        for (index, spanned) in raw.runs.iter().enumerate() {
            let run = spanned.get_ref();
            let at = spanned.span().start;
            let problem = if labels[..index].contains(&run.label.as_str()) {
                "is used twice"
            } else if !needed.contains(&run.label.as_str()) {
                "is not used by the metric"
            } else {
                match self.check_kind(raw, run) {
                    Ok(()) => continue,
                    Err(problem) => {
                        return Err(self.error(at, format!("run {:?}: {problem}", run.label)));
                    }
                }
            };
            return Err(self.error(at, format!("run {:?} {problem}", run.label)));
        }
        if raw.over == Over::MeanOfRuns && raw.runs.is_empty() {
            let message = "over = \"mean-of-runs\" needs runs of network cards";
            return Err(self.error(0, message.to_owned()));
        }
        Ok(())
    }

    /// Whether `run` is one of a scenario, of a network card or of the planner, and has only what such a run has.
    fn check_kind(&self, raw: &RawClaim, run: &ClaimRun) -> Result<(), String> {
        let sources = [
            run.scenario.is_some(),
            run.inline.is_some(),
            run.nic.is_some(),
            run.plan.is_some(),
            run.hunt.is_some(),
            run.lab.is_some(),
        ];
        if sources.iter().filter(|given| **given).count() != 1 {
            return Err("needs one of scenario, inline, nic, plan, hunt and lab".to_owned());
        }
        match (raw.over, raw.testbed) {
            (Over::MeanOfRuns, _) if run.nic.is_none() => {
                return Err("over = \"mean-of-runs\" is for runs of network cards".to_owned());
            }
            (Over::MedianOfRuns, _) if run.plan.is_none() => {
                return Err("over = \"median-of-runs\" is for runs of the planner".to_owned());
            }
            (_, ClaimTestbed::SoftNic) if run.nic.is_none() => {
                return Err("testbed = \"soft-nic\" is for runs of network cards".to_owned());
            }
            (_, testbed) if (testbed == ClaimTestbed::Planner) != run.plan.is_some() => {
                return Err("testbed = \"planner\" and plan go together".to_owned());
            }
            (_, testbed) if (testbed == ClaimTestbed::Hunt) != run.hunt.is_some() => {
                return Err("testbed = \"hunt\" and hunt go together".to_owned());
            }
            (_, testbed) if (testbed == ClaimTestbed::Lab) != run.lab.is_some() => {
                return Err("testbed = \"lab\" and lab go together".to_owned());
            }
            _ => {}
        }
        let changed = run.policy.is_some() || run.profile.is_some() || !run.only.is_empty();
        let changed = changed || !run.copies.is_empty() || !run.set.is_empty();
        let measured = run.hunt.is_some() || run.lab.is_some() || run.plan.is_some();
        if measured && !run.device.is_empty() {
            return Err("device belongs to scenarios and nic".to_owned());
        }
        if changed && (run.hunt.is_some() || run.lab.is_some()) {
            return Err("policy, profile, only, copies and set belong to scenarios".to_owned());
        }
        if let Some(hunt) = &run.hunt {
            return hunt.check();
        }
        if let Some(lab) = &run.lab {
            return lab.check();
        }
        match (&run.nic, &run.plan) {
            (Some(_), _) if changed => Err(
                "policy, profile, only, copies and set belong to scenarios; say it in nic"
                    .to_owned(),
            ),
            (_, Some(_)) if changed => Err(
                "policy, profile, only, copies and set belong to scenarios; say it in plan"
                    .to_owned(),
            ),
            (Some(nic), _) => nic
                .study(raw.seeds.as_ref().map_or(1, |seeds| seeds.get_ref()[0]))
                .map(|_| ()),
            (_, Some(plan)) => plan.check(),
            _ => Ok(()),
        }
    }

    fn check_audits(&self, raw: &RawClaim, metric: &Expression) -> Result<(), ClaimError> {
        let needed = metric.audit_labels();
        let labels: Vec<&str> = raw
            .audits
            .iter()
            .map(|audit| audit.get_ref().label.as_str())
            .collect();
        self.check_labels(raw, "audit", &needed, &labels)?;
        for (index, spanned) in raw.audits.iter().enumerate() {
            let audit = spanned.get_ref();
            let problem = if labels[..index].contains(&audit.label.as_str()) {
                "is used twice"
            } else if !needed.contains(&audit.label.as_str()) {
                "is not used by the metric"
            } else if audit.columns.is_empty() {
                "needs columns"
            } else {
                continue;
            };
            let message = format!("audit {:?} {problem}", audit.label);
            return Err(self.error(spanned.span().start, message));
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
