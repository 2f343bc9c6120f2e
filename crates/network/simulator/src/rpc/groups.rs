//! Callers and called hosts: the generators of a scenario, one for each calling host of each group.
//!
//! Problem: patterns as sets of pairs; a random choice per call that no other choice disturbs; and one number for each
//! pair of hosts, so that two groups that use the same pair share what is learned of it. Method: pairs of all groups
//! are collected, sorted and numbered once. A generator has its peers in rising order, and random streams of its own
//! for gaps, classes, sizes and peers, so that runs that differ in the policy alone have the same calls. Limits: eight
//! bytes per caller and peer, so a million for a thousand hosts that all call each other. With bursts of their own,
//! each pair has a generator. Choices: a permutation is one random cycle through all its hosts (no host calls itself,
//! each is called once). A shuffle starts with the next higher host and goes round; in a closed loop a host of a
//! shuffle has `outstanding` calls in flight in all.

use super::arrivals::Clock;
use super::sizes::Sizes;
use crate::packet::HostId;
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_network_scenario::model::{Arrivals, BurstPhase, FabricScenario, Pattern, Traffic};

/// One that can be called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub to: HostId,
    /// Number of the pair.
    pub pair: u32,
}

/// One calling host of one group.
#[derive(Clone, Debug)]
pub(super) struct Generator {
    pub group: usize,
    /// Who calls.
    pub host: HostId,
    /// When its calls begin; none for a closed loop.
    pub clock: Option<Clock>,
    pub gaps: Stream,
    /// When it starts.
    pub start: Instant,
    /// No call begins after this.
    pub stop: Instant,
    first: u32,
    count: u32,
    turn: u32,
    classes: Stream,
    sizes: Stream,
    peers: Stream,
}

/// How a group's generators go about.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Whether peers take turns.
    pub in_turn: bool,
    /// Closed loop: calls in flight per pair (per host if in turn).
    pub outstanding: u32,
    /// Closed loop: calls of each pair in all.
    pub calls_per_pair: Option<u64>,
    mix: Vec<f64>,
    sizes: Vec<Sizes>,
}

/// All of them.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    /// As in the scenario.
    pub groups: Vec<Group>,
    /// Generators of the first group first, by host.
    pub generators: Vec<Generator>,
    /// (caller, called), sorted; the index is the pair's number.
    pub pairs: Vec<(u16, u16)>,
    peers: Vec<Peer>,
    /// Closed loops: calls that each peer may still be sent, beside `peers`; empty without such a limit.
    left: Vec<u64>,
}

impl Groups {
    /// The generators of `scenario`.
    pub(super) fn new(scenario: &FabricScenario) -> Self {
        let mut wanted: Vec<Vec<(u16, u16)>> = scenario
            .traffic
            .iter()
            .map(|traffic| pairs_of(traffic, scenario.seed))
            .collect();
        let mut pairs: Vec<(u16, u16)> = wanted.iter().flatten().copied().collect();
        pairs.sort_unstable();
        pairs.dedup();
        let mut all = Self {
            groups: scenario.traffic.iter().map(group).collect(),
            generators: Vec::new(),
            pairs,
            peers: Vec::new(),
            left: Vec::new(),
        };
        for (index, traffic) in scenario.traffic.iter().enumerate() {
            wanted[index].sort_unstable();
            for callers in wanted[index].chunk_by(|one, other| one.0 == other.0) {
                let apart = match traffic.arrivals {
                    Arrivals::Open { bursts, .. } => bursts == BurstPhase::PerPair,
                    Arrivals::Closed { .. } => false,
                };
                let parts = if apart { callers.len() } else { 1 };
                for some in callers.chunks(callers.len() / parts) {
                    all.add(scenario, index, some, parts);
                }
            }
        }
        all
    }

    /// Adds the generator of a caller's pairs; a caller's load is divided among so many `parts`.
    fn add(
        &mut self,
        scenario: &FabricScenario,
        index: usize,
        callers: &[(u16, u16)],
        parts: usize,
    ) {
        let traffic = &scenario.traffic[index];
        let last = Instant::ZERO + scenario.warmup + scenario.duration;
        let host = HostId(callers[0].0);
        let group = &self.groups[index];
        let stream = |what: &str| {
            let name = format!("calls/{}/{what}", traffic.name);
            let peer = u64::from(callers[0].1 + 1) * u64::from(parts > 1);
            Stream::indexed(scenario.seed, &name, (peer << 32) + u64::from(host.0))
        };
        let mut gaps = stream("gaps");
        let start = Instant::ZERO + traffic.start;
        let seconds = group.mean_size() * 8.0 / scenario.topology.host_rate.as_bps() as f64;
        let call_time = Duration::from_secs_f64(seconds * parts as f64);
        let generator = Generator {
            group: index,
            host,
            clock: Clock::new(&traffic.arrivals, call_time, start, &mut gaps),
            gaps,
            start,
            stop: traffic
                .stop
                .map_or(last, |stop| last.min(Instant::ZERO + stop)),
            first: self.peers.len() as u32,
            count: callers.len() as u32,
            turn: callers.partition_point(|pair| pair.1 < host.0) as u32,
            classes: stream("classes"),
            sizes: stream("sizes"),
            peers: stream("peers"),
        };
        self.generators.push(generator);
        for &(from, to) in callers {
            let pair = self.pairs.binary_search(&(from, to));
            self.peers.push(Peer {
                to: HostId(to),
                pair: pair.expect("all pairs were numbered") as u32,
            });
            self.left.push(group.calls_per_pair.unwrap_or(u64::MAX));
        }
    }

