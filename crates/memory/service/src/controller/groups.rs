//! Cgroups of applications as the controller needs them: found, made, joined, limited in processor time, left, removed.
//!
//! Problem: tests of the controller need thousands of machines that fail at every point; the kernel has one. Method:
//! [`Groups`] is the interface that the controller needs, [`HostGroups`] the real one over [`MemoryHost`]. Units:
//! bytes; processor time in thousandths of the cores that the cgroup may use.

use crate::allocation::{self, Allocation};
use crate::application::Floors;
use crate::application::pod::Place;
use crate::backend::undo;
use crate::cgroup::{Cgroup, cpu_max_below, own};
use crate::error::MemError;
use crate::host::MemoryHost;
use crate::journal::Owed;
use crate::tiers::parse_list;
use isolane_common_linux::cgroup::{self, Workload};
use isolane_common_quantities::units::Bytes;
use isolane_memory_policy::mercury::AppId;

/// Whether a cgroup has processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Processes do, or it is not known.
    Alive,
    /// No process.
    Empty,
    /// There is no such cgroup any more.
    Gone,
}

/// Cgroups of applications.
pub trait Groups: Send {
    /// The cgroup that an application of that name would get. Fails if the name cannot be one.
    fn own(&self, name: &str) -> Result<Cgroup, MemError>;

    /// Makes that cgroup; one that is there already is taken.
    fn make(&mut self, name: &str) -> Result<Cgroup, MemError>;

    /// Our cgroups that exist, made by this service or an earlier one.
    fn all_own(&self) -> Vec<Cgroup>;

    /// Removes a cgroup of ours. False: it has processes. Fails if it is not ours, or the machine refuses.
    fn unmake(&mut self, cgroup: &Cgroup) -> Result<bool, MemError>;

    /// The cgroup of a pod, a container or a path. Fails if there is none, or several.
    fn find(&self, place: &Place) -> Result<Cgroup, MemError>;

    /// The cgroup's inode; none where it is gone.
    fn inode(&self, cgroup: &Cgroup) -> Option<u64>;

    /// Whether it has processes.
    fn life(&self, cgroup: &Cgroup) -> Life;

    /// Moves a process there. Fails if one of the two is gone, or the machine refuses.
    fn enter(&mut self, cgroup: &Cgroup, process: u32) -> Result<(), MemError>;

    /// The most memory that the cgroup may use, else what it uses; none where that is not known.
    fn memory(&self, cgroup: &Cgroup) -> Option<Bytes>;

    /// The text of `cpu.max`.
    fn cpu(&self, cgroup: &Cgroup) -> Option<String>;

    /// The text of `cpuset.mems`; none where the group has no such file.
    fn mems(&self, _cgroup: &Cgroup) -> Option<String> {
        None
    }

    /// The text of `cpu.max` for thousandths of what `before`, the group's own, leaves it.
    fn cpu_text(&self, cgroup: &Cgroup, per_mille: u32, before: &str) -> String;

    /// Writes `cpu.max`.
    fn write_cpu(&mut self, cgroup: &Cgroup, text: &str) -> Result<(), MemError>;

    /// The part of a limit that remains for `cpu.max` where the processor limits the application's bandwidth; thousandths.
    fn cpu_part(&self, _app: AppId, per_mille: u32) -> u32 {
        per_mille
    }

    /// Limits the application's bandwidth where the processor can. Fails if the machine refuses, or the limit is not in force.
    fn set_bandwidth(&mut self, _app: AppId, _per_mille: u32) -> Result<(), MemError> {
        Ok(())
    }

    /// Whether that limit is in force, or the processor has none.
    fn has_bandwidth(&self, _app: AppId, _per_mille: u32) -> bool {
        true
    }

    /// Gives a cgroup of ours floors, and checks that they are in force. Fails if the machine refuses, or a floor is
    /// not in force.
    fn set_floors(&mut self, _cgroup: &Cgroup, _floors: Floors) -> Result<(), MemError> {
        Ok(())
    }

    /// Whether the floors are in force.
    fn has_floors(&self, _cgroup: &Cgroup, _floors: Floors) -> bool {
        true
    }

