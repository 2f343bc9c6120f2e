//! A target with known anomalies, for tests: instant, and with an answer that the test knows.
//!
//! A workload is anomalous when it meets all conditions of one of the target's faults. Counter `near_<n>` grows with
//! the number of conditions of fault n that a workload meets and with how far its queue pairs go, so that there is a
//! slope to climb. A fault may show only sometimes.

use crate::HuntError;
use crate::bench::{Bench, BenchOptions, Budget};
use crate::bounds::{Bounds, ServiceBound};
use crate::counters::Counter;
use crate::experiment::{Arrived, Measured, Target};
use crate::monitor::Symptom;
use crate::region::Region;
use crate::rule::Rule;
use crate::space::tests::profile;
use crate::space::{Allowed, Feature, Point, Space};
use isolane_common_quantities::rng::Stream;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub(crate) struct Fault {
    pub(crate) symptom: Symptom,
    pub(crate) region: Region,
    /// How often it shows, 0 to 1.
    pub(crate) probability: f64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Synthetic {
    pub(crate) faults: Vec<Fault>,
    /// Of experiments with low throughput: how much better the best quarter of a run is that did not settle.
    pub(crate) best_quarter: Option<f64>,
    /// Experiments done.
    pub(crate) runs: AtomicUsize,
    /// Stop after so many runs, as a kill would.
    pub(crate) stop_after: Option<(usize, &'static AtomicBool)>,
}

pub(crate) fn fault(symptom: Symptom, conditions: &[(Feature, Allowed)]) -> Fault {
    Fault {
        symptom,
        region: Region {
            features: conditions.iter().cloned().collect(),
        },
        probability: 1.0,
    }
}

/// Faults of both symptoms: one choice, choices with numbers, a mixed pattern, a lower and an upper edge.
pub(crate) fn five_faults() -> Vec<Fault> {
    let set = |value: u64| Allowed::Set(vec![value]);
    let at_least = |least: u64, feature: Feature| {
        let space = space();
        let Allowed::Range(_, most) = space.allowed(feature) else {
            unreachable!()
        };
        (feature, Allowed::Range(least, *most))
    };
    let at_most = |most: u64, feature: Feature| (feature, Allowed::Range(0, most));
    vec![
        fault(Symptom::PauseFrames, &[(Feature::Direction, set(2))]),
        fault(
            Symptom::PauseFrames,
            &[
                (Feature::Service, set(5)),
                at_least(64, Feature::PostList),
                at_least(256, Feature::Depth),
            ],
        ),
        fault(
            Symptom::LowThroughput,
            &[
                (Feature::Service, set(0)),
                at_least(512, Feature::QueuePairs),
                at_most(16, Feature::Depth),
            ],
        ),
        fault(
            Symptom::PauseFrames,
            &[
                (Feature::Direction, set(1)),
                at_least(2, Feature::Elements),
                at_most(1_024, Feature::Smallest),
                at_least(65_536, Feature::Largest),
            ],
        ),
        fault(
            Symptom::LowThroughput,
            &[
                (Feature::Service, set(2)),
                (Feature::Mtu, Allowed::Set(vec![256, 512, 1_024])),
                at_least(16_384, Feature::Smallest),
            ],
        ),
    ]
}

pub(crate) fn space() -> Space {
    Space::of(&profile("cx6-200g-roce"))
}

impl Target for Synthetic {
    fn name(&self) -> &str {
        "synthetic"
    }

    fn measure(&self, point: &Point, seed: u64) -> Result<Measured, HuntError> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some((_, flag)) = self.stop_after.filter(|(after, _)| run >= *after) {
            flag.store(true, Ordering::Relaxed);
        }
        let text = point.text();
        let luck = |name: &str| {
            let mut stream = Stream::named(seed, &format!("{name} {text}"));
            (stream.next_u64() >> 11) as f64 / (1u64 << 53) as f64
        };
        let shown = |symptom: Symptom| {
            self.faults.iter().enumerate().any(|(index, fault)| {
                let lucky =
                    fault.probability >= 1.0 || luck(&index.to_string()) < fault.probability;
                fault.symptom == symptom && fault.region.has(point) && lucky
            })
        };
        let pauses = shown(Symptom::PauseFrames);
        let low = shown(Symptom::LowThroughput);
        let mut counters = BTreeMap::from([
            (
                "rx_bytes".to_owned(),
                if low {
                    1e9
                } else {
                    2.5e10 * (1.0 + 0.01 * luck("bytes"))
                },
            ),
            ("flat".to_owned(), 1.0),
        ]);
        for (index, fault) in self.faults.iter().enumerate() {
            let met = fault
                .region
                .features
                .iter()
                .filter(|(f, allowed)| f.is_active(point) && allowed.has(f.of(point)));
            let near = met.count() as f64 / fault.region.features.len() as f64;
            counters.insert(format!("near_{index}"), 1e3 * near * near + luck("near"));
        }
        Ok(Measured {
            pause_ratio: if pauses { 0.1 } else { 0.0 },
            slowest: Arrived {
                gbps: if low { 10.0 } else { 195.0 },
                packets_per_s: 1e6,
            },
            // So few that no offer explains them.
            messages_per_s: 0.0,
            steady: true,
            best_quarter: self.best_quarter.filter(|_| low),
            counters,
            ..Measured::default()
        })
    }
}

pub(crate) fn bounds() -> Bounds {
    let service = ServiceBound {
        latency_us: 0.1,
        single_per_s: 1e9,
        listed_per_s: 1e9,
        packets_per_s: None,
    };
    Bounds {
        link_gbps: 200.0,
        packets_per_s: 1e8,
        services: vec![Some(service); 6],
    }
}

/// Counters that climb towards the faults.
pub(crate) fn counters(target: &Synthetic) -> Vec<Counter> {
    let near = (0..target.faults.len()).map(|index| Counter {
        name: format!("near_{index}"),
        up: true,
    });
    near.collect()
}

static NEVER: AtomicBool = AtomicBool::new(false);

/// A bench without a journal.
pub(crate) fn bench(target: &Synthetic, experiments: u64, parallel: usize) -> Bench<'_> {
    Bench::new(
        target,
        Rule::Device(bounds(), None),
        None,
        BTreeMap::new(),
        options(experiments, parallel, &NEVER),
    )
}

pub(crate) fn options(experiments: u64, parallel: usize, cancel: &AtomicBool) -> BenchOptions<'_> {
    BenchOptions {
        seed: 7,
        parallel,
        budget: Budget::Experiments(experiments),
        cancel,
        on_progress: Box::new(|_| {}),
    }
}
