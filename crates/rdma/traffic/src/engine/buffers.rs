//! Registered memory of an end, on the NUMA node or the GPU that its job means.

use super::error::EndError;
use crate::nodes::{Nodes, room};
use isolane_common_linux::Root;
use isolane_rdma_scenario::model::MemoryPlace;
use isolane_rdma_verbs_sys::safe::{MemoryRegion, ProtectionDomain};
use std::sync::Arc;

/// Regions to make.
#[derive(Clone, Copy, Debug)]
pub(super) struct Regions {
    pub(super) count: u32,
    /// Of each region.
    pub(super) bytes: u64,
    /// `IBV_ACCESS_*`.
    pub(super) access: u32,
}

/// Makes every group of `groups` in `domain`, at `place`. Fails if there is no such place, or it has no room.
pub(super) fn regions<const N: usize>(
    domain: &Arc<ProtectionDomain>,
    place: MemoryPlace,
    groups: [Regions; N],
) -> Result<[Vec<Arc<MemoryRegion>>; N], EndError> {
    let root = Root::with_emulated_devices();
    let device = domain.context().device();
    let on_gpu = place == MemoryPlace::Gpu;
    let node = match on_gpu {
        true => None,
        false => Nodes::read(&root, device).of(device, place)?,
    };
    if let Some(node) = node {
        fits(&root, device, node, &groups)?;
    }
    let mut made = std::array::from_fn(|_| Vec::new());
    for (group, regions) in groups.into_iter().zip(&mut made) {
        for _ in 0..group.count {
            let region = match on_gpu {
                true => MemoryRegion::on_gpu(domain, group.bytes, group.access),
                false => MemoryRegion::on_node(domain, group.bytes, group.access, node),
            };
            let region = match region {
                // Some containers may not bind memory. Nobody chose local memory: it is the default.
                Err(error) if place == MemoryPlace::Local && error.forbids_binding() => {
                    MemoryRegion::new(domain, group.bytes, group.access)
                }
                region => region,
            };
            regions.push(region?);
        }
    }
    Ok(made)
}

/// The smallest page, bytes: a region takes whole pages.
const PAGE: u64 = 4_096;

/// Whether `groups` fit the memory of `node`. The kernel kills a process that writes more than its bound node has.
fn fits(root: &Root, device: &str, node: u32, groups: &[Regions]) -> Result<(), EndError> {
    let bytes = groups.iter().map(|group| {
        let each = group.bytes.max(1).div_ceil(PAGE).saturating_mul(PAGE);
        u64::from(group.count).saturating_mul(each)
    });
    let needed = bytes.fold(0, u64::saturating_add);
    match room(root, node) {
        Some(room) if needed > room => Err(EndError::NoRoom {
            device: device.to_owned(),
            node,
            needed,
            room,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn buffers_beyond_the_nodes_memory_are_refused_before_they_are_made() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("sys/devices/system/node/node1");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("meminfo"), "Node 1 MemFree: 8 kB\n").unwrap();
        let root = Root::at(directory.path());
        let regions = |count| Regions {
            count,
            bytes: 64,
            access: 0,
        };
        assert!(fits(&root, "r0", 1, &[regions(1), regions(1)]).is_ok());
        let error = fits(&root, "r0", 1, &[regions(2), regions(1)]).unwrap_err();
        assert!(
            error.to_string().contains("12288 bytes on NUMA node 1"),
            "{error}"
        );
    }
}
