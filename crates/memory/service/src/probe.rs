//! Which backends can work on this machine, best first, and the choice among them.
//!
//! Method: [`look`] reads files and changes nothing; it can be wrong where only a trial shows a lack (a DAMON that
//! lacks an action). [`choose`] tries, in the order of preference, and takes the first that starts, with what each one
//! before it lacked.
//!
//! Limits: versions are read from `osrelease`; a backend that the user names is tried on any version, because features
//! may be backported. Source: the table of mechanisms in docs/internals/memory-tiers.md.

use crate::backend::damos::files::{Owner, owner};
use crate::backend::damos::module;
use crate::backend::reclaim::{self, DEMOTION_REMEDY};
use crate::backend::{self, Backend, BackendKind, per_numa_high};
use crate::error::MemError;
use crate::host::MemoryHost;
use crate::indicator::machine::memory_controller;
use crate::tiers::Tiers;
use serde::Serialize;

/// What can be said of one backend without trying.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct BackendReport {
    /// Which.
    pub backend: BackendKind,
    /// Whether it should work.
    pub works: bool,
    /// What was seen.
    pub seen: String,
    /// What to do about it; none where it works.
    pub remedy: Option<String>,
}

/// Capabilities by bit: CAP_SYS_PTRACE and CAP_SYS_NICE.
const MOVE_CAPABILITIES: [u32; 2] = [19, 23];

/// Looks at every backend, best first.
pub fn look(host: &MemoryHost) -> Vec<BackendReport> {
    let tiers = Tiers::read(host);
    let common = if tiers.len() < 2 {
        Some(("one memory tier", "see the check `tiers`"))
    } else if !memory_controller(host) {
        Some((
            "no memory controller of version 2",
            "see the check `control groups`",
        ))
    } else {
        None
    };
    BackendKind::PREFERENCE
        .into_iter()
        .map(|kind| {
            let (works, seen, remedy) = match common {
                Some((seen, remedy)) => (false, seen.to_owned(), remedy.to_owned()),
                None => one(host, &tiers, kind),
            };
            BackendReport {
                backend: kind,
                works,
                seen,
                remedy: (!works).then_some(remedy),
            }
        })
        .collect()
}

fn one(host: &MemoryHost, tiers: &Tiers, kind: BackendKind) -> (bool, String, String) {
    let yes = |seen: &str| (true, seen.to_owned(), String::new());
    let no = |seen: &str, remedy: &str| (false, seen.to_owned(), remedy.to_owned());
    match kind {
        BackendKind::PerNumaHigh => match has_per_numa_high(host) {
            true => yes("memory.per_numa_high"),
            false => no(
                "no memory.per_numa_high",
                "it needs the kernel patch of the original; none is required",
            ),
        },
        BackendKind::DamosGoal => damos(host, (7, 2), "goals per control group"),
        BackendKind::DamosQuota => damos(host, (6, 11), "migration by schemes"),
        BackendKind::Reclaim => match (
            version(host) >= Some((5, 19)),
            tiers.by_firmware,
            reclaim::demotes(host),
        ) {
            (false, ..) => no("no memory.reclaim", "it came with Linux 5.19"),
            (_, false, _) => no(
                "the kernel knows one tier, so reclaim would not demote",
                "firmware must describe the far memory (HMAT), or use move_pages",
            ),
            (_, _, Some(true)) => yes("memory.reclaim, and demotion is on"),
            (_, _, Some(false)) => no("demotion is off", DEMOTION_REMEDY),
            (_, _, None) => no(
                "the kernel does not demote",
                "it came with Linux 5.15 (CONFIG_MIGRATION, CONFIG_NUMA)",
            ),
        },
        BackendKind::MovePages => match may_move(host) {
            true => yes("the capabilities are there; takes pages in order of addresses"),
            false => no("CAP_SYS_NICE or CAP_SYS_PTRACE is missing", "run as root"),
        },
        BackendKind::Cpuset => {
            let file = host
                .cgroup_file("/", "cgroup.controllers")
                .unwrap_or_default();
            let text = host.root.text(&file).unwrap_or_default();
            match text.split_whitespace().any(|word| word == "cpuset") {
                true => yes("the cpuset controller; all near or all far"),
                false => no(
                    "no cpuset controller of version 2",
                    "boot with cgroup_no_v1=cpuset",
                ),
            }
        }
        BackendKind::Fake => no("for tests", "choose another"),
    }
}

