//! A network card in user space, for real traffic of the real kernel: Titan measured end to end without such a card.
//!
//! Problem: fairness between flows depends on a card's queues and scheduler; few machines have a card whose scheduler
//! can be set, and a test machine has none. Method: a TUN device with several queues plays the NIC's driver, and this
//! process plays its hardware: TSO frames are cut into packets, interleaved by a scheduler with weights, sent over a
//! wire with an exact rate, recorded, merged and handed to a second TUN device in the receiver's network namespace.
//!
//! * [`frame`], `checksum` - what frames say, and their packets;
//! * [`card`], `wire` - queues, scheduler, line rate;
//! * `deliver` - merging for the receiver;
//! * `record` - who sent how much when;
//! * `tun` - the devices; [`vhost`] - the card of a virtual machine; `lane`, [`nic`] - everything together as a thread;
//! * [`spaces`], [`programs`] - namespaces, iperf3 and ping;
//! * `queueing` - the BPF programs on the sender's device;
//! * `plan`, [`testbed`] - what a configuration becomes, and one run of a study;
//! * [`machine`] - a study whose sender is a virtual machine;
//! * [`paired`] - configurations in turns, to compare what they cost;
//! * [`serve`] - the card by itself;
//! * `error` - what can go wrong.
//!
//! Units: the types say them; borders end names with units.
//! Limits: one thread is the whole card; see [`nic`]. Source: titan 2 to 6.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod card;
mod checksum;
mod deliver;
mod error;
pub mod frame;
mod lane;
pub mod machine;
pub mod nic;
pub mod paired;
mod plan;
pub mod programs;
mod queueing;
mod record;
pub mod serve;
pub mod spaces;
pub mod testbed;
mod tun;
pub mod vhost;
mod wire;

pub use error::SoftNicError;
