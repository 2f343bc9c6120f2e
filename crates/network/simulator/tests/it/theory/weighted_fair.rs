//! Worst delay under weighted fair queueing against the closed forms and the exact fluid solution.
//!
//! Traffic of thesis figure 3.7: for `load / burst` of a period each class sends evenly, all together at `burst` line
//! rates, then none sends. Everything is over within the period.
//!
//! What packets add to fluid: a packet needs bytes / (guaranteed rate) of fluid service, summed weight / own weight
//! packet times at most; packet by packet it leaves at most one packet time behind the fluid server; its class's
//! arrivals are at most one packet ahead of fluid ones. That is G = summed weight / own weight + 2 packet times. Two
//! percent of a delay of 1/50 period are 1/2,500 period, so with 2,500 G packet times to a period packets are below
//! the two percent wherever the delay is 1/50 period or more; below that, and where theory says zero, G remains.

use super::harness::{Arrival, PACKET, PACKET_PS, waits};
use isolane_network_simulator::discipline::Order;
use isolane_rpc_policy::queueing::Arrivals;
use isolane_rpc_policy::queueing::fluid::Port;
use isolane_rpc_policy::queueing::region::Line;
use isolane_rpc_policy::queueing::two_class::{Case, TwoClasses};

/// A part of the delay that simulation and theory may differ by.
const TOLERANCE: f64 = 0.02;
/// Delays from which that is more than the packets' grain, periods.
const SMALL: f64 = 0.02;

/// Grain of class `class`, packet times.
fn grain(weights: &[u32], class: usize) -> f64 {
    let sum: u32 = weights.iter().sum();
    f64::from(sum) / f64::from(weights[class]) + 2.0
}

/// Packet times of a period in which [`grain`] is below [`TOLERANCE`] of [`SMALL`] for all classes.
fn period(weights: &[u32]) -> f64 {
    let largest = (0..weights.len()).map(|class| grain(weights, class));
    (largest.fold(0.0, f64::max) / (TOLERANCE * SMALL)).ceil()
}

/// One period's packets: each class evenly at its part of the burst.
fn burst(traffic: Arrivals, shares: &[f64], period: f64) -> Vec<Arrival> {
    let mut arrivals: Vec<Arrival> = Vec::new();
    for (class, share) in shares.iter().enumerate() {
        let count = (traffic.load * share * period).round() as u64;
        let gap = PACKET_PS as f64 / (traffic.burst * share);
        arrivals.extend((0..count).map(|k| ((k as f64 * gap) as u64, class as u8, PACKET)));
    }
    arrivals.sort_unstable();
    arrivals
}

/// The worst wait of each class, periods.
fn simulated(order: Order, weights: &[u32], traffic: Arrivals, shares: &[f64]) -> Vec<f64> {
    let period = period(weights);
    let mut worst = vec![0; weights.len()];
    for (class, wait) in waits(order, weights, burst(traffic, shares, period)) {
        let worst = &mut worst[usize::from(class)];
        *worst = wait.max(*worst);
    }
    worst
        .into_iter()
        .map(|wait| wait as f64 / (PACKET_PS as f64 * period))
        .collect()
}

/// Panics where a class's worst wait is not the given one.
fn check(weights: &[u32], shares: &[f64], ours: &[f64], theory: &[f64]) {
    for class in 0..weights.len() {
        let grain = grain(weights, class) / period(weights);
        assert!(grain <= TOLERANCE * SMALL + 1e-12);
        let allowed = (TOLERANCE * theory[class]).max(grain);
        assert!(
            (ours[class] - theory[class]).abs() <= allowed,
            "weights {weights:?}, shares {shares:?}: class {class} waits {} periods, theory says {}",
            ours[class],
            theory[class]
        );
    }
}

fn traffic(load: f64, burst: f64) -> Arrivals {
    Arrivals::new(load, burst).expect("sound")
}

/// Weights, burst, load: the figure's, the derived example's, the evaluation's, and some in which the cases that those
/// leave out exist.
const PORTS: [([u32; 2], f64, f64); 7] = [
    ([4, 1], 1.2, 0.8),
    ([4, 1], 2.0, 0.8),
    ([4, 1], 1.4, 0.8),
    ([8, 1], 1.05, 0.9),
    ([2, 1], 1.05, 0.8),
    ([3, 2], 1.3, 0.95),
    ([50, 1], 1.4, 0.8),
];

/// Every boundary between two cases, the middle between each two, and shares near the ends.
fn shares_of_interest(phi: f64, burst: f64) -> Vec<f64> {
    let guaranteed = phi / (phi + 1.0);
    let mut bounds = vec![
        0.0,
        guaranteed / burst,
        guaranteed,
        1.0 - (1.0 - guaranteed) / burst,
        1.0 / burst,
        1.0 - 1.0 / burst,
        1.0,
    ];
    bounds.sort_by(f64::total_cmp);
    bounds.dedup_by(|a, b| (*a - *b).abs() < 1e-6);
    let middles: Vec<f64> = bounds
        .windows(2)
        .map(|pair| f64::midpoint(pair[0], pair[1]))
        .collect();
    let inner = bounds
        .into_iter()
        .filter(|share| (0.01..=0.99).contains(share));
    inner.chain(middles).chain([0.02, 0.98]).collect()
}

