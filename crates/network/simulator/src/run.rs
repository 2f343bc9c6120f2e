//! One scenario from start to result: the loop between network, transport and calls.
//!
//! Method: the policy names a transport and an order of the ports ([`run`]); everything else follows from the scenario.
//! The loop ends when no call is in flight and none can begin, when nothing happens any more, or when the scenario's
//! drain time is over; calls that are open then are counted as unfinished. Checked in every run: packets and bytes are
//! conserved ([`Network::assert_conservation`]), and each message ends once. Limits: the observers ([`Observers`]) are
//! called every 4,096 steps only.

use crate::discipline::Order;
use crate::network::{HeadroomError, Network, Ordering, Owner, Step, Tap};
use crate::rpc::Calls;
use crate::topology::Topology;
use crate::transport::Transport;
use crate::transport::channel::Channels;
use crate::transport::congestion::ParameterError;
use crate::transport::d3::{self, D3};
use crate::transport::homa::{self, Homa};
use crate::transport::pdq::{self, Pdq};
use crate::transport::pfabric::{self, Pfabric};
use crate::transport::qjump::{self, Qjump};
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::Instant;
use isolane_network_scenario::model::{FabricPolicyKind, FabricScenario, PortSettings};
use isolane_study_results::network::{FABRIC_RESULT_VERSION, FabricResult};
use std::sync::atomic::{AtomicBool, Ordering as Memory};

/// Who watches a run.
#[derive(Default)]
pub struct Observers<'a> {
    /// The run gives up soon after this becomes true.
    pub cancel: Option<&'a AtomicBool>,
    /// Called periodically with the part of the simulated time that is over, 0 to 1.
    pub progress: Option<&'a mut dyn FnMut(f64)>,
    /// Sees every packet; given back in [`Outcome::tap`].
    pub tap: Option<Box<dyn Tap>>,
}

impl std::fmt::Debug for Observers<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Observers")
            .field("cancel", &self.cancel)
            .field("tap", &self.tap)
            .finish_non_exhaustive()
    }
}