fn damos(host: &MemoryHost, since: (u32, u32), what: &str) -> (bool, String, String) {
    match owner(host) {
        Owner::Absent => (
            false,
            "the kernel has no DAMON".to_owned(),
            "a kernel with CONFIG_DAMON_SYSFS and CONFIG_DAMON_PADDR has it (Debian's do)"
                .to_owned(),
        ),
        Owner::Other(count) => (
            false,
            format!("another program uses DAMON ({count} kernel thread(s)); it is left alone"),
            "end that program".to_owned(),
        ),
        Owner::Module(name) => (
            false,
            format!("the kernel's {name} uses DAMON"),
            module::remedy(name),
        ),
        Owner::Free | Owner::Ours if version(host) < Some(since) => (
            false,
            format!("DAMON without {what}"),
            format!("it came with Linux {}.{}", since.0, since.1),
        ),
        Owner::Free | Owner::Ours => (true, format!("DAMON with {what}"), String::new()),
    }
}

/// Major and minor number of the kernel's version.
pub fn version(host: &MemoryHost) -> Option<(u32, u32)> {
    let text = host.root.text("/proc/sys/kernel/osrelease")?;
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The file is in every group but the root.
fn has_per_numa_high(host: &MemoryHost) -> bool {
    let Some(mount) = &host.cgroups else {
        return false;
    };
    let names = host.root.list(mount);
    names.iter().any(|name| {
        host.root
            .exists(&format!("{mount}/{name}/{}", per_numa_high::FILE))
    })
}

fn may_move(host: &MemoryHost) -> bool {
    let text = host.root.text("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = line
        .and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok())
        .unwrap_or(0);
    MOVE_CAPABILITIES.iter().all(|bit| mask >> bit & 1 == 1)
}

/// A backend that works, and what the ones before it lacked.
pub struct Chosen {
    /// The backend.
    pub backend: Box<dyn Backend>,
    /// What was tried before, with the reason against it.
    pub passed_over: Vec<(BackendKind, String)>,
}

/// Starts the requested backend, or the best that works. The error says what the requested backend lacks; for a machine
/// that has none it is [`MemError::NoTiers`], [`MemError::NoCgroups`] or [`MemError::NoBackend`].
pub fn choose(host: &MemoryHost, wanted: Option<BackendKind>) -> Result<Chosen, MemError> {
    Tiers::required(host)?;
    if !memory_controller(host) {
        return Err(no_controller(host));
    }
    if let Some(kind) = wanted {
        return Ok(Chosen {
            backend: backend::open(host, kind)?,
            passed_over: Vec::new(),
        });
    }
    let mut passed_over = Vec::new();
    for report in look(host) {
        if !report.works {
            passed_over.push((report.backend, report.seen));
            continue;
        }
        match backend::open(host, report.backend) {
            Ok(backend) => {
                return Ok(Chosen {
                    backend,
                    passed_over,
                });
            }
            Err(error) => passed_over.push((report.backend, error.to_string())),
        }
    }
    Err(MemError::NoBackend)
}

/// Why there is no memory controller, and what to do.
pub(crate) fn no_controller(host: &MemoryHost) -> MemError {
    let mounts = host.root.text("/proc/mounts").unwrap_or_default();
    let old = mounts.lines().any(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        words.get(2) == Some(&"cgroup")
            && words
                .get(3)
                .is_some_and(|options| options.split(',').any(|o| o == "memory"))
    });
    MemError::NoCgroups {
        seen: match old {
            true => "the memory controller is in a version 1 hierarchy".to_owned(),
            false => "there is no memory controller of version 2".to_owned(),
        },
        remedy: match old {
            true => "boot with systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all".to_owned(),
            false => {
                "mount -t cgroup2 none /sys/fs/cgroup, on a kernel with CONFIG_MEMCG".to_owned()
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;
    use expect_test::{Expect, expect};

    fn tree(release: &str) -> Tree {
        let tree = Tree::two_tiers();
        tree.write("/proc/sys/kernel/osrelease", release);
        tree.write("/proc/self/status", "CapEff:\t000001ffffffffff\n");
        tree.write("/sys/kernel/mm/numa/demotion_enabled", "true\n");
        tree.write("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "0\n");
        tree
    }

    fn check(tree: &Tree, expected: &Expect) {
        let lines = look(&tree.host()).into_iter().map(|report| {
            let remedy = report
                .remedy
                .map_or(String::new(), |remedy| format!(" -> {remedy}"));
            format!(
                "{:<13} {:<5} {}{remedy}\n",
                report.backend, report.works, report.seen
            )
        });
        expected.assert_eq(&lines.collect::<String>());
    }

    #[test]
    fn a_kernel_of_6_12_has_quotas_and_no_goals() {
        check(
            &tree("6.12.117+deb12-amd64"),
            &expect![[r#"
                per_numa_high false no memory.per_numa_high -> it needs the kernel patch of the original; none is required
                damos_goal    false DAMON without goals per control group -> it came with Linux 7.2
                reclaim       true  memory.reclaim, and demotion is on
                damos_quota   true  DAMON with migration by schemes
                move_pages    true  the capabilities are there; takes pages in order of addresses
                cpuset        true  the cpuset controller; all near or all far
            "#]],
        );
    }

    #[test]
    fn a_foreign_damon_is_left_alone_and_the_next_best_is_taken() {
        let tree = tree("7.2.0");
        tree.write("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "1\n");
        let reports = look(&tree.host());
        assert!(
            reports[1].seen.contains("another program uses DAMON"),
            "{reports:?}"
        );
        let chosen = choose(&tree.host(), None).ok().unwrap();
        assert_eq!(chosen.backend.kind(), BackendKind::Reclaim);
        // The kernel of the original, and goals of a DAMON that is not ours.
        assert_eq!(chosen.passed_over.len(), 2);
        let refused = choose(&tree.host(), Some(BackendKind::DamosQuota))
            .err()
            .unwrap();
        assert!(matches!(refused, MemError::NotOurs { .. }), "{refused}");
        assert_eq!(
            tree.read("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds"),
            "1\n"
        );
    }

    #[test]
    fn the_patched_kernel_is_preferred() {
        let tree = tree("6.6.0-mercury");
        let group = tree.cgroup("/app", &[(0, 10), (1, 0)]);
        tree.write(
            &format!("/sys/fs/cgroup{group}/memory.per_numa_high"),
            "max\nmax\n",
        );
        assert_eq!(
            choose(&tree.host(), None).ok().unwrap().backend.kind(),
            BackendKind::PerNumaHigh
        );
    }

    #[test]
    fn version_1_is_reported_with_the_boot_option() {
        let tree = tree("6.18.44");
        tree.write("/sys/fs/cgroup/cgroup.controllers", "cpu\n");
        tree.write(
            "/proc/mounts",
            "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
        );
        let error = choose(&tree.host(), None).err().unwrap().to_string();
        assert!(
            error.contains("version 1") && error.contains("cgroup_no_v1=all"),
            "{error}"
        );
        assert!(look(&tree.host()).iter().all(|report| !report.works));
    }

    #[test]
    fn versions_parse() {
        for (text, expected) in [
            ("6.12.117+deb12-amd64", Some((6, 12))),
            ("7.1-rc3", Some((7, 1))),
            ("linux", None),
        ] {
            let tree = tree(text);
            assert_eq!(version(&tree.host()), expected, "{text}");
        }
    }
}
