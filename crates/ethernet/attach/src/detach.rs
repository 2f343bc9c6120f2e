//! Ending an attachment, whoever made it and whatever became of him.
//!
//! Method: the controller is asked to end, and killed if it does not; then the journal is undone. A controller in the
//! foreground undoes it itself, which leaves nothing to do. Limits: a process is ended only if number and start agree
//! with the journal and its program has the name of this one.

use crate::attach::undo;
use crate::error::NicError;
use crate::journal::{Journal, Lock, Process};
use crate::link::{self, Route};
use crate::system::System;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::thread;
use std::time::{Duration, Instant};

/// How long a controller may take: it looks up every second at the latest, and undoing is a handful of requests.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at a process.
const PAUSE: Duration = Duration::from_millis(10);

/// What was there to undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detached {
    /// An attachment, now undone.
    Undone,
    /// What was left of a device that is gone.
    Gone,
    /// Nothing: the device is as it was.
    Nothing,
}

/// Detaches the device that is, or was, called `name`. Doing so again is no error.
///
/// # Errors
/// A name that nobody knows; what cannot be undone.
pub fn detach(system: &System, name: &str) -> Result<Detached, NicError> {
    let mut route = Route::open()?;
    let links = route.links()?;
    let found = link::named(&links, name);
    let _lock = Lock::take(system, name)?;
    let Some(journal) = Journal::find(system, &links, name)? else {
        return found.map(|_| Detached::Nothing);
    };
    if let Some(controller) = journal.running(system) {
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

/// Ends a controller, gently first. A process that runs another program than this one is none, whatever a journal says.
pub fn end(system: &System, process: Process) {
    let Some(pid) = i32::try_from(process.process).ok().and_then(Pid::from_raw) else {
        return;
    };
    // Held before it is looked at, so that the signal reaches the process that was looked at.
    let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    if !process.is_running(system) || !runs_this_program(system, process.process) {
        return;
    }
    for signal in [Signal::TERM, Signal::KILL] {
        // It may have ended by itself.
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

/// Whether the program file of a process has the name of ours. An upgrade replaces the file, so the file itself may differ.
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
