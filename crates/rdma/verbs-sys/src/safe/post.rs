//! Lists of work requests.
//!
//! A list is filled, posted with one doorbell, and filled again without allocating. It holds the regions of its
//! elements, so inline data is always readable.

use super::{AddressHandle, MemoryRegion, QueuePair, VerbsError};
use crate::*;
use std::sync::Arc;

/// Chains the requests of a list that is not empty, each with its elements. Returns the first request.
macro_rules! chain {
    ($list:expr) => {{
        let mut element = $list.elements.as_mut_ptr();
        let last = $list.requests.len() - 1;
        let first = $list.requests.as_mut_ptr();
        for (index, request) in $list.requests.iter_mut().enumerate() {
            request.sg_list = element;
            // SAFETY: the elements of all requests are one after the other in `elements`; the next request is in the
            // same vector.
            unsafe {
                element = element.add(request.num_sge.unsigned_abs() as usize);
                request.next = match index == last {
                    true => std::ptr::null_mut(),
                    false => first.add(index + 1),
                };
            }
        }
        first
    }};
}

/// A piece of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// Index in the list's regions.
    pub region: usize,
    /// Where in it.
    pub offset: u64,
    /// How long, bytes.
    pub length: u32,
}

/// What a send work request does at the other end.
#[derive(Clone, Debug)]
pub enum Target<'a> {
    /// WRITE to remote memory.
    Write {
        /// Remote address.
        address: u64,
        /// Remote key.
        key: u32,
        /// Immediate data, in this machine's order; consumes a receive.
        immediate: Option<u32>,
    },
    /// READ from remote memory.
    Read {
        /// Remote address.
        address: u64,
        /// Remote key.
        key: u32,
    },
    /// SEND into a receive.
    Send {
        /// Immediate data, in this machine's order.
        immediate: Option<u32>,
        /// Where to, for datagrams.
        datagram: Option<&'a Arc<AddressHandle>>,
    },
    /// Add to a remote word and get the old value.
    FetchAdd {
        /// Remote address, aligned to 8.
        address: u64,
        /// Remote key.
        key: u32,
        /// What to add.
        add: u64,
    },
    /// Replace a remote word if it is `compare`, and get the old value.
    CompareSwap {
        /// Remote address, aligned to 8.
        address: u64,
        /// Remote key.
        key: u32,
        /// What it must be.
        compare: u64,
        /// What it becomes.
        swap: u64,
    },
}

/// A send work request.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Comes back in its completion.
    pub id: u64,
    /// What to do.
    pub target: Target<'a>,
    /// Request a completion.
    pub signaled: bool,
    /// Copy the data while posting.
    pub inline: bool,
    /// Use a key that is not the regions': the device must refuse (for tests of failure).
    pub wrong_key: bool,
}

/// Send work requests to be posted together.
pub struct SendList {
    regions: Vec<Arc<MemoryRegion>>,
    /// The address handles of the requests, until these are posted.
    handles: Vec<Arc<AddressHandle>>,
    requests: Vec<ibv_send_wr>,
    elements: Vec<ibv_sge>,
}

// SAFETY: the raw pointers inside lead to its own vectors and to objects that it holds.
unsafe impl Send for SendList {}

impl std::fmt::Debug for SendList {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SendList")
            .field("requests", &self.requests.len())
            .field("elements", &self.elements)
            .finish_non_exhaustive()
    }
}

impl SendList {
    /// An empty list whose elements may be in `regions`.
    pub fn new(regions: Vec<Arc<MemoryRegion>>) -> Self {
        Self {
            regions,
            handles: Vec::new(),
            requests: Vec::new(),
            elements: Vec::new(),
        }
    }

    /// How many requests wait to be posted.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Adds a request over `elements`. Fails for an element outside its region, and for inline data on a GPU; nothing is added.
    pub fn push(&mut self, request: &Request<'_>, elements: &[Element]) -> Result<(), VerbsError> {
        let before = self.elements.len();
        let inline = request.inline && !request.wrong_key;
        for element in elements {
            let region = self.regions.get(element.region);
            let resolved = match region.is_some_and(|region| inline && !region.is_on_host()) {
                true => Err(VerbsError::InlineOnGpu {
                    region: element.region,
                }),
                false => resolve(&self.regions, element),
            };
            match resolved {
                Ok(mut resolved) => {
                    if request.wrong_key {
                        resolved.lkey = !resolved.lkey;
                    }
                    self.elements.push(resolved);
                }
                Err(error) => {
                    self.elements.truncate(before);
                    return Err(error);
                }
            }
        }
        let mut raw = ibv_send_wr {
            wr_id: request.id,
            num_sge: i32::try_from(elements.len()).unwrap_or(i32::MAX),
            ..ibv_send_wr::default()
        };
        if request.signaled {
            raw.send_flags |= IBV_SEND_SIGNALED;
        }
        if inline {
            raw.send_flags |= IBV_SEND_INLINE;
        }
        aim(&mut raw, &request.target);
        if let Target::Send {
            datagram: Some(handle),
            ..
        } = request.target
        {
            self.handles.push(Arc::clone(handle));
        }
        self.requests.push(raw);
        Ok(())
    }

