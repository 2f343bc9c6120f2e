//! The families of a snapshot.

use super::*;
use crate::snapshot::DaemonFigures;
use expect_test::expect_file;
use std::collections::BTreeMap;

/// A snapshot with two of every object; the caller gives the names.
pub(crate) fn snapshot(name: &str) -> Snapshot {
    let meter = |remote_read| MeterSnapshot {
        device: name.to_owned(),
        remote_read,
        limit_bytes_per_s: (!remote_read).then_some(125_000),
        passed_bytes: 7,
        waiting_ns: 1_500_000,
        ..MeterSnapshot::default()
    };
    let session = |session| SessionSnapshot {
        session,
        tenant: name.to_owned(),
        program: name.to_owned(),
        class: "auto".to_owned(),
        meters: vec![meter(false), meter(true)],
        ..SessionSnapshot::default()
    };
    Snapshot {
        daemon: DaemonFigures {
            sessions: 2,
            ..DaemonFigures::default()
        },
        devices: vec![DeviceSnapshot {
            name: name.to_owned(),
            policy: "justitia".to_owned(),
            rate_max_bps: u64::MAX,
            figures: BTreeMap::from([
                ("reference_p99_us".to_owned(), 2.5),
                ("x".to_owned(), f64::NAN),
            ]),
            ..DeviceSnapshot::default()
        }],
        tenants: vec![TenantSnapshot {
            name: name.to_owned(),
            weight: 3,
            ..TenantSnapshot::default()
        }],
        limits: vec![LimitSnapshot {
            number: 4,
            bytes_per_s: 250_000,
            sessions: 3,
            unheld: 1,
            tenants: vec![name.to_owned()],
        }],
        sessions: vec![session(1), session(2)],
        ..Snapshot::default()
    }
}

#[test]
fn a_snapshot_is_written_in_families() {
    expect_file!["../../../golden/openmetrics.txt"].assert_eq(&render(&snapshot("r0"), ""));
}
