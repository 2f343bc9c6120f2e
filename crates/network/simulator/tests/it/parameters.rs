//! The parameters that a scenario may set are those that the transports read, with the same ranges.
//!
//! Problem: the parser's list and a transport's own could part, and a parameter would be refused, or accepted and ignored.

use isolane_network_scenario::model::Congestion;
use isolane_network_scenario::parameters;
use isolane_network_simulator::transport::congestion;

#[test]
fn the_parser_knows_the_parameters_of_every_congestion_control() {
    for (kind, name) in Congestion::ALL.into_iter().zip(parameters::CONGESTION) {
        let sorted = |mut list: Vec<(&'static str, f64, f64)>| {
            list.sort_by(|a, b| a.0.cmp(b.0));
            list
        };
        let parsed = parameters::congestion(kind).iter();
        let parsed = sorted(parsed.map(|one| (one.name, one.min, one.max)).collect());
        let read = congestion::parameters(kind).into_iter();
        let read = sorted(read.map(|one| (one.name, one.least, one.most)).collect());
        assert_eq!(
            parsed, read,
            "{name}: crates/network/scenario/src/parameters.rs must list what the transport reads"
        );
    }
}
