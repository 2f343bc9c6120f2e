//! Runs a scenario under every policy, ranks the policies, and runs what explains their misses.
//!
//! Two rounds: all tenants together under every policy with every seed; then, for each tenant that misses an objective
//! under a policy, the first seed again with the tenant alone, and without each of the others in turn. Runs of a round
//! are independent and are put together by position, so that the number of workers cannot show.

use crate::RecommendError;
use crate::advice::{advice, rank};
use crate::cause::{Evidence, miss};
use crate::derive;
use crate::needs::objectives;
use crate::result::{
    Objective, ObjectiveOutcome, PolicyOutcome, RECOMMENDATION_VERSION, Recommendation,
    TenantNeeds, TenantOutcome,
};
use isolane_common_quantities::settle::{Demand, Limit};
use isolane_common_quantities::stats::summary::median;
use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::model::{PolicySpec, Scenario, Tenant};
use isolane_rdma_scenario::profile::Profile;
use isolane_rdma_scenario::stack;
use isolane_study_audit::cell::Metrics;
use isolane_study_audit::constants::settling;
use isolane_study_audit::matrix::LeftOut;
use isolane_study_audit::predicate::Capacity;
use isolane_study_audit::settled;
use isolane_study_results::rdma::{RunResult, TenantSettling};
use isolane_study_results::settling::SettlingSummary;
use isolane_study_testbed::{Testbed, TestbedError};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

/// What is compared with no policy at all.
const BASE: &str = "none";

/// A question: these tenants, under these policies, on this device.
#[derive(Clone, Debug)]
pub struct Question {
    /// The tenants, with the times of their runs; its policy and seed do not count.
    pub scenario: Scenario,
    /// The device.
    pub profile: Profile,
    /// Policies to compare.
    pub policies: Vec<PolicySpec>,
    /// Policies known not to fit the device.
    pub left_out: Vec<LeftOut>,
    /// Run seeds, at least one.
    pub seeds: Vec<u64>,
    /// Simulated time after which a run ends, settled or not; without it the scenario's times are fixed.
    pub cap: Option<Duration>,
    /// A command line that asks it again.
    pub rerun: String,
    /// Whether the advice may be a policy that needs hardware that is not on sale.
    pub advises_not_on_sale: bool,
}

/// Called after every run with the runs done and the runs known to be needed. The second number grows when a tenant
/// misses an objective.
pub type OnProgress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// Runs `question` on `testbed` with `jobs` workers. Fails if no tenant has an SLO and none completes a message alone,
/// no policy can run, or a run breaks.
pub fn run(
    question: &Question,
    testbed: &dyn Testbed,
    jobs: usize,
    on_progress: OnProgress<'_>,
) -> Result<Recommendation, RecommendError> {
    let scenario = &question.scenario;
    let needs = scenario.tenants.iter().map(|tenant| TenantNeeds {
        name: tenant.name.clone(),
        weight: tenant.weight,
        objectives: objectives(tenant),
        derived: false,
    });
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(jobs.max(1))
        .thread_name(|index| format!("recommend-{index}"))
        .build()
        .map_err(|error| RecommendError::Workers {
            jobs,
            reason: error.to_string(),
        })?;
    let mut work = Work {
        question,
        testbed,
        on_progress,
        done: AtomicU64::new(0),
        needs: needs.collect(),
    };
    pool.install(|| {
        if work.needs.iter().all(|one| one.objectives.is_empty()) {
            work.needs = work.derived()?;
        }
        work.answer()
    })
}

/// Who takes part in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cast {
    All,
    Only(usize),
    Without(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Task {
    policy: usize,
    cast: Cast,
    seed: usize,
}

struct Work<'a> {
    question: &'a Question,
    testbed: &'a dyn Testbed,
    on_progress: OnProgress<'a>,
    done: AtomicU64,
    needs: Vec<TenantNeeds>,
}

