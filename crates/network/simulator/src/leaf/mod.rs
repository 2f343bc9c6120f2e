//! The RNIC model as the NIC of some hosts of a network: one scenario, both models.
//!
//! Problem: what an application sees is made inside its NIC (queues, engines, caches, buses, the policy in front of
//! them) and inside the network (queues of switches, pauses, marks). The RNIC model knows the first to the picosecond
//! and one switch; this crate knows whole networks and nothing of NICs. Method: both run, each with its own event queue,
//! and the earlier next event goes first. A frame that has left a NIC of the RNIC model enters the network at the far end
//! of that host's link; a packet of it that reaches its host goes into the other NIC. Pauses pass in both directions,
//! marks come back with the packets, so DCQCN of the RNIC model reacts to the network's queues. All other hosts
//! send with this crate's transports.
//!
//! Order of equal times: the network first, then the hosts. Nothing is rounded: both count picoseconds.
//!
//! Limits: frames of the RNIC model have one traffic class, the highest; its hosts exchange messages only with each
//! other, and no other traffic ends there; messages between daemons take the empty network's time; a network that drops
//! one of its frames is an error, because the RNIC model repeats nothing. `docs/internals/exact-leaf.md` has the
//! design.

use crate::network::{HeadroomError, Network, Ordering, Owner, Step};
use crate::packet::{HostId, NIL, Packet, PacketId, flags};
use crate::rpc::Calls;
use crate::topology::Topology;
use crate::transport::channel::Channels;
use crate::transport::congestion::ParameterError;
use crate::transport::{Ended, Transport};
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{Bytes, Duration, Instant};
use isolane_network_scenario::model::Behind;
use isolane_rdma_scenario::model::Scenario;
use isolane_rdma_scenario::profile::Profile;
use isolane_rdma_simulator::rnic::SimError;
use isolane_rdma_simulator::rnic::border::{Frame, Leaf};
use isolane_study_results::rdma::RunResult;

