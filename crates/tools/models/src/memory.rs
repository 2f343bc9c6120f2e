//! One run of the memory service's control loop with applications that come, end and vanish, by a seed.
//!
//! Method: controller, policy and journal format are the product's; the machine is
//! [`isolane_memory_service::controller::fake`]. Faults: calls are refused, the service is killed at any of its calls, also
//! while it starts, it ends and starts again, sensors are late, and cgroups are replaced by others of the same path. After
//! each event the journal must name everything that the service changed on the machine. After the faults limits must be
//! those of the policy and fit the near memory, everything else must be without limits, and every application that was
//! admitted must be under control. Units: picoseconds, bytes. Limits: no kernel; tests of the backends have its files.

mod broken;

use crate::Broken;
use broken::{Backend, Store};
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::Instant;
use isolane_memory_policy::mercury::{Mercury, MercuryOptions, PERIOD, Thresholds};
use isolane_memory_service::application::pod::Place;
use isolane_memory_service::application::{Application, Floors, Slo};
use isolane_memory_service::cgroup::{cpu_max_below, own};
use isolane_memory_service::controller::fake::{CALLS, NEAR, World, survives};
use isolane_memory_service::controller::{About, ControlPolicy, Controller};
use isolane_memory_service::protocol::status::{ApplicationStatus, Status};
use isolane_memory_service::protocol::{Answer, Name, Plan, Request, Submission};
use std::collections::{BTreeMap, BTreeSet};

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Nothing.
    None,
    /// The disk confirms some writes of the journal that it loses.
    LosesWrites,
    /// A service that starts does not read the journal.
    IgnoresJournal,
    /// The backend confirms some limits that it does not set.
    SkipsLimits,
    /// The backend confirms releases without lifting the limits.
    KeepsLimits,
}

crate::counts! {
    /// Events.
    events,
    /// Applications that were admitted.
    admitted,
    /// Kills of the service.
    kills,
    /// Cgroups with limits, over all events.
    limited,
}

const EVENTS: u64 = 80;
/// Periods without faults until limits must be those of the policy: longer than the controller's retries and comparison.
const CALM: u32 = 60;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// `cpu.max` of a new cgroup of the service.
const UNLIMITED: &str = "max 100000";
/// `cpu.max` of cgroups that the service did not make.
const FOREIGN: &str = "70000 100000";
/// Most calls until the service is killed.
const DIES_WITHIN: u64 = 40;

struct Run {
    stream: Stream,
    defect: Defect,
    world: World,
    now: Instant,
    controller: Option<Controller>,
    /// Admitted applications that must be under control, with their cgroups.
    admitted: BTreeMap<String, String>,
    process: u32,
    report: Report,
}

/// Runs one seed. The error is the first broken invariant.
pub fn run(seed: u64, defect: Defect) -> Result<Report, Broken> {
    let mut run = Run {
        stream: Stream::named(seed, "memory"),
        defect,
        world: World::default(),
        now: Instant::ZERO,
        controller: None,
        admitted: BTreeMap::new(),
        process: 1_000,
        report: Report::default(),
    };
    let played = run.play();
    let place = format!("event {}", run.report.events);
    played.map_err(|what| Broken::of("memory service", seed, place, what))?;
    Ok(run.report)
}

fn policy() -> Box<dyn ControlPolicy> {
    // Without interference: what the policy divides is memory.
    let thresholds = Thresholds {
        local_bandwidth: u64::MAX / 2,
        hint_faults_per_s: 1e12,
    };
    Box::new(Mercury::new(MercuryOptions::new(thresholds, NEAR)).expect("valid options"))
}

/// The path of an application in a cgroup that the service did not make.
fn foreign(name: &str) -> String {
    format!("/kube/{name}")
}

impl Run {
    fn play(&mut self) -> Result<(), String> {
        self.begin();
        for _ in 0..EVENTS {
            self.report.events += 1;
            self.event();
            self.check_journal()?;
        }
        self.check_calm()?;
        self.kill();
        self.check_calm()?;
        self.end()
    }

