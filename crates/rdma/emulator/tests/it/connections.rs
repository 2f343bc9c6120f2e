//! Connection management over the broker's protocol: two programs connect and part, and hostile ones reach nothing.

use crate::client::{Client, Place, Refused, open};
use isolane_rdma_emulated_verbs::cm::message::{
    Event, NO_HOST, PORTS_TCP, PORTS_UDP, Parameters, kind,
};
use isolane_rdma_emulated_verbs::wire::{MESSAGE_MAX, Reader, VERSION, Writer, op, pack, receive};
use rustix::fd::OwnedFd;

const PORT: u64 = 7471;

/// A client with one channel.
struct Agent {
    client: Client,
    channel: u32,
    bell: OwnedFd,
}

impl Agent {
    fn new(place: &Place) -> Self {
        let client = place.connect();
        client.call(&[op::CM_OPEN, VERSION]).unwrap();
        let (words, bell) = client
            .call_with(&Writer::of(&[op::CM_CREATE_CHANNEL]))
            .unwrap();
        Self {
            client,
            channel: words[0] as u32,
            bell: bell.unwrap(),
        }
    }

    fn ask(&self, operation: u64, id: u32, more: u32) -> Result<Vec<u64>, Refused> {
        self.client.call(&[operation, pack(id, more)])
    }

    fn create(&self, ports: u32) -> u32 {
        self.ask(op::CM_CREATE_ID, self.channel, ports).unwrap()[0] as u32
    }

    fn bind(&self, id: u32, host: u32, port: u64) -> Result<u64, Refused> {
        let words = [op::CM_BIND, pack(id, host), port];
        self.client.call(&words).map(|words| words[0])
    }

    fn send(&self, operation: u64, id: u32, text: &[u8]) -> Result<Vec<u64>, Refused> {
        let mut message = Writer::of(&[operation, pack(id, 0)]);
        let parameters = Parameters {
            qp_num: 0x100 + id,
            private_data: text.to_vec(),
            ..Parameters::default()
        };
        parameters.write(&mut message);
        self.client.call_with(&message).map(|(words, _)| words)
    }

    /// The next event, which must be there.
    fn event(&self) -> Event {
        let mut byte = [0];
        assert_eq!(rustix::io::read(&self.bell, &mut byte), Ok(1));
        self.client
            .send(&Writer::of(&[op::CM_EVENT, pack(self.channel, 0)]));
        let mut buffer = vec![0; MESSAGE_MAX];
        let (length, _) = receive(&self.client.socket, &mut buffer, true).unwrap();
        let mut reader = Reader::new(&buffer[..length]);
        assert_eq!(reader.word(), Some(0));
        Event::read(&mut reader).unwrap()
    }

    /// An identifier that listens on every host.
    fn listens(&self, ports: u32, backlog: u32) -> u32 {
        let id = self.create(ports);
        assert_eq!(self.bind(id, NO_HOST, PORT), Ok(PORT));
        self.ask(op::CM_LISTEN, id, backlog).unwrap();
        id
    }

    fn resolve(&self, host: u32) -> u32 {
        self.resolve_in(PORTS_TCP, host)
    }

    /// An identifier of host 1 for a connection to `host`.
    fn resolve_in(&self, ports: u32, host: u32) -> u32 {
        let id = self.create(ports);
        let words = [op::CM_RESOLVE_ADDR, pack(id, 1), pack(host, PORT as u32)];
        self.client.call(&words).unwrap();
        let event = self.event();
        assert_eq!((event.kind, event.id), (kind::ADDR_RESOLVED, id));
        id
    }

    /// An identifier whose request is sent.
    fn requests(&self, text: &[u8]) -> u32 {
        let id = self.resolve(0);
        self.send(op::CM_CONNECT, id, text).unwrap();
        id
    }
}

/// Two identifiers that are connected: that of the listener's side first.
fn connected(server: &Agent, client: &Agent) -> (u32, u32) {
    let to = client.requests(b"");
    let from = server.event().id;
    server.send(op::CM_ACCEPT, from, b"").unwrap();
    assert_eq!(client.event().kind, kind::CONNECT_RESPONSE);
    client.ask(op::CM_ESTABLISH, to, 0).unwrap();
    let event = server.event();
    assert_eq!((event.kind, event.id), (kind::ESTABLISHED, from));
    (from, to)
}

