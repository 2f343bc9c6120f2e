//! Algorithm 4: admits applications, sets their first limits, and chooses the applications that yield memory.
//!
//! Problem: an important application arrives late, when memory and bandwidth are in use. Memory for it moves pages of
//! others to far tiers, which may slow all applications (inter-tier interference). Method: mercury 5.5.3 on the
//! estimates of [`super::estimate`], so there is one decision, and a what-if question uses the same computation
//! ([`Plan`]). Units: bytes, bytes per second, thousandths.
//!
//! Deviations where the printed algorithm cannot be literal: line 9 ends when no application is left to throttle; line
//! 16 continues while something was reduced; lines 24-25 skip such a victim instead of taking from the next one
//! unchecked. Best effort yields before all others. Source: algorithm 4, mercury 5.5.3.

use super::estimate::{Traffic, World, far_cost, relative, yields_to};
use super::fixed::near_need;
use super::sharing::{Want, water_fill};
use super::state::Book;
use super::{
    AppId, AppSpec, CPU_ONE, Limits, MercuryOptions, Objective, Observation, Reason, Refusal,
    Sharing, Shortfall, Verdict, tiers,
};
use isolane_common_quantities::units::Bytes;

/// What one application gives for another.
#[derive(Clone, Debug, PartialEq)]
pub struct Yield {
    /// Who.
    pub app: AppId,
    /// Its name.
    pub name: String,
    /// Near memory it gives.
    pub near: Bytes,
    /// Processor time it gives, in thousandths.
    pub cpu: u32,
    /// Near memory that is left to it.
    pub near_after: Bytes,
    /// Processor time that is left to it.
    pub cpu_after: u32,
    /// Whether its own objective is expected to hold; unknown without a reading and a profile.
    pub keeps_objective: Option<bool>,
}

/// The answer to "what if this application came?".
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Whether it may run.
    pub verdict: Verdict,
    /// What it would get; all limits without meaning when it is refused.
    pub limits: Limits,
    /// Who yields what, in the order of yielding.
    pub yields: Vec<Yield>,
    /// Expected bandwidth of the near tier afterwards, in bytes per second.
    pub near_bandwidth: u64,
    /// Expected hint faults per second afterwards; unknown without a fresh reading.
    pub hint_faults_per_s: Option<f64>,
}

impl Plan {
    fn refused(refusal: Refusal) -> Self {
        Self {
            verdict: Verdict::Refused(refusal),
            limits: Limits::NONE,
            yields: Vec::new(),
            near_bandwidth: 0,
            hint_faults_per_s: None,
        }
    }
}

/// Plans the arrival of `spec`; changes nothing.
pub(super) fn plan(
    book: &Book,
    options: &MercuryOptions,
    spec: &AppSpec,
    seen: &Observation,
    learned: Option<f64>,
) -> Plan {
    if let Some(refusal) = refusal(book, spec, seen) {
        return Plan::refused(refusal);
    }
    let mut admission = Admission::new(book, options, spec, seen, learned);
    let need = near_need(spec).min(seen.tiers.first().map_or(0, |near| near.capacity.get()));
    admission.take_memory(need);
    let free = u64::try_from(admission.world.free.max(0)).unwrap_or(u64::MAX);
    let near = if spec.objective == Objective::BestEffort {
        let cap = spec.caps[0].map_or(u64::MAX, Bytes::get);
        free.min(spec.footprint.get()).min(cap)
    } else {
        need.min(free)
    };
    let mut lacks = Shortfall {
        local: Bytes::new(near_need(spec).saturating_sub(near)),
        bandwidth: 0,
    };
    let mut cpu = CPU_ONE;
    if let Objective::Bandwidth(aim) = spec.objective {
        let granted = admission.take_bandwidth(near, aim);
        cpu = granted.cpu;
        lacks.bandwidth = granted.lacks;
        if granted.lacks == 0 {
            // More processor time makes up for memory that it did not get.
            lacks.local = Bytes::ZERO;
        }
    }
    let verdict = if lacks == Shortfall::default() {
        Verdict::Admitted
    } else {
        Verdict::BestEffort(lacks)
    };
    Plan {
        verdict,
        limits: tiers::start(spec, near, cpu),
        yields: admission.yields(),
        near_bandwidth: admission.world.near_bandwidth() as u64,
        hint_faults_per_s: admission.world.hint_faults(),
    }
}

