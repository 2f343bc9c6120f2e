//! Requests that wait for a listener.
//!
//! Problem: a server may listen twice at one port, one time after the other, as perftest does with `-R`. A request that
//! comes between its two listeners would be rejected, so the client would fail or not by chance. Method: when a listener
//! goes and its program stays, requests to its port wait for the next listener, until [`WAIT`] after the first one went
//! or until the program ends. Other requests without a listener are rejected at once.
//!
//! Limits: of each program the last [`LEFT_MAX`] ports are known.

use super::{Connections, NOBODY_LISTENS, State};
use isolane_rdma_emulated_verbs::cm::message::{NO_HOST, Parameters, kind};
use std::collections::BTreeMap;
use std::time::Duration;

/// Real time after a listener's end in which requests wait for the next one: many times what a busy machine needs
/// between two calls of a program.
const WAIT: Duration = Duration::from_secs(5);
/// Ports of a program that are remembered: more than it listens at twice.
const LEFT_MAX: usize = 32;

/// What waits, and for which ports.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Listeners that have gone while their program stays, by port space and port.
    left: BTreeMap<(u32, u16), Vec<Left>>,
    requests: Vec<(u32, Parameters)>,
    /// Whether requests may wait for nothing any more.
    is_stale: bool,
}

#[derive(Debug)]
struct Left {
    client: u32,
    host: u32,
    until: Duration,
}

impl Waiting {
    fn keep(&mut self, keep: impl Fn((u32, u16), &Left) -> bool) {
        for (at, there) in &mut self.left {
            let before = there.len();
            there.retain(|left| keep(*at, left));
            self.is_stale |= there.len() < before;
        }
        self.left.retain(|_, there| !there.is_empty());
    }
}

impl Connections {
    /// A listener goes and its program stays.
    pub(super) fn listener_goes(&mut self, number: u32) {
        let id = &self.ids[&number];
        let (client, host, at) = (id.client, id.host, (id.ports, id.port));
        let all = self.waiting.left.iter();
        let own = all.flat_map(|(at, there)| there.iter().map(move |left| (*at, left)));
        let own = own.filter(|(_, left)| left.client == client);
        let mut own: Vec<_> = own.map(|(at, left)| (left.until, at, left.host)).collect();
        own.sort_unstable();
        let oldest = own.first().filter(|_| own.len() >= LEFT_MAX);
        let over = oldest.map(|&(_, at, host)| (at, host));
        self.waiting.keep(|place, left| {
            let is_it = |at, host| (place, left.host) == (at, host);
            left.client != client
                || !is_it(at, host) && over.is_none_or(|(at, host)| !is_it(at, host))
        });
        let until = self.now + WAIT;
        let there = self.waiting.left.entry(at).or_default();
        there.push(Left {
            client,
            host,
            until,
        });
    }

    /// Whether a listener may come where a request finds none.
    pub(super) fn may_come(&self, ports: u32, (host, port): (u32, u16)) -> bool {
        let there = self.waiting.left.get(&(ports, port)).into_iter().flatten();
        there
            .into_iter()
            .any(|left| left.host == host || left.host == NO_HOST)
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
        self.waiting.keep(|_, left| left.client != client);
    }

    /// Sets the time since the broker's start, and rejects requests for which no listener may come any more.
    pub(crate) fn pass(&mut self, now: Duration) {
        self.now = now;
        self.waiting.keep(|_, left| left.until > now);
        if std::mem::take(&mut self.waiting.is_stale) {
            self.reject_vain();
        }
    }

    /// When [`Self::pass`] may have a request to reject.
    pub(crate) fn rejects_at(&self) -> Option<Duration> {
        if self.waiting.requests.is_empty() {
            return None;
        }
        let first = self
            .waiting
            .left
            .values()
            .flatten()
            .map(|left| left.until)
            .min();
        match self.waiting.is_stale {
            true => Some(self.now),
            false => first,
        }
    }

    fn reject_vain(&mut self) {
        let mut requests = std::mem::take(&mut self.waiting.requests);
        let vain = requests.extract_if(.., |(id, _)| {
            let id = &self.ids[id];
            !self.may_come(id.ports, id.remote)
        });
        let vain: Vec<u32> = vain.map(|(id, _)| id).collect();
        self.waiting.requests = requests;
        for number in vain {
            self.set(number, State::Idle);
            // An event beyond the program's limit is lost, as others are.
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
            self.listen_at(PORT)
        }

        fn listen_at(&mut self, port: u64) -> u32 {
            let words = [op::CM_CREATE_ID, pack(self.channels[0], PORTS_TCP)];
            let id = self.ask(SERVER, &words).unwrap();
            self.ask(SERVER, &[op::CM_BIND, pack(id, 0), port]).unwrap();
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
        assert_eq!(two.all.rejects_at(), None);
        two.all.pass(2 * WAIT);
        assert_eq!(two.event(1), None, "it waits for the answer");
    }

    #[test]
    fn a_request_that_waits_in_vain_is_rejected() {
        let mut two = Two::with_a_request();
        assert_eq!(two.all.rejects_at(), Some(WAIT));
        two.all.pass(WAIT);
        assert_eq!(two.event(1), Some(kind::REJECTED));
        two.connect();
        assert_eq!(two.event(1), Some(kind::REJECTED), "too late to wait");
    }

    #[test]
    fn a_request_to_a_program_that_ends_is_rejected_at_once() {
        let mut two = Two::with_a_request();
        two.all.close(SERVER);
        assert_eq!(two.all.rejects_at(), Some(Duration::ZERO));
        two.all.pass(Duration::ZERO);
        assert_eq!(two.event(1), Some(kind::REJECTED));
    }

    /// The time of the round counts, not that of the last message before it.
    #[test]
    fn a_listener_that_goes_after_a_long_silence_is_waited_for() {
        let mut two = Two::new();
        let first = two.listen();
        two.all.pass(3 * WAIT);
        two.ask(SERVER, &[op::CM_DESTROY_ID, pack(first, 0)])
            .unwrap();
        two.connect();
        two.all.pass(3 * WAIT);
        assert_eq!(two.event(1), None);
        assert_eq!(two.all.rejects_at(), Some(4 * WAIT));
    }

    #[test]
    fn a_program_that_listens_without_end_has_few_ports_here() {
        let mut two = Two::with_a_request();
        for port in 0..2 * LEFT_MAX as u64 {
            two.all.pass(Duration::from_nanos(port));
            let id = two.listen_at(port + 1);
            two.ask(SERVER, &[op::CM_DESTROY_ID, pack(id, 0)]).unwrap();
        }
        let left = two.all.waiting.left.values().flatten();
        assert_eq!(left.count(), LEFT_MAX);
        two.all.pass(two.all.now);
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
