//! The counters of every socket on which this process listens, as OpenMetrics families.
//!
//! The names are those of a pipeline's operators (`isolane/pipeline/metrics.py`). Units: connections, bytes.

use isolane_common_linux::tally::{Figures, Refusal, Shed};
use isolane_common_text_output::openmetrics::{Families, Kind};
use std::collections::BTreeMap;

/// Name, help and value of a family.
type Row<V> = (&'static str, &'static str, fn(&Figures) -> V);

#[rustfmt::skip]
const COUNTERS: [Row<u64>; 3] = [
    ("isolane_listener_accepted", "Connections accepted since the start", |figures| figures.accepted_total),
    ("isolane_listener_late", "Connections closed because an exchange took too long", |figures| figures.late_total),
    ("isolane_listener_starved", "Times that no descriptor, memory or thread was left for a connection", |figures| figures.starved_total),
];

#[rustfmt::skip]
const GAUGES: [Row<u64>; 3] = [
    ("isolane_listener_open", "Connections that have sent a whole request or have proved who they are", |figures| figures.open as u64),
    ("isolane_listener_entering", "Connections without a whole request and without a proof", |figures| figures.entering as u64),
    ("isolane_listener_body_bytes", "Memory of requests and answers", |figures| figures.body_bytes),
];

/// The families of these services, without the end mark.
pub(super) fn families(services: &BTreeMap<&'static str, Figures>) -> String {
    let mut text = Families::default();
    let rows = COUNTERS.map(|row| (Kind::Counter, row));
    for (kind, (name, help, value)) in rows.into_iter().chain(GAUGES.map(|row| (Kind::Gauge, row)))
    {
        let mut family = text.family(kind, name, help);
        for (service, figures) in services {
            family.sample(&[("service", service)], value(figures));
        }
    }
    let name = "isolane_listener_refused";
    let help = "Connections and requests rejected because no session or no memory was free";
    let mut family = text.family(Kind::Counter, name, help);
    for (service, figures) in services {
        for (reason, count) in Refusal::ALL.into_iter().zip(figures.refused_total) {
            family.sample(&[("service", service), ("reason", &reason.1)], count);
        }
    }
    let name = "isolane_listener_shed";
    let help = "Connections closed because others needed the place, the memory or the descriptor";
    let mut family = text.family(Kind::Counter, name, help);
    for (service, figures) in services {
        for (reason, count) in Shed::ALL.into_iter().zip(figures.shed_total) {
            family.sample(&[("service", service), ("reason", &reason.1)], count);
        }
    }
    text.into_families()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect_file;

    #[test]
    fn every_counter_has_a_name_with_its_unit_and_help() {
        let figures = Figures {
            accepted_total: 9,
            refused_total: [1, 2],
            shed_total: [4, 5, 6],
            late_total: 7,
            starved_total: 8,
            open: 10,
            entering: 11,
            body_bytes: 12,
        };
        let services = BTreeMap::from([("metrics", figures), ("peers", Figures::default())]);
        expect_file!["../../golden/listeners.txt"].assert_eq(&families(&services));
    }
}
