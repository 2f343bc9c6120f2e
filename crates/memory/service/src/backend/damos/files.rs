//! DAMON's tree in sysfs: one kernel thread, one context over physical memory, schemes as data.
//!
//! Method: [`Kdamond::open`] makes the one thread that this crate uses, and fails when there is a foreign one. A mark
//! in `/run` names the boot and the thread's process. By the mark, a service that restarts after a kill recognises its
//! own thread ([`clear`]) and leaves foreign ones alone. The mark exists before the thread and is removed with it.
//! [`Kdamond::write`] writes what differs from before; [`Kdamond::commit`] makes the kernel take it over, which takes
//! about an aggregation interval.
//!
//! Units: bytes, milliseconds, microseconds. Source: the kernel's documentation of DAMON's sysfs files.

use super::module;
use crate::backend::BackendKind;
use crate::error::MemError;
use crate::host::MemoryHost;
use crate::tiers::Tiers;
use std::fs;

/// The root of it.
pub const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds";

/// Where we note that the thread is ours.
pub const MARK: &str = "/run/isolane/mem/damon";

const CONTEXT: &str = "/sys/kernel/mm/damon/admin/kdamonds/0/contexts/0";

/// Between two samples, and from one count of accesses to the next, in microseconds: the kernel's defaults.
const SAMPLE_US: u64 = 5_000;
const AGGREGATION_US: u64 = 100_000;
const UPDATE_US: u64 = 1_000_000;

/// Regions that DAMON keeps apart: few cost little, many find small hot places.
const REGIONS: (u64, u64) = (10, 1000);

/// More accesses than any region has per aggregation.
pub const MANY: u64 = u32::MAX as u64;

/// A region is never this large: a scheme that wants regions of this size does nothing.
pub const NEVER: u64 = u64::MAX;

/// A goal of a scheme's quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    /// `node_memcg_used_bp` or `node_memcg_free_bp`.
    pub metric: &'static str,
    /// The node.
    pub node: u32,
    /// What to reach, in ten-thousandths of the node.
    pub target_bp: u64,
}

/// A scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// `migrate_cold` or `migrate_hot`.
    pub action: &'static str,
    /// Where to.
    pub node: u32,
    /// For the pages of this group alone.
    pub cgroup: String,
    /// But not at these physical addresses.
    pub elsewhere: Vec<(u64, u64)>,
    /// Regions with so many accesses per aggregation, from and to.
    pub accesses: (u64, u64),
    /// Regions of this size at least; [`NEVER`] for a scheme that rests.
    pub size_min: u64,
    /// Bytes per window.
    pub quota_bytes: u64,
    /// The window.
    pub window_ms: u64,
    /// What tunes the quota.
    pub goal: Option<Goal>,
}

/// The one kernel thread, and what was written so far.
#[derive(Debug)]
pub struct Kdamond {
    host: MemoryHost,
    kind: BackendKind,
    written: Vec<Scheme>,
    /// Whether `written` is what the kernel has: not after a failure.
    is_known: bool,
    running: bool,
}

/// A number of a scheme.
type Field = fn(&Scheme) -> u64;

impl Kdamond {
    /// Makes the thread's directory, for physical memory of all tiers. Fails without DAMON, and for a DAMON of another
    /// program.
    pub fn open(host: &MemoryHost, tiers: &Tiers, kind: BackendKind) -> Result<Self, MemError> {
        let kdamond = Self {
            host: host.clone(),
            kind,
            written: Vec::new(),
            is_known: true,
            running: false,
        };
        match owner(host) {
            Owner::Absent => {
                return Err(kdamond.unsupported("the kernel has no DAMON", NO_DAMON_REMEDY));
            }
            Owner::Other(count) => return Err(not_ours(count)),
            Owner::Module(module) => return Err(module::not_ours(module)),
            Owner::Free => {}
            // What a former life left: its schemes are of its applications.
            Owner::Ours => clear(host)?,
        }
        kdamond.mark()?;
        kdamond
            .set(&format!("{KDAMONDS}/nr_kdamonds"), "1")
            .and_then(|()| kdamond.prepare(tiers))
            .inspect_err(|_| kdamond.remove())?;
        Ok(kdamond)
    }

