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

use crate::allocation::Allocation;
use crate::cgroup::Cgroup;
use crate::host::MemoryHost;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_memory_policy::mercury::AppId;
use std::collections::{BTreeMap, BTreeSet};
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
        let remote = remote_hint_faults(&host.root.text("/proc/vmstat")?)?;
        self.rate.of(now, remote)
    }
}

/// Those of all nodes but the faulting processor's own, since the machine started; `vmstat` is the text of `/proc/vmstat`.
pub(crate) fn remote_hint_faults(vmstat: &str) -> Option<u64> {
    let field = |name: &str| {
        let line = vmstat
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.trim().parse::<u64>().ok())
    };
    field("numa_hint_faults")?.checked_sub(field("numa_hint_faults_local")?)
}

/// Whether NUMA balancing is on, in either of its modes.
pub fn balances(host: &MemoryHost) -> bool {
    host.root
        .number("/proc/sys/kernel/numa_balancing")
        .is_some_and(|mode| mode != 0)
}

pub(crate) const RESCTRL: &str = "/sys/fs/resctrl";

/// Bandwidth counted by the processor: near (local) and in all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bandwidth {
    /// To the nodes of the processors that asked, bytes per second.
    pub local: Option<u64>,
    /// To all memory, bytes per second.
    pub total: Option<u64>,
}

/// Threads of one application that are looked at: with more threads bandwidth would be counted in part, and is not
/// reported.
const THREADS_MAX: usize = 16_384;

/// The monitoring groups of resctrl.
#[derive(Debug, Default)]
pub struct Resctrl {
    rates: BTreeMap<Option<AppId>, (Rate, Rate)>,
    /// Threads that were put into each group.
    members: BTreeMap<AppId, BTreeSet<u32>>,
    /// Why the last group could not be made.
    pub refused: Option<String>,
}

impl Resctrl {
    /// Whether the counters are there.
    pub fn works(host: &MemoryHost) -> bool {
        let features = host
            .root
            .text(&format!("{RESCTRL}/info/L3_MON/mon_features"));
        features.is_some_and(|text| text.lines().any(|line| line.trim() == "mbm_total_bytes"))
    }

    /// Removes groups of ours that a killed service left, known by their names; call this with the journal's lock held.
    /// The number of groups is small, and a leaked group is missing for an application.
    pub fn remove_all(host: &MemoryHost) {
        for parent in [RESCTRL.to_owned(), format!("{RESCTRL}/mon_groups")] {
            for name in host.root.list(&parent) {
                let number = name.strip_prefix(GROUP).unwrap_or_default();
                if number
                    .parse::<u32>()
                    .is_ok_and(|id| name == format!("{GROUP}{id}"))
                {
                    // One that stays is taken over by the application of the same number.
                    let _ = fs::remove_dir(host.root.path(&format!("{parent}/{name}")));
                }
            }
        }
    }

