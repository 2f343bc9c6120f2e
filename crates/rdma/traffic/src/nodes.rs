//! NUMA nodes for the buffers of a device: which there are, and which one a place of a scenario means.
//!
//! Method: the kernel's files say which nodes have memory and processors, which of them this process may use, and to which node
//! a device is attached. `local` is the device's node. `remote-socket` is another node: of those with processors, else of
//! the others, the lowest. A device without a node (software devices, some virtual machines) counts as attached to the
//! only node with processors; on a machine with several of them its node is unknown.
//! Source: the kernel's documentation of `/sys/devices/system/node` and of PCI devices' `numa_node`; cpuset(7).
//! Limits: buffers are bound, threads and the device's own queues are not.

use isolane_common_linux::Root;
use isolane_rdma_scenario::model::MemoryPlace;
use serde::{Deserialize, Serialize};

/// The nodes of a machine, seen from one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nodes {
    /// The device's node; absent where it is unknown.
    pub device: Option<u32>,
    /// Nodes whose memory this process may use, in order.
    pub memory: Vec<u32>,
    /// Nodes with processors, in order.
    pub processors: Vec<u32>,
    /// What [`has_gpu`] says; [`Nodes::read`] does not look.
    #[serde(default)]
    pub gpu: bool,
}

/// Why buffers cannot be where a tenant wants them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum NoNode {
    #[error(
        "memory \"remote-socket\" of {device}: this process may use memory of NUMA node {node} only; use memory \"local\", \
         or a machine with two sockets (a cpuset may hide one: Mems_allowed_list in /proc/self/status)"
    )]
    One { device: String, node: String },
    #[error(
        "memory \"remote-socket\" of {device}: the NUMA node of the device is unknown; set it, for example \
         `echo 0 > /sys/class/infiniband/{device}/device/numa_node`, or use memory \"local\""
    )]
    Unknown { device: String },
    #[error(
        "memory \"local\" of {device}: the device is at NUMA node {node}, and this process may use memory of {allowed} only; \
         start it in a cpuset with that node, or use memory \"remote-socket\""
    )]
    Forbidden {
        device: String,
        node: u32,
        allowed: String,
    },
    #[error(
        "memory \"gpu\" of {device}: the machine has no NVIDIA GPU that exports memory as dma-buf; use the open kernel modules of \
         driver 515 or newer (`nvidia-smi` lists GPUs), or use memory \"local\" or \"remote-socket\""
    )]
    Gpu { device: String },
}

/// Whether the first NVIDIA GPU exports its memory to devices. Takes up to a second where there is a driver.
pub fn has_gpu() -> bool {
    isolane_rdma_verbs_sys::safe::gpu().is_ok()
}

impl Nodes {
    /// The nodes of the machine at `root`, seen from `device`.
    pub fn read(root: &Root, device: &str) -> Self {
        let set = |file: &str| {
            let path = format!("/sys/devices/system/node/{file}");
            parse_list(&root.text(&path).unwrap_or_default())
        };
        let (mut memory, processors) = (set("has_memory"), set("has_cpu"));
        if let Some(allowed) = allowed(root) {
            memory.retain(|node| allowed.contains(node));
        }
        let own = root.text(&format!("/sys/class/infiniband/{device}/device/numa_node"));
        let own = own.and_then(|text| text.parse().ok());
        Self {
            // The kernel says -1 for a device without a node.
            device: own.or(match processors[..] {
                [only] => Some(only),
                _ => None,
            }),
            memory,
            processors,
            gpu: false,
        }
    }

    /// The node of buffers at `place` for `device`; none where the kernel has no choice, or where the node of local memory
    /// is unknown.
    pub fn of(&self, device: &str, place: MemoryPlace) -> Result<Option<u32>, NoNode> {
        let device = device.to_owned();
        match (place, self.device) {
            (MemoryPlace::Gpu, _) if self.gpu => Ok(None),
            (MemoryPlace::Gpu, _) => Err(NoNode::Gpu { device }),
            (MemoryPlace::Local, None) => Ok(None),
            (MemoryPlace::Local, Some(node)) if self.memory.contains(&node) => {
                Ok((self.memory.len() > 1).then_some(node))
            }
            // A node without memory of its own, or a machine that lists no nodes.
            (MemoryPlace::Local, Some(_)) if self.memory.is_empty() => Ok(None),
            (MemoryPlace::Local, Some(node)) => Err(NoNode::Forbidden {
                device,
                node,
                allowed: list(&self.memory),
            }),
            (MemoryPlace::RemoteSocket, _) if self.memory.len() < 2 && self.device_has_memory() => {
                Err(NoNode::One {
                    device,
                    node: list(&self.memory),
                })
            }
            (MemoryPlace::RemoteSocket, None) => Err(NoNode::Unknown { device }),
            (MemoryPlace::RemoteSocket, Some(own)) => {
                let others = self.memory.iter().copied().filter(|&node| node != own);
                let far = others.min_by_key(|node| (!self.processors.contains(node), *node));
                let node = list(&self.memory);
                far.map(Some).ok_or(NoNode::One { device, node })
            }
        }
    }

    /// Whether the device's node is among those of this process, or unknown.
    fn device_has_memory(&self) -> bool {
        self.device.is_none_or(|node| self.memory.contains(&node))
    }
}

