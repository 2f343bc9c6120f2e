//! Real RDMA devices as a place where scenarios run.
//!
//! A program with the feature `rdma-hosts` has [`verbs`]. Any other one has the module `absent`, which offers the same items: its
//! testbed has no value, so the compiler knows that nothing which takes one ever runs.

#[cfg(feature = "rdma-hosts")]
mod verbs;
#[cfg(feature = "rdma-hosts")]
pub(crate) use verbs::*;

#[cfg(not(feature = "rdma-hosts"))]
mod absent;
#[cfg(not(feature = "rdma-hosts"))]
pub(crate) use absent::*;
