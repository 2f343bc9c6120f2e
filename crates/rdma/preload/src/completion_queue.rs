//! Completion queues: the application sees its own completions, each once, with its own identifiers.
//!
//! Problem: completions of chunks are between the application's. They must be removed even when the application does
//! not poll, or the provider's queue stays full. Method: polled completions are translated in place, and ours are left
//! out. A poll that finds only ours polls again, so an empty result means that the provider's queue is empty.
//! Completions that the pump removes from a full queue are stored; the application's next poll returns them first.
//!
//! Events: a completion of ours may consume the event that the application requested. [`CompletionQueue::is_quiet`]
//! detects such events: it requests another event and polls again before the event is suppressed. A work request that
//! the provider rejects late still makes an event on a queue with a channel, since an empty request completes in its place
//! (`progress`). While one is on its way, every request for an event is for any completion, as this one is not solicited.
//!
//! Room: a completion queue is created larger than requested ([`spare_for`]). Every queue pair that splits takes its
//! spare send places from that room, so even the simultaneous failure of all work requests does not overflow it.
//! Limits: extended completion queues are translated through their own calls, and nothing is stored for them. They make
//! room only when the application polls, and an event of ours may arrive with nothing to poll.

use crate::context::Context;
use crate::lock::Lock;
use crate::places::Places;
use crate::queue_pair::{Completions, QueuePair, Replacement};
use crate::ring::{Name, Seen};
use isolane_rdma_verbs_sys::*;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU32, Ordering};

/// Completions that the pump removes at once.
const DRAIN: usize = 32;

/// Number of entries by which a requested queue is enlarged. A queue without entries is the provider's to reject.
pub(crate) fn spare_for(asked: u32, max: u32) -> u32 {
    match asked {
        0 => 0,
        _ => asked.clamp(1_024, 65_536).min(max.saturating_sub(asked)),
    }
}

type StartPoll = unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int;
type NextPoll = unsafe extern "C" fn(*mut ibv_cq_ex) -> c_int;
type EndPoll = unsafe extern "C" fn(*mut ibv_cq_ex);
type ReadBytes = unsafe extern "C" fn(*mut ibv_cq_ex) -> u32;
pub(crate) type ReadOpcode = unsafe extern "C" fn(*mut ibv_cq_ex) -> ibv_wc_opcode;

/// The provider's functions of an extended completion queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extended {
    pub(crate) start_poll: StartPoll,
    pub(crate) next_poll: NextPoll,
    pub(crate) end_poll: EndPoll,
    pub(crate) read_byte_len: Option<ReadBytes>,
    pub(crate) read_qp_num: Option<ReadBytes>,
    pub(crate) read_opcode: Option<ReadOpcode>,
}

/// A completion and its queue pair.
#[derive(Debug)]
struct Stored {
    completion: ibv_wc,
    place: Option<(&'static QueuePair, Seen)>,
}

#[derive(Debug, Default)]
struct Inner {
    open: bool,
    store: VecDeque<Stored>,
    extended: Option<Extended>,
    /// Last chunk and whole payload of the current message of an extended poll, if it was split.
    current_bytes: Option<(u32, u32)>,
}

/// A place for a completion queue. Places are reused and never freed.
#[derive(Debug, Default)]
pub struct CompletionQueue {
    cq: AtomicPtr<ibv_cq>,
    context: AtomicPtr<Context>,
    /// Whether a paced queue pair has ever completed here, so completions of ours may be in the provider's queue.
    touched: AtomicBool,
    /// Extra entries that no queue pair has taken yet.
    room: AtomicI64,
    extra: AtomicI32,
    solicited_only: AtomicI32,
    armed: AtomicBool,
    /// Empty requests on their way in place of rejected ones. Grows under `inner`.
    replacing: AtomicU32,
    inner: Lock<Inner>,
}

impl CompletionQueue {
    /// Puts a new completion queue here that is `spare` entries larger than requested.
    pub fn attach(&self, cq: *mut ibv_cq, context: &'static Context, spare: u32) {
        let mut inner = self.inner.lock();
        inner.open = true;
        inner.store.clear();
        inner.extended = None;
        inner.current_bytes = None;
        self.cq.store(cq, Ordering::Relaxed);
        let context: *const Context = context;
        self.context.store(context.cast_mut(), Ordering::Relaxed);
        self.touched.store(false, Ordering::Relaxed);
        self.room.store(i64::from(spare), Ordering::Relaxed);
        self.extra.store(spare as i32, Ordering::Relaxed);
        self.armed.store(false, Ordering::Relaxed);
        self.replacing.store(0, Ordering::Relaxed);
    }