/// Why a run gave no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The observer cancelled it.
    #[error("the run was cancelled")]
    Cancelled,
    /// A parameter of the transport.
    #[error(transparent)]
    Transport(#[from] ParameterError),
    /// Buffers that cannot keep the promise of pauses.
    #[error(transparent)]
    Headroom(#[from] HeadroomError),
    /// A parameter of the policy.
    #[error(transparent)]
    Policy(#[from] OptionError),
}

/// A run's result, and what was lent to it.
#[derive(Debug)]
pub struct Outcome {
    /// What was measured.
    pub result: FabricResult,
    /// [`Observers::tap`].
    pub tap: Option<Box<dyn Tap>>,
}

/// Runs `scenario`. Fails if a parameter contradicts itself, or on [`Observers::cancel`].
pub fn run(scenario: &FabricScenario, observers: Observers<'_>) -> Result<Outcome, RunError> {
    let mut network = network(scenario, &scenario.ports);
    let classes = scenario.classes.len();
    Network::check_headroom(network.topology(), &scenario.ports, classes)?;
    let policy = &scenario.policy;
    match policy.kind {
        FabricPolicyKind::None
        | FabricPolicyKind::Aequitas
        | FabricPolicyKind::Aequitas2
        | FabricPolicyKind::Spq => {
            let channels = Channels::new(&scenario.transport, &network)?;
            finish(scenario, network, channels, observers)
        }
        FabricPolicyKind::Pfabric => {
            let settings = pfabric::Settings::new(policy, &network)?;
            network = self::network(scenario, &settings.ports(&scenario.ports));
            let transport = Pfabric::new(settings, &mut network);
            finish(scenario, network, transport, observers)
        }
        FabricPolicyKind::Qjump => {
            let settings = qjump::Settings::new(policy, scenario.classes.len(), &network)?;
            let transport = Qjump::new(settings, &mut network);
            finish(scenario, network, transport, observers)
        }
        FabricPolicyKind::D3 => {
            let settings = d3::Settings::new(policy, &network)?;
            let transport = D3::new(settings, &mut network);
            finish(scenario, network, transport, observers)
        }
        FabricPolicyKind::Pdq => {
            let settings = pdq::Settings::new(policy, &network)?;
            let transport = Pdq::new(settings, &mut network);
            finish(scenario, network, transport, observers)
        }
        FabricPolicyKind::Homa => {
            let transport = Homa::new(homa::Settings::new(policy)?, &mut network);
            finish(scenario, network, transport, observers)
        }
    }
}

/// The network of `scenario` at rest.
fn network(scenario: &FabricScenario, ports: &PortSettings) -> Network {
    let topology = Topology::new(&scenario.topology);
    let weights: Vec<u32> = scenario.classes.iter().map(|class| class.weight).collect();
    let order = match scenario.policy.kind {
        FabricPolicyKind::None | FabricPolicyKind::Aequitas | FabricPolicyKind::Aequitas2 => {
            ports.scheduler.into()
        }
        FabricPolicyKind::Spq | FabricPolicyKind::Qjump | FabricPolicyKind::Homa => Order::Strict,
        FabricPolicyKind::Pfabric => Order::SmallestKey,
        FabricPolicyKind::D3 | FabricPolicyKind::Pdq => Order::Arrival,
    };
    let ordering = Ordering {
        order,
        weights: &weights,
        seed: scenario.seed,
    };
    let mut network = Network::ordered(topology, ports, ordering);
    network.limit_classes(scenario.classes.iter().map(|class| class.buffer));
    network
}

fn finish<T: Transport>(
    scenario: &FabricScenario,
    mut network: Network,
    mut transport: T,
    mut observers: Observers<'_>,
) -> Result<Outcome, RunError> {
    if let Some(tap) = observers.tap.take() {
        network.set_tap(tap);
    }
    let mut calls = Calls::new(scenario, &network)?;
    let mut watch = |now: f64| {
        if let Some(progress) = &mut observers.progress {
            progress(now);
        }
        !observers
            .cancel
            .is_some_and(|cancel| cancel.load(Memory::Relaxed))
    };
    if !drive_watched(&mut network, &mut transport, &mut calls, &mut watch) {
        return Err(RunError::Cancelled);
    }
    network.assert_conservation();
    let tap = network.take_tap();
    let result = result(scenario, &network, &transport, calls);
    Ok(Outcome { result, tap })
}

fn result<T: Transport>(
    scenario: &FabricScenario,
    network: &Network,
    transport: &T,
    calls: Calls,
) -> FabricResult {
    let calls = calls.results(network.now());
    let figures = transport.figures().into_iter().chain(calls.probabilities);
    FabricResult {
        version: FABRIC_RESULT_VERSION,
        scenario: scenario.name.clone(),
        policy: spelling(&scenario.policy.kind),
        transport: spelling(&scenario.transport.congestion),
        seed: scenario.seed,
        hosts: network.topology().hosts,
        measured_s: calls.measured.as_secs_f64(),
        simulated_s: (network.now() - Instant::ZERO).as_secs_f64(),
        goodput_gbps: calls.classes.iter().map(|class| class.goodput_gbps).sum(),
        classes: calls.classes,
        utilisation: calls.utilisation,
        packets: network.counts().clone(),
        ports: network.port_counts(),
        policy_state: figures.collect(),
        pairs: calls.pairs,
        series: calls.series,
    }
}

/// How a scenario file spells a variant: kebab case, as derived for the model's enums.
fn spelling(variant: &impl std::fmt::Debug) -> String {
    format!("{variant:?}").to_lowercase()
}

/// Steps between two looks at the observers.
const WATCH_STEPS: u32 = 4_096;

/// Runs until nothing happens any more, no call is in flight and none can begin, or the calls' end; `watch` is called
/// with the part of the time that is over and may end the run. False if it did.
pub fn drive_watched<T: Transport>(
    network: &mut Network,
    transport: &mut T,
    calls: &mut Calls,
    watch: &mut dyn FnMut(f64) -> bool,
) -> bool {
    let mut ended = Vec::new();
    let mut steps = WATCH_STEPS;
    calls.start(network);
    loop {
        let end = calls.end();
        match network.step(end) {
            Step::Packet(packet) => transport.on_packet(network, packet, &mut ended),
            Step::Timer(Owner::Transport, timer) => {
                transport.on_timer(network, timer, &mut ended);
            }
            Step::Timer(Owner::Calls, timer) => calls.on_timer(network, transport, timer),
            Step::Timer(Owner::Recorder, _) => calls.on_tick(network),
            Step::Idle(host) => transport.on_idle(network, host),
            Step::Over => return true,
        }
        if !ended.is_empty() {
            for one in ended.drain(..) {
                calls.on_ended(network, transport, one);
            }
            if calls.over() {
                return true;
            }
        }
        steps -= 1;
        if steps == 0 {
            steps = WATCH_STEPS;
            let over = network.now().as_ps() as f64 / end.as_ps().max(1) as f64;
            if !watch(over.min(1.0)) {
                return false;
            }
        }
    }
}
