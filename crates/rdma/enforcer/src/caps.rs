//! Hard caps: the rdma controller of cgroups, from the same file.
//!
//! The kernel counts open devices (`hca_handle`) and every other object (`hca_object`) of a cgroup, whatever its processes
//! preload or trap, and refuses what exceeds them with ENOMEM. That is the capacity of harmonic 5.5.2, which rejects; the
//! rate, which delays, is [`crate::control`]'s. Caps stay when the enforcer ends. Limits: one number for all kinds of
//! object; the root cgroup has none.

use crate::error::EnforceError;
use isolane_common_linux::Root;
use isolane_common_linux::cgroup::{Limit, RdmaController, RdmaLimits};
use isolane_rdma_scenario::enforcement::EnforcedTenant;
use serde::Serialize;

/// A cap that was set, or in shadow mode would have been.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetCap {
    /// Whose.
    pub tenant: String,
    /// Its cgroup.
    pub cgroup: String,
    /// Of which device.
    pub device: String,
    /// Objects at most.
    pub objects: Option<u32>,
    /// Open devices at most.
    pub handles: Option<u32>,
}

/// Sets the caps of every tenant that has some, for every device; with `apply` false only says which.
///
/// # Errors
/// No controller in the tenant's cgroup, no privilege, a device that the kernel does not know.
pub fn set(
    root: &Root,
    tenants: &[EnforcedTenant],
    devices: &[String],
    apply: bool,
) -> Result<Vec<SetCap>, EnforceError> {
    let mut caps = Vec::new();
    for tenant in tenants {
        let Some(cgroup) = &tenant.selector.cgroup else {
            continue;
        };
        let (objects, handles) = (tenant.cap.objects, tenant.cap.handles);
        if objects.is_none() && handles.is_none() {
            continue;
        }
        let limit = |most: Option<u32>| most.map_or(Limit::Max, Limit::AtMost);
        let controller = RdmaController::of(root, cgroup)?;
        for device in devices {
            if apply {
                let limits = RdmaLimits {
                    handles: limit(handles),
                    objects: limit(objects),
                };
                controller.set_limits(device, limits)?;
            }
            caps.push(SetCap {
                tenant: tenant.name.clone(),
                cgroup: cgroup.clone(),
                device: device.clone(),
                objects,
                handles,
            });
        }
    }
    Ok(caps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_rdma_scenario::enforcement::parse;
    use std::fs;

    const TEXT: &str = "[[tenant]]\nname = \"a\"\ncgroup = \"/a\"\ncap = { objects = 5 }";

    #[test]
    fn caps_are_written_per_device_and_shadow_writes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("sys/fs/cgroup/a");
        fs::create_dir_all(&folder).unwrap();
        fs::write(
            directory.path().join("sys/fs/cgroup/cgroup.controllers"),
            "rdma",
        )
        .unwrap();
        fs::write(folder.join("rdma.max"), "").unwrap();
        let root = Root::at(directory.path());
        let tenants = parse(TEXT, "p.toml").unwrap().tenants;
        let devices = ["r0".to_owned()];
        assert_eq!(set(&root, &tenants, &devices, false).unwrap().len(), 1);
        assert_eq!(fs::read_to_string(folder.join("rdma.max")).unwrap(), "");
        set(&root, &tenants, &devices, true).unwrap();
        let written = fs::read_to_string(folder.join("rdma.max")).unwrap();
        assert_eq!(written, "r0 hca_handle=max hca_object=5");
    }

    #[test]
    fn a_cgroup_without_the_controller_is_told_with_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let tenants = parse(TEXT, "p.toml").unwrap().tenants;
        let error = set(
            &Root::at(directory.path()),
            &tenants,
            &["r0".to_owned()],
            true,
        );
        assert!(error.unwrap_err().to_string().contains("cgroup"));
    }
}
