//! Memory tiers: which nodes belong together, nearest first, and how full they are.
//!
//! Method: the kernel sorts nodes by what firmware says of them (HMAT) and lists each tier in
//! `/sys/devices/virtual/memory_tiering`. A larger number there is a slower tier. Nodes without memory are left out.
//! Where the kernel knows one tier only, although some node has no processor, nodes with processors are the near tier and
//! the others the far one: such a machine demotes nothing by itself, but pages can be moved ([`Tiers::by_firmware`]).
//!
//! Units: bytes. Limits: at most `TIERS_MAX` tiers; slower ones beyond join the last.
//! Source: the kernel's documentation of memory tiers (sysfs-kernel-mm-memory-tiers) and of `/sys/devices/system/node`.

use crate::error::MemError;
use crate::host::MemoryHost;
use isolane_common_quantities::units::Bytes;
use isolane_memory_policy::mercury::TIERS_MAX;
use serde::Serialize;

/// One tier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Tier {
    /// Its nodes, in order.
    pub nodes: Vec<u32>,
    /// All memory of its nodes, in bytes.
    pub total_bytes: u64,
}

/// The tiers of a machine, nearest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Tiers {
    /// The tiers.
    pub tiers: Vec<Tier>,
    /// Whether the kernel itself knows more than one tier, so that it can demote.
    pub by_firmware: bool,
}

impl Tiers {
    /// Reads the tiers of a machine. One tier is no error here.
    pub fn read(host: &MemoryHost) -> Self {
        let memory = node_set(host, "/sys/devices/system/node/has_memory");
        let processors = node_set(host, "/sys/devices/system/node/has_cpu");
        let mut groups = kernel_tiers(host, &memory);
        let by_firmware = groups.len() > 1;
        if groups.len() < 2 {
            let (near, far): (Vec<u32>, Vec<u32>) =
                memory.iter().partition(|node| processors.contains(node));
            groups = [near, far]
                .into_iter()
                .filter(|nodes| !nodes.is_empty())
                .collect();
        }
        while groups.len() > TIERS_MAX {
            let last = groups.pop().unwrap_or_default();
            if let Some(before) = groups.last_mut() {
                before.extend(last);
                before.sort_unstable();
            }
        }
        let tiers = groups.into_iter().map(|nodes| Tier {
            total_bytes: nodes
                .iter()
                .map(|node| node_memory(host, *node).0.get())
                .sum(),
            nodes,
        });
        Self {
            tiers: tiers.collect(),
            by_firmware,
        }
    }

    /// The same, where two tiers are needed. Fails with [`MemError::NoTiers`].
    pub fn required(host: &MemoryHost) -> Result<Self, MemError> {
        let tiers = Self::read(host);
        match tiers.len() {
            0 | 1 => Err(MemError::NoTiers {
                tiers: tiers.len(),
                remedy: NO_TIERS_REMEDY.to_owned(),
            }),
            _ => Ok(tiers),
        }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.tiers.len()
    }

    /// Whether no node has memory, which only a made-up machine can say.
    pub fn is_empty(&self) -> bool {
        self.tiers.is_empty()
    }

    /// The tier of a node.
    pub fn tier_of(&self, node: u32) -> Option<usize> {
        self.tiers
            .iter()
            .position(|tier| tier.nodes.contains(&node))
    }

    /// The nodes of the nearest tier.
    pub fn near_nodes(&self) -> &[u32] {
        self.tiers.first().map_or(&[], |tier| &tier.nodes)
    }

    /// All memory of one node.
    pub fn node_total(&self, host: &MemoryHost, node: u32) -> Bytes {
        node_memory(host, node).0
    }

    /// The node of a tier that has the most free memory now; the first of equals.
    pub fn roomiest_node(&self, host: &MemoryHost, tier: usize) -> Option<u32> {
        let nodes = &self.tiers.get(tier)?.nodes;
        let free = nodes.iter().map(|node| (node_memory(host, *node).1, *node));
        free.max_by_key(|(free, node)| (*free, std::cmp::Reverse(*node)))
            .map(|(_, node)| node)
    }

    /// Physical addresses of a tier's nodes, as ranges in order, neighbours joined; empty where the kernel does not say.
    pub fn addresses(&self, host: &MemoryHost, tier: usize) -> Vec<(u64, u64)> {
        let size = host
            .root
            .text("/sys/devices/system/memory/block_size_bytes");
        let size = size
            .and_then(|text| u64::from_str_radix(&text, 16).ok())
            .unwrap_or(0);
        let nodes = self.tiers.get(tier).map_or(&[][..], |tier| &tier.nodes);
        let blocks = nodes.iter().flat_map(|node| {
            host.root
                .list(&format!("/sys/devices/system/node/node{node}"))
        });
        let mut numbers: Vec<u64> = blocks
            .filter_map(|name| name.strip_prefix("memory")?.parse().ok())
            .collect();
        numbers.sort_unstable();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for number in numbers {
            let start = number.saturating_mul(size);
            match ranges.last_mut() {
                Some((_, end)) if *end == start => *end = start.saturating_add(size),
                _ => ranges.push((start, start.saturating_add(size))),
            }
        }
        ranges.retain(|(start, end)| start < end);
        ranges
    }

