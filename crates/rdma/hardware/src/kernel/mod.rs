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
use crate::setting::{Target, Value};
use devlink::Devlink;
use isolane_common_linux::cgroup::{self, Limit, RdmaController, RdmaLimits};
use isolane_common_linux::netlink::{Family, Socket};
use isolane_common_linux::{HostError, Root};

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
