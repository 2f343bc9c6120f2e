//! NICs with work from outside.

use super::{Connection, Core, HOSTS_MAX, LivePair, LiveRequest, Report, Reports};
use crate::rnic::event::Event;
use crate::rnic::policies::SimError;
use crate::rnic::queue_pair::{NONE, WorkRequest};
use crate::rnic::world::World;
use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant};
use isolane_rdma_scenario::model::{Class, DataTraffic, Message, Scenario, Tenant, Topology, Verb};
use isolane_rdma_scenario::profile::Profile;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// RDMA NICs on one switch, or two on a cable, with work from outside.
pub struct LiveNics {
    world: World,
    /// How far the caller let it run, ps.
    clock: u64,
    /// Pairs that were given back, by what they are; the one that was given back first is in front.
    idle: BTreeMap<Connection, VecDeque<u32>>,
    /// Of pairs that were given back, what the device is still told of their discarded requests.
    ended: BTreeMap<u32, Ended>,
}

/// Events of discarded requests that are under way.
#[derive(Clone, Copy, Debug)]
struct Ended {
    /// Requests whose doorbells the device has not seen.
    rung: u64,
    /// Whether a fetch of requests is under way.
    fetching: bool,
}

impl std::fmt::Debug for LiveNics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveNics")
            .field("now", &self.world.queue.now())
            .field("pairs", &self.world.pairs.len())
            .finish_non_exhaustive()
    }
}

impl LiveNics {
    /// So many hosts with the device that `profile` describes. Fails as [`crate::rnic::run`] does. Panics if `hosts` is
    /// 0 or above [`HOSTS_MAX`]: our own mistake.
    pub fn new(
        profile: &Profile,
        hosts: usize,
        topology: Topology,
        seed: u64,
    ) -> Result<Self, SimError> {
        assert!((1..=HOSTS_MAX).contains(&hosts), "{hosts} hosts");
        let mut world = <World>::build(&empty(profile, topology, seed), profile)?;
        while world.nics.len() < hosts {
            let nic = world.nics[0].clone();
            world.nics.push(nic);
            world.in_use.push(true);
            world.monitors.push(None);
            world.enforcer.daemons.push(None);
            #[cfg(test)]
            world.moved.push(Vec::new());
        }
        world.live = Some(Box::default());
        Ok(Self {
            world,
            clock: 0,
            idle: BTreeMap::new(),
            ended: BTreeMap::new(),
        })
    }

    /// A new thread.
    pub fn core(&mut self) -> Core {
        let live = self.live();
        live.cores.push(0);
        Core(live.cores.len() - 1)
    }

    /// Adds a queue pair, or takes one that was given back and is like it. Its messages count on from where they are:
    /// the second value is the number of its next message.
    pub fn connect(&mut self, connection: &Connection) -> (LivePair, u32) {
        if let Some(again) = self.reuse(connection) {
            return again;
        }
        let world = &mut self.world;
        let data = traffic(connection);
        world.plans.push(world.plan(&data));
        let plan = world.plans.len() as u32 - 1;
        let mut regions = world.pairs.len() as u64;
        let ends = (connection.from, connection.to);
        let pair = world.add_process(0, &data, plan, ends, false, &mut regions);
        world.set_micro_of(pair as usize);
        let state = &mut world.pairs[pair as usize];
        state.receives = RECEIVES_ALL;
        // Its receives take no place in the device, which would never be free again.
        state.micro.receive = 0;
        // Any number but NONE means that a program waits for each message.
        state.link = 0;
        debug_assert_ne!(state.link, NONE);
        self.live().core_of.push(connection.core.0);
        (LivePair(pair), 0)
    }

