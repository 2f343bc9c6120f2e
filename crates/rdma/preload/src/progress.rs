//! Moves messages from the software queue to the provider, chunk by chunk. Part of [`crate::queue_pair`].

use crate::entry::bump;
use crate::meter::{Outcome, Request, clamp};
use crate::queue::{Pending, Shape};
use crate::queue_pair::{BATCH, Inner, Plan, QueuePair, Replacement, Step};
use crate::ring::Name;
use isolane_rdma_verbs_sys::*;
use std::ffi::c_int;

/// Credit for messages that must go at once.
const AHEAD: i64 = i64::MAX / 4;

impl QueuePair {
    /// Posts all waiting messages ahead of their credit, before an operation that must not overtake them; the credit
    /// becomes debt. Returns whether no message waits now.
    pub fn flush(&'static self) -> bool {
        let mut inner = self.inner.lock();
        while !inner.paused && !inner.queue.is_empty() {
            let held = inner
                .accounts
                .map(|account| (account.credit, account.chunk));
            for account in &mut inner.accounts {
                account.credit = [AHEAD; 2];
                account.chunk = account.chunk.max(1 << 20);
            }
            let outcome = inner.progress(u64::MAX);
            let mut spent = [[0; 2]; 2];
            for ((account, held), spent) in inner.accounts.iter_mut().zip(held).zip(&mut spent) {
                *spent = account.credit.map(|left| AHEAD - left);
                (account.credit, account.chunk) = held;
            }
            inner.owe(spent);
            if !matches!(outcome, Ok(Outcome::More)) {
                break;
            }
        }
        inner.queue.is_empty()
    }

    /// Splits no further message if its sends complete in `cq`, which has lost the room for chunks.
    pub(crate) fn stop_splitting(&self, cq: *mut ibv_cq) {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        if let Some(plan) = inner
            .plan
            .as_mut()
            .filter(|plan| plan.send_cq.queue() == cq)
        {
            plan.splitting.possible = false;
            for pending in &mut inner.queue {
                pending.shape.splittable = false;
            }
        }
    }
}

impl Inner {
    /// Posts about `quantum` bytes from the front of the queue. Fails with the provider's error for the front request,
    /// other than a full queue.
    pub(crate) fn progress(&mut self, quantum: u64) -> Result<Outcome, c_int> {
        let mut left = quantum;
        loop {
            if self.queue.is_empty() {
                return Ok(Outcome::Empty);
            }
            let (count, bytes, credit_at) = match self.failed {
                true => (self.build_failed(), 0, None),
                false => self.build(left),
            };
            if count == 0 {
                match credit_at {
                    Some(at_ns) => {
                        let moved = left < quantum;
                        return Ok(Outcome::Credit { at_ns, moved });
                    }
                    None => continue,
                }
            }
            let (taken, error) = self.provider_takes(count);
            self.apply(taken, count);
            match error {
                0 => {}
                libc::ENOMEM => return Ok(Outcome::Blocked),
                error => return Err(error),
            }
            left = left.saturating_sub(bytes);
            if let Some(at_ns) = credit_at {
                return Ok(Outcome::Credit { at_ns, moved: true });
            }
            if left == 0 && !self.queue.is_empty() {
                return Ok(Outcome::More);
            }
        }
    }

    /// Fills the batch from the front of the queue. Returns the number of requests, their bytes, and the time at which
    /// credit suffices for the next one if it does not suffice now.
    pub(crate) fn build(&mut self, quantum: u64) -> (usize, u64, Option<u64>) {
        let latency = self.is_latency();
        let signal_every = (self.plan.as_ref().map_or(0, |plan| plan.spare) / 4).max(1);
        let width = self.batch.pieces.len() / BATCH;
        let (mut count, mut bytes, mut index) = (0, 0, 0);
        let mut offset = self.queue[0].offset;
        let mut since_signal = self.since_signal;
        while count < BATCH && index < self.queue.len() && (bytes < quantum || count == 0) {
            let shape = self.queue[index].shape;
            let rest = shape.total - offset;
            let chunk = match self.chunk(shape, latency) {
                Ok(chunk) => chunk,
                Err(at_ns) => return (count, bytes, Some(at_ns)),
            };
            let take = rest.min(chunk);
            let (fresh, last) = (offset == 0, take == rest);
            if !latency && let Err(at_ns) = self.pay(shape, take, fresh) {
                return (count, bytes, Some(at_ns));
            }
            let pending = &mut self.queue[index];
            let batch = &mut *self.batch;
            let pieces = &mut batch.pieces[count * width..(count + 1) * width];
            let work = &mut batch.works[count];
            pending.write(offset, take, work, pieces);
            if last {
                if work.send_flags & IBV_SEND_SIGNALED != 0 {
                    since_signal = 0;
                }
            } else {
                since_signal += 1;
                if since_signal >= signal_every {
                    work.send_flags |= IBV_SEND_SIGNALED;
                    since_signal = 0;
                }
            }
            let sequence = pending.sequence;
            let wr_id = self.name(sequence, !last);
            self.batch.works[count].wr_id = wr_id;
            let batch = &mut *self.batch;
            batch.steps[count] = Step {
                bytes: take,
                fresh,
                last,
                since_signal,
                sequence,
                direction: shape.direction,
            };
            if count > 0 {
                batch.works[count - 1].next = &raw mut batch.works[count];
            }
            count += 1;
            bytes += take.max(1);
            if last {
                index += 1;
                offset = self.queue.get(index).map_or(0, |pending| pending.offset);
            } else {
                offset += take;
            }
        }
        (count, bytes, None)
    }

