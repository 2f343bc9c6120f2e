//! Services by seed: the quota server, the daemon, the memory service, the guardian and peers under random faults, and the quota server over a real etcd.
//!
//! Problem: what goes wrong when a server is killed in the middle of a write, while one client's clock is slow and an
//! answer to another is lost? No hand-written test covers this. Method ([`vopr`]): one run is one seed. Time, clients,
//! the network and the disk are simulated; the server is the product's. Faults come at random, and after each event the
//! invariants are checked. A seed that fails is run again alone and fails again. [`daemon`] does the same with the
//! governor of `isolaned`, [`memory`] with the memory service's control loop, [`guardian`] with the guardian's decisions, [`peers`] with
//! the daemons' reports. [`histories`] runs real quota servers, clients and etcd instead, and checks what they did. The
//! directory `tests` has models of four protocols that the checker stateright runs through all interleavings.
//!
//! Limits: the enforcer's control verbs, sockets of the guardian and threads that keep peers are not in. One thread: races within the
//! server are the ledger's own tests.
#![forbid(unsafe_code)]

/// What happened in a run, and its sum over runs.
macro_rules! counts {
    ($($(#[$about:meta])+ $name:ident,)+) => {
        /// What happened in a run.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Report {
            $($(#[$about])+ pub $name: u64,)+
        }

        impl Report {
            /// Adds the numbers of another run.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
            }
        }
    };
}
use counts;

mod agenda;
pub mod daemon;
pub mod guardian;
pub mod histories;
pub mod memory;
pub mod peers;
pub mod vopr;

/// A broken invariant of a run by seed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{service}, seed {seed}, {place}: {what}")]
pub struct Broken {
    /// The simulated service.
    pub service: &'static str,
    /// Seed of the run.
    pub seed: u64,
    /// Number of the event, time in the run in ms, or both.
    pub place: String,
    /// What does not hold.
    pub what: String,
}

impl Broken {
    fn of(service: &'static str, seed: u64, place: String, what: String) -> Self {
        Self {
            service,
            seed,
            place,
            what,
        }
    }
}
