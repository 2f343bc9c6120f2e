//! Titan's dynamic queue assignment on an unmodified kernel: BPF programs and what loads, feeds and reads them.
//!
//! Problem: the kernel hashes flows onto transmit queues, so flows share one queue while others are idle (titan 3).
//! Method: a tc program at egress gives each newly backlogged flow the lightest queue, tracepoints see its packets done
//! (`bpf/dqa.bpf.c`); the decision's twin in Rust is [`isolane_ethernet_policy::titan::assign`].
//!
//! * [`Dqa`] - load, attach, read, change, detach; [`LoadOptions`], [`DqaSettings`] - with what;
//! * [`FlowTable`], [`QueueSnapshot`], [`DqaCounters`], [`RunTime`] - what it says;
//! * [`bpffs`] - the directory of pins; [`tc`] - our place among a device's filters.
//!
//! Everything is pinned: the data path continues when the process ends, and another process opens it. Units: bytes;
//! weights in parts of [`WEIGHT_ONE`]. Limits: 64 queues, 16,384 flows with anything outstanding, 256 containers.
//! Source: titan 4.1; docs/internals/dqa.md.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod bpffs;
mod dqa;
mod error;
mod intf;
mod object;
mod settings;
mod shared;
mod snapshot;
mod sys;
pub mod tc;

pub use dqa::Dqa;
pub use error::EbpfError;
pub use isolane_ethernet_policy::titan::{QueueSet, WEIGHT_ONE};
pub use settings::{
    Completion, CpuPools, DqaSettings, Gate, LoadOptions, SMALL_BYTES, WeightSource,
};
pub use snapshot::{DqaCounters, FlowSnapshot, FlowTable, QueueSnapshot, RunTime};
pub use sys::{ProgramCost, RunTimeStatistics, tick_ns};

/// Flows that the table holds.
pub const FLOWS_MAX: u32 = (intf::SETS * intf::WAYS) as u32;
