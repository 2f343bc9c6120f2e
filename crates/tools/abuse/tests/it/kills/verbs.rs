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

/// Kills guardian and enforcer, one of them first, while a tenant's threads call: after both are gone a call fails, and
/// none waits. Without the guardian alone all go on.
pub(super) fn guardian_under(kills: Kills) -> Result<(), String> {
    kills.each(|kills| {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::write(folder.join("on_death"), "closed").unwrap();
        let mut enforcer = Running::spawn("enforcer", folder);
        enforcer.listens()?;
        let mut started = started_for(folder).into_iter();
        let guardian = started.find(|process| *process != enforcer.id());
        let guardian = guardian.ok_or("the enforcer has started no guardian")?;
        let guardian = rustix::process::Pid::from_raw(guardian as i32).unwrap();
        let kill = || rustix::process::kill_process(guardian, rustix::process::Signal::KILL);
        let mut tenant = Running::spawn("callers", folder);
        tenant.listens()?;
        until(PATIENCE, "the tenant calls", || {
            calls(folder).len() == CALLERS
        })?;
        all_go_on(folder, PATIENCE)?;
        kills.sleep(SHORT);
        if kills.below(4) == 0 {
            enforcer.kill();
            kill().map_err(|error| format!("the guardian ended before its kill: {error}"))?;
        } else {
            kill().map_err(|error| format!("the guardian ended before its kill: {error}"))?;
            // The enforcer has listeners of its own.
            all_go_on(folder, PATIENCE)?;
            enforcer.kill();
        }
        let error = || fs::read_to_string(folder.join("failed")).unwrap_or_default();
        until(PATIENCE, "a call that failed", || {
            error().contains("os error 38")
        })?;
        drop(tenant);
        until(PATIENCE, "every process ended", || {
            started_for(folder).is_empty()
        })
    })
}
