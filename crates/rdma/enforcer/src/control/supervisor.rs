//! The thread that delays control verbs: its public handle.
//!
//! Problem: every verbs call of every tenant on the machine waits for an answer. A call above its tenant's rate has to
//! wait longer and must not delay other calls. Method: one thread, one epoll set, one timer. The thread never sleeps
//! for a single call: a call that has to wait enters a queue sorted by time ([`super::waiting`]).
//!
//! All processes and containers of a tenant share its limits. At most [`WAITING_MAX`] calls of a tenant wait here;
//! further calls stay in the kernel, where they wait as well.
//!
//! Dropping a [`Supervisor`] resumes every waiting call and closes the listeners. The kernel then fails trapped calls
//! with ENOSYS unless another process holds the listener (see [`crate::guardian`]).
//!
//! Units: nanoseconds of CLOCK_MONOTONIC, calls. Source: harmonic 5.5.2.

use super::pace::Limits;
use super::supervise::{Command, Loop};
use crate::guardian::table::Table;
use crate::seccomp::call::Verb;
use crate::seccomp::notify::Listener;
use rustix::event::{EventfdFlags, eventfd};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Largest number of waiting calls per tenant. Each call is one thread of the tenant.
pub const WAITING_MAX: usize = 4_096;

/// A supervised tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenant {
    /// Name for reports.
    pub name: String,
    /// Limits. Without any limit, calls are only counted.
    pub limits: Limits,
}

/// What happens to a call above the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The call waits.
    Enforce,
    /// The call goes on at once and is counted.
    Shadow,
}

/// Counters of one tenant's calls since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Calls {
    /// Name of the tenant.
    pub tenant: String,
    /// Calls trapped.
    pub trapped: u64,
    /// Calls that went on.
    pub resumed: u64,
    /// Calls above the rate: they waited, or would have.
    pub delayed: u64,
    /// Sum of all imposed delays, ns.
    pub delay_ns: u64,
    /// Calls whose thread ended or was interrupted before they continued.
    pub gone: u64,
    /// Calls that wait at this moment.
    pub waiting: u64,
    /// Listeners at this moment: one per process tree or container.
    pub listeners: u64,
    /// Listeners dropped because another process took their calls.
    pub shed: u64,
    /// Calls by verb.
    pub verbs: BTreeMap<Verb, u64>,
}

/// The owner's handle. Tenants and listeners are numbered by place.
#[derive(Debug)]
pub struct Supervisor {
    commands: Sender<Command>,
    wake: Arc<OwnedFd>,
    thread: Mutex<Option<JoinHandle<()>>>,
    shed: Arc<Mutex<Vec<usize>>>,
}

impl Supervisor {
    /// Starts the thread. It records received calls in `table` for the next supervisor. Fails if the kernel has no
    /// thread or descriptor left.
    pub fn start(tenants: Vec<Tenant>, mode: Mode, table: Option<Table>) -> io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (commands, receiver) = channel();
        let shed = Arc::new(Mutex::new(Vec::new()));
        let (waker, sheds) = (Arc::clone(&wake), Arc::clone(&shed));
        let mut events = Loop::new(tenants, mode, table, waker, receiver, sheds)?;
        let thread = std::thread::Builder::new()
            .name("isolane-verbs".to_owned())
            .spawn(move || events.run())?;
        Ok(Self {
            commands,
            wake,
            thread: Mutex::new(Some(thread)),
            shed,
        })
    }

    /// Supervises the calls of `listener` for the tenant at place `tenant`; `slot` is the listener's row in the table.
    /// The thread panics if the tenant does not exist.
    pub fn watch(&self, listener: Listener, tenant: usize, slot: Option<usize>) {
        self.send(Command::Watch {
            listener,
            tenant,
            slot,
        });
    }

    /// Counters of all tenants by place; empty when the thread has ended.
    pub fn calls(&self) -> Vec<Calls> {
        let (sender, receiver) = channel();
        self.send(Command::Report(sender));
        receiver.recv().unwrap_or_default()
    }

    /// Returns and clears the slots of listeners that were dropped because another process took their calls.
    pub fn take_shed(&self) -> Vec<usize> {
        let mut shed = self.shed.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *shed)
    }

    /// Resumes every waiting call, closes the listeners and ends the thread. Later orders have no effect.
    pub fn stop(&self) {
        self.send(Command::Stop);
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            let _ = thread.join();
        }
    }

    fn send(&self, command: Command) {
        // The thread ends only with this handle, or by a panic that `drop` reports.
        let _ = self.commands.send(command);
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.stop();
    }
}
