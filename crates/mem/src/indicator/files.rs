//! Indicators that are files: what is held, processor time, hint faults, and the bandwidth counters of resctrl.
//!
//! Method: each source keeps what it read before and gives differences per time. A counter that went backwards, a text that does not
//! parse or a word such as `Unavailable` gives no value, and the next reading starts afresh.
//!
//! * [`Rate`] - a counter made a rate; [`HintFaults`] - `/proc/vmstat`; [`Resctrl`] - monitoring groups, one per application.
//!
//! Units: bytes per second, faults per second, thousandths of a core. Limits: resctrl counts what a processor's last-level
//! cache misses by where it went: local to the processor's node, or anywhere; far tiers are the difference.
//! Source: the kernel's documentation of resctrl and of the NUMA balancing counters; Mercury 5.4.1, 5.5.2.

use crate::cgroup::Cgroup;
use crate::host::MemoryHost;
use isolane_core::policy::mercury::AppId;
use isolane_core::units::{Duration, Instant};
use std::collections::BTreeMap;
use std::fs;

/// A growing counter as a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    before: Option<(Instant, u64)>,
}

impl Rate {
    /// The rate per second since the reading before; none for the first, for a counter that went backwards, and without
    /// time between.
    pub fn of(&mut self, now: Instant, count: u64) -> Option<f64> {
        let before = self.before.replace((now, count));
        let (then, earlier) = before?;
        let seconds = now.saturating_since(then).as_secs_f64();
        let grown = count.checked_sub(earlier)?;
        (seconds > 0.0).then(|| grown as f64 / seconds)
    }

    /// Forgets the reading before.
    pub fn reset(&mut self) {
        self.before = None;
    }
}

/// Remote hint faults per second: accesses that went to another node, as NUMA balancing samples them.
#[derive(Clone, Debug, Default)]
pub struct HintFaults {
    rate: Rate,
}

impl HintFaults {
    /// The rate; none where the kernel does not sample (NUMA balancing is off), which is not the same as no faults.
    pub fn read(&mut self, host: &MemoryHost, now: Instant) -> Option<f64> {
        if !balances(host) {
            self.rate.reset();
            return None;
        }
        let text = host.root.text("/proc/vmstat")?;
        let field = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|number| number.trim().parse::<u64>().ok())
        };
        let remote = field("numa_hint_faults")?.checked_sub(field("numa_hint_faults_local")?)?;
        self.rate.of(now, remote)
    }
}

/// Whether NUMA balancing is on, in either of its modes.
pub fn balances(host: &MemoryHost) -> bool {
    host.root
        .number("/proc/sys/kernel/numa_balancing")
        .is_some_and(|mode| mode != 0)
}

const RESCTRL: &str = "/sys/fs/resctrl";

/// Bandwidth counted by the processor: near (local) and in all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bandwidth {
    /// To the nodes of the processors that asked, bytes per second.
    pub local: Option<u64>,
    /// To all memory, bytes per second.
    pub total: Option<u64>,
}

/// The monitoring groups of resctrl.
#[derive(Debug, Default)]
pub struct Resctrl {
    rates: BTreeMap<Option<AppId>, (Rate, Rate)>,
}

impl Resctrl {
    /// Whether the counters are there.
    pub fn works(host: &MemoryHost) -> bool {
        let features = host
            .root
            .text(&format!("{RESCTRL}/info/L3_MON/mon_features"));
        features.is_some_and(|text| text.lines().any(|line| line.trim() == "mbm_total_bytes"))
    }

    /// Makes a monitoring group for an application and puts its processes there; those that they start follow.
    pub fn adopt(&mut self, host: &MemoryHost, app: AppId, cgroup: &Cgroup) {
        if !Self::works(host) {
            return;
        }
        // One that is there from a former life serves as well; a full table of groups means no counters for this one.
        let _ = fs::create_dir(host.root.path(&group(app)));
        for process in host.processes(cgroup).unwrap_or_default() {
            // A process that has ended meanwhile is no loss.
            let _ = host
                .root
                .write(&format!("{}/tasks", group(app)), &process.to_string());
        }
        self.rates.insert(Some(app), Default::default());
    }

    /// Removes the application's group.
    pub fn release(&mut self, host: &MemoryHost, app: AppId) {
        if self.rates.remove(&Some(app)).is_some() {
            // What remains is found and taken over by the next adoption under the same number.
            let _ = fs::remove_dir(host.root.path(&group(app)));
        }
    }

    /// Bandwidth of an application, or of the machine.
    pub fn read(&mut self, host: &MemoryHost, now: Instant, app: Option<AppId>) -> Bandwidth {
        let directory = app.map_or_else(|| RESCTRL.to_owned(), group);
        let sum = |file: &str| sum_of_caches(host, &directory, file);
        let (local, total) = (sum("mbm_local_bytes"), sum("mbm_total_bytes"));
        let rates = self.rates.entry(app).or_default();
        let rate = |rate: &mut Rate, count: Option<u64>| match count {
            Some(count) => rate.of(now, count).map(|value| value as u64),
            None => {
                rate.reset();
                None
            }
        };
        Bandwidth {
            local: rate(&mut rates.0, local),
            total: rate(&mut rates.1, total),
        }
    }
}

fn group(app: AppId) -> String {
    format!("{RESCTRL}/mon_groups/isolane-mem-{}", app.0)
}

/// The sum over all last-level caches; none when one of them says no number.
fn sum_of_caches(host: &MemoryHost, directory: &str, file: &str) -> Option<u64> {
    let caches = host.root.list(&format!("{directory}/mon_data"));
    let counts = caches
        .iter()
        .filter(|name| name.starts_with("mon_L3_"))
        .map(|name| {
            host.root
                .number(&format!("{directory}/mon_data/{name}/{file}"))
        });
    let counts: Option<Vec<u64>> = counts.collect();
    let counts = counts?;
    (!counts.is_empty()).then(|| counts.into_iter().fold(0, u64::saturating_add))
}

/// Processor time used since the reading before, in thousandths of `cores` cores.
pub fn cpu_share(rate: &mut Rate, now: Instant, used_us: u64, cores: u32) -> Option<u32> {
    let us_per_s = rate.of(now, used_us)?;
    let share = us_per_s / 1e6 / f64::from(cores.max(1)) * 1000.0;
    Some(share.round().clamp(0.0, f64::from(u32::MAX)) as u32)
}

/// The age of a reading.
pub fn age(now: Instant, measured: Instant) -> Duration {
    now.saturating_since(measured)
}
