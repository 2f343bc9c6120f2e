//! What can happen in a run, and what travels between hosts.
//!
//! An event is small and `Copy`. `world` passes each one to the file that handles it.

/// Everything that can happen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// The transmit pipeline of a host takes its next packet.
    Transmit { host: u8 },
    /// The NIC sees a doorbell for so many work requests.
    Doorbell { pair: u32, count: u16 },
    /// Fetched work requests arrive.
    Fetched { pair: u32, count: u16 },
    /// Metadata a requester (or, for `response`, a responder) waited for is there.
    Resolved { pair: u32, response: bool },
    /// A packet has wholly arrived at its receiver.
    Packet { pair: u32, packet: Packet },
    /// An acknowledgement of all work requests below `upto` (modulo 2^32) arrives at the requester.
    Acknowledged { pair: u32, upto: u32 },
    /// A receiver-not-ready NAK for the work request at `position` (modulo 2^32) arrives.
    NotReady { pair: u32, position: u32 },
    /// The RNR timer ran out.
    Retry { pair: u32 },
    /// The application can see that all work requests below `upto` (modulo 2^32) are done.
    Completed { pair: u32, upto: u32 },
    /// A message is visible in the receiver's memory.
    Delivered { pair: u32, message: u32 },
    /// A worker of an application has handed a vector to another one on its host.
    Handed { link: u32 },
    /// The receiver posts receives back.
    Receives { pair: u32, count: u16 },
    /// A responder has read one more receive of a pair whose receives it cannot keep.
    ReceiveRead { pair: u32 },
    /// The requester learns that it may send all work requests below `upto` (modulo 2^32).
    Credited { pair: u32, upto: u32 },
    /// The application posts, or tries to.
    Post { pair: u32 },
    /// An open-loop arrival.
    Arrive { pair: u32 },
    /// The link partner asks classes of the host's port (bit by class) to stop or go on.
    Pause { host: u8, classes: u16, stop: bool },
    /// A lane's rate limiter lets it go on.
    Replenished { host: u8, lane: u16 },
    /// A receive buffer may have drained enough.
    Drained { host: u8, buffer: u8 },
    /// The receiving side's processing units take the next arrival.
    Serve { host: u8 },
    /// The switch port towards the host can send its next held packet.
    SwitchDrain { host: u8 },
    /// A congestion notification arrives at the requester (or, for `response`, at the responder).
    Notified { pair: u32, response: bool },
    /// A paced sender may send again.
    Unpaced { pair: u32, response: bool },
    /// A forged congestion notification reaches a sender on the host that forged it.
    Injected { pair: u32, response: bool },
    /// An explicit rate of a Harmonic daemon reaches a sender.
    Limited { pair: u32, response: bool },
    /// A Harmonic daemon polls its monitor.
    HarmonicPoll { host: u8 },
    /// A Harmonic daemon sends its next notification.
    HarmonicNotify { host: u8 },
    /// A control verb that was held back goes on, or, unless it was `judged`, is tried again.
    Command { index: u32, judged: bool },
    /// A control verb is done.
    Control { index: u32 },
    /// A tenant starts or stops.
    Tenant { tenant: u16, starts: bool },
    /// A policy's timer.
    Policy { host: u8 },
    /// The earliest message between daemons that is still under way arrives.
    PeerReport { host: u8 },
    /// A queue mapping takes effect.
    Remap { host: u8 },
    /// Something that held a flow's work back may be over.
    LookAgain { host: u8, flow: u32 },
    /// The sender learns of receives posted at the other end.
    ReceivesKnown { pair: u32, count: u16 },
    /// A point of the time series ends.
    Sample,
    /// Measuring starts.
    Measure,
}

impl Event {
    #[inline]
    pub(crate) fn pair(&self) -> Option<u32> {
        match *self {
            Self::Doorbell { pair, .. }
            | Self::Fetched { pair, .. }
            | Self::Resolved { pair, .. }
            | Self::Packet { pair, .. }
            | Self::Acknowledged { pair, .. }
            | Self::Completed { pair, .. }
            | Self::Receives { pair, .. }
            | Self::ReceiveRead { pair }
            | Self::Credited { pair, .. }
            | Self::Post { pair }
            | Self::Unpaced { pair, .. } => Some(pair),
            _ => None,
        }
    }
}

/// What travels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) payload: u16,
    pub(crate) kind: PacketKind,
    pub(crate) epoch: u8,
    pub(crate) first: bool,
    pub(crate) last: bool,
    pub(crate) marked: bool,
    /// The receive buffer it takes room in, the same number at every port.
    pub(crate) buffer: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketKind {
    /// WRITE or SEND payload.
    Data,
    ReadRequest,
    Atomic,
    /// READ response payload.
    ReadResponse,
}

/// What waits for the processing units of the receiving side.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrived {
    Packet(Packet),
    /// An acknowledgement of all work requests below `upto`, modulo 2^32.
    Ack {
        upto: u32,
    },
}
