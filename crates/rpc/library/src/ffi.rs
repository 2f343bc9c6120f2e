//! The interface for C: handles, lengths and error codes around [`crate::admission`].
//!
//! Problem: callers in other languages can pass any value. Method: a handle is a number from a registry in the form of
//! a pointer, so a null, closed or invented handle is detected and never dereferenced. Every pointer is checked for
//! null and every length for its bound before use; a panic becomes an error code. `include/isolane_rpc.h` declares the
//! same for C, and a test compares the two. Units: nanoseconds, bytes; classes from 0, the highest. Limits: a pointer
//! that is not null must point to as many bytes as the caller says, which cannot be checked; at most [`HANDLES_MAX`]
//! handles are open at a time. The memory of a closed handle is freed when each thread that used it last has used
//! another handle or ended. In a thread that is ending, after its thread-local values are gone, errors have codes and
//! no texts.
#![allow(unsafe_code)]

mod caller;
#[cfg(test)]
mod tests;

use crate::admission::Admission;
use crate::table::{Ask, Ticket, TicketError};
use caller::{bytes, hand_out, present, text};
use isolane_rpc_policy::aequitas::Probability;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

/// Version of the interface.
pub const ABI_VERSION: u32 = 1;
/// Longest text or name, bytes.
pub const LENGTH_MAX: usize = 1 << 20;
/// Largest number of open handles: more than the libraries in a process that could each open one.
pub const HANDLES_MAX: usize = 64;

/// Error codes; the values are part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// Success.
    Ok = 0,
    /// A pointer that must not be null is null.
    NullPointer = -1,
    /// A length is too large, or zero where something is needed.
    BadLength = -2,
    /// The text is not UTF-8.
    BadText = -3,
    /// The settings have a mistake.
    BadSettings = -4,
    /// The settings do not have this class.
    BadClass = -5,
    /// The ticket is not from this handle.
    BadTicket = -6,
    /// The ticket's destination has left the table.
    Departed = -7,
    /// The handle is null or closed.
    BadHandle = -8,
    /// A defect of the library.
    Internal = -9,
}

/// An opaque handle; never dereferenced.
#[repr(C)]
pub struct Handle {
    _opaque: [u8; 0],
}

/// A decision on a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CDecision {
    /// Argument of `isolane_rpc_complete`; never 0.
    pub ticket: u64,
    /// The class to send the call in.
    pub class_index: u32,
    /// DSCP of that class.
    pub dscp: u8,
    /// 1 if the class is lower than the requested one.
    pub downgraded: u8,
    /// 1 if it would be lower outside shadow mode.
    pub would_downgrade: u8,
    /// Always 0.
    pub reserved: u8,
}

/// An error code with its text.
type Failure = (Code, String);
type Answer<T> = Result<T, Failure>;

struct Entry {
    admission: Arc<Admission>,
    /// DSCP by class; constant while the handle is open.
    dscp: Vec<u8>,
    names: Vec<String>,
    closed: AtomicBool,
}

/// One place of the registry. `serial` grows with each use, so a closed handle never matches its successor.
#[derive(Default)]
struct Place {
    serial: usize,
    entry: Option<Arc<Entry>>,
}

fn registry() -> &'static [RwLock<Place>; HANDLES_MAX] {
    static REGISTRY: OnceLock<[RwLock<Place>; HANDLES_MAX]> = OnceLock::new();
    REGISTRY.get_or_init(|| std::array::from_fn(|_| RwLock::default()))
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
    /// The handle that this thread used last, so that calls need not take the registry's lock.
    static LATEST: RefCell<Option<(usize, Arc<Entry>)>> = const { RefCell::new(None) };
}

fn remember(message: &str) {
    let text = CString::new(message.replace('\0', " ")).unwrap_or_default();
    // A destructor of the caller may run after the thread's own values are gone.
    let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = text);
}

/// Runs `body`; stores errors, and turns panics into an error.
fn guarded<T>(failed: impl Fn(Code) -> T, body: impl FnOnce() -> Answer<T>) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err((code, message))) => {
            remember(&message);
            failed(code)
        }
        Err(_) => {
            remember("a defect of isolane-rpc: please report it");
            failed(Code::Internal)
        }
    }
}

fn coded(handle: *mut Handle, body: impl FnOnce(&Entry) -> Answer<()>) -> i32 {
    guarded(
        |code| code as i32,
        || with(handle, body).map(|()| Code::Ok as i32),
    )
}

