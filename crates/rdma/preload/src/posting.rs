//! The application's post: whole messages are posted at once, the rest enters the software queue. Part of
//! [`crate::queue_pair`].

use crate::collector::Needs;
use crate::meter::{Outcome, Request, clamp};
use crate::queue::{Shape, list_of, shape};
use crate::queue_pair::{BATCH, Inner, QueuePair, Refusal};
use crate::ring::Name;
use isolane_rdma_verbs_sys::*;
use std::ffi::c_int;

impl QueuePair {
    /// Posts a batch of the extended interface. Detectable errors are found before the first post. Returns an errno.
    ///
    /// # Safety
    /// `first` is a valid list of work requests, or null.
    pub unsafe fn post_batch(&'static self, first: *mut ibv_send_wr, needs: Needs) -> c_int {
        let mut inner = self.inner.lock();
        let mut answer = inner.check(needs);
        if answer == 0 && !first.is_null() {
            let mut bad = std::ptr::null_mut();
            // SAFETY: passed on.
            answer = unsafe { inner.post(self, first, &raw mut bad) };
        }
        self.settle(inner);
        answer
    }
}

impl Inner {
    /// Checks that the queue pair has the space that a batch needs; returns an errno.
    fn check(&mut self, needs: Needs) -> c_int {
        let Some(plan) = self.plan.as_ref() else {
            return libc::EINVAL;
        };
        let (list, inline) = (plan.cap.max_send_sge, plan.cap.max_inline_data);
        if needs.list > list as usize || needs.inline_bytes > inline as usize {
            return libc::EINVAL;
        }
        // Messages in the software queue have places in the ring that must not be forgotten.
        match self.ring.make_room(needs.messages, self.queue.is_empty()) {
            true => 0,
            false => libc::ENOMEM,
        }
    }

    /// # Safety
    /// As for `ibv_post_send`; `owner` is the place whose lock is held.
    pub(crate) unsafe fn post(
        &mut self,
        owner: &'static QueuePair,
        first: *mut ibv_send_wr,
        bad: *mut *mut ibv_send_wr,
    ) -> c_int {
        let Some(plan) = self.plan.as_ref() else {
            return libc::EINVAL;
        };
        let may_send = !matches!(self.state, IBV_QPS_RESET | IBV_QPS_INIT | IBV_QPS_RTR);
        if !may_send && !plan.state_unknown {
            // SAFETY: the application's own call.
            return unsafe { (plan.post_send)(plan.qp, first, bad) };
        }
        let sparse = self.ring.outstanding() == 0;
        // SAFETY: the list's first element is valid.
        if let Some(work) = unsafe { first.as_ref() }
            && work.next.is_null()
            // SAFETY: as above, and so is its memory list.
            && unsafe { self.post_one(work) }
        {
            if sparse {
                self.report();
            }
            return 0;
        }
        // SAFETY: passed on.
        let result = unsafe { self.post_list(first) };
        if !self.queue.is_empty() {
            self.enlist(owner);
        }
        if sparse {
            self.report();
        }
        match result {
            Ok(()) => 0,
            Err((refused, error)) => {
                // SAFETY: `bad` is writable for the length of the call.
                unsafe { *bad = refused };
                error
            }
        }
    }

