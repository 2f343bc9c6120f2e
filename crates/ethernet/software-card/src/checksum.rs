//! The internet checksum: sums of 16-bit words in ones' complement.
//!
//! Method: words are added in 64 bits and folded at the end; an odd byte counts as the high half of a word.
//! Units: bytes in, a word out. Limits: parts before the last must be of even length. Source: RFC 1071.

/// A sum under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum(u64);

impl Sum {
    /// Of `bytes`.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut sum = 0_u64;
        let mut words = bytes.chunks_exact(4);
        for word in &mut words {
            let word = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
            sum += u64::from(word);
        }
        let mut rest = [0; 4];
        let left = words.remainder();
        rest[..left.len()].copy_from_slice(left);
        Self(sum + u64::from(u32::from_be_bytes(rest)))
    }

    /// With a word or two more.
    #[must_use]
    pub(crate) fn plus(self, words: u32) -> Self {
        Self(self.0 + u64::from(words))
    }

    /// The sum in 16 bits.
    pub(crate) fn fold(self) -> u16 {
        let mut sum = self.0;
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// What goes into a header.
    pub(crate) fn complement(self) -> u16 {
        !self.fold()
    }
}

/// Puts a word at `at`, the high byte first.
pub(crate) fn store(bytes: &mut [u8], at: usize, word: u16) {
    bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The checksum by its definition: word for word, carry for carry.
    fn slow(bytes: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in bytes.chunks(2) {
            let low = pair.get(1).copied().unwrap_or(0);
            sum += u32::from(pair[0]) << 8 | u32::from(low);
            if sum > 0xffff {
                sum = (sum & 0xffff) + 1;
            }
        }
        sum as u16
    }

    #[test]
    fn the_example_of_rfc_1071_sums_to_ddf2() {
        assert_eq!(
            Sum::of(&[0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7]).fold(),
            0xddf2
        );
    }

    proptest! {
        #[test]
        fn sums_equal_the_definition(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(Sum::of(&bytes).fold(), slow(&bytes));
        }
    }
}