    /// Marks the queue as closed before its destruction, or as open if the destruction failed.
    pub fn set_open(&self, open: bool) {
        self.inner.lock().open = open;
    }

    fn context(&self) -> Option<&'static Context> {
        // SAFETY: null, or a leaked context.
        unsafe { self.context.load(Ordering::Relaxed).as_ref() }
    }

    /// Number of extra entries that a queue of `asked` ones gets: at least those that queue pairs have taken, as far as
    /// the device's maximum permits.
    pub(crate) fn spare_at(&self, asked: u32) -> u32 {
        let max = self.context().map_or(0, |context| context.max_cqe);
        let extra = i64::from(self.extra.load(Ordering::Relaxed));
        let taken = (extra - self.room.load(Ordering::Relaxed)).clamp(0, extra) as u32;
        match asked {
            0 => 0,
            _ => taken
                .max(spare_for(asked, max))
                .min(max.saturating_sub(asked)),
        }
    }

    /// Records that the queue now has `spare` extra entries. Returns whether the queue pairs' places still fit.
    pub(crate) fn resized(&self, spare: u32) -> bool {
        let before = self.extra.swap(spare as i32, Ordering::Relaxed);
        let change = i64::from(spare) - i64::from(before);
        self.room.fetch_add(change, Ordering::Relaxed) + change >= 0
    }

    /// Reserves up to `wish` extra entries for a queue pair's hidden work requests; returns the reserved number.
    pub fn take_room(&self, wish: u32) -> u32 {
        let wish = i64::from(wish);
        let before = self.room.fetch_sub(wish, Ordering::Relaxed);
        let given = before.clamp(0, wish);
        self.room.fetch_add(wish - given, Ordering::Relaxed);
        given as u32
    }

    /// Returns unused extra entries.
    pub fn give_room_back(&self, room: u32) {
        self.room.fetch_add(i64::from(room), Ordering::Relaxed);
    }

    /// Records that a paced queue pair completes here.
    pub fn attached(&self) {
        self.touched.store(true, Ordering::Relaxed);
    }