    /// Chunk size for a message; `u64::MAX` means whole.
    pub(crate) fn chunk(&mut self, shape: Shape, latency: bool) -> Result<u64, u64> {
        if !shape.splittable || latency {
            return Ok(u64::MAX);
        }
        if self.accounts[shape.direction].chunk == 0 {
            let request = Request {
                needed: [0, 0],
                splittable: false,
                turn: true,
            };
            self.draw(shape.direction, request)?;
        }
        Ok(self.accounts[shape.direction].chunk.max(1))
    }

    /// Pays for a chunk; the first chunk of a message also pays for the operation.
    pub(crate) fn pay(&mut self, shape: Shape, bytes: u64, fresh: bool) -> Result<(), u64> {
        let needed = [clamp(bytes), i64::from(fresh)];
        let account = &mut self.accounts[shape.direction];
        if account.credit[0] >= needed[0] && account.credit[1] >= needed[1] && account.chunk > 0 {
            account.credit[0] -= needed[0];
            account.credit[1] -= needed[1];
            return Ok(());
        }
        let request = Request {
            needed,
            splittable: false,
            turn: true,
        };
        self.draw(shape.direction, request)
    }

    /// After the queue pair failed: the front message goes whole, so that the provider flushes it; a message whose end
    /// was already reported is removed.
    pub(crate) fn build_failed(&mut self) -> usize {
        let front = &self.queue[0];
        if !self.ring.is_open(front.sequence) {
            if let Some(pending) = self.queue.pop_front() {
                self.went(pending, self.now_ns());
            }
            return 0;
        }
        let (sequence, rest, offset) = (front.sequence, front.rest(), front.offset);
        let wr_id = self.name(sequence, false);
        let direction = front.shape.direction;
        let width = self.batch.pieces.len() / BATCH;
        let batch = &mut *self.batch;
        let work = &mut batch.works[0];
        self.queue[0].write(offset, rest, work, &mut batch.pieces[..width]);
        work.wr_id = wr_id;
        batch.steps[0] = Step {
            bytes: rest,
            fresh: false,
            last: true,
            since_signal: self.since_signal,
            sequence,
            direction,
        };
        1
    }

    /// Records the first `taken` requests of the batch as posted and returns the credit of the others.
    pub(crate) fn apply(&mut self, taken: usize, count: usize) {
        let mut chunks = 0;
        for at in 0..taken {
            let step = self.batch.steps[at];
            self.since_signal = step.since_signal;
            let pending = &mut self.queue[0];
            chunks += u64::from(!step.last || pending.offset > 0);
            pending.offset += step.bytes;
            if step.last {
                self.ring.entry(step.sequence).last_chunk = step.bytes;
                if let Some(pending) = self.queue.pop_front() {
                    self.went(pending, self.now_ns());
                }
            }
        }
        if !self.failed {
            for at in taken..count {
                let step = self.batch.steps[at];
                let account = &mut self.accounts[step.direction];
                account.credit[0] = account.credit[0].saturating_add(clamp(step.bytes));
                account.credit[1] += i64::from(step.fresh);
            }
        }
        if let Some((slot, alone)) = self.slot() {
            bump(&slot.chunks, chunks, alone);
        }
    }

    /// Counts a message that stops waiting.
    pub(crate) fn went(&mut self, pending: Pending, now_ns: u64) {
        if let Some((slot, alone)) = self.slot() {
            let waited = now_ns.saturating_sub(pending.since_ns);
            bump(&slot.waited_ns, waited, alone);
        }
        if let (Some(base), Some(plan)) = (self.base, self.plan.as_ref()) {
            plan.meters()[pending.shape.direction].messages_go(1);
            base.waits(-1);
        }
        self.unused.push(pending);
    }

