//! Checks one device: access, link state and rate, addresses, MTU, users.

use super::live::PathMtu;
use super::machine::{bytes, daemons};
use super::{Check, Live};
use crate::counters::{self, Driver};
use crate::unheld::{Compared, Finder};
use isolane_common_linux::cgroup;
use isolane_common_linux::cgroup::{Limit, RdmaController, RdmaLimits};
use isolane_common_linux::root::Root;
use std::net::Ipv6Addr;

/// A port and its properties.
#[derive(Clone, Debug)]
pub struct Port {
    /// Device name.
    pub device: String,
    /// Port number, from 1.
    pub number: u32,
    /// Whether the link is Ethernet.
    pub ethernet: bool,
    /// Whether it is iWARP, which needs no lossless network and has no RoCE addresses.
    pub iwarp: bool,
    /// The network device below it.
    pub network_device: Option<String>,
}

impl Port {
    /// Reads port `number` of `device`.
    pub fn read(root: &Root, live: &Live, device: &str, number: u32) -> Self {
        let folder = format!("/sys/class/infiniband/{device}");
        let links = live.inventory.iter().flat_map(|inventory| &inventory.links);
        let named = links
            .filter(|link| link.device == device && link.port == number)
            .find_map(|link| link.network_device.clone());
        let layer = root.text(&format!("{folder}/ports/{number}/link_layer"));
        const RNIC: u64 = 4;
        Self {
            device: device.to_owned(),
            number,
            ethernet: layer.as_deref() == Some("Ethernet"),
            iwarp: root.number_before_colon(&format!("{folder}/node_type")) == Some(RNIC),
            network_device: named.or_else(|| counters::network_device(root, device, number)),
        }
    }

    /// Whether it is RoCE.
    pub fn is_roce(&self) -> bool {
        self.ethernet && !self.iwarp
    }

    /// The text of one of its files.
    pub fn text(&self, root: &Root, name: &str) -> Option<String> {
        root.text(&format!(
            "/sys/class/infiniband/{}/ports/{}/{name}",
            self.device, self.number
        ))
    }
}

/// The device file and the provider library.
pub fn access(root: &Root, device: &str, driver: &Driver) -> Vec<Check> {
    vec![device_file(root, device), provider(root, driver)]
}

fn device_file(root: &Root, device: &str) -> Check {
    const NAME: &str = "device file";
    const FOLDER: &str = "/sys/class/infiniband_verbs";
    let name = root
        .list(FOLDER)
        .into_iter()
        .find(|name| root.text(&format!("{FOLDER}/{name}/ibdev")).as_deref() == Some(device));
    let Some(name) = name else {
        return Check::fail(
            NAME,
            "the kernel offers no verbs for it",
            "modprobe ib_uverbs",
        );
    };
    let file = format!("/dev/infiniband/{name}");
    match root.exists(&file) {
        true => Check::ok(NAME, file),
        false => Check::fail(
            NAME,
            format!("no {file}"),
            format!("udevadm trigger; in a container, pass the device in: --device {file}"),
        ),
    }
}

/// The provider that libibverbs needs for the device, by the name in its configuration.
fn provider(root: &Root, driver: &Driver) -> Check {
    const NAME: &str = "provider";
    const FOLDER: &str = "/etc/libibverbs.d";
    let wanted = match driver {
        Driver::Mlx5 => "mlx5",
        Driver::Bnxt => "bnxt_re",
        Driver::Irdma => "irdma",
        Driver::Efa => "efa",
        Driver::Rxe => "rxe",
        Driver::Siw => "siw",
        Driver::Emulated => return Check::ok(NAME, "the broker's own library"),
        Driver::Other(name) => {
            return Check::unknown(
                NAME,
                format!("which one driver {name} needs is not known here"),
                "ibv_devinfo",
            );
        }
    };
    let files = root.list(FOLDER);
    let is_wanted = |name: &&String| {
        let text = root.text(&format!("{FOLDER}/{name}")).unwrap_or_default();
        text.split_whitespace()
            .skip_while(|word| *word != "driver")
            .nth(1)
            .is_some_and(|path| path.rsplit('/').next() == Some(wanted))
    };
    match files.iter().find(is_wanted) {
        Some(file) => Check::ok(NAME, format!("{wanted} ({FOLDER}/{file})")),
        None => Check::fail(
            NAME,
            format!("no provider {wanted} in {FOLDER}: programs will not see the device"),
            "apt-get install ibverbs-providers   # Debian, Ubuntu; dnf install libibverbs on Fedora, RHEL",
        ),
    }
}

