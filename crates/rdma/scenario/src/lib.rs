//! What to run on RDMA NICs: scenarios, device profiles and workloads as plain, checked data.
//!
//! Text becomes a checked type here or a clear error (file, line, key, value, allowed range, nearest spelling);
//! later layers never validate again. Nothing here reads a file: callers pass text and its name.
//!
//! * [`parse()`] - scenario TOML to a checked scenario; [`library`] - the profiles and workloads it may name;
//! * [`command`] - perftest and traffic engine command lines as workloads;
//! * [`catalogue`] - husky's victims and attackers, and the latency victims it lacks;
//! * [`enforcement`] - the file of `isolane rdma enforce`: tenants, their conditions, their limits;
//! * [`check`] - what traffic and devices cannot do;
//! * [`stack`] - policies as stacks of parts;
//! * [`schema`] - the JSON schema of a scenario;
//! * [`model`] - the checked scenario: tenants, workloads, traffic, policy;
//! * [`profile`] - a device profile: every number with its source.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![forbid(unsafe_code)]

pub mod application;
mod application_text;
pub mod catalogue;
pub mod check;
pub mod command;
pub mod device_name;
pub mod enforcement;
pub mod library;
mod microarchitecture;
pub mod model;
mod parameters;
mod parse;
mod plain;
mod policy;
mod policy_parts;
pub mod profile;
mod profile_text;
mod promise;
pub mod schema;
mod spec;
pub mod stack;
mod traffic;

#[cfg(test)]
mod tests;

pub use parse::{Overrides, parse, parse_with};
pub use policy_parts::POLICIES;
