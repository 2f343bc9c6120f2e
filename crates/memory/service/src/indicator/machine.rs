//! The sensors of a machine: all readings of this kernel and processor in one observation.
//!
//! Method: what an application holds and its processor time are the kernel's counters; its bandwidth is resctrl's; its
//! latency is the processor's counters' where there are any, else the tiers' latencies by a pointer chase, weighted by
//! the pages in each tier ([`Chase`]). The pointer chase measures the tiers' load and not the application's own
//! latency, and its label states this.
//!
//! Units: bytes, bytes per second, picoseconds, thousandths. Limits: an application in several sockets has one number.
//! Source: Mercury 5.4.1, 5.5.4.

use super::files::{HintFaults, Rate, Resctrl, age, balances, cpu_share};
use super::pmu::{self, Pmu};
use super::pressure::Pressure;
use super::{Sensors, SourceInfo};
use crate::cgroup::Cgroup;
use crate::error::MemError;
use crate::host::MemoryHost;
use crate::tiers::{Tiers, parse_list};
use isolane_common_quantities::units::{Bytes, Duration, Instant};
use isolane_memory_policy::mercury::{
    AppId, AppView, Observation, Reading, Source, TIERS_MAX, TierView,
};
use std::collections::BTreeMap;

/// Measures the latency of each tier by loads that depend on each other.
pub trait Chase: Send {
    /// The latency of each tier now, or what was found less than a period ago; none where it cannot be measured.
    fn latencies(&mut self) -> [Option<Duration>; TIERS_MAX];
}

/// No pointer chase.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoChase;

impl Chase for NoChase {
    fn latencies(&mut self) -> [Option<Duration>; TIERS_MAX] {
        [None; TIERS_MAX]
    }
}

struct App {
    cgroup: Cgroup,
    cores: u32,
    cpu: Rate,
    latency: Option<(Instant, Duration)>,
    bandwidth: Option<(Instant, u64)>,
    pressure: Option<Pressure>,
}

/// The sensors.
pub struct MachineSensors {
    host: MemoryHost,
    tiers: Tiers,
    hint_faults: HintFaults,
    faults: Option<(Instant, f64)>,
    resctrl: Option<Resctrl>,
    pmu: Pmu,
    ghz: Option<f64>,
    chase: Box<dyn Chase>,
    chases: bool,
    looks: u32,
    apps: BTreeMap<AppId, App>,
}

/// Looks between two searches for threads that resctrl does not count yet: one second.
const FOLLOW: u32 = 10;

impl MachineSensors {
    /// Sensors of a machine; `chase` where tiers may be probed.
    pub fn new(host: MemoryHost, chase: Option<Box<dyn Chase>>) -> Self {
        let resctrl = Resctrl::works(&host).then(Resctrl::default);
        let ghz = pmu::clock_ghz(&host);
        let chases = chase.is_some();
        Self {
            tiers: Tiers::read(&host),
            host,
            hint_faults: HintFaults::default(),
            faults: None,
            resctrl,
            pmu: Pmu::default(),
            ghz,
            chase: chase.unwrap_or_else(|| Box::new(NoChase)),
            chases,
            looks: 0,
            apps: BTreeMap::new(),
        }
    }

    fn tier_views(&mut self, now: Instant) -> Vec<TierView> {
        let machine = self
            .resctrl
            .as_mut()
            .map(|resctrl| resctrl.read(&self.host, now, None));
        let reading = |value: Option<u64>| {
            value.map(|value| Reading {
                value,
                age: Duration::ZERO,
                source: Source::Resctrl,
            })
        };
        (0..self.tiers.len())
            .map(|tier| {
                let (capacity, free) = self.tiers.usage(&self.host, tier);
                let bandwidth = machine.and_then(|seen| match (tier, self.tiers.len()) {
                    (0, _) => seen.local,
                    // With several far tiers the counters do not say which.
                    (1, 2) => seen
                        .total
                        .zip(seen.local)
                        .map(|(total, local)| total.saturating_sub(local)),
                    _ => None,
                });
                TierView {
                    capacity,
                    used: capacity.saturating_sub(free),
                    bandwidth: reading(bandwidth),
                }
            })
            .collect()
    }
}

