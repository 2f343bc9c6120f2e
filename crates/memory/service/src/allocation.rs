//! Memory bandwidth that the processor allocates (MBA of Intel and AMD), through control groups of resctrl.
//!
//! Problem: a stream with a quota of processor time runs at full bandwidth until the quota ends. Method: an application has a control
//! group of its own ([`crate::indicator::files::Resctrl`] makes it), and a limit goes to its `schemata` as a percentage in every
//! domain. What is below the processor's least percentage remains for the quota of processor time. Each write is read back.
//!
//! Units: thousandths of processor time, percent. Percentages are rounded up to the processor's steps. Limits: not with the mount option
//! `mba_MBps`. Where the processor has no further control group, an application is counted and not allocated. Tested on a recorded
//! tree only. Source: the kernel's documentation of resctrl.

use crate::error::MemError;
use crate::host::MemoryHost;
use crate::indicator::files::{RESCTRL, control_group};
use isolane_memory_policy::mercury::{AppId, CPU_ONE};

/// What the processor allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    least_percent: u32,
    step_percent: u32,
}

impl Allocation {
    /// Of this machine; none where the processor or the kernel allocates no bandwidth.
    pub fn of(host: &MemoryHost) -> Option<Self> {
        let number = |name: &str| {
            let found = host.root.number(&format!("{RESCTRL}/info/MB/{name}"))?;
            u32::try_from(found)
                .ok()
                .filter(|one| (1..=100).contains(one))
        };
        let allocation = Self {
            least_percent: number("min_bandwidth")?,
            step_percent: number("bandwidth_gran")?,
        };
        let mounts = host.root.text("/proc/mounts")?;
        let in_megabytes = |line: &str| line.contains(RESCTRL) && line.contains("mba_MBps");
        (!mounts.lines().any(in_megabytes)).then_some(allocation)
    }

    /// The same, if the application has a control group.
    pub fn for_app(host: &MemoryHost, app: AppId) -> Option<Self> {
        let schemata = format!("{}/schemata", control_group(app));
        Self::of(host).filter(|_| host.root.exists(&schemata))
    }

    /// Percent of bandwidth and thousandths of processor time that together are `per_mille`.
    pub fn split(self, per_mille: u32) -> (u32, u32) {
        let per_mille = per_mille.min(CPU_ONE);
        let steps = per_mille.div_ceil(10).div_ceil(self.step_percent);
        let percent = (steps * self.step_percent).clamp(self.least_percent, 100);
        (percent, (per_mille * 100 / percent).clamp(1, CPU_ONE))
    }
}

/// Sets the percentage in all domains of the application's group. Fails where the kernel rejects the write, and where the file then has another
/// value.
pub fn set(host: &MemoryHost, app: AppId, percent: u32) -> Result<(), MemError> {
    let path = format!("{}/schemata", control_group(app));
    let text = host.root.read(&path)?;
    let wanted: Vec<String> = domains(&text)
        .map(|(domain, _)| format!("{domain}={percent}"))
        .collect();
    let line = format!("MB:{}", wanted.join(";"));
    host.root
        .write(&path, &format!("{line}\n"))
        .map_err(|error| MemError::refused(error, "look at info/last_cmd_status of resctrl"))?;
    match has(host, app, percent) {
        true => Ok(()),
        false => Err(MemError::Unexpected {
            value: host.root.text(&path).unwrap_or_default(),
            path,
            expected: "the percentage of bandwidth that was written",
        }),
    }
}

/// Whether all domains of the application's group have this percentage.
pub fn has(host: &MemoryHost, app: AppId, percent: u32) -> bool {
    let path = format!("{}/schemata", control_group(app));
    let text = host.root.text(&path).unwrap_or_default();
    let mut found = domains(&text).peekable();
    found.peek().is_some() && found.all(|(_, value)| value.parse() == Ok(percent))
}

