//! The worker: one tenant's part on one host, as a process that a coordinator steers.
//!
//! Problem: a run needs processes on two machines, under a preload library or not, that agree on queue pairs, begin
//! together and end even if one of them ends early. Method: `isolane rdma traffic --worker` reads one JSON document per
//! line on its standard input and writes one per line on its standard output. The same messages travel over TCP between
//! `isolane rdma traffic client` and `server`.
//!
//! ```text
//! coordinator            worker
//!   job            ->              devices opened, queue pairs and memory made
//!                  <-  prepared    the addresses of each end
//!   connect        ->              the address of each end's peer
//!                  <-  connected   ready: receives are posted
//!   start          ->              traffic begins after the delay it names
//!                  <-  progress    every half second, also as a sign of life
//!                  <-  report      when every end that posts has reached its end of time
//!   stop           ->              passive ends stop; a worker that has not reported does now
//! ```
//!
//! - Anything may be answered by `failed`, after which the worker ends with exit code 3 (no device, no library, no
//!   permission), 2 (a job that cannot be) or 1 (the peer went, the traffic broke).
//! - An *end* is one process of the scenario seen from one host. Ends `2k` and `2k + 1` are the two sides of one
//!   connection ([`peer_of`]); both are on one worker for loopback traffic. Control loops have no peer.
//! - A worker whose every end is passive (it only receives) reports after `stop`. A coordinator therefore waits for
//!   the reports of workers for which [`Job::posts`] holds, then sends `stop` to the others with the window that was
//!   measured, so that both ends count the same time.
//! - When its input closes, a worker stops within a second: no coordinator, no traffic.
//! - A line is at most [`LINE_MAX`] bytes; counts are checked by [`Job::check`] and nothing is allocated before.
//!
//! Units: nanoseconds, bytes, bits per second; the unit ends the name. Times in reports count from the start.
//! Limits: distributed applications of the scenario format are not run on devices.

mod check;
mod job;
mod line;
mod message;
mod plan;

pub use check::{JobError, limits};
pub use job::{
    Arrival, ControlPhase, ControlWork, DataWork, EndJob, FaultWork, Job, Operation, Side, Warmup,
    Work,
};
pub use line::{LINE_MAX, LineError, Lines, write_line};
pub use message::{
    EndAddress, EndReport, Failure, FailureKind, FromWorker, LatencyNs, MemoryAddress, Prepared,
    Progress, QueuePairAddress, Report, Sample, ToWorker, Window,
};
pub use plan::{Options, Plan, PlanError, connect, plan};

/// Version of these messages; a worker rejects a job of another version.
pub const VERSION: u32 = 2;

/// The peer of end `id`.
pub fn peer_of(id: u32) -> u32 {
    id ^ 1
}
