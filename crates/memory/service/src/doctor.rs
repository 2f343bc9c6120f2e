//! What `isolane mem doctor` finds: what this machine can enforce and measure of memory tiers, what is missing, how to get it.
//!
//! Method: each check reads files and changes nothing; the verdicts are those of the RDMA doctor. The machine can hold
//! limits when a backend works, which is all that the exit code depends on.
//!
//! Units in every text. Limits: see [`crate::probe::look`].

use crate::backend::BackendKind;
use crate::backend::damos::files::{Owner, owner};
use crate::backend::damos::module;
use crate::backend::reclaim::{self, DEMOTION_REMEDY};
use crate::host::MemoryHost;
use crate::indicator::{SourceInfo, machine};
use crate::probe::{self, BackendReport};
use crate::tiers::{NO_TIERS_REMEDY, Tiers};
use isolane_rdma_inventory::doctor::{Check, Verdict};
use serde::Serialize;
use std::fmt::Write as _;

/// Version of [`Findings`].
pub const VERSION: u32 = 1;

/// Everything found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Findings {
    /// Version of this format.
    pub version: u32,
    /// The kernel's release.
    pub kernel: String,
    /// Whether limits can be enforced here.
    pub can_enforce: bool,
    /// The backend that would be used.
    pub backend: Option<BackendKind>,
    /// The tiers.
    pub tiers: Tiers,
    /// The checks.
    pub checks: Vec<Check>,
    /// Every backend, best first.
    pub backends: Vec<BackendReport>,
    /// Every indicator.
    pub indicators: Vec<SourceInfo>,
}

/// Looks at a machine.
pub fn examine(host: &MemoryHost) -> Findings {
    let backends = probe::look(host);
    let backend = backends
        .iter()
        .find(|report| report.works)
        .map(|report| report.backend);
    let tiers = Tiers::read(host);
    let checks = vec![
        tiers_check(host, &tiers),
        cgroups_check(host),
        delegation_check(host),
        demotion_check(host, &tiers),
        balancing_check(host),
        damon_check(host),
        swap_check(host),
        backend_check(backend, &backends),
    ];
    Findings {
        version: VERSION,
        kernel: host
            .root
            .text("/proc/sys/kernel/osrelease")
            .unwrap_or_else(|| "unknown".to_owned()),
        can_enforce: backend.is_some(),
        backend,
        checks,
        backends,
        indicators: indicators(host, &tiers),
        tiers,
    }
}

fn check(
    name: &'static str,
    verdict: Verdict,
    seen: impl Into<String>,
    action: Option<&str>,
) -> Check {
    Check {
        device: None,
        name,
        verdict,
        seen: seen.into(),
        action: action.map(str::to_owned),
    }
}

fn tiers_check(host: &MemoryHost, tiers: &Tiers) -> Check {
    let describe = |index: usize| {
        let (total, free) = tiers.usage(host, index);
        let nodes: Vec<String> = tiers.tiers[index]
            .nodes
            .iter()
            .map(u32::to_string)
            .collect();
        format!(
            "tier {index}: node {} with {} MiB, {} MiB free",
            nodes.join(","),
            total.get() >> 20,
            free.get() >> 20
        )
    };
    let seen: Vec<String> = (0..tiers.len()).map(describe).collect();
    match (tiers.len(), tiers.by_firmware) {
        (0, _) => check(
            "tiers",
            Verdict::Fail,
            "the kernel lists no memory nodes",
            Some("boot a kernel with CONFIG_NUMA (Debian's have it)"),
        ),
        (1, _) => check(
            "tiers",
            Verdict::Fail,
            format!("one tier, and two are needed: {}", seen.join("; ")),
            Some(NO_TIERS_REMEDY),
        ),
        (_, true) => check("tiers", Verdict::Ok, seen.join("; "), None),
        (_, false) => check(
            "tiers",
            Verdict::Warn,
            format!(
                "{}; distinguished by the nodes with processors; the kernel itself has one tier",
                seen.join("; ")
            ),
            Some(
                "demotion needs firmware that describes the far memory (HMAT); move_pages and cpuset do without",
            ),
        ),
    }
}

