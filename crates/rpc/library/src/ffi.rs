//! The interface for C: handles, lengths and error codes around [`crate::admission`].
//!
//! Problem: callers in other languages pass anything. Method: a handle is a number from a registry, dressed as a
//! pointer, so that a null, closed or invented one is found out instead of followed; every pointer is checked for null
//! and every length for its bound before it is used; a panic becomes an error code. `include/isolane_rpc.h` says the
//! same for C, and a test compares the two.
//! Units: nanoseconds, bytes; classes from 0, the highest.
//! Limits: a pointer that is not null must point to as many bytes as the caller says, which nobody can check; at most
//! [`HANDLES_MAX`] handles are open at a time. A closed handle's memory goes when each thread that used it last has used
//! another or ended. In a thread that ends, after its thread-local values have gone, errors have codes and no words.
#![allow(unsafe_code)]

mod caller;

use crate::admission::Admission;
use crate::table::{Ask, Ticket, TicketError};
use caller::{bytes, hand_out, text};
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
/// Longest text or name that is read, bytes.
pub const LENGTH_MAX: usize = 1 << 20;
/// Most handles at a time: one for each library in a process that has its own, with room.
pub const HANDLES_MAX: usize = 64;

/// Why a call failed; the values are part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// Done.
    Ok = 0,
    /// A pointer that must not be null is null.
    NullPointer = -1,
    /// A length is too large, or zero where something is needed.
    BadLength = -2,
    /// Text that is not UTF-8.
    BadText = -3,
    /// Settings that cannot be.
    BadSettings = -4,
    /// A class that the settings do not have.
    BadClass = -5,
    /// A ticket that was not given by this handle.
    BadTicket = -6,
    /// The ticket's destination has left the table.
    Departed = -7,
    /// The handle is null or closed.
    BadHandle = -8,
    /// A defect of the library.
    Internal = -9,
}

/// What a caller holds; never followed as a pointer.
#[repr(C)]
pub struct Handle {
    _opaque: [u8; 0],
}

/// What to do with a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CDecision {
    /// To be passed to `isolane_rpc_complete`; never 0.
    pub ticket: u64,
    /// The class to send it in.
    pub class_index: u32,
    /// The mark of that class.
    pub dscp: u8,
    /// 1 where the class is lower than what was asked for.
    pub downgraded: u8,
    /// 1 where it would be, were the mode not shadow.
    pub would_downgrade: u8,
    /// 0.
    pub reserved: u8,
}

/// An error code with its words.
type Failure = (Code, String);
type Answer<T> = Result<T, Failure>;

struct Entry {
    admission: Arc<Admission>,
    /// By class: they cannot change while the handle is open.
    dscp: Vec<u8>,
    names: Vec<String>,
    closed: AtomicBool,
}

/// One place of the registry; `serial` grows with each use, so that a closed handle never names its successor.
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
    /// The handle that this thread used last: the registry's lock is not taken for each call.
    static LATEST: RefCell<Option<(usize, Arc<Entry>)>> = const { RefCell::new(None) };
}

fn remember(message: &str) {
    let text = CString::new(message.replace('\0', " ")).unwrap_or_default();
    // A destructor of the caller's may run when the thread's own values have gone.
    let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = text);
}

/// Runs `body`; errors are remembered, panics become one.
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

fn coded(body: impl FnOnce() -> Answer<()>) -> i32 {
    guarded(|code| code as i32, || body().map(|()| Code::Ok as i32))
}

fn bad_handle() -> Failure {
    let message = "the handle is null, closed, or was never given by isolane_rpc_open";
    (Code::BadHandle, message.to_owned())
}

/// Runs `body` with what the handle stands for. A thread keeps the entry that it used last, so that calls on many
/// threads share no counter; a closed one goes when the thread uses another.
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
        // This thread's own values have gone: it ends, and a destructor of the caller's is on its way.
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

/// A handle is its place and serial, times 16 so that it looks like an aligned pointer, and never null.
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
    // A library must not print: who holds the handle asks.
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

/// The version of the interface.
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

/// Opens an admission with the settings of a file, which is read again when it changes.
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

/// Takes other settings over while calls run.
///
/// # Safety
/// `text` is null or points to `text_length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isolane_rpc_reload(
    handle: *mut Handle,
    text: *const c_char,
    text_length: usize,
) -> i32 {
    coded(|| {
        with(handle, |entry| {
            // SAFETY: the caller's promise is ours.
            let text = unsafe { self::text(text, text_length, "the settings") }?;
            let taken = entry.admission.reload_text("settings", text);
            taken.map_err(|error| (Code::BadSettings, error.to_string()))
        })
    })
}

