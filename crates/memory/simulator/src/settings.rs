//! A machine's numbers as the mechanisms use them.
//!
//! Units: nanoseconds, bytes, seconds where the name ends in the unit.

use crate::tier::Tier;
use isolane_common_quantities::units::Bytes;
use isolane_memory_scenario::application::MemApplication;
use isolane_memory_scenario::machine::MemMachine;

/// A machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its tiers, nearest first.
    pub tiers: Vec<Tier>,
    /// Their names.
    pub names: Vec<&'static str>,
    /// Cores.
    pub cores: f64,
    /// Requests on their way at once, to all tiers together.
    pub slots: f64,
    /// What the kernel does.
    pub kernel: Kernel,
}

/// What the kernel does with pages.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Bytes of a page.
    pub page: f64,
    /// Bytes of an application's address space that are marked each second.
    pub scan: f64,
    /// A marked page that is touched within is hot, seconds.
    pub window: f64,
    /// Time of a hint fault, seconds.
    pub fault: f64,
    /// Bytes that can be moved each second.
    pub migrate: f64,
    /// Share of the near tier that is kept free.
    pub free: f64,
    /// Standard deviation of a measured latency, share.
    pub noise: f64,
}

impl Machine {
    /// The numbers of `machine`, with `capacity` for tiers that are given another size.
    pub fn new(machine: &MemMachine, capacity: &[Option<Bytes>]) -> Self {
        let names: Vec<&'static str> = machine.tiers().collect();
        let tiers = names.iter().enumerate().map(|(index, section)| {
            let value = |name| machine.value(section, name);
            let given = capacity.get(index).copied().flatten();
            Tier::new(
                given.map_or(value("capacity_gb") * 1e9, |bytes| bytes.get() as f64),
                value("latency_ns"),
                (value("bandwidth_gb_per_s"), value("channels")),
                value("variation"),
                value("entries"),
            )
        });
        let kernel = |name| machine.value("kernel", name);
        let page = kernel("page_bytes");
        Self {
            tiers: tiers.collect(),
            names,
            cores: machine.value("cpu", "cores"),
            slots: machine.value("cpu", "request_slots"),
            kernel: Kernel {
                page,
                scan: kernel("scan_mb_per_s") * 1e6,
                window: kernel("promote_window_s"),
                fault: kernel("hint_fault_us") / 1e6,
                migrate: kernel("migrate_threads") * page / (kernel("migrate_page_us") / 1e6),
                free: kernel("free_percent") / 100.0,
                noise: kernel("indicator_noise_percent") / 100.0,
            },
        }
    }
}

/// How an application reaches for memory.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// Requests that a core has on their way.
    pub(crate) requests: f64,
    /// Work between a return and the next request, nanoseconds.
    pub(crate) think: f64,
    /// Lines of a page that a visit reads.
    pub(crate) lines: f64,
    /// Exponent of the visits' distribution over pages.
    pub(crate) skew: f64,
    /// Share of the latency that loads see.
    pub(crate) seen: f64,
    /// Whether its pages get hint faults.
    pub(crate) hinted: bool,
    /// Lines that one operation needs.
    pub(crate) work: f64,
    /// Whether all cores work on one operation at a time.
    pub(crate) parallel: bool,
}

impl Access {
    pub(crate) fn new(application: &MemApplication) -> Self {
        let access = |name| application.value("access", name);
        Self {
            requests: access("requests_per_core"),
            think: access("think_ns"),
            lines: access("lines_per_visit"),
            skew: access("skew"),
            seen: 1.0 - access("hidden_percent") / 100.0,
            hinted: access("hinted") > 0.5,
            work: application.value("work", "lines_per_operation"),
            parallel: application.value("work", "parallel") > 0.5,
        }
    }
}
