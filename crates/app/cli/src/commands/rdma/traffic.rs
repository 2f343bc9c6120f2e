//! `isolane rdma traffic`: one tenant's traffic on real devices, between two machines or on one.

use super::traffic_work::Traffic;
use crate::inputs::bad;
use crate::output;
use crate::status::{INTERRUPTED, Status};
use anyhow::{Context, Result, anyhow};
use isolane_common_quantities::units::Bytes;
use isolane_common_toml_input::quantity;
use isolane_rdma_scenario::model::Host;
use isolane_rdma_traffic::coordinator::{CoordinatorError, Link, coordinate};
use isolane_rdma_traffic::engine::{Outcome, Overrides, serve};
use isolane_rdma_traffic::summary::Summary;
use isolane_rdma_traffic::tcp;
use isolane_rdma_traffic::worker::{FailureKind, Plan, Progress};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufReader, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the help of the command ends with.
const EXIT_CODES: &str = "\
Exit codes:
  0    done, without an error, and every checked byte was right
  1    the peer disappeared, requests failed, or bytes were wrong
  2    wrong usage, or options that contradict each other
  3    this machine or the server has no such device, no libibverbs, or no permission
  130  interrupted; what was measured is printed";

/// Arguments of `isolane rdma traffic`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    /// Run as a worker of a coordinator, with JSON lines on stdin and stdout
    #[arg(long)]
    worker: bool,
    #[command(subcommand)]
    role: Option<Role>,
}

/// Who is at the other end.
#[derive(Debug, clap::Subcommand)]
enum Role {
    /// Answer clients: the other end of their traffic, on this machine's device
    Server(Server),
    /// Make traffic to a server, and print what both ends measured
    Client(Client),
    /// Make traffic between two devices of this machine, or over one (loopback)
    Local(Local),
}

#[derive(Debug, clap::Args)]
struct Server {
    /// RDMA device, like mlx5_0
    #[arg(long, short)]
    device: String,
    /// Port of the device
    #[arg(long, default_value_t = 1, value_name = "N")]
    ib_port: u8,
    /// Index in the GID table; without it the client's choice, or RoCE v2 over IPv4
    #[arg(long, value_name = "N")]
    gid_index: Option<u32>,
    /// TCP port to listen on
    #[arg(long, short, default_value_t = tcp::PORT)]
    port: u16,
    /// Address to listen on; any peer that can connect can make this machine send
    #[arg(long, default_value = "::", value_name = "ADDRESS")]
    bind: String,
    /// Reject clients that need more memory
    #[arg(long, default_value = "8GiB", value_name = "SIZE", value_parser = quantity::size)]
    memory_max: Bytes,
    /// Answer one client, then end with its status
    #[arg(long)]
    once: bool,
}

#[derive(Debug, clap::Args)]
struct Client {
    /// Where the server is
    host: String,
    /// TCP port of the server
    #[arg(long, short, default_value_t = tcp::PORT)]
    port: u16,
    #[command(flatten)]
    traffic: Traffic,
    /// Print JSON: both ends' figures in one document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Local {
    /// Device of the other end; --device itself unless given
    #[arg(long, value_name = "DEVICE")]
    peer_device: Option<String>,
    #[command(flatten)]
    traffic: Traffic,
    /// Print JSON: both ends' figures in one document
    #[arg(long)]
    json: bool,
}

/// The device, the library or a permission is missing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Machine(String);

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    match (&arguments.role, arguments.worker) {
        (None, true) => worker(),
        (None, false) => Err(bad(
            "isolane rdma traffic needs server, client, local or --worker (`isolane rdma traffic --help` says more)",
        )),
        (Some(Role::Server(server)), _) => self::server(server),
        (Some(Role::Client(client)), _) => {
            let plan = client.traffic.plan("server")?;
            let mut links = BTreeMap::new();
            links.insert(Host::A, inside("this end")?);
            if plan.jobs.contains_key(&Host::B) {
                let link = tcp::dial(&client.host, client.port).with_context(|| {
                    let (host, port) = (&client.host, client.port);
                    format!(
                        "cannot reach a server at {host} port {port}: start one there with \
                         `isolane rdma traffic server --device DEVICE --port {port}`"
                    )
                })?;
                links.insert(Host::B, link);
            }
            measure(&plan, links, client.json)
        }
        (Some(Role::Local(local)), _) => {
            let other = local.peer_device.as_ref().unwrap_or(&local.traffic.device);
            let plan = local.traffic.plan(other)?;
            let mut links = BTreeMap::new();
            for host in plan.jobs.keys() {
                links.insert(*host, inside(&format!("end {}", host.letter()))?);
            }
            measure(&plan, links, local.json)
        }
    }
}

fn inside(name: &str) -> Result<Link> {
    tcp::inside(name).context("cannot make a pipe")
}

