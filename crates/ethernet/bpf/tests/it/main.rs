//! The BPF programs in a real kernel, and the model that they follow.
#![allow(unsafe_code)]

mod attach;
mod model;
mod object;
mod support;
mod traffic;
