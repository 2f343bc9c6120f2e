//! Hard caps: limits of the rdma cgroup controller, read from the enforcement file.
//!
//! The kernel counts open devices (`hca_handle`) and all other objects (`hca_object`) per cgroup, independent of
//! preload libraries and filters. It rejects requests beyond a cap with ENOMEM. Caps bound the number of objects
//! (harmonic 5.5.2); [`crate::control`] bounds their rate by delay. Caps stay when the enforcer ends. Limits: one
//! number for all kinds of object; the root cgroup has no caps.

use crate::error::EnforceError;
use isolane_common_linux::Root;
use isolane_common_linux::cgroup::{Limit, RdmaController, RdmaLimits};
use isolane_rdma_scenario::enforcement::EnforcedTenant;
use serde::Serialize;

/// A cap that was set, or would be set outside shadow mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetCap {
    /// Name of the tenant.
    pub tenant: String,
    /// Path of the tenant's cgroup.
    pub cgroup: String,
    /// Name of the RDMA device.
    pub device: String,
    /// Largest number of objects (`hca_object`).
    pub objects: Option<u32>,
    /// Largest number of open devices (`hca_handle`).
    pub handles: Option<u32>,
}

/// Sets the caps of every tenant that has caps, on every device. With `apply` false, only returns them. Fails if the
/// tenant's cgroup has no rdma controller, the privilege is missing, or the kernel does not know the device.
pub(crate) fn set(
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
    fn a_cgroup_without_the_controller_is_reported_with_the_remedy() {
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
