//! A set of sequence numbers near each other: a ring of bits that grows with the distance between them.
//!
//! Every number in it is in `base..base + capacity`, where `base` is the caller's first number that may still be in the
//! set. It takes no memory until the first number goes in, so channels without loss never pay for it.

/// The set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bits {
    words: Vec<u64>,
    count: u32,
}

/// Bits of the first allocation.
const FIRST: usize = 256;

impl Bits {
    /// Numbers in the set.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    /// Whether `number` is in it.
    #[inline]
    pub(crate) fn has(&self, base: u32, number: u32) -> bool {
        self.count > 0
            && ((number - base) as usize) < self.capacity()
            && self.words[self.word(number)] & bit(number) != 0
    }

    /// Puts `number` in; false if it was there.
    pub(crate) fn set(&mut self, base: u32, number: u32) -> bool {
        while (number - base) as usize >= self.capacity() {
            self.grow(base);
        }
        let word = self.word(number);
        if self.words[word] & bit(number) != 0 {
            return false;
        }
        self.words[word] |= bit(number);
        self.count += 1;
        true
    }

    /// Takes `number` out; false if it was not there.
    #[inline]
    pub(crate) fn clear(&mut self, base: u32, number: u32) -> bool {
        if !self.has(base, number) {
            return false;
        }
        let word = self.word(number);
        self.words[word] &= !bit(number);
        self.count -= 1;
        true
    }

    /// Takes all of `base..end` out; how many that were.
    pub(crate) fn clear_below(&mut self, base: u32, end: u32) -> u32 {
        let before = self.count;
        let mut number = base;
        while self.count > 0 && number < end {
            self.clear(base, number);
            number += 1;
        }
        before - self.count
    }

    /// The smallest number in it, at or after `base`.
    pub(crate) fn first(&self, base: u32) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        let mut number = base;
        loop {
            let rest = self.words[self.word(number)] >> (number % u64::BITS);
            if rest != 0 {
                return Some(number + rest.trailing_zeros());
            }
            number = (number / u64::BITS + 1) * u64::BITS;
        }
    }

    fn capacity(&self) -> usize {
        self.words.len() * u64::BITS as usize
    }

    fn word(&self, number: u32) -> usize {
        (number / u64::BITS) as usize & (self.words.len() - 1)
    }

    fn grow(&mut self, base: u32) {
        let old = std::mem::take(self);
        let bits = (old.capacity() * 2).max(FIRST);
        self.words = vec![0; bits / u64::BITS as usize];
        for number in (base..).take(old.capacity()) {
            if old.has(base, number) {
                self.set(base, number);
            }
        }
    }
}

fn bit(number: u32) -> u64 {
    1 << (number % u64::BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_as_an_ordered_set_behind_a_moving_base(
            steps in prop::collection::vec((0u8..3, 0u32..700), 1..300),
        ) {
            let (mut bits, mut slow, mut base) = (Bits::default(), BTreeSet::new(), 0);
            for (what, offset) in steps {
                let number = base + offset;
                match what {
                    0 => prop_assert_eq!(bits.set(base, number), slow.insert(number)),
                    1 => prop_assert_eq!(bits.clear(base, number), slow.remove(&number)),
                    _ => {
                        let end = base + offset / 10;
                        let kept = slow.split_off(&end);
                        prop_assert_eq!(bits.clear_below(base, end) as usize, slow.len());
                        slow = kept;
                        base = end;
                    }
                }
                prop_assert_eq!(bits.len() as usize, slow.len());
                prop_assert_eq!(bits.first(base), slow.first().copied());
                prop_assert_eq!(bits.has(base, number), slow.contains(&number));
            }
        }
    }
}
