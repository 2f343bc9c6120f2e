//! Figure 5.8: adapts limits to measurements every period, in descending order of priority.
//!
//! Problem: loads change after admission, and estimates err. Method (mercury 5.5.4): an application that is better than
//! its objective gives back near memory, and a stream then gives back processor time. For an application that is worse,
//! the policy first throttles less important streams ([`super::squeeze`]), while this helps. Then the application takes
//! what it needs: a stream takes processor time first, every application takes near memory, and free memory goes before
//! memory of less important applications.
//!
//! Ours, against oscillation: there is a band in which nothing happens. The policy acts on no reading that is older
//! than the application's last change, and on none while pages approach the limit. The size of a change follows from the
//! estimate of its effect, and halves when the direction turns. An application that shrank too far waits twice as long
//! before it tries again, up to five minutes.
//!
//! Units: bytes, thousandths, steps of 200 ms. Limits: a missing or stale reading leads to nothing.
//! Source: figure 5.8, mercury 5.5.4.

use super::estimate::{far_cost, free_near, relative};
use super::sharing::{Want, water_fill};
use super::squeeze::Trial;
use super::state::{Book, held, size, strain, view};
use super::{
    AppId, AppView, CPU_ONE, Limits, MercuryOptions, Objective, Observation, Reading, Reason,
    Sharing, Source,
};
use isolane_common_quantities::units::{Bytes, Instant};

/// One step of adaptation.
pub(super) struct Round<'a> {
    pub(super) now: Instant,
    pub(super) step: u64,
    pub(super) seen: &'a Observation,
    pub(super) options: &'a MercuryOptions,
    pub(super) book: &'a mut Book,
    pub(super) trial: &'a mut Option<Trial>,
    /// Strain of each application, by place in the book.
    pub(super) strains: Vec<Option<f64>>,
    free: i128,
    hint_faults: Option<f64>,
    pub(super) near_bandwidth: Option<u64>,
    /// The lower limit of an application under weighted sharing.
    floors: Option<Vec<u64>>,
}

impl<'a> Round<'a> {
    pub(super) fn new(
        now: Instant,
        step: u64,
        seen: &'a Observation,
        options: &'a MercuryOptions,
        book: &'a mut Book,
        trial: &'a mut Option<Trial>,
    ) -> Self {
        let near = seen.tiers.first();
        let near_bandwidth = near.and_then(|tier| tier.bandwidth.as_ref());
        Self {
            strains: Vec::with_capacity(book.apps.len()),
            free: free_near(book, seen),
            hint_faults: seen.hint_faults_per_s.as_ref().and_then(Reading::fresh),
            near_bandwidth: near_bandwidth.and_then(Reading::fresh),
            floors: None,
            now,
            step,
            seen,
            options,
            book,
            trial,
        }
    }

    pub(super) fn run(&mut self) {
        self.look();
        self.advance_trial();
        for index in (0..self.book.apps.len()).rev() {
            self.decide(index);
        }
        self.share_leftover();
    }

    /// Reads the strains and counts how long they last.
    fn look(&mut self) {
        let noticed = self.options.memory_step.get() / MOVEMENT_PARTS;
        for app in &mut self.book.apps {
            let seen = view(self.seen, app.spec.id);
            let held = seen.map_or(0, |seen| seen.held[0].get());
            let target = app.limits.tiers[0].map_or(held, Bytes::get);
            app.control.approach(held, target, noticed);
            let strain = strain(app, seen).filter(|_| {
                let age = seen.and_then(|seen| age(&app.spec.objective, seen));
                after(self.now, age, app.control.changed)
            });
            let control = &mut app.control;
            let too_little = strain.is_some_and(|strain| strain > 1.0);
            control.short = if too_little { control.short + 1 } else { 0 };
            self.strains.push(strain);
        }
        for index in 0..self.book.apps.len() {
            let enough = match self.is_waited_for(index) {
                true => self.aim(),
                false => 1.0 - self.band(),
            };
            let too_much = self.strains[index].is_some_and(|strain| strain < enough);
            let control = &mut self.book.apps[index].control;
            control.surplus = if too_much { control.surplus + 1 } else { 0 };
        }
    }

