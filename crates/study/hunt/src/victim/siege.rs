//! Experiments of one victim beside one attacker, on any testbed.
//!
//! A run lasts as long as the policy needs to act, then for a measured time: a few hundred microseconds on a simulated device.
//! Where the victim's goodput does not stay the same, it lasts up to four times that ([`crate::experiment`]). Victim and
//! attacker share both hosts, on one switch.

use super::{Alone, Owed, RETAINED};
use crate::HuntError;
use crate::experiment::{Beside, Measured, Target, best_quarter, counters, is_steady};
use crate::space::convert::{SAMPLES, Times, tenant, workloads_text};
use crate::space::point::{self, Point};
use crate::vocabulary;
use isolane_common_quantities::stats::summary::median;
use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::model::{Class, PolicySpec, Scenario, Tenant, Traffic};
use isolane_rdma_scenario::profile::Profile;
use isolane_rdma_scenario::stack::honours_weights;
use isolane_study_audit::cell::Metrics;
use isolane_study_audit::constants::settling;
use isolane_study_audit::exhaustion::{Pressure, exhausted};
use isolane_study_audit::plan::{TENANTS, TOPOLOGY};
use isolane_study_audit::predicate::{Capacity, Judged, Part, Predicate};
use isolane_study_audit::tenants::OVER_SOLO;
use isolane_study_results::rdma::{RunResult, Settling};
use isolane_study_testbed::Testbed;

/// How often a run that is not steady is done again, twice as long each time.
const EXTENSIONS: u32 = 2;
/// Runs of the victim alone.
const ALONE_SEEDS: u64 = 3;
/// Name of the attacker's tenant.
const ATTACKER: &str = "attacker";

/// What a siege is of.
pub struct SiegeOptions<'a> {
    /// Where it runs.
    pub testbed: &'a dyn Testbed,
    /// The device.
    pub profile: &'a Profile,
    /// The victim.
    pub victim: Tenant,
    /// The policy that is to protect it.
    pub policy: PolicySpec,
    /// Tolerated loss of what it is owed.
    pub alpha: f64,
    /// Whether attackers beyond their guarantee count too.
    pub beyond: bool,
    /// The first run of an experiment.
    pub times: Times,
    /// Whether equal experiments differ, as on real devices ([`crate::experiment::Lab::is_noisy`]).
    pub is_noisy: bool,
}

/// See the module.
pub struct Siege<'a> {
    name: String,
    options: SiegeOptions<'a>,
    alone: Alone,
    owed: Owed,
}

impl<'a> Siege<'a> {
    /// Times of the first run on a simulated device; a policy may need a longer warm-up.
    pub const SIMULATED: Times = Times {
        warmup: Duration::from_us(150),
        duration: Duration::from_us(300),
    };

    /// Begins one; `known` is what the victim does alone, where that was measured before. Fails for a victim that
    /// cannot be judged, or a run that failed.
    pub fn lay(
        options: SiegeOptions<'a>,
        seed: u64,
        known: Option<Alone>,
    ) -> Result<Self, HuntError> {
        let refuse = |problem: String| HuntError::Victim {
            victim: options.victim.name.clone(),
            problem,
        };
        let applications = |tenant: &Tenant| {
            let mut all = tenant.workloads.iter();
            all.any(|workload| !matches!(workload.traffic, Traffic::Data(_)))
        };
        if applications(&options.victim) {
            return Err(refuse(
                "must be data traffic: applications and control verbs are audited by `isolane audit --scenario`"
                    .to_owned(),
            ));
        }
        let alone = match known {
            Some(alone) => alone,
            None => alone_of(&options, seed)?,
        };
        let mine = options.victim.weight;
        let part = match honours_weights(&options.policy.name) {
            true => Part {
                weight: mine,
                sum: mine + 1,
            },
            false => Part::one_of(TENANTS),
        };
        let judged = match options.victim.class {
            Class::Latency => Judged::Latency {
                over_solo: OVER_SOLO,
            },
            _ => Judged::Rate(Capacity::of(options.profile, &options.victim)),
        };
        let predicate = Predicate::Share {
            alpha: options.alpha,
            part,
        };
        let expected = predicate.expected(judged, &alone.metrics, &alone.metrics);
        let owed = Owed {
            victim: options.victim.name.clone(),
            policy: options.policy.name.clone(),
            judged,
            predicate,
            alone: alone.metrics,
            attacker_part: 1.0 - part.of(1.0),
            beyond: options.beyond,
            rule: expected.map_err(refuse)?.rule,
        };
        Ok(Self {
            name: format!("{}:{}", options.testbed.name(), options.profile.name),
            options,
            alone,
            owed,
        })
    }

