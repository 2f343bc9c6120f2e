//! Applications start, and go on with each message that arrives.

use super::{Asked, Link, Program, Role, steps};
use crate::rnic::build::host_index;
use crate::rnic::event::Event;
use crate::rnic::queue_pair::NONE;
use crate::rnic::sizes::PAGE;
use crate::rnic::world::World;
use isolane_common_quantities::units::{BitRate, Bytes};
use isolane_rdma_scenario::application::{Algorithm, ApplicationTraffic, Program as Kind, Servers};
use isolane_rdma_scenario::model::{DataTraffic, Message, Transport};
use std::collections::{BTreeMap, VecDeque};

impl<const RECORDS: bool> World<RECORDS> {
    /// Adds an application's processes and queue pairs.
    pub(crate) fn add_program(
        &mut self,
        tenant: u16,
        application: &ApplicationTraffic,
        paced: bool,
        regions: &mut u64,
    ) {
        let first = self.programs.actors.len() as u32;
        let hosts: Vec<u8> = application
            .hosts
            .iter()
            .map(|&host| host_index(host))
            .collect();
        let shape = Shape::of(&application.program, hosts.len() as u32);
        let actors = shape.actors;
        self.programs.add_actors(actors + shape.others);
        // Actors are dealt out to hosts in blocks; a store's servers come first among hosts and last among actors.
        let host_of = |actor: u32| match &application.program {
            Kind::Allreduce { workers, .. } => hosts[(actor / workers) as usize],
            Kind::KeyValue { server_threads, .. } if actor >= actors => {
                hosts[((actor - actors) / server_threads) as usize]
            }
            Kind::KeyValue {
                servers: Servers::First,
                threads,
                ..
            } => hosts[1 + (actor / threads) as usize],
            Kind::KeyValue { threads, .. } => hosts[(actor / threads) as usize],
        };
        let mut threads: BTreeMap<(u8, u32), Vec<u32>> = BTreeMap::new();
        for (from, to, role) in shape.joins {
            let join = Join {
                tenant,
                application,
                paced,
                hosts: (host_of(from), host_of(to)),
                actors: (first + from, first + to),
                role,
                sizes: if role == Role::Response {
                    &shape.answered
                } else {
                    &shape.asked
                },
            };
            let pair = self.connect(&join, regions);
            let thread = match &application.program {
                Kind::KeyValue { server_threads, .. } if from >= actors => {
                    (from - actors) % server_threads
                }
                Kind::KeyValue { threads, .. } => from % threads,
                Kind::Allreduce { .. } => continue,
            };
            if application.transport == Transport::Ud {
                let parts = threads.entry((host_of(from), thread)).or_default();
                parts.push(pair);
            }
        }
        // A thread that calls and serves has one queue pair for all its datagrams.
        for parts in threads.into_values().filter(|parts| parts.len() > 1) {
            self.share_datagrams(parts);
        }
        self.programs.programs.push(Program {
            tenant,
            kind: application.program.clone(),
            first_actor: first,
            actors,
            under_way: VecDeque::new(),
            first_operation: 0,
        });
    }

    /// Adds a link; its queue pair.
    fn connect(&mut self, join: &Join<'_>, regions: &mut u64) -> u32 {
        let number = self.programs.links.len() as u32;
        let mut pair = NONE;
        // A store's client sends to its own host through the RNIC too, as FaSST's does.
        let is_store = matches!(join.application.program, Kind::KeyValue { .. });
        if is_store || join.hosts.0 != join.hosts.1 {
            let data = data(join.application, join.sizes);
            self.plans.push(self.plan(&data));
            let plan = self.plans.len() as u32 - 1;
            pair = self.add_process(join.tenant, &data, plan, join.hosts, join.paced, regions);
            self.pairs[pair as usize].link = number;
        }
        self.programs.links.push(Link {
            from: join.actors.0,
            to: join.actors.1,
            pair,
            bytes: join.sizes[0].bytes().get(),
            role: join.role,
        });
        self.programs.asked.push(Asked::default());
        let out = &mut self.programs.actors[join.actors.0 as usize].out;
        out.push(number);
        pair
    }

