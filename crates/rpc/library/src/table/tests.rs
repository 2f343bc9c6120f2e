//! Compares the table with the pure algorithm, and tests many destinations and threads.

use super::*;
use crate::settings::parse;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_rpc_policy::aequitas::{AdmitState, Decision};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000_000;

const CLASSES: &str = include_str!("../../tests/data/three-classes.toml");

/// The settings of three classes, with `top` above the classes.
fn text(top: &str) -> String {
    let classes = CLASSES.replace("\"25us\"", "\"25us\"\npercentile = 99");
    format!("{top}\nmtu_bytes = 1000\n{classes}")
}

fn settings(top: &str) -> Settings {
    parse("test", &text(top)).unwrap()
}

fn ask(destination: &[u8], class: u8) -> Ask<'_> {
    Ask {
        destination,
        class,
        bytes: 7_000,
    }
}

fn instant(ns: u64) -> Instant {
    Instant::ZERO + Duration::from_ns(ns)
}

proptest! {
    /// One thread, a few destinations: each decision equals that of the algorithm's own state.
    #[test]
    fn decides_as_the_algorithm_does(
        calls in prop::collection::vec(
            (0u8..4, 0u8..3, any::<u32>(), 0u64..400_000, 0u64..40_000, 0u64..90),
            1..300,
        ),
    ) {
        let settings = settings("");
        let table = Table::new(&settings, 3, 0);
        let mut states: BTreeMap<(u8, u8), AdmitState> = BTreeMap::new();
        let mut now_ns = 0;
        for (destination, class, random, latency_ns, gap_us, pause_s) in calls {
            // Long pauses now and then, so that destinations are removed.
            now_ns += gap_us * 1_000 + if pause_s >= 80 { pause_s * SECOND } else { 0 };
            if table.probability(&[destination], class).is_none() {
                // A destination begins with all its classes.
                for class in 0..3 {
                    states.insert((destination, class), AdmitState::new(instant(now_ns)));
                }
            }
            let verdict = table.decide(ask(&[destination], class), now_ns, random);
            prop_assert_eq!(verdict.ticket.mtus(), 7);
            let Some(options) = settings.options(usize::from(class)) else {
                prop_assert!(!verdict.downgraded && verdict.class == 2);
                table.complete(verdict.ticket, latency_ns, now_ns).unwrap();
                continue;
            };
            let state = states.get_mut(&(destination, class)).unwrap();
            let decision = state.decide(&options, instant(now_ns), random);
            prop_assert_eq!(verdict.downgraded, decision == Decision::Downgrade);
            prop_assert_eq!(verdict.class, if verdict.downgraded { 2 } else { class });
            now_ns += latency_ns;
            table.complete(verdict.ticket, latency_ns, now_ns).unwrap();
            if decision == Decision::Admit {
                let latency = Duration::from_ns(latency_ns);
                state.on_completion(&options, instant(now_ns), latency, 7);
            }
            prop_assert_eq!(table.probability(&[destination], class), Some(state.probability()));
        }
    }
}

#[test]
fn a_downgraded_call_teaches_its_class_nothing() {
    let table = Table::new(&settings(""), 3, 0);
    let first = table.decide(ask(b"a", 0), 1, 0);
    table.complete(first.ticket, SECOND, 2).unwrap();
    let before = table.probability(b"a", 0).unwrap();
    let verdict = table.decide(ask(b"a", 0), 3, u32::MAX);
    assert!(verdict.downgraded);
    assert_eq!(
        (verdict.ticket.run_class(), verdict.ticket.asked_class()),
        (2, 0)
    );
    table.complete(verdict.ticket, SECOND, 4).unwrap();
    assert_eq!(table.probability(b"a", 0), Some(before));
    let counts = table.counts(b"a", 0).unwrap();
    assert_eq!(
        (
            counts.issued(),
            counts.downgraded,
            counts.missed,
            counts.met()
        ),
        (2, 1, 1, 0)
    );
    assert_eq!(table.counts(b"a", 2).unwrap().ended(), 1);
}