    /// The fast path for the usual case: one whole message, no message waits, credit is available, the provider accepts
    /// it. Returns false in any other case, without any effect.
    ///
    /// # Safety
    /// `work` and its list are valid.
    #[inline]
    unsafe fn post_one(&mut self, work: &ibv_send_wr) -> bool {
        let Some(plan) = self.plan.as_ref() else {
            return false;
        };
        let usual = self.queue.is_empty()
            && !self.failed
            && !self.ring.is_full()
            && work.num_sge as u32 <= plan.cap.max_send_sge
            && work.send_flags & IBV_SEND_INLINE == 0;
        if !usual {
            return false;
        }
        // SAFETY: passed on.
        let shape = shape(work, unsafe { list_of(work) }, plan.splitting);
        let account = &mut self.accounts[shape.direction];
        let bytes = clamp(shape.total);
        let whole = shape.total <= account.chunk || (!shape.splittable && account.chunk > 0);
        if !whole || account.credit[0] < bytes || account.credit[1] < 1 {
            return false;
        }
        let all = if plan.signal_all {
            IBV_SEND_SIGNALED
        } else {
            0
        };
        let flags = work.send_flags | all;
        let sequence = self
            .ring
            .push(work.wr_id, shape.total, flags & IBV_SEND_SIGNALED != 0);
        let mut copy = *work;
        copy.wr_id = Name {
            private: false,
            place: self.place,
            sequence,
        }
        .encode(self.tag);
        copy.send_flags = flags;
        let mut bad = std::ptr::null_mut();
        // SAFETY: a live queue pair; the provider reads the copy during the call only.
        if unsafe { (plan.post_send)(plan.qp, &raw mut copy, &raw mut bad) } != 0 {
            self.ring.take_back(1);
            return false;
        }
        account.credit[0] -= bytes;
        account.credit[1] -= 1;
        account.posted[0] += shape.total;
        account.posted[1] += 1;
        self.count_posted(shape);
        true
    }

    /// # Safety
    /// `first` is a valid list of work requests.
    pub(crate) unsafe fn post_list(&mut self, first: *mut ibv_send_wr) -> Result<(), Refusal> {
        let plan = self.plan.as_ref().expect("the caller looked");
        let (signal_all, splitting, cap) = (plan.signal_all, plan.splitting, plan.cap);
        // SAFETY: a queue pair with a plan lives until it is paused.
        let kind = unsafe { (*plan.qp).qp_type };
        let latency = self.is_latency();
        let mut current = first;
        let mut blocked = false;
        self.batch.count = 0;
        // SAFETY: the list is valid, and so is each of its elements in turn.
        while let Some(work) = unsafe { current.as_ref() } {
            if self.ring.is_full() {
                self.send_batch()?;
                if !self.queue.is_empty() || !self.ring.forget_oldest() {
                    return Err((current, libc::ENOMEM));
                }
            }
            // SAFETY: the list's entries are valid.
            let list = unsafe { list_of(work) };
            let shape = shape(work, list, splitting);
            let inline = work.send_flags & IBV_SEND_INLINE != 0;
            let long_list = work.num_sge < 0 || work.num_sge as u32 > cap.max_send_sge;
            if foreign(kind, work.opcode)
                || long_list
                || (inline && shape.total > u64::from(cap.max_inline_data))
            {
                self.send_batch()?;
                match self.judged_by_provider(work, shape) {
                    0 => current = work.next,
                    error => return Err((current, error)),
                }
                continue;
            }
            let signalled = signal_all || work.send_flags & IBV_SEND_SIGNALED != 0;
            let sequence = self.ring.push(work.wr_id, shape.total, signalled);
            let account = &mut self.accounts[shape.direction];
            account.posted[0] += shape.total;
            account.posted[1] += 1;
            self.count_posted(shape);
            if self.queue.is_empty() && (latency || self.failed || self.passes(shape)) {
                self.add_to_batch(work, current, sequence, shape, signal_all);
                if self.batch.count == BATCH {
                    self.send_batch()?;
                }
            } else {
                // Our message stays the newest: the batch goes first, and its rest waits before our message.
                self.send_batch_before(sequence)?;
                // SAFETY: the list's entries are valid.
                unsafe { self.enqueue(work, shape, sequence) };
                if !blocked {
                    match self.progress(u64::MAX) {
                        Ok(Outcome::Credit { .. } | Outcome::Blocked) => blocked = true,
                        Ok(_) => {}
                        Err(error) if self.queue.len() == 1 && self.queue[0].offset == 0 => {
                            self.forget_newest();
                            return Err((current, error));
                        }
                        Err(_) => blocked = true,
                    }
                }
            }
            current = work.next;
        }
        self.send_batch()
    }

