//! Where promises are written before they are given.
//!
//! Two kinds: a file of this machine ([`mod@file`]), and etcd ([`etcd`]) where the server must be replaceable by one elsewhere.

pub mod etcd;
pub mod file;

use super::protocol::Terms;
use serde::{Deserialize, Serialize};

/// What is written.
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
        /// Its rate.
        rate_bytes_per_s: u64,
        /// Its term: the server's own may be another one by the next start.
        #[serde(default)]
        term_ms: Option<u64>,
    },
}

/// What was written before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// In the order of writing, as far as it can be read.
    pub records: Vec<Record>,
    /// Whether nothing that was promised can be missing.
    pub complete: bool,
    /// The longest term of what can be missing, as far as the store knows; else 0.
    pub term_ms: u64,
}

/// Why it cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system refuses.
    #[error("the store {place}: {error}")]
    File {
        /// Which file.
        place: String,
        /// Why.
        error: std::io::Error,
    },
    /// Another server has the store.
    #[error("the store {0} belongs to another quota server; stop that one, or give each its own")]
    Taken(String),
    /// etcd does not answer as it should.
    #[error("etcd at {place}: {reason}")]
    Etcd {
        /// Its address.
        place: String,
        /// Why.
        reason: String,
    },
}

/// Where promises are written.
pub trait Store: Send {
    /// Everything written before. Called once, first.
    ///
    /// # Errors
    /// When it cannot be read at all.
    fn load(&mut self) -> Result<Loaded, StoreError>;

    /// Writes more; when it returns, a kill of this process loses none of it.
    ///
    /// # Errors
    /// When it cannot be written, or another server has taken over.
    fn append(&mut self, records: &[Record]) -> Result<(), StoreError>;

    /// Replaces everything by `records`, at once or not at all.
    ///
    /// # Errors
    /// As `append`.
    fn replace(&mut self, records: &[Record]) -> Result<(), StoreError>;

    /// Whether it is time to replace.
    fn is_long(&self) -> bool;
}
