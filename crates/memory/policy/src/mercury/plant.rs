//! A small model of a machine for tests: two tiers, and applications whose pages move at a finite rate.
//!
//! Problem: adaptation must settle on machines whose true curves differ from its estimates. Method: near accesses
//! slow down with the load of the near tier, and with far traffic (the tiers share request slots); pages are unequally
//! hot, so the first near bytes serve most accesses. None of the formulas is the policy's own.
//! Units: bytes, bytes per second, nanoseconds; a step is 200 ms. Limits: one far tier. Source: shapes of figures 5.3
//! and 5.4; numbers are the sweep's.

use super::*;
use isolane_common_quantities::rng::Stream;

#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    pub(super) near: u64,
    pub(super) near_bandwidth: f64,
    pub(super) far_bandwidth: f64,
    /// Far latency over near latency.
    pub(super) far_latency: f64,
    /// How latency grows with the near load, and with far traffic.
    pub(super) near_slope: f64,
    pub(super) far_slope: f64,
    /// Pages that move per step, in bytes, each application.
    pub(super) moved: u64,
    /// Largest relative error of a reading.
    pub(super) noise: f64,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            near: 70 * GB,
            near_bandwidth: 200e9,
            far_bandwidth: 40e9,
            far_latency: 2.0,
            near_slope: 0.25,
            far_slope: 0.6,
            moved: 2 * GB / 5,
            noise: 0.0,
        }
    }
}

/// What an application is in truth.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) size: u64,
    /// Bandwidth with all pages near, all processor time and an idle machine.
    pub(super) demand: f64,
    /// 1: pages are equally hot; larger: the first near bytes serve most accesses.
    pub(super) skew: u32,
    /// A stream: bandwidth follows processor time and pages.
    pub(super) stream: bool,
}

pub(super) const GB: u64 = 1_000_000_000;
const NEAR_NS: f64 = 100.0;

struct Resident {
    id: AppId,
    load: Load,
    limits: Limits,
    near: u64,
}

/// A machine, its applications and their policy.
pub(super) struct Plant<P> {
    pub(super) machine: Machine,
    pub(super) policy: P,
    pub(super) now: Instant,
    /// Every action so far, with its step.
    pub(super) log: Vec<(u64, Action)>,
    pub(super) step: u64,
    residents: Vec<Resident>,
    stream: Stream,
}

impl<P: MemoryPolicy> Plant<P> {
    pub(super) fn new(machine: Machine, policy: P) -> Self {
        Self {
            machine,
            policy,
            now: Instant::ZERO,
            log: Vec::new(),
            step: 0,
            residents: Vec::new(),
            stream: Stream::named(7, "plant"),
        }
    }

    /// An application comes; its pages are near as far as there is room and its limit allows.
    pub(super) fn start(&mut self, spec: AppSpec, load: Load) -> Verdict {
        let id = spec.id;
        let seen = self.observe();
        let verdict = self.policy.arrive(self.now, spec, &seen);
        self.perform();
        if !matches!(verdict, Verdict::Refused(_)) {
            let limits = self.policy.limits(id).unwrap_or(Limits::NONE);
            let used: u64 = self.residents.iter().map(|resident| resident.near).sum();
            let room = self.machine.near.saturating_sub(used);
            let limit = limits.tiers[0].map_or(u64::MAX, Bytes::get);
            let near = load.size.min(room).min(limit);
            self.residents.push(Resident {
                id,
                load,
                limits,
                near,
            });
            self.residents.sort_by_key(|resident| resident.id);
        }
        verdict
    }

    pub(super) fn stop(&mut self, id: AppId) {
        self.residents.retain(|resident| resident.id != id);
        self.policy.depart(self.now, id);
        self.perform();
    }

    pub(super) fn load(&mut self, id: AppId) -> &mut Load {
        let mut residents = self.residents.iter_mut();
        &mut residents.find(|resident| resident.id == id).unwrap().load
    }

    pub(super) fn run(&mut self, steps: u64) {
        for _ in 0..steps {
            self.step += 1;
            self.now += PERIOD;
            self.migrate();
            let seen = self.observe();
            self.policy.step(self.now, &seen);
            self.perform();
        }
    }

    fn perform(&mut self) {
        while let Some(action) = self.policy.poll_action() {
            self.log.push((self.step, action));
            let mut residents = self.residents.iter_mut();
            if let Some(resident) = residents.find(|resident| resident.id == action.app) {
                resident.limits = action.limits;
            }
        }
    }

    /// Pages leave at once what is above its limit, at the machine's rate; then come where there is room.
    fn migrate(&mut self) {
        for resident in &mut self.residents {
            let limit = resident.limits.tiers[0].map_or(u64::MAX, Bytes::get);
            let above = resident.near.saturating_sub(limit);
            resident.near -= above.min(self.machine.moved);
        }
        let used: u64 = self.residents.iter().map(|resident| resident.near).sum();
        let mut room = self.machine.near.saturating_sub(used);
        for resident in &mut self.residents {
            let limit = resident.limits.tiers[0].map_or(u64::MAX, Bytes::get);
            let below = limit.min(resident.load.size).saturating_sub(resident.near);
            let comes = below.min(self.machine.moved).min(room);
            resident.near += comes;
            room -= comes;
        }
    }

