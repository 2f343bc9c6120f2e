//! When a latency is anomalous: the third kind of anomaly, on request.
//!
//! Problem: no specification says what latency a loaded card has, so the paper leaves latency out (collie 3.3). Method:
//! a device is compared with itself. A message waits for the outstanding messages of its own application, as the
//! workload's `depth` requests; this is no anomaly. So of every experiment the 99th percentile is divided by what that
//! wait explains: the idle 99th percentile of the service, and the time in which everything outstanding drains at the
//! device's own bounds. Plain loaded workloads (every service, three sizes, with short and with deep queues, under
//! several seeds) give the quotients of a device that is loaded and sound; their logarithms have a mean and a
//! deviation, and the baseline is the upper end of the interval in which 99 % of such quotients lie, with a
//! confidence of 95 %. An experiment is anomalous where its quotient is more than [`ABOVE`] times that.
//!
//! Units: microseconds. Limits: a 99th percentile needs a thousand messages, so workloads of large messages are not
//! judged; the deviation over plain workloads is taken for normal in the logarithm. Source: none, it is ours; the
//! tolerance factor is Howe's (1969).

use crate::HuntError;
use crate::bounds::Bounds;
use crate::experiment::{Measured, Target};
use crate::monitor::{Judgement, Symptom};
use crate::space::benchmark::simple;
use crate::space::convert::OUTSTANDING_READS;
use crate::space::point::{self, Feature, Point, SERVICES};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a quotient may be over the baseline: as much above as throughput may be below its bound.
pub(crate) const ABOVE: f64 = 1.25;
/// Quantile of the standard normal distribution at 0.99: this part of a sound device's quotients is below the baseline.
const Z_COVERED: f64 = 2.326_348;
/// The same at 0.95: how sure that is.
const Z_CONFIDENCE: f64 = 1.644_854;
/// Seeds of each plain workload.
const SEEDS: u64 = 3;
/// Sizes of the plain loaded workloads, bytes.
const SIZES: [u64; 3] = [64, 512, 2_048];
/// Queue pairs and depth of them: few short queues, and many deep ones.
const LOADS: [(u64, u64); 2] = [(16, 8), (32, 128)];

/// What a device's latency is held against.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Baseline {
    /// 99th percentile of one small message at a time, by service; absent where it was not measured.
    pub idle_p99_us: Vec<Option<f64>>,
    /// Plain loaded experiments behind the bound.
    pub samples: u32,
    /// Geometric mean of their quotients: 99th percentile over what the wait explains.
    pub mean: f64,
    /// Upper bound of a sound device's quotients.
    pub bound: f64,
}

impl Baseline {
    /// Measures the baseline of `target`, a device with `bounds`. Fails if a run fails, or has no latency.
    pub fn measure(target: &dyn Target, bounds: &Bounds, seed: u64) -> Result<Self, HuntError> {
        let mut idle_p99_us = Vec::new();
        for (service, known) in (0..SERVICES.len() as u64).zip(&bounds.services) {
            let alone = Feature::Depth.set(&simple(service, 1, 1), 1);
            let idle = match known {
                // A run of hundreds of microseconds ends fewer single messages than a percentile needs; alone they
                // hardly differ, so the mean replaces it.
                Some(known) => target
                    .measure(&alone, seed)?
                    .p99_us
                    .or(Some(known.latency_us)),
                None => None,
            };
            idle_p99_us.push(idle);
        }
        let mut baseline = Self {
            idle_p99_us,
            samples: 0,
            mean: 1.0,
            bound: f64::INFINITY,
        };
        let mut logarithms = Vec::new();
        for point in plain(bounds) {
            for more in 0..SEEDS {
                let measured = target.measure(&point, seed.wrapping_add(more))?;
                let quotient = baseline.quotient(&point, &measured, bounds);
                logarithms.extend(quotient.filter(|&q| q > 0.0).map(libm::log));
            }
        }
        if logarithms.len() < 2 {
            return Err(HuntError::NoLatency {
                target: target.name().to_owned(),
            });
        }
        (baseline.mean, baseline.bound) = upper_bound(&logarithms);
        baseline.samples = logarithms.len() as u32;
        Ok(baseline)
    }

    /// 99th percentile over what its own queues explain; none where there is no percentile, and for two kinds of traffic, which wait
    /// for each other.
    fn quotient(&self, point: &Point, measured: &Measured, bounds: &Bounds) -> Option<f64> {
        if point.second.is_some() {
            return None;
        }
        let idle = (*self.idle_p99_us.get(point.service as usize)?)?;
        Some(measured.p99_us? / explained_us(idle, point, bounds))
    }

    /// `judgement` of the experiment of `point`, with its latency judged too.
    pub fn judge(
        &self,
        point: &Point,
        measured: &Measured,
        bounds: &Bounds,
        judgement: Judgement,
    ) -> Judgement {
        let over = self
            .quotient(point, measured, bounds)
            .map(|quotient| quotient / self.bound);
        let symptom = over
            .filter(|&over| over > ABOVE)
            .map(|_| Symptom::HighLatency);
        Judgement {
            of_latency: over,
            symptom: judgement.symptom.or(symptom),
            ..judgement
        }
    }
}

