//! A paced queue pair: the path of a work request from the application to the provider.
//!
//! Problem: post what has credit at once and keep the rest in order; the application may notice only the delay. Method:
//! three paths.
//!
//! 1. No message waits, the message is small enough and has credit: a copy of the work request, with our identifier
//!    ([`crate::ring`]), joins a batch that goes to the provider as one list when the application's list ends.
//! 2. Otherwise the request is copied to the software queue, and `progress` posts from its front as far as credit and
//!    the provider's queue permit.
//! 3. Before the queue pair can send (RESET, INIT, RTR), requests go to the provider unchanged.
//!
//! Errors: after a completion reports that the queue pair failed, waiting messages are posted whole and without credit,
//! so the provider flushes them in order. If the provider rejects a request after `ibv_post_send` has returned, the
//! application sees an error completion in order. Locks: a queue pair's lock is taken after a completion queue's, before a
//! meter's. Limits: vendor transports (`IBV_QPT_DRIVER`) and raw packets are not paced.

use crate::base::Base;
use crate::collector::Collector;
use crate::context::Device;
use crate::lock::Lock;
use crate::meter::{Account, Meter, Outcome, Waiter};
use crate::queue::{Pending, Splitting};
use crate::ring::{Name, Ring, Seen};
use crate::session::Shared;
use isolane_rdma_session::region::Service;
use isolane_rdma_verbs_sys::*;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::Arc;

/// The provider's `post_send`.
pub(crate) type PostSend =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;

/// Largest number of work requests that go to the provider as one list.
pub(crate) const BATCH: usize = 16;
/// Fewest spare places in the provider's queue for which splitting pays.
pub(crate) const SPARE_MIN: u32 = 8;

/// What a completion queue answers to [`Completions::expect_replacement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// The queue counts the replacement: until [`Completions::replaced`], successful completions too wake an application
    /// that requests events.
    Expected,
    /// The store serves: the application polls it, and can wait for no event.
    Needless,
    /// Another thread uses the queue; retry later.
    Busy,
}

/// The queue pairs' view of a completion queue.
pub trait Completions: std::fmt::Debug + Sync {
    /// Prepares for the successful completion of an empty request in place of one that the provider rejected.
    fn expect_replacement(&self) -> Replacement;
    /// So many expected replacements have completed, or never will.
    fn replaced(&self, count: u32);
    /// Stores completions that the provider will not make.
    fn store(&self, completions: Vec<(ibv_wc, Seen)>, queue_pair: &'static QueuePair);
    /// Returns the `room` of a queue pair that ended.
    fn detached(&self, room: u32);
    /// The provider's queue.
    fn queue(&self) -> *mut ibv_cq;
}

/// The parts of a queue pair; see [`QueuePair::attach`].
#[derive(Debug)]
pub struct Plan {
    /// The provider's queue pair.
    pub qp: *mut ibv_qp,
    /// The provider's `post_send`.
    pub post_send: PostSend,
    /// Its device.
    pub device: &'static Device,
    /// The meter of its READs: the device's, until the port that it reads is known.
    pub reads: &'static Meter,
    /// The completion queue of its sends.
    pub send_cq: &'static dyn Completions,
    /// The depth that the application requested.
    pub depth: u32,
    /// Places in the provider's queue beyond the depth.
    pub spare: u32,
    /// Whether every message requests a completion.
    pub signal_all: bool,
    /// Whether the kernel changes the state without a call of the application, as iWARP's connections do.
    pub state_unknown: bool,
    /// Limits of the provider.
    pub cap: ibv_qp_cap,
    /// The opcodes that may be split.
    pub splitting: Splitting,
}

impl Plan {
    /// Meters of its two directions.
    #[inline]
    pub(crate) fn meters(&self) -> [&'static Meter; 2] {
        [&self.device.meters[0], self.reads]
    }

