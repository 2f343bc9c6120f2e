//! Netlink as bytes: messages, attributes, and the socket that carries them.
//!
//! * [`message`] - requests out, replies in;
//! * [`attribute`] - type-length-value attributes, nested or not;
//! * [`socket`] - one request, all of its replies.
//!
//! The kernel is trusted less here than it deserves: any bytes parse to something or to an error, never to a panic.
//! Numbers are in the machine's byte order. Source: netlink(7), `linux/netlink.h`.

pub mod attribute;
pub mod message;
pub mod socket;

pub use attribute::{Attributes, AttributesBuilder};
pub use message::{Message, Request};
pub use socket::{Family, Socket};
