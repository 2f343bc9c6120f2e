//! The system calls that have no safe wrapper: `move_pages` and `perf_event_open`.
//!
//! Everything unsafe of this crate's backends and indicators is here, behind functions that are safe to call. Units: as in
//! the manual pages move_pages(2) and perf_event_open(2).

use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;

/// Move pages that only this process maps (`MPOL_MF_MOVE`).
const MPOL_MF_MOVE: libc::c_int = 1 << 1;

/// Returns the nodes of a process's pages (`to` is none), or moves the pages to node `to`. The answer has one entry per
/// address: the node, or a negative error number. Fails with ESRCH for a process that has ended, and with EPERM without
/// CAP_SYS_NICE.
pub(crate) fn move_pages(process: u32, addresses: &[u64], to: Option<u32>) -> io::Result<Vec<i32>> {
    let process = libc::pid_t::try_from(process).map_err(|_| io::ErrorKind::InvalidInput)?;
    let pages: Vec<*mut libc::c_void> = addresses
        .iter()
        .map(|address| std::ptr::without_provenance_mut(usize::try_from(*address).unwrap_or(0)))
        .collect();
    let nodes: Option<Vec<libc::c_int>> =
        to.map(|node| vec![libc::c_int::try_from(node).unwrap_or(-1); pages.len()]);
    let mut status = vec![-libc::EFAULT; pages.len()];
    // SAFETY: `pages`, `nodes` (null or as long as `pages`) and `status` are arrays of `pages.len()` entries that outlive
    // the call; the kernel reads the first two and writes the third. The addresses are those of another process and are
    // never followed here.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            process,
            pages.len(),
            pages.as_ptr(),
            nodes.as_ref().map_or(std::ptr::null(), Vec::as_ptr),
            status.as_mut_ptr(),
            if to.is_some() { MPOL_MF_MOVE } else { 0 },
        )
    };
    // A positive result counts pages that stayed; their status says why.
    match result < 0 {
        true => Err(io::Error::last_os_error()),
        false => Ok(status),
    }
}

/// `struct perf_event_attr`, as far as its first published size (`PERF_ATTR_SIZE_VER0`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct PerfAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_kind: u32,
    config1: u64,
}

/// The counter is of a control group, named by its directory's descriptor (`PERF_FLAG_PID_CGROUP`).
const PERF_FLAG_PID_CGROUP: libc::c_ulong = 1 << 2;

/// Closed on exec (`PERF_FLAG_FD_CLOEXEC`).
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

/// Opens a counter of a control group on one processor. Reading eight bytes of the file gives its count. Fails with
/// ENOENT or EOPNOTSUPP without such a counter, and with EACCES without CAP_PERFMON.
pub(crate) fn perf_event_of_cgroup(
    kind: u32,
    config: u64,
    cgroup: &File,
    processor: u32,
) -> io::Result<File> {
    use std::os::fd::AsRawFd;
    let attributes = PerfAttributes {
        kind,
        size: u32::try_from(size_of::<PerfAttributes>()).unwrap_or(64),
        config,
        ..PerfAttributes::default()
    };
    let processor = libc::c_int::try_from(processor).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: `attributes` is a valid perf_event_attr of the size that it names, and outlives the call; the descriptor of
    // the group's directory is open for as long as `cgroup` lives.
    let result = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            cgroup.as_raw_fd(),
            processor,
            -1,
            PERF_FLAG_PID_CGROUP | PERF_FLAG_FD_CLOEXEC,
        )
    };
    match i32::try_from(result) {
        // SAFETY: the kernel has just returned this descriptor, and no other code has it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { File::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_reports_the_node_of_a_page_of_ours() {
        let page = vec![1_u8; 8192];
        let address = (page.as_ptr().addr() as u64 + 4095) & !4095;
        match move_pages(std::process::id(), &[address], None) {
            Ok(nodes) => assert!(nodes[0] >= 0, "{nodes:?}"),
            Err(error) => isolane_common_linux::skip::skip(format_args!(
                "move_pages does not work here: {error}"
            )),
        }
    }

    #[test]
    fn a_process_that_does_not_exist_is_an_error() {
        assert!(move_pages(0x3fff_fffe, &[4096], None).is_err());
    }
}
