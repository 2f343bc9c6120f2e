//! Congestion notification packets (CNPs) to this host's own RNIC, which slow a tenant's flows.
//!
//! * [`packet`] - the bytes, compared with `tshark`;
//! * [`icrc`] - the invariant checksum;
//! * [`target`] - the permitted destinations: only flows of this host's tenants, from the kernel's inventory;
//! * [`sender`] - sends at a bounded rate.
//!
//! Source: harmonic 5.5.1; InfiniBand specification, annex 17 (RoCEv2), 17.9.

pub(crate) mod icrc;
pub(crate) mod packet;
pub(crate) mod sender;
pub(crate) mod target;
