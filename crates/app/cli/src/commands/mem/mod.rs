//! `isolane mem`: applications that share tiered memory keep their objectives.
//!
//! One file for each question; everything that decides lives in `isolane-memory-service` and below, most of it in the service that
//! `isolaned --mem` runs.

mod bench;
mod demonstration;
mod describe;
mod doctor;
mod extender;
mod measure;
mod measure_machine;
mod plan;
mod remove;
mod run;
mod status;
mod submit;
mod top;
mod view;

use crate::file_kind::{FileKind, Wanted};
use crate::output;
use crate::status::{BadInput, Status};
use anyhow::Result;
use isolane_memory_service::protocol::client::Client;
use isolane_memory_service::protocol::{
    Answer, FailureCode, Refused, RefusedCode, Request, SOCKET_PATH,
};
use std::path::PathBuf;
use std::time::Duration;

/// What the help of the command ends with.
const AFTER: &str = "\
Exit codes:
  0    done
  1    the answer is no: too little memory or bandwidth; plan: an objective would be missed
  2    a mistake: no such application, a value out of range, a name or priority in use
  3    the machine cannot: no service, no tiers, no privilege, an objective beyond the hardware
  130  interrupted";

/// What a file describes.
const APPLICATION: Wanted = Wanted {
    kind: |kind| matches!(kind, FileKind::Application),
    words: "one application (TOML with name, priority, slo_latency or slo_bandwidth, docs/guides/mem.md)",
};

#[derive(Debug, clap::Subcommand)]
#[command(after_help = AFTER)]
pub(crate) enum Arguments {
    /// Show how programs here slow each other's memory accesses, and how Mercury ends it; 30 seconds, no root
    Try(demonstration::Arguments),
    /// Run a command as an application with an objective
    Run(Box<run::Arguments>),
    /// Control an application that a file describes, or a pod
    Submit(submit::Arguments),
    /// Remove the limits of an application, which continues to run
    Remove(remove::Arguments),
    /// Show applications, objectives, memory, limits, and why limits changed
    Status(status::Arguments),
    /// Show the view of `status` again and again
    Top(top::Arguments),
    /// Say whether this machine can run an application, and what other applications would lose
    Plan(plan::Arguments),
    /// Find the least near memory and processor time with which a command alone meets its objective
    Measure(Box<measure::Arguments>),
    /// Find the bandwidth and the rate of hint faults above which applications slow each other
    MeasureMachine(measure_machine::Arguments),
    /// Measure latency and bandwidth of this machine's memory
    Bench(bench::Arguments),
    /// Report to the Kubernetes scheduler which machines suit an application
    Extender(extender::Arguments),
    /// Say what this kernel can enforce and measure, what is missing, and how to get it
    Doctor(doctor::Arguments),
}

/// Where the service is.
#[derive(Debug, clap::Args)]
struct Place {
    /// Socket of the memory service
    #[arg(long, value_name = "PATH", env = "ISOLANE_MEM_SOCKET", default_value = SOCKET_PATH)]
    socket: PathBuf,
}

/// Number of retries, and the pause between them, while a service has no answer yet: five seconds in all.
const BUSY_TRIES: u32 = 25;
const BUSY_PAUSE: Duration = Duration::from_millis(200);

impl Place {
    fn connect(&self) -> Result<Client> {
        Ok(Client::connect(&self.socket)?)
    }

    /// One request, with retries while the service replies that it has no answer yet.
    fn ask(&self, request: &Request) -> Result<Answer> {
        let mut client = self.connect()?;
        let mut tries = BUSY_TRIES;
        loop {
            match client.ask(request)? {
                Answer::Failed(failure) if failure.code == FailureCode::Busy && tries > 0 => {
                    tries -= 1;
                    std::thread::sleep(BUSY_PAUSE);
                }
                said => return answer(said),
            }
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    match arguments {
        Arguments::Try(arguments) => demonstration::run(arguments),
        Arguments::Run(arguments) => run::run(arguments),
        Arguments::Submit(arguments) => submit::run(arguments),
        Arguments::Remove(arguments) => remove::run(arguments),
        Arguments::Status(arguments) => status::run(arguments),
        Arguments::Top(arguments) => top::run(arguments),
        Arguments::Plan(arguments) => plan::run(arguments),
        Arguments::Measure(arguments) => measure::run(arguments),
        Arguments::MeasureMachine(arguments) => measure_machine::run(arguments),
        Arguments::Bench(arguments) => bench::run(arguments),
        Arguments::Extender(arguments) => extender::run(arguments),
        Arguments::Doctor(arguments) => doctor::run(arguments),
    }
}

fn answer(answer: Answer) -> Result<Answer> {
    match answer {
        Answer::Failed(failure) => Err(match failure.code {
            FailureCode::BadInput | FailureCode::NotFound => BadInput(failure.message).into(),
            FailureCode::NoRequest
            | FailureCode::Version
            | FailureCode::Machine
            | FailureCode::Busy
            | FailureCode::NoAuthority => failure.into(),
        }),
        answer => Ok(answer),
    }
}

/// An answer to another question: the service is not ours.
fn unexpected(answer: &Answer) -> anyhow::Error {
    anyhow::anyhow!("the service answers another question ({answer:?}); are both of one release?")
}

/// Says why not, and how the command ends.
fn refused(refused: &Refused) -> Result<Status> {
    if refused.code.is_bad_input() {
        return Err(BadInput(refused.message.clone()).into());
    }
    output::note(&format!("isolane mem: {}", refused.message));
    Ok(match refused.code {
        RefusedCode::Exhausted => Status::No,
        _ => Status::Machine,
    })
}
