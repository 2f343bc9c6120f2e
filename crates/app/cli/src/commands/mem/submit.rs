//! `isolane mem submit`: an application of a file, or a pod, under control.
//!
//! Method: a file that names a cgroup, a pod or a container describes running processes. A file with a command starts
//! the command: a second process of this program requests admission for itself, as `isolane mem run` does, and becomes
//! the command, in a session of its own. The first process waits until the second one is admitted, and prints its
//! number.

use super::run::{Entered, enter};
use super::{APPLICATION, Place, refused, unexpected, view};
use crate::file_kind::{FileKind, Wanted};
use crate::inputs;
use crate::output;
use crate::status::{BadInput, Status};
use anyhow::{Context, Result};
use isolane_memory_service::application::{self, pod};
use isolane_memory_service::protocol::{Answer, Request, Submission};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Arguments of `isolane mem submit`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// The application's file (TOML), or with --pod a pod as `kubectl get pod NAME -o json` prints it; - is stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The file is a pod with annotations isolane.dev/...
    #[arg(long)]
    pod: bool,
    /// Do not start a command that is expected to miss its objective (exit code 1)
    #[arg(long)]
    require: bool,
    /// Read the file, print the request without sending it, and exit
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Be the process that becomes the command.
    #[arg(long, hide = true)]
    become_command: bool,
}

/// What `--pod` takes.
const POD: Wanted = Wanted {
    kind: |kind| matches!(kind, FileKind::Json),
    words: "a pod in JSON (`kubectl get pod NAME -o json`)",
};

pub(super) fn run(arguments: &Arguments) -> Result<Status> {
    let wanted = match arguments.pod {
        true => &POD,
        false => &APPLICATION,
    };
    let (text, name) = inputs::document_text(&arguments.file, wanted)?;
    let (submission, command) = match arguments.pod {
        true => {
            let (application, place) =
                pod::parse(&text).map_err(|error| BadInput(format!("{name}: {error}")))?;
            (Submission { application, place }, Vec::new())
        }
        false => {
            let file = application::parse(&text, &name)?;
            let submission = Submission {
                application: file.application,
                place: file.place,
            };
            (submission, file.command)
        }
    };
    let is_placeless = submission.place == pod::Place::Caller && command.is_empty();
    if is_placeless {
        let what =
            "say where the application is (cgroup, pod or container), or what starts it (command)";
        return Err(BadInput(format!("{name}: {what}")).into());
    }
    if arguments.require && command.is_empty() {
        let what = "--require is for files with a command: what runs already is not started";
        return Err(BadInput(format!("{name}: {what}")).into());
    }
    if arguments.dry_run {
        match arguments.json {
            true => output::print_json(&submission)?,
            false => output::print(&view::submission(&submission))?,
        }
        return Ok(Status::Done);
    }
    if arguments.become_command {
        return become_command(arguments, submission, &command);
    }
    if !command.is_empty() {
        return start(arguments, &text);
    }
    match arguments.place.ask(&Request::Submit(submission))? {
        Answer::Admitted(admission) if arguments.json => output::print_json(&admission)?,
        Answer::Admitted(admission) => output::print(&(view::admission(&admission) + "\n"))?,
        Answer::Refused(reason) => return refused(&reason),
        answer => return Err(unexpected(&answer)),
    }
    Ok(Status::Done)
}

/// Starts the second process, and waits until it is taken in or not.
fn start(arguments: &Arguments, text: &str) -> Result<Status> {
    // The first request is sent here, so an absent service is reported before anything is started.
    drop(arguments.place.connect()?);
    let own = std::env::current_exe().context("cannot find this program")?;
    let mut second = Command::new(own);
    second
        .args(["mem", "submit", "-", "--become-command", "--socket"])
        .arg(&arguments.place.socket)
        .args(arguments.require.then_some("--require"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .process_group(0);
    let mut second = second
        .spawn()
        .context("cannot start the application's process")?;
    let written = {
        use std::io::Write;
        let mut stdin = second.stdin.take().expect("it is a pipe");
        stdin.write_all(text.as_bytes())
    };
    written.context("the application's process does not read")?;
    let mut said = String::new();
    let heard = second
        .stdout
        .take()
        .expect("it is a pipe")
        .read_to_string(&mut said);
    heard.context("the output of the application's process cannot be read")?;
    match said.trim() {
        "" => {
            let ended = second
                .wait()
                .context("cannot wait for the application's process")?;
            let code = ended.code().and_then(|code| u8::try_from(code).ok());
            Ok(Status::Exit(code.unwrap_or(3)))
        }
        admission if arguments.json => {
            let value: serde_json::Value = serde_json::from_str(admission)
                .context("the application's process says something else")?;
            output::print_json(&value)?;
            Ok(Status::Done)
        }
        admission => {
            let admission = serde_json::from_str(admission)
                .context("the application's process says something else")?;
            output::print(&format!(
                "{}; process {}\n",
                view::admission(&admission),
                second.id()
            ))?;
            Ok(Status::Done)
        }
    }
}

/// Requests admission for this process, prints the answer on stdout, and becomes the command without stdout.
fn become_command(
    arguments: &Arguments,
    submission: Submission,
    command: &[String],
) -> Result<Status> {
    let path = std::env::var_os("PATH");
    let file = crate::commands::rdma::run::program::find(command[0].as_ref(), path.as_deref())
        .map_err(|error| BadInput(format!("command: {error}")))?;
    match enter(&arguments.place, submission, arguments.require)? {
        Entered::In(admission) => output::print(&output::compact_json(&admission)?)?,
        Entered::Not(status) => return Ok(status),
    }
    let error = Command::new(&file)
        .arg0(&command[0])
        .args(&command[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        // A reader that waits for the end of our output would wait for the end of the command.
        .stderr(Stdio::null())
        .exec();
    Err(error).with_context(|| format!("cannot start {}", file.display()))
}