    /// Their numbers, as a slot has them.
    pub(crate) fn meters_word(&self) -> u32 {
        let [outgoing, reads] = self.meters().map(|meter| u32::from(meter.number()));
        outgoing | reads << 16
    }
}

/// A place for a paced queue pair. Places are reused and never freed.
#[derive(Debug)]
pub struct QueuePair {
    /// Its number among all places.
    pub place: u16,
    pub(crate) inner: Lock<Inner>,
    /// The batch of the extended interface between start and complete.
    pub(crate) collector: Collector,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Step {
    pub(crate) bytes: u64,
    pub(crate) fresh: bool,
    pub(crate) last: bool,
    pub(crate) since_signal: u32,
    pub(crate) sequence: u32,
    pub(crate) direction: usize,
}

pub(crate) struct Batch {
    pub(crate) works: [ibv_send_wr; BATCH],
    pub(crate) origins: [*mut ibv_send_wr; BATCH],
    pub(crate) steps: [Step; BATCH],
    pub(crate) pieces: Vec<ibv_sge>,
    pub(crate) count: usize,
}

/// The state behind the lock.
pub(crate) struct Inner {
    pub(crate) base: Option<&'static Base>,
    pub(crate) plan: Option<Plan>,
    pub(crate) tag: u64,
    pub(crate) place: u16,
    pub(crate) number: u32,
    pub(crate) state: ibv_qp_state,
    pub(crate) failed: bool,
    pub(crate) paused: bool,
    /// The class of its connection, once it is known.
    pub(crate) service: Option<Service>,
    /// Whether it has posted a READ.
    pub(crate) has_read: bool,
    pub(crate) ring: Ring,
    pub(crate) queue: VecDeque<Pending>,
    pub(crate) unused: Vec<Pending>,
    pub(crate) since_signal: u32,
    pub(crate) accounts: [Account; 2],
    pub(crate) slot: Option<(Arc<Shared>, usize)>,
    pub(crate) listed: *const Meter,
    pub(crate) batch: Box<Batch>,
    /// Completions that the provider will never make; they go to the completion queue's store.
    pub(crate) refusals: Vec<(ibv_wc, Seen)>,
    /// Messages, oldest first, in whose place an empty request is on its way.
    pub(crate) replacements: VecDeque<u32>,
}

// SAFETY: the pointers name objects of libibverbs and work requests of a post in progress; all use is behind the lock.
unsafe impl Send for Inner {}

impl std::fmt::Debug for Inner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Inner")
            .field("number", &self.number)
            .field("waiting", &self.queue.len())
            .finish_non_exhaustive()
    }
}

impl QueuePair {
    /// An empty place.
    pub fn new(place: u16) -> Self {
        Self {
            place,
            inner: Lock::new(Inner {
                base: None,
                tag: 0,
                plan: None,
                place,
                number: 0,
                state: IBV_QPS_RESET,
                failed: false,
                paused: false,
                service: None,
                has_read: false,
                ring: Ring::default(),
                queue: VecDeque::new(),
                unused: Vec::new(),
                since_signal: 0,
                accounts: [Account::default(); 2],
                slot: None,
                listed: std::ptr::null(),
                batch: Box::new(Batch {
                    works: [ibv_send_wr::default(); BATCH],
                    origins: [std::ptr::null_mut(); BATCH],
                    steps: [Step::default(); BATCH],
                    pieces: Vec::new(),
                    count: 0,
                }),
                refusals: Vec::new(),
                replacements: VecDeque::new(),
            }),
            collector: Collector::default(),
        }
    }

    /// Puts a new queue pair in this place.
    ///
    /// # Safety
    /// `plan.qp` was just created and not used yet.
    pub unsafe fn attach(&self, base: &'static Base, plan: Plan) {
        let mut inner = self.inner.lock();
        // SAFETY: the caller's promise.
        let number = unsafe { (*plan.qp).qp_num };
        inner.base = Some(base);
        inner.tag = base.tag;
        inner.number = number;
        inner.state = IBV_QPS_RESET;
        (inner.failed, inner.paused) = (false, false);
        (inner.service, inner.has_read) = (None, false);
        inner.ring.reset(plan.depth);
        inner.since_signal = 0;
        inner.accounts = [Account::default(); 2];
        inner.listed = std::ptr::null();
        let pieces = plan.cap.max_send_sge.max(1) as usize * BATCH;
        inner.batch.pieces.resize(pieces, ibv_sge::default());
        let slot = plan.device.slot();
        inner.plan = Some(plan);
        inner.take_slot(slot);
    }

    /// Drops the waiting messages of a queue pair that will be destroyed. Its place becomes free after the provider has
    /// destroyed it. Returns false if the place was already free.
    pub fn detach(&'static self) -> bool {
        let mut inner = self.inner.lock();
        let Some(plan) = inner.plan.take() else {
            return false;
        };
        inner.drop_waiting(&plan);
        inner.strike(self, &plan);
        inner.ring.release();
        inner.give_slot_back();
        inner.number = 0;
        drop(inner);
        plan.send_cq.detached(plan.spare);
        true
    }

