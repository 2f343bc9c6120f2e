//! The shim over a provider without hardware. The tests share one process and run one at a time (`rig::serial`).
//!
//! `immediate`, `latency`, `session` (which forks) and `threads` are separate programs, because a process has one shim
//! and one set of settings.
#![allow(unsafe_code, missing_docs)]
#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks)]

mod behaviour;
mod completion_queues;
mod endings;
mod extended;
#[path = "../null/mod.rs"]
mod null;
mod programs;
#[path = "../rig/mod.rs"]
mod rig;
mod vendors;
mod whole;
