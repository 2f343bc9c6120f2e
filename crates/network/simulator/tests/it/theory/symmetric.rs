//! Equal flows get equal parts: Jain's index is 1.
//!
//! Ports alone: seven hosts send to the eighth, each evenly at a quarter of its line, together 1.75 times what the last port
//! carries. Equal senders differ by at most a packet, so with a thousand packets each the index is 1 within 10^-6.

use super::harness::{PACKET, PACKET_PS, network, packet};
use isolane_common_quantities::stats::fairness::{WeightedBytes, jain_index};
use isolane_common_quantities::units::{Bytes, Instant};
use isolane_network_simulator::discipline::Order;
use isolane_network_simulator::network::{Owner, Step};
use isolane_network_simulator::packet::Timer;
use isolane_network_simulator::run::Observers;

const SENDERS: u16 = 7;

/// Packets of each sender that have come through when `until` of them have.
fn received(order: Order, class_of: impl Fn(u16) -> u8, until: u64) -> Vec<u64> {
    let mut network = network(u32::from(SENDERS) + 1, order, &[1; 8]);
    for sender in 0..SENDERS {
        let timer = Timer {
            index: u32::from(sender),
            what: 0,
        };
        // Not in step: a seventh of a gap apart.
        let at = u64::from(sender) * 4 * PACKET_PS / u64::from(SENDERS);
        network.set_timer(Instant::from_ps(at), Owner::Calls, timer);
    }
    let mut received = vec![0; usize::from(SENDERS)];
    while received.iter().sum::<u64>() < until {
        match network.step(Instant::from_ps(u64::MAX)) {
            Step::Packet(id) => {
                received[usize::from(network.packets[id].from.0)] += 1;
                network.free(id);
            }
            Step::Timer(owner, timer) => {
                let now = network.now();
                let sender = timer.index as u16;
                network.transmit(packet(sender, SENDERS, class_of(sender), PACKET, now));
                let next = Instant::from_ps(now.as_ps() + 4 * PACKET_PS);
                network.set_timer(next, owner, timer);
            }
            Step::Idle(_) => {}
            Step::Over => unreachable!("senders never stop"),
        }
    }
    received
}

fn jain(received: &[u64]) -> f64 {
    let flows: Vec<WeightedBytes> = received
        .iter()
        .map(|packets| WeightedBytes {
            sent: Bytes::new(*packets),
            weight: 1,
        })
        .collect();
    jain_index(&flows).expect("something came")
}

#[test]
fn symmetric_flows_share_evenly_under_every_order() {
    for order in [
        Order::Arrival,
        Order::Strict,
        Order::Wfq,
        Order::Dwrr,
        Order::SmallestKey,
    ] {
        let one_class = received(order, |_| 0, 7_000);
        assert!(
            jain(&one_class) > 1.0 - 1e-6,
            "{order:?}, one class: {one_class:?}"
        );
    }
    for order in [Order::Wfq, Order::Dwrr] {
        let own_classes = received(order, |sender| sender as u8, 7_000);
        assert!(
            jain(&own_classes) > 1.0 - 1e-6,
            "{order:?}, own classes: {own_classes:?}"
        );
    }
}

#[test]
fn the_index_shows_an_order_that_is_not_fair() {
    let unfair = received(Order::Strict, |sender| sender as u8, 7_000);
    assert!(jain(&unfair) < 0.9, "{unfair:?}");
}

/// Callers that send without pause.
struct Callers {
    congestion: &'static str,
    traffic: &'static str,
    hop_delay: &'static str,
}

/// Jain's index of their goodputs.
fn jain_of_callers(callers: &Callers) -> f64 {
    let Callers {
        congestion,
        traffic,
        hop_delay,
    } = callers;
    let text = format!(
        "name = \"symmetric\"\nwarmup = \"5ms\"\nduration = \"20ms\"\nper_pair = true\n\
         [fabric]\ntopology = \"single-switch\"\nhosts = 8\nhop_delay = \"{hop_delay}\"\n\
         [ports]\nbuffer = \"4MiB\"\necn = {{ min = \"64KiB\", max = \"256KiB\", max_probability = 0.1 }}\n\
         [[class]]\nname = \"only\"\n\
         [transport]\ncongestion = \"{congestion}\"\n\
         [[traffic]]\n{traffic}\nsizes = \"64KiB\"\narrivals = \"closed\"\noutstanding = 4\n"
    );
    let scenario = isolane_network_scenario::parse(&text, "symmetric.toml");
    let scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
    let outcome = isolane_network_simulator::run::run(&scenario, Observers::default());
    let pairs = outcome.expect("it runs").result.pairs;
    let flows: Vec<WeightedBytes> = pairs
        .iter()
        .map(|pair| WeightedBytes {
            sent: Bytes::new((pair.goodput_gbps * 1e6) as u64),
            weight: 1,
        })
        .collect();
    assert!(flows.len() >= 4);
    jain_index(&flows).expect("there are flows")
}

/// To a host each.
const APART: &str = "pattern = \"pairs\"\npairs = [[0, 1], [2, 3], [4, 5], [6, 7]]";
/// Seven to one.
const INCAST: &str = "pattern = \"incast\"\nreceiver = 7";

#[test]
fn symmetric_callers_share_evenly_under_every_congestion_control() {
    for congestion in [
        "none", "window", "swift", "dcqcn", "dctcp", "timely", "hpcc",
    ] {
        let callers = Callers {
            congestion,
            traffic: APART,
            hop_delay: "200ns",
        };
        let jain = jain_of_callers(&callers);
        assert!(jain > 1.0 - 1e-9, "{congestion}, apart: {jain}");
        // Rates that search for their share differ a little over 20 ms. TIMELY has no fixed point of its own: any
        // division of the line keeps its delay steady (Zhu et al. 2016), so evenness is not its promise.
        let least = if congestion == "timely" { 0.95 } else { 0.995 };
        let jain = jain_of_callers(&Callers {
            traffic: INCAST,
            ..callers
        });
        assert!(jain > least, "{congestion}, at one port: {jain}");
    }
}

/// A flow does not see its own queue, so a flow with more yields less (`transport/congestion/hpcc.rs`), and windows of
/// several packets leave more room for that than those of one on a short way. Nothing in these runs is drawn, so ways
/// of different length take the place of seeds.
#[test]
fn hpcc_shares_evenly_on_longer_ways_too() {
    let index = |hop_delay| {
        let jain = jain_of_callers(&Callers {
            congestion: "hpcc",
            traffic: INCAST,
            hop_delay,
        });
        (hop_delay, jain)
    };
    let all = ["500ns", "1500ns", "2us", "3us", "5us", "10us"].map(index);
    assert!(all.iter().all(|(_, jain)| *jain > 0.995), "{all:?}");
    // A seventh of the way holds between one packet and two here, and steps of a thirtieth of a packet do not win.
    let (hop_delay, jain) = index("1us");
    assert!(jain > 0.96, "hops of {hop_delay}: {jain}");
}
