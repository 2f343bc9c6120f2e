//! One scenario, from start to result.
//!
//! Units: steps of [`STEP`]. Method: in each step applications arrive, change and leave. In every second step the
//! policy reads the sensors and acts. The kernel moves pages, the memory system is balanced, and the result is counted.
//! The kernel takes the hotness of pages from the balance of the previous step.

use crate::balance::{Balance, Problem};
use crate::bench;
use crate::drive::Drive;
use crate::host::{self, App, Phase};
use crate::kernel;
use crate::measure::{Found, Measure};
use crate::sampled::Sampled;
use crate::settings::Machine;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_memory_policy::mercury::{PERIOD, TIERS_MAX};
use isolane_memory_scenario::machine::MemMachine;
use isolane_memory_scenario::model::{MemPolicyName, MemScenario};
use isolane_study_results::memory::MemResult;

/// Length of a step: half a policy's period, so there are two readings between two decisions.
pub const STEP: Duration = Duration::from_ms(100);

/// Runs `scenario`.
pub fn run(scenario: &MemScenario) -> MemResult {
    run_with(scenario, &mut |_, _| true).expect("the progress function never stops the run")
}

/// As [`run`]; `progress` is called with (steps done, all steps) periodically, and ends the run by returning false.
pub fn run_with(
    scenario: &MemScenario,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Option<MemResult> {
    let profile = MemMachine::named(&scenario.machine).expect("the parser checked the name");
    let machine = Machine::new(&profile, &scenario.capacity);
    let mut world = World::new(scenario, &machine);
    let steps = |duration: Duration| duration.as_ps().div_ceil(STEP.as_ps());
    let (warmup, all) = (
        steps(scenario.warmup),
        steps(scenario.warmup + scenario.duration),
    );
    let between = scenario.sample_interval.map(|time| steps(time).max(1));
    for step in 0..all {
        if step == warmup {
            world.measure.begin(&world.apps);
        }
        world.step(step);
        world.measure.watch(&world.apps);
        if step >= warmup {
            let seconds = STEP.as_secs_f64();
            let Balances { now, .. } = &world.balances;
            world.measure.step(&machine, &world.apps, now, seconds);
        }
        if between.is_some_and(|between| step % between == 0) {
            let at = (STEP * step).as_secs_f64();
            world.measure.point(at, &world.apps);
        }
        if step % 1_000 == 0 && !progress(step, all) {
            return None;
        }
    }
    progress(all, all);
    let World {
        apps,
        measure,
        drive,
        ..
    } = world;
    let found = Found {
        thresholds: drive.thresholds,
        profiles: drive.profiles,
        actions: drive.actions,
        changes: drive.changes.unwrap_or_default(),
    };
    Some(measure.result(scenario, &machine, &apps, &found))
}

struct World<'a> {
    machine: &'a Machine,
    apps: Vec<App<'a>>,
    drive: Drive,
    mover: Mover,
    balances: Balances,
    measure: Measure,
}

/// Who moves pages.
enum Mover {
    Nobody,
    /// The kernel, by hint faults and reclaim.
    Kernel,
    /// A policy that samples requests.
    Sampled(Sampled),
}

/// The balance, and what it was found for.
#[derive(Default)]
struct Balances {
    now: Balance,
    demands: Vec<crate::balance::Demand>,
    background: [f64; TIERS_MAX],
}

impl<'a> World<'a> {
    fn new(scenario: &'a MemScenario, machine: &'a Machine) -> Self {
        let apps: Vec<App<'a>> = scenario.apps.iter().map(App::new).collect();
        let measure = Measure::new(apps.len(), machine.tiers.len());
        let thresholds = bench::thresholds(machine);
        Self {
            drive: Drive::new(scenario, machine, &apps, thresholds),
            machine,
            mover: match scenario.policy {
                MemPolicyName::None => Mover::Nobody,
                MemPolicyName::Memtis => Mover::Sampled(Sampled::new(machine, &apps, false)),
                MemPolicyName::Colloid => Mover::Sampled(Sampled::new(machine, &apps, true)),
                _ => Mover::Kernel,
            },
            apps,
            balances: Balances::default(),
            measure,
        }
    }

    fn step(&mut self, step: u64) {
        let at = STEP * step;
        let now = Instant::from_ps(at.as_ps());
        self.live(at, now);
        if step.is_multiple_of(PERIOD.as_ps() / STEP.as_ps()) {
            self.drive
                .step(now, self.machine, &mut self.apps, &self.balances.now);
        }
        let background = match &mut self.mover {
            Mover::Nobody => [0.0; TIERS_MAX],
            Mover::Kernel => kernel::step(self.machine, &mut self.apps, STEP.as_secs_f64()),
            Mover::Sampled(sampled) => {
                sampled.step(self.machine, &mut self.apps, &self.balances.now, STEP)
            }
        };
        self.balance(background);
    }

    /// Applications come, change and go.
    fn live(&mut self, at: Duration, now: Instant) {
        for index in 0..self.apps.len() {
            let app = &mut self.apps[index];
            if app.phase == Phase::Running && !app.spec.is_running(at) {
                app.phase = Phase::Gone;
                let bytes = app.pages.bytes();
                app.pages.remove(bytes);
                (app.rate, app.faults) = (0.0, 0.0);
                self.drive.depart(now, &mut self.apps, index);
            } else if app.phase == Phase::Waiting && app.spec.is_running(at) {
                let admitted =
                    self.drive
                        .arrive(now, self.machine, &mut self.apps, index, &self.balances.now);
                self.apps[index].phase = match admitted {
                    true => Phase::Running,
                    false => Phase::Gone,
                };
            }
            if self.apps[index].is_running() {
                host::follow(self.machine, &mut self.apps, index, at);
            }
        }
    }

    fn balance(&mut self, background: [f64; TIERS_MAX]) {
        let running = self.apps.iter().filter(|app| app.is_running());
        let demands: Vec<_> = running.map(App::demand).collect();
        if demands != self.balances.demands
            || background != self.balances.background
            || self.balances.now.response.is_empty()
        {
            let problem = Problem {
                tiers: &self.machine.tiers,
                slots: self.machine.slots,
                demands: &demands,
                background,
            };
            self.balances = Balances {
                now: problem.solve(&self.balances.now),
                demands,
                background,
            };
        }
        let balance = &self.balances.now;
        let running = self.apps.iter_mut().filter(|app| app.is_running());
        let found = balance.rates.iter().zip(&self.balances.demands);
        for (app, (rate, demand)) in running.zip(found) {
            app.rate = *rate;
            app.latency = balance.latency(&demand.mix) * app.access.seen;
        }
    }
}
