//! Networks: hosts that call each other through switches, and what became of the calls.
//!
//! A file is a network's scenario when it has a `[fabric]` table; everything else stays the scenario of two or more
//! RDMA hosts ([`crate::model`]).
//!
//! * [`model`] - the checked scenario; [`result`] - what a run reports;
//! * [`parse()`] - TOML to scenario; `keys` - what it may say; [`parameters`] - of transports and policies;
//! * [`sizes`] - published size distributions.

pub(crate) mod keys;
pub mod model;
pub mod parameters;
pub(crate) mod parse;
pub mod result;
pub mod sizes;

pub use parse::{FabricOverrides, is_network, parse, parse_with};
