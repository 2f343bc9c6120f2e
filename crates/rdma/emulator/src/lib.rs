//! The broker of `isolane rdma emulate`: emulated RDMA NICs for unmodified programs, on the RNIC model.
//!
//! Problem: the emulated libibverbs ([`isolane_rdma_emulated_verbs`]) gives programs the verbs, but no program may
//! decide alone what arrives in another one's memory, or when. Method: one process, the broker, holds the objects of
//! all programs and reads and writes their memory by the rules of the specification. The RNIC model ([`LiveNics`])
//! decides when each message is delivered and completed. The model's clock is the wall clock, slowed by the dilation.
//!
//! * [`server`] - sockets, the loop, and the clock;
//! * `fabric` - all objects of all clients; `held` - what each client has, counted;
//! * `requests` - what creates, changes and destroys objects;
//! * `answer` - what requests are answered with;
//! * `queues` - queue pairs and receive queues;
//! * `connections` - connection management, as programs with rdma_cm need it;
//! * `access` - who may use which memory;
//! * `pair` - states of queue pairs and what they hold;
//! * `work` - work requests: from the post to the model, from the model to the completion;
//! * `timers` - when a request is tried again;
//! * `transfer` - what one message does to memory, with keys, bounds and permissions;
//! * `memory` - memory of other processes;
//! * [`faults`] - what goes wrong on request;
//! * `clock` - real time and the model's time;
//! * [`tree`] - the devices' files, for tools that read no verbs; `objects` - who holds what;
//! * [`directory`] - where programs find the broker.
//!
//! `docs/internals/emulator.md` explains the whole. A client may send anything: a malformed message ends the client's
//! connection, and no other client is affected. The devices' files are not protected from programs of the same user.
//!
//! [`LiveNics`]: isolane_rdma_simulator::rnic::live::LiveNics
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

mod access;
mod answer;
mod clock;
mod connections;
pub mod directory;
mod fabric;
pub mod facts;
pub mod faults;
mod held;
mod memory;
mod objects;
mod pair;
mod queues;
mod requests;
pub mod server;
mod timers;
mod transfer;
pub mod tree;
mod work;

pub use isolane_rdma_emulated_verbs::wire::{HOST_VARIABLE, SOCKET_VARIABLE};
pub use isolane_rdma_simulator::rnic::live::HOSTS_MAX;
pub use server::{Broker, Settings, StartError, Summary};
