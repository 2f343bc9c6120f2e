//! The atomic words behind a shared memory: the processor's, or those of a checker.
//!
//! Problem: whether a reader on another core sees words in an order that the protocol permits depends on the memory
//! orderings, and no test on one machine shows all outcomes. Method: a protocol names its words through [`Atomics`].
//! Programs use [`Processor`], whose words are those of `core`; `crates/tools/models` runs the same functions with words
//! of a checker in every interleaving, and once with weakened orderings, which the checker must find.

use std::fmt::Debug;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// A family of atomic words.
pub trait Atomics: Debug + Default + 'static {
    /// 32 bits.
    type U32: Word<u32> + Debug + Default;
    /// 64 bits.
    type U64: Maximum + Debug + Default;
    /// An address.
    type Usize: Word<usize>;
    /// A pointer.
    type Pointer<T: 'static>: Word<*mut T>;

    /// Orders the words before and after it.
    fn fence(order: Ordering);
}

/// An atomic word.
pub trait Word<T>: Send + Sync {
    /// A word with this value.
    fn new(value: T) -> Self;
    /// Reads the word.
    fn load(&self, order: Ordering) -> T;
    /// Writes the word.
    fn store(&self, value: T, order: Ordering);
}

/// A word that can rise to a value.
pub trait Maximum: Word<u64> {
    /// Writes the value if it is larger. Returns the value before.
    fn fetch_max(&self, value: u64, order: Ordering) -> u64;
}

/// The words of the processor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Processor;

impl Atomics for Processor {
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type Usize = AtomicUsize;
    type Pointer<T: 'static> = AtomicPtr<T>;

    #[inline]
    fn fence(order: Ordering) {
        fence(order);
    }
}

macro_rules! words {
    ($($atomic:ty: $value:ty $(, $parameter:ident)?;)*) => {$(
        impl$(<$parameter: 'static>)? Word<$value> for $atomic {
            #[inline]
            fn new(value: $value) -> Self {
                Self::new(value)
            }

            #[inline]
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }

            #[inline]
            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }
        }
    )*};
}

words! {
    AtomicU32: u32;
    AtomicU64: u64;
    AtomicUsize: usize;
    AtomicPtr<T>: *mut T, T;
}

impl Maximum for AtomicU64 {
    #[inline]
    fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_max(value, order)
    }
}
