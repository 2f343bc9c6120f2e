//! What a channel and an identifier are to the library, and what every other file here does with them.

use super::address;
use super::layout::*;
use super::manager::{self, call, enter, facts};
use super::message::{PORTS_UDP, Parameters};
use crate::context::minus_one;
use crate::wire::{Writer, pack};
use isolane_rdma_verbs_sys::*;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::OwnedFd;
use std::sync::Mutex;

/// A channel; begins like the public structure.
#[repr(C)]
pub struct Channel {
    pub(super) channel: rdma_event_channel,
    /// Its number at the broker.
    pub number: u32,
    pub(super) events: OwnedFd,
}

/// An identifier; begins like the public structure.
#[repr(C)]
pub struct Identifier {
    /// The public part, which the program writes too.
    pub(super) id: UnsafeCell<rdma_cm_id>,
    /// Its number at the broker.
    pub number: u32,
    /// What the library knows of it.
    pub inner: Mutex<Inner>,
}

/// What the library knows of an identifier.
#[derive(Default)]
pub struct Inner {
    /// Whether the calls wait for their events: it was created without a channel.
    pub is_synchronous: bool,
    /// The other end's host.
    pub remote_host: Option<u32>,
    /// What the other end sent.
    pub peer: Parameters,
    /// READs and atomics of the connection: those that it answers and those that it requests.
    pub depths: (u8, u8),
    /// Retries that the program asked for: without an answer, and of a receiver that is not ready.
    pub retries: (u8, u8),
    /// Traffic class of its packets.
    pub traffic_class: u8,
    /// Queue pairs of requests to an endpoint that listens.
    pub endpoint: Option<ibv_qp_init_attr>,
}

// SAFETY: the pointers of `endpoint` are the program's; the library passes them on and uses none.
unsafe impl Send for Inner {}

impl Identifier {
    /// The identifier behind a pointer that the library gave out.
    ///
    /// # Safety
    /// The library gave it out, and it is not destroyed.
    pub unsafe fn of<'a>(id: *mut rdma_cm_id) -> &'a Self {
        // SAFETY: ours begin with the public structure.
        unsafe { &*id.cast::<Self>() }
    }

    /// Whether it is for datagrams.
    pub fn is_datagram(&self) -> bool {
        // SAFETY: nothing writes this field after the identifier is made.
        unsafe { (*self.id.get()).ps == PORTS_UDP }
    }
}

/// 0, or -1 and `errno`.
pub(super) fn done(result: Result<(), c_int>) -> c_int {
    result.map_or_else(minus_one, |()| 0)
}

/// A request about an identifier whose answer has no words.
pub(super) fn ask(operation: u64, number: u32, more: u32) -> Result<(), c_int> {
    call(&Writer::of(&[operation, pack(number, more)])).map(|_| ())
}

/// The number of a channel at the broker.
///
/// # Safety
/// [`create_channel`] returned it.
pub(super) unsafe fn number_of(channel: *mut rdma_event_channel) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { (*channel.cast::<Channel>()).number }
}

/// An identifier of the broker's as the program sees it.
pub(super) fn place(
    number: u32,
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    ports: c_uint,
) -> *mut rdma_cm_id {
    // SAFETY: integers and pointers only, so that zero is a value of each.
    let mut id: rdma_cm_id = unsafe { std::mem::zeroed() };
    id.channel = channel;
    id.context = context;
    id.ps = ports;
    id.qp_type = match ports {
        PORTS_UDP => IBV_QPT_UD,
        _ => IBV_QPT_RC,
    };
    let id = Identifier {
        id: UnsafeCell::new(id),
        number,
        inner: Mutex::default(),
    };
    let id = Box::into_raw(Box::new(id)).cast();
    enter(number, id);
    id
}

/// Connects an identifier with the device of its own host.
///
/// # Safety
/// The identifier exists.
pub(super) unsafe fn attach(id: *mut rdma_cm_id, host: u32) -> Result<(), c_int> {
    let (context, pd) = manager::opened(host)?;
    // SAFETY: the caller's promise.
    unsafe {
        (*id).verbs = context;
        (*id).port_num = 1;
        if (*id).pd.is_null() {
            (*id).pd = pd;
        }
    }
    Ok(())
}

/// Writes the addresses of both ends that an event names.
///
/// # Safety
/// The identifier exists.
pub(super) unsafe fn name_ends(id: *mut rdma_cm_id, local: (u32, u16), remote: (u32, u16)) {
    // SAFETY: the caller's promise.
    unsafe {
        let route = &mut (*id).route.addr;
        address::write(&mut route.src, address::of_host(local.0).into(), local.1);
        if address::read((&raw const route.dst).cast()).is_none() {
            address::write(&mut route.dst, address::of_host(remote.0).into(), remote.1);
        }
        if let (Ok(here), Ok(there)) = (facts(local.0), facts(remote.0)) {
            let gid = |words: [u64; 2]| {
                let mut raw = [0; 16];
                raw[..8].copy_from_slice(&words[0].to_ne_bytes());
                raw[8..].copy_from_slice(&words[1].to_ne_bytes());
                ibv_gid { raw }
            };
            let last = here.gids.len() - 1;
            route.addr = rdma_ib_addr {
                sgid: gid(here.gids[last]),
                dgid: gid(there.gids[last]),
                pkey: u16::MAX,
            };
        }
    }
}
