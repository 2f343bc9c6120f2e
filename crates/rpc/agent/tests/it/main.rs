//! Integration tests of the crate, in one program.
#![allow(clippy::unwrap_used)]

mod support;
mod traffic;