/// Goal: with Aequitas 2, a miss of one destination sets the level of all destinations on its host, and of no other host.
#[test]
fn destinations_of_a_host_share_their_level() {
    let table = Table::new(&settings("algorithm = \"aequitas-2\""), 3, SECOND);
    let call = |name: &[u8], now_ns| table.decide(ask(name, 0), now_ns, u32::MAX);
    let missed = call(b"a:1", SECOND);
    // 7 MTUs of 15 us.
    table
        .complete(missed.ticket, 200_000, SECOND + 200_000)
        .unwrap();
    let later = SECOND + 300_000;
    // A channel saves the time of one call, so the third call at once is the first above the level.
    let classes = |name: &[u8]| [(); 3].map(|()| call(name, later).class);
    assert_eq!(classes(b"a:1"), [0, 0, 2]);
    assert_eq!(classes(b"a:2"), [0, 0, 2]);
    assert_eq!(classes(b"b:1"), [0, 0, 0]);
    // A departed host's level is forgotten.
    assert!(table.forget(b"a:1") && table.forget(b"a:2"));
    assert_eq!(classes(b"a:1"), [0, 0, 0]);
}

/// Goal: a machine that runs for longer than u64 picoseconds count still admits calls, and learns.
#[test]
fn levels_outlast_the_clock_of_the_policy() {
    let table = Table::new(&settings("algorithm = \"aequitas-2\""), 3, 0);
    let whole_ns = u64::MAX / 1_000;
    let day_ns = 86_400 * SECOND;
    for begin in [
        whole_ns - SECOND,
        whole_ns + SECOND,
        whole_ns + 300 * day_ns,
    ] {
        let call = |now_ns| table.decide(ask(b"a:1", 0), now_ns, u32::MAX);
        let first = call(begin);
        assert_eq!(first.class, 0, "at {begin} ns");
        let end = begin + 200_000;
        table.complete(first.ticket, 200_000, end).unwrap();
        let classes = [(); 3].map(|()| call(end + 100_000).class);
        assert_eq!(classes, [0, 0, 2], "at {begin} ns");
        // A caller may report any latency.
        let last = call(end + SECOND / 2);
        table.complete(last.ticket, u64::MAX, end + SECOND).unwrap();
    }
}

/// Goal: with Aequitas 2, calls without a slot go to any number of hosts, so they share no level.
#[test]
fn destinations_without_a_slot_have_no_level() {
    let top = "algorithm = \"aequitas-2\"\ndestinations_max = 1";
    let table = Table::new(&settings(top), 3, SECOND);
    table.decide(ask(b"seated", 0), SECOND, 0);
    let call = |name: &[u8], now_ns| table.decide(ask(name, 0), now_ns, u32::MAX);
    let missed = call(b"a:1", SECOND);
    let end = SECOND + 200_000;
    table.complete(missed.ticket, 200_000, end).unwrap();
    assert_eq!([(); 3].map(|()| call(b"b:1", end + 1).class), [0; 3]);
    let report = table.report(1);
    assert_eq!((report.overflowed, report.totals[0].missed), (4, 1));
}

#[test]
fn shadow_mode_reports_and_sends_as_asked() {
    let table = Table::new(&settings("mode = \"shadow\""), 3, 0);
    let first = table.decide(ask(b"a", 1), 1, 0);
    table.complete(first.ticket, SECOND, 2).unwrap();
    let verdict = table.decide(ask(b"a", 1), 3, u32::MAX);
    assert!(verdict.would_downgrade && !verdict.downgraded);
    assert_eq!(verdict.class, 1);
    assert_eq!(table.counts(b"a", 1).unwrap().downgraded, 1);
}