    fn event(&mut self) {
        self.process += 1;
        let name = NAMES[self.stream.below(4) as usize];
        match self.stream.below(26) {
            0..=4 => self.submit(name),
            5 => self.remove(name),
            6 => {
                let application = self.application(name);
                let (now, plan) = (self.now, Request::Plan(Plan { application }));
                self.living(|controller| controller.answer(now, plan, None));
            }
            7..=8 => self.replace(name, |world, path| {
                let mut state = world.lock();
                if let Some(group) = state.groups.get_mut(path) {
                    group.processes.clear();
                }
            }),
            9 => self.replace(name, |world, path| drop(world.lock().groups.remove(path))),
            10..=11 => {
                let process = self.process;
                self.forget(&foreign(name));
                self.world.add(&foreign(name), &[process], FOREIGN);
            }
            12 => {
                let latency_ps = 50_000 + self.stream.below(500_000);
                self.world.lock().latency.insert(foreign(name), latency_ps);
            }
            13 => self.world.lock().sensors_old_ms = self.stream.below(2) * 60_000,
            14..=16 => {
                let periods = 1 + self.stream.below(30);
                self.steps(periods as u32);
            }
            17..=19 => {
                let call = CALLS[self.stream.below(CALLS.len() as u64) as usize];
                let count = 1 + self.stream.below(4) as u32;
                self.world.lock().refuse.insert(call, count);
            }
            20 => {
                self.living(Controller::close);
                self.begin();
            }
            21 => self.kill(),
            _ => self.world.lock().dies_in = Some(1 + self.stream.below(DIES_WITHIN) as u32),
        }
    }

    fn application(&mut self, name: &str) -> Application {
        let memory_mib = 1 + self.stream.below(1_200);
        let slo = match self.stream.below(3) {
            0 => Slo::BandwidthBytesPerS(1_000_000_000),
            1 => Slo::LatencyPs(200_000),
            _ => Slo::BestEffort,
        };
        Application {
            name: name.to_owned(),
            slo,
            priority: self.stream.below(6) as u32,
            weight: 1 + self.stream.below(2_000) as u32,
            memory_bytes: Some(memory_mib << 20),
            caps: Vec::new(),
            far_tiers: Vec::new(),
            floors: Floors::default(),
            profile: None,
        }
    }

    fn submit(&mut self, name: &str) {
        let application = self.application(name);
        let place = match self.stream.chance(1, 2) {
            true => Place::Caller,
            false => Place::Cgroup(foreign(name)),
        };
        let request = Request::Submit(Submission { application, place });
        let (now, process) = (self.now, self.process);
        let answer = self.living(|controller| controller.answer(now, request, Some(process)));
        if let Some(Answer::Admitted(admission)) = answer {
            self.admitted.insert(admission.name, admission.cgroup);
            self.report.admitted += 1;
        }
    }

    /// Lets an application go. A service that was killed meanwhile may have done so or not.
    fn remove(&mut self, name: &str) {
        self.admitted.remove(name);
        let (now, name) = (self.now, name.to_owned());
        let request = Request::Remove(Name { name });
        self.living(|controller| controller.answer(now, request, None));
    }

    /// Does something that ends an application in both of its cgroups.
    fn replace(&mut self, name: &str, end: impl Fn(&World, &str)) {
        for path in [format!("{}/{name}", own::PARENT), foreign(name)] {
            self.forget(&path);
            end(&self.world, &path);
        }
    }

    fn forget(&mut self, path: &str) {
        self.admitted.retain(|_, cgroup| cgroup != path);
    }

    fn steps(&mut self, count: u32) {
        for _ in 0..count {
            self.now = self.now.saturating_add(PERIOD);
            let now = self.now;
            self.living(|controller| controller.step(now));
        }
    }

    /// Does something that the service may not live through. None: another service has started.
    fn living<T>(&mut self, work: impl FnOnce(&mut Controller) -> T) -> Option<T> {
        let controller = self.controller.as_mut().expect("one runs");
        let done = survives(|| work(controller));
        if done.is_none() {
            self.kill();
        }
        done
    }

    fn kill(&mut self) {
        self.report.kills += 1;
        self.begin();
    }

    /// A service in the place of one that was killed. It may be killed while it starts.
    fn begin(&mut self) {
        // Nothing of the killed one runs any more.
        std::mem::forget(self.controller.take());
        while self.controller.is_none() {
            let mut parts = self.world.parts(policy());
            parts.backend = Box::new(Backend::new(parts.backend, self.defect));
            parts.store = Box::new(Store::new(parts.store, self.defect));
            let now = self.now;
            let started = survives(|| Controller::start(now, parts, About::default()));
            self.controller = started.and_then(Result::ok);
        }
    }

