//! One device and direction, and for READs one port that they read: the lease, the credit, and the queue pairs that wait
//! for credit.
//!
//! Problem: all queue pairs of the process share the lease. Each post needs credit, and a
//! queue pair without credit must get a turn later. Method: a bucket behind a short lock. A queue pair takes a little
//! more credit than it needs (`SPARE_PART`) and spends the rest without the lock. Waiting queue pairs are in a list;
//! the application's own calls and the pump give them turns. While a queue pair waits, a newcomer waits too. Fail open:
//! without a session, without a valid lease, without an answer of the daemon, or when released, everything passes and
//! is counted. Units: bytes, operations (messages), nanoseconds.

use crate::base::Base;
use crate::credit::{Bucket, Terms, draw_free};
use crate::lock::Lock;
use crate::session::Shared;
use isolane_rdma_session::message::NO_METER;
use isolane_rdma_session::region;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// A queue pair may hold 1/16 of the burst as its own credit: 16 queue pairs together hold one burst.
const SPARE_PART: i64 = 16;
/// A waiter may sleep for 1/4 of a burst's time; the rest is reserve for a late wake-up.
const PATIENCE_PART: u64 = 4;
/// Smallest chunk, bytes; smaller chunks would cost more than they carry.
pub(crate) const CHUNK_MIN: u64 = 256;
/// One meter wakes the daemon at most once in this time.
const WAKE_EVERY_NS: u64 = 1_000_000;
/// Most turns that one call gives, because an application may wait for the call.
const TURNS: usize = 64;
/// Fewest bytes of a turn among several.
const TURN_BYTES: u64 = 4096;

/// One queue pair's account at a meter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    /// Bytes and operations that it may use without the lock.
    pub credit: [i64; 2],
    /// Messages above this size are split; `u64::MAX`: none; 0: not known yet.
    pub chunk: u64,
    /// Bytes and operations that were posted and not yet counted at the meter.
    pub posted: [u64; 2],
}

/// A request for credit.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Bytes and operations.
    pub needed: [i64; 2],
    /// Whether it is a whole message that could be split.
    pub splittable: bool,
    /// Whether the queue pair waits and has its turn.
    pub turn: bool,
}

#[derive(Debug, Default)]
struct Books {
    bucket: Bucket,
    shared: Option<(Arc<Shared>, usize)>,
    waiting_messages: u64,
    woken_at_ns: u64,
    /// Since when the lease has been expired although another one was requested.
    silent_since_ns: Option<u64>,
    unanswered: Option<Unanswered>,
    /// When the lease paces no more unless the daemon acts.
    ends_ns: u64,
    /// Bytes and operations that have been counted and did not pass, since credit lapsed: less of the next ones counts.
    lapsed: [i64; 2],
}

/// The first wake-up since the daemon's last answer.
#[derive(Clone, Copy, Debug)]
struct Unanswered {
    since_ns: u64,
    /// Answers before it.
    answers: u64,
}

/// Credit, limit and waiting queue pairs of one device and direction; see the module.
#[derive(Debug, Default)]
pub struct Meter {
    books: Lock<Books>,
    list: Lock<VecDeque<&'static dyn Waiter>>,
    waiting: AtomicUsize,
    driven: AtomicBool,
    patience_ns: AtomicU64,
    /// Whether the application's polls gave turns since the pump last did.
    polled: AtomicBool,
}

/// A queue pair that waits for credit.
pub trait Waiter: std::fmt::Debug + Sync {
    /// Posts at most about `quantum` bytes of the messages that wait for `meter`.
    fn turn(&'static self, meter: &Meter, quantum: u64) -> Outcome;
}

/// Result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No message waits any more.
    Empty,
    /// The next message is of the other direction; the queue pair is now in that meter's list.
    Elsewhere,
    /// The turn's quantum is used up.
    More,
    /// The provider's queue is full, or it rejects the request; retry soon.
    Blocked,
    /// Credit suffices at this time.
    Credit {
        /// The time from which credit suffices, ns.
        at_ns: u64,
        /// Whether something was posted before credit ended; the next queue pair has its turn.
        moved: bool,
    },
}

