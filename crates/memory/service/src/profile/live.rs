//! Profiles measured on a real machine: LS and BI for the machine, backend and sensors for an application.
//!
//! Method: a [`LiveMachine`] runs the microbenchmarks and reads remote hint faults of `/proc/vmstat` before and after. A
//! [`LiveApplication`] sets limits, waits until the backend says that they hold (or that nothing moves any more), and takes
//! the median of what the sensors saw in the periods after that, which a burst in a few of them does not move.
//!
//! Units: nanoseconds, bytes, bytes per second. Limits: near and far bandwidth of the machine are BI's own, by where its memory
//! was placed; what others use is not seen. Source: mercury 5.5.2.

use super::application::{ApplicationMeasure, Experience};
use super::machine::{Load, MachineMeasure, Point};
use crate::backend::{Backend, Progress};
use crate::bench::{self, BandwidthSettings, LatencySettings, Nodes};
use crate::cgroup::Cgroup;
use crate::error::MemError;
use crate::host::MemoryHost;
use crate::indicator::Sensors;
use crate::indicator::files::{balances, remote_hint_faults};
use isolane_common_quantities::units::{Bytes, Duration, Instant};
use isolane_memory_policy::mercury::{AppId, Limits, PERIOD, Reading, TIERS_MAX};
use std::sync::atomic::{AtomicBool, Ordering};

/// A machine that is measured with LS and BI.
#[derive(Clone, Debug)]
pub struct LiveMachine {
    /// Its files.
    pub host: MemoryHost,
    /// Near and far nodes.
    pub nodes: Nodes,
    /// How LS runs; its placement is set by each measurement.
    pub victim: LatencySettings,
    /// How BI runs; its rate and placement are set by each measurement.
    pub disturber: BandwidthSettings,
}

impl LiveMachine {
    /// LS and BI as in the paper, on this machine, for `length` each time. BI has every processor but one.
    pub fn new(host: MemoryHost, nodes: Nodes, length: std::time::Duration) -> Self {
        let disturber = BandwidthSettings::default();
        Self {
            victim: LatencySettings {
                length,
                nodes: nodes.clone(),
                ..LatencySettings::default()
            },
            disturber: BandwidthSettings {
                cores: disturber.cores.saturating_sub(1).max(1),
                nodes: nodes.clone(),
                length,
                ..disturber
            },
            host,
            nodes,
        }
    }

    /// Remote hint faults since the machine started; none where NUMA balancing is off: the counters exist then too, and
    /// do not change.
    fn hint_faults(&self) -> Option<u64> {
        if !balances(&self.host) {
            return None;
        }
        let text = self.host.root.text("/proc/vmstat")?;
        remote_hint_faults(&text)
    }
}

impl MachineMeasure for LiveMachine {
    fn has_far(&self) -> bool {
        !self.nodes.far.is_empty()
    }

    fn measure(&mut self, load: Load) -> Result<Point, MemError> {
        let victim = LatencySettings {
            far_percent: load.victim_far_percent,
            ..self.victim.clone()
        };
        let faults = self.hint_faults();
        let start = std::time::Instant::now();
        let (latency, bandwidth) = if load.rate == 0 {
            (bench::latency(&victim)?, 0.0)
        } else {
            let disturber = BandwidthSettings {
                rate: load.rate,
                far_percent: load.far_percent,
                ..self.disturber.clone()
            };
            let (latency, disturbed) = bench::together(&victim, &disturber)?;
            (latency, disturbed.bandwidth_bytes_per_s)
        };
        let seconds = start.elapsed().as_secs_f64();
        let faults = faults.zip(self.hint_faults());
        let far = f64::from(load.far_percent) / 100.0;
        Ok(Point {
            latency_ns: latency.p50_ns,
            near_bandwidth: bandwidth * (1.0 - far),
            far_bandwidth: bandwidth * far,
            hint_faults_per_s: faults
                .map(|(before, after)| after.saturating_sub(before) as f64 / seconds),
        })
    }
}