fn cgroups_check(host: &MemoryHost) -> Check {
    const NAME: &str = "control groups";
    if !machine::memory_controller(host) {
        let error = probe::no_controller(host);
        return check(NAME, Verdict::Fail, error.to_string(), None);
    }
    let file = host
        .cgroup_file("/", "cgroup.controllers")
        .unwrap_or_default();
    let text = host.root.text(&file).unwrap_or_default();
    let has = |name: &str| text.split_whitespace().any(|word| word == name);
    match (has("cpu"), has("cpuset")) {
        (true, true) => check(
            NAME,
            Verdict::Ok,
            "version 2 with memory, cpu and cpuset",
            None,
        ),
        (true, false) => check(
            NAME,
            Verdict::Warn,
            "version 2 with memory and cpu, without cpuset",
            Some("only the backend cpuset needs it: boot with cgroup_no_v1=cpuset"),
        ),
        (false, _) => check(
            NAME,
            Verdict::Warn,
            "version 2 with memory, without cpu: processor time cannot be limited",
            Some("boot with cgroup_no_v1=cpu"),
        ),
    }
}

/// Whether the controllers are handed down, and whether we may make groups.
fn delegation_check(host: &MemoryHost) -> Check {
    const NAME: &str = "delegation";
    let Ok(file) = host.cgroup_file("/", "cgroup.subtree_control") else {
        return check(
            NAME,
            Verdict::Unknown,
            "no version 2 hierarchy",
            Some(
                "mount -t cgroup2 none /sys/fs/cgroup, or boot with systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all",
            ),
        );
    };
    let text = host.root.text(&file).unwrap_or_default();
    let root = host.root.text("/proc/self/status").unwrap_or_default();
    let is_root = root
        .lines()
        .any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"));
    let missing: Vec<&str> = ["memory", "cpu"]
        .into_iter()
        .filter(|name| !text.split_whitespace().any(|word| word == *name))
        .collect();
    let offered = host
        .cgroup_file("/", "cgroup.controllers")
        .ok()
        .and_then(|file| host.root.text(&file))
        .unwrap_or_default();
    let elsewhere: Vec<&str> = missing
        .iter()
        .copied()
        .filter(|name| !offered.split_whitespace().any(|word| word == *name))
        .collect();
    if !elsewhere.is_empty() {
        let seen = format!(
            "{} not in the version 2 hierarchy: nothing to hand down (see control groups)",
            elsewhere.join(" and ")
        );
        return check(NAME, Verdict::Unknown, seen, None);
    }
    match (missing.is_empty(), is_root) {
        (true, true) => check(
            NAME,
            Verdict::Ok,
            "memory and cpu are handed down, and we are root",
            None,
        ),
        (false, true) => check(
            NAME,
            Verdict::Ok,
            format!(
                "{} not handed down yet; isolaned does it when it starts an application",
                missing.join(" and ")
            ),
            None,
        ),
        (_, false) => check(
            NAME,
            Verdict::Warn,
            "not root: control groups of others cannot be limited",
            Some(
                "run isolaned as root (the unit isolane-mem.service does): a delegated group is not enough, since groups of others are limited too",
            ),
        ),
    }
}

fn demotion_check(host: &MemoryHost, tiers: &Tiers) -> Check {
    const NAME: &str = "demotion";
    match reclaim::demotes(host) {
        Some(true) => check(NAME, Verdict::Ok, "on", None),
        Some(false) if tiers.len() < 2 => check(
            NAME,
            Verdict::Unknown,
            "off, and there is nothing to demote to",
            Some(
                "first a second tier (the check `tiers` says how), then echo 1 > /sys/kernel/mm/numa/demotion_enabled",
            ),
        ),
        Some(false) => check(
            NAME,
            Verdict::Warn,
            "off: memory.reclaim would drop pages instead of moving them",
            Some(DEMOTION_REMEDY),
        ),
        None => check(
            NAME,
            Verdict::Warn,
            "this kernel does not demote",
            Some(
                "boot Linux 5.15 or later with CONFIG_MIGRATION and CONFIG_NUMA, then echo 1 > /sys/kernel/mm/numa/demotion_enabled",
            ),
        ),
    }
}

