//! `isolane mem measure`: the least near memory and processor time with which a command alone keeps its objective.
//!
//! Method: this process enters a cgroup of its own making, starts the command there, and leaves it again, so that every
//! page of the command is counted from the first on. The command is ended and the cgroup removed afterwards, also when
//! something fails in between or the user ends it. The journal's lock is held meanwhile: a service that runs keeps it, and
//! has DAMON and the counters for itself.

use super::describe::Options;
use crate::commands::rdma::run::program;
use crate::inputs::bad;
use crate::output;
use crate::status::Status;
use anyhow::{Context, Result};
use isolane_memory_policy::mercury::{AppId, Objective};
use isolane_memory_service::application::amounts::{bandwidth_text, size_text};
use isolane_memory_service::cgroup::own;
use isolane_memory_service::indicator::chase::TierChase;
use isolane_memory_service::indicator::machine::{Chase, MachineSensors};
use isolane_memory_service::indicator::{Sensors, pmu};
use isolane_memory_service::journal::{FileStore, JournalError};
use isolane_memory_service::profile::Origin;
use isolane_memory_service::profile::application::{self, AppProfile, Settings};
use isolane_memory_service::profile::live::{LiveApplication, wall_clock};
use isolane_memory_service::service::settings::PROFILES;
use isolane_memory_service::tiers::Tiers;
use isolane_memory_service::{Backend, Cgroup, MemError, MemoryHost, probe};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Periods whose readings count: two seconds.
const PERIODS: u32 = 10;
/// Longest wait for pages to move, in periods: a minute.
const PATIENCE: u32 = 300;

/// Options that describe an application and have no effect on a measurement; help leaves them out.
const WITHOUT_EFFECT: [&str; 9] = [
    "priority",
    "weight",
    "memory",
    "memory_low",
    "memory_min",
    "local_max",
    "tier_max",
    "far_tiers",
    "measured",
];

/// Arguments of `isolane mem measure`.
#[derive(Debug, clap::Args)]
#[command(mut_args(|option| match WITHOUT_EFFECT.contains(&option.get_id().as_str()) {
    true => option.hide(true),
    false => option,
}))]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,
    /// How long the command warms up first
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = super::bench::length)]
    warm_up: Duration,
    /// Where to write the profile; by default NAME.json where the service looks
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

pub(super) fn run(arguments: &Arguments) -> Result<Status> {
    let (file, name) = match program::named("mem measure", &arguments.command) {
        Ok(program) => program,
        Err(status) => return Ok(status),
    };
    let described = arguments.options.described(&name)?;
    let objective = described.slo.objective();
    if objective == Objective::BestEffort {
        return Err(bad(
            "best effort needs no measurement: say --slo-latency or --slo-bandwidth",
        ));
    }
    let host = MemoryHost::machine();
    Tiers::required(&host)?;
    // Before the minutes, not after them.
    let out = place(arguments, &described.name)?;
    // Before anything is touched that a service may be using.
    let _lock = alone_here()?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    ctrlc::set_handler(move || stopped.store(true, Ordering::Relaxed))
        .context("cannot wait for signals")?;
    let mut backend = probe::choose(&host, None)?.backend;
    let cgroup = own::create(&host, &format!("profile-{}", std::process::id()))?;
    let mut alone = Alone {
        host: &host,
        cgroup,
        child: None,
    };
    alone.start(&file, &arguments.command[1..])?;
    output::note(&format!(
        "isolane mem: {name} runs alone in {}; this takes some minutes",
        alone.cgroup
    ));
    let warm = Instant::now() + arguments.warm_up;
    while Instant::now() < warm && !stop.load(Ordering::Relaxed) {
        let left = warm.saturating_duration_since(Instant::now());
        std::thread::sleep(left.min(GLANCE));
    }
    let found = measure(&host, &alone.cgroup, backend.as_mut(), objective, &stop);
    // The backend releases the application before the cgroup is removed.
    let _ = backend.release(APP);
    drop(alone);
    let words: Vec<String> = arguments
        .command
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let found = match found {
        Err(error) if matches!(error.downcast_ref(), Some(MemError::Interrupted)) => {
            output::note(&format!("isolane mem measure: {error}"));
            return Ok(Status::Interrupted);
        }
        found => found?,
    };
    let profile = found.stored(&words.join(" "), objective, Origin::of(&host));
    finish(arguments, &profile, &out)
}

/// The file of the profile of `name`, whose directory exists then.
fn place(arguments: &Arguments, name: &str) -> Result<PathBuf> {
    let usual = || Path::new(PROFILES).join(format!("{name}.json"));
    let out = arguments.out.clone().unwrap_or_else(usual);
    let directory = out.parent();
    if let Some(directory) = directory.filter(|directory| !directory.as_os_str().is_empty()) {
        output::make_directory(directory)?;
    }
    Ok(out)
}

