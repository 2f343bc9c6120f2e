//! A small host that plays the daemon, and golden tables of what the policy makes of it.

use super::*;
use crate::classify::ClassifierOptions;
use expect_test::{Expect, expect};
use std::fmt::Write;

pub(super) fn options() -> JustitiaOptions {
    let target = Duration::from_us(2);
    JustitiaOptions {
        reference_count: 100,
        ..JustitiaOptions::for_device(BitRate::from_gbps(48), 30_000_000, target)
    }
}

pub(super) fn spec(class: FlowClass, weight: u32) -> FlowSpec {
    FlowSpec {
        class: Some(class),
        weight,
        direction: Direction::Outgoing,
    }
}

fn read(class: FlowClass, weight: u32) -> FlowSpec {
    FlowSpec {
        direction: Direction::RemoteRead,
        ..spec(class, weight)
    }
}

/// One daemon whose reference messages all take `latency`.
struct Host {
    policy: Justitia,
    now: Instant,
    latency: Duration,
    granted: Vec<(u64, u64)>,
    announced: Vec<RemoteState>,
    log: Vec<String>,
}

impl Host {
    fn new(options: JustitiaOptions) -> Self {
        let mut host = Self {
            policy: Justitia::new(options).unwrap(),
            now: Instant::ZERO,
            latency: Duration::from_us(1),
            granted: Vec::new(),
            announced: Vec::new(),
            log: Vec::new(),
        };
        host.act();
        host
    }

    fn signal(&mut self, signal: Signal) {
        self.policy.on_signal(self.now, &signal);
        self.act();
    }

    fn join(&mut self, spec: FlowSpec) -> FlowId {
        self.granted.push((0, 0));
        self.signal(Signal::Joined(spec));
        FlowId(self.granted.len() as u32 - 1)
    }

    /// A flow that always has more to send.
    fn greedy(&mut self, spec: FlowSpec) -> FlowId {
        let flow = self.join(spec);
        self.want(flow, 1 << 60, 1 << 60);
        flow
    }

    fn want(&mut self, flow: FlowId, bytes: u64, operations: u64) {
        let bytes = Bytes::new(bytes);
        self.signal(Signal::Backlog {
            flow,
            bytes,
            operations,
        });
    }

    fn act(&mut self) {
        while let Some(action) = self.policy.poll_action() {
            match action {
                Action::Grant {
                    flow,
                    bytes,
                    operations,
                } => {
                    self.granted[flow.0 as usize].0 += bytes.get();
                    self.granted[flow.0 as usize].1 += operations;
                }
                Action::SendReference => {
                    let latency = Signal::ReferenceLatency(self.latency);
                    self.policy.on_signal(self.now, &latency);
                }
                Action::Tell(state) => self.announced.push(state),
                other => self.log.push(format!("{other:?}")),
            }
        }
    }

    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(due) = self.policy.poll_timeout().filter(|&due| due <= end) {
            assert!(due >= self.now, "the policy names a time in the past");
            self.now = due;
            self.policy.handle_timeout(due);
            self.act();
        }
        self.now = end;
    }

    /// Gigabits per second granted to each flow over `duration`.
    fn rates(&mut self, duration: Duration) -> Vec<f64> {
        let before = self.granted.clone();
        self.run(duration);
        let rate = |(now, then): (&(u64, u64), &(u64, u64))| {
            let rate = BitRate::of(Bytes::new(now.0 - then.0), duration);
            (rate.as_gbps_f64() * 100.0).round() / 100.0
        };
        self.granted.iter().zip(&before).map(rate).collect()
    }
}

