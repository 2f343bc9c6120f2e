//! Listeners of the kernel: calls are numbered upwards, and each waits for its answer.

use isolane_rdma_enforcer::guardian::custody::Seen;
use isolane_rdma_enforcer::guardian::kept::Trap;
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Threads of a program: each waits in one call at most.
const THREADS: usize = 3;

/// A call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Nobody has received it.
    Pending,
    /// An enforcer has.
    Received,
    /// The first call of its listener, received by an enforcer that was killed before it recorded it: the documented exception.
    Excused,
}

struct Inner {
    number: u64,
    user: u32,
    is_alive: Cell<bool>,
    /// Another process takes its calls.
    is_taken: Cell<bool>,
    /// Its end is not seen any more.
    is_hidden: Cell<bool>,
    next: Cell<u64>,
    /// Calls with the time since when they wait.
    calls: RefCell<BTreeMap<u64, (Call, u64)>>,
    /// Before this time its calls waited for an enforcer, as configured.
    waited_from_us: Cell<u64>,
}

/// A descriptor of a listener.
#[derive(Clone)]
pub(super) struct Filter(Rc<Inner>);

impl Filter {
    pub(super) fn new(number: u64, user: u32) -> Self {
        Self(Rc::new(Inner {
            number,
            user,
            is_alive: Cell::new(true),
            is_taken: Cell::new(false),
            is_hidden: Cell::new(false),
            // The kernel begins anywhere.
            next: Cell::new(number << 32 | 7),
            calls: RefCell::default(),
            waited_from_us: Cell::new(0),
        }))
    }

    pub(super) fn number(&self) -> u64 {
        self.0.number
    }

    pub(super) fn user(&self) -> u32 {
        self.0.user
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn is_alive(&self) -> bool {
        self.0.is_alive.get()
    }

    /// A thread calls. False: all threads wait, or the program has ended.
    pub(super) fn call(&self, now_us: u64) -> bool {
        let mut calls = self.0.calls.borrow_mut();
        if !self.is_alive() || calls.len() >= THREADS {
            return false;
        }
        let id = self.0.next.get();
        self.0.next.set(id + 1);
        calls.insert(id, (Call::Pending, now_us));
        true
    }

    /// The program ends, and its threads leave their calls.
    pub(super) fn end(&self) {
        self.0.is_alive.set(false);
        self.drop_calls();
    }

    pub(super) fn drop_calls(&self) {
        self.0.calls.borrow_mut().clear();
    }

    pub(super) fn has_calls(&self) -> bool {
        !self.0.calls.borrow().is_empty()
    }

    pub(super) fn take_by_another(&self) {
        self.0.is_taken.set(true);
    }

    pub(super) fn hide(&self) {
        self.0.is_hidden.set(true);
    }

    /// What poll(2) and a receive of a reader return, if it `receives`.
    pub(super) fn look(&self, receives: bool) -> Option<Seen> {
        if !self.is_alive() {
            return (!self.0.is_hidden.get()).then_some(Seen::Ended);
        }
        let first = receives.then(|| self.pending())?;
        first.map(|id| match self.0.is_taken.get() {
            true => Seen::Taken,
            false => Seen::Call(id),
        })
    }

    fn pending(&self) -> Option<u64> {
        let calls = self.0.calls.borrow();
        let mut calls = calls.iter();
        calls
            .find(|(_, (call, _))| *call == Call::Pending)
            .map(|(id, _)| *id)
    }

    /// An enforcer receives the next call. The error: another process took it.
    pub(super) fn receive(&self) -> Option<Result<u64, ()>> {
        let id = self.pending()?;
        if self.0.is_taken.get() {
            return Some(Err(()));
        }
        self.mark(id, Call::Received);
        Some(Ok(id))
    }

    pub(super) fn mark(&self, id: u64, state: Call) {
        if let Some((call, _)) = self.0.calls.borrow_mut().get_mut(&id) {
            *call = state;
        }
    }

    /// The oldest call that is `wanted`, and since when it waits.
    pub(super) fn oldest(&self, wanted: impl Fn(&Call) -> bool) -> Option<(u64, u64)> {
        let calls = self.0.calls.borrow();
        let mut calls = calls.iter();
        calls
            .find(|(_, (call, _))| wanted(call))
            .map(|(id, (_, since_us))| (*id, *since_us))
    }

    pub(super) fn waits_from(&self, now_us: u64) {
        self.0.waited_from_us.set(now_us);
    }

    pub(super) fn waited_from_us(&self) -> u64 {
        self.0.waited_from_us.get()
    }
}

impl Trap for Filter {
    fn order(&self, other: &Self) -> Option<Ordering> {
        Some(self.0.number.cmp(&other.0.number))
    }

    fn is_waiting(&self, id: u64) -> bool {
        let calls = self.0.calls.borrow();
        calls
            .get(&id)
            .is_some_and(|(call, _)| *call != Call::Pending)
    }

    fn resume(&self, id: u64) {
        self.0.calls.borrow_mut().remove(&id);
    }
}
