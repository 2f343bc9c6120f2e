//! What the daemon shows of itself: metrics for machines, snapshots for `isolane rdma top`.
//!
//! Problem: whoever watches must never slow down what is watched; a reader may be slow, broken or hostile.
//! Method: [`server`] is a thread of its own with bounded connections, bounded requests and deadlines. When a reader
//! wants something it asks the event loop ([`exporter`]) for a [`crate::snapshot::Snapshot`], at most one every
//! [`server::FRESH`], and works the text out itself ([`openmetrics`]).

pub mod exporter;
pub mod openmetrics;
pub mod server;
