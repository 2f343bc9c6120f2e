//! Calls: their start times, sizes, classes and latencies.
//!
//! Problem: millions of calls between hundreds of hosts, with per-class latencies, shares and admission, in memory
//! that does not grow with their number.
//! Method: each calling host of each group has one timer, for its next call (`groups`); a call lives in a slab from
//! its start to its end and is then only counted (`record`). Its network latency begins when it is handed to the
//! transport and ends with its last acknowledgement, so waiting behind earlier calls of its channel is part of it.
//! Admission happens before that, on the calling host alone (`admission`) or on request (`grants`). Each call carries its class's promise as a
//! deadline; for D3 and PDQ, whose designs do not look at sizes, a promise per MTU is one for the mean size (3.6.10).
//! Randomness: streams of its own per caller and purpose, so runs that differ in policy, transport or topology make the
//! same open-loop calls.
//! Limits: a call is one message one way (a WRITE); answers of the called host are part of no latency here.
//! Source: Aequitas (in the thesis "cloud QoS"), sections 3.2.2, 3.4.1, 3.5, 3.6 and appendix B.1.

mod admission;
mod arrivals;
mod grants;
mod groups;
mod objective;
mod pairs;
mod record;
mod series;
mod sizes;
mod slab;
#[cfg(test)]
mod tests;

use crate::network::{Network, Owner};
use crate::packet::Timer;
use crate::topology::PortId;
use crate::transport::{Ended, How, Message, Transport};
use admission::Admission;
use grants::{ANSWERED, Grants, REQUESTED};
use groups::{Groups, Peer};
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{Bytes, Duration, Instant};
use isolane_network_scenario::model::{FabricPolicyKind, FabricScenario};
use isolane_study_results::network::{ClassResult, FabricSeries, PairResult};
use objective::Objective;
use pairs::Pairs;
use record::{Record, Window};
use series::{QUEUES_MAX, Series};
use slab::{Call, InFlight};

/// The calls of a run.
#[derive(Debug)]
pub struct Calls {
    groups: Groups,
    in_flight: InFlight,
    admission: Option<Admission>,
    grants: Option<Grants>,
    record: Record,
    pairs: Option<Pairs>,
    series: Option<Series>,
    queues: Vec<(String, PortId)>,
    deadlines: Vec<Option<Duration>>,
    window: Window,
    drain: Duration,
    mtu: u64,
    /// Calls that may still begin.
    left: u64,
    begun: u64,
    /// Generators that have a timer set.
    waiting: usize,
    any_closed: bool,
}

/// What became of the calls of a run.
#[derive(Clone, Debug)]
pub struct CallResults {
    /// Time in which calls were measured.
    pub measured: Duration,
    /// Per class.
    pub classes: Vec<ClassResult>,
    /// Payload completed over payload that arrived.
    pub utilisation: f64,
    /// Per pair, on request.
    pub pairs: Vec<PairResult>,
    /// Over time, on request.
    pub series: Option<FabricSeries>,
    /// Admit probabilities at the end, by class: mean over pairs and the smallest.
    pub probabilities: Vec<(String, f64)>,
}

impl Calls {
    /// The calls of `scenario` on `network`. Fails if a parameter of the policy controls nothing.
    pub fn new(scenario: &FabricScenario, network: &Network) -> Result<Self, OptionError> {
        let groups = Groups::new(scenario);
        let objectives: Vec<Option<Objective>> = scenario
            .classes
            .iter()
            .map(|class| class.slo.as_ref().map(Objective::new))
            .collect();
        let hosts = network.topology().hosts;
        let generators = groups.generators.len();
        let window = Window {
            from: Instant::ZERO + scenario.warmup,
            to: Instant::ZERO + scenario.warmup + scenario.duration,
        };
        let series = Series::new(scenario, &groups.pairs, window.to);
        let grants = Grants::new(scenario, hosts as usize)?;
        let admission = match grants {
            Some(_) => None,
            None => Admission::new(scenario, &objectives, &groups.pairs, generators)?,
        };
        Ok(Self {
            admission,
            grants,
            record: Record::new(scenario, &objectives, hosts),
            pairs: scenario
                .per_pair
                .then(|| Pairs::new(groups.pairs.len(), objectives.len())),
            queues: match series {
                Some(_) => called_ports(&groups, network),
                None => Vec::new(),
            },
            series,
            deadlines: deadlines(scenario, &groups, &objectives, network),
            window,
            drain: scenario.drain,
            mtu: network.mtu().get(),
            left: scenario.calls.unwrap_or(u64::MAX),
            begun: 0,
            waiting: 0,
            any_closed: groups.groups.iter().any(|group| group.outstanding > 0),
            in_flight: InFlight::default(),
            groups,
        })
    }