    /// `ibv_req_notify_cq`.
    ///
    /// # Safety
    /// As for `ibv_req_notify_cq`; the queue is this one.
    pub(crate) unsafe fn arm(&self, cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
        let Some(arm) = self.context().and_then(|context| context.ops.req_notify_cq) else {
            return libc::EOPNOTSUPP;
        };
        let _inner = self.inner.lock();
        self.solicited_only.store(solicited_only, Ordering::Relaxed);
        self.armed.store(true, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { arm(cq, self.solicited_for_now()) }
    }

    /// The application's word, but 0 while replacements are on their way.
    fn solicited_for_now(&self) -> c_int {
        match self.replacing.load(Ordering::Relaxed) {
            0 => self.solicited_only.load(Ordering::Relaxed),
            _ => 0,
        }
    }

    /// Posts waiting messages of this device, as far as credit permits; called in polls, when the application has time.
    #[inline]
    pub fn kick(&self) {
        if let Some(context) = self.context() {
            for meter in context.device.all_meters() {
                if meter.has_waiting() {
                    meter.drive();
                    meter.polled();
                }
            }
        }
    }

    /// `ibv_poll_cq`.
    ///
    /// # Safety
    /// As for `ibv_poll_cq`; the queue is this one.
    #[inline]
    pub unsafe fn poll(
        &self,
        places: &Places,
        cq: *mut ibv_cq,
        count: c_int,
        completions: *mut ibv_wc,
    ) -> c_int {
        let Some(poll) = self.context().and_then(|context| context.ops.poll_cq) else {
            return -1;
        };
        if !self.touched.load(Ordering::Relaxed) || count <= 0 {
            // SAFETY: passed on.
            return unsafe { poll(cq, count, completions) };
        }
        let mut inner = self.inner.lock();
        let mut got = self.take_stored(&mut inner, count, completions);
        while got < count {
            // SAFETY: the application's array has room for `count`; the provider fills what it says.
            let found = unsafe { poll(cq, count - got, completions.add(got as usize)) };
            if found <= 0 {
                return if got > 0 { got } else { found };
            }
            let wanted = count - got;
            let mut kept = 0;
            for at in 0..found {
                // SAFETY: `found` completions were written from `got` on; `kept <= at`.
                unsafe {
                    let from = completions.add((got + at) as usize);
                    let mut completion = *from;
                    if translate(places, &mut completion, true).is_some() {
                        *completions.add((got + kept) as usize) = completion;
                        kept += 1;
                    }
                }
            }
            got += kept;
            if found < wanted || kept > 0 {
                break;
            }
        }
        got
    }

    fn take_stored(&self, inner: &mut Inner, count: c_int, completions: *mut ibv_wc) -> c_int {
        let mut got = 0;
        while got < count
            && let Some(stored) = inner.store.pop_front()
        {
            if let Some((queue_pair, seen)) = stored.place {
                queue_pair.deliver(&seen);
            }
            // SAFETY: the application's array has room for `count`.
            unsafe { *completions.add(got as usize) = stored.completion };
            got += 1;
        }
        got
    }

    /// Drops the stored completions of a queue pair that was destroyed or reset, as providers drop those in their queue:
    /// the application may have freed what their identifiers name.
    pub fn forget(&self, qp_num: u32) {
        // Also waits for a drain that has polled such completions but not stored them yet.
        let mut inner = self.inner.lock();
        inner
            .store
            .retain(|stored| stored.completion.qp_num != qp_num);
    }

    /// Moves completions from the provider into the store. Returns whether there were any.
    pub fn drain(&self, places: &Places) -> bool {
        let mut inner = self.inner.lock();
        self.drain_locked(places, &mut inner).0
    }

    /// Returns whether there were any completions, and whether one of them is the application's.
    fn drain_locked(&self, places: &Places, inner: &mut Inner) -> (bool, bool) {
        let cq = self.cq.load(Ordering::Relaxed);
        let Some(poll) = self.context().and_then(|context| context.ops.poll_cq) else {
            return (false, false);
        };
        if !inner.open || inner.extended.is_some() {
            return (false, false);
        }
        let (mut any, mut visible) = (false, false);
        let mut completions = [ibv_wc::default(); DRAIN];
        loop {
            // SAFETY: the queue is open, which its destruction waits for; the array is ours.
            let found = unsafe {
                let limit = (*cq).cqe.max(0) as usize;
                if inner.store.len() >= limit {
                    break;
                }
                poll(cq, DRAIN as c_int, completions.as_mut_ptr())
            };
            let Ok(found) = usize::try_from(found) else {
                break;
            };
            any |= found > 0;
            for completion in &mut completions[..found] {
                if let Some(place) = translate(places, completion, false) {
                    visible = true;
                    inner.store.push_back(Stored {
                        completion: *completion,
                        place,
                    });
                }
            }
            if found < DRAIN {
                break;
            }
        }
        (any, visible)
    }

    /// Whether only completions of ours consumed an event of this queue. If so, another event was requested; `true`
    /// means suppress and acknowledge this one.
    pub fn is_quiet(&self, places: &Places) -> bool {
        let mut inner = self.inner.lock();
        let nothing_of_ours = !self.touched.load(Ordering::Relaxed);
        let armed = self.armed.load(Ordering::Relaxed);
        if nothing_of_ours || !armed || inner.extended.is_some() || !inner.store.is_empty() {
            self.armed.store(false, Ordering::Relaxed);
            return false;
        }
        let (any, visible) = self.drain_locked(places, &mut inner);
        if visible || !any {
            self.armed.store(false, Ordering::Relaxed);
            return false;
        }
        let cq = self.cq.load(Ordering::Relaxed);
        let Some(arm) = self.context().and_then(|context| context.ops.req_notify_cq) else {
            return false;
        };
        // SAFETY: the queue is open: the application has an event of it to acknowledge.
        unsafe { arm(cq, self.solicited_for_now()) };
        // A completion that came before the new request makes no event, so this event is the application's.
        !self.drain_locked(places, &mut inner).1
    }

    /// The provider's functions of an extended queue.
    pub(crate) fn extended(&self) -> Option<Extended> {
        self.inner.lock().extended
    }

    /// Records the provider's functions of an extended queue.
    pub(crate) fn set_extended(&self, functions: Extended) {
        self.inner.lock().extended = Some(functions);
    }

    /// Payload of the last chunk and of the whole message of the current extended poll, if it was split.
    pub(crate) fn current_bytes(&self) -> Option<(u32, u32)> {
        self.inner.lock().current_bytes
    }

    pub(crate) fn set_current_bytes(&self, bytes: Option<(u32, u32)>) {
        self.inner.lock().current_bytes = bytes;
    }
}

impl Completions for CompletionQueue {
    fn expect_replacement(&self) -> Replacement {
        let Some(inner) = self.inner.try_lock() else {
            return Replacement::Busy;
        };
        // SAFETY: the queue of a queue pair that posts exists.
        let has_channel = unsafe { !(*self.queue()).channel.is_null() };
        if !has_channel && inner.extended.is_none() {
            return Replacement::Needless;
        }
        self.replacing.fetch_add(1, Ordering::Relaxed);
        let waits =
            self.armed.load(Ordering::Relaxed) && self.solicited_only.load(Ordering::Relaxed) != 0;
        let arm = self.context().and_then(|context| context.ops.req_notify_cq);
        if let (true, true, Some(arm)) = (waits, inner.open, arm) {
            // SAFETY: the queue is open, which its destruction waits for.
            unsafe { arm(self.queue(), 0) };
        }
        Replacement::Expected
    }

