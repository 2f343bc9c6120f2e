//! Congestion notifications: telling this host's own NIC that a tenant's flow has met congestion.
//!
//! * [`packet`] - the bytes, checked against another dissector;
//! * [`icrc`] - the checksum that InfiniBand adds;
//! * [`target`] - whom one may be sent to: flows of this host's tenants, from the kernel's books, and nobody else;
//! * [`sender`] - sending, at a bounded rate.
//!
//! Source: harmonic 5.5.1; InfiniBand specification, annex 17 (RoCEv2), 17.9.

pub mod icrc;
pub mod packet;
pub mod sender;
pub mod target;