    /// Total and free bytes of a tier, now.
    pub fn usage(&self, host: &MemoryHost, tier: usize) -> (Bytes, Bytes) {
        let nodes = self.tiers.get(tier).map_or(&[][..], |tier| &tier.nodes);
        nodes.iter().map(|node| node_memory(host, *node)).fold(
            (Bytes::ZERO, Bytes::ZERO),
            |(total, free), (node_total, node_free)| (total + node_total, free + node_free),
        )
    }

    /// Free bytes of a tier, now.
    pub fn free(&self, host: &MemoryHost, tier: usize) -> Bytes {
        self.usage(host, tier).1
    }
}

/// What to do on a machine with one tier.
pub(crate) const NO_TIERS_REMEDY: &str = "a tier is CXL or persistent memory as its own node, or a second \
    socket without processors; a virtual machine has them with `-machine q35,hmat=on` (see docs/guides/mem.md)";

/// The tiers that the kernel lists, slowest last, without nodes that have no memory.
fn kernel_tiers(host: &MemoryHost, memory: &[u32]) -> Vec<Vec<u32>> {
    const DIRECTORY: &str = "/sys/devices/virtual/memory_tiering";
    let names = host.root.list(DIRECTORY);
    let tiers = names.iter().filter(|name| name.starts_with("memory_tier"));
    let lists = tiers.map(|name| {
        let text = host.root.text(&format!("{DIRECTORY}/{name}/nodelist"));
        let mut nodes = parse_list(&text.unwrap_or_default());
        nodes.retain(|node| memory.contains(node));
        nodes
    });
    lists.filter(|nodes| !nodes.is_empty()).collect()
}

fn node_set(host: &MemoryHost, path: &str) -> Vec<u32> {
    parse_list(&host.root.text(path).unwrap_or_default())
}

/// Total and free bytes of a node.
fn node_memory(host: &MemoryHost, node: u32) -> (Bytes, Bytes) {
    let path = format!("/sys/devices/system/node/node{node}/meminfo");
    let text = host.root.text(&path).unwrap_or_default();
    let field = |name: &str| {
        let line = text
            .lines()
            .find(|line| line.split_whitespace().nth(2) == Some(name));
        let kib = line.and_then(|line| line.split_whitespace().nth(3)?.parse::<u64>().ok());
        Bytes::new(kib.unwrap_or(0).saturating_mul(1024))
    };
    (field("MemTotal:"), field("MemFree:"))
}

/// Most numbers in a list such as `0-3,7`: more than any kernel has nodes, so that a range cannot exhaust memory.
const LIST_MAX: usize = 4096;

/// A kernel list such as `0-1,4`. What does not parse is left out.
pub fn parse_list(text: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse::<u32>()) {
            found.extend((first..=last).take(LIST_MAX));
        }
    }
    found.sort_unstable();
    found.dedup();
    found.truncate(LIST_MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;
    use expect_test::expect;

    #[test]
    fn the_kernels_tiers_are_read_slowest_last() {
        let tree = Tree::two_tiers();
        let tiers = Tiers::read(&tree.host());
        expect![[r#"
            Tiers { tiers: [Tier { nodes: [0], total_bytes: 536870912 }, Tier { nodes: [1], total_bytes: 1073741824 }], by_firmware: true }"#]]
        .assert_eq(&format!("{tiers:?}"));
        assert_eq!(
            (tiers.tier_of(0), tiers.tier_of(1), tiers.tier_of(2)),
            (Some(0), Some(1), None)
        );
    }

    #[test]
    fn a_node_without_processors_is_far_where_the_kernel_knows_one_tier() {
        let tree = Tree::two_tiers();
        tree.remove("/sys/devices/virtual/memory_tiering/memory_tier10");
        tree.write(
            "/sys/devices/virtual/memory_tiering/memory_tier4/nodelist",
            "0-1\n",
        );
        let tiers = Tiers::read(&tree.host());
        assert_eq!((tiers.len(), tiers.by_firmware), (2, false));
        assert_eq!(tiers.tiers[1].nodes, [1]);
    }

    #[test]
    fn one_tier_is_refused_with_a_remedy() {
        let tree = Tree::two_tiers();
        tree.write("/sys/devices/system/node/has_memory", "0\n");
        let error = Tiers::required(&tree.host()).unwrap_err().to_string();
        assert!(
            error.contains("1 memory tier") && error.contains("hmat=on"),
            "{error}"
        );
    }

    #[test]
    fn lists_of_the_kernel_parse_and_bad_ones_are_left_out() {
        assert_eq!(parse_list("0-1,4\n"), [0, 1, 4]);
        assert_eq!(parse_list(""), Vec::<u32>::new());
        assert_eq!(parse_list("x,3-1,2"), [2]);
        assert_eq!(parse_list("0-4294967295").len(), LIST_MAX);
    }

    #[test]
    fn tier_numbers_are_sorted_as_numbers() {
        let tree = Tree::two_tiers();
        tree.remove("/sys/devices/virtual/memory_tiering/memory_tier10");
        tree.write(
            "/sys/devices/virtual/memory_tiering/memory_tier961/nodelist",
            "1\n",
        );
        tree.write(
            "/sys/devices/virtual/memory_tiering/memory_tier1000/nodelist",
            "2\n",
        );
        tree.write("/sys/devices/system/node/has_memory", "0-2\n");
        let tiers = Tiers::read(&tree.host());
        let nodes: Vec<&[u32]> = tiers.tiers.iter().map(|tier| &tier.nodes[..]).collect();
        assert_eq!(nodes, [&[0][..], &[1], &[2]]);
    }
}
