//! What clients and server say: one line of JSON each, behind its seal where a key is shared ([`super::seal`]).

use serde::{Deserialize, Serialize};

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// A client begins a connection under a shared key.
    Hello {
        /// Its nonce.
        nonce: String,
    },
    /// A client renews all its leases.
    Renew {
        /// For whom it sends.
        tenant: String,
        /// Its own name, one for each process.
        client: String,
        /// One for each group and class.
        wants: Vec<Want>,
    },
    /// A client uses nothing any more.
    Release {
        /// For whom it sent.
        tenant: String,
        /// Its own name.
        client: String,
    },
    /// Who has what.
    Show,
    /// An operator changes a tenant's terms.
    Set(Terms),
}

/// What a client wants of one group and class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Want {
    /// The group's name.
    pub group: String,
    /// The class's name.
    pub class: String,
    /// What it would send.
    pub demand_bytes_per_s: u64,
    /// The number of the lease it has.
    #[serde(default)]
    pub holds: Option<u64>,
}

/// What an operator says of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// Its name.
    pub tenant: String,
    /// The group's name.
    pub group: String,
    /// The class's name.
    pub class: String,
    /// Its weight for what no guarantee takes.
    pub weight: u32,
    /// What it gets whenever it asks.
    pub guarantee_bytes_per_s: u64,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To a renewal, in the order of what was wanted.
    Leases(Vec<Leased>),
    /// To a look.
    Pools(Vec<PoolState>),
    /// To a greeting: the server's nonce.
    Challenge(String),
    /// Done.
    Done,
    /// Refused; the reason.
    Error(String),
}

/// What a client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leased {
    /// The lease's number.
    pub serial: u64,
    /// Its rate.
    pub rate_bytes_per_s: u64,
    /// For so long from when it was asked for.
    pub term_ms: u64,
}

/// One group and class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolState {
    /// The group's name.
    pub group: String,
    /// The class's name.
    pub class: String,
    /// What can be promised.
    pub bound_bytes_per_s: u64,
    /// How that comes about.
    pub arithmetic: String,
    /// What clients may be using now.
    pub promised_bytes_per_s: u64,
    /// Who has what.
    pub tenants: Vec<TenantState>,
}

/// One tenant there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantState {
    /// Its name.
    pub tenant: String,
    /// Its weight.
    pub weight: u32,
    /// What it gets whenever it asks.
    pub guarantee_bytes_per_s: u64,
    /// Its clients that ask.
    pub clients: usize,
    /// What they ask for.
    pub demand_bytes_per_s: u64,
    /// What it is to get.
    pub target_bytes_per_s: u64,
    /// What its clients may be using now.
    pub promised_bytes_per_s: u64,
}
