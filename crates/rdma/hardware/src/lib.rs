//! Hardware first: one policy becomes settings of the host's NICs, and software does what remains.
//!
//! [`compile::compile`] is pure: a [`policy::Policy`] and the capabilities of a [`host::HostDevice`] give a [`plan::Plan`].
//! The other half changes the host: every write is recorded before it is made, and read back after it was made.
//!
//! * [`policy`] - the operator's file: tenants, classes, objectives;
//! * [`host`] - the capabilities of a device, read from the host or from a file;
//! * `setting` - one value of one object of the kernel;
//! * [`plan`] - settings with reasons, environments of programs, and what remains for software;
//! * [`mod@compile`] - from policy and device to plan;
//! * [`text`] - a plan as text;
//! * `backend` - read and write of values; [`kernel`] is the real one;
//! * [`record`] - the journal of previous values;
//! * [`mod@apply`] - makes settings, compares them, restores previous values;
//! * [`error`] - why that failed.
//!
//! Units end the names of numbers. Design: `docs/internals/hardware.md`.
#![forbid(unsafe_code)]

pub mod apply;
mod backend;
pub mod compile;
pub mod error;
pub mod host;
pub mod kernel;
pub mod plan;
pub mod policy;
pub mod record;
mod setting;
pub mod text;