/// The checks of one port.
pub fn port(root: &Root, live: &Live, port: &Port) -> Vec<Check> {
    let mut checks = vec![state(root, port), rate(root, port)];
    checks.push(mtu(root, live, port));
    if port.is_roce() {
        checks.push(addresses(root, port));
    }
    checks
}

fn state(root: &Root, port: &Port) -> Check {
    const NAME: &str = "link";
    let state = port.text(root, "state").unwrap_or_default();
    let physical = port.text(root, "phys_state").unwrap_or_default();
    let word = |text: &str| {
        text.split_once(": ")
            .map_or(text, |(_, word)| word)
            .to_owned()
    };
    let below = match &port.network_device {
        Some(name) => format!(" on {name}"),
        None => String::new(),
    };
    let layer = match (port.ethernet, port.iwarp) {
        (_, true) => "iWARP",
        (true, false) => "RoCE",
        (false, false) => "InfiniBand",
    };
    let seen = format!(
        "port {} {}, {}, {layer}{below}",
        port.number,
        word(&state),
        word(&physical)
    );
    match state.split(':').next().unwrap_or_default() {
        "4" => Check::ok(NAME, seen),
        "2" | "3" if !port.ethernet => Check::fail(
            NAME,
            seen,
            "no subnet manager has set the port up: systemctl start opensm on one host, or look at the switch",
        ),
        _ => Check::fail(
            NAME,
            seen,
            match &port.network_device {
                Some(name) => format!(
                    "ip link set dev {name} up; then look at cable, transceiver and switch port"
                ),
                None => "look at cable, transceiver and switch port; ibdiagnet".to_owned(),
            },
        ),
    }
}

fn rate(root: &Root, port: &Port) -> Check {
    const NAME: &str = "rate";
    let Some(text) = port.text(root, "rate") else {
        return Check::unknown(NAME, "the kernel does not say", "ibv_devinfo -v");
    };
    let seen = text.replace("Gb/sec", "Gbit/s");
    match !port.ethernet && (text.contains("(1X") || text.contains("(2X")) {
        true => Check::warn(
            NAME,
            format!("{seen}: fewer lanes than the four of a normal cable"),
            "reseat or change the cable; ibdiagnet -r",
        ),
        false => Check::ok(NAME, seen),
    }
}

/// Headers that a RoCE packet may add to its payload: GRH, UDP, BTH, XRC, atomic and the invariant check.
const ROCE_HEADER_BYTES: u64 = 96;
/// The largest payload of an InfiniBand packet.
const MOST_PATH_MTU: u64 = 4096;

fn mtu(root: &Root, live: &Live, port: &Port) -> Check {
    const NAME: &str = "MTU";
    let below = port
        .network_device
        .as_ref()
        .and_then(|name| Some((name, root.number(&format!("/sys/class/net/{name}/mtu"))?)));
    if port.iwarp {
        return match below {
            Some((name, mtu)) => {
                Check::ok(NAME, format!("{mtu} B of {name} (iWARP runs over TCP)"))
            }
            None => Check::unknown(NAME, "no network device found", "ip link"),
        };
    }
    let said = live.path_mtu.get(&(port.device.clone(), port.number));
    let path = said.copied().filter(|mtu| mtu.active > 0).or_else(|| {
        let (_, mtu) = below?;
        let payload = mtu.saturating_sub(ROCE_HEADER_BYTES);
        let active = [4096, 2048, 1024, 512, 256]
            .into_iter()
            .find(|size| u64::from(*size) <= payload)?;
        Some(PathMtu { active, most: 4096 })
    });
    let Some(path) = path else {
        return Check::unknown(
            NAME,
            "libibverbs does not report it, and no network device shows it",
            "ibv_devinfo -d DEVICE   # package ibverbs-utils",
        );
    };
    let of = below.map_or_else(String::new, |(name, mtu)| format!(", {name} {mtu} B"));
    let seen = format!("path {} B of at most {} B{of}", path.active, path.most);
    match (path.active < path.most, below) {
        (false, _) => Check::ok(NAME, seen),
        (true, Some((name, _))) => Check::warn(
            NAME,
            format!("{seen}: more packets and headers than needed"),
            format!(
                "ip link set dev {name} mtu {}   # and on every switch and peer of the path",
                MOST_PATH_MTU + ROCE_HEADER_BYTES + 8
            ),
        ),
        (true, None) => Check::warn(
            NAME,
            format!("{seen}: more packets and headers than needed"),
            "raise the partition's MTU at the subnet manager (opensm partitions.conf: mtu=5)",
        ),
    }
}

