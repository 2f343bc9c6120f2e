//! Why a verb failed.

use super::gpu::GpuError;
use super::pages::Unbound;
use crate::LibraryError;
use std::io;

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum VerbsError {
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// There is no RDMA device at all.
    #[error(
        "this machine has no RDMA device ({reason}); for a software device: `modprobe rdma_rxe` and \
         `rdma link add rxe0 type rxe netdev eth0`; for a modelled one: `isolane rdma emulate`"
    )]
    NoDevices { reason: String },
    #[error("there is no RDMA device {name:?}; this machine has {available}")]
    UnknownDevice { name: String, available: String },
    #[error("{verb} on {device}: {error}{remedy}")]
    Call {
        verb: &'static str,
        device: String,
        error: io::Error,
        /// What usually helps; empty or beginning with a semicolon.
        remedy: &'static str,
    },
    #[error("{call} of a buffer for {device} to NUMA node {node}: {error}{remedy}")]
    Binding {
        call: &'static str,
        device: String,
        node: u32,
        error: io::Error,
        /// What usually helps; empty or beginning with a semicolon.
        remedy: &'static str,
    },
    #[error(
        "{wrong} of {pages} pages of a buffer for {device} are not on NUMA node {node} (the first: {first}); \
         free memory on that node, or use fewer or smaller regions"
    )]
    Elsewhere {
        device: String,
        node: u32,
        /// Pages on another node, or on none.
        wrong: usize,
        /// All pages of the buffer.
        pages: usize,
        /// The first page's node or error, for people.
        first: String,
    },
    #[error("memory of a GPU for {device}: {error}")]
    Gpu { device: String, error: GpuError },
    /// The processor copies inline data, and cannot read memory of a GPU.
    #[error(
        "inline data cannot be in region {region}, which is memory of a GPU; send without inline data"
    )]
    InlineOnGpu {
        /// Index of the region in the list.
        region: usize,
    },
    #[error(
        "an element of {length} bytes at {offset} does not fit region {region} of {region_bytes} bytes"
    )]
    OutOfRegion {
        /// Index of the region in the list.
        region: usize,
        /// Its length; 0 when there is no such region.
        region_bytes: u64,
        offset: u64,
        length: u32,
    },
}

impl VerbsError {
    /// The error of `errno` right after a call.
    pub(crate) fn last(verb: &'static str, device: &str) -> Self {
        Self::of(verb, device, io::Error::last_os_error())
    }

    /// The error of a call that answers an `errno` value.
    pub(crate) fn code(verb: &'static str, device: &str, code: i32) -> Self {
        // Some providers answer -1 and set errno, others the value, some its negative.
        match code {
            -1 => Self::last(verb, device),
            code => Self::of(verb, device, io::Error::from_raw_os_error(code.abs())),
        }
    }

    /// The error of a buffer that is not on `node`.
    pub(super) fn unbound(device: &str, node: u32, why: Unbound) -> Self {
        let device = device.to_owned();
        match why {
            Unbound::Call(call, error) => Self::Binding {
                call,
                device,
                node,
                remedy: match error.raw_os_error() {
                    Some(libc::EPERM | libc::ENOSYS) => {
                        "; a container needs CAP_SYS_NICE to bind memory (docker run --cap-add SYS_NICE)"
                    }
                    Some(libc::EINVAL) => {
                        "; the node does not exist, has no memory, or is not one of this process \
                         (Mems_allowed_list in /proc/self/status)"
                    }
                    _ => "",
                },
                error,
            },
            Unbound::Elsewhere {
                wrong,
                pages,
                status,
            } => Self::Elsewhere {
                device,
                node,
                wrong,
                pages,
                first: match u32::try_from(status) {
                    Ok(node) => format!("node {node}"),
                    Err(_) => io::Error::from_raw_os_error(status.saturating_neg()).to_string(),
                },
            },
        }
    }

    /// Whether the kernel permits no memory of this process to be bound.
    pub fn forbids_binding(&self) -> bool {
        let codes = [libc::EPERM, libc::ENOSYS].map(Some);
        matches!(self, Self::Binding { error, .. } if codes.contains(&error.raw_os_error()))
    }

    fn of(verb: &'static str, device: &str, error: io::Error) -> Self {
        let remedy = match (verb, error.raw_os_error()) {
            ("ibv_reg_mr", Some(libc::ENOMEM)) => {
                "; raise the limit of locked memory (`ulimit -l unlimited`) or use smaller regions"
            }
            ("ibv_reg_dmabuf_mr", Some(libc::EOPNOTSUPP | libc::ENOSYS)) => {
                "; the device's driver or libibverbs cannot register memory by dma-buf: use rdma-core 34 or newer, Linux 5.12 or \
                 newer and a device such as mlx5, or use memory \"local\""
            }
            (_, Some(libc::EPERM | libc::EACCES)) => {
                "; run with access to /dev/infiniband (group rdma, or root)"
            }
            ("ibv_create_qp", Some(libc::EINVAL)) => {
                "; the device may not have such deep queues, so many elements or so much inline data"
            }
            (_, Some(libc::ENOMEM)) => "; use fewer or smaller objects",
            (_, Some(libc::ENODEV)) => "; the device has gone",
            _ => "",
        };
        Self::Call {
            verb,
            device: device.to_owned(),
            error,
            remedy,
        }
    }
}