    /// Sets the first timers.
    pub fn start(&mut self, network: &mut Network) {
        for index in 0..self.groups.generators.len() {
            let generator = &mut self.groups.generators[index];
            let at = match &mut generator.clock {
                Some(clock) => clock.next(&mut generator.gaps),
                None => generator.start,
            };
            self.wait(network, index as u32, at);
        }
        self.tick(network);
    }

    fn wait(&mut self, network: &mut Network, generator: u32, at: Instant) {
        if at > self.groups.generators[generator as usize].stop || self.left == 0 {
            return;
        }
        self.waiting += 1;
        let timer = Timer {
            index: generator,
            what: 0,
        };
        network.set_timer(at, Owner::Calls, timer);
    }

    fn tick(&mut self, network: &mut Network) {
        if let Some(at) = self.series.as_ref().and_then(Series::next_tick) {
            network.set_timer(at, Owner::Recorder, Timer { index: 0, what: 0 });
        }
    }

    /// The recorder's timer is due.
    pub fn on_tick(&mut self, network: &mut Network) {
        if let Some(series) = &mut self.series {
            let bytes =
                |(name, port): &(String, PortId)| (name.clone(), network.port_queue(*port).get());
            let queues: Vec<(String, u64)> = self.queues.iter().map(bytes).collect();
            series.on_tick(self.admission.as_ref(), &queues);
        }
        self.tick(network);
    }

    /// A timer of the calls is due.
    pub fn on_timer<T: Transport>(
        &mut self,
        network: &mut Network,
        transport: &mut T,
        timer: Timer,
    ) {
        self.waiting -= 1;
        let index = timer.index;
        if let (Some(grants), REQUESTED | ANSWERED) = (&mut self.grants, timer.what) {
            if timer.what == REQUESTED {
                grants.decide(index);
                self.ask(network, index, ANSWERED);
            } else {
                let (call, peer) = grants.answer(index);
                self.send(network, transport, call, peer);
            }
            return;
        }
        let generator = &mut self.groups.generators[index as usize];
        match &mut generator.clock {
            Some(clock) => {
                let next = clock.next(&mut generator.gaps);
                let peer = self.groups.choose(index);
                self.begin(network, transport, index, peer);
                self.wait(network, index, next);
            }
            None => self.fill(network, transport, index),
        }
    }

    /// The first calls of a closed loop.
    fn fill<T: Transport>(&mut self, network: &mut Network, transport: &mut T, index: u32) {
        let group = &self.groups.groups[self.groups.generators[index as usize].group];
        let (outstanding, in_turn) = (group.outstanding, group.in_turn);
        if in_turn {
            for _ in 0..outstanding {
                self.again(network, transport, index, None);
            }
            return;
        }
        for peer in self.groups.peers(index).to_vec() {
            for _ in 0..outstanding {
                self.again(network, transport, index, Some(peer));
            }
        }
    }

    /// One more call of a closed loop, to `peer` or to the next in turn.
    fn again<T: Transport>(
        &mut self,
        network: &mut Network,
        transport: &mut T,
        index: u32,
        peer: Option<Peer>,
    ) {
        if network.now() > self.groups.generators[index as usize].stop {
            return;
        }
        let peer = match peer {
            Some(peer) => peer,
            None => self.groups.choose(index),
        };
        if self.groups.take(index, peer) {
            self.begin(network, transport, index, peer);
        }
    }

