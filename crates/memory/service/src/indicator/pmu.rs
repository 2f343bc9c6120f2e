//! Latency by the processor's counters: cycles with a miss of the last cache outstanding, per retired load that missed it.
//!
//! Method: one pair of counters per application's control group and processor (`sys::perf_event_of_cgroup`); the latency is
//! cycles over misses over clock rate, over what came since the reading before, smoothed. Fewer than [`MISSES_MIN`] misses
//! give no value. Cycles overlap when misses do, so this is what the processor waited, not what one load took; that is
//! what the original's prototype uses.
//!
//! Units: nanoseconds, gigahertz. Limits: Intel server processors (the events are theirs); AMD's instruction-based sampling
//! needs a ring buffer and is not here: such a machine uses the probe. No machine of the lab has counters, so what is
//! tested is the arithmetic and the refusal. Source: Mercury 5.4.1; Intel's event lists.

use crate::cgroup::Cgroup;
use crate::host::MemoryHost;
use crate::sys;
use isolane_common_quantities::units::Duration;
use isolane_memory_policy::mercury::AppId;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

/// A raw event (`PERF_TYPE_RAW`).
const RAW: u32 = 4;

/// `CYCLE_ACTIVITY.CYCLES_L3_MISS`: event 0xA3, unit mask 2, counter mask 2.
const CYCLES_L3_MISS: u64 = 0x0200_02A3;

/// `MEM_LOAD_RETIRED.L3_MISS`: event 0xD1, unit mask 0x20.
const LOADS_L3_MISS: u64 = 0x20D1;

/// With fewer misses a mean means little.
pub const MISSES_MIN: u64 = 1_000;

/// The share of the newest value in the smoothed one.
const SMOOTHING: f64 = 0.5;

/// Why the counters do not work here; none when they may.
pub fn missing(host: &MemoryHost) -> Option<String> {
    let text = host.root.text("/proc/cpuinfo").unwrap_or_default();
    let intel = text
        .lines()
        .any(|line| line.starts_with("vendor_id") && line.ends_with("GenuineIntel"));
    if !host.root.exists("/sys/bus/event_source/devices/cpu") {
        return Some(
            "the kernel offers no counters of the processor (virtual machines rarely have them)"
                .to_owned(),
        );
    }
    if !intel {
        return Some("these events are of Intel processors".to_owned());
    }
    clock_ghz(host)
        .is_none()
        .then(|| "the clock rate is not known".to_owned())
}

/// The base clock rate.
pub fn clock_ghz(host: &MemoryHost) -> Option<f64> {
    let base = host
        .root
        .number("/sys/devices/system/cpu/cpu0/cpufreq/base_frequency");
    if let Some(khz) = base.filter(|khz| *khz > 0) {
        return Some(khz as f64 / 1e6);
    }
    let text = host.root.text("/proc/cpuinfo")?;
    let line = text.lines().find(|line| line.starts_with("cpu MHz"))?;
    let mhz: f64 = line.split(':').nth(1)?.trim().parse().ok()?;
    (mhz > 0.0).then_some(mhz / 1e3)
}

/// From counts to a latency.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Smoothed {
    before: Option<(u64, u64)>,
    nanoseconds: Option<f64>,
}

impl Smoothed {
    /// The latency after a further reading of both counters; none while there are too few events.
    pub fn of(&mut self, cycles: u64, misses: u64, ghz: f64) -> Option<Duration> {
        let before = self.before.replace((cycles, misses));
        let (cycles_before, misses_before) = before?;
        let (cycles, misses) = (
            cycles.checked_sub(cycles_before)?,
            misses.checked_sub(misses_before)?,
        );
        if misses < MISSES_MIN || ghz <= 0.0 {
            return None;
        }
        let now = cycles as f64 / misses as f64 / ghz;
        let smooth = self
            .nanoseconds
            .map_or(now, |old| old + SMOOTHING * (now - old));
        self.nanoseconds = Some(smooth);
        Some(Duration::from_ns_f64(smooth))
    }
}

struct Counters {
    cycles: Vec<File>,
    misses: Vec<File>,
    smoothed: Smoothed,
}

/// The counters of all applications.
#[derive(Default)]
pub struct Pmu {
    apps: BTreeMap<AppId, Counters>,
    /// Why the last opening failed.
    pub refused: Option<String>,
}

