//! Network devices with several transmit queues: reads their configuration, and attaches Titan to them.
//!
//! * `device` - one device with everything that affects fairness and latency, from [`link`], [`qdisc`], [`queues`]
//!   and `ethtool`; [`system`] locates the files;
//! * [`options`] - the user's options; [`journal`] - the changes to undo;
//! * [`mod@attach`], [`mod@detach`] - attach Titan and undo it, [`bond`] - the same for all devices of a bond; [`control`] - the control loop, with `push` (queue
//!   weights), [`segments`] (segment sizes) and [`containers`];
//! * [`status`] - report of an attachment, [`openmetrics`] - its metrics; [`mod@advise`] - advice on a configuration.
//!
//! Netlink uses the codec and socket of `isolane_common_linux`: a dozen messages are needed, two of their families have
//! no maintained bindings, and a second netlink stack would add an async run time.
#![forbid(unsafe_code)]

pub mod advise;
pub mod attach;
pub mod bond;
pub mod containers;
pub mod control;
pub mod detach;
mod device;
pub mod effect;
mod error;
mod ethtool;
pub mod journal;
pub mod link;
pub mod openmetrics;
pub mod options;
mod push;
pub mod qdisc;
pub mod queues;
pub mod segments;
pub mod status;
pub mod system;

pub use device::Device;
pub use error::NicError;
pub use system::System;
