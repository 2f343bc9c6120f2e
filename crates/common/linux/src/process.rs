//! The data of a process in `/proc`: command, user, cgroup.
//!
//! A process may end at any moment, and its id may be reused. [`Process::start_ticks`] distinguishes the two: id and
//! start time together identify a process until the next boot.

use crate::cgroup::{self, Workload};
use crate::root::Root;
use serde::Serialize;

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Process {
    /// Process id.
    pub id: u32,
    /// The kernel's short name (15 bytes at most).
    pub command: String,
    /// Arguments, the program first; empty for a kernel thread or a process of another user namespace.
    pub arguments: Vec<String>,
    /// Real user id.
    pub user: Option<u32>,
    /// Start time, clock ticks since boot.
    pub start_ticks: Option<u64>,
    /// Cgroup (version 2), as a path below the cgroup mount.
    pub cgroup: Option<String>,
    /// Unit, container and pod in the cgroup's path.
    pub workload: Workload,
}

impl Process {
    /// Reads the process `id`; `None` if it does not exist.
    pub fn read(root: &Root, id: u32) -> Option<Self> {
        let command = root.text(&format!("/proc/{id}/comm"))?;
        let arguments = root.text(&format!("/proc/{id}/cmdline"));
        let cgroup = cgroup::of_process(root, id);
        Some(Self {
            id,
            command,
            arguments: arguments.map_or_else(Vec::new, |text| split_arguments(&text)),
            user: root
                .text(&format!("/proc/{id}/status"))
                .and_then(|text| real_user(&text)),
            start_ticks: root
                .text(&format!("/proc/{id}/stat"))
                .and_then(|text| start_ticks(&text)),
            workload: cgroup.as_deref().map(Workload::of).unwrap_or_default(),
            cgroup,
        })
    }
}

/// The process that the thread `id` belongs to; `None` if the thread has ended.
pub fn of_thread(root: &Root, id: u32) -> Option<u32> {
    let status = root.text(&format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

fn split_arguments(text: &str) -> Vec<String> {
    let words = text.trim_end_matches('\0').split('\0');
    words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

fn real_user(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Field 22 of `/proc/PID/stat`. The command, field 2, is in parentheses and may contain any character.
fn start_ticks(stat: &str) -> Option<u64> {
    const FIELDS_AFTER_COMMAND: usize = 19;
    let (_, after) = stat.rsplit_once(')')?;
    after
        .split_whitespace()
        .nth(FIELDS_AFTER_COMMAND)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_belongs_to_its_process() {
        let root = Root::machine();
        let own = std::process::id();
        let thread = || u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        let of = move || (thread(), of_thread(&root, thread()));
        let (thread, process) = std::thread::spawn(of).join().unwrap();
        assert_ne!(thread, own);
        assert_eq!(process, Some(own));
        assert_eq!(of_thread(&Root::machine(), own), Some(own));
        assert_eq!(of_thread(&Root::machine(), u32::MAX), None);
    }

    #[test]
    fn this_process_is_found() {
        let own = std::process::id();
        let process = Process::read(&Root::machine(), own).unwrap();
        assert_eq!(process.id, own);
        assert!(!process.command.is_empty());
        assert!(process.start_ticks.is_some() && process.user.is_some());
        assert!(
            process
                .arguments
                .iter()
                .any(|word| word.contains("isolane"))
        );
    }

    #[test]
    fn a_command_with_parentheses_does_not_move_the_fields() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 0 0";
        assert_eq!(start_ticks(stat), Some(4242));
    }

    #[test]
    fn an_ended_process_is_none() {
        assert_eq!(Process::read(&Root::machine(), u32::MAX), None);
    }
}
