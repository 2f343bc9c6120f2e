//! Devices and what their ports say.

use super::VerbsError;
use crate::pacing::{Pacing, query_pacing};
use crate::*;
use std::ffi::CStr;
use std::sync::Arc;

/// The list of devices, freed when dropped.
struct DeviceList<'a> {
    library: &'a Library,
    list: *mut *mut ibv_device,
    count: usize,
}

impl<'a> DeviceList<'a> {
    fn new(library: &'a Library) -> Result<Self, VerbsError> {
        let mut count = 0;
        // SAFETY: `count` is writable.
        let list = unsafe { (library.get_device_list)(&mut count) };
        if list.is_null() {
            let error = std::io::Error::last_os_error();
            let reason = format!("the kernel has no RDMA support: {error}");
            return Err(VerbsError::NoDevices { reason });
        }
        let count = usize::try_from(count).unwrap_or(0);
        Ok(Self {
            library,
            list,
            count,
        })
    }

    fn devices(&self) -> impl Iterator<Item = (*mut ibv_device, String)> + '_ {
        (0..self.count).map(|index| {
            // SAFETY: the library's array has `count` devices, each with a terminated name, until it is freed.
            unsafe {
                let device = *self.list.add(index);
                let name = CStr::from_ptr((self.library.get_device_name)(device));
                (device, name.to_string_lossy().into_owned())
            }
        })
    }
}

impl Drop for DeviceList<'_> {
    fn drop(&mut self) {
        // SAFETY: the list is from get_device_list and is freed once.
        unsafe { (self.library.free_device_list)(self.list) };
    }
}

/// An open device.
#[derive(Debug)]
pub struct Context {
    pub(crate) library: Library,
    pub(crate) raw: *mut ibv_context,
    pub(crate) device: String,
}

// SAFETY: libibverbs' objects may be used by several threads (ibv_open_device(3), "THREAD SAFETY" of rdma-core).
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// What a port says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its number, from 1.
    pub number: u8,
    /// True when it carries traffic.
    pub active: bool,
    /// Active MTU, bytes.
    pub mtu: u32,
    /// LID; 0 on Ethernet.
    pub lid: u16,
    /// RoCE or iWARP: addresses are GIDs.
    pub ethernet: bool,
    /// Longest message, bytes.
    pub message_max: u32,
}

impl Context {
    /// Opens the device called `name`. Fails if there is no device, none of that name, or no permission.
    pub fn open(library: &Library, name: &str) -> Result<Arc<Self>, VerbsError> {
        let list = DeviceList::new(library)?;
        let Some((device, _)) = list.devices().find(|(_, other)| other == name) else {
            let names: Vec<String> = list.devices().map(|(_, name)| name).collect();
            return Err(match names.is_empty() {
                true => VerbsError::NoDevices {
                    reason: "libibverbs finds none".to_owned(),
                },
                false => VerbsError::UnknownDevice {
                    name: name.to_owned(),
                    available: names.join(", "),
                },
            });
        };
        // SAFETY: the device is of a list that is not yet freed.
        let raw = unsafe { (library.open_device)(device) };
        if raw.is_null() {
            return Err(VerbsError::last("ibv_open_device", name));
        }
        Ok(Arc::new(Self {
            library: *library,
            raw,
            device: name.to_owned(),
        }))
    }

    /// The device's name.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The device's limits.
    pub fn attributes(&self) -> Result<ibv_device_attr, VerbsError> {
        let mut attributes = ibv_device_attr::default();
        // SAFETY: an open context and a writable structure.
        let code = unsafe { (self.library.query_device)(self.raw, &mut attributes) };
        self.answer("ibv_query_device", code).map(|()| attributes)
    }

