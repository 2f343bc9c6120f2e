//! The equilibrium of cores, request slots and tiers: the mean wait of each application for each resource.
//!
//! Problem: requests to a slow tier hold the slots that requests to a fast one need (mercury 5.3.2: "busy processing"
//! of far requests slows near ones), and every request waits at the channels for the others. Units: nanoseconds,
//! requests per nanosecond. Method: a closed network. An application has a fixed number of requests that are either in
//! its core's work or in the memory system: `rate = requests / (work + latency)`. A request takes one of the machine's
//! slots, first come first served, and keeps it until its data is there. Each finite thing gives one unknown, its wait:
//! zero while it is not used up, and as long as it must be for the network to fit otherwise. The responses of the tiers
//! are found one after the other for a given wait for a slot, and that wait by bracketing: the number of slots in use
//! falls as the wait grows. Limits: means only; slots are one pool for all cores. Source: Mercury 5.3.2, figure 5.5.

use crate::tier::Tier;
use isolane_memory_policy::mercury::TIERS_MAX;

/// One application's demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Requests that are in the core's work or in the memory system.
    pub requests: f64,
    /// Work between a return and the next request, nanoseconds.
    pub think: f64,
    /// Share of its requests to each tier.
    pub mix: [f64; TIERS_MAX],
}

/// The memory system in balance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Balance {
    /// Response of each tier, from the door on, nanoseconds.
    pub response: Vec<f64>,
    /// Requests per nanosecond to each tier, those of migration included.
    pub rate: Vec<f64>,
    /// Wait for a request slot, nanoseconds.
    pub slot_wait: f64,
    /// Slots in use.
    pub slots_used: f64,
    /// Requests per nanosecond of each application.
    pub rates: Vec<f64>,
}

impl Balance {
    /// Mean latency of a request with this `mix`, nanoseconds.
    pub fn latency(&self, mix: &[f64; TIERS_MAX]) -> f64 {
        let tiers = self.response.iter().zip(mix);
        let sum: f64 = tiers.map(|(response, part)| response * part).sum();
        self.slot_wait + sum
    }
}

/// The part of a tier's rate that migration may take at most.
const BACKGROUND_MAX: f64 = 0.9;
/// Relative exactness of the responses.
const EXACT: f64 = 1e-6;
/// Most rounds over the tiers.
const ROUNDS: usize = 60;

/// What balances: demands on tiers, with `background` requests per nanosecond to each tier, and how many `slots` there are.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// The tiers, nearest first.
    pub tiers: &'a [Tier],
    /// Request slots.
    pub slots: f64,
    /// The applications.
    pub demands: &'a [Demand],
    /// Requests per nanosecond of migration.
    pub background: [f64; TIERS_MAX],
}

impl Problem<'_> {
    /// The balance; `last` is one of a similar problem, to begin from.
    pub fn solve(&self, last: &Balance) -> Balance {
        let mut response: Vec<f64> = match last.response.len() == self.tiers.len() {
            true => last.response.clone(),
            false => self.tiers.iter().map(|tier| tier.latency).collect(),
        };
        self.respond(0.0, &mut response);
        let slot_wait = match self.used(0.0, &response) <= self.slots {
            true => 0.0,
            false => {
                let start = match last.slot_wait > 0.0 {
                    true => last.slot_wait,
                    false => 10.0,
                };
                falling(start, 1e-4 * self.slots, |wait| {
                    self.respond(wait, &mut response);
                    self.used(wait, &response) - self.slots
                })
            }
        };
        self.respond(slot_wait, &mut response);
        let rates: Vec<f64> = self
            .demands
            .iter()
            .map(|demand| rate_of(demand, slot_wait, &response))
            .collect();
        let rate = (0..self.tiers.len()).map(|tier| {
            let own = rates.iter().zip(self.demands);
            let sum: f64 = own.map(|(rate, demand)| rate * demand.mix[tier]).sum();
            sum + self.moved(tier)
        });
        Balance {
            rate: rate.collect(),
            slots_used: self.used(slot_wait, &response),
            slot_wait,
            response,
            rates,
        }
    }

    fn moved(&self, tier: usize) -> f64 {
        self.background[tier].min(BACKGROUND_MAX * self.tiers[tier].most)
    }

    /// Makes `response` what the tiers need when a slot takes `wait`.
    fn respond(&self, wait: f64, response: &mut [f64]) {
        for _ in 0..ROUNDS {
            let mut change = 0.0_f64;
            for (index, tier) in self.tiers.iter().enumerate() {
                let before = response[index];
                let excess = (before - tier.latency).max(1.0);
                let moved = self.moved(index);
                let waited = falling(excess, EXACT * tier.rate, |waited| {
                    response[index] = tier.latency + waited;
                    let asked: f64 = self
                        .demands
                        .iter()
                        .filter(|demand| demand.mix[index] > 0.0)
                        .map(|demand| rate_of(demand, wait, response) * demand.mix[index])
                        .sum();
                    asked + moved - tier.served(tier.latency + waited)
                });
                response[index] = tier.latency + waited;
                change = change.max((response[index] - before).abs() / before);
            }
            if change < 1e-5 {
                return;
            }
        }
    }

    /// Slots in use when a slot takes `wait`.
    fn used(&self, wait: f64, response: &[f64]) -> f64 {
        let demands = self.demands.iter().map(|demand| {
            let inside: f64 = response
                .iter()
                .zip(&demand.mix)
                .map(|(response, part)| response * part)
                .sum();
            rate_of(demand, wait, response) * inside
        });
        demands.sum()
    }
}

