//! Attribution: where a victim's time goes, on which resource, and whose work was there first.
//!
//! Problem: counters say that something was busy. To explain why a tenant lost half of its rate, it takes also the
//! tenant that kept the resource busy, and the wait for the resource. Method: a recorder beside the model listens to
//! the same steps (one-line hooks; nothing when it is off) and follows sampled messages of one tenant, the victim.
//!
//! * **Sampling.** One message per queue pair at a time, from the call to post to the moment at which the
//!   application has seen the completion. Each picosecond between belongs to exactly one [`Part`], so the parts of
//!   a message add up to its latency. Only signalled messages are followed, since only they have a latency.
//!   Messages with several packets are followed along the packet that leaves last.
//! * **Timelines.** A resource that is free at T keeps a log of what filled it: work from when to when, of a tenant. A
//!   wait from t to T is cut there, and each piece is due to the tenant whose work filled it. A gap in which the
//!   resource was kept free for work booked ahead is due to what held that work at the timeline in front: bus
//!   towards the NIC and then requester units for the wire, responder units for the bus towards the host. The rest of a
//!   gap is the time of data from memory, which fills the pipeline again, due to the tenant that it was booked for.
//!   The pieces add up to T - t.
//! * **Schedule queue.** While contexts wait, the transmitter is held by one of its resources (requester units,
//!   wire, bus, loopback path, a pause). Each interval counts as a wait for that resource, and a message that
//!   waits in the queue has the sum of the intervals that it was there. Time behind earlier requests of its own
//!   pair counts where those were.
//! * **Miss slots.** A wait for a slot is split evenly over the slots, for their holders; the picoseconds
//!   that do not divide go to the slot that was waited for. The read that follows is due to the tenant whose
//!   insertion evicted the entry, or on the tenant itself when it was never there.
//! * **Receive buffer.** Pauses, the switch, and waits for room are due to what kept the buffer from draining:
//!   what filled the receiving units while those were behind, else the bus towards the host. A time in which
//!   neither worked is split over the tenants by their bytes in the buffer; remainders go to the tenant with most.
//!
//! Units: picoseconds, bytes. Limits: waiting for the answers to a pair's own earlier READs, and in an open loop
//! for room in its own queue, is due to the tenant itself, though others may have delayed those; an
//! acknowledgement's wait for the wire counts as its way.

mod attribution;
mod follow;
mod hooks;
mod metadata;
mod queue;
pub(crate) mod record;
mod run;
pub(crate) mod story;

pub(crate) use record::Tracer;
pub use run::run_traced;

use isolane_common_quantities::units::Duration;

/// What to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceOptions {
    /// Index of the tenant whose messages are followed.
    pub victim: u16,
    /// Width of one point of every series.
    pub bucket: Duration,
}

/// Something that work occupies, or that holds it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Processing units of the requester side.
    RequesterUnits,
    /// Processing units of the receiving side.
    ResponderUnits,
    /// PCIe direction towards the NIC.
    PcieToNic,
    /// PCIe direction towards the host.
    PcieToHost,
    /// The link.
    Wire,
    /// The path of packets that stay inside the NIC.
    Loopback,
    /// Slots in which misses of queue-pair and completion-queue contexts wait.
    ContextSlots,
    /// Slots in which misses of translation and protection entries wait.
    TranslationSlots,
    /// Slots in which misses of receive work requests wait.
    ReceiveSlots,
    /// The read behind a context miss.
    ContextRead,
    /// The read behind a translation or protection miss.
    TranslationRead,
    /// The read behind a receive work request miss.
    ReceiveRead,
    /// Receiving units held by a receiver-not-ready exception.
    NotReadyStall,
    /// Receiving units held by an unreliable message without a receive.
    DropStall,
    /// Address translation held by a deregistration.
    DeregistrationStall,
    /// The receive buffer, and the pauses that it causes.
    ReceiveBuffer,
    /// The command queue for control verbs.
    Commands,
    /// The policy, which holds work back.
    Policy,
    /// The rate limiter of the tenant's hardware queue.
    RateLimiter,
    /// The congestion control of the pair.
    Pacing,
    /// Earlier READs or atomics of the pair; only some of them may be outstanding.
    ReadLimit,
    /// The timer after a receiver-not-ready NAK.
    RetryTimer,
    /// The application's core.
    Application,
    /// Data on its way from memory: after a stall the link is idle until the pipeline is full again.
    Refill,
    /// Fixed delays: propagation, latency of PCIe, of a doorbell, of an acknowledgement.
    Way,
}

