//! Completion queues, plain and extended, and the channels of their events.

use crate::connection::lock;
use crate::context::{Context, ENTRIES_MAX, Kind, minus_one, null};
use crate::memory::destroy;
use crate::ring::{Entry, Ring};
use crate::wire::{Writer, op, pack};
use isolane_rdma_verbs_sys::*;
use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

/// A channel; begins like the public structure.
#[repr(C)]
pub struct Channel {
    channel: ibv_comp_channel,
    handle: u32,
    events: OwnedFd,
}

/// A completion queue; begins like the public structure.
#[repr(C)]
pub struct Completions {
    cq: ibv_cq_ex,
    memory: Mutex<Memory>,
    /// Between the beginning and the end of extended polling.
    current: Mutex<Entry>,
}

/// The memory of a completion queue.
#[derive(Debug)]
struct Memory {
    ring: Ring,
    /// The memory of a resize that the broker has made, until this process has mapped it: its file, its entries, and how many
    /// entries of `ring` belong into it.
    next: Option<(OwnedFd, u32, u64)>,
}

impl Memory {
    /// The queue; `None` after a resize whose memory this process could not map.
    fn ring(&self) -> Option<&Ring> {
        self.next.is_none().then_some(&self.ring)
    }

    /// Maps the memory of a resize, if there is one, and copies the completions that were not polled.
    fn advance(&mut self) -> Result<(), c_int> {
        if let Some((file, entries, waiting)) = &self.next {
            let new = Ring::map(file, *entries).map_err(|error| error.raw_os_error())?;
            new.take_over(&self.ring, *waiting);
            (self.ring, self.next) = (new, None);
        }
        Ok(())
    }
}

/// `ibv_create_comp_channel`.
///
/// # Safety
/// The context is open.
pub unsafe fn create_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    // SAFETY: the caller's promise.
    let ours = unsafe { Context::of(context) };
    let request = Writer::of(&[op::CREATE_CHANNEL]);
    let answer = ours.connection.call(&request).and_then(|answer| {
        let handle = answer.reader().number().ok_or(libc::EPROTO)?;
        Ok((handle, answer.fd.ok_or(libc::EPROTO)?))
    });
    match answer {
        Ok((handle, events)) => {
            let channel = ibv_comp_channel {
                context,
                fd: events.as_raw_fd(),
                refcnt: 0,
            };
            Box::into_raw(Box::new(Channel {
                channel,
                handle,
                events,
            }))
            .cast()
        }
        Err(errno) => null(errno),
    }
}

/// `ibv_destroy_comp_channel`.
///
/// # Safety
/// [`create_channel`] gave it out.
pub unsafe fn destroy_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the caller's promise; it is freed once, when the broker has let it go.
    unsafe {
        let ours = channel.cast::<Channel>();
        match destroy((*channel).context, op::DESTROY_CHANNEL, (*ours).handle) {
            0 => drop(Box::from_raw(ours)),
            errno => return errno,
        }
    }
    0
}