fn rate_of(demand: &Demand, wait: f64, response: &[f64]) -> f64 {
    let tiers = response.iter().zip(&demand.mix);
    let inside: f64 = tiers.map(|(response, part)| response * part).sum();
    demand.requests / (demand.think + wait + inside)
}

/// The positive place where `value`, which falls, is zero within `exact`; zero if it is negative from the start. Begins at
/// `start`, widens until the place is enclosed, then closes in by false position (Illinois).
fn falling(start: f64, exact: f64, mut value: impl FnMut(f64) -> f64) -> f64 {
    let (mut low, mut high) = (start / 1.05, start * 1.05);
    let (mut at_low, mut at_high) = (value(low), value(high));
    while at_high > 0.0 && high < 1e12 {
        (low, at_low) = (high, at_high);
        high *= 2.0;
        at_high = value(high);
    }
    while at_low < 0.0 {
        if low < 1e-9 {
            return 0.0;
        }
        (high, at_high) = (low, at_low);
        low /= 4.0;
        at_low = value(low);
    }
    let mut side = 0;
    for _ in 0..100 {
        if (high - low) <= 1e-12 * high {
            break;
        }
        let place = (low * at_high - high * at_low) / (at_high - at_low);
        let at = value(place);
        if at.abs() <= exact {
            return place;
        }
        if at > 0.0 {
            (low, at_low) = (place, at);
            if side == 1 {
                at_high /= 2.0;
            }
            side = 1;
        } else {
            (high, at_high) = (place, at);
            if side == -1 {
                at_low /= 2.0;
            }
            side = -1;
        }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tiers() -> Vec<Tier> {
        vec![
            Tier::new(1e9, 100.0, (320.0, 8.0), 4.0, 2_000.0),
            Tier::new(1e9, 200.0, (80.0, 4.0), 4.0, 300.0),
        ]
    }

    fn demand(requests: f64, far: f64) -> Demand {
        Demand {
            requests,
            think: 20.0,
            mix: [1.0 - far, far, 0.0, 0.0],
        }
    }

    fn solve(slots: f64, demands: &[Demand]) -> Balance {
        let tiers = tiers();
        let problem = Problem {
            tiers: &tiers,
            slots,
            demands,
            background: [0.0; TIERS_MAX],
        };
        problem.solve(&Balance::default())
    }

    #[test]
    fn a_lone_request_sees_the_idle_latency() {
        let balance = solve(500.0, &[demand(1.0, 0.0)]);
        assert!((balance.latency(&[1.0, 0.0, 0.0, 0.0]) - 100.0).abs() < 0.2);
        assert_eq!(balance.slot_wait, 0.0);
        assert!((balance.rates[0] - 1.0 / 120.0).abs() < 1e-4);
    }

    #[test]
    fn far_requests_that_hold_all_slots_slow_near_ones() {
        let near = [1.0, 0.0, 0.0, 0.0];
        let few = solve(600.0, &[demand(1.0, 0.0), demand(500.0, 1.0)]);
        let many = solve(400.0, &[demand(1.0, 0.0), demand(500.0, 1.0)]);
        assert!(few.latency(&near) < 101.0, "{}", few.latency(&near));
        assert!(many.latency(&near) > 150.0, "{}", many.latency(&near));
    }

    /// The same network by a slow way that is obviously right: requests move in small steps of time between the core,
    /// the slots and the tiers, each at the rate that its place allows, until nothing changes.
    fn by_relaxation(tiers: &[Tier], slots: f64, demands: &[Demand]) -> (Vec<f64>, f64) {
        let mut response: Vec<f64> = tiers.iter().map(|tier| tier.latency + 1.0).collect();
        let mut wait = 0.0_f64;
        for _ in 0..200_000 {
            let rates: Vec<f64> = demands
                .iter()
                .map(|demand| rate_of(demand, wait, &response))
                .collect();
            let mut used = 0.0;
            for index in 0..tiers.len() {
                let asked: f64 = rates
                    .iter()
                    .zip(demands)
                    .map(|(rate, demand)| rate * demand.mix[index])
                    .sum();
                used += asked * response[index];
                response[index] += 0.5 * (asked - tiers[index].served(response[index]));
                response[index] = response[index].max(tiers[index].latency);
            }
            wait = (wait + 0.01 * (used - slots)).max(0.0);
        }
        (response, wait)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]
        #[test]
        fn the_balance_is_that_of_slow_relaxation(
            slots in 200.0..1_500.0_f64,
            many in prop::collection::vec((1.0..600.0_f64, 0.0..1.0_f64), 1..4),
        ) {
            let demands: Vec<Demand> = many.iter().map(|(n, far)| demand(*n, *far)).collect();
            let fast = solve(slots, &demands);
            let (response, wait) = by_relaxation(&tiers(), slots, &demands);
            let slow = Balance { response, slot_wait: wait, ..Balance::default() };
            for demand in &demands {
                let (ours, other) = (fast.latency(&demand.mix), slow.latency(&demand.mix));
                prop_assert!((ours - other).abs() < 0.02 * other, "{ours} and {other}");
            }
            prop_assert!(fast.slots_used <= slots * 1.001);
        }

        #[test]
        fn requests_are_conserved(slots in 100.0..2_000.0_f64, n in 1.0..900.0_f64, far in 0.0..1.0_f64) {
            let demands = [demand(n, far), demand(3.0, 0.5)];
            let balance = solve(slots, &demands);
            for (demand, rate) in demands.iter().zip(&balance.rates) {
                let inside = rate * (demand.think + balance.latency(&demand.mix));
                prop_assert!((inside - demand.requests).abs() < 1e-6 * demand.requests);
            }
            for (tier, rate) in tiers().iter().zip(&balance.rate) {
                prop_assert!(*rate <= tier.most * 1.001);
            }
        }
    }
}