/// Work that remains after a round of turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// The time at which credit suffices for the next message.
    pub ready_at_ns: Option<u64>,
    /// Whether a queue pair has credit but no room in the provider's queue.
    pub blocked: bool,
    /// Whether the round ended because it reached its limit.
    pub more: bool,
    /// How much longer a wait may take without loss of rate, ns: a part of the burst's time.
    pub patience_ns: u64,
}

impl Left {
    /// Combines both: the earlier time, and more work.
    pub fn and(self, other: Self) -> Self {
        let earliest = match (self.ready_at_ns, other.ready_at_ns) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        Self {
            ready_at_ns: earliest,
            blocked: self.blocked || other.blocked,
            more: self.more || other.more,
            patience_ns: match (self.ready_at_ns, other.ready_at_ns) {
                (Some(_), Some(_)) => self.patience_ns.min(other.patience_ns),
                _ => self.patience_ns.max(other.patience_ns),
            },
        }
    }
}

impl Meter {
    /// Sets the session and the meter's index in it, or none.
    pub fn connect(&self, shared: Option<(Arc<Shared>, usize)>) {
        let mut books = self.books.lock();
        books.shared = shared;
        books.bucket = Bucket::full();
        books.silent_since_ns = None;
        books.unanswered = None;
        books.woken_at_ns = 0;
        books.lapsed = [0; 2];
    }

    /// Its number in the session; [`NO_METER`] without one.
    pub fn number(&self) -> u16 {
        let books = self.books.lock();
        let number = books.shared.as_ref().map(|(_, index)| *index as u16);
        number.unwrap_or(NO_METER)
    }

    /// Grants credit for a request, and some more to the account. The error is the time of the next attempt, in
    /// nanoseconds of the process's clock.
    pub fn draw(&self, base: &Base, account: &mut Account, request: Request) -> Result<(), u64> {
        let now_ns = base.now_ns();
        let mut books = self.books.lock();
        books.count(account);
        let Some((terms, chunk)) = books.terms(base, now_ns) else {
            account.chunk = u64::MAX;
            books.passed(draw_free(&mut account.credit, request.needed));
            return Ok(());
        };
        account.chunk = chunk;
        let waits = self.waiting.load(Ordering::Relaxed) > 0;
        let too_large = request.splittable && request.needed[0] > clamp(chunk);
        if (waits && !request.turn) || too_large {
            return Err(now_ns);
        }
        books.bucket.grow(&terms, now_ns);
        self.patience_ns
            .store(terms[0].burst_ns() / PATIENCE_PART, Ordering::Relaxed);
        let taken = books
            .bucket
            .draw(&terms, &mut account.credit, request.needed, SPARE_PART)
            // The pump looks again when the lease ends: credit may be due much later.
            .map_err(|wait| now_ns.saturating_add(wait))
            .map_err(|due_ns| due_ns.min(books.ends_ns))?;
        books.passed(taken);
        Ok(())
    }

    /// Charges bytes and operations that went without credit; the missing part becomes debt.
    pub fn charge(&self, base: &Base, amounts: [i64; 2]) {
        if amounts == [0; 2] {
            return;
        }
        let now_ns = base.now_ns();
        let mut books = self.books.lock();
        if let Some((terms, _)) = books.terms(base, now_ns) {
            books.bucket.grow(&terms, now_ns);
            books.bucket.charge(amounts);
        }
        books.passed(amounts);
    }

    /// Counts posted work without taking credit.
    pub fn report(&self, account: &mut Account) {
        self.books.lock().count(account);
    }

    /// Counts a message that starts to wait.
    pub fn message_waits(&self, now_ns: u64) {
        let mut books = self.books.lock();
        books.waiting_messages += 1;
        if books.waiting_messages == 1
            && let Some(meter) = books.shared_meter()
        {
            meter
                .waiting_since_ns
                .store(now_ns.max(1), Ordering::Relaxed);
        }
    }

