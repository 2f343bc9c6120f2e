//! Netlink as bytes: messages, attributes, and the socket.
//!
//! * [`message`] - requests and replies;
//! * [`attribute`] - type-length-value attributes, nested or not;
//! * [`socket`] - one request and all of its replies;
//! * [`generic`] - families of generic netlink by name.
//!
//! Replies are untrusted: any bytes parse to a value or an error, never to a panic. Numbers are in the machine's byte
//! order. Source: netlink(7), `linux/netlink.h`.

pub mod attribute;
pub mod generic;
pub mod message;
pub mod socket;

pub use attribute::{Attributes, AttributesBuilder};
pub use message::{Message, Request};
pub use socket::{Family, Socket};
