//! Trapping control verbs: [`filter`] decides what is trapped, [`call`] says what it is, [`notify`] is the kernel's side.

pub mod call;
pub mod filter;
pub mod notify;
