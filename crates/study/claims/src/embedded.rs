//! The repository's claims and their scenarios, inside the binary. `build.rs` lists them.

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
