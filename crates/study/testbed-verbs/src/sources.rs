//! Where an agent reads counters besides files: each source adds what it knows of a device.
//!
//! Method: a source is asked for every reading and adds to [`Extra`]; the map of the inventory says which driver's counter
//! means what. A source that a machine lacks adds nothing, and its counters are then missing, not zero. Limits: `ethtool`
//! costs a process per reading, so it runs only for drivers of which the map names ethtool counters.

use isolane_common_linux::Root;
use isolane_rdma_inventory::counters::{self, Driver, Extra, Source, map, network_device};
use isolane_rdma_inventory::dcb;

/// One source: adds what it knows of a device and port.
type Add = fn(&Root, &str, u32, &mut Extra);

const SOURCES: [Add; 2] = [ethtool, flow_control];

/// What the sources know of `device`.
pub(crate) fn extra(root: &Root, device: &str, port: u32) -> Extra {
    let mut extra = Extra::default();
    // A recorded tree has files only.
    if root.is_machine() {
        for add in SOURCES {
            add(root, device, port, &mut extra);
        }
    }
    extra
}

fn ethtool(root: &Root, device: &str, port: u32, extra: &mut Extra) {
    let driver = Driver::of(root, device);
    let wanted = map::entries(&driver).any(|entry| entry.source == Source::Ethtool);
    if let (true, Some(network)) = (wanted, network_device(root, device, port)) {
        extra.ethtool = counters::ethtool(&network).unwrap_or_default();
    }
}

fn flow_control(root: &Root, device: &str, port: u32, extra: &mut Extra) {
    let Some(network) = network_device(root, device, port) else {
        return;
    };
    if let Ok(mut socket) = dcb::open()
        && let Ok(Some(bridging)) = dcb::read(&mut socket, &network)
    {
        extra.flow_control = bridging.flow_control;
    }
}
