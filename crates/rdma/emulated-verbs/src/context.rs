//! Devices and contexts: what the objects of an open device share, and the limits of each device.

use crate::attributes::DeviceFacts;
use crate::connection::{Connection, DEVICE_PREFIX};
use isolane_rdma_verbs_sys::*;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Largest message, bytes.
pub const MESSAGE_MAX: u32 = 1 << 30;
/// Deepest queue.
pub const DEPTH_MAX: u32 = 1 << 15;
/// Most entries of a program's completion queues, together.
pub const ENTRIES_MAX: u32 = 1 << 22;
/// Most objects of each kind that a program may have.
pub const OBJECTS_MAX: u32 = 1 << 14;

/// A device of the list.
#[repr(C)]
pub struct Device {
    pub(crate) device: ibv_device,
    /// Provider libraries look for their own fields behind the public ones, and must find none.
    reserved: [u64; 64],
    /// What the broker says of it.
    pub facts: DeviceFacts,
}

/// Where places of a queue come back to: completions that were polled count.
#[derive(Debug, Default)]
pub struct Places {
    /// Send work requests that are over.
    pub sent: AtomicU64,
    /// Receives that are over.
    pub received: AtomicU64,
    /// The same of the shared receive queue, where there is one.
    pub shared: Option<Arc<AtomicU64>>,
}

/// An open device.
#[repr(C)]
pub struct Context {
    pub(crate) verbs: verbs_context,
    /// To the broker.
    pub connection: Connection,
    /// What it was opened from.
    pub device: &'static Device,
    /// Queue pairs by number; completions of others are void.
    pub places: RwLock<BTreeMap<u32, Arc<Places>>>,
    /// Addresses of queue pairs, completion queues and shared receive queues, for events.
    pub objects: Mutex<BTreeMap<(Kind, u32), usize>>,
    pub(crate) events: OwnedFd,
}

/// Kinds of objects that events name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A queue pair.
    Pair,
    /// A completion queue.
    Completions,
    /// A shared receive queue.
    SharedReceives,
}

/// Sets `errno` and answers null.
pub fn null<T>(errno: c_int) -> *mut T {
    // SAFETY: this thread's errno is writable.
    unsafe { *libc::__errno_location() = errno };
    std::ptr::null_mut()
}

/// Sets `errno` and answers -1.
pub fn minus_one(errno: c_int) -> c_int {
    let _: *mut c_void = null(errno);
    -1
}

/// Names a function that is not emulated; -1 and `EOPNOTSUPP`.
pub fn not_emulated(name: &str) -> c_int {
    crate::connection::say(&format!("{name} is not emulated"));
    minus_one(libc::EOPNOTSUPP)
}

/// Fills a C array of characters.
pub(crate) fn fill(target: &mut [c_char], text: &str) {
    let room = target.len() - 1;
    for (to, from) in target.iter_mut().zip(text.bytes().take(room)) {
        *to = from as c_char;
    }
}

impl Device {
    /// A device that lives as long as the program.
    pub(crate) fn leaked(facts: DeviceFacts) -> &'static Self {
        let mut device = ibv_device {
            node_type: facts.node_type as c_int,
            transport_type: facts.transport as c_int,
            ..ibv_device::default()
        };
        fill(&mut device.name, &format!("{DEVICE_PREFIX}{}", facts.host));
        fill(&mut device.dev_name, &format!("uverbs{}", facts.host));
        let path = format!("/nonexistent/isolane/rnic{}", facts.host);
        fill(&mut device.dev_path, &path);
        fill(&mut device.ibdev_path, &path);
        Box::leak(Box::new(Self {
            device,
            reserved: [0; 64],
            facts,
        }))
    }

    /// The device behind a pointer that the list gave out.
    ///
    /// # Safety
    /// The list gave it out.
    pub unsafe fn of(device: *mut ibv_device) -> &'static Self {
        // SAFETY: devices are leaked and begin with the public structure.
        unsafe { &*device.cast::<Self>() }
    }
}

impl Context {
    /// The context behind a pointer that `ibv_open_device` gave out.
    ///
    /// # Safety
    /// It is not closed.
    pub unsafe fn of<'a>(context: *mut ibv_context) -> &'a Self {
        // SAFETY: the public context is inside ours, at a fixed distance.
        unsafe {
            &*context
                .byte_sub(std::mem::offset_of!(verbs_context, context))
                .cast::<Self>()
        }
    }

    /// The places of a queue pair, while it exists.
    pub fn places_of(&self, qp_num: u32) -> Option<Arc<Places>> {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        places.get(&qp_num).cloned()
    }
}
