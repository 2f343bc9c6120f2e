//! Parses text into checked values: TOML tables are read key by key, and every mistake is reported with its line and
//! remedy.
//!
//! * [`error`] - reports of mistakes;
//! * [`glob`] - names by pattern;
//! * [`keys`] - the keys of a table; [`kind`] - the kind of a scenario;
//! * [`name`] - names of scenarios and tenants;
//! * [`policy_parameter`] - parameters of policies;
//! * [`quantity`] - sizes, rates and times with units;
//! * [`schema`] - JSON schemas from lists of keys;
//! * [`sourced`] - numbers with their sources;
//! * [`table`] - a table read key by key.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![forbid(unsafe_code)]

pub mod error;
pub mod glob;
pub mod keys;
pub mod kind;
pub mod name;
pub mod policy_parameter;
pub mod quantity;
pub mod schema;
pub mod sourced;
pub mod table;
