//! A formula and its runs to a value.

use super::{
    Aggregate, Arithmetic, Cells, Comparison, Expression, Extreme, HostValue, Measurement, network,
};
use crate::audit::Findings;
use crate::memory;
use crate::world::{Bus, RunOutcome, World};
use isolane_common_toml_input::glob;
use isolane_study_results::network::FabricResult;
use isolane_study_results::rdma::{HostCounters, RunResult, TenantResult};
use serde::Serialize;
use std::collections::BTreeMap;

/// What a formula yields.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A number, always finite.
    Number(f64),
    /// Whether an ordering holds.
    Truth(bool),
}

/// The runs a formula may name, by label.
pub type Runs<'a> = BTreeMap<&'a str, &'a RunOutcome>;

/// The audits a formula may name, by label.
pub type Audits<'a> = BTreeMap<&'a str, Findings>;

/// What a formula is evaluated against.
pub struct Evaluation<'a> {
    /// One seed's runs.
    pub runs: Runs<'a>,
    /// One seed's audits.
    pub audits: Audits<'a>,
    /// Profiles and request arithmetic.
    pub world: &'a dyn World,
}

impl Evaluation<'_> {
    /// The value of `expression`, or why there is none (a tenant that completed nothing, a division by zero).
    pub fn value(&self, expression: &Expression) -> Result<Value, String> {
        match expression {
            Expression::Compare(comparison, left, right) => {
                let (left, right) = (self.number(left)?, self.number(right)?);
                Ok(Value::Truth(match comparison {
                    Comparison::Less => left < right,
                    Comparison::AtMost => left <= right,
                    Comparison::Greater => left > right,
                    Comparison::AtLeast => left >= right,
                }))
            }
            Expression::And(left, right) => match (self.value(left)?, self.value(right)?) {
                (Value::Truth(left), Value::Truth(right)) => Ok(Value::Truth(left && right)),
                _ => Err("`and` is allowed between comparisons only".to_owned()),
            },
            _ => self.number(expression).map(Value::Number),
        }
    }

    fn number(&self, expression: &Expression) -> Result<f64, String> {
        let value = match expression {
            Expression::Number(value) => *value,
            Expression::Measurement(measurement) => return self.measurement(measurement),
            Expression::Negate(inner) => -self.number(inner)?,
            Expression::Arithmetic(operator, left, right) => {
                let (left, right) = (self.number(left)?, self.number(right)?);
                match operator {
                    Arithmetic::Add => left + right,
                    Arithmetic::Subtract => left - right,
                    Arithmetic::Multiply => left * right,
                    Arithmetic::Divide if right == 0.0 => {
                        return Err(format!("{left} divided by zero"));
                    }
                    Arithmetic::Divide => left / right,
                }
            }
            Expression::Compare(..) | Expression::And(..) => {
                return Err("a comparison is no number to calculate with".to_owned());
            }
            Expression::Extreme(extreme, members) => {
                let mut values = members.iter().map(|member| self.number(member));
                let first = values.next().ok_or("min and max need an argument")??;
                values.try_fold(first, |best, value| {
                    value.map(|value| match extreme {
                        Extreme::Min => best.min(value),
                        Extreme::Max => best.max(value),
                    })
                })?
            }
            Expression::Aggregate(aggregate, measurement) => {
                self.aggregate(*aggregate, measurement)?
            }
            Expression::Counter(value) => {
                let counters = &self.host(value)?.values;
                *counters
                    .get(&value.name)
                    .ok_or_else(|| missing(value, "counter", counters.keys()))?
                    as f64
            }
            Expression::HostRatio(value) => {
                let ratios = &self.host(value)?.ratios;
                *ratios
                    .get(&value.name)
                    .ok_or_else(|| missing(value, "ratio", ratios.keys()))?
            }
            Expression::State { label, name } => self.state(label, name)?,
            Expression::Series { label, name, part } => {
                network::series(self.network(label)?, name, *part)?
            }
            Expression::Parameter {
                profile,
                section,
                name,
            } => self.world.parameter(profile, section, name)?,
            Expression::RequestBytes(request) => match request.bus {
                Bus::Network => self.world.network_bytes(request)? as f64,
                Bus::Pcie => self.world.pcie_bytes(request)? as f64,
            },
            Expression::Cells { label, cells } => self.cells(label, *cells)?,
            Expression::Model {
                system,
                name,
                arguments,
            } => self.world.model(system, name, arguments)?,
        };
        finite(value)
    }

    /// A figure of one tenant, or of what stands in its place in other runs.
    fn measurement(&self, measurement: &Measurement) -> Result<f64, String> {
        let (tenant, name) = (&measurement.tenant, &measurement.field);
        let run = match self.run(&measurement.label)? {
            RunOutcome::Hosts(run) => run,
            RunOutcome::Network(run) => return network::value(run, tenant, name),
            RunOutcome::Nic(run) => return run.value(tenant, name),
            RunOutcome::Hunt(run) => return run.value(tenant, name),
            RunOutcome::Lab(run) => return run.value(tenant, name),
            RunOutcome::Memory(run) => return memory::value(run, tenant, name),
        };
        let found = run.tenant(tenant).ok_or_else(|| {
            let names: Vec<_> = run.tenants.iter().map(|t| t.name.as_str()).collect();
            format!(
                "run {:?} has no tenant {tenant:?}: it has {}",
                measurement.label,
                names.join(", ")
            )
        })?;
        finite(field(found, measurement)?)
    }

    /// A figure of the policy of a run.
    fn state(&self, label: &str, name: &str) -> Result<f64, String> {
        let what = match self.run(label)? {
            RunOutcome::Hosts(run) => Ok(&run.policy_state),
            RunOutcome::Network(run) => Ok(&run.policy_state),
            RunOutcome::Nic(_) => Err("is one of a network card"),
            RunOutcome::Hunt(_) => Err("is a hunt"),
            RunOutcome::Lab(_) => Err("is a proof of the lab"),
            RunOutcome::Memory(_) => Err("is one of tiered memory"),
        };
        let state =
            what.map_err(|what| format!("run {label:?} {what}: it has no policy's figures"))?;
        state.get(name).copied().ok_or_else(|| {
            format!(
                "the policy of run {label:?} has no figure {name:?}{}",
                crate::error::nearest(name, state.keys().map(String::as_str))
            )
        })
    }

    /// A count of the cells of an audit.
    fn cells(&self, label: &str, cells: Cells) -> Result<f64, String> {
        let findings = self.audits.get(label);
        let findings = findings.ok_or_else(|| format!("no audit is labelled {label:?}"))?;
        match cells {
            Cells::Judged => Ok(findings.judged() as f64),
            Cells::Violations if findings.judged() == 0 => {
                Err(format!("no cell of audit {label:?} applies to the device"))
            }
            Cells::Violations => Ok(findings.violations() as f64),
        }
    }

    fn aggregate(&self, aggregate: Aggregate, measurement: &Measurement) -> Result<f64, String> {
        let values = match self.run(&measurement.label)? {
            RunOutcome::Hosts(run) => run
                .tenants
                .iter()
                .filter(|tenant| glob::matches(&measurement.tenant, &tenant.name))
                .map(|tenant| field(tenant, measurement))
                .collect::<Result<Vec<f64>, String>>()?,
            RunOutcome::Network(run) => {
                network::matching(run, &measurement.tenant, &measurement.field)?
            }
            RunOutcome::Nic(run) => vec![run.value(&measurement.tenant, &measurement.field)?],
            RunOutcome::Hunt(run) => vec![run.value(&measurement.tenant, &measurement.field)?],
            RunOutcome::Lab(run) => vec![run.value(&measurement.tenant, &measurement.field)?],
            RunOutcome::Memory(run) => run
                .apps
                .iter()
                .filter(|app| glob::matches(&measurement.tenant, &app.name))
                .map(|app| memory::value(run, &app.name, &measurement.field))
                .collect::<Result<Vec<f64>, String>>()?,
        };
        if values.is_empty() {
            return Err(format!(
                "nothing of run {:?} matches {:?}",
                measurement.label, measurement.tenant
            ));
        }
        let (count, sum) = (values.len() as f64, values.iter().sum::<f64>());
        Ok(match aggregate {
            Aggregate::Sum => sum,
            Aggregate::Mean => sum / count,
            Aggregate::Lowest => values.iter().copied().fold(f64::INFINITY, f64::min),
            Aggregate::Highest => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Aggregate::Jain => {
                let squares: f64 = values.iter().map(|value| value * value).sum();
                if squares == 0.0 {
                    return Err("Jain's index of zeros".to_owned());
                }
                sum * sum / (count * squares)
            }
        })
    }

    fn run(&self, label: &str) -> Result<&RunOutcome, String> {
        self.runs
            .get(label)
            .copied()
            .ok_or_else(|| format!("no run is labelled {label:?}"))
    }

    fn hosts(&self, label: &str) -> Result<&RunResult, String> {
        match self.run(label)? {
            RunOutcome::Hosts(run) => Ok(run),
            RunOutcome::Network(_) => {
                Err(format!("run {label:?} is one of a network: it has no NICs"))
            }
            RunOutcome::Nic(_) => Err(format!(
                "run {label:?} is one of a network card: it has no RDMA hosts"
            )),
            RunOutcome::Hunt(_) => Err(format!("run {label:?} is a hunt: it has no RDMA hosts")),
            RunOutcome::Lab(_) => Err(format!(
                "run {label:?} is a proof of the lab: it has no counters"
            )),
            RunOutcome::Memory(_) => Err(format!(
                "run {label:?} is one of tiered memory: it has no RDMA hosts"
            )),
        }
    }

    fn network(&self, label: &str) -> Result<&FabricResult, String> {
        match self.run(label)? {
            RunOutcome::Network(run) => Ok(run),
            RunOutcome::Hosts(_) => Err(format!(
                "run {label:?} is one of RDMA hosts: it has no series"
            )),
            RunOutcome::Nic(_) => Err(format!(
                "run {label:?} is one of a network card: it has no series"
            )),
            RunOutcome::Hunt(_) => Err(format!("run {label:?} is a hunt: it has no series")),
            RunOutcome::Lab(_) => Err(format!(
                "run {label:?} is a proof of the lab: it has no series"
            )),
            RunOutcome::Memory(_) => Err(format!(
                "run {label:?} is one of tiered memory: its series is no network's"
            )),
        }
    }

    fn host(&self, value: &HostValue) -> Result<&HostCounters, String> {
        self.hosts(&value.label)?
            .counters
            .iter()
            .find(|counters| counters.host == value.host)
            .ok_or_else(|| format!("run {:?} has no counters of that host", value.label))
    }
}

