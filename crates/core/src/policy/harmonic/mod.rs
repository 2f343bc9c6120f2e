//! Isolation from what a PCIe monitor sees (harmonic 5.3 to 5.5).
//!
//! * [`statistics`] - what the monitor counts for each tenant.

pub mod statistics;
