//! Counts and limits of clients, without sockets.

use super::*;
use crate::faults::Chances;
use crate::held::Kind;
use isolane_rdma_emulated_verbs::attributes::{Element, PairAttributes, Route, SendRequest};
use isolane_rdma_emulated_verbs::wire::{Reader, Writer, op, pack};
use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::model::Topology;
use isolane_rdma_simulator::rnic::live::LiveNics;
use std::os::fd::OwnedFd;

const ME: u32 = 1;
const OTHER: u32 = 2;
const ACCESS: u32 = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND;

/// A broker's objects with clients of this process on host 0.
struct Bench {
    fabric: Fabric,
    events: Vec<OwnedFd>,
}

impl Bench {
    fn new() -> Self {
        let library = Library::embedded();
        let profile = library.profile("cx5-100g-roce").unwrap();
        let nics = LiveNics::new(profile, 2, Topology::Switch, 1).unwrap();
        let facts = (0..2).map(|host| crate::facts::of(profile, host)).collect();
        let faults = Faults::new(Chances::default(), 1);
        let mut bench = Self {
            fabric: Fabric::new(nics, 1.0, facts, faults),
            events: Vec::new(),
        };
        bench.open(ME);
        bench.open(OTHER);
        bench
    }

    fn open(&mut self, client: u32) {
        let pid = std::process::id().cast_signed();
        self.events.push(self.fabric.open(client, pid, 0).unwrap());
    }

    fn request(&mut self, client: u32, message: &Writer) -> Result<u32, i32> {
        let mut reader = Reader::new(message.bytes());
        let operation = reader.word().unwrap();
        let answer = self.fabric.request(client, operation, &mut reader);
        let (answer, _) = answer.expect("well-formed")?;
        let mut reader = Reader::new(answer.bytes());
        Ok(reader.word().and_then(|_| reader.word()).unwrap_or(0) as u32)
    }

    fn ask(&mut self, client: u32, words: &[u64]) -> Result<u32, i32> {
        self.request(client, &Writer::of(words))
    }

    /// A queue pair in the state RTS that sends to host 1; the number of its other end is `to`.
    fn pair(&mut self, client: u32, kind: u32, to: u32) -> u32 {
        let domain = self.ask(client, &[op::ALLOC_PD]).unwrap();
        let words = [op::CREATE_CQ, pack(16, u32::MAX)];
        let queue = self.ask(client, &words).unwrap();
        let number = self.ask(client, &create(domain, kind, queue)).unwrap();
        self.connect(client, number, kind, to);
        number
    }

    fn connect(&mut self, client: u32, number: u32, kind: u32, to: u32) {
        let wanted = PairAttributes {
            port: 1,
            path_mtu: 3,
            dest_qp_num: to,
            timeout: 31,
            retry_count: u32::MAX,
            route: Route {
                is_global: true,
                dgid: self.fabric.facts[1].gids[0],
                ..Route::default()
            },
            ..PairAttributes::default()
        };
        let path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        let reliable = [
            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
            IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
        ];
        let reliable = reliable.map(|mask| if kind == IBV_QPT_RC { mask } else { 0 });
        let steps = [
            (
                IBV_QPS_INIT,
                IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS | IBV_QP_QKEY,
            ),
            (IBV_QPS_RTR, path | reliable[0]),
            (IBV_QPS_RTS, IBV_QP_SQ_PSN | reliable[1]),
        ];
        for (state, mask) in steps {
            let words = [op::MODIFY_QP, pack(number, IBV_QP_STATE | mask), 0];
            let mut message = Writer::of(&words);
            PairAttributes { state, ..wanted }.write(&mut message);
            self.request(client, &message).unwrap();
        }
    }

    fn post(&mut self, client: u32, number: u32, request: &SendRequest) -> Option<()> {
        let mut message = Writer::of(&[u64::from(number), 1]);
        request.write(&mut message);
        let now = self.fabric.nics.now();
        let mut reader = Reader::new(message.bytes());
        self.fabric.post_sends(now, client, &mut reader)
    }

