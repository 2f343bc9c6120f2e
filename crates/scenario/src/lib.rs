//! What to run and what came out: scenarios, device profiles and measurements as plain, checked data.
//!
//! Text becomes a checked type here or a clear error (file, line, key, value, allowed range, nearest spelling);
//! later layers never validate again. Nothing here reads a file: callers pass text and its name.
//!
//! * [`model`] - the checked scenario: tenants, workloads, traffic, policy;
//! * [`profile`] - a device profile: every number with its source;
//! * [`measure`] - what a run reports, whatever testbed it ran on.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![forbid(unsafe_code)]

pub mod measure;
pub mod model;
pub mod profile;
