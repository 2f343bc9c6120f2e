//! The preload library: an unmodified application's RDMA work at the pace of its lease, on any libibverbs provider.
//!
//! Problem: a tenant that posts large messages fills the NIC's queues, and its neighbours' small messages wait behind
//! them. The application must not change, nor the driver, nor the peer.
//! Method: `LD_PRELOAD=libisolane_shim.so` puts our functions before those of libibverbs that create objects, and
//! swaps the pointers through which work is posted and completions are polled. Work beyond the credit of the daemon's
//! lease waits in a software queue, large messages go out as chunks, and the application sees neither.
//! What is promised: `ibv_post_send` never blocks; one completion per work request, also on errors; when there is no
//! daemon, or it goes away, everything passes. A process of the latency class keeps its provider's pointers.
//!
//! From the outside in: [`exports`] (what the loader finds), [`context`] (tables of an open device), [`queue_pair`]
//! and [`extended`] (posting), [`completion_queue`] (polling), [`meter`] (credit and turns), [`pump`] (the thread),
//! [`session`] (the daemon), [`process`] (who is who); [`credit`], [`ring`], [`split`] and [`queue`] are arithmetic.
//! Units: bytes, operations (messages), nanoseconds of CLOCK_MONOTONIC.
//! Limits: see `docs/internals/shim.md`. Source: justitia 4 and appendix E, without its hidden queue pairs.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod completion_queue;
pub mod context;
pub mod credit;
pub mod exports;
pub mod extended;
pub mod lock;
pub mod meter;
pub mod originals;
mod posting;
pub mod process;
mod progress;
pub mod pump;
pub mod queue;
pub mod queue_pair;
pub mod ring;
pub mod session;
pub mod settings;
pub mod split;
pub mod table;