    /// Counts messages that stop waiting.
    pub fn messages_go(&self, count: u64) {
        let mut books = self.books.lock();
        books.waiting_messages = books.waiting_messages.saturating_sub(count);
        if books.waiting_messages == 0
            && let Some(meter) = books.shared_meter()
        {
            meter.waiting_since_ns.store(0, Ordering::Relaxed);
        }
    }

    /// Appends a queue pair to the waiting list.
    pub fn enlist(&self, waiter: &'static dyn Waiter) {
        let mut list = self.list.lock();
        list.push_back(waiter);
        self.waiting.store(list.len(), Ordering::Relaxed);
    }

    /// Removes a queue pair from the waiting list.
    pub fn strike(&self, waiter: &'static dyn Waiter) {
        let mut list = self.list.lock();
        list.retain(|other| !std::ptr::addr_eq(*other, waiter));
        self.waiting.store(list.len(), Ordering::Relaxed);
    }

    /// Whether any queue pair waits.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Records that an application's poll gave turns.
    #[inline]
    pub fn polled(&self) {
        if !self.polled.load(Ordering::Relaxed) {
            self.polled.store(true, Ordering::Relaxed);
        }
    }

    /// Like [`Self::drive`], for the pump: while the application polls, one round per burst's time is enough.
    pub fn pump(&self) -> Left {
        let mut left = self.drive();
        if self.polled.swap(false, Ordering::Relaxed) {
            left.patience_ns *= PATIENCE_PART;
        }
        left
    }

    /// Gives turns to the waiting queue pairs as far as credit permits. One thread at a time.
    pub fn drive(&self) -> Left {
        let mut left = Left::default();
        if self.driven.swap(true, Ordering::Acquire) {
            return left;
        }
        let mut blocked = 0;
        for turn in 0.. {
            if turn == TURNS {
                left.more = true;
                break;
            }
            let (waiter, others) = {
                let mut list = self.list.lock();
                let Some(first) = list.pop_front() else { break };
                (first, list.len())
            };
            let quantum = if others > 0 { TURN_BYTES } else { u64::MAX };
            match waiter.turn(self, quantum) {
                Outcome::Empty => self.count_waiting(),
                Outcome::Elsewhere => {
                    self.count_waiting();
                    left.more = true;
                }
                Outcome::More => {
                    self.back(waiter);
                    blocked = 0;
                }
                Outcome::Blocked => {
                    self.back(waiter);
                    blocked += 1;
                    left.blocked = true;
                    if blocked > others {
                        break;
                    }
                }
                Outcome::Credit { at_ns, moved } => {
                    match moved {
                        true => self.back(waiter),
                        false => self.front(waiter),
                    }
                    left.ready_at_ns = Some(at_ns);
                    left.patience_ns = self.patience_ns.load(Ordering::Relaxed);
                    break;
                }
            }
        }
        self.driven.store(false, Ordering::Release);
        left
    }

    /// Appends a queue pair after its turn. It is counted again, because a concurrent [`Self::strike`] did not count
    /// it.
    fn back(&self, waiter: &'static dyn Waiter) {
        self.enlist(waiter);
    }

    fn front(&self, waiter: &'static dyn Waiter) {
        let mut list = self.list.lock();
        list.push_front(waiter);
        self.waiting.store(list.len(), Ordering::Relaxed);
    }

    fn count_waiting(&self) {
        let list = self.list.lock();
        self.waiting.store(list.len(), Ordering::Relaxed);
    }
}

impl Books {
    fn shared_meter(&self) -> Option<&region::Meter> {
        let (shared, index) = self.shared.as_ref()?;
        shared.region.meters.get(*index)
    }