    /// Posts all requests to `queue_pair` with one call and empties the list. Fails if the device refused one; the
    /// second value is how many it took before.
    pub fn post(&mut self, queue_pair: &QueuePair) -> Result<(), (VerbsError, usize)> {
        if self.requests.is_empty() {
            return Ok(());
        }
        let first = chain!(self);
        let mut bad = std::ptr::null_mut();
        // SAFETY: a live queue pair; a chain of whole requests that outlive the call; inline data is in regions that
        // this list holds; other elements are checked by the device.
        let code = unsafe { ibv_post_send(queue_pair.raw, first, &mut bad) };
        let taken = match code {
            0 => self.requests.len(),
            // SAFETY: a provider points `bad` at a request of the chain, or leaves it null.
            _ if !bad.is_null() => unsafe { bad.offset_from(first) }.max(0) as usize,
            _ => 0,
        };
        self.requests.clear();
        self.elements.clear();
        self.handles.clear();
        let context = &queue_pair.domain.context;
        let answer = context.answer("ibv_post_send", code);
        answer.map_err(|error| (error, taken))
    }
}

fn aim(raw: &mut ibv_send_wr, target: &Target<'_>) {
    match *target {
        Target::Write {
            address,
            key,
            immediate,
        } => {
            raw.opcode = IBV_WR_RDMA_WRITE;
            raw.wr.rdma = remote(address, key);
            if let Some(immediate) = immediate {
                raw.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
                raw.imm_data = immediate.to_be();
            }
        }
        Target::Read { address, key } => {
            raw.opcode = IBV_WR_RDMA_READ;
            raw.wr.rdma = remote(address, key);
        }
        Target::Send {
            immediate,
            datagram,
        } => {
            raw.opcode = IBV_WR_SEND;
            if let Some(immediate) = immediate {
                raw.opcode = IBV_WR_SEND_WITH_IMM;
                raw.imm_data = immediate.to_be();
            }
            if let Some(handle) = datagram {
                raw.wr.ud = ibv_send_wr_ud {
                    ah: handle.raw,
                    remote_qpn: handle.queue_pair,
                    remote_qkey: handle.key(),
                };
            }
        }
        Target::FetchAdd { address, key, add } => {
            raw.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
            raw.wr.atomic = ibv_send_wr_atomic {
                remote_addr: address,
                compare_add: add,
                swap: 0,
                rkey: key,
            };
        }
        Target::CompareSwap {
            address,
            key,
            compare,
            swap,
        } => {
            raw.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
            raw.wr.atomic = ibv_send_wr_atomic {
                remote_addr: address,
                compare_add: compare,
                swap,
                rkey: key,
            };
        }
    }
}

fn remote(address: u64, key: u32) -> ibv_send_wr_rdma {
    ibv_send_wr_rdma {
        remote_addr: address,
        rkey: key,
    }
}

/// Receive work requests to be posted together.
#[derive(Debug)]
pub struct ReceiveList {
    regions: Vec<Arc<MemoryRegion>>,
    requests: Vec<ibv_recv_wr>,
    elements: Vec<ibv_sge>,
}

// SAFETY: the raw pointers inside lead to its own vectors and are used only within `post`.
unsafe impl Send for ReceiveList {}

impl ReceiveList {
    /// An empty list whose elements may be in `regions`.
    pub fn new(regions: Vec<Arc<MemoryRegion>>) -> Self {
        Self {
            regions,
            requests: Vec::new(),
            elements: Vec::new(),
        }
    }

    /// Adds a receive into `element`; without one, of no bytes (enough for WRITE with immediate data). Fails if the
    /// element is outside its region.
    pub fn push(&mut self, id: u64, element: Option<Element>) -> Result<(), VerbsError> {
        if let Some(element) = &element {
            self.elements.push(resolve(&self.regions, element)?);
        }
        self.requests.push(ibv_recv_wr {
            wr_id: id,
            num_sge: i32::from(element.is_some()),
            ..ibv_recv_wr::default()
        });
        Ok(())
    }

    /// Posts all of them with one call and empties the list. Fails if the device refused one.
    pub fn post(&mut self, queue_pair: &QueuePair) -> Result<(), VerbsError> {
        if self.requests.is_empty() {
            return Ok(());
        }
        let first = chain!(self);
        let mut bad = std::ptr::null_mut();
        // SAFETY: a live queue pair and a chain of whole requests that outlive the call; the device checks elements.
        let code = unsafe { ibv_post_recv(queue_pair.raw, first, &mut bad) };
        self.requests.clear();
        self.elements.clear();
        queue_pair.domain.context.answer("ibv_post_recv", code)
    }
}

fn resolve(regions: &[Arc<MemoryRegion>], element: &Element) -> Result<ibv_sge, VerbsError> {
    let region = regions.get(element.region);
    let fits = region.filter(|region| {
        let end = element.offset.checked_add(u64::from(element.length));
        end.is_some_and(|end| end <= region.length())
    });
    match fits {
        Some(region) => Ok(ibv_sge {
            addr: region.address() + element.offset,
            length: element.length,
            lkey: region.local_key(),
        }),
        None => Err(VerbsError::OutOfRegion {
            region: element.region,
            region_bytes: region.map_or(0, |region| region.length()),
            offset: element.offset,
            length: element.length,
        }),
    }
}