    fn prepare(&self, tiers: &Tiers) -> Result<(), MemError> {
        self.set(&format!("{KDAMONDS}/0/contexts/nr_contexts"), "1")?;
        self.set(&format!("{CONTEXT}/operations"), "paddr")
            .map_err(|_| {
                self.unsupported(
                    "DAMON does not watch physical memory (paddr)",
                    NO_DAMON_REMEDY,
                )
            })?;
        let number =
            |path: &str, value: u64| self.set(&format!("{CONTEXT}/{path}"), &value.to_string());
        number("monitoring_attrs/intervals/sample_us", SAMPLE_US)?;
        number("monitoring_attrs/intervals/aggr_us", AGGREGATION_US)?;
        number("monitoring_attrs/intervals/update_us", UPDATE_US)?;
        number("monitoring_attrs/nr_regions/min", REGIONS.0)?;
        number("monitoring_attrs/nr_regions/max", REGIONS.1)?;
        let mut ranges: Vec<(u64, u64)> = (0..tiers.len())
            .flat_map(|tier| tiers.addresses(&self.host, tier))
            .collect();
        ranges.sort_unstable();
        if ranges.is_empty() {
            return Err(self.unsupported(
                "the kernel does not say which addresses its nodes have (memory blocks in /sys/devices/system/node)",
                "a kernel with CONFIG_MEMORY_HOTPLUG does",
            ));
        }
        number("targets/nr_targets", 1)?;
        number("targets/0/regions/nr_regions", ranges.len() as u64)?;
        for (index, (start, end)) in ranges.iter().enumerate() {
            number(&format!("targets/0/regions/{index}/start"), *start)?;
            number(&format!("targets/0/regions/{index}/end"), *end)?;
        }
        Ok(())
    }

    /// Writes the schemes: all of them when their number has changed, else what differs. Fails for an action or a goal
    /// that this kernel does not know.
    pub fn write(&mut self, schemes: &[Scheme]) -> Result<(), MemError> {
        let done = self.write_each(schemes);
        self.is_known = done.is_ok();
        done
    }

    fn write_each(&mut self, schemes: &[Scheme]) -> Result<(), MemError> {
        if !self.is_known || schemes.len() != self.written.len() {
            self.written.clear();
            self.set(
                &format!("{CONTEXT}/schemes/nr_schemes"),
                &schemes.len().to_string(),
            )?;
        }
        for (index, scheme) in schemes.iter().enumerate() {
            let before = self.written.get(index).cloned();
            self.write_scheme(index, scheme, before.as_ref())?;
            match self.written.get_mut(index) {
                Some(written) => *written = scheme.clone(),
                None => self.written.push(scheme.clone()),
            }
        }
        Ok(())
    }

    /// Whether something would change.
    pub fn differs(&self, schemes: &[Scheme]) -> bool {
        !self.is_known || self.written != schemes
    }

    fn write_scheme(
        &self,
        index: usize,
        scheme: &Scheme,
        before: Option<&Scheme>,
    ) -> Result<(), MemError> {
        let path = |file: &str| format!("{CONTEXT}/schemes/{index}/{file}");
        let number = |file: &str, value: u64| self.set(&path(file), &value.to_string());
        // What never changes of a scheme of the same kind is written once.
        if before.is_none_or(|before| before.action != scheme.action) {
            self.set(&path("action"), scheme.action)
                .map_err(|error| match error {
                    MemError::Refused { .. } => self.unsupported(
                        &format!("DAMON has no action {}", scheme.action),
                        "migration came with Linux 6.11",
                    ),
                    other => other,
                })?;
            number("access_pattern/sz/max", u64::MAX)?;
            number("access_pattern/age/min", 0)?;
            number("access_pattern/age/max", u64::from(u32::MAX))?;
            number("quotas/ms", 0)?;
            // No order among regions: the coldest memory is unused memory, which would use up every quota.
            for weight in ["sz", "nr_accesses", "age"] {
                number(&format!("quotas/weights/{weight}_permil"), 0)?;
            }
        }
        if before.is_none_or(|before| {
            before.cgroup != scheme.cgroup || before.elsewhere != scheme.elsewhere
        }) {
            self.write_filters(&path("filters"), scheme)?;
        }
        if before.is_none_or(|before| before.goal.is_some() != scheme.goal.is_some()) {
            number("quotas/goals/nr_goals", u64::from(scheme.goal.is_some()))?;
            if scheme.goal.is_some() {
                self.write_tuner(&path("quotas"))?;
            }
        }
        if before.is_none_or(|before| before.goal != scheme.goal) {
            self.write_goal(&path("quotas/goals/0"), scheme)?;
        }
        #[rustfmt::skip]
        let fields: [(&str, Field); 6] = [
            ("target_nid", |scheme| u64::from(scheme.node)),
            ("access_pattern/nr_accesses/min", |scheme| scheme.accesses.0),
            ("access_pattern/nr_accesses/max", |scheme| scheme.accesses.1),
            ("access_pattern/sz/min", |scheme| scheme.size_min),
            ("quotas/bytes", |scheme| scheme.quota_bytes),
            ("quotas/reset_interval_ms", |scheme| scheme.window_ms),
        ];
        for (file, value) in fields {
            if before.map(value) != Some(value(scheme)) {
                number(file, value(scheme))?;
            }
        }
        Ok(())
    }