/// `ibv_create_cq`.
///
/// # Safety
/// The context is open, and the channel null or one of its own.
pub unsafe fn create(
    context: *mut ibv_context,
    cqe: c_int,
    user: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    if cqe <= 0 || cqe as u32 > ENTRIES_MAX || vector != 0 {
        return null(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    unsafe { new(context, cqe as u32, user, channel).cast() }
}

pub(crate) unsafe extern "C" fn create_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: the header's function gives an open context and its program's attributes.
    unsafe {
        let attr = &*attr;
        let masks = attr.comp_mask & !IBV_CQ_INIT_ATTR_MASK_FLAGS;
        let flags = match attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS {
            0 => 0,
            _ => attr.flags & !IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
        };
        if masks != 0 || flags != 0 || attr.wc_flags & !READABLE != 0 {
            return null(libc::EOPNOTSUPP);
        }
        if attr.cqe == 0 || attr.cqe > ENTRIES_MAX || attr.comp_vector != 0 {
            return null(libc::EINVAL);
        }
        new(context, attr.cqe, attr.cq_context, attr.channel).cast()
    }
}

/// The fields that an extended queue supports (`ibv_create_cq_wc_flags`).
const READABLE: u64 = IBV_WC_STANDARD_FLAGS as u64
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP as u64
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK as u64;

unsafe fn new(
    context: *mut ibv_context,
    entries: u32,
    user: *mut c_void,
    channel: *mut ibv_comp_channel,
) -> *mut Completions {
    // SAFETY: the callers' promise.
    let (ours, channel_handle) = unsafe {
        let handle = match channel.is_null() {
            true => u32::MAX,
            false => (*channel.cast::<Channel>()).handle,
        };
        (Context::of(context), handle)
    };
    let request = Writer::of(&[op::CREATE_CQ, pack(entries, channel_handle)]);
    let made = ours.connection.call(&request).and_then(|answer| {
        let handle = answer.reader().number().ok_or(libc::EPROTO)?;
        let fd = answer.fd.ok_or(libc::EPROTO)?;
        let ring = Ring::map(fd, entries).map_err(|error| error.raw_os_error())?;
        Ok((handle, ring))
    });
    let (handle, ring) = match made {
        Ok(made) => made,
        Err(errno) => return null(errno),
    };
    let cq = ibv_cq_ex {
        context,
        channel,
        cq_context: user,
        handle,
        cqe: entries as c_int,
        start_poll: Some(start_poll),
        next_poll: Some(next_poll),
        end_poll: Some(end_poll),
        read_opcode: Some(read_opcode),
        read_vendor_err: Some(read_vendor_err),
        read_byte_len: Some(read_byte_len),
        read_imm_data: Some(read_imm_data),
        read_qp_num: Some(read_qp_num),
        read_src_qp: Some(read_src_qp),
        read_wc_flags: Some(read_wc_flags),
        read_slid: Some(read_slid),
        read_sl: Some(read_sl),
        read_dlid_path_bits: Some(read_dlid_path_bits),
        read_completion_ts: Some(read_completion_ts),
        read_completion_wallclock_ns: Some(read_completion_ts),
        ..ibv_cq_ex::default()
    };
    let completions = Box::into_raw(Box::new(Completions {
        cq,
        memory: Mutex::new(Memory { ring, next: None }),
        current: Mutex::default(),
    }));
    lock(&ours.objects).insert((Kind::Completions, handle), completions.expose_provenance());
    completions
}

/// `ibv_resize_cq`. What was not polled moves to the new queue; a queue that is too small for it is not made. If the new
/// memory cannot be mapped, polls and requests for events fail until another resize succeeds, which loses nothing.
///
/// # Safety
/// [`create`] or the extended call returned the queue, and it exists.
pub unsafe fn resize(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    let entries = match u32::try_from(cqe) {
        Ok(entries) if (1..=ENTRIES_MAX).contains(&entries) => entries,
        _ => return libc::EINVAL,
    };
    // SAFETY: the caller's promise.
    let (ours, context, handle) = unsafe {
        let ours = &*cq.cast::<Completions>();
        (ours, Context::of((*cq).context), (*cq).handle)
    };
    // Nobody polls or arms before the new queue has what was not polled.
    let mut memory = lock(&ours.memory);
    let resized = memory.advance().and_then(|()| {
        let request = Writer::of(&[op::RESIZE_CQ, pack(handle, entries)]);
        let answer = context.connection.call(&request)?;
        let waiting = answer.reader().word().ok_or(libc::EPROTO)?;
        // From here on the broker writes to the new queue only.
        memory.next = Some((answer.fd.ok_or(libc::EPROTO)?, entries, waiting));
        memory.advance()
    });
    // SAFETY: the caller's promise; programs read the size when they have resized.
    unsafe { (*cq).cqe = memory.ring.capacity() as c_int };
    resized.err().unwrap_or(0)
}

/// `ibv_modify_cq`: moderation of events changes nothing, as every completion is a moment of its own.
pub(crate) unsafe extern "C" fn modify(_: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    // SAFETY: the header's function gives its program's attributes.
    match unsafe { (*attr).attr_mask } {
        0 | IBV_CQ_ATTR_MODERATE => 0,
        _ => libc::EINVAL,
    }
}

/// `ibv_destroy_cq`.
///
/// # Safety
/// [`create`] or the extended call returned it, and no thread polls it any more.
pub unsafe fn destroy_queue(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the caller's promise; it is freed once, when the broker has let it go.
    unsafe {
        let handle = (*cq).handle;
        match destroy((*cq).context, op::DESTROY_CQ, handle) {
            0 => {
                let ours = Context::of((*cq).context);
                lock(&ours.objects).remove(&(Kind::Completions, handle));
                drop(Box::from_raw(cq.cast::<Completions>()));
            }
            errno => return errno,
        }
    }
    0
}

/// `ibv_get_cq_event`: waits for an event; -1 where the descriptor is not to block.
///
/// # Safety
/// The channel exists, and the targets are writable.
pub unsafe fn event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    user: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let (ours, context) = unsafe {
        let ours = &*channel.cast::<Channel>();
        (ours, Context::of(ours.channel.context))
    };
    loop {
        let mut bytes = [0; 8];
        match rustix::io::read(&ours.events, &mut bytes) {
            Ok(8) => {}
            Ok(_) => return minus_one(libc::EIO),
            Err(error) => return minus_one(error.raw_os_error()),
        }
        let handle = u64::from_ne_bytes(bytes) as u32;
        // An event of a queue that is gone is about nothing.
        if let Some(&address) = lock(&context.objects).get(&(Kind::Completions, handle)) {
            // SAFETY: the caller's promise; queues leave the table before they are freed.
            unsafe {
                *cq = std::ptr::with_exposed_provenance_mut(address);
                *user = (**cq).cq_context;
            }
            return 0;
        }
    }
}

