//! Parses `--target verbs:...`: a device for every host of a scenario, on this machine or on another.
//!
//! Grammar: `verbs:PLACE,PLACE[,PLACE...]`; the first place is host A, the second host B, and so on. A place is
//! `[HOST[:PORT]:]DEVICE[/DEVICE_PORT[/GID_INDEX]]`. HOST is what ssh takes, or with certificates a name or address of
//! the agent; an IPv6 address is in brackets. One device may be named twice: then traffic loops through the device.
//!
//! Limits: names end up as arguments of ssh and in file paths, so their characters are few, and none begins
//! with a dash.

use std::fmt;
use std::str::FromStr;

/// Most hosts of a scenario, and so most places.
pub const PLACES_MAX: usize = 8;
/// Longest device name, bytes (IB_DEVICE_NAME_MAX less its terminator).
pub const DEVICE_MAX: usize = 63;
/// Longest host name, bytes (RFC 1035), with a user before it.
const HOST_MAX: usize = 320;
/// How a target of real devices begins.
const SCHEME: &str = "verbs:";

/// The places that a scenario's hosts take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Host A's, host B's, ...; at least two.
    pub places: Vec<Place>,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The machine; none for this one.
    pub machine: Option<Machine>,
    /// The device's name there, like `mlx5_0`.
    pub device: String,
    /// The device's port, from 1.
    pub device_port: u8,
    /// Entry of the port's GID table; none lets the engine choose.
    pub gid_index: Option<u8>,
}

/// Another machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Machine {
    /// Name or address, without brackets; for ssh perhaps with `USER@`.
    pub name: String,
    /// TCP port of its agent, where one is named.
    pub port: Option<u16>,
}