    /// Makes a group for an application and puts its threads there; those that they start follow. Where the processor allocates
    /// bandwidth it is a control group, as long as there is a free one, else a monitoring group.
    pub fn adopt(&mut self, host: &MemoryHost, app: AppId, cgroup: &Cgroup) {
        if !Self::works(host) {
            return;
        }
        let is_made = |path: &str| {
            let path = host.root.path(path);
            fs::create_dir(&path).is_ok() || path.is_dir()
        };
        let allocates = Allocation::of(host).is_some() && is_made(&control_group(app));
        let made = match allocates {
            true => Ok(()),
            false => fs::create_dir(host.root.path(&monitoring_group(app))),
        };
        match made {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                self.refused = Some(format!("no group for {cgroup}: {error}"));
            }
            // One that is there from a former life serves as well.
            _ => {}
        }
        self.members.insert(app, BTreeSet::new());
        self.rates.insert(Some(app), Default::default());
        self.follow(host, app, cgroup);
    }

    /// Puts threads into the group that no present thread of the application created: threads that were moved in, or
    /// that started between two scans. Returns threads that have left the application to the default group: in a control
    /// group they would stay limited. Call this periodically.
    pub fn follow(&mut self, host: &MemoryHost, app: AppId, cgroup: &Cgroup) {
        let Some(members) = self.members.get_mut(&app) else {
            return;
        };
        let file = format!("{}/tasks", group(host, app));
        // Read first: a thread that starts later is the application's, and is not returned.
        let before = host.root.text(&file).unwrap_or_default();
        let mut now = BTreeSet::new();
        for process in host.processes(cgroup).unwrap_or_default() {
            for thread in host.root.list(&format!("/proc/{process}/task")) {
                now.extend(thread.parse::<u32>());
            }
            if now.len() > THREADS_MAX {
                let why = format!("{cgroup} has more than {THREADS_MAX} threads");
                return self.give_up(host, app, why);
            }
        }
        let come = now.difference(members);
        if let Some((thread, name)) = of_others(host, come.copied().collect()) {
            let why = format!(
                "thread {thread} of {cgroup} is in the group {name} of resctrl, which is another owner's; take the thread out of it"
            );
            return self.give_up(host, app, why);
        }
        for thread in now.difference(members) {
            // The kernel takes one thread per write. One that has ended meanwhile is no loss.
            let _ = host.root.write(&file, &thread.to_string());
        }
        for thread in before.lines().filter_map(|line| line.parse::<u32>().ok()) {
            if !now.contains(&thread) {
                let _ = host
                    .root
                    .write(&format!("{RESCTRL}/tasks"), &thread.to_string());
            }
        }
        *members = now;
    }

    /// Without its group the application has no reading, instead of a partial one.
    fn give_up(&mut self, host: &MemoryHost, app: AppId, why: String) {
        self.refused = Some(why);
        self.rates.remove(&Some(app));
        self.members.remove(&app);
        let _ = fs::remove_dir(host.root.path(&group(host, app)));
    }

    /// Removes the application's group.
    pub fn release(&mut self, host: &MemoryHost, app: AppId) {
        self.members.remove(&app);
        if self.rates.remove(&Some(app)).is_some() {
            // What remains goes when the next service starts.
            let _ = fs::remove_dir(host.root.path(&group(host, app)));
        }
    }

    /// Bandwidth of an application, or of the machine.
    pub fn read(&mut self, host: &MemoryHost, now: Instant, app: Option<AppId>) -> Bandwidth {
        let directory = app.map_or_else(|| RESCTRL.to_owned(), |app| group(host, app));
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

/// The control group of an application; there is none where the processor allocates no bandwidth.
pub(crate) fn control_group(app: AppId) -> String {
    format!("{RESCTRL}/{GROUP}{}", app.0)
}

fn monitoring_group(app: AppId) -> String {
    format!("{RESCTRL}/mon_groups/{GROUP}{}", app.0)
}

/// The group that the application has.
fn group(host: &MemoryHost, app: AppId) -> String {
    let control = control_group(app);
    match host.root.path(&control).is_dir() {
        true => control,
        false => monitoring_group(app),
    }
}

/// What the names of our groups begin with.
const GROUP: &str = "isolane-mem-";

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

/// The first of `threads` that is in a group that is neither the default one nor ours, and the group's name.
fn of_others(host: &MemoryHost, threads: BTreeSet<u32>) -> Option<(u32, String)> {
    for parent in [RESCTRL.to_owned(), format!("{RESCTRL}/mon_groups")] {
        let names = host.root.list(&parent);
        for name in names.into_iter().filter(|name| !name.starts_with(GROUP)) {
            let tasks = host.root.text(&format!("{parent}/{name}/tasks"));
            let tasks = tasks.unwrap_or_default();
            let mut held = tasks.lines().filter_map(|line| line.trim().parse().ok());
            if let Some(thread) = held.find(|thread| threads.contains(thread)) {
                return Some((thread, name));
            }
        }
    }
    None
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    const APP: AppId = AppId(7);

    fn tree() -> Tree {
        let tree = Tree::two_tiers();
        tree.write(
            "/sys/fs/resctrl/info/L3_MON/mon_features",
            "mbm_total_bytes\nmbm_local_bytes\n",
        );
        tree.write("/sys/fs/resctrl/mon_groups/isolane-mem-7/tasks", "");
        tree.write("/sys/fs/cgroup/app/cgroup.procs", "70\n");
        for thread in [70, 71] {
            tree.write(&format!("/proc/70/task/{thread}/comm"), "x");
        }
        tree
    }

    fn last(tree: &Tree) -> String {
        tree.read("/sys/fs/resctrl/mon_groups/isolane-mem-7/tasks")
    }

    #[test]
    fn threads_that_come_later_are_counted_too() {
        let (tree, group) = (tree(), Cgroup::new("/app").unwrap());
        let mut resctrl = Resctrl::default();
        resctrl.adopt(&tree.host(), APP, &group);
        // A plain file keeps the last write: both threads were written, in order.
        assert_eq!(last(&tree), "71");
        tree.write("/proc/70/task/72/comm", "x");
        resctrl.follow(&tree.host(), APP, &group);
        assert_eq!(last(&tree), "72");
        tree.write("/sys/fs/cgroup/app/cgroup.procs", "70\n80\n");
        tree.write("/proc/80/task/80/comm", "x");
        resctrl.follow(&tree.host(), APP, &group);
        assert_eq!(last(&tree), "80");
        // Nothing new is nothing to write.
        tree.write("/sys/fs/resctrl/mon_groups/isolane-mem-7/tasks", "");
        resctrl.follow(&tree.host(), APP, &group);
        assert_eq!(last(&tree), "");
    }

    #[test]
    fn threads_in_another_owners_group_stay_there() {
        for other in [
            "/sys/fs/resctrl/batch/tasks",
            "/sys/fs/resctrl/mon_groups/batch/tasks",
        ] {
            let (tree, group) = (tree(), Cgroup::new("/app").unwrap());
            tree.write(other, "12\n71\n");
            let mut resctrl = Resctrl::default();
            resctrl.adopt(&tree.host(), APP, &group);
            let why = resctrl.refused.clone().unwrap();
            assert!(
                why.contains("thread 71 of /app is in the group batch"),
                "{why}"
            );
            assert_eq!(last(&tree), "");
            resctrl.follow(&tree.host(), APP, &group);
            assert_eq!(last(&tree), "");
        }
    }

    /// Also one whose number was another thread's when the number was written.
    #[test]
    fn a_thread_that_left_the_application_is_in_its_group_no_longer() {
        let (tree, app) = (tree(), Cgroup::new("/app").unwrap());
        let mut resctrl = Resctrl::default();
        resctrl.adopt(&tree.host(), APP, &app);
        let group = "/sys/fs/resctrl/mon_groups/isolane-mem-7/tasks";
        tree.write(group, "70\n71\n90\n");
        tree.write("/sys/fs/resctrl/tasks", "");
        resctrl.follow(&tree.host(), APP, &app);
        assert_eq!(tree.read("/sys/fs/resctrl/tasks"), "90");
        // The last one of the application leaves too, and a new one comes.
        tree.write(group, "70\n71\n");
        tree.write("/sys/fs/cgroup/app/cgroup.procs", "80\n");
        tree.write("/proc/80/task/80/comm", "x");
        resctrl.follow(&tree.host(), APP, &app);
        assert_eq!(tree.read("/sys/fs/resctrl/tasks"), "71", "the last write");
        assert_eq!(tree.read(group), "80");
    }

    #[test]
    fn groups_of_a_killed_service_are_removed_and_no_others() {
        let tree = Tree::two_tiers();
        let parent = "/sys/fs/resctrl/mon_groups";
        for name in [
            "isolane-mem-3",
            "isolane-mem-03",
            "isolane-mem-x",
            "somebody",
            "isolane-mem-",
        ] {
            tree.write(&format!("{parent}/{name}/x"), "");
            // The kernel's directories can be removed with what is in them.
            tree.remove(&format!("{parent}/{name}/x"));
        }
        Resctrl::remove_all(&tree.host());
        let left = tree.host().root.list(parent);
        assert_eq!(left.len(), 4, "{left:?}");
        assert!(!left.contains(&"isolane-mem-3".to_owned()));
    }

    #[test]
    fn a_group_that_cannot_be_made_is_reported() {
        let tree = tree();
        tree.remove("/sys/fs/resctrl/mon_groups");
        tree.write("/sys/fs/resctrl/mon_groups", "a file in its place");
        let mut resctrl = Resctrl::default();
        resctrl.adopt(&tree.host(), APP, &Cgroup::new("/app").unwrap());
        assert!(resctrl.refused.is_some_and(|why| why.contains("/app")));
    }
}
