//! Rates of virtual functions at the network device of their physical function.
//!
//! Units: Mb/s; 0 means none. Limits: drivers reject it while their switch is in switchdev mode, where devlink has the
//! rates. Source: rtnetlink(7), `linux/if_link.h` (`IFLA_VF_RATE`).

use super::devlink::is_missing;
use super::mismatched;
use crate::setting::{Target, Value};
use isolane_common_linux::HostError;
use isolane_common_linux::netlink::{Attributes, AttributesBuilder, Request, Socket};

const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
/// `struct ifinfomsg`; an index of 0 leaves the choice to the name.
const HEADER: [u8; 16] = [0; 16];
const IFLA_IFNAME: u16 = 3;
const IFLA_VFINFO_LIST: u16 = 22;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_VF_INFO: u16 = 1;
const IFLA_VF_RATE: u16 = 6;
const RTEXT_FILTER_VF: u32 = 1;

/// Number, guaranteed and largest rate of each virtual function of a network device, Mb/s.
pub fn list(socket: &mut Socket, device: &str) -> Result<Vec<(u32, u32, u32)>, HostError> {
    let attributes = AttributesBuilder::new()
        .with_text(IFLA_IFNAME, device)
        .with_u32(IFLA_EXT_MASK, RTEXT_FILTER_VF);
    let request = request(RTM_GETLINK, &attributes);
    let mut found = Vec::new();
    socket.request(
        &format!("list the virtual functions of {device}"),
        &request,
        |_, payload| {
            found = parse(payload);
        },
    )?;
    Ok(found)
}

/// The rate of one virtual function.
pub fn read(socket: &mut Socket, device: &str, number: u32) -> Result<Value, HostError> {
    let list = match list(socket, device) {
        Ok(list) => list,
        Err(error) if is_missing(&error) => return Ok(Value::Absent),
        Err(error) => return Err(error),
    };
    let found = list.into_iter().find(|(found, _, _)| *found == number);
    Ok(found.map_or(Value::Absent, |(_, share_mbps, max_mbps)| {
        Value::FunctionRate {
            share_mbps,
            max_mbps,
        }
    }))
}

/// Sets the rate of one virtual function.
pub fn write(
    socket: &mut Socket,
    device: &str,
    number: u32,
    value: &Value,
) -> Result<(), HostError> {
    let target = Target::FunctionRate {
        network_device: device.to_owned(),
        number,
    };
    let Value::FunctionRate {
        share_mbps,
        max_mbps,
    } = value
    else {
        return Err(mismatched(&target, value));
    };
    let words = [number, *share_mbps, *max_mbps];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let rate = AttributesBuilder::new().with(IFLA_VF_RATE, &bytes);
    let list = AttributesBuilder::new().with_nested(IFLA_VF_INFO, &rate);
    let attributes = AttributesBuilder::new()
        .with_text(IFLA_IFNAME, device)
        .with_nested(IFLA_VFINFO_LIST, &list);
    let request = request(RTM_SETLINK, &attributes);
    socket.request(&format!("set the {target} to {value}"), &request, |_, _| {})
}

fn request(kind: u16, attributes: &AttributesBuilder) -> Request {
    let mut payload = HEADER.to_vec();
    payload.extend(attributes.bytes());
    Request {
        kind,
        dump: false,
        create: false,
        payload,
    }
}

fn parse(payload: &[u8]) -> Vec<(u32, u32, u32)> {
    let attributes = Attributes::new(payload.get(HEADER.len()..).unwrap_or_default());
    let list = attributes.nested(IFLA_VFINFO_LIST);
    let rate = |function: Attributes<'_>| {
        let bytes = function.bytes(IFLA_VF_RATE)?;
        let word = |index: usize| {
            let bytes = bytes.get(4 * index..4 * index + 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?))
        };
        Some((word(0)?, word(1)?, word(2)?))
    };
    list.each_nested(IFLA_VF_INFO).filter_map(rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_by_function() {
        let bytes = |words: [u32; 3]| {
            words
                .iter()
                .flat_map(|word| word.to_ne_bytes())
                .collect::<Vec<u8>>()
        };
        let function = |words| AttributesBuilder::new().with(IFLA_VF_RATE, &bytes(words));
        let list = AttributesBuilder::new()
            .with_nested(IFLA_VF_INFO, &function([0, 10, 20]))
            .with_nested(IFLA_VF_INFO, &function([1, 0, 0]));
        let attributes = AttributesBuilder::new().with_nested(IFLA_VFINFO_LIST, &list);
        let payload = [HEADER.to_vec(), attributes.bytes().to_vec()].concat();
        assert_eq!(parse(&payload), [(0, 10, 20), (1, 0, 0)]);
    }

    #[test]
    fn a_device_without_functions_has_none() {
        let mut socket = Socket::open(isolane_common_linux::netlink::Family::Route).unwrap();
        assert_eq!(list(&mut socket, "lo").unwrap(), []);
        assert_eq!(read(&mut socket, "lo", 0).unwrap(), Value::Absent);
        assert_eq!(
            read(&mut socket, "no-such-device", 0).unwrap(),
            Value::Absent
        );
    }
}
