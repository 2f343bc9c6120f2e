//! Estimates the effect of a change of limits.
//!
//! Problem: algorithm 4 takes memory step by step and looks at the hint faults after each step; on a real machine
//! migrating takes seconds, and a question "what if" may migrate nothing at all. So admission works on estimates,
//! and adaptation corrects them by what it measures.
//!
//! Method: an application that waits for memory needs, for each byte, the mean of near and far cost, weighted by its
//! pages in each tier: strain is linear in the near fraction f, `1 + (1 - f)(ratio - 1)`, and inverse to processor
//! time. The ratio follows from the two points that profiling measured, or from the machine (figure 5.3). Hint faults
//! follow traffic to far tiers in proportion; the factor is what is measured now, else the machine's profile.
//!
//! Units: bytes, bytes per second, thousandths. Limits: the estimate assumes equally hot pages, which overstates the
//! cost of yielding, and unloaded tiers. Only ratios of estimates to readings are used. Source: figures 5.3, 5.4;
//! mercury 5.5.3. The formula is ours.

use super::state::{App, Book, size, strain, view};
use super::{
    AppId, AppSpec, AppView, CPU_ONE, MercuryOptions, Objective, Observation, Reading, Sharing,
};

/// How strain grows from all near (1) to all far.
pub(super) fn far_cost(spec: &AppSpec, options: &MercuryOptions) -> f64 {
    let default = match spec.objective {
        Objective::Latency(_) => options.latency_ratio,
        Objective::Bandwidth(_) | Objective::BestEffort => options.bandwidth_ratio,
    };
    let default = f64::from(default) / 1_000.0;
    let Some(profile) = &spec.profile else {
        return default;
    };
    let fraction = profile.local.get() as f64 / spec.footprint.get().max(1) as f64;
    let growth = match (profile.best, spec.objective) {
        (Objective::Latency(best), Objective::Latency(aim)) if !best.is_zero() => {
            aim.as_ps() as f64 / best.as_ps() as f64
        }
        (Objective::Bandwidth(best), _) if profile.bandwidth > 0 => {
            best as f64 * f64::from(profile.cpu.min(CPU_ONE))
                / (f64::from(CPU_ONE) * profile.bandwidth as f64)
        }
        _ => return default,
    };
    if fraction > FRACTION_TELLS || growth <= 1.0 {
        return default;
    }
    (1.0 + (growth - 1.0) / (1.0 - fraction)).min(COST_MAX)
}

/// Strain relative to all pages near, at this near fraction.
pub(super) fn relative(fraction: f64, cost: f64) -> f64 {
    1.0 + (1.0 - fraction.clamp(0.0, 1.0)) * (cost - 1.0)
}

/// Profiling at more than this fraction of near memory does not give the slope.
const FRACTION_TELLS: f64 = 0.9;
const COST_MAX: f64 = 20.0;

/// Traffic of one application to both kinds of memory, in bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Traffic {
    pub(super) near: f64,
    pub(super) far: f64,
}

/// One application in the world that admission plans in.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) id: AppId,
    pub(super) name: String,
    pub(super) priority: u32,
    pub(super) latency: bool,
    pub(super) best_effort: bool,
    /// Near memory and processor time now, and planned.
    pub(super) claim_before: u64,
    pub(super) claim: u64,
    pub(super) cpu_before: u32,
    pub(super) cpu: u32,
    /// It is not drawn below this.
    pub(super) floor: u64,
    pub(super) strain: Option<f64>,
    pub(super) profile_local: Option<u64>,
    held: u64,
    size: u64,
    bandwidth: f64,
    cost: f64,
    traffic: Traffic,
}

impl Line {
    pub(super) fn new(app: &App, seen: Option<&AppView>, options: &MercuryOptions) -> Self {
        let claim = app.claim(seen);
        let size = size(&app.spec, seen);
        let holds = seen.map_or(0, super::state::held);
        let (held, size) = if holds > 0 {
            (seen.map_or(0, |seen| seen.held[0].get()), holds)
        } else {
            (claim, size)
        };
        let measured = seen
            .and_then(|seen| seen.bandwidth.as_ref())
            .and_then(Reading::fresh);
        let expected = match (&app.spec.profile, app.spec.objective) {
            (Some(profile), _) => profile.bandwidth,
            (None, Objective::Bandwidth(aim)) => aim,
            (None, _) => 0,
        };
        let mut line = Self {
            id: app.spec.id,
            name: app.spec.name.clone(),
            priority: app.spec.priority,
            latency: app.is_latency(),
            best_effort: app.spec.objective == Objective::BestEffort,
            claim_before: claim,
            claim,
            cpu_before: app.limits.cpu,
            cpu: app.limits.cpu,
            floor: 0,
            strain: strain(app, seen),
            profile_local: app.spec.profile.map(|profile| profile.local.get()),
            held,
            size,
            bandwidth: measured.unwrap_or(expected) as f64,
            cost: far_cost(&app.spec, options),
            traffic: Traffic::default(),
        };
        line.traffic = line.traffic_at(claim, app.limits.cpu);
        line
    }

    fn fraction(&self, claim: u64) -> f64 {
        claim.min(self.held) as f64 / self.size.max(1) as f64
    }

    fn relative(&self, claim: u64) -> f64 {
        relative(self.fraction(claim), self.cost)
    }

    /// Its traffic with this much near memory and processor time.
    fn traffic_at(&self, claim: u64, cpu: u32) -> Traffic {
        let cpu_part = f64::from(cpu) / f64::from(self.cpu_before.max(1));
        let all =
            self.bandwidth * cpu_part * self.relative(self.claim_before) / self.relative(claim);
        let near = all * self.fraction(claim);
        Traffic {
            near,
            far: all - near,
        }
    }

