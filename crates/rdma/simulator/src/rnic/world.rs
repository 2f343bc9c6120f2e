//! The state of one experiment, its events, and the loop that takes them in order.

use super::access::Access;
use super::addresses::Addresses;
use super::apart::Apart;
use super::border::Border;
use super::cache::{Cache, MissSlots};
use super::congestion::Timers;
use super::control::ControlLoop;
use super::device::Device;
use super::enforce::Enforcer;
use super::lanes::Lanes;
use super::meter::Meter;
use super::micro::MicroNic;
use super::programs::Programs;
use super::queue_pair::QueuePair;
use super::results::Baseline;
use super::trace::Tracer;
use super::trace::record::Timeline;
use crate::monitor::Monitor;
use isolane_common_events::EventQueue;
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_rdma_policy::harmonic::statistics::BusDirection;
use isolane_rdma_scenario::model::{Arrival, MemoryPlace, Topology};
use std::collections::VecDeque;

/// How often a run tells how far it is.
const LOOKS: u64 = 1_000;

/// So many pairs stay in a cache of 256 KiB by themselves.
const PAIRS_IN_CACHE: usize = 256;

/// Everything that can happen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// The transmit pipeline of a host takes its next packet.
    Transmit { host: u8 },
    /// The NIC sees a doorbell for so many work requests.
    Doorbell { pair: u32, count: u16 },
    /// Fetched work requests arrive.
    Fetched { pair: u32, count: u16 },
    /// Metadata a requester (or, for `response`, a responder) waited for is there.
    Resolved { pair: u32, response: bool },
    /// A packet has wholly arrived at its receiver.
    Packet { pair: u32, packet: Packet },
    /// An acknowledgement of all work requests below `upto` (modulo 2^32) arrives at the requester.
    Acknowledged { pair: u32, upto: u32 },
    /// A receiver-not-ready NAK for the work request at `position` (modulo 2^32) arrives.
    NotReady { pair: u32, position: u32 },
    /// The RNR timer ran out.
    Retry { pair: u32 },
    /// The application can see that all work requests below `upto` (modulo 2^32) are done.
    Completed { pair: u32, upto: u32 },
    /// A message is visible in the receiver's memory.
    Delivered { pair: u32, message: u32 },
    /// A worker of an application has handed a vector to another one on its host.
    Handed { link: u32 },
    /// The receiver posts receives back.
    Receives { pair: u32, count: u16 },
    /// A responder has read one more receive of a pair whose receives it cannot keep.
    ReceiveRead { pair: u32 },
    /// The requester learns that it may send all work requests below `upto` (modulo 2^32).
    Credited { pair: u32, upto: u32 },
    /// The application posts, or tries to.
    Post { pair: u32 },
    /// An open-loop arrival.
    Arrive { pair: u32 },
    /// The link partner asks classes of the host's port (bit by class) to stop or go on.
    Pause { host: u8, classes: u16, stop: bool },
    /// A lane's rate limiter lets it go on.
    Replenished { host: u8, lane: u16 },
    /// A receive buffer may have drained enough.
    Drained { host: u8, buffer: u8 },
    /// The receiving side's processing units take the next arrival.
    Serve { host: u8 },
    /// The switch port towards the host can send its next held packet.
    SwitchDrain { host: u8 },
    /// A congestion notification arrives at the requester (or, for `response`, at the responder).
    Notified { pair: u32, response: bool },
    /// A paced sender may send again.
    Unpaced { pair: u32, response: bool },
    /// A forged congestion notification reaches a sender on the host that forged it.
    Injected { pair: u32, response: bool },
    /// An explicit rate of a Harmonic daemon reaches a sender.
    Limited { pair: u32, response: bool },
    /// A Harmonic daemon polls its monitor.
    HarmonicPoll { host: u8 },
    /// A Harmonic daemon sends its next notification.
    HarmonicNotify { host: u8 },
    /// A control verb that was held back goes on, or, unless it was `judged`, is tried again.
    Command { index: u32, judged: bool },
    /// A control verb is done.
    Control { index: u32 },
    /// A tenant starts or stops.
    Tenant { tenant: u16, starts: bool },
    /// A policy's timer.
    Policy { host: u8 },
    /// The earliest message between daemons that is still under way arrives.
    Told { host: u8 },
    /// A queue mapping takes effect.
    Remap { host: u8 },
    /// Something that held a flow's work back may be over.
    LookAgain { host: u8, flow: u32 },
    /// The sender learns of receives posted at the other end.
    ReceivesKnown { pair: u32, count: u16 },
    /// A point of the time series ends.
    Sample,
    /// Measuring starts.
    Measure,
}

