//! The text of the metrics, and that no counter falls.

use super::*;
use crate::settings::parse;
use crate::table::{Ask, Table};
use expect_test::expect;
use proptest::prelude::*;

const TEXT: &str = concat!(
    "idle_after = \"1s\"\ndestinations_max = 4\nmetrics_destinations = 1\nmtu_bytes = 1000\n",
    include_str!("../../tests/data/two-classes.toml")
);

fn ask(destination: &[u8], class: u8) -> Ask<'_> {
    Ask {
        destination,
        class,
        bytes: 2_500,
    }
}

#[test]
fn the_text_shows_the_busiest_and_sums_up_the_others() {
    let settings = parse("t", TEXT).unwrap();
    let table = Table::new(&settings, 1, 0);
    for _ in 0..2 {
        let verdict = table.decide(ask(b"busy \"one\"", 0), 10, 0);
        table.complete(verdict.ticket, 50_000, 20).unwrap();
    }
    table.decide(ask(b"busy \"one\"", 0), 30, u32::MAX);
    let verdict = table.decide(ask(b"quiet", 1), 40, 0);
    table.complete(verdict.ticket, 5_000_000_000, 50).unwrap();
    let text = render(&table.report(settings.metrics_destinations), &settings);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("# HELP") && !line.contains("_bucket"))
        .collect();
    expect![[r##"
        # TYPE isolane_rpc info
        isolane_rpc_info{version="0.1.0",mode="enforce"} 1
        # TYPE isolane_rpc_destinations gauge
        isolane_rpc_destinations 2
        # TYPE isolane_rpc_destinations_evicted counter
        isolane_rpc_destinations_evicted_total 0
        # TYPE isolane_rpc_overflowed counter
        isolane_rpc_overflowed_total 0
        # TYPE isolane_rpc_target_seconds_per_mtu gauge
        isolane_rpc_target_seconds_per_mtu{class="high"} 0.000015
        # TYPE isolane_rpc_issued counter
        isolane_rpc_issued_total{class="high"} 3
        isolane_rpc_issued_total{class="low"} 1
        # TYPE isolane_rpc_admitted counter
    "##]]
    .assert_eq(&(lines[..14].join("\n") + "\n"));
    for line in [
        r#"isolane_rpc_destination_issued_total{destination="busy \"one\"",class="high"} 3"#,
        r#"isolane_rpc_destination_downgraded_total{destination="busy \"one\"",class="high"} 1"#,
        r#"isolane_rpc_destination_missed_total{destination="busy \"one\"",class="high"} 2"#,
        r#"isolane_rpc_destination_issued_total{destination="other",class="low"} 1"#,
        r#"isolane_rpc_destination_issued_total{destination="other",class="high"} 0"#,
        r#"isolane_rpc_network_latency_seconds_bucket{class="high",le="0.000064"} 2"#,
        r#"isolane_rpc_network_latency_seconds_bucket{class="low",le="4.194304"} 0"#,
        r#"isolane_rpc_network_latency_seconds_bucket{class="low",le="+Inf"} 1"#,
        r#"isolane_rpc_network_latency_seconds_sum{class="low"} 5"#,
        r#"# UNIT isolane_rpc_network_latency_seconds seconds"#,
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(
        !text.contains("missed_total{class=\"low\"}"),
        "the lowest class has no objective"
    );
}

proptest! {
    /// Destinations arrive, are shown and leave; `other` and the totals only grow, and no call is lost.
    #[test]
    fn no_counter_falls(steps in prop::collection::vec((0u8..7, 0u8..2, 0u64..2), 1..150)) {
        let settings = parse("t", TEXT).unwrap();
        let table = Table::new(&settings, 1, 0);
        let mut now_ns = 0;
        let mut issued = [0; 2];
        let mut last: Option<Report> = None;
        for (destination, class, seconds) in steps {
            now_ns += seconds * 1_000_000_000 + 1;
            table.decide(ask(&[destination], class), now_ns, u32::MAX / 2);
            issued[usize::from(class)] += 1;
            let report = table.report(settings.metrics_destinations);
            for (class, issued) in issued.iter().enumerate() {
                prop_assert_eq!(report.totals[class].issued(), *issued);
                if let Some(last) = &last {
                    prop_assert!(report.other[class].issued() >= last.other[class].issued());
                }
            }
            last = Some(report);
        }
    }
}