    /// Starts the applications of a tenant.
    pub(crate) fn start_programs(&mut self, now: u64, tenant: u16) {
        for number in 0..self.programs.programs.len() {
            let program = &self.programs.programs[number];
            if program.tenant != tenant {
                continue;
            }
            let actors = program.first_actor..program.first_actor + program.actors;
            let batches = match program.kind {
                Kind::KeyValue { window, batch, .. } => window / batch,
                Kind::Allreduce { .. } => 0,
            };
            for actor in actors {
                if batches == 0 {
                    self.begin_operation(now, actor);
                }
                self.programs.actors[actor as usize].batches = vec![0; batches as usize];
                for batch in 0..batches {
                    self.ask_batch(now, actor, batch);
                }
            }
        }
    }

    /// A worker begins its next operation; those that wait for others send nothing yet.
    fn begin_operation(&mut self, now: u64, actor: u32) {
        let state = &self.programs.actors[actor as usize];
        let program = &mut self.programs.programs[state.program as usize];
        if !self.running[usize::from(program.tenant)] {
            return;
        }
        let index = (state.finished - program.first_operation) as usize;
        if index == program.under_way.len() {
            program.under_way.push_back((now, 0));
        }
        let link = state.out[0];
        if self.programs.links[link as usize].role == Role::Ring {
            self.send_on(now, link);
        } else {
            self.gathered(now, actor);
        }
    }

    /// A worker has all of its operation's result.
    fn end_operation(&mut self, now: u64, actor: u32) {
        let state = &mut self.programs.actors[actor as usize];
        let program = &mut self.programs.programs[state.program as usize];
        let index = (state.finished - program.first_operation) as usize;
        // None began it once the tenant has stopped.
        let Some(operation) = program.under_way.get_mut(index) else {
            return;
        };
        operation.1 += 1;
        state.finished += 1;
        let (tenant, workers) = (usize::from(program.tenant), program.actors);
        while let Some((started, _)) = program.under_way.pop_front_if(|of| of.1 == workers) {
            program.first_operation += 1;
            self.meter.operation(now, tenant, now - started);
        }
    }

    /// A worker of a tree passes the sum on once it has its children's parts.
    fn gathered(&mut self, now: u64, actor: u32) {
        let state = &self.programs.actors[actor as usize];
        let program = &self.programs.programs[state.program as usize];
        let rank = actor - program.first_actor;
        let needed = u64::from(children(rank, program.actors)) * (state.finished + 1);
        if state.received < needed {
            return;
        }
        if rank == 0 {
            self.spread(now, actor);
        } else {
            let up = state.out[0];
            self.send_on(now, up);
        }
    }

    /// A worker of a tree has the result: it passes the result down and starts again.
    fn spread(&mut self, now: u64, actor: u32) {
        for index in 0..self.programs.actors[actor as usize].out.len() {
            let link = self.programs.actors[actor as usize].out[index];
            if self.programs.links[link as usize].role == Role::Down {
                self.send_on(now, link);
            }
        }
        let done = self.programs.actors[actor as usize].cpu_free.max(now);
        self.end_operation(done, actor);
        self.begin_operation(done, actor);
    }

    /// A client's thread asks the next of its servers, as often as a batch has requests.
    fn ask_batch(&mut self, now: u64, actor: u32, batch: u32) {
        let program = self.programs.actors[actor as usize].program as usize;
        let Kind::KeyValue {
            batch: size,
            credits,
            ..
        } = self.programs.programs[program].kind
        else {
            unreachable!("only a store's clients ask");
        };
        self.programs.actors[actor as usize].batches[batch as usize] = size;
        for _ in 0..size {
            let state = &mut self.programs.actors[actor as usize];
            let request = state.out[state.turn as usize];
            state.turn = (state.turn + 1) % state.out.len() as u32;
            let asked = &mut self.programs.asked[request as usize];
            let waits = credits.is_some_and(|credits| asked.requests.len() >= credits as usize);
            let since = if waits { now } else { u64::MAX };
            asked.requests.push_back((batch, since));
            asked.waiting += u32::from(waits);
            if !waits {
                self.send_on(now, request);
            }
        }
    }

