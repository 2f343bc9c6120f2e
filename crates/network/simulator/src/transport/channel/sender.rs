//! The sending end of a channel: its messages, what of them was sent, acknowledged, lost.

use super::bits::Bits;
use crate::packet::{HostId, NIL};
use crate::transport::Message;
use crate::transport::congestion::Limit;
use isolane_common_quantities::units::{Bytes, Duration, Instant};

/// Later packets that must have come before an earlier one counts as lost (RFC 6675).
const OVERTAKEN: u32 = 3;

/// One channel's sender. Packets `acked..fresh` were sent at least once, `fresh..end` wait. Kept small, because a run
/// touches thousands of them in no order.
///
/// The first cache line is what an acknowledgement needs, the second what a packet that leaves needs besides.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Sender {
    /// All packets before this one are acknowledged.
    pub(crate) acked: u32,
    /// The next packet in order; below `fresh` while a go-back-N sender repeats.
    pub(crate) next: u32,
    /// The first packet that was never sent.
    pub(crate) fresh: u32,
    /// Behind the last packet of the last message.
    end: u32,
    pub(crate) limit: Limit,
    /// When the retransmission timer counts, if nothing comes back.
    pub(crate) repeat_at: Instant,
    /// Selective: packets in `Repair::early` and `Repair::lost`.
    beyond: u32,
    lost: u32,
    /// First message that is not complete.
    pub(crate) head: u32,
    pub(crate) repeat_set: bool,
    pub(crate) backoff: u8,
    pub(crate) class: u8,
    /// The message of `next`, and the last one.
    pub(crate) cursor: u32,
    tail: u32,
    /// When the pacing timer that counts is due; never for none.
    pub(crate) pace_at: Instant,
    /// When the last packet was sent, and its bytes.
    last_at: Instant,
    last_bytes: u16,
    full_bytes: u16,
    pub(crate) from: HostId,
    pub(crate) to: HostId,
    pub(crate) path: u16,
}

const _: () = assert!(size_of::<Sender>() == 128, "a sender fills two cache lines");

/// What selective repeat knows beyond that.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repair {
    /// Acknowledged beyond the first that is not.
    early: Bits,
    /// Given up and to be repeated.
    lost: Bits,
    highest: u32,
    /// Searched for losses up to here.
    searched: u32,
}

impl Sender {
    pub(crate) fn new(message: &Message, limit: Limit) -> Self {
        Self {
            acked: 0,
            next: 0,
            fresh: 0,
            end: 0,
            limit,
            head: NIL,
            tail: NIL,
            cursor: NIL,
            repeat_at: Instant::ZERO,
            repeat_set: false,
            pace_at: Instant::MAX,
            backoff: 0,
            class: message.class,
            from: message.from,
            to: message.to,
            path: path(message),
            last_bytes: 0,
            last_at: Instant::ZERO,
            full_bytes: 1,
            beyond: 0,
            lost: 0,
        }
    }

    /// Whether a packet waits to be sent.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.next != self.end || self.lost > 0
    }

    /// Packets that are believed to be on their way.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        self.next - self.acked - self.beyond - self.lost
    }

    /// The packet to send now, and whether it was sent before.
    #[inline]
    pub(crate) fn take_next(&mut self, repairs: &mut [Repair], channel: u32) -> (u32, bool) {
        if self.lost > 0 {
            let lost = &mut repairs[channel as usize].lost;
            let sequence = lost.first(self.acked).expect("counted");
            lost.clear(self.acked, sequence);
            self.lost -= 1;
            return (sequence, true);
        }
        let sequence = self.next;
        self.next += 1;
        let repeat = sequence < self.fresh;
        self.fresh = self.fresh.max(self.next);
        (sequence, repeat)
    }

    /// A packet of `bytes` has left.
    #[inline]
    pub(crate) fn left(&mut self, now: Instant, bytes: u16) {
        self.last_at = now;
        self.last_bytes = bytes;
        self.full_bytes = self.full_bytes.max(bytes);
    }

    /// When the gap behind the last packet is over.
    pub(crate) fn may_leave_at(&self) -> Instant {
        if self.last_bytes == 0 {
            return Instant::ZERO;
        }
        let gap = self.limit.gap;
        if self.limit.each || self.last_bytes == self.full_bytes {
            return self.last_at.saturating_add(gap);
        }
        let part = u128::from(gap.as_ps()) * u128::from(self.last_bytes);
        let part = part / u128::from(self.full_bytes);
        let part = u64::try_from(part).unwrap_or(u64::MAX);
        self.last_at.saturating_add(Duration::from_ps(part))
    }

    /// Everything before `expected` has arrived (go-back-N); how many packets of that are news.
    #[inline]
    pub(crate) fn acknowledge(&mut self, expected: u32) -> u32 {
        if expected <= self.acked {
            return 0;
        }
        let news = expected - self.acked;
        self.acked = expected;
        self.next = self.next.max(expected);
        news
    }

    /// Packet `sequence` and everything before `expected` have arrived; how many packets of that are news.
    #[inline]
    pub(crate) fn acknowledge_selectively(
        &mut self,
        repair: &mut Repair,
        sequence: u32,
        expected: u32,
    ) -> u32 {
        let mut news = 0;
        if expected > self.acked {
            let known = repair.early.clear_below(self.acked, expected);
            repair.lost.clear_below(self.acked, expected);
            news = expected - self.acked - known;
            self.acked = expected;
        }
        if sequence >= self.acked && repair.early.set(self.acked, sequence) {
            repair.lost.clear(self.acked, sequence);
            news += 1;
        }
        repair.highest = repair.highest.max(sequence + 1).max(expected);
        self.count(repair);
        news
    }

    #[inline]
    fn count(&mut self, repair: &Repair) {
        (self.beyond, self.lost) = (repair.early.len(), repair.lost.len());
    }

    /// Gives up packets that enough later ones have overtaken (selective); whether there were any.
    #[inline]
    pub(crate) fn find_overtaken(&mut self, repair: &mut Repair) -> bool {
        let end = repair.highest.saturating_sub(OVERTAKEN);
        let mut found = false;
        let mut sequence = repair.searched.max(self.acked);
        while sequence < end {
            if !repair.early.has(self.acked, sequence) {
                found |= repair.lost.set(self.acked, sequence);
            }
            sequence += 1;
        }
        repair.searched = repair.searched.max(sequence);
        self.count(repair);
        found
    }

    /// Gives up everything that is not acknowledged (selective).
    pub(crate) fn repeat_everything(&mut self, repair: &mut Repair) {
        for sequence in self.acked..self.next {
            if !repair.early.has(self.acked, sequence) {
                repair.lost.set(self.acked, sequence);
            }
        }
        repair.searched = self.next;
        self.count(repair);
    }

    /// Starts over at the first packet that is not acknowledged (go-back-N); whether anything is sent again.
    pub(crate) fn go_back(&mut self) -> bool {
        let again = self.next > self.acked;
        self.next = self.acked;
        self.cursor = self.head;
        again
    }
}