    /// The terms of the lease and its chunk; `None` if everything passes.
    fn terms(&mut self, base: &Base, now_ns: u64) -> Option<([Terms; 2], u64)> {
        let (shared, index) = self.shared.as_ref()?;
        let header = &shared.region.header;
        let lost = shared.lost.load(Ordering::Relaxed);
        if lost || header.state.load(Ordering::Relaxed) == region::STATE_RELEASED {
            return None;
        }
        let lease = shared.region.meters.get(*index)?.lease();
        let holds = lease.valid_until_ns >= now_ns;
        let seen = lease.flags & region::METER_ACTIVE != 0 && holds;
        let answers = header.answers.load(Ordering::Acquire);
        let unanswered = self
            .unanswered
            .filter(|first| !seen && first.answers == answers);
        self.unanswered = unanswered;
        if !seen && now_ns.saturating_sub(self.woken_at_ns) >= WAKE_EVERY_NS {
            self.woken_at_ns = now_ns;
            let since_ns = now_ns;
            self.unanswered = unanswered.or(Some(Unanswered { since_ns, answers }));
            shared.wake();
        }
        if lease.flags & region::METER_RELEASED != 0 {
            return None;
        }
        let is_silent =
            |first: Unanswered| now_ns.saturating_sub(first.since_ns) > region::SILENT_NS;
        if unanswered.is_some_and(is_silent) {
            base.say_silent();
            return None;
        }
        if lease.valid_until_ns.saturating_add(region::GRACE_NS) < now_ns {
            let since = *self.silent_since_ns.get_or_insert(now_ns);
            if now_ns.saturating_sub(since) > region::GRACE_NS {
                base.say_silent();
            }
            return None;
        }
        self.silent_since_ns = None;
        let expires_ns = lease.valid_until_ns.saturating_add(region::GRACE_NS);
        let silent_ns = self.unanswered.map_or(u64::MAX, |first| {
            first.since_ns.saturating_add(region::SILENT_NS)
        });
        self.ends_ns = expires_ns.min(silent_ns).saturating_add(1);
        let chunk = match u64::from(lease.chunk_bytes) {
            0 => u64::MAX,
            chunk => chunk.max(CHUNK_MIN),
        };
        Some((Terms::of(&lease), chunk))
    }

    fn count(&mut self, account: &mut Account) {
        if let Some(meter) = self.shared_meter() {
            raise(&meter.posted_bytes, account.posted[0]);
            raise(&meter.posted_operations, account.posted[1]);
        }
        account.posted = [0; 2];
    }

    /// Counters never fall, so what lapses reduces what is counted next.
    fn passed(&mut self, amounts: [i64; 2]) {
        let more = [0, 1].map(|at| amounts[at].saturating_sub(self.lapsed[at]));
        self.lapsed = more.map(|more| more.min(0).saturating_neg());
        if let Some(meter) = self.shared_meter() {
            raise(&meter.passed_bytes, more[0].max(0) as u64);
            raise(&meter.passed_operations, more[1].max(0) as u64);
        }
    }
}

/// Raises a counter that only this process writes, under a lock.
#[inline]
pub(crate) fn raise(counter: &AtomicU64, by: u64) {
    let value = counter.load(Ordering::Relaxed);
    counter.store(value.wrapping_add(by), Ordering::Relaxed);
}

/// Converts a size to credit.
#[inline]
pub(crate) fn clamp(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Idle {
        _number: u8,
    }

    impl Waiter for Idle {
        fn turn(&'static self, _: &Meter, _: u64) -> Outcome {
            Outcome::Empty
        }
    }

    fn place(number: u8) -> &'static Idle {
        Box::leak(Box::new(Idle { _number: number }))
    }

    #[test]
    fn what_lapses_reduces_what_is_counted_next() {
        let mut books = Books::default();
        books.passed([-5, -2]);
        assert_eq!(books.lapsed, [5, 2]);
        books.passed([3, 3]);
        assert_eq!(books.lapsed, [2, 0]);
    }

    /// Removing one queue pair while another has its turn must not lose the other one: nothing would drive it.
    #[test]
    fn who_has_its_turn_still_waits_when_another_is_struck() {
        for first in [true, false] {
            let (meter, waits, goes) = (Meter::default(), place(0), place(1));
            meter.enlist(waits);
            let taken = meter.list.lock().pop_front().expect("it was enlisted");
            meter.strike(goes);
            match first {
                true => meter.front(taken),
                false => meter.back(taken),
            }
            assert!(meter.has_waiting(), "put back first: {first}");
        }
    }
}
