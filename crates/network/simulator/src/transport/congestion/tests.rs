//! Parameters, and what each control decides from given signals.

use super::*;

const LINE: BitRate = BitRate::from_gbps(100);

fn way() -> Way {
    Way {
        line_rate: LINE,
        packet: Bytes::new(5_120),
        round_trip: Duration::from_us(2),
        hops: 2,
    }
}

fn values(control: Congestion, given: &[(&str, f64)]) -> Result<Values, ParameterError> {
    let given = given
        .iter()
        .map(|&(name, value)| (name.to_owned(), value))
        .collect();
    Values::new(control, &given)
}

fn control(which: Congestion, given: &[(&str, f64)]) -> Control {
    let mut control = Control::new(which, &values(which, given).unwrap()).unwrap();
    control.start(&way());
    control
}

fn acked(now_us: u64, round_trip_us: f64, marked: bool, sequence: u32) -> Acked<'static> {
    Acked {
        now: Instant::ZERO + Duration::from_us(now_us),
        round_trip: Duration::from_secs_f64(round_trip_us * 1e-6),
        marked,
        packets: 1,
        expected: sequence,
        next: sequence + 10,
        hops: &[],
    }
}

#[test]
fn defaults_are_in_their_ranges_and_make_a_control() {
    for which in Congestion::ALL {
        let values = values(which, &[]).unwrap();
        for one in parameters(which) {
            assert!(
                (one.least..=one.most).contains(&one.default),
                "{}",
                one.name
            );
        }
        assert!(Control::new(which, &values).is_ok());
    }
}