    /// Counts by a search what each client has.
    fn found(&self) -> BTreeMap<u32, Held> {
        let fabric = &self.fabric;
        let mut found: BTreeMap<u32, Held> = BTreeMap::new();
        let mut add = |client: u32, kind| found.entry(client).or_default().add(kind);
        for &client in fabric.domains.values() {
            add(client, Kind::Domain);
        }
        for region in fabric.regions.values() {
            add(region.client, Kind::Region);
        }
        for window in fabric.windows.values() {
            add(window.client, Kind::Window);
        }
        for queue in fabric.completions.values() {
            add(queue.client, Kind::Completions);
        }
        for queue in fabric.shared.values() {
            add(queue.client, Kind::Shared);
        }
        for pair in fabric.pairs.values() {
            add(pair.client, Kind::Pair);
        }
        for queue in fabric.completions.values() {
            found.entry(queue.client).or_default().entries += queue.ring.capacity();
        }
        for queue in fabric.shared.values() {
            found.entry(queue.client).or_default().places += u64::from(queue.depth);
        }
        for pair in fabric.pairs.values() {
            let held = found.entry(pair.client).or_default();
            held.places += u64::from(pair.depth) + u64::from(pair.receive_depth);
            held.lanes += pair.lanes.len();
            let flying = pair.lanes.values().flat_map(|lane| &lane.flying);
            held.flying += flying.map(|(.., payload)| payload.length()).sum::<u64>();
        }
        found
    }

    /// Panics unless every count is what a search finds.
    fn check(&self) {
        let found = self.found();
        for (number, client) in &self.fabric.clients {
            let wanted = found.get(number).cloned().unwrap_or_default();
            assert_eq!(client.held, wanted, "client {number}");
        }
        let mut users: BTreeMap<u32, usize> = BTreeMap::new();
        let fabric = &self.fabric;
        let uses = fabric.pairs.values().flat_map(|pair| pair.uses());
        let uses = uses.chain(fabric.regions.values().map(|region| region.domain));
        let uses = uses.chain(fabric.windows.values().map(|window| window.domain));
        let uses = uses.chain(fabric.shared.values().map(|queue| queue.domain));
        let channels = fabric.completions.values();
        for handle in uses.chain(channels.filter_map(|queue| queue.channel)) {
            *users.entry(handle).or_default() += 1;
        }
        assert_eq!(fabric.users, users);
        for (key, region) in &fabric.regions {
            let bound = fabric.windows.values().filter_map(|window| window.bound);
            let bound = bound.filter(|bound| bound.region == *key).count();
            assert_eq!(region.bound, bound, "region {key}");
        }
        for (handle, queue) in &fabric.completions {
            let pairs = fabric.pairs.values();
            let pairs = pairs.filter(|pair| pair.send_completions == *handle);
            let work = pairs.flat_map(|pair| pair.work.iter().map(|work| (pair.transport, work)));
            let owed = work.filter(|(transport, work)| completes_by_itself(*transport, work));
            assert_eq!(queue.datagrams, owed.count() as u64, "queue {handle}");
        }
    }

    /// Lets all events of the model happen; `seen` is called after each report.
    fn run(&mut self, mut seen: impl FnMut(&Fabric)) {
        while let Some(at) = self.fabric.nics.next_time() {
            self.fabric.nics.run_until(at);
            while let Some((when, report)) = self.fabric.nics.next_report(at) {
                self.fabric.reported(when, report);
                seen(&self.fabric);
            }
        }
    }
}

fn create(domain: u32, kind: u32, queue: u32) -> [u64; 5] {
    [
        op::CREATE_QP,
        pack(domain, kind),
        pack(queue, queue),
        pack(u32::MAX, 0),
        pack(16, 16),
    ]
}

fn send(elements: Vec<Element>) -> SendRequest {
    SendRequest {
        opcode: IBV_WR_SEND,
        flags: IBV_SEND_SIGNALED,
        elements,
        ..SendRequest::default()
    }
}

