//! The kernel as a `Backend`: netlink for devices, files for cgroups.
//!
//! * [`devlink`] - rates of functions and groups, ports, switch mode;
//! * [`bridging`] - traffic classes, DSCP, flow control, buffers;
//! * [`function_rate`] - rates of virtual functions at their physical function;
//! * [`devices`] - the capabilities of this host's devices.
//!
//! Limits: writing needs CAP_NET_ADMIN in the initial user namespace.

pub mod bridging;
pub mod devices;
pub mod devlink;
pub mod function_rate;

use crate::backend::Backend;
use crate::setting::{Renamable, Target, Value};
use devlink::Devlink;
use isolane_common_linux::cgroup::{self, Limit, RdmaController, RdmaLimits};
use isolane_common_linux::netlink::{Family, Socket};
use isolane_common_linux::{HostError, Root};
use rustix::io::Errno;
use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::{AddressFamily, SocketType};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

/// This machine.
#[derive(Debug)]
pub struct Kernel {
    root: Root,
    route: Socket,
    devlink: Option<Devlink>,
}

impl Kernel {
    /// Opens the sockets.
    pub fn open() -> Result<Self, HostError> {
        Ok(Self {
            root: Root::machine(),
            route: Socket::open(Family::Route)?,
            devlink: Devlink::open()?,
        })
    }

    /// The inode number of the device's directory in sysfs: renaming keeps it.
    fn rdma_number(&self, name: &str) -> Option<u64> {
        let path = self.root.path(&format!("{RDMA_DEVICES}/{name}"));
        std::fs::metadata(path).ok().map(|found| found.ino())
    }

    fn devlink(&mut self, target: &Target) -> Result<&mut Devlink, HostError> {
        self.devlink.as_mut().ok_or_else(|| HostError::NotOffered {
            action: format!("use the {target}"),
            source: std::io::Error::new(
                std::io::ErrorKind::Unsupported,
                "the kernel has no devlink",
            ),
        })
    }
}

/// RDMA devices by name.
const RDMA_DEVICES: &str = "/sys/class/infiniband";

/// A socket of this thread's network namespace: sysfs shows the namespace that mounted it.
fn interfaces(device: Renamable<'_>) -> Result<OwnedFd, HostError> {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None);
    socket.map_err(|error| not_found_out(device, error))
}

/// What the kernel answered; `None` where it has no such device.
fn known<T>(device: Renamable<'_>, answer: Result<T, Errno>) -> Result<Option<T>, HostError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NODEV | Errno::NXIO) => Ok(None),
        Err(error) => Err(not_found_out(device, error)),
    }
}

fn not_found_out(device: Renamable<'_>, error: Errno) -> HostError {
    HostError::Kernel {
        action: format!("find the device {}", device.name()),
        source: error.into(),
    }
}

impl Backend for Kernel {
    fn read(&mut self, target: &Target) -> Result<Value, HostError> {
        match target {
            Target::RateNode { handle, node } => {
                let devlink = self.devlink(target)?;
                devlink.rate(handle, &devlink::Object::Node(node.clone()))
            }
            Target::RateLeaf { handle, port } => {
                let devlink = self.devlink(target)?;
                devlink.rate(handle, &devlink::Object::Port(*port))
            }
            Target::FunctionRate {
                network_device,
                number,
            } => function_rate::read(&mut self.route, network_device, *number),
            Target::Objects { cgroup, device } => objects(&self.root, cgroup, device),
            Target::Classes { network_device }
            | Target::FlowControl { network_device }
            | Target::Buffers { network_device }
            | Target::Dscp { network_device, .. } => {
                bridging::read(&mut self.route, network_device, target)
            }
        }
    }

    fn number(&mut self, device: Renamable<'_>) -> Result<Option<u64>, HostError> {
        match device {
            Renamable::Network(name) => {
                let index = name_to_index(&interfaces(device)?, name);
                known(device, index.map(u64::from))
            }
            Renamable::Rdma(name) => Ok(self.rdma_number(name)),
        }
    }