#[test]
fn unknown_parameters_and_impossible_values_say_what_is_possible() {
    let error = values(Congestion::Window, &[("window", 3.0)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "transport `window` has no parameter `window`; it has window_packets, timeout_us, fast_repeat"
    );
    let error = values(Congestion::Dctcp, &[("gain", 2.0)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "parameter `gain` of transport `dctcp` is 2; it must be from 0.0001 to 1"
    );
    assert!(values(Congestion::Dctcp, &[("gain", f64::NAN)]).is_err());
    let twisted = values(
        Congestion::Swift,
        &[("window_min_packets", 40.0), ("window_max_packets", 30.0)],
    );
    let error = Control::new(Congestion::Swift, &twisted.unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "parameters of transport `swift`: window_min_packets is 40, but must be below window_max_packets, 30"
    );
}

#[test]
fn swift_adds_a_packet_per_window_below_the_target() {
    let mut swift = control(Congestion::Swift, &[("window_start_packets", 10.0)]);
    let mut limit = Limit::OPEN;
    // A window of acknowledgements, and one more because the window grows while they come.
    for i in 0..11 {
        limit = swift.acked(0, &way(), &acked(20 + i, 5.0, false, 0));
    }
    assert_eq!(limit.window, 11);
}

#[test]
fn swift_cuts_by_the_excess_once_per_round_trip_and_by_half_at_most() {
    let given = [("window_start_packets", 20.0)];
    let mut swift = control(Congestion::Swift, &given);
    // 12.5 us against 10 us: 0.8 * 2.5 / 12.5 = 16 %.
    let limit = swift.acked(0, &way(), &acked(100, 12.5, false, 0));
    assert_eq!(limit.window, 16);
    assert_eq!(swift.acked(0, &way(), &acked(105, 12.5, false, 0)), limit);
    let mut swift = control(Congestion::Swift, &given);
    let limit = swift.acked(0, &way(), &acked(1000, 900.0, false, 0));
    assert_eq!(limit.window, 10);
}

#[test]
fn swift_below_one_packet_spaces_them() {
    let given = [("window_start_packets", 1.0), ("window_min_packets", 0.01)];
    let mut swift = control(Congestion::Swift, &given);
    let limit = swift.acked(0, &way(), &acked(1000, 40.0, false, 0));
    assert_eq!(limit.window, 1);
    // Half a packet per 40 us.
    assert_eq!(limit.gap, Duration::from_us(80));
}

#[test]
fn swift_s_flow_scaling_spans_its_range() {
    let given = values(
        Congestion::Swift,
        &[
            ("flow_target_us", 50.0),
            ("hop_target_us", 1.0),
            ("window_min_packets", 0.01),
            ("window_max_packets", 200.0),
        ],
    );
    let swift = swift::Swift::new(&given.unwrap()).unwrap();
    let target_us = |start: f64| {
        let given = [
            ("window_start_packets", start),
            ("window_min_packets", 0.01),
        ];
        let given = [&given[..], &[("window_max_packets", 200.0)]].concat();
        let other = swift::Swift::new(&values(Congestion::Swift, &given).unwrap()).unwrap();
        swift.target_ps(&other.start(), 2) / 1e6
    };
    assert_eq!(target_us(0.05), 10.0 + 2.0 + 50.0);
    assert_eq!(target_us(150.0), 12.0);
    // factor = 50 / (1/sqrt(0.1) - 1/sqrt(100)) = 16.33; 16.33 / 1 - 1.633 = 14.69.
    assert!((target_us(1.0) - 26.69).abs() < 0.01);
}

#[test]
fn swift_falls_to_the_least_after_enough_timeouts() {
    let mut swift = control(Congestion::Swift, &[("window_start_packets", 30.0)]);
    let at = |i: u64| Instant::ZERO + Duration::from_us(450 * i);
    let windows: Vec<u32> = (1..=5)
        .map(|i| swift.lost(0, &way(), at(i), 0, Loss::Timeout).window)
        .collect();
    assert_eq!(windows, [15, 7, 3, 1, 1]);
}

#[test]
fn dctcp_cuts_by_half_the_marked_part() {
    let mut dctcp = control(
        Congestion::Dctcp,
        &[("window_start_packets", 100.0), ("alpha_start", 0.5)],
    );
    let limit = dctcp.acked(0, &way(), &acked(10, 5.0, true, 5));
    assert_eq!(limit.window, 75);
    // Not again within the window.
    let limit = dctcp.acked(0, &way(), &acked(11, 5.0, true, 6));
    assert_eq!(limit.window, 75);
    assert_eq!(
        dctcp
            .lost(0, &way(), Instant::ZERO, 40, Loss::Timeout)
            .window,
        1
    );
}

#[test]
fn dcqcn_halves_on_the_first_notification_and_recovers_by_fast_steps() {
    let mut dcqcn = control(Congestion::Dcqcn, &[]);
    let full = LINE.time_for(way().packet);
    let at = |us: u64| Instant::ZERO + Duration::from_us(us);
    let limit = dcqcn.notified(0, &way(), at(100)).unwrap();
    assert_eq!(limit.gap, full * 2);
    // Five ticks of 55 us leave 50 / 2^5 Gb/s to go: 98.4375.
    let (limit, _) = dcqcn.review(0, &way(), at(100 + 5 * 55)).unwrap();
    let expected = BitRate::from_bps(98_437_500_000).time_for(way().packet);
    assert_eq!(limit.gap, expected);
    // And 3 ticks later it is within an additive step of the line and forgets.
    let mut now = 100 + 5 * 55;
    while dcqcn.review(0, &way(), at(now)).is_some() {
        now += 55;
        assert!(now < 2_000);
    }
    assert_eq!(dcqcn.acked(0, &way(), &acked(now, 5.0, false, 1)).gap, full);
}

#[test]
fn dcqcn_s_timers_give_the_same_rates_however_often_they_are_asked() {
    let at = |us: u64| Instant::ZERO + Duration::from_us(us);
    let mut rates = Vec::new();
    for step in [1, 7, 500] {
        let mut dcqcn = control(Congestion::Dcqcn, &[]);
        for i in 0..6 {
            dcqcn.notified(0, &way(), at(50 * i));
        }
        let mut now = 250;
        while now < 3_250 {
            now = (now + step).min(3_250);
            dcqcn.review(0, &way(), at(now));
        }
        rates.push(dcqcn.review(0, &way(), at(3_250)).unwrap());
    }
    assert_eq!(rates[0], rates[1]);
    assert_eq!(rates[0], rates[2]);
}

#[test]
fn timely_follows_the_gradient_between_its_thresholds() {
    let given = [("segment_bytes", 1.0), ("rate_start_share", 0.5)];
    let mut timely = control(Congestion::Timely, &given);
    let gap = |rate: u64| BitRate::from_bps(rate).time_for(way().packet);
    let mut ack = |round_trip: f64| timely.acked(0, &way(), &acked(1, round_trip, false, 0)).gap;
    assert_eq!(
        ack(100.0),
        gap(50_000_000_000),
        "the first only sets the base"
    );
    assert_eq!(ack(100.0), gap(50_010_000_000), "level: up");
    // Difference 2 us, smoothed 1.75, gradient 0.0875: down by 7 %.
    assert_eq!(ack(102.0), gap(46_509_300_000));
    assert_eq!(
        ack(40.0),
        gap(46_519_300_000),
        "below the low threshold: up"
    );
    // Above the high one: 1 - 0.8 (1 - 500/1000).
    assert_eq!(ack(1000.0), gap(27_911_580_000));
}

#[test]
fn hpcc_aims_below_the_fullest_link() {
    let mut hpcc = control(Congestion::Hpcc, &[]);
    let hop = |us: u64, sent: u64, queue: u64| HopTelemetry {
        queue_bytes: queue,
        sent_bytes: sent,
        at: Instant::ZERO + Duration::from_us(us),
        ps_per_byte: 80,
    };
    let ack = |hpcc: &mut Control, hops: &[HopTelemetry], sequence: u32| {
        let mut acked = acked(1, 2.0, false, sequence);
        acked.hops = hops;
        hpcc.acked(0, &way(), &acked)
    };
    // The line holds 25,000 B per round trip: 5 packets.
    assert_eq!(ack(&mut hpcc, &[hop(0, 0, 25_000)], 1).window, 5);
    // A full line and a queue of one round trip: twice what it holds, so the window falls to 47.5 % and a step.
    let limit = ack(&mut hpcc, &[hop(2, 25_000, 25_000)], 12);
    assert_eq!(limit.window, 3);
    let window = 25_000.0 * 0.95 / 2.0 + 25_000.0 * 0.05 / 20.0;
    assert_eq!(limit.gap.as_ps(), (2e6 * 5_120.0 / window) as u64);
}

/// The parser's list and the controls' own are the same: a name that one accepts the other reads.
#[test]
fn parameters_are_those_of_the_scenario() {
    for which in Congestion::ALL {
        let own: Vec<(&str, f64, f64)> = parameters(which)
            .iter()
            .map(|one| (one.name, one.least, one.most))
            .collect();
        let listed: Vec<(&str, f64, f64)> = isolane_network_scenario::parameters::congestion(which)
            .iter()
            .map(|one| (one.name, one.min, one.max))
            .collect();
        assert_eq!(own, listed, "{which:?}");
    }
}
