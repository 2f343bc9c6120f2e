//! The C interface of libibverbs: structures, constants, inline functions and the exported functions.
//!
//! Problem: a program that needs libibverbs and its headers to build, or its library to start, cannot be tested on
//! machines without RDMA. Method: the layouts are written by hand and compared with the installed header by a test;
//! the library is opened at run time ([`Library`]).
//! Names are those of `<infiniband/verbs.h>`, so that the manual pages (section 3, `ibv_*`) describe them.
//! Enumerations are integers: a newer library may answer values that this file does not know.
//! Units: bytes, and what the manual says.
//! Limits: Linux, 64 bit. Flow steering, counters and ESP actions appear as untyped pointers.
//! Source: the stable interface of rdma-core (symbol versions IBVERBS_1.0 to IBVERBS_1.14), as in its version 44.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]
#![allow(
    non_camel_case_types,
    non_snake_case,
    reason = "the names of the C header"
)]

pub mod layout;
pub mod safe;

mod address;
mod completion;
mod device;
mod inline;
mod library;
mod memory;
pub mod pacing;
mod queue_pair;
mod shared_receive;
mod work;

pub use address::*;
pub use completion::*;
pub use device::*;
pub use inline::*;
pub use library::*;
pub use memory::*;
pub use queue_pair::*;
pub use shared_receive::*;
pub use work::*;

/// Every structure of this crate under its C name, for the test against the C compiler.
#[doc(hidden)]
pub fn structures() -> impl Iterator<Item = &'static layout::Structure> {
    [
        address::STRUCTURES,
        completion::STRUCTURES,
        device::STRUCTURES,
        memory::STRUCTURES,
        queue_pair::STRUCTURES,
        shared_receive::STRUCTURES,
        work::STRUCTURES,
    ]
    .into_iter()
    .flatten()
}

/// Every constant of this crate, for the test against the C compiler.
#[doc(hidden)]
pub fn constants() -> impl Iterator<Item = &'static layout::Constant> {
    [
        address::CONSTANTS,
        completion::CONSTANTS,
        device::CONSTANTS,
        memory::CONSTANTS,
        queue_pair::CONSTANTS,
        shared_receive::CONSTANTS,
        work::CONSTANTS,
    ]
    .into_iter()
    .flatten()
}