    /// The provider rejects the front request permanently. Its error completion goes to the store after all earlier
    /// messages have completed, without an event. Where the application may wait for an event, or never reads the store,
    /// an empty request takes its place and completes as an error, unless the provider rejects this one too.
    pub(crate) fn refuse(&mut self) -> Outcome {
        let Some(front) = self.queue.front() else {
            return Outcome::Empty;
        };
        let (sequence, offset) = (front.sequence, front.offset);
        match self.post_in_place(sequence) {
            Ok(()) => {
                if let Some(pending) = self.queue.pop_front() {
                    self.went(pending, self.now_ns());
                }
                return Outcome::More;
            }
            Err(libc::ENOMEM) => return Outcome::Blocked,
            Err(_refused) => {}
        }
        if !self.failed && (offset > 0 || !self.ring.is_next(sequence)) {
            return Outcome::Blocked;
        }
        let status = match self.failed {
            true => IBV_WC_WR_FLUSH_ERR,
            false => IBV_WC_LOC_QP_OP_ERR,
        };
        if let Some(seen) = self.ring.complete(sequence, false, false) {
            let completion = ibv_wc {
                wr_id: seen.entry.wr_id,
                status,
                qp_num: self.number,
                ..ibv_wc::default()
            };
            self.refusals.push((completion, seen));
        }
        if let Some(pending) = self.queue.pop_front() {
            self.went(pending, self.now_ns());
        }
        Outcome::More
    }

    /// Posts an empty request with the name of the front message: a WRITE of no bytes, which needs no key and changes no
    /// memory, but ends the connection if the peer permits no remote WRITE. So it is posted only where the provider
    /// flushes it or the store does not serve. An empty datagram would use a receive of its destination, so it is posted
    /// only where the provider flushes it. Returns the provider's errno, or `EINVAL` where nothing was posted.
    fn post_in_place(&mut self, sequence: u32) -> Result<(), c_int> {
        let (Some(plan), Some(front)) = (self.plan.as_ref(), self.queue.front()) else {
            return Err(libc::EINVAL);
        };
        // SAFETY: a queue pair with a plan lives until it is paused.
        let is_datagram = unsafe { (*plan.qp).qp_type } == IBV_QPT_UD;
        if is_datagram && !self.failed {
            return Err(libc::EINVAL);
        }
        let send_cq = plan.send_cq;
        let is_expected = !self.failed;
        if is_expected {
            match send_cq.expect_replacement() {
                Replacement::Expected => {}
                Replacement::Needless => return Err(libc::EINVAL),
                Replacement::Busy => return Err(libc::ENOMEM),
            }
        }
        let mut work = ibv_send_wr {
            wr_id: self.name(sequence, false),
            opcode: IBV_WR_RDMA_WRITE,
            send_flags: IBV_SEND_SIGNALED,
            qp_type: front.work.qp_type,
            ..ibv_send_wr::default()
        };
        if is_datagram {
            work.opcode = IBV_WR_SEND;
            work.wr = front.work.wr;
        }
        self.batch.works[0] = work;
        match self.provider_takes(1) {
            (_, 0) => {
                self.ring.entry(sequence).refused = true;
                self.since_signal = 0;
                if is_expected {
                    self.replacements.push_back(sequence);
                }
                Ok(())
            }
            (_, error) => {
                if is_expected {
                    send_cq.replaced(1);
                }
                Err(error)
            }
        }
    }

    /// Handles the end of all replacements up to a completion: those of the same queue pair complete in order. A chunk's
    /// completion ends only those before its message.
    #[inline]
    pub(crate) fn end_replacements(&mut self, name: Name) {
        let end = name.sequence.wrapping_sub(u32::from(name.private));
        while let Some(at) = self.replacements.front()
            && end.wrapping_sub(*at) < u32::MAX / 2
        {
            self.replacements.pop_front();
            if let Some(plan) = self.plan.as_ref() {
                plan.send_cq.replaced(1);
            }
        }
    }

    pub(crate) fn drop_waiting(&mut self, plan: &Plan) {
        while let Some(pending) = self.queue.pop_front() {
            plan.meters()[pending.shape.direction].messages_go(1);
            if let Some(base) = self.base {
                base.waits(-1);
            }
        }
        self.unused.clear();
        self.refusals.clear();
        plan.send_cq.replaced(self.replacements.len() as u32);
        self.replacements.clear();
    }
}
