//! `isolaned`: the daemon as a program.
#![forbid(unsafe_code)]

use anyhow::{Context, Result};
use clap::Parser;
use isolane_core::units::BitRate;
use isolaned::config::PolicyName;
use isolaned::governor::Governor;
use isolaned::port;
use isolaned::server::{Server, now_ns};
use isolaned::settings::Settings;
use rustix::event::{EventfdFlags, eventfd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Tells every process on this machine how fast it may post to the RDMA NIC.
#[derive(Debug, Parser)]
#[command(name = "isolaned", version)]
struct Arguments {
    /// A device to serve; give it again for more. Without, those of the configuration.
    #[arg(long)]
    device: Vec<String>,
    /// The configuration file.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Where processes find the daemon.
    #[arg(long, env = isolane_proto::environment::SOCKET)]
    socket: Option<PathBuf>,
    /// The policy of all devices.
    #[arg(long, value_parser = ["none", "justitia"])]
    policy: Option<String>,
    /// Payload rate of all devices in bits per second, where the port's own is not what the link carries.
    #[arg(long, value_name = "BPS")]
    rate_bps: Option<u64>,
}

/// Exit code when a device or a privilege is missing.
const MISSING: u8 = 3;
/// Exit code for bad input.
const BAD_INPUT: u8 = 2;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // A failure to print leaves nobody to tell.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { BAD_INPUT } else { 0 });
        }
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("isolaned: {error:#}");
            let is_missing = error.downcast_ref::<port::PortError>().is_some();
            ExitCode::from(if is_missing { MISSING } else { BAD_INPUT })
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let settings = settings(arguments)?;
    let config = settings.config;
    let mut rates = Vec::with_capacity(config.devices.len());
    for (device, port) in config.devices.iter().zip(&settings.ports) {
        let found = port::rate(Path::new(port::SYSFS), &device.name, port.number);
        let rate = match (found, device.rate) {
            (Ok(rate), _) => rate,
            (Err(port::PortError::Unreadable { .. }), Some(rate)) => rate,
            (Err(error), _) => return Err(error.into()),
        };
        rates.push(rate);
    }
    let names: Vec<String> = config
        .devices
        .iter()
        .map(|device| device.name.clone())
        .collect();
    let socket = config.socket.clone();
    let governor = Governor::new(config, rates, now_ns()).context("a device's options")?;
    let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).context("a counter")?;
    let stopper = stop.try_clone().context("a counter")?;
    let server = Server::new(governor, stop)?;
    ctrlc::set_handler(move || {
        // It fails only when it was told to stop already.
        let _ = rustix::io::write(&stopper, &1u64.to_ne_bytes());
    })
    .context("signals")?;
    eprintln!(
        "isolaned: serves {} at {}",
        names.join(", "),
        socket.display()
    );
    server.run()?;
    Ok(())
}

fn settings(arguments: &Arguments) -> Result<Settings> {
    let mut settings = match &arguments.config {
        Some(file) => Settings::read(file)?,
        None => Settings::for_devices(&arguments.device),
    };
    let config = &mut settings.config;
    if arguments.config.is_some() && !arguments.device.is_empty() {
        let kept = |name: &str| arguments.device.iter().any(|device| device == name);
        for name in &arguments.device {
            let known = config.devices.iter().any(|device| device.name == *name);
            anyhow::ensure!(
                known,
                "the configuration has no device {name}; add it there"
            );
        }
        let keep: Vec<bool> = config
            .devices
            .iter()
            .map(|device| kept(&device.name))
            .collect();
        let mut at = keep.iter();
        config.devices.retain(|_| *at.next().expect("as many"));
        let mut at = keep.iter();
        settings.ports.retain(|_| *at.next().expect("as many"));
    }
    anyhow::ensure!(
        !config.devices.is_empty(),
        "no device to serve; name one with --device"
    );
    if let Some(socket) = &arguments.socket {
        config.socket.clone_from(socket);
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
