//! The library at its borders: the C header and interface, the quota service, tonic.

mod grpc;
mod header;
mod interface;
mod quota;
#[cfg(feature = "tonic-server")]
mod tonic;