fn finite(value: f64) -> Result<f64, String> {
    if value.is_finite() {
        Ok(value)
    } else {
        Err("the result is not a finite number".to_owned())
    }
}

fn missing<'a>(value: &HostValue, kind: &str, names: impl Iterator<Item = &'a String>) -> String {
    format!(
        "run {:?} has no {kind} {:?}{}",
        value.label,
        value.name,
        crate::error::nearest(&value.name, names.map(String::as_str))
    )
}

fn field(tenant: &TenantResult, measurement: &Measurement) -> Result<f64, String> {
    let name = measurement.field.as_str();
    if let Some(part) = name.strip_prefix("latency_us.") {
        let latency = tenant.latency_us.as_ref().ok_or_else(|| {
            format!(
                "tenant {:?} completed no measured message in run {:?}",
                tenant.name, measurement.label
            )
        })?;
        return Ok(match part {
            "samples" => latency.samples as f64,
            "min" => latency.min,
            "mean" => latency.mean,
            "p50" => latency.p50,
            "p99" => latency.p99,
            "p999" => latency.p999,
            "max" => latency.max,
            _ => return Err(super::unknown_field(name)),
        });
    }
    let application = || {
        let run = &measurement.label;
        let none = || format!("tenant {:?} of run {run:?} is no application", tenant.name);
        tenant.application.as_ref().ok_or_else(none)
    };
    let [lowest, median, highest] = tenant.queue_pair_gbps;
    Ok(match name {
        "offered_gbps" => tenant.offered_gbps.ok_or_else(|| {
            format!(
                "tenant {:?} is a closed loop: it offers what it gets",
                tenant.name
            )
        })?,
        "goodput_gbps" => tenant.goodput_gbps,
        "wire_gbps" => tenant.wire_gbps,
        "message_rate_per_s" => tenant.message_rate_per_s,
        "control_rate_per_s" => tenant.control_rate_per_s,
        "share" => tenant.share,
        "policy_cores" => tenant.policy_cores,
        "errors" => tenant.errors as f64,
        "operations_per_s" => application()?.operations_per_s,
        "operation_us.p99" => {
            let latency = application()?.operation_us.as_ref();
            latency
                .ok_or_else(|| format!("tenant {:?} completed no operation", tenant.name))?
                .p99
        }
        "queue_pair_gbps.min" => lowest,
        "queue_pair_gbps.median" => median,
        "queue_pair_gbps.max" => highest,
        "queue_pair_gbps.max_over_min" if lowest > 0.0 => highest / lowest,
        "queue_pair_gbps.max_over_min" => {
            return Err(format!(
                "a queue pair of tenant {:?} got nothing",
                tenant.name
            ));
        }
        _ => return Err(super::unknown_field(name)),
    })
}
