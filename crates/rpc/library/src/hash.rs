//! The 128-bit key of a destination in the table.
//!
//! Problem: a decision must find its destination in a few nanoseconds while other threads insert and remove
//! destinations. Without `unsafe`, a thread cannot compare names that another thread may free. Method: the table
//! compares 128 bits made from the name. Words of the name are mixed by folding the 128-bit product of two 64-bit
//! numbers, in two lanes with separate keys. Limits: two of 100,000 destinations share a hash with a probability of
//! about 2^-95 and would then share their state. The keys are random for each table, so outsiders cannot prepare
//! colliding names. The hash is not cryptographic: a program that can read the keys can make collisions.

/// Keys of both lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys([u64; 4]);

/// A destination's 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hash {
    pub(crate) high: u64,
    pub(crate) low: u64,
}

impl Keys {
    /// Derives the keys from one random number.
    pub(crate) fn new(seed: u64) -> Self {
        let mut state = seed;
        Self([(); 4].map(|()| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            fold(state, 0xd6e8_feb8_6659_fd93) | 1
        }))
    }

    /// The hash of `name`.
    #[inline]
    pub(crate) fn hash(&self, name: &[u8]) -> Hash {
        let [a, b, c, d] = self.0;
        // Spread over all bits; otherwise it could cancel a difference in the last bytes.
        let len = (name.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (mut low, mut high) = (a ^ len, c ^ len);
        let mut rest = name;
        while rest.len() > 16 {
            let (x, y) = (word(rest, 0), word(rest, 8));
            low = fold(x ^ b, y ^ low);
            high = fold(x ^ high, y ^ d);
            rest = &rest[16..];
        }
        let (x, y) = ends(rest);
        low = fold(x ^ b, y ^ low);
        high = fold(x ^ high, y ^ d);
        Hash {
            high: fold(high ^ a, c),
            low: fold(low ^ c, a),
        }
    }
}

/// The last at most 16 bytes as two words, which may overlap.
#[inline]
fn ends(rest: &[u8]) -> (u64, u64) {
    match rest.len() {
        8.. => (word(rest, 0), word(rest, rest.len() - 8)),
        4..8 => (half(rest, 0), half(rest, rest.len() - 4)),
        1..4 => {
            let last = rest.len() - 1;
            let bytes = [rest[0], rest[last / 2], rest[last]].map(u64::from);
            (bytes[0] << 16 | bytes[1] << 8 | bytes[2], 0)
        }
        0 => (0, 0),
    }
}

#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes[at..at + 8].try_into().expect("eight bytes");
    u64::from_le_bytes(eight)
}

#[inline]
fn half(bytes: &[u8], at: usize) -> u64 {
    let four = bytes[at..at + 4].try_into().expect("four bytes");
    u64::from(u32::from_le_bytes(four))
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_that_differ_in_one_byte_or_length_differ_in_both_words() {
        let keys = Keys::new(7);
        let mut words = BTreeSet::new();
        let mut count = 0;
        let mut insert = |name: &[u8]| {
            let hash = keys.hash(name);
            assert!(
                words.insert(hash.high) && words.insert(hash.low),
                "{name:?}"
            );
            count += 1;
        };
        for len in 0..70 {
            let name = vec![b'a'; len];
            insert(&name);
            for at in 0..len {
                let mut other = name.clone();
                other[at] = b'b';
                insert(&other);
            }
        }
        for host in 0..20_000 {
            insert(format!("10.0.{}.{}:{}", host / 256, host % 256, 5000).as_bytes());
        }
        assert_eq!(words.len(), 2 * count);
    }

    #[test]
    fn low_bits_spread_evenly() {
        let keys = Keys::new(1);
        let mut bins = [0u32; 256];
        for host in 0..25_600 {
            let hash = keys.hash(format!("host-{host}.rack.example:443").as_bytes());
            bins[(hash.high & 255) as usize] += 1;
        }
        // 100 in each on average, with a standard deviation of 10.
        assert!(bins.iter().all(|&bin| (50..150).contains(&bin)), "{bins:?}");
    }

    #[test]
    fn other_keys_give_other_hashes() {
        assert_ne!(Keys::new(1).hash(b"host"), Keys::new(2).hash(b"host"));
    }
}