/// Does `act` for an entry and a destination.
///
/// # Safety
/// As [`bytes`].
unsafe fn for_destination(
    handle: *mut Handle,
    start: *const u8,
    length: usize,
    act: impl FnOnce(&Entry, &[u8]) -> Answer<()>,
) -> i32 {
    coded(handle, |entry| {
        // SAFETY: the caller's promise is ours.
        act(entry, unsafe { bytes(start, length, "the destination") }?)
    })
}

fn bad_handle() -> Failure {
    let message = "the handle is null, closed, or was never given by isolane_rpc_open";
    (Code::BadHandle, message.to_owned())
}

/// Runs `body` with the handle's entry. A thread keeps its last entry, so calls on many threads share no counter; a
/// closed entry is freed when the thread uses another.
fn with<T>(handle: *mut Handle, body: impl FnOnce(&Entry) -> Answer<T>) -> Answer<T> {
    let number = handle.addr();
    let mut body = Some(body);
    let known = LATEST.try_with(|latest| {
        let mut latest = latest.borrow_mut();
        let known = matches!(&*latest, Some((known, _)) if *known == number);
        if !known {
            *latest = Some((number, look_up(number).ok_or_else(bad_handle)?));
        }
        let (_, entry) = latest.as_ref().expect("looked up just now");
        let body = body.take().expect("called once");
        open(entry).and_then(body)
    });
    known.unwrap_or_else(|_| {
        // This thread's own values are gone: it ends, and a destructor of the caller runs.
        let entry = look_up(number).ok_or_else(bad_handle)?;
        let body = body.take().expect("not called when there is no value");
        open(&entry).and_then(body)
    })
}

fn open(entry: &Entry) -> Answer<&Entry> {
    match entry.closed.load(Ordering::Relaxed) {
        false => Ok(entry),
        true => Err(bad_handle()),
    }
}

/// A handle consists of place and serial, times 16 so that it looks like an aligned pointer; never null.
fn number(place: usize, serial: usize) -> usize {
    (serial * HANDLES_MAX + place) * 16
}

/// Serial and place of a handle.
fn parts(number: usize) -> Option<(usize, usize)> {
    let aligned = number.is_multiple_of(16);
    aligned.then_some((number / 16 / HANDLES_MAX, number / 16 % HANDLES_MAX))
}

fn look_up(number: usize) -> Option<Arc<Entry>> {
    let (serial, place) = parts(number)?;
    let place = registry()[place]
        .read()
        .unwrap_or_else(PoisonError::into_inner);
    let entry = place.entry.as_ref()?;
    (place.serial == serial).then(|| Arc::clone(entry))
}

fn register(admission: Admission) -> Answer<*mut Handle> {
    let settings = admission.settings();
    let admission = Arc::new(admission);
    // A library must not print; the caller fetches messages.
    let started = admission.start_and_keep();
    started.map_err(|error| (Code::Internal, format!("cannot start a thread: {error}")))?;
    let entry = Entry {
        admission,
        dscp: settings.classes.iter().map(|class| class.dscp).collect(),
        names: settings
            .classes
            .iter()
            .map(|class| class.name.clone())
            .collect(),
        closed: AtomicBool::new(false),
    };
    for (index, place) in registry().iter().enumerate() {
        let mut place = place.write().unwrap_or_else(PoisonError::into_inner);
        if place.entry.is_none() {
            place.serial += 1;
            place.entry = Some(Arc::new(entry));
            return Ok(std::ptr::without_provenance_mut(number(
                index,
                place.serial,
            )));
        }
    }
    let message = format!("{HANDLES_MAX} handles are open; close one");
    Err((Code::BadLength, message))
}

fn class_of(entry: &Entry, class_index: u32) -> Answer<u8> {
    match (class_index as usize) < entry.dscp.len() {
        true => Ok(class_index as u8),
        false => {
            let count = entry.dscp.len();
            let message = format!("class {class_index} does not exist: 0 to {}", count - 1);
            Err((Code::BadClass, message))
        }
    }
}

/// Returns the version of the interface.
#[unsafe(no_mangle)]
pub extern "C" fn isolane_rpc_abi_version() -> u32 {
    ABI_VERSION
}

/// Opens an admission with the settings in a text.
///
/// # Safety
/// `text` is null or points to `text_length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isolane_rpc_open(text: *const c_char, text_length: usize) -> *mut Handle {
    guarded(
        |_| std::ptr::null_mut(),
        || {
            // SAFETY: the caller's promise is ours.
            let text = unsafe { self::text(text, text_length, "the settings") }?;
            let opened = Admission::from_text("settings", text);
            register(opened.map_err(|error| (Code::BadSettings, error.to_string()))?)
        },
    )
}

