//! Checks arguments of C callers that consist of pointer and length.
//!
//! Method: every pointer is checked for null and every length for [`LENGTH_MAX`]. Units: bytes. Limit: that a pointer
//! which is not null points to as many bytes as the caller says cannot be checked.

use super::{Answer, Code, LENGTH_MAX};
use std::ffi::c_char;

/// Fails for a null pointer.
pub(super) fn present<T>(pointer: *const T, what: &str) -> Answer<()> {
    match pointer.is_null() {
        true => Err((Code::NullPointer, format!("{what} is a null pointer"))),
        false => Ok(()),
    }
}

/// The bytes that a caller names.
///
/// # Safety
/// If it is not null, `start` points to `len` bytes that no code changes during `'a`.
pub(super) unsafe fn bytes<'a>(start: *const u8, len: usize, what: &str) -> Answer<&'a [u8]> {
    if len > LENGTH_MAX {
        let message = format!("{what} has {len} bytes; at most {LENGTH_MAX} are read");
        return Err((Code::BadLength, message));
    }
    present(start, what)?;
    // SAFETY: not null, and the caller vouches for the length, which is below isize::MAX.
    Ok(unsafe { std::slice::from_raw_parts(start, len) })
}

/// The text that a caller names.
///
/// # Safety
/// As [`bytes`].
pub(super) unsafe fn text<'a>(start: *const c_char, len: usize, what: &str) -> Answer<&'a str> {
    // SAFETY: the caller's promise is ours.
    let bytes = unsafe { bytes(start.cast(), len, what) }?;
    std::str::from_utf8(bytes).map_err(|error| (Code::BadText, format!("{what}: {error}")))
}

/// Writes `text` and a zero, as much as fits, and the full length.
///
/// # Safety
/// If they are not null, `buffer` has `capacity` bytes and `length` can be written.
pub(super) unsafe fn hand_out(
    text: &str,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> Answer<()> {
    present(length, "length")?;
    if capacity > 0 {
        present(buffer, "buffer")?;
    }
    // SAFETY: not null; the caller vouches that it can be written, aligned or not.
    unsafe { length.write_unaligned(text.len()) };
    if capacity == 0 {
        return Ok(());
    }
    let copied = text.len().min(capacity - 1);
    // SAFETY: `copied + 1 <= capacity` bytes are written, and ours overlap no caller's memory.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), copied);
        buffer.add(copied).write(0);
    }
    Ok(())
}
