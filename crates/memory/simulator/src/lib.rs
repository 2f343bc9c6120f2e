//! A simulator of one machine with tiered memory and of the applications that share it.
//!
//! Problem: how fast an application's loads are follows from how many requests of all applications are on their way, to
//! which tier, and what the kernel and a policy move meanwhile. A table of interference would only repeat what was
//! measured; here requests wait for finite things, and the rest follows. Method: time passes in steps of [`STEP`]. A
//! request takes a tenth of a microsecond, and no policy decides more often than every 200 ms. So within a step the
//! memory system is in balance: [`balance`] solves the closed network of cores, request slots and tiers. Between steps
//! pages move. Fixed steps instead of events, because one simulated hour holds some 10^13 requests.
//! `docs/internals/memory-model.md` says what each mechanism does and what is left out.
//!
//! * `tier` - channels and finite queue of one tier; [`balance`] - slots that all tiers share, and who waits for what;
//! * `pages` - the tiers of an application's pages, and how hot the pages are;
//! * `kernel` - hint faults, promotion, demotion, limits, and what moving costs;
//! * `sampled` - pages moved by policies that sample requests; `heat` - what the samples show;
//! * [`mod@bench`] - the two microbenchmarks, thresholds of a machine, profiles of applications;
//! * `host` - applications that come, change and go; `drive` - the policy's eyes and hands;
//! * `words` - verdicts and reasons as people read them;
//! * `run` - one scenario from start to result.
//!
//! Units: nanoseconds, bytes, requests of one cache line. Same scenario and version: same bytes on every machine.
//! Source: Mercury 5.2 to 5.5; TPP and NUMA balancing of Linux, Memtis and Colloid for what moves pages.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![forbid(unsafe_code)]

pub mod balance;
pub mod bench;
mod drive;
mod heat;
mod host;
mod kernel;
mod measure;
mod pages;
mod run;
mod sampled;
mod settings;
#[cfg(test)]
mod tests;
mod tier;
mod words;

pub use run::{STEP, run, run_with};
pub use settings::Machine;