fn worker() -> Result<Status> {
    let reader = BufReader::new(std::io::stdin());
    Ok(status_of(&serve(
        reader,
        &mut std::io::stdout(),
        &Overrides::default(),
    )))
}

fn status_of(outcome: &Outcome) -> Status {
    match outcome {
        Outcome::Done => Status::Done,
        Outcome::Abandoned => Status::No,
        Outcome::Failed(failure) => {
            output::note(&format!("isolane: {}", failure.message));
            match failure.kind {
                FailureKind::Job => Status::Exit(2),
                FailureKind::Machine => Status::Machine,
                FailureKind::Traffic => Status::No,
            }
        }
    }
}

fn server(server: &Server) -> Result<Status> {
    let overrides = Overrides {
        device: Some(server.device.clone()),
        port: Some(server.ib_port),
        gid_index: server.gid_index,
        memory_max: Some(server.memory_max.get()),
    };
    isolane_rdma_traffic::engine::probe(&server.device, server.ib_port).map_err(|failure| {
        match failure.kind {
            FailureKind::Machine => anyhow!(Machine(failure.message)),
            _ => bad(failure.message),
        }
    })?;
    let listener = tcp::listen(&server.bind, server.port)
        .with_context(|| format!("cannot listen on {} port {}", server.bind, server.port))?;
    output::note(&format!(
        "serving {} on {} port {}",
        server.device, server.bind, server.port
    ));
    if server.once {
        let served = tcp::serve_one(&listener, &overrides);
        return Ok(status_of(&served.context("cannot serve a client")?));
    }
    tcp::serve_clients(&listener, &overrides, output::note);
    Ok(Status::Done)
}

fn measure(plan: &Plan, mut links: BTreeMap<Host, Link>, json: bool) -> Result<Status> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(INTERRUPTED));
        }
    })
    .context("cannot catch Ctrl-C")?;
    let watched = std::io::stderr().is_terminal();
    let mut progress = |host: Host, sign: &Progress| {
        if watched && host == Host::A {
            let seconds = sign.elapsed_ns as f64 / 1e9;
            let rate = if seconds > 0.0 {
                sign.bytes as f64 * 8e-9 / seconds
            } else {
                0.0
            };
            output::note(&format!(
                "{seconds:6.1} s  {} messages  {rate:.3} Gb/s",
                sign.messages
            ));
        }
    };
    let reports = match coordinate(plan, &mut links, &interrupted, &mut progress) {
        Ok(reports) => reports,
        Err(error) => return failed(&error),
    };
    let summary = Summary::of(plan, reports);
    match json {
        true => output::print_json(&summary)?,
        false => output::print(&text(plan, &summary))?,
    }
    Ok(
        match (interrupted.load(Ordering::Relaxed), summary.sound()) {
            (true, _) => Status::Interrupted,
            (false, true) => Status::Done,
            (false, false) => Status::No,
        },
    )
}

fn failed(error: &CoordinatorError) -> Result<Status> {
    match error.kind() {
        None => Ok(Status::Interrupted),
        Some(FailureKind::Job) => Err(bad(error.to_string())),
        Some(FailureKind::Machine) => Err(anyhow!(Machine(error.to_string()))),
        Some(FailureKind::Traffic) => {
            output::note(&format!("isolane: {error}"));
            Ok(Status::No)
        }
    }
}

fn text(plan: &Plan, summary: &Summary) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<16} {value}");
    };
    for (host, job) in &plan.jobs {
        line(
            &format!("end {}", host.letter()),
            format!("device {}", job.device),
        );
    }
    let unsteady = if summary.steady {
        ""
    } else {
        ", the rate was not steady"
    };
    line("measured", format!("{:.3} s{unsteady}", summary.measured_s));
    let data = summary.control_verbs_per_s == 0.0 && summary.faults_per_s == 0.0;
    if data {
        line("goodput", format!("{:.4} Gb/s", summary.goodput_gbps));
        line("messages", format!("{:.1} /s", summary.messages_per_s));
    }
    if summary.control_verbs_per_s > 0.0 {
        line(
            "control verbs",
            format!("{:.1} /s", summary.control_verbs_per_s),
        );
    }
    if summary.faults_per_s > 0.0 {
        line("wanted failures", format!("{:.1} /s", summary.faults_per_s));
    }
    if let Some(latency) = &summary.latency_us {
        line(
            "latency",
            format!(
                "p50 {:.1}  p99 {:.1}  p99.9 {:.1}  max {:.1} us  ({} samples)",
                latency.p50, latency.p99, latency.p999, latency.max, latency.samples
            ),
        );
    }
    if summary.lost_messages > 0 {
        line("lost", format!("{} messages", summary.lost_messages));
    }
    if summary.checked_bytes > 0 {
        line(
            "checked",
            format!(
                "{} bytes, {} wrong",
                summary.checked_bytes, summary.wrong_bytes
            ),
        );
    }
    for (name, count) in &summary.errors {
        line("error", format!("{name} ({count} times)"));
    }
    text
}
