//! One value of one object of the kernel: what a plan sets, what a journal records.

pub(crate) use isolane_rdma_inventory::dcb::Selection;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Bits per second in the unit of devices: one megabit per second. mlx5, ice and netdevsim reject finer rates.
pub(crate) const RATE_UNIT_BPS: u64 = 1_000_000;

/// An object of the kernel that has a value.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Target {
    /// A group of functions in devlink's tree of rates.
    RateNode {
        /// Bus and device: `pci/0000:03:00.0`.
        handle: String,
        /// Name of the group.
        node: String,
    },
    /// A function in devlink's tree of rates.
    RateLeaf {
        /// Bus and device.
        handle: String,
        /// Index of the devlink port.
        port: u32,
    },
    /// The rate of a virtual function at its physical function.
    FunctionRate {
        /// Network device of the physical function.
        network_device: String,
        /// Number of the virtual function.
        number: u32,
    },
    /// Scheduling of traffic classes.
    Classes {
        /// The network device.
        network_device: String,
    },
    /// The priority of packets with one DSCP.
    Dscp {
        /// The network device.
        network_device: String,
        /// The DSCP, 0 to 63.
        dscp: u8,
    },
    /// Priorities that the port pauses.
    FlowControl {
        /// The network device.
        network_device: String,
    },
    /// Receive buffers.
    Buffers {
        /// The network device.
        network_device: String,
    },
    /// Most RDMA objects of a cgroup.
    Objects {
        /// Path of the cgroup below the mount.
        cgroup: String,
        /// Name of the RDMA device.
        device: String,
    },
}

/// The value of a [`Target`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Value {
    /// The object does not exist.
    Absent,
    /// Of a [`Target::RateNode`] or [`Target::RateLeaf`].
    Rate(Rate),
    /// Of a [`Target::FunctionRate`].
    FunctionRate {
        /// Guaranteed rate, Mb/s; 0 for none.
        share_mbps: u32,
        /// Largest rate, Mb/s; 0 for none.
        max_mbps: u32,
    },
    /// Of [`Target::Classes`].
    Classes(Classes),
    /// Of a [`Target::Dscp`].
    Dscp {
        /// The priorities, ascending; the kernel uses the highest. Empty: the driver's default.
        priorities: Vec<u8>,
    },
    /// Of [`Target::FlowControl`].
    FlowControl {
        /// One bit per priority: 0x08 is priority 3.
        enabled: u8,
    },
    /// Of [`Target::Buffers`].
    Buffers {
        /// The buffer of each priority.
        buffer_of_priority: [u8; 8],
        /// Size of each buffer, bytes.
        sizes_bytes: [u32; 8],
    },
    /// Of [`Target::Objects`].
    Objects {
        /// Most open device files; absent for no limit.
        handles_max: Option<u32>,
        /// Most objects of all kinds; absent for no limit.
        objects_max: Option<u32>,
    },
}

/// Rates of a function or a group in devlink.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Rate {
    /// Guaranteed rate, bits per second; 0 for none.
    pub share_bps: u64,
    /// Largest rate, bits per second; 0 for none.
    pub max_bps: u64,
    /// The group that it belongs to.
    pub parent: Option<String>,
}

/// Scheduling of traffic classes (enhanced transmission selection).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Classes {
    /// Guaranteed share of each class, percent; used only with [`Selection::Share`].
    pub share_percent: [u8; 8],
    /// Scheduling of each class.
    pub selection: [Selection; 8],
    /// The class of each priority.
    pub class_of_priority: [u8; 8],
}

impl Value {
    /// Whether a write from `before` to `after` that was cut off can leave this value. Writes of several numbers are
    /// several changes in some drivers.
    pub fn is_between(&self, before: &Self, after: &Self) -> bool {
        match (self, before, after) {
            (Self::Rate(now), before, after) => {
                let (before, after) = (before.rate(), after.rate());
                let one_of = |of: fn(&Rate) -> u64| of(now) == of(&before) || of(now) == of(&after);
                one_of(|rate| rate.share_bps)
                    && one_of(|rate| rate.max_bps)
                    && (now.parent == before.parent || now.parent == after.parent)
            }
            (
                Self::Dscp { priorities },
                Self::Dscp { priorities: before },
                Self::Dscp { priorities: after },
            ) => priorities
                .iter()
                .all(|priority| before.contains(priority) || after.contains(priority)),
            _ => self == before || self == after,
        }
    }

    /// The rate of a group or function; that of a missing group is the default of a new one.
    fn rate(&self) -> Rate {
        match self {
            Self::Rate(rate) => rate.clone(),
            _ => Rate::default(),
        }
    }
}

/// A device that can be renamed, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renamable<'a> {
    /// A network device.
    Network(&'a str),
    /// An RDMA device.
    Rdma(&'a str),
}

impl Renamable<'_> {
    /// The name.
    pub const fn name(&self) -> &str {
        match self {
            Self::Network(name) | Self::Rdma(name) => name,
        }
    }
}

