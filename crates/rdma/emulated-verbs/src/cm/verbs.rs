//! Verbs as a library beside libibverbs calls them.
//!
//! Problem: a preloaded library (that of `isolane rdma run`) must see the queue pairs that rdma_cm makes, but librdmacm is
//! in the same file as our libibverbs here. Method: each name is looked up in the order of the loader, so that a preloaded
//! function comes first. A program that loaded us privately gets our own function.

use crate::{completion, device, memory, queue_pair, shared_receive};
use isolane_rdma_verbs_sys::*;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

macro_rules! verbs {
    ($($name:ident = $symbol:literal, $own:path, ($($argument:ident: $ty:ty),*) -> $answer:ty;)*) => { $(
        /// As the manual page of the same name says.
        ///
        /// # Safety
        /// As that page demands.
        pub(super) unsafe fn $name($($argument: $ty),*) -> $answer {
            type Function = unsafe extern "C" fn($($ty),*) -> $answer;
            static FOUND: OnceLock<Option<Function>> = OnceLock::new();
            let found = FOUND.get_or_init(|| {
                // SAFETY: a lookup of a name that ends in a zero byte.
                let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, $symbol.as_ptr()) };
                // SAFETY: what has this name has this type.
                (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Function>(found) })
            });
            // SAFETY: the caller's promise.
            unsafe {
                match found {
                    Some(function) => function($($argument),*),
                    None => $own($($argument),*),
                }
            }
        }
    )* };
}

verbs! {
    open_device = c"ibv_open_device", device::open, (of: *mut ibv_device) -> *mut ibv_context;
    alloc_pd = c"ibv_alloc_pd", memory::alloc_pd, (of: *mut ibv_context) -> *mut ibv_pd;
    create_comp_channel = c"ibv_create_comp_channel", completion::create_channel, (of: *mut ibv_context) -> *mut ibv_comp_channel;
    destroy_comp_channel = c"ibv_destroy_comp_channel", completion::destroy_channel, (channel: *mut ibv_comp_channel) -> c_int;
    create_cq = c"ibv_create_cq", completion::create,
        (of: *mut ibv_context, cqe: c_int, user: *mut c_void, channel: *mut ibv_comp_channel, vector: c_int) -> *mut ibv_cq;
    destroy_cq = c"ibv_destroy_cq", completion::destroy_queue, (cq: *mut ibv_cq) -> c_int;
    create_srq = c"ibv_create_srq", shared_receive::create, (pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    destroy_srq = c"ibv_destroy_srq", shared_receive::destroy_queue, (srq: *mut ibv_srq) -> c_int;
    create_qp = c"ibv_create_qp", queue_pair::create, (pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    modify_qp = c"ibv_modify_qp", queue_pair::modify, (qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
    destroy_qp = c"ibv_destroy_qp", queue_pair::destroy_pair, (qp: *mut ibv_qp) -> c_int;
}
