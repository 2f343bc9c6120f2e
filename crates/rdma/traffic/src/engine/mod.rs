//! The traffic engine: what a worker does between its messages.
//!
//! * [`serve`] - a worker from its first line to its last;
//! * [`probe`] - whether this machine could run one.
//!
//! Inside: `data` makes an end's objects and connects them, `drive` is its loop (`arrive` the receiving half,
//! `verify` what checking adds), `flow` decides what may be posted, `pace` keeps a rate,
//! `places` where messages lie, `pattern` what is in them, `meter` counts; `control` and `fault` are the other kinds
//! of work; `session` speaks the worker's protocol and owns the threads.

mod arrive;
mod control;
mod data;
mod drive;
mod error;
mod fault;
mod flow;
mod meter;
mod pace;
mod pattern;
mod places;
mod session;
mod shared;
mod verify;

pub use session::{Outcome, Overrides, device_names, probe, serve};
