//! A network device with everything that affects the fairness and latency of its flows.
//!
//! Method: rtnetlink for the device and its queueing disciplines, ethtool's netlink for the driver, sysfs for queues
//! and speed, procfs for TCP. Units: bytes, microseconds, Mb/s; the unit ends the name. Limits: a value that a kernel
//! or driver does not report is `None`; nothing is guessed.

use crate::error::NicError;
use crate::ethtool::{self, Driver};
use crate::link::{Link, Route, Sizes};
use crate::qdisc::{self, Disciplines, Filter};
use crate::queues::{self, Queue};
use crate::system::System;
use isolane_ethernet_policy::titan::QUEUES_MAX;
use serde::Serialize;

/// A network device as the host reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Device {
    /// Name in its network namespace.
    pub name: String,
    /// Name of its network namespace, if it was entered by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Interface index in its namespace.
    pub index: u32,
    /// Driver name, such as `mlx5_core` or `veth`.
    pub driver: String,
    /// Whether the interface is up.
    pub up: bool,
    /// MTU, bytes.
    pub mtu_bytes: u32,
    /// Link speed, Mb/s; `None` if the driver does not report it.
    pub speed_mbps: Option<u32>,
    /// Number of processors of the machine.
    pub processors: u16,
    /// Lower devices of a bond, a bridge or a VLAN.
    pub lower: Vec<String>,
    /// Transmit queues in use.
    pub queues: Vec<Queue>,
    /// Number of transmit queues that the device was made with, or that its driver can use.
    pub queues_max: u32,
    /// Its queueing disciplines.
    #[serde(skip)]
    pub disciplines: Disciplines,
    /// The disciplines as text: `mq with 8 fq_codel`.
    pub discipline: String,
    /// Programs on egress.
    pub egress: Vec<Filter>,
    /// Segment size limits.
    #[serde(flatten)]
    pub sizes: Sizes,
    /// Largest number of packets in a segment.
    pub gso_max_segments: u32,
    /// What the driver reports: offloads, moderation, channels.
    #[serde(flatten)]
    pub offloads: Driver,
    /// TCP settings.
    pub tcp: Tcp,
}

/// TCP settings that affect the device's flows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Tcp {
    /// Limit of TCP Small Queues: a flow's bytes below TCP.
    pub limit_output_bytes: Option<u64>,
    /// Congestion control algorithm.
    pub congestion_control: Option<String>,
}

impl Device {
    /// Reads the device of that name in this thread's namespace. Fails with [`NicError::NoDevice`] or the kernel's
    /// error.
    pub fn read(system: &System, name: &str) -> Result<Self, NicError> {
        let mut route = Route::open()?;
        let link = route.link(name)?;
        let disciplines = qdisc::read(&mut route, link.index)?;
        let egress = qdisc::egress(&mut route, link.index)?;
        let offloads = ethtool::read(link.index)?;
        Ok(Self::of(system, link, disciplines, egress, offloads))
    }

    /// Combines the answers of the sockets and the files.
    pub fn of(
        system: &System,
        link: Link,
        disciplines: Disciplines,
        egress: Vec<Filter>,
        offloads: Driver,
    ) -> Self {
        let queues = queues::read(system, &link.name);
        let channels_max = offloads.channels.map_or(0, |channels| channels.queues_max);
        let speed = system.sys().text(&format!("class/net/{}/speed", link.name));
        Self {
            netns: system.entered().map(str::to_owned),
            driver: driver(system, &link),
            up: link.up,
            mtu_bytes: link.mtu,
            speed_mbps: speed
                .and_then(|text| text.parse().ok())
                .filter(|speed| *speed > 0),
            processors: system.processors(),
            lower: lower(system, &link.name),
            queues,
            queues_max: match channels_max {
                0 => link.queues_max,
                channels => channels,
            },
            discipline: disciplines.text(),
            disciplines,
            egress,
            sizes: link.sizes,
            gso_max_segments: link.gso_max_segments,
            offloads,
            tcp: Tcp {
                limit_output_bytes: system.proc().number("sys/net/ipv4/tcp_limit_output_bytes"),
                congestion_control: system.proc().text("sys/net/ipv4/tcp_congestion_control"),
            },
            index: link.index,
            name: link.name,
        }
    }

    /// Rejects a software device that cannot have more queues, such as the loopback. Fails with [`NicError::Software`].
    pub(crate) fn refuse_software(&self, system: &System) -> Result<(), NicError> {
        // These kinds have as many queues as requested at their creation.
        let can_have_more = ["veth", "tun"].contains(&self.driver.as_str()) || self.queues_max > 1;
        if can_have_more || self.queues.len() > 1 || !self.lower.is_empty() {
            return Ok(());
        }
        let has_card = |name: &str| {
            let files = system.sys().list(&format!("class/net/{name}"));
            files.iter().any(|file| file == "device")
        };
        if has_card(&self.name) {
            return Ok(());
        }
        let mut cards = system.sys().list("class/net");
        cards.retain(|name| has_card(name));
        Err(NicError::Software {
            device: self.name.clone(),
            cards,
        })
    }

