//! Shares, conservation and savings of the pacer, against a slow model.

use super::*;
use proptest::prelude::*;

const DEVICE: Capacity = Capacity {
    rate: BitRate::from_gbps(48),
    messages_per_s: 30_000_000,
};

fn pacer(token_bytes: u64, weights: &[u32]) -> Pacer {
    let mut pacer = Pacer::new(DEVICE, Bytes::new(token_bytes), 5);
    weights.iter().for_each(|&weight| pacer.join(weight));
    pacer
}

/// Grants so far, per flow.
#[derive(Debug, PartialEq)]
struct Granted(Vec<Token>);

impl Granted {
    fn take(&mut self, actions: &mut VecDeque<Action>) -> u64 {
        let mut total = 0;
        for action in actions.drain(..) {
            let Action::Grant {
                flow,
                bytes,
                operations,
            } = action
            else {
                panic!("{action:?}")
            };
            self.0[flow.0 as usize].bytes += bytes.get();
            self.0[flow.0 as usize].operations += operations;
            total += bytes.get();
        }
        total
    }
}

/// Bytes per flow after `duration`, all of them greedy.
fn greedy(weights: &[u32], duration: Duration) -> Vec<u64> {
    let mut pacer = pacer(5_000, weights);
    let (mut actions, mut granted) = (
        VecDeque::new(),
        Granted(vec![Token::default(); weights.len()]),
    );
    for flow in 0..weights.len() as u32 {
        let demand = Bytes::new(u64::MAX / 2);
        pacer.want(Instant::ZERO, FlowId(flow), demand, 1 << 40, &mut actions);
    }
    while let Some(due) = pacer
        .next_token()
        .filter(|due| due.as_ps() <= duration.as_ps())
    {
        pacer.advance(due, &mut actions);
        granted.take(&mut actions);
    }
    granted.0.iter().map(|token| token.bytes).collect()
}

#[test]
fn weights_one_two_four_share_bytes_one_two_four() {
    // 48 Gb/s are 6,000 bytes per microsecond: 8,400 tokens in 7 ms.
    let bytes = greedy(&[1, 2, 4], Duration::from_ms(7));
    assert_eq!(bytes, [6_000_000, 12_000_000, 24_000_000]);
}

#[test]
fn a_throughput_flow_spends_one_token_on_many_batches() {
    let mut pacer = pacer(1_000_000, &[1]);
    let mut actions = VecDeque::new();
    let mut now = Instant::ZERO;
    let mut tokens_before = 0;
    let complete = |pacer: &mut Pacer, now| {
        for _ in 0..128 {
            pacer.completed(now, FlowId(0), 1);
        }
    };
    for batch in 0..79u64 {
        pacer.want(now, FlowId(0), Bytes::new(1_024), 64, &mut actions);
        complete(&mut pacer, now);
        if let Some(due) = pacer.next_token() {
            now = due;
            pacer.advance(now, &mut actions);
            tokens_before = batch;
        }
        complete(&mut pacer, now);
    }
    let operations: u64 = actions
        .iter()
        .map(|action| match action {
            Action::Grant { operations, .. } => *operations,
            _ => 0,
        })
        .sum();
    assert_eq!(operations, 79 * 64);
    // 5,000 operations are 78 batches and a bit: the flow began its second token with the last batch, and saved
    // another.
    assert_eq!((pacer.tokens_taken(), tokens_before), (2 + 1, 78));
}

/// Goal: a flow that keeps one message outstanding is not beaten by one that always has more. Method: one flow requests
/// a token's worth again only two token times after each grant; the other always waits.
#[test]
fn a_flow_that_pauses_for_completions_keeps_its_half() {
    let mut pacer = pacer(5_000, &[1, 1]);
    let mut actions = VecDeque::new();
    let mut granted = Granted(vec![Token::default(); 2]);
    let greedy = Bytes::new(1 << 50);
    pacer.want(Instant::ZERO, FlowId(0), greedy, 1 << 40, &mut actions);
    let mut asks_at = Some(Instant::ZERO);
    let step = Duration::from_ps(833_334);
    let mut now = Instant::ZERO;
    for _ in 0..12_000 {
        now += step;
        if asks_at.is_some_and(|at| at <= now) {
            pacer.want(now, FlowId(1), Bytes::new(5_000), 1, &mut actions);
            asks_at = None;
        }
        pacer.advance(now, &mut actions);
        let before = granted.0[1].bytes;
        granted.take(&mut actions);
        if granted.0[1].bytes > before {
            asks_at = Some(now + step * 2);
        }
    }
    let share = granted.0[1].bytes as f64 / (granted.0[0].bytes + granted.0[1].bytes) as f64;
    assert!((0.48..0.52).contains(&share), "{share}");
}