    /// What the victim is owed.
    pub fn owed(&self) -> &Owed {
        &self.owed
    }

    /// What the victim does alone.
    pub fn alone(&self) -> &Alone {
        &self.alone
    }

    /// The attack `point` as a scenario file: `victim`, the text of the victim's own, with the attacker beside it.
    /// Fails if that text is no TOML.
    pub fn scenario_text(
        &self,
        point: &Point,
        victim: &str,
        (name, description): (&str, &str),
        seed: u64,
    ) -> Result<String, String> {
        let mut file: toml::Table = victim.parse().map_err(|error| format!("{error}"))?;
        let scenario = scenario(&self.options, Some(point), seed, EXTENSIONS.min(1));
        let time = |duration: Duration| toml::Value::String(duration.exact());
        let text = |text: &str| toml::Value::String(text.to_owned());
        let mut policy = toml::Table::new();
        policy.insert("name".to_owned(), text(&self.options.policy.name));
        for (key, value) in &self.options.policy.parameters {
            policy.insert(key.clone(), toml::Value::Float(*value));
        }
        for (key, value) in [
            ("name", text(name)),
            ("description", text(description)),
            ("profile", text(&self.options.profile.name)),
            ("topology", text("switch")),
            ("warmup", time(scenario.warmup)),
            ("duration", time(scenario.duration)),
            ("seed", toml::Value::Integer(seed as i64)),
            ("policy", toml::Value::Table(policy)),
        ] {
            file.insert(key.to_owned(), value);
        }
        file.remove("sample_interval");
        let mut attacker = format!("[[tenant]]\nname = {ATTACKER:?}\nclass = \"bandwidth\"\n");
        workloads_text(&mut attacker, point);
        let attacker: toml::Table = attacker.parse().expect("our own text is TOML");
        let tenants = attacker["tenant"].as_array().cloned().unwrap_or_default();
        if let Some(all) = file.get_mut("tenant").and_then(toml::Value::as_array_mut) {
            all.extend(tenants);
        }
        Ok(file.to_string())
    }
}

impl Target for Siege<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn measure(&self, point: &Point, seed: u64) -> Result<Measured, HuntError> {
        let result = steady(&self.options, Some(point), seed)?;
        let link_gbps = self.options.profile.value("link", "rate_gbps");
        let mut measured = condense(&result, point, &self.alone, link_gbps);
        if self.options.is_noisy && !measured.steady {
            measured.best_quarter = best_quarter(result.tenants.get(..1).unwrap_or_default());
        }
        let retained = self.owed.judge(&measured).retained;
        measured
            .counters
            .insert(RETAINED.to_owned(), retained.unwrap_or(0.0));
        Ok(measured)
    }
}

/// Runs `point` beside the victim, or the victim alone, until the victim is steady.
fn steady(
    options: &SiegeOptions<'_>,
    point: Option<&Point>,
    seed: u64,
) -> Result<RunResult, HuntError> {
    let mut doubled = 0;
    loop {
        let scenario = scenario(options, point, seed, doubled);
        let mut result = options.testbed.run(&scenario, options.profile)?;
        let victim = result.tenants.first();
        let is_steady = victim.is_some_and(|v| is_steady(&v.goodput_series_gbps));
        if doubled == EXTENSIONS || is_steady {
            result.settling = Some(Settling {
                settled: is_steady,
                settled_after_us: scenario.warmup.as_us_f64(),
                measured_us: scenario.duration.as_us_f64(),
                cap_us: (scenario.warmup + (options.times.duration * (1 << EXTENSIONS)))
                    .as_us_f64(),
                tenants: Vec::new(),
            });
            return Ok(result);
        }
        doubled += 1;
    }
}

