//! libibverbs, opened when it is needed.
//!
//! Problem: a program that links libibverbs does not start on a machine without it, and most of what Isolane does
//! needs no RDMA at all. Method: open the library on first use and look its functions up by name.
//! Two ways of looking up, since a preload library must be able to come first for an ordinary program, and must not
//! find itself when it is the one who asks: [`Lookup`].
//! Symbol versions: libibverbs exports some functions twice; version 1.0 has other structures than the header.
//! The unversioned lookup of [`Lookup::Program`] gives the default, which is 1.1; [`Lookup::Library`] names the
//! version.

use crate::*;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// Name of the library.
pub const SONAME: &CStr = c"libibverbs.so.1";

/// Where functions are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// As in a program that was linked with libibverbs: a preload library's function comes first.
    Program,
    /// In libibverbs itself, past every preload library: for the preload library.
    Library,
}

/// Why libibverbs cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum LibraryError {
    /// The library is not there, or one of its own libraries is not.
    #[error(
        "libibverbs.so.1 cannot be opened ({reason}); install it: `apt install libibverbs1 ibverbs-providers` on \
         Debian and Ubuntu, `dnf install libibverbs` on Fedora and RHEL"
    )]
    Missing { reason: String },
    #[error(
        "libibverbs.so.1 has no function `{symbol}`; it is older than rdma-core or damaged: install rdma-core 17 or newer"
    )]
    Incomplete { symbol: &'static str },
}