/// Opens an admission with the settings of a file, which is reloaded when it changes.
///
/// # Safety
/// `path` is null or points to `path_length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isolane_rpc_open_file(
    path: *const c_char,
    path_length: usize,
) -> *mut Handle {
    guarded(
        |_| std::ptr::null_mut(),
        || {
            // SAFETY: the caller's promise is ours.
            let path = unsafe { text(path, path_length, "the path") }?;
            let opened = Admission::from_file(Path::new(path));
            register(opened.map_err(|error| (Code::BadSettings, error.to_string()))?)
        },
    )
}

/// Applies other settings while calls run.
///
/// # Safety
/// `text` is null or points to `text_length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isolane_rpc_reload(
    handle: *mut Handle,
    text: *const c_char,
    text_length: usize,
) -> i32 {
    coded(handle, |entry| {
        // SAFETY: the caller's promise is ours.
        let text = unsafe { self::text(text, text_length, "the settings") }?;
        let taken = entry.admission.reload_text("settings", text);
        taken.map_err(|error| (Code::BadSettings, error.to_string()))
    })
}

/// Number of classes; 0 for a bad handle.
#[unsafe(no_mangle)]
pub extern "C" fn isolane_rpc_classes(handle: *mut Handle) -> u32 {
    guarded(|_| 0, || with(handle, |entry| Ok(entry.dscp.len() as u32)))
}

/// The index of the class with that name.
///
/// # Safety
/// `name` is null or points to `name_length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isolane_rpc_class_index(
    handle: *mut Handle,
    name: *const c_char,
    name_length: usize,
) -> i32 {
    guarded(
        |code| code as i32,
        || {
            with(handle, |entry| {
                // SAFETY: the caller's promise is ours.
                let name = unsafe { text(name, name_length, "the name") }?;
                let index = entry.names.iter().position(|known| known == name);
                index.map(|index| index as i32).ok_or_else(|| {
                    let known = entry.names.join(", ");
                    (
                        Code::BadClass,
                        format!("no class is called {name:?}; there are {known}"),
                    )
                })
            })
        },
    )
}

/// DSCP of a class.
#[unsafe(no_mangle)]
pub extern "C" fn isolane_rpc_class_dscp(handle: *mut Handle, class_index: u32) -> i32 {
    guarded(
        |code| code as i32,
        || {
            with(handle, |entry| {
                let class = class_of(entry, class_index)?;
                Ok(i32::from(entry.dscp[usize::from(class)]))
            })
        },
    )
}

/// The name of a class.
///
/// # Safety
/// If they are not null, `buffer` has `capacity` bytes and `length` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isolane_rpc_class_name(
    handle: *mut Handle,
    class_index: u32,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> i32 {
    coded(handle, |entry| {
        let class = class_of(entry, class_index)?;
        // SAFETY: the caller's promise is ours.
        unsafe { hand_out(&entry.names[usize::from(class)], buffer, capacity, length) }
    })
}

/// Decides on a call.
///
/// # Safety
/// If they are not null, `destination` points to `destination_length` bytes and `decision` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isolane_rpc_decide(
    handle: *mut Handle,
    destination: *const u8,
    destination_length: usize,
    class_index: u32,
    size_bytes: u64,
    decision: *mut CDecision,
) -> i32 {
    let act = |entry: &Entry, destination: &[u8]| {
        present(decision, "decision")?;
        let verdict = entry.admission.decide(Ask {
            destination,
            class: class_of(entry, class_index)?,
            bytes: size_bytes,
        });
        let answer = CDecision {
            ticket: verdict.ticket.word(),
            class_index: u32::from(verdict.class),
            dscp: entry.dscp[usize::from(verdict.class)],
            downgraded: u8::from(verdict.downgraded),
            would_downgrade: u8::from(verdict.would_downgrade),
            reserved: 0,
        };
        // SAFETY: not null; the caller vouches that it can be written, aligned or not.
        unsafe { decision.write_unaligned(answer) };
        Ok(())
    };
    // SAFETY: the caller's promise is ours.
    unsafe { for_destination(handle, destination, destination_length, act) }
}

/// Reports the end of a call.
#[unsafe(no_mangle)]
pub extern "C" fn isolane_rpc_complete(handle: *mut Handle, ticket: u64, latency_ns: u64) -> i32 {
    let latency = Duration::from_nanos(latency_ns);
    learned(handle, |entry| {
        entry.admission.complete(Ticket::from_word(ticket), latency)
    })
}

