//! Runs that go on until they have settled, on any testbed.
//!
//! Problem: how long a run must be is unknown before the run. Method: the warm-up ends when what every queue pair posts at
//! the start is done and a while has passed. Then the run is measured for the scenario's duration; while it has not settled, it
//! is measured again, longer each time, until a cap in simulated time. A testbed that can go on does (`Course`); others
//! start again with longer times (`Again`). What "settled" means is the rule of [`isolane_common_quantities::settle`] or, for the hunt, its
//! own test of a result. A scenario whose tenants start late, stop, or post a fixed number of messages describes a course and
//! not a state: it is measured for its own times ([`is_course`]).
//!
//! Limits: a testbed that starts again knows no counts per window; there goodput is taken from the time series, messages
//! count only as a sum, and a 99th percentile has no bounds, so that it decides with 1,000 samples at least.

use crate::TestbedError;
use isolane_common_quantities::settle::{
    Counts, Demand, Latencies, Standing, WINDOWS, Windows, longer, standing,
};
use isolane_common_quantities::stats::summary::median;
use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::model::{Scenario, Traffic};
use isolane_study_results::rdma::{RunResult, Settling, TenantResult, TenantSettling};

/// How long a run may take, and what ends it.
pub struct Patience<'a> {
    /// From the moment at which what was posted at the start is done until measuring begins, at least.
    pub settle: Duration,
    /// Without a further pair whose first posting is done, the rest counts as stuck after this time; absent: never.
    pub stuck: Option<Duration>,
    /// What is waited for once congestion control has slowed a sender down.
    pub congestion: Congestion,
    /// The longest warm-up.
    pub warmup_max: Duration,
    /// Simulated time after which a run is not measured again. A warm-up beyond a quarter of it is added.
    pub cap: Duration,
    /// How often it is measured again at most.
    pub extensions: u32,
    /// What ends it.
    pub until: Until<'a>,
}

/// Time constants of congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Congestion {
    /// From the line rate to the least rate, with a notification as often as there can be one.
    pub descent: Duration,
    /// From a cut until the rate is back near what it was.
    pub recovery: Duration,
}

