//! Verbs without `unsafe`: owned objects that are destroyed in the right order.
//!
//! Problem: the C interface leaves lifetimes, errors and memory to the caller. Method: each object holds its parents
//! (an `Arc`), so a protection domain outlives its regions and a context everything; dropping destroys.
//! Memory that a device may write belongs to its [`MemoryRegion`], which hands out copies and never references.
//! A device checks every access against the keys of registered memory, and these are only such regions; therefore no
//! work request, however wrong, can touch other memory of this process. Inline data is read by the processor: there
//! the lists of requests hold their regions ([`SendList`]).
//! Memory can be bound to a NUMA node ([`MemoryRegion::on_node`]), or be that of a GPU ([`MemoryRegion::on_gpu`]).
//! Units: bytes. Errors: [`VerbsError`], with the name of the verb and what usually helps.
//! Limits: RC, UC and UD; one port; no shared receive queues.

mod completion;
mod device;
mod error;
mod gpu;
mod memory;
mod pages;
mod post;
mod queue_pair;

pub use completion::{CompletionChannel, CompletionQueue};
pub use device::{Context, Port, port_gid, port_gids};
pub use error::VerbsError;
pub use gpu::{GpuError, gpu};
pub use memory::{MemoryRegion, ProtectionDomain};
pub use post::{Element, ReceiveList, Request, SendList, Target};
pub use queue_pair::{AddressHandle, Capacity, Connection, Peer, QueuePair, Timers};

/// The transports of [`QueuePair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}
