//! The rule against its own words: windows in gigabits per second, latencies in microseconds.

use super::*;
use crate::rng::Stream;
use proptest::prelude::*;

/// A tenant that delivers these gigabits per second in four windows of 1 ms.
fn rates(gbps: [f64; WINDOWS]) -> Windows {
    Windows {
        before: Duration::ZERO,
        length: Duration::from_ms(1),
        counts: gbps.map(|gbps| Counts {
            bytes: (gbps * 1e9 / 8.0 * 1e-3) as u64,
            ..Counts::default()
        }),
        latencies: Latencies::default(),
    }
}

/// A tenant with these latencies in either half of 4 ms, us.
fn latencies(halves: [&[u64]; 2]) -> Windows {
    let histogram = |half: &[u64]| {
        let mut histogram = Histogram::new();
        half.iter().for_each(|us| histogram.record(us * 1_000_000));
        histogram
    };
    Windows {
        latencies: Latencies::of(&histogram(halves[0]), &histogram(halves[1])),
        ..rates([1.0; WINDOWS])
    }
}

fn limit(figure: Figure, value: f64) -> Demand {
    Demand::Limits(vec![Limit { figure, value }])
}

fn is_settled(demand: &Demand, windows: &Windows) -> bool {
    standing(demand, windows).settled
}

#[test]
fn windows_that_agree_within_a_twentieth_have_settled() {
    assert!(is_settled(&Demand::Rates, &rates([40.0, 41.0, 39.5, 40.5])));
    assert!(!is_settled(
        &Demand::Rates,
        &rates([40.0, 42.5, 39.5, 40.5])
    ));
    assert!(is_settled(&Demand::Rates, &rates([0.0; WINDOWS])));
    assert!(is_settled(&Demand::Nothing, &rates([0.0, 50.0, 0.0, 9.0])));
}

#[test]
fn a_rate_far_from_its_limit_needs_no_agreement() {
    let demand = limit(Figure::Goodput, 37.5);
    let starved = standing(&demand, &rates([0.3, 0.5, 0.2, 0.6]));
    assert!(starved.settled && !starved.on_the_edge);
    assert!(is_settled(&demand, &rates([80.0, 90.0, 85.0, 95.0])));
}

#[test]
fn a_rate_that_matters_only_below_a_limit_is_settled_above_it() {
    let demand = Demand::RatesBelow(vec![Limit {
        figure: Figure::Goodput,
        value: 50.0,
    }]);
    assert!(is_settled(&demand, &rates([80.0, 90.0, 85.0, 95.0])));
    assert!(!is_settled(&demand, &rates([30.0, 40.0, 35.0, 45.0])));
    assert!(is_settled(&demand, &rates([30.0, 30.5, 30.2, 30.7])));
}

#[test]
fn a_rate_whose_windows_straddle_the_limit_is_open_and_on_the_edge() {
    let demand = limit(Figure::Goodput, 37.5);
    let wavy = standing(&demand, &rates([30.0, 45.0, 31.0, 46.0]));
    assert!(!wavy.settled && wavy.on_the_edge);
    let near = standing(&demand, &rates([37.0, 38.0, 37.2, 37.8]));
    assert!(
        near.settled && near.on_the_edge,
        "agreement settles, the mark stays"
    );
}

#[test]
fn a_rate_within_a_twentieth_of_its_limit_is_on_the_edge_though_all_windows_agree() {
    let demand = limit(Figure::Goodput, 37.5);
    for (gbps, edge) in [(36.0, true), (39.0, true), (35.0, false), (40.0, false)] {
        let one = standing(&demand, &rates([gbps; WINDOWS]));
        assert_eq!((one.settled, one.on_the_edge), (true, edge), "{gbps}");
    }
}

#[test]
fn a_rate_that_falls_towards_its_limit_is_open() {
    let demand = limit(Figure::Goodput, 37.5);
    assert!(!is_settled(&demand, &rates([90.0, 75.0, 60.0, 45.0])));
}

