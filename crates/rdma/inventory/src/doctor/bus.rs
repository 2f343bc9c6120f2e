//! Checks the bus between device and memory: width and speed for the link, NUMA distance, address translation.
//!
//! Figures: a lane of PCIe 1 and 2 carries 8 of 10 bits, later ones 128 of 130. Packet headers take some 5 to 20 %
//! more, depending on payload size, so the printed rate is an upper bound.

use super::Check;
use isolane_common_linux::root::Root;
use std::fs;

/// Every check of the device's bus.
pub fn checks(root: &Root, device: &str) -> Vec<Check> {
    let folder = format!("/sys/class/infiniband/{device}/device");
    if !root.exists(&folder) {
        return Vec::new();
    }
    vec![
        width(root, device, &folder),
        read_request(root, &folder),
        node(root, &folder),
        translation(root, &folder),
    ]
}

/// Gbit/s of the device's PCIe link in each direction, before packet headers; `None` for a device without a link of its
/// own.
pub(crate) fn link_gbps(root: &Root, device: &str) -> Option<f64> {
    let folder = format!("/sys/class/infiniband/{device}/device");
    let speed = root.text(&format!("{folder}/current_link_speed"))?;
    let speed = speed.split_whitespace().next()?.parse().ok()?;
    let lanes = root.number(&format!("{folder}/current_link_width"))?;
    Some(capacity_gbps(speed, lanes)).filter(|gbps| *gbps > 0.0)
}

/// Gbit/s that `lanes` lanes of `gigatransfers` carry, before packet headers.
fn capacity_gbps(gigatransfers: f64, lanes: u64) -> f64 {
    let (payload, symbol) = match gigatransfers < 6.0 {
        true => (8.0, 10.0),
        false => (128.0, 130.0),
    };
    gigatransfers * lanes as f64 * payload / symbol
}

fn width(root: &Root, device: &str, folder: &str) -> Check {
    const NAME: &str = "PCIe";
    let speed = |file: &str| -> Option<f64> {
        let text = root.text(&format!("{folder}/{file}"))?;
        text.split_whitespace().next()?.parse().ok()
    };
    let lanes = |file: &str| root.number(&format!("{folder}/{file}"));
    let (Some(now), Some(wide)) = (speed("current_link_speed"), lanes("current_link_width")) else {
        return Check::unknown(
            NAME,
            "no link of its own (a virtual function, or an integrated device)",
            "lspci -vv",
        );
    };
    let capacity = capacity_gbps(now, wide);
    let ports = root.list(&format!("/sys/class/infiniband/{device}/ports"));
    let need: f64 = ports
        .iter()
        .filter_map(|port| {
            let rate = root.text(&format!("/sys/class/infiniband/{device}/ports/{port}/rate"))?;
            rate.split_whitespace().next()?.parse::<f64>().ok()
        })
        .sum();
    let seen = format!("{now} GT/s x{wide}: {capacity:.0} Gbit/s for a link of {need} Gbit/s");
    let most = match (speed("max_link_speed"), lanes("max_link_width")) {
        (Some(fast), Some(most)) if fast > now || most > wide => {
            Some(format!("{fast} GT/s x{most}"))
        }
        _ => None,
    };
    match (capacity < need, most) {
        (true, Some(most)) => Check::fail(
            NAME,
            format!("{seen}; the device can do {most}"),
            "move the card to a wider or faster slot, reseat it, or look at the slot's setting in the firmware",
        ),
        (true, None) => Check::warn(
            NAME,
            format!("{seen}: the bus is the limit"),
            "nothing to set: it is the NIC's own maximum; count with the rate of the bus",
        ),
        (false, Some(most)) => Check::ok(NAME, format!("{seen}; the device can do {most}")),
        (false, None) => Check::ok(NAME, seen),
    }
}

