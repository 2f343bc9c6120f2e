//! `isolaned`: the daemon as a program.
//!
//! Signals: INT and TERM end it, HUP reloads the configuration. Exit codes: 0 ended by a signal, 2 wrong usage or a
//! mistake in the configuration, 3 a device, a privilege or a socket is missing.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr))]

use anyhow::{Context, Result, ensure};
use clap::{CommandFactory, Parser};
use isolane_common_linux::Root;
use isolane_common_linux::notify::Notify;
use isolane_common_quantities::units::BitRate;
use isolane_memory_service::service::ServiceError;
use isolaned::attached::attachments;
use isolaned::config::PolicyName;
use isolaned::dilation::Dilation;
use isolaned::governor::Governor;
use isolaned::memory::Memory;
use isolaned::port;
use isolaned::server::{Server, now_ns};
use isolaned::settings::{Settings, SettingsError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Sets how fast each process on this machine may post to the RDMA NIC.
#[derive(Clone, Debug, Parser)]
#[command(name = "isolaned", version, after_help = AFTER, max_term_width = 100)]
struct Arguments {
    /// A device to serve; repeat for several devices. Default: the devices of the configuration.
    #[arg(long)]
    device: Vec<String>,
    /// The configuration file.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Check a configuration file, report mistakes, and end.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["device", "config"])]
    check: Option<PathBuf>,
    /// Path of the socket for processes.
    #[arg(long, env = isolane_rdma_session::environment::SOCKET)]
    socket: Option<PathBuf>,
    /// Path of the socket for `isolane rdma top`. With --socket, the default is control.sock beside it.
    #[arg(long)]
    control: Option<PathBuf>,
    /// Policy of all devices.
    #[arg(long, value_parser = ["none", "justitia"])]
    policy: Option<String>,
    /// Also serve the tiered memory of this machine; serve only memory if no device is named (see `isolane mem`).
    #[arg(long)]
    mem: bool,
    /// Configuration file of the memory service.
    #[arg(long, value_name = "FILE", requires = "mem")]
    mem_config: Option<PathBuf>,
    /// Check a configuration file of the memory service, report mistakes, and end.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["device", "config", "check", "mem"])]
    mem_check: Option<PathBuf>,
    /// Payload rate of all devices in bits per second. Default: derived from the port's rate.
    #[arg(long, value_name = "BPS")]
    rate_bps: Option<u64>,
    /// Print the manual page or a shell's completions, and end. Packages use it.
    #[arg(long, value_name = "WHAT", hide = true, exclusive = true)]
    print: Option<Printed>,
}

/// What `--print` prints.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Printed {
    /// isolaned(8).
    Man,
    /// Completions of bash.
    Bash,
    /// Completions of fish.
    Fish,
    /// Completions of zsh.
    Zsh,
}

/// End of the help text and of the manual page.
const AFTER: &str = "\
Signals: INT and TERM end the daemon, HUP makes it read the configuration again.

Exit codes:
  0  ended by a signal, or --check found no mistake
  2  wrong usage, or a mistake in a file; the message names line, key, value and what is allowed
  3  a device, a privilege or a socket is missing

Files:
  /etc/isolane/isolaned.toml           configuration of the packaged service (--config)
  /etc/isolane/mem.toml                configuration of the packaged memory service (--mem-config)
  /run/isolane/clients/isolaned.sock   where programs under `isolane rdma run` connect
  /run/isolane/control/isolaned.sock   where `isolane rdma top` connects";

/// Exit code when a device or a privilege is missing.
const MISSING: u8 = 3;
/// Runs before ordinary programs. The daemon needs a few percent of one core.
const NICE: i32 = -10;
/// Exit code for bad input.
const BAD_INPUT: u8 = 2;

/// Wrong usage that the argument parser does not detect.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct BadInput(String);

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // If printing fails, there is no other output to report it on.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { BAD_INPUT } else { 0 });
        }
    };
    let done = match (&arguments.print, &arguments.check, &arguments.mem_check) {
        (Some(what), ..) => print(*what).context("cannot write to standard output"),
        (None, Some(file), _) => check(file),
        (None, None, Some(file)) => check_memory(file),
        (None, None, None) => start(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("{error:#}"));
            let bad = |cause: &(dyn std::error::Error + 'static)| {
                cause.is::<BadInput>()
                    || cause.is::<SettingsError>()
                    || cause.downcast_ref().is_some_and(ServiceError::is_bad_input)
                    || cause.is::<isolane_common_quantities::OptionError>()
            };
            ExitCode::from(if error.chain().any(bad) {
                BAD_INPUT
            } else {
                MISSING
            })
        }
    }
}

/// Prints one line for people; a service manager writes it to its journal.
fn say(line: &str) {
    isolane_common_linux::say_error(&format!("isolaned: {line}"));
}

fn print(what: Printed) -> std::io::Result<()> {
    let mut command = Arguments::command();
    let mut out = std::io::stdout().lock();
    let shell = match what {
        Printed::Man => return clap_mangen::Man::new(command).section("8").render(&mut out),
        Printed::Bash => clap_complete::Shell::Bash,
        Printed::Fish => clap_complete::Shell::Fish,
        Printed::Zsh => clap_complete::Shell::Zsh,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "isolaned", &mut script);
    out.write_all(&script)
}