/// Goal: a slow change is seen although the windows agree within a twentieth. Method: the rate falls by half a percent in
/// each window; the same windows late in a run have further to go before it has lasted twice as long.
#[test]
fn a_slow_trend_towards_the_limit_is_open_once_it_would_cross() {
    let demand = limit(Figure::Goodput, 37.5);
    let falling = rates([41.0, 40.8, 40.59, 40.4]);
    assert!(is_settled(&demand, &falling));
    let late = |windows: &Windows| Windows {
        before: Duration::from_ms(12),
        ..windows.clone()
    };
    let standing = standing(&demand, &late(&falling));
    assert!(!standing.settled && !standing.on_the_edge);
    let rising = rates([40.4, 40.59, 40.8, 41.0]);
    assert!(is_settled(&demand, &late(&rising)));
    let wavy = rates([40.4, 41.0, 40.3, 40.8]);
    assert!(is_settled(&demand, &late(&wavy)), "no trend, only noise");
    let broken = rates([34.0, 34.2, 34.41, 34.6]);
    assert!(
        !is_settled(&demand, &late(&broken)),
        "it rises towards its limit"
    );
}

#[test]
fn a_latency_whose_messages_become_fewer_is_open_before_it_crosses_its_limit() {
    let kept = latencies([&[9; 300], &[9; 300]]);
    let with = |messages: [u64; WINDOWS]| Windows {
        counts: messages.map(|messages| Counts {
            messages,
            ..Counts::default()
        }),
        ..kept.clone()
    };
    let demand = limit(Figure::P99, 10.0);
    assert!(is_settled(&demand, &with([150, 151, 149, 150])));
    assert!(!is_settled(&demand, &with([156, 152, 148, 144])));
    assert!(is_settled(&demand, &with([144, 148, 152, 156])));
}

#[test]
fn one_limit_that_is_surely_broken_decides() {
    let limits = [37.5, 1.0].map(|value| Limit {
        figure: Figure::Goodput,
        value,
    });
    let demand = Demand::Limits(limits.to_vec());
    let standing = standing(&demand, &rates([1.5, 0.5, 1.5, 0.5]));
    assert!(standing.settled && !standing.on_the_edge);
}

#[test]
fn few_latencies_decide_only_where_their_bounds_do() {
    let demand = limit(Figure::P99, 10.0);
    assert!(
        is_settled(&demand, &latencies([&[200; 8], &[180; 8]])),
        "broken"
    );
    assert!(
        !is_settled(&demand, &latencies([&[5; 8], &[5; 8]])),
        "16 cannot keep a p99"
    );
    assert!(
        is_settled(&demand, &latencies([&[5; 230], &[5; 230]])),
        "460 can"
    );
    assert!(
        !is_settled(&demand, &latencies([&[200; 300], &[5; 300]])),
        "the halves differ"
    );
    let open = standing(&demand, &latencies([&[5; 50], &[5; 50]]));
    assert_eq!(open.sampled, 0.1);
    assert!(open.on_the_edge);
}

#[test]
fn a_percentile_without_a_limit_needs_its_thousand_samples() {
    assert!(!is_settled(
        &Demand::Latency,
        &latencies([&[5; 499], &[5; 500]])
    ));
    assert!(is_settled(
        &Demand::Latency,
        &latencies([&[5; 500], &[5; 500]])
    ));
    assert!(!is_settled(
        &Demand::Latency,
        &latencies([&[5; 500], &[6; 500]])
    ));
}

#[test]
fn silence_breaks_a_latency_after_twenty_limits() {
    let silent = latencies([&[], &[]]);
    assert!(
        is_settled(&limit(Figure::P99, 200.0), &silent),
        "4 ms are 20 times 200 us"
    );
    assert!(!is_settled(&limit(Figure::P99, 201.0), &silent));
}