fn scenario(
    options: &SiegeOptions<'_>,
    point: Option<&Point>,
    seed: u64,
    doubled: u32,
) -> Scenario {
    let factor = 1u64 << doubled;
    let duration = options.times.duration * factor;
    let mut tenants = vec![options.victim.clone()];
    tenants.extend(point.map(|point| tenant(point, ATTACKER)));
    Scenario {
        topology: TOPOLOGY,
        warmup: options
            .times
            .warmup
            .max(settling(&options.policy, options.profile)),
        seed,
        sample_interval: Duration::from_ps((duration.as_ps() / SAMPLES).max(1)),
        policy: options.policy.clone(),
        ..Scenario::plain("hunt", &options.profile.name, duration, tenants)
    }
}

/// Medians of the victim alone.
fn alone_of(options: &SiegeOptions<'_>, seed: u64) -> Result<Alone, HuntError> {
    let mut runs = Vec::new();
    for more in 0..ALONE_SEEDS {
        runs.push(steady(options, None, seed.wrapping_add(more) >> 1)?);
    }
    let all: Vec<Metrics> = runs
        .iter()
        .filter_map(|run| run.tenants.first().map(Metrics::from))
        .collect();
    let of = |value: fn(&Metrics) -> Option<f64>| {
        let values: Vec<f64> = all.iter().filter_map(value).collect();
        median(&values)
    };
    let metrics = Metrics {
        goodput_gbps: of(|m| Some(m.goodput_gbps)).unwrap_or(0.0),
        message_rate_per_s: of(|m| Some(m.message_rate_per_s)).unwrap_or(0.0),
        control_rate_per_s: 0.0,
        p50_us: of(|m| m.p50_us),
        p99_us: of(|m| m.p99_us),
        ..Metrics::default()
    };
    let first = runs.first().map_or(&[][..], |run| &run.counters[..]);
    Ok(Alone {
        metrics,
        ratios: Pressure::from(first).hosts,
    })
}

fn condense(result: &RunResult, point: &Point, alone: &Alone, link_gbps: f64) -> Measured {
    let seconds = result.measured_s;
    let (victim, attacker) = (result.tenants.first(), result.tenants.get(1));
    let taken = attacker.map_or(0.0, |tenant| tenant.wire_gbps) * on_one_link(point);
    let before = Pressure {
        hosts: alone.ratios.clone(),
    };
    let after = Pressure::from(&result.counters[..]);
    let out = exhausted(&before, &after, true).map(|exhausted| exhausted.resource);
    let counters = counters(&result.counters, seconds);
    let mut names = vocabulary::PAUSE_US.iter();
    let paused_us = names.find_map(|name| counters.get(*name));
    Measured {
        pause_ratio: paused_us.copied().unwrap_or(0.0) / 1e6,
        messages_per_s: victim.map_or(0.0, |tenant| tenant.message_rate_per_s),
        steady: victim.is_some_and(|tenant| is_steady(&tenant.goodput_series_gbps)),
        settled_after_us: result.settling.as_ref().map(|one| one.settled_after_us),
        measured_us: Some(seconds * 1e6),
        p99_us: victim.and_then(|tenant| tenant.latency_us.as_ref().map(|l| l.p99)),
        beside: Some(Beside {
            victim: victim.map(Metrics::from).unwrap_or_default(),
            link_share: taken / link_gbps,
            exhausted: out,
        }),
        counters,
        ..Measured::default()
    }
}

/// Part of the attacker's traffic that one direction of one link carries.
fn on_one_link(point: &Point) -> f64 {
    match point.direction {
        _ if point.control != 0 => 0.0,
        point::INSIDE_A | point::INSIDE_B => 0.0,
        point::BIDIRECTIONAL | point::LOOPBACK => 0.5,
        _ => 1.0,
    }
}
