//! What a policy means for the simulated device and hosts.
//!
//! A policy is a stack of parts (`isolane_rdma_scenario::stack`). Each part sets the field of the [`Setup`] that belongs
//! to the slot it takes, and nothing else; the fields together say how the world is built. So parts combine without
//! any combination being written down.

mod chunks;
mod harmonic;
mod lanes;
mod monitor;
mod ours;
mod pacing;
mod shares;

pub(crate) use harmonic::HarmonicSetup;
pub(crate) use pacing::Pacing;

use super::arbiter::Sharing;
use super::chunks::ChunkSetup;
use super::gates::Gates;
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::BitRate;
use isolane_rdma_policy::granularity::Granularity;
use isolane_rdma_policy::harmonic::AllocationError;
use isolane_rdma_scenario::model::{PolicySpec, Scenario};
use isolane_rdma_scenario::profile::Profile;
use isolane_rdma_scenario::stack;
use isolane_rdma_scenario::stack::StackError;

/// The parts that [`crate::rnic::run`] can simulate, alone and together.
pub const POLICIES: &[&str] = &[
    "none",
    "justitia",
    "lite",
    "sw-chunking",
    "hw-priority",
    "palos",
    "hw-tc",
    "vl-qos",
    "sriov",
    "isolane-sw",
    "harmonic",
    "isolane",
];

/// Why a scenario cannot be simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum SimError {
    #[error("policy {name:?} is not one of the simulator's: choose one of {}", POLICIES.join(", "))]
    UnknownPolicy { name: String },
    /// Parts that do not make a policy.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// Guarantees that the device cannot keep together.
    #[error("policy harmonic: {0}")]
    Guarantees(Box<AllocationError>),
    /// The policy refuses its parameters.
    #[error("policy {name}: {problem}")]
    Parameters {
        name: String,
        /// What is wrong and what would be right.
        problem: OptionError,
    },
}

/// What is set up for one experiment, alike on all hosts.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The daemons' policy; none where nothing holds work back.
    pub(crate) pacing: Option<Pacing>,
    /// What one flow of that policy is.
    pub(crate) granularity: Granularity,
    /// What the shim checks beside tokens.
    pub(crate) gates: Gates,
    /// A NIC that keeps its tenants apart, which no one sells.
    pub(crate) apart: Option<ApartSetup>,
    /// How a lane serves the contexts that wait in it.
    pub(crate) scheduler: Scheduler,
    /// The hardware queues of a port.
    pub(crate) lanes: LaneSetup,
    /// Virtual functions, one per tenant; none without SR-IOV.
    pub(crate) functions: Option<FunctionSetup>,
    /// The switch with a monitor in front of each NIC.
    pub(crate) monitor: Option<monitor::MonitorSetup>,
    /// Harmonic's daemons and drivers.
    pub(crate) harmonic: Option<HarmonicSetup>,
}

/// How a lane serves the contexts that wait in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scheduler {
    /// The device's own turns of packets.
    PacketTurns,
    /// Chunks of data by weight: Palos.
    Chunks(ChunkSetup),
}

/// The hardware queues of a port.
#[derive(Clone, Debug)]
pub(crate) struct LaneSetup {
    /// How classes share the link.
    pub(crate) sharing: Sharing,
    /// Each tenant's class when it starts; a policy's daemon may move it.
    pub(crate) class_of_tenant: Vec<u8>,
    /// The rate of each class that has a limit.
    pub(crate) rates: Vec<Option<BitRate>>,
    /// What part of the receive buffer each class has to itself, relative to the others; empty where they share it.
    pub(crate) buffer_parts: Vec<u64>,
}

/// What a NIC keeps apart.
#[derive(Clone, Debug)]
pub(crate) struct ApartSetup {
    /// What each class may use of the receiving units in its turn, ps.
    pub(crate) turns: Vec<u64>,
    pub(crate) weights: Vec<u32>,
}

#[derive(Clone, Debug)]
pub(crate) struct FunctionSetup {
    /// The rate of each tenant's function that has a limit.
    pub(crate) rates: Vec<Option<BitRate>>,
}