/// Why it may not run at all.
fn refusal(book: &Book, spec: &AppSpec, seen: &Observation) -> Option<Refusal> {
    if book.find(spec.id).is_some() {
        return Some(Refusal::Duplicate);
    }
    let mut others = book.apps.iter();
    if let Some(other) = others.find(|app| app.spec.priority == spec.priority) {
        return Some(Refusal::DuplicatePriority(other.spec.id));
    }
    if let Some(profile) = spec.profile.as_ref().filter(|profile| !profile.admissible) {
        return Some(Refusal::Inadmissible(profile.best));
    }
    let most = tiers::most(spec, seen);
    (spec.footprint.get() > most).then_some(Refusal::TooLarge {
        footprint: spec.footprint,
        capacity: Bytes::new(most),
    })
}

/// Bandwidth that a newcomer can count on.
struct Granted {
    cpu: u32,
    lacks: u64,
}

struct Admission<'a> {
    options: &'a MercuryOptions,
    spec: &'a AppSpec,
    world: World,
    /// Whether any application suffers from far traffic: without a latency-sensitive application there is no limit to
    /// it (mercury 5.6.2).
    somebody_suffers: bool,
    /// Whether a more important latency-sensitive application suffers from near traffic.
    important_suffers: bool,
}

impl<'a> Admission<'a> {
    fn new(
        book: &Book,
        options: &'a MercuryOptions,
        spec: &'a AppSpec,
        seen: &Observation,
        learned: Option<f64>,
    ) -> Self {
        let mut world = World::new(book, options, seen, learned);
        if options.sharing == Sharing::Weighted {
            set_floors(&mut world, book, spec);
        }
        let latency = matches!(spec.objective, Objective::Latency(_));
        let mut others = book.apps.iter().filter(|app| app.is_latency());
        let important_suffers = others.clone().any(|app| app.spec.priority > spec.priority);
        Self {
            options,
            spec,
            world,
            somebody_suffers: latency || others.next().is_some(),
            important_suffers,
        }
    }

    /// Lines 6-11: victims yield from the least important up, until `need` is free.
    fn take_memory(&mut self, need: u64) {
        for victim in 0..self.world.lines.len() {
            if !yields_to(
                &self.world.lines[victim],
                self.spec.priority,
                self.options.sharing,
            ) {
                continue;
            }
            while self.world.free < i128::from(need) {
                let missing = u64::try_from(i128::from(need) - self.world.free);
                let step = self
                    .options
                    .memory_step
                    .get()
                    .min(missing.unwrap_or(u64::MAX));
                let step = step.min(self.world.can_give(victim));
                if step == 0 {
                    break;
                }
                let line = &self.world.lines[victim];
                let (claim, cpu) = (line.claim, line.cpu);
                self.world.change(victim, claim - step, cpu);
                if !self.calm_far_traffic() {
                    self.world.change(victim, claim, cpu);
                    break;
                }
            }
        }
    }

    /// Lines 9-10: throttles less important streams until hint faults are healthy; false when that cannot be had.
    fn calm_far_traffic(&mut self) -> bool {
        while self.too_many_faults() {
            if !self.throttle() {
                return false;
            }
        }
        true
    }

    fn too_many_faults(&self) -> bool {
        let healthy = self.options.thresholds.hint_faults_per_s;
        self.somebody_suffers
            && self
                .world
                .hint_faults()
                .is_some_and(|faults| faults > healthy)
    }

    /// One step of processor time off the least important stream.
    fn throttle(&mut self) -> bool {
        let floor = self.options.cpu_floor;
        let priority = self.spec.priority;
        let victim = self.world.lines.iter().position(|line| {
            !line.latency && line.cpu > floor && (line.best_effort || line.priority < priority)
        });
        let Some(victim) = victim else { return false };
        let line = &self.world.lines[victim];
        let cpu = line.cpu.saturating_sub(self.options.cpu_step).max(floor);
        self.world.change(victim, line.claim, cpu);
        true
    }

    /// Lines 21-31 for one victim: memory while the far tiers are healthy, then processor time.
    fn reduce_bandwidth(&mut self) -> bool {
        let (floor, priority) = (self.options.cpu_floor, self.spec.priority);
        let victim = (0..self.world.lines.len()).find(|&index| {
            let line = &self.world.lines[index];
            let less = line.best_effort || line.priority < priority;
            !line.latency && less && (line.cpu > floor || self.world.can_give(index) > 0)
        });
        let Some(victim) = victim else { return false };
        let (claim, cpu) = (self.world.lines[victim].claim, self.world.lines[victim].cpu);
        let memory = self
            .options
            .memory_step
            .get()
            .min(self.world.can_give(victim));
        if memory > 0 {
            self.world.change(victim, claim - memory, cpu);
            if !self.too_many_faults() || cpu <= floor {
                return true;
            }
            self.world.change(victim, claim, cpu);
        }
        if cpu <= floor {
            return false;
        }
        let cpu = cpu.saturating_sub(self.options.cpu_step).max(floor);
        self.world.change(victim, claim, cpu);
        true
    }

