//! Opened devices: the provider's original function tables, and the meters of the device.
//!
//! Problem: the inline functions of the verbs header call through tables in the context, which a preload library cannot
//! intercept by name. Method: save the provider's entries and replace them. Only `post_send`, `poll_cq`,
//! `req_notify_cq`, `bind_mw`, `create_qp_ex`, `create_cq_ex` and `alloc_parent_domain` are replaced; receives bypass the shim. A process of
//! the latency class keeps the provider's tables.

use crate::meter::Meter;
use crate::session::Shared;
use crate::table::lock;
use isolane_rdma_session::message::PortAddress;
use isolane_rdma_session::region::SOURCES;
use isolane_rdma_verbs_sys::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// A device by name, with its meters; never freed.
#[derive(Debug)]
pub struct Device {
    /// Device name, such as `mlx5_0`.
    pub name: String,
    /// Meters of outgoing messages, and of READs from ports that have no meter of their own.
    pub meters: [Meter; 2],
    /// Ports from which queue pairs READ, in the order of their first connections.
    sources: [OnceLock<Source>; SOURCES],
    /// Whether the daemon has no more meters for ports.
    full: AtomicBool,
    shared: Mutex<Option<Arc<Shared>>>,
}

/// A port of another device, from which queue pairs READ.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) address: PortAddress,
    pub(crate) meter: Meter,
}

impl Device {
    /// A device that no session serves.
    pub fn new(name: String) -> Self {
        Self {
            name,
            meters: [Meter::default(), Meter::default()],
            sources: [const { OnceLock::new() }; SOURCES],
            full: AtomicBool::new(false),
            shared: Mutex::new(None),
        }
    }

    /// Sets the session and its two meters, or none. The meters of sources get theirs by [`Self::connect_sources`].
    pub fn connect(&self, served: Option<(Arc<Shared>, [u16; 2])>) {
        for (at, meter) in self.meters.iter().enumerate() {
            let there = |(shared, numbers): &(Arc<Shared>, [u16; 2])| place_of(shared, numbers[at]);
            meter.connect(served.as_ref().and_then(there));
        }
        for source in self.sources() {
            source.meter.connect(None);
        }
        self.full.store(false, Ordering::Relaxed);
        *lock(&self.shared) = served.map(|(shared, _)| shared);
    }

    /// Gives the known sources meters of a new session. READs from a source without a meter are unpaced.
    pub fn connect_sources(&self, shared: &Arc<Shared>, open: impl Fn(PortAddress) -> Option<u16>) {
        for source in self.sources() {
            let number = open(source.address);
            source
                .meter
                .connect(number.and_then(|number| place_of(shared, number)));
        }
    }

    /// The meter of READs from that port, if it has one.
    pub fn source(&self, address: PortAddress) -> Option<&Meter> {
        let mut sources = self.sources();
        let known = sources.find(|source| source.address == address)?;
        Some(&known.meter)
    }

    /// Adds a source, whose meter `open` requests. Without a meter, READs from it have the device's own. One thread at a
    /// time.
    pub fn add_source(&self, address: PortAddress, open: impl Fn() -> Option<u16>) -> &Meter {
        let place = self.sources.iter().find(|place| place.get().is_none());
        let shared = lock(&self.shared).clone();
        let (Some(place), Some(shared), false) = (place, shared, self.full.load(Ordering::Relaxed))
        else {
            return &self.meters[1];
        };
        let Some(there) = open().and_then(|number| place_of(&shared, number)) else {
            self.full.store(true, Ordering::Relaxed);
            return &self.meters[1];
        };
        let meter = Meter::default();
        meter.connect(Some(there));
        &place.get_or_init(|| Source { address, meter }).meter
    }

    /// All its meters.
    #[inline]
    pub fn all_meters(&self) -> impl Iterator<Item = &Meter> {
        let sources = self.sources().map(|source| &source.meter);
        self.meters.iter().chain(sources)
    }

    fn sources(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().map_while(OnceLock::get)
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
}

/// The place of a meter with that number in the session's memory.
fn place_of(shared: &Arc<Shared>, number: u16) -> Option<(Arc<Shared>, usize)> {
    let index = usize::from(number);
    (index < shared.region.meters.len()).then(|| (Arc::clone(shared), index))
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
