//! Connection management: what programs that use rdma_cm ask of the network.
//!
//! Problem: two programs that want to connect know an address and a port, and need each other's queue pair number. On a
//! network, agents of both hosts exchange messages about it. Method: the broker is the agent of all hosts. It knows who
//! listens where, hands requests and answers to the other end, and queues events for each channel. A byte in a channel's
//! pipe stands for each queued event, so that a program can wait for events with poll(2).
//!
//! Every identifier, listening or connected, belongs to a client. A client has at most [`IDS_MAX`] identifiers,
//! [`CHANNELS_MAX`] channels and [`EVENTS_MAX`] events that it has not taken, a listener at most 1,024 requests
//! that are not answered. A request beyond these is rejected, as by a host without resources. Other events beyond these
//! are lost. When a client ends, its peers learn it as from a host that closes its connections.
//!
//! Limits: these messages take no time of the model and cannot be lost. Queue pairs change their states in the programs'
//! libraries, not here.

mod ports;
mod waiting;

use crate::answer::{Answered, event_pipe, known, words};
use isolane_rdma_emulated_verbs::cm::message::{
    Event, NO_HOST, PORTS_TCP, PORTS_UDP, Parameters, kind,
};
use isolane_rdma_emulated_verbs::wire::{Reader, Writer, op};
use rustix::fd::OwnedFd;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use waiting::Waiting;

/// Identifiers of one client.
pub(crate) const IDS_MAX: usize = 1024;
/// Channels of one client, each with a descriptor here.
pub(crate) const CHANNELS_MAX: usize = 32;
/// Channels of all clients.
const CHANNELS_ALL_MAX: usize = 256;
/// Events of one client that it has not taken: a pipe has room for a byte of each, also where the user's pipes have one page.
pub(crate) const EVENTS_MAX: usize = 4096;
/// Reasons of a rejection, as the InfiniBand specification numbers them.
const NO_RESOURCES: i32 = 3;
const NOBODY_LISTENS: i32 = 8;
const BY_THE_PROGRAM: i32 = 28;

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    clients: BTreeMap<u32, Held>,
    channels: BTreeMap<u32, Channel>,
    ids: BTreeMap<u32, Identifier>,
    /// Identifiers by port space and port.
    bound: BTreeMap<(u32, u16), BTreeSet<u32>>,
    waiting: Waiting,
    /// Real time since the broker's start.
    now: Duration,
    last: u32,
    next_port: u16,
}

/// What a client has here.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    ids: usize,
    /// Events that it has not taken.
    events: usize,
}

#[derive(Debug)]
struct Channel {
    client: u32,
    bell: OwnedFd,
    /// `None`: what the event was about is gone; its byte is still in the pipe.
    events: VecDeque<Option<Event>>,
}

#[derive(Clone, Debug)]
struct Identifier {
    client: u32,
    channel: u32,
    ports: u32,
    /// Own host; [`NO_HOST`] for every host.
    host: u32,
    port: u16,
    remote: (u32, u16),
    peer: Option<u32>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing, or bound, or resolved.
    Idle,
    /// Room for so many more requests.
    Listens {
        left: u32,
    },
    /// The request waits for a listener.
    Waits,
    /// The request is sent.
    Requests,
    /// A request came, to this listener.
    Asked {
        listener: u32,
    },
    /// The request is accepted; the other end has not confirmed.
    Accepts,
    /// The other end has accepted.
    Accepted,
    Connected,
    /// It was connected.
    Over,
}

impl Connections {
    /// Adds a client without anything.
    pub(crate) fn open(&mut self, client: u32) {
        self.clients.insert(client, Held::default());
    }

    /// Whether this client manages connections.
    pub(crate) fn is_open(&self, client: u32) -> bool {
        self.clients.contains_key(&client)
    }

