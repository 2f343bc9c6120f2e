//! What the doctor looks at that is no file: sockets, programs, limits, and our own parts.

use crate::dcb::{self, Bridging};
use crate::inventory::Inventory;
use crate::rdma::Connection;
use isolane_common_linux::root::Root;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// Facts of a running machine.
#[derive(Clone, Debug)]
pub struct Live {
    /// The kernel's inventory, or why there is none.
    pub inventory: Result<Inventory, String>,
    /// True when the kernel knows NETLINK_RDMA.
    pub rdma_netlink: bool,
    /// DCB settings by network device; a device whose driver has none is missing.
    pub bridging: BTreeMap<String, Bridging>,
    /// Path MTU of ports, by device and port, as libibverbs says.
    pub path_mtu: BTreeMap<(String, u32), PathMtu>,
    /// RLIMIT_MEMLOCK of this process in bytes; none for no limit.
    pub locked_memory_bytes: Option<u64>,
    /// True when this process may do everything.
    pub privileged: bool,
    /// Our own parts.
    pub software: Software,
}

impl Default for Live {
    fn default() -> Self {
        Self {
            inventory: Err("not read".to_owned()),
            rdma_netlink: false,
            bridging: BTreeMap::new(),
            path_mtu: BTreeMap::new(),
            locked_memory_bytes: None,
            privileged: false,
            software: Software::default(),
        }
    }
}

/// The largest payload of a packet, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathMtu {
    /// In use now.
    pub active: u32,
    /// The device's most.
    pub most: u32,
}

/// What the caller knows of Isolane's own parts.
#[derive(Clone, Debug)]
pub struct Software {
    /// Version of this program.
    pub version: String,
    /// Where the daemon listens.
    pub socket: String,
    /// Where the shim lies, or why it is not found.
    pub shim: Result<PathBuf, String>,
}

impl Default for Software {
    fn default() -> Self {
        Self {
            version: String::new(),
            socket: String::new(),
            shim: Err("not looked for".to_owned()),
        }
    }
}

impl Live {
    /// Looks at this machine. What cannot be looked at stays empty.
    pub fn read(root: &Root, software: Software) -> Self {
        let connection = Connection::open();
        let rdma_netlink = connection.is_ok();
        let inventory = connection
            .and_then(|mut connection| Inventory::read(&mut connection, None))
            .map_err(|error| error.to_string());
        let mut bridging = BTreeMap::new();
        if let (Ok(mut socket), Ok(inventory)) = (dcb::open(), &inventory) {
            for name in inventory
                .links
                .iter()
                .filter_map(|link| link.network_device.clone())
            {
                if let Ok(Some(found)) = dcb::read(&mut socket, &name) {
                    bridging.insert(name, found);
                }
            }
        }
        let has_devices = !root.list("/sys/class/infiniband").is_empty();
        Self {
            inventory,
            rdma_netlink,
            bridging,
            path_mtu: if has_devices {
                path_mtu()
            } else {
                BTreeMap::new()
            },
            locked_memory_bytes: rustix::process::getrlimit(rustix::process::Resource::Memlock)
                .current,
            privileged: rustix::process::geteuid().is_root(),
            software,
        }
    }
}

/// Asks `ibv_devinfo`, which needs no privilege; empty where it is not installed.
fn path_mtu() -> BTreeMap<(String, u32), PathMtu> {
    let output = Command::new("ibv_devinfo").output();
    output.map_or_else(
        |_| BTreeMap::new(),
        |output| parse_path_mtu(&String::from_utf8_lossy(&output.stdout)),
    )
}

/// `hca_id:`, `port:`, `max_mtu:` and `active_mtu:` lines; others are passed over.
pub fn parse_path_mtu(text: &str) -> BTreeMap<(String, u32), PathMtu> {
    let mut found: BTreeMap<(String, u32), PathMtu> = BTreeMap::new();
    let (mut device, mut port) = (String::new(), 0);
    for line in text.lines() {
        let Some((key, value)) = line.trim().split_once(':') else {
            continue;
        };
        let value = value.split_whitespace().next().unwrap_or_default();
        let number = value.parse().unwrap_or(0);
        match key {
            "hca_id" => value.clone_into(&mut device),
            "port" => port = number,
            "max_mtu" => found.entry((device.clone(), port)).or_default().most = number,
            "active_mtu" => found.entry((device.clone(), port)).or_default().active = number,
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtus_are_read_per_port() {
        let text = "hca_id:\tr0\n\tphys_port_cnt:\t1\n\t\tport:\t1\n\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tactive_mtu:\t\t1024 (3)\n\nhca_id:\tr1\n\t\tport:\t2\n\t\t\tmax_mtu:\t2048 (4)\n";
        let found = parse_path_mtu(text);
        assert_eq!(
            found[&("r0".to_owned(), 1)],
            PathMtu {
                active: 1024,
                most: 4096
            }
        );
        assert_eq!(
            found[&("r1".to_owned(), 2)],
            PathMtu {
                active: 0,
                most: 2048
            }
        );
    }
}
