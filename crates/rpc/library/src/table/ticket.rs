//! The data of a call from its decision to its end, in one word.
//!
//! Layout, from the lowest bit: slot 20, generation of the slot 16, class it runs in 3, requested class 3, size in MTUs
//! 22. Generations begin at 1, so no ticket is 0. Limits: a call of more than 4,194,303 MTUs counts as one of that
//! size; a ticket older than 65,536 generations of its slot may match a new one.

/// Largest number of classes.
pub const CLASSES_MAX: usize = 8;

const GENERATION: u32 = 20;
const RUN: u32 = 36;
const ASKED: u32 = 39;
const MTUS: u32 = 42;
const MTUS_MAX: u32 = (1 << 22) - 1;

/// A call between its decision and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

impl Ticket {
    #[inline]
    pub(super) fn new(slot: u32, generation: u16, run: u8, asked: u8, mtus: u32) -> Self {
        Self(
            u64::from(slot)
                | u64::from(generation) << GENERATION
                | u64::from(run) << RUN
                | u64::from(asked) << ASKED
                | u64::from(mtus.min(MTUS_MAX)) << MTUS,
        )
    }

    /// The ticket of a word from [`Ticket::word`]. Any other word is rejected when the call ends, or not counted.
    pub fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// The ticket as a number; never 0.
    pub fn word(self) -> u64 {
        self.0
    }

    pub(super) fn slot(self) -> u32 {
        self.bits(0, 20)
    }

    pub(super) fn generation(self) -> u16 {
        self.bits(GENERATION, 16) as u16
    }

    /// The class the call runs in.
    pub fn run_class(self) -> u8 {
        self.bits(RUN, 3) as u8
    }

    /// The class it requested.
    pub fn asked_class(self) -> u8 {
        self.bits(ASKED, 3) as u8
    }

    /// Its size in MTUs.
    pub fn mtus(self) -> u32 {
        self.bits(MTUS, 22)
    }

    fn bits(self, from: u32, width: u32) -> u32 {
        ((self.0 >> from) & ((1 << width) - 1)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_goes_in_comes_out(
            slot in 0u32..1 << 20, generation in 1u16.., run in 0u8..8, asked in 0u8..8, mtus in any::<u32>(),
        ) {
            let ticket = Ticket::new(slot, generation, run, asked, mtus);
            prop_assert_ne!(ticket.word(), 0);
            prop_assert_eq!(Ticket::from_word(ticket.word()), ticket);
            prop_assert_eq!(
                (ticket.slot(), ticket.generation(), ticket.run_class(), ticket.asked_class(), ticket.mtus()),
                (slot, generation, run, asked, mtus.min(MTUS_MAX))
            );
        }
    }
}