    /// The peer of `generator`'s next call.
    #[inline]
    pub(super) fn choose(&mut self, generator: u32) -> Peer {
        let from = &mut self.generators[generator as usize];
        let index = match self.groups[from.group].in_turn {
            true => {
                let turn = from.turn % from.count;
                from.turn = turn + 1;
                turn
            }
            false if from.count == 1 => 0,
            false => from.peers.below(u64::from(from.count)) as u32,
        };
        self.peers[(from.first + index) as usize]
    }

    /// Class and size of `generator`'s next call.
    #[inline]
    pub(super) fn draw(&mut self, generator: u32) -> (u8, u64) {
        let from = &mut self.generators[generator as usize];
        let group = &self.groups[from.group];
        let class = match group.mix.len() {
            1 => 0,
            _ => {
                let uniform = (from.classes.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
                let class = group.mix.iter().position(|part| uniform < *part);
                class.unwrap_or(group.mix.len() - 1)
            }
        };
        let sizes = group.sizes.get(class).unwrap_or(&group.sizes[0]);
        (class as u8, sizes.draw(&mut from.sizes))
    }

    /// Mean payload of a call of `class`, over the groups that make any.
    pub(super) fn mean_size(&self, class: usize) -> f64 {
        let with = self.groups.iter().filter(|group| group.part(class) > 0.0);
        let sizes = |group: &Group| group.sizes.get(class).unwrap_or(&group.sizes[0]).mean();
        let means: Vec<f64> = with.map(sizes).collect();
        means.iter().sum::<f64>() / means.len().max(1) as f64
    }

    /// Peers of `generator`.
    pub(super) fn peers(&self, generator: u32) -> &[Peer] {
        let from = &self.generators[generator as usize];
        &self.peers[from.first as usize..(from.first + from.count) as usize]
    }

    /// Closed loop: whether `generator` may call `peer` once more; if so it is counted.
    pub(super) fn take(&mut self, generator: u32, peer: Peer) -> bool {
        let from = &self.generators[generator as usize];
        if self.groups[from.group].calls_per_pair.is_none() {
            return true;
        }
        let peers = self.peers(generator);
        let index = peers.partition_point(|one| one.to < peer.to);
        let left = &mut self.left[from.first as usize + index];
        let may = *left > 0;
        *left -= u64::from(may);
        may
    }
}

impl Group {
    /// Part of `class` in the calls.
    fn part(&self, class: usize) -> f64 {
        let below = class.checked_sub(1).map_or(0.0, |below| self.mix[below]);
        self.mix[class] - below
    }

    /// Mean payload of a call.
    fn mean_size(&self) -> f64 {
        let mut below = 0.0;
        let mut mean = 0.0;
        for (class, part) in self.mix.iter().enumerate() {
            let sizes = self.sizes.get(class).unwrap_or(&self.sizes[0]);
            mean += (part - below) * sizes.mean();
            below = *part;
        }
        mean
    }
}

fn group(traffic: &Traffic) -> Group {
    let mut sum = 0.0;
    let cumulative = traffic.mix.iter().map(|part| {
        sum += part;
        sum
    });
    let (outstanding, calls_per_pair) = match traffic.arrivals {
        Arrivals::Open { .. } => (0, None),
        Arrivals::Closed {
            outstanding,
            calls_per_pair,
        } => (outstanding, calls_per_pair),
    };
    Group {
        in_turn: matches!(traffic.pattern, Pattern::Shuffle { .. }),
        outstanding,
        calls_per_pair,
        mix: cumulative.collect(),
        sizes: traffic.sizes.iter().map(Sizes::new).collect(),
    }
}

fn pairs_of(traffic: &Traffic, seed: u64) -> Vec<(u16, u16)> {
    match &traffic.pattern {
        Pattern::AllToAll { hosts } | Pattern::Shuffle { hosts } => hosts
            .iter()
            .flat_map(|&from| hosts.iter().map(move |&to| (from as u16, to as u16)))
            .filter(|(from, to)| from != to)
            .collect(),
        Pattern::Incast { senders, receiver } => senders
            .iter()
            .map(|&from| (from as u16, *receiver as u16))
            .collect(),
        Pattern::Permutation { hosts } => {
            let mut order = hosts.clone();
            let mut stream = Stream::named(seed, &format!("calls/{}/permutation", traffic.name));
            for index in (1..order.len()).rev() {
                order.swap(index, stream.below(index as u64 + 1) as usize);
            }
            let next = order.iter().cycle().skip(1);
            order
                .iter()
                .zip(next)
                .map(|(&from, &to)| (from as u16, to as u16))
                .collect()
        }
        Pattern::Pairs { pairs } => pairs
            .iter()
            .map(|&(from, to)| (from as u16, to as u16))
            .collect(),
    }
}
