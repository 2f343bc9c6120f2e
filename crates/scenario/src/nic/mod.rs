//! Ordinary network cards with several transmit queues: how a host is configured, what it sends, what came out.
//!
//! * [`config`] - the configurations of the trade-off study (titan, tables 1 to 3), today's and ours, as data;
//! * [`model`] - the checked study: the card, the host, its flows;
//! * [`paired`] - configurations measured in turns, each held against another of the same round;
//! * [`parse()`](parse::parse) - study TOML to the checked study;
//! * [`profile`] - numbers of a card and its host, each with its source;
//! * [`result`] - what a run reports, on the simulator or on the soft network card alike;
//! * [`summary`] - runs put together as tables and plots show them.

pub mod config;
pub mod model;
pub mod paired;
pub mod parse;
pub mod profile;
pub mod result;
pub mod summary;
