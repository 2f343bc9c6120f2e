//! A set of packet numbers of one flow: a bitmap with a count and the first number that is missing.
//!
//! Cost: a bit per packet; insertion in constant time, since the first missing number only rises. The memory of the
//! largest flow of a record is kept for the next one.

/// Which packets of a flow are in.
#[derive(Clone, Debug, Default)]
pub struct PacketSet {
    words: Vec<u64>,
    packets: u32,
    count: u32,
    first_missing: u32,
}

impl PacketSet {
    /// Empty, for a flow of `packets`.
    pub fn reset(&mut self, packets: u32) {
        self.words.clear();
        self.words.resize(packets.div_ceil(u64::BITS) as usize, 0);
        (self.packets, self.count, self.first_missing) = (packets, 0, 0);
    }

    /// Takes in `number`; false when it was in.
    #[inline]
    pub fn insert(&mut self, number: u32) -> bool {
        let bit = 1 << (number % u64::BITS);
        let word = &mut self.words[(number / u64::BITS) as usize];
        if *word & bit != 0 {
            return false;
        }
        *word |= bit;
        self.count += 1;
        if number == self.first_missing {
            self.first_missing = self.missing_from(number + 1);
        }
        true
    }

    /// How many are in.
    #[inline]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether all are in.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.count == self.packets
    }

    /// The first that is not in; the number of packets when all are.
    #[inline]
    pub fn first_missing(&self) -> u32 {
        self.first_missing
    }

    /// The first from `number` on that is not in; the number of packets when there is none.
    pub fn missing_from(&self, number: u32) -> u32 {
        let mut number = number;
        while number < self.packets {
            let word = !self.words[(number / u64::BITS) as usize] >> (number % u64::BITS);
            if word != 0 {
                return self.packets.min(number + word.trailing_zeros());
            }
            number = (number / u64::BITS + 1) * u64::BITS;
        }
        self.packets
    }

    /// The first from `number` on that is in; the number of packets when there is none.
    pub fn present_from(&self, number: u32) -> u32 {
        let mut number = number;
        while number < self.packets {
            let word = self.words[(number / u64::BITS) as usize] >> (number % u64::BITS);
            if word != 0 {
                return self.packets.min(number + word.trailing_zeros());
            }
            number = (number / u64::BITS + 1) * u64::BITS;
        }
        self.packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_plain_set(packets in 1u32..200, numbers in proptest::collection::vec(0u32..200, 0..300)) {
            let (mut set, mut model) = (PacketSet::default(), BTreeSet::new());
            set.reset(packets);
            for number in numbers.into_iter().filter(|&number| number < packets) {
                prop_assert_eq!(set.insert(number), model.insert(number));
                prop_assert_eq!(set.count() as usize, model.len());
                let missing = |from| (from..packets).find(|number| !model.contains(number)).unwrap_or(packets);
                let present = |from| (from..packets).find(|number| model.contains(number)).unwrap_or(packets);
                prop_assert_eq!(set.first_missing(), missing(0));
                for from in 0..packets {
                    prop_assert_eq!(set.missing_from(from), missing(from));
                    prop_assert_eq!(set.present_from(from), present(from));
                }
            }
        }
    }
}
