//! The list of devices, and what an open device answers; the tables that the header's inline functions use.

use crate::attributes::{DeviceFacts, GIDS};
use crate::connection::{Connection, lock};
use crate::context::{
    Context, DEPTH_MAX, Device, ENTRIES_MAX, Kind, MESSAGE_MAX, OBJECTS_MAX, fill, minus_one, null,
};
use crate::{completion, extended, memory, posting, queue_pair, shared_receive};
use isolane_rdma_verbs_sys::*;
use std::ffi::{CString, c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, OnceLock, RwLock};

pub(crate) fn devices() -> Result<&'static [&'static Device], c_int> {
    static DEVICES: OnceLock<Vec<&'static Device>> = OnceLock::new();
    if let Some(devices) = DEVICES.get() {
        return Ok(devices);
    }
    let facts = Connection::list()?;
    Ok(DEVICES.get_or_init(|| facts.into_iter().map(Device::leaked).collect()))
}

/// `ibv_get_device_list`.
///
/// # Safety
/// `count` is null or writable.
pub unsafe fn get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    let devices = match devices() {
        Ok(devices) => devices,
        Err(errno) => return null(errno),
    };
    let pointers = devices
        .iter()
        .map(|device| (&raw const **device).cast_mut().cast());
    let list: Box<[*mut ibv_device]> = pointers.chain([std::ptr::null_mut()]).collect();
    // SAFETY: the caller's promise.
    unsafe {
        if !count.is_null() {
            *count = devices.len() as c_int;
        }
    }
    Box::leak(list).as_mut_ptr()
}

/// `ibv_free_device_list`.
///
/// # Safety
/// `list` is from [`get_device_list`].
pub unsafe fn free_device_list(list: *mut *mut ibv_device) {
    let length = devices().map_or(0, <[_]>::len) + 1;
    // SAFETY: the list has one entry per device and a null pointer; the number of devices never changes.
    unsafe {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(
            list, length,
        )))
    };
}

/// `ibv_open_device`.
///
/// # Safety
/// The list gave the device out.
pub unsafe fn open(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: the caller's promise.
    let ours = unsafe { Device::of(device) };
    let (connection, events) = match Connection::open(ours.facts.host) {
        Ok(opened) => opened,
        Err(errno) => return null(errno),
    };
    let mut verbs = verbs_context {
        sz: size_of::<verbs_context>(),
        query_port: Some(query_port),
        query_device_ex: Some(query_device_ex),
        create_cq_ex: Some(completion::create_ex),
        modify_cq: Some(completion::modify),
        create_qp_ex: Some(extended::create_ex),
        create_srq_ex: Some(shared_receive::create_ex),
        modify_qp_rate_limit: Some(queue_pair::limit_rate),
        ..verbs_context::default()
    };
    let context = &mut verbs.context;
    context.device = device;
    context.cmd_fd = connection.descriptor();
    context.async_fd = events.as_raw_fd();
    context.num_comp_vectors = 1;
    context.abi_compat = std::ptr::without_provenance_mut(VERBS_ABI_IS_EXTENDED);
    context.ops.poll_cq = Some(completion::poll);
    context.ops.req_notify_cq = Some(completion::arm);
    context.ops.post_send = Some(posting::send);
    context.ops.post_recv = Some(posting::receive);
    context.ops.post_srq_recv = Some(posting::receive_shared);
    context.ops.alloc_mw = Some(memory::alloc_window);
    context.ops.bind_mw = Some(extended::bind_window);
    context.ops.dealloc_mw = Some(memory::dealloc_window);
    let whole = Box::leak(Box::new(Context {
        verbs,
        connection,
        device: ours,
        places: RwLock::default(),
        objects: Mutex::default(),
        events,
    }));
    &raw mut whole.verbs.context
}

