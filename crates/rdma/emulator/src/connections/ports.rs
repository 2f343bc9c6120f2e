//! Ports: who is bound where, and who listens.

use super::{Connections, State};
use crate::answer::{Answered, words};
use isolane_rdma_emulated_verbs::cm::message::{NO_HOST, PORTS_TCP, PORTS_UDP};
use isolane_rdma_emulated_verbs::wire::Reader;

/// Requests of a listener that are neither accepted nor rejected.
const BACKLOG_MAX: u32 = 1024;
/// Ports that a program gets when it names none.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32_768..=60_999;

impl Connections {
    pub(super) fn unbind(&mut self, number: u32) {
        let id = &self.ids[&number];
        let key = (id.ports, id.port);
        if let Some(bound) = self.bound.get_mut(&key) {
            bound.remove(&number);
            if bound.is_empty() {
                self.bound.remove(&key);
            }
        }
    }

    /// Whether another identifier has this port at this host.
    fn is_taken(&self, ports: u32, host: u32, port: u16) -> bool {
        let there = self.bound.get(&(ports, port)).into_iter().flatten();
        there
            .filter_map(|id| self.ids.get(id))
            .any(|id| id.host == host || id.host == NO_HOST || host == NO_HOST)
    }

    fn free_port(&mut self, ports: u32, host: u32) -> Result<u16, i32> {
        for _ in EPHEMERAL {
            self.next_port = match self.next_port {
                port if EPHEMERAL.contains(&port) && port < *EPHEMERAL.end() => port + 1,
                _ => *EPHEMERAL.start(),
            };
            if !self.is_taken(ports, host, self.next_port) {
                return Ok(self.next_port);
            }
        }
        Err(libc::EADDRINUSE)
    }

    pub(super) fn bind(&mut self, number: u32, host: u32, port: u16) -> Answered {
        let id = &self.ids[&number];
        let ports = id.ports;
        if id.state != State::Idle || id.port != 0 {
            return Err(libc::EINVAL);
        }
        let port = match port {
            0 => self.free_port(ports, host)?,
            port if self.is_taken(ports, host, port) => return Err(libc::EADDRINUSE),
            port => port,
        };
        let id = self.ids.get_mut(&number).expect("the caller has looked");
        (id.host, id.port) = (host, port);
        self.bound.entry((ports, port)).or_default().insert(number);
        words(&[u64::from(port)])
    }

    pub(super) fn listen(&mut self, number: u32, backlog: u32) -> Answered {
        let id = self.ids.get_mut(&number).expect("the caller has looked");
        if id.state != State::Idle || id.port == 0 {
            return Err(libc::EINVAL);
        }
        let left = match backlog {
            1..BACKLOG_MAX => backlog,
            _ => BACKLOG_MAX,
        };
        id.state = State::Listens { left };
        self.listener_comes(number);
        words(&[])
    }

    /// Whether a program listens at a port of a host, for connections or for datagrams.
    pub(crate) fn listens(&self, reader: &mut Reader<'_>) -> Option<Answered> {
        let (host, port) = reader.halves()?;
        let at = (host, u16::try_from(port).ok()?);
        let found = [PORTS_TCP, PORTS_UDP].map(|ports| self.listener(ports, at));
        Some(match found {
            [None, None] => Err(libc::ENOENT),
            _ => words(&[]),
        })
    }

    /// Who listens at this host and port.
    pub(super) fn listener(&self, ports: u32, (host, port): (u32, u16)) -> Option<u32> {
        let there = self.bound.get(&(ports, port))?;
        let at = |number: &u32| {
            let id = &self.ids[number];
            matches!(id.state, State::Listens { .. }) && (id.host == host || id.host == NO_HOST)
        };
        there.iter().copied().find(at)
    }
}