impl Event {
    /// The pair that it is about.
    #[inline]
    fn pair(&self) -> Option<u32> {
        match *self {
            Self::Doorbell { pair, .. }
            | Self::Fetched { pair, .. }
            | Self::Resolved { pair, .. }
            | Self::Packet { pair, .. }
            | Self::Acknowledged { pair, .. }
            | Self::Completed { pair, .. }
            | Self::Receives { pair, .. }
            | Self::ReceiveRead { pair }
            | Self::Credited { pair, .. }
            | Self::Post { pair }
            | Self::Unpaced { pair, .. } => Some(pair),
            _ => None,
        }
    }
}

/// What travels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) payload: u16,
    pub(crate) kind: PacketKind,
    pub(crate) epoch: u8,
    pub(crate) first: bool,
    pub(crate) last: bool,
    pub(crate) marked: bool,
    /// The receive buffer it takes room in, the same number at every port.
    pub(crate) buffer: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketKind {
    /// WRITE or SEND payload.
    Data,
    /// A READ request.
    ReadRequest,
    /// An atomic request.
    Atomic,
    /// READ response payload.
    ReadResponse,
}

/// What waits for the processing units of the receiving side.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrived {
    Packet(Packet),
    /// An acknowledgement of all work requests below `upto`, modulo 2^32.
    Ack {
        upto: u32,
    },
}

/// One message of a request vector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PatternEntry {
    pub(crate) bytes: u64,
    pub(crate) elements: u16,
    /// Changes between short and long elements.
    pub(crate) changes: u64,
}

/// One process: a thread that posts and polls for its queue pairs.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    /// When its core is free, ps.
    pub(crate) cpu_free: u64,
    pub(crate) plan: u32,
    /// Bytes of regions and how they are used.
    pub(crate) regions: u64,
    pub(crate) pages_per_region: u64,
    pub(crate) random_access: bool,
}

/// What all processes of one workload share.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) pattern: Vec<PatternEntry>,
    pub(crate) post_list: u32,
    pub(crate) depth: u32,
    pub(crate) completion_every: u32,
    pub(crate) receive_batch: u32,
    pub(crate) retry_after: u64,
    pub(crate) queue_pairs: u64,
    pub(crate) max_read_atomic: u32,
    pub(crate) inline_bytes: u64,
    pub(crate) arrival: Arrival,
    /// Weight of each queue pair within its tenant.
    pub(crate) weight: u32,
    pub(crate) iterations: u64,
}

impl Plan {
    /// What message `number` is, the request vector being sent again and again.
    #[inline]
    pub(crate) fn entry(&self, number: u64) -> &PatternEntry {
        match &self.pattern[..] {
            [only] => only,
            several => &several[number as usize % several.len()],
        }
    }
}

/// Whether `number` is a multiple of `every`; most workloads have a one there, which needs no division.
#[inline]
pub(crate) fn is_multiple(number: u64, every: u32) -> bool {
    every == 1 || number.is_multiple_of(u64::from(every))
}