#[test]
fn a_run_short_of_samples_goes_on_for_as_long_as_they_take() {
    let open = |sampled| Standing {
        settled: false,
        on_the_edge: false,
        sampled,
    };
    let ms = Duration::from_ms(1);
    assert_eq!(longer(ms, &[open(1.0)]), Duration::from_ms(2));
    assert_eq!(longer(ms, &[open(0.25)]), Duration::from_us(4_400));
    assert_eq!(longer(ms, &[open(0.0)]), Duration::from_ms(8));
    let settled = Standing {
        settled: true,
        ..open(0.0)
    };
    assert_eq!(longer(ms, &[settled, open(1.0)]), Duration::from_ms(2));
}

/// The rule for one rate and one limit, from its words: every window and every comparison one by one.
fn slow(gbps: &[f64], limit: f64) -> bool {
    let mut differ = false;
    let mean = gbps.iter().sum::<f64>() / gbps.len() as f64;
    for left in gbps {
        for right in gbps {
            differ |= left - right > AGREEMENT * mean;
        }
    }
    // A line through four windows, and where it is six windows after their middle: the run has lasted twice as long then.
    let slope = (3.0 * (gbps[3] - gbps[0]) + (gbps[2] - gbps[1])) / 10.0;
    let mut rest = 0.0;
    for (place, value) in [-1.5, -0.5, 0.5, 1.5].into_iter().zip(gbps) {
        rest += (value - mean - slope * place) * (value - mean - slope * place);
    }
    let sure = (slope.abs() - 2.92 * (rest / 2.0 / 5.0).sqrt()).max(0.0) * slope.signum();
    if (mean >= limit) != (mean + 6.0 * sure >= limit) {
        return false;
    }
    if !differ {
        return true;
    }
    let mut variance = 0.0;
    for value in gbps {
        variance += (value - mean) * (value - mean) / 3.0;
    }
    let reach = STUDENT * (variance / 4.0).sqrt();
    let kept = gbps.iter().all(|&value| value >= limit) && mean - limit >= reach;
    let broken = gbps.iter().all(|&value| value < limit) && limit - mean > reach;
    kept || broken
}

proptest! {
    #[test]
    fn the_rule_is_that_of_its_words(
        gbps in proptest::array::uniform4(0.0f64..100.0),
        narrow in 0.01f64..1.0,
        limit_gbps in 1.0f64..100.0,
    ) {
        let gbps = gbps.map(|value| 50.0 + (value - 50.0) * narrow);
        let windows = rates(gbps);
        // Bytes are whole: compare what they say.
        let whole = values(Figure::Goodput, &windows);
        prop_assert_eq!(is_settled(&limit(Figure::Goodput, limit_gbps), &windows), slow(&whole, limit_gbps));
    }

    #[test]
    fn a_run_of_twice_the_length_at_the_same_rates_is_judged_alike(
        gbps in proptest::array::uniform4(0.0f64..100.0),
        limit_gbps in 1.0f64..100.0,
    ) {
        let mut longer = rates(gbps);
        longer.length += longer.length;
        longer.counts.iter_mut().for_each(|counts| counts.bytes *= 2);
        let demand = limit(Figure::Goodput, limit_gbps);
        prop_assert_eq!(is_settled(&demand, &rates(gbps)), is_settled(&demand, &longer));
    }

    #[test]
    fn a_decided_percentile_is_the_true_one_s_side(seed in 0u64..500, slow_ppm in 0u64..40_000) {
        // Messages take 5 us, a part of them 50 us; the limit is 10 us, so 1 % is the border.
        let mut stream = Stream::named(seed, "settle");
        let mut half = || -> Vec<u64> {
            (0..400).map(|_| if stream.below(1_000_000) < slow_ppm { 50 } else { 5 }).collect()
        };
        let (first, second) = (half(), half());
        let demand = limit(Figure::P99, 10.0);
        let windows = latencies([&first, &second]);
        if is_settled(&demand, &windows) {
            let kept = windows.latencies.p99.unwrap() <= 10.0;
            // Far from the border no decision is wrong; near it either may be right.
            prop_assert!(slow_ppm.abs_diff(10_000) < 9_000 || kept == (slow_ppm < 10_000));
        }
    }
}