    /// A client is gone, however it went.
    pub(crate) fn close(&mut self, client: u32) {
        if !self.clients.contains_key(&client) {
            return;
        }
        // No request waits for a program that has gone.
        let own = self.ids.values_mut().filter(|id| id.client == client);
        for id in own {
            if matches!(id.state, State::Listens { .. }) {
                id.state = State::Over;
            }
        }
        let own = self.ids.iter().filter(|(_, id)| id.client == client);
        for id in own.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.remove(id);
        }
        self.channels.retain(|_, channel| channel.client != client);
        self.program_goes(client);
        self.clients.remove(&client);
    }

    fn held(&mut self, client: u32) -> &mut Held {
        self.clients
            .get_mut(&client)
            .expect("a client outlives what it has")
    }

    /// A request. The error is an `errno` value for the client; `None`: the message is malformed. `hosts` is the number of
    /// hosts.
    pub(crate) fn request(
        &mut self,
        client: u32,
        operation: u64,
        reader: &mut Reader<'_>,
        hosts: u32,
    ) -> Option<Answered> {
        if operation == op::CM_CREATE_CHANNEL {
            return Some(self.create_channel(client));
        }
        let (first, second) = reader.halves()?;
        if matches!(
            operation,
            op::CM_DESTROY_CHANNEL | op::CM_CREATE_ID | op::CM_EVENT
        ) {
            let channel = self.channels.get(&first);
            if channel.is_none_or(|channel| channel.client != client) {
                return Some(Err(libc::EINVAL));
            }
            return Some(match operation {
                op::CM_DESTROY_CHANNEL => self.destroy_channel(first),
                op::CM_CREATE_ID => self.create(client, first, second),
                _ => self.next_event(first),
            });
        }
        if self.ids.get(&first).is_none_or(|id| id.client != client) {
            return Some(Err(libc::EINVAL));
        }
        let is_host = |host: u32| host < hosts || host == NO_HOST;
        Some(match operation {
            op::CM_DESTROY_ID => {
                self.remove(first);
                words(&[])
            }
            op::CM_MIGRATE => self.migrate(first, second),
            op::CM_BIND => {
                let port = u16::try_from(reader.number()?).ok()?;
                match is_host(second) {
                    true => self.bind(first, second, port),
                    false => Err(libc::EADDRNOTAVAIL),
                }
            }
            op::CM_LISTEN => self.listen(first, second),
            op::CM_RESOLVE_ADDR => {
                let (host, port) = reader.halves()?;
                let port = u16::try_from(port).ok()?;
                match second < hosts {
                    true => self.resolve(first, second, (host, port), host < hosts),
                    false => Err(libc::ENODEV),
                }
            }
            op::CM_RESOLVE_ROUTE => self.tell(first, kind::ROUTE_RESOLVED, 0),
            op::CM_CONNECT => self.connect(first, Parameters::read(reader)?),
            op::CM_ACCEPT => self.accept(first, Parameters::read(reader)?),
            op::CM_ESTABLISH => self.establish(first),
            op::CM_REJECT => self.reject(first, Parameters::read(reader)?),
            op::CM_DISCONNECT => self.disconnect(first),
            _ => return None,
        })
    }

    fn number(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            let taken = self.ids.contains_key(&self.last) || self.channels.contains_key(&self.last);
            if self.last != 0 && !taken {
                return self.last;
            }
        }
    }

    fn create_channel(&mut self, client: u32) -> Answered {
        let own = self
            .channels
            .values()
            .filter(|channel| channel.client == client);
        if own.count() >= CHANNELS_MAX || self.channels.len() >= CHANNELS_ALL_MAX {
            return Err(libc::ENOMEM);
        }
        let (reader, bell) = event_pipe()?;
        let number = self.number();
        let channel = Channel {
            client,
            bell,
            events: VecDeque::new(),
        };
        self.channels.insert(number, channel);
        Ok((Writer::of(&[0, u64::from(number)]), Some(reader)))
    }

    /// A channel's identifiers go with it, as with the file of a real one.
    fn destroy_channel(&mut self, number: u32) -> Answered {
        let on = self.ids.iter().filter(|(_, id)| id.channel == number);
        for id in on.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.remove(id);
        }
        if let Some(channel) = self.channels.remove(&number) {
            self.held(channel.client).events -= channel.events.len();
        }
        words(&[])
    }

    /// Adds an identifier, if its client may have one more.
    fn insert(&mut self, id: Identifier) -> Result<u32, i32> {
        let held = self.held(id.client);
        if held.ids >= IDS_MAX {
            return Err(libc::ENOMEM);
        }
        held.ids += 1;
        let number = self.number();
        self.ids.insert(number, id);
        Ok(number)
    }

    fn forget(&mut self, number: u32) {
        if let Some(id) = self.ids.remove(&number) {
            self.held(id.client).ids -= 1;
        }
    }

    fn create(&mut self, client: u32, channel: u32, ports: u32) -> Answered {
        if !matches!(ports, PORTS_TCP | PORTS_UDP) {
            return Err(libc::EPROTONOSUPPORT);
        }
        let number = self.insert(Identifier {
            client,
            channel,
            ports,
            host: NO_HOST,
            port: 0,
            remote: (NO_HOST, 0),
            peer: None,
            state: State::Idle,
        })?;
        words(&[u64::from(number)])
    }

    /// Queues an event about `id`; one beyond the client's limit is lost. Returns whether it is queued.
    fn push(&mut self, event: Event) -> bool {
        let about = match event.kind {
            kind::CONNECT_REQUEST => event.listener,
            _ => event.id,
        };
        let id = self.ids.get(&about);
        let channel = id.and_then(|id| self.channels.get_mut(&id.channel));
        let Some(channel) = channel else { return false };
        let held = self.clients.get_mut(&channel.client);
        let Some(held) = held.filter(|held| held.events < EVENTS_MAX) else {
            return false;
        };
        if rustix::io::write(&channel.bell, &[1]) != Ok(1) {
            return false;
        }
        held.events += 1;
        channel.events.push_back(Some(event));
        true
    }

    fn event(&self, id: u32, kind: u32, status: i32) -> Event {
        let found = &self.ids[&id];
        Event {
            kind,
            status,
            id,
            local: (found.host, found.port),
            remote: found.remote,
            ..Event::default()
        }
    }

    fn tell(&mut self, id: u32, kind: u32, status: i32) -> Answered {
        match self.push(self.event(id, kind, status)) {
            true => words(&[]),
            false => Err(libc::ENOMEM),
        }
    }

    fn next_event(&mut self, channel: u32) -> Answered {
        let channel = self
            .channels
            .get_mut(&channel)
            .expect("the caller has looked");
        let Some(event) = channel.events.pop_front() else {
            return Err(libc::ENOENT);
        };
        if let Some(held) = self.clients.get_mut(&channel.client) {
            held.events -= 1;
        }
        let event = event.ok_or(libc::ENOENT)?;
        let mut writer = Writer::of(&[0]);
        event.write(&mut writer);
        Ok((writer, None))
    }

    /// Voids the events of `channel` that `select` names, and returns them.
    fn take_events(&mut self, channel: u32, select: impl Fn(&Event) -> bool) -> Vec<Event> {
        let queue = self
            .channels
            .get_mut(&channel)
            .map(|channel| &mut channel.events);
        let queue = queue.into_iter().flatten();
        let selected = queue.filter(|event| event.as_ref().is_some_and(&select));
        selected.filter_map(Option::take).collect()
    }

    /// An identifier goes, with what is queued about it. The other end learns it.
    fn remove(&mut self, number: u32) {
        let Some(id) = self.ids.get(&number).cloned() else {
            return;
        };
        // Requests to it that the program has not seen.
        let unseen =
            |event: &Event| event.kind == kind::CONNECT_REQUEST && event.listener == number;
        for request in self.take_events(id.channel, unseen) {
            self.remove(request.id);
        }
        self.take_events(id.channel, |event| event.id == number);
        match id.state {
            State::Listens { .. } => self.listener_goes(number),
            State::Waits => self.wait_no_more(number),
            _ => {}
        }
        self.leave(number, Parameters::default());
        self.unbind(number);
        self.forget(number);
    }

    /// Ends what `number` has with its other end, which gets an event.
    fn leave(&mut self, number: u32, last_words: Parameters) {
        let Some(id) = self.ids.get_mut(&number) else {
            return;
        };
        let before = std::mem::replace(&mut id.state, State::Over);
        let peer = id.peer.take();
        self.answered(before);
        let Some(peer) = peer.filter(|peer| self.ids.contains_key(peer)) else {
            return;
        };
        let (kind, status) = match before {
            State::Requests | State::Asked { .. } => (kind::REJECTED, BY_THE_PROGRAM),
            State::Accepts | State::Accepted | State::Connected => (kind::DISCONNECTED, 0),
            _ => return,
        };
        let at_peer = self.ids.get_mut(&peer).expect("it is there");
        at_peer.peer = None;
        let there = std::mem::replace(&mut at_peer.state, State::Over);
        self.answered(there);
        let mut event = self.event(peer, kind, status);
        event.parameters = last_words;
        self.push(event);
    }

    /// A request in `state` waits for its listener no longer.
    fn answered(&mut self, state: State) {
        if let State::Asked { listener } = state
            && let Some(listener) = self.ids.get_mut(&listener)
            && let State::Listens { left } = &mut listener.state
        {
            *left += 1;
        }
    }

    fn migrate(&mut self, number: u32, channel: u32) -> Answered {
        let id = self.ids.get_mut(&number).expect("the caller has looked");
        let there = self.channels.get(&channel);
        known(there.filter(|there| there.client == id.client))?;
        let before = std::mem::replace(&mut id.channel, channel);
        let own = |event: &Event| match event.kind {
            kind::CONNECT_REQUEST => event.listener == number,
            _ => event.id == number,
        };
        for event in self.take_events(before, own) {
            self.push(event);
        }
        words(&[])
    }

    fn resolve(&mut self, number: u32, host: u32, remote: (u32, u16), found: bool) -> Answered {
        let id = &self.ids[&number];
        if id.state != State::Idle || id.host != NO_HOST && id.host != host {
            return Err(libc::EINVAL);
        }
        if id.port == 0 {
            self.bind(number, host, 0)?;
        }
        let id = self.ids.get_mut(&number).expect("the caller has looked");
        id.host = host;
        if !found {
            return self.tell(number, kind::ADDR_ERROR, -libc::EHOSTUNREACH);
        }
        id.remote = remote;
        self.tell(number, kind::ADDR_RESOLVED, 0)
    }

    fn connect(&mut self, number: u32, parameters: Parameters) -> Answered {
        let from = self.ids[&number].clone();
        if from.state != State::Idle || from.remote.0 == NO_HOST {
            return Err(libc::EINVAL);
        }
        let Some(listener) = self.listener(from.ports, from.remote) else {
            if self.may_come(from.ports, from.remote) {
                self.wait(number, parameters);
                return words(&[]);
            }
            return self.tell(number, kind::REJECTED, NOBODY_LISTENS);
        };
        let at = self.ids[&listener].clone();
        let State::Listens { left } = at.state else {
            return Err(libc::EINVAL);
        };
        let asked = Identifier {
            host: from.remote.0,
            port: from.remote.1,
            remote: (from.host, from.port),
            peer: Some(number),
            state: State::Asked { listener },
            ..at
        };
        let room = (left > 0).then(|| self.insert(asked));
        let Some(Ok(new)) = room else {
            return self.tell(number, kind::REJECTED, NO_RESOURCES);
        };
        let event = Event {
            listener,
            parameters,
            ..self.event(new, kind::CONNECT_REQUEST, 0)
        };
        if !self.push(event) {
            self.forget(new);
            return self.tell(number, kind::REJECTED, NO_RESOURCES);
        }
        self.set(listener, State::Listens { left: left - 1 });
        let id = self.ids.get_mut(&number).expect("the caller has looked");
        (id.state, id.peer) = (State::Requests, Some(new));
        words(&[])
    }

    fn set(&mut self, number: u32, state: State) {
        self.ids.get_mut(&number).expect("it is there").state = state;
    }

    /// The other end, if it is in `state`.
    fn peer_in(&self, number: u32, state: State) -> Result<u32, i32> {
        let peer = self.ids[&number].peer;
        let peer = peer.filter(|peer| self.ids.get(peer).is_some_and(|id| id.state == state));
        peer.ok_or(libc::ENOTCONN)
    }

    fn accept(&mut self, number: u32, parameters: Parameters) -> Answered {
        let before = self.ids[&number].state;
        if !matches!(before, State::Asked { .. }) {
            return Err(libc::EINVAL);
        }
        let peer = self.peer_in(number, State::Requests)?;
        self.answered(before);
        let is_datagram = self.ids[&number].ports == PORTS_UDP;
        let (here, there, kind) = match is_datagram {
            true => (State::Over, State::Over, kind::ESTABLISHED),
            false => (State::Accepts, State::Accepted, kind::CONNECT_RESPONSE),
        };
        self.set(number, here);
        self.set(peer, there);
        let event = Event {
            parameters,
            ..self.event(peer, kind, 0)
        };
        self.push(event);
        words(&[])
    }

    fn establish(&mut self, number: u32) -> Answered {
        if self.ids[&number].state != State::Accepted {
            return Err(libc::EINVAL);
        }
        let peer = self.peer_in(number, State::Accepts)?;
        self.set(number, State::Connected);
        self.set(peer, State::Connected);
        self.push(self.event(peer, kind::ESTABLISHED, 0));
        words(&[])
    }

    fn reject(&mut self, number: u32, parameters: Parameters) -> Answered {
        match self.ids[&number].state {
            State::Asked { .. } | State::Accepted => {
                self.leave(number, parameters);
                words(&[])
            }
            _ => Err(libc::EINVAL),
        }
    }

    /// Both ends get an event, as when the other end's answer arrives.
    fn disconnect(&mut self, number: u32) -> Answered {
        match self.ids[&number].state {
            State::Accepts | State::Accepted | State::Connected => {
                self.leave(number, Parameters::default());
                self.tell(number, kind::DISCONNECTED, 0)
            }
            // The other end was first.
            State::Over => words(&[]),
            _ => Err(libc::EINVAL),
        }
    }
}
