//! Aequitas 2 in a network: how evidence goes from callers to the called host, and the level back to them.
//!
//! Problem: the called host's port is shared by all its callers, and each caller alone sees few misses.
//! Method: [`isolane_rpc_policy::aequitas2`] decides. A caller keeps the outcomes of its calls to a host until its next
//! call to this host, whatever the class, and the end of each call brings the gaps of the host's port. So evidence
//! needs no packets of its own, and a caller's knowledge is as old as its last call. With `shared = 0` each caller has a
//! port of its own for each called host, and nothing is sent. A caller is a process ([`super`]).
//! Choice: the evidence arrives when the call is issued, and the gap is that of the call's end: each is too early by a
//! one-way delay, microseconds where a cut takes milliseconds to come again.
//! Limits: a caller sends the number of its met and missed calls and the latest issue time of a miss, so several misses
//! between two calls count for one cut. 112 bytes for each caller and class.

use super::super::objective::Objective;
use super::super::slab::Call;
use super::{idle_after, parameter};
use crate::packet::HostId;
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_network_scenario::model::FabricScenario;
use isolane_rpc_policy::aequitas::{Decision, Probability};
use isolane_rpc_policy::aequitas2::{Aequitas2Options, Channel, Outcome, Port};

/// A caller's side for a called host and class.
#[derive(Clone, Copy, Debug, Default)]
struct Caller {
    channel: Channel,
    /// The port's gap as far as the caller knows.
    gap: u64,
    /// Outcomes since the last call.
    met: u32,
    missed: u32,
    missed_issued: Instant,
    missed_latency: Duration,
}

#[derive(Clone, Debug)]
pub(in crate::rpc) struct Ports {
    /// By class; none for classes that are not gated.
    options: Vec<Option<Aequitas2Options>>,
    /// By caller, then class.
    callers: Vec<Caller>,
    /// By called host (by caller if nothing is shared), then class.
    ports: Vec<Port>,
    shared: bool,
    lowest: usize,
}

impl Ports {
    pub(super) fn new(
        scenario: &FabricScenario,
        objectives: &[Option<Objective>],
        pairs: &[(u16, u16)],
        (processes, shared): (u32, bool),
    ) -> Result<Self, OptionError> {
        let lowest = scenario.classes.len() - 1;
        let options = all_options(scenario, objectives)?;
        let callers = pairs.len() * processes as usize;
        let hosts = pairs.iter().map(|pair| usize::from(pair.1) + 1).max();
        let ports = match shared {
            true => hosts.unwrap_or(0),
            false => callers,
        };
        Ok(Self {
            options,
            callers: vec![Caller::default(); callers * lowest],
            ports: vec![Port::new(Instant::ZERO); ports * lowest],
            shared,
            lowest,
        })
    }

    /// The first place of a caller's port.
    fn port(&self, caller: u32, to: u16) -> usize {
        self.lowest
            * match self.shared {
                true => usize::from(to),
                false => caller as usize,
            }
    }

    #[inline]
    pub(super) fn decide(
        &mut self,
        now: Instant,
        (caller, to): (u32, HostId),
        class: u8,
        mtus: u32,
    ) -> u8 {
        let port = self.port(caller, to.0);
        let first = caller as usize * self.lowest;
        let callers = &mut self.callers[first..first + self.lowest];
        for (index, caller) in callers.iter_mut().enumerate() {
            if let Some(options) = &self.options[index] {
                caller.report(options, now, &mut self.ports[port + index]);
            }
        }
        let Some(Some(options)) = self.options.get(usize::from(class)) else {
            return class;
        };
        let caller = &mut callers[usize::from(class)];
        match caller.channel.decide(options, caller.gap, now, mtus) {
            Decision::Admit => class,
            Decision::Downgrade => self.lowest as u8,
        }
    }

    #[inline]
    pub(super) fn on_completion(&mut self, now: Instant, caller: u32, call: &Call, met: bool) {
        let port = self.port(caller, call.to.0);
        let first = caller as usize * self.lowest;
        if let Some(Some(options)) = self.options.get(usize::from(call.ran)) {
            let index = usize::from(call.ran);
            let caller = &mut self.callers[first + index];
            caller.count(now, call.started, met);
            if !self.shared {
                caller.report(options, now, &mut self.ports[port + index]);
            }
        }
        for index in 0..self.lowest {
            self.callers[first + index].gap = self.ports[port + index].gap();
        }
    }

    #[inline]
    pub(super) fn probability(&self, caller: u32, class: u8) -> Option<f64> {
        let options = self.options.get(usize::from(class))?.as_ref()?;
        let caller = &self.callers[caller as usize * self.lowest + usize::from(class)];
        Some(caller.channel.probability(options, caller.gap).as_f64())
    }
}

impl Caller {
    fn count(&mut self, now: Instant, issued: Instant, met: bool) {
        match met {
            true => self.met += 1,
            false => {
                self.missed += 1;
                self.missed_issued = self.missed_issued.max(issued);
                self.missed_latency = now.saturating_since(issued);
            }
        }
    }

    /// Sends the outcomes since the last report to the port.
    #[inline]
    fn report(&mut self, options: &Aequitas2Options, now: Instant, port: &mut Port) {
        let outcome = |met| Outcome {
            issued: self.missed_issued,
            latency: self.missed_latency,
            met,
            gap: self.channel.gap(options, now),
        };
        for _ in 0..self.met {
            port.on_outcome(options, now, outcome(true));
        }
        for _ in 0..self.missed {
            port.on_outcome(options, now, outcome(false));
        }
        (self.met, self.missed) = (0, 0);
    }
}

/// The options of the classes above the lowest one.
pub(super) fn all_options(
    scenario: &FabricScenario,
    objectives: &[Option<Objective>],
) -> Result<Vec<Option<Aequitas2Options>>, OptionError> {
    let gated = &objectives[..objectives.len() - 1];
    let one = |objective: &Option<Objective>| {
        let options = objective.as_ref().map(|some| options_of(scenario, some));
        options.transpose()
    };
    gated.iter().map(one).collect()
}

fn options_of(
    scenario: &FabricScenario,
    objective: &Objective,
) -> Result<Aequitas2Options, OptionError> {
    let mut options = Aequitas2Options::new(objective.target, objective.percentile);
    if let Some(cut) = parameter(scenario, "cut") {
        options.cut = Probability::from_f64(cut);
    }
    if let Some(floor) = parameter(scenario, "floor") {
        options.base.floor = Probability::from_f64(floor);
    }
    if let Some(idle_after) = idle_after(scenario) {
        options.base.idle_after = idle_after;
    }
    options.check()?;
    Ok(options)
}