/// `ibv_ack_cq_events`.
///
/// # Safety
/// The queue exists.
pub unsafe fn ack_events(cq: *mut ibv_cq, count: c_uint) {
    // SAFETY: the caller's promise.
    unsafe { (*cq).comp_events_completed = (*cq).comp_events_completed.wrapping_add(count) };
}

pub(crate) unsafe extern "C" fn arm(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the header's function gives a queue of ours.
    let ours = unsafe { &*cq.cast::<Completions>() };
    let memory = lock(&ours.memory);
    let Some(ring) = memory.ring() else {
        return libc::EIO;
    };
    ring.arm(solicited_only != 0);
    0
}

/// The oldest completion of a queue pair that still exists; its places are free again.
fn take(context: &Context, ring: &Ring) -> Option<Entry> {
    loop {
        let entry = ring.pop()?;
        let Some(places) = context.places_of(entry.qp_num) else {
            continue;
        };
        let over = match (entry.receive, &places.shared) {
            (true, Some(shared)) => {
                shared.fetch_add(1, Ordering::AcqRel);
                return Some(entry);
            }
            (true, None) => &places.received,
            (false, _) => &places.sent,
        };
        // Completions of before a reset are void: all that was posted is over since then.
        if entry.sequence >= over.load(Ordering::Acquire) {
            over.store(entry.sequence + 1, Ordering::Release);
            return Some(entry);
        }
    }
}