/// `ibv_close_device`.
///
/// # Safety
/// The context is open, and nothing of it is used any more.
pub unsafe fn close(context: *mut ibv_context) -> c_int {
    // SAFETY: the caller's promise; `open` leaked a box of this type around the public context.
    unsafe {
        let whole = context.byte_sub(std::mem::offset_of!(verbs_context, context));
        drop(Box::from_raw(whole.cast::<Context>()));
    }
    0
}

fn device_attributes(facts: &DeviceFacts) -> ibv_device_attr {
    let mut attr = ibv_device_attr {
        node_guid: facts.guid,
        sys_image_guid: facts.guid,
        max_mr_size: 1 << 40,
        page_size_cap: 0xffff_f000,
        vendor_id: VENDOR,
        vendor_part_id: 1,
        hw_ver: 1,
        max_qp: OBJECTS_MAX as c_int,
        max_qp_wr: DEPTH_MAX as c_int,
        device_cap_flags: DEVICE_RC_RNR_NAK_GEN | DEVICE_MEM_WINDOW | DEVICE_MEM_WINDOW_TYPE_2B,
        max_sge: crate::wire::ELEMENTS_MAX as c_int,
        max_sge_rd: crate::wire::ELEMENTS_MAX as c_int,
        max_cq: OBJECTS_MAX as c_int,
        max_cqe: ENTRIES_MAX as c_int,
        max_mr: OBJECTS_MAX as c_int,
        max_pd: OBJECTS_MAX as c_int,
        max_qp_rd_atom: 16,
        max_res_rd_atom: 1 << 20,
        max_qp_init_rd_atom: 16,
        atomic_cap: if facts.atomics {
            IBV_ATOMIC_HCA
        } else {
            IBV_ATOMIC_NONE
        },
        max_mw: OBJECTS_MAX as c_int,
        max_ah: 1 << 20,
        max_srq: OBJECTS_MAX as c_int,
        max_srq_wr: DEPTH_MAX as c_int,
        max_srq_sge: crate::wire::ELEMENTS_MAX as c_int,
        max_pkeys: 1,
        local_ca_ack_delay: 16,
        phys_port_cnt: 1,
        ..NO_ATTRIBUTES
    };
    fill(&mut attr.fw_ver, "isolane model");
    attr
}

/// The first bytes of our GUIDs: no vendor has them, as they are administered locally.
const VENDOR: u32 = 0x02_69_73;
/// Bits of `ibv_device_attr::device_cap_flags`.
const DEVICE_RC_RNR_NAK_GEN: u32 = 1 << 12;
const DEVICE_MEM_WINDOW: u32 = 1 << 17;
const DEVICE_MEM_WINDOW_TYPE_2B: u32 = 1 << 24;

// SAFETY: integers only, so that zero is a value of each.
const NO_ATTRIBUTES: ibv_device_attr = unsafe { std::mem::zeroed() };

/// `ibv_query_device`.
///
/// # Safety
/// The context is open and `attr` writable.
pub unsafe fn query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { *attr = device_attributes(&Context::of(context).device.facts) };
    0
}

unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    _input: *const c_void,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    // SAFETY: the header's function gives an open context and `size` writable bytes at `attr`.
    unsafe {
        let whole = ibv_device_attr_ex {
            orig_attr: device_attributes(&Context::of(context).device.facts),
            completion_timestamp_mask: u64::MAX,
            hca_core_clock: 1_000_000,
            phys_port_cnt_ex: 1,
            packet_pacing_caps: pacing(&Context::of(context).device.facts),
            ..ibv_device_attr_ex::default()
        };
        let bytes = size.min(size_of::<ibv_device_attr_ex>());
        std::ptr::copy_nonoverlapping((&raw const whole).cast::<u8>(), attr.cast(), bytes);
    }
    0
}

/// The rates of single queue pairs: all types have them, or none.
fn pacing(facts: &DeviceFacts) -> ibv_packet_pacing_caps {
    match facts.pacing_kbps_max {
        0 => ibv_packet_pacing_caps::default(),
        most => ibv_packet_pacing_caps {
            qp_rate_limit_min: 1,
            qp_rate_limit_max: most,
            supported_qpts: 1 << IBV_QPT_RC | 1 << IBV_QPT_UC | 1 << IBV_QPT_UD,
        },
    }
}

unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    if port != 1 {
        return libc::EINVAL;
    }
    // SAFETY: the header's function gives an open context and `size` writable bytes at `attr`.
    unsafe {
        let facts = &Context::of(context).device.facts;
        let ethernet = facts.link_layer == u32::from(IBV_LINK_LAYER_ETHERNET);
        let whole = ibv_port_attr {
            state: IBV_PORT_ACTIVE,
            max_mtu: facts.mtu,
            active_mtu: facts.mtu,
            gid_tbl_len: if ethernet { GIDS as c_int } else { 1 },
            port_cap_flags: PORT_CM_SUP,
            max_msg_sz: MESSAGE_MAX,
            pkey_tbl_len: 1,
            lid: facts.lid as u16,
            sm_lid: if ethernet { 0 } else { 1 },
            max_vl_num: 1,
            active_width: facts.width as u8,
            active_speed: facts.speed as u8,
            phys_state: PHYSICAL_LINK_UP,
            link_layer: facts.link_layer as u8,
            ..ibv_port_attr::default()
        };
        let bytes = size.min(size_of::<ibv_port_attr>());
        std::ptr::copy_nonoverlapping((&raw const whole).cast::<u8>(), attr.cast(), bytes);
    }
    0
}

/// `IBV_PORT_CM_SUP`.
const PORT_CM_SUP: u32 = 1 << 16;
/// `ibv_port_attr::phys_state` of a link that is up.
const PHYSICAL_LINK_UP: u8 = 5;

/// `ibv_query_port`, as programs before the extended call use it: without the structure's last field.
///
/// # Safety
/// The context is open and `attr` writable.
pub unsafe fn query_port_old(context: *mut ibv_context, port: u8, attr: *mut c_void) -> c_int {
    let size = std::mem::offset_of!(ibv_port_attr, port_cap_flags2);
    // SAFETY: the caller's promise.
    unsafe { query_port(context, port, attr.cast(), size) }
}

/// The GID of `index`, and its type as `ibv_gid_type` has it.
fn gid(context: &Context, port: u32, index: u32) -> Option<(ibv_gid, u32)> {
    let facts = &context.device.facts;
    let ethernet = facts.link_layer == u32::from(IBV_LINK_LAYER_ETHERNET);
    let count = if ethernet { GIDS } else { 1 };
    if port != 1 || index as usize >= count {
        return None;
    }
    let words = facts.gids[index as usize];
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&words[0].to_ne_bytes());
    raw[8..].copy_from_slice(&words[1].to_ne_bytes());
    let kind = match (ethernet, index % 2) {
        (false, _) => IBV_GID_TYPE_IB,
        (true, 0) => IBV_GID_TYPE_ROCE_V1,
        (true, _) => IBV_GID_TYPE_ROCE_V2,
    };
    Some((ibv_gid { raw }, kind))
}

/// `ibv_query_gid`.
///
/// # Safety
/// The context is open and `target` writable.
pub unsafe fn query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    target: *mut ibv_gid,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match gid(Context::of(context), u32::from(port), index as u32) {
            Some((gid, _)) => *target = gid,
            None => return minus_one(libc::EINVAL),
        }
    }
    0
}

/// `_ibv_query_gid_ex`.
///
/// # Safety
/// The context is open and `size` bytes at `entry` writable.
pub unsafe fn query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    if flags != 0 || size < size_of::<ibv_gid_entry>() {
        return libc::EOPNOTSUPP;
    }
    // SAFETY: the caller's promise.
    unsafe {
        match gid(Context::of(context), port, index) {
            Some((gid, gid_type)) => {
                *entry = ibv_gid_entry {
                    gid,
                    gid_index: index,
                    port_num: port,
                    gid_type,
                    ndev_ifindex: 0,
                };
                0
            }
            None if port == 1 => libc::ENODATA,
            None => libc::EINVAL,
        }
    }
}