impl Setup {
    /// What the scenario's policy means on the device of `profile`. Fails if the policy is unknown, is not simulated,
    /// or refuses its parameters.
    pub(crate) fn of(scenario: &Scenario, profile: &Profile) -> Result<Self, SimError> {
        let spec = &scenario.policy;
        let tenants = scenario.tenants.len();
        let mut setup = Self {
            pacing: None,
            granularity: pacing::granularity(spec),
            gates: Gates::default(),
            apart: None,
            scheduler: Scheduler::PacketTurns,
            lanes: LaneSetup {
                sharing: Sharing::Priority(1),
                class_of_tenant: vec![0; tenants],
                rates: vec![None],
                buffer_parts: Vec::new(),
            },
            functions: None,
            monitor: None,
            harmonic: None,
        };
        for part in stack::parts(&spec.name)? {
            let refused = |problem| SimError::Parameters {
                name: spec.name.clone(),
                problem,
            };
            if !POLICIES.contains(&part.name) {
                return Err(SimError::UnknownPolicy {
                    name: part.name.to_owned(),
                });
            }
            match part.name {
                "none" => {}
                "justitia" => {
                    setup.pacing = Some(Pacing::justitia(spec, profile).map_err(refused)?);
                }
                "lite" => setup.pacing = Some(Pacing::lite(profile).map_err(refused)?),
                "sw-chunking" => {
                    setup.pacing = Some(Pacing::chunking(scenario, profile).map_err(refused)?);
                }
                "hw-priority" => {
                    setup.pacing = Some(Pacing::priority(spec, profile).map_err(refused)?);
                    setup.lanes.sharing =
                        Sharing::Priority(profile.value("host", "priority_queues") as usize);
                    setup.lanes.rates = vec![None; setup.lanes.sharing.classes()];
                }
                "palos" => {
                    let chunks = chunks::palos(spec, profile).map_err(refused)?;
                    setup.scheduler = Scheduler::Chunks(chunks);
                }
                "hw-tc" => setup.lanes = lanes::traffic_classes(scenario, profile),
                "vl-qos" => setup.lanes = lanes::virtual_lanes(scenario),
                "isolane" => ours::hardware(scenario, profile, &mut setup).map_err(refused)?,
                "isolane-sw" => ours::software(scenario, profile, &mut setup).map_err(refused)?,
                "sriov" => setup.functions = Some(lanes::functions(scenario, profile)),
                "harmonic" => {
                    setup.monitor = Some(monitor::MonitorSetup::of(spec));
                    setup.harmonic = Some(harmonic::HarmonicSetup::of(scenario, profile)?);
                }
                _ => {
                    return Err(SimError::UnknownPolicy {
                        name: part.name.to_owned(),
                    });
                }
            }
        }
        Ok(setup)
    }

    /// Functions each class has lanes for: one, or one per tenant and one for the host itself.
    pub(crate) fn functions(&self) -> usize {
        self.functions
            .as_ref()
            .map_or(1, |functions| functions.rates.len() + 1)
    }

    /// The receive buffer of each class.
    pub(crate) fn buffer_of_class(&self) -> Vec<u8> {
        let classes = self.lanes.sharing.classes() as u8;
        if self.lanes.buffer_parts.is_empty() {
            vec![0; usize::from(classes)]
        } else {
            (0..classes).collect()
        }
    }

    /// Class and function of a tenant's queue pairs. What belongs to no tenant is the host's own: it uses the first
    /// class and no virtual function.
    pub(crate) fn place_of(&self, tenant: usize) -> (u8, u8) {
        let class = self.lanes.class_of_tenant.get(tenant).copied().unwrap_or(0);
        let function = tenant.min(self.functions() - 1);
        (class, function as u8)
    }

    /// The rate limit of a lane: the lower of its class's and its function's.
    pub(crate) fn rate(&self, class: usize, function: usize) -> Option<BitRate> {
        let of_class = self.lanes.rates.get(class).copied().flatten();
        let of_function = self
            .functions
            .as_ref()
            .and_then(|functions| functions.rates.get(function).copied().flatten());
        match (of_class, of_function) {
            (Some(first), Some(second)) => Some(first.min(second)),
            (first, second) => first.or(second),
        }
    }
}

/// A parameter of the scenario's policy.
fn parameter(spec: &PolicySpec, name: &str) -> Option<f64> {
    spec.parameters.get(name).copied()
}
