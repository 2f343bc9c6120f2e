//! Many machines: what each says of itself, and which one suits an application.
//!
//! Problem: a scheduler must choose a machine before anything runs there. Method: every machine publishes a [`Summary`]
//! of its memory and applications, made from the service's status; a program with the summaries runs a what-if question
//! on the same policy for each of them ([`Summary::judge`]). For Kubernetes the summary is an annotation of the node,
//! and [`extender`] answers the scheduler.
//!
//! * [`extender`] - the JSON of a scheduler extender; [`server`] - it over HTTP.
//!
//! Units: end the names. Limits: a summary is a moment old; one older than [`SUMMARY_AGE_MAX_S`] is not used. Profiles
//! do not travel in it, so victims are judged by what is measured. Source: ours.

pub mod extender;
mod json;
#[cfg(test)]
mod schema;
pub mod server;

use crate::application::{Application, Slo};
use crate::protocol::status::{Measured, Status};
use isolane_common_quantities::units::{Bytes, Duration, Instant};
use isolane_memory_policy::mercury::{
    AppId, AppSpec, AppView, Limits, Mercury, MercuryOptions, Observation, Reading, Refusal,
    Sharing, Source, Suitability, TIERS_MAX, Thresholds, TierView, Verdict, suitability,
};
use serde::{Deserialize, Serialize};

/// Version of the form.
pub const FORMAT: u32 = 1;

/// Older summaries say nothing about now: five minutes, as long as a node may be silent before it counts as lost.
pub const SUMMARY_AGE_MAX_S: u64 = 300;

/// What a machine says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Version of the form.
    pub format: u32,
    /// When it was made, in seconds since 1970.
    pub at_unix_s: u64,
    /// Whether memory is shared by weight instead of by strict priority.
    #[serde(default)]
    pub weighted: bool,
    /// Its memory tiers, nearest first.
    pub tiers: Vec<TierSummary>,
    /// Healthy bandwidth of the nearest tier; none where the machine is not profiled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_bandwidth_bytes_per_s: Option<u64>,
    /// Healthy rate of hint faults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy_hint_faults_per_s: Option<f64>,
    /// Their rate now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint_faults_per_s: Option<f64>,
    /// The applications under control.
    pub applications: Vec<AppSummary>,
}

/// One tier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TierSummary {
    /// Memory for applications.
    pub capacity_bytes: u64,
    /// In use by any process.
    pub used_bytes: u64,
    /// Its bandwidth now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_bytes_per_s: Option<u64>,
}

/// One application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AppSummary {
    /// Its name.
    pub name: String,
    /// Highest mean latency that meets its objective, in picoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo_latency_ps: Option<u64>,
    /// Lowest bandwidth that meets its objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo_bandwidth_bytes_per_s: Option<u64>,
    /// Larger is more important.
    pub priority: u32,
    /// What it holds of each tier.
    pub held_bytes: Vec<u64>,
    /// Near memory it may hold; none is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near_limit_bytes: Option<u64>,
    /// Processor time it may use, thousandths of its cores.
    pub cpu_per_mille: u32,
    /// Its latency now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<f64>,
    /// Its bandwidth now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_bytes_per_s: Option<u64>,
}

/// Whether a machine suits, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// How well.
    pub suitability: Suitability,
    /// Why not, or at whose cost; empty where there is nothing to say.
    pub reason: String,
}

impl Summary {
    /// From what the service shows, at this time.
    pub fn of(status: &Status, at_unix_s: u64) -> Self {
        let whole = |measured: &Option<Measured>| measured.as_ref().map(|it| it.value as u64);
        Self {
            format: FORMAT,
            at_unix_s,
            weighted: status.policy == "weighted",
            tiers: status
                .tiers
                .iter()
                .map(|tier| TierSummary {
                    capacity_bytes: tier.capacity_bytes,
                    used_bytes: tier.used_bytes,
                    bandwidth_bytes_per_s: whole(&tier.bandwidth_bytes_per_s),
                })
                .collect(),
            local_bandwidth_bytes_per_s: status
                .thresholds
                .as_ref()
                .map(|thresholds| thresholds.local_bandwidth_bytes_per_s),
            healthy_hint_faults_per_s: status
                .thresholds
                .as_ref()
                .and_then(|thresholds| thresholds.hint_faults_per_s),
            hint_faults_per_s: status.hint_faults_per_s.as_ref().map(|rate| rate.value),
            applications: status
                .applications
                .iter()
                .map(|app| AppSummary {
                    name: app.name.clone(),
                    slo_latency_ps: match app.slo {
                        Slo::LatencyPs(ps) => Some(ps),
                        _ => None,
                    },
                    slo_bandwidth_bytes_per_s: match app.slo {
                        Slo::BandwidthBytesPerS(rate) => Some(rate),
                        _ => None,
                    },
                    priority: app.priority,
                    held_bytes: app.held_bytes.clone(),
                    near_limit_bytes: app.limits.tier_bytes.first().copied().flatten(),
                    cpu_per_mille: app.limits.cpu_per_mille,
                    latency_ns: app.latency_ns.as_ref().map(|latency| latency.value),
                    bandwidth_bytes_per_s: whole(&app.bandwidth_bytes_per_s),
                })
                .collect(),
        }
    }