/// `_ibv_query_gid_table`: how many entries, or a negative `errno` value.
///
/// # Safety
/// The context is open and `entries` has room for `room` entries.
pub unsafe fn query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    room: usize,
    flags: u32,
    size: usize,
) -> isize {
    let mut count = 0;
    loop {
        // SAFETY: the caller's promise; the next line sees that `count` stays below `room`.
        let found = unsafe {
            if count == room {
                let more = gid(Context::of(context), 1, count as u32).is_some();
                return if more {
                    -(libc::EINVAL as isize)
                } else {
                    count as isize
                };
            }
            let entry = entries.byte_add(count * size);
            query_gid_ex(context, 1, count as u32, entry, flags, size)
        };
        match found {
            0 => count += 1,
            libc::ENODATA => return count as isize,
            errno => return -(errno as isize),
        }
    }
}

/// `ibv_query_gid_type`: 0 for InfiniBand and RoCE 1, 1 for RoCE 2.
///
/// # Safety
/// The context is open and `target` writable.
pub unsafe fn query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: u32,
    target: *mut u32,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match gid(Context::of(context), u32::from(port), index) {
            Some((_, kind)) => *target = u32::from(kind == IBV_GID_TYPE_ROCE_V2),
            None => return minus_one(libc::EINVAL),
        }
    }
    0
}

/// `ibv_query_pkey`.
///
/// # Safety
/// `target` is writable.
pub unsafe fn query_pkey(
    _context: *mut ibv_context,
    port: u8,
    index: c_int,
    target: *mut u16,
) -> c_int {
    if port != 1 || index != 0 {
        return minus_one(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    unsafe { *target = u16::MAX };
    0
}

/// `ibv_get_async_event`: waits for an event of the broker's: its type and the object it is about.
///
/// # Safety
/// The context is open and `event` writable.
pub unsafe fn get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
    // SAFETY: the caller's promise.
    let ours = unsafe { Context::of(context) };
    loop {
        let mut bytes = [0; 8];
        match rustix::io::read(&ours.events, &mut bytes) {
            Ok(8) => {}
            Ok(_) => return minus_one(libc::EIO),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return minus_one(error.raw_os_error()),
        }
        let (event_type, handle) = crate::wire::unpack(u64::from_ne_bytes(bytes));
        let kind = match event_type {
            IBV_EVENT_CQ_ERR => Kind::Completions,
            IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => Kind::SharedReceives,
            _ => Kind::Pair,
        };
        // An event of an object that is gone is about nothing.
        let Some(&address) = lock(&ours.objects).get(&(kind, handle)) else {
            continue;
        };
        let element = ibv_async_event_element {
            qp: std::ptr::with_exposed_provenance_mut(address),
        };
        // SAFETY: the caller's promise.
        unsafe {
            *event = ibv_async_event {
                element,
                event_type,
            };
        }
        return 0;
    }
}

/// `ibv_read_sysfs_file`: the text without its last line break.
///
/// # Safety
/// The names are terminated texts and `size` bytes at `buffer` writable.
pub unsafe fn read_sysfs_file(
    directory: *const c_char,
    file: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let path = unsafe {
        let text = |name| {
            std::ffi::CStr::from_ptr(name)
                .to_string_lossy()
                .into_owned()
        };
        format!("{}/{}", text(directory), text(file))
    };
    let Ok(bytes) = std::fs::read(path) else {
        return minus_one(libc::ENOENT);
    };
    let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let Ok(text) = CString::new(text) else {
        return minus_one(libc::EINVAL);
    };
    let bytes = text.as_bytes_with_nul();
    if bytes.len() > size {
        return minus_one(libc::ENOSPC);
    }
    // SAFETY: the caller's promise; the text fits.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len()) };
    bytes.len() as c_int - 1
}