/// RoCE needs a version 2 GID; programs and rdma_cm use the one derived from an IPv4 address.
fn addresses(root: &Root, port: &Port) -> Check {
    const NAME: &str = "GID";
    let folder = format!(
        "/sys/class/infiniband/{}/ports/{}",
        port.device, port.number
    );
    let indices = root.list(&format!("{folder}/gids")).into_iter();
    let gids: Vec<(String, Ipv6Addr, bool)> = indices
        .filter_map(|index| {
            let address: Ipv6Addr = root.text(&format!("{folder}/gids/{index}"))?.parse().ok()?;
            let kind = root.text(&format!("{folder}/gid_attrs/types/{index}"))?;
            (!address.is_unspecified()).then(|| (index, address, kind.ends_with("v2")))
        })
        .collect();
    let version_2 = gids.iter().filter(|(_, _, version_2)| *version_2);
    let name = port.network_device.as_deref().unwrap_or("NETDEV");
    let add = format!("ip addr add ADDRESS/24 dev {name}");
    let mut version_2 = version_2.peekable();
    if version_2.peek().is_none() {
        return Check::fail(
            NAME,
            format!("no RoCE v2 entry among {}", gids.len()),
            format!("{add}; cma_roce_mode -d {} -m 2", port.device),
        );
    }
    match version_2.find_map(|(index, address, _)| Some((index, address.to_ipv4_mapped()?))) {
        Some((index, address)) => Check::ok(
            NAME,
            format!(
                "index {index} is RoCE v2, {address} ({} entries)",
                gids.len()
            ),
        ),
        None => Check::warn(
            NAME,
            "RoCE v2 with IPv6 addresses alone; many programs take an IPv4 one",
            add,
        ),
    }
}

/// The cgroups' limits for the device, if a cgroup has one.
pub fn limits(root: &Root, device: &str) -> Option<Check> {
    const SHOWN: usize = 4;
    let mut found = Vec::new();
    for path in cgroups(root) {
        let Ok(controller) = RdmaController::of(root, &path) else {
            continue;
        };
        let limits = controller.limits().unwrap_or_default();
        let Some(limits) = limits
            .get(device)
            .filter(|limits| **limits != RdmaLimits::default())
        else {
            continue;
        };
        let held = controller.current().unwrap_or_default();
        let held = held.get(device).copied().unwrap_or_default();
        let full = [
            (limits.handles, held.handles),
            (limits.objects, held.objects),
        ]
        .iter()
        .any(|(limit, held)| matches!(limit, Limit::AtMost(most) if held >= most));
        let seen = format!(
            "{path}: {} of {} contexts, {} of {} objects",
            held.handles, limits.handles, held.objects, limits.objects
        );
        found.push((full, seen));
    }
    let full: Vec<&str> = found
        .iter()
        .filter_map(|(full, seen)| full.then_some(seen.as_str()))
        .collect();
    let all: Vec<&str> = found
        .iter()
        .take(SHOWN)
        .map(|(_, seen)| seen.as_str())
        .collect();
    const NAME: &str = "cgroup limits";
    match (full.first(), all.first()) {
        (Some(_), _) => Some(Check::warn(
            NAME,
            format!("used up: {}", full.join("; ")),
            "raise rdma.max of that cgroup, or look why it holds so much: its next verbs call fails",
        )),
        (None, Some(_)) => Some(Check::ok(NAME, all.join("; "))),
        (None, None) => None,
    }
}