pub(crate) unsafe extern "C" fn poll(cq: *mut ibv_cq, count: c_int, target: *mut ibv_wc) -> c_int {
    // SAFETY: the header's function gives a queue of ours, with room for `count` completions.
    let ours = unsafe { &*cq.cast::<Completions>() };
    let memory = lock(&ours.memory);
    let Some(ring) = memory.ring() else {
        return -1;
    };
    // SAFETY: as above.
    let context = unsafe { Context::of((*cq).context) };
    let mut taken = 0;
    while taken < count {
        let Some(entry) = take(context, ring) else {
            break;
        };
        let wc = ibv_wc {
            wr_id: entry.wr_id,
            status: entry.status,
            opcode: entry.opcode,
            vendor_err: 0,
            byte_len: entry.byte_len,
            imm_data: entry.immediate,
            qp_num: entry.qp_num,
            src_qp: entry.src_qp,
            wc_flags: entry.flags,
            pkey_index: 0,
            slid: entry.slid,
            sl: entry.sl,
            dlid_path_bits: 0,
        };
        // SAFETY: `taken` is below `count`.
        unsafe { target.add(taken as usize).write(wc) };
        taken += 1;
    }
    taken
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the header's function gives a queue of ours and its program's attributes.
    unsafe {
        if (*attr).comp_mask != 0 {
            return libc::EINVAL;
        }
        next_poll(cq)
    }
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the header's function gives a queue of ours.
    unsafe {
        let ours = &*cq.cast::<Completions>();
        let memory = lock(&ours.memory);
        let Some(ring) = memory.ring() else {
            return libc::EIO;
        };
        match take(Context::of((*cq).context), ring) {
            None => libc::ENOENT,
            Some(entry) => {
                (*cq).wr_id = entry.wr_id;
                (*cq).status = entry.status;
                *lock(&ours.current) = entry;
                0
            }
        }
    }
}

unsafe extern "C" fn end_poll(_: *mut ibv_cq_ex) {}

macro_rules! readers {
    ($($name:ident -> $ty:ty = |$entry:ident| $value:expr;)*) => { $(
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $ty {
            // SAFETY: the header's function gives a queue of ours.
            let $entry = *lock(unsafe { &(*cq.cast::<Completions>()).current });
            $value
        }
    )* };
}

readers! {
    read_opcode -> ibv_wc_opcode = |entry| entry.opcode;
    read_vendor_err -> u32 = |_entry| 0;
    read_byte_len -> u32 = |entry| entry.byte_len;
    read_imm_data -> u32 = |entry| entry.immediate;
    read_qp_num -> u32 = |entry| entry.qp_num;
    read_src_qp -> u32 = |entry| entry.src_qp;
    read_wc_flags -> c_uint = |entry| entry.flags;
    read_slid -> u32 = |entry| u32::from(entry.slid);
    read_sl -> u8 = |entry| entry.sl;
    read_dlid_path_bits -> u8 = |_entry| 0;
    read_completion_ts -> u64 = |entry| entry.timestamp;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_without_its_memory_fails_visibly_and_loses_nothing() {
        let completion = Entry {
            wr_id: 7,
            ..Entry::default()
        };
        let (broker, file) = Ring::create(1).unwrap();
        let ring = Ring::map(&file, 1).unwrap();
        assert!(broker.push(&completion));
        let (new, file) = Ring::create(2).unwrap();
        let waiting = broker.continue_in(&new, 0).unwrap();
        // A size that the file does not have cannot be mapped.
        let next = Some((file, 3, waiting));
        let mut queue = Completions {
            cq: ibv_cq_ex::default(),
            memory: Mutex::new(Memory { ring, next }),
            current: Mutex::default(),
        };
        let cq = (&raw mut queue).cast();
        let mut wc = ibv_wc::default();
        // SAFETY: a queue of ours, which has no context to look at; the attributes and the target exist.
        unsafe {
            assert_eq!(poll(cq, 1, &raw mut wc), -1);
            assert_eq!(arm(cq, 0), libc::EIO);
            let mut attr = ibv_poll_cq_attr::default();
            assert_eq!(start_poll(cq.cast(), &raw mut attr), libc::EIO);
        }
        let memory = queue.memory.get_mut().unwrap();
        assert_eq!(memory.advance(), Err(libc::EINVAL));
        memory.next.as_mut().unwrap().1 = 2;
        memory.advance().unwrap();
        assert_eq!(memory.ring().unwrap().pop(), Some(completion));
    }
}