    /// Part of the accesses that near memory serves.
    fn near_part(resident: &Resident) -> f64 {
        let far = 1.0 - resident.near.min(resident.load.size) as f64 / resident.load.size as f64;
        let mut left = 1.0;
        for _ in 0..resident.load.skew {
            left *= far;
        }
        1.0 - left
    }

    /// Near and far bandwidth of every application at this moment: three rounds of a fixed point are enough here.
    fn traffic(&self) -> (Vec<(f64, f64)>, f64) {
        let mut slow = 1.0;
        let mut all = Vec::new();
        for _ in 0..30 {
            all = self
                .residents
                .iter()
                .map(|resident| {
                    let near = Self::near_part(resident);
                    let cost = near + (1.0 - near) * self.machine.far_latency * 2.0;
                    let cpu = f64::from(resident.limits.cpu) / 1_000.0;
                    let bandwidth = if resident.load.stream {
                        resident.load.demand * cpu / cost / slow
                    } else {
                        resident.load.demand
                    };
                    (bandwidth * near, bandwidth * (1.0 - near))
                })
                .collect();
            let near: f64 = all.iter().map(|traffic| traffic.0).sum();
            let far: f64 = all.iter().map(|traffic| traffic.1).sum();
            let load = (near / self.machine.near_bandwidth).min(0.98);
            let far_load = far / self.machine.far_bandwidth;
            let target = 1.0
                + self.machine.near_slope * load / (1.0 - load)
                + self.machine.far_slope * far_load * far_load;
            slow = f64::midpoint(slow, target);
        }
        (all, slow)
    }

    fn reading<T>(value: T) -> Option<Reading<T>> {
        Some(Reading {
            value,
            age: Duration::ZERO,
            source: Source::Model,
        })
    }

    fn wobble(&mut self) -> f64 {
        let unit = self.stream.below(2_000_001) as f64 / 1e6 - 1.0;
        1.0 + self.machine.noise * unit
    }

    pub(super) fn observe(&mut self) -> Observation {
        let (traffic, slow) = self.traffic();
        let near: u64 = self.residents.iter().map(|resident| resident.near).sum();
        let far_used: u64 = self
            .residents
            .iter()
            .map(|resident| resident.load.size - resident.near.min(resident.load.size))
            .sum();
        let sums = traffic
            .iter()
            .fold((0.0, 0.0), |sums, own| (sums.0 + own.0, sums.1 + own.1));
        let mut apps = Vec::new();
        for (place, own) in traffic.iter().enumerate() {
            let wobble = self.wobble();
            let resident = &self.residents[place];
            let near = Self::near_part(resident);
            let far_latency = NEAR_NS * self.machine.far_latency * slow.sqrt();
            let latency = near * NEAR_NS * slow + (1.0 - near) * far_latency;
            let mut held = [Bytes::ZERO; TIERS_MAX];
            held[0] = Bytes::new(resident.near);
            held[1] = Bytes::new(resident.load.size.saturating_sub(resident.near));
            apps.push(AppView {
                id: resident.id,
                held,
                latency: Self::reading(Duration::from_ns_f64(latency * wobble)),
                bandwidth: Self::reading(((own.0 + own.1) * wobble) as u64),
                cpu_used: Self::reading(resident.limits.cpu),
            });
        }
        Observation {
            tiers: vec![
                TierView {
                    capacity: Bytes::new(self.machine.near),
                    used: Bytes::new(near),
                    bandwidth: Self::reading(sums.0 as u64),
                },
                TierView {
                    capacity: Bytes::new(1_000 * GB),
                    used: Bytes::new(far_used),
                    bandwidth: Self::reading(sums.1 as u64),
                },
            ],
            hint_faults_per_s: Self::reading(sums.1 / 100_000.0),
            apps,
        }
    }

    /// What the application experiences, relative to its objective: 1 is just met.
    pub(super) fn strain(&mut self, spec: &AppSpec) -> f64 {
        let noise = std::mem::take(&mut self.machine.noise);
        let seen = self.observe();
        self.machine.noise = noise;
        let view = seen.apps.iter().find(|view| view.id == spec.id).unwrap();
        match spec.objective {
            Objective::Latency(aim) => view.latency.unwrap().value.as_ns_f64() / aim.as_ns_f64(),
            Objective::Bandwidth(aim) => aim as f64 / view.bandwidth.unwrap().value as f64,
            Objective::BestEffort => 0.0,
        }
    }

    pub(super) fn near(&self, id: AppId) -> u64 {
        let mut residents = self.residents.iter();
        residents.find(|resident| resident.id == id).unwrap().near
    }
}