    /// Lines 14-18: takes bandwidth until the newcomer's objective can be met, and sizes its processor time.
    fn take_bandwidth(&mut self, near: u64, aim: u64) -> Granted {
        let fraction = near as f64 / self.spec.footprint.get().max(1) as f64;
        let fraction = fraction.min(1.0);
        let potential = self.potential(fraction, aim);
        let wanted = (aim as f64).min(potential);
        while self.usable(fraction) < wanted {
            if !self.reduce_bandwidth() {
                break;
            }
        }
        let granted = wanted.min(self.usable(fraction));
        self.world.add(Traffic {
            near: granted * fraction,
            far: granted * (1.0 - fraction),
        });
        let cpu = (f64::from(CPU_ONE) * granted / potential.max(1.0)) as u32 + 1;
        Granted {
            cpu: cpu.clamp(self.options.cpu_floor, CPU_ONE),
            // Estimates round; a millionth is not missing.
            lacks: (aim as f64 * (1.0 - 1e-6) - granted).max(0.0) as u64,
        }
    }

    /// What it reaches alone with this near fraction and all its processor time.
    fn potential(&self, fraction: f64, aim: u64) -> f64 {
        let Some(profile) = &self.spec.profile else {
            return aim as f64;
        };
        let cost = far_cost(self.spec, self.options);
        let profiled = profile.local.get() as f64 / self.spec.footprint.get().max(1) as f64;
        profile.bandwidth as f64 * f64::from(CPU_ONE) / f64::from(profile.cpu.max(1))
            * relative(profiled, cost)
            / relative(fraction, cost)
    }

    /// Bandwidth that the tiers have left for it.
    fn usable(&self, fraction: f64) -> f64 {
        let healthy = self.options.thresholds.local_bandwidth;
        let near_all = if self.important_suffers {
            Some(healthy)
        } else {
            self.options.near_bandwidth
        };
        let mut usable = f64::INFINITY;
        if let Some(all) = near_all.filter(|_| fraction > 0.0) {
            usable = (all as f64 - self.world.near_bandwidth()).max(0.0) / fraction;
        }
        if self.important_suffers && fraction < 1.0 {
            let faults = self.options.thresholds.hint_faults_per_s;
            if let Some(left) = self.world.far_bandwidth_left(faults) {
                usable = usable.min(left / (1.0 - fraction));
            }
        }
        usable
    }

    fn yields(&self) -> Vec<Yield> {
        let changed = self
            .world
            .lines
            .iter()
            .filter(|line| line.claim != line.claim_before || line.cpu != line.cpu_before);
        changed
            .map(|line| Yield {
                app: line.id,
                name: line.name.clone(),
                near: Bytes::new(line.claim_before.saturating_sub(line.claim)),
                cpu: line.cpu_before.saturating_sub(line.cpu),
                near_after: Bytes::new(line.claim),
                cpu_after: line.cpu,
                keeps_objective: line.keeps_objective(),
            })
            .collect()
    }
}

/// Weighted sharing: no application is reduced below its share of the near tier.
fn set_floors(world: &mut World, book: &Book, spec: &AppSpec) {
    let free = u64::try_from(world.free.max(0)).unwrap_or(u64::MAX);
    let supply = world
        .lines
        .iter()
        .fold(free, |sum, line| sum.saturating_add(line.claim));
    let mut wants: Vec<Want> = world
        .lines
        .iter()
        .map(|line| Want {
            need: if line.best_effort { 0 } else { line.claim },
            weight: book.find(line.id).map_or(1, |app| app.spec.weight),
        })
        .collect();
    wants.push(Want {
        need: near_need(spec),
        weight: spec.weight,
    });
    let shares = water_fill(supply, &wants);
    for (line, share) in world.lines.iter_mut().zip(shares) {
        line.floor = share;
    }
}

/// Why a yield changes an application's limits.
pub(super) fn reason(given: &Yield, to: AppId) -> Reason {
    if given.near > Bytes::ZERO {
        Reason::YieldsMemory(to)
    } else {
        Reason::YieldsBandwidth(to)
    }
}
