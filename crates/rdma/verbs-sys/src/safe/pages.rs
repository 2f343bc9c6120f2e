//! Pages of this process for buffers, and their NUMA node.
//!
//! Method: mbind(2) with `MPOL_BIND` before the first access, then one write per page, then move_pages(2) without a
//! destination, which returns the node of every page. A binding is therefore never believed, it is read back.
//! Source: mbind(2), move_pages(2). Limits: a node without free memory ends the process (the kernel's out-of-memory
//! killer); callers compare sizes with the node's free memory first.

use std::io;
use std::ptr::NonNull;

/// Pages of this process, zero at first.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) start: NonNull<u8>,
    pub(super) length: usize,
}

/// Why pages are not on a node.
#[derive(Debug)]
pub(super) enum Unbound {
    /// `mbind` or `move_pages` failed.
    Call(&'static str, io::Error),
    /// So many pages are elsewhere; the first of them has this status: a node, or a negative error.
    Elsewhere {
        wrong: usize,
        pages: usize,
        status: i32,
    },
}

/// Pages whose nodes one call returns: 36 KiB of arguments.
const PIECE: usize = 4_096;

impl Pages {
    pub(super) fn new(length: usize) -> io::Result<Self> {
        let length = length.max(1);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { start, length }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Puts every page of this new mapping on NUMA node `node`, and checks that it lies there.
    pub(super) fn bind(&self, node: u32) -> Result<(), Unbound> {
        let word = libc::c_ulong::BITS;
        let mut mask = vec![0 as libc::c_ulong; (node / word) as usize + 1];
        mask[(node / word) as usize] = 1 << (node % word);
        // The kernel counts one bit less than the caller gives.
        let bits = mask.len() as libc::c_ulong * libc::c_ulong::from(word) + 1;
        // SAFETY: the range is this mapping, and `mask` has `bits` - 1 bits; the kernel reads both.
        let bound = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start.as_ptr(),
                self.length,
                libc::MPOL_BIND,
                mask.as_ptr(),
                bits,
                0,
            )
        };
        if bound != 0 {
            return Err(Unbound::Call("mbind", io::Error::last_os_error()));
        }
        let addresses = self.touch();
        self::check(&addresses, node)
    }

    /// Writes a byte of every page. Returns the pages' addresses.
    fn touch(&self) -> Vec<*mut libc::c_void> {
        // SAFETY: no arguments that could be wrong.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).unwrap_or(4_096);
        let offsets = (0..self.length).step_by(page);
        let addresses = offsets.map(|offset| {
            // SAFETY: inside the mapping, which nobody else has seen yet.
            unsafe {
                let place = self.start.as_ptr().add(offset);
                place.write_volatile(0);
                place.cast()
            }
        });
        addresses.collect()
    }
}

/// Whether the pages at `addresses` of this process are on `node`.
fn check(addresses: &[*mut libc::c_void], node: u32) -> Result<(), Unbound> {
    let (mut wrong, mut first) = (0, 0);
    for piece in addresses.chunks(PIECE) {
        let mut status = vec![-libc::EFAULT; piece.len()];
        // SAFETY: both arrays have `piece.len()` entries; without a destination the kernel moves nothing and writes the
        // second.
        let read = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                piece.len(),
                piece.as_ptr(),
                std::ptr::null::<libc::c_int>(),
                status.as_mut_ptr(),
                0,
            )
        };
        if read != 0 {
            return Err(Unbound::Call("move_pages", io::Error::last_os_error()));
        }
        for status in status {
            if u32::try_from(status) != Ok(node) {
                first = if wrong == 0 { status } else { first };
                wrong += 1;
            }
        }
    }
    match wrong {
        0 => Ok(()),
        _ => Err(Unbound::Elsewhere {
            wrong,
            pages: addresses.len(),
            status: first,
        }),
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: this mapping, made above, no longer registered.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_common_linux::Root;

    /// A node that this process may use, and whether it may bind memory at all (some containers may not).
    fn node() -> Option<u32> {
        let status = Root::machine().text("/proc/self/status")?;
        let line = status
            .lines()
            .find_map(|l| l.strip_prefix("Mems_allowed_list:"))?;
        let first = line.trim().split(['-', ',']).next()?.parse().ok()?;
        match Pages::new(1).ok()?.bind(first) {
            Err(Unbound::Call(call, error)) => {
                eprintln!("skipped: {call} is not permitted here: {error}");
                None
            }
            _ => Some(first),
        }
    }

    #[test]
    fn bound_pages_are_on_their_node_and_on_no_other() {
        let Some(node) = node() else { return };
        let pages = Pages::new(10_000 * 4_096).unwrap();
        pages.bind(node).unwrap();
        let addresses = pages.touch();
        assert!(addresses.len() > PIECE, "more than one call");
        let other = check(&addresses, node + 1).unwrap_err();
        let all = addresses.len();
        assert!(
            matches!(other, Unbound::Elsewhere { wrong, pages, .. } if wrong == all && pages == all),
            "{other:?}"
        );
    }

    #[test]
    fn a_page_without_memory_is_on_no_node() {
        let Some(node) = node() else { return };
        let pages = Pages::new(4_096).unwrap();
        let address = pages.start.as_ptr().cast();
        let untouched = check(&[address], node).unwrap_err();
        assert!(
            matches!(untouched, Unbound::Elsewhere { wrong: 1, status, .. } if status < 0),
            "{untouched:?}"
        );
    }

    #[test]
    fn an_absent_node_is_an_error() {
        if node().is_none() {
            return;
        }
        // More nodes than any kernel has.
        for absent in [1_000, 5_000] {
            let error = Pages::new(4_096).unwrap().bind(absent).unwrap_err();
            assert!(matches!(error, Unbound::Call("mbind", _)), "{error:?}");
        }
    }
}
