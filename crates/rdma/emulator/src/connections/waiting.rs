//! Requests that wait for a listener.
//!
//! Problem: a server may listen twice at one port, one time after the other, as perftest does with `-R`. A request that
//! comes between its two listeners would be rejected, so the client would fail or not by chance. Method: when a listener
//! goes and its program stays, requests to its port wait for the next listener, until [`WAIT`] after the first one went
//! or until the program ends. Other requests without a listener are rejected at once.
//!
//! Limits: the ports of at most [`LEFT_MAX`] listeners are known.

use super::{Connections, NOBODY_LISTENS, State};
use isolane_rdma_emulated_verbs::cm::message::{NO_HOST, Parameters, kind};
use std::collections::VecDeque;
use std::time::Duration;

/// Real time after a listener's end in which requests wait for the next one: many times what a busy machine needs
/// between two calls of a program.
const WAIT: Duration = Duration::from_secs(5);
/// Listeners that are remembered: more than the programs here have.
const LEFT_MAX: usize = 1024;

/// What waits, and for which ports.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Oldest first.
    left: VecDeque<Left>,
    requests: Vec<(u32, Parameters)>,
}

/// A listener that has gone while its program stays.
#[derive(Debug)]
struct Left {
    client: u32,
    ports: u32,
    host: u32,
    port: u16,
    until: Duration,
}

impl Left {
    fn is_at(&self, ports: u32, (host, port): (u32, u16)) -> bool {
        (self.ports, self.port) == (ports, port) && (self.host == host || self.host == NO_HOST)
    }
}

impl Connections {
    /// A listener goes, for whatever reason.
    pub(super) fn listener_goes(&mut self, number: u32) {
        let id = &self.ids[&number];
        let left = Left {
            client: id.client,
            ports: id.ports,
            host: id.host,
            port: id.port,
            until: self.now + WAIT,
        };
        self.waiting.left.push_back(left);
        if self.waiting.left.len() > LEFT_MAX {
            self.waiting.left.pop_front();
            self.reject_vain();
        }
    }

    /// Whether a listener may come where a request finds none.
    pub(super) fn may_come(&self, ports: u32, at: (u32, u16)) -> bool {
        self.waiting.left.iter().any(|left| left.is_at(ports, at))
    }

    pub(super) fn wait(&mut self, number: u32, parameters: Parameters) {
        self.set(number, State::Waits);
        self.waiting.requests.push((number, parameters));
    }

    /// An identifier that waits goes.
    pub(super) fn wait_no_more(&mut self, number: u32) {
        self.waiting.requests.retain(|(id, _)| *id != number);
    }

    /// A listener is there: it gets the requests that waited for it.
    pub(super) fn listener_comes(&mut self, number: u32) {
        let (ports, host, port) = {
            let id = &self.ids[&number];
            (id.ports, id.host, id.port)
        };
        let mut requests = std::mem::take(&mut self.waiting.requests);
        let taken = requests.extract_if(.., |(id, _)| {
            let id = &self.ids[id];
            id.ports == ports && id.remote.1 == port && (host == NO_HOST || host == id.remote.0)
        });
        let taken: Vec<_> = taken.collect();
        self.waiting.requests = requests;
        for (id, parameters) in taken {
            self.set(id, State::Idle);
            // What goes wrong is an event for the program that connects; this answer is for the one that listens.
            let _ = self.connect(id, parameters);
        }
    }

    /// A program is gone: it listens no more.
    pub(super) fn program_goes(&mut self, client: u32) {
        self.waiting.left.retain(|left| left.client != client);
        self.reject_vain();
    }

    /// Sets the time since the broker's start, and rejects what has waited long enough.
    pub(crate) fn pass(&mut self, now: Duration) {
        self.now = now;
        let known = self.waiting.left.len();
        self.waiting.left.retain(|left| left.until > now);
        if self.waiting.left.len() < known {
            self.reject_vain();
        }
    }

    /// When the next request has waited long enough.
    pub(crate) fn waits_until(&self) -> Option<Duration> {
        let first = self.waiting.left.front().map(|left| left.until);
        first.filter(|_| !self.waiting.requests.is_empty())
    }

