//! What programs and the service say to each other: lines of JSON over a Unix socket.
//!
//! Problem: a client of the socket may be old, broken or hostile, and must not disturb the control loop. Method: one
//! request, one answer, one line each; every line has the version of its form. A request is at most [`REQUEST_MAX`]
//! bytes, is parsed into types that reject unknown keys, and its application is checked by the rules of
//! [`crate::application`] again. The socket's mode decides who may connect; the kernel names the client process. A change
//! must come from a process in the service's user namespace and PID namespace: a container that sees the socket may only
//! look. Units: end the names. Limits: requests on one connection are answered in turn.
//!
//! * [`mod@line`] - bytes to lines, within bounds; [`client`] - the asking side; [`status`] - what is shown.

pub mod client;
pub mod line;
pub mod status;

use crate::application::pod::Place;
use crate::application::{Application, Slo};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use status::Status;

/// Version of the lines' form.
pub const VERSION: u32 = 2;
/// Longest request, bytes: an application with everything said is a hundredth of it.
pub const REQUEST_MAX: usize = 64 << 10;
/// Longest answer, bytes: the status of a full service is a tenth of it.
pub const ANSWER_MAX: usize = 16 << 20;
/// Where the service listens.
pub const SOCKET_PATH: &str = "/run/isolane/mem.sock";

/// The request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// What the service sees and does.
    Status,
    /// Take an application under control.
    Submit(Submission),
    /// Let an application go; it keeps running.
    Remove(Name),
    /// What would happen if an application were submitted; nothing changes.
    Plan(Plan),
    /// The figures as OpenMetrics families.
    Metrics,
}

/// An application and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// What it is.
    pub application: Application,
    /// Where its processes are.
    pub place: Place,
}

/// An application by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Name {
    /// Its name.
    pub name: String,
}

/// An application that may come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What it is.
    pub application: Application,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// To [`Request::Submit`]: it is under control.
    Admitted(Admission),
    /// To [`Request::Submit`]: it may not run, and why.
    Refused(Refused),
    /// To [`Request::Remove`].
    Removed(Name),
    /// To [`Request::Plan`].
    Planned(Planned),
    /// To [`Request::Metrics`].
    Metrics(Metrics),
    /// The request failed.
    Failed(Failure),
}

/// Figures for a scraper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// OpenMetrics families, without the end mark.
    pub text: String,
}

/// How an application was taken in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u32,
    /// Its cgroup, a path below the cgroup root.
    pub cgroup: String,
    /// What its objective lacks; absent where it is expected to be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<Lacks>,
    /// What it may use at first.
    pub limits: Limits,
    /// Who gives something up for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub yields: Vec<Yield>,
}

/// What an application lacks for its objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lacks {
    /// Near memory.
    pub local_bytes: u64,
    /// Bandwidth.
    pub bandwidth_bytes_per_s: u64,
}

/// What an application may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Of each tier, nearest first; none is no limit.
    pub tier_bytes: Vec<Option<u64>>,
    /// Processor time, thousandths of its cores.
    pub cpu_per_mille: u32,
}

/// A change for another application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Yield {
    /// Whose.
    pub name: String,
    /// What it may use now.
    pub before: Limits,
    /// What it may use then.
    pub after: Limits,
    /// Why.
    pub reason: String,
    /// Whether its own objective is expected to hold then; absent where this is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo_kept: Option<bool>,
}

/// Why an application may not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// For programs.
    pub code: RefusedCode,
    /// For people: object, value, remedy.
    pub message: String,
    /// The best that this machine can do, where the objective is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<Slo>,
}

/// Why an application may not run, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusedCode {
    /// The objective cannot be kept here, not even alone.
    Inadmissible,
    /// Another application has the priority.
    DuplicatePriority,
    /// Another application has the name, or the application is admitted already.
    Duplicate,
    /// It needs more memory than there is.
    TooLarge,
    /// Others have what it needs, and no application yields under this policy.
    Exhausted,
    /// The service controls as many as it can.
    Full,
}

impl RefusedCode {
    /// True for an invalid request, as opposed to a negative answer.
    pub fn is_bad_input(self) -> bool {
        matches!(self, Self::DuplicatePriority | Self::Duplicate)
    }
}

/// What would happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// Whether the application could run with its objective kept.
    pub kept: bool,
    /// Why it could not run at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refused>,
    /// What its objective would lack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<Lacks>,
    /// What it could use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// Who would give something up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub yields: Vec<Yield>,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// For programs.
    pub code: FailureCode,
    /// For people: object, value, remedy.
    pub message: String,
}

/// Why a request failed, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCode {
    /// The request is wrong.
    BadInput,
    /// The line is too long or no request.
    NoRequest,
    /// The line's form is another version's.
    Version,
    /// There is no such application.
    NotFound,
    /// The machine did not do it.
    Machine,
    /// Not now: ask again in a moment.
    Busy,
    /// The process may not change what this machine does.
    NoAuthority,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

/// A line's form.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<T> {
    version: u32,
    say: T,
}

/// The part of every line that never changes.
#[derive(Debug, Deserialize)]
struct Head {
    version: u32,
}

/// `say` as a line with its end.
pub fn encode<T: Serialize>(say: &T) -> Vec<u8> {
    let envelope = Envelope {
        version: VERSION,
        say,
    };
    let mut line = serde_json::to_vec(&envelope).expect("what is said is plain data");
    line.push(b'\n');
    line
}

/// What a line, without its end, says. Fails for another line, or one of another version.
pub fn decode<T: DeserializeOwned>(line: &[u8]) -> Result<T, Failure> {
    let not = |error: serde_json::Error| {
        Failure::new(
            FailureCode::NoRequest,
            format!("the line is not of this protocol: {error}"),
        )
    };
    let head: Head = serde_json::from_slice(line).map_err(not)?;
    if head.version != VERSION {
        let message = format!(
            "the line has form {}, not {VERSION}: use programs of one release",
            head.version
        );
        return Err(Failure::new(FailureCode::Version, message));
    }
    let envelope: Envelope<T> = serde_json::from_slice(line).map_err(not)?;
    Ok(envelope.say)
}

impl Request {
    /// Whether it changes what the service does.
    pub fn is_change(&self) -> bool {
        match self {
            Self::Submit(_) | Self::Remove(_) => true,
            Self::Status | Self::Plan(_) | Self::Metrics => false,
        }
    }

    /// A request from a line, held to the rules. Fails for text that is no request, one of another version, or one with
    /// an invalid application.
    pub fn read(line: &[u8]) -> Result<Self, Failure> {
        let request: Self = decode(line)?;
        let bad = |error: crate::application::ApplicationError| {
            Failure::new(FailureCode::BadInput, error.to_string())
        };
        match &request {
            Self::Submit(submission) => {
                submission.application.check().map_err(bad)?;
                submission.place.check().map_err(bad)?;
            }
            Self::Plan(plan) => plan.application.check().map_err(bad)?,
            Self::Remove(name) => crate::application::check_name(&name.name).map_err(bad)?,
            Self::Status | Self::Metrics => {}
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests;
