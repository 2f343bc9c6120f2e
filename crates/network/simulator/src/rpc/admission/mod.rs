//! Admission of calls by measured latency, for each caller, called host and class.
//!
//! Problem: algorithms with different state, called at the same places.
//! Method: [`algorithm2`] has a probability per caller and called host (the paper's algorithm), [`ports`] a level per called
//! host, [`processes`] the same with evidence of the calling host's processes alone. Here is the choice between them. The lowest class is never gated, and calls that are not admitted run there, never
//! in a class between. A caller is a process: a calling host has `processes` of them, and the time of a call's start and its
//! pair choose one. Choice: no random stream is used, so runs with other numbers of processes have the same calls.

mod algorithm2;
mod ports;
mod processes;

use super::groups::Peer;
use super::objective::Objective;
use super::slab::Call;
use algorithm2::Probabilities;
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_network_scenario::model::{FabricPolicyKind, FabricScenario};
use ports::Ports;
use processes::Processes;

/// The learned state of a run.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    /// Processes of a calling host.
    processes: u32,
    algorithm: Algorithm,
}

#[derive(Clone, Debug)]
enum Algorithm {
    /// Aequitas.
    Two(Probabilities),
    /// Aequitas 2, alone or with evidence of all callers.
    Ports(Ports),
    /// Aequitas 2 with evidence of the calling host's processes.
    Processes(Processes),
}

impl Admission {
    /// The admission of `scenario`'s policy, if the policy has one. `pairs` are (caller, called host). Fails if a
    /// parameter controls nothing.
    pub(super) fn new(
        scenario: &FabricScenario,
        objectives: &[Option<Objective>],
        pairs: &[(u16, u16)],
        generators: usize,
    ) -> Result<Option<Self>, OptionError> {
        let processes = whole(scenario, "processes", 1)?;
        let algorithm = match scenario.policy.kind {
            FabricPolicyKind::Aequitas => Algorithm::Two(Probabilities::new(
                scenario,
                objectives,
                pairs.len() * processes as usize,
                generators,
            )?),
            FabricPolicyKind::Aequitas2 => match whole(scenario, "shared", 1)? {
                2 => {
                    let pairs = pairs.len();
                    let all = Processes::new(scenario, objectives, pairs, processes)?;
                    Algorithm::Processes(all)
                }
                shared => {
                    if let Some(exchange_us) = parameter(scenario, "exchange_us") {
                        let remedy = "drop it, or add shared = 2: only then there is an exchange";
                        return Err(OptionError::new("exchange_us", exchange_us, remedy));
                    }
                    let callers = (processes, shared == 1);
                    Algorithm::Ports(Ports::new(scenario, objectives, pairs, callers)?)
                }
            },
            _ => return Ok(None),
        };
        Ok(Some(Self {
            processes,
            algorithm,
        }))
    }

    /// The class in which a call of `mtus` MTUs runs that asks for `class`.
    #[inline]
    pub(super) fn decide(
        &mut self,
        now: Instant,
        generator: u32,
        peer: Peer,
        class: u8,
        mtus: u32,
    ) -> u8 {
        let caller = self.caller(now, peer.pair);
        match &mut self.algorithm {
            Algorithm::Two(all) => all.decide(now, generator, caller, class),
            Algorithm::Ports(all) => all.decide(now, (caller, peer.to), class, mtus),
            Algorithm::Processes(all) => all.decide(now, caller, class, mtus),
        }
    }

    /// `call` of `mtus` MTUs is over.
    #[inline]
    pub(super) fn on_completion(&mut self, now: Instant, call: &Call, met: bool, mtus: u32) {
        let caller = self.caller(call.started, call.pair);
        match &mut self.algorithm {
            Algorithm::Two(all) => all.on_completion(now, caller, call.ran, met, mtus),
            Algorithm::Ports(all) => all.on_completion(now, caller, call, met),
            Algorithm::Processes(all) => all.on_completion(now, caller, call, met),
        }
    }

    /// The admit probability of a pair and class, the mean of its processes; none where nothing is gated.
    #[inline]
    pub(super) fn probability(&self, pair: u32, class: u8) -> Option<f64> {
        let of = |process| {
            let caller = pair * self.processes + process;
            match &self.algorithm {
                Algorithm::Two(all) => all.probability(caller, class),
                Algorithm::Ports(all) => all.probability(caller, class),
                Algorithm::Processes(all) => all.probability(caller, class),
            }
        };
        let sum: Option<f64> = (0..self.processes).map(of).sum();
        sum.map(|sum| sum / f64::from(self.processes))
    }

    /// The caller of a call of `pair` that started at `started`: a pair and a process.
    #[inline]
    fn caller(&self, started: Instant, pair: u32) -> u32 {
        if self.processes == 1 {
            return pair;
        }
        let mut mixed = started.as_ps() ^ u64::from(pair) << 40;
        // The finaliser of SplitMix64.
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        pair * self.processes + (mixed % u64::from(self.processes)) as u32
    }
}

/// The policy's parameter `name`.
fn parameter(scenario: &FabricScenario, name: &str) -> Option<f64> {
    scenario.policy.parameters.get(name).copied()
}

/// The same for a parameter without a fraction.
fn whole(scenario: &FabricScenario, name: &'static str, or: u32) -> Result<u32, OptionError> {
    match parameter(scenario, name) {
        None => Ok(or),
        Some(value) if value.fract() == 0.0 => Ok(value as u32),
        Some(value) => Err(OptionError::new(name, value, "give a whole number")),
    }
}

/// The policy's idle time.
fn idle_after(scenario: &FabricScenario) -> Option<Duration> {
    parameter(scenario, "idle_after_us").map(|us| Duration::from_secs_f64(us / 1e6))
}
