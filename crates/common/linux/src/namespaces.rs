//! Network namespaces for a test or a lab, and the removal of those left by a killed one.
//!
//! Method: a namespace's name is a prefix, its [`maker`], and a word. Before it makes namespaces, a program removes
//! those of dead makers with everything that still runs in them. Process ids are reused, so a maker is identified by id
//! and start time. Units: start times in clock ticks since boot. Limits: needs root and iproute2.

use crate::command::{CommandError, run};
use crate::process::Process;
use crate::root::Root;
use std::fs;
use std::path::{Path, PathBuf};

/// Directory of iproute2's named namespaces.
const NAMES: &str = "/run/netns";

/// A namespace, removed when dropped.
#[derive(Debug)]
pub struct Space {
    name: String,
}

impl Space {
    /// Makes the namespace `name` with its loopback device up. Fails if the caller is not root, or the name exists.
    pub fn make(name: String) -> Result<Self, CommandError> {
        run(&format!("ip netns add {name}"))?;
        let space = Self { name };
        run(&format!("ip -n {} link set lo up", space.name))?;
        Ok(space)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// The file of a namespace.
pub fn file(name: &str) -> PathBuf {
    Path::new(NAMES).join(name)
}

/// Whether this process may make namespaces.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Id and start time of this process, for the names of its namespaces and pins (a BPF file system permits no dots).
pub fn maker() -> String {
    let own = std::process::id();
    format!("{own}_{}", start_of(own).unwrap_or(0))
}

/// Removes the namespaces with this prefix whose maker has ended, and the processes in them.
pub fn remove_stale(prefix: &str) {
    let Ok(entries) = fs::read_dir(NAMES) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_stale(prefix, &name) {
            remove(&name);
        }
    }
}

/// Whether `name` has this prefix and its maker has ended.
pub fn is_stale(prefix: &str, name: &str) -> bool {
    owner(prefix, name).is_some_and(|(process, start)| start_of(process) != Some(start))
}

/// Number and start time of the process that made the namespace `name`, if it has this prefix.
pub fn owner(prefix: &str, name: &str) -> Option<(u32, u64)> {
    let maker = name.strip_prefix(prefix)?.split('-').next()?;
    let (process, start) = maker.split_once('_')?;
    Some((process.parse().ok()?, start.parse().ok()?))
}

/// Ends the processes in a namespace and removes it; a missing namespace is not an error.
fn remove(name: &str) {
    if let Ok(text) = run(&format!("ip netns pids {name}")) {
        let processes = text.lines().filter_map(|line| line.trim().parse().ok());
        for process in processes.filter_map(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        }
    }
    let _ = run(&format!("ip netns del {name}"));
}

fn start_of(process: u32) -> Option<u64> {
    Process::read(&Root::machine(), process)?.start_ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_with_the_prefix_have_an_owner() {
        let owner = |name| owner("isolane-lab-", name);
        assert_eq!(owner("isolane-lab-42_7-c0"), Some((42, 7)));
        assert_eq!(owner("isolane-lab-x-c0"), None);
        assert_eq!(owner("isolane-lab-42-c0"), None);
        assert_eq!(owner("somebody-42_7"), None);
    }

    #[test]
    fn this_process_is_a_maker_that_runs() {
        let name = format!("isolane-test-{}-s", maker());
        let (process, start) = owner("isolane-test-", &name).unwrap();
        assert_eq!(start_of(process), Some(start));
        assert_ne!(start_of(process), Some(start + 1));
    }
}
