//! Address handles, and the routes of queue pairs.

use crate::attributes::Route;
use crate::context::{Context, minus_one, null};
use isolane_rdma_verbs_sys::*;
use std::ffi::c_int;

/// An address handle; begins like the public structure. The broker does not know it: a work request carries its route.
#[repr(C)]
pub struct Address {
    ah: ibv_ah,
    /// Where it leads.
    pub route: Route,
}

/// The route of address attributes.
pub fn route(attr: &ibv_ah_attr) -> Route {
    let raw = attr.grh.dgid.raw;
    let half = |from: usize| {
        let bytes = raw[from..from + 8].try_into().expect("eight bytes");
        u64::from_ne_bytes(bytes)
    };
    Route {
        is_global: attr.is_global != 0,
        dlid: attr.dlid,
        sl: attr.sl,
        traffic_class: attr.grh.traffic_class,
        sgid_index: attr.grh.sgid_index,
        hop_limit: attr.grh.hop_limit,
        dgid: [half(0), half(8)],
    }
}

/// The address attributes of a route.
pub fn attributes(route: &Route, port_num: u8) -> ibv_ah_attr {
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&route.dgid[0].to_ne_bytes());
    raw[8..].copy_from_slice(&route.dgid[1].to_ne_bytes());
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw },
            flow_label: 0,
            sgid_index: route.sgid_index,
            hop_limit: route.hop_limit,
            traffic_class: route.traffic_class,
        },
        dlid: route.dlid,
        sl: route.sl,
        src_path_bits: 0,
        static_rate: 0,
        is_global: u8::from(route.is_global),
        port_num,
    }
}

/// `ibv_create_ah`.
///
/// # Safety
/// The protection domain is allocated and the attributes are readable.
pub unsafe fn create(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: the caller's promise.
    unsafe {
        let link_layer = Context::of((*pd).context).device.facts.link_layer;
        // On Ethernet an address is a GID.
        let needs_gid = link_layer == u32::from(IBV_LINK_LAYER_ETHERNET);
        if (*attr).port_num != 1 || needs_gid && (*attr).is_global == 0 {
            return null(libc::EINVAL);
        }
        let ah = ibv_ah {
            context: (*pd).context,
            pd,
            ..ibv_ah::default()
        };
        let route = route(&*attr);
        Box::into_raw(Box::new(Address { ah, route })).cast()
    }
}

/// `ibv_destroy_ah`.
///
/// # Safety
/// [`create`] gave it out.
pub unsafe fn destroy(ah: *mut ibv_ah) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { drop(Box::from_raw(ah.cast::<Address>())) };
    0
}

/// `ibv_init_ah_from_wc`: the way back to the sender of a datagram.
///
/// # Safety
/// The completion is readable, the header too where the completion says that there is one, and `attr` writable.
pub unsafe fn init_from_completion(
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    attr: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let wc = &*wc;
        let mut route = Route {
            dlid: wc.slid,
            sl: wc.sl,
            ..Route::default()
        };
        if wc.wc_flags & IBV_WC_GRH != 0 {
            if grh.is_null() {
                return minus_one(libc::EINVAL);
            }
            let header = grh.read_unaligned();
            let raw = header.sgid.raw;
            let half = |from: usize| {
                u64::from_ne_bytes(raw[from..from + 8].try_into().expect("eight bytes"))
            };
            route.is_global = true;
            route.hop_limit = u8::MAX;
            route.dgid = [half(0), half(8)];
        }
        *attr = attributes(&route, port);
    }
    0
}

/// `ibv_create_ah_from_wc`.
///
/// # Safety
/// As [`init_from_completion`], and the protection domain is allocated.
pub unsafe fn create_from_completion(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    let mut attr = attributes(&Route::default(), port);
    // SAFETY: the caller's promise.
    unsafe {
        match init_from_completion(port, wc, grh, &raw mut attr) {
            0 => create(pd, &raw mut attr),
            _ => std::ptr::null_mut(),
        }
    }
}
