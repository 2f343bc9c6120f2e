//! Lists what is missing on a machine without an RDMA device, from the kernel up, with the command for each step.

use super::machine::{INSTALL_LIBRARY, is_module_there, release, verbs_library};
use super::{Check, Live};
use isolane_common_linux::root::Root;

/// PCI vendors whose network adapters do RDMA, with the driver to load.
const VENDORS: [(u64, &str, &str); 4] = [
    (0x15b3, "NVIDIA/Mellanox", "mlx5_ib"),
    (0x14e4, "Broadcom", "bnxt_re"),
    (0x8086, "Intel", "irdma"),
    (0x1d0f, "Amazon", "efa"),
];

/// The steps from kernel to user library.
pub fn checks(root: &Root, live: &Live) -> Vec<Check> {
    vec![
        kernel(root, live),
        hardware(root),
        device(root),
        library(root),
    ]
}

fn kernel(root: &Root, live: &Live) -> Check {
    const NAME: &str = "kernel support";
    let release = release(root);
    if live.rdma_netlink || is_module_there(root, "ib_core") {
        return Check::ok(NAME, format!("Linux {release}, RDMA core loaded"));
    }
    let modules = format!("/lib/modules/{release}");
    let listed = root.text(&format!("{modules}/modules.dep"));
    let has_core = listed
        .as_deref()
        .is_some_and(|text| text.contains("/ib_core.ko"));
    match (listed.is_some(), has_core) {
        (_, true) => Check::fail(
            NAME,
            format!("Linux {release}: RDMA core not loaded"),
            "modprobe -a ib_core ib_uverbs rdma_ucm",
        ),
        (true, false) => Check::fail(
            NAME,
            format!("Linux {release}: its modules have no RDMA core"),
            format!(
                "install the rest of the kernel's modules (linux-modules-extra-{release} on Ubuntu, kernel-modules-extra \
                 on Fedora), or boot a kernel with CONFIG_INFINIBAND"
            ),
        ),
        (false, false) => Check::fail(
            NAME,
            format!("Linux {release} has no RDMA core and no loadable modules in {modules}"),
            "boot a kernel with CONFIG_INFINIBAND=m and CONFIG_RDMA_RXE=m; a distribution's own kernel has both; without such a kernel use isolane rdma emulate",
        ),
    }
}

fn hardware(root: &Root) -> Check {
    const NAME: &str = "RDMA NIC";
    const NETWORK_CLASS: u64 = 0x02;
    let functions = root.list("/sys/bus/pci/devices").into_iter();
    let adapters: Vec<(String, &str, &str)> = functions
        .filter_map(|function| {
            let number =
                |file: &str| root.number(&format!("/sys/bus/pci/devices/{function}/{file}"));
            let vendor = number("vendor")?;
            let (_, name, module) = VENDORS.into_iter().find(|(id, _, _)| *id == vendor)?;
            (number("class")? >> 16 == NETWORK_CLASS).then_some((function, name, module))
        })
        .collect();
    let mut modules: Vec<&str> = adapters.iter().map(|(_, _, module)| *module).collect();
    modules.dedup();
    match &adapters[..] {
        [] => Check::warn(
            NAME,
            "no NIC on the PCI bus whose vendor makes RDMA NICs",
            "use a software device (next step), or a machine with an RDMA NIC",
        ),
        adapters => {
            let seen: Vec<String> = adapters
                .iter()
                .map(|(function, vendor, _)| format!("{function} {vendor}"))
                .collect();
            Check::warn(
                NAME,
                format!("{}, without an RDMA device", seen.join(", ")),
                format!(
                    "modprobe -a {}; not every model does RDMA, and some need it enabled in firmware",
                    modules.join(" ")
                ),
            )
        }
    }
}

fn device(root: &Root) -> Check {
    const NAME: &str = "RDMA device";
    let up = |name: &String| {
        let state = root.text(&format!("/sys/class/net/{name}/operstate"));
        name != "lo" && state.as_deref() == Some("up")
    };
    let names = root.list("/sys/class/net");
    let network_device = names.iter().find(|name| up(name));
    let network_device = network_device.map_or("NETDEV", String::as_str);
    Check::fail(
        NAME,
        "none in /sys/class/infiniband",
        format!(
            "modprobe rdma_rxe && rdma link add rxe0 type rxe netdev {network_device}   # a software device, for tests"
        ),
    )
}

fn library(root: &Root) -> Check {
    const NAME: &str = "user library";
    match verbs_library(root) {
        Some((file, Some(version))) => Check::ok(NAME, format!("rdma-core {version} ({file})")),
        Some((file, None)) => Check::ok(NAME, file),
        None => Check::fail(
            NAME,
            "no libibverbs.so.1 in the usual places",
            INSTALL_LIBRARY,
        ),
    }
}