/// Why a text is no target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "target {text:?}: {problem}; it is sim, verbs:DEVICE,DEVICE or verbs:HOST:DEVICE,HOST:DEVICE"
)]
pub struct TargetError {
    /// As given.
    pub text: String,
    /// What is wrong.
    pub problem: String,
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let wrong = |problem: String| TargetError {
            text: text.to_owned(),
            problem,
        };
        let Some(list) = text.strip_prefix(SCHEME) else {
            return Err(wrong(format!("does not begin with {SCHEME}")));
        };
        let places: Result<Vec<Place>, String> = list.split(',').map(place).collect();
        let places = places.map_err(wrong)?;
        match places.len() {
            0 | 1 => Err(wrong(
                "names one device, and a scenario has two hosts or more (the same device may be named twice)"
                    .to_owned(),
            )),
            count if count > PLACES_MAX => Err(wrong(format!(
                "names {count} devices, and a scenario has at most {PLACES_MAX} hosts"
            ))),
            _ => Ok(Self { places }),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(SCHEME)?;
        for (index, place) in self.places.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(out, "{comma}{place}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(machine) = &self.machine {
            write!(out, "{machine}:")?;
        }
        out.write_str(&self.device)?;
        match self.gid_index {
            Some(index) => write!(out, "/{}/{index}", self.device_port),
            None if self.device_port != 1 => write!(out, "/{}", self.device_port),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.contains(':') {
            true => write!(out, "[{}]", self.name)?,
            false => out.write_str(&self.name)?,
        }
        match self.port {
            Some(port) => write!(out, ":{port}"),
            None => Ok(()),
        }
    }
}

fn place(text: &str) -> Result<Place, String> {
    let (machine, device) = match text.rsplit_once(':') {
        Some((machine, device)) => (Some(self::machine(machine)?), device),
        None => (None, text),
    };
    let mut parts = device.split('/');
    let name = parts.next().unwrap_or_default();
    let device_port = match parts.next() {
        Some(port) => number(port, "port", 1)?,
        None => 1,
    };
    let gid_index = parts.next().map(|index| number(index, "GID index", 0));
    if parts.next().is_some() {
        return Err(format!("{device:?} has more than DEVICE/PORT/GID_INDEX"));
    }
    check_device(name)?;
    Ok(Place {
        machine,
        device: name.to_owned(),
        device_port,
        gid_index: gid_index.transpose()?,
    })
}

fn number(text: &str, what: &str, least: u8) -> Result<u8, String> {
    let number: Option<u8> = text.parse().ok();
    number
        .filter(|number| *number >= least)
        .ok_or_else(|| format!("{what} {text:?} must be a number from {least} to 255"))
}

/// Whether `name` can be a device's: it is looked up below `/sys/class/infiniband`.
pub(crate) fn check_device(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let good = !name.is_empty()
        && name.len() <= DEVICE_MAX
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(plain);
    match good {
        true => Ok(()),
        false => Err(format!(
            "device {name:?} must be 1 to {DEVICE_MAX} letters, digits, dots, dashes and underscores"
        )),
    }
}

fn machine(text: &str) -> Result<Machine, String> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest
                .split_once(']')
                .ok_or_else(|| format!("host {text:?} lacks its closing bracket"))?;
            if address.parse::<std::net::Ipv6Addr>().is_err() {
                return Err(format!("host {address:?} is no IPv6 address"));
            }
            let port = match rest.strip_prefix(':') {
                Some(port) => Some(port),
                None if rest.is_empty() => None,
                None => return Err(format!("host {text:?} has {rest:?} after its bracket")),
            };
            (address, port)
        }
        None => match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        },
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.@:".contains(c);
    let good = !name.is_empty()
        && name.len() <= HOST_MAX
        && name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':')
        && name.chars().all(plain);
    if !good {
        return Err(format!(
            "host {name:?} must be letters, digits, dots, dashes and underscores, perhaps after USER@"
        ));
    }
    let port = port.map(|port| {
        let number: Option<u16> = port.parse().ok();
        number.filter(|number| *number > 0).ok_or_else(|| {
            format!("port {port:?} of host {name:?} must be a number from 1 to 65535")
        })
    });
    Ok(Machine {
        name: name.to_owned(),
        port: port.transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Target {
        text.parse().unwrap()
    }

    #[test]
    fn places_are_devices_here_or_elsewhere() {
        let target = read("verbs:r0,mlx5_1/2/3");
        assert_eq!(target.places[0].device, "r0");
        assert_eq!(target.places[0].machine, None);
        assert_eq!(target.places[0].gid_index, None);
        assert_eq!(
            (target.places[1].device_port, target.places[1].gid_index),
            (2, Some(3))
        );
        let target = read("verbs:nodea:mlx5_0,lab@node-b.example:7000:mlx5_0");
        let machines: Vec<_> = target
            .places
            .iter()
            .map(|p| p.machine.clone().unwrap())
            .collect();
        assert_eq!(
            (machines[0].name.as_str(), machines[0].port),
            ("nodea", None)
        );
        assert_eq!(
            (machines[1].name.as_str(), machines[1].port),
            ("lab@node-b.example", Some(7000))
        );
        let target = read("verbs:[fe80::1]:r0,[::1]:99:r1");
        assert_eq!(target.places[0].machine.as_ref().unwrap().name, "fe80::1");
        assert_eq!(target.places[1].machine.as_ref().unwrap().port, Some(99));
    }

    #[test]
    fn malformed_targets_say_what_is_wrong() {
        for (text, part) in [
            ("r0,r1", "begin with verbs:"),
            ("verbs:", "device \"\""),
            ("verbs:r0", "one device"),
            ("verbs:r0,", "device \"\""),
            ("verbs:r0,../x", "port"),
            ("verbs:r0,..", "device \"..\""),
            ("verbs:r0,-x", "device \"-x\""),
            ("verbs:r0,-oProxyCommand=x:r1", "host"),
            ("verbs:r0,a b:r1", "host"),
            ("verbs:r0,h:0:r1", "port"),
            ("verbs:r0,h:70000:r1", "port"),
            ("verbs:r0,r1/0", "port \"0\""),
            ("verbs:r0,r1/1/x", "GID index"),
            ("verbs:r0,r1/1/2/3", "more than"),
            ("verbs:r0,[::1:r1", "bracket"),
            ("verbs:r0,[zz]:r1", "IPv6"),
            ("verbs:1,2,3,4,5,6,7,8,9", "at most 8"),
        ] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(error.contains("verbs:HOST:DEVICE"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(verbs:)?[ -~]{0,40}") {
            if let Ok(target) = text.parse::<Target>() {
                prop_assert_eq!(target.to_string().parse::<Target>().unwrap(), target);
            }
        }
    }
}