    pub(super) fn band(&self) -> f64 {
        f64::from(self.options.band) / 1_000.0
    }

    /// The strain that changes aim at.
    fn aim(&self) -> f64 {
        1.0 - self.band() / 2.0
    }

    pub(super) fn view(&self, index: usize) -> Option<&'a AppView> {
        view(self.seen, self.book.apps[index].spec.id)
    }

    fn decide(&mut self, index: usize) {
        let Some(strain) = self.strains[index] else {
            return;
        };
        if self.trial.as_ref().is_some_and(|trial| {
            let id = self.book.apps[index].spec.id;
            trial.victim == id || trial.app == id
        }) {
            return;
        }
        let control = &self.book.apps[index].control;
        // A probe sees a burst of any program on the machine as the application's own trouble.
        let probed = self.view(index).and_then(|view| view.latency);
        let probed = self.book.apps[index].is_latency()
            && probed.is_some_and(|reading| reading.source == Source::Probe);
        let confirm = match probed {
            true => CONFIRM_PROBED,
            false if strain > 1.0 + self.band() => 1,
            false => CONFIRM_SHORT,
        };
        if strain > 1.0 && control.short >= confirm {
            self.relieve(index, strain);
        } else if control.surplus >= CONFIRM_SURPLUS {
            self.shrink(index, strain);
        }
    }

    /// Too little: take back what was given up too much just now, or throttle others, or else take more.
    fn relieve(&mut self, index: usize, strain: f64) {
        let step = self.step;
        let control = &mut self.book.apps[index].control;
        let shrank = control.shrank_step.take();
        if shrank.is_some_and(|shrank| control.is_recent(step, shrank)) {
            control.shrink.fail(step, SHRINK_WAIT);
            control.gain = (control.gain / 2.0).max(GAIN_MIN);
            self.grow(index, strain);
            return;
        }
        if !self.settled(index) {
            return;
        }
        let ready = self.book.apps[index].control.relief.ready(step);
        let may_try = self.trial.is_none() && ready;
        if may_try && (self.spares_the_short(index, strain) || self.begin_trial(index, strain)) {
            return;
        }
        self.grow(index, strain);
    }

    /// Near memory that no application claims.
    pub(super) fn unclaimed(&self) -> u64 {
        u64::try_from(self.free.max(0)).unwrap_or(u64::MAX)
    }

    /// Whether the last change has had its effect: pages are within the limit, or come no nearer to it.
    pub(super) fn settled(&self, index: usize) -> bool {
        let app = &self.book.apps[index];
        let since = self.step - app.control.changed_step;
        if since == 0 {
            return false;
        }
        let (Some(limit), Some(view)) = (app.limits.tiers[0], self.view(index)) else {
            return true;
        };
        let slack = self.slack(index);
        let now = view.held[0].get();
        let outside = now > limit.get() + slack;
        let filling = now + slack < limit.get() && held(view) > now;
        (!outside && !filling) || app.control.still.min(since) >= STALLED
    }

    /// Bytes that do not count: half a step of the limit.
    fn slack(&self, index: usize) -> u64 {
        let limit = self.book.apps[index].limits.tiers[0].map_or(0, Bytes::get);
        (self.options.memory_step.get() / 2).max(limit / 128)
    }

    /// Near bytes by which strain moves to the aim, by the estimate of `far_cost`; and the bytes it has.
    fn change_for(&self, index: usize, strain: f64) -> (f64, u64) {
        let app = &self.book.apps[index];
        let all = self.view(index).map_or(0, held).max(1);
        let near = self.view(index).map_or(0, |view| view.held[0].get());
        let cost = far_cost(&app.spec, self.options);
        let slope = strain * (cost - 1.0) / relative(near as f64 / all as f64, cost);
        let fraction = (strain - self.aim()).abs() / slope.max(f64::MIN_POSITIVE);
        (fraction.min(1.0) * all as f64 * app.control.gain, all)
    }

    /// Takes processor time, then near memory.
    fn grow(&mut self, index: usize, strain: f64) {
        let app = &self.book.apps[index];
        let stream = !app.is_latency();
        if stream && self.comes_near(index, strain) {
            return;
        }
        if stream && !self.may_push(index) {
            return;
        }
        let app = &self.book.apps[index];
        let cpu = app.limits.cpu;
        // Where far traffic is unhealthy, processor time would add to it, and near memory takes from it.
        if stream && cpu < CPU_ONE && !self.far_traffic_hurts(index) {
            let factor = (strain / self.aim()).min(CPU_GROWTH_MAX);
            let more = (f64::from(cpu) * factor) as u32 + 1;
            self.set_cpu(index, more.min(CPU_ONE), Reason::Shortage);
            self.book.apps[index].control.regrew_step = Some(self.step);
            return;
        }
        let wanted = self.wanted(index, strain);
        let got = self.obtain(index, wanted);
        self.add_near(index, got);
    }

    /// Near memory that the application can use to reach its aim: none while its limit is not full, or while none of
    /// its pages are far.
    pub(super) fn wanted(&self, index: usize, strain: f64) -> u64 {
        let app = &self.book.apps[index];
        let Some(seen) = self.view(index) else {
            return 0;
        };
        let claim = app.claim(Some(seen));
        let slack = self.slack(index);
        let limited = seen.held[0].get() + slack >= claim;
        let has_far = held(seen) > seen.held[0].get() + slack;
        if !limited || !has_far {
            return 0;
        }
        let (change, all) = self.change_for(index, strain);
        let step = self.options.memory_step.get();
        let change = (change as u64).min(all / GROWTH_PARTS).max(step);
        let cap = app.spec.caps[0].map_or(u64::MAX, Bytes::get);
        // Pages that are still on their way out stay.
        let change = change + seen.held[0].get().saturating_sub(claim);
        change.min(size(&app.spec, Some(seen)).min(cap).saturating_sub(claim))
    }

    /// Raises its limit by `got` bytes that are its own now; whether that is anything.
    pub(super) fn add_near(&mut self, index: usize, got: u64) -> bool {
        if got == 0 {
            return false;
        }
        let app = &self.book.apps[index];
        let stream = !app.is_latency();
        let claim = app.claim(self.view(index));
        self.turned(index, true);
        self.set_near(index, claim + got, Reason::Shortage);
        if stream {
            self.book.apps[index].control.regrew_step = Some(self.step);
        }
        true
    }

    /// Near memory for an application: what is free, then what others yield. Returns what it may add to its limit.
    fn obtain(&mut self, index: usize, wanted: u64) -> u64 {
        let mut got = wanted.min(self.unclaimed());
        let taker = self.book.apps[index].spec.id;
        for victim in self.victims(index) {
            if got == wanted {
                break;
            }
            if self.too_many_faults() {
                self.throttle_least(index);
                break;
            }
            let claim = self.book.apps[victim].claim(self.view(victim));
            let floor = self.floor(victim, index);
            let give = claim.saturating_sub(floor).min(wanted - got);
            if give > 0 {
                self.set_near(victim, claim - give, Reason::YieldsMemory(taker));
                got += give;
            }
        }
        got
    }

    /// Applications that may yield, in order: best effort, then ascending priority.
    pub(super) fn victims(&self, index: usize) -> Vec<usize> {
        let best_effort =
            |place: &usize| self.book.apps[*place].spec.objective == Objective::BestEffort;
        let others = (0..self.book.apps.len()).filter(|&place| place != index);
        let mut victims: Vec<usize> = others.clone().filter(best_effort).collect();
        let weighted = self.options.sharing == Sharing::Weighted;
        victims.extend(others.filter(|place| !best_effort(place) && (weighted || *place < index)));
        victims
    }

    /// What the victim keeps: nothing, or its share by weight.
    fn floor(&mut self, victim: usize, taker: usize) -> u64 {
        if self.options.sharing == Sharing::Strict {
            return 0;
        }
        if self.floors.is_none() {
            let supply = self.book.apps.iter().enumerate().fold(
                u64::try_from(self.free.max(0)).unwrap_or(u64::MAX),
                |sum, (place, app)| sum.saturating_add(app.claim(self.view(place))),
            );
            let wants: Vec<Want> = (0..self.book.apps.len())
                .map(|place| self.want(place, taker))
                .collect();
            self.floors = Some(water_fill(supply, &wants));
        }
        self.floors.as_ref().map_or(0, |floors| floors[victim])
    }

    fn want(&self, place: usize, taker: usize) -> Want {
        let app = &self.book.apps[place];
        let short = self.strains[place].is_some_and(|strain| strain > 1.0);
        let need = match app.spec.objective {
            Objective::BestEffort => 0,
            _ if short || place == taker => size(&app.spec, self.view(place)),
            _ => app.claim(self.view(place)),
        };
        Want {
            need,
            weight: app.spec.weight,
        }
    }

    /// Takes one step of processor time from the least important stream below `index` (lines 9-10 of algorithm 4).
    fn throttle_least(&mut self, index: usize) {
        let floor = self.options.cpu_floor;
        let taker = self.book.apps[index].spec.id;
        let victim = self.victims(index).into_iter().find(|&place| {
            let app = &self.book.apps[place];
            !app.is_latency() && app.limits.cpu > floor
        });
        if let Some(victim) = victim {
            let cpu = self.book.apps[victim].limits.cpu;
            let cpu = cpu.saturating_sub(self.options.cpu_step).max(floor);
            self.squeezed(victim, taker);
            self.set_cpu(victim, cpu, Reason::InterTier);
        }
    }

    /// Too much: gives near memory back, then processor time.
    fn shrink(&mut self, index: usize, strain: f64) {
        let app = &self.book.apps[index];
        let ready = app.control.shrink.ready(self.step) && self.settled(index);
        if !ready || self.awaited(index) || self.would_be_idle(index) {
            return;
        }
        let Some(seen) = self.view(index) else { return };
        let base = app.claim(Some(seen)).min(seen.held[0].get());
        let stream = !app.is_latency();
        let (change, all) = self.change_for(index, strain);
        let step = self.options.memory_step.get();
        if base > 0 && !self.too_many_faults_for(index) {
            let change = (change as u64).min(all / SHRINK_PARTS).min(base);
            if change >= step.min(base) {
                self.turned(index, false);
                self.set_near(index, base - change, Reason::Surplus);
                self.book.apps[index].control.shrank_step = Some(self.step);
            }
            return;
        }
        let cpu = app.limits.cpu;
        let factor = (strain / self.aim()).max(CPU_SHRINK_MIN);
        let less = ((f64::from(cpu) * factor) as u32).max(self.options.cpu_floor);
        if stream && less < cpu {
            self.set_cpu(index, less, Reason::Surplus);
            self.book.apps[index].control.shrank_step = Some(self.step);
        }
    }

    /// Whether an application that was throttled for this one can use its surplus.
    fn awaited(&self, index: usize) -> bool {
        let id = self.book.apps[index].spec.id;
        self.book.apps.iter().enumerate().any(|(place, app)| {
            app.control.squeezed_for == Some(id)
                && app.control.regrow.ready(self.step)
                && self.strains[place].is_some_and(|strain| strain > 1.0)
        })
    }

    /// Remembers the direction, and halves the gain where it turns.
    fn turned(&mut self, index: usize, up: bool) {
        let control = &mut self.book.apps[index].control;
        if control.went_up.is_some_and(|before| before != up) {
            control.gain = (control.gain / 2.0).max(GAIN_MIN);
        }
        control.went_up = Some(up);
    }

    /// Divides unneeded near memory among best effort, and gives processor time back.
    fn share_leftover(&mut self) {
        let open: Vec<usize> = (0..self.book.apps.len())
            .filter(|&place| self.book.apps[place].spec.objective == Objective::BestEffort)
            .collect();
        if open.is_empty() {
            return;
        }
        let claims: Vec<u64> = open
            .iter()
            .map(|&place| self.book.apps[place].claim(self.view(place)))
            .collect();
        let pool = self.free + claims.iter().map(|&claim| i128::from(claim)).sum::<i128>();
        let pool = u64::try_from(pool.max(0)).unwrap_or(u64::MAX);
        let wants: Vec<Want> = open
            .iter()
            .map(|&place| {
                let spec = &self.book.apps[place].spec;
                let cap = spec.caps[0].map_or(u64::MAX, Bytes::get);
                Want {
                    need: size(spec, self.view(place)).min(cap),
                    weight: spec.weight,
                }
            })
            .collect();
        let shares = water_fill(pool, &wants);
        let tight = self.free < 0;
        for ((&place, &share), &claim) in open.iter().zip(&shares).zip(&claims) {
            let enough = share.abs_diff(claim) >= 2 * self.options.memory_step.get();
            if enough || (tight && share < claim) {
                self.set_near(place, share, Reason::Leftover);
            }
            let cpu = self.book.apps[place].limits.cpu;
            let victim = self.trial.as_ref().map(|trial| trial.victim);
            if cpu < CPU_ONE
                && victim != Some(self.book.apps[place].spec.id)
                && self.may_push(place)
                && !self.far_traffic_hurts(place)
            {
                let more = (cpu + self.options.cpu_step).min(CPU_ONE);
                self.set_cpu(place, more, Reason::Leftover);
                self.book.apps[place].control.regrew_step = Some(self.step);
            }
        }
    }

    /// Whether a stream may draw more bandwidth: no more important application is being relieved, the one that the
    /// stream was throttled for has room to spare, and the near tier is healthy for more important applications.
    fn may_push(&self, index: usize) -> bool {
        let app = &self.book.apps[index];
        if !app.control.regrow.ready(self.step) || self.relieves_above(index) {
            return false;
        }
        if let Some(other) = self.squeezed_for(index) {
            let useless = self.book.apps[other].control.relief_useless;
            let roomy = self.strains[other].is_some_and(|strain| strain <= self.aim());
            if !useless && !roomy {
                return false;
            }
        }
        let healthy = self.options.thresholds.local_bandwidth;
        let crowded = self.near_bandwidth.is_some_and(|now| now > healthy);
        !(crowded && self.more_important_latency(index))
    }

    /// Whether others are throttled now for a more important application.
    pub(super) fn relieves_above(&self, index: usize) -> bool {
        let trial = self.trial.as_ref();
        let relieved = trial.and_then(|trial| self.book.position(trial.app));
        relieved.is_some_and(|relieved| relieved > index)
    }

    /// For whom it was throttled.
    pub(super) fn squeezed_for(&self, index: usize) -> Option<usize> {
        let other = self.book.apps[index].control.squeezed_for;
        other.and_then(|id| self.book.position(id))
    }

    pub(super) fn more_important_latency(&self, index: usize) -> bool {
        let above = &self.book.apps[index + 1..];
        above.iter().any(|other| other.is_latency())
    }

    /// Whether far traffic is unhealthy and a more important application suffers from it.
    fn far_traffic_hurts(&self, index: usize) -> bool {
        self.faults_above() && self.more_important_latency(index)
    }

    fn faults_above(&self) -> bool {
        let healthy = self.options.thresholds.hint_faults_per_s;
        self.hint_faults.is_some_and(|faults| faults > healthy)
    }

    /// Unhealthy far traffic matters while any application is sensitive to latency (mercury 5.6.2).
    pub(super) fn too_many_faults(&self) -> bool {
        self.faults_above() && self.book.apps.iter().any(|app| app.is_latency())
    }

    /// Whether its own far traffic must not grow: others suffer from it, and it is more than a trifle.
    fn too_many_faults_for(&self, index: usize) -> bool {
        let own = self.view(index).and_then(|seen| seen.bandwidth.as_ref());
        let least = self.options.thresholds.local_bandwidth / TRAFFIC_PARTS;
        if own.and_then(Reading::fresh).is_some_and(|own| own < least) {
            return false;
        }
        let mut others = self.book.apps.iter().enumerate();
        self.faults_above() && others.any(|(place, app)| place != index && app.is_latency())
    }

    pub(super) fn set_near(&mut self, index: usize, near: u64, reason: Reason) {
        let mut limits = self.book.apps[index].limits;
        limits.tiers[0] = Some(Bytes::new(near));
        self.set_limits(index, limits, reason);
    }

    pub(super) fn set_cpu(&mut self, index: usize, cpu: u32, reason: Reason) {
        let mut limits = self.book.apps[index].limits;
        limits.cpu = cpu;
        self.set_limits(index, limits, reason);
    }

    pub(super) fn set_limits(&mut self, index: usize, limits: Limits, reason: Reason) {
        let seen = self.view(index);
        let app = &mut self.book.apps[index];
        let before = app.claim(seen);
        app.set(limits, reason, self.now, self.step);
        self.free += i128::from(before) - i128::from(app.claim(seen));
    }

    /// Remembers that a victim gave bandwidth; one that had just got some back waits longer the next time.
    pub(super) fn squeezed(&mut self, victim: usize, taker: AppId) {
        let step = self.step;
        let control = &mut self.book.apps[victim].control;
        control.squeezed_for = Some(taker);
        match control.regrew_step.take() {
            Some(regrew) if control.still.min(step - regrew) <= TRUST => {
                control.regrow.fail(step, REGROW_WAIT);
            }
            Some(_) => control.regrow.again(step, REGROW_WAIT),
            None => control.regrow.pause(step, REGROW_WAIT),
        }
    }
}