/// Offset of Device Control: searches the PCI Express capability in configuration space.
pub(crate) fn device_control(config: &[u8]) -> Option<u16> {
    const CAPABILITIES: usize = 0x34;
    const EXPRESS: u8 = 0x10;
    /// Largest number of capabilities in 256 bytes.
    const MOST: usize = 48;
    let mut at = usize::from(*config.get(CAPABILITIES)?) & !3;
    for _ in 0..MOST {
        if at == 0 {
            return None;
        }
        if *config.get(at)? == EXPRESS {
            let low = *config.get(at + 8)?;
            let high = *config.get(at + 9)?;
            return Some(u16::from_le_bytes([low, high]));
        }
        at = usize::from(*config.get(at + 1)?) & !3;
    }
    None
}

fn read_request(root: &Root, folder: &str) -> Check {
    const NAME: &str = "MaxReadReq";
    /// Below this size a 100 Gbit/s device cannot keep enough reads in flight.
    const LEAST_BYTES: u32 = 512;
    let config = fs::read(root.path(&format!("{folder}/config"))).unwrap_or_default();
    let Some(control) = device_control(&config) else {
        return Check::unknown(
            NAME,
            "configuration space is readable by root only",
            "run as root",
        );
    };
    let request = 128u32 << ((control >> 12) & 7);
    let payload = 128u32 << ((control >> 5) & 7);
    let seen = format!("{request} B, payload {payload} B");
    match request < LEAST_BYTES {
        true => {
            let function = root.link_name(folder).unwrap_or_else(|| "BDF".to_owned());
            Check::warn(
                NAME,
                format!("{seen}: small reads keep the bus from being full"),
                format!(
                    "setpci -s {function} CAP_EXP+8.w=5000:7000   # 4096 B, until the next reset"
                ),
            )
        }
        false => Check::ok(NAME, seen),
    }
}

fn node(root: &Root, folder: &str) -> Check {
    const NAME: &str = "NUMA node";
    let nodes = root.list("/sys/devices/system/node");
    let nodes = nodes
        .iter()
        .filter(|name| {
            name.strip_prefix("node").is_some_and(|rest| {
                !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())
            })
        })
        .count();
    let node = root.text(&format!("{folder}/numa_node"));
    let cores = root
        .text(&format!("{folder}/local_cpulist"))
        .unwrap_or_default();
    match node.as_deref() {
        Some("-1") | None if nodes > 1 => Check::warn(
            NAME,
            format!("the firmware does not say which of {nodes} nodes is near"),
            "update the system's firmware; pin programs by measurement",
        ),
        Some("-1") | None => Check::ok(NAME, "one node"),
        Some(node) => Check::ok(NAME, format!("{node} of {nodes}, near cores {cores}")),
    }
}

/// A translating IOMMU adds a lookup to every DMA that misses its cache.
fn translation(root: &Root, folder: &str) -> Check {
    const NAME: &str = "IOMMU";
    match root.text(&format!("{folder}/iommu_group/type")).as_deref() {
        None => Check::ok(NAME, "off for this device"),
        Some("identity") => Check::ok(NAME, "passes through"),
        Some(kind) => Check::warn(
            NAME,
            format!(
                "translates ({kind}): DMA pays for lookups, and peers on the bus go through the root"
            ),
            "boot with iommu=pt; for GPU peers see also ACS: lspci -vvv | grep ACSCtl",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn capacity_counts_the_line_code() {
        assert_eq!(capacity_gbps(8.0, 8).round(), 63.0);
        assert_eq!(capacity_gbps(5.0, 8), 32.0);
        assert_eq!(capacity_gbps(16.0, 16).round(), 252.0);
    }

    #[test]
    fn device_control_is_found_in_the_list() {
        let mut config = vec![0u8; 256];
        config[0x34] = 0x40;
        config[0x40] = 0x01;
        config[0x41] = 0x60;
        config[0x60] = 0x10;
        config[0x68..0x6a].copy_from_slice(&0x2936u16.to_le_bytes());
        assert_eq!(device_control(&config), Some(0x2936));
    }

    proptest! {
        #[test]
        fn any_configuration_space_ends_the_walk(config in proptest::collection::vec(any::<u8>(), 0..300)) {
            device_control(&config);
        }
    }
}