/// What equal-cost choices of a channel are hashed from: its three numbers, mixed by multiplication (Fibonacci hashing).
fn path(message: &Message) -> u16 {
    let all =
        u64::from(message.from.0) << 24 | u64::from(message.to.0) << 8 | u64::from(message.class);
    (all.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16
}

#[derive(Clone, Debug)]
pub(crate) struct Messages {
    slots: Vec<Slot>,
    free: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    token: u32,
    /// Behind its last packet.
    end: u32,
    /// The channel's next message, or the next free slot.
    next: u32,
    last_payload: u16,
}

impl Default for Messages {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: NIL,
        }
    }
}

impl Messages {
    /// Puts a message of `size` behind the others of `sender`.
    #[inline]
    pub(crate) fn append(&mut self, sender: &mut Sender, token: u32, size: Bytes, mtu: u32) {
        let (size, mtu) = (size.get(), u64::from(mtu));
        let packets = size.div_ceil(mtu);
        assert!(packets > 0, "a message has at least one byte");
        let end = u64::from(sender.end) + packets;
        sender.end = u32::try_from(end).expect("fewer than 2^32 packets in one channel");
        let slot = Slot {
            token,
            end: sender.end,
            next: NIL,
            last_payload: (size - (packets - 1) * mtu) as u16,
        };
        let index = self.insert(slot);
        match sender.tail {
            NIL => sender.head = index,
            tail => self.slots[tail as usize].next = index,
        }
        sender.tail = index;
        if sender.cursor == NIL {
            sender.cursor = index;
        }
    }

    fn insert(&mut self, slot: Slot) -> u32 {
        if self.free == NIL {
            self.slots.push(slot);
            return u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 messages wait");
        }
        let index = self.free;
        self.free = self.slots[index as usize].next;
        self.slots[index as usize] = slot;
        index
    }

    /// Payload of packet `sequence`, which is of `message`, and whether it is the message's last.
    #[inline]
    pub(crate) fn payload(&self, message: u32, sequence: u32, mtu: u32) -> (u16, bool) {
        let slot = &self.slots[message as usize];
        if sequence + 1 == slot.end {
            (slot.last_payload, true)
        } else {
            (mtu as u16, false)
        }
    }

    /// The message behind `message`.
    #[inline]
    pub(crate) fn after(&self, message: u32) -> u32 {
        self.slots[message as usize].next
    }

    /// The message that packet `sequence` is of, looked for from `message` on.
    pub(crate) fn holding(&self, message: u32, sequence: u32) -> u32 {
        let mut message = message;
        while self.slots[message as usize].end <= sequence {
            message = self.slots[message as usize].next;
        }
        message
    }

    /// Takes the first message out if all of it is acknowledged; its token.
    #[inline]
    pub(crate) fn complete(&mut self, sender: &mut Sender) -> Option<u32> {
        let head = sender.head;
        if head == NIL {
            return None;
        }
        let slot = self.slots[head as usize];
        if slot.end > sender.acked {
            return None;
        }
        sender.head = slot.next;
        if slot.next == NIL {
            sender.tail = NIL;
        }
        if sender.cursor == head {
            sender.cursor = slot.next;
        }
        self.slots[head as usize].next = self.free;
        self.free = head;
        Some(slot.token)
    }
}

#[cfg(test)]
impl Messages {
    /// Slots ever needed at once.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }
}