/// One RDMA NIC.
#[derive(Clone, Debug)]
pub(crate) struct Nic {
    /// The hardware queues: where contexts that can send wait.
    pub(crate) lanes: Lanes,
    /// When the transmitter's next step is due, ps; the end of time when none is.
    pub(crate) step_due: u64,
    pub(crate) paused_since: u64,
    pub(crate) requester_free: u64,
    /// When the scheduler has written the work request at hand, ps; zero where that takes no time.
    pub(crate) turn_ready: u64,
    pub(crate) responder_free: u64,
    /// When the wire is free for each rank of the arbiter's, the best first: what waits below does not count.
    pub(crate) wire_free: Vec<u64>,
    pub(crate) loop_free: u64,
    pub(crate) ack_free: u64,
    pub(crate) pcie_in_free: u64,
    pub(crate) pcie_out_free: u64,
    /// A monitor stands on its bus.
    pub(crate) watched: bool,
    pub(crate) translation_blocked: u64,
    pub(crate) contexts: Cache,
    pub(crate) translations: Cache,
    pub(crate) protections: Cache,
    pub(crate) receive_wqes: Cache,
    pub(crate) context_slots: MissSlots,
    pub(crate) translation_slots: MissSlots,
    pub(crate) receive_slots: MissSlots,
    /// When each virtual function has handled its exceptions, ps; empty without SR-IOV.
    pub(crate) functions: Vec<u64>,
    /// Arrivals that wait for a processing unit.
    pub(crate) waiting: VecDeque<(u32, Arrived)>,
    pub(crate) buffers: Vec<Buffer>,
    /// Buffers for which this host has asked its link partner to stop, a bit each.
    pub(crate) pausing: u16,
    /// Since when there is any, ps.
    pub(crate) pausing_since: u64,
    /// The switch port towards this host sends what it holds.
    pub(crate) draining: bool,
    /// The buffer whose packet that port sends first.
    pub(crate) next_buffer: usize,
    /// When that port has sent everything it let through, ps.
    pub(crate) port_free: u64,
    /// Buffers for which the switch has asked this host to stop, a bit each.
    pub(crate) switch_pauses: u16,
    pub(crate) commands: Vec<u64>,
    /// What a NIC that keeps its tenants apart has for each of them.
    pub(crate) apart: Option<Box<Apart>>,
    pub(crate) micro: MicroNic,
    pub(crate) count: Counts,
}

/// One receive buffer of a port, and the room in the switch that goes with it.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    /// The classes whose packets it holds, a bit each.
    pub(crate) classes: u16,
    /// Arrived packets: when each leaves the buffer, ps, and its bytes.
    pub(crate) packets: VecDeque<(u64, u32)>,
    pub(crate) buffered: u64,
    /// Above this many bytes the link partner is paused, below `resume_at` it goes on.
    pub(crate) pause_at: u64,
    pub(crate) resume_at: u64,
    /// What the switch holds for this host.
    pub(crate) held: VecDeque<(u32, Packet)>,
    pub(crate) held_bytes: u64,
    /// What arrives while the switch holds more than this many bytes is marked; 0 marks nothing.
    pub(crate) ecn_at: u64,
    /// Bytes from this host that the switch holds for others: above `switch_at` it pauses this host.
    pub(crate) in_switch: u64,
    pub(crate) switch_at: u64,
}

/// Monotone counters of one NIC.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) tx_bytes: u64,
    pub(crate) tx_packets: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) rx_packets: u64,
    pub(crate) loop_bytes: u64,
    pub(crate) tx_acks: u64,
    pub(crate) pauses_sent: u64,
    pub(crate) pauses_received: u64,
    pub(crate) pausing_ps: u64,
    pub(crate) paused_ps: u64,
    pub(crate) pcie_in_bytes: u64,
    pub(crate) pcie_out_bytes: u64,
    pub(crate) requester_busy: u64,
    pub(crate) responder_busy: u64,
    pub(crate) rnr_stall: u64,
    pub(crate) drop_stall: u64,
    pub(crate) translation_stall: u64,
    pub(crate) rnr_naks: u64,
    pub(crate) drops: u64,
    pub(crate) out_of_sequence: u64,
    pub(crate) doorbells: u64,
    pub(crate) wqe_fetches: u64,
    pub(crate) cqes: u64,
    pub(crate) marks: u64,
    pub(crate) notifications_sent: u64,
    pub(crate) notifications_handled: u64,
    pub(crate) icm: [u64; 2],
    pub(crate) mtt: [u64; 2],
    pub(crate) mpt: [u64; 2],
    pub(crate) receive_wqe: [u64; 2],
    pub(crate) context_waited: u64,
    pub(crate) translation_waited: u64,
    pub(crate) context_busy: u64,
    pub(crate) translation_busy: u64,
    pub(crate) registrations: u64,
    pub(crate) deregistrations: u64,
    pub(crate) translation_prefetches: u64,
}

