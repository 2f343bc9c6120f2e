//! Metrics for machines, and snapshots for `isolane rdma top`.
//!
//! Problem: readers may be slow, broken or hostile and must not slow the event loop. Method: [`server`] is a thread of
//! its own with bounded connections, bounded requests and deadlines. For a reader it requests a
//! [`crate::snapshot::Snapshot`] from the event loop ([`exporter`]), at most one every [`server::FRESH`], and formats
//! the text itself ([`openmetrics`]).

pub mod exporter;
mod listeners;
pub mod openmetrics;
pub mod server;
