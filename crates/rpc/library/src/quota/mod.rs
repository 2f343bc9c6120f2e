//! The quota server and its clients: leases of admitted bytes per second, on top of Aequitas.
//!
//! Problem: Aequitas keeps the latency of admitted calls, but promises no tenant how much of its traffic is admitted.
//! Method: the policy is [`isolane_rpc_policy::quota`]; this module has its adapters. The [`server`] keeps a [`book`]
//! of pools (one for each group of destinations and class) and writes every promise to a [`store`] before it is given
//! ([`ledger`]). A [`client`] is a thread beside the table: it renews well within the term, reports the demand, and
//! puts rates into the table. Calls never wait for it; without a server its leases expire and the admit probability
//! decides. Units: bytes per second; milliseconds on the wire. Limits: a client that can connect to a Unix socket (its
//! permissions are `socket_mode`) or has the key of a TCP server ([`seal`]) can claim any tenant's name. A client on a
//! suspended machine may use its lease for up to a term after it wakes.

pub mod book;
pub mod client;
pub mod ledger;
pub mod line;
mod outage;
pub mod protocol;
pub mod seal;
pub mod server;
pub mod settings;
pub mod store;
