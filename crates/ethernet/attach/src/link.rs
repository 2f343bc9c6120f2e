//! Network devices over rtnetlink: their properties and segment size limits.
//!
//! Units: sizes in bytes with headers, as the kernel counts. Queue counts are those that the device was made with; a
//! driver may use fewer ([`crate::queues`]). Limits: a kernel before 6.3 has one limit for both address families;
//! [`Sizes::ipv4`] is then `None`. Source: rtnetlink(7), `linux/if_link.h`.

use crate::error::NicError;
use isolane_common_linux::netlink::{Attributes, AttributesBuilder, Family, Request, Socket};
use serde::{Deserialize, Serialize};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
/// `struct ifinfomsg`: family, padding, type, index, flags, change.
const HEADER_BYTES: usize = 16;
const IFF_UP: u32 = 1;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_GSO_MAX_SEGS: u16 = 40;
const IFLA_GSO_MAX_SIZE: u16 = 41;
const IFLA_PERM_ADDRESS: u16 = 54;
const IFLA_GSO_IPV4_MAX_SIZE: u16 = 63;
const IFLA_INFO_KIND: u16 = 1;

/// Largest segments that the stack passes to a device.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Sizes {
    /// Limit for IPv6, and for both families on old kernels, bytes.
    #[serde(rename = "gso_max_size_bytes")]
    pub general: u32,
    /// Limit for IPv4, bytes.
    #[serde(rename = "gso_ipv4_max_size_bytes")]
    pub ipv4: Option<u32>,
}

/// A network device as the kernel describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Interface index; not reused while the namespace lives.
    pub index: u32,
    /// Its name, which may change.
    pub name: String,
    /// Whether the interface is up.
    pub up: bool,
    /// Kind of a software device, such as `veth`; `None` for hardware.
    pub kind: Option<String>,
    /// MTU, bytes.
    pub mtu: u32,
    /// Number of transmit queues that it was made with.
    pub queues_max: u32,
    /// Segment size limits.
    pub sizes: Sizes,
    /// Largest number of packets in a segment.
    pub gso_max_segments: u32,
    /// Hardware address; the permanent one if it exists.
    pub address: Vec<u8>,
    /// Whether the address is the permanent one, which cannot be changed.
    pub has_permanent_address: bool,
}

/// The rtnetlink socket of the opening thread's namespace.
#[derive(Debug)]
pub struct Route {
    socket: Socket,
}

impl Route {
    /// Opens a socket.
    pub fn open() -> Result<Self, NicError> {
        Ok(Self {
            socket: Socket::open(Family::Route)?,
        })
    }

    /// Sends a request; see [`Socket::request`].
    pub(crate) fn ask(
        &mut self,
        action: &str,
        request: &Request,
        each: impl FnMut(u16, &[u8]),
    ) -> Result<(), NicError> {
        Ok(self.socket.request(action, request, each)?)
    }

    /// All devices.
    pub fn links(&mut self) -> Result<Vec<Link>, NicError> {
        let request = Request {
            kind: RTM_GETLINK,
            dump: true,
            create: false,
            payload: header(0),
        };
        let mut links = Vec::new();
        self.ask("list network devices", &request, |kind, payload| {
            links.extend((kind == RTM_NEWLINK).then(|| parse(payload)).flatten());
        })?;
        Ok(links)
    }

    /// The device with that name. Fails with [`NicError::NoDevice`], which has the existing names.
    pub fn link(&mut self, name: &str) -> Result<Link, NicError> {
        named(&self.links()?, name).cloned()
    }

    /// The device with that index; `None` if it was removed.
    pub fn link_by_index(&mut self, index: u32) -> Result<Option<Link>, NicError> {
        let links = self.links()?;
        Ok(links.into_iter().find(|link| link.index == index))
    }

    /// Sets a device's segment size limits. Larger segments that already exist are split in software. The kernel
    /// rejects a size below a header's.
    pub fn set_sizes(&mut self, index: u32, sizes: Sizes) -> Result<(), NicError> {
        let request = set_sizes(index, sizes);
        let action = format!(
            "set the segment size of device {index} to {} bytes",
            sizes.general
        );
        self.ask(&action, &request, |_, _| {})
    }
}

/// The device with that name among `links`. Fails with [`NicError::NoDevice`], which has the existing names.
pub fn named<'a>(links: &'a [Link], name: &str) -> Result<&'a Link, NicError> {
    let found = links.iter().find(|link| link.name == name);
    found.ok_or_else(|| NicError::NoDevice {
        device: name.to_owned(),
        known: links.iter().map(|link| link.name.clone()).collect(),
    })
}

