//! A simulator of a Linux host's transmit path, and of small clusters of such hosts.
//!
//! Problem: how fairly flows share a card with several queues, and how long a ping takes, follows from how TCP, its
//! limit on what lies below it, software queues, limits on hardware queues, interrupts and the card's scheduler wait
//! for one another. A bound or a formula for each alone says nothing of the whole.
//! Method: each is a mechanism here, driven by events; `docs/internals/nic-model.md` says what each does and what is
//! left out. From the application downwards:
//!
//! * `tcp` - congestion control, acknowledgements, repair of losses, TCP Small Queues;
//! * `transmit` - choice of a queue, software queues, what reaches the card's rings;
//! * `queueing` - software queues and byte limits;
//! * `card` - the card's scheduler; `buffer` - its packet buffer; `network` - switches; `path` - a packet's way (`frame`) through all
//!   three; `write_back` - how the card tells the host what it has finished;
//! * `poll` - interrupts, completions, receiving; `moderation` - their rate; `processor` - queues of jobs; `sleep` -
//!   what idle ones do; `jobs` - what each job does;
//! * `world` - the state of all of these, and the events; none of them knows it but those that change several;
//! * `run` - one study from start to result.
//!
//! Units: picoseconds, bytes. Same study, profile and version: same bytes on every machine.
//! Source: titan 2, 3, 5; Linux 4.4 for what the paper leaves open.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![forbid(unsafe_code)]

mod buffer;
mod card;
mod frame;
mod host;
mod jobs;
mod measure;
mod moderation;
mod network;
mod path;
mod ping;
mod poll;
mod processor;
mod queueing;
mod run;
mod segment;
mod settings;
mod sleep;
mod tcp;
#[cfg(test)]
mod tests;
mod transmit;
mod world;
mod write_back;

pub use run::{Observers, RunError, run, run_with};
