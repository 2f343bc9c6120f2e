//! Whoever keeps the listeners while no enforcer runs.

pub mod table;
