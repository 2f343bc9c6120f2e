//! What the daemon is told, so that tenants that cooperate are held to their rates in their own processes.
//!
//! Problem: a congestion notification slows a flow of the NIC, roughly and only where the device heeds it. A process that
//! runs under the shim can be held to its tenant's rate exactly, but the shim's limits are the daemon's. Method: this end
//! of the daemon's socket greets as the enforcer and says what each tenant may send and which process is whose; from
//! then on what changed. Nothing here waits: who does not answer or does not read is asked again at the next step.
//! Without a daemon everything else goes on, and it is looked for once a second.
//! Units: payload in bytes per second. Limits: a process is known from the inventory's first look at its objects, so it
//! may send without a limit for about a second.

use isolane_rdma_session::message::{LIMITS_MAX, MESSAGE_MAX, NO_LIMIT, NOBODY, ToDaemon, ToShim};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time between two looks for a daemon.
const AGAIN: Duration = Duration::from_secs(1);

/// Limits by tenant, and whose each process is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Payload per second, by the tenant's place in the file.
    pub rates: BTreeMap<u32, u64>,
    /// The tenant of each process.
    pub tenant_of: BTreeMap<u32, u32>,
}

impl Table {
    /// The limit of the tenant at `place`. Tenants beyond the protocol's table have none.
    pub fn limit(&mut self, place: usize, bytes_per_s: u64) {
        if let Some(tenant) = number(place) {
            self.rates.insert(tenant, bytes_per_s.min(NO_LIMIT - 1));
        }
    }

    /// Whose a process is; nothing where that tenant has no limit.
    pub fn assign(&mut self, process: u32, place: usize) {
        if let Some(tenant) = number(place)
            && self.rates.contains_key(&tenant)
        {
            self.tenant_of.insert(process, tenant);
        }
    }

    /// One thing in which `told` differs, as it is said. `None`: they are equal.
    fn next_difference(&self, told: &Self) -> Option<ToDaemon> {
        if let Some((tenant, rate)) = difference(&self.rates, &told.rates) {
            return Some(ToDaemon::Limit {
                tenant,
                bytes_per_s: rate.unwrap_or(NO_LIMIT),
            });
        }
        let (process, tenant) = difference(&self.tenant_of, &told.tenant_of)?;
        Some(ToDaemon::Belongs {
            process,
            tenant: tenant.unwrap_or(NOBODY),
        })
    }

    /// What whoever heard the message knows.
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
                tenant: NOBODY,
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

/// A key at which `told` is not as `wanted`, and what is wanted there.
fn difference<T: Copy + PartialEq>(
    wanted: &BTreeMap<u32, T>,
    told: &BTreeMap<u32, T>,
) -> Option<(u32, Option<T>)> {
    if wanted == told {
        return None;
    }
    let mut other = wanted
        .iter()
        .filter(|(key, value)| told.get(key) != Some(value));
    if let Some((&key, &value)) = other.next() {
        return Some((key, Some(value)));
    }
    let gone = told.keys().find(|key| !wanted.contains_key(key));
    gone.map(|&key| (key, None))
}

/// The connection to the daemon.
#[derive(Debug)]
pub struct Pacing {
    path: PathBuf,
    state: State,
    told: Table,
    /// Why the daemon does not take the limits, in one line; nothing where it does, or where there is none.
    refusal: Option<String>,
}

#[derive(Debug)]
enum State {
    /// Nobody to talk to until then.
    Alone(Option<Instant>),
    /// It has not answered yet.
    Greeted(OwnedFd),
    /// It takes limits.
    Heeded(OwnedFd),
}

impl Pacing {
    /// Will talk to the daemon at `path`.
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            state: State::Alone(None),
            told: Table::default(),
            refusal: None,
        }
    }

    /// Whether the daemon takes the limits.
    pub fn is_heeded(&self) -> bool {
        matches!(self.state, State::Heeded(_))
    }

    /// Why a daemon that is there does not take them.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Says what is new. Without limits nobody is looked for.
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
                // A daemon that ends says that there is something to look at.
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
        self.told = Table::default();
        self.refusal = None;
        self.tell(wanted);
    }

    fn leave(&mut self, now: Instant, refusal: Option<String>) {
        self.refusal =
            refusal.map(|reason| format!("isolaned at {}: {reason}", self.path.display()));
        self.state = State::Alone(Some(now + AGAIN));
    }

    /// Says differences until there are none, or the daemon does not read.
    fn tell(&mut self, wanted: &Table) {
        let State::Heeded(socket) = &self.state else {
            return;
        };
        while let Some(message) = wanted.next_difference(&self.told) {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            // Not read yet: the rest at the next step. Gone: the next step hears that.
            if send(socket, &message.encode(), flags).is_err() {
                return;
            }
            self.told.hear(&message);
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