/// What ends a run.
pub enum Until<'a> {
    /// What is demanded of each tenant is known.
    Settled(&'a [Demand]),
    /// The result passes; each measured time is twice as long as the one before.
    Steady(&'a dyn Fn(&RunResult) -> bool),
}

impl<'a> Patience<'a> {
    /// Patience for `scenario` until `demands`, one per tenant, are met: its warm-up and duration are the least times, and
    /// `cap` is the simulated time that it may take.
    pub fn settled(
        scenario: &Scenario,
        congestion: Congestion,
        cap: Duration,
        demands: &'a [Demand],
    ) -> Self {
        Self {
            settle: scenario.warmup,
            stuck: Some(STUCK),
            congestion,
            warmup_max: (cap / 4 * 3).max(scenario.warmup),
            cap,
            extensions: u32::MAX,
            until: Until::Settled(demands),
        }
    }
}

/// No pair of the catalogue that finishes its first posting at all does so this long after the one before.
const STUCK: Duration = Duration::from_us(300);

/// A run that can be measured again and again.
pub trait Course {
    /// Warms up; simulated time since the start.
    fn warm_up(&mut self, patience: &Patience<'_>) -> Duration;

    /// Whether congestion control has slowed a sender down, where that is known.
    fn is_congested(&self) -> bool {
        false
    }

    /// Goes on for `time` without measuring.
    fn go_on(&mut self, _time: Duration) {}

    /// Whether a queue that nothing has stopped yet filled during the last measured time, where that is known.
    fn is_filling(&self) -> bool {
        false
    }

    /// Measures for `length` after `at`, and says what each tenant did. Fails as [`crate::Testbed::run`] does.
    fn measure(
        &mut self,
        at: Duration,
        length: Duration,
    ) -> Result<(RunResult, Vec<Windows>), TestbedError>;
}

/// Whether `scenario` describes a course of events rather than a state.
pub fn is_course(scenario: &Scenario) -> bool {
    scenario.tenants.iter().any(|tenant| {
        let mut workloads = tenant.workloads.iter();
        tenant.start > Duration::ZERO
            || tenant.stop.is_some()
            || workloads.any(|workload| match &workload.traffic {
                Traffic::Data(data) => data.iterations.is_some(),
                Traffic::Control(_) | Traffic::Application(_) => false,
            })
    })
}

/// Runs `course` of `scenario` until `patience` ends it. Fails as [`crate::Testbed::run`] does.
pub fn run(
    course: &mut dyn Course,
    scenario: &Scenario,
    patience: &Patience<'_>,
) -> Result<RunResult, TestbedError> {
    let mut at = course.warm_up(patience);
    // A long warm-up leaves as much time to measure as one of a quarter of the cap.
    let usual = (patience.cap / 4).max(patience.settle);
    let cap = patience.cap + at.saturating_sub(usual);
    let mut length = scenario.duration;
    let mut extensions = patience.extensions;
    let Congestion { descent, recovery } = patience.congestion;
    // Without congestion control there is nothing to wait for.
    let mut waited = descent.is_zero();
    loop {
        if !waited && course.is_congested() {
            waited = true;
            course.go_on(descent);
            at += descent;
            length = length.max(recovery * WINDOWS as u64);
        }
        let (mut result, windows) = course.measure(at, length)?;
        let next = match &patience.until {
            Until::Steady(steady) => {
                let steady = steady(&result);
                result.settling = Some(Settling {
                    settled: steady,
                    settled_after_us: at.as_us_f64(),
                    measured_us: length.as_us_f64(),
                    cap_us: cap.as_us_f64(),
                    tenants: Vec::new(),
                });
                (!steady).then(|| length * 2)
            }
            Until::Settled(demands) => {
                let pairs = demands.iter().zip(&windows);
                // What fills a queue is a start and no state, however surely it is on one side of a limit.
                let is_state = !course.is_filling();
                let standings: Vec<Standing> = pairs
                    .map(|(demand, windows)| standing(demand, windows))
                    .map(|standing| Standing {
                        settled: standing.settled && is_state,
                        ..standing
                    })
                    .collect();
                let settling = settling(at, length, cap, &standings, &windows);
                let next = match settling.settled {
                    // Senders were slowed down for the first time while they were measured.
                    true if !waited && course.is_congested() => Some(length),
                    true => None,
                    false => Some(longer(length, &standings)),
                };
                result.settling = Some(settling);
                next
            }
        };
        at += length;
        // What is left of the cap is used where it is longer than what was measured.
        let left = cap.saturating_sub(at);
        match next {
            Some(next) if extensions > 0 && left >= length + descent => length = next.min(left),
            _ => return Ok(result),
        }
        extensions -= 1;
    }
}

/// Whether `result`, a run of `scenario` for its own times, had settled: the rule for each of `demands`, applied to the
/// result's own time series and samples. None where the scenario describes a course.
pub fn of_fixed(scenario: &Scenario, result: &RunResult, demands: &[Demand]) -> Option<Settling> {
    if is_course(scenario) {
        return None;
    }
    let (at, length) = (scenario.warmup, scenario.duration);
    let windows: Vec<Windows> = result
        .tenants
        .iter()
        .map(|tenant| {
            let mut windows = windows_in(tenant, (at, length));
            windows.latencies.halves =
                halves(&tenant.p99_series_us).unwrap_or(windows.latencies.halves);
            windows
        })
        .collect();
    let pairs = demands.iter().zip(&windows);
    let standings: Vec<Standing> = pairs
        .map(|(demand, windows)| standing(demand, windows))
        .collect();
    Some(settling(at, length, at + length, &standings, &windows))
}

/// The median over either half of the points of a 99th percentile; none where no message completed in a half.
fn halves(points: &[Option<f64>]) -> Option<[Option<f64>; 2]> {
    let (first, second) = points.split_at(points.len() / 2);
    let middle =
        |half: &[Option<f64>]| median(&half.iter().copied().flatten().collect::<Vec<f64>>());
    Some([Some(middle(first)?), Some(middle(second)?)])
}

fn settling(
    at: Duration,
    length: Duration,
    cap: Duration,
    standings: &[Standing],
    windows: &[Windows],
) -> Settling {
    let tenants = standings.iter().zip(windows);
    Settling {
        settled: standings.iter().all(|standing| standing.settled),
        settled_after_us: at.as_us_f64(),
        measured_us: length.as_us_f64(),
        cap_us: cap.as_us_f64(),
        tenants: tenants
            .map(|(standing, windows)| TenantSettling {
                settled: standing.settled,
                on_the_edge: standing.on_the_edge,
                samples: windows.latencies.samples,
                p99_low_us: windows.latencies.low,
                p99_high_us: windows.latencies.high,
            })
            .collect(),
    }
}

/// Runs from the beginning with the requested times.
pub type Run<'a> = &'a dyn Fn(&Scenario) -> Result<RunResult, TestbedError>;

/// A testbed that starts again each time.
pub struct Again<'a> {
    /// Runs once.
    pub run: Run<'a>,
    /// What runs.
    pub scenario: &'a Scenario,
}

impl Course for Again<'_> {
    fn warm_up(&mut self, _: &Patience<'_>) -> Duration {
        self.scenario.warmup
    }

    fn measure(
        &mut self,
        at: Duration,
        length: Duration,
    ) -> Result<(RunResult, Vec<Windows>), TestbedError> {
        let mut scenario = self.scenario.clone();
        let points =
            (self.scenario.duration.as_ps() / self.scenario.sample_interval.as_ps().max(1)).max(1);
        scenario.warmup = at;
        scenario.duration = length;
        scenario.sample_interval = length / points;
        let result = (self.run)(&scenario)?;
        let windows = result
            .tenants
            .iter()
            .map(|one| windows_in(one, (at, length)))
            .collect();
        Ok((result, windows))
    }
}

