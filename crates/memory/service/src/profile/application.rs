//! The least near memory and processor time with which an application alone meets its objective.
//!
//! Method (mercury 5.5.2): all near and all processor time first; who does not meet the objective then is inadmissible. Else
//! near memory falls until the objective is just met, and for a stream that still has more than enough without near memory,
//! processor time. The paper lowers step by step; measuring takes seconds, so this bisects, and then checks the answer
//! once more, going up where noise had misled it.
//!
//! Units: bytes, thousandths, nanoseconds, bytes per second. Limits: assumes that more memory never makes it slower.
//! Source: mercury 5.5.2.

use super::Origin;
use crate::error::MemError;
use isolane_common_quantities::units::{Bytes, Duration};
use isolane_memory_policy::mercury::{CPU_ONE, Objective, Profile};
use serde::{Deserialize, Serialize};

/// What an application experienced under some limits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Experience {
    /// Mean latency of its accesses; none without a sensor.
    pub latency: Option<Duration>,
    /// Its bandwidth in bytes per second; none without a sensor.
    pub bandwidth: Option<u64>,
    /// All memory it held.
    pub held: Bytes,
}

/// Runs the application under limits.
pub trait ApplicationMeasure {
    /// Runs it with at most `near` bytes near (none: no limit) and so much processor time. Fails for an application
    /// that ended.
    fn measure(&mut self, near: Option<Bytes>, cpu: u32) -> Result<Experience, MemError>;
}

/// How fine the answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Near memory is found within this part of what the application holds.
    pub memory_parts: u64,
    /// Processor time is found within so many thousandths.
    pub cpu_step: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            memory_parts: 64,
            cpu_step: 10,
        }
    }
}

/// A profile with where it was found, as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AppProfile {
    /// Version of this form.
    pub format: u32,
    /// Where it was found.
    pub origin: Origin,
    /// What was run.
    pub command: String,
    /// The objective as latency, in nanoseconds.
    pub slo_latency_ns: Option<f64>,
    /// The objective as bandwidth, in bytes per second.
    pub slo_bandwidth_bytes_per_s: Option<u64>,
    /// Whether the objective can be met at all.
    pub admissible: bool,
    /// Near memory that just meets it, in bytes.
    pub local_bytes: u64,
    /// Processor time that just meets it, in thousandths.
    pub cpu_thousandths: u32,
    /// Bandwidth there, in bytes per second.
    pub bandwidth_bytes_per_s: u64,
    /// Latency without limits, in nanoseconds.
    pub best_latency_ns: Option<f64>,
    /// Bandwidth without limits, in bytes per second.
    pub best_bandwidth_bytes_per_s: Option<u64>,
    /// Memory it held, in bytes.
    pub footprint_bytes: u64,
    /// Measurements that were made.
    pub measurements: u32,
}

/// Version of the stored form.
pub const FORMAT: u32 = 1;

impl AppProfile {
    /// As the policy takes it.
    pub fn profile(&self) -> Profile {
        let latency = self
            .best_latency_ns
            .map(|ns| Objective::Latency(Duration::from_ns_f64(ns)));
        let bandwidth = self.best_bandwidth_bytes_per_s.map(Objective::Bandwidth);
        let best = match self.slo_latency_ns {
            Some(_) => latency.or(bandwidth),
            None => bandwidth.or(latency),
        };
        Profile {
            admissible: self.admissible,
            local: Bytes::new(self.local_bytes),
            cpu: self.cpu_thousandths,
            bandwidth: self.bandwidth_bytes_per_s,
            best: best.unwrap_or(Objective::BestEffort),
        }
    }
}

/// What the search found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// For the policy.
    pub profile: Profile,
    /// What it experienced without limits.
    pub best: Experience,
    /// Measurements that were made.
    pub measurements: u32,
}

impl Found {
    /// The stored form.
    pub fn stored(&self, command: &str, objective: Objective, origin: Origin) -> AppProfile {
        let latency = |experience: &Experience| experience.latency.map(Duration::as_ns_f64);
        AppProfile {
            format: FORMAT,
            origin,
            command: command.to_owned(),
            slo_latency_ns: match objective {
                Objective::Latency(aim) => Some(aim.as_ns_f64()),
                _ => None,
            },
            slo_bandwidth_bytes_per_s: match objective {
                Objective::Bandwidth(aim) => Some(aim),
                _ => None,
            },
            admissible: self.profile.admissible,
            local_bytes: self.profile.local.get(),
            cpu_thousandths: self.profile.cpu,
            bandwidth_bytes_per_s: self.profile.bandwidth,
            best_latency_ns: latency(&self.best),
            best_bandwidth_bytes_per_s: self.best.bandwidth,
            footprint_bytes: self.best.held.get(),
            measurements: self.measurements,
        }
    }
}