#[test]
fn a_call_within_its_lease_is_admitted_at_any_probability() {
    let group = "[[group]]\nname = \"rack\"\ndestinations = \"10.0.1.*\"\n";
    let text = format!("{}{group}", text(""));
    let table = Table::new(&parse("test", &text).unwrap(), 3, 0);
    let grant = Grant {
        rate_bytes_per_s: 7_000_000,
        until_ns: 10 * SECOND,
    };
    table.set_lease(0, 0, grant, SECOND);
    let mut now_ns = SECOND;
    let mut never = |destination: &[u8]| {
        now_ns += 1_000_000;
        let first = table.decide(ask(destination, 0), now_ns, 0);
        table.complete(first.ticket, SECOND, now_ns).unwrap();
        !table
            .decide(ask(destination, 0), now_ns, u32::MAX)
            .downgraded
    };
    assert!(!never(b"10.0.2.1"), "no group");
    // A millisecond admits one call at this rate, and each round makes two: the saved credit ends.
    let admitted = (0..100).filter(|_| never(b"10.0.1.1")).count();
    assert!((5..60).contains(&admitted), "{admitted}");
    assert_eq!(table.asked_bytes(0, 0), 200 * 7_000);
    assert_eq!(table.asked_bytes(0, 1), 0);
    let leased = table.counts(b"10.0.1.1", 0).unwrap().leased;
    // 101 ms at the rate, 20 ms saved, one call ahead.
    assert!((100..=123).contains(&leased), "{leased}");
    now_ns = 10 * SECOND;
    let late = table.decide(ask(b"10.0.1.1", 0), now_ns, u32::MAX);
    assert!(late.downgraded, "the lease has expired");
}

#[test]
fn a_call_that_is_given_up_is_a_miss_beyond_its_objective_only() {
    let table = Table::new(&settings(""), 3, 0);
    let call = |class| table.decide(ask(b"a", class), 1, 0).ticket;
    // 7 MTUs of 15 us.
    assert_eq!(table.give_up(call(0), 104_999, 2), Ok(false));
    assert_eq!(table.give_up(call(0), 105_000, 2), Ok(true));
    assert_eq!(table.give_up(call(2), SECOND, 2), Ok(false), "no objective");
    let counts = table.counts(b"a", 0).unwrap();
    assert_eq!((counts.ended(), counts.missed), (1, 1));
    let probability = table.probability(b"a", 0).unwrap();
    assert!((probability.as_f64() - 0.93).abs() < 1e-6);
    let foreign = Ticket::from_word(u64::MAX);
    assert_eq!(table.give_up(foreign, SECOND, 2), Ok(false));
}

#[test]
fn off_mode_counts_and_learns_nothing() {
    let table = Table::new(&settings("mode = \"off\""), 3, 0);
    for _ in 0..50 {
        let verdict = table.decide(ask(b"a", 0), 1, u32::MAX);
        assert!(!verdict.downgraded && !verdict.would_downgrade);
        table.complete(verdict.ticket, SECOND, 2).unwrap();
    }
    assert_eq!(table.probability(b"a", 0), Some(Probability::ONE));
    assert_eq!(table.counts(b"a", 0).unwrap().missed, 50);
}

#[test]
fn a_reload_changes_objective_and_mode_of_calls_to_come() {
    let table = Table::new(&settings(""), 3, 0);
    table.reconfigure(&settings("mode = \"shadow\"\nbeta = 0.5"));
    let verdict = table.decide(ask(b"a", 0), 1, 0);
    table.complete(verdict.ticket, SECOND, 2).unwrap();
    assert!(
        (table.probability(b"a", 0).unwrap().as_f64() - 0.1).abs() < 1e-6,
        "floor"
    );
    assert_eq!(table.mode(), Mode::Shadow);
}

#[test]
fn idle_destinations_make_room_and_busy_ones_do_not() {
    let table = Table::new(&settings("destinations_max = 100"), 3, 0);
    for host in 0..100u32 {
        table.decide(ask(&host.to_le_bytes(), 0), SECOND, 0);
    }
    assert_eq!(table.len(), 100);
    // All are recent: the newcomer uses the overflow cell and is admitted.
    let verdict = table.decide(ask(b"newcomer", 0), SECOND + 1, u32::MAX);
    assert!(!verdict.downgraded);
    assert_eq!(table.probability(b"newcomer", 0), None);
    assert_eq!(table.report(1).overflowed, 1);
    // One of them misses, and all are silent for a while: a destination without learned state is removed for the
    // newcomer.
    let miss = table.decide(ask(&7u32.to_le_bytes(), 0), SECOND + 2, 0);
    table.complete(miss.ticket, SECOND, SECOND + 3).unwrap();
    table.decide(ask(b"newcomer", 0), 5 * SECOND, 0);
    assert!(table.probability(b"newcomer", 0).is_some());
    assert!(
        table.probability(&7u32.to_le_bytes(), 0).is_some(),
        "what it learned is kept"
    );
    assert_eq!((table.len(), table.report(1).evicted), (100, 1));
    // After the idle time all are removed.
    assert_eq!(table.sweep(200 * SECOND), 100);
    assert!(table.is_empty());
}

