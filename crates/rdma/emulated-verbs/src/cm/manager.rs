//! The process's connection to the broker, the devices that rdma_cm has opened, and identifiers by number.

use super::layout::rdma_cm_id;
use super::verbs;
use crate::attributes::DeviceFacts;
use crate::connection::{Answer, Connection, lock};
use crate::context::Device;
use crate::device;
use crate::wire::{HOST_VARIABLE, VERSION, Writer, op};
use isolane_rdma_verbs_sys::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::sync::{Arc, Mutex, OnceLock};

/// An open device, and the protection domain of identifiers without one of their own.
#[derive(Clone, Copy)]
struct Opened {
    context: usize,
    pd: usize,
}

static MANAGER: Mutex<Option<(u32, Arc<Connection>)>> = Mutex::new(None);
static OPENED: Mutex<BTreeMap<u32, Opened>> = Mutex::new(BTreeMap::new());
static CHANNELS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
static IDS: Mutex<BTreeMap<u32, usize>> = Mutex::new(BTreeMap::new());

/// The connection of this process. A child of fork(2) has its own.
fn connection() -> Result<Arc<Connection>, c_int> {
    let mut manager = lock(&MANAGER);
    let own = std::process::id();
    if let Some((process, connection)) = &*manager
        && *process == own
    {
        return Ok(Arc::clone(connection));
    }
    let connection = Arc::new(Connection::new()?);
    connection.call(&Writer::of(&[op::CM_OPEN, VERSION]))?;
    *manager = Some((own, Arc::clone(&connection)));
    Ok(connection)
}

/// Sends a request and waits for its answer; the error is an `errno` value.
pub(super) fn call(request: &Writer) -> Result<Answer, c_int> {
    connection()?.call(request)
}

/// The devices of all hosts, whichever this program sees.
pub(super) fn hosts() -> Result<&'static [DeviceFacts], c_int> {
    static HOSTS: OnceLock<Vec<DeviceFacts>> = OnceLock::new();
    if let Some(hosts) = HOSTS.get() {
        return Ok(hosts);
    }
    let hosts = Connection::list_of(None)?;
    Ok(HOSTS.get_or_init(|| hosts))
}

/// What is known of a host's device.
pub(super) fn facts(host: u32) -> Result<&'static DeviceFacts, c_int> {
    let found = hosts()?.iter().find(|facts| facts.host == host);
    found.ok_or(libc::ENODEV)
}

/// The host whose device alone this program sees.
pub(super) fn own_host() -> Option<u32> {
    std::env::var(HOST_VARIABLE).ok()?.parse().ok()
}

/// Whether this program sees the device of `host`.
pub(super) fn sees(host: u32) -> bool {
    own_host().is_none_or(|own| own == host) && facts(host).is_ok()
}

/// The device of `host`, opened once, and its common protection domain.
pub(super) fn opened(host: u32) -> Result<(*mut ibv_context, *mut ibv_pd), c_int> {
    let mut all = lock(&OPENED);
    let opened = match all.get(&host) {
        Some(opened) => *opened,
        None => *all.entry(host).or_insert(open(host)?),
    };
    Ok((
        std::ptr::with_exposed_provenance_mut(opened.context),
        std::ptr::with_exposed_provenance_mut(opened.pd),
    ))
}

fn open(host: u32) -> Result<Opened, c_int> {
    let mut devices = device::devices()?.iter();
    let found = devices.find(|device| device.facts.host == host);
    let device: &'static Device = found.ok_or(libc::ENODEV)?;
    // SAFETY: the list has the device, and the context is open.
    let (context, pd) = unsafe {
        let context = verbs::open_device((&raw const *device).cast_mut().cast());
        if context.is_null() {
            return Err(errno());
        }
        (context, verbs::alloc_pd(context))
    };
    if pd.is_null() {
        return Err(errno());
    }
    Ok(Opened {
        context: context.expose_provenance(),
        pd: pd.expose_provenance(),
    })
}

/// This thread's `errno`.
pub(super) fn errno() -> c_int {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// Remembers that a channel exists, or that it does not any more.
pub(super) fn set_channel(number: u32, exists: bool) {
    let mut channels = lock(&CHANNELS);
    match exists {
        true => channels.insert(number),
        false => channels.remove(&number),
    };
}

/// Whether a channel exists.
pub(super) fn has_channel(number: u32) -> bool {
    lock(&CHANNELS).contains(&number)
}

/// Remembers where an identifier is.
pub(super) fn enter(number: u32, id: *mut rdma_cm_id) {
    lock(&IDS).insert(number, id.expose_provenance());
}

/// Forgets an identifier.
pub(super) fn forget(number: u32) {
    lock(&IDS).remove(&number);
}

/// The identifier with this number, if it is not destroyed.
pub(super) fn identifier(number: u32) -> Option<*mut rdma_cm_id> {
    let place = lock(&IDS).get(&number).copied();
    place.map(std::ptr::with_exposed_provenance_mut)
}
