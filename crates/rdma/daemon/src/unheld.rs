//! Finds the processes whose work on the served devices is not paced ([`isolane_rdma_inventory::unheld`]).
//!
//! Problem: the kernel's list of RDMA objects makes the driver query each queue pair, and each process's libraries are
//! files; the event loop cannot wait for either. Method: a thread takes the sessions from the loop, compares them with
//! the kernel's list, and returns what it found. A process that has just opened a device has no session yet, so a
//! finding counts from the second look on. Each confirmed finding is one line for people. Limits: a look every
//! 10 s, and at most a fiftieth of the time.

use crate::attachment::Attachment;
use crate::governor::Governor;
use crate::server::now_ns;
use crate::worker::Worker;
use isolane_common_linux::root::Root;
use isolane_rdma_inventory::inventory::Inventory;
use isolane_rdma_inventory::rdma::Connection;
use isolane_rdma_inventory::unheld::{Compared, Finder, Reason, Session, Unheld};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;

/// Time between two looks.
const LOOK_NS: u64 = 10_000_000_000;
/// Time until a new finding is confirmed.
const AGAIN_NS: u64 = 1_000_000_000;
/// A look may use this part of the time: 1/50.
const PART: u64 = 50;
/// Largest number of findings that are kept and shown.
const FOUND_MAX: usize = 256;

/// The event loop's view of the thread.
#[derive(Debug)]
pub(crate) struct Watch {
    worker: Worker<Asked, Answer>,
    due_ns: Option<u64>,
    findings: Findings,
    say: fn(&str),
}

#[derive(Debug)]
struct Asked {
    devices: Vec<String>,
    sessions: BTreeMap<u32, Session>,
}

#[derive(Debug)]
struct Answer {
    found: Vec<Unheld>,
    took_ns: u64,
}

impl Watch {
    /// Starts the thread. `say` prints one line for people. Fails if no thread or event counter can be made.
    pub(crate) fn start(now_ns: u64, say: fn(&str)) -> std::io::Result<Self> {
        let mut finder = Finder::default();
        let look = move |asked: Asked| look(&mut finder, &asked);
        Ok(Self {
            worker: Worker::start("unheld", look)?,
            due_ns: Some(now_ns + AGAIN_NS),
            findings: Findings::default(),
            say,
        })
    }

    fn ask(&mut self, now_ns: u64, governor: &Governor) {
        let devices = governor.config().devices.iter();
        let asked = Asked {
            devices: devices.map(|device| device.name.clone()).collect(),
            sessions: governor.paced(now_ns),
        };
        self.due_ns = None;
        self.worker.ask(asked);
    }
}

fn look(finder: &mut Finder, asked: &Asked) -> Answer {
    let since_ns = now_ns();
    let root = Root::with_emulated_devices();
    // A kernel without RDMA devices has no list.
    let by_kernel = || {
        let opened = Connection::open();
        opened.and_then(|mut connection| Inventory::read(&mut connection, None))
    };
    let inventory =
        Inventory::of_emulated(&root, None).unwrap_or_else(|| by_kernel().unwrap_or_default());
    let compared = Compared {
        devices: &asked.devices,
        sessions: Some(&asked.sessions),
        without: &[std::process::id()],
    };
    let mut found = finder.find(&root, &inventory, compared);
    found.truncate(FOUND_MAX);
    Answer {
        found,
        took_ns: now_ns() - since_ns,
    }
}

impl Attachment for Watch {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.worker.descriptor())
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.due_ns
    }

    fn ready(&mut self, now_ns: u64, governor: &mut Governor) {
        while let Some(answer) = self.worker.answer() {
            let pause_ns = match self.findings.take(answer.found) {
                true => AGAIN_NS,
                false => LOOK_NS,
            };
            self.due_ns = Some(now_ns + pause_ns.max(answer.took_ns * PART));
            for one in self.findings.fresh() {
                (self.say)(&line(one));
            }
            governor.set_unheld(self.findings.confirmed.clone());
        }
        if self.due_ns.is_some_and(|due| due <= now_ns) {
            self.ask(now_ns, governor);
        }
    }
}

/// A finding as one line for people.
fn line(one: &Unheld) -> String {
    format!(
        "{}: {} (pid {}) {} and is not paced: {}",
        one.devices.join(", "),
        one.program,
        one.pid,
        one.what(),
        one.reason.remedy()
    )
}

/// What two looks in a row found, and which of it is new.
#[derive(Debug, Default)]
struct Findings {
    before: BTreeSet<(u32, Reason)>,
    said: BTreeSet<(u32, Reason)>,
    confirmed: Vec<Unheld>,
}

impl Findings {
    /// Takes the findings of a look. Returns whether some of them must be confirmed by another look.
    fn take(&mut self, found: Vec<Unheld>) -> bool {
        let key = |one: &Unheld| (one.pid, one.reason);
        let now: BTreeSet<_> = found.iter().map(key).collect();
        let confirmed = found.into_iter();
        self.confirmed = confirmed
            .filter(|one| self.before.contains(&key(one)))
            .collect();
        let is_new = !now.is_subset(&self.before);
        self.said.retain(|one| now.contains(one));
        self.before = now;
        is_new
    }

    /// The confirmed findings that were not returned before.
    fn fresh(&mut self) -> impl Iterator<Item = &Unheld> {
        let said = &mut self.said;
        let confirmed = self.confirmed.iter();
        confirmed.filter(|one| said.insert((one.pid, one.reason)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pid: u32, reason: Reason) -> Unheld {
        Unheld {
            pid,
            program: "ib_write_bw".to_owned(),
            devices: vec!["mlx5_0".to_owned()],
            queue_pairs: 1,
            reason,
            evidence: String::new(),
        }
    }

    #[test]
    fn a_finding_counts_from_the_second_look_on_and_is_said_once() {
        let mut findings = Findings::default();
        let starting = found(7, Reason::NotPreloaded);
        assert!(findings.take(vec![starting.clone()]));
        assert_eq!(findings.confirmed, []);
        assert!(!findings.take(vec![starting.clone()]));
        assert_eq!(findings.confirmed, std::slice::from_ref(&starting));
        assert_eq!(findings.fresh().count(), 1);
        assert!(!findings.take(vec![starting]));
        assert_eq!(findings.fresh().count(), 0);
        assert!(!findings.take(Vec::new()));
        assert_eq!(findings.confirmed, []);
    }

    #[test]
    fn a_line_names_program_process_reason_and_remedy() {
        assert_eq!(
            line(&found(7, Reason::NotPreloaded)),
            "mlx5_0: ib_write_bw (pid 7) was started without the preload library and is not paced: start it with isolane rdma run"
        );
    }
}
