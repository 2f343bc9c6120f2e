//! Properties that hold for any sequence of events.

use super::tests::{options, spec};
use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Join(FlowClass, u32, Direction),
    Leave(u32),
    Want(u32, u64, u64),
    Remote(RemoteState),
    Wait(u64),
}

fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![3 => Just(Direction::Outgoing), 1 => Just(Direction::RemoteRead)]
}

fn class() -> impl Strategy<Value = FlowClass> {
    use FlowClass::{Bandwidth, Latency, Throughput};
    prop_oneof![Just(Latency), Just(Throughput), Just(Bandwidth)]
}

fn remote() -> impl Strategy<Value = RemoteState> {
    let weights = prop::array::uniform6(0u64..4);
    (weights, 0u64..60)
        .prop_map(|(weights, gbps)| RemoteState::of(weights, BitRate::from_gbps(gbps)))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (class(), 1u32..6, direction()).prop_map(|(class, weight, direction)| Step::Join(class, weight, direction)),
        1 => (0u32..8).prop_map(Step::Leave),
        4 => (0u32..8, 0u64..3_000_000, 0u64..9_000).prop_map(|(flow, bytes, operations)| Step::Want(flow, bytes, operations)),
        1 => remote().prop_map(Step::Remote),
        4 => (0u64..2_000).prop_map(Step::Wait),
        1 => (9_000u64..25_000).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..80)
}

/// Everything the policy did, one line each.
type Trace = Vec<String>;

/// Plays the steps; reference latencies are 1 or 3 us by `seed`. `watch` sees the policy after each event.
fn play(steps: &[Step], seed: u64, mut watch: impl FnMut(&Justitia, Instant, &[Action])) -> Trace {
    let mut policy = Justitia::new(options()).unwrap();
    let mut latencies = isolane_common_quantities::rng::Stream::named(seed, "latency");
    let (mut now, mut flows, mut trace) = (Instant::ZERO, 0, Trace::new());
    let mut settle = |policy: &mut Justitia, now: Instant| {
        let mut actions = Vec::new();
        while let Some(action) = policy.poll_action() {
            if action == Action::SendReference {
                let latency = Duration::from_us(if latencies.chance(1, 60) { 3 } else { 1 });
                policy.on_signal(now, &Signal::ReferenceLatency(latency));
            }
            trace.push(format!("{now:?} {action:?}"));
            actions.push(action);
        }
        watch(policy, now, &actions);
    };
    for step in steps {
        let signal = match *step {
            Step::Join(class, weight, direction) => {
                flows += 1;
                Signal::Joined(FlowSpec {
                    direction,
                    ..spec(class, weight)
                })
            }
            Step::Leave(flow) if flow < flows => Signal::Left(FlowId(flow)),
            Step::Want(flow, bytes, operations) if flow < flows => Signal::Backlog {
                flow: FlowId(flow),
                bytes: Bytes::new(bytes),
                operations,
            },
            Step::Remote(state) => Signal::Remote(state),
            Step::Wait(us) => {
                let end = now + Duration::from_us(us);
                while let Some(due) = policy.poll_timeout().filter(|&due| due <= end) {
                    policy.handle_timeout(due);
                    let next = policy.poll_timeout();
                    assert!(next.is_none_or(|next| next > due), "no progress at {due:?}");
                    settle(&mut policy, due);
                }
                now = end;
                continue;
            }
            _ => continue,
        };
        policy.on_signal(now, &signal);
        settle(&mut policy, now);
    }
    trace
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn safe_util_stays_between_the_guarantee_and_the_device(steps in steps(), seed: u64) {
        play(&steps, seed, |policy, _, _| {
            assert!(policy.minimum_rate() <= policy.safe_util());
            assert!(policy.safe_util() <= policy.options.rate_max);
            assert!(policy.shares().has_latency() || policy.safe_util() == policy.options.rate_max);
            let sending = policy.sending.rate();
            assert!(sending <= policy.safe_util());
            // This host's own senders get their part of R_min at any latency.
            assert!(sending >= policy.shares().sending_part(policy.minimum_rate()));
        });
    }

    #[test]
    fn the_same_events_give_the_same_actions(steps in steps(), seed: u64) {
        prop_assert_eq!(play(&steps, seed, |_, _, _| ()), play(&steps, seed, |_, _, _| ()));
    }

    /// Goal: conservation through changes of SafeUtil and token size. Bytes granted on the sending stream since
    /// the start are within the integral of its rate.
    #[test]
    fn grants_stay_within_the_integral_of_the_rate(steps in steps(), seed: u64) {
        let (mut last, mut rate) = (Instant::ZERO, options().rate_max);
        let (mut integral, mut granted) = (0u128, 0u128);
        play(&steps, seed, |policy, now, actions| {
            integral += u128::from(rate.as_bps()) * u128::from((now - last).as_ps());
            (last, rate) = (now, policy.sending.rate());
            for action in actions {
                if let Action::Grant { flow, bytes, .. } = action {
                    let direction = policy.flows[flow.0 as usize].spec.direction;
                    if direction == Direction::Outgoing {
                        granted += u128::from(bytes.get());
                    }
                }
            }
            assert!(granted * 8_000_000_000_000 <= integral);
        });
    }

    /// A thousand flows that were active and fell silent do not slow the one that is not.
    #[test]
    fn idle_flows_never_hold_tokens_back(silent in 1u32..1_000) {
        let mut policy = Justitia::new(options()).unwrap();
        let mut now = Instant::ZERO;
        for flow in 0..=silent {
            policy.on_signal(now, &Signal::Joined(spec(FlowClass::Bandwidth, 3)));
            let bytes = Bytes::new(if flow == silent { 1 << 50 } else { 1 });
            policy.on_signal(now, &Signal::Backlog { flow: FlowId(flow), bytes, operations: 1 });
        }
        let mut last = 0;
        // One token serves each silent flow and it saves one; from then on every token is the busy flow's.
        for _ in 0..2 * (silent + 1) + 50 {
            now = policy.poll_timeout().unwrap();
            policy.handle_timeout(now);
            while let Some(action) = policy.poll_action() {
                if let Action::Grant { flow, .. } = action {
                    last = flow.0;
                    if last != silent {
                        let latency = Duration::from_us(1);
                        policy.on_completion(now, &Completion { flow, bytes: Bytes::new(1), operations: 1, latency });
                    }
                }
            }
        }
        prop_assert_eq!(last, silent);
        prop_assert_eq!(policy.sending.waiting_flows(), 1);
    }
}
