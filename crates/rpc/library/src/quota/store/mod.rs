//! The stores of promises.
//!
//! Two kinds: a file of this machine ([`mod@file`]), and etcd ([`etcd`]) for a server that can be replaced by one on
//! another machine.

pub mod etcd;
pub mod file;

use super::protocol::Terms;
use serde::{Deserialize, Serialize};

/// A stored record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// An operator changed a tenant's terms.
    Set(Terms),
    /// A promise.
    Grant {
        /// The group's name.
        group: String,
        /// The class's name.
        class: String,
        /// The tenant's name.
        tenant: String,
        /// The client's name.
        client: String,
        /// The lease's number.
        serial: u64,
        /// Rate, bytes per second.
        rate_bytes_per_s: u64,
        /// Term in ms; the server's own term may differ after a restart.
        #[serde(default)]
        term_ms: Option<u64>,
    },
}

/// The stored records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Readable records in the order of writing.
    pub records: Vec<Record>,
    /// Whether no promise can be missing.
    pub complete: bool,
    /// Longest known term of missing promises, ms; else 0.
    pub term_ms: u64,
}

/// Why the store cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum StoreError {
    /// The file system's error.
    #[error("the store {place}: {error}")]
    File {
        place: String,
        error: std::io::Error,
    },
    #[error("the store {0} belongs to another quota server; stop that one, or give each its own")]
    Taken(String),
    /// etcd fails or violates its protocol.
    #[error("etcd at {place}: {reason}")]
    Etcd { place: String, reason: String },
}

/// A store of promises.
pub trait Store: Send {
    /// Reads all stored records. Called once, first. Fails if the store cannot be read.
    fn load(&mut self) -> Result<Loaded, StoreError>;

    /// Stores more records. After it returns, a kill of this process loses none of them. Fails if the store cannot be
    /// written, or another server has taken over.
    fn append(&mut self, records: &[Record]) -> Result<(), StoreError>;

    /// Replaces everything by `records`, atomically. Promises with a term of up to `missing_ms` may be missing from them,
    /// and the next load says so; with 0 none is missing. Fails as `append` does.
    fn replace(&mut self, records: &[Record], missing_ms: u64) -> Result<(), StoreError>;

    /// Whether the store should be compacted.
    fn is_long(&self) -> bool;

    /// Whether a write that failed may still change the store.
    fn is_unsure(&self) -> bool {
        false
    }

    /// Makes the store have these terms and no others. Afterwards no earlier write can change it. Fails as `append`
    /// does.
    fn settle(&mut self, _terms: &[Record]) -> Result<(), StoreError> {
        Ok(())
    }
}
