//! The functions of libibverbs that the shim replaces. Tests use a provider without hardware instead.

use isolane_rdma_verbs_sys::*;
use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};

thread_local! {
    /// Whether this thread looks for the originals.
    static LOOKING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, in which look-ups find the originals.
pub fn past_ours<T>(work: impl FnOnce() -> T) -> T {
    let before = LOOKING.replace(true);
    let answer = work();
    LOOKING.set(before);
    answer
}

/// Whether this thread is in [`past_ours`].
pub fn is_past_ours() -> bool {
    LOOKING.get()
}

/// Pointers to the replaced functions of libibverbs.
#[derive(Clone, Copy, Debug)]
pub struct Originals {
    /// `ibv_open_device`.
    pub open_device: unsafe extern "C" fn(*mut ibv_device) -> *mut ibv_context,
    /// `verbs_open_device`, by which vendors' libraries open devices.
    pub open_device_by_vendor: Option<OpenByVendor>,
    /// `ibv_close_device`.
    pub close_device: unsafe extern "C" fn(*mut ibv_context) -> c_int,
    /// `ibv_query_device`.
    pub query_device: unsafe extern "C" fn(*mut ibv_context, *mut ibv_device_attr) -> c_int,
    /// `ibv_create_cq`.
    pub create_cq: unsafe extern "C" fn(
        *mut ibv_context,
        c_int,
        *mut c_void,
        *mut ibv_comp_channel,
        c_int,
    ) -> *mut ibv_cq,
    /// `ibv_resize_cq`.
    pub resize_cq: unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int,
    /// `ibv_destroy_cq`.
    pub destroy_cq: unsafe extern "C" fn(*mut ibv_cq) -> c_int,
    /// `ibv_get_cq_event`.
    pub get_cq_event:
        unsafe extern "C" fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int,
    /// `ibv_ack_cq_events`.
    pub ack_cq_events: unsafe extern "C" fn(*mut ibv_cq, c_uint),
    /// `ibv_create_qp`.
    pub create_qp: unsafe extern "C" fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp,
    /// `ibv_modify_qp`.
    pub modify_qp: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int,
    /// `ibv_query_qp`.
    pub query_qp:
        unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int,
    /// `ibv_destroy_qp`.
    pub destroy_qp: unsafe extern "C" fn(*mut ibv_qp) -> c_int,
    /// `ibv_qp_to_qp_ex`.
    pub qp_to_qp_ex: Option<unsafe extern "C" fn(*mut ibv_qp) -> *mut ibv_qp_ex>,
    /// `ibv_destroy_ah`.
    pub destroy_ah: unsafe extern "C" fn(*mut ibv_ah) -> c_int,
}

/// `verbs_open_device`.
pub type OpenByVendor = unsafe extern "C" fn(*mut ibv_device, *mut c_void) -> *mut ibv_context;

impl From<&Library> for Originals {
    fn from(library: &Library) -> Self {
        Self {
            open_device: library.open_device,
            open_device_by_vendor: library.open_device_by_vendor,
            close_device: library.close_device,
            query_device: library.query_device,
            create_cq: library.create_cq,
            resize_cq: library.resize_cq,
            destroy_cq: library.destroy_cq,
            get_cq_event: library.get_cq_event,
            ack_cq_events: library.ack_cq_events,
            create_qp: library.create_qp,
            modify_qp: library.modify_qp,
            query_qp: library.query_qp,
            destroy_qp: library.destroy_qp,
            qp_to_qp_ex: library.qp_to_qp_ex,
            destroy_ah: library.destroy_ah,
        }
    }
}