#[test]
fn two_programs_connect_by_address_and_port_and_both_hear_of_the_end() {
    let place = Place::new();
    let (server, client) = (Agent::new(&place), Agent::new(&place));
    let listener = server.listens(PORTS_TCP, 0);
    let to = client.requests(b"hello");
    let event = server.event();
    assert_eq!(
        (event.kind, event.listener),
        (kind::CONNECT_REQUEST, listener)
    );
    assert_eq!((event.local, event.remote.0), ((0, PORT as u16), 1));
    assert_eq!(event.parameters.private_data, b"hello");
    assert_eq!(event.parameters.qp_num, 0x100 + to);
    let from = event.id;
    server.send(op::CM_ACCEPT, from, b"welcome").unwrap();
    let event = client.event();
    assert_eq!((event.kind, event.id), (kind::CONNECT_RESPONSE, to));
    assert_eq!(event.parameters.private_data, b"welcome");
    client.ask(op::CM_ESTABLISH, to, 0).unwrap();
    assert_eq!(server.event().kind, kind::ESTABLISHED);
    server.ask(op::CM_DISCONNECT, from, 0).unwrap();
    for (agent, id) in [(&server, from), (&client, to)] {
        let event = agent.event();
        assert_eq!((event.kind, event.id), (kind::DISCONNECTED, id));
        // The second one to say it is no error.
        agent.ask(op::CM_DISCONNECT, id, 0).unwrap();
    }
}

#[test]
fn datagrams_need_one_answer() {
    let place = Place::new();
    let (server, client) = (Agent::new(&place), Agent::new(&place));
    server.listens(PORTS_UDP, 1);
    // The port of connections is another one.
    let other = client.requests(b"");
    assert_eq!(client.event().kind, kind::REJECTED);
    let to = client.resolve_in(PORTS_UDP, 0);
    client.send(op::CM_CONNECT, to, b"").unwrap();
    let from = server.event().id;
    server.send(op::CM_ACCEPT, from, b"").unwrap();
    let event = client.event();
    assert_eq!((event.kind, event.id), (kind::ESTABLISHED, to));
    assert_eq!(event.parameters.qp_num, 0x100 + from);
    assert_ne!(other, to);
}

#[test]
fn a_request_is_rejected_where_nobody_listens_or_the_program_says_so() {
    let place = Place::new();
    let (server, client) = (Agent::new(&place), Agent::new(&place));
    client.requests(b"");
    let event = client.event();
    assert_eq!((event.kind, event.status), (kind::REJECTED, 8));
    let listens = || {
        place
            .connect()
            .call(&[op::CM_LISTENS, pack(0, PORT as u32)])
    };
    assert_eq!(listens(), Err(Refused::Errno(libc::ENOENT as u64)));
    let listener = server.listens(PORTS_TCP, 1);
    assert_eq!(listens(), Ok(Vec::new()));
    let first = client.requests(b"");
    // The listener has room for one request.
    client.requests(b"");
    let event = client.event();
    assert_eq!((event.kind, event.status), (kind::REJECTED, 3));
    let asked = server.event().id;
    server.send(op::CM_REJECT, asked, b"no").unwrap();
    let event = client.event();
    assert_eq!(
        (event.kind, event.id, event.status),
        (kind::REJECTED, first, 28)
    );
    assert_eq!(event.parameters.private_data, b"no");
    // The answer gave the place back, and the end of the listener rejects what it has not answered.
    let third = client.requests(b"");
    server.ask(op::CM_DESTROY_ID, listener, 0).unwrap();
    let event = client.event();
    assert_eq!((event.kind, event.id), (kind::REJECTED, third));
    let nowhere = client.create(PORTS_TCP);
    let words = [op::CM_RESOLVE_ADDR, pack(nowhere, 1), pack(NO_HOST, 1)];
    client.client.call(&words).unwrap();
    let event = client.event();
    assert_eq!(
        (event.kind, event.status),
        (kind::ADDR_ERROR, -libc::EHOSTUNREACH)
    );
}

