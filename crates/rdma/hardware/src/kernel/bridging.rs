//! Data centre bridging: traffic classes, priorities by DSCP, flow control and buffers of a network device.
//!
//! Problem: each message replaces a whole structure, of which the plan knows a part. Method: the structure is read, its
//! part is changed, and the whole is written, so that recommendations, timers and quotas stay. The kernel answers a
//! write with one byte: 0, or the negative error number. Entries of the DSCP table are added and removed one by one.
//! Limits: after a write of buffers mlx5 no longer computes their sizes itself until its driver is loaded again.
//! Source: `linux/dcbnl.h`, `net/dcb/dcbnl.c`; IEEE 802.1Qaz.

use super::devlink::is_missing;
use super::mismatched;
use crate::setting::{Classes, Selection, Target, Value};
use isolane_common_linux::HostError;
use isolane_common_linux::netlink::{Attributes, AttributesBuilder, Request, Socket};
use isolane_rdma_inventory::dcb::{
    self, DCB_ATTR_DCB_BUFFER, DCB_ATTR_IEEE, DCB_ATTR_IEEE_APP, DCB_ATTR_IEEE_APP_TABLE,
    DCB_ATTR_IEEE_ETS, DCB_ATTR_IEEE_PFC, DCB_ATTR_IFNAME, HEADER_BYTES, IEEE_8021QAZ_APP_SEL_DSCP,
};
use std::io;

const RTM_SETDCB: u16 = 79;
const IEEE_SET: u8 = 20;
const IEEE_DELETE: u8 = 27;
/// Places in `struct ieee_ets`.
const ETS_SHARE: usize = 3;
const ETS_SELECTION: usize = 19;
const ETS_CLASS_OF_PRIORITY: usize = 27;
/// Place in `struct ieee_pfc`.
const PFC_ENABLED: usize = 1;
/// Places in `struct dcbnl_buffer`: the buffer of each priority is at 0.
const BUFFER_SIZES: usize = 8;
const BUFFER_TOTAL: usize = 40;

/// Reads one value. Fails with [`HostError::NotOffered`] if the driver has no such setting.
pub fn read(socket: &mut Socket, device: &str, target: &Target) -> Result<Value, HostError> {
    let payload = match dcb::query(socket, device) {
        Ok(payload) => payload.ok_or_else(|| lacks(target))?,
        Err(error) if is_missing(&error) => return Ok(Value::Absent),
        Err(error) => return Err(error),
    };
    parse(&payload, target).ok_or_else(|| lacks(target))
}

/// Writes one value.
pub fn write(
    socket: &mut Socket,
    device: &str,
    target: &Target,
    value: &Value,
) -> Result<(), HostError> {
    let payload = dcb::query(socket, device)?.ok_or_else(|| lacks(target))?;
    let structure = |kind: u16| {
        let bytes = dcb::attribute(&payload, kind).map(<[u8]>::to_vec);
        bytes.ok_or_else(|| lacks(target))
    };
    let settings = AttributesBuilder::new();
    let settings = match (target, value) {
        (Target::Classes { .. }, Value::Classes(classes)) => {
            let mut bytes = structure(DCB_ATTR_IEEE_ETS)?;
            put(&mut bytes, ETS_SHARE, &classes.share_percent);
            put(&mut bytes, ETS_SELECTION, &classes.selection.map(number_of));
            put(
                &mut bytes,
                ETS_CLASS_OF_PRIORITY,
                &classes.class_of_priority,
            );
            settings.with(DCB_ATTR_IEEE_ETS, &bytes)
        }
        (Target::FlowControl { .. }, Value::FlowControl { enabled }) => {
            let mut bytes = structure(DCB_ATTR_IEEE_PFC)?;
            put(&mut bytes, PFC_ENABLED, &[*enabled]);
            settings.with(DCB_ATTR_IEEE_PFC, &bytes)
        }
        (
            Target::Buffers { .. },
            Value::Buffers {
                buffer_of_priority,
                sizes_bytes,
            },
        ) => {
            let mut bytes = structure(DCB_ATTR_DCB_BUFFER)?;
            put(&mut bytes, 0, buffer_of_priority);
            let sizes: Vec<u8> = sizes_bytes
                .iter()
                .flat_map(|size| size.to_ne_bytes())
                .collect();
            put(&mut bytes, BUFFER_SIZES, &sizes);
            settings.with(DCB_ATTR_DCB_BUFFER, &bytes)
        }
        (Target::Dscp { dscp, .. }, Value::Dscp { priorities }) => {
            return write_dscp(
                socket,
                device,
                *dscp,
                &priorities_of(&payload, *dscp),
                priorities,
            );
        }
        _ => return Err(mismatched(target, value)),
    };
    send(
        socket,
        device,
        &format!("set the {target} to {value}"),
        IEEE_SET,
        &settings,
    )
}

