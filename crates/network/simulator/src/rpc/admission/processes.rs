//! Aequitas 2 where the processes of a calling host exchange evidence, and hosts do not.
//!
//! Problem: with several processes on each calling host, a process alone sees few of the misses.
//! Method: [`isolane_rpc_policy::evidence`] decides. At the end of a call a process learns at once. If its last exchange is
//! `exchange_us` ago, it also passes the outcomes since then to the host's other processes.
//! Limits: a model only: the libraries for real RPC stacks exchange no evidence. The outcomes arrive when they are sent.
//! Several misses between two exchanges count for one cut. 224 bytes for each process, called host and class.

use super::super::objective::Objective;
use super::super::slab::Call;
use super::parameter;
use super::ports::all_options;
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_network_scenario::model::FabricScenario;
use isolane_rpc_policy::aequitas::Decision;
use isolane_rpc_policy::aequitas2::{Aequitas2Options, Channel, Outcome};
use isolane_rpc_policy::evidence::{Evidence, Joint};

/// A process's side for a called host and class.
#[derive(Clone, Copy, Debug)]
struct Caller {
    channel: Channel,
    joint: Joint,
    /// The gap of the last decision, ps.
    gap: u64,
    /// What the host's other processes do not know.
    unsent: Evidence,
}

#[derive(Clone, Debug)]
pub(in crate::rpc) struct Processes {
    /// By class; none for classes that are not gated.
    options: Vec<Option<Aequitas2Options>>,
    /// By caller, then class.
    callers: Vec<Caller>,
    /// By caller: its last exchange.
    exchanged: Vec<Instant>,
    period: Duration,
    /// Processes of a host.
    processes: u32,
    lowest: usize,
}

impl Processes {
    pub(super) fn new(
        scenario: &FabricScenario,
        objectives: &[Option<Objective>],
        pairs: usize,
        processes: u32,
    ) -> Result<Self, OptionError> {
        let lowest = objectives.len() - 1;
        let callers = pairs * processes as usize;
        let caller = Caller {
            channel: Channel::default(),
            joint: Joint::new(Instant::ZERO),
            gap: 0,
            unsent: Evidence::default(),
        };
        let period_us = parameter(scenario, "exchange_us").unwrap_or(EXCHANGE_US);
        Ok(Self {
            options: all_options(scenario, objectives)?,
            callers: vec![caller; callers * lowest],
            exchanged: vec![Instant::ZERO; callers],
            period: Duration::from_secs_f64(period_us / 1e6),
            processes,
            lowest,
        })
    }

    #[inline]
    pub(super) fn decide(&mut self, now: Instant, caller: u32, class: u8, mtus: u32) -> u8 {
        let Some(Some(options)) = self.options.get(usize::from(class)) else {
            return class;
        };
        let index = caller as usize * self.lowest + usize::from(class);
        let Caller {
            channel,
            joint,
            gap,
            ..
        } = &mut self.callers[index];
        *gap = joint.gaps().bounded(channel.requested_gap(options, now));
        match channel.decide(options, *gap, now, mtus) {
            Decision::Admit => class,
            Decision::Downgrade => self.lowest as u8,
        }
    }

    #[inline]
    pub(super) fn on_completion(&mut self, now: Instant, caller: u32, call: &Call, met: bool) {
        if let Some(Some(options)) = self.options.get(usize::from(call.ran)) {
            let index = caller as usize * self.lowest + usize::from(call.ran);
            let caller = &mut self.callers[index];
            let outcome = Outcome {
                issued: call.started,
                latency: now.saturating_since(call.started),
                met,
                gap: caller.channel.gap(options, now),
            };
            caller.joint.on_own(options, now, outcome);
            caller.unsent.count(outcome);
        }
        if now.saturating_since(self.exchanged[caller as usize]) >= self.period {
            self.exchanged[caller as usize] = now;
            self.exchange(now, caller);
        }
    }

    /// Passes the outcomes since the last exchange to the host's other processes.
    fn exchange(&mut self, now: Instant, caller: u32) {
        let host = caller - caller % self.processes;
        for (class, options) in self.options.iter().enumerate() {
            let Some(options) = options else { continue };
            let at = |caller: u32| caller as usize * self.lowest + class;
            let sent = std::mem::take(&mut self.callers[at(caller)].unsent);
            let peers = (host..host + self.processes).filter(|peer| *peer != caller);
            for peer in peers {
                self.callers[at(peer)].joint.on_peer(options, now, sent);
            }
        }
    }

    #[inline]
    pub(super) fn probability(&self, caller: u32, class: u8) -> Option<f64> {
        let options = self.options.get(usize::from(class))?.as_ref()?;
        let caller = &self.callers[caller as usize * self.lowest + usize::from(class)];
        Some(caller.channel.probability(options, caller.gap).as_f64())
    }
}

/// Default of `exchange_us`.
const EXCHANGE_US: f64 = 10_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_us(15);

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_us(us)
    }

    #[test]
    fn the_shown_probability_is_that_of_the_bounded_gap() {
        let caller = Caller {
            channel: Channel::default(),
            joint: Joint::new(Instant::ZERO),
            gap: 0,
            unsent: Evidence::default(),
        };
        let mut all = Processes {
            options: vec![Some(Aequitas2Options::new(TARGET, 99.9))],
            callers: vec![caller],
            exchanged: vec![Instant::ZERO],
            period: TARGET,
            processes: 1,
            lowest: 1,
        };
        let options = all.options[0].expect("given above");
        // A peer reports misses alone, so its level goes to the floor. A call of an MTU in each microsecond.
        for us in 1..20_000 {
            let lie = Evidence {
                missed: 10,
                missed_issued: at(us),
                ..Evidence::default()
            };
            all.callers[0].joint.on_peer(&options, at(us), lie);
            all.decide(at(us), 0, 0, 1);
        }
        let shown = all.probability(0, 0).expect("a gated class");
        assert!((0.24..0.26).contains(&shown), "{shown}");
    }
}