    /// A client has polled an answer to a request of link `asked`, its message number `message`.
    fn answered(&mut self, at: u64, asked: u32, message: u32) {
        let Link { from, pair, .. } = self.programs.links[asked as usize];
        let state = &mut self.programs.asked[asked as usize];
        let (batch, waited) = state
            .requests
            .pop_front()
            .expect("each answer has a request");
        let gives_credit = state.waiting > 0;
        state.waiting -= u32::from(gives_credit);
        let actor = &mut self.programs.actors[from as usize];
        let left = &mut actor.batches[batch as usize];
        *left -= 1;
        let is_complete = *left == 0;
        let tenant = usize::from(self.programs.programs[actor.program as usize].tenant);
        let since = self.pairs[pair as usize].post_time(u64::from(message));
        self.meter.operation(at, tenant, at - since.min(waited));
        if !self.running[tenant] {
            return;
        }
        if gives_credit {
            self.send_on(at, asked);
        }
        if is_complete {
            self.ask_batch(at, from, batch);
        }
    }

    /// An actor sends the next message of a link as soon as its core is free.
    fn send_on(&mut self, now: u64, link: u32) {
        let Link {
            from, pair, bytes, ..
        } = self.programs.links[link as usize];
        let actor = &mut self.programs.actors[from as usize];
        let start = actor.cpu_free.max(now);
        if pair == NONE {
            let program = &self.programs.programs[actor.program as usize];
            let Kind::Allreduce { copy_rate, .. } = program.kind else {
                unreachable!("messages of a store have queue pairs");
            };
            actor.cpu_free = start + time_at(copy_rate, bytes);
            let at = actor.cpu_free;
            self.schedule(at, Event::Handed { link });
            return;
        }
        self.post(start, pair, 1, start);
        let process = self.pairs[pair as usize].process as usize;
        self.programs.actors[from as usize].cpu_free = self.processes[process].cpu_free;
    }

    /// Message number `message` of a link is in its receiver's memory.
    pub(crate) fn program_received(&mut self, now: u64, link: u32, message: u32) {
        let Link {
            to, bytes, role, ..
        } = self.programs.links[link as usize];
        let jitter = match self.device.host_jitter {
            0 => 0,
            spread => self.host_jitter.below(spread + 1),
        };
        let actor = &mut self.programs.actors[to as usize];
        let program = &self.programs.programs[actor.program as usize];
        let steps = steps(program.actors.max(2));
        let work = match (&program.kind, role) {
            (Kind::Allreduce { reduce_rate, .. }, Role::Ring)
                if actor.received % steps < steps / 2 =>
            {
                time_at(*reduce_rate, bytes)
            }
            (Kind::Allreduce { reduce_rate, .. }, Role::Up) => time_at(*reduce_rate, bytes),
            (Kind::KeyValue { service, .. }, Role::Request) => service.as_ps(),
            _ => 0,
        };
        actor.cpu_free = actor.cpu_free.max(now + jitter) + self.device.poll + work;
        let at = actor.cpu_free;
        match role {
            Role::Ring => {
                actor.received += 1;
                if actor.received.is_multiple_of(steps) {
                    self.end_operation(at, to);
                    self.begin_operation(at, to);
                } else {
                    let next = actor.out[0];
                    self.send_on(at, next);
                }
            }
            Role::Up => {
                actor.received += 1;
                self.gathered(at, to);
            }
            Role::Down => self.spread(at, to),
            // A client's link for requests and the one for their answers follow each other.
            Role::Request => self.send_on(at, link + 1),
            Role::Response => self.answered(at, link - 1, message),
        }
    }
}

/// What [`World::connect`] joins.
struct Join<'a> {
    tenant: u16,
    application: &'a ApplicationTraffic,
    paced: bool,
    /// Hosts of the two ends.
    hosts: (u8, u8),
    /// Actors of the two ends.
    actors: (u32, u32),
    role: Role,
    sizes: &'a [Message],
}