/// A random number below `below` and the next state (xorshift).
fn random(state: &mut u64, below: u64) -> u32 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) as u32 % below as u32
}

#[test]
fn counts_are_what_a_search_finds_after_any_requests() {
    let mut bench = Bench::new();
    let memory = vec![0_u64; 64];
    let addr = memory.as_ptr().expose_provenance() as u64;
    let mut state = 7;
    let mut made = 0;
    for round in 0..6_000 {
        let client = 1 + random(&mut state, 2);
        // Handles of both clients, keys, and numbers of pairs; most requests name one that is there.
        let handle = 1 + random(&mut state, 24.max(u64::from(bench.fabric.next_handle)));
        let other = 1 + random(&mut state, 24.max(u64::from(bench.fabric.next_handle)));
        let key = (1 + random(&mut state, u64::from(bench.fabric.next_key))) << 8;
        let pair = FIRST_PAIR
            + random(
                &mut state,
                u64::from(bench.fabric.next_pair - FIRST_PAIR) + 1,
            );
        let kind = [IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD][random(&mut state, 3) as usize];
        let shared = if random(&mut state, 2) == 0 {
            u32::MAX
        } else {
            other
        };
        let words: Vec<u64> = match random(&mut state, 20) {
            0 | 1 => vec![op::ALLOC_PD],
            2 => vec![op::DEALLOC_PD, u64::from(handle)],
            3 | 4 => vec![op::REG_MR, pack(handle, ACCESS), addr, 512, addr],
            5 => vec![
                op::REREG_MR,
                pack(key, handle),
                addr,
                256,
                u64::from(ACCESS),
            ],
            6 => vec![op::DEREG_MR, u64::from(key)],
            7 | 8 => vec![op::ALLOC_MW, pack(handle, 1 + random(&mut state, 2))],
            9 => vec![op::DEALLOC_MW, u64::from(key)],
            10 => vec![op::CREATE_CHANNEL],
            11 => vec![op::DESTROY_CHANNEL, u64::from(handle)],
            12 | 13 => vec![op::CREATE_CQ, pack(1 + random(&mut state, 30), shared)],
            14 => vec![op::RESIZE_CQ, pack(handle, 1 + random(&mut state, 30))],
            15 => vec![op::DESTROY_CQ, u64::from(handle)],
            16 => vec![op::CREATE_SRQ, pack(handle, 1 + random(&mut state, 30))],
            17 => vec![op::DESTROY_SRQ, u64::from(handle)],
            18 => vec![op::DESTROY_QP, u64::from(pair)],
            _ => vec![
                op::CREATE_QP,
                pack(handle, kind),
                pack(other, other),
                pack(shared, 0),
                pack(8, 8),
            ],
        };
        made += u32::from(bench.ask(client, &words).is_ok());
        if random(&mut state, 4) == 0 {
            // Its program's window, or another one.
            let window = (1 + random(&mut state, u64::from(bench.fabric.next_key))) << 8;
            let bound = Bound {
                region: key,
                addr,
                length: 64,
                access: IBV_ACCESS_REMOTE_WRITE,
                pair: None,
            };
            if bench.fabric.own_pair(client, pair).is_some() {
                bench.fabric.bind(pair, window, window, bound);
                bench
                    .fabric
                    .invalidate(pair, window + random(&mut state, 2));
            }
        }
        if round % 1_500 == 1_499 {
            bench.fabric.close(client);
            bench.open(client);
        }
        if round % 20 == 0 {
            bench.check();
        }
    }
    assert!(made > 1_000, "{made}");
    bench.fabric.close(ME);
    bench.fabric.close(OTHER);
    bench.check();
    assert!(bench.fabric.users.is_empty());
}

