//! A packet as the card and the network see it.

use crate::segment::Kind;

/// One packet, with the sizes that the wire and the receiver count, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) seq: u64,
    pub(crate) flow: u32,
    pub(crate) info: u32,
    pub(crate) payload: u16,
    /// Bytes of the frame, headers included.
    pub(crate) bytes: u16,
    pub(crate) queue: u16,
    pub(crate) kind: Kind,
    pub(crate) again: bool,
    pub(crate) marked: bool,
}
