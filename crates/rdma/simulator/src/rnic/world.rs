//! The state of one experiment, its events, and the loop that takes them in order.

use super::access::Access;
use super::addresses::Addresses;
use super::border::Border;
use super::congestion::Timers;
use super::control::ControlLoop;
use super::device::Device;
use super::enforce::Enforcer;
use super::event::Event;
use super::meter::Meter;
use super::nic::{Baseline, Nic};
use super::process::{Plan, Process};
use super::programs::Programs;
use super::queue_pair::QueuePair;
use super::trace::Tracer;
use super::trace::record::Timeline;
use crate::monitor::Monitor;
use isolane_common_events::EventQueue;
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_rdma_policy::harmonic::statistics::BusDirection;
use isolane_rdma_scenario::model::{MemoryPlace, Topology};

/// How often a run reports its progress.
const LOOKS: u64 = 1_000;

/// So many pairs stay in a cache of 256 KiB by themselves.
pub(crate) const PAIRS_IN_CACHE: usize = 256;

/// The whole experiment. Only one that `RECORDS` has a recorder: the others are compiled without its calls, which a test for a
/// recorder at each of them would make 5 % slower.
pub(crate) struct World<const RECORDS: bool = false> {
    pub(crate) queue: EventQueue<Event>,
    pub(crate) device: Device,
    pub(crate) topology: Topology,
    pub(crate) nics: Vec<Nic>,
    /// Per host: some workload has an end there, or it is one of the first two.
    pub(crate) in_use: Vec<bool>,
    /// The receive buffer of each class.
    pub(crate) buffer_of_class: Vec<u8>,
    pub(crate) pairs: Vec<QueuePair>,
    /// The parts of each datagram queue pair that sends to several peers.
    pub(crate) datagrams: Vec<Vec<u32>>,
    /// Of DCQCN.
    pub(crate) timers: Timers,
    pub(crate) processes: Vec<Process>,
    pub(crate) plans: Vec<Plan>,
    pub(crate) loops: Vec<ControlLoop>,
    pub(crate) programs: Programs,
    /// Per tenant: running now.
    pub(crate) running: Vec<bool>,
    pub(crate) enforcer: Enforcer,
    pub(crate) harmonic: Option<Box<super::harmonic::HarmonicHosts>>,
    pub(crate) meter: Meter,
    pub(crate) dma_jitter: Stream,
    pub(crate) host_jitter: Stream,
    pub(crate) addresses: Stream,
    pub(crate) arrivals: Stream,
    /// When measuring ends, ps.
    pub(crate) end: u64,
    /// Until when timers are set: the end, unless the run may go on, ps.
    pub(crate) horizon: u64,
    pub(crate) baseline: Baseline,
    pub(crate) sample_interval: u64,
    /// Per tenant: some of its work arrives independent of completions.
    pub(crate) open_loop: Vec<bool>,
    /// Per tenant: the rate its paced processes offer, bit/s; zero without any.
    pub(crate) paced: Vec<u64>,
    pub(crate) mtu_default: u64,
    /// Per host: what watches its bus.
    pub(crate) monitors: Vec<Option<Box<Monitor>>>,
    /// The addresses of objects, for monitors.
    pub(crate) layout: Addresses,
    /// Per host and tenant: payload bytes that passed a monitor, by the model's own books.
    #[cfg(test)]
    pub(crate) moved: Vec<Vec<u64>>,
    /// Where frames leave for a network that is not the world's own.
    pub(crate) border: Option<Box<Border>>,
    /// Records which tenant waits for which, where the world `RECORDS`.
    pub(crate) trace: Option<Box<Tracer>>,
    /// The reports of a world without applications of its own to the code that posts.
    pub(crate) live: Option<Box<super::live::Reports>>,
}

impl<const RECORDS: bool> World<RECORDS> {
    /// Takes events until the end of the run.
    pub(crate) fn run(&mut self) {
        self.run_watched(&|_| {});
    }

    /// As [`World::run`], and calls `watch` with the part of the time that is over.
    pub(crate) fn run_watched(&mut self, watch: &dyn Fn(f64)) {
        for look in 1..LOOKS {
            self.run_until(Duration::from_ps(self.end / LOOKS * look));
            watch(look as f64 / LOOKS as f64);
        }
        while self.step() {}
    }

    /// Takes one event; false at the end of the run.
    #[inline]
    pub(crate) fn step(&mut self) -> bool {
        match self.queue.take_until(Instant::MAX) {
            Some(now) if now.as_ps() <= self.end => {
                self.look_ahead();
                self.handle(now.as_ps(), self.queue.taken());
                true
            }
            _ => false,
        }
    }

    /// Prefetches the pair of the next event while this one is handled: thousands of pairs do not fit a cache.
    #[inline(always)]
    pub(crate) fn look_ahead(&self) {
        if self.pairs.len() <= PAIRS_IN_CACHE {
            return;
        }
        let pair = self.queue.upcoming_slot().and_then(Event::pair);
        if let Some(pair) = pair.and_then(|pair| self.pairs.get(pair as usize)) {
            pair.fetch();
        }
    }

    #[inline(always)]
    pub(crate) fn schedule(&mut self, at: u64, event: Event) {
        self.queue.schedule(Instant::from_ps(at), event);
    }