    #[inline]
    fn begin<T: Transport>(
        &mut self,
        network: &mut Network,
        transport: &mut T,
        generator: u32,
        peer: Peer,
    ) {
        if self.left == 0 {
            return;
        }
        let now = network.now();
        self.left -= 1;
        self.begun += 1;
        if self.left == 0 && !self.any_closed {
            self.window.to = self.window.to.min(now);
        }
        let (asked, size) = self.groups.draw(generator);
        let mut call = Call::new(now, size, generator, peer.pair, peer.to);
        call.asked = asked;
        call.measured = now >= self.window.from;
        if let Some(grants) = self.grants.as_mut().filter(|all| all.gates(asked)) {
            let request = grants.request(call, peer);
            self.ask(network, request, REQUESTED);
            return;
        }
        let mtus = self.mtus(size);
        call.ran = match &mut self.admission {
            Some(admission) => admission.decide(now, generator, peer, asked, mtus),
            None => asked,
        };
        self.send(network, transport, call, peer);
    }

    /// A request or its answer is on its way.
    fn ask(&mut self, network: &mut Network, index: u32, what: u8) {
        let half = self.grants.as_ref().map_or(Duration::ZERO, Grants::half);
        self.waiting += 1;
        let at = network.now() + half;
        network.set_timer(at, Owner::Calls, Timer { index, what });
    }

    /// Passes a call to the transport.
    #[inline]
    fn send<T: Transport>(
        &mut self,
        network: &mut Network,
        transport: &mut T,
        call: Call,
        peer: Peer,
    ) {
        self.record.on_start(&call);
        if self.pairs.is_some() || self.series.is_some() {
            self.show_start(&call);
        }
        let deadline = self.deadline(&call);
        let token = self.in_flight.insert(call);
        let message = Message {
            token,
            from: self.groups.generators[call.generator as usize].host,
            to: peer.to,
            class: call.ran,
            size: Bytes::new(call.size),
            deadline,
        };
        transport.send(network, message);
    }

    #[inline]
    fn deadline(&self, call: &Call) -> Option<Instant> {
        let allowed = match self.deadlines[call.ran as usize] {
            Some(given) => given,
            None => {
                let objective = self.record.objective(call.ran)?;
                objective.allowed(self.mtus(call.size))
            }
        };
        Some(call.started.saturating_add(allowed))
    }

    #[inline]
    fn mtus(&self, size: u64) -> u32 {
        u32::try_from(size.div_ceil(self.mtu)).unwrap_or(u32::MAX)
    }

    #[cold]
    fn show_start(&mut self, call: &Call) {
        let admission = self.admission.as_ref();
        let probability = admission.and_then(|one| one.probability(call.pair, call.asked));
        if let Some(pairs) = self.pairs.as_mut().filter(|_| call.measured) {
            pairs.on_start(call, probability);
        }
        if let Some(series) = &mut self.series {
            series.on_start(call, probability);
        }
    }

    /// A message is over.
    #[inline]
    pub fn on_ended<T: Transport>(
        &mut self,
        network: &mut Network,
        transport: &mut T,
        ended: Ended,
    ) {
        let now = network.now();
        let call = self.in_flight.remove(ended.token);
        if let Some(grants) = &mut self.grants {
            grants.end(&call);
        }
        match ended.how {
            How::Acknowledged => self.on_done(now, &call),
            How::Terminated => self.record.on_terminated(&call),
        }
        if self.any_closed {
            self.next_of_closed(network, transport, &call);
        }
    }

    #[inline]
    fn on_done(&mut self, now: Instant, call: &Call) {
        let latency = now.saturating_since(call.started);
        let mtus = self.mtus(call.size);
        let objective = self.record.objective(call.ran);
        let met = objective.is_some_and(|objective| objective.met(latency, mtus));
        let in_window = self.window.contains(now);
        self.record.on_done(call, latency, mtus, met, in_window);
        if let Some(admission) = &mut self.admission {
            admission.on_completion(now, call, met, mtus);
        }
        if let Some(pairs) = &mut self.pairs {
            pairs.on_done(call, latency, in_window);
        }
        if let Some(series) = &mut self.series {
            series.on_done(call, latency);
        }
    }

