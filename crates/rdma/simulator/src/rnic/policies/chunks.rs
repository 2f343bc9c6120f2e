//! The part `palos`: chunks of data in every lane.

use super::parameter;
use crate::rnic::chunks::ChunkSetup;
use crate::rnic::device::Device;
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{Bytes, Ratio};
use isolane_rdma_policy::palos::{Clock, Cycles, LabelOptions, PalosOptions};
use isolane_rdma_scenario::model::{PolicySpec, Verb};
use isolane_rdma_scenario::profile::Profile;

/// Clock of the stages without a parameter, MHz: what an FPGA NIC's logic runs at.
const CLOCK_MHZ: f64 = 250.0;
/// Steps in which a share of the link is counted.
const SHARE_STEPS: u64 = 1_000_000;

/// What the part's parameters mean on a device.
pub(super) fn palos(spec: &PolicySpec, profile: &Profile) -> Result<ChunkSetup, OptionError> {
    let device = Device::of(profile);
    let mtu = profile.value("link", "mtu_default_bytes");
    let mut label = LabelOptions::for_link(device.link_rate);
    if let Some(bytes) = parameter(spec, "priority_bytes_max") {
        label.message_max = Bytes::new(bytes as u64);
    }
    if let Some(share) = parameter(spec, "priority_share_max") {
        label.share_max = Ratio::new((share * SHARE_STEPS as f64).round() as u64, SHARE_STEPS);
    }
    // A message costs the link its headers, or what passes while a processing unit works on it.
    let request = device.request[crate::rnic::device::verb_index(Verb::Write)];
    let processing = device
        .link_rate
        .bytes_in(isolane_common_quantities::units::Duration::from_ps(request));
    label.message_overhead = processing.max(Bytes::new(device.frame));
    let options = PalosOptions {
        quantum: Bytes::new(parameter(spec, "quantum_bytes").unwrap_or(mtu) as u64),
        label: (label.message_max > Bytes::ZERO).then_some(label),
    };
    options.check()?;
    let mhz = parameter(spec, "clock_mhz").unwrap_or(CLOCK_MHZ);
    Ok(ChunkSetup {
        options,
        clock: Clock::new(Cycles::COUNTED, (mhz * 1e6).round() as u64),
        per_queue_pair: parameter(spec, "per_queue_pair").unwrap_or(0.0) >= 0.5,
    })
}
