//! `isolane rdma emulate`: runs any RDMA program on modelled RDMA NICs, without a device, a kernel module or root.
//!
//! Method: a broker runs in a thread of this process ([`isolane_rdma_emulator`]). A private directory holds its socket, a link
//! named `libibverbs.so.1` to our library, and the devices' files. The program finds the library through `LD_LIBRARY_PATH`, and
//! broker and files through variables. A second library is preloaded and shows the devices' files to programs that look for them. Programs of one broker share its hosts: the program, what it starts, and the programs that
//! `isolane rdma emulate --join DIRECTORY` starts.
//! Limits: a program that is linked statically, or runs with another user's rights, does not load our library.

use super::run::program::{self, Caller};
use crate::inputs;
use crate::numbers;
use crate::output;
use crate::status::{BadInput, Status};
use anyhow::{Context, Result, bail};
use isolane_common_linux::root::{DILATION_MAX, EMULATED_VARIABLE};
use isolane_common_text_output::counted;
use isolane_rdma_emulator::directory::{CONNECTIONS, Directory, FILES, SOCKET, SONAME, TREE};
use isolane_rdma_emulator::faults::{Chances, PARTS};
use isolane_rdma_emulator::server::OPEN_TIME;
use isolane_rdma_emulator::tree;
use isolane_rdma_emulator::{Broker, HOST_VARIABLE, HOSTS_MAX, SOCKET_VARIABLE, Settings, Summary};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// File name of our libibverbs beside this program and in packages.
const LIBRARY_FILE: &str = "isolane-ibverbs";
/// The variable that names our libibverbs where the file is elsewhere.
const LIBRARY_VARIABLE: &str = "ISOLANE_IBVERBS";
/// File name of the library that shows the devices' files, beside our libibverbs.
const FILES_FILE: &str = "isolane-device-files";
/// The loader's variables.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
const PRELOAD: &str = "LD_PRELOAD";
/// This command in messages.
const VERB: &str = "rdma emulate";
/// The part of the time for which the model's clock may stop before a line reports it, 0 to 1.
const STOOD_STILL_MAX: f64 = 0.01;

/// What the help of the command ends with.
const AFTER: &str = "\
The devices are rnic0, rnic1, ... on hosts 0, 1, ...; every program sees all of them unless
--host names one. At a dilation of 1 the processor of this machine limits rates and times, not
the model. At 1000, 100 Gb/s become 100 Mb/s and 2 us become 2 ms: multiply the rates and divide
the times that the program prints by the dilation.

Exit codes:
  the program's own, or 128 plus the signal that ended it
  2    wrong usage, or a device profile that is not known
  3    the emulator cannot start, or libibverbs of isolane is not installed
  126  the program cannot be executed
  127  there is no such program";

/// Arguments of `isolane rdma emulate`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// Device profile of every host: a name, or a file
    #[arg(required_unless_present = "join", value_parser = inputs::profile_names(), hide_possible_values = true)]
    profile: Option<String>,
    /// Hosts on one switch, each with one RDMA NIC
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = numbers::whole::<usize>(1..=HOSTS_MAX as u64))]
    hosts: usize,
    /// Show the program the device of this host alone
    #[arg(long, value_name = "N", value_parser = numbers::whole::<usize>(0..=HOSTS_MAX as u64 - 1))]
    host: Option<usize>,
    /// How many times slower than real time the model runs
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR", value_parser = numbers::real(1.0..=DILATION_MAX))]
    dilation: f64,
    /// Seed of the random choices of model and faults
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Let this part of the requests of reliable queue pairs fail, 0 to 1
    #[arg(long, default_value_t = 0.0, value_name = "PART", value_parser = numbers::real(0.0..=1.0))]
    fail_requests: f64,
    /// Lose this part of the messages of unreliable queue pairs, 0 to 1
    #[arg(long, default_value_t = 0.0, value_name = "PART", value_parser = numbers::real(0.0..=1.0))]
    lose_messages: f64,
    /// Let the devices limit the rates of single queue pairs (ibv_modify_qp_rate_limit)
    #[arg(long)]
    queue_pair_rates: bool,
    /// Directory for the emulator's socket, for programs that join; it must be new or left by a killed emulator, and is removed at the end
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// Run the program on the devices of the emulator with this directory
    #[arg(
        long,
        value_name = "DIRECTORY",
        requires = "program",
        conflicts_with_all = ["profile", "hosts", "dilation", "seed", "fail_requests", "lose_messages", "queue_pair_rates", "directory", "summary"]
    )]
    join: Option<PathBuf>,
    /// Print at the end what the devices did
    #[arg(long)]
    summary: bool,
    /// The program and its arguments; without a program the emulator serves until Ctrl-C
    #[arg(last = true)]
    program: Vec<OsString>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let path = std::env::var_os("PATH");
    let file = match arguments.program.first() {
        None => None,
        Some(command) => match program::found(VERB, command) {
            Ok(file) => Some(file),
            Err(status) => return Ok(status),
        },
    };
    if let Some(file) = &file
        && let Some((at, obstacle)) = program::obstacle(file, Caller::this(), path.as_deref())
    {
        note(&format!(
            "{} {}; the program sees no emulated device",
            at.display(),
            obstacle.text()
        ));
    }
    match (&arguments.join, file) {
        (Some(directory), Some(file)) => join(arguments, directory, &file),
        (None, file) => serve(arguments, file.as_deref()),
        (Some(_), None) => unreachable!("clap requires a program"),
    }
}