    fn name(&mut self, device: Renamable<'_>, number: u64) -> Result<Option<String>, HostError> {
        match device {
            Renamable::Network(_) => match u32::try_from(number) {
                Ok(index) => known(device, index_to_name(&interfaces(device)?, index)),
                Err(_) => Ok(None),
            },
            Renamable::Rdma(_) => {
                let names = self.root.list(RDMA_DEVICES).into_iter();
                let is_it = |name: &String| self.rdma_number(name) == Some(number);
                Ok(names.into_iter().find(is_it))
            }
        }
    }

    fn write(&mut self, target: &Target, value: &Value) -> Result<(), HostError> {
        match target {
            Target::RateNode { handle, node } => {
                let devlink = self.devlink(target)?;
                devlink.set_rate(handle, &devlink::Object::Node(node.clone()), value)
            }
            Target::RateLeaf { handle, port } => {
                let devlink = self.devlink(target)?;
                devlink.set_rate(handle, &devlink::Object::Port(*port), value)
            }
            Target::FunctionRate {
                network_device,
                number,
            } => function_rate::write(&mut self.route, network_device, *number, value),
            Target::Objects { cgroup, device } => set_objects(&self.root, cgroup, device, value),
            Target::Classes { network_device }
            | Target::FlowControl { network_device }
            | Target::Buffers { network_device }
            | Target::Dscp { network_device, .. } => {
                bridging::write(&mut self.route, network_device, target, value)
            }
        }
    }
}

/// The error for a value of another kind than its object: our mistake or a damaged journal.
fn mismatched(target: &Target, value: &Value) -> HostError {
    HostError::Kernel {
        action: format!("set the {target} to {value}"),
        source: std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            "the value is of another kind",
        ),
    }
}

fn objects(root: &Root, path: &str, device: &str) -> Result<Value, HostError> {
    let exists = cgroup::mount(root).is_some_and(|mount| root.exists(&format!("{mount}{path}")));
    if !exists {
        return Ok(Value::Absent);
    }
    let limits = RdmaController::of(root, path)?.limits()?;
    let Some(limits) = limits.get(device) else {
        return Ok(Value::Absent);
    };
    let most = |limit: Limit| match limit {
        Limit::Max => None,
        Limit::AtMost(count) => Some(count),
    };
    Ok(Value::Objects {
        handles_max: most(limits.handles),
        objects_max: most(limits.objects),
    })
}

fn set_objects(root: &Root, path: &str, device: &str, value: &Value) -> Result<(), HostError> {
    let Value::Objects {
        handles_max,
        objects_max,
    } = value
    else {
        let target = Target::Objects {
            cgroup: path.to_owned(),
            device: device.to_owned(),
        };
        return Err(mismatched(&target, value));
    };
    let limit = |most: &Option<u32>| most.map_or(Limit::Max, Limit::AtMost);
    let limits = RdmaLimits {
        handles: limit(handles_max),
        objects: limit(objects_max),
    };
    RdmaController::of(root, path)?.set_limits(device, limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_by_name_and_by_number() {
        let mut kernel = Kernel::open().unwrap();
        let loopback = Renamable::Network("lo");
        let number = kernel.number(loopback).unwrap().unwrap();
        let other = Renamable::Network("isolane-none");
        assert_eq!(kernel.name(other, number).unwrap().as_deref(), Some("lo"));
        assert_eq!(kernel.number(other).unwrap(), None);
        for missing in [u64::from(u32::MAX >> 1), u64::MAX] {
            assert_eq!(kernel.name(loopback, missing).unwrap(), None);
        }
        assert_eq!(
            kernel.number(Renamable::Rdma("isolane-none")).unwrap(),
            None
        );
        assert_eq!(kernel.name(Renamable::Rdma("mlx5_0"), 0).unwrap(), None);
    }
}
