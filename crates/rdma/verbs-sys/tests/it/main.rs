//! The interface of libibverbs against the C header and the library.

mod header;
mod library;
mod pacing;
mod safe;