    /// Reads a summary.
    pub fn parse(text: &str) -> Result<Self, String> {
        let summary: Self = serde_json::from_str(text)
            .map_err(|error| format!("the summary does not parse: {error}"))?;
        if summary.format != FORMAT {
            return Err(format!(
                "the summary has format {}, and this is for {FORMAT}; use one release on all machines",
                summary.format
            ));
        }
        Ok(summary)
    }

    /// Whether this machine suits an application, at this time.
    pub fn judge(&self, application: &Application, now_unix_s: u64) -> Judgement {
        let age = now_unix_s.saturating_sub(self.at_unix_s);
        if age > SUMMARY_AGE_MAX_S {
            return unsuitable(format!(
                "the summary is {age} s old, more than {SUMMARY_AGE_MAX_S} s: does isolaned run there?"
            ));
        }
        let (mercury, seen) = match self.world() {
            Ok(world) => world,
            Err(reason) => return unsuitable(reason),
        };
        let near = seen.tiers.first().map_or(Bytes::ZERO, |tier| tier.capacity);
        let id = AppId(u32::try_from(self.applications.len()).unwrap_or(u32::MAX));
        let spec = application.spec(id, near);
        let plan = mercury.plan(&spec, &seen);
        let free = mercury.unclaimed(&seen);
        let suitability = suitability(&plan, spec.objective, near, free);
        let reason = match &plan.verdict {
            Verdict::Refused(refusal) => self.refused(refusal),
            Verdict::BestEffort(lacks) => format!(
                "short of {} near memory and {:.3} GB/s",
                lacks.local,
                lacks.bandwidth as f64 / 1e9
            ),
            Verdict::Admitted if plan.yields.is_empty() => String::new(),
            Verdict::Admitted => {
                let names: Vec<&str> = plan.yields.iter().map(|given| &given.name[..]).collect();
                format!("at the cost of {}", names.join(", "))
            }
        };
        Judgement {
            suitability,
            reason,
        }
    }

    fn refused(&self, refusal: &Refusal) -> String {
        match refusal {
            Refusal::DuplicatePriority(AppId(other)) => {
                let app = self.applications.get(*other as usize);
                let name = app.map_or("another application", |app| &app.name);
                format!("`{name}` has this priority there; choose another")
            }
            Refusal::TooLarge {
                footprint,
                capacity,
            } => format!("needs {footprint} of memory, and all tiers have {capacity}"),
            Refusal::Inadmissible(_) => "the objective cannot be met there".to_owned(),
            Refusal::Duplicate => "runs there already".to_owned(),
            Refusal::Exhausted(_) => "no room".to_owned(),
        }
    }

    /// The policy with the machine's applications, and what it sees.
    fn world(&self) -> Result<(Mercury, Observation), String> {
        let near = self.tiers.first().map_or(0, |tier| tier.capacity_bytes);
        let thresholds = Thresholds {
            local_bandwidth: self.local_bandwidth_bytes_per_s.unwrap_or(u64::MAX),
            hint_faults_per_s: self.healthy_hint_faults_per_s.unwrap_or(f64::MAX),
        };
        let mut options = MercuryOptions::new(thresholds, Bytes::new(near));
        if self.weighted {
            options.sharing = Sharing::Weighted;
        }
        let mut mercury = Mercury::new(options).map_err(|error| error.to_string())?;
        let mut seen = Observation {
            tiers: self.tiers.iter().take(TIERS_MAX).map(tier_view).collect(),
            hint_faults_per_s: reading(self.hint_faults_per_s),
            apps: Vec::new(),
        };
        for (place, app) in self.applications.iter().enumerate() {
            let id = AppId(u32::try_from(place).unwrap_or(u32::MAX));
            let mut limits = Limits::NONE;
            limits.tiers[0] = app.near_limit_bytes.map(Bytes::new);
            limits.cpu = app.cpu_per_mille;
            mercury
                .adopt(Instant::ZERO, app.spec(id), limits)
                .map_err(|_| format!("two applications there have priority {}", app.priority))?;
            seen.apps.push(app.view(id));
        }
        Ok((mercury, seen))
    }
}

