//! Isolane's own policies: what the side-by-side comparison of published ones shows to be best, in one piece.
//!
//! * [`software`] - `isolane-sw`: what a shim and a daemon can do on NICs that exist.
//!

pub mod software;
