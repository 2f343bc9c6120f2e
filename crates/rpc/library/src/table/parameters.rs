//! The parameters of decisions, in words that can change at run time.
//!
//! Method: one atomic per number, read without a lock by every decision, written by a reload. A decision during a
//! reload may see some old and some new numbers; each is valid by itself. Units: objectives in picoseconds per MTU,
//! windows in nanoseconds rounded down, probabilities in parts of 2^32.

use crate::settings::{Mode, Settings};
use isolane_common_quantities::units::Duration;
use isolane_rpc_policy::aequitas::{AequitasOptions, Probability};
use isolane_rpc_policy::aequitas2::Aequitas2Options;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

#[derive(Debug, Default)]
struct ClassParameters {
    target_ps_per_mtu: AtomicU64,
    window_ns: AtomicU64,
    increment: AtomicU64,
    decrement_per_mtu: AtomicU64,
    floor: AtomicU64,
    /// Bits of a floating-point number.
    percentile: AtomicU64,
    cut: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Parameters {
    classes: Box<[ClassParameters]>,
    mode: AtomicU8,
    mtu_bytes: AtomicU32,
    idle_after_ns: AtomicU64,
}

/// One class's numbers at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) target_ps_per_mtu: u64,
    pub(super) window_ns: u64,
    pub(super) increment: Probability,
    pub(super) decrement_per_mtu: Probability,
    pub(super) floor: Probability,
}

impl Rule {
    /// Whether a call of `mtus` MTUs that took `latency_ns` met the objective.
    pub(super) fn is_met(&self, latency_ns: u64, mtus: u32) -> bool {
        let allowed_ps = self.target_ps_per_mtu.saturating_mul(u64::from(mtus));
        latency_ns.saturating_mul(1_000) < allowed_ps
    }
}

impl Parameters {
    pub(super) fn new(settings: &Settings) -> Self {
        let parameters = Self {
            classes: (0..settings.classes.len())
                .map(|_| ClassParameters::default())
                .collect(),
            mode: AtomicU8::new(0),
            mtu_bytes: AtomicU32::new(1),
            idle_after_ns: AtomicU64::new(0),
        };
        parameters.set(settings);
        parameters
    }

    /// Applies new numbers for the same classes.
    pub(super) fn set(&self, settings: &Settings) {
        for (class, words) in self.classes.iter().enumerate() {
            if let Some(options) = settings.options(class) {
                words.set(&options, settings.classes[class].cut);
            }
        }
        self.mtu_bytes.store(settings.mtu_bytes, Relaxed);
        let idle_after_ns = settings.idle_after.as_ps() / 1_000;
        self.idle_after_ns.store(idle_after_ns, Relaxed);
        self.mode.store(settings.mode as u8, Relaxed);
    }

    #[inline]
    pub(super) fn mode(&self) -> Mode {
        match self.mode.load(Relaxed) {
            0 => Mode::Enforce,
            1 => Mode::Shadow,
            _ => Mode::Off,
        }
    }

    #[inline]
    pub(super) fn idle_after_ns(&self) -> u64 {
        self.idle_after_ns.load(Relaxed)
    }

    /// The lowest class, in which downgraded calls run.
    #[inline]
    pub(super) fn last_class(&self) -> u8 {
        (self.classes.len() - 1) as u8
    }

    /// The size of `bytes` in MTUs, rounded up, at least 1 and at most 2^32 - 1.
    #[inline]
    pub(super) fn mtus(&self, bytes: u64) -> u32 {
        let mtu = self.mtu_bytes.load(Relaxed).max(1);
        match u32::try_from(bytes) {
            Ok(bytes) => bytes.div_ceil(mtu).max(1),
            Err(_) => u32::try_from(bytes.div_ceil(u64::from(mtu))).unwrap_or(u32::MAX),
        }
    }

    /// The full packets of `bytes`, at most 2^32 - 1.
    pub(super) fn full_mtus(&self, bytes: u64) -> u32 {
        let mtu = self.mtu_bytes.load(Relaxed).max(1);
        u32::try_from(bytes / u64::from(mtu)).unwrap_or(u32::MAX)
    }

    /// The numbers of a class with an objective, for Aequitas 2.
    pub(super) fn level(&self, class: u8) -> Aequitas2Options {
        let words = &self.classes[usize::from(class)];
        let target = Duration::from_ps(words.target_ps_per_mtu.load(Relaxed));
        let percentile = f64::from_bits(words.percentile.load(Relaxed));
        let mut options = Aequitas2Options::new(target, percentile);
        options.base.floor = Probability::from_parts(words.floor.load(Relaxed));
        options.base.idle_after = Duration::from_ns(self.idle_after_ns());
        options.cut = Probability::from_parts(words.cut.load(Relaxed));
        options
    }

    /// The numbers of a class; `None` for the lowest one.
    #[inline]
    pub(super) fn rule(&self, class: u8) -> Option<Rule> {
        if class >= self.last_class() {
            return None;
        }
        let words = &self.classes[usize::from(class)];
        let probability = |word: &AtomicU64| Probability::from_parts(word.load(Relaxed));
        Some(Rule {
            target_ps_per_mtu: words.target_ps_per_mtu.load(Relaxed),
            window_ns: words.window_ns.load(Relaxed),
            increment: probability(&words.increment),
            decrement_per_mtu: probability(&words.decrement_per_mtu),
            floor: probability(&words.floor),
        })
    }
}

impl ClassParameters {
    fn set(&self, options: &AequitasOptions, cut: Probability) {
        let target = options.target_per_mtu.as_ps();
        self.target_ps_per_mtu.store(target, Relaxed);
        let window_ns = options.increment_window().as_ps() / 1_000;
        self.window_ns.store(window_ns, Relaxed);
        self.increment.store(options.increment.parts(), Relaxed);
        let decrement = options.decrement_per_mtu.parts();
        self.decrement_per_mtu.store(decrement, Relaxed);
        self.floor.store(options.floor.parts(), Relaxed);
        self.percentile.store(options.percentile.to_bits(), Relaxed);
        self.cut.store(cut.parts(), Relaxed);
    }
}
