//! The card's transmit scheduler.
//!
//! Method: the card fetches one packet at a time into its packet buffer ([`crate::buffer`]). Segments in a hardware queue are fetched
//! in order, cut into packets; after each packet the scheduler chooses again, so segments of different queues interleave by packets
//! (titan 2.2). In turn: the next queue with anything in it. By weight: deficit round robin, a queue's credit in a round is its weight
//! times the unit of the profile; a queue that was empty starts with the credit of one packet, as credits accumulate up to a
//! limit while a queue is idle.
//! A weight that Titan's driver writes takes two stores: one selects the queue, the next gives its credit. The driver holds no
//! lock, so another processor may select its own queue in between: then the credit is that queue's, and both
//! keep what they have until their next write.
//! Units: bytes of frames. Source: titan 2.1, 4.2; `ixgbe_set_txq_credits` of Titan's driver. Limits: at most 64 queues.

use crate::buffer::Buffer;
use isolane_common_quantities::units::Instant;

/// The card of one host.
#[derive(Debug)]
pub(crate) struct Card {
    /// Queues with anything to send.
    active: u64,
    /// The queue that was served last.
    turn: u16,
    weighted: bool,
    weights: Vec<u32>,
    credits: Vec<u32>,
    /// The queue whose weight the next credit sets.
    selected: u16,
    /// Until when a processor that adds a flow holds the device's lock.
    locked_until: Instant,
    pub(crate) buffer: Buffer,
}

/// The write of one weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WeightWrite {
    pub(crate) queue: u16,
    /// The processor holds the device's lock.
    pub(crate) locked: bool,
}

impl Card {
    pub(crate) fn new(queues: u16, weighted: bool, buffer: Buffer) -> Self {
        Self {
            active: 0,
            turn: queues - 1,
            weighted,
            weights: vec![1; usize::from(queues)],
            credits: vec![0; usize::from(queues)],
            selected: 0,
            locked_until: Instant::ZERO,
            buffer,
        }
    }

    /// A queue has something to send.
    pub(crate) fn activate(&mut self, queue: u16, packet: u32) {
        let bit = 1 << queue;
        if self.active & bit == 0 {
            self.active |= bit;
            let credit = &mut self.credits[usize::from(queue)];
            *credit = (*credit).max(packet);
        }
    }

    /// A queue has nothing to send any more.
    pub(crate) fn deactivate(&mut self, queue: u16) {
        self.active &= !(1 << queue);
    }

    /// Whether any queue has something to send.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.active != 0
    }

    /// The queue to fetch from; one is active. `unit` is the credit in bytes of a weight of one; `size` returns the bytes
    /// of the next packet of a queue.
    #[inline]
    pub(crate) fn choose(&mut self, unit: u32, size: impl Fn(u16) -> u32) -> u16 {
        self.turn = match self.weighted {
            false => self.next_in_turn(),
            true => self.next_by_weight(unit, size),
        };
        self.turn
    }

    pub(crate) fn set_weights(&mut self, weights: &[u32]) {
        self.weights.copy_from_slice(weights);
    }

    /// Selects the queue of `write`, whose credit follows at `until`. Fails with the time at which the lock is free.
    pub(crate) fn select(
        &mut self,
        write: WeightWrite,
        now: Instant,
        until: Instant,
    ) -> Result<(), Instant> {
        if write.locked {
            if now < self.locked_until {
                return Err(self.locked_until);
            }
            self.locked_until = until;
        }
        self.selected = write.queue;
        Ok(())
    }

    /// The weight of the queue that is selected.
    pub(crate) fn set_selected(&mut self, weight: u16) {
        self.weights[usize::from(self.selected)] = u32::from(weight);
    }

    /// The next queue in turn.
    #[inline]
    fn next_in_turn(&self) -> u16 {
        let later = self.active & u64::MAX.checked_shl(u32::from(self.turn) + 1).unwrap_or(0);
        let from = if later != 0 { later } else { self.active };
        from.trailing_zeros() as u16
    }

    /// The next queue by weight; `size` returns the bytes of a queue's next packet.
    fn next_by_weight(&mut self, unit: u32, size: impl Fn(u16) -> u32) -> u16 {
        if self.active.is_power_of_two() {
            return self.active.trailing_zeros() as u16;
        }
        let mut queue = self.turn;
        if self.active & (1 << queue) == 0 {
            queue = self.enter_next(unit);
        }
        loop {
            let bytes = size(queue);
            let credit = &mut self.credits[usize::from(queue)];
            if *credit >= bytes {
                *credit -= bytes;
                return queue;
            }
            queue = self.enter_next(unit);
        }
    }

    /// The next queue of the round gets its credit.
    fn enter_next(&mut self, unit: u32) -> u16 {
        self.turn = self.next_in_turn();
        let index = usize::from(self.turn);
        self.credits[index] += self.weights[index].max(1) * unit;
        self.turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_common_quantities::units::Duration;

    fn served(card: &mut Card, unit: u32, sizes: &[u32], rounds: u32) -> Vec<u64> {
        let mut bytes = vec![0; sizes.len()];
        for _ in 0..rounds {
            let queue = usize::from(card.choose(unit, |queue| sizes[usize::from(queue)]));
            bytes[queue] += u64::from(sizes[queue]);
        }
        bytes
    }

    #[test]
    fn in_turn_every_active_queue_sends_the_same_number_of_packets() {
        let mut card = Card::new(8, false, Buffer::new(0));
        for queue in [0, 3, 7] {
            card.activate(queue, 1_514);
        }
        let bytes = served(&mut card, 0, &[1_514; 8], 300);
        assert_eq!(bytes[0], 151_400);
        assert_eq!((bytes[0], bytes[0]), (bytes[3], bytes[7]));
        assert_eq!(bytes.iter().sum::<u64>(), 300 * 1_514);
    }

    /// A processor that removes a flow holds no lock, so it comes between the two stores of another one.
    #[test]
    fn two_weights_written_at_once_go_to_one_queue() {
        let mut card = Card::new(4, true, Buffer::new(0));
        let write = |queue, locked| WeightWrite { queue, locked };
        let [now, until] = [0, 150].map(|ns| Instant::ZERO + Duration::from_ns(ns));
        assert_eq!(card.select(write(1, true), now, until), Ok(()));
        assert_eq!(card.select(write(2, true), now, until), Err(until));
        assert_eq!(card.select(write(3, false), now, until), Ok(()));
        card.set_selected(2);
        card.set_selected(4);
        assert_eq!(card.weights, [1, 1, 1, 4]);
        assert_eq!(card.select(write(2, true), until, until), Ok(()));
        card.set_selected(3);
        assert_eq!(card.weights, [1, 1, 3, 4]);
    }

    /// Sizes differ, so that packets would not do; after many rounds shares are those of the weights within a packet and
    /// a credit.
    #[test]
    fn by_weight_queues_send_bytes_in_proportion() {
        let mut card = Card::new(4, true, Buffer::new(0));
        for queue in 0..4 {
            card.activate(queue, 1_514);
        }
        card.set_weights(&[127, 64, 32, 127]);
        let bytes = served(&mut card, 12, &[1_514, 700, 1_514, 66], 200_000);
        let unit = bytes[0] as f64 / 127.0;
        for (queue, weight) in [(1, 64.0), (2, 32.0), (3, 127.0)] {
            let ratio = bytes[queue] as f64 / weight / unit;
            assert!((ratio - 1.0).abs() < 1e-3, "queue {queue}: {ratio}");
        }
    }
}