/// Idle latency, and the time in which all that `point` may have outstanding drains at the device's bounds.
fn explained_us(idle_us: f64, point: &Point, bounds: &Bounds) -> f64 {
    let window = match point.service {
        point::READ => point.depth.min(u64::from(OUTSTANDING_READS)),
        _ => point.depth,
    };
    let messages = (point.queue_pairs * window) as f64;
    let request = point.mean_request();
    let packets = libm::ceil(request / point.mtu as f64).max(1.0);
    let by_bits = messages * request * 8.0 / (bounds.link_gbps * 1e3);
    let by_packets = messages * packets / bounds.packets_per_s_of(point) * 1e6;
    idle_us + by_bits.max(by_packets)
}

/// Plain loaded workloads of every service that was measured.
fn plain(bounds: &Bounds) -> Vec<Point> {
    let mut points = Vec::new();
    for (service, known) in (0..SERVICES.len() as u64).zip(&bounds.services) {
        if known.is_none() {
            continue;
        }
        for size in SIZES {
            for (pairs, depth) in LOADS {
                let point = simple(service, pairs, 1);
                let point = Feature::Mtu.set(&point, size.max(point.mtu));
                let point = Feature::Depth.set(&point, depth);
                points.push(Point {
                    requests: vec![vec![size]],
                    ..point
                });
            }
        }
    }
    points
}

/// Geometric mean of what `logarithms` are of, and the upper tolerance bound: mean and deviation, the latter with
/// Howe's factor for 99 % of all values with a confidence of 95 %.
fn upper_bound(logarithms: &[f64]) -> (f64, f64) {
    let count = logarithms.len() as f64;
    let mean = logarithms.iter().sum::<f64>() / count;
    let squares: f64 = logarithms.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = libm::sqrt(squares / (count - 1.0));
    // One-sided factor in its normal approximation: (z_p + sqrt(z_p^2 - a b)) / a.
    let a = 1.0 - Z_CONFIDENCE.powi(2) / (2.0 * (count - 1.0));
    let b = Z_COVERED.powi(2) - Z_CONFIDENCE.powi(2) / count;
    let factor = match a > 0.0 {
        true => (Z_COVERED + libm::sqrt((Z_COVERED.powi(2) - a * b).max(0.0))) / a,
        false => f64::INFINITY,
    };
    (libm::exp(mean), libm::exp(mean + factor * deviation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Lab;
    use crate::space::Space;
    use crate::space::tests::profile;
    use isolane_common_quantities::rng::Stream;
    use isolane_study_testbed_simulator::SimTestbed;

    /// A normal number by the sum of twelve uniform ones.
    fn normal(stream: &mut Stream) -> f64 {
        let sum: f64 = (0..12)
            .map(|_| (stream.next_u64() >> 11) as f64 / (1u64 << 53) as f64)
            .sum();
        sum - 6.0
    }

    #[test]
    fn the_bound_covers_what_it_says_as_often_as_it_says() {
        // Of many samples of 36 the bound is above the 99th percentile of the distribution in 19 of 20.
        let mut stream = Stream::named(1, "test");
        let kept = (0..2_000)
            .filter(|_| {
                let sample: Vec<f64> = (0..36).map(|_| normal(&mut stream)).collect();
                libm::log(upper_bound(&sample).1) >= Z_COVERED
            })
            .count();
        let share = kept as f64 / 2e3;
        assert!((share - 0.95).abs() < 0.025, "{share}");
    }

    #[test]
    fn the_own_queue_is_no_anomaly_and_a_longer_wait_is() {
        let profile = profile("cx5-100g-roce");
        let lab = Lab::simulated(&SimTestbed, &profile);
        let bounds = Bounds::measure(&lab, &profile, &Space::of(&profile), 1).unwrap();
        let baseline = Baseline::measure(&lab, &bounds, 1).unwrap();
        assert!(
            baseline.bound.is_finite() && baseline.bound >= baseline.mean,
            "{baseline:?}"
        );
        let judged = |measured: &Measured, point: &Point| {
            let judgement = crate::monitor::judge(point, measured, &bounds);
            baseline.judge(point, measured, &bounds, judgement)
        };
        for depth in [1, 16, 128] {
            let point = Feature::Depth.set(&simple(0, 24, 1), depth);
            let measured = lab.measure(&point, 9).unwrap();
            let judgement = judged(&measured, &point);
            assert_ne!(
                judgement.symptom,
                Some(Symptom::HighLatency),
                "{depth}: {judgement:?}"
            );
            let told = measured.p99_us.unwrap_or_default();
            let slow = Measured {
                p99_us: Some(told.max(1.0) * 100.0 * baseline.bound),
                ..measured
            };
            assert_eq!(
                judged(&slow, &point).symptom,
                Some(Symptom::HighLatency),
                "{depth}"
            );
        }
    }
}