/// Why a scenario with a network did not run.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum LeafError {
    /// The RNIC model refuses it.
    #[error(transparent)]
    Hosts(#[from] SimError),
    /// The transport of the other hosts does.
    #[error("network.transport: {0}")]
    Transport(#[from] ParameterError),
    /// The calls of the other hosts.
    #[error("network.traffic: {0}")]
    Calls(#[from] OptionError),
    /// The network's buffers cannot be lossless.
    #[error("network.ports: {0}")]
    Headroom(#[from] HeadroomError),
    /// A frame of the RNIC model was lost.
    #[error(
        "the network dropped {dropped} packets, and {missing} frames of the scenario's hosts never arrived: the device \
         repeats nothing; enlarge network.ports.buffer or lower network.ports.pfc.xoff"
    )]
    Lost {
        dropped: u64,
        /// Frames that are neither in the network nor with their hosts.
        missing: u64,
    },
}

/// The channel number of frames of the RNIC model.
const FRAME: u32 = NIL;
/// How often a run reports its progress.
const LOOKS: u64 = 1_000;
/// Bytes of the smallest frame, for the time between daemons.
const SMALLEST: Bytes = Bytes::new(64);

/// Runs `scenario`, whose hosts are joined by its network, on the device that `profile` describes. Fails for what the
/// models refuse, and for frames lost in the network. Panics if the scenario has no network: our own mistake.
pub fn run(scenario: &Scenario, profile: &Profile) -> Result<RunResult, LeafError> {
    run_watched(scenario, profile, &|_| {})
}

/// As [`run`], and calls `watch` now and then with the part of the simulated time that is over, 0 to 1. The result is the
/// same. Fails as [`run`] does. Panics as [`run`] does.
pub fn run_watched(
    scenario: &Scenario,
    profile: &Profile,
    watch: &dyn Fn(f64),
) -> Result<RunResult, LeafError> {
    let behind = scenario.network.as_deref();
    let behind = behind.expect("the caller has looked for a network");
    let mut joined = Joined::new(scenario, profile, behind)?;
    joined.run(watch);
    joined.result(scenario, profile)
}

struct Joined {
    network: Network,
    hosts: Leaf,
    /// Host of the network for each host of the RNIC model.
    places: Vec<HostId>,
    /// Which of them the network has paused.
    paused: Vec<bool>,
    channels: Channels,
    /// Of the other hosts, if they call.
    calls: Option<Calls>,
    ended: Vec<Ended>,
    end: Instant,
    frames: u64,
    frame_bytes: u64,
    marked: u64,
}

impl Joined {
    fn new(scenario: &Scenario, profile: &Profile, behind: &Behind) -> Result<Self, LeafError> {
        let fabric = &behind.fabric;
        let topology = Topology::new(&fabric.topology);
        Network::check_headroom(&topology, &fabric.ports, fabric.classes.len())?;
        let weights: Vec<u32> = fabric.classes.iter().map(|class| class.weight).collect();
        let ordering = Ordering {
            order: fabric.ports.scheduler.into(),
            weights: &weights,
            seed: fabric.seed,
        };
        let network = Network::ordered(topology, &fabric.ports, ordering);
        let places: Vec<HostId> = behind
            .hosts
            .iter()
            .map(|&host| HostId(host as u16))
            .collect();
        let way = network.base_path(places[0], places[1], SMALLEST, SMALLEST);
        Ok(Self {
            hosts: Leaf::new(scenario, profile, way.one_way)?,
            paused: vec![false; places.len()],
            places,
            channels: Channels::new(&fabric.transport, &network)?,
            calls: match fabric.traffic.is_empty() {
                true => None,
                false => Some(Calls::new(fabric, &network)?),
            },
            ended: Vec::new(),
            end: Instant::ZERO + scenario.warmup + scenario.duration,
            frames: 0,
            frame_bytes: 0,
            marked: 0,
            network,
        })
    }

    /// The earlier event first, until both are past the end.
    fn run(&mut self, watch: &dyn Fn(f64)) {
        let mut watched = Instant::ZERO;
        if let Some(calls) = &mut self.calls {
            calls.start(&mut self.network);
        }
        loop {
            let own = self.network.next_time().unwrap_or(Instant::MAX);
            let theirs = self.hosts.next_time().unwrap_or(Instant::MAX);
            let now = own.min(theirs);
            if now > self.end {
                return;
            }
            if now >= watched {
                watch(now.as_ps() as f64 / self.end.as_ps().max(1) as f64);
                watched = now + Duration::from_ps(self.end.as_ps() / LOOKS);
            }
            if own <= theirs {
                self.step_network(theirs.min(self.end));
                continue;
            }
            if !self.hosts.step() {
                return;
            }
            while let Some(frame) = self.hosts.leaving() {
                self.enter(frame);
            }
            while let Some(ask) = self.hosts.asks() {
                let place = self.places[usize::from(ask.host)];
                self.network.ask_to_hold(place, ask.at, ask.stop);
            }
        }
    }

    /// What the network does until `end`, or until it has something for the hosts: they may have an earlier event then.
    fn step_network(&mut self, end: Instant) {
        loop {
            let network = &mut self.network;
            match network.step(end) {
                Step::Packet(id) if network.packets[id].flow == FRAME => {
                    self.arrive(id);
                    break;
                }
                Step::Packet(id) => self.channels.on_packet(network, id, &mut self.ended),
                Step::Timer(Owner::Transport, timer) => {
                    self.channels.on_timer(network, timer, &mut self.ended);
                }
                Step::Timer(owner, timer) => {
                    if let Some(calls) = &mut self.calls {
                        match owner {
                            Owner::Recorder => calls.on_tick(network),
                            _ => calls.on_timer(network, &mut self.channels, timer),
                        }
                    }
                }
                Step::Idle(host) => self.channels.on_idle(network, host),
                Step::Over => break,
            }
            if let Some(calls) = &mut self.calls {
                for one in self.ended.drain(..) {
                    calls.on_ended(&mut self.network, &mut self.channels, one);
                }
            }
        }
        // Between the switch's word and now the hosts had no event that it could have held back.
        self.pass_pauses_on(self.network.now());
    }

    /// A frame has left a NIC.
    fn enter(&mut self, frame: Frame) {
        let (from, to) = (
            self.places[usize::from(frame.from)],
            self.places[usize::from(frame.to)],
        );
        self.frames += 1;
        self.frame_bytes += u64::from(frame.bytes);
        let packet = Packet {
            sent_at: frame.leaves,
            sequence: frame.id,
            flow: FRAME,
            next: NIL,
            to,
            from,
            // All frames between two hosts take one way, because the RNIC model relies on their order.
            path: from.0 ^ to.0,
            bytes: frame.bytes as u16,
            flags: if frame.marks { flags::ECN_CAPABLE } else { 0 },
            ..Packet::default()
        };
        self.network.take_over(packet, frame.leaves);
    }

    /// A frame has reached its NIC.
    fn arrive(&mut self, id: PacketId) {
        let packet = &self.network.packets[id];
        let marked = packet.flags & flags::MARKED != 0;
        self.marked += u64::from(marked);
        self.hosts
            .arrive(self.network.now(), packet.sequence, marked);
        self.network.free(id);
    }

    fn pass_pauses_on(&mut self, now: Instant) {
        for (host, (place, was)) in self.places.iter().zip(&mut self.paused).enumerate() {
            let is = self.network.is_paused(*place, 0);
            if is != *was {
                *was = is;
                self.hosts.pause(now, host as u8, is);
            }
        }
    }

    fn result(mut self, scenario: &Scenario, profile: &Profile) -> Result<RunResult, LeafError> {
        let counts = self.network.counts();
        let dropped: u64 = counts.dropped.values().sum();
        let under_way = self.hosts.under_way() as u64;
        let here = self.network.packets.of_flow(FRAME) as u64;
        if under_way != here {
            return Err(LeafError::Lost {
                dropped,
                missing: under_way - here,
            });
        }
        let mut result = self.hosts.result(scenario, profile);
        let fullest = self.network.port_counts().fullest;
        let figures = [
            ("network.frames", self.frames as f64),
            ("network.frame_bytes", self.frame_bytes as f64),
            ("network.frames_marked", self.marked as f64),
            ("network.packets_sent", counts.sent as f64),
            ("network.packets_marked", counts.marked as f64),
            ("network.packets_dropped", dropped as f64),
            ("network.pauses", counts.pauses as f64),
            (
                "network.queue_max_bytes",
                fullest
                    .first()
                    .map_or(0.0, |port| port.queue_max_bytes as f64),
            ),
        ];
        for (name, value) in figures {
            result.policy_state.insert(name.to_owned(), value);
        }
        if let Some(calls) = self.calls.take() {
            let classes = calls.results(self.network.now()).classes;
            let goodput = classes.iter().map(|class| class.goodput_gbps).sum();
            let name = "network.others_goodput_gbps".to_owned();
            result.policy_state.insert(name, goodput);
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests;
