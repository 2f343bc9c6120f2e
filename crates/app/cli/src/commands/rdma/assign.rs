//! `isolane rdma assign`: gives the processes of one workload a tenant, a class and a weight while the workload runs.
//!
//! For schedulers: a prolog writes an assignment, an epilog ends it. The daemon applies both within a second.

use crate::inputs::bad;
use crate::output;
use crate::status::Status;
use crate::text::{Table, fitted};
use anyhow::Result;
use isolane_rdma_session::message::{Class, WEIGHT_MAX};
use isolaned::assignments::{self, AssignError};
use isolaned::config::{Assignment, Members};
use serde::Serialize;
use std::path::PathBuf;

/// What the help of the command ends with.
const AFTER: &str = "\
The daemon applies an assignment within a second, before the rules of its file, also to processes that run already.

Exit codes:
  0  done; ending an assignment that is not there is no error
  2  wrong usage
  3  the directory cannot be written: the daemon has not run here, or the user is not root";

/// Arguments of `isolane rdma assign`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// Name of the assignment, like slurm-42
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// Pattern of the cgroup's path below the mount: * for any characters without /, ** at the end for all below
    #[arg(long, value_name = "PATTERN", required_unless_present_any = ["pod", "end", "list"])]
    cgroup: Option<String>,
    /// Instead of a cgroup: UID of a Kubernetes pod
    #[arg(long, value_name = "UID", conflicts_with = "cgroup")]
    pod: Option<String>,
    /// Tenant of the workload's processes
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Class of the workload's processes
    #[arg(long, value_name = "CLASS", value_parser = ["latency", "throughput", "bandwidth", "auto"])]
    class: Option<String>,
    /// Weight of the tenant
    #[arg(long, value_name = "N", requires = "tenant", value_parser = crate::numbers::whole::<u32>(1..=u64::from(WEIGHT_MAX)))]
    weight: Option<u32>,
    /// End the assignment by itself once this path is gone, like the cgroup's directory
    #[arg(long, value_name = "PATH")]
    lasts_while: Option<PathBuf>,
    /// End the assignment
    #[arg(long, conflicts_with_all = ["cgroup", "pod", "tenant", "class", "weight", "lasts_while"])]
    end: bool,
    /// List the assignments
    #[arg(long, conflicts_with_all = ["name", "cgroup", "pod", "tenant", "class", "weight", "lasts_while", "end"])]
    list: bool,
    /// With --list: print JSON
    #[arg(long, requires = "list")]
    json: bool,
    /// Directory that the daemon reads
    #[arg(long, value_name = "DIRECTORY", default_value = assignments::FOLDER)]
    folder: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    if arguments.list {
        return list(arguments);
    }
    let name = arguments.name.as_deref().expect("clap requires it here");
    if arguments.end {
        assignments::end(&arguments.folder, name).map_err(explained)?;
        return Ok(Status::Done);
    }
    let class = arguments.class.as_deref();
    let assignment = Assignment {
        members: match (&arguments.cgroup, &arguments.pod) {
            (_, Some(identifier)) => Members::Pod(identifier.clone()),
            (pattern, None) => Members::Cgroup(pattern.clone().expect("clap requires one of them")),
        },
        tenant: arguments.tenant.clone(),
        class: class.map(|class| Class::from_name(class).expect("clap has the class's own names")),
        weight: arguments.weight,
        lasts_while: arguments.lasts_while.clone(),
    };
    assignment
        .write(&arguments.folder, name)
        .map_err(explained)?;
    Ok(Status::Done)
}

/// The error, with wrong usage marked as such.
pub(super) fn explained(error: AssignError) -> anyhow::Error {
    match error {
        AssignError::Name(_) | AssignError::Input(_) => bad(error.to_string()),
        AssignError::Write { .. } => error.into(),
    }
}

/// One assignment in JSON.
#[derive(Debug, Serialize)]
pub(super) struct Listed {
    name: String,
    cgroup: Option<String>,
    pod: Option<String>,
    tenant: Option<String>,
    class: Option<&'static str>,
    weight: Option<u32>,
    lasts_while: Option<PathBuf>,
}

impl Listed {
    pub(super) fn of(name: &str, assignment: &Assignment) -> Self {
        Self {
            name: name.to_owned(),
            cgroup: assignment.members.cgroup().map(str::to_owned),
            pod: assignment.members.pod().map(str::to_owned),
            tenant: assignment.tenant.clone(),
            class: assignment.class.map(Class::name),
            weight: assignment.weight,
            lasts_while: assignment.lasts_while.clone(),
        }
    }
}

pub(super) fn table(listed: &[Listed]) -> String {
    let dash = || "-".to_owned();
    let mut table = Table::new(
        "lllrl",
        &["assignment", "tenant", "class", "weight", "processes"],
    );
    for one in listed {
        table.row(vec![
            one.name.clone(),
            one.tenant.clone().unwrap_or_else(dash),
            one.class.map_or_else(dash, str::to_owned),
            one.weight.map_or_else(dash, |weight| weight.to_string()),
            match (&one.cgroup, &one.pod) {
                (Some(pattern), _) => pattern.clone(),
                (None, pod) => format!("pod {}", pod.as_deref().unwrap_or_default()),
            },
        ]);
    }
    fitted(&table)
}

fn list(arguments: &Arguments) -> Result<Status> {
    let mut listed = Vec::new();
    for name in assignments::names(&arguments.folder) {
        match assignments::read(&arguments.folder, &name) {
            Some(Ok(assignment)) => listed.push(Listed::of(&name, &assignment)),
            Some(Err(reason)) => output::note(&format!("isolane: left out: {reason}")),
            None => {}
        }
    }
    match arguments.json {
        true => output::print_json(&listed)?,
        false => output::print(&table(&listed))?,
    }
    Ok(Status::Done)
}