    /// Leaves out pages that are not of the group, and pages elsewhere.
    ///
    /// The filters name the addresses to leave out. Kernels up to 6.12 apply each filter a second time, page by page,
    /// where an address filter matches nothing; a filter of the addresses to keep would then leave out every page.
    fn write_filters(&self, path: &str, scheme: &Scheme) -> Result<(), MemError> {
        let count = 1 + scheme.elsewhere.len();
        self.set(&format!("{path}/nr_filters"), &count.to_string())?;
        self.set(&format!("{path}/0/type"), "memcg")?;
        self.set(&format!("{path}/0/memcg_path"), &scheme.cgroup)?;
        self.set(&format!("{path}/0/matching"), "N")?;
        for (index, (start, end)) in scheme.elsewhere.iter().enumerate() {
            let filter = format!("{path}/{}", index + 1);
            self.set(&format!("{filter}/type"), "addr")?;
            self.set(&format!("{filter}/addr_start"), &start.to_string())?;
            self.set(&format!("{filter}/addr_end"), &end.to_string())?;
            self.set(&format!("{filter}/matching"), "Y")?;
        }
        Ok(())
    }

    fn write_goal(&self, path: &str, scheme: &Scheme) -> Result<(), MemError> {
        let Some(goal) = &scheme.goal else {
            return Ok(());
        };
        self.set(&format!("{path}/target_metric"), goal.metric)
            .map_err(|error| match error {
                MemError::Refused { .. } => self.unsupported(
                    &format!("DAMON has no goal {}", goal.metric),
                    "it came with Linux 6.19; damos_quota does without",
                ),
                other => other,
            })?;
        self.set(&format!("{path}/nid"), &goal.node.to_string())?;
        self.set(&format!("{path}/path"), &scheme.cgroup)?;
        self.set(&format!("{path}/target_value"), &goal.target_bp.to_string())
    }

    /// A quota is whole until its goal is reached, then nothing; pages that do not move are not charged.
    fn write_tuner(&self, path: &str) -> Result<(), MemError> {
        for (file, value) in [
            ("goal_tuner", "temporal"),
            ("fail_charge_num", "0"),
            ("fail_charge_denom", "1"),
        ] {
            self.set(&format!("{path}/{file}"), value)
                .map_err(|error| match error {
                    MemError::Refused { .. } => self.unsupported(
                        &format!("DAMON's quotas have no {file}"),
                        "it came with Linux 7.2; damos_quota does without",
                    ),
                    other => other,
                })?;
        }
        Ok(())
    }

    /// Has the kernel take over what was written; the first time, starts its thread. Fails for an inconsistent setting,
    /// and without memory.
    pub fn commit(&mut self) -> Result<(), MemError> {
        let word = if self.running { "commit" } else { "on" };
        let done = self.set(&format!("{KDAMONDS}/0/state"), word);
        // How much of it the kernel applied is unknown.
        self.is_known = done.is_ok();
        done?;
        if !self.running {
            self.running = true;
            // Without the process in it the mark is still good: see `owner`.
            let _ = self.mark();
        }
        Ok(())
    }

    /// Whether every scheme has a quota in force. Kernels before 6.18 begin with one that is unlimited, and its first window
    /// lasts until the thread has looked twice, however long a busy machine takes for that. One that cannot be asked
    /// (before 6.9) is taken at the caller's word.
    pub fn is_limited(&self) -> bool {
        let asked = self.set(&format!("{KDAMONDS}/0/state"), EFFECTIVE);
        let quota = |index: usize| {
            let file = format!("{CONTEXT}/schemes/{index}/quotas/effective_bytes");
            self.host.root.number(&file)
        };
        asked.is_err() || (0..self.written.len()).all(|index| quota(index) != Some(0))
    }

    /// The thread ends, and its directory goes.
    pub fn remove(&self) {
        // An end: what fails here is found again by the mark.
        let _ = end(&self.host);
    }

    fn set(&self, path: &str, value: &str) -> Result<(), MemError> {
        set(&self.host, path, value)
    }

