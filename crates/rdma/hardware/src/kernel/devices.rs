//! The capabilities of this host's devices, from sysfs, devlink, data centre bridging and libibverbs.
//!
//! Method: the devices are the RDMA devices, and the network devices of hardware, or with bridging, that belong to no
//! RDMA device. Ports that stand for functions in the switch are left out. A fact that cannot be read is absent.

use super::bridging::buffers_total;
use super::devlink::{Devlink, Port};
use super::function_rate;
use crate::host::{
    Bridging, Buffers, Devlink as HostDevlink, Function, FunctionRate, HOST_VERSION, Host,
    HostDevice, LinkLayer, Pacing,
};
use isolane_common_linux::cgroup;
use isolane_common_linux::netlink::{Family, Socket};
use isolane_common_linux::{HostError, Root};
use isolane_rdma_inventory::dcb;
use isolane_rdma_verbs_sys::safe::Context;
use isolane_rdma_verbs_sys::{Library, Lookup};

const RDMA: &str = "/sys/class/infiniband";
const NETWORK: &str = "/sys/class/net";
/// Traffic classes of a driver that reports 0, which means all (`struct ieee_ets`).
const CLASSES_ALL: u8 = 8;

/// Reads all devices. Fails with the kernel's error, except one that only says that a device lacks something.
pub fn read() -> Result<Host, HostError> {
    let root = Root::with_emulated_devices();
    let mut route = Socket::open(Family::Route)?;
    let mut devlink = Devlink::open()?;
    let ports = match &mut devlink {
        Some(devlink) => devlink.ports()?,
        None => Vec::new(),
    };
    let mut found = Vec::new();
    for device in root.list(RDMA) {
        let network_device = network_device(&root, &device);
        let mut one = of_rdma(&root, &device, network_device);
        add(&root, &mut route, devlink.as_mut(), &ports, &mut one)?;
        found.push(one);
    }
    for device in root.list(NETWORK) {
        let is_function = ports
            .iter()
            .any(|port| port.network_device.as_ref() == Some(&device) && port.function.is_some());
        let used = found
            .iter()
            .any(|one| one.network_device.as_ref() == Some(&device));
        if is_function || used {
            continue;
        }
        let mut one = of_network(&root, &device);
        add(&root, &mut route, devlink.as_mut(), &ports, &mut one)?;
        if root.exists(&format!("{NETWORK}/{device}/device")) || one.bridging.is_some() {
            found.push(one);
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    let mount = cgroup::mount(&root);
    let controllers = mount.and_then(|mount| root.text(&format!("{mount}/cgroup.controllers")));
    let has_rdma = |text: String| text.split_whitespace().any(|word| word == "rdma");
    Ok(Host {
        version: HOST_VERSION,
        rdma_controller: controllers.is_some_and(has_rdma),
        devices: found,
    })
}

fn of_rdma(root: &Root, device: &str, network_device: Option<String>) -> HostDevice {
    let folder = format!("{RDMA}/{device}");
    let layer = root.text(&format!("{folder}/ports/1/link_layer"));
    let driver = root.link_name(&format!("{folder}/device/driver"));
    // Only software devices over a network device have the file `parent`.
    let software = || {
        root.exists(&format!("{folder}/parent"))
            .then(|| "rdma_rxe".to_owned())
    };
    HostDevice {
        name: device.to_owned(),
        rdma: true,
        mtu_bytes: network_device.as_deref().map_or(0, |name| mtu(root, name)),
        network_device,
        driver: driver
            .or_else(software)
            .unwrap_or_else(|| "unknown".to_owned()),
        link_layer: match layer.as_deref() {
            Some("InfiniBand") => LinkLayer::Infiniband,
            _ => LinkLayer::Ethernet,
        },
        rate_bps: root
            .text(&format!("{folder}/ports/1/rate"))
            .map_or(0, |text| rate_bps(&text)),
        devlink: None,
        functions: Vec::new(),
        bridging: None,
        pacing: pacing(device),
    }
}

fn of_network(root: &Root, device: &str) -> HostDevice {
    let driver = root.link_name(&format!("{NETWORK}/{device}/device/driver"));
    let mbps = root.number(&format!("{NETWORK}/{device}/speed"));
    HostDevice {
        name: device.to_owned(),
        rdma: false,
        network_device: Some(device.to_owned()),
        driver: driver.unwrap_or_else(|| "unknown".to_owned()),
        link_layer: LinkLayer::Ethernet,
        // A driver that does not know says -1, which is no number here.
        rate_bps: mbps.map_or(0, |mbps| mbps.saturating_mul(1_000_000)),
        mtu_bytes: mtu(root, device),
        devlink: None,
        functions: Vec::new(),
        bridging: None,
        pacing: None,
    }
}

fn add(
    root: &Root,
    route: &mut Socket,
    devlink: Option<&mut Devlink>,
    ports: &[Port],
    one: &mut HostDevice,
) -> Result<(), HostError> {
    if let Some(devlink) = devlink {
        let handle = handle(root, one, ports);
        if let Some(handle) =
            handle.filter(|handle| ports.iter().any(|port| port.handle == *handle))
        {
            one.functions = functions(&handle, ports);
            one.devlink = Some(HostDevlink {
                switch_mode: devlink.switch_mode(&handle)?,
                handle,
            });
        }
    }
    let Some(device) = one.network_device.clone() else {
        return Ok(());
    };
    if one.functions.is_empty() {
        let list = function_rate::list(route, &device)?;
        one.functions
            .extend(list.into_iter().map(|(number, _, _)| Function {
                name: format!("vf{number}"),
                rate: Some(FunctionRate::Legacy { number }),
            }));
    }
    one.bridging = bridging(route, &device)?;
    Ok(())
}

/// Bus and name of the device: of the devlink port of its network device, else of its parent device.
fn handle(root: &Root, one: &HostDevice, ports: &[Port]) -> Option<String> {
    let of_port = one.network_device.as_ref().and_then(|device| {
        let port = ports
            .iter()
            .find(|port| port.network_device.as_ref() == Some(device))?;
        Some(port.handle.clone())
    });
    let folder = match one.rdma {
        true => format!("{RDMA}/{}/device", one.name),
        false => format!("{NETWORK}/{}/device", one.name),
    };
    of_port.or_else(|| {
        let bus = root.link_name(&format!("{folder}/subsystem"))?;
        Some(format!("{bus}/{}", root.link_name(&folder)?))
    })
}

/// The functions of a device, by name; of two with one name the first counts.
fn functions(handle: &str, ports: &[Port]) -> Vec<Function> {
    let mut functions: Vec<Function> = Vec::new();
    for port in ports.iter().filter(|port| port.handle == handle) {
        let Some(name) = &port.function else {
            continue;
        };
        if functions.iter().all(|known| known.name != *name) {
            functions.push(Function {
                name: name.clone(),
                rate: port
                    .has_rate
                    .then_some(FunctionRate::Devlink { port: port.index }),
            });
        }
    }
    functions.sort_by_key(|function| {
        let (kind, number) = function.name.split_at(2);
        (kind.to_owned(), number.parse::<u32>().unwrap_or(u32::MAX))
    });
    functions
}

fn bridging(route: &mut Socket, device: &str) -> Result<Option<Bridging>, HostError> {
    let Some(payload) = dcb::query(route, device)? else {
        return Ok(None);
    };
    let found = dcb::parse(&payload);
    let classes = found.classes.map_or(0, |classes| match classes.capable {
        0 => CLASSES_ALL,
        capable => capable,
    });
    let flow_control = found.flow_control.unwrap_or_default();
    let has_any = classes > 0 || flow_control.capable > 0;
    Ok(has_any.then(|| Bridging {
        classes,
        flow_control: flow_control.capable,
        flow_control_enabled: flow_control.enabled,
        buffers: buffers_total(&payload)
            .filter(|total| *total > 0)
            .map(|total_bytes| Buffers { total_bytes }),
    }))
}

fn network_device(root: &Root, device: &str) -> Option<String> {
    let folder = format!("{RDMA}/{device}");
    let of_port = root.text(&format!("{folder}/ports/1/gid_attrs/ndevs/0"));
    of_port
        .filter(|name| !name.is_empty())
        .or_else(|| root.text(&format!("{folder}/parent")))
        .or_else(|| {
            root.list(&format!("{folder}/device/net"))
                .into_iter()
                .next()
        })
}

fn mtu(root: &Root, device: &str) -> u32 {
    let mtu = root.number(&format!("{NETWORK}/{device}/mtu"));
    mtu.and_then(|mtu| u32::try_from(mtu).ok()).unwrap_or(0)
}

/// The rate in `100 Gb/sec (4X EDR)` or `2.5 Gb/sec (1X SDR)`; 0 if there is none.
fn rate_bps(text: &str) -> u64 {
    let Some((number, "Gb/sec")) = text
        .split_once(' ')
        .map(|(number, rest)| (number, rest.split(' ').next().unwrap_or_default()))
    else {
        return 0;
    };
    const BPS_PER_GBPS: f64 = 1e9;
    // A negative number becomes 0.
    number
        .parse::<f64>()
        .map_or(0, |gbps| (gbps * BPS_PER_GBPS).round() as u64)
}

/// The device's own answer; absent also where libibverbs or the permission is missing.
fn pacing(device: &str) -> Option<Pacing> {
    let library = Library::open(Lookup::Program).ok()?;
    let context = Context::open(&library, device).ok()?;
    let pacing = context.pacing().ok()??;
    Some(Pacing {
        least_kbps: pacing.least_kbps,
        most_kbps: pacing.most_kbps,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_the_kernel_writes_them() {
        assert_eq!(rate_bps("100 Gb/sec (4X EDR)"), 100_000_000_000);
        assert_eq!(rate_bps("2.5 Gb/sec (1X SDR)"), 2_500_000_000);
        assert_eq!(rate_bps("unknown"), 0);
    }

    #[test]
    fn this_machine_is_read() {
        let host = read().unwrap();
        assert_eq!(host.version, HOST_VERSION);
        assert!(host.devices.iter().all(|one| one.name != "lo"));
    }

    #[test]
    fn functions_are_sorted_by_number() {
        let port = |index: u32, function: &str| Port {
            handle: "pci/1".to_owned(),
            index,
            network_device: None,
            function: Some(function.to_owned()),
            has_rate: true,
        };
        let ports = [
            port(1, "vf10"),
            port(2, "vf9"),
            port(3, "sf1"),
            port(4, "vf9"),
        ];
        let names: Vec<String> = functions("pci/1", &ports)
            .into_iter()
            .map(|function| function.name)
            .collect();
        assert_eq!(names, ["sf1", "vf9", "vf10"]);
    }
}