    /// Whether a whole message may go now, with credit of the account or of the meter.
    #[inline]
    pub(crate) fn passes(&mut self, shape: Shape) -> bool {
        let account = &mut self.accounts[shape.direction];
        let bytes = clamp(shape.total);
        if (shape.total <= account.chunk || !shape.splittable)
            && account.credit[0] >= bytes
            && account.credit[1] >= 1
            && account.chunk > 0
        {
            account.credit[0] -= bytes;
            account.credit[1] -= 1;
            return true;
        }
        let request = Request {
            needed: [bytes, 1],
            splittable: shape.splittable,
            turn: false,
        };
        self.draw(shape.direction, request).is_ok()
    }

    pub(crate) fn draw(&mut self, direction: usize, request: Request) -> Result<(), u64> {
        let (Some(base), Some(plan)) = (self.base, self.plan.as_ref()) else {
            return Ok(());
        };
        plan.meters()[direction].draw(base, &mut self.accounts[direction], request)
    }

    #[inline]
    pub(crate) fn add_to_batch(
        &mut self,
        work: &ibv_send_wr,
        origin: *mut ibv_send_wr,
        sequence: u32,
        shape: Shape,
        signal_all: bool,
    ) {
        let wr_id = self.name(sequence, false);
        let batch = &mut *self.batch;
        let at = batch.count;
        let copy = &mut batch.works[at];
        *copy = *work;
        copy.wr_id = wr_id;
        copy.next = std::ptr::null_mut();
        if signal_all {
            copy.send_flags |= IBV_SEND_SIGNALED;
        }
        let step = &mut batch.steps[at];
        step.sequence = sequence;
        step.direction = shape.direction;
        step.bytes = shape.total;
        batch.origins[at] = origin;
        if at > 0 {
            batch.works[at - 1].next = &raw mut batch.works[at];
        }
        batch.count = at + 1;
    }

    /// Posts the batch of whole messages. Messages without room in the provider wait; a rejected message is removed and
    /// reported.
    #[inline]
    pub(crate) fn send_batch(&mut self) -> Result<(), Refusal> {
        let count = std::mem::take(&mut self.batch.count);
        if count == 0 {
            return Ok(());
        }
        match self.provider_takes(count) {
            (_, 0) => Ok(()),
            (taken, error) => self.batch_refused(taken, count, error, 0),
        }
    }

    /// The same, when message `newest` is in the ring and not in the batch.
    pub(crate) fn send_batch_before(&mut self, newest: u32) -> Result<(), Refusal> {
        let count = std::mem::take(&mut self.batch.count);
        if count == 0 {
            return Ok(());
        }
        debug_assert!(self.ring.is_open(newest), "just pushed");
        match self.provider_takes(count) {
            (_, 0) => Ok(()),
            (taken, error) => self.batch_refused(taken, count, error, 1),
        }
    }

    #[cold]
    pub(crate) fn batch_refused(
        &mut self,
        taken: usize,
        count: usize,
        error: c_int,
        newer: u32,
    ) -> Result<(), Refusal> {
        let rest = (count - taken) as u32;
        let earlier = self.ring.outstanding() > rest + newer;
        if error == libc::ENOMEM && earlier {
            // Within the application's depth, only our chunks can have filled the provider's queue.
            for at in taken..count {
                let (origin, step) = (self.batch.origins[at], self.batch.steps[at]);
                // SAFETY: the application's list is valid until the post returns.
                unsafe {
                    let work = &*origin;
                    let splitting = self.plan.as_ref().map(|plan| plan.splitting);
                    let shape = shape(work, list_of(work), splitting.unwrap_or_default());
                    self.enqueue(work, shape, step.sequence);
                }
            }
            return Ok(());
        }
        for at in taken..count {
            let step = self.batch.steps[at];
            let account = &mut self.accounts[step.direction];
            account.credit[0] += clamp(step.bytes);
            account.credit[1] += 1;
            account.posted[0] = account.posted[0].saturating_sub(step.bytes);
            account.posted[1] = account.posted[1].saturating_sub(1);
        }
        self.ring.take_back(rest + newer);
        Err((self.batch.origins[taken], error))
    }

