//! The enforcer and its guardian under kills, with a tenant whose threads call control verbs all the time.

use super::SHORT;
use crate::limits::CALLERS;
use isolane_rdma_enforcer::seccomp::filter::{RDMA_VERBS_IOCTL, conventions, program};
use isolane_rdma_enforcer::seccomp::notify::install;
use isolane_tools_abuse::Running;
use isolane_tools_abuse::kills::{Case, Kills, PATIENCE, until};
use isolane_tools_abuse::process::started_for;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Whether a filter with a listener can be installed, tried in a thread that ends with it.
pub(super) fn has_seccomp() -> bool {
    let tried = std::thread::spawn(|| {
        let program = program(conventions()?, RDMA_VERBS_IOCTL);
        rustix::thread::set_no_new_privs(true).ok()?;
        install(&program).ok()
    });
    tried.join().unwrap().is_some()
}

/// The calls of each thread of a supervised process.
fn calls(folder: &Path) -> Vec<u64> {
    let bytes = fs::read(folder.join("calls")).unwrap_or_default();
    let words = bytes.chunks_exact(8);
    words
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
        .collect()
}

/// Each thread of the supervised process makes calls, and none has failed.
fn all_go_on(folder: &Path, patience: Duration) -> Result<(), String> {
    let before = calls(folder);
    let waits = || {
        let pairs = calls(folder).into_iter().zip(&before).enumerate();
        let waits = pairs.filter(|(_, (now, before))| now <= *before);
        waits.map(|(thread, _)| thread).collect::<Vec<_>>()
    };
    let go_on = until(patience, "every thread of the tenant makes calls", || {
        waits().is_empty()
    });
    if let Ok(error) = fs::read_to_string(folder.join("failed")) {
        return Err(format!("a call failed: {error}"));
    }
    go_on.map_err(|reason| format!("{reason}; threads that wait: {:?}", waits()))
}

/// Kills the enforcer while a tenant's threads call: with `open` they also go on while no enforcer runs.
pub(super) fn enforcer_under(kills: Kills, role: &str, on_death: &str) -> Result<(), String> {
    let patience = kills.patience();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("on_death"), on_death).unwrap();
    let tenant: std::cell::OnceCell<Running> = std::cell::OnceCell::new();
    let is_open = on_death == "open";
    let case = Case {
        role,
        serves: SHORT,
        client: Arc::new(|_| {}),
        leaves_processes: true,
        dead: &|| {
            if is_open {
                all_go_on(folder, patience)
            } else {
                Ok(())
            }
        },
        alive: &|_| {
            tenant.get_or_init(|| {
                let mut tenant = Running::spawn("callers", folder);
                tenant.listens().unwrap();
                tenant
            });
            // Only what a defect stops may end early.
            until(PATIENCE, "the tenant calls", || {
                calls(folder).len() == CALLERS
            })?;
            all_go_on(folder, patience)
        },
    };
    let last = kills.run(&case, folder)?;
    drop(tenant);
    drop(last);
    // The guardian ends when no tenant and no enforcer are left.
    until(patience, "every process ended", || {
        started_for(folder).is_empty()
    })
}

/// Goal: after the kill of the guardian and of the enforcer a call fails, and none waits.
pub(super) fn guardian_under_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("on_death"), "closed").unwrap();
    let mut enforcer = Running::spawn("enforcer", folder);
    enforcer.listens().unwrap();
    let guardians = started_for(folder);
    let guardian = guardians
        .into_iter()
        .find(|process| *process != enforcer.id())
        .unwrap();
    let mut tenant = Running::spawn("callers", folder);
    tenant.listens().unwrap();
    until(PATIENCE, "the tenant calls", || {
        calls(folder).len() == CALLERS
    })
    .unwrap();
    all_go_on(folder, PATIENCE).unwrap();
    let guardian = rustix::process::Pid::from_raw(guardian as i32).unwrap();
    rustix::process::kill_process(guardian, rustix::process::Signal::KILL).unwrap();
    // The enforcer has listeners of its own.
    all_go_on(folder, PATIENCE).unwrap();
    enforcer.kill();
    let error = || fs::read_to_string(folder.join("failed")).unwrap_or_default();
    until(PATIENCE, "a call that failed", || {
        error().contains("os error 38")
    })
    .unwrap();
}
