//! Data centre bridging of a network device: priority flow control, traffic classes, priorities by DSCP.
//!
//! Method: RTM_GETDCB with DCB_CMD_IEEE_GET over NETLINK_ROUTE, one request per network device. The answer also
//! contains the pause frames per priority, which needs no privilege and no ethtool ioctl.
//!
//! Units: bandwidth in percent of the link; pause frames as counts since the driver was loaded. Limits: a driver
//! without DCB (a veth, Soft-RoCE's usual netdev in tests, many virtual functions) answers "not supported", which is
//! [`None`] here. Source: `linux/dcbnl.h`; IEEE 802.1Qaz.

use isolane_common_linux::error::HostError;
use isolane_common_linux::netlink::{Attributes, AttributesBuilder, Family, Request, Socket};
use serde::{Deserialize, Serialize};

/// Priorities of 802.1p, and traffic classes.
pub const PRIORITIES: usize = 8;

const RTM_GETDCB: u16 = 78;
const DCB_CMD_IEEE_GET: u8 = 21;
/// Name of the network device, in every message.
pub const DCB_ATTR_IFNAME: u16 = 1;
/// The IEEE settings; in the answer to a write, one byte with the error.
pub const DCB_ATTR_IEEE: u16 = 13;
/// `struct ieee_ets`.
pub const DCB_ATTR_IEEE_ETS: u16 = 1;
/// `struct ieee_pfc`.
pub const DCB_ATTR_IEEE_PFC: u16 = 2;
/// The table of priorities by DSCP and others.
pub const DCB_ATTR_IEEE_APP_TABLE: u16 = 3;
/// `struct dcb_app`, in the table.
pub const DCB_ATTR_IEEE_APP: u16 = 1;
/// `struct dcbnl_buffer`.
pub const DCB_ATTR_DCB_BUFFER: u16 = 10;
/// The selector of a DSCP in the table.
pub const IEEE_8021QAZ_APP_SEL_DSCP: u8 = 5;
/// `struct dcbmsg`: family, command, padding.
pub const HEADER_BYTES: usize = 4;

/// The DCB settings of a network device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bridging {
    /// Priority flow control; `None` if the driver has none.
    pub flow_control: Option<FlowControl>,
    /// Traffic classes; `None` if the driver has none.
    pub classes: Option<Classes>,
    /// Pairs of DSCP and priority, sorted by DSCP. A driver that lists any uses DSCP instead of the VLAN tag (mlx5).
    pub dscp_priorities: Vec<(u8, u8)>,
}

/// Priority flow control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlowControl {
    /// Number of priorities that the device can pause at once.
    pub capable: u8,
    /// One bit per priority: 0x08 is priority 3.
    pub enabled: u8,
    /// Pause frames sent, by priority.
    pub pauses_sent: [u64; PRIORITIES],
    /// Pause frames received, by priority.
    pub pauses_received: [u64; PRIORITIES],
}

impl FlowControl {
    /// The enabled priorities, ascending.
    pub fn priorities(&self) -> Vec<u8> {
        (0..8)
            .filter(|priority| self.enabled & (1 << priority) != 0)
            .collect()
    }
}

/// Enhanced transmission selection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Classes {
    /// Number of classes of the device.
    pub capable: u8,
    /// Guaranteed share of each class, percent; used only with [`Selection::Share`].
    pub bandwidth_percent: [u8; PRIORITIES],
    /// Scheduling of each class.
    pub selection: [Selection; PRIORITIES],
    /// The class of each priority.
    pub class_of_priority: [u8; PRIORITIES],
}

/// Scheduling of a traffic class.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    /// Served before every lower class.
    #[default]
    Strict,
    /// Credit based shaper.
    CreditShaper,
    /// A share of what strict classes leave.
    Share,
    /// Vendor specific.
    Vendor,
}

/// Reads the settings of `network_device`; `None` if its driver has no DCB. A missing device is [`HostError::Kernel`].
pub fn read(socket: &mut Socket, network_device: &str) -> Result<Option<Bridging>, HostError> {
    let payload = query(socket, network_device)?;
    Ok(payload.as_deref().map(parse))
}