    /// Posts the first `count` work requests of the batch, which are linked. Returns how many were accepted, and the
    /// error.
    ///
    /// siw returns negative errors. If its queue filled up in the middle of a list and emptied before its doorbell, siw
    /// returns no error, and only the first request that it did not accept shows the failure.
    #[inline]
    pub(crate) fn provider_takes(&mut self, count: usize) -> (usize, c_int) {
        let Some(plan) = self.plan.as_ref() else {
            return (0, libc::EINVAL);
        };
        let mut bad = std::ptr::null_mut();
        let first = self.batch.works.as_mut_ptr();
        // SAFETY: a live queue pair and a list that is in the batch; the provider reads it during the call only.
        let error = unsafe { (plan.post_send)(plan.qp, first, &raw mut bad) };
        let refused = bad.addr().wrapping_sub(first.addr()) / size_of::<ibv_send_wr>();
        match (error, refused < count) {
            (0, false) => (count, 0),
            (0, true) => (refused, libc::ENOMEM),
            (error, within) => (if within { refused } else { 0 }, error.saturating_abs()),
        }
    }

    /// Passes a request beyond the promised limits to the provider and returns its errno. If the provider accepts it
    /// anyway, as siw accepts longer lists, it counts as posted by the application itself: it is charged, and its
    /// completion is not translated.
    pub(crate) fn judged_by_provider(&mut self, work: &ibv_send_wr, shape: Shape) -> c_int {
        let Some(plan) = self.plan.as_ref() else {
            return libc::EINVAL;
        };
        if !self.queue.is_empty() {
            return libc::EINVAL;
        }
        let mut copy = *work;
        copy.next = std::ptr::null_mut();
        if plan.signal_all {
            copy.send_flags |= IBV_SEND_SIGNALED;
        }
        let mut bad = std::ptr::null_mut();
        // SAFETY: the application's own request, which breaks a limit that the provider checks.
        let error = unsafe { (plan.post_send)(plan.qp, &raw mut copy, &raw mut bad) };
        if error == 0 {
            let mut spent = [[0; 2]; 2];
            spent[shape.direction] = [clamp(shape.total), 1];
            self.owe(spent);
        }
        error.saturating_abs()
    }

    /// # Safety
    /// `work` and its list are valid.
    pub(crate) unsafe fn enqueue(&mut self, work: &ibv_send_wr, shape: Shape, sequence: u32) {
        let (Some(base), Some(plan)) = (self.base, self.plan.as_ref()) else {
            return;
        };
        let now_ns = base.now_ns();
        let meter = plan.meters()[shape.direction];
        meter.message_waits(now_ns);
        base.waits(1);
        let mut pending = self.unused.pop().unwrap_or_default();
        // SAFETY: the caller's promise.
        unsafe { pending.fill(work, shape, sequence, now_ns) };
        if plan.signal_all {
            pending.work.send_flags |= IBV_SEND_SIGNALED;
        }
        self.queue.push_back(pending);
    }

    /// Removes the only waiting message, which the provider rejected during its own post.
    pub(crate) fn forget_newest(&mut self) {
        if let Some(pending) = self.queue.pop_back() {
            let account = &mut self.accounts[pending.shape.direction];
            account.posted[0] = account.posted[0].saturating_sub(pending.shape.total);
            account.posted[1] = account.posted[1].saturating_sub(1);
            self.went(pending, 0);
            self.ring.take_back(1);
        }
    }
}

/// Whether an operation is not one of the transport's, so that the provider rejects it.
fn foreign(kind: ibv_qp_type, opcode: ibv_wr_opcode) -> bool {
    let atomic = matches!(
        opcode,
        IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD
    );
    let write = matches!(opcode, IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM);
    match kind {
        IBV_QPT_UC => atomic || opcode == IBV_WR_RDMA_READ,
        IBV_QPT_UD => atomic || write || opcode == IBV_WR_RDMA_READ,
        _ => false,
    }
}
