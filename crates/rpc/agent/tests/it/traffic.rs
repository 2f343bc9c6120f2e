//! The agent on the real kernel: a client without instrumentation behind a real port.

use crate::support::Lab;
use isolane_common_linux::skip::skip;
use isolane_rpc::admission::Admission;
use isolane_rpc_agent::Effect;
use std::sync::Arc;
use std::time::Duration;

fn settings(target: &str) -> String {
    format!(
        "mtu_bytes = 1448\n\
         [[class]]\nname = \"high\"\ndscp = 46\ntarget_per_mtu = \"{target}\"\npercentile = 99\nbeta = 0.5\n\
         [[class]]\nname = \"low\"\ndscp = 8\n"
    )
}

/// Goal: the measured time of a message is that of its bytes. Method: a port of 2 Mbit/s bounds it from below, the client's
/// own clock from above: the answer, which the client waits for, carries the acknowledgement. Where the machine stops the
/// client within a write, the message is measured in two parts, and the larger one has half of the bytes.
#[test]
fn a_message_takes_what_its_bytes_take() {
    const MESSAGES: u64 = 3;
    const BYTES: u64 = 100_000;
    // The bucket of the port holds two packets.
    const LEAST_US: f64 = 4.0 * (BYTES / 2 - 2 * 1_514) as f64;
    let Some(lab) = Lab::new("time", "2mbit") else {
        return;
    };
    let mut agent = lab.agent(&settings("1s"), Duration::from_millis(200));
    let times = lab.client(&mut agent, MESSAGES as u32, BYTES as u32, "plain");
    let view = agent.view().unwrap();
    let [row] = &view.rows[..] else {
        panic!("{view:?}")
    };
    assert_eq!(
        (row.destination.as_str(), row.class.as_str()),
        ("10.78.0.2:7001", "high")
    );
    assert_eq!((row.bytes, view.messages_lost), (MESSAGES * BYTES, 0));
    assert!(row.messages >= MESSAGES, "{view:?}");
    assert_eq!((row.missed, row.downgraded), (Some(0), 0));
    let longest_us = times.iter().max().unwrap().as_secs_f64() * 1e6;
    let p99_us = row.p99_us.unwrap();
    assert!(p99_us >= 0.96 * LEAST_US, "{row:?}");
    assert!(p99_us <= 1.04 * longest_us, "{row:?}, {longest_us}");
    let wire = lab.wire();
    assert!(wire.high >= MESSAGES * BYTES / 1_448, "{wire:?}");
    assert_eq!(wire.low, 0, "{wire:?}");
}

/// Goal: a client that misses its objective runs in the lowest class on the wire, without any change of its own. Method: no
/// message can keep an objective of a nanosecond, so after a first client the probability is at its floor.
#[test]
fn messages_that_are_not_admitted_leave_in_the_lowest_class() {
    const MESSAGES: u64 = 300;
    let Some(lab) = Lab::new("enforce", "1gbit") else {
        return;
    };
    let mut agent = lab.agent(&settings("1ns"), Duration::ZERO);
    lab.client(&mut agent, 20, 1_000, "waits");
    let (first, before) = (agent.view().unwrap(), lab.wire());
    assert!(at_floor(first.rows[0].admit_probability), "{first:?}");
    lab.client(&mut agent, MESSAGES as u32, 1_000, "waits");
    assert_eq!(agent.verify().unwrap(), Effect::Works);
    let view = agent.view().unwrap();
    let row = &view.rows[0];
    assert_eq!(
        (row.messages, row.bytes),
        (MESSAGES, MESSAGES * 1_000),
        "{view:?}"
    );
    assert!(at_floor(row.admit_probability), "{row:?}");
    // 30 are admitted on average; 100 is 13 standard deviations away.
    assert!(row.downgraded > MESSAGES - 100, "{view:?}");
    assert_eq!(row.missed, Some(MESSAGES - row.downgraded));
    let checked = (view.packets_marked, view.packets_with_other_code_point);
    assert_eq!(checked, (MESSAGES + 20, 0));
    let wire = lab.wire();
    assert!(wire.low - before.low >= row.downgraded, "{wire:?}, {row:?}");
    let admitted = MESSAGES - row.downgraded;
    assert!(wire.high - before.high >= admitted, "{wire:?}, {row:?}");
}

