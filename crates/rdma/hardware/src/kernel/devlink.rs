//! Devlink: ports of a device, its switch mode, and the tree of rates.
//!
//! Problem: one message may hold several values, and a driver may apply some of them before it rejects one. Method: only
//! values that differ from the present ones are sent. Units: the kernel's rates are bytes per second; ours are bits per
//! second. Limits: priorities and weights (`tx_priority`, `tx_weight`) are neither read nor changed. Source:
//! `linux/devlink.h`, `Documentation/networking/devlink/devlink-port.rst`.

use super::mismatched;
use crate::host::SwitchMode;
use crate::setting::{Rate, Target, Value};
use isolane_common_linux::HostError;
use isolane_common_linux::netlink::generic::{Ask, Generic};
use isolane_common_linux::netlink::{Attributes, AttributesBuilder};

const PORT_GET: u8 = 5;
const ESWITCH_GET: u8 = 29;
const RATE_GET: u8 = 74;
const RATE_SET: u8 = 75;
const RATE_NEW: u8 = 76;
const RATE_DELETE: u8 = 77;

const BUS_NAME: u16 = 1;
const DEVICE_NAME: u16 = 2;
const PORT_INDEX: u16 = 3;
const PORT_NETWORK_DEVICE: u16 = 7;
const ESWITCH_MODE: u16 = 25;
const PORT_FLAVOUR: u16 = 77;
const PORT_VIRTUAL_FUNCTION: u16 = 128;
const PORT_SUBFUNCTION: u16 = 164;
const RATE_SHARE: u16 = 166;
const RATE_MAX: u16 = 167;
const RATE_NODE: u16 = 168;
const RATE_PARENT: u16 = 169;

const FLAVOUR_VIRTUAL_FUNCTION: u16 = 4;
const FLAVOUR_SUBFUNCTION: u16 = 7;
const ESWITCH_SWITCHDEV: u16 = 1;

/// The open family.
#[derive(Debug)]
pub struct Devlink {
    family: Box<dyn Ask>,
}

/// An object with a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A function, by the index of its port.
    Port(u32),
    /// A group, by its name.
    Node(String),
}

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Bus and device of the device.
    pub handle: String,
    /// Index of the port.
    pub index: u32,
    /// Its network device.
    pub network_device: Option<String>,
    /// `vf0`, `sf88`; `None` for a port that is not a function.
    pub function: Option<String>,
    /// Whether the port has a rate.
    pub has_rate: bool,
}

impl Devlink {
    /// Opens the family; `None` if the kernel has no devlink.
    pub fn open() -> Result<Option<Self>, HostError> {
        let family = Generic::open("devlink")?;
        Ok(family.map(|family| Self {
            family: Box::new(family),
        }))
    }

    /// All ports of all devices.
    pub fn ports(&mut self) -> Result<Vec<Port>, HostError> {
        let none = AttributesBuilder::new();
        let mut ports = Vec::new();
        self.family
            .ask("list devlink ports", PORT_GET, true, &none, &mut |port| {
                ports.extend(parse_port(&port));
            })?;
        let mut rates = Vec::new();
        let asked = self
            .family
            .ask("list devlink rates", RATE_GET, true, &none, &mut |rate| {
                rates.extend(handle_of(&rate).zip(rate.u32(PORT_INDEX)));
            });
        match asked {
            Ok(()) | Err(HostError::NotOffered { .. }) => {}
            Err(error) => return Err(error),
        }
        for port in &mut ports {
            port.has_rate = rates.contains(&(port.handle.clone(), port.index));
        }
        Ok(ports)
    }