/// Goal: others do not gain by slowing a flow down. Method: a flow with full savings and a message in the device
/// keeps its turns until the message completes.
#[test]
fn a_slowed_flow_keeps_its_turns_until_its_messages_complete() {
    let mut pacer = pacer(5_000, &[1, 1]);
    let mut actions = VecDeque::new();
    let mut granted = Granted(vec![Token::default(); 2]);
    pacer.want(Instant::ZERO, FlowId(1), Bytes::new(100), 1, &mut actions);
    pacer.want(
        Instant::ZERO,
        FlowId(0),
        Bytes::new(1 << 50),
        1 << 40,
        &mut actions,
    );
    // 48 Gb/s are 6,000 bytes per microsecond.
    let at = |us| Instant::ZERO + Duration::from_us(us);
    let mut advance = |pacer: &mut Pacer, from: u64, to: u64| {
        for us in from..to {
            pacer.advance(at(us), &mut actions);
        }
        granted.take(&mut actions)
    };
    advance(&mut pacer, 0, 1_000);
    let slowed = advance(&mut pacer, 1_000, 2_000);
    assert!(slowed.abs_diff(3_000_000) <= 2 * 5_000, "{slowed}");
    assert!(pacer.completed(at(2_000), FlowId(1), 1));
    let alone = advance(&mut pacer, 2_000, 3_000);
    assert!(alone.abs_diff(6_000_000) <= 2 * 5_000, "{alone}");
}

#[test]
fn a_shrinking_token_takes_large_rests_away() {
    let mut pacer = pacer(1_000_000, &[1]);
    let mut actions = VecDeque::new();
    let now = Instant::from_ps(1_000_000_000);
    pacer.want(now, FlowId(0), Bytes::new(100), 1, &mut actions);
    pacer.advance(now, &mut actions);
    pacer.set_token_bytes(now, Bytes::new(5_000));
    actions.clear();
    pacer.want(now, FlowId(0), Bytes::new(1_000_000), 1, &mut actions);
    let mut granted = Granted(vec![Token::default()]);
    // The rest of the token in use and the one saved are worth two of today's.
    assert_eq!(granted.take(&mut actions), 2 * 5_000);
}

#[test]
fn an_idle_flow_is_forgotten_and_its_token_goes_to_another() {
    let mut pacer = pacer(1_000_000, &[1, 1]);
    let mut actions = VecDeque::new();
    let due = Instant::from_ps(166_666_667);
    pacer.want(due, FlowId(0), Bytes::new(0), 1, &mut actions);
    pacer.advance(due, &mut actions);
    pacer.completed(due, FlowId(0), 1);
    let idle_after = Duration::from_us(10);
    assert_eq!(pacer.pop_idle(due, idle_after), None);
    let later = due + idle_after;
    assert_eq!(pacer.pop_idle(later, idle_after), Some(FlowId(0)));
    assert_eq!(pacer.pop_idle(later, idle_after), None);
    // The rest of the token and what came meanwhile (60,000 bytes) serve flow 1 at once.
    pacer.want(later, FlowId(1), Bytes::new(1), 1, &mut actions);
    pacer.advance(later, &mut actions);
    assert_eq!(actions.len(), 2);
}

#[test]
fn a_grant_is_a_sign_of_life() {
    let mut pacer = pacer(1_000_000, &[1]);
    let mut actions = VecDeque::new();
    let idle_after = Duration::from_us(200);
    pacer.want(Instant::ZERO, FlowId(0), Bytes::new(1), 1, &mut actions);
    let due = pacer.next_token().unwrap();
    pacer.advance(due, &mut actions);
    assert_eq!(pacer.quiet_since(), Some(due));
    pacer.completed(due, FlowId(0), 1);
    // 200 us after the post, and 33 us after the grant.
    assert_eq!(pacer.pop_idle(Instant::ZERO + idle_after, idle_after), None);
    assert_eq!(
        pacer.pop_idle(due + idle_after, idle_after),
        Some(FlowId(0))
    );
}