/// Profiles an application. Fails as the measurement does, and with [`MemError::Unexpected`] where no sensor measures
/// the objective's metric.
pub fn search(
    application: &mut impl ApplicationMeasure,
    objective: Objective,
    settings: &Settings,
) -> Result<Found, MemError> {
    let mut search = Search {
        application,
        objective,
        measurements: 0,
    };
    let best = search.at(None, CPU_ONE)?;
    if !best.1 {
        return Ok(search.found(best.0, (best.0, best.0.held.get(), CPU_ONE), false));
    }
    let there = search.least_memory(best.0, settings)?;
    let there = match (objective, there.1) {
        (Objective::Bandwidth(_), 0) => search.least_cpu(there.0, settings)?,
        _ => there,
    };
    Ok(search.found(best.0, there, true))
}

struct Search<'a, A> {
    application: &'a mut A,
    objective: Objective,
    measurements: u32,
}

/// An experience with the limits that led to it.
type There = (Experience, u64, u32);

impl<A: ApplicationMeasure> Search<'_, A> {
    fn at(&mut self, near: Option<u64>, cpu: u32) -> Result<(Experience, bool), MemError> {
        self.measurements += 1;
        let experience = self.application.measure(near.map(Bytes::new), cpu)?;
        let met = match self.objective {
            Objective::Latency(aim) => experience.latency.map(|latency| latency <= aim),
            Objective::Bandwidth(aim) => experience.bandwidth.map(|bandwidth| bandwidth >= aim),
            Objective::BestEffort => Some(true),
        };
        let met = met.ok_or_else(|| MemError::Unexpected {
            path: "the sensors".to_owned(),
            value: "nothing".to_owned(),
            expected: "a reading of what the objective is about; `isolane mem doctor` says which sensor is missing",
        })?;
        Ok((experience, met))
    }

    fn least_memory(&mut self, best: Experience, settings: &Settings) -> Result<There, MemError> {
        // Twice, because noise must not make an application look as if it needed nothing.
        let (_, once) = self.at(Some(0), CPU_ONE)?;
        if once {
            let (none, twice) = self.at(Some(0), CPU_ONE)?;
            if twice {
                return Ok((none, 0, CPU_ONE));
            }
        }
        let step = (best.held.get() / settings.memory_parts.max(1)).max(1);
        // Met at `high`, not at `low`.
        let (mut low, mut high) = (0, best.held.get());
        let mut there = best;
        while high - low > step {
            let middle = u64::midpoint(low, high);
            let (experience, met) = self.at(Some(middle), CPU_ONE)?;
            if met {
                (high, there) = (middle, experience);
            } else {
                low = middle;
            }
        }
        // Noise may have called a point met that is not: look again, and go up while it is not.
        let mut step = step;
        while high < best.held.get() {
            let (experience, met) = self.at(Some(high), CPU_ONE)?;
            if met {
                return Ok((experience, high, CPU_ONE));
            }
            high = high.saturating_add(step).min(best.held.get());
            step *= 2;
            there = best;
        }
        Ok((there, high, CPU_ONE))
    }

    fn least_cpu(&mut self, full: Experience, settings: &Settings) -> Result<There, MemError> {
        let (mut low, mut high) = (0, CPU_ONE);
        let mut there = full;
        while high - low > settings.cpu_step.max(1) {
            let middle = u32::midpoint(low, high);
            let (experience, met) = self.at(Some(0), middle)?;
            if met {
                (high, there) = (middle, experience);
            } else {
                low = middle;
            }
        }
        Ok((there, 0, high))
    }

    fn found(&self, best: Experience, there: There, admissible: bool) -> Found {
        let (experience, local, cpu) = there;
        let best_as = match self.objective {
            Objective::Latency(_) => best.latency.map(Objective::Latency),
            Objective::Bandwidth(_) => best.bandwidth.map(Objective::Bandwidth),
            Objective::BestEffort => None,
        };
        Found {
            profile: Profile {
                admissible,
                local: Bytes::new(local),
                cpu,
                bandwidth: experience.bandwidth.unwrap_or(0),
                best: best_as.unwrap_or(Objective::BestEffort),
            },
            best,
            measurements: self.measurements,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An application whose curves are known; it may err once in a while.
    struct Curve {
        size: u64,
        latency_ns: (f64, f64),
        bandwidth: (f64, f64),
        errs_at: Option<u32>,
        calls: u32,
    }

    impl ApplicationMeasure for Curve {
        fn measure(&mut self, near: Option<Bytes>, cpu: u32) -> Result<Experience, MemError> {
            self.calls += 1;
            let near = near.map_or(self.size, Bytes::get).min(self.size);
            let near = if self.errs_at == Some(self.calls) {
                self.size
            } else {
                near
            };
            let part = near as f64 / self.size as f64;
            let (best, worst) = self.latency_ns;
            let latency = worst + (best - worst) * part;
            let (most, least) = self.bandwidth;
            let bandwidth = 1.0 / (part / most + (1.0 - part) / least) * f64::from(cpu) / 1_000.0;
            Ok(Experience {
                latency: Some(Duration::from_ns_f64(latency)),
                bandwidth: Some(bandwidth as u64),
                held: Bytes::new(self.size),
            })
        }
    }

    const GB: u64 = 1_000_000_000;

    fn curve() -> Curve {
        Curve {
            size: 20 * GB,
            latency_ns: (100.0, 200.0),
            bandwidth: (100e9, 25e9),
            errs_at: None,
            calls: 0,
        }
    }

    fn find(curve: &mut Curve, objective: Objective) -> Found {
        search(curve, objective, &Settings::default()).unwrap()
    }

    fn latency(ns: u64) -> Objective {
        Objective::Latency(Duration::from_ns(ns))
    }

    #[test]
    fn a_latency_objective_needs_a_part_of_the_memory() {
        let found = find(&mut curve(), latency(150));
        let local = found.profile.local.get();
        assert!(
            (10 * GB..=10 * GB + 20 * GB / 64).contains(&local),
            "{local}"
        );
        assert_eq!(
            (found.profile.cpu, found.profile.admissible),
            (CPU_ONE, true)
        );
        assert!(found.measurements <= 10, "{}", found.measurements);
    }

    #[test]
    fn what_cannot_be_met_alone_is_inadmissible_and_says_its_best() {
        let found = find(&mut curve(), latency(90));
        assert!(!found.profile.admissible);
        assert_eq!(found.profile.best, latency(100));
        let stored = found.stored("x", latency(90), Origin::default());
        assert_eq!(stored.profile(), found.profile);
    }

    #[test]
    fn a_modest_stream_gives_all_memory_and_then_processor_time() {
        let found = find(&mut curve(), Objective::Bandwidth(10 * GB));
        assert_eq!(found.profile.local, Bytes::ZERO);
        let cpu = found.profile.cpu;
        assert!((400..=410).contains(&cpu), "{cpu}");
        assert!(found.profile.bandwidth >= 10 * GB);
    }

    #[test]
    fn without_a_sensor_nothing_is_guessed() {
        struct Blind;
        impl ApplicationMeasure for Blind {
            fn measure(&mut self, _: Option<Bytes>, _: u32) -> Result<Experience, MemError> {
                Ok(Experience::default())
            }
        }
        let error = search(&mut Blind, latency(100), &Settings::default()).unwrap_err();
        assert!(error.to_string().contains("doctor"), "{error}");
    }

    proptest! {
        /// Against trying every step from above, as the paper does; one wrong measurement does not mislead.
        #[test]
        fn the_answer_is_the_papers_within_a_step(aim in 101u64..200, errs_at in prop::option::of(2u32..9)) {
            let mut noisy = curve();
            noisy.errs_at = errs_at;
            let found = find(&mut noisy, latency(aim));
            let step = 20 * GB / 64;
            let mut slow = 20 * GB;
            while slow >= step && curve().measure(Some(Bytes::new(slow - step)), CPU_ONE).unwrap().latency.unwrap()
                <= Duration::from_ns(aim) {
                slow -= step;
            }
            prop_assert!(found.profile.local.get() + 2 * step >= slow, "{:?} {}", found, slow);
            let check = curve().measure(Some(found.profile.local), CPU_ONE).unwrap();
            if errs_at.is_none() {
                prop_assert!(check.latency.unwrap() <= Duration::from_ns(aim));
                prop_assert!(found.profile.local.get() <= slow + 2 * step);
            }
        }
    }
}
