//! `stat` and `access` for programs under `isolane rdma emulate`: files of devices that are not there look as if they were.
//!
//! Problem: UCX takes a device only where it finds the file `/dev/infiniband/uverbsN`, which it never opens. Method:
//! this library is preloaded and answers for these names as for `/dev/null`, a character device that every user may
//! open. All other names go to the C library. Limits: only names that begin like this; other calls (`open`, `statx`)
//! see no file.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]
#![no_main]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// How the names of verbs devices begin.
const DEVICES: &[u8] = b"/dev/infiniband/uverbs";
/// The file that answers for them.
const PLAIN: &CStr = c"/dev/null";

/// The C library's function of this name, looked up once.
fn next(name: &CStr, place: &AtomicPtr<c_void>) -> *mut c_void {
    let known = place.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: a lookup of a name that ends in a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    assert!(!found.is_null(), "every C library has {name:?}");
    place.store(found, Ordering::Relaxed);
    found
}

/// The path to look at in the place of `path`.
///
/// # Safety
/// `path` is null or ends in a zero byte.
unsafe fn shown(path: *const c_char) -> *const c_char {
    if path.is_null() {
        return path;
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    match bytes.strip_prefix(DEVICES) {
        Some(number) if !number.is_empty() && number.iter().all(u8::is_ascii_digit) => {
            PLAIN.as_ptr()
        }
        _ => path,
    }
}

/// `stat(2)`.
///
/// # Safety
/// As the manual page demands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stat(path: *const c_char, status: *mut libc::stat) -> c_int {
    type Stat = unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int;
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: the C library's function has this type; the arguments are the caller's.
    unsafe { std::mem::transmute::<*mut c_void, Stat>(next(c"stat", &NEXT))(shown(path), status) }
}

/// `access(2)`.
///
/// # Safety
/// As the manual page demands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    type Access = unsafe extern "C" fn(*const c_char, c_int) -> c_int;
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: as above.
    unsafe { std::mem::transmute::<*mut c_void, Access>(next(c"access", &NEXT))(shown(path), mode) }
}