/// Reports the end of a call with a large response.
#[unsafe(no_mangle)]
pub extern "C" fn isolane_rpc_complete_read(
    handle: *mut Handle,
    ticket: u64,
    response_bytes: u64,
    latency_ns: u64,
) -> i32 {
    let latency = Duration::from_nanos(latency_ns);
    let ticket = Ticket::from_word(ticket);
    learned(handle, |entry| {
        entry
            .admission
            .complete_read(ticket, response_bytes, latency)
    })
}

/// Reports the end of a call without an answer.
#[unsafe(no_mangle)]
pub extern "C" fn isolane_rpc_give_up(handle: *mut Handle, ticket: u64, elapsed_ns: u64) -> i32 {
    let elapsed = Duration::from_nanos(elapsed_ns);
    let ticket = Ticket::from_word(ticket);
    learned(handle, |entry| {
        entry.admission.give_up(ticket, elapsed).map(drop)
    })
}

fn learned(handle: *mut Handle, learn: impl FnOnce(&Entry) -> Result<(), TicketError>) -> i32 {
    coded(handle, |entry| {
        learn(entry).map_err(|error| match error {
            TicketError::Foreign => (Code::BadTicket, error.to_string()),
            TicketError::Departed => (Code::Departed, error.to_string()),
        })
    })
}

/// The admit probability of a destination and class.
///
/// # Safety
/// If they are not null, `destination` points to `destination_length` bytes and `probability` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isolane_rpc_probability(
    handle: *mut Handle,
    destination: *const u8,
    destination_length: usize,
    class_index: u32,
    probability: *mut f64,
) -> i32 {
    let act = |entry: &Entry, destination: &[u8]| {
        let class = class_of(entry, class_index)?;
        present(probability, "probability")?;
        let known = entry.admission.table().probability(destination, class);
        let value = known.unwrap_or(Probability::ONE).as_f64();
        // SAFETY: not null; the caller vouches that it can be written, aligned or not.
        unsafe { probability.write_unaligned(value) };
        Ok(())
    };
    // SAFETY: the caller's promise is ours.
    unsafe { for_destination(handle, destination, destination_length, act) }
}

/// Removes a destination.
///
/// # Safety
/// `destination` is null or points to `destination_length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isolane_rpc_forget(
    handle: *mut Handle,
    destination: *const u8,
    destination_length: usize,
) -> i32 {
    let act = |entry: &Entry, destination: &[u8]| {
        entry.admission.table().forget(destination);
        Ok(())
    };
    // SAFETY: the caller's promise is ours.
    unsafe { for_destination(handle, destination, destination_length, act) }
}

/// The metrics as text.
///
/// # Safety
/// If they are not null, `buffer` has `capacity` bytes and `length` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isolane_rpc_metrics(
    handle: *mut Handle,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> i32 {
    coded(handle, |entry| {
        // SAFETY: the caller's promise is ours.
        unsafe { hand_out(&entry.admission.metrics(), buffer, capacity, length) }
    })
}

/// Returns the messages since the last call, one line each. They are removed once all of them fit.
///
/// # Safety
/// As `isolane_rpc_metrics`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isolane_rpc_said(
    handle: *mut Handle,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> i32 {
    coded(handle, |entry| {
        entry.admission.take_said(|said| {
            // SAFETY: the caller's promise is ours.
            unsafe { hand_out(said, buffer, capacity, length) }?;
            Ok(said.len() < capacity)
        })
    })
}

/// The text of this thread's last error.
#[unsafe(no_mangle)]
pub extern "C" fn isolane_rpc_last_error() -> *const c_char {
    let words = LAST_ERROR.try_with(|last| last.borrow().as_ptr());
    words.unwrap_or(c"".as_ptr())
}

/// Closes an admission.
#[unsafe(no_mangle)]
pub extern "C" fn isolane_rpc_close(handle: *mut Handle) {
    if handle.is_null() {
        return;
    }
    let closed = || {
        let number = handle.addr();
        let entry = withdraw(number).ok_or_else(bad_handle)?;
        entry.closed.store(true, Ordering::Relaxed);
        // Other threads may keep the entry until their next call; this one drops it now.
        entry.admission.stop();
        let _ = LATEST.try_with(|latest| {
            latest
                .borrow_mut()
                .take_if(|(known, _)| *known == number)
                .map(drop)
        });
        Ok(())
    };
    guarded(|_| (), closed);
}

/// Removes the entry of `number` from the registry. If two threads close it, one gets it; a later entry at the same
/// place stays.
fn withdraw(number: usize) -> Option<Arc<Entry>> {
    let (serial, place) = parts(number)?;
    let mut place = registry()[place]
        .write()
        .unwrap_or_else(PoisonError::into_inner);
    match place.serial == serial {
        true => place.entry.take(),
        false => None,
    }
}