/// Makes `wanted` the priorities of a DSCP. New entries come first: a DSCP without any would be in the default class.
/// mlx5 removes the old entry itself, so the table is read again before entries are removed.
fn write_dscp(
    socket: &mut Socket,
    device: &str,
    dscp: u8,
    present: &[u8],
    wanted: &[u8],
) -> Result<(), HostError> {
    for priority in wanted.iter().filter(|priority| !present.contains(priority)) {
        change_dscp(socket, device, dscp, *priority, (IEEE_SET, "add"))?;
    }
    let payload = dcb::query(socket, device)?.unwrap_or_default();
    let present = priorities_of(&payload, dscp);
    for priority in present.iter().filter(|priority| !wanted.contains(priority)) {
        change_dscp(socket, device, dscp, *priority, (IEEE_DELETE, "remove"))?;
    }
    Ok(())
}

fn change_dscp(
    socket: &mut Socket,
    device: &str,
    dscp: u8,
    priority: u8,
    (command, word): (u8, &str),
) -> Result<(), HostError> {
    let [low, high] = u16::from(dscp).to_ne_bytes();
    let entry = [IEEE_8021QAZ_APP_SEL_DSCP, priority, low, high];
    let table = AttributesBuilder::new().with(DCB_ATTR_IEEE_APP, &entry);
    let settings = AttributesBuilder::new().with_nested(DCB_ATTR_IEEE_APP_TABLE, &table);
    let action = format!("{word} priority {priority} for DSCP {dscp} of {device}");
    send(socket, device, &action, command, &settings)
}

fn send(
    socket: &mut Socket,
    device: &str,
    action: &str,
    command: u8,
    settings: &AttributesBuilder,
) -> Result<(), HostError> {
    let attributes = AttributesBuilder::new()
        .with_text(DCB_ATTR_IFNAME, device)
        .with_nested(DCB_ATTR_IEEE, settings);
    let mut payload = vec![0, command, 0, 0];
    payload.extend(attributes.bytes());
    let request = Request {
        kind: RTM_SETDCB,
        dump: false,
        create: false,
        payload,
    };
    let mut code = 0i8;
    socket.request(action, &request, |_, payload| {
        let answer = Attributes::new(payload.get(HEADER_BYTES..).unwrap_or_default());
        code = answer.u8(DCB_ATTR_IEEE).map_or(0, u8::cast_signed);
    })?;
    match code {
        0 => Ok(()),
        code => Err(HostError::Kernel {
            action: action.to_owned(),
            source: io::Error::from_raw_os_error(i32::from(code).abs()),
        }),
    }
}

/// Size of all buffers together in the payload of an answer, bytes; `None` if the driver shows no buffers.
pub fn buffers_total(payload: &[u8]) -> Option<u32> {
    let bytes = dcb::attribute(payload, DCB_ATTR_DCB_BUFFER)?;
    let total = bytes.get(BUFFER_TOTAL..BUFFER_TOTAL + 4)?;
    Some(u32::from_ne_bytes(total.try_into().ok()?))
}

/// The value of `target` in the payload of an answer; `None` if the driver has no such setting.
fn parse(payload: &[u8], target: &Target) -> Option<Value> {
    let found = dcb::parse(payload);
    match target {
        Target::Classes { .. } => found.classes.map(|classes| {
            Value::Classes(Classes {
                share_percent: classes.bandwidth_percent,
                selection: classes.selection,
                class_of_priority: classes.class_of_priority,
            })
        }),
        Target::FlowControl { .. } => {
            let enabled = found.flow_control?.enabled;
            Some(Value::FlowControl { enabled })
        }
        Target::Dscp { dscp, .. } => Some(Value::Dscp {
            priorities: priorities_of(payload, *dscp),
        }),
        Target::Buffers { .. } => {
            let bytes = dcb::attribute(payload, DCB_ATTR_DCB_BUFFER)?;
            let size = |index: usize| {
                let from = BUFFER_SIZES + 4 * index;
                let bytes = bytes.get(from..from + 4)?;
                Some(u32::from_ne_bytes(bytes.try_into().ok()?))
            };
            let mut sizes_bytes = [0; 8];
            for (index, place) in sizes_bytes.iter_mut().enumerate() {
                *place = size(index)?;
            }
            Some(Value::Buffers {
                buffer_of_priority: bytes.get(..8)?.try_into().ok()?,
                sizes_bytes,
            })
        }
        _ => None,
    }
}

fn priorities_of(payload: &[u8], dscp: u8) -> Vec<u8> {
    let pairs = dcb::parse(payload).dscp_priorities;
    let of = pairs.into_iter().filter(|(found, _)| *found == dscp);
    of.map(|(_, priority)| priority).collect()
}

/// Writes `part` at `at`; a structure that is too short is an older kernel's and keeps what it has.
fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + part.len()) {
        place.copy_from_slice(part);
    }
}

fn number_of(selection: Selection) -> u8 {
    match selection {
        Selection::Strict => 0,
        Selection::CreditShaper => 1,
        Selection::Share => 2,
        Selection::Vendor => 255,
    }
}

fn lacks(target: &Target) -> HostError {
    HostError::NotOffered {
        action: format!("read the {target}"),
        source: io::Error::new(io::ErrorKind::Unsupported, "the driver has no such setting"),
    }
}
