//! A lock for short critical sections on the data path.
//!
//! Problem: posting a work request may cost 25 ns in total, and the standard mutex needs two atomic read-modify-write
//! steps per use. Method: one such step takes the lock, a plain store releases it. A waiter spins `SPINS` times, then
//! yields the processor, then sleeps `NAP` at a time, so waiting threads do not use a full core while the holder is
//! descheduled. Limits: not fair, not reentrant, not poisoned by a panic (the sections do not panic on foreign input).

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Spins before the waiter yields.
const SPINS: u32 = 100;
/// Yields before the waiter sleeps.
const YIELDS: u32 = 50;
/// Length of one sleep.
const NAP: Duration = Duration::from_micros(50);

/// A value behind a spin lock.
#[derive(Debug, Default)]
pub(crate) struct Lock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one holder at a time.
unsafe impl<T: Send> Send for Lock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            taken: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Held<'_, T> {
        if !self.take() {
            self.wait();
        }
        Held { lock: self }
    }

    /// The lock, unless another thread holds it.
    pub(crate) fn try_lock(&self) -> Option<Held<'_, T>> {
        self.take().then_some(Held { lock: self })
    }

    #[inline]
    fn take(&self) -> bool {
        self.taken
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn wait(&self) {
        let mut rounds = 0;
        loop {
            if !self.taken.load(Ordering::Relaxed) && self.take() {
                return;
            }
            match rounds {
                0..SPINS => std::hint::spin_loop(),
                _ if rounds < SPINS + YIELDS => std::thread::yield_now(),
                _ => std::thread::sleep(NAP),
            }
            rounds = rounds.saturating_add(1);
        }
    }
}

/// The right to use the value until this is dropped.
#[derive(Debug)]
pub(crate) struct Held<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held by us alone.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held by us alone.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_step_of_several_threads_is_lost() {
        let steps = if cfg!(miri) { 50 } else { 20_000 };
        let lock = Lock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..steps {
                        *lock.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 4 * steps);
    }

    #[test]
    fn a_held_lock_is_not_given_twice() {
        let lock = Lock::new(());
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }
}