/// An application in its control group, under a backend and sensors that have adopted it.
pub struct LiveApplication<'a> {
    /// The files of the machine.
    pub host: &'a MemoryHost,
    /// The application's group.
    pub cgroup: &'a Cgroup,
    /// How backend and sensors know it.
    pub app: AppId,
    /// Cores that the application requested.
    pub cores: u32,
    /// Moves its pages.
    pub backend: &'a mut dyn Backend,
    /// Measures it.
    pub sensors: &'a mut dyn Sensors,
    /// Periods whose readings count; their median does.
    pub periods: u32,
    /// Longest wait for pages to move, in periods.
    pub patience: u32,
    /// Set when the user has had enough.
    pub stop: &'a AtomicBool,
    /// Waits so long and says what time it is then, by the clock that sensors and backend know.
    pub wait: Box<dyn FnMut(Duration) -> Instant + 'a>,
}

/// Waiting by the machine's clock, which begins now.
pub fn wall_clock() -> Box<dyn FnMut(Duration) -> Instant> {
    let start = std::time::Instant::now();
    Box::new(move |length| {
        std::thread::sleep(std::time::Duration::from_nanos(length.as_ps() / 1_000));
        Instant::ZERO + Duration::from_secs_f64(start.elapsed().as_secs_f64())
    })
}

impl LiveApplication<'_> {
    fn go_on(&self) -> Result<(), MemError> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(MemError::Interrupted),
            false => Ok(()),
        }
    }

    /// Waits until pages are within the limits, or move no more.
    fn settle(&mut self) -> Result<(), MemError> {
        for _ in 0..self.patience {
            self.go_on()?;
            let now = (self.wait)(PERIOD);
            // What is read now is of the time before; it is thrown away.
            self.sensors.observe(now);
            let news = self.backend.poll(now);
            let own = news
                .into_iter()
                .filter(|news| news.app() == self.app)
                .last();
            match own {
                Some(Progress::Gone { .. }) => return Err(MemError::Gone(self.cgroup.to_string())),
                Some(Progress::AdoptFailed { why, .. } | Progress::ReleaseFailed { why, .. }) => {
                    return Err(why);
                }
                Some(Progress::Reached { .. } | Progress::Stuck { .. }) => return Ok(()),
                Some(Progress::Moving { .. } | Progress::Released { .. }) | None => {}
            }
        }
        Ok(())
    }
}

impl ApplicationMeasure for LiveApplication<'_> {
    fn measure(&mut self, near: Option<Bytes>, cpu: u32) -> Result<Experience, MemError> {
        self.go_on()?;
        let mut tiers = Limits::NONE.tiers;
        tiers[0] = near;
        self.host.set_cpu(self.cgroup, cpu, self.cores)?;
        self.backend.apply(self.app, &tiers)?;
        self.settle()?;
        let mut seen = Seen::default();
        for _ in 0..self.periods.max(1) {
            self.go_on()?;
            let now = (self.wait)(PERIOD);
            let observation = self.sensors.observe(now);
            let view = observation.apps.iter().find(|view| view.id == self.app);
            let Some(view) = view else { continue };
            seen.latencies
                .extend(view.latency.as_ref().and_then(Reading::fresh));
            seen.bandwidths
                .extend(view.bandwidth.as_ref().and_then(Reading::fresh));
            seen.held = view.held;
            if !self.host.has_cgroup(self.cgroup) {
                return Err(MemError::Gone(self.cgroup.to_string()));
            }
        }
        Ok(seen.median())
    }
}

#[derive(Default)]
struct Seen {
    latencies: Vec<Duration>,
    bandwidths: Vec<u64>,
    held: [Bytes; TIERS_MAX],
}

impl Seen {
    fn median(mut self) -> Experience {
        Experience {
            latency: middle(&mut self.latencies),
            bandwidth: middle(&mut self.bandwidths),
            held: self.held.iter().copied().sum(),
        }
    }
}

