//! The software queue of a queue pair: waiting work requests with everything that they point to.
//!
//! Problem: the application may reuse lists and inline data as soon as `ibv_post_send` returns. Method: a waiting
//! request owns copies. Finished requests are kept for reuse, so a queue in steady use does not allocate.

use crate::split;
use isolane_rdma_verbs_sys::*;
use std::ffi::c_void;

/// The properties of a work request that pacing needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Payload, bytes.
    pub total: u64,
    /// 0: outgoing, 1: READ.
    pub direction: usize,
    /// Whether it may be split into chunks.
    pub splittable: bool,
}

/// Which opcodes may be split.
#[derive(Clone, Copy, Debug, Default)]
pub struct Splitting {
    /// Whether the transport keeps the order of chunks and there is room for them.
    pub possible: bool,
    /// Whether WRITEs with immediate data may be split too.
    pub immediate: bool,
}

/// The memory list of a work request.
///
/// # Safety
/// `work` is a valid work request with a list of `num_sge` entries.
#[inline]
pub(crate) unsafe fn list_of(work: &ibv_send_wr) -> &[ibv_sge] {
    match usize::try_from(work.num_sge) {
        // SAFETY: the caller's promise; an empty list may have a null pointer and is not touched.
        Ok(count) if count > 0 => unsafe { std::slice::from_raw_parts(work.sg_list, count) },
        _ => &[],
    }
}

/// The properties of `work` with the memory `list`.
#[inline]
pub(crate) fn shape(work: &ibv_send_wr, list: &[ibv_sge], splitting: Splitting) -> Shape {
    let total = split::total(list);
    let (direction, may) = match work.opcode {
        IBV_WR_RDMA_READ => (1, true),
        IBV_WR_RDMA_WRITE => (0, true),
        IBV_WR_RDMA_WRITE_WITH_IMM => (0, splitting.immediate),
        _ => (0, false),
    };
    Shape {
        total,
        direction,
        splittable: splitting.possible && may && work.send_flags & IBV_SEND_INLINE == 0,
    }
}

/// A waiting work request.
pub(crate) struct Pending {
    /// A copy whose pointers are set when it is posted.
    pub work: ibv_send_wr,
    /// Its properties.
    pub shape: Shape,
    /// Bytes already posted.
    pub offset: u64,
    /// Sequence number of the message.
    pub sequence: u32,
    /// Since when it waits, ns.
    pub since_ns: u64,
    list: Vec<ibv_sge>,
    /// Inline data, or the header of a segmentation request.
    data: Vec<u8>,
}

// SAFETY: the pointers in `work` are set again before each use and name our own copies or objects of libibverbs, which
// may be used from every thread.
unsafe impl Send for Pending {}

impl std::fmt::Debug for Pending {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Pending")
            .field("shape", &self.shape)
            .field("offset", &self.offset)
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}

impl Default for Pending {
    fn default() -> Self {
        Self {
            work: ibv_send_wr::default(),
            shape: Shape {
                total: 0,
                direction: 0,
                splittable: false,
            },
            offset: 0,
            sequence: 0,
            since_ns: 0,
            list: Vec::new(),
            data: Vec::new(),
        }
    }
}

impl Pending {
    /// Copies a work request and everything it points to.
    ///
    /// # Safety
    /// `work` and its list are valid; inline data is readable.
    pub(crate) unsafe fn fill(
        &mut self,
        work: &ibv_send_wr,
        shape: Shape,
        sequence: u32,
        since_ns: u64,
    ) {
        self.work = *work;
        self.shape = shape;
        self.offset = 0;
        self.sequence = sequence;
        self.since_ns = since_ns;
        self.list.clear();
        self.data.clear();
        // SAFETY: the caller's promise.
        let list = unsafe { list_of(work) };
        if work.send_flags & IBV_SEND_INLINE != 0 {
            for entry in list.iter().filter(|entry| entry.length > 0) {
                let from = std::ptr::with_exposed_provenance::<u8>(entry.addr as usize);
                // SAFETY: inline data is readable at least until the post returns.
                let bytes = unsafe { std::slice::from_raw_parts(from, entry.length as usize) };
                self.data.extend_from_slice(bytes);
            }
            if !self.data.is_empty() {
                self.list.push(ibv_sge {
                    addr: self.data.as_ptr().expose_provenance() as u64,
                    length: self.data.len() as u32,
                    lkey: 0,
                });
            }
        } else {
            self.list.extend_from_slice(list);
            if work.opcode == IBV_WR_TSO {
                // SAFETY: the opcode says that the header is the union's member; it is readable during the post.
                let (header, bytes) =
                    unsafe { (work.bind_mw.tso.hdr, usize::from(work.bind_mw.tso.hdr_sz)) };
                if !header.is_null() && bytes > 0 {
                    // SAFETY: as above.
                    let bytes = unsafe { std::slice::from_raw_parts(header.cast::<u8>(), bytes) };
                    self.data.extend_from_slice(bytes);
                }
            }
        }
    }

    /// Bytes not posted yet.
    pub(crate) fn rest(&self) -> u64 {
        self.shape.total - self.offset
    }

    /// Writes the work request for `bytes` from `offset` on to `into`; `pieces` holds its memory list. The caller sets
    /// the identifier and the signal flag.
    pub(crate) fn write(
        &mut self,
        offset: u64,
        bytes: u64,
        into: &mut ibv_send_wr,
        pieces: &mut [ibv_sge],
    ) {
        *into = self.work;
        into.next = std::ptr::null_mut();
        if bytes == self.shape.total {
            into.sg_list = self.list.as_mut_ptr();
            into.num_sge = self.list.len() as i32;
            if self.work.opcode == IBV_WR_TSO && !self.data.is_empty() {
                let (header, mss) = (self.data.as_mut_ptr().cast::<c_void>(), {
                    // SAFETY: the opcode says which member holds.
                    unsafe { self.work.bind_mw.tso.mss }
                });
                into.bind_mw = ibv_send_wr_tail {
                    tso: ibv_send_wr_tso {
                        hdr: header,
                        hdr_sz: self.data.len() as u16,
                        mss,
                    },
                };
            }
            return;
        }
        let count = split::cut(&self.list, offset, bytes, pieces);
        into.sg_list = pieces.as_mut_ptr();
        into.num_sge = count as i32;
        let last = offset + bytes == self.shape.total;
        if offset > 0 {
            into.send_flags &= !IBV_SEND_FENCE;
        }
        if !last {
            into.send_flags &= IBV_SEND_FENCE;
            if into.opcode == IBV_WR_RDMA_WRITE_WITH_IMM {
                into.opcode = IBV_WR_RDMA_WRITE;
                into.imm_data = 0;
            }
        }
        // SAFETY: only WRITE and READ are split, and theirs is the member with remote memory.
        unsafe {
            into.wr.rdma.remote_addr = self.work.wr.rdma.remote_addr.wrapping_add(offset);
        }
    }
}
