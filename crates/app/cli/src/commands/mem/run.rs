//! `isolane mem run`: a command as an application with an objective.
//!
//! Method: the service puts this process into a cgroup with limits, and only then the command takes its place, so that
//! its exit status, signals and process id are its own and everything it starts is limited with it.

use super::describe::Options;
use super::{Place, refused, unexpected, view};
use crate::commands::rdma::run::program;
use crate::output;
use crate::status::Status;
use anyhow::Result;
use isolane_memory_service::application::pod;
use isolane_memory_service::protocol::{Admission, Answer, Request, Submission};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Arguments of `isolane mem run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    options: Options,
    /// Do not run a command that is expected to miss its objective (exit code 1)
    #[arg(long)]
    require: bool,
    /// Print the request without sending it, and exit
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: print JSON
    #[arg(long, requires = "dry_run")]
    json: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

pub(super) fn run(arguments: &Arguments) -> Result<Status> {
    let (file, name) = match program::named("mem run", &arguments.command) {
        Ok(program) => program,
        Err(status) => return Ok(status),
    };
    let submission = Submission {
        application: arguments.options.application(&name)?,
        place: pod::Place::Caller,
    };
    if arguments.dry_run {
        match arguments.json {
            true => output::print_json(&submission)?,
            false => output::print(&view::submission(&submission))?,
        }
        return Ok(Status::Done);
    }
    match enter(&arguments.place, submission, arguments.require)? {
        Entered::In(admission) => output::note(&view::admission(&admission)),
        Entered::Not(status) => return Ok(status),
    }
    let mut process = Command::new(&file);
    process
        .arg0(&arguments.command[0])
        .args(&arguments.command[1..]);
    Ok(program::replace_by("mem run", &file, process))
}

/// Whether this process was taken in.
pub(super) enum Entered {
    /// It was.
    In(Box<Admission>),
    /// It was not, which was said: how the command ends.
    Not(Status),
}

/// Has this process taken in; with `require` only where its objective is expected to be kept.
pub(super) fn enter(place: &Place, submission: Submission, require: bool) -> Result<Entered> {
    let name = submission.application.name.clone();
    if require && let Some(lacks) = would_lack(place, &submission)? {
        output::note(&format!(
            "isolane mem: {name} is not started because of --require: {lacks}"
        ));
        return Ok(Entered::Not(Status::No));
    }
    match place.ask(&Request::Submit(submission))? {
        Answer::Admitted(admission) => Ok(Entered::In(Box::new(admission))),
        Answer::Refused(reason) => refused(&reason).map(Entered::Not),
        answer => Err(unexpected(&answer)),
    }
}

/// What its objective would lack.
fn would_lack(place: &Place, submission: &Submission) -> Result<Option<String>> {
    let plan = isolane_memory_service::protocol::Plan {
        application: submission.application.clone(),
    };
    match place.ask(&Request::Plan(plan))? {
        Answer::Planned(plan) => Ok(plan.lacks.map(|lacks| view::lacks(&lacks))),
        answer => Err(unexpected(&answer)),
    }
}
