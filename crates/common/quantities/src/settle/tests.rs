//! The rule against its own words: windows in gigabits per second, latencies in microseconds.

use super::*;
use crate::rng::Stream;
use proptest::prelude::*;

/// A tenant that delivers these gigabits per second in four windows of 1 ms.
fn rates(gbps: [f64; WINDOWS]) -> Windows {
    Windows {
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
fn a_rate_that_falls_towards_its_limit_is_open() {
    let demand = limit(Figure::Goodput, 37.5);
    assert!(!is_settled(&demand, &rates([90.0, 75.0, 60.0, 45.0])));
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
    fn the_order_of_windows_and_the_unit_of_time_do_not_matter(
        gbps in proptest::array::uniform4(0.0f64..100.0),
        limit_gbps in 1.0f64..100.0,
    ) {
        let mut turned = gbps;
        turned.rotate_left(1);
        let demand = limit(Figure::Goodput, limit_gbps);
        prop_assert_eq!(is_settled(&demand, &rates(gbps)), is_settled(&demand, &rates(turned)));
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