impl Resource {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 25] = [
        Self::RequesterUnits,
        Self::ResponderUnits,
        Self::PcieToNic,
        Self::PcieToHost,
        Self::Wire,
        Self::Loopback,
        Self::ContextSlots,
        Self::TranslationSlots,
        Self::ReceiveSlots,
        Self::ContextRead,
        Self::TranslationRead,
        Self::ReceiveRead,
        Self::NotReadyStall,
        Self::DropStall,
        Self::DeregistrationStall,
        Self::ReceiveBuffer,
        Self::Commands,
        Self::Policy,
        Self::RateLimiter,
        Self::Pacing,
        Self::ReadLimit,
        Self::RetryTimer,
        Self::Application,
        Self::Refill,
        Self::Way,
    ];

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::RequesterUnits => "requester-units",
            Self::ResponderUnits => "responder-units",
            Self::PcieToNic => "pcie-to-nic",
            Self::PcieToHost => "pcie-to-host",
            Self::Wire => "wire",
            Self::Loopback => "loopback",
            Self::ContextSlots => "context-miss-slots",
            Self::TranslationSlots => "translation-miss-slots",
            Self::ReceiveSlots => "receive-miss-slots",
            Self::ContextRead => "context-read",
            Self::TranslationRead => "translation-read",
            Self::ReceiveRead => "receive-read",
            Self::NotReadyStall => "not-ready-stall",
            Self::DropStall => "unreliable-drop-stall",
            Self::DeregistrationStall => "deregistration-stall",
            Self::ReceiveBuffer => "receive-buffer",
            Self::Commands => "command-queue",
            Self::Policy => "policy",
            Self::RateLimiter => "rate-limiter",
            Self::Pacing => "congestion-control",
            Self::ReadLimit => "outstanding-reads",
            Self::RetryTimer => "retry-timer",
            Self::Application => "application",
            Self::Refill => "pipeline-refill",
            Self::Way => "fixed-delays",
        }
    }
}

/// What a message is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// It waits in the application, or the application's core works for it.
    Application,
    /// It is held back by the policy.
    Policy,
    /// The doorbell is on its way, or the pair has nothing that may be sent yet.
    Post,
    /// Its work request is fetched.
    Fetch,
    /// Its pair waits in the schedule queue.
    Schedule,
    /// Its pair waits for metadata.
    Metadata,
    /// The requester's units work on it.
    Request,
    /// Its payload is read.
    PayloadRead,
    /// It is on its way over the wire or the loopback path.
    Wire,
    /// The switch holds it for a host that pauses.
    Switch,
    /// It waits for the receiving units, or they work on it.
    Receive,
    /// It is written to memory.
    PayloadWrite,
    /// The answer is on its way and processed.
    Answer,
    /// The completion is written and polled.
    Completion,
}

impl Stage {
    /// The name in JSON and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Policy => "policy",
            Self::Post => "post",
            Self::Fetch => "fetch",
            Self::Schedule => "schedule queue",
            Self::Metadata => "metadata",
            Self::Request => "request processing",
            Self::PayloadRead => "payload read",
            Self::Wire => "wire",
            Self::Switch => "switch",
            Self::Receive => "receive processing",
            Self::PayloadWrite => "payload write",
            Self::Answer => "answer",
            Self::Completion => "completion",
        }
    }
}