macro_rules! library {
    ($( $(#[$meta:meta])* $kind:ident $field:ident : $symbol:literal @ $version:literal
        ( $($ty:ty),* ) $(-> $answer:ty)? ; )*) => {
        /// The functions of libibverbs. Fields named `Option` are missing in old libraries.
        ///
        /// Calling one is `unsafe`: the rules are those of its manual page.
        #[derive(Clone, Copy, Debug)]
        pub struct Library {
            $(
                #[doc = concat!("The symbol `", stringify!($symbol), "`.")]
                $(#[$meta])*
                pub $field: library!(@type $kind unsafe extern "C" fn($($ty),*) $(-> $answer)?),
            )*
        }

        impl Library {
            /// Opens libibverbs and finds its functions. Fails if the library is not installed, or is not a libibverbs.
            pub fn open(lookup: Lookup) -> Result<Self, LibraryError> {
                let found = Symbols::open(lookup)?;
                Ok(Self { $( $field: {
                    let address = found.find($symbol, $version);
                    library!(@value $kind address, $symbol, unsafe extern "C" fn($($ty),*) $(-> $answer)?)
                }, )* })
            }
        }
    };
    (@type required $ty:ty) => { $ty };
    (@type optional $ty:ty) => { Option<$ty> };
    (@value required $address:ident, $symbol:literal, $ty:ty) => {{
        let symbol = $symbol.to_str().unwrap_or("?");
        let address = $address.ok_or(LibraryError::Incomplete { symbol })?;
        // SAFETY: the address is that of the function of this name and version, whose signature the header gives;
        // the library is never closed.
        unsafe { std::mem::transmute::<*mut c_void, $ty>(address) }
    }};
    (@value optional $address:ident, $symbol:literal, $ty:ty) => {
        // SAFETY: as above.
        $address.map(|address| unsafe { std::mem::transmute::<*mut c_void, $ty>(address) })
    };
}

library! {
    required get_device_list: c"ibv_get_device_list" @ c"IBVERBS_1.1" (*mut c_int) -> *mut *mut ibv_device;
    required free_device_list: c"ibv_free_device_list" @ c"IBVERBS_1.1" (*mut *mut ibv_device);
    required get_device_name: c"ibv_get_device_name" @ c"IBVERBS_1.1" (*mut ibv_device) -> *const c_char;
    /// In network order.
    required get_device_guid: c"ibv_get_device_guid" @ c"IBVERBS_1.1" (*mut ibv_device) -> u64;
    required open_device: c"ibv_open_device" @ c"IBVERBS_1.1" (*mut ibv_device) -> *mut ibv_context;
    /// `verbs_open_device`, for the libraries of vendors. Its version is that of the library's release.
    optional open_device_by_vendor: c"verbs_open_device" @ c"" (*mut ibv_device, *mut c_void) -> *mut ibv_context;
    required close_device: c"ibv_close_device" @ c"IBVERBS_1.1" (*mut ibv_context) -> c_int;
    optional import_device: c"ibv_import_device" @ c"IBVERBS_1.10" (c_int) -> *mut ibv_context;
    required get_async_event: c"ibv_get_async_event" @ c"IBVERBS_1.1" (*mut ibv_context, *mut ibv_async_event) -> c_int;
    required ack_async_event: c"ibv_ack_async_event" @ c"IBVERBS_1.1" (*mut ibv_async_event);
    required query_device: c"ibv_query_device" @ c"IBVERBS_1.1" (*mut ibv_context, *mut ibv_device_attr) -> c_int;
    /// The old one, which fills all but the last field; see [`Library::query_port`].
    required query_port_compat: c"ibv_query_port" @ c"IBVERBS_1.1" (*mut ibv_context, u8, *mut c_void) -> c_int;
    required query_gid: c"ibv_query_gid" @ c"IBVERBS_1.1" (*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int;
    /// `_ibv_query_gid_ex`: the last argument is the size of the entry.
    optional query_gid_ex: c"_ibv_query_gid_ex" @ c"IBVERBS_1.11" (*mut ibv_context, u32, u32, *mut ibv_gid_entry, u32, usize) -> c_int;
    /// In network order.
    required query_pkey: c"ibv_query_pkey" @ c"IBVERBS_1.1" (*mut ibv_context, u8, c_int, *mut u16) -> c_int;
    required alloc_pd: c"ibv_alloc_pd" @ c"IBVERBS_1.1" (*mut ibv_context) -> *mut ibv_pd;
    required dealloc_pd: c"ibv_dealloc_pd" @ c"IBVERBS_1.1" (*mut ibv_pd) -> c_int;
    required reg_mr: c"ibv_reg_mr" @ c"IBVERBS_1.1" (*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    optional reg_mr_iova: c"ibv_reg_mr_iova" @ c"IBVERBS_1.7" (*mut ibv_pd, *mut c_void, usize, u64, c_int) -> *mut ibv_mr;
    /// It is for the optional access flags.
    optional reg_mr_iova2: c"ibv_reg_mr_iova2" @ c"IBVERBS_1.8" (*mut ibv_pd, *mut c_void, usize, u64, c_uint) -> *mut ibv_mr;
    optional reg_dmabuf_mr: c"ibv_reg_dmabuf_mr" @ c"IBVERBS_1.12" (*mut ibv_pd, u64, usize, u64, c_int, c_int) -> *mut ibv_mr;
    required rereg_mr: c"ibv_rereg_mr" @ c"IBVERBS_1.1" (*mut ibv_mr, c_int, *mut ibv_pd, *mut c_void, usize, c_int) -> c_int;
    required dereg_mr: c"ibv_dereg_mr" @ c"IBVERBS_1.1" (*mut ibv_mr) -> c_int;
    required create_comp_channel: c"ibv_create_comp_channel" @ c"IBVERBS_1.0" (*mut ibv_context) -> *mut ibv_comp_channel;
    required destroy_comp_channel: c"ibv_destroy_comp_channel" @ c"IBVERBS_1.0" (*mut ibv_comp_channel) -> c_int;
    required create_cq: c"ibv_create_cq" @ c"IBVERBS_1.1" (*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    required resize_cq: c"ibv_resize_cq" @ c"IBVERBS_1.1" (*mut ibv_cq, c_int) -> c_int;
    required destroy_cq: c"ibv_destroy_cq" @ c"IBVERBS_1.1" (*mut ibv_cq) -> c_int;
    required get_cq_event: c"ibv_get_cq_event" @ c"IBVERBS_1.1" (*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    required ack_cq_events: c"ibv_ack_cq_events" @ c"IBVERBS_1.1" (*mut ibv_cq, c_uint);
    required create_srq: c"ibv_create_srq" @ c"IBVERBS_1.1" (*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    required modify_srq: c"ibv_modify_srq" @ c"IBVERBS_1.1" (*mut ibv_srq, *mut ibv_srq_attr, c_int) -> c_int;
    required query_srq: c"ibv_query_srq" @ c"IBVERBS_1.1" (*mut ibv_srq, *mut ibv_srq_attr) -> c_int;
    required destroy_srq: c"ibv_destroy_srq" @ c"IBVERBS_1.1" (*mut ibv_srq) -> c_int;
    required create_qp: c"ibv_create_qp" @ c"IBVERBS_1.1" (*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    required modify_qp: c"ibv_modify_qp" @ c"IBVERBS_1.1" (*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    required query_qp: c"ibv_query_qp" @ c"IBVERBS_1.1" (*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
    required destroy_qp: c"ibv_destroy_qp" @ c"IBVERBS_1.1" (*mut ibv_qp) -> c_int;
    optional qp_to_qp_ex: c"ibv_qp_to_qp_ex" @ c"IBVERBS_1.6" (*mut ibv_qp) -> *mut ibv_qp_ex;
    required create_ah: c"ibv_create_ah" @ c"IBVERBS_1.1" (*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
    required destroy_ah: c"ibv_destroy_ah" @ c"IBVERBS_1.1" (*mut ibv_ah) -> c_int;
    required attach_mcast: c"ibv_attach_mcast" @ c"IBVERBS_1.1" (*mut ibv_qp, *const ibv_gid, u16) -> c_int;
    required detach_mcast: c"ibv_detach_mcast" @ c"IBVERBS_1.1" (*mut ibv_qp, *const ibv_gid, u16) -> c_int;
    required fork_init: c"ibv_fork_init" @ c"IBVERBS_1.1" () -> c_int;
    optional set_ece: c"ibv_set_ece" @ c"IBVERBS_1.10" (*mut ibv_qp, *mut ibv_ece) -> c_int;
    optional query_ece: c"ibv_query_ece" @ c"IBVERBS_1.10" (*mut ibv_qp, *mut ibv_ece) -> c_int;
    required wc_status_str: c"ibv_wc_status_str" @ c"IBVERBS_1.1" (ibv_wc_status) -> *const c_char;
    required event_type_str: c"ibv_event_type_str" @ c"IBVERBS_1.1" (ibv_event_type) -> *const c_char;
    required port_state_str: c"ibv_port_state_str" @ c"IBVERBS_1.1" (ibv_port_state) -> *const c_char;
}

impl Library {
    /// Attributes of a port, with the extended query where the library has it (the header's `ibv_query_port`).
    ///
    /// # Safety
    /// `context` is open and `attr` writable.
    pub unsafe fn query_port(
        &self,
        context: *mut ibv_context,
        port: u8,
        attr: *mut ibv_port_attr,
    ) -> c_int {
        // SAFETY: passed on from the caller; the old function fills a prefix of the structure.
        unsafe {
            match verbs_get_ctx_op!(context, query_port) {
                Some(operation) => operation(context, port, attr, size_of::<ibv_port_attr>()),
                None => {
                    *attr = ibv_port_attr::default();
                    (self.query_port_compat)(context, port, attr.cast())
                }
            }
        }
    }

    /// Creates a queue pair with extended attributes (the header's `ibv_create_qp_ex`): plain ones take the old call.
    ///
    /// # Safety
    /// `context` is open and `attr` valid as the manual page demands.
    pub unsafe fn create_qp_ex(
        &self,
        context: *mut ibv_context,
        attr: *mut ibv_qp_init_attr_ex,
    ) -> *mut ibv_qp {
        // SAFETY: passed on from the caller; the two attribute structures begin alike.
        unsafe {
            if (*attr).comp_mask == IBV_QP_INIT_ATTR_PD {
                return (self.create_qp)((*attr).pd, attr.cast());
            }
            match verbs_get_ctx_op!(context, create_qp_ex) {
                Some(operation) => operation(context, attr),
                None => {
                    *libc::__errno_location() = libc::EOPNOTSUPP;
                    std::ptr::null_mut()
                }
            }
        }
    }
}

/// The opened library, not yet looked into.
struct Symbols {
    handle: *mut c_void,
    lookup: Lookup,
}

impl Symbols {
    fn open(lookup: Lookup) -> Result<Self, LibraryError> {
        // A preload library must not make libibverbs' symbols visible to a program that opened it for itself alone.
        let flags = match lookup {
            Lookup::Program => libc::RTLD_NOW | libc::RTLD_GLOBAL,
            Lookup::Library => libc::RTLD_NOW | libc::RTLD_LOCAL,
        };
        // SAFETY: a constant, terminated name; the constructors of libibverbs are those of a trusted system library.
        let handle = unsafe { libc::dlopen(SONAME.as_ptr(), flags) };
        if handle.is_null() {
            return Err(LibraryError::Missing {
                reason: loader_message(),
            });
        }
        Ok(Self { handle, lookup })
    }

    fn find(&self, symbol: &CStr, version: &CStr) -> Option<*mut c_void> {
        // SAFETY: an open handle (it is never closed) and terminated names.
        let address = unsafe {
            match self.lookup {
                Lookup::Program => libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()),
                Lookup::Library if version.is_empty() => libc::dlsym(self.handle, symbol.as_ptr()),
                Lookup::Library => libc::dlvsym(self.handle, symbol.as_ptr(), version.as_ptr()),
            }
        };
        (!address.is_null()).then_some(address)
    }
}

/// Why the loader failed last.
pub(crate) fn loader_message() -> String {
    // SAFETY: dlerror gives null or a terminated text that lives until this thread's next call of the loader.
    unsafe {
        let text = libc::dlerror();
        match text.is_null() {
            true => "no reason given".to_owned(),
            false => CStr::from_ptr(text).to_string_lossy().into_owned(),
        }
    }
}