/// What the figures of `tenant`, measured for `length` after `before`, say of windows.
fn windows_in(tenant: &TenantResult, (before, length): (Duration, Duration)) -> Windows {
    let seconds = length.as_secs_f64() / WINDOWS as f64;
    let series = &tenant.goodput_series_gbps;
    let per_window = series.len() / WINDOWS;
    let each = |rate_per_s: f64| (rate_per_s * seconds).round() as u64;
    let gbps = |window: usize| match per_window {
        0 => tenant.goodput_gbps,
        _ => {
            let points = &series[window * per_window..(window + 1) * per_window];
            points.iter().sum::<f64>() / per_window as f64
        }
    };
    let latency = tenant.latency_us.as_ref();
    Windows {
        before,
        length: length / WINDOWS as u64,
        counts: std::array::from_fn(|window| Counts {
            bytes: each(gbps(window) * 1e9 / 8.0),
            messages: each(tenant.message_rate_per_s),
            operations: each(
                tenant
                    .application
                    .as_ref()
                    .and_then(|one| one.pace_per_s)
                    .unwrap_or(0.0),
            ),
            controls: each(tenant.control_rate_per_s),
        }),
        latencies: Latencies {
            samples: latency.map_or(0, |latency| latency.samples),
            p99: latency.map(|latency| latency.p99),
            low: None,
            high: None,
            halves: [latency.map(|latency| latency.p99); 2],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_common_quantities::settle::{Figure, Limit};
    use std::cell::RefCell;

    /// A course whose tenant delivers `gbps(t)` in the window that ends at `t` us.
    struct Drawn<F> {
        gbps: F,
        template: RunResult,
        measured: RefCell<Vec<(f64, f64)>>,
    }

    impl<F: Fn(f64) -> f64> Course for Drawn<F> {
        fn warm_up(&mut self, patience: &Patience<'_>) -> Duration {
            patience.settle
        }

        fn measure(
            &mut self,
            at: Duration,
            length: Duration,
        ) -> Result<(RunResult, Vec<Windows>), TestbedError> {
            let times = (at.as_us_f64(), length.as_us_f64());
            self.measured.borrow_mut().push(times);
            let window = times.1 / WINDOWS as f64;
            let bytes = |index: usize| {
                let end = times.0 + window * (index + 1) as f64;
                ((self.gbps)(end) * 125.0 * window) as u64
            };
            let windows = Windows {
                before: at,
                length: length / WINDOWS as u64,
                counts: std::array::from_fn(|index| Counts {
                    bytes: bytes(index),
                    ..Counts::default()
                }),
                latencies: Latencies::default(),
            };
            Ok((self.template.clone(), vec![windows]))
        }
    }

    fn scenario() -> Scenario {
        let library = isolane_rdma_scenario::library::Library::embedded();
        let text = "profile = \"cx5-100g-roce\"\nwarmup = \"100us\"\nduration = \"100us\"\n[[tenant]]\nname = \"one\"\n\
                    [[tenant.traffic]]\nverb = \"write\"\nsize = \"64KiB\"\n";
        isolane_rdma_scenario::parse(text, "settle.toml", &library).expect("it is well-formed")
    }

    /// The measured times, and how the run ended.
    fn course(
        gbps: impl Fn(f64) -> f64,
        demand: Demand,
        cap_us: u64,
    ) -> (Vec<(f64, f64)>, Settling) {
        let scenario = scenario();
        let template = RunResult {
            sample_us: 1.0,
            ..RunResult::empty(&scenario, "", "")
        };
        let mut drawn = Drawn {
            gbps,
            template,
            measured: RefCell::default(),
        };
        let demands = [demand];
        let patience = Patience::settled(
            &scenario,
            Congestion::default(),
            Duration::from_us(cap_us),
            &demands,
        );
        let result = run(&mut drawn, &scenario, &patience).unwrap();
        (drawn.measured.into_inner(), result.settling.unwrap())
    }

    #[test]
    fn a_constant_rate_is_measured_once() {
        let (measured, settling) = course(|_| 40.0, Demand::Rates, 10_000);
        assert_eq!(measured, [(100.0, 100.0)]);
        assert!(settling.settled && settling.settled_after_us == 100.0);
    }

    #[test]
    fn a_rate_that_changes_late_is_measured_behind_the_change() {
        // The change is in the first measured time, and no other change is hidden by it.
        let (measured, settling) = course(
            |t| if t < 150.0 { 90.0 } else { 10.0 },
            Demand::Rates,
            10_000,
        );
        assert_eq!(measured, [(100.0, 100.0), (200.0, 200.0)]);
        assert!(settling.settled);
        assert_eq!(
            (settling.settled_after_us, settling.measured_us),
            (200.0, 200.0)
        );
    }

    #[test]
    fn a_rate_that_never_settles_ends_at_the_cap_and_is_marked() {
        let wave = |t: f64| 50.0 + 40.0 * (t.log2() * 9.0).sin();
        let (measured, settling) = course(wave, Demand::Rates, 2_000);
        assert!(!settling.settled && !settling.tenants[0].settled);
        let (at, length) = measured[measured.len() - 1];
        assert!(at + length <= 2_000.0, "{measured:?}");
        assert_eq!(settling.cap_us, 2_000.0);
    }

    #[test]
    fn a_limit_that_is_far_ends_a_run_early() {
        let limit = Limit {
            figure: Figure::Goodput,
            value: 37.5,
        };
        let wave = |t: f64| 3.0 + (t / 25.0).sin();
        let (measured, settling) = course(wave, Demand::Limits(vec![limit]), 2_000);
        assert_eq!(measured.len(), 1);
        assert!(settling.settled && !settling.tenants[0].on_the_edge);
    }

    #[test]
    fn a_scenario_with_late_tenants_is_a_course() {
        let mut scenario = scenario();
        assert!(!is_course(&scenario));
        scenario.tenants[0].start = Duration::from_us(1);
        assert!(is_course(&scenario));
    }
}