impl Sensors for MachineSensors {
    fn adopt(&mut self, app: AppId, cgroup: &Cgroup) -> Result<(), MemError> {
        self.host.held_by_node(cgroup)?;
        let online = self
            .host
            .root
            .text("/sys/devices/system/cpu/online")
            .unwrap_or_default();
        let own = self
            .host
            .read_cgroup(cgroup, "cpuset.cpus.effective")
            .unwrap_or_default();
        let count = |text: &str| parse_list(text).len();
        let cores = [count(&own), count(&online)]
            .into_iter()
            .find(|count| *count > 0)
            .unwrap_or(1);
        if let Some(resctrl) = &mut self.resctrl {
            resctrl.adopt(&self.host, app, cgroup);
        }
        self.pmu
            .adopt(&self.host, app, cgroup, &parse_list(&online));
        let entry = App {
            cgroup: cgroup.clone(),
            cores: u32::try_from(cores).unwrap_or(u32::MAX),
            cpu: Rate::default(),
            latency: None,
            bandwidth: None,
            pressure: None,
        };
        self.apps.insert(app, entry);
        Ok(())
    }

    fn release(&mut self, app: AppId) {
        self.apps.remove(&app);
        self.pmu.release(app);
        if let Some(resctrl) = &mut self.resctrl {
            resctrl.release(&self.host, app);
        }
    }

    fn observe(&mut self, now: Instant) -> Observation {
        if let Some(rate) = self.hint_faults.read(&self.host, now) {
            self.faults = Some((now, rate));
        }
        self.looks = self.looks.wrapping_add(1);
        let follows = self.looks.is_multiple_of(FOLLOW);
        let tiers = self.tier_views(now);
        let chased = self.chase.latencies();
        let mut views = Vec::new();
        for (id, app) in &mut self.apps {
            // The backend reports a group that has vanished; the group has no reading here.
            app.pressure = None;
            let Ok(held) = self.host.held(&self.tiers, &app.cgroup) else {
                continue;
            };
            app.pressure = Pressure::read(&self.host, &app.cgroup);
            let used = self.host.cpu_used_us(&app.cgroup).ok();
            let cpu_used = used.and_then(|used| cpu_share(&mut app.cpu, now, used, app.cores));
            if let Some(latency) = self.ghz.and_then(|ghz| self.pmu.read(*id, ghz)) {
                app.latency = Some((now, latency));
            }
            let counted = self.resctrl.as_mut().map(|resctrl| {
                if follows {
                    resctrl.follow(&self.host, *id, &app.cgroup);
                }
                resctrl.read(&self.host, now, Some(*id))
            });
            if let Some(total) = counted.and_then(|seen| seen.total) {
                app.bandwidth = Some((now, total));
            }
            let by_pmu = app.latency.map(|(at, value)| Reading {
                value,
                age: age(now, at),
                source: Source::Pmu,
            });
            let by_probe = weighted(&held, &chased).map(|value| Reading {
                value,
                age: Duration::ZERO,
                source: Source::Probe,
            });
            views.push(AppView {
                id: *id,
                held,
                // A stale count of the processor is worth less than a fresh probe.
                latency: by_pmu
                    .filter(|reading| reading.fresh().is_some())
                    .or(by_probe)
                    .or(by_pmu),
                bandwidth: app.bandwidth.map(|(at, value)| Reading {
                    value,
                    age: age(now, at),
                    source: Source::Resctrl,
                }),
                cpu_used: cpu_used.map(|value| Reading {
                    value,
                    age: Duration::ZERO,
                    source: Source::Kernel,
                }),
            });
        }
        Observation {
            tiers,
            hint_faults_per_s: self.faults.map(|(at, value)| Reading {
                value,
                age: age(now, at),
                source: Source::Kernel,
            }),
            apps: views,
        }
    }

    fn held(&self, cgroup: &Cgroup) -> Option<[Bytes; TIERS_MAX]> {
        self.host.held(&self.tiers, cgroup).ok()
    }

    fn pressures(&self) -> BTreeMap<AppId, Pressure> {
        let apps = self.apps.iter();
        apps.filter_map(|(id, app)| Some((*id, app.pressure?)))
            .collect()
    }

