//! Protocols over shared memory in every interleaving, by loom: the functions of the product with the checker's words.
//!
//! A checked program is a few threads and a few steps of each. Loom runs every order of the steps, and for each reading
//! every value that the memory orderings permit. Each program also runs with one ordering weakened everywhere, or with a
//! reader that lacks a check, and loom must find a run that breaks the property. If loom found
//! none, the program would not test this ordering or check.
//!
//! Limits: loom treats accesses with `SeqCst` as weaker than they are, so protocols that need them are not here. Of the
//! accesses to a word, loom turns only the last one and a later access of another thread around. So the first thread
//! writes and the spawned one only reads: then no access of the writer hides one of the reader.

mod calls;
mod lease;
mod objects;
mod slot;

use isolane_rdma_session::words::{Atomics, Maximum, Word};
use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence};
use std::sync::atomic::Ordering;

/// The words of the checker, with the orderings of the product except those that `DEFECT` weakens.
#[derive(Debug, Default)]
struct Checked<const DEFECT: u8>;

/// No ordering is weakened.
const NONE: u8 = 0;
/// Stores publish nothing.
const NO_RELEASE: u8 = 1;
/// Loads see nothing that was published.
const NO_ACQUIRE: u8 = 2;
/// Fences order nothing.
const NO_FENCE: u8 = 3;
/// A stored 1, the mark of a removed object, becomes 0: its cell is empty.
const NO_MARK: u8 = 4;

fn weakened<const DEFECT: u8>(order: Ordering) -> Ordering {
    match (DEFECT, order) {
        (NO_RELEASE, Ordering::Release) | (NO_ACQUIRE, Ordering::Acquire) => Ordering::Relaxed,
        _ => order,
    }
}

/// A word of [`Checked`].
#[derive(Debug)]
enum Own<W, const DEFECT: u8> {
    /// Checked.
    Seen(W),
    /// Left out of the check.
    Left(std::sync::atomic::AtomicU64),
}

macro_rules! words {
    ($($atomic:ident: $value:ty;)*) => {$(
        impl<const DEFECT: u8> Default for Own<$atomic, DEFECT> {
            fn default() -> Self {
                Self::new(0)
            }
        }

        impl<const DEFECT: u8> Word<$value> for Own<$atomic, DEFECT> {
            fn new(value: $value) -> Self {
                Self::Seen($atomic::new(value))
            }

            fn load(&self, order: Ordering) -> $value {
                match self {
                    Self::Seen(word) => word.load(weakened::<DEFECT>(order)),
                    Self::Left(word) => word.load(order) as $value,
                }
            }

            fn store(&self, value: $value, order: Ordering) {
                match self {
                    Self::Seen(word) if DEFECT == NO_MARK && value == 1 => word.store(0, order),
                    Self::Seen(word) => word.store(value, weakened::<DEFECT>(order)),
                    Self::Left(word) => word.store(value as u64, order),
                }
            }
        }
    )*};
}

words! {
    AtomicU32: u32;
    AtomicU64: u64;
    AtomicUsize: usize;
}

impl<const DEFECT: u8> Maximum for Own<AtomicU64, DEFECT> {
    fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        match self {
            Self::Seen(word) => word.fetch_max(value, weakened::<DEFECT>(order)),
            Self::Left(word) => word.fetch_max(value, order),
        }
    }
}

/// A pointer of [`Checked`].
struct OwnPointer<T, const DEFECT: u8>(AtomicPtr<T>);

impl<T: 'static, const DEFECT: u8> Word<*mut T> for OwnPointer<T, DEFECT> {
    fn new(value: *mut T) -> Self {
        Self(AtomicPtr::new(value))
    }

    fn load(&self, order: Ordering) -> *mut T {
        self.0.load(weakened::<DEFECT>(order))
    }

    fn store(&self, value: *mut T, order: Ordering) {
        self.0.store(value, weakened::<DEFECT>(order));
    }
}

impl<const DEFECT: u8> Atomics for Checked<DEFECT> {
    type U32 = Own<AtomicU32, DEFECT>;
    type U64 = Own<AtomicU64, DEFECT>;
    type Usize = Own<AtomicUsize, DEFECT>;
    type Pointer<T: 'static> = OwnPointer<T, DEFECT>;

    fn fence(order: Ordering) {
        if DEFECT != NO_FENCE {
            fence(order);
        }
    }
}

/// Runs `program` in every interleaving. Returns the number of runs.
///
/// # Panics
/// A run breaks a property.
fn holds(program: impl Fn() + Sync + Send + 'static) -> usize {
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&runs);
    loom::model(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        program();
    });
    let runs = runs.load(Ordering::Relaxed);
    println!("{runs} runs");
    runs
}

/// The message of the assertion that a run of `program` breaks; `None` if there is no such run.
fn broken(program: impl Fn() + Sync + Send + 'static) -> Option<String> {
    let checked = std::thread::spawn(move || _ = holds(program));
    let payload = checked.join().err()?;
    let text = payload.downcast_ref::<String>().cloned();
    Some(text.unwrap_or_else(|| {
        let text = payload.downcast_ref::<&str>();
        text.expect("an assertion has a message").to_string()
    }))
}
