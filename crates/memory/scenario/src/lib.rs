//! Tiered memory: a machine's tiers and the applications that share them.
//!
//! * [`model`] - the checked scenario: machine, policy, applications and how they change;
//! * [`parse()`](parse::parse) - scenario TOML to the checked scenario; `keys` lists what may be written;
//! * [`machine`] - numbers of a machine and its kernel, each with its source;
//! * [`application`] - numbers of an application, each with its source;
//! * [`schema`] - the JSON schema of a scenario.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![forbid(unsafe_code)]

pub mod application;
pub(crate) mod keys;
pub mod machine;
pub mod model;
pub mod parse;
pub mod schema;
