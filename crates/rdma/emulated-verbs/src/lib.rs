//! A libibverbs whose devices are models: what programs under `isolane rdma emulate` load in the place of the real one.
//!
//! Problem: a program that uses RDMA verbs runs only where there is an RDMA NIC, or a kernel module and root. Method: the
//! program `isolane-ibverbs` of the crate `rdma/emulator` is a shared library with the name and the symbol versions of libibverbs.
//! `LD_LIBRARY_PATH` makes the loader take it. Each call becomes a message to a broker ([`wire`]), which moves the data,
//! keeps the rules and runs the RNIC model; completions come back through shared memory ([`ring`]).
//!
//! From the outside in: [`device`], [`context`], [`memory`], [`completion`], [`queue_pair`], [`shared_receive`], [`address`],
//! `posting` and `extended` (work requests), [`connection`], [`attributes`] (what goes over it), [`text`]; [`cm`] is librdmacm.
//! Functions here have the names of the verbs without `ibv_`, their arguments, and their rules (section 3 of the manual).
//! Limits: see `docs/internals/emulator.md`. What is not there fails with `EOPNOTSUPP`, as on a device without it.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]
#![cfg_attr(not(test), deny(clippy::print_stderr))]

pub mod address;
pub mod attributes;
pub mod cm;
pub mod completion;
pub mod connection;
pub mod context;
pub mod device;
mod extended;
pub mod memory;
mod posting;
pub mod queue_pair;
pub mod ring;
pub mod shared_receive;
pub mod text;
pub mod wire;