/// Domain and value of the line of bandwidth.
fn domains(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("MB:"));
    let words = line.unwrap_or_default().split(';');
    words.filter_map(|word| word.trim().split_once('='))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Cgroup;
    use crate::controller::groups::{Groups, HostGroups};
    use crate::indicator::files::Resctrl;
    use crate::testing::{APP, Tree};

    /// As recorded on a machine of two sockets, with the form of its numbers.
    const SCHEMATA: &str = "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n";

    fn tree() -> Tree {
        let tree = Tree::two_tiers();
        tree.write(
            "/proc/mounts",
            "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\nresctrl /sys/fs/resctrl resctrl rw 0 0\n",
        );
        tree.write(
            "/sys/fs/resctrl/info/L3_MON/mon_features",
            "mbm_total_bytes\n",
        );
        tree.write("/sys/fs/resctrl/info/MB/min_bandwidth", "10\n");
        tree.write("/sys/fs/resctrl/info/MB/bandwidth_gran", "10\n");
        tree.write("/sys/fs/resctrl/schemata", SCHEMATA);
        tree
    }

    /// A machine whose kernel made the group of [`APP`].
    fn adopted() -> Tree {
        let tree = tree();
        Resctrl::default().adopt(&tree.host(), APP, &tree.cgroup("/app", &[]));
        tree.write(&format!("{}/schemata", control_group(APP)), SCHEMATA);
        tree
    }

    #[test]
    fn a_limit_goes_to_every_domain_and_the_rest_to_processor_time() {
        let tree = adopted();
        let mut groups = HostGroups::new(tree.host());
        let schemata = || tree.read("/sys/fs/resctrl/isolane-mem-1/schemata");
        for (per_mille, text, cpu) in [
            (480, "MB:0=50;1=50\n", 960),
            (100, "MB:0=10;1=10\n", 1_000),
            (40, "MB:0=10;1=10\n", 400),
            (1_000, "MB:0=100;1=100\n", 1_000),
        ] {
            groups.set_bandwidth(APP, per_mille).unwrap();
            assert_eq!(schemata(), text);
            assert_eq!(groups.cpu_part(APP, per_mille), cpu);
            assert!(groups.has_bandwidth(APP, per_mille));
        }
        tree.write(
            "/sys/fs/resctrl/isolane-mem-1/schemata",
            "    MB:0=100;1=20\n",
        );
        assert!(!groups.has_bandwidth(APP, 1_000), "another program wrote");
    }

    #[test]
    fn without_allocation_the_whole_limit_is_processor_time() {
        let tree = adopted();
        let plain = |tree: &Tree| HostGroups::new(tree.host()).cpu_part(APP, 480) == 480;
        assert!(!plain(&tree));
        tree.write(
            "/proc/mounts",
            "resctrl /sys/fs/resctrl resctrl rw,mba_MBps 0 0\n",
        );
        assert!(plain(&tree));
        let tree = self::tree();
        assert!(plain(&tree), "no control group");
        let mut groups = HostGroups::new(tree.host());
        groups.set_bandwidth(APP, 480).unwrap();
        assert!(groups.has_bandwidth(APP, 480));
    }

    #[test]
    fn a_domain_that_keeps_its_value_is_an_error() {
        let tree = adopted();
        tree.write(
            &format!("{}/schemata", control_group(APP)),
            "    L3:0=7ff;1=7ff\n",
        );
        let error = set(&tree.host(), APP, 50).unwrap_err().to_string();
        assert!(error.contains("schemata"), "{error}");
    }

    #[test]
    fn without_a_free_control_group_an_application_is_counted_only() {
        let tree = tree();
        // In place of a kernel that has no further group.
        tree.write("/sys/fs/resctrl/isolane-mem-1", "a file");
        tree.write("/sys/fs/resctrl/mon_groups/isolane-mem-1/tasks", "");
        let cgroup = Cgroup::new("/app").unwrap();
        tree.cgroup("/app", &[]);
        let mut resctrl = Resctrl::default();
        resctrl.adopt(&tree.host(), APP, &cgroup);
        assert_eq!(Allocation::for_app(&tree.host(), APP), None);
        assert!(resctrl.refused.is_none());
    }
}
