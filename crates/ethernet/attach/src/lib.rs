//! Ordinary network devices with several transmit queues: what the host says of them, and Titan on them.
//!
//! * [`device`] - one device with everything that decides fairness and latency, from [`link`], [`qdisc`], [`queues`]
//!   and [`ethtool`]; files lie where [`system`] says;
//! * [`options`] - what the user wants; [`journal`] - what was changed, to be undone by whoever comes next;
//! * [`mod@attach`], [`mod@detach`] - Titan on a device and off it; [`control`] - the loop beside it, with [`push`] (queue
//!   weights), [`segments`] (segment sizes) and [`containers`];
//! * [`status`] - what an attachment does, [`openmetrics`] - for machines; [`mod@advise`] - what a configuration costs.
//!
//! Netlink is spoken through the codec and socket of `isolane_common_linux`: the messages needed here are a dozen, two of
//! their families have no maintained bindings, and a second netlink stack would bring an async run time along.
#![forbid(unsafe_code)]

pub mod advise;
pub mod attach;
pub mod containers;
pub mod control;
pub mod detach;
pub mod device;
pub mod effect;
pub mod error;
pub mod ethtool;
pub mod generic;
pub mod journal;
pub mod link;
pub mod openmetrics;
pub mod options;
pub mod push;
pub mod qdisc;
pub mod queues;
pub mod segments;
pub mod status;
pub mod system;

pub use device::Device;
pub use error::NicError;
pub use system::System;