    fn sources(&self) -> Vec<SourceInfo> {
        let mut found = sources(&self.host);
        if let (Some(why), Some(perf)) = (
            &self.pmu.refused,
            found.iter_mut().find(|info| info.name == "perf"),
        ) {
            perf.works = false;
            perf.seen = format!("the kernel rejected the counters: {why}");
        }
        let resctrl = self.resctrl.as_ref();
        if let (Some(why), Some(info)) = (
            resctrl.and_then(|resctrl| resctrl.refused.as_ref()),
            found.iter_mut().find(|info| info.name == "resctrl"),
        ) {
            info.seen = format!("not for every application: {why}");
        }
        found.push(probe(
            self.chases,
            match self.chases {
                true => "runs beside the applications",
                false => "switched off",
            },
        ));
        found
    }
}

/// The mean of the tiers' latencies, weighted by an application's pages in each tier; none where a tier with pages is
/// unknown.
fn weighted(
    held: &[Bytes; TIERS_MAX],
    latencies: &[Option<Duration>; TIERS_MAX],
) -> Option<Duration> {
    let total: u64 = held.iter().map(|bytes| bytes.get()).sum();
    let mut sum = 0.0;
    for (bytes, latency) in held.iter().zip(latencies) {
        if bytes.get() > 0 {
            sum += (*latency)?.as_ns_f64() * bytes.get() as f64;
        }
    }
    (total > 0).then(|| Duration::from_ns_f64(sum / total as f64))
}

/// What the sources other than the probe can measure on a machine; changes nothing.
pub fn sources(host: &MemoryHost) -> Vec<SourceInfo> {
    let info = |name, measures, works, seen: &str, remedy: Option<&str>| SourceInfo {
        name,
        measures,
        works,
        seen: seen.to_owned(),
        remedy: remedy.filter(|_| !works).map(str::to_owned),
    };
    let resctrl = Resctrl::works(host);
    let perf = pmu::missing(host);
    let pressure = host.cgroups.is_some() && Pressure::works(host);
    let numa_stat = host.cgroups.is_some() && memory_controller(host);
    vec![
        info(
            "numa_stat",
            "bytes that an application holds in each tier",
            numa_stat,
            if numa_stat {
                "memory controller of version 2"
            } else {
                "no memory controller of version 2"
            },
            Some("boot with systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all"),
        ),
        info(
            "cpu.stat",
            "processor time of an application, in thousandths of its cores",
            host.cgroups.is_some(),
            if host.cgroups.is_some() {
                "version 2 hierarchy"
            } else {
                "no version 2 hierarchy"
            },
            Some("mount -t cgroup2 none /sys/fs/cgroup"),
        ),
        info(
            "memory.pressure",
            "part of the time in which tasks of an application wait for memory, in percent",
            pressure,
            if pressure {
                "pressure stall information (PSI)"
            } else {
                "the kernel does not count pressure"
            },
            Some("boot with psi=1, on a kernel with CONFIG_PSI"),
        ),
        info(
            "vmstat",
            "remote hint faults of the machine, per second",
            balances(host),
            if balances(host) {
                "NUMA balancing is on"
            } else {
                "NUMA balancing is off, so nothing is sampled"
            },
            Some("echo 2 > /proc/sys/kernel/numa_balancing"),
        ),
        info(
            "resctrl",
            "memory bandwidth of applications and of the near tier, in bytes per second",
            resctrl,
            if resctrl {
                "bandwidth monitoring (MBM)"
            } else {
                "no bandwidth monitoring in /sys/fs/resctrl"
            },
            Some("mount -t resctrl resctrl /sys/fs/resctrl, on a processor with MBM"),
        ),
        info(
            "perf",
            "latency of an application's loads beyond the last cache, in ns",
            perf.is_none(),
            perf.as_deref().unwrap_or("counters of the processor"),
            Some("without them the probe measures each tier's latency"),
        ),
    ]
}

/// The probe as a source.
pub fn probe(works: bool, seen: &str) -> SourceInfo {
    SourceInfo {
        name: "probe",
        measures: "latency of each tier by a pointer chase, in ns: the tier's load, not the application's own",
        works,
        seen: seen.to_owned(),
        remedy: None,
    }
}

/// Whether the root of the version 2 hierarchy has the memory controller.
pub fn memory_controller(host: &MemoryHost) -> bool {
    let file = host.cgroup_file("/", "cgroup.controllers");
    let text = file
        .ok()
        .and_then(|file| host.root.text(&file))
        .unwrap_or_default();
    text.split_whitespace().any(|word| word == "memory")
}