/// How many children a worker of `workers` has in the binomial tree.
fn children(rank: u32, workers: u32) -> u32 {
    (rank + 1..workers)
        .filter(|&child| parent(child) == rank)
        .count() as u32
}

/// The actors of an application, and which of them send to which.
struct Shape {
    /// Workers, or threads of clients.
    actors: u32,
    /// Threads of servers.
    others: u32,
    /// Sender, receiver, and what the messages are.
    joins: Vec<(u32, u32, Role)>,
    /// Sizes of requests, or of an operation's messages.
    asked: Vec<Message>,
    answered: Vec<Message>,
}

impl Shape {
    /// What `program` needs on `hosts` hosts.
    fn of(program: &Kind, hosts: u32) -> Self {
        let mut joins: Vec<(u32, u32, Role)> = Vec::new();
        let (mut asked, mut answered) = (Vec::new(), Vec::new());
        let (actors, others) = match program {
            Kind::Allreduce {
                algorithm,
                workers,
                buffer,
                ..
            } => {
                let count = workers * hosts;
                let part = match algorithm {
                    Algorithm::Ring => buffer.get().div_ceil(u64::from(count)).max(1),
                    Algorithm::Tree => buffer.get(),
                };
                asked.push(Message::of(part as u32));
                match algorithm {
                    Algorithm::Ring => {
                        joins.extend((0..count).map(|rank| (rank, (rank + 1) % count, Role::Ring)));
                    }
                    Algorithm::Tree => {
                        joins.extend((1..count).map(|rank| (rank, parent(rank), Role::Up)));
                        // The farthest child first: it has the deepest subtree to serve.
                        let down = (1..count).rev();
                        joins.extend(down.map(|rank| (parent(rank), rank, Role::Down)));
                    }
                }
                (count, 0)
            }
            Kind::KeyValue {
                servers,
                threads,
                server_threads,
                request,
                response,
                ..
            } => {
                let (serving, calling) = match servers {
                    Servers::First => (1, hosts - 1),
                    Servers::All | Servers::Others => (hosts, hosts),
                };
                let clients = threads * calling;
                asked.clone_from(request);
                answered.clone_from(response);
                for client in 0..clients {
                    let asks = |server: &u32| match servers {
                        // A thread's own number as a server is that as a client.
                        Servers::Others => *server != client,
                        Servers::First | Servers::All => {
                            server % server_threads == client % server_threads
                        }
                    };
                    for server in (0..serving * server_threads).filter(asks) {
                        joins.push((client, clients + server, Role::Request));
                        joins.push((clients + server, client, Role::Response));
                    }
                }
                (clients, serving * server_threads)
            }
        };
        Self {
            actors,
            others,
            joins,
            asked,
            answered,
        }
    }
}

/// The parent of a worker in the binomial tree: its number without the lowest bit that is set.
fn parent(rank: u32) -> u32 {
    rank & rank.wrapping_sub(1)
}

fn time_at(rate: BitRate, bytes: u64) -> u64 {
    rate.time_for(Bytes::new(bytes)).as_ps()
}

/// What a link's queue pair sends.
fn data(application: &ApplicationTraffic, sizes: &[Message]) -> DataTraffic {
    let sizes_in_bytes = sizes.iter().map(|message| message.bytes().get());
    let largest = sizes_in_bytes.max().unwrap_or(1);
    DataTraffic {
        pattern: sizes.to_vec(),
        completion_every: match application.transport {
            Transport::Ud => DATAGRAMS_PER_COMPLETION,
            Transport::Rc | Transport::Uc => 1,
        },
        receive_depth: DEPTH,
        inline_bytes: application.inline_bytes,
        mtu: application.mtu,
        region_bytes: Bytes::new(largest.max(PAGE)),
        ..DataTraffic::plain(
            application.verb,
            application.transport,
            Message::of(1),
            DEPTH,
        )
    }
}

/// Messages of a link under way at most: twice the largest window, and two per worker of the largest ring.
const DEPTH: u32 = 1024;

/// Datagrams have one signaled request in this many.
const DATAGRAMS_PER_COMPLETION: u32 = 16;