/// Paths of the cgroups down to a container's depth, up to a bounded count.
pub(crate) fn cgroups(root: &Root) -> Vec<String> {
    const DEPTH: usize = 4;
    const MOST: usize = 2000;
    let Some(mount) = cgroup::mount(root) else {
        return Vec::new();
    };
    let mut paths: Vec<String> = Vec::new();
    let mut level = vec![String::new()];
    for _ in 0..DEPTH {
        let mut next = Vec::new();
        for parent in &level {
            let names = root.list(&format!("{mount}{parent}")).into_iter();
            let paths = names.map(|name| format!("{parent}/{name}"));
            next.extend(paths.filter(|path| root.path(&format!("{mount}{path}")).is_dir()));
        }
        paths.extend(next.iter().cloned());
        if paths.len() > MOST {
            break;
        }
        level = next;
    }
    paths.truncate(MOST);
    paths
}

fn counted(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The current holders of the device's objects.
pub fn users(root: &Root, live: &Live, device: &str) -> Check {
    const NAME: &str = "users";
    const SHOWN: usize = 6;
    let inventory = match &live.inventory {
        Ok(inventory) => inventory,
        Err(error) => {
            return Check::unknown(
                NAME,
                format!("the kernel did not say: {error}"),
                format!("rdma resource show qp dev {device}"),
            );
        }
    };
    let processes = inventory.by_process(root);
    let mut users: Vec<String> = processes
        .iter()
        .filter_map(|entry| {
            let held = entry.devices.get(device)?;
            let command = match entry.process.command.as_str() {
                "" => "(ended)",
                command => command,
            };
            Some(format!(
                "{command} (pid {}): {}, {} of {}",
                entry.process.id,
                counted(held.queue_pairs, "queue pair"),
                counted(held.memory_regions, "memory region"),
                bytes(held.memory_bytes)
            ))
        })
        .collect();
    let count = users.len();
    users.truncate(SHOWN);
    if count > SHOWN {
        users.push(format!("{} more", count - SHOWN));
    }
    match count {
        0 => Check::ok(NAME, "no process"),
        _ => Check::ok(NAME, users.join("; ")),
    }
}

/// Users whose work the preload library cannot pace, while a daemon paces others.
pub fn unheld(root: &Root, live: &Live, device: &str) -> Vec<Check> {
    const NAME: &str = "not paced";
    const SHOWN: usize = 8;
    let (Ok(inventory), true) = (&live.inventory, root.exists(&live.software.socket)) else {
        return Vec::new();
    };
    let compared = Compared {
        devices: &[device.to_owned()],
        sessions: live.sessions.as_ref(),
        without: &daemons(root).collect::<Vec<_>>(),
    };
    let found = Finder::default().find(root, inventory, compared);
    let foreign = live.foreign.get(device).map(|&bytes_per_s| {
        let seen = format!(
            "{:.3} Gb/s that no session posted",
            bytes_per_s as f64 * 8.0 / 1e9
        );
        let action = "end that traffic or limit it with isolane rdma enforce: until then, latencies lower no rate";
        Check::warn(NAME, seen, action)
    });
    let mut checks: Vec<Check> = foreign
        .into_iter()
        .chain(found.iter().take(SHOWN).map(|one| {
            let seen = format!("{} (pid {}) {}", one.program, one.pid, one.what());
            Check::warn(NAME, seen, one.reason.remedy())
        }))
        .collect();
    match found.len() {
        0 if checks.is_empty() => checks.push(Check::ok(NAME, "no process")),
        count if count > SHOWN => {
            let more = format!("{} more", count - SHOWN);
            checks.push(Check::warn(NAME, more, "isolane rdma top"));
        }
        _ => {}
    }
    checks
}
