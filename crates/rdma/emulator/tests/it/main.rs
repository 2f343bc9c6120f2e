//! The broker as its clients meet it.
//!
//! Tests are clients of their own broker over its socket; the memory of the emulated programs is this process's.
#![allow(clippy::unwrap_used)]
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

mod client;
mod cm_programs;
mod connections;
mod hostile;
mod programs;
mod rules;