/// Reads the settings as the payload of the kernel's answer, for a program that writes a part of them again.
pub fn query(socket: &mut Socket, network_device: &str) -> Result<Option<Vec<u8>>, HostError> {
    let name = AttributesBuilder::new().with_text(DCB_ATTR_IFNAME, network_device);
    let mut payload = vec![0, DCB_CMD_IEEE_GET, 0, 0];
    payload.extend(name.bytes());
    let request = Request {
        kind: RTM_GETDCB,
        dump: false,
        create: false,
        payload,
    };
    let mut answer = None;
    let action = format!("read the DCB settings of {network_device}");
    let asked = socket.request(&action, &request, |_, payload| {
        answer = Some(payload.to_vec());
    });
    match asked {
        Ok(()) => Ok(answer),
        Err(HostError::NotOffered { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens the socket for [`read`].
pub fn open() -> Result<Socket, HostError> {
    Socket::open(Family::Route)
}

/// The value of an attribute of the IEEE settings (`enum ieee_attrs`) in the payload of an answer.
pub fn attribute(payload: &[u8], kind: u16) -> Option<&[u8]> {
    let attributes = Attributes::new(payload.get(HEADER_BYTES..).unwrap_or_default());
    attributes.nested(DCB_ATTR_IEEE).bytes(kind)
}

/// Parses the payload of an answer. Leaves out missing or short parts.
pub fn parse(payload: &[u8]) -> Bridging {
    let attributes = Attributes::new(payload.get(HEADER_BYTES..).unwrap_or_default());
    let settings = attributes.nested(DCB_ATTR_IEEE);
    let table = settings.nested(DCB_ATTR_IEEE_APP_TABLE);
    let mut dscp_priorities: Vec<(u8, u8)> = table
        .iter()
        .filter(|(kind, _)| *kind == DCB_ATTR_IEEE_APP)
        .filter_map(|(_, value)| match value {
            [IEEE_8021QAZ_APP_SEL_DSCP, priority, low, high] => {
                let dscp = u16::from_ne_bytes([*low, *high]);
                Some((u8::try_from(dscp).ok()?, *priority))
            }
            _ => None,
        })
        .collect();
    dscp_priorities.sort_unstable();
    Bridging {
        flow_control: settings.bytes(DCB_ATTR_IEEE_PFC).and_then(flow_control),
        classes: settings.bytes(DCB_ATTR_IEEE_ETS).and_then(classes),
        dscp_priorities,
    }
}

/// `struct ieee_pfc`: three bytes, a delay, and two tables of 64-bit counts at bytes 8 and 72.
fn flow_control(bytes: &[u8]) -> Option<FlowControl> {
    let counts = |at: usize| -> Option<[u64; PRIORITIES]> {
        let mut counts = [0; PRIORITIES];
        for (index, count) in counts.iter_mut().enumerate() {
            let from = at + index * 8;
            *count = u64::from_ne_bytes(bytes.get(from..from + 8)?.try_into().ok()?);
        }
        Some(counts)
    };
    Some(FlowControl {
        capable: *bytes.first()?,
        enabled: *bytes.get(1)?,
        pauses_sent: counts(8)?,
        pauses_received: counts(72)?,
    })
}

/// `struct ieee_ets`: three bytes, then tables of eight bytes each; the first, third and fourth are used here.
fn classes(bytes: &[u8]) -> Option<Classes> {
    let table =
        |at: usize| -> Option<[u8; PRIORITIES]> { bytes.get(at..at + PRIORITIES)?.try_into().ok() };
    Some(Classes {
        capable: *bytes.get(1)?,
        bandwidth_percent: table(3)?,
        selection: table(19)?.map(|number| match number {
            0 => Selection::Strict,
            1 => Selection::CreditShaper,
            2 => Selection::Share,
            _ => Selection::Vendor,
        }),
        class_of_priority: table(27)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn answer() -> Vec<u8> {
        let mut pfc = vec![8, 0x08, 0, 0, 0, 0, 0, 0];
        pfc.extend((0..8u64).flat_map(|index| (index * 10).to_ne_bytes()));
        pfc.extend((0..8u64).flat_map(|index| (index * 100).to_ne_bytes()));
        let mut ets = vec![1, 8, 0];
        ets.extend([0, 0, 0, 50, 0, 50, 0, 0]);
        ets.extend([0; 8]);
        ets.extend([2, 2, 2, 2, 2, 2, 0, 0]);
        ets.extend([0, 1, 2, 3, 4, 5, 6, 7]);
        ets.extend([0; 24]);
        let table = AttributesBuilder::new()
            .with(DCB_ATTR_IEEE_APP, &[5, 6, 48, 0])
            .with(DCB_ATTR_IEEE_APP, &[1, 3, 0x15, 0x89])
            .with(DCB_ATTR_IEEE_APP, &[5, 3, 26, 0]);
        let settings = AttributesBuilder::new()
            .with(DCB_ATTR_IEEE_PFC, &pfc)
            .with(DCB_ATTR_IEEE_ETS, &ets)
            .with_nested(DCB_ATTR_IEEE_APP_TABLE, &table);
        let answer = AttributesBuilder::new()
            .with_text(DCB_ATTR_IFNAME, "eth0")
            .with_nested(DCB_ATTR_IEEE, &settings);
        [vec![0, DCB_CMD_IEEE_GET, 0, 0], answer.bytes().to_vec()].concat()
    }

    #[test]
    fn settings_are_read_field_by_field() {
        let bridging = parse(&answer());
        let flow_control = bridging.flow_control.unwrap();
        assert_eq!(
            (flow_control.capable, flow_control.priorities()),
            (8, vec![3])
        );
        assert_eq!(
            (flow_control.pauses_sent[3], flow_control.pauses_received[3]),
            (30, 300)
        );
        let classes = bridging.classes.unwrap();
        assert_eq!(classes.bandwidth_percent, [0, 0, 0, 50, 0, 50, 0, 0]);
        assert_eq!(
            (classes.selection[5], classes.selection[6]),
            (Selection::Share, Selection::Strict)
        );
        assert_eq!(classes.class_of_priority[3], 3);
        assert_eq!(bridging.dscp_priorities, [(26, 3), (48, 6)]);
    }

    #[test]
    fn a_device_without_dcb_is_none() {
        let mut socket = open().unwrap();
        assert_eq!(read(&mut socket, "lo").unwrap(), None);
    }

    proptest! {
        #[test]
        fn damaged_answers_are_read_without_a_panic(at in any::<proptest::sample::Index>(), value in any::<u8>(), cut in any::<proptest::sample::Index>()) {
            let mut bytes = answer();
            let length = bytes.len();
            bytes[at.index(length)] = value;
            bytes.truncate(cut.index(length + 1));
            parse(&bytes);
        }
    }
}
