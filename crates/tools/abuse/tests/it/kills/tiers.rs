//! The memory service under kills, on the emulated machine.

use super::nothing;
use isolane_common_linux::Root;
use isolane_common_linux::process::Process;
use isolane_memory_service::application::pod::Place;
use isolane_memory_service::application::{Application, Slo};
use isolane_memory_service::protocol::client::Client;
use isolane_memory_service::protocol::{Answer, Request, Submission};
use isolane_tools_abuse::kills::{Case, Kills, until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// An application of another program, in a cgroup of the emulated machine.
pub(crate) struct Contained {
    child: Child,
    cgroup: PathBuf,
}

impl Contained {
    const CPU: &'static str = "max 100000";

    pub(crate) fn start(folder: &Path, number: u32) -> Self {
        let child = std::process::Command::new("sleep")
            .arg("86400")
            .spawn()
            .unwrap();
        let started = Process::read(&Root::machine(), child.id())
            .unwrap()
            .start_ticks
            .unwrap();
        let cgroup = folder.join(format!("cgroup/kube/{number}"));
        fs::create_dir_all(&cgroup).unwrap();
        fs::write(
            cgroup.join("cgroup.procs"),
            format!("{} {started}\n", child.id()),
        )
        .unwrap();
        fs::write(cgroup.join("cpu.max"), Self::CPU).unwrap();
        Self { child, cgroup }
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn submission(name: &str, priority: u32, place: Place) -> Request {
    let application = Application {
        name: name.to_owned(),
        slo: Slo::LatencyPs(160_000),
        priority,
        weight: 1_000,
        memory_bytes: Some(64 << 20),
        caps: Vec::new(),
        far_tiers: Vec::new(),
        floors: Default::default(),
        profile: None,
    };
    Request::Submit(Submission { application, place })
}

pub(crate) fn ask_memory(socket: &Path, request: &Request) -> Result<Answer, String> {
    let answer = Client::connect(socket).and_then(|mut client| client.ask(request));
    answer.map_err(|error| error.to_string())
}

/// The names of the service's applications.
pub(crate) fn applications(socket: &Path) -> Result<Vec<String>, String> {
    match ask_memory(socket, &Request::Status)? {
        Answer::Status(status) => Ok(status
            .applications
            .into_iter()
            .map(|app| app.name)
            .collect()),
        other => Err(format!("{other:?}")),
    }
}

/// Kills the memory service on an emulated machine: containers stay under control in their order, and a process that asked for
/// itself leaves no cgroup. After the regular end of the last service nothing is limited.
pub(super) fn memory_under(kills: Kills, role: &str) -> Result<(), String> {
    let patience = kills.patience();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let contained: Vec<Contained> = (0..3)
        .map(|number| Contained::start(folder, number))
        .collect();
    let me = folder.join("cgroup/isolane-mem/me");
    let turn = AtomicU64::new(0);
    let (own, is_first) = (me.clone(), AtomicU64::new(1));
    let case = Case {
        role,
        serves: Duration::from_millis(60),
        client: Arc::new(move |said| {
            // Requests of this process, for itself. The service may be killed before, during or after one.
            let priority = 10 + turn.fetch_add(1, Ordering::Relaxed) as u32 % 1_000;
            let submit = submission("me", priority, Place::Caller);
            let _ = ask_memory(Path::new(said), &submit);
            while ask_memory(Path::new(said), &Request::Status).is_ok() {}
        }),
        leaves_processes: false,
        dead: &nothing,
        alive: &|running| {
            let socket = Path::new(running.said());
            if is_first.swap(0, Ordering::Relaxed) == 1 {
                for number in 0..3 {
                    let place = Place::Cgroup(format!("/kube/{number}"));
                    let name = format!("contained{number}");
                    match ask_memory(socket, &submission(&name, number, place))? {
                        Answer::Admitted(_) => {}
                        other => return Err(format!("{other:?}")),
                    }
                }
            }
            // As after the end of this process.
            if own.exists() {
                let _ = fs::write(own.join("cgroup.procs"), "");
            }
            let mut names = Vec::new();
            until(patience, "only the containers under control", || {
                names = applications(socket).unwrap_or_default();
                !names.iter().any(|name| name == "me")
            })?;
            if names != ["contained2", "contained1", "contained0"] {
                return Err(format!("applications under control: {names:?}"));
            }
            until(patience, "the cgroup of an ended process removed", || {
                !own.exists()
            })
        },
    };
    let mut last = kills.run(&case, folder)?;
    last.end()?;
    for container in &contained {
        let limit = fs::read_to_string(container.cgroup.join("cpu.max")).unwrap();
        if limit != Contained::CPU {
            return Err(format!("{} is left at {limit}", container.cgroup.display()));
        }
    }
    match fs::read_dir(me.parent().unwrap()).map_or(0, Iterator::count) {
        0 => Ok(()),
        left => Err(format!("{left} cgroups are left")),
    }
}