    /// How often the kernel went below `memory.low`; none where it does not count this.
    fn floor_breaches(&self, _cgroup: &Cgroup) -> Option<u64> {
        None
    }

    /// Lifts a limit that an earlier backend wrote.
    fn lift(&mut self, _owed: &Owed) -> Result<(), MemError> {
        Ok(())
    }
}

/// Those of a machine.
#[derive(Clone, Debug)]
pub struct HostGroups {
    host: MemoryHost,
}

impl HostGroups {
    /// Of this host.
    pub fn new(host: MemoryHost) -> Self {
        Self { host }
    }

    /// Cores that a cgroup may use.
    fn cores(&self, cgroup: &Cgroup) -> u32 {
        let own = self.host.read_cgroup(cgroup, "cpuset.cpus.effective").ok();
        let all = || self.host.root.text("/sys/devices/system/cpu/online");
        let cores = own.filter(|text| !text.trim().is_empty()).or_else(all);
        let count = cores.map_or(1, |text| parse_list(&text).len().max(1));
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Cgroups below `path` that the host made and whose last part is wanted, nearest to the root first.
    fn search(
        &self,
        path: &str,
        depth: u32,
        wanted: &dyn Fn(&str) -> bool,
        found: &mut Vec<Cgroup>,
    ) {
        let directory = match self.host.cgroup_file(path, "") {
            Ok(directory) if depth > 0 => directory,
            _ => return,
        };
        for name in self.host.root.list(&directory) {
            let below = format!("{}/{name}", path.trim_end_matches('/'));
            let is_directory = self.host.root.path(&format!("{directory}/{name}")).is_dir();
            if !is_directory || !is_of_host(path, &below) {
                continue;
            }
            match Cgroup::new(&below) {
                Ok(cgroup) if wanted(&name) => found.push(cgroup),
                _ => self.search(&below, depth - 1, wanted, found),
            }
        }
    }

    fn only(&self, place: &Place, wanted: &dyn Fn(&str) -> bool) -> Result<Cgroup, MemError> {
        let bad = |why: String| MemError::BadCgroup {
            path: place.text(),
            why,
        };
        let mut found = Vec::new();
        self.search("/", DEPTH_MAX, wanted, &mut found);
        match (found.pop(), found.len()) {
            (Some(one), 0) => Ok(one),
            (None, _) => Err(bad(
                "no cgroup on this machine is its own; does it run here?".to_owned(),
            )),
            (Some(one), more) => Err(bad(format!(
                "{} cgroups could be meant, {one} among them; say more of it",
                more + 1
            ))),
        }
    }
}

/// Depth of containers: a systemd slice in a slice in a slice, twice.
const DEPTH_MAX: u32 = 8;

/// Whether the host made the cgroup `path`, which is directly below `parent`. A tenant may make cgroups below its own, with
/// the name of another tenant's pod or container.
fn is_of_host(parent: &str, path: &str) -> bool {
    let responsible = cgroup::responsible(path);
    // The host also makes the containers of a pod.
    responsible == path || responsible == parent && Workload::of(parent).pod.is_some()
}

impl Groups for HostGroups {
    fn own(&self, name: &str) -> Result<Cgroup, MemError> {
        Cgroup::new(&format!("{}/{name}", own::PARENT))
    }

    fn make(&mut self, name: &str) -> Result<Cgroup, MemError> {
        own::create(&self.host, name)
    }

    fn all_own(&self) -> Vec<Cgroup> {
        own::list(&self.host)
    }

    fn unmake(&mut self, cgroup: &Cgroup) -> Result<bool, MemError> {
        let is_removed = own::remove(&self.host, cgroup)?;
        self.host.sum_floors()?;
        Ok(is_removed)
    }

