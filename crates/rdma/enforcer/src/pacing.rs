//! Sends rates to the daemon, which applies them in the processes of tenants under the shim.
//!
//! Problem: a congestion notification slows a flow only roughly, and only if the device reacts to it. The shim can hold
//! a process to its tenant's rate exactly, but only the daemon sets the shim's limits. Method: this client connects to
//! the daemon's socket as the enforcer and sends each tenant's rate and each process's tenant, then only changes. No
//! call blocks: the next step retries what the daemon has not answered or read. Without a daemon, enforcement goes on,
//! and the client retries the connection once a second. Units: payload in bytes per second. Limits: the inventory finds
//! a process when it holds its first objects, so a process can send without a limit for about one second.

use isolane_rdma_session::message::{
    LIMITS_MAX, MESSAGE_MAX, NO_LIMIT, NO_TENANT, ToDaemon, ToShim,
};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time between two attempts to connect to a daemon.
const AGAIN: Duration = Duration::from_secs(1);

/// Rates by tenant, and the tenant of each process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Payload, bytes per second, by the tenant's place in the file.
    pub rates: BTreeMap<u32, u64>,
    /// The tenant of each process.
    pub tenant_of: BTreeMap<u32, u32>,
}

impl Table {
    /// Sets the rate of the tenant at `place`. Tenants beyond the protocol's table get none.
    pub fn limit(&mut self, place: usize, bytes_per_s: u64) {
        if let Some(tenant) = number(place) {
            self.rates.insert(tenant, bytes_per_s.min(NO_LIMIT - 1));
        }
    }

    /// Assigns a process to the tenant at `place`. Does nothing for a tenant without a rate.
    pub fn assign(&mut self, process: u32, place: usize) {
        if let Some(tenant) = number(place)
            && self.rates.contains_key(&tenant)
        {
            self.tenant_of.insert(process, tenant);
        }
    }

    /// The message for the first difference from `known`; `None` when both are equal.
    fn next_difference(&self, known: &Self) -> Option<ToDaemon> {
        if let Some((tenant, rate)) = difference(&self.rates, &known.rates) {
            return Some(ToDaemon::Limit {
                tenant,
                bytes_per_s: rate.unwrap_or(NO_LIMIT),
            });
        }
        let (process, tenant) = difference(&self.tenant_of, &known.tenant_of)?;
        Some(ToDaemon::Belongs {
            process,
            tenant: tenant.unwrap_or(NO_TENANT),
        })
    }

    /// Applies a sent message, so this table equals what the daemon knows.
    fn hear(&mut self, message: &ToDaemon) {
        match *message {
            ToDaemon::Limit {
                tenant,
                bytes_per_s: NO_LIMIT,
            } => {
                self.rates.remove(&tenant);
            }
            ToDaemon::Limit {
                tenant,
                bytes_per_s,
            } => {
                self.rates.insert(tenant, bytes_per_s);
            }
            ToDaemon::Belongs {
                process,
                tenant: NO_TENANT,
            } => {
                self.tenant_of.remove(&process);
            }
            ToDaemon::Belongs { process, tenant } => {
                self.tenant_of.insert(process, tenant);
            }
            _ => {}
        }
    }
}

fn number(place: usize) -> Option<u32> {
    let number = u32::try_from(place).ok()?;
    (number < LIMITS_MAX).then_some(number)
}

/// The first key at which `known` differs from `wanted`, with the wanted value.
fn difference<T: Copy + PartialEq>(
    wanted: &BTreeMap<u32, T>,
    known: &BTreeMap<u32, T>,
) -> Option<(u32, Option<T>)> {
    if wanted == known {
        return None;
    }
    let mut other = wanted
        .iter()
        .filter(|(key, value)| known.get(key) != Some(value));
    if let Some((&key, &value)) = other.next() {
        return Some((key, Some(value)));
    }
    let gone = known.keys().find(|key| !wanted.contains_key(key));
    gone.map(|&key| (key, None))
}

/// The connection to the daemon.
#[derive(Debug)]
pub struct Pacing {
    path: PathBuf,
    state: State,
    known: Table,
    /// Why the daemon rejects the limits, in one line; `None` if it accepts them or no daemon runs.
    refusal: Option<String>,
}

