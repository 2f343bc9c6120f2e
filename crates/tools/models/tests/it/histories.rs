//! The quota server over a real etcd: one history holds, and a planted defect is found. `make histories` plays
//! thousands.

use isolane_tools_models::histories::{Clocks, Defect, Etcd, Place, RunError, run};
use std::path::Path;

/// Histories within which the planted defect must show; each has a moment at which it can.
const FOUND_WITHIN: u64 = 20;

fn etcd() -> Option<Etcd> {
    let etcd = Etcd::start().expect("an etcd that is installed starts");
    if etcd.is_none() {
        let required = std::env::var_os("ISOLANE_REQUIRE_ETCD").is_some();
        assert!(!required, "no etcd here, and CI must have one");
        println!("skipped: no etcd on this machine (Debian: etcd-server)");
    }
    etcd
}

fn place() -> Place<'static> {
    let program = Path::new(env!("CARGO_BIN_EXE_histories"));
    let clocks = Clocks::find(program).expect("the program runs");
    Place { program, clocks }
}

#[test]
fn a_history_with_faults_keeps_the_promise() {
    let Some(mut etcd) = etcd() else { return };
    let report = run(1, Defect::None, &mut etcd, &place());
    let report = report.unwrap_or_else(|error| {
        panic!("{error}\nrun it alone: cargo run -p isolane-tools-models --bin histories -- 1 1")
    });
    println!("{report:?}");
    // The first server, the one that took over, and the last one; clients got leases.
    assert!(report.starts >= 3 && report.leases > 5, "{report:?}");
}

#[test]
fn a_server_that_goes_on_after_it_was_replaced_is_found() {
    let Some(mut etcd) = etcd() else { return };
    let place = place();
    let found = (1..=FOUND_WITHIN).find_map(|seed| {
        match run(seed, Defect::KeepsGranting, &mut etcd, &place) {
            Ok(_) => None,
            Err(RunError::Broken { what, .. }) => Some(what),
            Err(error) => panic!("{error}"),
        }
    });
    let found = found.unwrap_or_else(|| panic!("not found in {FOUND_WITHIN} histories"));
    println!("{found}");
}
