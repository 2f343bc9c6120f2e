//! Prefetches memory that will be read soon, while something else is computed.
//!
//! Problem: a simulator of 20,000 queue pairs touches a few cache lines of a random one per event, and no cache holds them all;
//! an ordinary read ahead of time stalls the processor as soon as its window of a few hundred instructions is full. Method:
//! the processor's own hint, which waits for nothing and changes nothing. The intrinsic takes a raw pointer and so counts as
//! `unsafe`; made from a reference it cannot be wrong, which is why this crate exists: models stay free of `unsafe`.
//!
//! Units: cache lines of 64 bytes. Limits: a hint on x86-64 and nothing elsewhere. No result depends on it. Source: AMD64
//! Architecture Programmer's Manual, volume 3, PREFETCHlevel.
#![allow(unsafe_code)]

/// Prefetches the cache line in which `value` begins.
#[inline(always)]
pub fn fetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program could see and faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(value).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_hint_changes_nothing() {
        let values = [1u64, 2, 3];
        values.iter().for_each(super::fetch);
        super::fetch(&());
        assert_eq!(values, [1, 2, 3]);
    }
}