#[test]
fn shadow_counts_and_marks_nothing() {
    const MESSAGES: u64 = 50;
    let Some(lab) = Lab::new("shadow", "1gbit") else {
        return;
    };
    let text = format!("mode = \"shadow\"\n{}", settings("1ns"));
    let mut agent = lab.agent(&text, Duration::ZERO);
    lab.client(&mut agent, MESSAGES as u32, 1_000, "plain");
    let view = agent.view().unwrap();
    let row = &view.rows[0];
    assert_eq!(
        (row.messages, row.downgraded, row.missed),
        (MESSAGES, 0, Some(MESSAGES))
    );
    assert!(at_floor(row.admit_probability), "{row:?}");
    let wire = lab.wire();
    assert_eq!((wire.high, wire.low), (0, 0), "{wire:?}");
}

/// Goal: no connection stays in the lowest class after a change to `shadow`. Method: the mode changes while messages run,
/// most of them in the lowest class; at its end the client waits for the code point of its class. A client that ended
/// before the agent worked is followed by another one.
#[test]
fn a_change_to_shadow_restores_the_mark_of_the_class() {
    let Some(lab) = Lab::new("change", "1gbit") else {
        return;
    };
    let admission = Arc::new(Admission::from_text("t", &settings("1ns")).unwrap());
    let mut agent = lab.attach(Arc::clone(&admission), Duration::ZERO);
    let shadow = format!("mode = \"shadow\"\n{}", settings("1ns"));
    let mut low = 0;
    for _ in 0..20 {
        lab.client_with(&mut agent, (300, 1_000), "waits", |agent| {
            if low == 0 && lab.wire().low > 0 {
                admission.reload_text("t", &shadow).unwrap();
                agent.verify().unwrap();
                low = lab.wire().low;
            }
        });
        if low > 0 {
            break;
        }
    }
    assert!(low > 0, "no message ran in the lowest class");
    assert_eq!(agent.view().unwrap().mode, "shadow");
}

/// Goal: the agent does not say that it marks where packets have another mark. Method: the client changes its own mark
/// after the agent has set one.
#[test]
fn without_effect_the_agent_steps_aside() {
    let Some(lab) = Lab::new("aside", "1gbit") else {
        return;
    };
    let mut agent = lab.agent(&settings("1s"), Duration::ZERO);
    lab.client(&mut agent, 120, 1_000, "marks");
    let effect = agent.verify().unwrap();
    assert_eq!(
        effect,
        Effect::None {
            other: 120,
            of: 120,
            refused: 0
        }
    );
    assert_eq!(agent.view().unwrap().mode, "shadow");
    assert_eq!(agent.verify().unwrap(), Effect::Works, "said once");
}

/// Goal: an acknowledgement that may be late is no miss. Method: one-packet messages, an objective of a nanosecond, and a
/// peer that may delay an acknowledgement for longer than a message takes.
#[test]
fn a_late_acknowledgement_is_no_miss() {
    const MESSAGES: u64 = 20;
    let Some(lab) = Lab::new("late", "1gbit") else {
        return;
    };
    let mut agent = lab.agent(&settings("1ns"), Duration::from_secs(3_600));
    lab.client(&mut agent, MESSAGES as u32, 1_000, "plain");
    let row = &agent.view().unwrap().rows[0];
    assert_eq!(
        (row.unclear, row.missed, row.met),
        (MESSAGES, Some(0), Some(0))
    );
    assert_eq!(row.admit_probability, Some(1.0));
}

/// Goal: both directions of a connection are measured where both ends are in the cgroup; the end that accepted it has the
/// peer's address as destination.
#[test]
fn both_directions_are_measured_at_their_sender() {
    const MESSAGES: u64 = 20;
    let Some(lab) = Lab::new("both", "1gbit") else {
        return;
    };
    let mut agent = lab.agent(&settings("1s"), Duration::ZERO);
    lab.client(&mut agent, MESSAGES as u32, 1_000, "both");
    let view = agent.view().unwrap();
    let [requests, responses] = &view.rows[..] else {
        panic!("{view:?}")
    };
    assert_eq!(
        (requests.destination.as_str(), requests.bytes),
        ("10.78.0.2:7001", 1_000 * MESSAGES)
    );
    assert_eq!(
        (responses.destination.as_str(), responses.bytes),
        ("10.78.0.1", 4 * MESSAGES)
    );
    assert_eq!(
        (requests.messages, responses.messages),
        (MESSAGES, MESSAGES)
    );
}