    /// At every moment a successor finds in the journal what it has to take back.
    fn check_journal(&mut self) -> Result<(), String> {
        let state = self.world.lock();
        let journal = state.journal.iter();
        let named: BTreeSet<&str> = journal
            .flat_map(|journal| {
                let owed = journal.owed.iter().map(|owed| owed.cgroup.as_str());
                let entries = journal.entries.iter().map(|entry| entry.cgroup.as_str());
                entries.chain(owed)
            })
            .collect();
        for (path, group) in &state.groups {
            let is_limited = group.limits.is_some() || group.cpu != group.cpu_before;
            self.report.limited += u64::from(is_limited);
            let is_ours = path.starts_with(own::PARENT);
            if (is_limited || is_ours) && !named.contains(path.as_str()) {
                return Err(format!("the journal does not name {path}: {group:?}"));
            }
        }
        Ok(())
    }

    /// What must hold once nothing fails any more.
    fn check_calm(&mut self) -> Result<(), String> {
        {
            let mut state = self.world.lock();
            state.refuse.clear();
            state.dies_in = None;
            state.sensors_old_ms = 0;
        }
        self.steps(CALM);
        self.check_journal()?;
        let status = self.status();
        let controlled: BTreeMap<&str, &ApplicationStatus> = status
            .applications
            .iter()
            .map(|application| (application.cgroup.as_str(), application))
            .collect();
        let state = self.world.lock();
        for (path, group) in &state.groups {
            let Some(application) = controlled.get(path.as_str()) else {
                let is_free = group.limits.is_none() && group.cpu == group.cpu_before;
                match is_free && !(path.starts_with(own::PARENT) && group.processes.is_empty()) {
                    true => continue,
                    false => {
                        return Err(format!("{path} is limited for no application: {group:?}"));
                    }
                }
            };
            let limits = &application.limits;
            let tiers = group
                .limits
                .map(|limits| limits.map(|limit| limit.map(|bytes| bytes.get())));
            let is_set = tiers.is_some_and(|tiers| {
                let said = limits
                    .tier_bytes
                    .iter()
                    .copied()
                    .chain(std::iter::repeat(None));
                tiers.into_iter().zip(said).all(|(set, said)| set == said)
            });
            let cpu = match limits.cpu_per_mille {
                1_000 => group.cpu_before.clone(),
                per_mille => cpu_max_below(&group.cpu_before, per_mille, 1),
            };
            if !is_set || group.cpu != cpu {
                return Err(format!("{path} should have {limits:?}: {group:?}"));
            }
        }
        let near = |application: &ApplicationStatus| application.limits.tier_bytes[0].unwrap_or(0);
        let near: u64 = status.applications.iter().map(near).sum();
        if near > NEAR.get() {
            return Err(format!("limits of {near} bytes of {NEAR} near memory"));
        }
        for (name, cgroup) in &self.admitted {
            if !controlled.contains_key(cgroup.as_str()) {
                return Err(format!(
                    "{name} in {cgroup} was admitted and is not under control"
                ));
            }
        }
        Ok(())
    }

    fn status(&mut self) -> Box<Status> {
        let now = self.now;
        match self.living(|controller| controller.answer(now, Request::Status, None)) {
            Some(Answer::Status(status)) => status,
            other => panic!("no status but {other:?}"),
        }
    }

    /// All applications end, and nothing is left.
    fn end(&mut self) -> Result<(), String> {
        for name in NAMES {
            self.replace(name, |world, path| {
                if let Some(group) = world.lock().groups.get_mut(path) {
                    group.processes.clear();
                }
            });
            self.remove(name);
        }
        self.steps(CALM);
        let state = self.world.lock();
        let is_left =
            |(path, group): &(&String, &isolane_memory_service::controller::fake::Group)| {
                let is_ours = path.starts_with(own::PARENT);
                let cpu = if is_ours { UNLIMITED } else { FOREIGN };
                is_ours || group.limits.is_some() || group.cpu != cpu
            };
        match state.groups.iter().find(is_left) {
            None => Ok(()),
            Some((path, group)) => Err(format!("{path} is left: {group:?}")),
        }
    }
}
