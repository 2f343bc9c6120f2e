//! The thread that holds control verbs back, as its owner sees it.
//!
//! Problem: every verbs call of every tenant on the machine waits for an answer; a call of a tenant above its rate has to
//! wait longer, and no other call may notice. Method: one thread, one epoll set, one timer. It never sleeps on behalf of
//! a call: a call that has to wait goes into a queue by time ([`super::waiting`]), and the thread turns to the next.
//!
//! A tenant's limits are shared by all its processes and containers. Memory is bounded by [`WAITING_MAX`] per tenant: a
//! tenant with more waiting threads leaves the others with the kernel, where they wait as well.
//!
//! When a [`Supervisor`] is dropped, every waiting call goes on, and its listeners are closed; the kernel then fails
//! further trapped calls with ENOSYS unless somebody else holds the listener (see [`crate::guardian`]).
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

/// Calls of one tenant that wait here at most; each is a thread of the tenant.
pub const WAITING_MAX: usize = 4_096;

/// A tenant as the supervisor knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenant {
    /// For reports.
    pub name: String,
    /// Its limits; none of them set: its calls are counted only.
    pub limits: Limits,
}

/// What to do with a call above the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It waits.
    Enforce,
    /// It goes on at once and is counted.
    Shadow,
}

/// What a tenant's calls did so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Calls {
    /// The tenant.
    pub tenant: String,
    /// Calls trapped.
    pub trapped: u64,
    /// Calls that went on.
    pub resumed: u64,
    /// Calls above the rate: they waited, or would have.
    pub delayed: u64,
    /// Time that calls were told to wait, nanoseconds together.
    pub delay_ns: u64,
    /// Calls whose thread died, or was taken out of the call, before they went on.
    pub gone: u64,
    /// Calls that wait now.
    pub waiting: u64,
    /// Listeners now: one for each process tree or container.
    pub listeners: u64,
    /// Listeners dropped since somebody else took their calls.
    pub shed: u64,
    /// Calls by verb.
    pub verbs: BTreeMap<Verb, u64>,
}

/// The owner's end. Every tenant and listener is named by the place it got.
#[derive(Debug)]
pub struct Supervisor {
    commands: Sender<Command>,
    wake: Arc<OwnedFd>,
    thread: Mutex<Option<JoinHandle<()>>>,
    shed: Arc<Mutex<Vec<usize>>>,
}

impl Supervisor {
    /// Starts the thread. `table` is where it writes which calls it has taken, for whoever comes after it.
    ///
    /// # Errors
    /// The kernel's, when it has no thread or descriptor to give.
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

    /// Supervises the calls of `listener` for the tenant in place `tenant`; `slot` is its row in the table.
    ///
    /// # Panics
    /// Later, in the thread, when there is no such tenant.
    pub fn watch(&self, listener: Listener, tenant: usize, slot: Option<usize>) {
        self.send(Command::Watch {
            listener,
            tenant,
            slot,
        });
    }

    /// Gives a tenant other limits; waiting calls keep the turns they have.
    pub fn limit(&self, tenant: usize, limits: Limits) {
        self.send(Command::Limit { tenant, limits });
    }

    /// Adds a tenant; places count up from those given at the start.
    pub fn add(&self, tenant: Tenant) {
        self.send(Command::Add(tenant));
    }

    /// What every tenant's calls did, in order of places; empty when the thread has ended.
    pub fn calls(&self) -> Vec<Calls> {
        let (sender, receiver) = channel();
        self.send(Command::Report(sender));
        receiver.recv().unwrap_or_default()
    }

    /// Slots of listeners that were dropped since the last time: somebody else took their calls.
    pub fn take_shed(&self) -> Vec<usize> {
        let mut shed = self.shed.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *shed)
    }

    /// Lets every waiting call go on, closes the listeners and ends the thread; further orders do nothing.
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