    /// Rejects requests for which no listener may come.
    fn reject_vain(&mut self) {
        let ids = self.waiting.requests.iter().map(|(id, _)| *id);
        let vain = ids.filter(|id| {
            let id = &self.ids[id];
            !self.may_come(id.ports, id.remote)
        });
        for number in vain.collect::<Vec<_>>() {
            self.wait_no_more(number);
            self.set(number, State::Idle);
            let _ = self.tell(number, kind::REJECTED, NOBODY_LISTENS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_rdma_emulated_verbs::cm::message::{Event, PORTS_TCP};
    use isolane_rdma_emulated_verbs::wire::{Reader, Writer, op, pack};
    use rustix::fd::OwnedFd;

    const SERVER: u32 = 1;
    const CLIENT: u32 = 2;
    const PORT: u64 = 18_515;

    /// A broker's connections with a server on host 0 and a client on host 1, each with a channel.
    struct Two {
        all: Connections,
        channels: [u32; 2],
        bells: Vec<OwnedFd>,
    }

    impl Two {
        fn new() -> Self {
            let mut two = Self {
                all: Connections::default(),
                channels: [0; 2],
                bells: Vec::new(),
            };
            for (place, client) in [SERVER, CLIENT].into_iter().enumerate() {
                two.all.open(client);
                two.channels[place] = two.ask(client, &[op::CM_CREATE_CHANNEL]).unwrap();
            }
            two
        }

        fn request(&mut self, client: u32, words: &[u64]) -> Result<Writer, i32> {
            let message = Writer::of(words);
            let mut reader = Reader::new(message.bytes());
            let operation = reader.word().unwrap();
            let answer = self.all.request(client, operation, &mut reader, 2);
            let (answer, bell) = answer.expect("well-formed")?;
            self.bells.extend(bell);
            Ok(answer)
        }

        /// The number in the answer, zero if there is none.
        fn ask(&mut self, client: u32, words: &[u64]) -> Result<u32, i32> {
            let answer = self.request(client, words)?;
            let mut reader = Reader::new(answer.bytes());
            Ok(reader.word().and_then(|_| reader.word()).unwrap_or(0) as u32)
        }

        fn listen(&mut self) -> u32 {
            let words = [op::CM_CREATE_ID, pack(self.channels[0], PORTS_TCP)];
            let id = self.ask(SERVER, &words).unwrap();
            self.ask(SERVER, &[op::CM_BIND, pack(id, 0), PORT]).unwrap();
            self.ask(SERVER, &[op::CM_LISTEN, pack(id, 0)]).unwrap();
            id
        }

        fn connect(&mut self) {
            let words = [op::CM_CREATE_ID, pack(self.channels[1], PORTS_TCP)];
            let id = self.ask(CLIENT, &words).unwrap();
            let words = [op::CM_RESOLVE_ADDR, pack(id, 1), pack(0, PORT as u32)];
            self.ask(CLIENT, &words).unwrap();
            assert_eq!(self.event(1), Some(kind::ADDR_RESOLVED));
            self.all.connect(id, Parameters::default()).unwrap();
        }

        fn event(&mut self, end: usize) -> Option<u32> {
            let words = [op::CM_EVENT, pack(self.channels[end], 0)];
            let answer = self.request([SERVER, CLIENT][end], &words).ok()?;
            let mut reader = Reader::new(answer.bytes());
            reader.word();
            Event::read(&mut reader).map(|event| event.kind)
        }

        /// A request between two listeners.
        fn with_a_request() -> Self {
            let mut two = Self::new();
            let first = two.listen();
            two.ask(SERVER, &[op::CM_DESTROY_ID, pack(first, 0)])
                .unwrap();
            two.connect();
            assert_eq!(two.event(1), None);
            two
        }
    }

    #[test]
    fn a_request_between_two_listeners_reaches_the_second() {
        let mut two = Two::with_a_request();
        two.all.pass(WAIT - Duration::from_nanos(1));
        two.listen();
        assert_eq!(two.event(0), Some(kind::CONNECT_REQUEST));
        assert_eq!(two.all.waits_until(), None);
        two.all.pass(2 * WAIT);
        assert_eq!(two.event(1), None, "it waits for the answer");
    }

    #[test]
    fn a_request_that_waits_in_vain_is_rejected() {
        let mut two = Two::with_a_request();
        assert_eq!(two.all.waits_until(), Some(WAIT));
        two.all.pass(WAIT);
        assert_eq!(two.event(1), Some(kind::REJECTED));
        two.connect();
        assert_eq!(two.event(1), Some(kind::REJECTED), "too late to wait");
    }

    #[test]
    fn a_request_to_a_program_that_ends_is_rejected_at_once() {
        let mut two = Two::with_a_request();
        two.all.close(SERVER);
        assert_eq!(two.event(1), Some(kind::REJECTED));
    }

    #[test]
    fn a_client_that_waits_may_go() {
        let mut two = Two::with_a_request();
        two.all.close(CLIENT);
        two.listen();
        assert_eq!(two.event(0), None);
    }
}