#[test]
fn a_port_of_a_host_is_bound_once_and_free_after_the_end() {
    let place = Place::new();
    let (left, right) = (Agent::new(&place), Agent::new(&place));
    let ids = [0; 4].map(|_| left.create(PORTS_TCP));
    assert_eq!(left.bind(ids[0], 0, PORT), Ok(PORT));
    assert_eq!(left.bind(ids[1], 1, PORT), Ok(PORT));
    let taken = Err(Refused::Errno(libc::EADDRINUSE as u64));
    for host in [0, 1, NO_HOST] {
        let id = right.create(PORTS_TCP);
        assert_eq!(right.bind(id, host, PORT), taken, "{host}");
    }
    let id = right.create(PORTS_UDP);
    assert_eq!(right.bind(id, NO_HOST, PORT), Ok(PORT));
    let (third, fourth) = (left.bind(ids[2], 0, 0), left.bind(ids[3], 0, 0));
    assert_ne!(third.unwrap(), fourth.unwrap());
    drop(left);
    let id = right.create(PORTS_TCP);
    // The end of a connection is seen when its socket is read.
    while right.bind(id, 0, PORT) == taken {}
}

/// However a program ends, the other one hears it.
#[test]
fn the_end_of_a_program_ends_its_connections_and_requests() {
    let place = Place::new();
    let client = Agent::new(&place);
    let server = Agent::new(&place);
    server.listens(PORTS_TCP, 0);
    let (_, to) = connected(&server, &client);
    let open = client.requests(b"");
    drop(server);
    let mut ends = [client.event(), client.event()].map(|event| (event.kind, event.id));
    ends.sort_unstable();
    assert_eq!(ends, [(kind::REJECTED, open), (kind::DISCONNECTED, to)]);
}

#[test]
fn an_identifier_takes_its_events_to_another_channel() {
    let place = Place::new();
    let (server, client) = (Agent::new(&place), Agent::new(&place));
    server.listens(PORTS_TCP, 0);
    let id = client.requests(b"");
    let from = server.event().id;
    server.send(op::CM_ACCEPT, from, b"").unwrap();
    let (words, bell) = client
        .client
        .call_with(&Writer::of(&[op::CM_CREATE_CHANNEL]))
        .unwrap();
    client.ask(op::CM_MIGRATE, id, words[0] as u32).unwrap();
    // The byte in the first pipe stands for nothing now.
    let void = client.ask(op::CM_EVENT, client.channel, 0);
    assert_eq!(void, Err(Refused::Errno(libc::ENOENT as u64)));
    let moved = Agent {
        channel: words[0] as u32,
        bell: bell.unwrap(),
        ..client
    };
    assert_eq!(moved.event().kind, kind::CONNECT_RESPONSE);
}

#[test]
fn identifiers_and_channels_of_another_client_cannot_be_named() {
    let place = Place::new();
    let (server, client) = (Agent::new(&place), Agent::new(&place));
    let listener = server.listens(PORTS_TCP, 0);
    client.requests(b"");
    let stranger = Agent::new(&place);
    let invalid = Err(Refused::Errno(libc::EINVAL as u64));
    for operation in op::CM_DESTROY_CHANNEL..=op::CM_EVENT {
        for name in [server.channel, listener, client.channel] {
            assert_eq!(stranger.send(operation, name, b""), invalid, "{operation}");
        }
    }
    // Nothing of it reached the others.
    let from = server.event().id;
    server.send(op::CM_ACCEPT, from, b"").unwrap();
    assert_eq!(client.event().kind, kind::CONNECT_RESPONSE);
    let own = stranger.create(PORTS_TCP);
    assert_eq!(stranger.ask(op::CM_MIGRATE, own, server.channel), invalid);
}

/// How often a request succeeds before it fails with `ENOMEM`.
fn allowed(mut request: impl FnMut() -> Result<Vec<u64>, Refused>) -> usize {
    const MORE_THAN_ANY: usize = 1 << 17;
    for count in 0..MORE_THAN_ANY {
        match request() {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error, Refused::Errno(libc::ENOMEM as u64));
                return count;
            }
        }
    }
    panic!("there is no limit");
}