    fn mark(&self) -> Result<(), MemError> {
        let path = self.host.root.path(MARK);
        let written = path.parent().map_or(Ok(()), fs::create_dir_all);
        let mut text = boot(&self.host);
        if let Some(process) = process(&self.host) {
            text = format!("{text}\n{process}");
        }
        written
            .and_then(|()| fs::write(&path, text))
            .map_err(|source| MemError::Kernel {
                action: format!("note in {} that DAMON is ours", path.display()),
                source,
            })
    }

    fn unsupported(&self, why: &str, remedy: &str) -> MemError {
        MemError::Unsupported {
            backend: self.kind,
            why: why.to_owned(),
            remedy: remedy.to_owned(),
        }
    }
}

/// Has the kernel write to `quotas/effective_bytes` what is in force.
const EFFECTIVE: &str = "update_schemes_effective_quotas";

const NO_DAMON_REMEDY: &str =
    "a kernel with CONFIG_DAMON_SYSFS and CONFIG_DAMON_PADDR has it (Debian's do)";

/// Ends the thread that a former life left, and its schemes; does nothing where there is none of ours.
///
/// Call this with the journal's lock held: then the former service has ended.
pub fn clear(host: &MemoryHost) -> Result<(), MemError> {
    match owner(host) {
        Owner::Ours => end(host),
        Owner::Absent | Owner::Free | Owner::Other(_) | Owner::Module(_) => Ok(()),
    }
}

/// The thread ends, then its directory goes, then the mark.
fn end(host: &MemoryHost) -> Result<(), MemError> {
    // One that does not run is refused this.
    let _ = set(host, &format!("{KDAMONDS}/0/state"), "off");
    set(host, &format!("{KDAMONDS}/nr_kdamonds"), "0")?;
    // A mark without a thread has no owner.
    let _ = fs::remove_file(host.root.path(MARK));
    Ok(())
}

fn set(host: &MemoryHost, path: &str, value: &str) -> Result<(), MemError> {
    host.root.write(path, value).map_err(|error| {
        MemError::refused(
            error,
            "`isolane mem doctor` says what this kernel's DAMON can",
        )
    })
}

/// Whose DAMON is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The kernel has none.
    Absent,
    /// None.
    Free,
    /// Ours, from a former life of this boot.
    Ours,
    /// Foreign: this many threads.
    Other(u64),
    /// This part of the kernel.
    Module(&'static str),
}

/// Looks whose DAMON is; changes nothing.
pub fn owner(host: &MemoryHost) -> Owner {
    let Some(count) = host.root.number(&format!("{KDAMONDS}/nr_kdamonds")) else {
        return Owner::Absent;
    };
    match count {
        0 => module::running(host).map_or(Owner::Free, Owner::Module),
        1 if is_ours(host) => Owner::Ours,
        _ => Owner::Other(count),
    }
}

/// Whether the one thread is that of the mark.
///
/// A mark without a process is of a daemon that was killed before its thread ran, or just then.
fn is_ours(host: &MemoryHost) -> bool {
    let Some(mark) = host.root.text(MARK) else {
        return false;
    };
    let mut lines = mark.lines();
    let of_boot = lines.next().unwrap_or_default() == boot(host);
    let marked = lines.next().and_then(|line| line.trim().parse().ok());
    let running = process(host);
    let count = schemes(host);
    // Where the processes differ, only schemes like ours identify our thread; a thread without schemes is foreign.
    let is_likely = marked == running || (count > 0 && (marked.is_none() || running.is_none()));
    of_boot && is_likely && looks_ours(host, count)
}

/// The thread's process, while it runs.
fn process(host: &MemoryHost) -> Option<u64> {
    host.root.number(&format!("{KDAMONDS}/0/pid"))
}

fn schemes(host: &MemoryHost) -> u64 {
    host.root
        .number(&format!("{CONTEXT}/schemes/nr_schemes"))
        .unwrap_or(0)
}

/// Whether every one of `count` schemes migrates the pages of one control group, as ours do.
fn looks_ours(host: &MemoryHost, count: u64) -> bool {
    let directory = format!("{CONTEXT}/schemes");
    (0..count).all(|index| {
        let text = |file: &str| {
            host.root
                .text(&format!("{directory}/{index}/{file}"))
                .unwrap_or_default()
        };
        text("action").starts_with("migrate_") && text("filters/0/type") == "memcg"
    })
}

/// The error for a DAMON in other hands.
pub(crate) fn not_ours(count: u64) -> MemError {
    MemError::NotOurs {
        object: format!("DAMON ({count} kernel thread(s) in {KDAMONDS})"),
        owner: "another program".to_owned(),
        remedy: "end that program, or choose another backend".to_owned(),
    }
}

fn boot(host: &MemoryHost) -> String {
    host.root
        .text("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
}