    /// Takes a pair that was given back and is like `connection`, as [`Self::connect`] does.
    pub fn reuse(&mut self, connection: &Connection) -> Option<(LivePair, u32)> {
        let kind = of_any_core(connection);
        let alike = self.idle.get(&kind)?;
        let place = alike.iter().position(|pair| self.is_quiet(*pair))?;
        let alike = self.idle.get_mut(&kind)?;
        let pair = alike.remove(place)?;
        if alike.is_empty() {
            self.idle.remove(&kind);
        }
        self.live().core_of[pair as usize] = connection.core.0;
        let state = &self.world.pairs[pair as usize];
        let (host, posted) = (usize::from(state.host), state.posted);
        // Discarded requests were to ask for the acknowledgement of those before them.
        if state.acknowledged < posted {
            self.world.forget_requests(host, pair, posted);
            self.world.pairs[pair as usize].acknowledged = posted;
        }
        Some((LivePair(pair), posted as u32))
    }

    /// Limits the rate at which a pair sends, packet by packet and with headers, as a device with rates of single queue
    /// pairs does; `None` lifts the limit. What a pair READs is not limited.
    pub fn limit(&mut self, pair: LivePair, rate: Option<BitRate>) {
        let now = self.world.queue.now().as_ps().max(self.clock);
        let rate = rate.map_or(0, BitRate::as_bps);
        self.world.limit_sender(now, pair.0, rate);
    }

    /// The caller needs a pair no more. The device drops the requests that it has not begun, and of those that it has begun all
    /// but their next packet, as a NIC does with the work of a queue pair that is destroyed.
    pub fn give_back(&mut self, pair: LivePair, connection: &Connection) {
        self.live().waiting.remove(&pair.0);
        self.discard(pair.0);
        self.limit(pair, None);
        let alike = self.idle.entry(of_any_core(connection)).or_default();
        alike.push_back(pair.0);
    }

    fn discard(&mut self, pair: u32) {
        let state = &mut self.world.pairs[pair as usize];
        let begun = state.scheduled || state.parked || state.resolved || state.offset > 0;
        let kept = state.sent + u64::from(begun && state.sent < state.fetched);
        let ended = Ended {
            rung: state.posted - state.visible,
            fetching: state.fetching,
        };
        let packet = u64::from(state.mtu);
        let mut cut = Vec::from([(state.sent, state.offset)]);
        let answered = state.reads_to_answer.iter().enumerate();
        cut.extend(answered.map(|(place, &position)| {
            let done = if place == 0 { state.response_offset } else { 0 };
            (position, done)
        }));
        for (position, done) in cut.into_iter().filter(|&(position, _)| position < kept) {
            let request = state.request_at(position);
            request.bytes = request.bytes.min(done + packet);
        }
        (state.posted, state.visible, state.fetched) = (kept, kept, kept);
        (state.app_posted, state.released) = (kept, kept);
        if ended.rung > 0 || ended.fetching {
            self.ended.insert(pair, ended);
        }
    }

    /// Whether `event` is of a request that was discarded.
    fn is_of_discarded(&mut self, event: &Event) -> bool {
        let (Event::Doorbell { pair, .. } | Event::Fetched { pair, .. }) = *event else {
            return false;
        };
        let Some(ended) = self.ended.get_mut(&pair) else {
            return false;
        };
        match *event {
            Event::Doorbell { count, .. } => ended.rung -= u64::from(count),
            _ => {
                ended.fetching = false;
                self.world.pairs[pair as usize].fetching = false;
            }
        }
        if ended.rung == 0 && !ended.fetching {
            self.ended.remove(&pair);
        }
        true
    }

    /// Queue pairs that are in use or were given back.
    pub fn pairs(&self) -> usize {
        self.world.pairs.len()
    }

    /// Whether nothing of a pair is under way.
    fn is_quiet(&self, pair: u32) -> bool {
        let state = &self.world.pairs[pair as usize];
        let done = state.sent == state.posted && state.received == state.posted;
        let waits = state.reads_out > 0 || state.backing_off || state.scheduled || state.parked;
        done && !waits && !state.dropping && !self.ended.contains_key(&pair)
    }

