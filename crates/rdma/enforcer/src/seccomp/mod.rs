//! Trapping control verbs: [`filter`] decides what is trapped, [`call`] says what it is, [`notify`] is the kernel's side.
//!
//! Senders of listeners are not trusted: [`interrupt`] bounds each receive, and [`same`] recognises a listener that is here
//! already.

pub mod call;
pub mod filter;
pub mod interrupt;
pub mod notify;
pub mod same;