    fn next_of_closed<T: Transport>(
        &mut self,
        network: &mut Network,
        transport: &mut T,
        call: &Call,
    ) {
        let group = &self.groups.groups[self.groups.generators[call.generator as usize].group];
        if group.outstanding == 0 {
            return;
        }
        let (to, pair) = (call.to, call.pair);
        let peer = (!group.in_turn).then_some(Peer { to, pair });
        self.again(network, transport, call.generator, peer);
    }

    /// Whether no call is in flight and none can begin.
    #[inline]
    pub fn over(&self) -> bool {
        let answered = self.grants.as_ref().is_none_or(Grants::is_idle);
        self.in_flight.len() == 0 && answered && (self.waiting == 0 || self.left == 0)
    }

    /// When the run ends, whether or not calls are in flight then.
    pub fn end(&self) -> Instant {
        self.window.to.saturating_add(self.drain)
    }

    /// What became of them, at `now`.
    pub fn results(mut self, now: Instant) -> CallResults {
        for call in self.in_flight.iter() {
            self.record.on_unfinished(call);
        }
        if self.any_closed {
            // The run ended with its last call, and nothing more was wanted.
            self.window.to = self.window.to.min(now);
        }
        let measured = self.window.length();
        let classes = self.record.results(measured);
        let names: Vec<String> = classes.iter().map(|class| class.name.clone()).collect();
        let pairs = self.pairs.as_ref();
        CallResults {
            measured,
            utilisation: self.record.utilisation(),
            pairs: pairs.map_or_else(Vec::new, |pairs| {
                pairs.results(&self.groups.pairs, &names, measured)
            }),
            series: self.series.as_ref().map(Series::result),
            probabilities: self.probabilities(&names),
            classes,
        }
    }

    fn probabilities(&self, names: &[String]) -> Vec<(String, f64)> {
        let Some(admission) = &self.admission else {
            return Vec::new();
        };
        let pairs = self.groups.pairs.len() as u32;
        let mut all = Vec::new();
        for (class, name) in names.iter().enumerate() {
            let of = |pair| admission.probability(pair, class as u8);
            let values: Vec<f64> = (0..pairs).filter_map(of).collect();
            if values.is_empty() {
                continue;
            }
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let least = values.iter().copied().fold(1.0, f64::min);
            all.push((format!("admit_probability_mean/{name}"), mean));
            all.push((format!("admit_probability_min/{name}"), least));
        }
        all
    }
}

/// The same deadline for all calls of a class, under the policies that have such ones.
fn deadlines(
    scenario: &FabricScenario,
    groups: &Groups,
    objectives: &[Option<Objective>],
    network: &Network,
) -> Vec<Option<Duration>> {
    let same = matches!(
        scenario.policy.kind,
        FabricPolicyKind::D3 | FabricPolicyKind::Pdq
    );
    let deadline = |(class, objective): (usize, &Option<Objective>)| {
        let objective = objective.as_ref().filter(|_| same)?;
        let mtus = match objective.per_mtu {
            true => groups.mean_size(class) / network.mtu().get() as f64,
            false => 1.0,
        };
        let ps = objective.target.as_ps() as f64 * mtus.max(1.0);
        Some(Duration::from_ps(ps as u64))
    };
    objectives.iter().enumerate().map(deadline).collect()
}

/// The ports to hosts that are called, as far as they get a series.
fn called_ports(groups: &Groups, network: &Network) -> Vec<(String, PortId)> {
    let topology = network.topology();
    let mut called: Vec<u16> = groups.pairs.iter().map(|pair| pair.1).collect();
    called.sort_unstable();
    called.dedup();
    let port = |host: &u16| {
        let port = topology.ports[usize::from(*host)].back;
        (topology.port_name(port), port)
    };
    called.iter().take(QUEUES_MAX).map(port).collect()
}
