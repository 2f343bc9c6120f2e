//! What a measurement ran on: firmware, driver, kernel, and the settings of BIOS, bus and link.
//!
//! Problem: two runs of one workload differ, and the change of the machine between them is unknown. Method: a fixed list of small facts,
//! each read from a file of the kernel; a fact that the machine does not have is missing. Values are the kernel's own words, so
//! equal machines give equal facts. Limits: facts that only a vendor's tool reads (most of a card's configuration) are not here;
//! configuration space beyond 64 bytes needs root. No fact names a user, an address or a serial number.

use crate::counters::{Driver, network_device};
use crate::doctor::bus::device_control;
use isolane_common_linux::root::Root;
use std::collections::BTreeMap;
use std::fs;

/// Words of the kernel's command line that change latencies, memory or the bus; each begins so.
const BOOT_WORDS: [&str; 12] = [
    "iommu",
    "intel_iommu",
    "amd_iommu",
    "pci",
    "pcie_aspm",
    "mitigations",
    "isolcpus",
    "nohz_full",
    "intel_idle",
    "processor",
    "hugepages",
    "default_hugepagesz",
];

/// The facts about `device` and its machine, by name.
pub fn environment(root: &Root, device: &str, port: u32) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            facts.insert(name.to_owned(), value);
        }
    };
    let folder = format!("/sys/class/infiniband/{device}");
    let own = |file: &str| root.text(&format!("{folder}/{file}"));
    add("device", Some(device.to_owned()));
    let driver = Driver::of(root, device);
    add("driver", Some(driver.name().to_owned()));
    let module = format!("/sys/module/{}", driver.name());
    let version = root.text(&format!("{module}/version"));
    add(
        "driver_version",
        version.or_else(|| root.text(&format!("{module}/srcversion"))),
    );
    add("firmware", own("fw_ver"));
    add("model", own("hca_type"));
    add("board", own("board_id"));
    for file in ["link_layer", "rate"] {
        add(file, own(&format!("ports/{port}/{file}")));
    }
    bus(root, &folder, &mut add);
    if let Some(network) = network_device(root, device, port) {
        let folder = format!("/sys/class/net/{network}");
        add("network_mtu", root.text(&format!("{folder}/mtu")));
    }
    machine(root, &mut add);
    facts
}

fn bus(root: &Root, folder: &str, add: &mut impl FnMut(&str, Option<String>)) {
    let files = [
        ("pcie_speed", "current_link_speed"),
        ("pcie_width", "current_link_width"),
        ("numa_node", "numa_node"),
        ("pci_vendor", "vendor"),
        ("pci_device", "device"),
        ("pci_subsystem", "subsystem_device"),
        ("virtual_functions", "sriov_numvfs"),
    ];
    for (name, file) in files {
        add(name, root.text(&format!("{folder}/device/{file}")));
    }
    let config = fs::read(root.path(&format!("{folder}/device/config"))).unwrap_or_default();
    if let Some(control) = device_control(&config) {
        let size = |shift: u16| (128u32 << ((control >> shift) & 7)).to_string();
        add("pcie_read_request_bytes", Some(size(12)));
        add("pcie_payload_bytes", Some(size(5)));
        let relaxed = ["off", "on"][usize::from((control >> 4) & 1)];
        add("pcie_relaxed_ordering", Some(relaxed.to_owned()));
    }
    let group = format!("{folder}/device/iommu_group/type");
    add("iommu", root.text(&group));
}

fn machine(root: &Root, add: &mut impl FnMut(&str, Option<String>)) {
    let files = [
        ("kernel", "/proc/sys/kernel/osrelease"),
        ("bios_vendor", "/sys/class/dmi/id/bios_vendor"),
        ("bios_version", "/sys/class/dmi/id/bios_version"),
        ("bios_date", "/sys/class/dmi/id/bios_date"),
        ("mainboard", "/sys/class/dmi/id/board_name"),
        ("smt", "/sys/devices/system/cpu/smt/control"),
        (
            "cpu_governor",
            "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        ),
        ("huge_pages", "/sys/kernel/mm/transparent_hugepage/enabled"),
    ];
    for (name, path) in files {
        add(name, root.text(path));
    }
    let words = root.text("/proc/cmdline").unwrap_or_default();
    let words = words.split_whitespace().filter(|word| {
        let name = word.split(['=', '.']).next().unwrap_or(word);
        BOOT_WORDS.contains(&name)
    });
    let words: Vec<&str> = words.collect();
    add("boot_options", Some(words.join(" ")));
    let model = root.text("/proc/cpuinfo").unwrap_or_default();
    let line = model
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = line.map(|rest| rest.trim_start_matches([':', ' ', '\t']).to_owned());
    add("processor", model);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_come_from_the_kernels_files_and_absent_ones_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let put = |path: &str, bytes: &[u8]| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        let device = "sys/class/infiniband/mlx5_0";
        put(&format!("{device}/fw_ver"), b"22.39.1002\n");
        put(&format!("{device}/ports/1/rate"), b"200 Gb/sec (4X HDR)\n");
        // One capability, PCI Express at 0x40: reads of 4096 B, payload of 256 B, relaxed ordering.
        let mut config = [0u8; 128];
        config[0x34] = 0x40;
        config[0x40] = 0x10;
        config[0x48..0x4a].copy_from_slice(&0x5030u16.to_le_bytes());
        put(&format!("{device}/device/config"), &config);
        put("sys/class/dmi/id/bios_version", b"2.19\n");
        put(
            "proc/cmdline",
            b"root=/dev/sda1 iommu=pt pci=noats quiet intel_idle.max_cstate=0\n",
        );
        put("proc/cpuinfo", b"processor\t: 0\nmodel name\t: Some CPU\n");
        let facts = environment(&Root::at(directory.path()), "mlx5_0", 1);
        let lines: Vec<String> = facts
            .iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        expect_test::expect![[r#"
            bios_version: 2.19
            boot_options: iommu=pt pci=noats intel_idle.max_cstate=0
            device: mlx5_0
            driver: unknown
            firmware: 22.39.1002
            pcie_payload_bytes: 256
            pcie_read_request_bytes: 4096
            pcie_relaxed_ordering: on
            processor: Some CPU
            rate: 200 Gb/sec (4X HDR)"#]]
        .assert_eq(&lines.join("\n"));
    }
}
