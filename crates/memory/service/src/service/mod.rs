//! The memory service: the control loop on a real clock, and its socket.
//!
//! Problem: the loop must keep its period with any clients, and a client must get an answer between two periods.
//! Method: one thread waits for the socket, for the stop signal and for the next period, whichever is first. No call of
//! the thread waits for a page to move. A step that comes late is counted, not made up for. Units: picoseconds since
//! the service started. Limits: after [`RENEWAL`] it ends with [`Ended::Renew`], because a clock of picoseconds in 64
//! bits does; the supervisor starts it again, and the journal keeps the applications.
//!
//! * [`mod@settings`] - the operator's file; [`metrics`] - figures for scrapers;
//! * [`machine`] - what it runs on: this machine, or a made-up one to try it ([`fake`]);
//! * `socket` - connections within bounds.

pub mod fake;
pub mod machine;
pub mod metrics;
pub mod settings;
mod socket;

use crate::controller::Controller;
use crate::journal::JournalError;
use crate::protocol::{Answer, Failure, FailureCode, Request, encode};
use isolane_common_quantities::units;
use isolane_common_quantities::units::Instant;
use isolane_memory_policy::mercury::PERIOD;
use socket::{Connections, Wanted};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

pub use socket::{Door, DoorError};

/// The service's clock is restarted after this.
pub const RENEWAL: Duration = Duration::from_secs(150 * 24 * 3600);

/// How a service ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It got the stop signal.
    Stopped,
    /// Its clock must be restarted.
    Renew,
}

/// Why there is no service.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum ServiceError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Door(#[from] DoorError),
    #[error(transparent)]
    Machine(#[from] crate::error::MemError),
    #[error("{0}")]
    Settings(String),
}

impl ServiceError {
    /// Whether the cause is the request, not the machine.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::Settings(_))
    }
}

/// A service that is ready to run.
pub struct Service {
    controller: Controller,
    connections: Connections,
    clock: std::time::Instant,
    is_published: bool,
}

impl Service {
    /// Takes up what an earlier service left, and listens.
    pub fn start(machine: machine::Machine, door: Door) -> Result<Self, ServiceError> {
        let controller = Controller::start(Instant::ZERO, machine.parts, machine.about)?;
        Ok(Self {
            controller,
            connections: Connections::new(door),
            clock: std::time::Instant::now(),
            is_published: false,
        })
    }

    /// Stores metrics after each step for the scrapers of this process: [`metrics::latest`].
    pub fn publish(&mut self) {
        self.is_published = true;
    }

    /// Applications under control.
    pub fn applications(&self) -> usize {
        self.controller.len()
    }

    /// Runs until `stop` is readable.
    pub fn run(mut self, stop: &OwnedFd) -> Ended {
        let mut due = std::time::Instant::now();
        let ended = loop {
            let begun = std::time::Instant::now();
            if begun >= due {
                self.step();
                let is_late = begun.duration_since(due) > period();
                let took = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
                self.controller.timed(took, is_late);
                due = if is_late { begun } else { due } + period();
            }
            if self.clock.elapsed() > RENEWAL {
                break Ended::Renew;
            }
            let left = due.saturating_duration_since(std::time::Instant::now());
            if self.connections.wait(stop, left) {
                break Ended::Stopped;
            }
            let now = self.now();
            let controller = &mut self.controller;
            self.connections.serve(|wanted| match wanted {
                Wanted::Line(line, process, host) => match permitted(&line, host) {
                    Ok(request) => encode(&controller.answer(now, request, process)),
                    Err(failure) => encode(&Answer::Failed(failure)),
                },
                Wanted::Nonsense(reason) => encode(&Answer::Failed(Failure::new(
                    FailureCode::NoRequest,
                    reason,
                ))),
            });
        };
        self.controller.close();
        ended
    }

    fn step(&mut self) {
        let now = self.now();
        self.controller.step(now);
        if self.is_published {
            metrics::publish(metrics::families(&self.controller.status(now)));
        }
    }

    fn now(&self) -> Instant {
        let ns = u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Instant::from_ps(ns.saturating_mul(1_000))
    }
}

/// The request in a line. Fails also for a change by a process that is not of this host, for the reason in `host`.
fn permitted(line: &[u8], host: Result<(), String>) -> Result<Request, Failure> {
    let request = Request::read(line)?;
    match host {
        Err(reason) if request.is_change() => {
            let message = format!("changes are rejected: {reason}");
            Err(Failure::new(FailureCode::NoAuthority, message))
        }
        _ => Ok(request),
    }
}

fn period() -> Duration {
    Duration::from_nanos(PERIOD.as_ps() / units::Duration::from_ns(1).as_ps())
}

/// Everything by the settings: the machine, the journal, the socket.
pub fn open(settings: &settings::Settings) -> Result<Service, ServiceError> {
    let machine = machine::open(settings)?;
    let door = Door::open(&settings.socket, settings.socket_mode)?;
    Service::start(machine, door)
}

/// The settings in a file, or the defaults. Fails with [`ServiceError::Settings`].
pub fn settings(file: Option<&Path>) -> Result<settings::Settings, ServiceError> {
    let Some(file) = file else {
        return Ok(settings::Settings::default());
    };
    let text = std::fs::read_to_string(file).map_err(|error| {
        ServiceError::Settings(format!("cannot read {}: {error}", file.display()))
    })?;
    settings::parse(&text, &file.to_string_lossy())
        .map_err(|error| ServiceError::Settings(error.to_string()))
}

#[cfg(test)]
mod tests;
