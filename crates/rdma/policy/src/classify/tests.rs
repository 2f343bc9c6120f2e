//! What the classifier decides, and that it does not flap.

use super::*;
use crate::Direction;
use FlowClass::{Bandwidth, Latency, Throughput};
use isolane_common_quantities::rng::Stream;

fn options(trust_declared: bool) -> ClassifierOptions {
    ClassifierOptions {
        trust_declared,
        ..ClassifierOptions::for_device(30_000_000)
    }
}

fn flow(class: Option<FlowClass>) -> FlowClassifier {
    FlowClassifier::new(&FlowSpec {
        class,
        weight: 1,
        direction: Direction::Outgoing,
    })
}

/// How a flow behaves: it posts `batch` messages of `bytes` and, `pause` later, sees them complete.
#[derive(Clone, Copy)]
struct Mode {
    bytes: u64,
    batch: u64,
    pause: Duration,
}

const PING: Mode = Mode {
    bytes: 16,
    batch: 1,
    pause: Duration::from_us(2),
};
const BATCHES: Mode = Mode {
    bytes: 16,
    batch: 64,
    pause: Duration::from_us(10),
};
const BULK: Mode = Mode {
    bytes: 1 << 20,
    batch: 4,
    pause: Duration::from_us(700),
};

impl Mode {
    fn run(
        self,
        flow: &mut FlowClassifier,
        options: &ClassifierOptions,
        now: &mut Instant,
        duration: Duration,
    ) {
        let end = *now + duration;
        while *now < end {
            for _ in 0..self.batch {
                flow.on_sent(options, *now, Bytes::new(self.bytes));
            }
            *now += self.pause;
            (0..self.batch).for_each(|_| flow.on_completion());
        }
    }
}

fn check(declared: Option<FlowClass>, mode: Mode, expected: FlowClass) {
    let options = options(false);
    let mut flow = flow(declared);
    mode.run(
        &mut flow,
        &options,
        &mut Instant::default(),
        Duration::from_ms(30),
    );
    assert_eq!(flow.class(), expected);
    let moved = declared.unwrap_or(Bandwidth) != expected;
    assert_eq!(flow.changes(), u32::from(moved), "it moved more than once");
}

#[test]
fn a_silent_flow_is_known_by_what_it_sends() {
    check(None, PING, Latency);
    check(None, BATCHES, Throughput);
    check(None, BULK, Bandwidth);
}

#[test]
fn the_prototype_limits_divide_the_classes() {
    let message = |bytes, batch| Mode {
        bytes,
        batch,
        pause: Duration::from_us(10),
    };
    check(None, message(1_024, 1), Latency);
    check(None, message(4_096, 1), Bandwidth);
    check(None, message(1_024, 16), Throughput);
    check(None, message(1_024, 7), Latency);
}

#[test]
fn many_shallow_pairs_at_a_high_rate_are_throughput() {
    let shallow_and_fast = Mode {
        bytes: 16,
        batch: 4,
        pause: Duration::from_us(1),
    };
    check(None, shallow_and_fast, Throughput);
}

#[test]
fn a_flow_declared_as_latency_must_behave_so() {
    check(Some(Latency), PING, Latency);
    check(Some(Latency), BATCHES, Throughput);
    check(Some(Latency), BULK, Bandwidth);
}

#[test]
fn a_flow_that_requests_pacing_is_paced() {
    check(Some(Bandwidth), PING, Bandwidth);
    check(Some(Throughput), BULK, Throughput);
}

#[test]
fn a_trusted_flow_keeps_its_word() {
    let mut flow = flow(Some(Latency));
    BULK.run(
        &mut flow,
        &options(true),
        &mut Instant::default(),
        Duration::from_ms(30),
    );
    assert_eq!(flow.class(), Latency);
}

#[test]
fn a_bulk_flow_under_a_latency_label_is_caught_within_two_intervals() {
    let options = options(false);
    let (mut liar, mut now) = (flow(Some(Latency)), Instant::ZERO);
    let fast_bulk = Mode {
        pause: Duration::from_us(100),
        ..BULK
    };
    fast_bulk.run(&mut liar, &options, &mut now, options.interval * 2);
    assert_eq!(liar.class(), Bandwidth);
}

#[test]
fn a_flow_that_changes_for_good_moves_once_each_time() {
    let options = options(false);
    let (mut flow, mut now) = (flow(None), Instant::ZERO);
    let second = Duration::from_ms(50);
    for (mode, expected, changes) in [
        (PING, Latency, 1),
        (BULK, Bandwidth, 2),
        (BATCHES, Throughput, 3),
        (PING, Latency, 4),
    ] {
        mode.run(&mut flow, &options, &mut now, second);
        assert_eq!((flow.class(), flow.changes()), (expected, changes));
    }
}

