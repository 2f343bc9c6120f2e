//! What an audit will run: the selected victims and attackers, policies and seeds, as an ordered list of runs.
//!
//! A run is one scenario with one seed. Runs are numbered in a fixed order (every victim alone first, since no
//! cell can be judged without it; then cell by cell), and a run's scenario depends on its number alone. Workers
//! may therefore finish runs in any order without changing a result.

use crate::cell::{Attacker, Victim};
use crate::constants::settling;
use crate::hash::Fnv;
use crate::matrix::{AUDIT_VERSION, LeftOut};
use crate::predicate::Predicate;
use crate::settled::{cap_of, prepared};
use isolane_common_quantities::settle::Demand;
use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::model::{PolicySpec, Scenario, Tenant, Topology};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_testbed::Testbed;

/// Time before measuring starts. The slowest transient of the catalogue is the filling of caches and queues:
/// some 10,000 requests at 90 M/s, 110 us; the rest is margin.
pub const WARMUP: Duration = Duration::from_us(150);

/// Measured time of runs whose times are fixed. The rarest victims complete one 64 KiB message per 5 us, so 1 ms gives 200
/// samples of a rate and hundreds of a latency.
pub const DURATION: Duration = Duration::from_ms(1);

/// Least measured time of runs that go on until they settle: hundreds of messages in each window.
pub const LEAST: Duration = Duration::from_us(400);

/// Simulated time after which a run ends, settled or not. The slowest oscillation of the catalogue, DCQCN of hundreds of
/// queue pairs, has a period of 1 to 2 ms.
pub const CAP: Duration = Duration::from_ms(8);

/// Seeds per cell: the fewest with a median that one outlier cannot move.
pub const SEEDS: u32 = 3;

/// Tolerance of the guarantee (husky 4.4).
pub const ALPHA: f64 = 0.25;

/// Tenants in one cell of the catalogue's audit: the victim and its attacker.
pub const TENANTS: u32 = 2;

/// Both hosts on one switch, as in the testbed of husky 4.5.
pub const TOPOLOGY: Topology = Topology::Switch;

/// A workload that is judged.
#[derive(Clone, Debug, PartialEq)]
pub struct VictimPlan {
    /// Its name and kind.
    pub info: Victim,
    /// What it runs, or why the device cannot run it.
    pub tenant: Result<Tenant, String>,
    /// For latency victims: accepted p99 under attack over p99 alone.
    pub over_solo: Option<f64>,
    /// Measured time that a verdict needs, at least: applications complete few operations.
    pub duration: Option<Duration>,
}

/// A workload that attacks.
#[derive(Clone, Debug, PartialEq)]
pub struct AttackerPlan {
    /// Its name and kind.
    pub info: Attacker,
    /// What it runs, or why the device cannot run it. A tenant with the victim's name is left out of the run: no tenant
    /// attacks itself.
    pub tenants: Result<Vec<Tenant>, String>,
}

/// One audit, before it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The device.
    pub profile: Profile,
    /// Policies to compare.
    pub policies: Vec<PolicySpec>,
    /// Policies of a request for `all` that the device cannot run.
    pub left_out: Vec<LeftOut>,
    /// Victims.
    pub victims: Vec<VictimPlan>,
    /// Attackers.
    pub attackers: Vec<AttackerPlan>,
    /// Run seeds, at least one.
    pub seeds: Vec<u64>,
    /// The rule for rate victims.
    pub predicate: Predicate,
    /// Time before measuring starts, at least; longer where a policy takes longer to act.
    pub warmup: Duration,
    /// Measured time, at least; longer for victims that need more.
    pub duration: Duration,
    /// Simulated time after which a run ends, settled or not; without it warm-up and measured time are fixed.
    pub cap: Option<Duration>,
    /// Every time constant of a policy and of loops is waited for so many times, at least once.
    pub least_times: u64,
    /// How the hosts are joined.
    pub topology: Topology,
    /// A command line that repeats the audit.
    pub rerun: String,
}

/// One run, as indices into the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// Which policy.
    pub policy: usize,
    /// Which victim.
    pub victim: usize,
    /// Which attacker; none for the victim alone.
    pub attacker: Option<usize>,
    /// Which seed.
    pub seed: usize,
}

impl Plan {
    /// Every run that the device can do, in the order of work.
    pub fn runs(&self) -> Vec<Run> {
        let victims = || (0..self.victims.len()).filter(|&v| self.victims[v].tenant.is_ok());
        let mut runs = Vec::new();
        let mut add = |policy, victim, attacker| {
            runs.extend((0..self.seeds.len()).map(|seed| Run {
                policy,
                victim,
                attacker,
                seed,
            }));
        };
        for policy in 0..self.policies.len() {
            for victim in victims() {
                add(policy, victim, None);
            }
        }
        // Policies innermost: an interrupted audit has compared them on the cells it did.
        for victim in victims() {
            let attackers = 0..self.attackers.len();
            for attacker in attackers.filter(|&a| self.opponents(victim, a).is_ok()) {
                for policy in 0..self.policies.len() {
                    add(policy, victim, Some(attacker));
                }
            }
        }
        runs
    }

