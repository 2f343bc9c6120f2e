//! The program as users run it, and what it shares with the real hosts.

mod assign;
mod audit_place;
mod claims;
mod commands;
mod doctor;
mod emulate;
mod enforce;
mod hunt;
mod kubernetes;
mod mem;
mod memory_twins;
mod network;
mod newcomer;
mod nic;
mod planner;
mod policies;
mod quota;
mod rpc_lab;
mod run;
mod scenarios;
mod sim_memory;
mod support;
mod target;
mod top;
mod watch;
mod wfq;
