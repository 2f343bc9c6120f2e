//! `isolane rdma run`: starts any program under the shim, and says before that what cannot work.
//!
//! Method: the command checks the shim, the daemon and the program, and reports each obstacle in one line. Then it sets
//! the environment and replaces its own process by the program, so exit status, signals and process id are those of the
//! program. Limits: processes that the program starts inherit the environment; a process that the program starts with
//! an empty environment is not paced.

pub(crate) mod program;

use crate::output;
use crate::status::{BadInput, Status};
use anyhow::Result;
use isolane_rdma_enforcer::guardian::DIRECTORY;
use isolane_rdma_enforcer::launch::{self, Launch};
use isolane_rdma_session::environment;
use isolane_rdma_session::message::{Class, WEIGHT_MAX};
use program::Caller;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// File name of the shim.
const SHIM_FILE: &str = "libisolane_shim.so";
/// The loader's variable.
const PRELOAD: &str = "LD_PRELOAD";

/// Arguments of `isolane rdma run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Class of the program: latency, throughput, bandwidth, or auto (the daemon detects the class)
    #[arg(long, value_parser = class)]
    class: Option<Class>,
    /// Tenant that the program names, for rules of the daemon and for daemons with trust_names
    #[arg(long, value_parser = tenant)]
    tenant: Option<String>,
    /// Weight that the program requests, for daemons with trust_names
    #[arg(long, value_parser = crate::numbers::whole::<u32>(1..=u64::from(WEIGHT_MAX)))]
    weight: Option<u32>,
    /// Socket of the daemon
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Let `isolane rdma enforce` supervise the program's control verbs; if no enforcer runs, do not start the program (exit code 3)
    #[arg(long)]
    enforce: bool,
    /// Directory of the sockets of `isolane rdma enforce`
    #[arg(long, value_name = "PATH", requires = "enforce", default_value = DIRECTORY)]
    enforce_directory: PathBuf,
    /// Do not run the program if it would run unpaced (exit code 3)
    #[arg(long)]
    require: bool,
    /// Start nothing; print the program, its environment and what prevents pacing
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: print JSON
    #[arg(long, requires = "dry_run")]
    json: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

fn class(name: &str) -> std::result::Result<Class, String> {
    Class::from_name(name)
        .ok_or_else(|| "must be latency, throughput, bandwidth or auto".to_owned())
}

fn tenant(name: &str) -> std::result::Result<String, String> {
    let plain = !name.is_empty()
        && name.len() <= 64
        && !name.chars().any(|c| c.is_control() || c.is_whitespace());
    match plain {
        true => Ok(name.to_owned()),
        false => Err("must be a name of 1 to 64 bytes without spaces".to_owned()),
    }
}

#[derive(Debug, Serialize)]
struct Plan {
    /// The program's file.
    program: String,
    arguments: Vec<String>,
    environment: BTreeMap<&'static str, String>,
    /// Whether its RDMA traffic will be paced, as far as can be said before it runs.
    paced: bool,
    /// Why not.
    obstacles: Vec<Finding>,
}

/// Something that keeps the program from being paced.
#[derive(Debug, Serialize)]
struct Finding {
    /// For scripts.
    kind: &'static str,
    /// For people.
    text: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let command = arguments.command.first().expect("clap requires one");
    let file = match program::found("rdma run", command) {
        Ok(file) => file,
        Err(status) => return Ok(status),
    };
    let path = std::env::var_os("PATH");
    let plan = plan(arguments, &file, path.as_deref())?;
    if arguments.dry_run {
        match arguments.json {
            true => output::print_json(&plan)?,
            false => output::print(&show(&plan))?,
        }
        return Ok(Status::Done);
    }
    let end = match arguments.require {
        true => "not started because of --require",
        false => "the program runs unpaced",
    };
    for finding in &plan.obstacles {
        output::note(&format!("isolane rdma run: {}; {end}", finding.text));
    }
    if arguments.require && !plan.paced {
        return Ok(Status::Machine);
    }
    if arguments.enforce {
        launch::supervise_self(&Launch {
            directory: arguments.enforce_directory.clone(),
            tenant: arguments.tenant.clone(),
        })?;
    }
    let mut process = Command::new(&file);
    process
        .arg0(command)
        .args(&arguments.command[1..])
        .envs(&plan.environment);
    Ok(program::replace_by("rdma run", &file, process))
}

fn plan(arguments: &Arguments, file: &Path, path: Option<&OsStr>) -> Result<Plan> {
    let mut obstacles = Vec::new();
    let mut environment = BTreeMap::new();
    let mut find = |kind, text: String| obstacles.push(Finding { kind, text });
    if let Some(class) = arguments.class {
        environment.insert(environment::CLASS, class.name().to_owned());
    }
    if let Some(tenant) = &arguments.tenant {
        environment.insert(environment::TENANT, tenant.clone());
    }
    if let Some(weight) = arguments.weight {
        environment.insert(environment::WEIGHT, weight.to_string());
    }
    if let Some(socket) = &arguments.socket {
        let absolute = std::path::absolute(socket)?;
        environment.insert(environment::SOCKET, text(absolute.as_os_str(), "--socket")?);
    }
    let program = program::obstacle(file, Caller::this(), path);
    let forbidden = program
        .as_ref()
        .is_some_and(|(_, obstacle)| obstacle.forbids_preload());
    if let Some((at, obstacle)) = &program {
        find(
            obstacle.name(),
            format!("{} {}", at.display(), obstacle.text()),
        );
    }
    match shim() {
        Ok(shim) if !forbidden => {
            environment.insert(
                PRELOAD,
                preload(&shim, std::env::var_os(PRELOAD).as_deref())?,
            );
        }
        Ok(_) => {}
        Err(reason) => find("no-shim", reason),
    }
    if std::env::var_os(environment::DISABLE).is_some_and(|value| !value.is_empty() && value != "0")
    {
        find(
            "disabled",
            format!(
                "{} is set, so the preload library does nothing",
                environment::DISABLE
            ),
        );
    }
    let socket = match (&arguments.socket, std::env::var_os(environment::SOCKET)) {
        (Some(socket), _) => socket.clone(),
        (None, Some(socket)) => socket.into(),
        (None, None) => isolane_rdma_session::SOCKET_PATH.into(),
    };
    if let Err(reason) = daemon(&socket) {
        find("no-daemon", reason);
    }
    let lossy = |word: &OsString| word.to_string_lossy().into_owned();
    Ok(Plan {
        program: file.to_string_lossy().into_owned(),
        arguments: arguments.command[1..].iter().map(lossy).collect(),
        environment,
        paced: obstacles.is_empty(),
        obstacles,
    })
}