    /// Until when it ran.
    pub fn now(&self) -> Instant {
        Instant::from_ps(self.clock)
    }

    /// When the next event or report is due.
    pub fn next_time(&self) -> Option<Instant> {
        let live = self.world.live.as_ref().expect("live NICs report");
        let report = live.heap.peek();
        let report = report.map(|Reverse((at, _, _))| Instant::from_ps(*at));
        let event = self.world.queue.peek_time();
        let event = event.filter(|at| at.as_ps() < FOREVER);
        [report, event].into_iter().flatten().min()
    }

    /// Takes all events up to `until`.
    pub fn run_until(&mut self, until: Instant) {
        while let Some((now, event)) = self.world.queue.pop_until(until) {
            self.world.look_ahead();
            if self.ended.is_empty() || !self.is_of_discarded(&event) {
                self.world.handle(now.as_ps(), event);
            }
            self.post_waiting(now.as_ps());
        }
        self.clock = self.clock.max(until.as_ps());
    }

    /// The next report that is due at `until` or before, with its time.
    pub fn next_report(&mut self, until: Instant) -> Option<(Instant, Report)> {
        let live = self.live();
        let Reverse((at, _, report)) = live.heap.peek().copied()?;
        if at > until.as_ps() {
            return None;
        }
        live.heap.pop();
        Some((Instant::from_ps(at), report))
    }

    /// A thread posts a list with one doorbell; its processor builds the requests one after another.
    pub fn post(&mut self, at: Instant, pair: LivePair, requests: &[LiveRequest]) {
        let now = at.as_ps().max(self.now().as_ps());
        let live = self.live();
        let behind = live.waiting.get(&pair.0).is_some_and(|w| !w.is_empty());
        let room = if behind { 0 } else { self.room(pair.0) };
        let (fits, waits) = requests.split_at(requests.len().min(room));
        self.write(now, pair.0, fits);
        if !waits.is_empty() {
            self.live().waiting.entry(pair.0).or_default().extend(waits);
        }
    }

    /// Bytes that a host has sent and received on its port, headers and acknowledgements included.
    pub fn port_bytes(&self, host: usize) -> (u64, u64) {
        let count = &self.world.nics[host].count;
        (count.tx_bytes, count.rx_bytes)
    }

    /// The counters of a host's NIC since the beginning, by their names in results; times are microseconds of the model.
    pub fn counters(&self, host: usize) -> BTreeMap<&'static str, u64> {
        self.world.totals(host, self.clock).into_iter().collect()
    }

    fn live(&mut self) -> &mut Reports {
        self.world.live.as_mut().expect("live NICs report")
    }

    /// Work requests that a pair's ring has room for.
    fn room(&self, pair: u32) -> usize {
        let state = &self.world.pairs[pair as usize];
        let kept = state.posted - state.acknowledged.min(state.received);
        (u64::from(state.slots) - kept.min(u64::from(state.slots))) as usize
    }

    fn write(&mut self, now: u64, pair: u32, requests: &[LiveRequest]) {
        if requests.is_empty() {
            return;
        }
        let device = &self.world.device;
        let (mmio, inline_max) = (device.mmio, device.inline_max);
        let cost = device.post * requests.len() as u64 + device.ring;
        let live = self.live();
        let core = live.core_of[pair as usize];
        live.cores[core] = live.cores[core].max(now) + cost;
        let at = live.cores[core];
        let state = &mut self.world.pairs[pair as usize];
        let data = matches!(state.verb, Verb::Write | Verb::Send);
        for (index, request) in requests.iter().enumerate() {
            let ends_list = index + 1 == requests.len();
            state.push(WorkRequest {
                bytes: request.bytes,
                message: state.app_posted,
                elements: request.elements.max(1),
                last: true,
                signalled: request.signalled,
                wants_ack: request.signalled || ends_list,
                inline: data && request.inline && request.bytes <= inline_max,
                windowed: false,
            });
            state.app_posted += 1;
        }
        state.released = state.app_posted;
        // Longer lists than a doorbell's count are several doorbells at one time.
        for part in requests.chunks(usize::from(u16::MAX)) {
            let count = part.len() as u16;
            self.world
                .schedule(at + mmio, Event::Doorbell { pair, count });
        }
    }

    /// Posts what waited for slots.
    fn post_waiting(&mut self, now: u64) {
        if self.live().waiting.is_empty() {
            return;
        }
        let pairs: Vec<u32> = self.live().waiting.keys().copied().collect();
        for pair in pairs {
            let room = self.room(pair);
            let waiting = self.live().waiting.get_mut(&pair).expect("listed above");
            let ready: Vec<LiveRequest> = waiting.drain(..room.min(waiting.len())).collect();
            if waiting.is_empty() {
                self.live().waiting.remove(&pair);
            }
            self.write(now, pair, &ready);
        }
    }
}

