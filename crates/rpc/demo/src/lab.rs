//! The three runs in order, the objectives between them, and the verdicts.
//!
//! Objectives (as in section 3.6.11): the latency that the given percentile of the calls kept while the applications
//! requested the target mix, by class, but not less than the theory's bound: one call at the class's guaranteed rate
//! plus the worst queueing delay of that mix. No objective is set by hand. Increment: with the paper's steps,
//! probabilities come to rest where each channel misses about once in an objective's time divided by the allowed part
//! of misses; a channel with less than a call in that time (here: tens of calls a second, not tens of thousands) would
//! therefore miss too large a part. The increment is the paper's times the calls that a channel has in an objective's
//! time, at most the paper's. Verdicts compare parts of calls with what is allowed, with three standard errors of
//! grace: so few calls are never exact.

use crate::error::LabError;
use crate::fleet::{Commands, Language, Program, Role};
use crate::job::{
    Admission, AdmissionClass, Call, ClientJob, ClientResult, Ready, ServerJob, ServerResult, Start,
};
use crate::measure::{self, class_percentile};
use crate::network::{ClassCount, Network};
use crate::plan::{CLASSES, CONTROLLED, Plan};
use crate::report::{ClientReport, Objective, Report, RunKind, RunReport};
use crate::{twin, verdict};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Version of the report.
pub const VERSION: u32 = 3;

/// What a lab needs in addition to its plan.
pub struct Setting<'a> {
    /// Commands that start the programs.
    pub commands: &'a Commands,
    /// The clients; each calls the server of the next one's language.
    pub languages: &'a [Language],
    /// Shadow mode in the last run: decide and report, but do not downgrade.
    pub shadow: bool,
    /// Keep the namespaces.
    pub keep: bool,
    /// Set when the user interrupts.
    pub interrupted: &'a AtomicBool,
    /// Receives progress messages.
    pub progress: &'a dyn Fn(&str),
}

/// Results of the programs and the port in one run.
pub(crate) struct Outcome {
    pub(crate) clients: Vec<ClientResult>,
    pub(crate) servers: Vec<ServerResult>,
    pub(crate) port: Vec<ClassCount>,
}

/// One run to do.
struct Order<'a> {
    mix: [f64; CLASSES],
    length_ms: u64,
    admission: Option<&'a Admission>,
}

/// Time limit for the start of programs on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Delay between the last "ready" and the first call.
const LEAD: Duration = Duration::from_millis(150);
/// How long clients wait for the last answers; the lowest class may lag far behind.
const DRAIN: Duration = Duration::from_secs(10);
/// Calls in this time from the start are not counted in latencies, because connections are still speeding up.
const WARM_US: u64 = 1_000_000;
/// Steps of the paper's experiments (3.6.1).
const STEP: f64 = 0.01;
/// Smallest admit probability, as in the public simulator.
const FLOOR: f64 = 0.1;

/// Runs the lab and removes its network in any case. Fails if the machine lacks something, a program fails, or the user
/// interrupts.
pub fn run(plan: &Plan, setting: &Setting<'_>) -> Result<Report, LabError> {
    plan.check()?;
    let begin = Instant::now();
    (setting.progress)("making namespaces, links and the port");
    let network = Network::build(plan, setting.languages.len(), setting.keep)?;
    let lab = Lab {
        plan,
        setting,
        network: &network,
    };
    let report = lab.runs()?;
    Ok(Report {
        seconds: begin.elapsed().as_secs_f64(),
        kept: network.hint(),
        ..report
    })
}

struct Lab<'a> {
    plan: &'a Plan,
    setting: &'a Setting<'a>,
    network: &'a Network,
}

