//! 64-bit FNV-1a, to recognise a run in a journal: the same on every machine, which std's hasher does not promise.
//!
//! Limits: not against malice. Among 15,000 runs two keys collide with a probability below 10^-10.

/// A running hash.
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
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// The hash of all bytes so far.
    pub(crate) fn finish(&self) -> u64 {
        self.0
    }
}

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
}