impl Pmu {
    /// Opens an application's counters on every processor; what is refused is remembered and measured not.
    pub fn adopt(&mut self, host: &MemoryHost, app: AppId, cgroup: &Cgroup, processors: &[u32]) {
        if missing(host).is_some() || !host.root.is_machine() {
            return;
        }
        let open_now = self
            .apps
            .values()
            .map(|counters| counters.cycles.len() + counters.misses.len())
            .sum();
        if let Some(why) = too_many_files(host, open_now, 2 * processors.len()) {
            self.refused = Some(why);
            return;
        }
        let open = || -> std::io::Result<Counters> {
            let path = host
                .cgroup_file(cgroup.path(), "")
                .map_err(std::io::Error::other)?;
            let directory = File::open(host.root.path(&path))?;
            let each = |event: u64| -> std::io::Result<Vec<File>> {
                let open =
                    |processor: &u32| sys::perf_event_of_cgroup(RAW, event, &directory, *processor);
                processors.iter().map(open).collect()
            };
            Ok(Counters {
                cycles: each(CYCLES_L3_MISS)?,
                misses: each(LOADS_L3_MISS)?,
                smoothed: Smoothed::default(),
            })
        };
        match open() {
            Ok(counters) => {
                self.apps.insert(app, counters);
            }
            Err(error) => self.refused = Some(error.to_string()),
        }
    }

    /// Closes an application's counters.
    pub fn release(&mut self, app: AppId) {
        self.apps.remove(&app);
    }

    /// The latency of an application.
    pub fn read(&mut self, app: AppId, ghz: f64) -> Option<Duration> {
        let counters = self.apps.get_mut(&app)?;
        let cycles = sum(&counters.cycles)?;
        let misses = sum(&counters.misses)?;
        counters.smoothed.of(cycles, misses, ghz)
    }
}

/// Open files that the rest of the service needs: its sockets, the journal, files of groups while they are read.
const FILES_OF_OTHERS: usize = 256;

/// Why `more` counters beside `open` are more files than this process may have; none where they are not.
fn too_many_files(host: &MemoryHost, open: usize, more: usize) -> Option<String> {
    let text = host.root.text("/proc/self/limits")?;
    let limit = text
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    // Without a limit there is a word.
    let limit: usize = limit.split_whitespace().next()?.parse().ok()?;
    (open + more + FILES_OF_OTHERS > limit).then(|| {
        format!(
            "one more application needs {more} counters beside {open}, and this process may open {limit} files: raise \
             LimitNOFILE of the service (ulimit -n)"
        )
    })
}

/// The sum of counters; none when one does not answer.
fn sum(files: &[File]) -> Option<u64> {
    let mut total = 0_u64;
    for mut file in files {
        let mut bytes = [0; 8];
        file.read_exact(&mut bytes).ok()?;
        total = total.saturating_add(u64::from_ne_bytes(bytes));
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    #[test]
    fn counters_leave_files_to_the_rest_of_the_service() {
        let tree = Tree::two_tiers();
        let said = |open, more| too_many_files(&tree.host(), open, more);
        assert_eq!(said(0, 1 << 20), None, "the kernel does not say");
        let limits = |most: &str| {
            let text = format!(
                "Limit  Soft Limit  Hard Limit  Units\nMax open files            {most}                 524288               files\n"
            );
            tree.write("/proc/self/limits", &text);
        };
        limits("1024");
        assert_eq!(said(640, 128), None);
        let why = said(641, 128).expect("one too many");
        assert!(
            why.contains("1024 files") && why.contains("LimitNOFILE"),
            "{why}"
        );
        limits("unlimited");
        assert_eq!(said(1 << 20, 128), None);
    }

    #[test]
    fn latency_is_cycles_per_miss_at_the_clock_rate_and_smoothed() {
        let mut smoothed = Smoothed::default();
        assert_eq!(smoothed.of(0, 0, 2.0), None);
        assert_eq!(
            smoothed.of(400_000, 2_000, 2.0),
            Some(Duration::from_ns(100))
        );
        // 300 ns now, half of the way.
        assert_eq!(
            smoothed.of(400_000 + 1_200_000, 4_000, 2.0),
            Some(Duration::from_ns(200))
        );
    }

    #[test]
    fn few_misses_and_counters_that_go_back_tell_nothing() {
        let mut smoothed = Smoothed::default();
        smoothed.of(0, 0, 2.0);
        assert_eq!(smoothed.of(1_000, 999, 2.0), None);
        assert_eq!(smoothed.of(900, 5_000, 2.0), None);
    }

    #[test]
    fn a_machine_without_counters_says_why() {
        let tree = Tree::two_tiers();
        assert!(missing(&tree.host()).is_some_and(|why| why.contains("no counters")));
        tree.write("/sys/bus/event_source/devices/cpu/type", "4");
        tree.write(
            "/proc/cpuinfo",
            "vendor_id\t: AuthenticAMD\ncpu MHz\t\t: 2400.000\n",
        );
        assert!(missing(&tree.host()).is_some_and(|why| why.contains("Intel")));
        tree.write(
            "/proc/cpuinfo",
            "vendor_id\t: GenuineIntel\ncpu MHz\t\t: 2400.000\n",
        );
        assert_eq!(missing(&tree.host()), None);
        assert_eq!(clock_ghz(&tree.host()), Some(2.4));
    }
}
