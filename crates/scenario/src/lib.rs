//! What to run and what came out: scenarios, device profiles and measurements as plain, checked data.
//!
//! Text becomes a checked type here or a clear error (file, line, key, value, allowed range, nearest spelling);
//! later layers never validate again. Nothing here reads a file: callers pass text and its name.
//!
//! * [`parse()`] - scenario TOML to a checked scenario; [`library`] - the profiles and workloads it may name;
//! * [`command`] - perftest and traffic engine command lines as workloads;
//! * [`catalogue`] - husky's victims and attackers, and the latency victims it lacks;
//! * [`enforcement`] - the file of `isolane enforce`: tenants, how to tell them, what they may;
//! * [`check`] - what traffic and devices cannot do; [`error`] - how a mistake is reported;
//! * [`fabric`] - networks of many hosts, and what became of their calls;
//! * [`glob`] - names by pattern; [`quantity`] - sizes, rates and times with units;
//! * [`stack`] - policies as stacks of parts;
//! * [`schema`] - JSON schemas of what goes in and comes out;
//! * [`mem`] - tiered memory: machines, applications, scenarios, results;
//! * [`model`] - the checked scenario: tenants, workloads, traffic, policy;
//! * [`profile`] - a device profile: every number with its source;
//! * [`table`] - a TOML table read key by key, for other formats of this project;
//! * [`nic`] - ordinary network cards: configurations, studies, results;
//! * [`measure`] - what a run reports, whatever testbed it ran on.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![forbid(unsafe_code)]

pub mod application;
pub mod catalogue;
pub mod check;
pub mod command;
pub mod device_name;
pub mod enforcement;
pub mod error;
pub mod fabric;
pub mod glob;
pub mod library;
pub mod measure;
pub mod mem;
mod microarchitecture;
pub mod model;
pub mod nic;
mod parameters;
mod parse;
mod policy;
mod policy_parts;
pub mod port_plan;
pub mod profile;
mod profile_text;
mod promise;
pub mod quantity;
pub mod schema;
mod spec;
pub mod stack;
pub mod table;
mod traffic;

#[cfg(test)]
mod tests;

pub use parse::{Overrides, parse, parse_with};
pub use policy_parts::{POLICIES, PolicyParameter};
