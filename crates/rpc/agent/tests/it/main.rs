//! Integration tests of the crate, in one program.
#![allow(clippy::unwrap_used)]

mod object;
mod support;
mod traffic;