#[derive(Debug)]
enum State {
    /// No connection; the next attempt is due at this time.
    Alone(Option<Instant>),
    /// Connected; the daemon has not answered yet.
    Greeted(OwnedFd),
    /// The daemon accepts limits.
    Heeded(OwnedFd),
}

impl Pacing {
    /// Makes a client of the daemon at `path`. Does not connect yet.
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            state: State::Alone(None),
            known: Table::default(),
            refusal: None,
        }
    }

    /// Whether the daemon accepts the limits.
    pub fn is_heeded(&self) -> bool {
        matches!(self.state, State::Heeded(_))
    }

    /// Why the daemon rejects the limits.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Sends what changed. Without limits it does not connect.
    pub fn step(&mut self, now: Instant, wanted: &Table) {
        match &self.state {
            State::Alone(until) => {
                if !wanted.rates.is_empty() && until.is_none_or(|until| now >= until) {
                    self.greet(now);
                }
            }
            State::Greeted(socket) => match listen(socket) {
                Heard::Nothing => {}
                Heard::Message(ToShim::Heeded) => self.heeded(wanted),
                Heard::Message(ToShim::Refused { reason }) => self.leave(now, Some(reason)),
                Heard::Message(other) => self.leave(now, Some(format!("it answers {other:?}"))),
                Heard::Nonsense(reason) => self.leave(now, Some(reason)),
                Heard::Gone => self.leave(now, None),
            },
            State::Heeded(socket) => match listen(socket) {
                Heard::Nothing => self.tell(wanted),
                Heard::Message(ToShim::Refused { reason }) => self.leave(now, Some(reason)),
                // A closed connection is readable too.
                Heard::Message(_) => {}
                Heard::Nonsense(reason) => self.leave(now, Some(reason)),
                Heard::Gone => self.leave(now, None),
            },
        }
    }

    fn greet(&mut self, now: Instant) {
        let greet = || -> Result<OwnedFd, Errno> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
            connect(&socket, &SocketAddrUnix::new(&self.path)?)?;
            let greeting = ToDaemon::Enforce;
            send(&socket, &greeting.encode(), SendFlags::NOSIGNAL)?;
            Ok(socket)
        };
        match greet() {
            Ok(socket) => self.state = State::Greeted(socket),
            Err(Errno::NOENT | Errno::CONNREFUSED) => self.leave(now, None),
            Err(error) => self.leave(now, Some(error.to_string())),
        }
    }

    fn heeded(&mut self, wanted: &Table) {
        let State::Greeted(socket) = std::mem::replace(&mut self.state, State::Alone(None)) else {
            return;
        };
        self.state = State::Heeded(socket);
        self.known = Table::default();
        self.refusal = None;
        self.tell(wanted);
    }

    fn leave(&mut self, now: Instant, refusal: Option<String>) {
        self.refusal =
            refusal.map(|reason| format!("isolaned at {}: {reason}", self.path.display()));
        self.state = State::Alone(Some(now + AGAIN));
    }

    /// Sends differences until both tables are equal or the socket is full.
    fn tell(&mut self, wanted: &Table) {
        let State::Heeded(socket) = &self.state else {
            return;
        };
        while let Some(message) = wanted.next_difference(&self.known) {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            // The socket is full, or the daemon has ended: the next step continues or reconnects.
            if send(socket, &message.encode(), flags).is_err() {
                return;
            }
            self.known.hear(&message);
        }
    }
}

enum Heard {
    Nothing,
    Message(ToShim),
    Nonsense(String),
    Gone,
}

fn listen(socket: &OwnedFd) -> Heard {
    let mut bytes = [0; MESSAGE_MAX + 1];
    match recv(socket, &mut bytes[..], RecvFlags::DONTWAIT) {
        Ok((0, _)) => Heard::Gone,
        Ok((length, _)) => match ToShim::decode(&bytes[..length.min(bytes.len())]) {
            Ok(message) => Heard::Message(message),
            Err(error) => Heard::Nonsense(error.to_string()),
        },
        Err(Errno::AGAIN | Errno::INTR) => Heard::Nothing,
        Err(_) => Heard::Gone,
    }
}

#[cfg(test)]
mod tests;