/// One of the NIC's caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheName {
    /// Contexts of queue pairs and completion queues.
    Contexts,
    /// Translations of pages.
    Translations,
    /// Protection entries of regions.
    Protections,
    /// Receive work requests.
    Receives,
}

impl CacheName {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [
        Self::Contexts,
        Self::Translations,
        Self::Protections,
        Self::Receives,
    ];

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Contexts => "contexts",
            Self::Translations => "translations",
            Self::Protections => "protections",
            Self::Receives => "receives",
        }
    }
}

/// Why a message was where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part {
    /// What it was doing.
    pub stage: Stage,
    /// Whose NIC or host: 0 is host A.
    pub host: u8,
    /// What it waited for, or was served by.
    pub resource: Resource,
    /// The cause: an index into [`Trace::tenants`].
    pub tenant: u16,
    /// Served, not waiting.
    pub service: bool,
}

/// Time of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Why.
    pub part: Part,
    /// How long, ps.
    pub ps: u64,
}

/// One message that was followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedMessage {
    /// When it was handed over, ps.
    pub posted: u64,
    /// Its latency (in a ping-pong the round trip), ps.
    pub latency: u64,
    /// Where that went, in order; the sum is `latency`.
    pub spans: Vec<Span>,
}

/// Time that one tenant occupied one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Whose NIC: 0 is host A.
    pub host: u8,
    /// Which resource.
    pub resource: Resource,
    /// Who: an index into [`Trace::tenants`].
    pub tenant: u16,
    /// Per point: ps of occupancy summed over what the resource has (slots), or byte-ps for the receive buffer.
    pub busy: Vec<u64>,
}

/// Lookups of one tenant in one cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookups {
    /// Whose NIC: 0 is host A.
    pub host: u8,
    /// Which cache.
    pub cache: CacheName,
    /// The requester: an index into [`Trace::tenants`].
    pub tenant: u16,
    /// Per point: lookups that found their key.
    pub hits: Vec<u64>,
    /// Per point: lookups that did not.
    pub misses: Vec<u64>,
}

/// Entries of one tenant that another's insertions (or invalidations) removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evictions {
    /// Whose NIC: 0 is host A.
    pub host: u8,
    /// Which cache.
    pub cache: CacheName,
    /// Who inserted: an index into [`Trace::tenants`].
    pub by: u16,
    /// Whose entry went.
    pub of: u16,
    /// Per point: how many.
    pub entries: Vec<u64>,
}

/// Everything recorded of one run, from the end of the warm-up to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Possible causes: the scenario's tenants, then the policy.
    pub tenants: Vec<String>,
    /// Index of the victim.
    pub victim: u16,
    /// When the first point begins, ps.
    pub start: u64,
    /// Width of a point, ps.
    pub bucket: u64,
    /// How many points.
    pub points: usize,
    /// By host, resource and tenant.
    pub occupancy: Vec<Occupancy>,
    /// How much of each resource there is, by host and resource; 1 where not named.
    pub capacity: Vec<(u8, Resource, u64)>,
    /// Per part, per point: ps summed over the followed messages that completed in the point.
    pub waits: Vec<(Part, Vec<u64>)>,
    /// Per point: followed messages that completed.
    pub messages: Vec<u64>,
    /// The first [`MESSAGES_MAX`] followed messages of each sixteenth of the run.
    pub followed: Vec<FollowedMessage>,
    /// Messages that had not completed when the run ended: `latency` is how long they had waited by then.
    pub unfinished: Vec<FollowedMessage>,
    /// By host, cache and tenant.
    pub lookups: Vec<Lookups>,
    /// By host, cache, evicting and evicted tenant.
    pub evictions: Vec<Evictions>,
}

/// Messages kept in full, per sixteenth of the run: enough for a median, few enough for memory.
pub const MESSAGES_MAX: usize = 256;