impl Target {
    /// The device that it names; `None` for devlink's handles, which are addresses of a bus.
    pub fn renamable(&self) -> Option<Renamable<'_>> {
        match self {
            Self::RateNode { .. } | Self::RateLeaf { .. } => None,
            Self::FunctionRate { network_device, .. }
            | Self::Classes { network_device }
            | Self::Dscp { network_device, .. }
            | Self::FlowControl { network_device }
            | Self::Buffers { network_device } => Some(Renamable::Network(network_device)),
            Self::Objects { device, .. } => Some(Renamable::Rdma(device)),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::RateNode { handle, node } => format!("rate of {handle}/{node}"),
            Self::RateLeaf { handle, port } => format!("rate of {handle}/{port}"),
            Self::FunctionRate {
                network_device,
                number,
            } => format!("rate of {network_device} vf {number}"),
            Self::Classes { network_device } => format!("traffic classes of {network_device}"),
            Self::Dscp {
                network_device,
                dscp,
            } => format!("DSCP {dscp} of {network_device}"),
            Self::FlowControl { network_device } => format!("flow control of {network_device}"),
            Self::Buffers { network_device } => format!("buffers of {network_device}"),
            Self::Objects { cgroup, device } => format!("rdma.max of {cgroup} on {device}"),
        };
        formatter.pad(&text)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Absent => "absent".to_owned(),
            Self::Rate(rate) => rate_text(rate),
            Self::FunctionRate {
                share_mbps,
                max_mbps,
            } => {
                let bps = |mbps: u32| u64::from(mbps) * RATE_UNIT_BPS;
                bounds(bps(*share_mbps), bps(*max_mbps))
            }
            Self::Classes(classes) => classes_text(classes),
            Self::Dscp { priorities } if priorities.is_empty() => "no priority".to_owned(),
            Self::Dscp { priorities } => format!("priority {}", list(priorities)),
            Self::FlowControl { enabled: 0 } => "no priority".to_owned(),
            Self::FlowControl { enabled } => {
                let on: Vec<u8> = (0..8).filter(|bit| enabled & (1 << bit) != 0).collect();
                format!("priority {}", list(&on))
            }
            Self::Buffers {
                buffer_of_priority,
                sizes_bytes,
            } => buffers_text(buffer_of_priority, sizes_bytes),
            Self::Objects {
                handles_max,
                objects_max,
            } => {
                let most = |limit: &Option<u32>| limit.map_or("max".to_owned(), |n| n.to_string());
                format!(
                    "hca_handle={} hca_object={}",
                    most(handles_max),
                    most(objects_max)
                )
            }
        };
        formatter.pad(&text)
    }
}

fn list(numbers: &[u8]) -> String {
    let words: Vec<String> = numbers.iter().map(u8::to_string).collect();
    words.join(",")
}

/// A rate in the largest unit that needs no rounding.
pub(crate) fn rate_shown(bps: u64) -> String {
    let units = [(1_000_000_000, "Gb/s"), (1_000_000, "Mb/s")];
    match units.iter().find(|(unit, _)| bps >= *unit) {
        None => format!("{bps} b/s"),
        Some((unit, name)) => {
            let whole = bps / unit;
            let fraction = format!(
                "{:09}",
                u128::from(bps % unit) * 1_000_000_000 / u128::from(*unit)
            );
            match fraction.trim_end_matches('0') {
                "" => format!("{whole} {name}"),
                digits => format!("{whole}.{digits} {name}"),
            }
        }
    }
}

fn bounds(share_bps: u64, max_bps: u64) -> String {
    let one = |name: &str, bps: u64| match bps {
        0 => format!("no {name}"),
        bps => format!("{name} {}", rate_shown(bps)),
    };
    format!("{}, {}", one("tx_share", share_bps), one("tx_max", max_bps))
}

fn rate_text(rate: &Rate) -> String {
    let parent = rate.parent.as_ref();
    let parent = parent.map_or(String::new(), |parent| format!(", in {parent}"));
    format!("{}{parent}", bounds(rate.share_bps, rate.max_bps))
}

/// The classes that have priorities.
fn classes_text(classes: &Classes) -> String {
    let mut words = Vec::new();
    for class in 0..8u8 {
        let place = usize::from(class);
        let of: Vec<u8> = (0..8u8)
            .filter(|priority| classes.class_of_priority[usize::from(*priority)] == class)
            .collect();
        if of.is_empty() {
            continue;
        }
        let served = match classes.selection[place] {
            Selection::Strict => "strict".to_owned(),
            Selection::Share => format!("{} %", classes.share_percent[place]),
            Selection::CreditShaper => "credit shaper".to_owned(),
            Selection::Vendor => "vendor".to_owned(),
        };
        words.push(format!("class {class} {served} (priority {})", list(&of)));
    }
    words.join(", ")
}

fn buffers_text(buffer_of_priority: &[u8; 8], sizes: &[u32; 8]) -> String {
    let mut words = Vec::new();
    for buffer in 0..8u8 {
        let of: Vec<u8> = (0..8u8)
            .filter(|priority| buffer_of_priority[usize::from(*priority)] == buffer)
            .collect();
        let size = sizes[usize::from(buffer)];
        if !of.is_empty() || size > 0 {
            words.push(format!("buffer {buffer} {size} B (priority {})", list(&of)));
        }
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_shown_without_rounding() {
        assert_eq!(rate_shown(100_000_000_000), "100 Gb/s");
        assert_eq!(rate_shown(33_333_000_000), "33.333 Gb/s");
        assert_eq!(rate_shown(40_000_000), "40 Mb/s");
        assert_eq!(rate_shown(999), "999 b/s");
    }

    #[test]
    fn a_cut_off_write_is_between_and_a_third_value_is_not() {
        let rate = |share_bps, max_bps| {
            Value::Rate(Rate {
                share_bps,
                max_bps,
                parent: None,
            })
        };
        let (before, after) = (rate(0, 0), rate(10, 20));
        assert!(rate(10, 0).is_between(&before, &after));
        assert!(rate(10, 20).is_between(&before, &after));
        assert!(!rate(5, 0).is_between(&before, &after));
        assert!(rate(0, 0).is_between(&Value::Absent, &after));
        let dscp = |priorities: &[u8]| Value::Dscp {
            priorities: priorities.to_vec(),
        };
        assert!(dscp(&[]).is_between(&dscp(&[3]), &dscp(&[5])));
        assert!(!dscp(&[4]).is_between(&dscp(&[3]), &dscp(&[5])));
    }
}
