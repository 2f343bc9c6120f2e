//! 64-bit FNV-1a, to recognise a run in a journal: the same on every machine, which std's hasher does not promise.
//!
//! Limits: not against malice. Among 15,000 runs two keys collide with a probability below 10^-10.

pub(crate) struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Adds bytes, and their count, so that two writes never equal one.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let length = (bytes.len() as u64).to_le_bytes();
        for &byte in length.iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(PRIME);
        }
    }

    /// Adds many bytes, eight at a time; not what `write` adds. Tests run unoptimised programs of 150 MB, which took longer for
    /// the hash of their own bytes than for an audit.
    pub(crate) fn write_words(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            // Both halves of the product, because the lower half has a word's top bit in one bit only.
            let product = u128::from(self.0 ^ u64::from_le_bytes(*word)) * u128::from(FACTOR);
            self.0 = (product as u64) ^ ((product >> 64) as u64);
        }
        self.write(rest);
    }

    /// The hash of all bytes so far.
    pub(crate) fn finish(&self) -> u64 {
        self.0
    }
}

const PRIME: u64 = 0x0100_0000_01b3;
/// 2^64 divided by the golden ratio, odd: half of its bits are set.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(parts: &[&str]) -> u64 {
        let mut hash = Fnv::default();
        for part in parts {
            hash.write(part.as_bytes());
        }
        hash.finish()
    }

    #[test]
    fn where_one_part_ends_matters() {
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_eq!(hash(&["ab", "c"]), hash(&["ab", "c"]));
    }

    #[test]
    fn each_bit_and_each_byte_more_changes_a_hash_of_words() {
        let of = |bytes: &[u8]| {
            let mut hash = Fnv::default();
            hash.write_words(bytes);
            hash.finish()
        };
        let mut found = std::collections::BTreeSet::new();
        let mut bytes = [0_u8; 27];
        for length in 0..=bytes.len() {
            assert!(found.insert(of(&bytes[..length])), "{length} zeros");
        }
        for bit in 0..8 * bytes.len() {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(found.insert(of(&bytes)), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