fn balancing_check(host: &MemoryHost) -> Check {
    const NAME: &str = "promotion";
    const REMEDY: &str = "echo 2 > /proc/sys/kernel/numa_balancing";
    match host.root.number("/proc/sys/kernel/numa_balancing") {
        Some(mode) if mode & 2 != 0 => check(
            NAME,
            Verdict::Ok,
            "NUMA balancing promotes between tiers (mode 2)",
            None,
        ),
        Some(mode) => check(
            NAME,
            Verdict::Warn,
            format!(
                "NUMA balancing is in mode {mode}: hot pages come back by damos_quota and move_pages alone"
            ),
            Some(REMEDY),
        ),
        None => check(
            NAME,
            Verdict::Warn,
            "the kernel has no NUMA balancing",
            Some(
                "boot a kernel with CONFIG_NUMA_BALANCING (Debian's have it), then echo 2 > /proc/sys/kernel/numa_balancing",
            ),
        ),
    }
}

fn damon_check(host: &MemoryHost) -> Check {
    const NAME: &str = "DAMON";
    match owner(host) {
        Owner::Absent => check(
            NAME,
            Verdict::Warn,
            "this kernel has none",
            Some(
                "boot a kernel with CONFIG_DAMON_SYSFS and CONFIG_DAMON_PADDR (Debian's have them), or do with another backend",
            ),
        ),
        Owner::Free => check(NAME, Verdict::Ok, "there, and free", None),
        Owner::Ours => check(NAME, Verdict::Ok, "ours", None),
        Owner::Module(name) => check(
            NAME,
            Verdict::Warn,
            format!("the kernel's {name} uses it"),
            Some(module::remedy(name).as_str()),
        ),
        Owner::Other(count) => check(
            NAME,
            Verdict::Warn,
            format!("another program uses it ({count} kernel thread(s)); it is left alone"),
            Some("end that program, or do with another backend"),
        ),
    }
}

fn swap_check(host: &MemoryHost) -> Check {
    const NAME: &str = "swap";
    let text = host.root.text("/proc/swaps").unwrap_or_default();
    match text.lines().count() > 1 {
        true => check(
            NAME,
            Verdict::Warn,
            "on: when the far tier is full, reclaim would swap instead of demoting",
            Some("swapoff -a, or set memory.swap.max of the applications to 0"),
        ),
        false => check(NAME, Verdict::Ok, "off", None),
    }
}

fn backend_check(backend: Option<BackendKind>, reports: &[BackendReport]) -> Check {
    const NAME: &str = "backend";
    match backend {
        Some(BackendKind::Cpuset) => check(
            NAME,
            Verdict::Warn,
            "cpuset: an application is all near or all far",
            Some("the backends above it in the list below say what each needs"),
        ),
        Some(kind) => check(NAME, Verdict::Ok, format!("{kind} will be used"), None),
        None => {
            // The last one needs least.
            let last = reports
                .iter()
                .rev()
                .find_map(|report| report.remedy.as_deref());
            check(NAME, Verdict::Fail, "no backend works here", last)
        }
    }
}

impl Findings {
    /// The report as text.
    pub fn render(&self) -> String {
        let mut text = format!("Memory tiers on kernel {}\n\n", self.kernel);
        for check in &self.checks {
            let _ = writeln!(
                text,
                "  {:<8} {:<15} {}",
                check.verdict.to_string(),
                check.name,
                check.seen
            );
            if let Some(action) = &check.action {
                let _ = writeln!(text, "  {:<8} {:<15} -> {action}", "", "");
            }
        }
        text.push_str("\nWhat can enforce limits, best first:\n");
        for report in &self.backends {
            line(
                &mut text,
                report.works,
                report.backend.name(),
                &report.seen,
                report.remedy.as_deref(),
            );
        }
        text.push_str("\nWhat can be measured:\n");
        for info in &self.indicators {
            let seen = format!("{} ({})", info.measures, info.seen);
            line(
                &mut text,
                info.works,
                info.name,
                &seen,
                info.remedy.as_deref(),
            );
        }
        match self.backend {
            Some(kind) => {
                let _ = writeln!(text, "\nThis machine can enforce limits, with {kind}.");
            }
            None => {
                let _ = writeln!(
                    text,
                    "\nThis machine cannot enforce limits of memory tiers.\n{FAKE_MACHINE}"
                );
            }
        }
        text
    }
}