fn check(file: &Path) -> Result<()> {
    let settings = Settings::read(file)?;
    let config = &settings.config;
    let rates = vec![BitRate::from_gbps(1); config.devices.len()];
    Governor::new(config.clone(), rates, now_ns())?;
    println!(
        "{}: {} devices, {} peers, {} rules, {} tenants",
        file.display(),
        config.devices.len(),
        settings.peers.len(),
        config.rules.len(),
        config.tenants.len()
    );
    Ok(())
}

fn check_memory(file: &Path) -> Result<()> {
    let settings = isolane_memory_service::service::settings(Some(file))?;
    println!("{}: policy {}", file.display(), settings.policy);
    Ok(())
}

/// Starts the requested services: devices on this thread and memory on its own thread, or memory alone on this one.
fn start(arguments: &Arguments) -> Result<()> {
    if !arguments.mem {
        return run(arguments);
    }
    let settings = isolane_memory_service::service::settings(arguments.mem_config.as_deref())?;
    let memory = Memory::start(settings, say)?;
    let [stop, order] = signals().context("cannot wait for signals")?;
    if arguments.device.is_empty() && arguments.config.is_none() {
        let notify = Notify::from_environment();
        notify.ready_in_time("serves memory");
        memory.run_alone(&stop.into())?;
        drop(order);
        return Ok(());
    }
    let beside = memory.beside()?;
    let ran = run(arguments);
    beside.end();
    ran
}

fn run(arguments: &Arguments) -> Result<()> {
    let settings = settings(arguments)?;
    // Set before other threads start, so that they inherit it. Polling programs keep processors busy; if the daemon
    // wakes late, it measures its own delay as the network's. Without the privilege, the daemon still works on a
    // machine with idle processors.
    let _ = rustix::process::setpriority_process(None, NICE);
    let mut rates = Vec::with_capacity(settings.config.devices.len());
    let sysfs = Root::with_emulated_devices().path(port::SYSFS);
    for (device, port) in settings.config.devices.iter().zip(&settings.ports) {
        let found = port::rate(&sysfs, &device.name, port.number);
        rates.push(port::or_configured(found, device.rate)?);
    }
    let [stop, order] = signals().context("cannot wait for signals")?;
    let governor = Governor::new(settings.config.clone(), rates, now_ns())?;
    let mut server = Server::new(governor, stop.into())?;
    let again = {
        let arguments = arguments.clone();
        Box::new(move || self::settings(&arguments).map_err(|error| format!("{error:#}")))
    };
    for attachment in attachments(&settings, again, order, now_ns(), say)? {
        server.attach(attachment)?;
    }
    if !settings.config.dilation.is_none() {
        let factor = settings.config.dilation.factor();
        say(&format!(
            "the devices are {factor} times slower than real time; so are the default times"
        ));
    }
    let devices = settings.config.devices.iter();
    let names: Vec<&str> = devices.map(|device| device.name.as_str()).collect();
    let status = format!(
        "serves {} at {}",
        names.join(", "),
        settings.config.socket.display()
    );
    say(&status);
    Notify::from_environment().ready_in_time(&status);
    server.run()?;
    Ok(())
}

/// Two streams: one becomes readable when the daemon should end, one at each reload signal.
fn signals() -> std::io::Result<[UnixStream; 2]> {
    let (stop, stopper) = UnixStream::pair()?;
    let (order, giver) = UnixStream::pair()?;
    pipe::register(SIGINT, stopper.try_clone()?)?;
    pipe::register(SIGTERM, stopper)?;
    pipe::register(SIGHUP, giver)?;
    Ok([stop, order])
}

fn settings(arguments: &Arguments) -> Result<Settings> {
    let mut settings = match &arguments.config {
        Some(file) => Settings::read(file)?,
        None => Settings::for_devices(&arguments.device),
    };
    if arguments.config.is_some() && !arguments.device.is_empty() {
        settings.keep_devices(&arguments.device).map_err(|name| {
            BadInput(format!(
                "the configuration has no device {name}; add it there"
            ))
        })?;
    }
    let config = &mut settings.config;
    let names = config.devices.iter().map(|device| device.name.as_str());
    config.dilation = Dilation::of(&Root::with_emulated_devices(), names)?;
    let named = !config.devices.is_empty();
    ensure!(
        named,
        BadInput(
            "no device to serve; name one with --device, or a file with --config; --mem serves memory".to_owned()
        )
    );
    if let Some(socket) = &arguments.socket {
        config.socket.clone_from(socket);
        settings.control = socket.with_file_name("control.sock");
    }
    if let Some(control) = &arguments.control {
        settings.control.clone_from(control);
    }
    for device in &mut config.devices {
        match arguments.policy.as_deref() {
            Some("none") => device.policy = PolicyName::None,
            Some(_) => device.policy = PolicyName::Justitia,
            None => {}
        }
        if let Some(rate) = arguments.rate_bps {
            device.rate = Some(BitRate::from_bps(rate));
        }
    }
    Ok(settings)
}