    /// Mode of the device's switch; `None` if the device has none.
    pub fn switch_mode(&mut self, handle: &str) -> Result<Option<SwitchMode>, HostError> {
        let mut mode = None;
        let action = format!("read the switch mode of {handle}");
        let asked = self
            .family
            .ask(&action, ESWITCH_GET, false, &named(handle), &mut |answer| {
                mode = answer.u16(ESWITCH_MODE);
            });
        match asked {
            Ok(()) => Ok(mode.map(|mode| match mode {
                ESWITCH_SWITCHDEV => SwitchMode::Switchdev,
                _ => SwitchMode::Legacy,
            })),
            Err(HostError::NotOffered { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The rate of an object; `Value::Absent` if there is no such object.
    pub fn rate(&mut self, handle: &str, object: &Object) -> Result<Value, HostError> {
        let mut rate = None;
        let action = format!("read the rate of {handle}/{}", object.name());
        let request = object.add_to(named(handle));
        let asked = self
            .family
            .ask(&action, RATE_GET, false, &request, &mut |answer| {
                rate = Some(parse_rate(&answer));
            });
        match asked {
            Ok(()) => Ok(rate.map_or(Value::Absent, Value::Rate)),
            Err(error) if is_missing(&error) => Ok(Value::Absent),
            Err(error) => Err(error),
        }
    }

    /// Makes, changes or removes an object's rate. Fails if a function cannot be removed.
    pub fn set_rate(
        &mut self,
        handle: &str,
        object: &Object,
        value: &Value,
    ) -> Result<(), HostError> {
        let present = self.rate(handle, object)?;
        let action = format!("set the rate of {handle}/{} to {value}", object.name());
        let request = object.add_to(named(handle));
        let (command, request) = match (value, &present, object) {
            (Value::Absent, Value::Absent, _) => return Ok(()),
            (Value::Absent, _, Object::Node(_)) => {
                // A group in a group cannot be removed by some drivers.
                let bare = Value::Rate(Rate::default());
                self.set_rate(handle, object, &bare)?;
                (RATE_DELETE, request)
            }
            (Value::Rate(rate), Value::Absent, Object::Node(_)) => {
                (RATE_NEW, changes(request, &Rate::default(), rate))
            }
            (Value::Rate(rate), Value::Rate(present), _) => {
                if rate == present {
                    return Ok(());
                }
                (RATE_SET, changes(request, present, rate))
            }
            (value, _, _) => {
                let target = Target::RateNode {
                    handle: handle.to_owned(),
                    node: object.name(),
                };
                return Err(mismatched(&target, value));
            }
        };
        self.family
            .ask(&action, command, false, &request, &mut |_| {})
    }
}

impl Object {
    fn name(&self) -> String {
        match self {
            Self::Port(index) => index.to_string(),
            Self::Node(name) => name.clone(),
        }
    }

    fn add_to(&self, request: AttributesBuilder) -> AttributesBuilder {
        match self {
            Self::Port(index) => request.with_u32(PORT_INDEX, *index),
            Self::Node(name) => request.with_text(RATE_NODE, name),
        }
    }
}

/// The attributes of `rate` that differ from `present`. An empty parent means none.
fn changes(mut request: AttributesBuilder, present: &Rate, rate: &Rate) -> AttributesBuilder {
    if rate.share_bps != present.share_bps {
        request = request.with_u64(RATE_SHARE, rate.share_bps / 8);
    }
    if rate.max_bps != present.max_bps {
        request = request.with_u64(RATE_MAX, rate.max_bps / 8);
    }
    if rate.parent != present.parent {
        request = request.with_text(RATE_PARENT, rate.parent.as_deref().unwrap_or_default());
    }
    request
}

fn named(handle: &str) -> AttributesBuilder {
    let (bus, device) = handle.split_once('/').unwrap_or((handle, ""));
    AttributesBuilder::new()
        .with_text(BUS_NAME, bus)
        .with_text(DEVICE_NAME, device)
}

fn handle_of(attributes: &Attributes<'_>) -> Option<String> {
    Some(format!(
        "{}/{}",
        attributes.text(BUS_NAME)?,
        attributes.text(DEVICE_NAME)?
    ))
}

fn parse_port(port: &Attributes<'_>) -> Option<Port> {
    let function = match port.u16(PORT_FLAVOUR) {
        Some(FLAVOUR_VIRTUAL_FUNCTION) => port
            .u16(PORT_VIRTUAL_FUNCTION)
            .map(|number| format!("vf{number}")),
        Some(FLAVOUR_SUBFUNCTION) => port
            .u32(PORT_SUBFUNCTION)
            .map(|number| format!("sf{number}")),
        _ => None,
    };
    Some(Port {
        handle: handle_of(port)?,
        index: port.u32(PORT_INDEX)?,
        network_device: port
            .text(PORT_NETWORK_DEVICE)
            .filter(|name| !name.is_empty()),
        function,
        has_rate: false,
    })
}

fn parse_rate(answer: &Attributes<'_>) -> Rate {
    let bits = |kind| answer.u64(kind).unwrap_or(0).saturating_mul(8);
    Rate {
        share_bps: bits(RATE_SHARE),
        max_bps: bits(RATE_MAX),
        parent: answer.text(RATE_PARENT).filter(|name| !name.is_empty()),
    }
}

/// ENODEV: the kernel's answer for a missing device, port or group.
pub(super) fn is_missing(error: &HostError) -> bool {
    const ENODEV: i32 = 19;
    matches!(error, HostError::Kernel { source, .. } if source.raw_os_error() == Some(ENODEV))
}

#[cfg(test)]
mod tests;
