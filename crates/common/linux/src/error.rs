//! What can go wrong between us and the kernel, with the object and the remedy in every message.

use std::io;
use std::path::PathBuf;

/// An answer the host did not give.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The kernel knows no NETLINK_RDMA: no RDMA core in it, or its module is not loaded.
    #[error(
        "the kernel has no RDMA subsystem (NETLINK_RDMA: {0}); load it with `modprobe ib_core`, \
         or boot a kernel built with CONFIG_INFINIBAND"
    )]
    NoRdmaSubsystem(#[source] io::Error),
    /// The kernel refused for lack of privilege.
    #[error("{action}: not permitted; run as root, or with CAP_NET_ADMIN")]
    NotPermitted {
        /// What was asked.
        action: String,
    },
    /// No RDMA device of that name.
    #[error("no RDMA device is named `{device}`; {}", known_devices(.known))]
    NoDevice {
        /// The name asked for.
        device: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The driver or the kernel does not keep what was asked for.
    #[error("{action}: this device's driver or this kernel does not offer it ({source})")]
    NotOffered {
        /// What was asked.
        action: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// Any other refusal.
    #[error("{action}: {source}")]
    Kernel {
        /// What was asked.
        action: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A reply that does not parse: a newer kernel, or a defect of ours.
    #[error(
        "{action}: the kernel's answer does not parse ({detail}); please report it with the kernel's version"
    )]
    Malformed {
        /// What was asked.
        action: String,
        /// What is wrong with the bytes.
        detail: String,
    },
    /// A file that cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file that cannot be written.
    #[error("cannot write `{value}` to {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What should have been written.
        value: String,
        /// Why.
        source: io::Error,
    },
    /// A file whose text is not what its place promises.
    #[error("{} says `{value}`; expected {expected}", path.display())]
    Unexpected {
        /// The file.
        path: PathBuf,
        /// What it says.
        value: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// A program that should have told us something.
    #[error("cannot run `{program}`: {source}")]
    Program {
        /// The program and its arguments.
        program: String,
        /// Why.
        source: io::Error,
    },
}

fn known_devices(known: &[String]) -> String {
    match known {
        [] => "this machine has none".to_owned(),
        names => format!("there are: {}", names.join(", ")),
    }
}

impl HostError {
    /// A refusal of the kernel, sorted by its error number.
    pub(crate) fn kernel(action: &str, source: io::Error) -> Self {
        let action = action.to_owned();
        match source.raw_os_error() {
            Some(EPERM | EACCES) => Self::NotPermitted { action },
            Some(EINVAL | EOPNOTSUPP | ENOENT) => Self::NotOffered { action, source },
            _ => Self::Kernel { action, source },
        }
    }

    /// A reply that does not parse.
    pub(crate) fn malformed(action: &str, detail: impl Into<String>) -> Self {
        Self::Malformed {
            action: action.to_owned(),
            detail: detail.into(),
        }
    }

    /// True when the machine has no RDMA at all, as opposed to a failure of one device.
    pub fn is_no_rdma(&self) -> bool {
        matches!(self, Self::NoRdmaSubsystem(_))
    }
}

// errno(3), the same on every Linux architecture that RDMA runs on.
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_object_and_the_remedy() {
        let refusal = HostError::kernel("set rdma.max of /a", io::Error::from_raw_os_error(EPERM));
        assert_eq!(
            refusal.to_string(),
            "set rdma.max of /a: not permitted; run as root, or with CAP_NET_ADMIN"
        );
        let none = HostError::NoDevice {
            device: "mlx5_9".into(),
            known: vec!["mlx5_0".into(), "mlx5_1".into()],
        };
        assert_eq!(
            none.to_string(),
            "no RDMA device is named `mlx5_9`; there are: mlx5_0, mlx5_1"
        );
    }
}
