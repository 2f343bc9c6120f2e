//! The shim over a provider without hardware. The tests share one process and take turns (`rig::serial`).
//!
//! Apart from these, each in a program of its own because a process has one shim and its settings: `immediate`,
//! `latency`, `session` (which forks) and `threads`.
#![allow(
    unsafe_code,
    missing_docs,
    clippy::unwrap_used,
    clippy::undocumented_unsafe_blocks
)]

mod behaviour;
mod extended;
#[path = "../null/mod.rs"]
mod null;
mod programs;
#[path = "../rig/mod.rs"]
mod rig;
mod whole;
