//! Networks: hosts that call each other through switches.
//!
//! A file is a network's scenario when it has a `[fabric]` table; everything else stays the scenario of two or more
//! RDMA hosts (`isolane_rdma_scenario`).
//!
//! * [`model`] - the checked scenario;
//! * [`parse()`] - TOML to scenario; `keys` - what it may say; [`parameters`] - of transports and policies;
//! * [`behind`] - the same tables below `[network]` of a scenario of RDMA hosts;
//! * `sizes` - published size distributions; [`schema`] - the JSON schema of a scenario;
//! * [`port_plan`] - a switch port and its objectives, as `isolane net plan` reads them.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![forbid(unsafe_code)]

pub(crate) mod keys;
pub mod model;
pub mod parameters;
pub(crate) mod parse;
pub mod port_plan;
pub mod schema;
pub mod sizes;

pub use parse::{FabricOverrides, behind, parse, parse_with};
