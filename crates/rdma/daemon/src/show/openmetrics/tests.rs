//! The families of a snapshot.

use super::*;
use crate::snapshot::DaemonFigures;
use expect_test::expect;
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
    expect![[r##"
        # TYPE isolane_build info
        # HELP isolane_build Version of the daemon
        isolane_build_info{version="0.1.0"} 1
        # TYPE isolane_sessions gauge
        # HELP isolane_sessions Sessions of processes
        isolane_sessions 2
        # TYPE isolane_sessions_opened counter
        # HELP isolane_sessions_opened Sessions opened since the start
        isolane_sessions_opened_total 0
        # TYPE isolane_sessions_refused counter
        # HELP isolane_sessions_refused Sessions rejected since the start
        isolane_sessions_refused_total 0
        # TYPE isolane_periods counter
        # HELP isolane_periods Periods in which leases were computed
        isolane_periods_total 0
        # TYPE isolane_leases counter
        # HELP isolane_leases Leases written since the start
        isolane_leases_total 0
        # TYPE isolane_implausible_counters counter
        # HELP isolane_implausible_counters Times a process's counter ran backwards or faster than the device can
        isolane_implausible_counters_total 0
        # TYPE isolane_reclassifications counter
        # HELP isolane_reclassifications Changes of a queue pair's class
        isolane_reclassifications_total 0
        # TYPE isolane_latency_lost counter
        # HELP isolane_latency_lost Times a tenant lost the latency class of a device because it sent bulk in it
        isolane_latency_lost_total 0
        # TYPE isolane_device_rate_max_bits_per_second gauge
        # UNIT isolane_device_rate_max_bits_per_second bits_per_second
        # HELP isolane_device_rate_max_bits_per_second Payload rate of the idle device
        isolane_device_rate_max_bits_per_second{device="r0",policy="justitia"} 18446744073709551615
        # TYPE isolane_device_safe_util_bits_per_second gauge
        # UNIT isolane_device_safe_util_bits_per_second bits_per_second
        # HELP isolane_device_safe_util_bits_per_second Rate that backlogged senders may use together
        isolane_device_safe_util_bits_per_second{device="r0",policy="justitia"} 0
        # TYPE isolane_device_minimum_rate_bits_per_second gauge
        # UNIT isolane_device_minimum_rate_bits_per_second bits_per_second
        # HELP isolane_device_minimum_rate_bits_per_second Rate guaranteed to backlogged senders together
        isolane_device_minimum_rate_bits_per_second{device="r0",policy="justitia"} 0
        # TYPE isolane_device_active_senders gauge
        # HELP isolane_device_active_senders Active senders
        isolane_device_active_senders{device="r0"} 0
        # TYPE isolane_device_active_readers gauge
        # HELP isolane_device_active_readers Active senders of READs
        isolane_device_active_readers{device="r0"} 0
        # TYPE isolane_device_latency_weight gauge
        # HELP isolane_device_latency_weight Sum of the weights of latency flows
        isolane_device_latency_weight{device="r0"} 0
        # TYPE isolane_device_leased_bytes_per_second gauge
        # UNIT isolane_device_leased_bytes_per_second bytes_per_second
        # HELP isolane_device_leased_bytes_per_second Sum of the senders' leases
        isolane_device_leased_bytes_per_second{device="r0"} 0
        # TYPE isolane_device_foreign_bytes_per_second gauge
        # UNIT isolane_device_foreign_bytes_per_second bytes_per_second
        # HELP isolane_device_foreign_bytes_per_second Bytes that the port sent and no session posted; no sample where the driver has no such counters
        # TYPE isolane_device_foreign gauge
        # HELP isolane_device_foreign 1 while such traffic keeps late reference messages from lowering rates
        # TYPE isolane_device_foreign_bytes counter
        # UNIT isolane_device_foreign_bytes bytes
        # HELP isolane_device_foreign_bytes Bytes that the port sent and no session posted
        # TYPE isolane_device_policy_figure gauge
        # HELP isolane_device_policy_figure Figures of the policy; the unit ends the figure's name
        isolane_device_policy_figure{device="r0",figure="reference_p99_us"} 2.5
        isolane_device_policy_figure{device="r0",figure="x"} NaN
        # TYPE isolane_tenant_weight gauge
        # HELP isolane_tenant_weight Weight of the tenant
        isolane_tenant_weight{tenant="r0"} 3
        # TYPE isolane_tenant_sessions gauge
        # HELP isolane_tenant_sessions Sessions of the tenant
        isolane_tenant_sessions{tenant="r0"} 0
        # TYPE isolane_tenant_latency_lost gauge
        # HELP isolane_tenant_latency_lost Devices on which the tenant has lost the latency class because it sent bulk in it
        isolane_tenant_latency_lost{tenant="r0"} 0
        # TYPE isolane_tenant_passed_bytes counter
        # UNIT isolane_tenant_passed_bytes bytes
        # HELP isolane_tenant_passed_bytes Payload that the tenant sent under a lease
        isolane_tenant_passed_bytes_total{tenant="r0"} 0
        # TYPE isolane_tenant_passed_operations counter
        # HELP isolane_tenant_passed_operations Messages that the tenant sent under a lease
        isolane_tenant_passed_operations_total{tenant="r0"} 0
        # TYPE isolane_limit_bytes_per_second gauge
        # UNIT isolane_limit_bytes_per_second bytes_per_second
        # HELP isolane_limit_bytes_per_second Payload rate at which the enforcer's tenant may send by each device, and READ by each
        isolane_limit_bytes_per_second{limit="4"} 250000
        # TYPE isolane_limit_sessions gauge
        # HELP isolane_limit_sessions Sessions to which the limit applies
        isolane_limit_sessions{limit="4"} 3
        # TYPE isolane_limit_unheld_sessions gauge
        # HELP isolane_limit_unheld_sessions Sessions of the limited tenant in the latency class, which have no lease
        isolane_limit_unheld_sessions{limit="4"} 1
        # TYPE isolane_session info
        # HELP isolane_session Identity of a process
        isolane_session_info{session="1",tenant="r0",pid="0",user="0",program="r0",class="auto"} 1
        isolane_session_info{session="2",tenant="r0",pid="0",user="0",program="r0",class="auto"} 1
        # TYPE isolane_session_waiting_work_requests gauge
        # HELP isolane_session_waiting_work_requests Work requests that wait in the process
        isolane_session_waiting_work_requests{session="1"} 0
        isolane_session_waiting_work_requests{session="2"} 0
        # TYPE isolane_meter_lease_bytes_per_second gauge
        # UNIT isolane_meter_lease_bytes_per_second bytes_per_second
        # HELP isolane_meter_lease_bytes_per_second Leased payload rate; zero while released
        isolane_meter_lease_bytes_per_second{session="1",device="r0",direction="send"} 0
        isolane_meter_lease_bytes_per_second{session="1",device="r0",direction="read"} 0
        isolane_meter_lease_bytes_per_second{session="2",device="r0",direction="send"} 0
        isolane_meter_lease_bytes_per_second{session="2",device="r0",direction="read"} 0
        # TYPE isolane_meter_lease_operations_per_second gauge
        # UNIT isolane_meter_lease_operations_per_second operations_per_second
        # HELP isolane_meter_lease_operations_per_second Leased message rate; zero while released
        isolane_meter_lease_operations_per_second{session="1",device="r0",direction="send"} 0
        isolane_meter_lease_operations_per_second{session="1",device="r0",direction="read"} 0
        isolane_meter_lease_operations_per_second{session="2",device="r0",direction="send"} 0
        isolane_meter_lease_operations_per_second{session="2",device="r0",direction="read"} 0
        # TYPE isolane_meter_waiting_seconds gauge
        # UNIT isolane_meter_waiting_seconds seconds
        # HELP isolane_meter_waiting_seconds How long the first work request has been waiting
        isolane_meter_waiting_seconds{session="1",device="r0",direction="send"} 0.0015
        isolane_meter_waiting_seconds{session="1",device="r0",direction="read"} 0.0015
        isolane_meter_waiting_seconds{session="2",device="r0",direction="send"} 0.0015
        isolane_meter_waiting_seconds{session="2",device="r0",direction="read"} 0.0015
        # TYPE isolane_meter_limit_bytes_per_second gauge
        # UNIT isolane_meter_limit_bytes_per_second bytes_per_second
        # HELP isolane_meter_limit_bytes_per_second The meter's share of the process's limit; no sample without a limit
        isolane_meter_limit_bytes_per_second{session="1",device="r0",direction="send"} 125000
        isolane_meter_limit_bytes_per_second{session="2",device="r0",direction="send"} 125000
        # TYPE isolane_meter_passed_bytes counter
        # UNIT isolane_meter_passed_bytes bytes
        # HELP isolane_meter_passed_bytes Payload that the process sent under a lease
        isolane_meter_passed_bytes_total{session="1",device="r0",direction="send"} 7
        isolane_meter_passed_bytes_total{session="1",device="r0",direction="read"} 7
        isolane_meter_passed_bytes_total{session="2",device="r0",direction="send"} 7
        isolane_meter_passed_bytes_total{session="2",device="r0",direction="read"} 7
        # TYPE isolane_meter_passed_operations counter
        # HELP isolane_meter_passed_operations Messages that the process sent under a lease
        isolane_meter_passed_operations_total{session="1",device="r0",direction="send"} 0
        isolane_meter_passed_operations_total{session="1",device="r0",direction="read"} 0
        isolane_meter_passed_operations_total{session="2",device="r0",direction="send"} 0
        isolane_meter_passed_operations_total{session="2",device="r0",direction="read"} 0
        # TYPE isolane_meter_posted_bytes counter
        # UNIT isolane_meter_posted_bytes bytes
        # HELP isolane_meter_posted_bytes Payload that paced queue pairs posted
        isolane_meter_posted_bytes_total{session="1",device="r0",direction="send"} 0
        isolane_meter_posted_bytes_total{session="1",device="r0",direction="read"} 0
        isolane_meter_posted_bytes_total{session="2",device="r0",direction="send"} 0
        isolane_meter_posted_bytes_total{session="2",device="r0",direction="read"} 0
        # TYPE isolane_meter_posted_operations counter
        # HELP isolane_meter_posted_operations Messages that paced queue pairs posted
        isolane_meter_posted_operations_total{session="1",device="r0",direction="send"} 0
        isolane_meter_posted_operations_total{session="1",device="r0",direction="read"} 0
        isolane_meter_posted_operations_total{session="2",device="r0",direction="send"} 0
        isolane_meter_posted_operations_total{session="2",device="r0",direction="read"} 0
        # TYPE isolane_unheld_queue_pairs gauge
        # HELP isolane_unheld_queue_pairs Queue pairs of a process that is not paced for the named reason; zero if the kernel lists none
        # EOF
    "##]].assert_eq(&render(&snapshot("r0"), ""));
}