fn note(text: &str) {
    output::note(&format!("isolane {VERB}: {text}"));
}

/// Takes the place of this process with a program on another one's broker.
fn join(arguments: &Arguments, directory: &Path, file: &Path) -> Result<Status> {
    let directory = std::path::absolute(directory)?;
    if let Err(error) = directory.join(SOCKET).symlink_metadata() {
        let reason = match error.kind() {
            ErrorKind::PermissionDenied => {
                "this user may not read it; join as the user who started the emulator"
            }
            _ => "no emulator runs in this directory; start one with --directory",
        };
        let text = format!("--join {}: {reason}", directory.display());
        return Err(BadInput(text).into());
    }
    let program = command(arguments, &directory, file);
    Ok(program::replace_by(VERB, file, program))
}

/// The program with the environment in which it finds our library and the broker.
fn command(arguments: &Arguments, directory: &Path, file: &Path) -> Command {
    let before = |name: &str, first: PathBuf| {
        let mut value = first.into_os_string();
        if let Some(more) = std::env::var_os(name).filter(|more| !more.is_empty()) {
            value.push(":");
            value.push(more);
        }
        value
    };
    let mut command = Command::new(file);
    let files = directory.join(FILES);
    if files.exists() {
        command.env(PRELOAD, before(PRELOAD, files));
    }
    command
        .arg0(&arguments.program[0])
        .args(&arguments.program[1..])
        .env(LIBRARY_PATH, before(LIBRARY_PATH, directory.to_owned()))
        .env(SOCKET_VARIABLE, directory.join(SOCKET))
        .env(
            EMULATED_VARIABLE,
            tree::root(&directory.join(TREE), arguments.host),
        );
    match arguments.host {
        Some(host) => command.env(HOST_VARIABLE, host.to_string()),
        None => command.env_remove(HOST_VARIABLE),
    };
    command
}

fn serve(arguments: &Arguments, file: Option<&Path>) -> Result<Status> {
    let name = arguments.profile.as_deref().expect("clap requires one");
    let profile = inputs::profile(&mut inputs::library(), name)?;
    if let Some(host) = arguments.host.filter(|host| *host >= arguments.hosts) {
        let text = format!(
            "--host {host}: there are {}, numbered from 0; give a lower number or more --hosts",
            counted(arguments.hosts as u64, "host")
        );
        return Err(BadInput(text).into());
    }
    let library = library()?;
    let directory = directory(arguments.directory.as_deref())?;
    let link = |file: &Path, name| {
        let linked = directory.link(file, name);
        linked.with_context(|| format!("cannot make {name} in {}", directory.path().display()))
    };
    link(&library, SONAME)?;
    link(&library, CONNECTIONS)?;
    let files = library.with_file_name(FILES_FILE);
    if files.is_file() {
        link(&files, FILES)?;
    }
    let broker = Broker::start(Settings {
        profile,
        hosts: arguments.hosts,
        dilation: arguments.dilation,
        seed: arguments.seed,
        paces: arguments.queue_pair_rates,
        chances: Chances {
            failed_requests: parts(arguments.fail_requests),
            lost_messages: parts(arguments.lose_messages),
        },
        socket: directory.socket(),
        tree: directory.tree(),
        open_time: OPEN_TIME,
    })?;
    let signals = signals()?;
    let status = match file {
        Some(file) => run_program(arguments, directory.path(), file, &signals)?,
        None => {
            let name = directory.path().display();
            note(&format!(
                "{} ready; programs join with isolane rdma emulate --join {name} -- PROGRAM; Ctrl-C ends",
                counted(arguments.hosts as u64, "host")
            ));
            signals.wait();
            Status::Done
        }
    };
    let summary = broker.stop();
    report(arguments, &summary)?;
    Ok(status)
}