/// Goal: the user hears of connections whose congestion control is known not to keep objectives. Method: one client with BBR,
/// one with CUBIC.
#[test]
fn connections_with_bbr_are_counted() {
    let Some(lab) = Lab::new("bbr", "1gbit") else {
        return;
    };
    let controls = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    if !controls.is_ok_and(|names| names.contains("bbr")) {
        return skip("this kernel has no BBR");
    }
    let mut agent = lab.agent(&settings("1s"), Duration::ZERO);
    lab.client(&mut agent, 5, 1_000, "bbr");
    lab.client(&mut agent, 5, 1_000, "cubic");
    let view = agent.view().unwrap();
    assert_eq!((view.connections, view.connections_by_bbr), (2, 1));
}

#[test]
fn a_connection_that_its_program_marked_is_left_alone() {
    let Some(lab) = Lab::new("marked", "1gbit") else {
        return;
    };
    let mut agent = lab.agent(&settings("1s"), Duration::ZERO);
    lab.client(&mut agent, 5, 1_000, "marked");
    let view = agent.view().unwrap();
    assert_eq!(
        (view.connections, view.connections_marked_by_program),
        (0, 1)
    );
    assert!(view.rows.is_empty(), "{view:?}");
}

/// Goal: a connection that the kernel does not let BPF mark is left alone and counted, and does not stop the marking of
/// others.
#[test]
fn ipv4_through_a_socket_of_ipv6_is_left_alone() {
    let Some(lab) = Lab::new("mapped", "1gbit") else {
        return;
    };
    let mut agent = lab.agent(&settings("1s"), Duration::ZERO);
    lab.client(&mut agent, 120, 1_000, "mapped");
    assert_eq!(agent.verify().unwrap(), Effect::Works);
    let view = agent.view().unwrap();
    let counts = (view.connections, view.connections_ipv4_over_ipv6);
    assert_eq!(counts, (0, 1), "{view:?}");
}

#[test]
fn ipv6_is_measured_and_marked() {
    const MESSAGES: u64 = 20;
    let Some(lab) = Lab::new("six", "1gbit") else {
        return;
    };
    let mut agent = lab.agent(&settings("1s"), Duration::ZERO);
    lab.client(&mut agent, MESSAGES as u32, 1_000, "six");
    let view = agent.view().unwrap();
    let row = &view.rows[0];
    assert_eq!(row.destination, "[fd78::2]:7001");
    assert_eq!((row.messages, row.bytes), (MESSAGES, 1_000 * MESSAGES));
    assert_eq!(
        (view.packets_marked, view.packets_with_other_code_point),
        (MESSAGES, 0)
    );
}

/// Goal: a message whose connection is reset counts by the time until then. Method: the message needs two seconds on the
/// wire, and the client resets its connection at once.
#[test]
fn a_reset_connection_gives_its_message_up() {
    let Some(lab) = Lab::new("reset", "400kbit") else {
        return;
    };
    let mut agent = lab.agent(&settings("1ns"), Duration::ZERO);
    lab.client(&mut agent, 0, 100_000, "resets");
    let view = agent.view().unwrap();
    let [row] = &view.rows[..] else {
        panic!("{view:?}")
    };
    assert_eq!((row.messages, row.given_up), (1, 1), "{view:?}");
    assert_eq!((row.bytes, row.missed), (100_000, Some(1)), "{view:?}");
    assert!(
        row.admit_probability.unwrap() < 1.0,
        "it lasted longer than its objective"
    );
}

/// Goal: thousands of destinations and connections are measured in bounded memory, and none is lost. Method: a connection
/// and a message for each of 3,000 addresses; a view has 1,024 rows.
#[test]
fn many_destinations_have_bounded_rows() {
    const DESTINATIONS: u64 = 3_000;
    let Some(lab) = Lab::new("many", "1gbit") else {
        return;
    };
    let mut agent = lab.agent(&settings("1s"), Duration::ZERO);
    lab.client(&mut agent, DESTINATIONS as u32, 1_000, "many");
    let view = agent.view().unwrap();
    assert_eq!((view.connections, view.messages_lost), (DESTINATIONS, 0));
    let shown: u64 = view.rows.iter().map(|row| row.messages).sum();
    assert_eq!(view.rows.len(), 1_024);
    assert_eq!(shown + view.messages_without_row, DESTINATIONS);
}

/// The default floor, 0.1, is rounded down to a part of 2^32.
fn at_floor(probability: Option<f64>) -> bool {
    probability.is_some_and(|probability| (probability - 0.1).abs() < 1e-9)
}
