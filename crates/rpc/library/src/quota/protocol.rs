//! The messages of clients and server: one line of JSON each, sealed if there is a shared key ([`super::seal`]).

use serde::{Deserialize, Serialize};

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Begins a connection under a shared key.
    Hello {
        /// The client's nonce.
        nonce: String,
    },
    /// Renews all leases of a client.
    Renew {
        /// Tenant that it sends for.
        tenant: String,
        /// Name of the client, unique per process.
        client: String,
        /// One entry per group and class.
        wants: Vec<Want>,
    },
    /// Releases all leases of a client.
    Release {
        /// Tenant that it sent for.
        tenant: String,
        /// Name of the client.
        client: String,
    },
    /// Requests the state of all pools.
    Show,
    /// Changes a tenant's terms; for operators.
    Set(Terms),
}

/// A client's request for one group and class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Want {
    /// The group's name.
    pub group: String,
    /// The class's name.
    pub class: String,
    /// Demand, payload bytes per second.
    pub demand_bytes_per_s: u64,
    /// Number of its current lease.
    #[serde(default)]
    pub holds: Option<u64>,
}

/// A tenant's terms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// Tenant name.
    pub tenant: String,
    /// The group's name.
    pub group: String,
    /// The class's name.
    pub class: String,
    /// Weight in the division of the rate beyond all guarantees.
    pub weight: u32,
    /// Guaranteed rate, bytes per second.
    pub guarantee_bytes_per_s: u64,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To a renewal, in the order of its entries.
    Leases(Vec<Leased>),
    /// To a request of the state.
    Pools(Vec<PoolState>),
    /// To [`Request::Hello`]: the server's nonce.
    Challenge(String),
    /// Success.
    Done,
    /// Rejected, with the reason.
    Error(String),
}

/// A granted lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leased {
    /// The lease's number.
    pub serial: u64,
    /// Rate, bytes per second.
    pub rate_bytes_per_s: u64,
    /// Term in milliseconds, from the time of the request.
    pub term_ms: u64,
}

/// State of one group and class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolState {
    /// The group's name.
    pub group: String,
    /// The class's name.
    pub class: String,
    /// Capacity for leases, bytes per second.
    pub bound_bytes_per_s: u64,
    /// Computation of the capacity.
    pub arithmetic: String,
    /// Sum of the valid leases, bytes per second. Earlier servers call it `promised_bytes_per_s`.
    #[serde(alias = "promised_bytes_per_s")]
    pub leased_bytes_per_s: u64,
    /// State of each tenant.
    pub tenants: Vec<TenantState>,
}

/// State of one tenant in a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantState {
    /// Tenant name.
    pub tenant: String,
    /// Weight among tenants.
    pub weight: u32,
    /// Guaranteed rate, bytes per second.
    pub guarantee_bytes_per_s: u64,
    /// Number of clients with a demand.
    pub clients: usize,
    /// Sum of the clients' demand, bytes per second.
    pub demand_bytes_per_s: u64,
    /// The tenant's fair rate, bytes per second.
    pub target_bytes_per_s: u64,
    /// Sum of its clients' valid leases, bytes per second. Earlier servers call it `promised_bytes_per_s`.
    #[serde(alias = "promised_bytes_per_s")]
    pub leased_bytes_per_s: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_an_earlier_server_is_read() {
        let state = r#"{"pools":[{"group":"rack1","class":"critical","bound_bytes_per_s":1000,"arithmetic":"sum","promised_bytes_per_s":300,
            "tenants":[{"tenant":"search","weight":1,"guarantee_bytes_per_s":200,"clients":2,"demand_bytes_per_s":500,
            "target_bytes_per_s":400,"promised_bytes_per_s":100}]}]}"#;
        let Answer::Pools(pools) = serde_json::from_str(state).unwrap() else {
            panic!("{state}");
        };
        assert_eq!(pools[0].leased_bytes_per_s, 300);
        assert_eq!(pools[0].tenants[0].leased_bytes_per_s, 100);
    }
}