/// The shim's file: where the environment says, beside this program, or where packages put it.
pub(crate) fn shim() -> std::result::Result<PathBuf, String> {
    if let Some(file) = std::env::var_os(environment::SHIM) {
        let file = PathBuf::from(file);
        return match file.is_file() {
            true => Ok(std::path::absolute(&file).unwrap_or(file)),
            false => Err(format!(
                "the preload library {} is not there; correct or unset {}",
                file.display(),
                environment::SHIM
            )),
        };
    }
    let own = std::env::current_exe().ok();
    let directory = own.as_deref().and_then(Path::parent);
    let places: Vec<PathBuf> = directory.map_or(Vec::new(), |directory| {
        let packages = directory.parent().unwrap_or(directory).join("lib/isolane");
        vec![directory.join(SHIM_FILE), packages.join(SHIM_FILE)]
    });
    places
        .iter()
        .find(|file| file.is_file())
        .cloned()
        .ok_or_else(|| {
            let places: Vec<String> = places
                .iter()
                .map(|file| file.display().to_string())
                .collect();
            format!(
                "the preload library is in none of its places ({}); install it, or name it by {}",
                places.join(", "),
                environment::SHIM
            )
        })
}

/// The loader's list with the shim in front.
fn preload(shim: &Path, before: Option<&OsStr>) -> Result<String> {
    if shim
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|&byte| byte == b':' || byte == b' ')
    {
        let text = format!(
            "the preload library's path {} has a space or a colon, which {PRELOAD} cannot hold; move it",
            shim.display()
        );
        return Err(BadInput(text).into());
    }
    let shim = text(shim.as_os_str(), environment::SHIM)?;
    let Some(before) = before.filter(|before| !before.is_empty()) else {
        return Ok(shim);
    };
    let before = text(before, PRELOAD)?;
    match before.split([':', ' ']).any(|library| library == shim) {
        true => Ok(before),
        false => Ok(format!("{shim}:{before}")),
    }
}

fn text(value: &OsStr, name: &str) -> Result<String> {
    let text = value.to_str().map(str::to_owned);
    text.ok_or_else(|| BadInput(format!("{name} = {}: is not UTF-8", value.display())).into())
}

/// Whether a daemon answers at `path`. The connection ends at once; the daemon takes no notice of it.
fn daemon(path: &Path) -> std::result::Result<(), String> {
    use rustix::io::Errno;
    let failed = |error: Errno| match error {
        Errno::NOENT | Errno::CONNREFUSED => {
            format!("no daemon listens at {}; start isolaned", path.display())
        }
        Errno::ACCESS | Errno::PERM => {
            format!(
                "{} may not be opened; get permission to connect",
                path.display()
            )
        }
        error => format!(
            "the daemon's socket {} cannot be used: {error}",
            path.display()
        ),
    };
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).map_err(failed)?;
    connect(&socket, &address).map_err(failed)
}

fn show(plan: &Plan) -> String {
    let mut text = String::new();
    for (name, value) in &plan.environment {
        text += &format!("{name}={value}\n");
    }
    text += &plan.program;
    for argument in &plan.arguments {
        text += &format!(" {argument}");
    }
    text.push('\n');
    match plan.paced {
        true => text += "no obstacle to pacing\n",
        false => {
            for finding in &plan.obstacles {
                text += &format!("unpaced: {}\n", finding.text);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shim_goes_before_other_libraries_once() {
        let shim = Path::new("/usr/lib/isolane/libisolane_shim.so");
        let first = preload(shim, Some(OsStr::new("/lib/a.so b.so"))).unwrap();
        assert_eq!(first, "/usr/lib/isolane/libisolane_shim.so:/lib/a.so b.so");
        assert_eq!(preload(shim, Some(OsStr::new(&first))).unwrap(), first);
        assert_eq!(
            preload(shim, None).unwrap(),
            "/usr/lib/isolane/libisolane_shim.so"
        );
        assert!(preload(Path::new("/a b/libisolane_shim.so"), None).is_err());
    }

    #[test]
    fn a_missing_daemon_is_said_with_its_socket() {
        let reason = daemon(Path::new("/nonexistent/isolaned.sock")).unwrap_err();
        assert_eq!(
            reason,
            "no daemon listens at /nonexistent/isolaned.sock; start isolaned"
        );
        let long = "/x".repeat(200);
        assert!(daemon(Path::new(&long)).is_err());
    }
}
