//! Collects the work requests of the extended interface between start and complete, with copies of all lists and data.

use isolane_rdma_verbs_sys::*;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

/// The space that a batch of the extended interface needs.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Number of messages.
    pub messages: usize,
    /// Entries of the longest memory list.
    pub list: usize,
    /// Longest inline data, bytes.
    pub inline_bytes: usize,
}

#[derive(Default)]
pub(crate) struct Request {
    pub(crate) work: ibv_send_wr,
    pub(crate) list: Vec<ibv_sge>,
    /// Bytes of inline data, copied from the caller.
    pub(crate) data: Vec<u8>,
    /// Header of a segmentation request.
    pub(crate) header: Vec<u8>,
}

#[derive(Default)]
pub(crate) struct Collected {
    requests: Vec<Request>,
    count: usize,
}

/// The batch between start and complete. One thread uses it at a time, as the interface requires.
#[derive(Default)]
pub(crate) struct Collector {
    taken: AtomicBool,
    collected: UnsafeCell<Collected>,
}

// SAFETY: the content is used only by the thread that took the collector at start; pointers in it name our copies.
unsafe impl Sync for Collector {}
// SAFETY: as above.
unsafe impl Send for Collector {}

impl std::fmt::Debug for Collector {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Collector").finish_non_exhaustive()
    }
}

impl Collector {
    pub(crate) fn begin(&self) {
        while self.taken.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        self.content().count = 0;
    }

    pub(crate) fn end(&self) {
        self.taken.store(false, Ordering::Release);
    }

    #[expect(
        clippy::mut_from_ref,
        reason = "the thread that began is alone until it ends"
    )]
    pub(crate) fn content(&self) -> &mut Collected {
        // SAFETY: between begin and end there is one user, and no function here holds two references.
        unsafe { &mut *self.collected.get() }
    }
}

impl Request {
    pub(crate) fn is_inline(&self) -> bool {
        self.work.send_flags & IBV_SEND_INLINE != 0
    }
}

impl Collected {
    pub(crate) fn begin(&mut self, qp: &ibv_qp_ex, opcode: ibv_wr_opcode) -> &mut Request {
        if self.count == self.requests.len() {
            self.requests.push(Request::default());
        }
        let request = &mut self.requests[self.count];
        self.count += 1;
        request.list.clear();
        request.data.clear();
        request.header.clear();
        request.work = ibv_send_wr {
            wr_id: qp.wr_id,
            send_flags: qp.wr_flags & !IBV_SEND_INLINE,
            opcode,
            ..ibv_send_wr::default()
        };
        request
    }

    pub(crate) fn last(&mut self) -> Option<&mut Request> {
        self.requests[..self.count].last_mut()
    }

    /// The space that the batch needs in the queue pair.
    pub(crate) fn needs(&self) -> Needs {
        let requests = &self.requests[..self.count];
        let most = |size: fn(&Request) -> usize| requests.iter().map(size).max().unwrap_or(0);
        Needs {
            messages: self.count,
            list: most(|request| match request.is_inline() {
                true => 1,
                false => request.list.len(),
            }),
            inline_bytes: most(|request| request.data.len()),
        }
    }

    /// Sets the pointers and returns the head of the list.
    pub(crate) fn link(&mut self) -> *mut ibv_send_wr {
        let mut next = std::ptr::null_mut();
        for request in self.requests[..self.count].iter_mut().rev() {
            if request.is_inline() {
                request.list.clear();
                request.list.push(ibv_sge {
                    addr: request.data.as_ptr().expose_provenance() as u64,
                    length: request.data.len() as u32,
                    lkey: 0,
                });
            }
            request.work.sg_list = request.list.as_mut_ptr();
            request.work.num_sge = request.list.len() as c_int;
            if request.work.opcode == IBV_WR_TSO {
                request.work.bind_mw.tso.hdr = request.header.as_mut_ptr().cast();
            }
            request.work.next = next;
            next = &raw mut request.work;
        }
        next
    }
}