/// Our libibverbs: where the environment says, beside this program, or where packages put it.
fn library() -> Result<PathBuf> {
    if let Some(file) = std::env::var_os(LIBRARY_VARIABLE) {
        let file = PathBuf::from(file);
        if !file.is_file() {
            bail!(
                "the library {} is not there; correct or unset {LIBRARY_VARIABLE}",
                file.display()
            );
        }
        return Ok(std::path::absolute(file)?);
    }
    let own = std::env::current_exe().context("this program's own place is not known")?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let packages = folder.parent().unwrap_or(folder).join("lib/isolane");
    let places = [folder.join(LIBRARY_FILE), packages.join(LIBRARY_FILE)];
    let found = places.iter().find(|file| file.is_file()).cloned();
    found.with_context(|| {
        format!(
            "the library that replaces libibverbs is neither {} nor {}; install it, or name it with {LIBRARY_VARIABLE}",
            places[0].display(),
            places[1].display()
        )
    })
}

/// A part of one in millionths, rounded.
fn parts(part: f64) -> u32 {
    (part * f64::from(PARTS)).round() as u32
}

/// The directory of the broker.
fn directory(wanted: Option<&Path>) -> Result<Directory> {
    let Some(path) = wanted else {
        let base = std::env::temp_dir();
        return Directory::in_base(&base)
            .with_context(|| format!("cannot make a directory in {}", base.display()));
    };
    let path = std::path::absolute(path)?;
    Directory::at(&path).map_err(|error| {
        let reason = match error.kind() {
            ErrorKind::ResourceBusy => "an emulator uses it".to_owned(),
            ErrorKind::AlreadyExists => "it exists and is not of a killed emulator".to_owned(),
            _ => error.to_string(),
        };
        let text = format!(
            "--directory {}: cannot be made ({reason}); give a name that does not exist in a directory that does",
            path.display()
        );
        BadInput(text).into()
    })
}

/// Signals that end this command: they are passed to the program, whose end then ends the command.
struct Signals {
    came: Receiver<()>,
    program: Arc<Mutex<Option<OwnedFd>>>,
}

fn signals() -> Result<Signals> {
    let (send, came): (Sender<()>, _) = channel();
    let program: Arc<Mutex<Option<OwnedFd>>> = Arc::default();
    let signalled = Arc::clone(&program);
    ctrlc::set_handler(move || {
        let program = signalled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = &*program {
            let _ = pidfd_send_signal(program, Signal::TERM);
        }
        let _ = send.send(());
    })
    .context("cannot catch Ctrl-C")?;
    Ok(Signals { came, program })
}

impl Signals {
    fn wait(&self) {
        // The handler lives as long as the process, so its end of the channel does.
        let _ = self.came.recv();
    }

    fn pass_to(&self, child: &Child) {
        // A child that was not waited for keeps its number.
        let pid = Pid::from_child(child);
        let held = pidfd_open(pid, PidfdFlags::empty()).ok();
        *self.program.lock().unwrap_or_else(PoisonError::into_inner) = held;
        if self.came.try_recv().is_ok() {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
    }
}

fn run_program(
    arguments: &Arguments,
    directory: &Path,
    file: &Path,
    signals: &Signals,
) -> Result<Status> {
    let mut child = match command(arguments, directory, file).spawn() {
        Ok(child) => child,
        Err(error) => return Ok(program::not_started(VERB, file, &error)),
    };
    signals.pass_to(&child);
    let ended = child.wait().context("cannot wait for the program")?;
    Ok(Status::Exit(code(ended)))
}

/// The exit code as shells have it.
fn code(ended: ExitStatus) -> u8 {
    let signal = ended.signal().map(|signal| 128 + signal);
    ended.code().or(signal).unwrap_or(1) as u8
}

fn report(arguments: &Arguments, summary: &Summary) -> Result<()> {
    if summary.rejected + summary.foreign > 0 {
        note(&format!(
            "{} rejected: {} of other users, {} that broke the protocol or opened no device in time",
            counted(summary.rejected + summary.foreign, "connection"),
            summary.foreign,
            summary.rejected
        ));
    }
    if summary.unwritten > 0 {
        note(&format!(
            "the files of the devices were not up to date: {} could not be written; give a --directory on a file system with space",
            counted(summary.unwritten, "file")
        ));
    }
    if summary.messages > 0 && summary.stood_still > STOOD_STILL_MAX {
        let enough = arguments.dilation / (1.0 - summary.stood_still).max(0.01);
        note(&format!(
            "the model was behind its clock for {:.0} % of the time, so the program saw slower devices than the profile's; \
             give a --dilation above {:.0}",
            100.0 * summary.stood_still,
            enough.ceil()
        ));
    }
    if arguments.summary {
        output::print(&text(summary))?;
    }
    Ok(())
}

fn text(summary: &Summary) -> String {
    let mut text = format!(
        "{}, {} in all\n",
        counted(summary.messages, "message"),
        counted(summary.bytes, "byte")
    );
    for (host, (sent, received)) in summary.ports.iter().enumerate() {
        let (sent, received) = (counted(*sent, "byte"), counted(*received, "byte"));
        text.push_str(&format!(
            "rnic{host}: {sent} sent, {received} received, headers included\n"
        ));
    }
    text
}
