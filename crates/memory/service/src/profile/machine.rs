//! Where interference begins on a machine: the two thresholds, and how much slower far memory is.
//!
//! Method (mercury 5.5.2, the 10 % rule). Near: BI reads near memory at a growing rate beside LS; the threshold is the
//! bandwidth of the near tier where latency is a tenth above that of LS alone, found by bisection. Far: BI reads at full rate
//! with a growing part of its memory far. Latency first falls, as the near tier is relieved, then rises (figure 5.4); the
//! threshold is the far traffic, and the hint faults, where it is a tenth above its least. What is never reached is set to the
//! most that was seen, and said.
//!
//! Units: nanoseconds, bytes per second, faults per second. Limits: each point is the median of repeats; a machine that is busy
//! otherwise is profiled with its load. Source: mercury 5.5.2, figures 5.3 and 5.4.

use super::{Origin, median};
use crate::error::MemError;
use isolane_common_quantities::units::Bytes;
use isolane_memory_policy::mercury::{MercuryOptions, Thresholds};
use serde::{Deserialize, Serialize};

/// The work of LS and BI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Part of LS's memory that is far, in percent.
    pub victim_far_percent: u32,
    /// Part of the time in which BI reads, in thousandths; zero is no BI.
    pub rate: u32,
    /// Part of BI's memory that is far, in percent.
    pub far_percent: u32,
}

impl Load {
    fn new(victim_far_percent: u32, rate: u32, far_percent: u32) -> Self {
        Self {
            victim_far_percent,
            rate,
            far_percent,
        }
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Median latency of LS, in nanoseconds.
    pub latency_ns: f64,
    /// Bandwidth of the near tier, in bytes per second.
    pub near_bandwidth: f64,
    /// The same of the far tier.
    pub far_bandwidth: f64,
    /// Remote hint faults per second; none where the kernel counts none.
    pub hint_faults_per_s: Option<f64>,
}

/// Measures a machine.
pub trait MachineMeasure {
    /// Whether it has far memory.
    fn has_far(&self) -> bool;

    /// Runs LS and BI.
    fn measure(&mut self, load: Load) -> Result<Point, MemError>;
}

/// How a machine is searched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Latency that counts as interference, over latency without; 1.1 in the paper.
    pub degradation: f64,
    /// Measurements of each point; their median counts.
    pub repeats: u32,
    /// Precision of the near threshold, in thousandths of BI's rate.
    pub rate_step: u32,
    /// Steps of the sweep of far memory, in percent.
    pub far_step: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            degradation: 1.1,
            repeats: 3,
            rate_step: 16,
            far_step: 10,
        }
    }
}

/// What a machine bears.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct MachineProfile {
    /// Version of this form.
    pub format: u32,
    /// Where it was found.
    pub origin: Origin,
    /// Latency of near memory alone, in nanoseconds.
    pub near_latency_ns: f64,
    /// Latency of far memory alone, in nanoseconds; none without far memory.
    pub far_latency_ns: Option<f64>,
    /// Most bandwidth of near memory, in bytes per second.
    pub near_bandwidth_bytes_per_s: f64,
    /// Most bandwidth of far memory, in bytes per second.
    pub far_bandwidth_bytes_per_s: Option<f64>,
    /// Healthy bandwidth of the near tier, in bytes per second.
    pub local_threshold_bytes_per_s: f64,
    /// Whether latency suffered at all within reach; otherwise the threshold is the most that was seen.
    pub local_threshold_reached: bool,
    /// Healthy far traffic, in bytes per second.
    pub far_threshold_bytes_per_s: Option<f64>,
    /// Healthy rate of remote hint faults, per second; none where the kernel counts none.
    pub hint_fault_threshold_per_s: Option<f64>,
    /// Whether latency suffered from far traffic within reach.
    pub far_threshold_reached: bool,
}

/// A rate of hint faults that no machine reaches.
pub const HINT_FAULTS_UNKNOWN: f64 = 1e12;

/// Fewer faults per second than this are chance.
const HINT_FAULTS_MIN: f64 = 1.0;

/// Version of the stored form.
pub const FORMAT: u32 = 1;

impl MachineProfile {
    /// Healthy rate of hint faults; none where it was not measured. Counters that do not change give a rate of zero,
    /// which would make every fault too many.
    pub fn hint_faults(&self) -> Option<f64> {
        self.hint_fault_threshold_per_s
            .filter(|faults| *faults >= HINT_FAULTS_MIN)
    }

