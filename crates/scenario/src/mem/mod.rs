//! Tiered memory: a machine's tiers, the applications that share them, what came out.
//!
//! * [`model`] - the checked scenario: machine, policy, applications and how they change;
//! * [`parse()`](parse::parse) - scenario TOML to the checked scenario; `keys` lists what may be written;
//! * [`machine`] - numbers of a machine and its kernel, each with its source;
//! * [`application`] - numbers of an application, each with its source;
//! * [`result`] - what a run reports.

pub mod application;
pub(crate) mod keys;
pub mod machine;
pub mod model;
pub mod parse;
pub mod result;
