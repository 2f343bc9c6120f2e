//! Ends an attachment, regardless of the process that made it.
//!
//! Method: the controller is signalled, and killed if it does not end; then the journal is undone. A foreground
//! controller undoes the journal itself. Limits: a process is ended only if its number and start time agree with the
//! journal and its program has the name of this one.

use crate::attach::undo;
use crate::error::NicError;
use crate::journal::{Journal, Lock, Process};
use crate::link::{self, Route};
use crate::system::System;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::thread;
use std::time::{Duration, Instant};

/// How long a controller may take to end: it checks for signals at least once a second, and undo takes a few requests.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval of checking whether a process has ended.
const PAUSE: Duration = Duration::from_millis(10);

/// What was undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detached {
    /// An attachment.
    Undone,
    /// The rest of the attachment of a removed device.
    Gone,
    /// Nothing: the device was not attached.
    Nothing,
}

/// Detaches the device that is, or was, called `name`. Repeating it is not an error. Fails for an unknown name, or a
/// failed undo.
pub fn detach(system: &System, name: &str) -> Result<Detached, NicError> {
    let mut route = Route::open()?;
    let links = route.links()?;
    let found = link::named(&links, name);
    let _lock = Lock::take(system, name)?;
    let Some(journal) = Journal::find(system, &links, name)? else {
        return found.map(|_| Detached::Nothing);
    };
    if let Some(controller) = journal.running(system) {
        if let Some(bond) = journal.upper {
            return Err(NicError::Value {
                what: "device",
                value: name.to_owned(),
                expected: format!(
                    "is attached with {bond}; `isolane nic detach {bond}{}` detaches all devices of the bond",
                    system.place()
                ),
            });
        }
        end(system, controller);
    }
    let is_there = found.is_ok_and(|link| journal.is_of(link));
    // The controller may have written or removed the journal meanwhile.
    if let Some(left) = Journal::find(system, &route.links()?, name)? {
        undo(system, &left)?;
    }
    Ok(if is_there {
        Detached::Undone
    } else {
        Detached::Gone
    })
}

/// Ends a controller, first by SIGTERM. A process with another program is not signalled, even if the journal names it.
pub fn end(system: &System, process: Process) {
    let Some(pid) = i32::try_from(process.process).ok().and_then(Pid::from_raw) else {
        return;
    };
    // Open the pidfd before the checks, so that the signal reaches the checked process.
    let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    if !process.is_running(system) || !runs_this_program(system, process.process) {
        return;
    }
    for signal in [Signal::TERM, Signal::KILL] {
        // The process may have ended already.
        let _ = pidfd_send_signal(&held, signal);
        let asked = Instant::now();
        while asked.elapsed() < PATIENCE {
            if !process.is_running(system) {
                return;
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Whether the process's program file has our name. An upgrade replaces the file, so the file itself may differ.
fn runs_this_program(system: &System, process: u32) -> bool {
    let name = |process: &str| {
        let name = system.proc().link_name(&format!("{process}/exe"))?;
        Some(name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned())
    };
    name("self").is_some_and(|own| name(&process.to_string()) == Some(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_cannot_end_another_program() {
        let system = System::machine();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let named = Process::of(&system, child.id()).unwrap();
        end(&system, named);
        assert!(named.is_running(&system));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