    /// Posts the application's list; returns the errno of `ibv_post_send`.
    ///
    /// # Safety
    /// As for `ibv_post_send`.
    #[inline]
    pub unsafe fn post(
        &'static self,
        first: *mut ibv_send_wr,
        bad: *mut *mut ibv_send_wr,
    ) -> c_int {
        let mut inner = self.inner.lock();
        // SAFETY: passed on.
        let answer = unsafe { inner.post(self, first, bad) };
        self.settle(inner);
        answer
    }

    /// Unlocks, then passes rejected requests to the completion queue.
    #[inline]
    pub(crate) fn settle(&'static self, mut inner: crate::lock::Held<'_, Inner>) {
        if inner.refusals.is_empty() {
            return;
        }
        let refusals = std::mem::take(&mut inner.refusals);
        let cq = inner.plan.as_ref().map(|plan| plan.send_cq);
        drop(inner);
        if let Some(cq) = cq {
            cq.store(refusals, self);
        }
    }

    /// Handles a state change by the application.
    pub fn state_changed(&'static self, state: ibv_qp_state) {
        let mut inner = self.inner.lock();
        inner.state = state;
        match state {
            IBV_QPS_RESET => {
                inner.failed = false;
                inner.since_signal = 0;
                if let Some(plan) = inner.plan.take() {
                    inner.drop_waiting(&plan);
                    inner.strike(self, &plan);
                    inner.plan = Some(plan);
                }
                inner.ring.clear();
            }
            IBV_QPS_ERR => inner.failed = true,
            IBV_QPS_RTS => inner.failed = false,
            _ => {}
        }
    }

    /// The device of a queue pair that is in this place.
    pub fn device(&self) -> Option<&'static Device> {
        Some(self.inner.lock().plan.as_ref()?.device)
    }

    /// Shows the daemon the class of the connection. Its READs take credit from the meter `reads` from now on, unless
    /// earlier ones wait: then the connection has only changed its path.
    pub fn connected(&self, service: Service, reads: Option<&'static Meter>) {
        let mut inner = self.inner.lock();
        inner.service = Some(service);
        if let Some(reads) = reads.filter(|_| inner.queue.is_empty()) {
            inner.report();
            inner.accounts[1] = Account::default();
            if let Some(plan) = &mut inner.plan {
                plan.reads = reads;
            }
        }
        if let Some((slot, alone)) = inner.slot() {
            slot.describe(Some(service), inner.has_read);
            if alone && let Some(plan) = &inner.plan {
                slot.direct(plan.meters_word());
            }
        }
    }

    /// Charges one operation for a request that the provider posts by itself.
    pub fn went_past(&self) {
        self.inner.lock().owe([[0, 1], [0, 0]]);
    }

    /// Handles a completion with this place's name and returns what the application should see. `qp_num` is the
    /// provider's value, or `None` if it has none.
    pub fn complete(&self, name: Name, qp_num: Option<u32>, status: ibv_wc_status) -> Option<Seen> {
        self.inner.lock().complete(name, qp_num, status)
    }

    /// Completes and delivers, for a completion that goes to the application now.
    #[inline]
    pub fn complete_now(
        &self,
        name: Name,
        qp_num: Option<u32>,
        status: ibv_wc_status,
    ) -> Option<Seen> {
        let mut inner = self.inner.lock();
        let seen = inner.complete(name, qp_num, status)?;
        let finished = inner.ring.deliver(&seen);
        inner.count_finished(finished.messages, finished.bytes);
        Some(seen)
    }

    /// Records that the application took the completion.
    pub fn deliver(&self, seen: &Seen) {
        let mut inner = self.inner.lock();
        if inner.plan.is_none() {
            return;
        }
        let finished = inner.ring.deliver(seen);
        inner.count_finished(finished.messages, finished.bytes);
    }

    /// Takes a slot of a new session.
    pub fn reconnect(&self) {
        let mut inner = self.inner.lock();
        let Some(plan) = inner.plan.as_ref() else {
            return;
        };
        let slot = plan.device.slot();
        inner.give_slot_back();
        inner.take_slot(slot);
    }

    /// Stops posting before the queue pair is destroyed, until [`Self::resume`].
    pub fn pause(&'static self) {
        let mut inner = self.inner.lock();
        inner.paused = true;
        if let Some(plan) = inner.plan.take() {
            inner.strike(self, &plan);
            inner.plan = Some(plan);
        }
    }

    /// Resumes posting after a failed destruction.
    pub fn resume(&'static self) {
        let mut inner = self.inner.lock();
        inner.paused = false;
        if !inner.queue.is_empty() {
            inner.enlist(self);
        }
    }

    /// Posts waiting messages of this queue pair's device, as far as credit permits.
    pub fn drive(&self) {
        let meters = self.inner.lock().plan.as_ref().map(Plan::meters);
        for meter in meters.into_iter().flatten() {
            if meter.has_waiting() {
                meter.drive();
            }
        }
    }

    /// Whether datagrams wait that may be posted.
    pub fn holds_datagrams(&self) -> bool {
        let inner = self.inner.lock();
        let Some(plan) = inner.plan.as_ref().filter(|_| !inner.paused) else {
            return false;
        };
        // SAFETY: a queue pair with a plan lives until [`Self::pause`].
        !inner.queue.is_empty() && unsafe { (*plan.qp).qp_type } == IBV_QPT_UD
    }

    /// The application's request: depth and whether all messages request completions.
    pub fn asked(&self) -> Option<(u32, bool)> {
        let inner = self.inner.lock();
        let plan = inner.plan.as_ref()?;
        Some((plan.depth, plan.signal_all))
    }

    /// The provider's completion queue, while a message waits there for room.
    pub fn blocked_at(&self) -> Option<*mut ibv_cq> {
        let inner = self.inner.lock();
        let plan = inner.plan.as_ref()?;
        (!inner.queue.is_empty()).then(|| plan.send_cq.queue())
    }
}

