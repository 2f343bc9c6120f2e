//! Opened devices: the provider's original function tables, and the meters of the device.
//!
//! Problem: the inline functions of the verbs header call through tables in the context, which a preload library cannot
//! intercept by name. Method: save the provider's entries and replace them. Only `post_send`, `poll_cq`,
//! `req_notify_cq`, `bind_mw`, `create_qp_ex`, `create_cq_ex` and `alloc_parent_domain` are replaced; receives bypass the shim. A process of
//! the latency class keeps the provider's tables.

use crate::meter::Meter;
use crate::session::Shared;
use crate::table::lock;
use isolane_rdma_session::message::NO_METER;
use isolane_rdma_verbs_sys::*;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A device by name, with its two meters; never freed.
#[derive(Debug)]
pub struct Device {
    /// Device name, such as `mlx5_0`.
    pub name: String,
    /// Meters of outgoing messages and of READs.
    pub meters: [Meter; 2],
    numbers: [AtomicU16; 2],
    shared: Mutex<Option<Arc<Shared>>>,
}

impl Device {
    /// A device that no session serves.
    pub fn new(name: String) -> Self {
        Self {
            name,
            meters: [Meter::default(), Meter::default()],
            numbers: [AtomicU16::new(NO_METER), AtomicU16::new(NO_METER)],
            shared: Mutex::new(None),
        }
    }

    /// Sets the session and its meters, or none.
    pub fn connect(&self, served: Option<(Arc<Shared>, [u16; 2])>) {
        let numbers = served.as_ref().map_or([NO_METER; 2], |served| served.1);
        for (at, meter) in self.meters.iter().enumerate() {
            self.numbers[at].store(numbers[at], Ordering::Relaxed);
            let index = usize::from(numbers[at]);
            let there = |(shared, _): &(Arc<Shared>, [u16; 2])| {
                (index < shared.region.meters.len()).then(|| (Arc::clone(shared), index))
            };
            meter.connect(served.as_ref().and_then(there));
        }
        *lock(&self.shared) = served.map(|(shared, _)| shared);
    }

    /// Whether a session serves the device.
    pub fn is_served(&self) -> bool {
        lock(&self.shared).is_some()
    }

    /// Takes a free slot of the session for a queue pair.
    pub fn slot(&self) -> Option<(Arc<Shared>, usize)> {
        let shared = lock(&self.shared).clone()?;
        let index = shared.take_slot();
        Some((shared, index))
    }

    /// Numbers of its meters.
    pub fn numbers(&self) -> [u16; 2] {
        [0, 1].map(|at: usize| self.numbers[at].load(Ordering::Relaxed))
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Context")
            .field("device", &self.device.name)
            .finish_non_exhaustive()
    }
}

/// An open context; never freed, because a look-up can happen at any time.
pub struct Context {
    /// Address of the context; zero when closed.
    pub address: AtomicUsize,
    /// The provider's original table.
    pub ops: ibv_context_ops,
    /// The provider's `create_qp_ex`.
    pub create_qp_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp>,
    /// The provider's `create_cq_ex`.
    pub create_cq_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex>,
    /// The provider's `alloc_parent_domain`.
    pub alloc_parent_domain: Option<AllocParentDomain>,
    /// The context's device.
    pub device: &'static Device,
    /// Largest completion queue, entries.
    pub max_cqe: u32,
    /// Longest send queue, work requests.
    pub max_qp_wr: u32,
}

/// The functions that replace table entries.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// For [`ibv_context_ops::post_send`].
    pub post_send:
        unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> i32,
    /// For [`ibv_context_ops::poll_cq`].
    pub poll_cq: unsafe extern "C" fn(*mut ibv_cq, i32, *mut ibv_wc) -> i32,
    /// For [`ibv_context_ops::req_notify_cq`].
    pub req_notify_cq: unsafe extern "C" fn(*mut ibv_cq, i32) -> i32,
    /// For [`ibv_context_ops::bind_mw`].
    pub bind_mw: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> i32,
    /// For [`verbs_context::create_qp_ex`].
    pub create_qp_ex:
        unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp,
    /// For [`verbs_context::create_cq_ex`].
    pub create_cq_ex:
        unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex,
    /// For [`verbs_context::alloc_parent_domain`].
    pub alloc_parent_domain: AllocParentDomain,
}

/// `ibv_alloc_parent_domain`.
pub(crate) type AllocParentDomain =
    unsafe extern "C" fn(*mut ibv_context, *mut ibv_parent_domain_init_attr) -> *mut ibv_pd;

impl Context {
    /// Saves the tables of a context without changing them.
    ///
    /// # Safety
    /// `context` is open.
    pub unsafe fn of(
        context: *mut ibv_context,
        device: &'static Device,
        attr: &ibv_device_attr,
    ) -> Self {
        let limit = |value: i32| u32::try_from(value).unwrap_or(0);
        // SAFETY: the caller's promise; the macros check that the extended fields exist.
        unsafe {
            Self {
                address: AtomicUsize::new(context.addr()),
                ops: (*context).ops,
                create_qp_ex: verbs_get_ctx_op!(context, create_qp_ex),
                create_cq_ex: verbs_get_ctx_op!(context, create_cq_ex),
                alloc_parent_domain: verbs_get_ctx_op!(context, alloc_parent_domain),
                device,
                max_cqe: limit(attr.max_cqe),
                max_qp_wr: limit(attr.max_qp_wr),
            }
        }
    }

    /// Replaces the functions in the tables of the context.
    ///
    /// # Safety
    /// `context` is the one of [`Self::of`], and its application does not use it yet.
    pub unsafe fn swap(&self, context: *mut ibv_context, hooks: &Hooks) {
        // SAFETY: the caller's promise; extended fields are written only where they exist.
        unsafe {
            let ops = &mut (*context).ops;
            ops.post_send = Some(hooks.post_send);
            ops.poll_cq = Some(hooks.poll_cq);
            ops.req_notify_cq = Some(hooks.req_notify_cq);
            if ops.bind_mw.is_some() {
                ops.bind_mw = Some(hooks.bind_mw);
            }
            let extended = verbs_get_ctx(context);
            if self.create_qp_ex.is_some() {
                (*extended).create_qp_ex = Some(hooks.create_qp_ex);
            }
            if self.create_cq_ex.is_some() {
                (*extended).create_cq_ex = Some(hooks.create_cq_ex);
            }
            if self.alloc_parent_domain.is_some() {
                (*extended).alloc_parent_domain = Some(hooks.alloc_parent_domain);
            }
        }
    }
}
