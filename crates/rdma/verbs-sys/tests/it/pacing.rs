//! Rate limits of queue pairs against tables made up here: what devices answer, what of it is believed, what is passed on.
#![allow(unsafe_code)]

use isolane_rdma_verbs_sys::pacing::{Pacing, limit_rate, query_pacing};
use isolane_rdma_verbs_sys::*;
use std::cell::Cell;
use std::ffi::{c_int, c_void};

thread_local! {
    /// What the device answers: an error, or its capabilities.
    static ANSWER: Cell<(c_int, ibv_packet_pacing_caps)> = Cell::new((0, ibv_packet_pacing_caps::default()));
    /// The last limit that reached the device.
    static LIMIT: Cell<Option<(u32, u32, u16, u32)>> = const { Cell::new(None) };
}

/// A provider that copies as much of its answer as it was given room for.
unsafe extern "C" fn answer(
    _: *mut ibv_context,
    input: *const c_void,
    attributes: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    assert!(input.is_null());
    assert_eq!(size, size_of::<ibv_device_attr_ex>());
    let (code, caps) = ANSWER.get();
    if code == 0 {
        // SAFETY: the structure has the given size.
        unsafe { (*attributes).packet_pacing_caps = caps };
    }
    code
}

unsafe extern "C" fn limit(_: *mut ibv_qp, limit: *mut ibv_qp_rate_limit_attr) -> c_int {
    // SAFETY: the caller's attributes are whole.
    let limit = unsafe { *limit };
    LIMIT.set(Some((
        limit.rate_limit,
        limit.max_burst_sz,
        limit.typical_pkt_sz,
        limit.comp_mask,
    )));
    match limit.rate_limit {
        13 => libc::EINVAL,
        _ => 0,
    }
}

/// A device of a library of that size; `None`: one from before there were extended contexts.
fn device(size: Option<usize>) -> Box<verbs_context> {
    let mut context = Box::<verbs_context>::default();
    context.query_device_ex = Some(answer);
    context.modify_qp_rate_limit = Some(limit);
    if let Some(size) = size {
        context.sz = size;
        context.context.abi_compat = std::ptr::without_provenance_mut(VERBS_ABI_IS_EXTENDED);
    }
    context
}

fn whole() -> Box<verbs_context> {
    device(Some(size_of::<verbs_context>()))
}

fn ask(device: &mut Box<verbs_context>) -> Result<Option<Pacing>, c_int> {
    let extended: *mut verbs_context = &mut **device;
    // SAFETY: a context with its extension around it, made above.
    unsafe { query_pacing(&raw mut (*extended).context) }
}

fn caps(least: u32, most: u32, kinds: &[ibv_qp_type]) -> ibv_packet_pacing_caps {
    ibv_packet_pacing_caps {
        qp_rate_limit_min: least,
        qp_rate_limit_max: most,
        supported_qpts: kinds.iter().map(|kind| 1 << kind).sum(),
    }
}

#[test]
fn a_device_that_paces_says_what() {
    ANSWER.set((0, caps(1_000, 100_000_000, &[IBV_QPT_RC])));
    let pacing = ask(&mut whole()).expect("an answer").expect("it paces");
    assert!(pacing.serves(IBV_QPT_RC));
    assert!(!pacing.serves(IBV_QPT_UD));
    assert!(!pacing.serves(IBV_QPT_DRIVER), "no bit beyond the mask");
    let part = |rate, pairs| pacing.part_kbps(IBV_QPT_RC, rate, pairs);
    assert_eq!(part(10_000_000_000, 4), Some(2_500_000));
    assert_eq!(part(10_000_999, 3), Some(3_333), "rounded down");
    assert_eq!(part(1_000_000, 1), Some(1_000));
    assert_eq!(part(999_999, 1), None, "slower than it can");
    assert_eq!(part(100_000_001_000, 1), None, "faster than it can");
    assert_eq!(part(u64::MAX, 1), None);
    assert_eq!(part(10_000_000_000, 0), Some(10_000_000));
    assert_eq!(pacing.part_kbps(IBV_QPT_UD, 10_000_000_000, 1), None);
}

#[test]
fn a_device_that_cannot_pace_is_no_error() {
    for nothing in [
        caps(0, 0, &[]),
        caps(1, 100, &[]),
        caps(0, 0, &[IBV_QPT_RC]),
        caps(2, 1, &[IBV_QPT_RC]),
    ] {
        ANSWER.set((0, nothing));
        assert_eq!(ask(&mut whole()), Ok(None), "{nothing:?}");
    }
    for code in [libc::EOPNOTSUPP, libc::ENOSYS, -libc::EOPNOTSUPP] {
        ANSWER.set((code, ibv_packet_pacing_caps::default()));
        assert_eq!(ask(&mut whole()), Ok(None));
    }
    ANSWER.set((0, caps(1, 100, &[IBV_QPT_RC])));
    let mut missing = whole();
    missing.query_device_ex = None;
    assert_eq!(ask(&mut missing), Ok(None));
    // Older libraries: the fields do not exist, and the bytes there have no meaning.
    let context = size_of::<verbs_context>() - std::mem::offset_of!(verbs_context, context);
    for old in [None, Some(context), Some(context + size_of::<usize>())] {
        assert_eq!(ask(&mut device(old)), Ok(None), "{old:?}");
    }
}

#[test]
fn a_failed_question_is_an_error() {
    ANSWER.set((libc::ENODEV, ibv_packet_pacing_caps::default()));
    assert_eq!(ask(&mut whole()), Err(libc::ENODEV));
}

#[test]
fn a_limit_reaches_the_device_as_it_is() {
    let mut device = whole();
    let mut queue_pair = Box::new(ibv_qp {
        context: &raw mut device.context,
        ..ibv_qp::default()
    });
    // SAFETY: a queue pair of a context made above.
    let mut set = |kbps| unsafe { limit_rate(&mut *queue_pair, kbps) };
    assert_eq!(set(2_500_000), 0);
    assert_eq!(LIMIT.get(), Some((2_500_000, 0, 0, 0)));
    assert_eq!(set(13), libc::EINVAL, "the device's word is passed on");
    assert_eq!(set(0), 0);
    assert_eq!(LIMIT.get(), Some((0, 0, 0, 0)), "zero lifts it");
    device.modify_qp_rate_limit = None;
    LIMIT.set(None);
    queue_pair.context = &raw mut device.context;
    // SAFETY: as above.
    assert_eq!(unsafe { limit_rate(&mut *queue_pair, 5) }, libc::EOPNOTSUPP);
    assert_eq!(LIMIT.get(), None);
}
