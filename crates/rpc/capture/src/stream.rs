//! One direction of a connection: its bytes in order, each with the DSCP of its packet.
//!
//! Method: the next expected byte is known from the handshake or the first segment. Repeated bytes are dropped.
//! Segments beyond a hole wait until it is filled. If [`WAITING_MAX`] segments or [`WAITING_BYTES_MAX`] bytes wait, the
//! missing bytes were not captured: the hole is passed on as a gap.

use std::collections::BTreeMap;

/// Most segments that wait behind a hole.
pub(crate) const WAITING_MAX: usize = 64;
/// Most bytes that wait behind a hole.
pub(crate) const WAITING_BYTES_MAX: usize = 1 << 20;

/// The order of one direction.
#[derive(Debug, Default)]
pub(crate) struct Order {
    next: Option<u32>,
    /// Position of the expected byte; grows without end, unlike its number.
    position: u64,
    /// By position.
    waiting: BTreeMap<u64, Waiting>,
    bytes: usize,
}

#[derive(Debug)]
struct Waiting {
    sequence: u32,
    dscp: u8,
    payload: Vec<u8>,
    missing: usize,
}

/// Bytes in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    /// Bytes before this piece whose packets were not captured.
    pub(crate) lost: usize,
    pub(crate) dscp: u8,
    pub(crate) payload: &'a [u8],
    /// Bytes after `payload` of the same packet that were not captured.
    pub(crate) missing: usize,
}

impl Order {
    /// The handshake: the first byte has number `first`. A repeated one changes nothing.
    pub(crate) fn begin(&mut self, first: u32) {
        let begun = |next: u32| next.wrapping_sub(self.position as u32) == first;
        if self.next.is_some_and(begun) {
            return;
        }
        *self = Self {
            next: Some(first),
            ..Self::default()
        };
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a segment; `out` receives what is in order now.
    pub(crate) fn take(
        &mut self,
        sequence: u32,
        piece: Piece<'_>,
        out: &mut impl FnMut(Piece<'_>),
    ) {
        let next = *self.next.get_or_insert(sequence);
        let ahead = sequence.wrapping_sub(next);
        // Half of the numbers are before the expected one: repeated bytes.
        if ahead > 0 && ahead < 1 << 31 {
            self.wait(self.position + u64::from(ahead), sequence, piece);
            if self.waiting.len() > WAITING_MAX || self.bytes > WAITING_BYTES_MAX {
                self.skip(out);
            }
            return;
        }
        self.pass(sequence, piece, out);
        self.drain(out);
    }

    fn wait(&mut self, position: u64, sequence: u32, piece: Piece<'_>) {
        let waiting = Waiting {
            sequence,
            dscp: piece.dscp,
            payload: piece.payload.to_vec(),
            missing: piece.missing,
        };
        self.bytes += waiting.payload.len();
        if let Some(old) = self.waiting.insert(position, waiting) {
            self.bytes -= old.payload.len();
        }
    }

    /// Passes what of a segment is new.
    fn pass(&mut self, sequence: u32, piece: Piece<'_>, out: &mut impl FnMut(Piece<'_>)) {
        let next = self.next.unwrap_or(sequence);
        let known = next.wrapping_sub(sequence) as usize;
        let all = piece.payload.len() + piece.missing;
        if known >= all {
            return;
        }
        let payload = piece.payload.get(known..).unwrap_or(&[]);
        self.advance((all - known) as u32);
        out(Piece {
            payload,
            missing: all - known - payload.len(),
            ..piece
        });
    }

    fn advance(&mut self, bytes: u32) {
        self.next = self.next.map(|next| next.wrapping_add(bytes));
        self.position += u64::from(bytes);
    }

    fn drain(&mut self, out: &mut impl FnMut(Piece<'_>)) {
        while let Some((position, first)) = self.waiting.pop_first() {
            let next = self.next.unwrap_or(first.sequence);
            let hole = first.sequence.wrapping_sub(next);
            if hole > 0 && hole < 1 << 31 {
                self.waiting.insert(position, first);
                return;
            }
            self.pass_waiting(&first, 0, out);
        }
    }

    /// Gives up the hole before the first waiting segment.
    pub(crate) fn skip(&mut self, out: &mut impl FnMut(Piece<'_>)) {
        if let Some((position, first)) = self.waiting.pop_first() {
            let lost = position.saturating_sub(self.position);
            self.advance(lost as u32);
            self.pass_waiting(&first, lost as usize, out);
            self.drain(out);
        }
    }

    fn pass_waiting(&mut self, first: &Waiting, lost: usize, out: &mut impl FnMut(Piece<'_>)) {
        self.bytes -= first.payload.len();
        let piece = Piece {
            lost,
            dscp: first.dscp,
            payload: &first.payload,
            missing: first.missing,
        };
        self.pass(first.sequence, piece, out);
    }

    /// Whether segments wait.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn piece(payload: &[u8]) -> Piece<'_> {
        Piece {
            lost: 0,
            dscp: 0,
            payload,
            missing: 0,
        }
    }

    #[test]
    fn a_hole_that_is_not_filled_is_passed_on_as_a_gap() {
        let mut order = Order::default();
        let mut heard = Vec::new();
        let mut out = |piece: Piece<'_>| heard.push((piece.lost, piece.payload.len()));
        order.begin(100);
        order.take(110, piece(&[1; 10]), &mut out);
        assert!(order.is_waiting() && order.bytes() == 10);
        order.skip(&mut out);
        assert_eq!(heard, [(10, 10)]);
        assert_eq!(order.bytes(), 0);
    }

    proptest! {
        /// Segments in any order, with repetitions, around the end of the numbers, are the bytes that were sent.
        #[test]
        fn bytes_come_in_order(
            begin in prop_oneof![Just(u32::MAX - 40), any::<u32>()],
            mut cuts in prop::collection::vec((0usize..200, 1usize..60), 1..40),
        ) {
            let sent: Vec<u8> = (0..200u8).collect();
            let tail: Vec<(usize, usize)> = (0..200).step_by(10).map(|at| (at, 10)).collect();
            cuts.extend(tail);
            let mut order = Order::default();
            order.begin(begin);
            let mut heard = Vec::new();
            for (at, length) in cuts {
                let payload = &sent[at..(at + length).min(200)];
                let mut out = |piece: Piece<'_>| {
                    assert_eq!(piece.lost, 0);
                    heard.extend_from_slice(piece.payload);
                };
                order.take(begin.wrapping_add(at as u32), piece(payload), &mut out);
            }
            prop_assert_eq!(heard, sent);
            prop_assert_eq!(order.bytes(), 0);
        }
    }
}
