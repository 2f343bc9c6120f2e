//! Isolane's own policies: what the side-by-side comparison of published ones shows to be best, in one piece.
//!
//! * [`software`] - `isolane-sw`: what a shim and a daemon can do on NICs that exist.
//!
//! `isolane`, the NIC that does not exist, decides nothing outside the device and is a model: `rnic/apart.rs` of the
//! simulator.

pub mod software;
