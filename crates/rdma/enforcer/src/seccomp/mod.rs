//! Traps control verbs: [`filter`] selects the calls, [`call`] finds their verb, [`notify`] is the kernel interface.
//!
//! Senders of listeners are not trusted: [`interrupt`] bounds each receive, and [`same`] detects duplicate listeners.

pub mod call;
pub mod filter;
pub mod interrupt;
pub mod notify;
pub mod same;