impl Work<'_> {
    /// Objectives from runs of each tenant alone under no policy.
    fn derived(&self) -> Result<Vec<TenantNeeds>, RecommendError> {
        let scenario = &self.question.scenario;
        let weights = scenario.tenants.iter().map(|one| f64::from(one.weight));
        let weights: f64 = weights.sum();
        let tenants: Vec<usize> = (0..scenario.tenants.len()).collect();
        let needs = tenants.par_iter().map(|&index| {
            let tenant = &scenario.tenants[index];
            let mut alone = self.cast(Cast::Only(index));
            alone.policy = PolicySpec::named(BASE);
            alone.seed = self.question.seeds[0];
            let run = self.testbed.run(&alone, &self.question.profile)?;
            let part = f64::from(tenant.weight) / weights;
            let capacity = Capacity::of(&self.question.profile, tenant);
            Ok(TenantNeeds {
                name: tenant.name.clone(),
                weight: tenant.weight,
                objectives: derive::objectives(
                    tenant,
                    part,
                    capacity,
                    &Metrics::from(&run.tenants[0]),
                ),
                derived: true,
            })
        });
        let needs: Result<Vec<TenantNeeds>, RecommendError> = needs.collect();
        let needs = needs?;
        match needs.iter().all(|one| one.objectives.is_empty()) {
            true => Err(RecommendError::NoNeeds {
                scenario: scenario.name.clone(),
            }),
            false => Ok(needs),
        }
    }

    fn answer(&self) -> Result<Recommendation, RecommendError> {
        let question = self.question;
        let (together, left_out) = self.together()?;
        if together.is_empty() {
            let reasons = left_out.iter().map(|left| left.reason.as_str());
            return Err(RecommendError::NoPolicy {
                scenario: question.scenario.name.clone(),
                reasons: reasons.collect::<Vec<_>>().join("; "),
            });
        }
        let mut outcomes: Vec<(usize, PolicyOutcome)> = together
            .iter()
            .map(|(&policy, runs)| (policy, self.outcome(policy, runs)))
            .collect();
        let why = self.evidence(&outcomes, &together)?;
        for (policy, outcome) in &mut outcomes {
            self.explain(*policy, outcome, &together, &why);
        }
        let mut policies: Vec<PolicyOutcome> = outcomes.into_iter().map(|(_, one)| one).collect();
        // Stable: equals keep the order of the request.
        policies.sort_by_key(rank);
        let first = together
            .values()
            .flatten()
            .next()
            .expect("a policy has runs");
        Ok(Recommendation {
            version: RECOMMENDATION_VERSION,
            scenario: question.scenario.name.clone(),
            profile: question.profile.name.clone(),
            testbed: first.testbed.clone(),
            seeds: question.seeds.clone(),
            measured_us: question.scenario.duration.as_us_f64(),
            settling: settling_of(together.values().flatten()),
            advice: advice(&policies, question.advises_not_on_sale),
            tenants: self.needs.clone(),
            policies,
            left_out,
            rerun: question.rerun.clone(),
        })
    }

    /// All tenants under every policy with every seed. A policy that the testbed refuses for this scenario is left
    /// out; any other failure is an error.
    #[allow(clippy::type_complexity)]
    fn together(&self) -> Result<(BTreeMap<usize, Vec<RunResult>>, Vec<LeftOut>), RecommendError> {
        let tasks: Vec<Task> = (0..self.question.policies.len())
            .flat_map(|policy| {
                (0..self.question.seeds.len()).map(move |seed| Task {
                    policy,
                    cast: Cast::All,
                    seed,
                })
            })
            .collect();
        let results = self.round(&tasks);
        let mut runs: BTreeMap<usize, Vec<RunResult>> = BTreeMap::new();
        let mut left_out = self.question.left_out.clone();
        for (task, result) in tasks.iter().zip(results) {
            let policy = &self.question.policies[task.policy].name;
            match result {
                Ok(result) => runs.entry(task.policy).or_default().push(result),
                Err(error @ TestbedError::Broken { .. }) => return Err(error.into()),
                Err(error) if left_out.iter().any(|left| left.policy == *policy) => drop(error),
                Err(error) => left_out.push(LeftOut {
                    policy: policy.clone(),
                    reason: reason(&error),
                }),
            }
        }
        Ok((runs, left_out))
    }

    fn round(&self, tasks: &[Task]) -> Vec<Result<RunResult, TestbedError>> {
        let begun = self.done.load(Ordering::Relaxed);
        let total = begun + tasks.len() as u64;
        tasks
            .par_iter()
            .map(|task| {
                let scenario = self.scenario(task);
                let result = self.measure(&scenario);
                let done = 1 + self.done.fetch_add(1, Ordering::Relaxed);
                (self.on_progress)(done, total);
                result
            })
            .collect()
    }

    fn measure(&self, scenario: &Scenario) -> Result<RunResult, TestbedError> {
        let profile = &self.question.profile;
        let Some(cap) = self.question.cap else {
            return self.testbed.run(scenario, profile);
        };
        let demands: Vec<Demand> = scenario
            .tenants
            .iter()
            .map(|tenant| self.demand(tenant))
            .collect();
        settled::run(self.testbed, scenario, profile, (1, cap), &demands)
    }

    /// What has to be known of `tenant` when a run ends: on which side of its objectives it is.
    fn demand(&self, tenant: &Tenant) -> Demand {
        let needs = self.needs.iter().find(|needs| needs.name == tenant.name);
        let objectives = needs.map_or(&[][..], |needs| &needs.objectives);
        let limits: Option<Vec<Limit>> = objectives.iter().map(Objective::limit).collect();
        match limits {
            // It has none, or they will follow from what this run says that it gets alone.
            Some(limits) if limits.is_empty() => settled::demand(tenant),
            Some(limits) => Demand::Limits(limits),
            None => Demand::Latency,
        }
    }

    fn scenario(&self, task: &Task) -> Scenario {
        let mut scenario = self.cast(task.cast);
        scenario.policy = self.question.policies[task.policy].clone();
        scenario.seed = self.question.seeds[task.seed];
        match self.question.cap {
            Some(_) => settled::prepared(&scenario, &self.question.profile, 1),
            None => scenario,
        }
    }

    /// The scenario with those who take part.
    fn cast(&self, cast: Cast) -> Scenario {
        let mut scenario = self.question.scenario.clone();
        if self.question.cap.is_none() {
            scenario.warmup = self.settled();
        }
        let mut index = 0;
        scenario.tenants.retain(|_| {
            let stays = match cast {
                Cast::All => true,
                Cast::Only(one) => index == one,
                Cast::Without(one) => index != one,
            };
            index += 1;
            stays
        });
        scenario
    }

    /// Warm-up of every run with fixed times: the scenario's, or as long as the slowest of the policies needs, for all of
    /// them, so that none is measured in a later part of its tenants' lives than another.
    fn settled(&self) -> Duration {
        let question = self.question;
        let policies = question.policies.iter();
        policies
            .map(|policy| settling(policy, &question.profile))
            .fold(question.scenario.warmup, Duration::max)
    }

    fn outcome(&self, policy: usize, runs: &[RunResult]) -> PolicyOutcome {
        let spec = &self.question.policies[policy];
        let scenario = &self.question.scenario;
        let tenants: Vec<TenantOutcome> = scenario
            .tenants
            .iter()
            .enumerate()
            .map(|(index, tenant)| {
                let seeds: Vec<Metrics> = runs
                    .iter()
                    .map(|run| Metrics::from(&run.tenants[index]))
                    .collect();
                let objectives = &self.needs[index].objectives;
                TenantOutcome {
                    name: tenant.name.clone(),
                    metrics: Metrics::medians(&seeds),
                    objectives: objectives
                        .iter()
                        .map(|one| one.outcome(&seeds, &settled_in(runs, index)))
                        .collect(),
                }
            })
            .collect();
        let all = || tenants.iter().flat_map(|tenant| &tenant.objectives);
        let share = |(index, tenant): (usize, &TenantOutcome)| {
            Capacity::of(&self.question.profile, &scenario.tenants[index])
                .dominant_share(&tenant.metrics)
        };
        let cores = runs.iter().map(|run| {
            let tenants = run.tenants.iter();
            tenants.map(|tenant| tenant.policy_cores).sum()
        });
        let parts = stack::parts(&spec.name).unwrap_or_default();
        let about: Vec<&str> = parts.iter().map(|part| part.about).collect();
        PolicyOutcome {
            policy: spec.name.clone(),
            on_sale: stack::is_on_sale(&spec.name),
            settling: settling_of(runs),
            about: about.join("; "),
            met: all().filter(|one| one.met).count() as u32,
            objectives: all().count() as u32,
            utilisation: tenants.iter().enumerate().map(share).sum(),
            goodput_gbps: tenants
                .iter()
                .map(|tenant| tenant.metrics.goodput_gbps)
                .sum(),
            policy_cores: median(&cores.collect::<Vec<f64>>()).unwrap_or(0.0),
            tenants,
            misses: Vec::new(),
        }
    }

    /// The runs that explain every miss.
    fn evidence(
        &self,
        outcomes: &[(usize, PolicyOutcome)],
        together: &BTreeMap<usize, Vec<RunResult>>,
    ) -> Result<BTreeMap<Task, RunResult>, RecommendError> {
        let tenants = self.question.scenario.tenants.len();
        let base = self.base().filter(|base| together.contains_key(base));
        let mut tasks: BTreeSet<Task> = BTreeSet::new();
        let mut add = |policy, cast| {
            tasks.insert(Task {
                policy,
                cast,
                seed: 0,
            });
        };
        for (policy, outcome) in outcomes {
            for (index, tenant) in outcome.tenants.iter().enumerate() {
                if !tenant.objectives.iter().any(ObjectiveOutcome::is_missed) {
                    continue;
                }
                add(*policy, Cast::Only(index));
                if let Some(base) = base {
                    add(base, Cast::Only(index));
                }
                // Without the only other tenant one is alone.
                for other in (0..tenants).filter(|&other| other != index && tenants > 2) {
                    add(*policy, Cast::Without(other));
                }
            }
        }
        let tasks: Vec<Task> = tasks.into_iter().collect();
        let results = self.round(&tasks);
        let pairs = tasks.into_iter().zip(results);
        pairs
            .map(|(task, result)| Ok((task, result?)))
            .collect::<Result<_, RecommendError>>()
    }

    /// The index of `none` among the policies.
    fn base(&self) -> Option<usize> {
        let mut policies = self.question.policies.iter();
        policies.position(|policy| policy.name == BASE)
    }

    /// Fills the misses of `outcome` from the runs.
    fn explain(
        &self,
        policy: usize,
        outcome: &mut PolicyOutcome,
        together: &BTreeMap<usize, Vec<RunResult>>,
        why: &BTreeMap<Task, RunResult>,
    ) {
        let run = |policy, cast| {
            why.get(&Task {
                policy,
                cast,
                seed: 0,
            })
        };
        let names: Vec<&str> = outcome.tenants.iter().map(|t| t.name.as_str()).collect();
        let mut misses = Vec::new();
        for (index, tenant) in outcome.tenants.iter().enumerate() {
            let missed = tenant.objectives.iter().filter(|one| one.is_missed());
            let missed: Vec<_> = missed.copied().collect();
            // Only tenants that miss something have been run alone.
            let Some(alone) = run(policy, Cast::Only(index)).filter(|_| !missed.is_empty()) else {
                continue;
            };
            let mut without: Vec<(&str, &RunResult)> = names
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != index)
                .filter_map(|(other, name)| Some((*name, run(policy, Cast::Without(other))?)))
                .collect();
            if let ([_, _], Some(other)) = (&names[..], names.get(1 - index.min(1))) {
                without.push((other, alone));
            }
            let evidence = Evidence {
                together: &together[&policy][0],
                alone,
                alone_without_policy: self
                    .base()
                    .filter(|&base| base != policy)
                    .and_then(|base| run(base, Cast::Only(index))),
                without,
            };
            misses.push(miss(&outcome.policy, &tenant.name, missed, &evidence));
        }
        outcome.misses = misses;
    }
}

/// How long `runs` took to settle; nothing where times were fixed.
fn settling_of<'a>(runs: impl IntoIterator<Item = &'a RunResult>) -> Option<SettlingSummary> {
    SettlingSummary::of(runs.into_iter().filter_map(|run| run.settling.as_ref()))
}

/// How the tenant of `index` settled in each run; nothing where times were fixed.
fn settled_in(runs: &[RunResult], index: usize) -> Vec<TenantSettling> {
    let settling = runs.iter().filter_map(|run| run.settling.as_ref());
    let tenants = settling.filter_map(|settling| settling.tenants.get(index));
    tenants.cloned().collect()
}

/// The policy's own reason, without the scenario's name, which is the same for all.
fn reason(error: &TestbedError) -> String {
    match error {
        TestbedError::Refused { reason, .. } => reason.to_string(),
        TestbedError::Unsupported { reason, .. } => reason.clone(),
        other => other.to_string(),
    }
}
