//! Sizes that the specifications of verbs, RoCE and PCIe fix or that all modelled devices share, and the key spaces of
//! the translation caches.

/// The most bytes of one PCIe read request (the usual Max_Read_Request_Size).
pub(crate) const READ_REQUEST_MAX: u64 = 512;
/// Bytes of an atomic's extended header (IB specification: AtomicETH).
pub(crate) const ATOMIC_HEADER: u64 = 28;
/// Bytes of a page: the translation cache holds pages.
pub(crate) const PAGE: u64 = 4096;
/// Bytes of one completion queue entry (mlx5-class devices).
pub(crate) const CQE_BYTES: u64 = 64;
/// Bytes of one receive work request in its ring.
pub(crate) const RECEIVE_WQE_BYTES: u64 = 16;
/// Bytes of one context (mlx5-class devices): what a miss reads, and what is written back for a dirty one.
pub(crate) const CONTEXT_BYTES: u64 = 256;
/// The key space of the receiver's regions and pages.
pub(crate) const REMOTE_END: u64 = 1 << 61;
/// Pages that one region may have in the key space (2 GiB of 4 KiB pages).
pub(crate) const PAGES_PER_REGION_MAX: u64 = 1 << 19;
