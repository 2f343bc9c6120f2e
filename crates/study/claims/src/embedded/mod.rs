//! The repository's claims and their scenarios, inside the binary: a file for each system.
//!
//! Generated: `UPDATE_EXPECT=1 cargo test -p isolane-study-claims` writes this file after one was added.

mod aequitas;
mod collie;
mod harmonic;
mod husky;
mod justitia;
mod mercury;
mod palos;
mod scenarios;
mod titan;
mod vulcan;

pub use scenarios::SCENARIOS;

/// Every claim, a list for each system: path inside the repository, text.
#[rustfmt::skip]
pub const CLAIMS: &[&[(&str, &str)]] = &[
    aequitas::CLAIMS,
    collie::CLAIMS,
    harmonic::CLAIMS,
    husky::CLAIMS,
    justitia::CLAIMS,
    mercury::CLAIMS,
    palos::CLAIMS,
    titan::CLAIMS,
    vulcan::CLAIMS,
];
