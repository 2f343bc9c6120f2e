//! Netlink attributes: a 16-bit length that counts the header, a 16-bit type whose two top bits are flags, a value,
//! and padding to four bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of an attribute's header.
const HEADER_BYTES: usize = 4;
/// The type without NLA_F_NESTED and NLA_F_NET_BYTEORDER.
const TYPE_MASK: u16 = 0x3fff;
/// NLA_F_NESTED.
const NESTED: u16 = 0x8000;

/// Attributes as they came, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes<'a> {
    bytes: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// The attributes in `bytes`. Nothing is checked yet: an attribute whose length is wrong ends the list.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Type and value of each attribute, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        let mut rest = self.bytes;
        std::iter::from_fn(move || {
            let length = usize::from(u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?));
            let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?) & TYPE_MASK;
            let value = rest.get(HEADER_BYTES..length)?;
            rest = rest.get(aligned(length)..).unwrap_or_default();
            Some((kind, value))
        })
    }

    /// The first value of that type.
    pub fn bytes(&self, kind: u16) -> Option<&'a [u8]> {
        let (_, value) = self.iter().find(|(found, _)| *found == kind)?;
        Some(value)
    }

    /// The attributes inside the first attribute of that type; none inside where there is no such attribute.
    pub fn nested(&self, kind: u16) -> Self {
        Self::new(self.bytes(kind).unwrap_or_default())
    }

    /// The attributes inside each attribute of that type.
    pub fn each_nested(&self, kind: u16) -> impl Iterator<Item = Self> + use<'a> {
        let of_kind = self.iter().filter(move |(found, _)| *found == kind);
        of_kind.map(|(_, value)| Self::new(value))
    }

    /// A byte.
    pub fn u8(&self, kind: u16) -> Option<u8> {
        self.bytes(kind)?.first().copied()
    }

    /// A 16-bit number.
    pub fn u16(&self, kind: u16) -> Option<u16> {
        Some(u16::from_ne_bytes(self.fixed(kind)?))
    }

    /// A 32-bit number.
    pub fn u32(&self, kind: u16) -> Option<u32> {
        Some(u32::from_ne_bytes(self.fixed(kind)?))
    }

    /// A 64-bit number.
    pub fn u64(&self, kind: u16) -> Option<u64> {
        Some(u64::from_ne_bytes(self.fixed(kind)?))
    }

    /// A text up to its first zero byte; bytes that are no UTF-8 become the replacement character.
    pub fn text(&self, kind: u16) -> Option<String> {
        let value = self.bytes(kind)?;
        let end = value.iter().position(|byte| *byte == 0);
        let text = &value[..end.unwrap_or(value.len())];
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// A `sockaddr_storage` with an IPv4 or IPv6 address; none for another family (AF_IB).
    pub fn socket_address(&self, kind: u16) -> Option<SocketAddr> {
        const AF_INET: u16 = 2;
        const AF_INET6: u16 = 10;
        let value = self.bytes(kind)?;
        let family = u16::from_ne_bytes(value.get(..2)?.try_into().ok()?);
        let port = u16::from_be_bytes(value.get(2..4)?.try_into().ok()?);
        let address: IpAddr = match family {
            AF_INET => Ipv4Addr::from(<[u8; 4]>::try_from(value.get(4..8)?).ok()?).into(),
            AF_INET6 => Ipv6Addr::from(<[u8; 16]>::try_from(value.get(8..24)?).ok()?).into(),
            _ => return None,
        };
        Some(SocketAddr::new(address, port))
    }

    fn fixed<const BYTES: usize>(&self, kind: u16) -> Option<[u8; BYTES]> {
        self.bytes(kind)?.get(..BYTES)?.try_into().ok()
    }
}

/// Attributes to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttributesBuilder {
    bytes: Vec<u8>,
}

impl AttributesBuilder {
    /// No attributes yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value. Values of ours are a few bytes; one beyond 65,531 bytes is our mistake.
    #[must_use]
    pub fn with(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(HEADER_BYTES + value.len())
            .expect("a value that we send fits an attribute");
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.bytes.resize(aligned(self.bytes.len()), 0);
        self
    }

    /// Adds a 32-bit number.
    #[must_use]
    pub fn with_u32(self, kind: u16, value: u32) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    /// Adds a 64-bit number.
    #[must_use]
    pub fn with_u64(self, kind: u16, value: u64) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    /// Adds a text and its zero byte.
    #[must_use]
    pub fn with_text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.with(kind, &bytes)
    }

    /// Adds attributes inside one attribute.
    #[must_use]
    pub fn with_nested(self, kind: u16, inner: &Self) -> Self {
        self.with(kind | NESTED, &inner.bytes)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// `length` rounded up to four.
pub(crate) fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_give_an_end_and_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let attributes = Attributes::new(&bytes);
            let total: usize = attributes.iter().map(|(_, value)| value.len() + HEADER_BYTES).sum();
            prop_assert!(total <= bytes.len());
            for (kind, _) in attributes.iter() {
                let _ = (attributes.u8(kind), attributes.u16(kind), attributes.u32(kind), attributes.u64(kind));
                let _ = (attributes.text(kind), attributes.socket_address(kind));
                let _ = attributes.each_nested(kind).map(|inner| inner.iter().count()).sum::<usize>();
            }
        }

        #[test]
        fn what_is_built_is_read_back(values in proptest::collection::vec((0u16..200, proptest::collection::vec(any::<u8>(), 0..40)), 0..20)) {
            let built = values.iter().fold(AttributesBuilder::new(), |built, (kind, value)| built.with(*kind, value));
            let inside = AttributesBuilder::new().with_nested(9, &built);
            let read: Vec<_> = Attributes::new(inside.bytes()).nested(9).iter().map(|(kind, value)| (kind, value.to_vec())).collect();
            prop_assert_eq!(read, values);
        }
    }

    #[test]
    fn texts_end_at_the_zero_byte() {
        let built = AttributesBuilder::new().with_text(2, "r0");
        assert_eq!(
            Attributes::new(built.bytes()).text(2).as_deref(),
            Some("r0")
        );
    }

    #[test]
    fn socket_addresses_are_read_in_network_order() {
        let mut storage = vec![0; 128];
        storage[..2].copy_from_slice(&2u16.to_ne_bytes());
        storage[2..8].copy_from_slice(&[0x1c, 0x06, 10, 8, 0, 1]);
        let built = AttributesBuilder::new().with(33, &storage);
        let address = Attributes::new(built.bytes()).socket_address(33);
        assert_eq!(address, Some("10.8.0.1:7174".parse().unwrap()));
    }
}