/// Goal: no flapping. Method: alternate faster than the flow can earn trust; it may be caught once, and stays
/// caught.
#[test]
fn quick_mode_switches_do_not_flap() {
    let options = options(false);
    for pause_us in [200, 500, 1_000, 1_500] {
        let (mut flow, mut now) = (flow(Some(Latency)), Instant::ZERO);
        for _ in 0..100 {
            PING.run(&mut flow, &options, &mut now, Duration::from_us(pause_us));
            let burst = Mode {
                pause: Duration::from_us(20),
                ..BULK
            };
            burst.run(&mut flow, &options, &mut now, Duration::from_us(pause_us));
        }
        assert_eq!(
            (flow.class(), flow.changes()),
            (Bandwidth, 1),
            "{pause_us} us"
        );
    }
}

#[test]
fn values_between_the_limits_keep_the_class() {
    let options = options(false);
    let mut stream = Stream::named(1, "jitter");
    for (start, class) in [(PING, Latency), (BATCHES, Throughput)] {
        let (mut flow, mut now) = (flow(None), Instant::ZERO);
        start.run(&mut flow, &options, &mut now, Duration::from_ms(20));
        let changes = flow.changes();
        for _ in 0..5_000 {
            // Mean depth of a batch of 9 to 13 is 5 to 7, between shallow and deep.
            let batch = 9 + stream.below(5);
            let between = Mode {
                bytes: 16,
                batch,
                pause: Duration::from_us(20),
            };
            between.run(&mut flow, &options, &mut now, Duration::from_us(20));
        }
        assert_eq!((flow.class(), flow.changes()), (class, changes));
    }
}

#[test]
fn contradicting_thresholds_are_refused() {
    let mut options = options(true);
    assert_eq!(options.check(), Ok(()));
    options.deep_min = options.shallow_max;
    let message = options.check().unwrap_err().to_string();
    assert_eq!(
        message,
        "option deep_min is 4; give more than shallow_max, 4"
    );
}

#[test]
fn one_large_message_among_many_small_ones_changes_nothing() {
    let options = options(false);
    let (mut flow, mut now) = (flow(Some(Latency)), Instant::ZERO);
    PING.run(&mut flow, &options, &mut now, Duration::from_ms(5));
    // It stays in the sliding interval for four panes, and five would have to agree.
    let options = ClassifierOptions {
        panes_to_hold: 5,
        ..options
    };
    flow.on_sent(&options, now, Bytes::new(16 << 20));
    flow.on_completion();
    PING.run(&mut flow, &options, &mut now, Duration::from_ms(5));
    assert_eq!((flow.class(), flow.changes()), (Latency, 0));
}

/// What counters show of `mode` in one window of `length`.
fn window(mode: Mode, length: Duration, depth: u64) -> Window {
    let messages = length.as_ps() / mode.pause.as_ps() * mode.batch;
    Window {
        length,
        messages,
        bytes: messages * mode.bytes,
        depth,
    }
}

/// Goal: windows of counters give the classes that single messages give.
#[test]
fn windows_of_counters_tell_the_classes_apart() {
    let options = options(true);
    let length = Duration::from_ms(10);
    for (mode, depth, class, after) in [
        (PING, 1, Latency, options.panes_to_release),
        (BATCHES, 32, Throughput, options.panes_to_hold),
        (BULK, 4, Bandwidth, 0),
    ] {
        let mut flow = flow(None);
        let mut now = Instant::ZERO;
        let mut changed_at = 0;
        for count in 1..=20 {
            now += length;
            if flow
                .on_window(&options, now, window(mode, length, depth))
                .is_some()
            {
                changed_at = count;
            }
        }
        assert_eq!((flow.class(), changed_at), (class, after));
    }
}

#[test]
fn absurd_counters_are_survived() {
    let options = options(false);
    let mut flow = flow(Some(Latency));
    for ms in 0..100 {
        let window = Window {
            length: Duration::MAX,
            messages: u64::MAX,
            bytes: u64::MAX,
            depth: u64::MAX,
        };
        flow.on_window(&options, Instant::ZERO + Duration::from_ms(ms), window);
    }
    assert_ne!(flow.class(), Latency);
}

#[test]
fn an_empty_window_says_nothing() {
    let options = options(true);
    let mut flow = flow(None);
    for ms in 0..1_000 {
        let now = Instant::ZERO + Duration::from_ms(ms);
        assert_eq!(flow.on_window(&options, now, Window::default()), None);
    }
}