impl<const RECORDS: bool> World<RECORDS> {
    /// The poster's thread polls the completions of all messages below `upto`.
    pub(crate) fn report_completed(&mut self, now: u64, pair: u32, upto: u32) {
        let jitter = self.jitter_of_host();
        let poll = self.device.poll;
        let state = &mut self.pairs[pair as usize];
        let fresh = upto.wrapping_sub(state.retired as u32) as i32;
        if fresh <= 0 {
            return;
        }
        state.retired += fresh as u64;
        let live = self.live.as_mut().expect("the caller looked");
        let core = &mut live.cores[live.core_of[pair as usize]];
        *core = (*core).max(now + jitter) + poll;
        let at = *core;
        let pair = LivePair(pair);
        live.push(at, Report::Completed { pair, upto });
    }

    /// A message is in the receiver's memory; what polls there does so in real time.
    pub(crate) fn report_delivered(&mut self, now: u64, pair: u32, message: u32) {
        let at = now + self.jitter_of_host();
        let pair = LivePair(pair);
        let live = self.live.as_mut().expect("the caller looked");
        live.push(at, Report::Delivered { pair, message });
    }

    fn jitter_of_host(&mut self) -> u64 {
        match self.device.host_jitter {
            0 => 0,
            spread => self.host_jitter.below(spread + 1),
        }
    }
}

/// What pairs have in common of which one may follow another.
const fn of_any_core(connection: &Connection) -> Connection {
    Connection {
        core: Core(0),
        ..*connection
    }
}

/// What the model calls the traffic of a pair: its sizes come with each request.
fn traffic(connection: &Connection) -> DataTraffic {
    let depth = connection.depth.clamp(SLOTS_MIN, 1 << 16);
    DataTraffic {
        receive_batch: 0,
        min_rnr_timer: 0,
        max_read_atomic: connection.read_atomic_max.max(1),
        mtu: connection.mtu,
        region_bytes: Bytes::new(connection.region_bytes.clamp(1, 1 << 31)),
        ..DataTraffic::plain(connection.verb, connection.transport, Message::of(1), depth)
    }
}

/// A scenario with one tenant that does nothing.
fn empty(profile: &Profile, topology: Topology, seed: u64) -> Scenario {
    let forever = Duration::from_ps(FOREVER);
    let tenants = vec![Tenant::named("programs", Class::Auto)];
    Scenario {
        topology,
        warmup: forever,
        seed,
        ..Scenario::plain("live", &profile.name, forever, tenants)
    }
}

/// Receives of a pair: never used up.
const RECEIVES_ALL: u64 = 1 << 60;

/// A world that measures nothing and does not end: longer than any run, and far from overflow, ps.
const FOREVER: u64 = 1 << 61;

/// Send queue slots of a pair at least, so that unreliable pairs do not wait for slots of requests in flight.
const SLOTS_MIN: u32 = 128;