    /// Mercury's options for a near tier of this size.
    pub fn options(&self, near: Bytes) -> MercuryOptions {
        let thresholds = Thresholds {
            local_bandwidth: self.local_threshold_bytes_per_s as u64,
            // Unknown is never reached: without a threshold no rate of faults is too high.
            hint_faults_per_s: self.hint_faults().unwrap_or(HINT_FAULTS_UNKNOWN),
        };
        let mut options = MercuryOptions::new(thresholds, near);
        options.near_bandwidth = Some(self.near_bandwidth_bytes_per_s as u64);
        // It represents the faults at the threshold, and is none where these are unknown.
        options.far_bandwidth = self
            .hint_faults()
            .and(self.far_threshold_bytes_per_s)
            .map(|bytes| bytes as u64);
        if let Some(far) = self.far_latency_ns {
            options.latency_ratio = ratio(far, self.near_latency_ns);
        }
        if let Some(far) = self.far_bandwidth_bytes_per_s {
            options.bandwidth_ratio = ratio(self.near_bandwidth_bytes_per_s, far);
        }
        options
    }
}

/// In thousandths, within what Mercury takes.
fn ratio(above: f64, below: f64) -> u32 {
    (above / below.max(f64::MIN_POSITIVE) * 1_000.0).clamp(1_000.0, 100_000.0) as u32
}

/// Profiles a machine.
pub fn search(
    machine: &mut impl MachineMeasure,
    settings: &Settings,
    origin: Origin,
) -> Result<MachineProfile, MemError> {
    let mut at = |victim_far_percent, rate, far_percent| {
        let load = Load::new(victim_far_percent, rate, far_percent);
        repeated(machine, load, settings.repeats)
    };
    let alone = at(0, 0, 0)?;
    let bad = alone.latency_ns * settings.degradation;
    let full = at(0, 1_000, 0)?;
    let reached = full.latency_ns >= bad;
    let mut threshold = full;
    if reached {
        // Healthy at `low`, not at `high`.
        let (mut low, mut high) = (0, 1_000);
        threshold = alone;
        while high - low > settings.rate_step.max(1) {
            let middle = u32::midpoint(low, high);
            let point = at(0, middle, 0)?;
            if point.latency_ns >= bad {
                high = middle;
            } else {
                low = middle;
                threshold = point;
            }
        }
    }
    let mut profile = MachineProfile {
        format: FORMAT,
        origin,
        near_latency_ns: alone.latency_ns,
        far_latency_ns: None,
        near_bandwidth_bytes_per_s: full.near_bandwidth,
        far_bandwidth_bytes_per_s: None,
        local_threshold_bytes_per_s: threshold.near_bandwidth,
        local_threshold_reached: reached,
        far_threshold_bytes_per_s: None,
        hint_fault_threshold_per_s: None,
        far_threshold_reached: false,
    };
    if machine.has_far() {
        sweep_far(machine, settings, full, &mut profile)?;
    }
    Ok(profile)
}

/// The far side: from the least of the curve upwards.
fn sweep_far(
    machine: &mut impl MachineMeasure,
    settings: &Settings,
    full: Point,
    profile: &mut MachineProfile,
) -> Result<(), MemError> {
    let mut at = |victim_far_percent, rate, far_percent| {
        let load = Load::new(victim_far_percent, rate, far_percent);
        repeated(machine, load, settings.repeats)
    };
    let mut curve = vec![full];
    let mut percent = 0;
    while percent < 100 {
        percent = (percent + settings.far_step.clamp(1, 100)).min(100);
        curve.push(at(0, 1_000, percent)?);
    }
    let found = far_threshold(&curve, settings.degradation);
    profile.far_latency_ns = Some(at(100, 0, 0)?.latency_ns);
    profile.far_bandwidth_bytes_per_s = curve.last().map(|point| point.far_bandwidth);
    profile.far_threshold_bytes_per_s = Some(found.point.far_bandwidth);
    profile.hint_fault_threshold_per_s = found.point.hint_faults_per_s;
    profile.far_threshold_reached = found.reached;
    Ok(())
}

struct FarThreshold {
    point: Point,
    reached: bool,
}

/// The last point of the curve after its least that is not yet a tenth above it.
fn far_threshold(curve: &[Point], degradation: f64) -> FarThreshold {
    let least = (0..curve.len())
        .min_by(|&a, &b| curve[a].latency_ns.total_cmp(&curve[b].latency_ns))
        .unwrap_or(0);
    let bad = curve[least].latency_ns * degradation;
    for place in least..curve.len() {
        if curve[place].latency_ns >= bad {
            return FarThreshold {
                point: curve[place - 1],
                reached: true,
            };
        }
    }
    let point = curve.last().copied().unwrap_or_default();
    FarThreshold {
        point,
        reached: false,
    }
}

