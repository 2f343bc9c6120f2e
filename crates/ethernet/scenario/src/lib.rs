//! Ordinary network cards with several transmit queues: how a host is configured and what it sends.
//!
//! * [`config`] - the configurations of the trade-off study (titan, tables 1 to 3), today's and ours, as data;
//! * [`model`] - the checked study: the card, the host, its flows;
//! * [`parse()`](parse::parse) - study TOML to the checked study;
//! * [`profile`] - numbers of a card and its host, each with its source.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![forbid(unsafe_code)]

pub mod config;
pub mod model;
pub mod parse;
pub mod profile;
