//! The bpf(2) calls that the loader library does not offer by descriptor, and two small questions to the kernel.
//!
//! Everything after loading works on descriptors opened from pins, also in a process that did not load.

use crate::EbpfError;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const MAP_DELETE: i32 = 3;
const OBJECT_PIN: i32 = 6;
const OBJECT_GET: i32 = 7;
const INFO_BY_FD: i32 = 15;
const RAW_TRACEPOINT_OPEN: i32 = 17;
const LINK_CREATE: i32 = 28;
const ENABLE_STATS: i32 = 32;
const LINK_DETACH: i32 = 34;

/// The hook of packets that sockets of a cgroup send.
const CGROUP_EGRESS: u32 = 1;

/// `struct bpf_prog_info` has grown to this; offsets of what we read.
const INFO_BYTES: usize = 232;
const INFO_RUN_TIME: usize = 192;
const INFO_RUNS: usize = 200;
const INFO_VERIFIED: usize = 216;

/// `union bpf_attr`, as far as these calls use it.
#[repr(C, align(8))]
struct Attributes([u8; 128]);

impl Attributes {
    fn new() -> Self {
        Self([0; 128])
    }

    fn word(mut self, offset: usize, value: u32) -> Self {
        self.0[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn pointer<T>(mut self, offset: usize, value: *const T) -> Self {
        self.0[offset..offset + 8]
            .copy_from_slice(&(value.expose_provenance() as u64).to_ne_bytes());
        self
    }

    fn fd(self, offset: usize, fd: BorrowedFd<'_>) -> Self {
        self.word(offset, fd.as_raw_fd() as u32)
    }

    /// # Safety
    /// Every pointer inside must be valid for what `command` does with it.
    unsafe fn call(&self, command: i32) -> io::Result<i32> {
        // SAFETY: the caller vouches for the pointers inside; the attributes outlive the call.
        let result =
            unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_ptr(), self.0.len()) };
        match result {
            0.. => Ok(result as i32),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// # Safety
    /// As of [`Attributes::call`], and `command` must return a new descriptor.
    unsafe fn open(&self, command: i32) -> io::Result<OwnedFd> {
        // SAFETY: the caller's promise.
        let fd = unsafe { self.call(command) }?;
        // SAFETY: the kernel just made this descriptor for us.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// The map, program or link that is pinned at `path`.
pub(crate) fn open_pin(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    // SAFETY: `path` ends with a zero byte and outlives the call.
    unsafe { Attributes::new().pointer(0, path.as_ptr()).open(OBJECT_GET) }
}

/// Pins a map, program or link.
pub(crate) fn pin(fd: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    let attributes = Attributes::new().pointer(0, path.as_ptr()).fd(8, fd);
    // SAFETY: `path` ends with a zero byte and outlives the call.
    unsafe { attributes.call(OBJECT_PIN) }.map(drop)
}

/// Runs a typed tracing program at its tracepoint for as long as the link lives.
pub(crate) fn attach_tracepoint(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: no pointers: the program knows its tracepoint.
    unsafe { Attributes::new().fd(8, program).open(RAW_TRACEPOINT_OPEN) }
}

/// Runs a program on the packets that sockets of a cgroup send, for as long as the link lives. Programs of others stay.
pub(crate) fn attach_cgroup(
    program: BorrowedFd<'_>,
    cgroup: BorrowedFd<'_>,
) -> io::Result<OwnedFd> {
    let attributes = Attributes::new()
        .fd(0, program)
        .fd(4, cgroup)
        .word(8, CGROUP_EGRESS);
    // SAFETY: no pointers.
    unsafe { attributes.open(LINK_CREATE) }
}

/// Ends a link at once. Without this call the kernel ends a link some time after its last pin.
pub(crate) fn detach_link(link: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no pointers.
    unsafe { Attributes::new().fd(0, link).call(LINK_DETACH) }.map(drop)
}

/// Reads a value; `value` is as long as the map's values, for every possible processor if they are per processor.
pub(crate) fn map_lookup(map: BorrowedFd<'_>, key: &[u8], value: &mut [u8]) -> io::Result<()> {
    let attributes = Attributes::new()
        .fd(0, map)
        .pointer(8, key.as_ptr())
        .pointer(16, value.as_mut_ptr());
    // SAFETY: key and value are as long as the map's; callers are in this crate and use its own maps.
    unsafe { attributes.call(MAP_LOOKUP) }.map(drop)
}

pub(crate) fn map_update(map: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    let attributes = Attributes::new()
        .fd(0, map)
        .pointer(8, key.as_ptr())
        .pointer(16, value.as_ptr());
    // SAFETY: as in `map_lookup`; the kernel only reads.
    unsafe { attributes.call(MAP_UPDATE) }.map(drop)
}

/// Removes a value.
pub(crate) fn map_delete(map: BorrowedFd<'_>, key: &[u8]) -> io::Result<()> {
    let attributes = Attributes::new().fd(0, map).pointer(8, key.as_ptr());
    // SAFETY: as in `map_lookup`.
    unsafe { attributes.call(MAP_DELETE) }.map(drop)
}

/// Fails unless each map's values have the given size.
pub(crate) fn check_value_sizes(maps: &[(BorrowedFd<'_>, usize)]) -> io::Result<()> {
    for (map, bytes) in maps {
        // `struct bpf_map_info`: type, id, key_size, value_size.
        let mut info = [0_u32; 4];
        let attributes = Attributes::new()
            .fd(0, *map)
            .word(4, size_of_val(&info) as u32)
            .pointer(8, info.as_mut_ptr());
        // SAFETY: the kernel writes at most the given size.
        unsafe { attributes.call(INFO_BY_FD) }?;
        if info[3] as usize != *bytes {
            let message = format!("{} bytes instead of {bytes}", info[3]);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
    }
    Ok(())
}

/// What the kernel says of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramCost {
    /// Time in it, in nanoseconds; counted only while [`RunTimeStatistics`] is held.
    pub time_ns: u64,
    /// How often it ran; likewise.
    pub runs: u64,
    /// Instructions that the verifier looked at.
    pub verified_instructions: u32,
}

/// Cost of the program behind a descriptor.
pub(crate) fn program_cost(program: BorrowedFd<'_>) -> io::Result<ProgramCost> {
    let mut info = [0_u64; INFO_BYTES / 8];
    let attributes = Attributes::new()
        .fd(0, program)
        .word(4, INFO_BYTES as u32)
        .pointer(8, info.as_mut_ptr());
    // SAFETY: the kernel writes at most INFO_BYTES.
    unsafe { attributes.call(INFO_BY_FD) }?;
    Ok(ProgramCost {
        time_ns: info[INFO_RUN_TIME / 8],
        runs: info[INFO_RUNS / 8],
        verified_instructions: info[INFO_VERIFIED / 8] as u32,
    })
}

/// While it is held, the kernel measures the run time of every BPF program; this costs some 20 ns a run.
#[derive(Debug)]
pub struct RunTimeStatistics(#[allow(dead_code)] OwnedFd);

impl RunTimeStatistics {
    /// Turns the statistics on, until dropped. Fails without CAP_SYS_ADMIN.
    pub fn enable() -> Result<Self, EbpfError> {
        // SAFETY: no pointers.
        unsafe { Attributes::new().open(ENABLE_STATS) }
            .map(Self)
            .map_err(EbpfError::kernel("measure the run time of BPF programs"))
    }
}

/// How long a tick of the kernel is: the resolution of its coarse clock.
pub fn tick_ns() -> u32 {
    let mut resolution = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec.
    let result = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut resolution) };
    assert_eq!(result, 0, "the coarse clock exists since Linux 2.6.32");
    resolution.tv_nsec as u32
}

/// How many processors the kernel may ever have, which is how many values a per-processor map returns.
pub(crate) fn possible_processors() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit([',', '-']).next();
    last.and_then(|last| last.parse::<usize>().ok())
        .map(|last| last + 1)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}
