//! A BPF file system for pins: `/sys/fs/bpf` where it is mounted, else one of our own.
//!
//! Problem: programs exist as long as a reference to them exists. A pin is such a reference after the end of our
//! process, and pins need a BPF file system, which not every host mounts. Method: use what is there; otherwise mount
//! one below `/run/isolane`.

use crate::EbpfError;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where most hosts have it.
pub const USUAL: &str = "/sys/fs/bpf";
/// Where we mount it otherwise.
pub const OWN: &str = "/run/isolane/bpf";

/// The magic number of the file system.
const BPF_FS: i64 = 0xcafe_4a11;

/// The directory for pins, made if it does not exist: `/sys/fs/bpf/isolane` or `/run/isolane/bpf`. Fails if nothing is
/// mounted and mounting is not allowed.
pub fn find_or_mount() -> Result<PathBuf, EbpfError> {
    if let Some(found) = find() {
        return Ok(found);
    }
    let own = Path::new(OWN);
    std::fs::create_dir_all(own).map_err(|source| EbpfError::File {
        action: "make",
        path: own.into(),
        source,
    })?;
    mount(own).map_err(EbpfError::kernel(format!(
        "mount a BPF file system at {OWN} (run as root, or mount one at {USUAL})"
    )))?;
    Ok(own.into())
}

/// The same, without making anything.
pub fn find() -> Option<PathBuf> {
    if is_bpf_fs(Path::new(USUAL)) {
        return Some(Path::new(USUAL).join("isolane"));
    }
    is_bpf_fs(Path::new(OWN)).then(|| OWN.into())
}

/// Whether `path` is on a BPF file system.
pub fn is_bpf_fs(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| found.f_type == BPF_FS)
}

/// Mounts a BPF file system at an existing directory. Fails without CAP_SYS_ADMIN.
pub fn mount(at: &Path) -> io::Result<()> {
    let at = CString::new(at.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: all strings end with a zero byte; this file system takes no data.
    let result = unsafe {
        libc::mount(
            c"bpf".as_ptr(),
            at.as_ptr(),
            c"bpf".as_ptr(),
            0,
            std::ptr::null(),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
