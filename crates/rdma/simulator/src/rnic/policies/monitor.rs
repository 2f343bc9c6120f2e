//! The switch with a monitor in front of each NIC.

use super::parameter;
use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::model::PolicySpec;

/// Latency per transaction of the prototype's switch, ns. Calibration: with it a round trip of 64 B takes 2.3 us longer
/// (harmonic, table 5.2). A round trip is a READ each way, and a READ has four transactions one after the other: the
/// doorbell, the fetch of its work request, the read at the other host, and the writes of payload and completion together.
const PROTOTYPE_NS: f64 = 287.5;

/// What the switch is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MonitorSetup {
    /// What it adds to every transaction.
    pub(crate) latency: Duration,
}

impl MonitorSetup {
    /// The prototype's, unless the policy's `monitor_ns` says otherwise.
    pub(super) fn of(spec: &PolicySpec) -> Self {
        let latency = parameter(spec, "monitor_ns").unwrap_or(PROTOTYPE_NS);
        Self {
            latency: Duration::from_ns_f64(latency),
        }
    }
}