#[test]
fn a_client_has_so_many_channels_identifiers_and_events() {
    let place = Place::new();
    let agent = Agent::new(&place);
    let channels = allowed(|| agent.client.call(&[op::CM_CREATE_CHANNEL]));
    assert_eq!(channels, 31);
    let ids = allowed(|| agent.ask(op::CM_CREATE_ID, agent.channel, PORTS_TCP));
    assert_eq!(ids, 1024);
    let other = Agent::new(&place);
    let id = other.create(PORTS_TCP);
    let events = allowed(|| other.ask(op::CM_RESOLVE_ROUTE, id, 0));
    assert_eq!(events, 4096);
    other.event();
    other.ask(op::CM_RESOLVE_ROUTE, id, 0).unwrap();
    // A request to who takes no events is rejected.
    let listener = other.create(PORTS_TCP);
    other.bind(listener, 0, PORT).unwrap();
    other.ask(op::CM_LISTEN, listener, 0).unwrap();
    let third = Agent::new(&place);
    third.requests(b"");
    let event = third.event();
    assert_eq!((event.kind, event.status), (kind::REJECTED, 3));
}

#[test]
fn a_malformed_message_ends_its_connection_and_no_other() {
    let place = Place::new();
    let server = Agent::new(&place);
    server.listens(PORTS_TCP, 0);
    let too_long = |agent: &Agent| {
        let id = agent.resolve(0);
        let mut message = Writer::of(&[op::CM_CONNECT, pack(id, 0), pack(1, 197), 0]);
        message.raw(&[0; 197]);
        agent.client.send(&message);
    };
    let without_parameters = |agent: &Agent| {
        let id = agent.resolve(0);
        let message = Writer::of(&[op::CM_CONNECT, pack(id, 0), pack(1, 8), 0]);
        agent.client.send(&message);
    };
    let port = |agent: &Agent| {
        let id = agent.create(PORTS_TCP);
        let message = Writer::of(&[op::CM_BIND, pack(id, 0), 1 << 16]);
        agent.client.send(&message);
    };
    let verbs = |agent: &Agent| agent.client.send(&Writer::of(&[op::ALLOC_PD]));
    let device = |agent: &Agent| agent.client.send(&Writer::of(&open(0)));
    let twice = |agent: &Agent| agent.client.send(&Writer::of(&[op::CM_OPEN, VERSION]));
    let wrong: [&dyn Fn(&Agent); 6] = [
        &too_long,
        &without_parameters,
        &port,
        &verbs,
        &device,
        &twice,
    ];
    for (index, wrong) in wrong.iter().enumerate() {
        let agent = Agent::new(&place);
        wrong(&agent);
        assert_eq!(
            agent.client.answer().unwrap_err(),
            Refused::Closed,
            "{index}"
        );
    }
    assert_eq!(place.stop().rejected, wrong.len() as u64);
}

/// Random messages of small numbers from several clients. After all of them two honest ones connect.
#[test]
fn random_messages_harm_no_client() {
    let place = Place::new();
    let mut state = 28;
    let mut random = move || {
        state = u64::wrapping_add(state, 0x9e37_79b9_7f4a_7c15);
        let word = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word ^ word >> 31
    };
    let mut agents = [0; 4].map(|_| Agent::new(&place));
    for _ in 0..20_000 {
        let (at, word) = ((random() % 4) as usize, random());
        let operation = op::CM_CREATE_CHANNEL + random() % 17;
        let small = |word: u64| (word % 48) as u32;
        let second = match word % 4 {
            0 => PORTS_TCP,
            1 => NO_HOST,
            _ => small(word >> 16) % 3,
        };
        let mut message = Writer::of(&[operation, pack(small(word >> 8), second)]);
        match random() % 4 {
            0 => message.word(pack(small(random()) % 2, PORT as u32)),
            1 => message.word(PORT),
            2 => message.word(pack(1, 8)).word(random()).word(random()),
            _ => message.word(random()),
        };
        agents[at].client.send(&message);
        if matches!(agents[at].client.answer(), Err(Refused::Closed)) {
            agents[at] = Agent::new(&place);
        }
    }
    drop(agents);
    let (server, client) = (Agent::new(&place), Agent::new(&place));
    let id = server.create(PORTS_UDP);
    server.bind(id, 0, 1).unwrap();
    server.ask(op::CM_LISTEN, id, 0).unwrap();
    let to = client.create(PORTS_UDP);
    let words = [op::CM_RESOLVE_ADDR, pack(to, 1), pack(0, 1)];
    client.client.call(&words).unwrap();
    assert_eq!(client.event().kind, kind::ADDR_RESOLVED);
    client.send(op::CM_CONNECT, to, b"").unwrap();
    assert_eq!(server.event().kind, kind::CONNECT_REQUEST);
}
