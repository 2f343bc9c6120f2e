//! Text to checked values: TOML tables read key by key, every mistake with its line and its remedy.
//!
//! * [`error`] - how a mistake is reported;
//! * [`glob`] - names by pattern;
//! * [`keys`] - what a table may have; [`kind`] - which kind of scenario a text is;
//! * [`name`] - names of scenarios and tenants;
//! * [`policy_parameter`] - parameters of policies;
//! * [`quantity`] - sizes, rates and times with units;
//! * [`schema`] - JSON schemas from lists of keys;
//! * [`sourced`] - numbers that say where they come from;
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
