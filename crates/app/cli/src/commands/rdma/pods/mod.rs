//! `isolane rdma pods`: assigns tenant, class and weight to the pods of this machine, by their labels.
//!
//! Method: the pods of the machine are listed at the API server every interval. Each pod with a label of `isolane.dev`
//! has an assignment, which the daemon applies; the assignments of other pods end. While the server does not answer,
//! the assignments stay as they are.

mod api;
mod wanted;

use super::assign::{Listed, explained, table};
use crate::file_kind::{FileKind, Wanted as FileWanted};
use crate::inputs;
use crate::output;
use crate::status::Status;
use anyhow::{Context, Result};
use api::Server;
use isolane_rdma_session::message::WEIGHT_MAX;
use isolaned::assignments;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use wanted::{Bounds, PREFIX, Pods, Wanted};

/// What the help of the command ends with.
const AFTER: &str = "\
Labels of a pod: isolane.dev/class (latency, throughput, bandwidth, auto), isolane.dev/weight, isolane.dev/tenant.

Exit codes:
  0    done: --once, or Ctrl-C without it
  2    wrong usage, or --from is not a list of pods
  3    with --once: the API server does not answer, or the directory cannot be written";

/// Arguments of `isolane rdma pods`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// Name of this machine in the cluster
    #[arg(long, value_name = "NODE", env = "NODE_NAME")]
    #[arg(required_unless_present = "from")]
    node: Option<String>,
    /// A namespace whose pods may have the latency class; repeat it, or * for all
    #[arg(long, value_name = "NAMESPACE")]
    latency_namespace: Vec<String>,
    /// Largest weight that a label may give
    #[arg(long, value_name = "N", default_value = "16", value_parser = crate::numbers::whole::<u32>(1..=u64::from(WEIGHT_MAX)))]
    weight_max: u32,
    /// Time between two lists
    #[arg(long, default_value = "5s", value_parser = crate::numbers::interval)]
    interval: Duration,
    /// List the pods once, assign, and end
    #[arg(long)]
    once: bool,
    /// Read the list from a file, as `kubectl get pods -A -o json` prints it; - reads stdin; implies --once
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Print the assignments and write nothing; implies --once
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: print JSON
    #[arg(long, requires = "dry_run")]
    json: bool,
    /// The API server; that of the pod's environment unless given
    #[arg(long, value_name = "HOST:PORT")]
    server: Option<String>,
    /// Directory with the files ca.crt and token of a service account
    #[arg(long, value_name = "DIRECTORY", default_value = api::ACCOUNT)]
    account: PathBuf,
    /// Directory that the daemon reads
    #[arg(long, value_name = "DIRECTORY", default_value = assignments::FOLDER)]
    folder: PathBuf,
}

/// What `--from` takes.
const PODS: FileWanted = FileWanted {
    kind: |kind| matches!(kind, FileKind::Json),
    words: "a list of pods in JSON (`kubectl get pods -o json`)",
};

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let bounds = Bounds {
        latency_namespaces: arguments.latency_namespace.clone(),
        weight_max: arguments.weight_max,
    };
    if let Some(path) = &arguments.from {
        let (text, name) = inputs::document_text(path, &PODS)?;
        let pods = serde_json::from_str(&text).map_err(|error| {
            inputs::bad(format!("{name}: must be a list of pods in JSON: {error}"))
        })?;
        return assign_once(arguments, &Wanted::of(&pods, &bounds));
    }
    let server = match &arguments.server {
        Some(place) => Server::new(place, &arguments.account)?,
        None => Server::of_cluster(&arguments.account)?,
    };
    let node = node(arguments)?;
    if arguments.once || arguments.dry_run {
        return assign_once(arguments, &list(&server, node, &bounds)?);
    }
    let (send, interrupted) = channel();
    ctrlc::set_handler(move || {
        let _ = send.send(());
    })
    .context("cannot catch Ctrl-C")?;
    let mut said = BTreeSet::new();
    loop {
        let done = list(&server, node, &bounds).and_then(|wanted| {
            write(arguments, &wanted)?;
            Ok(wanted.notes)
        });
        // Each line once, while its reason lasts.
        let lines: BTreeSet<String> = match done {
            Ok(notes) => notes.into_iter().collect(),
            Err(error) => BTreeSet::from([format!(
                "{}; the assignments stay",
                output::error_line(&error)
            )]),
        };
        for line in lines.difference(&said) {
            output::note(&format!("isolane: {line}"));
        }
        said = lines;
        match interrupted.recv_timeout(arguments.interval) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return Ok(Status::Done),
        }
    }
}

/// The machine's name. It becomes a part of a request.
fn node(arguments: &Arguments) -> Result<&str> {
    let node = arguments.node.as_deref().expect("clap requires it here");
    let plain = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    match !node.is_empty() && node.chars().all(plain) {
        true => Ok(node),
        false => Err(inputs::bad(format!(
            "--node {node:?}: must have letters, digits, - and . only"
        ))),
    }
}

fn list(server: &Server, node: &str, bounds: &Bounds) -> Result<Wanted> {
    let text = server.pods(node)?;
    let pods: Pods = serde_json::from_str(&text).context("the API server sent no list of pods")?;
    Ok(Wanted::of(&pods, bounds))
}

fn assign_once(arguments: &Arguments, wanted: &Wanted) -> Result<Status> {
    for note in &wanted.notes {
        output::note(&format!("isolane: {note}"));
    }
    if !arguments.dry_run {
        write(arguments, wanted)?;
        return Ok(Status::Done);
    }
    let listed = wanted.assignments.iter();
    let listed: Vec<Listed> = listed
        .map(|(name, assignment)| Listed::of(name, assignment))
        .collect();
    match arguments.json {
        true => output::print_json(&listed)?,
        false => output::print(&table(&listed))?,
    }
    Ok(Status::Done)
}

/// Writes the assignments that differ, and ends those of pods that are gone.
fn write(arguments: &Arguments, wanted: &Wanted) -> Result<()> {
    let folder = &arguments.folder;
    for (name, assignment) in &wanted.assignments {
        let there = assignments::read(folder, name);
        if !matches!(there, Some(Ok(there)) if there == *assignment) {
            assignment.write(folder, name).map_err(explained)?;
        }
    }
    for name in assignments::names(folder) {
        if name.starts_with(PREFIX) && !wanted.assignments.contains_key(&name) {
            assignments::end(folder, &name).map_err(explained)?;
        }
    }
    Ok(())
}