    /// Handles `event`. It is a part of each loop over events, so that an event costs one call: that of its handler.
    #[inline(always)]
    pub(super) fn handle(&mut self, now: u64, event: Event) {
        if RECORDS {
            self.trace_event(now, event);
        }
        match event {
            Event::Transmit { host } => self.transmit(now, usize::from(host)),
            Event::Doorbell { pair, count } => self.doorbell(now, pair, count),
            Event::Fetched { pair, count } => self.fetched(now, pair, count),
            Event::Resolved { pair, response } => self.resolved(now, pair, response),
            Event::Packet { pair, packet } => self.arrived(now, pair, packet),
            Event::Acknowledged { pair, upto } => self.acknowledged(now, pair, upto),
            Event::NotReady { pair, position } => self.not_ready(now, pair, position),
            Event::Retry { pair } => self.retry(now, pair),
            Event::Completed { pair, upto } => self.completed(now, pair, upto),
            Event::Delivered { pair, message } => self.delivered(now, pair, message),
            Event::Handed { link } => self.program_received(now, link, 0),
            Event::Receives { pair, count } => self.receives_posted(now, pair, count),
            Event::ReceiveRead { pair } => self.receive_was_read(now, pair),
            Event::Credited { pair, upto } => self.credited(now, pair, upto),
            Event::Post { pair } => self.refill(now, pair),
            Event::Arrive { pair } => self.arrive(now, pair),
            Event::Pause {
                host,
                classes,
                stop,
            } => self.pause(now, usize::from(host), classes, stop),
            Event::Replenished { host, lane } => self.replenished(now, usize::from(host), lane),
            Event::Drained { host, buffer } => self.drained(now, usize::from(host), buffer),
            Event::Serve { host } => self.serve(now, usize::from(host)),
            Event::SwitchDrain { host } => self.switch_drain(now, usize::from(host)),
            Event::Notified { pair, response } => self.notified(now, pair, response),
            Event::Unpaced { pair, response } => self.activate(now, pair, response),
            Event::Injected { pair, response } => self.injected(now, pair, response),
            Event::Limited { pair, response } => self.limited(pair, response),
            Event::HarmonicPoll { host } => self.harmonic_poll(now, usize::from(host)),
            Event::HarmonicNotify { host } => self.harmonic_notify(now, usize::from(host)),
            Event::Command { index, judged } => self.command_again(now, index, judged),
            Event::Control { index } => self.control_done(now, index),
            Event::Tenant { tenant, starts } => self.tenant_changes(now, tenant, starts),
            Event::Policy { host } => self.policy_timer(now, usize::from(host)),
            Event::PeerReport { host } => self.peer_reported(now, usize::from(host)),
            Event::Remap { host } => self.remap(usize::from(host), now),
            Event::LookAgain { host, flow } => self.look_again(now, usize::from(host), flow),
            Event::ReceivesKnown { pair, count } => self.receives_known(now, pair, count),
            Event::Sample => self.sample(now),
            Event::Measure => self.start_measuring(now),
        }
    }

    /// One-way delay between two hosts' ports, ps.
    #[inline]
    pub(crate) fn one_way(&self) -> u64 {
        if let Some(way) = self.border_way() {
            return way;
        }
        match self.topology {
            Topology::BackToBack => self.device.propagation,
            Topology::Switch => self.device.propagation * 2 + self.device.switch,
        }
    }

    /// More DMA latency for memory that is not next to the NIC, ps.
    #[inline]
    pub(crate) fn distance(&self, place: MemoryPlace) -> u64 {
        match place {
            MemoryPlace::Local => 0,
            MemoryPlace::RemoteSocket => self.device.remote_socket,
            MemoryPlace::Gpu => self.device.gpu,
        }
    }

    /// Occupies the bus of `host` in this direction with `bytes`, headers included, no earlier than `at`, for what `access`
    /// says; the time it is free again, ps. Only a bus that is watched calls `access`.
    #[inline(always)]
    pub(crate) fn pcie(
        &mut self,
        direction: BusDirection,
        host: usize,
        at: u64,
        bytes: u64,
        access: impl FnOnce() -> Access,
    ) -> u64 {
        let nic = &mut self.nics[host];
        let (before, free) = nic.occupy_bus(direction, &self.device, at, bytes);
        if nic.watched {
            self.bus_used(host, direction, (at, before, free), access());
        }
        free
    }

    /// Lets the recorder and the monitor know that `access`, requested at `at`, had the bus from `before` to `free`.
    #[cold]
    #[inline(never)]
    fn bus_used(
        &mut self,
        host: usize,
        direction: BusDirection,
        (at, before, free): (u64, u64, u64),
        access: Access,
    ) {
        let lane = match direction {
            BusDirection::ToNic => Timeline::ToNic,
            BusDirection::ToHost => Timeline::ToHost,
        };
        self.traced(|tracer| tracer.used(host, lane, at, before, free));
        if self.monitors[host].is_some() {
            self.seen(host, free, direction, access);
        }
    }

    /// Latency of one DMA read, with its spread, ps.
    #[inline]
    pub(crate) fn read_latency(&mut self) -> u64 {
        self.device.read_latency(&mut self.dma_jitter)
    }
}
