//! The policy in the hands of a caller that divides the rate by itself.

use super::tests::options;
use super::*;

fn weights(hungry: u64, latency: u64) -> Weights {
    Weights {
        sending_hungry: hungry,
        sending_latency: latency,
        ..Weights::default()
    }
}

/// Drives the policy for `periods` reference periods in which every message takes `latency`; the references sent.
fn run(policy: &mut Justitia, now: &mut Instant, periods: u32, latency: Duration) -> u32 {
    let mut sent = 0;
    for _ in 0..periods {
        while let Some(action) = policy.poll_action() {
            match action {
                Action::SendReference => {
                    sent += 1;
                    policy.on_signal(*now, &Signal::ReferenceLatency(latency));
                }
                Action::Grant { .. } => panic!("unexpected grant of tokens"),
                _ => {}
            }
        }
        let Some(due) = policy.poll_timeout() else {
            return sent;
        };
        *now = due;
        policy.handle_timeout(due);
    }
    sent
}

#[test]
fn without_flows_nothing_is_due() {
    let policy = Justitia::new(options()).unwrap();
    assert_eq!(policy.poll_timeout(), None);
    assert_eq!(policy.sending_rate(), BitRate::from_gbps(48));
    assert_eq!(policy.messages_per_s_at(BitRate::from_gbps(24)), 15_000_000);
}

#[test]
fn safe_util_falls_to_the_minimum_and_rises_again() {
    let mut policy = Justitia::new(options()).unwrap();
    let mut now = Instant::ZERO;
    policy.set_weights(now, weights(8, 3));
    assert_eq!(policy.chunk(), Bytes::new(5_000));
    let sent = run(&mut policy, &mut now, 50, Duration::from_us(5));
    assert_eq!(sent, 50, "one message in each period and no other timer");
    assert_eq!(policy.safe_util(), policy.minimum_rate());
    assert_eq!(policy.sending_rate().as_bps(), 42_666_666_666);
    run(&mut policy, &mut now, 300, Duration::from_us(1));
    assert!(policy.safe_util() > policy.minimum_rate());
    policy.set_weights(now, weights(8, 0));
    assert_eq!(policy.sending_rate(), BitRate::from_gbps(48));
    assert_eq!(policy.chunk(), Bytes::new(1_000_000));
    assert_eq!(
        policy.poll_timeout(),
        None,
        "no latency flow, no reference flow"
    );
}

/// Goal: the same decisions as with flows and tokens. Method: both, side by side, with the same reference latencies.
#[test]
fn tokens_and_leases_are_divided_from_the_same_rate() {
    let mut by_leases = Justitia::new(options()).unwrap();
    let mut by_tokens = Justitia::new(options()).unwrap();
    let mut now = Instant::ZERO;
    by_leases.set_weights(now, weights(3, 1));
    for (class, weight) in [(FlowClass::Latency, 1), (FlowClass::Bandwidth, 3)] {
        let spec = super::tests::spec(class, weight);
        by_tokens.on_signal(now, &Signal::Joined(spec));
    }
    let waits = Signal::Backlog {
        flow: FlowId(1),
        bytes: Bytes::new(u64::MAX / 2),
        operations: u64::MAX / 2,
    };
    by_tokens.on_signal(now, &waits);
    for period in 0..2_000u64 {
        let latency = Duration::from_ns(1_500 + period % 7 * 100);
        for policy in [&mut by_leases, &mut by_tokens] {
            while let Some(action) = policy.poll_action() {
                if action == Action::SendReference {
                    policy.on_signal(now, &Signal::ReferenceLatency(latency));
                }
            }
        }
        now = by_leases.poll_timeout().unwrap();
        by_leases.handle_timeout(now);
        while by_tokens.poll_timeout().unwrap() <= now {
            by_tokens.handle_timeout(by_tokens.poll_timeout().unwrap());
        }
        assert_eq!(
            by_leases.safe_util(),
            by_tokens.safe_util(),
            "period {period}"
        );
        assert_eq!(by_leases.sending_rate(), by_tokens.sending_rate());
        assert_eq!(by_leases.chunk(), by_tokens.chunk());
    }
}

#[test]
fn traffic_of_others_halves_nobody_and_takes_recent_halvings_back() {
    let late = Duration::from_us(5);
    let mut policy = Justitia::new(options()).unwrap();
    let mut now = Instant::ZERO;
    policy.set_weights(now, weights(8, 3));
    let full = policy.safe_util();
    policy.set_foreign(now, true);
    run(&mut policy, &mut now, 50, late);
    assert_eq!(policy.safe_util(), full);

    // It ends: the latencies of its time do not count, later ones do.
    policy.set_foreign(now, false);
    assert_eq!(policy.estimated_p99(), None);
    run(&mut policy, &mut now, 2, late);
    let halved = policy.safe_util();
    assert!(halved < full);

    // It returned during the last measurement but one at the earliest.
    policy.set_foreign(now, false);
    run(&mut policy, &mut now, 50, late);
    assert!(policy.safe_util() <= halved);
    policy.set_foreign(now, true);
    assert_eq!(policy.safe_util(), full);
}

#[test]
fn halvings_of_earlier_measurements_stay() {
    let mut policy = Justitia::new(options()).unwrap();
    let mut now = Instant::ZERO;
    policy.set_weights(now, weights(8, 3));
    run(&mut policy, &mut now, 50, Duration::from_us(5));
    let halved = policy.safe_util();
    assert!(halved < BitRate::from_gbps(48));
    policy.set_foreign(now, false);
    policy.set_foreign(now, false);
    policy.set_foreign(now, true);
    assert_eq!(policy.safe_util(), halved);
}