/// How to try what this machine cannot do.
const FAKE_MACHINE: &str = "Everything can be tried on a made-up machine: docs/guides/mem.md, \"Trying it without tiers\"; \
    measuring works here all the same: isolane mem bench.";

/// Every indicator, with the probe that replaces counters which the processor lacks.
fn indicators(host: &MemoryHost, tiers: &Tiers) -> Vec<SourceInfo> {
    let mut found = machine::sources(host);
    let has_counters = found.iter().any(|info| info.name == "perf" && info.works);
    let (works, seen) = match (tiers.len(), has_counters) {
        (0, _) => (false, "no memory nodes to probe"),
        (_, true) => (true, "not needed beside perf"),
        (_, false) => (true, "the service uses it in place of perf"),
    };
    found.push(machine::probe(works, seen));
    found
}

fn line(text: &mut String, works: bool, name: &str, seen: &str, remedy: Option<&str>) {
    let mark = if works { "yes" } else { "no" };
    let _ = writeln!(text, "  {mark:<4} {name:<15} {seen}");
    if let Some(remedy) = remedy {
        let _ = writeln!(text, "  {:<4} {:<15} -> {remedy}", "", "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;
    use expect_test::expect;

    #[test]
    fn a_machine_of_the_lab_can_enforce() {
        let tree = Tree::two_tiers();
        tree.write("/proc/sys/kernel/osrelease", "6.12.117+deb12-amd64");
        tree.write(
            "/proc/self/status",
            "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n",
        );
        tree.write("/proc/sys/kernel/numa_balancing", "2\n");
        tree.write("/sys/kernel/mm/numa/demotion_enabled", "false\n");
        tree.write("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "0\n");
        let findings = examine(&tree.host());
        assert!(findings.can_enforce);
        expect![[r#"
            Memory tiers on kernel 6.12.117+deb12-amd64

              ok       tiers           tier 0: node 0 with 512 MiB, 400 MiB free; tier 1: node 1 with 1024 MiB, 1000 MiB free
              ok       control groups  version 2 with memory, cpu and cpuset
              ok       delegation      memory and cpu not handed down yet; isolaned does it when it starts an application
              warn     demotion        off: memory.reclaim would drop pages instead of moving them
                                       -> switch demotion on: echo 1 > /sys/kernel/mm/numa/demotion_enabled
              ok       promotion       NUMA balancing promotes between tiers (mode 2)
              ok       DAMON           there, and free
              ok       swap            off
              ok       backend         damos_quota will be used

            What can enforce limits, best first:
              no   per_numa_high   no memory.per_numa_high
                                   -> it needs the kernel patch of the original; none is required
              no   damos_goal      DAMON without goals per control group
                                   -> it came with Linux 7.2
              no   reclaim         demotion is off
                                   -> switch demotion on: echo 1 > /sys/kernel/mm/numa/demotion_enabled
              yes  damos_quota     DAMON with migration by schemes
              yes  move_pages      the capabilities are there; takes pages in order of addresses
              yes  cpuset          the cpuset controller; all near or all far

            What can be measured:
              yes  numa_stat       bytes that an application holds in each tier (memory controller of version 2)
              yes  cpu.stat        processor time of an application, in thousandths of its cores (version 2 hierarchy)
              no   memory.pressure part of the time in which tasks of an application wait for memory, in percent (the kernel does not count pressure)
                                   -> boot with psi=1, on a kernel with CONFIG_PSI
              yes  vmstat          remote hint faults of the machine, per second (NUMA balancing is on)
              no   resctrl         memory bandwidth of applications and of the near tier, in bytes per second (no bandwidth monitoring in /sys/fs/resctrl)
                                   -> mount -t resctrl resctrl /sys/fs/resctrl, on a processor with MBM
              no   perf            latency of an application's loads beyond the last cache, in ns (the kernel offers no counters of the processor (virtual machines rarely have them))
                                   -> without them the probe measures each tier's latency
              yes  probe           latency of each tier by a pointer chase, in ns: the tier's load, not the application's own (the service uses it in place of perf)

            This machine can enforce limits, with damos_quota.
        "#]].assert_eq(&findings.render());
    }

    #[test]
    fn an_ordinary_machine_gets_what_it_lacks() {
        let tree = Tree::two_tiers();
        tree.write("/proc/sys/kernel/osrelease", "6.18.44");
        tree.write("/sys/devices/system/node/has_memory", "0\n");
        tree.write(
            "/proc/mounts",
            "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n",
        );
        tree.write("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "1\n");
        let findings = examine(&tree.host());
        assert!(!findings.can_enforce);
        expect![[r#"
            Memory tiers on kernel 6.18.44

              FAIL     tiers           one tier, and two are needed: tier 0: node 0 with 512 MiB, 400 MiB free
                                       -> a tier is CXL or persistent memory as its own node, or a second socket without processors; a virtual machine has them with `-machine q35,hmat=on` (see docs/guides/mem.md)
              FAIL     control groups  no usable control groups: the memory controller is in a version 1 hierarchy; boot with systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all
              unknown  delegation      no version 2 hierarchy
                                       -> mount -t cgroup2 none /sys/fs/cgroup, or boot with systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all
              warn     demotion        this kernel does not demote
                                       -> boot Linux 5.15 or later with CONFIG_MIGRATION and CONFIG_NUMA, then echo 1 > /sys/kernel/mm/numa/demotion_enabled
              warn     promotion       the kernel has no NUMA balancing
                                       -> boot a kernel with CONFIG_NUMA_BALANCING (Debian's have it), then echo 2 > /proc/sys/kernel/numa_balancing
              warn     DAMON           another program uses it (1 kernel thread(s)); it is left alone
                                       -> end that program, or do with another backend
              ok       swap            off
              FAIL     backend         no backend works here
                                       -> see the check `tiers`

            What can enforce limits, best first:
              no   per_numa_high   one memory tier
                                   -> see the check `tiers`
              no   damos_goal      one memory tier
                                   -> see the check `tiers`
              no   reclaim         one memory tier
                                   -> see the check `tiers`
              no   damos_quota     one memory tier
                                   -> see the check `tiers`
              no   move_pages      one memory tier
                                   -> see the check `tiers`
              no   cpuset          one memory tier
                                   -> see the check `tiers`

            What can be measured:
              no   numa_stat       bytes that an application holds in each tier (no memory controller of version 2)
                                   -> boot with systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all
              no   cpu.stat        processor time of an application, in thousandths of its cores (no version 2 hierarchy)
                                   -> mount -t cgroup2 none /sys/fs/cgroup
              no   memory.pressure part of the time in which tasks of an application wait for memory, in percent (the kernel does not count pressure)
                                   -> boot with psi=1, on a kernel with CONFIG_PSI
              no   vmstat          remote hint faults of the machine, per second (NUMA balancing is off, so nothing is sampled)
                                   -> echo 2 > /proc/sys/kernel/numa_balancing
              no   resctrl         memory bandwidth of applications and of the near tier, in bytes per second (no bandwidth monitoring in /sys/fs/resctrl)
                                   -> mount -t resctrl resctrl /sys/fs/resctrl, on a processor with MBM
              no   perf            latency of an application's loads beyond the last cache, in ns (the kernel offers no counters of the processor (virtual machines rarely have them))
                                   -> without them the probe measures each tier's latency
              yes  probe           latency of each tier by a pointer chase, in ns: the tier's load, not the application's own (the service uses it in place of perf)

            This machine cannot enforce limits of memory tiers.
            Everything can be tried on a made-up machine: docs/guides/mem.md, "Trying it without tiers"; measuring works here all the same: isolane mem bench.
        "#]].assert_eq(&findings.render());
        let json = serde_json::to_value(&findings).unwrap();
        assert_eq!(json["can_enforce"], false);
        assert_eq!(json["version"], 1);
    }
}