impl AppSummary {
    fn spec(&self, id: AppId) -> AppSpec {
        let latency = self.slo_latency_ps.map(Slo::LatencyPs);
        let bandwidth = self.slo_bandwidth_bytes_per_s;
        let slo = latency.or(bandwidth.map(Slo::BandwidthBytesPerS));
        let held = self.held_bytes.iter().copied().fold(0, u64::saturating_add);
        let objective = slo.unwrap_or(Slo::BestEffort).objective();
        AppSpec {
            name: self.name.clone(),
            ..AppSpec::new(id, objective, self.priority, Bytes::new(held))
        }
    }

    fn view(&self, id: AppId) -> AppView {
        let mut held = [Bytes::ZERO; TIERS_MAX];
        for (held, &bytes) in held.iter_mut().zip(&self.held_bytes) {
            *held = Bytes::new(bytes);
        }
        AppView {
            id,
            held,
            latency: reading(self.latency_ns.map(Duration::from_ns_f64)),
            bandwidth: reading(self.bandwidth_bytes_per_s),
            cpu_used: None,
        }
    }
}

fn tier_view(tier: &TierSummary) -> TierView {
    TierView {
        capacity: Bytes::new(tier.capacity_bytes),
        used: Bytes::new(tier.used_bytes),
        bandwidth: reading(tier.bandwidth_bytes_per_s),
    }
}

/// The readings of a summary are as old as the summary, and are used as current ones.
fn reading<T>(value: Option<T>) -> Option<Reading<T>> {
    value.map(|value| Reading {
        value,
        age: Duration::ZERO,
        source: Source::Application,
    })
}

fn unsuitable(reason: String) -> Judgement {
    Judgement {
        suitability: Suitability {
            keeps_objective: false,
            harmed: 0.0,
            score: 0,
        },
        reason,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::application::WEIGHT;

    const GB: u64 = 1_000_000_000;

    /// A machine of 20 GB near, with one application of priority 1 that may hold `near` of them.
    pub(crate) fn summary(near: u64, latency_ns: f64) -> Summary {
        Summary {
            format: FORMAT,
            at_unix_s: 1_000,
            weighted: false,
            tiers: vec![
                TierSummary {
                    capacity_bytes: 20 * GB,
                    used_bytes: near,
                    bandwidth_bytes_per_s: None,
                },
                TierSummary {
                    capacity_bytes: 100 * GB,
                    used_bytes: 0,
                    bandwidth_bytes_per_s: None,
                },
            ],
            local_bandwidth_bytes_per_s: Some(100 * GB),
            healthy_hint_faults_per_s: Some(1e5),
            hint_faults_per_s: None,
            applications: vec![AppSummary {
                name: "old".to_owned(),
                slo_latency_ps: Some(200_000),
                slo_bandwidth_bytes_per_s: None,
                priority: 1,
                held_bytes: vec![near, 20 * GB - near],
                near_limit_bytes: Some(near),
                cpu_per_mille: 1_000,
                latency_ns: Some(latency_ns),
                bandwidth_bytes_per_s: None,
            }],
        }
    }

    fn application(priority: u32, memory: u64) -> Application {
        Application {
            name: "new".to_owned(),
            slo: Slo::LatencyPs(160_000),
            priority,
            weight: WEIGHT,
            memory_bytes: Some(memory),
            caps: Vec::new(),
            far_tiers: Vec::new(),
            floors: Default::default(),
            profile: None,
        }
    }

    #[test]
    fn the_machine_without_harm_is_better() {
        let new = application(2, 10 * GB);
        let roomy = summary(5 * GB, 150.0).judge(&new, 1_000);
        let full = summary(20 * GB, 190.0).judge(&new, 1_000);
        assert!(roomy.suitability.score > full.suitability.score);
        assert_eq!(roomy.reason, "");
        assert_eq!(full.reason, "at the cost of old");
        assert!(full.suitability.keeps_objective);
    }

    #[test]
    fn reasons_say_what_is_in_the_way() {
        let machine = summary(20 * GB, 190.0);
        let reason = |application: &Application, now| machine.judge(application, now).reason;
        assert!(reason(&application(1, GB), 1_000).contains("`old` has this priority"));
        assert!(reason(&application(2, 500 * GB), 1_000).contains("all tiers have"));
        assert!(reason(&application(0, 10 * GB), 1_000).contains("short of"));
        assert!(reason(&application(2, GB), 9_000).contains("8000 s old"));
    }

    #[test]
    fn a_summary_survives_its_text_and_bad_ones_are_reported() {
        let machine = summary(5 * GB, 150.0);
        let text = serde_json::to_string(&machine).unwrap();
        assert_eq!(Summary::parse(&text).unwrap(), machine);
        let newer = text.replace("\"format\":1", "\"format\":9");
        assert!(Summary::parse(&newer).unwrap_err().contains("format 9"));
        assert!(Summary::parse("{}").unwrap_err().contains("does not parse"));
    }
}