/// Goal: a congested network does not cost a sender its share, and a lost completion does not keep one for ever.
/// Method: one message is granted and never completes; the test checks the flow each period.
#[test]
fn work_in_the_device_keeps_a_flow_for_a_hundred_periods() {
    let mut pacer = pacer(1_000_000, &[1]);
    let mut actions = VecDeque::new();
    let idle_after = Duration::from_ms(10);
    let mut now = Instant::from_ps(1_000_000_000);
    pacer.want(now, FlowId(0), Bytes::new(1), 2, &mut actions);
    pacer.advance(now, &mut actions);
    let mut wait = |pacer: &mut Pacer, periods: u32| {
        (0..periods)
            .map(|_| {
                now += idle_after;
                pacer.pop_idle(now, idle_after)
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(wait(&mut pacer, 99), [None; 99]);
    let half_done = Instant::from_ps(1_000_000_000) + idle_after * 99;
    pacer.completed(half_done, FlowId(0), 1);
    assert_eq!(wait(&mut pacer, 99), [None; 99]);
    assert_eq!(wait(&mut pacer, 1), [Some(FlowId(0))]);
}

/// The slow, obvious model: bytes arrive in whole tokens at exact times, and each token goes to the flow with
/// the least tokens per weight, found by looking at all of them.
fn slow_model(weights: &[u32], duration: Duration) -> Vec<u64> {
    let tokens = u128::from(duration.as_ps()) * 48_000_000_000 / (5_000 * 8_000_000_000_000);
    let mut served = vec![0u64; weights.len()];
    for _ in 0..tokens {
        let flow = (0..weights.len())
            .min_by(|&a, &b| {
                let key = |flow: usize| (2 * served[flow] + 1, u64::from(weights[flow]));
                let ((a_served, a_weight), (b_served, b_weight)) = (key(a), key(b));
                (a_served * b_weight).cmp(&(b_served * a_weight))
            })
            .unwrap();
        served[flow] += 1;
    }
    served.iter().map(|tokens| tokens * 5_000).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Want(u32, u64, u64),
    Forget(u32),
    Rate(u64),
    Advance,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u32..4, 0u64..40_000, 0u64..100).prop_map(|(flow, bytes, operations)| Step::Want(flow, bytes, operations)),
        1 => (0u32..4).prop_map(Step::Forget),
        1 => (0u64..48).prop_map(Step::Rate),
        4 => Just(Step::Advance),
    ]
}

proptest! {
    /// The model's order differs in ties and in smoothness, so flows may be apart by its error of a few tokens;
    /// the sum may not.
    #[test]
    fn greedy_flows_agree_with_the_slow_model(weights in prop::collection::vec(1u32..9, 1..6), us in 1u64..500) {
        let duration = Duration::from_us(us);
        let (fast, slow) = (greedy(&weights, duration), slow_model(&weights, duration));
        prop_assert_eq!(fast.iter().sum::<u64>(), slow.iter().sum::<u64>());
        for (fast, slow) in fast.iter().zip(&slow) {
            prop_assert!(fast.abs_diff(*slow) <= 2 * 5_000, "{fast} {slow}");
        }
    }

    #[test]
    fn equal_weights_agree_with_the_slow_model_within_one_token(flows in 1usize..9, us in 1u64..500) {
        let weights = vec![1; flows];
        let duration = Duration::from_us(us);
        prop_assert_eq!(greedy(&weights, duration), slow_model(&weights, duration));
    }

    /// Goal: conservation for any sequence of events. Method: after every step, grants since the start are within the
    /// integral of the rate, and grants over any later interval within that plus the backlog and the rests of tokens
    /// that flows hold.
    #[test]
    fn grants_never_exceed_what_the_rate_has_brought(steps in prop::collection::vec((step(), 0u64..5_000_000), 1..150)) {
        let mut pacer = pacer(5_000, &[1, 2, 3, 4]);
        let (mut actions, mut granted) = (VecDeque::new(), Granted(vec![Token::default(); 4]));
        let (mut now, mut rate) = (Instant::ZERO, 48u128);
        let mut wanted = [Token::default(); 4];
        let (mut integral, mut total) = (0u128, 0u128);
        let mut history = vec![(0u128, 0u128)];
        for (step, ps) in steps {
            integral += rate * 1_000_000_000 * u128::from(ps);
            now += Duration::from_ps(ps);
            match step {
                Step::Want(flow, bytes, operations) => {
                    let before = &granted.0[flow as usize];
                    wanted[flow as usize] = Token {
                        bytes: before.bytes + bytes,
                        operations: before.operations + operations,
                    };
                    pacer.want(now, FlowId(flow), Bytes::new(bytes), operations, &mut actions);
                }
                Step::Forget(flow) => {
                    pacer.forget(now, FlowId(flow));
                    wanted[flow as usize] = Token { ..granted.0[flow as usize] };
                }
                Step::Rate(gbps) => {
                    rate = u128::from(gbps);
                    pacer.set_rate(now, BitRate::from_gbps(gbps));
                }
                Step::Advance => {
                    pacer.advance(now, &mut actions);
                    prop_assert!(pacer.next_token().is_none_or(|due| due > now));
                }
            }
            total += u128::from(granted.take(&mut actions));
            // The pool's backlog, and per flow the rest of a token and a saved one.
            let held = (5 + 4 * (1 + 1)) * 5_000;
            for &(integral_then, total_then) in &history {
                let brought = (integral - integral_then) / 8_000_000_000_000 + 1;
                prop_assert!(total - total_then <= brought + held);
            }
            prop_assert!(total <= integral / 8_000_000_000_000);
            let operations: u64 = granted.0.iter().map(|token| token.operations).sum();
            prop_assert!(u128::from(operations) * 200 <= integral / 8_000_000_000_000);
            for (granted, wanted) in granted.0.iter().zip(&wanted) {
                prop_assert!(granted.bytes <= wanted.bytes && granted.operations <= wanted.operations);
            }
            history.push((integral, total));
        }
    }
}
