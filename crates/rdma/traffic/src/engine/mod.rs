//! The traffic engine: the work of a worker between its messages.
//!
//! * [`serve`] - runs a worker from its first line to its last;
//! * [`probe`] - checks whether this machine can run one.
//!
//! Inside: `data` creates an end's objects and connects them (`buffers` its memory), `drive` is its loop (`arrive` the receiving half,
//! `verify` the checks), `flow` decides what may be posted, `pace` keeps a rate, `places` assigns memory to messages,
//! `pattern` makes their content, `meter` counts; `control` and `fault` are the other kinds of work; `session`
//! implements the worker's protocol and owns the threads.

mod arrive;
mod buffers;
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

pub use session::{Outcome, Overrides, probe, serve};
