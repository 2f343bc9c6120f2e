//! The content of messages when every byte is checked.
//!
//! Method: each aligned word of eight bytes is a mix (SplitMix64) of the seed, the queue pair, the message's sequence
//! number and the word's position. A byte that is lost, moved, or left over from another message differs from the
//! expected one with a probability of 255/256, a word almost surely. A buffer is filled with [`STALE`] before a message
//! is expected in it, so missing bytes are detected too.

use isolane_rdma_verbs_sys::safe::MemoryRegion;

/// Content of a buffer before a message arrives.
pub(crate) const STALE: u8 = 0xa5;

/// Bytes handled at once.
const PIECE: usize = 4_096;

/// Identity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) seed: u64,
    /// Index of the queue pair.
    pub(crate) queue_pair: u64,
    /// Sequence number of the message on it.
    pub(crate) sequence: u64,
    /// 0 for messages of side `from`, 1 for messages of side `to`.
    pub(crate) direction: u64,
}

impl Stamp {
    fn base(self) -> u64 {
        let mixed = mix(self.seed ^ (self.direction << 63));
        mix(mixed ^ (self.queue_pair << 40) ^ self.sequence)
    }
}

/// Content of bytes `from..from + bytes.len()` of a message; `from` is a multiple of eight.
fn content(stamp: Stamp, from: u64, bytes: &mut [u8]) {
    let base = stamp.base();
    for (index, word) in bytes.chunks_mut(8).enumerate() {
        let place = from / 8 + index as u64;
        let value = mix(base.wrapping_add(place)).to_le_bytes();
        word.copy_from_slice(&value[..word.len()]);
    }
}

/// Writes bytes `from..from + length` of a message at `offset` of `region`.
pub(crate) fn fill(region: &MemoryRegion, offset: u64, stamp: Stamp, from: u64, length: u64) {
    in_pieces(from, length, |skip, place, whole| {
        content(stamp, place, whole);
        let done = place + skip as u64 - from;
        region.write(offset + done, &whole[skip..]);
    });
}

/// Number of bytes at `offset` of `region` that differ from the expected piece of the message.
pub(crate) fn wrong_bytes(
    region: &MemoryRegion,
    offset: u64,
    stamp: Stamp,
    from: u64,
    length: u64,
) -> u64 {
    let mut wrong = 0;
    let mut found = [0; PIECE + 8];
    in_pieces(from, length, |skip, place, whole| {
        content(stamp, place, whole);
        let done = place + skip as u64 - from;
        let found = &mut found[skip..whole.len()];
        region.read(offset + done, found);
        let pairs = whole[skip..].iter().zip(found.iter());
        wrong += pairs.filter(|(wanted, found)| wanted != found).count() as u64;
    });
    wrong
}

/// Marks bytes as not yet written.
pub(crate) fn stale(region: &MemoryRegion, offset: u64, length: u64) {
    let piece = [STALE; PIECE];
    let mut done = 0;
    while done < length {
        let now = (length - done).min(PIECE as u64) as usize;
        region.write(offset + done, &piece[..now]);
        done += now as u64;
    }
}

/// Calls `piece` with word-aligned stretches of the message: the bytes to skip at the start, the position of the
/// stretch, and a buffer for it.
fn in_pieces(from: u64, length: u64, mut piece: impl FnMut(usize, u64, &mut [u8])) {
    let mut room = [0; PIECE + 8];
    let mut done = 0;
    while done < length {
        let place = from + done;
        let skip = place % 8;
        let now = (length - done).min(PIECE as u64);
        piece(
            skip as usize,
            place - skip,
            &mut room[..(skip + now) as usize],
        );
        done += now;
    }
}

fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp {
        seed: 7,
        queue_pair: 3,
        sequence: 11,
        direction: 0,
    };

    #[test]
    fn a_message_in_pieces_is_the_message() {
        let mut whole = vec![0; 10_000];
        content(STAMP, 0, &mut whole);
        for (from, length) in [
            (0, 10_000),
            (1, 9_000),
            (4_095, 5),
            (4_097, 4_096),
            (9_999, 1),
        ] {
            let mut pieces = Vec::new();
            in_pieces(from, length, |skip, place, room| {
                content(STAMP, place, room);
                pieces.extend_from_slice(&room[skip..]);
            });
            assert_eq!(pieces, whole[from as usize..(from + length) as usize]);
        }
    }

    #[test]
    fn messages_differ_by_every_part_of_the_stamp() {
        let first = |stamp| {
            let mut bytes = [0; 8];
            content(stamp, 0, &mut bytes);
            bytes
        };
        let others = [
            Stamp { seed: 8, ..STAMP },
            Stamp {
                queue_pair: 4,
                ..STAMP
            },
            Stamp {
                sequence: 12,
                ..STAMP
            },
            Stamp {
                direction: 1,
                ..STAMP
            },
        ];
        for other in others {
            assert_ne!(first(other), first(STAMP), "{other:?}");
        }
    }
}