    fn find(&self, place: &Place) -> Result<Cgroup, MemError> {
        match place {
            Place::Caller => Err(MemError::BadCgroup {
                path: place.text(),
                why: "it is made, not found".to_owned(),
            }),
            Place::Cgroup(path) => {
                let cgroup = Cgroup::new(path)?;
                match self.host.has_cgroup(&cgroup) {
                    true => Ok(cgroup),
                    false => Err(MemError::Gone(path.clone())),
                }
            }
            // systemd's driver writes `-` as `_`, and ends the name in `.slice`.
            Place::Pod(uid) => {
                let systemd = uid.replace('-', "_");
                let wanted = |name: &str| {
                    let name = name.trim_end_matches(".slice");
                    [uid.as_str(), &systemd].into_iter().any(|uid| {
                        let before = name.strip_suffix(uid);
                        before.is_some_and(|before| before == "pod" || before.ends_with("-pod"))
                    })
                };
                self.only(place, &wanted)
            }
            Place::Container(id) => {
                let wanted = |name: &str| {
                    let name = name.trim_end_matches(".scope");
                    // The monitor of a container has a group of its own beside it.
                    if name.contains("conmon") {
                        return false;
                    }
                    let last = name.rsplit(['-', ':']).next().unwrap_or(name);
                    last.starts_with(id.as_str())
                };
                self.only(place, &wanted)
            }
        }
    }

    fn inode(&self, cgroup: &Cgroup) -> Option<u64> {
        self.host.inode(cgroup.path())
    }

    fn life(&self, cgroup: &Cgroup) -> Life {
        match self.host.is_populated(cgroup) {
            Some(true) => Life::Alive,
            Some(false) => Life::Empty,
            None if self.host.has_cgroup(cgroup) => Life::Alive,
            None => Life::Gone,
        }
    }

    fn enter(&mut self, cgroup: &Cgroup, process: u32) -> Result<(), MemError> {
        own::enter(&self.host, cgroup, process)
    }

    fn memory(&self, cgroup: &Cgroup) -> Option<Bytes> {
        let number = |file: &str| {
            let text = self.host.read_cgroup(cgroup, file).ok()?;
            text.trim().parse().ok().map(Bytes::new)
        };
        number("memory.max").or_else(|| number("memory.current"))
    }

    fn cpu(&self, cgroup: &Cgroup) -> Option<String> {
        let text = self.host.read_cgroup(cgroup, "cpu.max").ok()?;
        Some(text.trim().to_owned())
    }

    fn mems(&self, cgroup: &Cgroup) -> Option<String> {
        let text = self.host.read_cgroup(cgroup, "cpuset.mems").ok()?;
        Some(text.trim().to_owned())
    }

    fn cpu_text(&self, cgroup: &Cgroup, per_mille: u32, before: &str) -> String {
        cpu_max_below(before, per_mille, self.cores(cgroup))
    }

    fn write_cpu(&mut self, cgroup: &Cgroup, text: &str) -> Result<(), MemError> {
        self.host.write_cpu(cgroup, text)
    }

    fn cpu_part(&self, app: AppId, per_mille: u32) -> u32 {
        let allocation = Allocation::for_app(&self.host, app);
        allocation.map_or(per_mille, |one| one.split(per_mille).1)
    }

    fn set_bandwidth(&mut self, app: AppId, per_mille: u32) -> Result<(), MemError> {
        match Allocation::for_app(&self.host, app) {
            Some(one) => allocation::set(&self.host, app, one.split(per_mille).0),
            None => Ok(()),
        }
    }

    fn has_bandwidth(&self, app: AppId, per_mille: u32) -> bool {
        Allocation::for_app(&self.host, app)
            .is_none_or(|one| allocation::has(&self.host, app, one.split(per_mille).0))
    }

    fn set_floors(&mut self, cgroup: &Cgroup, floors: Floors) -> Result<(), MemError> {
        self.host.set_floors(cgroup, floors)
    }

    fn has_floors(&self, cgroup: &Cgroup, floors: Floors) -> bool {
        self.host.has_floors(cgroup, floors)
    }

    fn floor_breaches(&self, cgroup: &Cgroup) -> Option<u64> {
        self.host.floor_breaches(cgroup)
    }

    fn lift(&mut self, owed: &Owed) -> Result<(), MemError> {
        undo::lift(&self.host, owed)
    }
}