/// The whole experiment.
pub(crate) struct World {
    pub(crate) queue: EventQueue<Event>,
    pub(crate) device: Device,
    pub(crate) topology: Topology,
    pub(crate) nics: Vec<Nic>,
    /// Per host: some workload has an end there, or it is one of the first two.
    pub(crate) in_use: Vec<bool>,
    /// The receive buffer of each class.
    pub(crate) buffer_of_class: Vec<u8>,
    pub(crate) pairs: Vec<QueuePair>,
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
    /// Per tenant: some of its work arrives whatever the NIC does.
    pub(crate) open_loop: Vec<bool>,
    /// Per tenant: the rate its paced processes offer, bit/s; zero without any.
    pub(crate) paced: Vec<u64>,
    pub(crate) mtu_default: u64,
    /// Per host: what watches its bus.
    pub(crate) monitors: Vec<Option<Box<Monitor>>>,
    /// Where things lie, for monitors.
    pub(crate) layout: Addresses,
    /// Per host and tenant: payload bytes that passed a monitor, by the model's own books.
    #[cfg(test)]
    pub(crate) moved: Vec<Vec<u64>>,
    /// Where frames leave for a network that is not the world's own.
    pub(crate) border: Option<Box<Border>>,
    /// Records who waits for whom, when asked to.
    pub(crate) trace: Option<Box<Tracer>>,
    /// What a world without applications of its own reports to whoever posts.
    pub(crate) live: Option<Box<super::live::Reports>>,
}

impl World {
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
        match self.queue.pop() {
            Some((now, event)) if now.as_ps() <= self.end => {
                self.look_ahead();
                self.handle(now.as_ps(), event);
                true
            }
            _ => false,
        }
    }

    /// Lets memory bring the pair of the next event while this one is handled: thousands of pairs do not fit a cache.
    #[inline]
    pub(crate) fn look_ahead(&self) {
        if self.pairs.len() <= PAIRS_IN_CACHE {
            return;
        }
        let pair = self.queue.upcoming_slot().and_then(Event::pair);
        if let Some(pair) = pair.and_then(|pair| self.pairs.get(pair as usize)) {
            pair.fetch();
        }
    }

    #[inline]
    pub(crate) fn schedule(&mut self, at: u64, event: Event) {
        self.queue.schedule(Instant::from_ps(at), event);
    }

    pub(super) fn handle(&mut self, now: u64, event: Event) {
        if self.trace.is_some() {
            self.trace_event(now, &event);
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
            Event::Receives { pair, count } => {
                self.pairs[pair as usize].receives += u64::from(count);
                if self.device.micro.receive_cache > 0 {
                    self.keep_receives(now, pair, count);
                }
                self.tell_receives(now, pair, count);
            }
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
            Event::Told { host } => self.told(now, usize::from(host)),
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

    /// Occupies the bus towards the NIC with `bytes`, headers included, no earlier than `at`, for what `access`
    /// says; the time it is free again, ps.
    #[inline]
    pub(crate) fn pcie_in(&mut self, host: usize, at: u64, bytes: u64, access: Access) -> u64 {
        let nic = &mut self.nics[host];
        nic.count.pcie_in_bytes += bytes;
        let before = nic.pcie_in_free;
        let free = before.max(at) + self.device.pcie.of(bytes);
        nic.pcie_in_free = free;
        if nic.watched || self.trace.is_some() {
            self.bus_used(host, BusDirection::ToNic, (at, before, free), access);
        }
        free
    }

    /// The same for the bus towards the host.
    #[inline]
    pub(crate) fn pcie_out(&mut self, host: usize, at: u64, bytes: u64, access: Access) -> u64 {
        let nic = &mut self.nics[host];
        nic.count.pcie_out_bytes += bytes;
        let before = nic.pcie_out_free;
        let free = before.max(at) + self.device.pcie.of(bytes);
        nic.pcie_out_free = free;
        if nic.watched || self.trace.is_some() {
            self.bus_used(host, BusDirection::ToHost, (at, before, free), access);
        }
        free
    }

    /// Lets the recorder and the monitor know that `access`, asked for at `at`, had the bus from `before` to `free`.
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
        if self.nics[host].watched {
            self.seen(host, free, direction, access);
        }
    }

    /// Latency of one DMA read, with its spread, ps.
    #[inline]
    pub(crate) fn read_latency(&mut self) -> u64 {
        let spread = self.device.pcie_jitter;
        self.device.pcie_read
            + if spread == 0 {
                0
            } else {
                self.dma_jitter.below(spread + 1)
            }
    }
}