/// The request that sets sizes. The IPv4 limit comes last, because the kernel changes it together with the general one.
fn set_sizes(index: u32, sizes: Sizes) -> Request {
    let mut attributes = AttributesBuilder::new().with_u32(IFLA_GSO_MAX_SIZE, sizes.general);
    if let Some(ipv4) = sizes.ipv4 {
        attributes = attributes.with_u32(IFLA_GSO_IPV4_MAX_SIZE, ipv4);
    }
    let mut payload = header(index);
    payload.extend(attributes.bytes());
    Request {
        kind: RTM_SETLINK,
        dump: false,
        create: false,
        payload,
    }
}

fn header(index: u32) -> Vec<u8> {
    let mut header = vec![0; HEADER_BYTES];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header
}

/// Parses one device; `None` if it has no header or no name.
pub fn parse(payload: &[u8]) -> Option<Link> {
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_ne_bytes(
            payload.get(at..at + 4)?.try_into().ok()?,
        ))
    };
    let attributes = Attributes::new(payload.get(HEADER_BYTES..)?);
    let number = |kind| attributes.u32(kind).unwrap_or(0);
    let permanent = attributes.bytes(IFLA_PERM_ADDRESS);
    let address = permanent.or_else(|| attributes.bytes(IFLA_ADDRESS));
    Some(Link {
        index: word(4)?,
        up: word(8)? & IFF_UP != 0,
        name: attributes.text(IFLA_IFNAME)?,
        kind: attributes.nested(IFLA_LINKINFO).text(IFLA_INFO_KIND),
        mtu: number(IFLA_MTU),
        queues_max: number(IFLA_NUM_TX_QUEUES),
        sizes: Sizes {
            general: number(IFLA_GSO_MAX_SIZE),
            ipv4: attributes.u32(IFLA_GSO_IPV4_MAX_SIZE),
        },
        gso_max_segments: number(IFLA_GSO_MAX_SEGS),
        address: address.unwrap_or_default().to_vec(),
        has_permanent_address: permanent.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message() -> Vec<u8> {
        let kind = AttributesBuilder::new().with_text(IFLA_INFO_KIND, "veth");
        let attributes = AttributesBuilder::new()
            .with_text(IFLA_IFNAME, "v0")
            .with_u32(IFLA_MTU, 1500)
            .with_u32(IFLA_NUM_TX_QUEUES, 8)
            .with_u32(IFLA_GSO_MAX_SIZE, 65_536)
            .with_u32(IFLA_GSO_IPV4_MAX_SIZE, 16_384)
            .with_nested(IFLA_LINKINFO, &kind);
        let mut bytes = header(7);
        bytes[8] = 1;
        bytes.extend(attributes.bytes());
        bytes
    }

    #[test]
    fn a_device_is_read_field_by_field() {
        let link = parse(&message()).unwrap();
        assert_eq!((link.index, link.name.as_str(), link.up), (7, "v0", true));
        assert_eq!((link.mtu, link.queues_max), (1500, 8));
        assert_eq!(link.kind.as_deref(), Some("veth"));
        assert_eq!(
            link.sizes,
            Sizes {
                general: 65_536,
                ipv4: Some(16_384)
            }
        );
    }

    #[test]
    fn sizes_are_set_general_first() {
        let request = set_sizes(
            7,
            Sizes {
                general: 16_384,
                ipv4: Some(8_192),
            },
        );
        let mut wanted = vec![0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        wanted.extend([8, 0, 41, 0, 0, 64, 0, 0]);
        wanted.extend([8, 0, 63, 0, 0, 32, 0, 0]);
        assert_eq!((request.kind, request.payload), (19, wanted));
    }

    #[test]
    fn loopback_is_there_and_a_wrong_name_lists_it() {
        let mut route = Route::open().unwrap();
        let link = route.link("lo").unwrap();
        assert_eq!(route.link_by_index(link.index).unwrap(), Some(link));
        let error = route.link("no-such-device").unwrap_err();
        assert!(
            error.is_bad_input() && error.to_string().contains("lo"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn damaged_messages_are_read_without_a_panic(at in any::<proptest::sample::Index>(), value in any::<u8>(), cut in any::<proptest::sample::Index>()) {
            let mut bytes = message();
            let length = bytes.len();
            bytes[at.index(length)] = value;
            bytes.truncate(cut.index(length + 1));
            parse(&bytes);
        }
    }
}
