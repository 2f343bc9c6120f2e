//! Floors: memory that the kernel leaves to an application while other memory can be freed (`memory.low`, `memory.min`).
//!
//! Problem: limits keep other applications small, but pages of programs that no service limits take near memory too, and
//! the kernel then frees or demotes pages of any application. Method: the floors are written to the cgroup and read
//! again. A floor has an effect only where each ancestor has as large a floor, so the sum of all floors is written to
//! [`PARENT`]. Therefore only cgroups of our own have floors: an ancestor of another cgroup is not ours to change. The
//! kernel counts how often it went below `memory.low`, which shows a floor without effect. Units: bytes. Limits: a floor
//! counts all tiers; backends that reclaim one application's own memory ignore it. Source: the kernel's cgroup-v2
//! documentation.

use super::Cgroup;
use super::own::{self, PARENT, is_ours};
use crate::application::Floors;
use crate::error::MemError;
use crate::host::MemoryHost;

const LOW: &str = "memory.low";
const MIN: &str = "memory.min";
/// The kernel rounds down to pages, which are at most this large.
const PAGE_MAX: u64 = 64 << 10;
const REMEDY: &str = "floors need the memory controller: isolane mem doctor shows it";

impl MemoryHost {
    /// Gives a cgroup of ours these floors, and checks that the kernel has taken them. Fails with
    /// [`MemError::NotOurs`], [`MemError::Gone`], and [`MemError::Unexpected`] for a floor that is not in force.
    pub fn set_floors(&self, cgroup: &Cgroup, floors: Floors) -> Result<(), MemError> {
        if !is_ours(cgroup) {
            return Err(MemError::NotOurs {
                object: format!("the control group `{cgroup}`"),
                owner: "somebody else".to_owned(),
                remedy: format!("write its {LOW}, and that of each of its ancestors, yourself"),
            });
        }
        for (file, bytes) in [(LOW, floors.low_bytes), (MIN, floors.min_bytes)] {
            self.write_floor(cgroup, file, bytes)?;
        }
        self.sum_floors()
    }

    /// Gives the parent the sum of the floors below it. After a cgroup is removed, a larger floor of the parent would
    /// protect cgroups that have no floor. Fails with [`MemError::Unexpected`] for a sum that is not in force.
    pub fn sum_floors(&self) -> Result<(), MemError> {
        let parent = Cgroup::new(PARENT)?;
        for file in [LOW, MIN] {
            self.write_floor(&parent, file, self.sum(file))?;
        }
        Ok(())
    }

    /// Whether a cgroup has these floors, and its parent the sum of all.
    pub fn has_floors(&self, cgroup: &Cgroup, floors: Floors) -> bool {
        let has = |cgroup: &Cgroup, file, bytes| is_rounded(self.floor(cgroup, file), bytes);
        let files = [(LOW, floors.low_bytes), (MIN, floors.min_bytes)];
        Cgroup::new(PARENT).is_ok_and(|parent| {
            let mut files = files.into_iter();
            files
                .all(|(file, bytes)| has(cgroup, file, bytes) && has(&parent, file, self.sum(file)))
        })
    }

    /// How often the kernel freed memory of the cgroup below its `memory.low`; none where it does not count this.
    pub fn floor_breaches(&self, cgroup: &Cgroup) -> Option<u64> {
        let text = self.read_cgroup(cgroup, "memory.events").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("low "))?;
        line.trim().parse().ok()
    }

    fn write_floor(&self, cgroup: &Cgroup, file: &str, bytes: u64) -> Result<(), MemError> {
        if self.floor(cgroup, file) == bytes {
            return Ok(());
        }
        let path = self.cgroup_file(cgroup.path(), file)?;
        self.root
            .write(&path, &bytes.to_string())
            .map_err(|error| self.failed(cgroup, error, REMEDY))?;
        match self.floor(cgroup, file) {
            now if is_rounded(now, bytes) => Ok(()),
            now => Err(MemError::Unexpected {
                path: format!("{cgroup}/{file}"),
                value: now.to_string(),
                expected: "the floor that was just written",
            }),
        }
    }

    fn sum(&self, file: &str) -> u64 {
        let floors = own::list(self).into_iter();
        let floors = floors.map(|group| self.floor(&group, file));
        floors.fold(0, u64::saturating_add)
    }

    /// A cgroup without the file, or which is gone, has no floor.
    fn floor(&self, cgroup: &Cgroup, file: &str) -> u64 {
        let text = self.read_cgroup(cgroup, file).unwrap_or_default();
        match text.trim() {
            "max" => u64::MAX,
            number => number.parse().unwrap_or(0),
        }
    }
}

/// Whether `now` is `bytes` after the kernel's rounding.
fn is_rounded(now: u64, bytes: u64) -> bool {
    now <= bytes && bytes - now < PAGE_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    const FLOORS: Floors = Floors {
        low_bytes: 64 << 20,
        min_bytes: 16 << 20,
    };

    #[test]
    fn the_parent_has_the_sum_of_all_floors_and_loses_what_is_lifted() {
        let tree = Tree::two_tiers();
        let host = tree.host();
        let groups = ["/isolane-mem/a", "/isolane-mem/b"].map(|path| tree.cgroup(path, &[]));
        tree.cgroup(PARENT, &[]);
        for path in [PARENT, "/isolane-mem/a", "/isolane-mem/b"] {
            for file in [LOW, MIN] {
                tree.write(&format!("/sys/fs/cgroup{path}/{file}"), "0\n");
            }
        }
        let parent = |file: &str| tree.read(&format!("/sys/fs/cgroup{PARENT}/{file}"));
        for group in &groups {
            host.set_floors(group, FLOORS).unwrap();
            assert!(host.has_floors(group, FLOORS));
        }
        assert_eq!(parent(LOW), (128u64 << 20).to_string());
        assert_eq!(parent(MIN), (32u64 << 20).to_string());
        // Another program changes the floor of the parent: below the sum not all floors have an effect, above the sum
        // others have one too.
        for mib in [0u64, 64, 256] {
            let text = (mib << 20).to_string();
            tree.write(&format!("/sys/fs/cgroup{PARENT}/{LOW}"), &text);
            assert!(!host.has_floors(&groups[0], FLOORS), "{mib} MiB");
        }
        host.set_floors(&groups[0], Floors::default()).unwrap();
        assert_eq!(parent(LOW), (64u64 << 20).to_string());
        assert!(host.has_floors(&groups[1], FLOORS));
        tree.write(
            "/sys/fs/cgroup/isolane-mem/b/memory.events",
            "low 7\nhigh 0\n",
        );
        assert_eq!(host.floor_breaches(&groups[1]), Some(7));
    }

    #[test]
    fn a_cgroup_of_others_gets_no_floor() {
        let tree = Tree::two_tiers();
        let group = tree.cgroup("/system.slice/a", &[]);
        let error = tree.host().set_floors(&group, FLOORS).unwrap_err();
        assert!(matches!(error, MemError::NotOurs { .. }), "{error}");
    }
}