/// Writes the profile to the file `out`, and prints it.
fn finish(arguments: &Arguments, profile: &AppProfile, out: &Path) -> Result<Status> {
    output::write_file(out, &output::json(profile)?)?;
    match arguments.json {
        true => output::print_json(profile)?,
        false => output::print(&text(profile))?,
    }
    output::note(&format!(
        "isolane mem: wrote {}; give it to --measured",
        out.display()
    ));
    Ok(match profile.admissible {
        true => Status::Done,
        false => Status::No,
    })
}

/// How often a signal is looked for.
const GLANCE: Duration = Duration::from_millis(100);

/// The lock of the service's journal, so that no service begins meanwhile.
fn alone_here() -> Result<FileStore> {
    let directory = Path::new(isolane_memory_service::journal::DIRECTORY);
    FileStore::open(directory, &isolane_memory_service::journal::boot()).map_err(|error| match error {
        JournalError::Busy { path } => anyhow::anyhow!(
            "a memory service (or another measurement) runs here and holds {}: stop it first (systemctl stop isolane-mem), since a measurement needs the whole machine",
            path.display()
        ),
        error => error.into(),
    })
}

/// The only application here.
const APP: AppId = AppId(1);

fn measure(
    host: &MemoryHost,
    cgroup: &Cgroup,
    backend: &mut dyn Backend,
    objective: Objective,
    stop: &AtomicBool,
) -> Result<application::Found> {
    backend.adopt(APP, cgroup, &[])?;
    // As in the service: without counters of the processor, a latency is the mean of the tiers' latencies, weighted by
    // the pages in each tier.
    let chase = pmu::missing(host).is_some().then(|| {
        let chase: Box<dyn Chase> = Box::new(TierChase::new(&Tiers::read(host)));
        chase
    });
    let mut sensors = MachineSensors::new(host.clone(), chase);
    sensors.adopt(APP, cgroup)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut live = LiveApplication {
        host,
        cgroup,
        app: APP,
        cores: u32::try_from(cores).unwrap_or(u32::MAX),
        backend,
        sensors: &mut sensors,
        periods: PERIODS,
        patience: PATIENCE,
        stop,
        wait: wall_clock(),
    };
    let found = application::search(&mut live, objective, &Settings::default());
    drop(live);
    // Before the group is gone: counters are of the group.
    sensors.release(APP);
    Ok(found?)
}

/// A command in a cgroup of its own; both go with it.
struct Alone<'a> {
    host: &'a MemoryHost,
    cgroup: Cgroup,
    child: Option<Child>,
}

impl Alone<'_> {
    fn start(&mut self, file: &Path, arguments: &[OsString]) -> Result<()> {
        let own_process = std::process::id();
        let text = std::fs::read_to_string("/proc/self/cgroup")
            .context("cannot read /proc/self/cgroup")?;
        let before = text.lines().find_map(|line| line.strip_prefix("0::"));
        let before = before.unwrap_or("/").to_owned();
        own::enter(self.host, &self.cgroup, own_process)?;
        let started = Command::new(file)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        let file_of = self.host.cgroup_file(&before, "cgroup.procs")?;
        let left = self.host.root.write(&file_of, &own_process.to_string());
        self.child = Some(started.with_context(|| format!("cannot start {}", file.display()))?);
        left?;
        Ok(())
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        // What the command started may still live there; it is ours to end, as the command was.
        for _ in 0..50 {
            if own::remove(self.host, &self.cgroup).unwrap_or(true) {
                return;
            }
            let kill = self.host.cgroup_file(self.cgroup.path(), "cgroup.kill");
            let _ = kill.map(|file| self.host.root.write(&file, "1"));
            std::thread::sleep(Duration::from_millis(20));
        }
        output::note(&format!(
            "isolane mem: {} is left behind: remove it once it is empty",
            self.cgroup
        ));
    }
}

fn text(profile: &AppProfile) -> String {
    let best = match (profile.best_latency_ns, profile.best_bandwidth_bytes_per_s) {
        (Some(ns), _) if profile.slo_latency_ns.is_some() => format!("{ns:.0} ns"),
        (_, Some(rate)) => bandwidth_text(rate),
        (Some(ns), None) => format!("{ns:.0} ns"),
        (None, None) => "nothing".to_owned(),
    };
    match profile.admissible {
        false => format!(
            "inadmissible: alone and without limits it gets {best}; choose a weaker objective or another machine\n"
        ),
        true => format!(
            "needs {} of near memory and {:.1} % of its processor time; holds {}, gets {best} without limits\n",
            size_text(profile.local_bytes),
            f64::from(profile.cpu_thousandths) / 10.0,
            size_text(profile.footprint_bytes)
        ),
    }
}
