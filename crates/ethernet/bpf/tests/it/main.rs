//! The BPF programs in a real kernel, and the model that they follow.
#![allow(unsafe_code)]

mod attach;
mod kept;
mod model;
mod stopped;
mod support;
mod traffic;
mod verifier;