fn repeated(
    machine: &mut impl MachineMeasure,
    load: Load,
    repeats: u32,
) -> Result<Point, MemError> {
    let points: Result<Vec<Point>, MemError> =
        (0..repeats.max(1)).map(|_| machine.measure(load)).collect();
    let points = points?;
    let of = |value: fn(&Point) -> f64| median(points.iter().map(value).collect());
    let faults: Option<Vec<f64>> = points.iter().map(|point| point.hint_faults_per_s).collect();
    Ok(Point {
        latency_ns: of(|point| point.latency_ns),
        near_bandwidth: of(|point| point.near_bandwidth),
        far_bandwidth: of(|point| point.far_bandwidth),
        hint_faults_per_s: faults.map(median),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A machine whose curves are known.
    struct Curves {
        far: bool,
        /// Latency rises by this part at full near bandwidth.
        near_slope: f64,
        /// And by this at full far bandwidth.
        far_slope: f64,
        measured: u32,
    }

    const NEAR: f64 = 200e9;
    const FAR: f64 = 50e9;

    impl MachineMeasure for Curves {
        fn has_far(&self) -> bool {
            self.far
        }

        fn measure(&mut self, load: Load) -> Result<Point, MemError> {
            self.measured += 1;
            let part = f64::from(load.far_percent) / 100.0;
            let all = 1.0 / ((1.0 - part) / NEAR + part / FAR) * f64::from(load.rate) / 1_000.0;
            let (near, far) = (all * (1.0 - part), all * part);
            let rise = self.near_slope * near / NEAR + self.far_slope * (far / FAR).powi(2);
            let victim_far = f64::from(load.victim_far_percent) / 100.0;
            Ok(Point {
                latency_ns: 100.0 * (1.0 + victim_far) * (1.0 + rise),
                near_bandwidth: near,
                far_bandwidth: far,
                hint_faults_per_s: Some(far / 1e6),
            })
        }
    }

    fn curves(near_slope: f64, far_slope: f64) -> Curves {
        Curves {
            far: true,
            near_slope,
            far_slope,
            measured: 0,
        }
    }

    #[test]
    fn thresholds_are_where_latency_is_a_tenth_worse() {
        let mut machine = curves(0.4, 0.8);
        let profile = search(&mut machine, &Settings::default(), Origin::default()).unwrap();
        // 10 % of latency is a quarter of the near bandwidth.
        let local = profile.local_threshold_bytes_per_s;
        assert!((0.23 * NEAR..=0.25 * NEAR).contains(&local), "{local}");
        assert!(profile.local_threshold_reached && profile.far_threshold_reached);
        assert_eq!(profile.far_latency_ns, Some(200.0));
        let far = profile.far_threshold_bytes_per_s.unwrap();
        assert_eq!(profile.hint_fault_threshold_per_s, Some(far / 1e6));
        assert!(far < FAR, "{far}");
        let options = profile.options(Bytes::new(1 << 30));
        assert_eq!(options.latency_ratio, 2_000);
        assert_eq!(options.bandwidth_ratio, 4_000);
        assert!(options.check().is_ok());
        assert!(machine.measured < 80, "{}", machine.measured);
    }

    #[test]
    fn without_counted_faults_their_threshold_is_unknown_and_never_reached() {
        let mut machine = curves(0.4, 0.8);
        let mut profile = search(&mut machine, &Settings::default(), Origin::default()).unwrap();
        for faults in [None, Some(0.0)] {
            profile.hint_fault_threshold_per_s = faults;
            assert_eq!(profile.hint_faults(), None);
            let options = profile.options(Bytes::new(1 << 30));
            assert_eq!(options.thresholds.hint_faults_per_s, HINT_FAULTS_UNKNOWN);
            assert_eq!(options.far_bandwidth, None);
            assert!(options.check().is_ok());
        }
    }

    #[test]
    fn a_machine_that_never_suffers_reports_it() {
        let profile = search(
            &mut curves(0.01, 0.0),
            &Settings::default(),
            Origin::default(),
        );
        let profile = profile.unwrap();
        assert!(!profile.local_threshold_reached && !profile.far_threshold_reached);
        assert_eq!(profile.local_threshold_bytes_per_s, NEAR);
    }

    #[test]
    fn a_machine_without_far_memory_has_one_threshold() {
        let mut machine = curves(0.4, 0.8);
        machine.far = false;
        let profile = search(&mut machine, &Settings::default(), Origin::default()).unwrap();
        assert_eq!(profile.far_threshold_bytes_per_s, None);
        assert_eq!(profile.far_latency_ns, None);
    }

    proptest! {
        /// For any slopes, the near threshold is healthy and a step more is not.
        #[test]
        fn the_near_threshold_is_the_edge(near_slope in 0.11f64..5.0, far_slope in 0f64..3.0) {
            let settings = Settings { repeats: 1, ..Settings::default() };
            let mut machine = curves(near_slope, far_slope);
            let profile = search(&mut machine, &settings, Origin::default()).unwrap();
            let local = profile.local_threshold_bytes_per_s;
            let rise = |bandwidth: f64| near_slope * bandwidth / NEAR;
            prop_assert!(rise(local) < 0.1);
            let step = NEAR * f64::from(settings.rate_step) / 1_000.0;
            prop_assert!(rise(local + step) >= 0.1 - 1e-9);
        }
    }
}