/// How many classes there are; 0 for a bad handle.
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

/// The mark of a class.
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
    coded(|| {
        with(handle, |entry| {
            let class = class_of(entry, class_index)?;
            // SAFETY: the caller's promise is ours.
            unsafe { hand_out(&entry.names[usize::from(class)], buffer, capacity, length) }
        })
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
    coded(|| {
        with(handle, |entry| {
            // SAFETY: the caller's promise is ours.
            let destination = unsafe { bytes(destination, destination_length, "the destination") }?;
            if decision.is_null() {
                return Err((Code::NullPointer, "decision is a null pointer".to_owned()));
            }
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
        })
    })
}

/// A call ended.
#[unsafe(no_mangle)]
pub extern "C" fn isolane_rpc_complete(handle: *mut Handle, ticket: u64, latency_ns: u64) -> i32 {
    let latency = Duration::from_nanos(latency_ns);
    learned(handle, |entry| {
        entry.admission.complete(Ticket::from_word(ticket), latency)
    })
}

/// A call with a large response ended.
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

/// A call ended without an answer.
#[unsafe(no_mangle)]
pub extern "C" fn isolane_rpc_give_up(handle: *mut Handle, ticket: u64, elapsed_ns: u64) -> i32 {
    let elapsed = Duration::from_nanos(elapsed_ns);
    let ticket = Ticket::from_word(ticket);
    learned(handle, |entry| {
        entry.admission.give_up(ticket, elapsed).map(drop)
    })
}

fn learned(handle: *mut Handle, learn: impl FnOnce(&Entry) -> Result<(), TicketError>) -> i32 {
    coded(|| {
        with(handle, |entry| {
            learn(entry).map_err(|error| match error {
                TicketError::Foreign => (Code::BadTicket, error.to_string()),
                TicketError::Departed => (Code::Departed, error.to_string()),
            })
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
    coded(|| {
        with(handle, |entry| {
            // SAFETY: the caller's promise is ours.
            let destination = unsafe { bytes(destination, destination_length, "the destination") }?;
            let class = class_of(entry, class_index)?;
            if probability.is_null() {
                return Err((
                    Code::NullPointer,
                    "probability is a null pointer".to_owned(),
                ));
            }
            let known = entry.admission.table().probability(destination, class);
            let value = known.unwrap_or(Probability::ONE).as_f64();
            // SAFETY: not null; the caller vouches that it can be written, aligned or not.
            unsafe { probability.write_unaligned(value) };
            Ok(())
        })
    })
}

/// Forgets a destination.
///
/// # Safety
/// `destination` is null or points to `destination_length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isolane_rpc_forget(
    handle: *mut Handle,
    destination: *const u8,
    destination_length: usize,
) -> i32 {
    coded(|| {
        with(handle, |entry| {
            // SAFETY: the caller's promise is ours.
            let destination = unsafe { bytes(destination, destination_length, "the destination") }?;
            entry.admission.table().forget(destination);
            Ok(())
        })
    })
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
    coded(|| {
        with(handle, |entry| {
            // SAFETY: the caller's promise is ours.
            unsafe { hand_out(&entry.admission.metrics(), buffer, capacity, length) }
        })
    })
}

/// What was said beside the calls since somebody last took it, one line each; taken once all of it fits.
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
    coded(|| {
        with(handle, |entry| {
            entry.admission.take_said(|said| {
                // SAFETY: the caller's promise is ours.
                unsafe { hand_out(said, buffer, capacity, length) }?;
                Ok(said.len() < capacity)
            })
        })
    })
}

/// What went wrong in this thread's last call that failed.
#[unsafe(no_mangle)]
pub extern "C" fn isolane_rpc_last_error() -> *const c_char {
    let words = LAST_ERROR.try_with(|last| last.borrow().as_ptr());
    words.unwrap_or(c"".as_ptr())
}

/// Ends an admission.
#[unsafe(no_mangle)]
pub extern "C" fn isolane_rpc_close(handle: *mut Handle) {
    if handle.is_null() {
        return;
    }
    let closed = || {
        let number = handle.addr();
        let entry = withdraw(number).ok_or_else(bad_handle)?;
        entry.closed.store(true, Ordering::Relaxed);
        // Other threads may keep the entry until their next call; this one need not.
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

/// Takes the entry that `number` names out of the registry: of two threads that close it, one gets it, and what was
/// opened in its place meanwhile stays.
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