/// The median; of an even number the upper one.
fn middle<T: Copy + Ord>(values: &mut [T]) -> Option<T> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::fake::FakeBackend;
    use crate::indicator::fake::FakeSensors;
    use crate::profile::application::{Settings, search};
    use crate::testing::Tree;
    use isolane_memory_policy::mercury::{AppView, Objective, Source};

    #[test]
    fn counters_that_do_not_change_are_unknown_and_not_zero() {
        let tree = Tree::two_tiers();
        tree.write(
            "/proc/vmstat",
            "numa_hint_faults 100\nnuma_hint_faults_local 30\n",
        );
        tree.write("/proc/sys/kernel/numa_balancing", "0\n");
        let nodes = Nodes {
            near: vec![0],
            far: vec![1],
        };
        let machine = LiveMachine::new(tree.host(), nodes, std::time::Duration::ZERO);
        assert_eq!(machine.hint_faults(), None);
        tree.write("/proc/sys/kernel/numa_balancing", "2\n");
        assert_eq!(machine.hint_faults(), Some(70));
    }

    #[test]
    fn remote_faults_are_all_without_the_local_ones() {
        let text = "numa_pte_updates 1\nnuma_hint_faults 100\nnuma_hint_faults_local 30\n";
        assert_eq!(remote_hint_faults(text), Some(70));
        assert_eq!(remote_hint_faults("nr_free_pages 5\n"), None);
    }

    const SIZE: u64 = 400 << 20;

    /// A machine of two tiers, and an application that the backend has.
    fn adopted() -> (Tree, Cgroup, FakeBackend) {
        let tree = Tree::two_tiers();
        let cgroup = tree.cgroup("/isolane-mem/redis", &[(0, 400)]);
        let mut backend = FakeBackend::new();
        backend.adopt(AppId(1), &cgroup, &[]).unwrap();
        (tree, cgroup, backend)
    }

    /// An application of four cores whose clock stands still.
    fn live<'a>(
        host: &'a MemoryHost,
        cgroup: &'a Cgroup,
        backend: &'a mut FakeBackend,
        sensors: &'a mut FakeSensors,
    ) -> LiveApplication<'a> {
        static GOES_ON: AtomicBool = AtomicBool::new(false);
        LiveApplication {
            host,
            cgroup,
            app: AppId(1),
            cores: 4,
            backend,
            sensors,
            periods: 3,
            patience: 10,
            stop: &GOES_ON,
            wait: Box::new(|_| Instant::ZERO),
        }
    }

    /// Goal: limits reach backend and control group, and what sensors see comes back. Method: a fake machine whose
    /// application gets faster with near memory.
    #[test]
    fn an_application_is_profiled_through_backend_and_sensors() {
        let (tree, cgroup, mut backend) = adopted();
        let (host, app) = (tree.host(), AppId(1));
        let mut sensors = FakeSensors::new();
        sensors.adopt(app, &cgroup).unwrap();
        let (world, seen) = (backend.world(), sensors.seen());
        let mut now = Instant::ZERO;
        let wait = Box::new(move |length: Duration| {
            now += length;
            let limits = world.lock().unwrap().apps[&app].limits.unwrap_or_default();
            let near = limits[0].map_or(SIZE, Bytes::get).min(SIZE);
            let latency = 200.0 - 100.0 * near as f64 / SIZE as f64;
            let reading = Reading {
                value: Duration::from_ns_f64(latency),
                age: Duration::ZERO,
                source: Source::Application,
            };
            let mut held = [Bytes::ZERO; TIERS_MAX];
            held[0] = Bytes::new(near);
            held[1] = Bytes::new(SIZE - near);
            seen.lock().unwrap().observation.apps = vec![AppView {
                id: app,
                held,
                latency: Some(reading),
                bandwidth: None,
                cpu_used: None,
            }];
            now
        });
        let mut live = LiveApplication {
            wait,
            ..live(&host, &cgroup, &mut backend, &mut sensors)
        };
        let objective = Objective::Latency(Duration::from_ns(150));
        let found = search(&mut live, objective, &Settings::default()).unwrap();
        let local = found.profile.local.get();
        assert!(
            (SIZE / 2..=SIZE / 2 + SIZE / 64).contains(&local),
            "{local}"
        );
        assert_eq!(
            tree.read("/sys/fs/cgroup/isolane-mem/redis/cpu.max").trim(),
            "max 100000"
        );
    }

    #[test]
    fn an_application_that_ends_is_reported() {
        let (tree, cgroup, mut backend) = adopted();
        let host = tree.host();
        let mut sensors = FakeSensors::new();
        backend
            .world()
            .lock()
            .unwrap()
            .gone
            .insert(cgroup.path().to_owned());
        let mut now = Instant::ZERO;
        let stop = AtomicBool::new(false);
        let mut live = LiveApplication {
            stop: &stop,
            wait: Box::new(move |length| {
                now += length;
                now
            }),
            ..live(&host, &cgroup, &mut backend, &mut sensors)
        };
        let error = live.measure(Some(Bytes::ZERO), 1_000).unwrap_err();
        assert!(error.is_gone(), "{error}");
        stop.store(true, Ordering::Relaxed);
        let error = live.measure(Some(Bytes::ZERO), 1_000).unwrap_err();
        assert!(matches!(error, MemError::Interrupted), "{error}");
    }
}