    /// The tenants that `victim` meets under `attacker`, at least one, or why the cell does not apply.
    pub(crate) fn opponents(&self, victim: usize, attacker: usize) -> Result<Vec<&Tenant>, &str> {
        let victim = &self.victims[victim];
        if let Err(reason) = &victim.tenant {
            return Err(reason);
        }
        let tenants = self.attackers[attacker].tenants.as_ref();
        let others: Vec<&Tenant> = tenants
            .map_err(String::as_str)?
            .iter()
            .filter(|tenant| tenant.name != victim.info.name)
            .collect();
        match others.is_empty() {
            true => Err("a tenant does not attack itself"),
            false => Ok(others),
        }
    }

    /// The scenario of `run`. Panics if the run's victim or attacker has no tenant on this device; [`Plan::runs`] makes
    /// no such run.
    pub fn scenario(&self, run: &Run) -> Scenario {
        let policy = &self.policies[run.policy];
        let victim = &self.victims[run.victim];
        let attacker = run.attacker.map(|index| &self.attackers[index]);
        let mut tenants = vec![
            victim
                .tenant
                .clone()
                .expect("runs() skips victims without a tenant"),
        ];
        tenants[0].name.clone_from(&victim.info.name);
        if let Some(attacker) = run.attacker {
            let others = self.opponents(run.victim, attacker);
            let others = others.expect("runs() skips cells that do not apply");
            tenants.extend(others.into_iter().cloned());
        }
        let under = attacker.map_or("alone", |attacker| attacker.info.name.as_str());
        let duration = self.measured(run.victim);
        let mut scenario = Scenario {
            topology: self.topology,
            warmup: self.settled(),
            seed: self.seeds[run.seed],
            sample_interval: duration / crate::cell::SERIES_POINTS as u64,
            policy: policy.clone(),
            ..Scenario::plain(
                format!("audit/{}/{}/{under}", policy.name, victim.info.name),
                &self.profile.name,
                duration,
                tenants,
            )
        };
        if self.cap.is_some() {
            scenario.warmup = self.warmup;
            scenario = prepared(&scenario, &self.profile, self.least_times);
        }
        scenario
    }

    /// Measured time of `victim`'s runs.
    pub(crate) fn measured(&self, victim: usize) -> Duration {
        let needed = self.victims[victim].duration.unwrap_or(Duration::ZERO);
        self.duration.max(needed)
    }

    /// Warm-up of every run with fixed times: as long as the slowest of the policies needs, for all of them. What a tenant does when
    /// it starts, such as filling its queues, is over for each policy or for none.
    pub(crate) fn settled(&self) -> Duration {
        let slowest = self
            .policies
            .iter()
            .map(|policy| settling(policy, &self.profile));
        slowest.fold(self.warmup, Duration::max)
    }

    /// What all runs share, as a hash: the device, the program and the meaning of a result.
    pub(crate) fn environment_key(&self, testbed: &str) -> u64 {
        let profile = serde_json::to_vec(&self.profile).expect("a profile is plain data");
        let mut hash = Fnv::default();
        hash.write(PROGRAM_VERSION.as_bytes());
        hash.write(&AUDIT_VERSION.to_le_bytes());
        hash.write(testbed.as_bytes());
        hash.write(&profile);
        hash.finish()
    }

    /// The hash that identifies `run` with the `demand` of its victim; the same in every audit.
    pub(crate) fn run_key(&self, environment: u64, run: &Run, demand: &Demand) -> u64 {
        let mut hash = Fnv::default();
        hash.write(&environment.to_le_bytes());
        self.write_run(&mut hash, &self.scenario(run), demand);
        hash.finish()
    }

    /// A hash that is equal for runs of this plan with equal outcomes on `testbed`; none where it does not say which are equal.
    pub(crate) fn essence_key(
        &self,
        testbed: &dyn Testbed,
        run: &Run,
        demand: &Demand,
    ) -> Option<u64> {
        let scenario = testbed.essence(&self.scenario(run))?;
        let mut hash = Fnv::default();
        // What an outcome keeps depends on both.
        hash.write(format!("{:?}", self.victims[run.victim].info.kind).as_bytes());
        hash.write(&[u8::from(run.seed == 0)]);
        self.write_run(&mut hash, &scenario, demand);
        Some(hash.finish())
    }

    fn write_run(&self, hash: &mut Fnv, scenario: &Scenario, demand: &Demand) {
        if let Some(cap) = self.cap {
            hash.write(&cap_of(scenario, cap).as_ps().to_le_bytes());
            hash.write(format!("{demand:?}").as_bytes());
        }
        let scenario = serde_json::to_vec(scenario).expect("a scenario is plain data");
        hash.write(&scenario);
    }
}

/// Part of the journal's identity: results of another version are not reused.
pub(crate) const PROGRAM_VERSION: &str = env!("CARGO_PKG_VERSION");