/// Bytes that buffers can take on `node`: free, or filled with the contents of files. None where the kernel does not say.
pub fn room(root: &Root, node: u32) -> Option<u64> {
    let text = root.text(&format!("/sys/devices/system/node/node{node}/meminfo"))?;
    let field = |name: &str| {
        let line = text
            .lines()
            .find(|line| line.split_whitespace().nth(2) == Some(name))?;
        let kib: u64 = line.split_whitespace().nth(3)?.parse().ok()?;
        Some(kib.saturating_mul(1024))
    };
    let files = ["Active(file):", "Inactive(file):"].map(|name| field(name).unwrap_or(0));
    Some(field("MemFree:")?.saturating_add(files[0].saturating_add(files[1])))
}

/// The nodes whose memory this process may use, by its cpuset; none in a test tree.
fn allowed(root: &Root) -> Option<Vec<u32>> {
    let status = root.text("/proc/self/status")?;
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Mems_allowed_list:"))?;
    Some(parse_list(list))
}

/// Most nodes of a list: more than any kernel has, so that a range cannot exhaust memory.
const NODES_MAX: u32 = 4_096;

/// A kernel list such as `0-1,4`. What does not parse is left out.
fn parse_list(text: &str) -> Vec<u32> {
    let ranges = text.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?.min(NODES_MAX);
        Some(range)
    });
    ranges.flatten().collect()
}

/// `0, 1`, or `no node`.
fn list(nodes: &[u32]) -> String {
    let words: Vec<String> = nodes.iter().map(u32::to_string).collect();
    match words.is_empty() {
        true => "no node".to_owned(),
        false => words.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = Root::at(directory.path());
        (directory, root)
    }

    const MEMORY: &str = "sys/devices/system/node/has_memory";
    const PROCESSORS: &str = "sys/devices/system/node/has_cpu";
    const DEVICE: &str = "sys/class/infiniband/r0/device/numa_node";
    const STATUS: &str = "proc/self/status";

    fn places(files: &[(&str, &str)]) -> [Result<Option<u32>, String>; 2] {
        let (_directory, root) = machine(files);
        let nodes = Nodes::read(&root, "r0");
        [MemoryPlace::Local, MemoryPlace::RemoteSocket]
            .map(|place| nodes.of("r0", place).map_err(|error| error.to_string()))
    }

    #[test]
    fn the_other_socket_is_the_nearest_numbered_node_with_processors() {
        let files = [(MEMORY, "0-3\n"), (PROCESSORS, "1,3\n"), (DEVICE, "3\n")];
        assert_eq!(places(&files), [Ok(Some(3)), Ok(Some(1))]);
        // Without another node with processors, memory without processors is the far one.
        let tiers = [(MEMORY, "0-1\n"), (PROCESSORS, "0\n")];
        assert_eq!(places(&tiers), [Ok(Some(0)), Ok(Some(1))]);
    }

    #[test]
    fn one_socket_has_no_other() {
        let [local, remote] = places(&[(MEMORY, "0\n"), (PROCESSORS, "0\n"), (DEVICE, "0\n")]);
        assert_eq!(local, Ok(None));
        let remote = remote.unwrap_err();
        assert!(
            remote.contains("node 0 only") && remote.contains("use memory \"local\""),
            "{remote}"
        );
    }

    #[test]
    fn a_device_of_unknown_node_has_no_remote_memory() {
        let files = [(MEMORY, "0-1\n"), (PROCESSORS, "0-1\n"), (DEVICE, "-1\n")];
        let [local, remote] = places(&files);
        assert_eq!(local, Ok(None));
        let remote = remote.unwrap_err();
        assert!(
            remote.contains("echo 0 > /sys/class/infiniband/r0/device/numa_node"),
            "{remote}"
        );
    }

    #[test]
    fn a_cpuset_without_the_devices_node_is_named() {
        let files = [
            (MEMORY, "0-1\n"),
            (PROCESSORS, "0-1\n"),
            (DEVICE, "0\n"),
            (STATUS, "Name:\tisolane\nMems_allowed_list:\t1\n"),
        ];
        let [local, remote] = places(&files);
        let local = local.unwrap_err();
        assert!(
            local.contains("at NUMA node 0") && local.contains("cpuset"),
            "{local}"
        );
        assert_eq!(remote, Ok(Some(1)));
    }

    #[test]
    fn memory_of_a_gpu_needs_one() {
        let mut nodes = Nodes::default();
        let error = nodes.of("r0", MemoryPlace::Gpu).unwrap_err();
        assert!(error.to_string().contains("no NVIDIA GPU"), "{error}");
        nodes.gpu = true;
        assert_eq!(nodes.of("r0", MemoryPlace::Gpu), Ok(None));
    }

    #[test]
    fn files_in_memory_make_room() {
        let text = "Node 1 MemTotal: 4096 kB\nNode 1 MemFree: 1024 kB\nNode 1 Active(file): 16 kB\n\
                    Node 1 Inactive(file): 8 kB\n";
        let (_directory, root) = machine(&[("sys/devices/system/node/node1/meminfo", text)]);
        assert_eq!(room(&root, 1), Some(1048 * 1024));
        assert_eq!(room(&root, 7), None);
    }

    #[test]
    fn lists_of_the_kernel_are_read_and_bounded() {
        assert_eq!(parse_list("0-1,4\n"), [0, 1, 4]);
        assert_eq!(parse_list(""), [] as [u32; 0]);
        assert!(parse_list("0-4294967295").len() <= NODES_MAX as usize + 1);
    }
}