#[test]
fn two_classes_wait_as_the_closed_forms_say_in_every_case_and_at_every_boundary() {
    let mut seen = Vec::new();
    for (weights, rho, mu) in PORTS {
        let traffic = traffic(mu, rho);
        let phi = f64::from(weights[0]) / f64::from(weights[1]);
        let theory = TwoClasses::new(phi, traffic).expect("sound");
        for share in shares_of_interest(phi, rho) {
            let shares = [share, 1.0 - share];
            let ours = simulated(Order::Wfq, &weights, traffic, &shares);
            check(
                &weights,
                &shares,
                &ours,
                &[theory.high_delay(share), theory.low_delay(share)],
            );
            let case = theory.case(share);
            if !seen.contains(&case) {
                seen.push(case);
            }
        }
    }
    let all = [
        Case::HighUndelayed,
        Case::HighFirst,
        Case::LowFirst,
        Case::LowUndelayed,
        Case::HighAboveLine,
        Case::LowAboveLine,
    ];
    for case in all {
        assert!(seen.contains(&case), "{case:?} was not among the points");
    }
}

#[test]
fn the_check_finds_another_discipline() {
    let traffic = traffic(0.8, 1.2);
    let theory = TwoClasses::new(4.0, traffic).expect("sound");
    let shares = [0.75, 0.25];
    let right = theory.high_delay(0.75);
    assert!(right > SMALL);
    for order in [Order::Strict, Order::Arrival] {
        let ours = simulated(order, &[4, 1], traffic, &shares);
        assert!((ours[0] - right).abs() > TOLERANCE * right, "{order:?}");
    }
    let wrong_weights = simulated(Order::Wfq, &[3, 1], traffic, &shares);
    assert!((wrong_weights[0] - right).abs() > TOLERANCE * right);
}

#[test]
fn three_classes_wait_as_the_exact_fluid_solution_says() {
    for weights in [[8, 4, 1], [50, 4, 1]] {
        let traffic = traffic(0.8, 1.4);
        let port = Port::new(&weights.map(f64::from), traffic).expect("sound");
        for tenths in 1..10 {
            let high = f64::from(tenths) / 10.0;
            let shares = [high, (1.0 - high) * 2.0 / 3.0, (1.0 - high) / 3.0];
            let theory = port.delays(&shares).expect("shares");
            let ours = simulated(Order::Wfq, &weights, traffic, &shares);
            check(&weights, &shares, &ours, &theory);
        }
    }
}

#[test]
fn eight_classes_wait_as_the_exact_fluid_solution_says() {
    let weights = [30, 20, 12, 8, 5, 3, 2, 1];
    let traffic = traffic(0.9, 1.6);
    let port = Port::new(&weights.map(f64::from), traffic).expect("sound");
    let shares = [0.2, 0.15, 0.15, 0.1, 0.1, 0.1, 0.1, 0.1];
    let theory = port.delays(&shares).expect("shares");
    let ours = simulated(Order::Wfq, &weights, traffic, &shares);
    check(&weights, &shares, &ours, &theory);
}

#[test]
fn priorities_are_inverted_where_theory_says() {
    for weights in [[8, 4, 1], [50, 4, 1]] {
        let traffic = traffic(0.8, 1.4);
        let port = Port::new(&weights.map(f64::from), traffic).expect("sound");
        let line = Line::new(port, 0, &[0.0, 2.0, 1.0]).expect("sound");
        let (_, end) = line.admissible()[0];
        let inverted = |share: f64| {
            let ours = simulated(Order::Wfq, &weights, traffic, &line.mix(share));
            let grain = grain(&weights, 2) / period(&weights);
            ours.windows(2).any(|pair| pair[0] > pair[1] + grain)
        };
        assert!(!inverted(end - 0.01), "{weights:?} below {end}");
        assert!(inverted(end + 0.01), "{weights:?} above {end}");
    }
}

#[test]
fn deficit_round_robin_waits_like_fluid_for_long_bursts() {
    // Its grain is a round: here 13 packets and one of each class, so a period of 2,500 of those.
    let weights = [8, 4, 1];
    let traffic = traffic(0.8, 1.4);
    let port = Port::new(&weights.map(f64::from), traffic).expect("sound");
    for high in [0.2, 0.5, 0.8] {
        let shares = [high, (1.0 - high) * 2.0 / 3.0, (1.0 - high) / 3.0];
        let theory = port.delays(&shares).expect("shares");
        let ours = simulated(Order::Dwrr, &weights, traffic, &shares);
        for class in 0..3 {
            let allowed = (TOLERANCE * theory[class]).max(16.0 / period(&weights));
            assert!(
                (ours[class] - theory[class]).abs() <= allowed,
                "{ours:?} {theory:?}"
            );
        }
    }
}