#[test]
fn churn_does_not_grow_the_table() {
    let table = Table::new(
        &settings("destinations_max = 1000\nidle_after = \"1s\""),
        3,
        0,
    );
    for host in 0..50_000u32 {
        let now_ns = u64::from(host) * 10_000_000;
        table.decide(ask(format!("host-{host}").as_bytes(), 0), now_ns, 0);
        assert!(table.len() <= 300, "100 arrive in the idle time");
    }
    let report = table.report(3);
    assert_eq!(report.totals[0].issued(), 50_000);
    assert_eq!(report.overflowed, 0);
}

#[test]
fn a_departed_destinations_tickets_are_void() {
    let table = Table::new(&settings("destinations_max = 1"), 3, 0);
    let old = table.decide(ask(b"old", 0), 0, 0);
    assert!(table.forget(b"old"));
    assert!(!table.forget(b"old"));
    assert_eq!(
        table.complete(old.ticket, SECOND, 1),
        Err(TicketError::Departed)
    );
    table.decide(ask(b"new", 0), 2, 0);
    assert_eq!(
        table.complete(old.ticket, SECOND, 3),
        Err(TicketError::Departed)
    );
    assert_eq!(table.probability(b"new", 0), Some(Probability::ONE));
    for word in [0, u64::MAX, 1 << 19, old.ticket.word() | 7 << 36] {
        let foreign = Ticket::from_word(word);
        assert!(table.complete(foreign, 1, 1).is_err(), "{word:x}");
    }
}

#[test]
fn long_names_are_distinct_and_short() {
    let table = Table::new(&settings(""), 3, 0);
    let long = |end: &str| format!("{}{end}", "x".repeat(500));
    table.decide(ask(long("a").as_bytes(), 0), 0, 0);
    table.decide(ask(long("b").as_bytes(), 0), 0, 0);
    let report = table.report(5);
    assert_eq!(report.shown.len(), 2);
    assert!(
        report
            .shown
            .iter()
            .all(|shown| shown.name.len() == NAME_MAX)
    );
    assert_ne!(report.shown[0].name, report.shown[1].name);
}

/// Threads decide, complete, evict and read at once: no call is lost, and no value leaves its range.
#[test]
fn threads_share_the_table_without_losing_calls() {
    let table = Table::new(
        &settings("destinations_max = 50\nidle_after = \"1s\""),
        3,
        0,
    );
    const CALLS: u64 = 20_000;
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let table = &table;
            scope.spawn(move || {
                for call in 0..CALLS {
                    let now_ns = call * 1_000_000;
                    let host = (call * 7 + thread * 13) % 80;
                    let random = (call as u32).wrapping_mul(0x9e37_79b9);
                    let verdict = table.decide(ask(&host.to_le_bytes(), 0), now_ns, random);
                    let latency_ns = 10_000 * (call % 20);
                    // Its destination may have left by now.
                    let _ = table.complete(verdict.ticket, latency_ns, now_ns + latency_ns);
                    if call % 1_000 == 0 {
                        table.sweep(now_ns);
                        table.report(5);
                    }
                }
            });
        }
    });
    for (_, seat) in table.roster().seats() {
        let probability = table.probability(&seat.name, 0).unwrap();
        assert!(probability >= Probability::from_f64(0.1) && probability <= Probability::ONE);
    }
    let issued = table.report(5).totals[0].issued();
    // A decision that found its slot just before the slot changed its owner may not be counted.
    let lost = 4 * CALLS - issued;
    assert!(lost <= 40, "{lost} of {} calls were lost", 4 * CALLS);
}