impl Waiter for QueuePair {
    fn turn(&'static self, meter: &Meter, quantum: u64) -> Outcome {
        let mut inner = self.inner.lock();
        if !std::ptr::eq(inner.listed, meter) {
            return Outcome::Empty;
        }
        let outcome = match inner.progress(quantum) {
            Ok(outcome) => outcome,
            Err(_refused) => inner.refuse(),
        };
        let outcome = match (outcome, inner.front_meter()) {
            (_, None) => Outcome::Empty,
            (outcome, Some(next)) if std::ptr::eq(next, meter) => outcome,
            (_, Some(next)) => {
                inner.listed = next;
                next.enlist(self);
                Outcome::Elsewhere
            }
        };
        if outcome == Outcome::Empty {
            inner.listed = std::ptr::null();
        }
        self.settle(inner);
        outcome
    }
}

impl Inner {
    /// Charges bytes and operations of both directions that went ahead of their credit.
    pub(crate) fn owe(&self, spent: [[i64; 2]; 2]) {
        if let (Some(base), Some(plan)) = (self.base, self.plan.as_ref()) {
            for (meter, amounts) in plan.meters().iter().zip(spent) {
                meter.charge(base, amounts);
            }
        }
    }

    /// Handles a completion of request `name` and returns what the application should see.
    #[inline]
    fn complete(&mut self, name: Name, qp_num: Option<u32>, status: ibv_wc_status) -> Option<Seen> {
        if self.plan.is_none() || qp_num.is_some_and(|number| number != self.number) {
            return None;
        }
        let success = status == IBV_WC_SUCCESS;
        self.failed |= !success;
        self.end_replacements(name);
        self.ring.complete(name.sequence, name.private, success)
    }

    pub(crate) fn strike(&mut self, owner: &'static QueuePair, plan: &Plan) {
        self.listed = std::ptr::null();
        for meter in plan.meters() {
            meter.strike(owner);
        }
    }

    pub(crate) fn front_meter(&self) -> Option<&'static Meter> {
        let plan = self.plan.as_ref()?;
        let front = self.queue.front()?;
        Some(plan.meters()[front.shape.direction])
    }

    pub(crate) fn enlist(&mut self, owner: &'static QueuePair) {
        if self.listed.is_null()
            && let Some(meter) = self.front_meter()
        {
            self.listed = meter;
            meter.enlist(owner);
            if let Some(base) = self.base {
                base.bell.ring();
            }
        }
    }

    pub(crate) fn report(&mut self) {
        if let Some(plan) = self.plan.as_ref() {
            for (meter, account) in plan.meters().iter().zip(&mut self.accounts) {
                if account.posted[1] > 0 {
                    meter.report(account);
                }
            }
        }
    }

    #[inline]
    pub(crate) fn name(&self, sequence: u32, private: bool) -> u64 {
        let place = self.place;
        Name {
            private,
            place,
            sequence,
        }
        .encode(self.tag)
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.base.map_or(0, Base::now_ns)
    }
}

/// A rejected request of the application's list, and its errno.
pub(crate) type Refusal = (*mut ibv_send_wr, c_int);