/// Age of the reading that decides about this objective.
fn age(
    objective: &Objective,
    seen: &AppView,
) -> Option<isolane_common_quantities::units::Duration> {
    match objective {
        Objective::Latency(_) => seen.latency.map(|reading| reading.age),
        Objective::Bandwidth(_) => seen.bandwidth.map(|reading| reading.age),
        Objective::BestEffort => None,
    }
}

/// Whether a reading of this age was taken after `changed`.
pub(super) fn after(
    now: Instant,
    age: Option<isolane_common_quantities::units::Duration>,
    changed: Option<Instant>,
) -> bool {
    let Some(changed) = changed else { return true };
    age.is_some_and(|age| now.saturating_since(changed) > age)
}

/// A shortage beyond the band is believed at once, a smaller one the second time: both within two periods.
const CONFIRM_SHORT: u32 = 2;
/// A shortage that a probe shows is believed the third time, however large it is.
const CONFIRM_PROBED: u32 = 3;
/// A surplus counts at the third reading, as it is not urgent.
const CONFIRM_SURPLUS: u32 = 3;
/// First waits after trouble, in steps; they double.
const SHRINK_WAIT: u64 = 10;
const REGROW_WAIT: u64 = 5;
/// Bandwidth that was given back stays for a minute, or the next wait is longer: a limit turns at most twice a minute, until
/// waits are as long as that.
const TRUST: u64 = 300;
/// Least part of the estimated change.
const GAIN_MIN: f64 = 0.0625;
/// At most a quarter of an application's memory comes at once, and an eighth goes.
const GROWTH_PARTS: u64 = 4;
const SHRINK_PARTS: u64 = 8;
/// At most half as much processor time again comes at once, and a fifth goes.
const CPU_GROWTH_MAX: f64 = 1.5;
const CPU_SHRINK_MIN: f64 = 0.8;
/// An application below a fiftieth of the healthy bandwidth disturbs no other.
pub(super) const TRAFFIC_PARTS: u64 = 50;
/// Less than this part of a step of memory is no movement: 20 MB/s where a step is 0.5 GB.
const MOVEMENT_PARTS: u64 = 128;
/// Pages that have come no nearer to a limit for so many steps will not.
const STALLED: u64 = 5;