    /// Number of queues that can be managed.
    pub fn managed_queues(&self) -> u16 {
        let queues = u16::try_from(self.queues.len()).unwrap_or(u16::MAX);
        queues.min(QUEUES_MAX)
    }

    /// The command that sets one transmit queue per processor, as far as the driver permits; `None` if it cannot have
    /// more queues.
    pub fn more_queues(&self) -> Option<String> {
        let channels = self.offloads.channels?;
        let (kind, most) = match channels.combined_max {
            0 => ("tx", channels.queues_max),
            combined => ("combined", combined),
        };
        let queues = most.min(u32::from(self.processors.max(2)));
        (queues > channels.queues.max(1))
            .then(|| self.command(&format!("ethtool -L {} {kind} {queues}", self.name)))
    }

    /// A command in the form for the device's namespace.
    pub fn command(&self, command: &str) -> String {
        match &self.netns {
            None => command.to_owned(),
            Some(netns) if command.starts_with("isolane ") => format!("{command} --netns {netns}"),
            Some(netns) if command.contains([';', '$']) => {
                format!("ip netns exec {netns} sh -c '{command}'")
            }
            Some(netns) => format!("ip netns exec {netns} {command}"),
        }
    }

    /// Whether the device itself segments TCP packets (TSO).
    pub fn cuts_segments(&self) -> bool {
        self.offloads.features.contains("tx-tcp-segmentation")
    }

    /// Whether any XPS map is set.
    pub fn has_maps(&self) -> bool {
        let is_set = |queue: &Queue| queue.processors.is_some() || queue.receive_queues.is_some();
        self.queues.iter().any(is_set)
    }

    /// Whether freed packets count as sent. Devices that only pass packets to another device never report when a packet
    /// has left.
    pub fn frees_what_it_sent(&self) -> bool {
        !matches!(self.driver.as_str(), "veth" | "ifb" | "dummy" | "netkit")
    }
}

/// The driver: the bound driver of hardware, the kind of a software device.
fn driver(system: &System, link: &Link) -> String {
    let bound = system
        .sys()
        .link_name(&format!("class/net/{}/device/driver", link.name));
    let kind = || link.kind.clone();
    bound.or_else(kind).unwrap_or_else(|| "unknown".to_owned())
}

/// The lower devices, from sysfs links.
pub(crate) fn lower(system: &System, name: &str) -> Vec<String> {
    let links = system.sys().list(&format!("class/net/{name}"));
    let below = links.iter().filter_map(|link| link.strip_prefix("lower_"));
    below.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_device_without_a_card_is_refused_with_those_that_have_one() {
        let directory = tempfile::tempdir().unwrap();
        let sys = directory.path().join("sys/class/net");
        fs::create_dir_all(sys.join("lo")).unwrap();
        fs::create_dir_all(sys.join("eth0/device")).unwrap();
        let system = System::at(directory.path());
        let refusal = |name: &str, driver: &str| {
            let device = Device {
                name: name.to_owned(),
                driver: driver.to_owned(),
                queues_max: 1,
                ..Device::default()
            };
            device.refuse_software(&system).err()
        };
        let said = refusal("lo", "unknown").unwrap().to_string();
        assert_eq!(
            said,
            "lo is a software device: it has no hardware queues among which flows could be divided; devices of NICs: eth0"
        );
        assert!(refusal("eth0", "virtio_net").is_none());
        assert!(refusal("veth0", "veth").is_none());
    }

    #[test]
    fn sockets_and_files_are_put_together() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for queue in 0..4 {
            write(
                &format!("sys/class/net/eth0/queues/tx-{queue}/xps_cpus"),
                "0\n",
            );
        }
        write("sys/class/net/eth0/speed", "10000\n");
        write("sys/class/net/eth0/lower_eth1/mtu", "1500\n");
        write("sys/devices/system/cpu/online", "0-7\n");
        write("proc/sys/net/ipv4/tcp_limit_output_bytes", "4194304\n");
        let link = Link {
            index: 3,
            name: "eth0".to_owned(),
            queues_max: 64,
            ..Link::default()
        };
        let system = System::at(directory.path());
        let device = Device::of(
            &system,
            link,
            Disciplines::default(),
            Vec::new(),
            Driver::default(),
        );
        assert_eq!(
            (
                device.managed_queues(),
                device.queues_max,
                device.processors
            ),
            (4, 64, 8)
        );
        assert_eq!(device.lower, ["eth1"]);
        assert_eq!(device.speed_mbps, Some(10_000));
        assert_eq!(device.tcp.limit_output_bytes, Some(4_194_304));
        assert!(!device.has_maps() && device.frees_what_it_sent());
    }

    #[test]
    fn loopback_is_read_on_this_machine() {
        let device = Device::read(&System::machine(), "lo").unwrap();
        assert_eq!((device.index, device.managed_queues()), (1, 1));
    }
}
