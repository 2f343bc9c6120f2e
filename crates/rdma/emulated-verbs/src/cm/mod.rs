//! A librdmacm whose network is the broker: connections by address and port for programs under `isolane rdma emulate`.
//!
//! Problem: programs that use rdma_cm name an address and a port. The kernel's part of rdma_cm knows only real devices.
//! Method: the functions of librdmacm are in the same shared library as those of libibverbs, under the symbol versions of
//! librdmacm. Each call becomes a message to the broker over one connection of the process ([`manager`]). The broker knows who
//! listens, and queues events; a channel's descriptor is a pipe with one byte for each event. Queue pairs change their states
//! here, by the usual verbs, as in the real library.
//!
//! Addresses: host N has 10.77.0.N+1, and its GIDs as IPv6 addresses. Loopback addresses mean the host that connects.
//!
//! * [`layout`] - structures of `rdma_cma.h`;
//! * [`message`] - what goes over the connection;
//! * [`address`] - socket addresses and hosts;
//! * [`manager`] - the connection, devices that are open, identifiers by number;
//! * [`object`] - channels and identifiers as the library knows them;
//! * [`identifier`] - their creation; binding, resolving, listening;
//! * [`pairs`] - queue pairs of identifiers and their states;
//! * [`connect`] - connecting, accepting, rejecting, the end;
//! * [`events`] - events and what the library does on them;
//! * [`endpoint`] - `rdma_getaddrinfo` and `rdma_create_ep`.
//!
//! Limits: no multicast, no rsockets, no extended receive queues for XRC, no port spaces IPoIB and IB. These fail with
//! `EOPNOTSUPP`, and a line names the function.

pub mod address;
pub mod connect;
pub mod endpoint;
pub mod events;
pub mod identifier;
pub mod layout;
pub mod manager;
pub mod message;
pub mod object;
pub mod pairs;
mod verbs;
