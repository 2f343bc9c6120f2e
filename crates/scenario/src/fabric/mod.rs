//! Networks: hosts that call each other through switches, and what became of the calls.
//!
//! A file is a network's scenario when it has a `[fabric]` table; everything else stays the scenario of two or more
//! RDMA hosts ([`crate::model`]).

pub mod model;
pub mod result;
