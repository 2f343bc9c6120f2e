//! The preload library: paces an unmodified application's RDMA work by its lease, on any libibverbs provider.
//!
//! Problem: a tenant that posts large messages fills the RNIC's queues, and its neighbours' small messages wait behind
//! them. Application, driver and peer must stay unmodified. Method: `LD_PRELOAD=libisolane_shim.so` puts our functions
//! before those of libibverbs that create objects, and replaces the pointers through which work is posted and
//! completions are polled. Work beyond the credit of the daemon's lease waits in a software queue, and large messages
//! are posted as chunks; the application sees neither. Guarantees: `ibv_post_send` never blocks; each work request has
//! one completion, also on errors; without a daemon everything passes. A process of the latency class keeps its
//! provider's pointers.
//!
//! Each file uses only files further down: `lookup` (look-ups at run time), [`exports`] (what the loader finds), `creation` (paced queue pairs), `extended` and `extended_queue`
//! (functions in extended objects), [`process`] (state of the process), [`pump`] (the thread), `domains` (thread domains), `completion_queue`
//! (polling), `places` (queue pairs by number), `queue_pair` with `posting` and `progress`, `context` (tables of
//! an open device), `meter` (credit and turns), `base` (shared parts), [`session`] (the daemon), `descriptor` (what a forked child closes); `credit`,
//! `ring`, `split` and `queue` are arithmetic. Units: bytes, operations (messages), nanoseconds of
//! CLOCK_MONOTONIC. Limits: see `docs/internals/shim.md`. Source: justitia 4 and appendix E, without its hidden queue
//! pairs.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]
#![allow(unexpected_cfgs, reason = "`make sanitize` sets isolane_sanitizer")]

mod base;
mod bell;
mod collector;
mod completion_queue;
mod context;
mod creation;
mod credit;
mod descriptor;
mod domains;
mod entry;
pub mod exports;
mod extended;
mod extended_queue;
mod lock;
// Miri has its own `dlsym`, and a sanitizer calls `dlsym` before this library is ready.
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(miri, isolane_sanitizer))
))]
mod lookup;
mod meter;
pub mod originals;
mod places;
mod posting;
pub mod process;
mod progress;
pub mod pump;
mod queue;
mod queue_pair;
mod ring;
pub mod session;
pub mod settings;
mod split;
pub mod table;