impl Lab<'_> {
    fn runs(&self) -> Result<Report, LabError> {
        let plan = self.plan;
        let say = self.setting.progress;
        say("run 1 of 3: the target mix, whose latencies become the objectives");
        let order = Order {
            mix: plan.target_mix,
            length_ms: plan.target_ms,
            admission: None,
        };
        let target = self.one(&order)?;
        let objectives = self.objectives(&target, &self.jobs(&order))?;
        say("run 2 of 3: the mix that applications request, without admission control");
        let without = self.one(&Order {
            mix: plan.asked_mix,
            length_ms: plan.without_ms,
            admission: None,
        })?;
        say("run 3 of 3: the same with admission control");
        let admission = self.admission(&objectives);
        let order = Order {
            mix: plan.asked_mix,
            length_ms: plan.with_ms,
            admission: Some(&admission),
        };
        let with = self.one(&order)?;
        let last = match self.setting.shadow {
            true => RunKind::Shadow,
            false => RunKind::With,
        };
        let settle_us = plan.settle_ms * 1000;
        let mut runs = vec![
            self.report(RunKind::Target, &target, WARM_US, &objectives)?,
            self.report(RunKind::Without, &without, WARM_US, &objectives)?,
            self.report(last, &with, settle_us, &objectives)?,
        ];
        if last == RunKind::With {
            let chance = twin::chance(plan, &self.jobs(&order), settle_us);
            runs[2].chance = Some(chance);
        }
        let verdicts = verdict::all(plan, &runs, &objectives);
        Ok(Report {
            version: VERSION,
            plan: plan.clone(),
            clients: self.setting.languages.to_vec(),
            objectives,
            passed: verdicts.iter().all(|verdict| verdict.passed),
            verdicts,
            runs,
            seconds: 0.0,
            kept: None,
        })
    }

    /// Starts all programs, runs the clients, and collects results.
    fn one(&self, order: &Order<'_>) -> Result<Outcome, LabError> {
        let Setting {
            commands,
            languages,
            interrupted,
            ..
        } = self.setting;
        let before = self.network.counts(CLASSES)?;
        let limit = Instant::now() + START_LIMIT;
        let mut servers = Vec::new();
        for (index, &language) in languages.iter().enumerate() {
            let space = self.network.servers();
            let mut server = Program::start(commands, language, Role::Server, &space)?;
            server.send(&ServerJob {
                listen: Network::server_address(index),
            })?;
            servers.push(server);
        }
        for server in &servers {
            server.receive::<Ready>(limit, interrupted)?;
        }
        let mut clients = Vec::new();
        for (index, &language) in languages.iter().enumerate() {
            let space = self.network.client(index);
            let mut client = Program::start(commands, language, Role::Client, &space)?;
            client.send(&self.job(order, index))?;
            clients.push(client);
        }
        for client in &clients {
            client.receive::<Ready>(limit, interrupted)?;
        }
        let start = Start {
            start_unix_us: unix_us() + LEAD.as_micros() as u64,
        };
        for client in &mut clients {
            client.send(&start)?;
        }
        let limit = Instant::now() + LEAD + Duration::from_millis(order.length_ms) + 2 * DRAIN;
        let results: Result<Vec<ClientResult>, LabError> = clients
            .iter()
            .map(|client| client.receive(limit, interrupted))
            .collect();
        let clients = results?;
        for server in &mut servers {
            server.close();
        }
        let limit = Instant::now() + START_LIMIT;
        let results: Result<Vec<ServerResult>, LabError> = servers
            .iter()
            .map(|server| server.receive(limit, interrupted))
            .collect();
        let after = self.network.counts(CLASSES)?;
        Ok(Outcome {
            clients,
            servers: results?,
            port: after
                .iter()
                .zip(&before)
                .map(|(now, then)| now.since(then))
                .collect(),
        })
    }

    fn jobs(&self, order: &Order<'_>) -> Vec<ClientJob> {
        let clients = 0..self.setting.languages.len();
        clients.map(|index| self.job(order, index)).collect()
    }

    fn job(&self, order: &Order<'_>, index: usize) -> ClientJob {
        let plan = self.plan;
        let count = self.setting.languages.len();
        ClientJob {
            server: Network::server_address((index + 1) % count),
            call_bytes: plan.call_bytes,
            period_us: plan.period_ms * 1000,
            burst_us: plan.burst_us(),
            burst_calls_per_s: plan.burst_calls_per_s() / count as f64,
            mix: order.mix,
            dscp: plan.dscp,
            issue_us: order.length_ms * 1000,
            drain_us: DRAIN.as_micros() as u64,
            seed: plan.seed.wrapping_mul(1000) + index as u64,
            admission: order.admission.cloned(),
        }
    }

    /// Derives objectives from the run at the target mix, whose clients had `jobs`.
    fn objectives(&self, target: &Outcome, jobs: &[ClientJob]) -> Result<Vec<Objective>, LabError> {
        let plan = self.plan;
        let theory = self.theory(&plan.target_mix)?;
        let calls = target.calls(WARM_US);
        let mut ideal = twin::play(plan, jobs);
        ideal.retain(|call| call.3 >= WARM_US);
        let clients = self.setting.languages.len() as f64;
        let one = |class: usize| {
            let measured_us = class_percentile(&calls, class, plan.percentile).unwrap_or(0);
            let theory_us = theory.guaranteed_us[class] + theory.delay_us[class];
            let slo_us = (measured_us as f64).max(theory_us);
            let per_mtu_us = slo_us / f64::from(plan.call_mtus());
            let calls_per_slo =
                plan.calls_per_s() * plan.target_mix[class] / clients * slo_us / 1e6;
            Objective {
                class,
                slo_ms: slo_us / 1000.0,
                measured_ms: measured_us as f64 / 1000.0,
                theory_ms: theory_us / 1000.0,
                model_ms: class_percentile(&ideal, class, plan.percentile).unwrap_or(0) as f64
                    / 1000.0,
                per_mtu_us,
                percentile: plan.percentile,
                increment: STEP * calls_per_slo.min(1.0),
            }
        };
        Ok((0..CONTROLLED).map(one).collect())
    }

    fn admission(&self, objectives: &[Objective]) -> Admission {
        let class = |objective: &Objective| AdmissionClass {
            target_per_mtu_us: objective.per_mtu_us,
            percentile: objective.percentile,
            increment: objective.increment,
            decrement_per_mtu: STEP,
            floor: FLOOR,
        };
        Admission {
            shadow: self.setting.shadow,
            mtu_bytes: self.plan.mtu_bytes(),
            classes: objectives.iter().map(class).collect(),
        }
    }

    fn theory(&self, mix: &[f64; CLASSES]) -> Result<crate::plan::Theory, LabError> {
        self.plan
            .theory(mix)
            .map_err(|error| LabError::Input(error.to_string()))
    }

    fn report(
        &self,
        kind: RunKind,
        outcome: &Outcome,
        from_us: u64,
        objectives: &[Objective],
    ) -> Result<RunReport, LabError> {
        let plan = self.plan;
        let calls = outcome.calls(from_us);
        let all = outcome.calls(0);
        let period_us = plan.period_ms * 1000;
        let asked = match kind {
            RunKind::Target => &plan.target_mix,
            _ => &plan.asked_mix,
        };
        let misses = objectives.iter().map(|objective| {
            measure::misses(&calls, objective.class, objective.slo_us(), period_us)
        });
        let sum = |of: fn(&ClientResult) -> u64| outcome.clients.iter().map(of).sum();
        let servers = |of: fn(&ServerResult) -> u64| outcome.servers.iter().map(of).sum();
        Ok(RunReport {
            kind,
            from_ms: from_us / 1000,
            classes: measure::classes(&calls),
            misses: misses.collect(),
            mix_asked: measure::mix(&calls, |call| call.0),
            mix_ran: measure::mix(&calls, |call| call.1),
            mix_halves: verdict::halves(&calls),
            chance: None,
            issued: sum(|client| client.issued),
            answered: all.len() as u64,
            failed: sum(|client| client.failed),
            unanswered: sum(|client| client.unanswered),
            first_error: outcome
                .clients
                .iter()
                .find_map(|client| client.first_error.clone()),
            moved: all.iter().filter(|call| call.0 != call.1).count() as u64,
            notified: all.iter().filter(|call| call.2 == 1).count() as u64,
            served: servers(|server| server.calls),
            seen_downgraded: servers(|server| server.downgraded),
            ran: std::array::from_fn(|class| {
                all.iter()
                    .filter(|call| usize::from(call.1) == class)
                    .count() as u64
            }),
            port: outcome.port.clone(),
            late_ms_max: sum_max(&outcome.clients) as f64 / 1000.0,
            theory: self.theory(asked)?,
            clients: self.clients(outcome, from_us),
        })
    }

    fn clients(&self, outcome: &Outcome, from_us: u64) -> Vec<ClientReport> {
        let languages = self.setting.languages;
        let one = |(index, result): (usize, &ClientResult)| {
            let calls: Vec<Call> = result
                .calls
                .iter()
                .filter(|call| call.3 >= from_us)
                .copied()
                .collect();
            ClientReport {
                language: languages[index],
                server: languages[(index + 1) % languages.len()],
                mix_ran: measure::mix(&calls, |call| call.1),
                classes: measure::classes(&calls),
                probability: result.probability.clone(),
                late_ms_max: result.late_us_max as f64 / 1000.0,
            }
        };
        outcome.clients.iter().enumerate().map(one).collect()
    }
}

impl Outcome {
    /// All answered calls that were issued at `from_us` or later, in order of their issue.
    fn calls(&self, from_us: u64) -> Vec<Call> {
        let mut calls: Vec<Call> = self
            .clients
            .iter()
            .flat_map(|client| &client.calls)
            .filter(|call| call.3 >= from_us)
            .copied()
            .collect();
        calls.sort_unstable_by_key(|call| call.3);
        calls
    }
}

fn sum_max(clients: &[ClientResult]) -> u64 {
    clients
        .iter()
        .map(|client| client.late_us_max)
        .max()
        .unwrap_or(0)
}

fn unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_micros() as u64
}
