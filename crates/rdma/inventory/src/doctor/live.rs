//! The doctor's inputs that are not files: sockets, programs, limits, and Isolane's own parts.

use crate::dcb::{self, Bridging};
use crate::inventory::Inventory;
use crate::rdma::Connection;
use crate::unheld::Session;
use isolane_common_linux::root::Root;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// Facts of a running machine.
#[derive(Clone, Debug)]
pub struct Live {
    /// The kernel's inventory, or why it cannot be read.
    pub inventory: Result<Inventory, String>,
    /// Whether the kernel supports NETLINK_RDMA.
    pub rdma_netlink: bool,
    /// DCB settings by network device; devices without DCB are missing.
    pub bridging: BTreeMap<String, Bridging>,
    /// Path MTU by device and port, from libibverbs.
    pub path_mtu: BTreeMap<(String, u32), PathMtu>,
    /// RLIMIT_MEMLOCK of this process, bytes; `None` for no limit.
    pub locked_memory_bytes: Option<u64>,
    /// Whether this process has all privileges.
    pub privileged: bool,
    /// Isolane's own parts.
    pub software: Software,
    /// The daemon's sessions by process id; `None` if the daemon did not answer.
    pub sessions: Option<BTreeMap<u32, Session>>,
    /// Bytes per second that no session posted, by device, where the daemon measured much.
    pub foreign: BTreeMap<String, u64>,
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
            sessions: None,
            foreign: BTreeMap::new(),
        }
    }
}

/// Largest payload of a packet, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathMtu {
    /// Active value.
    pub active: u32,
    /// Largest value that the device supports.
    pub most: u32,
}

/// The caller's data about Isolane's own parts.
#[derive(Clone, Debug)]
pub struct Software {
    /// Version of this program.
    pub version: String,
    /// Path of the daemon's socket.
    pub socket: String,
    /// Path of the shim, or why it is not found.
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
    /// Reads this machine. Values that cannot be read stay empty.
    pub fn read(root: &Root, software: Software) -> Self {
        let connection = Connection::open();
        let rdma_netlink = connection.is_ok();
        let by_kernel = connection
            .and_then(|mut connection| Inventory::read(&mut connection, None))
            .map_err(|error| error.to_string());
        let inventory = Inventory::of_emulated(root, None).map_or(by_kernel, Ok);
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
            sessions: None,
            foreign: BTreeMap::new(),
        }
    }
}

/// Runs `ibv_devinfo`, which needs no privilege; empty if it is not installed.
fn path_mtu() -> BTreeMap<(String, u32), PathMtu> {
    let output = Command::new("ibv_devinfo").output();
    output.map_or_else(
        |_| BTreeMap::new(),
        |output| parse_path_mtu(&String::from_utf8_lossy(&output.stdout)),
    )
}

/// Parses `hca_id:`, `port:`, `max_mtu:` and `active_mtu:` lines; ignores others.
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
