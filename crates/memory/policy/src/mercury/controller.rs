//! Mercury as a [`MemoryPolicy`]: admission at each arrival, adaptation in each period.
//!
//! Units: see the module above. Limits: one instance, one machine. Source: mercury 5.5.

use super::adapt::Round;
use super::admission::{Plan, plan, reason};
use super::estimate::free_near;
use super::fixed::{departed, take_first};
use super::squeeze::Trial;
use super::state::{App, Book};
use super::{
    Action, AppId, AppSpec, Limits, MemoryPolicy, MercuryOptions, Observation, Reading, Refusal,
    Verdict, Yield, tiers,
};
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{Bytes, Instant};

/// Memory with objectives and strict priorities.
///
/// ```
/// use isolane_memory_policy::mercury::*;
/// use isolane_common_quantities::units::{Bytes, Duration, Instant};
///
/// let thresholds = Thresholds { local_bandwidth: 150_000_000_000, hint_faults_per_s: 50_000.0 };
/// let near = Bytes::new(20_000_000_000);
/// let mut mercury = Mercury::new(MercuryOptions::new(thresholds, near)).unwrap();
/// let seen = Observation {
///     tiers: vec![
///         TierView { capacity: near, ..TierView::default() },
///         TierView { capacity: Bytes::new(100_000_000_000), ..TierView::default() },
///     ],
///     ..Observation::default()
/// };
/// let redis = AppSpec {
///     name: "redis".to_owned(),
///     profile: Some(Profile {
///         admissible: true,
///         local: Bytes::new(18_000_000_000),
///         cpu: CPU_ONE,
///         bandwidth: 4_000_000_000,
///         best: Objective::Latency(Duration::from_ns(145)),
///     }),
///     ..AppSpec::new(AppId(1), Objective::Latency(Duration::from_ns(160)), 3, near)
/// };
/// assert_eq!(mercury.arrive(Instant::ZERO, redis, &seen), Verdict::Admitted);
/// let action = mercury.poll_action().unwrap();
/// assert_eq!(action.limits.tiers[0], Some(Bytes::new(18_000_000_000)));
/// ```
#[derive(Clone, Debug)]
pub struct Mercury {
    options: MercuryOptions,
    book: Book,
    steps: u64,
    /// Hint faults per byte of far traffic, learned.
    faults_per_byte: Option<f64>,
    trial: Option<Trial>,
    /// An application arrived or left: the far tiers are divided again.
    divide: bool,
    pending: Vec<Action>,
}

impl Mercury {
    /// A policy with these parameters and no applications. Fails as [`MercuryOptions::check`] does.
    pub fn new(options: MercuryOptions) -> Result<Self, OptionError> {
        options.check()?;
        Ok(Self {
            options,
            book: Book::default(),
            steps: 0,
            faults_per_byte: None,
            trial: None,
            divide: false,
            pending: Vec::new(),
        })
    }

    /// What would happen if this application came now; changes nothing.
    pub fn plan(&self, spec: &AppSpec, seen: &Observation) -> Plan {
        plan(&self.book, &self.options, spec, seen, self.faults_per_byte)
    }

    /// Near memory that no application claims; none where more is claimed than there is.
    pub fn unclaimed(&self, seen: &Observation) -> Bytes {
        let free = free_near(&self.book, seen).max(0);
        Bytes::new(u64::try_from(free).unwrap_or(u64::MAX))
    }

    /// Puts an application under control with limits that are in force already, after a restart. There is no admission
    /// test. Fails if it, or another one with its priority, is here already.
    pub fn adopt(&mut self, now: Instant, spec: AppSpec, limits: Limits) -> Result<(), Refusal> {
        if self.book.find(spec.id).is_some() {
            return Err(Refusal::Duplicate);
        }
        let mut others = self.book.apps.iter();
        if let Some(other) = others.find(|app| app.spec.priority == spec.priority) {
            return Err(Refusal::DuplicatePriority(other.spec.id));
        }
        let mut app = App::new(spec, limits);
        app.announced = Some(limits);
        app.control.changed = Some(now);
        app.control.changed_step = self.steps;
        self.book.insert(app);
        Ok(())
    }

    /// What is known about waiting no longer holds.
    fn population_changed(&mut self) {
        self.divide = true;
        self.trial = None;
        for app in &mut self.book.apps {
            app.control.forget_waiting();
        }
    }

    /// Hint faults per far byte, from what is measured now.
    fn learn(&mut self, seen: &Observation) {
        let Some(faults) = seen.hint_faults_per_s.as_ref().and_then(Reading::fresh) else {
            return;
        };
        let far = seen.tiers.iter().skip(1).try_fold(0.0, |sum, tier| {
            let bandwidth = tier.bandwidth.as_ref().and_then(Reading::fresh)?;
            Some(sum + bandwidth as f64)
        });
        let Some(far) = far.filter(|&far| far > FAR_TELLS_BYTES_PER_S) else {
            return;
        };
        let now = faults / far;
        let before = self.faults_per_byte.unwrap_or(now);
        self.faults_per_byte = Some(before + (now - before) * LEARNING);
    }
}

impl MemoryPolicy for Mercury {
    fn arrive(&mut self, now: Instant, spec: AppSpec, seen: &Observation) -> Verdict {
        let plan = self.plan(&spec, seen);
        if matches!(plan.verdict, Verdict::Refused(_)) {
            return plan.verdict;
        }
        for given in &plan.yields {
            let Some(place) = self.book.position(given.app) else {
                continue;
            };
            let victim = &mut self.book.apps[place];
            let mut limits = victim.limits;
            if given.near > Bytes::ZERO {
                limits.tiers[0] = Some(given.near_after);
            }
            if given.cpu > 0 {
                limits.cpu = given.cpu_after;
                victim.control.squeezed_for = Some(spec.id);
            }
            victim.set(limits, reason(given, spec.id), now, self.steps);
        }
        let mut app = App::new(spec, plan.limits);
        app.control.changed = Some(now);
        app.control.changed_step = self.steps;
        self.book.insert(app);
        self.population_changed();
        tiers::spread(&mut self.book, seen);
        self.divide = false;
        self.book.flush(&mut self.pending);
        plan.verdict
    }

    fn depart(&mut self, _: Instant, app: AppId) {
        if self.book.remove(app).is_none() {
            return;
        }
        for other in &mut self.book.apps {
            if other.control.squeezed_for == Some(app) {
                other.control.squeezed_for = None;
            }
        }
        self.population_changed();
        self.pending.retain(|action| action.app != app);
        self.pending.push(departed(app));
    }

    fn step(&mut self, now: Instant, seen: &Observation) {
        self.steps += 1;
        self.learn(seen);
        let mut round = Round::new(
            now,
            self.steps,
            seen,
            &self.options,
            &mut self.book,
            &mut self.trial,
        );
        round.run();
        if self.divide {
            tiers::spread(&mut self.book, seen);
            self.divide = false;
        }
        self.book.flush(&mut self.pending);
    }

    fn poll_action(&mut self) -> Option<Action> {
        take_first(&mut self.pending)
    }

    fn limits(&self, app: AppId) -> Option<Limits> {
        self.book.find(app).map(|app| app.limits)
    }

    fn yields(&self, spec: &AppSpec, seen: &Observation) -> Vec<Yield> {
        self.plan(spec, seen).yields
    }
}

/// Below 100 MB/s of far traffic, faults are chance.
const FAR_TELLS_BYTES_PER_S: f64 = 1e8;
/// Part of the way that the factor moves to a new measurement.
const LEARNING: f64 = 0.125;