    fn replaced(&self, count: u32) {
        // The count begins anew with a new queue in this place, so a late call of another thread may find less.
        let less = |now: u32| Some(now.saturating_sub(count));
        let _ = self
            .replacing
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    fn store(&self, completions: Vec<(ibv_wc, Seen)>, queue_pair: &'static QueuePair) {
        let mut inner = self.inner.lock();
        for (completion, seen) in completions {
            let place = Some((queue_pair, seen));
            inner.store.push_back(Stored { completion, place });
        }
    }

    fn detached(&self, room: u32) {
        self.give_room_back(room);
    }

    fn queue(&self) -> *mut ibv_cq {
        self.cq.load(Ordering::Relaxed)
    }
}

/// Translates a completion into the application's. The outer `None` means that it is ours and must stay hidden.
#[inline]
fn translate(
    places: &Places,
    completion: &mut ibv_wc,
    now: bool,
) -> Option<Option<(&'static QueuePair, Seen)>> {
    let Some(name) = Name::decode(completion.wr_id, places.tag) else {
        return Some(None);
    };
    if completion.status == IBV_WC_SUCCESS && completion.opcode & IBV_WC_RECV != 0 {
        return Some(None);
    }
    let queue_pair = places.get(name.place)?;
    let (number, status) = (Some(completion.qp_num), completion.status);
    let seen = match now {
        true => queue_pair.complete_now(name, number, status)?,
        false => queue_pair.complete(name, number, status)?,
    };
    completion.wr_id = seen.entry.wr_id;
    completion.status = seen.entry.status(status);
    if u64::from(completion.byte_len) == seen.entry.last_chunk {
        completion.byte_len = seen.entry.total as u32;
    }
    Some(Some((queue_pair, seen)))
}
