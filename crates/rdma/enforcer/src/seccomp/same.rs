//! Whether two descriptors are of one open file, and an order among open files.
//!
//! Method: kcmp(2) with `KCMP_FILE`, within this process. All seccomp listeners share one inode, so stat(2) cannot
//! distinguish them. Limits: a kernel without kcmp has no answer ([`compare`] returns none).

use std::cmp::Ordering;
use std::os::fd::{AsFd, AsRawFd};

/// `KCMP_FILE`.
const FILE: libc::c_int = 0;

/// The order of two open files, the same for as long as both are open; `Equal` for one open file with two descriptors.
pub fn compare(one: impl AsFd, other: impl AsFd) -> Option<Ordering> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let number = |file: &dyn AsFd| file.as_fd().as_raw_fd() as libc::c_ulong;
    // SAFETY: all arguments are numbers; the kernel reads no memory of ours.
    let order =
        unsafe { libc::syscall(libc::SYS_kcmp, own, own, FILE, number(&one), number(&other)) };
    match order {
        0 => Some(Ordering::Equal),
        1 => Some(Ordering::Less),
        2 => Some(Ordering::Greater),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_copy_is_the_same_file_and_a_second_opening_is_not() {
        let first = File::open("/dev/null").unwrap();
        let copy = first.try_clone().unwrap();
        let second = File::open("/dev/null").unwrap();
        let Some(same) = compare(&first, &copy) else {
            isolane_common_linux::skip::skip("this kernel has no kcmp");
            return;
        };
        assert_eq!(same, Ordering::Equal);
        let order = compare(&first, &second).unwrap();
        assert_ne!(order, Ordering::Equal);
        assert_eq!(compare(&second, &first), Some(order.reverse()));
    }
}