    /// Whether the objective is expected to hold with what is planned.
    pub(super) fn keeps_objective(&self) -> Option<bool> {
        if self.best_effort {
            return None;
        }
        if let Some(strain) = self.strain {
            let cpu_part = f64::from(self.cpu_before) / f64::from(self.cpu.max(1));
            let memory_part = self.relative(self.claim) / self.relative(self.claim_before);
            return Some(strain * cpu_part * memory_part <= 1.0);
        }
        let local = self.profile_local?;
        Some(self.claim >= local && self.cpu >= self.cpu_before)
    }
}

/// The machine with its applications, as planned so far.
#[derive(Clone, Debug)]
pub(super) struct World {
    /// In the order in which they yield: best effort first, then ascending priority.
    pub(super) lines: Vec<Line>,
    /// Near memory that no application claims; negative when more is claimed than there is.
    pub(super) free: i128,
    /// Room in the far tiers.
    pub(super) far_room: u64,
    /// Bandwidth of the near tier now.
    near_measured: Option<f64>,
    traffic: Traffic,
    far_before: f64,
    near_before: f64,
    hint_faults: Option<f64>,
    faults_per_byte: Option<f64>,
}

impl World {
    pub(super) fn new(
        book: &Book,
        options: &MercuryOptions,
        seen: &Observation,
        learned: Option<f64>,
    ) -> Self {
        let mut lines: Vec<Line> = book
            .apps
            .iter()
            .map(|app| Line::new(app, view(seen, app.spec.id), options))
            .collect();
        lines.sort_by_key(|line| (!line.best_effort, line.priority));
        let (near, far) = lines.iter().fold((0.0, 0.0), |(near, far), line| {
            (near + line.traffic.near, far + line.traffic.far)
        });
        let hint_faults = seen.hint_faults_per_s.as_ref().and_then(Reading::fresh);
        let healthy = options.thresholds.hint_faults_per_s;
        let profiled = options
            .far_bandwidth
            .filter(|&bandwidth| bandwidth > 0)
            .map(|bandwidth| healthy / bandwidth as f64);
        let far_room = seen.tiers.iter().skip(1).fold(0u64, |sum, tier| {
            sum.saturating_add(tier.capacity.get().saturating_sub(tier.used.get()))
        });
        let near_measured = seen.tiers.first().and_then(|tier| tier.bandwidth.as_ref());
        Self {
            free: free_near(book, seen),
            far_room,
            near_measured: near_measured
                .and_then(Reading::fresh)
                .map(|value| value as f64),
            traffic: Traffic { near, far },
            far_before: far,
            near_before: near,
            hint_faults,
            faults_per_byte: learned.or(profiled),
            lines,
        }
    }

    /// Expected bandwidth of the near tier, in bytes per second.
    pub(super) fn near_bandwidth(&self) -> f64 {
        let known = self.near_measured.unwrap_or(self.near_before);
        (known + self.traffic.near - self.near_before).max(0.0)
    }

    /// Expected hint faults per second; nothing without a fresh reading.
    pub(super) fn hint_faults(&self) -> Option<f64> {
        let now = self.hint_faults?;
        let more = self.traffic.far - self.far_before;
        let per_byte = self.faults_per_byte.unwrap_or(0.0);
        Some((now + per_byte * more).max(0.0))
    }

    /// Bytes per second that may still go far before hint faults reach `healthy`.
    pub(super) fn far_bandwidth_left(&self, healthy: f64) -> Option<f64> {
        let left = healthy - self.hint_faults()?;
        let per_byte = self.faults_per_byte.filter(|&per_byte| per_byte > 0.0)?;
        Some((left / per_byte).max(0.0))
    }

    /// Traffic that a new application adds.
    pub(super) fn add(&mut self, traffic: Traffic) {
        self.traffic.near += traffic.near;
        self.traffic.far += traffic.far;
    }

    /// Plans other limits for one line.
    pub(super) fn change(&mut self, index: usize, claim: u64, cpu: u32) {
        let line = &mut self.lines[index];
        let old = line.traffic;
        let moved_before = line.held.saturating_sub(line.claim);
        let moved = line.held.saturating_sub(claim);
        self.free += i128::from(line.claim) - i128::from(claim);
        line.claim = claim;
        line.cpu = cpu;
        line.traffic = line.traffic_at(claim, cpu);
        self.traffic.near += line.traffic.near - old.near;
        self.traffic.far += line.traffic.far - old.far;
        self.far_room = (self.far_room + moved_before).saturating_sub(moved);
    }

    /// Most that a line can give: what is above its floor, as far as the far tiers have room for its pages.
    pub(super) fn can_give(&self, index: usize) -> u64 {
        let line = &self.lines[index];
        let unused = line.claim.saturating_sub(line.held);
        let above = line.claim.saturating_sub(line.floor);
        above.min(unused.saturating_add(self.far_room))
    }
}

/// Near memory that no application claims and no process outside our control uses.
pub(super) fn free_near(book: &Book, seen: &Observation) -> i128 {
    let Some(near) = seen.tiers.first() else {
        return 0;
    };
    let held: u64 = seen.apps.iter().fold(0u64, |sum, view| {
        if book.find(view.id).is_some() {
            sum.saturating_add(view.held[0].get())
        } else {
            sum
        }
    });
    let foreign = near.used.get().saturating_sub(held);
    let claims = book
        .apps
        .iter()
        .map(|app| i128::from(app.claim(view(seen, app.spec.id))))
        .sum::<i128>();
    i128::from(near.capacity.get()) - i128::from(foreign) - claims
}

/// Whether the line may yield for an application of this priority.
pub(super) fn yields_to(line: &Line, priority: u32, sharing: Sharing) -> bool {
    line.best_effort || sharing == Sharing::Weighted || line.priority < priority
}