#[test]
fn classes_are_held_or_released_and_split_sizes_follow() {
    let mut host = Host::new(options());
    host.join(spec(FlowClass::Bandwidth, 1));
    let latency = host.join(spec(FlowClass::Latency, 1));
    host.join(spec(FlowClass::Throughput, 1));
    host.signal(Signal::Left(latency));
    expect![[r#"
        ChunkSize(Bytes(1000000))
        Hold(FlowId(0))
        Release(FlowId(1))
        ChunkSize(Bytes(5000))
        Hold(FlowId(2))
        ChunkSize(Bytes(1000000))"#]]
    .assert_eq(&host.log.join("\n"));
}

/// Goal: SafeUtil over time as latency flows come and go and the target is kept or not.
#[test]
fn safe_util_halves_to_the_minimum_and_climbs_by_steps() {
    let mut host = Host::new(JustitiaOptions {
        additive_step: BitRate::from_gbps(1),
        ..options()
    });
    let mut table = String::from("phase                 us   SafeUtil   R_min  p99 us  token\n");
    let mut phase = |host: &mut Host, name: &str, us: u64| {
        host.run(Duration::from_us(us));
        let p99 = host.policy.estimated_p99().map_or(0.0, Duration::as_us_f64);
        let row = format!(
            "{name:<18} {:>5} {:>10.2} {:>7.2} {p99:>7.1} {:>6}",
            host.now.as_ps() / 1_000_000,
            host.policy.safe_util().as_gbps_f64(),
            host.policy.minimum_rate().as_gbps_f64(),
            host.policy.chunk.get(),
        );
        writeln!(table, "{row}").unwrap();
    };
    for _ in 0..3 {
        host.greedy(spec(FlowClass::Bandwidth, 1));
    }
    phase(&mut host, "bulk alone", 100);
    let latency = host.join(spec(FlowClass::Latency, 1));
    phase(&mut host, "latency joins", 39);
    host.latency = Duration::from_us(3);
    phase(&mut host, "target missed", 1);
    phase(&mut host, "", 20);
    phase(&mut host, "", 20);
    phase(&mut host, "", 20);
    host.latency = Duration::from_us(1);
    phase(&mut host, "quiet again", 20 * 98);
    phase(&mut host, "", 20);
    phase(&mut host, "", 20);
    phase(&mut host, "", 20);
    phase(&mut host, "", 20);
    phase(&mut host, "at the top", 400);
    host.latency = Duration::from_us(3);
    phase(&mut host, "target missed", 100);
    host.signal(Signal::Left(latency));
    phase(&mut host, "latency leaves", 20);
    let latency = host.join(spec(FlowClass::Latency, 1));
    host.join(spec(FlowClass::Latency, 5));
    phase(&mut host, "two, as one", 100);
    host.signal(Signal::Left(latency));
    phase(&mut host, "one of two leaves", 20);
    expect![[r#"
        phase                 us   SafeUtil   R_min  p99 us  token
        bulk alone           100      48.00   48.00     0.0 1000000
        latency joins        139      48.00   36.00     1.0   5000
        target missed        140      48.00   36.00     3.0   5000
                             160      36.00   36.00     3.0   5000
                             180      36.00   36.00     3.0   5000
                             200      36.00   36.00     3.0   5000
        quiet again         2160      36.00   36.00     3.0   5000
                            2180      36.00   36.00     1.0   5000
                            2200      37.00   36.00     1.0   5000
                            2220      38.00   36.00     1.0   5000
                            2240      39.00   36.00     1.0   5000
        at the top          2640      48.00   36.00     1.0   5000
        target missed       2740      36.00   36.00     3.0   5000
        latency leaves      2760      48.00   48.00     3.0 1000000
        two, as one         2860      36.00   36.00     3.0   5000
        one of two leaves   2880      36.00   36.00     3.0   5000
    "#]]
    .assert_eq(&table);
}

#[test]
fn reference_messages_leave_every_period_while_a_latency_flow_exists() {
    let mut host = Host::new(options());
    host.greedy(spec(FlowClass::Bandwidth, 1));
    host.run(Duration::from_ms(1));
    assert_eq!(host.policy.references_sent, 0);
    let latency = host.join(spec(FlowClass::Latency, 1));
    host.run(Duration::from_ms(1));
    assert_eq!(host.policy.references_sent, 51);
    host.signal(Signal::Left(latency));
    host.run(Duration::from_ms(1));
    assert_eq!(host.policy.references_sent, 51);
    host.signal(Signal::Remote(RemoteState {
        receiving_latency_weight: 1,
        ..RemoteState::default()
    }));
    host.run(Duration::from_ms(1));
    assert_eq!(host.policy.references_sent, 102);
}

#[test]
fn a_late_caller_loses_periods_and_not_the_beat() {
    let mut host = Host::new(options());
    host.join(spec(FlowClass::Latency, 1));
    let late = Instant::from_ps(25_000_000);
    host.policy.handle_timeout(late);
    assert_eq!(
        host.policy.poll_timeout(),
        Some(Instant::from_ps(40_000_000))
    );
    let later = Instant::from_ps(100_000_000);
    host.policy.handle_timeout(later);
    assert_eq!(
        host.policy.poll_timeout(),
        Some(Instant::from_ps(120_000_000))
    );
}

fn check_rates(weights: &[u32], latency_us: u64, expected: Expect) {
    let mut host = Host::new(options());
    host.latency = Duration::from_us(latency_us);
    for &weight in weights {
        host.greedy(spec(FlowClass::Bandwidth, weight));
    }
    host.join(spec(FlowClass::Latency, 1));
    host.run(Duration::from_us(300));
    let rates = host.rates(Duration::from_ms(21));
    let tokens = host.policy.snapshot()["tokens_sending"];
    let p = format!(
        "{:?} of {:.2} Gb/s, {tokens} tokens",
        &rates[..weights.len()],
        host.policy.safe_util().as_gbps_f64()
    );
    expected.assert_eq(&p);
}

#[test]
fn weights_share_the_guarantee() {
    check_rates(&[1], 3, expect!["[24.0] of 24.00 Gb/s, 12792 tokens"]);
    check_rates(
        &[1, 2, 4],
        3,
        expect!["[6.0, 12.0, 24.0] of 42.00 Gb/s, 22368 tokens"],
    );
    check_rates(
        &[2, 2, 2, 2],
        3,
        expect!["[10.67, 10.67, 10.67, 10.67] of 42.67 Gb/s, 22722 tokens"],
    );
    check_rates(
        &[1, 2, 4],
        1,
        expect!["[6.86, 13.71, 27.43] of 48.00 Gb/s, 25560 tokens"],
    );
}

#[test]
fn bandwidth_and_throughput_flows_get_half_of_their_resource_each() {
    let mut host = Host::new(options());
    let bandwidth = host.greedy(spec(FlowClass::Bandwidth, 1));
    let throughput = host.join(spec(FlowClass::Throughput, 1));
    host.want(throughput, 16 << 40, 1 << 40);
    host.run(Duration::from_ms(100));
    let (bytes, _) = host.granted[bandwidth.0 as usize];
    let (_, operations) = host.granted[throughput.0 as usize];
    assert_eq!((bytes, operations), (300_000_000, 1_500_000));
}

/// Goal: READ rates. Method: two policies that receive each other's reports at once.
#[test]
fn reads_run_at_the_rate_their_source_grants() {
    let mut table = String::new();
    let mut check = |name: &str, at_a: &[FlowSpec], at_b: &[FlowSpec]| {
        let (mut a, mut b) = (Host::new(options()), Host::new(options()));
        (a.latency, b.latency) = (Duration::from_us(3), Duration::from_us(3));
        for (host, specs) in [(&mut a, at_a), (&mut b, at_b)] {
            for &spec in specs {
                host.greedy(spec);
            }
        }
        let mut messages = 0;
        loop {
            let (from_a, from_b) = (
                std::mem::take(&mut a.announced),
                std::mem::take(&mut b.announced),
            );
            if from_a.is_empty() && from_b.is_empty() {
                break;
            }
            messages += from_a.len() + from_b.len();
            assert!(messages < 20, "the hosts never stop talking");
            from_a
                .into_iter()
                .for_each(|state| b.signal(Signal::Remote(state)));
            from_b
                .into_iter()
                .for_each(|state| a.signal(Signal::Remote(state)));
        }
        a.run(Duration::from_us(200));
        b.run(Duration::from_us(200));
        assert!(
            a.announced.is_empty() && b.announced.is_empty(),
            "a report although nothing changed"
        );
        let (a, b) = (a.rates(Duration::from_ms(5)), b.rates(Duration::from_ms(5)));
        writeln!(
            table,
            "{name:<36} A {a:?}, B {b:?} Gb/s, {messages} messages"
        )
        .unwrap();
    };
    use FlowClass::{Bandwidth, Latency};
    check("A reads from an idle B", &[read(Bandwidth, 1)], &[]);
    check(
        "A reads, B sends",
        &[read(Bandwidth, 1)],
        &[spec(Bandwidth, 1)],
    );
    check(
        "A reads with weight 2, B sends",
        &[read(Bandwidth, 2)],
        &[spec(Bandwidth, 1)],
    );
    check(
        "A reads small, B sends",
        &[read(Latency, 1)],
        &[spec(Bandwidth, 1)],
    );
    check(
        "A reads, B sends small",
        &[read(Bandwidth, 1)],
        &[spec(Latency, 1)],
    );
    check(
        "A reads, B sends both",
        &[read(Bandwidth, 1)],
        &[spec(Bandwidth, 1), spec(Latency, 1)],
    );
    expect![[r#"
        A reads from an idle B               A [48.0], B [] Gb/s, 2 messages
        A reads, B sends                     A [24.0], B [24.0] Gb/s, 4 messages
        A reads with weight 2, B sends       A [32.0], B [16.0] Gb/s, 4 messages
        A reads small, B sends               A [0.0], B [24.0] Gb/s, 3 messages
        A reads, B sends small               A [24.0], B [0.0] Gb/s, 4 messages
        A reads, B sends both                A [16.0], B [16.0, 0.0] Gb/s, 6 messages
    "#]]
    .assert_eq(&table);
}

#[test]
fn an_incast_sender_keeps_its_32nd() {
    let mut host = Host::new(options());
    host.latency = Duration::from_us(50);
    host.greedy(spec(FlowClass::Bandwidth, 1));
    host.signal(Signal::Remote(RemoteState {
        receiving_hungry_weight: 32,
        receiving_latency_weight: 1,
        ..RemoteState::default()
    }));
    host.run(Duration::from_ms(1));
    assert_eq!(host.policy.safe_util(), BitRate::from_gbps_f64(1.5));
}

#[test]
fn idle_flows_give_their_share_back_and_take_it_again() {
    let mut host = Host::new(options());
    host.latency = Duration::from_us(3);
    let busy = host.greedy(spec(FlowClass::Bandwidth, 1));
    let idle = host.greedy(spec(FlowClass::Bandwidth, 1));
    host.join(spec(FlowClass::Latency, 1));
    host.run(Duration::from_ms(1));
    assert_eq!(host.rates(Duration::from_ms(1)), [16.0, 16.0, 0.0]);
    host.want(idle, 0, 0);
    // What it had in the device completes.
    let granted = host.granted[idle.0 as usize].1;
    for _ in 0..granted {
        let completion = Completion::one(idle, 1, 1);
        host.policy.on_completion(host.now, &completion);
    }
    // It saves one token; the others go to the other flow at once, its part of R_min after `idle_after`.
    let rates = host.rates(Duration::from_ms(9));
    assert!(
        (31.99..32.01).contains(&rates[busy.0 as usize]),
        "{rates:?}"
    );
    assert_eq!(host.policy.minimum_rate(), BitRate::from_gbps(32));
    host.run(Duration::from_ms(1));
    assert_eq!(host.policy.minimum_rate(), BitRate::from_gbps(24));
    assert_eq!(host.announced.last().unwrap().sending_hungry_weight, 1);
    host.want(idle, 1, 1);
    assert_eq!(host.policy.minimum_rate(), BitRate::from_gbps(32));
    assert_eq!(host.announced.last().unwrap().sending_hungry_weight, 2);
}

#[test]
fn completions_keep_a_flow_alive() {
    let mut host = Host::new(options());
    let flow = host.join(spec(FlowClass::Bandwidth, 1));
    host.want(flow, 100, 1);
    for _ in 0..5 {
        host.run(Duration::from_ms(6));
        let completion = Completion::one(flow, 100, 2);
        host.policy.on_completion(host.now, &completion);
        assert_eq!(host.policy.local.sending_hungry, 1);
    }
    host.run(Duration::from_ms(11));
    assert_eq!(host.policy.local.sending_hungry, 0);
    assert_eq!(host.policy.poll_timeout(), None);
}

#[test]
fn a_silent_flow_that_behaves_is_released_and_a_mislabelled_one_is_held() {
    let mut classifier = ClassifierOptions::for_device(30_000_000);
    classifier.trust_declared = false;
    let mut host = Host::new(JustitiaOptions {
        classifier: Some(classifier),
        ..options()
    });
    let silent = host.join(FlowSpec {
        class: None,
        ..spec(FlowClass::Latency, 1)
    });
    let liar = host.join(spec(FlowClass::Latency, 1));
    for _ in 0..5_000 {
        for (flow, bytes) in [(silent, 16), (liar, 1 << 20)] {
            host.policy.on_sent(host.now, flow, Bytes::new(bytes));
            let completion = Completion::one(flow, bytes, 2);
            host.policy.on_completion(host.now, &completion);
        }
        host.act();
        host.run(Duration::from_us(2));
    }
    assert_eq!(host.policy.class_of(silent), Some(FlowClass::Latency));
    assert_eq!(host.policy.class_of(liar), Some(FlowClass::Bandwidth));
    assert_eq!(host.policy.local.sending_latency, 1);
    expect![[r#"
        ChunkSize(Bytes(1000000))
        Hold(FlowId(0))
        Release(FlowId(1))
        ChunkSize(Bytes(5000))
        Hold(FlowId(1))
        ChunkSize(Bytes(1000000))
        Release(FlowId(0))
        ChunkSize(Bytes(5000))"#]]
    .assert_eq(&host.log.join("\n"));
}

#[test]
fn safe_util_waits_for_a_reference_message_that_is_stuck() {
    let mut host = Host::new(options());
    host.latency = Duration::from_us(3);
    host.greedy(spec(FlowClass::Bandwidth, 1));
    host.join(spec(FlowClass::Latency, 1));
    host.run(Duration::from_us(100));
    host.latency = Duration::from_us(1);
    host.run(Duration::from_us(20 * 100));
    let before = host.policy.safe_util();
    // From here on no reference message returns.
    for _ in 0..10 {
        let due = host.policy.timers[REFERENCE];
        host.policy.has_new_sample = false;
        host.policy.handle_timeout(due);
        while host.policy.poll_action().is_some() {}
    }
    assert_eq!(host.policy.safe_util(), before);
}

#[test]
fn safe_util_keeps_its_value_while_nothing_hungry_is_active() {
    let mut host = Host::new(options());
    host.latency = Duration::from_us(3);
    let bulk = host.greedy(spec(FlowClass::Bandwidth, 1));
    host.join(spec(FlowClass::Latency, 1));
    host.run(Duration::from_us(100));
    host.signal(Signal::Left(bulk));
    host.run(Duration::from_ms(1));
    assert_eq!(host.policy.safe_util(), BitRate::from_gbps(24));
}

#[test]
fn departed_flows_are_ignored() {
    let mut host = Host::new(options());
    let flow = host.greedy(spec(FlowClass::Bandwidth, 1));
    host.signal(Signal::Left(flow));
    host.signal(Signal::Left(flow));
    host.want(flow, 1 << 20, 1);
    assert_eq!(host.policy.poll_timeout(), None);
    assert_eq!(host.policy.class_of(flow), None);
    assert_eq!(host.policy.local, Weights::default());
}

#[test]
fn options_that_cannot_work_are_refused_with_a_remedy() {
    let check = |change: fn(&mut JustitiaOptions), message: Expect| {
        let mut options = options();
        change(&mut options);
        message.assert_eq(&Justitia::new(options).unwrap_err().to_string());
    };
    check(
        |options| options.target = Duration::ZERO,
        expect!["option target is 0; give a positive value"],
    );
    check(
        |options| options.reference_count = 0,
        expect!["option reference_count is 0; choose between 1 and 268435456"],
    );
    check(
        |options| options.token_dictionary.clear(),
        expect!["option token_dictionary is []; list at least one (rate, size), by ascending rate"],
    );
    check(
        |options| options.token_without_latency = Bytes::new(199),
        expect![
            "option token_without_latency is 199B; at 48.00Gb/s and 30000000 messages/s a token carries less than one message: give at least 200 B"
        ],
    );
}

#[test]
fn the_dictionary_gives_the_smallest_token_that_reaches_the_rate() {
    let mut options = options();
    options.token_dictionary = vec![
        (BitRate::from_gbps(20), Bytes::new(2_000)),
        (BitRate::from_gbps(40), Bytes::new(5_000)),
    ];
    let token = |gbps| options.token_for(BitRate::from_gbps(gbps)).get();
    assert_eq!(
        [token(10), token(20), token(21), token(48)],
        [2_000, 2_000, 5_000, 5_000]
    );
}