    /// Port `number` of the device. Fails if there is no such port.
    pub fn port(&self, number: u8) -> Result<Port, VerbsError> {
        let mut attributes = ibv_port_attr::default();
        // SAFETY: an open context and a writable structure.
        let code = unsafe { self.library.query_port(self.raw, number, &mut attributes) };
        self.answer("ibv_query_port", code)?;
        Ok(Port {
            number,
            active: attributes.state == IBV_PORT_ACTIVE,
            mtu: 128 << attributes.active_mtu.min(IBV_MTU_4096),
            lid: attributes.lid,
            ethernet: attributes.link_layer == IBV_LINK_LAYER_ETHERNET,
            message_max: attributes.max_msg_sz,
        })
    }

    /// GID `index` of port `port` and its type (`IBV_GID_TYPE_*`), which is IB where the library cannot say. Fails if
    /// there is no such index, or it is empty.
    pub fn gid(&self, port: u8, index: u32) -> Result<(ibv_gid, u32), VerbsError> {
        if let Some(query) = self.library.query_gid_ex {
            let mut entry = ibv_gid_entry::default();
            let size = size_of::<ibv_gid_entry>();
            // SAFETY: an open context and a writable entry of the given size.
            let code = unsafe { query(self.raw, port.into(), index, &mut entry, 0, size) };
            if code == 0 {
                return Ok((entry.gid, entry.gid_type));
            }
            if code.abs() == libc::ENODATA {
                return Err(VerbsError::code("ibv_query_gid_ex", &self.device, code));
            }
        }
        let mut gid = ibv_gid::default();
        let place = i32::try_from(index).unwrap_or(i32::MAX);
        // SAFETY: an open context and a writable GID.
        let code = unsafe { (self.library.query_gid)(self.raw, port, place, &mut gid) };
        self.answer("ibv_query_gid", code)?;
        Ok((gid, IBV_GID_TYPE_IB))
    }

    /// What the device can do about the rates of single queue pairs; `None`: nothing. An unknown question is no error.
    pub fn pacing(&self) -> Result<Option<Pacing>, VerbsError> {
        // SAFETY: an open context.
        let pacing = unsafe { query_pacing(self.raw) };
        pacing.map_err(|code| VerbsError::code("ibv_query_device_ex", &self.device, code))
    }

    pub(crate) fn answer(&self, verb: &'static str, code: i32) -> Result<(), VerbsError> {
        match code {
            0 => Ok(()),
            code => Err(VerbsError::code(verb, &self.device, code)),
        }
    }
}

/// The GIDs in a port's table with their index and type, at most 256.
pub fn port_gids(context: &Context, port: u8) -> impl Iterator<Item = (u8, ibv_gid, u32)> {
    let each = (0..=u8::MAX).map(move |index| (index, context.gid(port, index.into())));
    // Tables have holes, but small devices end early: a run of holes at the start is still looked through.
    let there = each.take_while(|(index, gid)| gid.is_ok() || *index <= 32);
    there.filter_map(|(index, gid)| gid.ok().map(|(gid, kind)| (index, gid, kind)))
}

/// The index and value of the GID to send from: RoCE v2 over IPv4 first, then any RoCE v2, then index 0. Fails if the
/// port has no GID at all.
pub fn port_gid(context: &Context, port: u8) -> Result<(u8, ibv_gid), VerbsError> {
    let mut best: Option<(u8, ibv_gid)> = None;
    for (index, gid, kind) in port_gids(context, port) {
        let over_ipv4 = gid.raw[..10] == [0; 10] && gid.raw[10..12] == [0xff; 2];
        match kind == IBV_GID_TYPE_ROCE_V2 {
            true if over_ipv4 => return Ok((index, gid)),
            true => best = best.or(Some((index, gid))),
            false => {}
        }
    }
    match best {
        Some(best) => Ok(best),
        None => context.gid(port, 0).map(|(gid, _)| (0, gid)),
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: opened once, closed once; everything made from it held it and is gone. A failure leaves nothing to do.
        unsafe { (self.library.close_device)(self.raw) };
    }
}