#[test]
fn work_is_counted_until_it_is_over() {
    let mut bench = Bench::new();
    let number = bench.pair(ME, IBV_QPT_UD, 1);
    let mut datagram = send(Vec::new());
    datagram.route = bench.fabric.pairs[&number].attributes.route;
    let queue = bench.fabric.pairs[&number].send_completions;
    for _ in 0..3 {
        bench.post(ME, number, &datagram).unwrap();
    }
    assert_eq!(bench.fabric.completions[&queue].datagrams, 3);
    bench.check();
    bench.run(|_| ());
    assert_eq!(bench.fabric.completions[&queue].datagrams, 0);
    bench.post(ME, number, &datagram).unwrap();
    bench.fabric.reset_pair(number);
    bench.check();
}

/// The attack: numbers are used up by pairs that are destroyed at once.
#[test]
fn numbers_of_pairs_that_are_gone_come_again() {
    let mut bench = Bench::new();
    let first = bench.pair(ME, IBV_QPT_UD, 1);
    bench.fabric.next_pair = PAIRS_END - 1;
    let second = bench.pair(OTHER, IBV_QPT_UD, 1);
    let third = bench.pair(OTHER, IBV_QPT_UD, 1);
    assert_eq!(
        [first, second, third],
        [FIRST_PAIR, PAIRS_END - 1, FIRST_PAIR + 1]
    );
}

/// The attack: retries that no device has, whose time is beyond any number.
#[test]
fn retries_beyond_those_of_a_device_count_as_the_most() {
    let mut bench = Bench::new();
    let number = bench.pair(ME, IBV_QPT_RC, 1);
    bench.post(ME, number, &send(Vec::new())).unwrap();
    bench.run(|_| ());
    assert!(bench.fabric.pairs[&number].waits);
    assert!(bench.fabric.next_time().is_some());
}

/// The attack: each reset leaves a timer of hours.
#[test]
fn timers_of_requests_that_are_over_are_bounded() {
    let mut bench = Bench::new();
    let number = bench.pair(ME, IBV_QPT_RC, 1);
    for _ in 0..3_000 {
        bench.post(ME, number, &send(Vec::new())).unwrap();
        bench.run(|_| ());
        bench.fabric.reset_pair(number);
        bench.connect(ME, number, IBV_QPT_RC, 1);
    }
    let timers = bench.fabric.timers.len();
    assert!((1..=1_100).contains(&timers), "{timers}");
}

/// The attack: memory that the program never wrote costs it nothing, and would cost the broker a copy of each message.
#[test]
fn messages_on_their_way_take_bounded_memory() {
    const BYTES: u32 = 8 << 20;
    let mut bench = Bench::new();
    let memory = vec![0_u8; BYTES as usize];
    let addr = memory.as_ptr().expose_provenance() as u64;
    for _ in 0..6 {
        let number = bench.pair(ME, IBV_QPT_UC, 1);
        let domain = bench.fabric.pairs[&number].domain;
        let words = [
            op::REG_MR,
            pack(domain, ACCESS),
            addr,
            u64::from(BYTES),
            addr,
        ];
        let lkey = bench.ask(ME, &words).unwrap();
        let length = BYTES;
        let element = Element { addr, length, lkey };
        bench.post(ME, number, &send(vec![element])).unwrap();
    }
    let mut most = 0;
    bench.run(|fabric| most = most.max(fabric.clients[&ME].held.flying));
    assert!((1..=16 << 20).contains(&most), "{most}");
    bench.check();
}

/// The attack: a program uses all queue pairs of the model and ends.
#[test]
fn what_one_client_gave_back_serves_another() {
    let mut bench = Bench::new();
    bench.fabric.live_max = 1;
    let number = bench.pair(ME, IBV_QPT_UC, 1);
    bench.post(ME, number, &send(Vec::new())).unwrap();
    bench.run(|_| ());
    bench.fabric.close(ME);
    let number = bench.pair(OTHER, IBV_QPT_UC, 1);
    assert_eq!(bench.post(OTHER, number, &send(Vec::new())), Some(()));
    let second = bench.pair(OTHER, IBV_QPT_UC, 1);
    assert_eq!(
        bench.post(OTHER, second, &send(Vec::new())),
        None,
        "the model has no more"
    );
}
