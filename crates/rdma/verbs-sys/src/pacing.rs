//! Rate limits of single queue pairs, where the device has them ("packet pacing").
//!
//! Problem: a device that can pace a queue pair paces packets at no cost; software paces messages and uses a processor.
//! Few devices support this, each within a range of its own and for some types of queue pair, and the error for an
//! unsupported request is not specific. Method: the device's answer to `ibv_query_device_ex` decides, before a queue
//! pair is changed. A library, provider or device that does not support the query has no such limits, which is no
//! error. Units: kbit/s of what a queue pair sends, as the interface counts; whether headers count is the device's
//! matter. Limits: what arrives is not limited, so neither are a queue pair's READs. The queue pair must be in RTR or
//! RTS (ibv_modify_qp_rate_limit(3)), and must be the caller's own: the kernel has no way to another process's. Tested
//! with tables that a test makes up; not tested on a device that paces.

use crate::*;
use std::ffi::c_int;

/// What a device can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// Slowest rate, kbit/s.
    pub least_kbps: u32,
    /// Fastest rate, kbit/s.
    pub most_kbps: u32,
    /// A bit for each type of queue pair that can be paced: `1 << IBV_QPT_RC`, ...
    pub services: u32,
}

impl Pacing {
    /// The device's answer; `None`: it paces nothing.
    fn of(caps: ibv_packet_pacing_caps) -> Option<Self> {
        let some = caps.supported_qpts != 0
            && caps.qp_rate_limit_max > 0
            && caps.qp_rate_limit_min <= caps.qp_rate_limit_max;
        some.then_some(Self {
            least_kbps: caps.qp_rate_limit_min,
            most_kbps: caps.qp_rate_limit_max,
            services: caps.supported_qpts,
        })
    }

    /// Whether queue pairs of that type can be paced.
    pub fn serves(&self, kind: ibv_qp_type) -> bool {
        1u32.checked_shl(kind)
            .is_some_and(|bit| self.services & bit != 0)
    }

    /// The part of `rate_bps` for each of `queue_pairs` of that type, kbit/s, rounded down: together they never exceed it.
    /// `None` where the device cannot pace them or not at that rate.
    pub fn part_kbps(&self, kind: ibv_qp_type, rate_bps: u64, queue_pairs: u32) -> Option<u32> {
        let each = rate_bps / 1_000 / u64::from(queue_pairs.max(1));
        let each = u32::try_from(each).ok()?;
        let fits = each > 0 && (self.least_kbps..=self.most_kbps).contains(&each);
        (fits && self.serves(kind)).then_some(each)
    }
}

/// What the device of `context` can do; `None` where it, its provider or the library knows no such limits.
///
/// # Safety
/// `context` is open.
///
/// # Errors
/// The provider's `errno` value, for anything but an operation that it does not have.
pub unsafe fn query_pacing(context: *mut ibv_context) -> Result<Option<Pacing>, c_int> {
    let mut attributes = ibv_device_attr_ex::default();
    // SAFETY: the caller gives an open context; the structure is writable and of the given size. A provider that fills
    // fewer fields leaves the rest zero.
    let code = unsafe {
        match verbs_get_ctx_op!(context, query_device_ex) {
            Some(query) => {
                let size = size_of::<ibv_device_attr_ex>();
                query(context, std::ptr::null(), &mut attributes, size)
            }
            None => libc::EOPNOTSUPP,
        }
    };
    match code.abs() {
        0 => Ok(Pacing::of(attributes.packet_pacing_caps)),
        libc::EOPNOTSUPP | libc::ENOSYS => Ok(None),
        _ => Err(code),
    }
}

/// Limits what a queue pair sends; zero lifts the limit. The device chooses burst and packet size.
///
/// # Safety
/// `queue_pair` is alive.
pub unsafe fn limit_rate(queue_pair: *mut ibv_qp, kbps: u32) -> c_int {
    let mut limit = ibv_qp_rate_limit_attr {
        rate_limit: kbps,
        ..ibv_qp_rate_limit_attr::default()
    };
    // SAFETY: passed on from the caller; the attributes are whole.
    unsafe { ibv_modify_qp_rate_limit(queue_pair, &mut limit) }
}
