//! Distributed applications: processes whose next message waits for another one's arrival.
//!
//! Units: picoseconds, bytes. An *actor* is one thread with a core of its own. A *link* carries its messages to
//! another actor: over a queue pair, or, between workers on one host, by a copy in memory. Taking a message costs the
//! actor what polling costs, and what its program does with it; sending costs what posting costs.
//!
//! * Ring: worker r sends to r + 1; 2(n - 1) steps of an n-th of the vector each; the first n - 1 add. Every send
//!   but an operation's first waits for the previous step's data.
//! * Tree: binomial; whole vectors go up to worker 0, each added on arrival, and back down.
//! * Store: a client thread keeps `window` requests under way, in batches: it sends the next batch when the last answer
//!   of one has come. A request beyond the credits of its server's thread waits at the client. Servers answer in turn.
//!
//! Workers start the next operation when they have finished the last. Limits: no barrier, no failure, no datagram is
//! lost (nothing in this model drops one that finds a receive); a step is one message, not pipelined.

mod steps;

use isolane_rdma_scenario::application::Program as Kind;
use std::collections::VecDeque;

/// All applications of an experiment.
#[derive(Default)]
pub(crate) struct Programs {
    programs: Vec<Program>,
    actors: Vec<Actor>,
    links: Vec<Link>,
    /// What is unanswered of each link, in order.
    asked: Vec<Asked>,
}

struct Program {
    tenant: u16,
    kind: Kind,
    first_actor: u32,
    /// Workers of an allreduce, clients' threads of a store.
    actors: u32,
    /// Operations under way: when each started, ps, and how many workers have finished it.
    under_way: VecDeque<(u64, u32)>,
    /// The number of the first of them.
    first_operation: u64,
}

struct Actor {
    program: u32,
    cpu_free: u64,
    /// Messages from the ring's predecessor, or from the tree's children.
    received: u64,
    finished: u64,
    /// Ring: to the successor. Tree: to the parent, unless worker 0, then to the children. Store: to the servers.
    out: Vec<u32>,
    /// Store: which server the client asks next.
    turn: u32,
    /// Store: unanswered requests of each batch.
    batches: Vec<u32>,
}

/// Requests of a link that are not answered.
#[derive(Default)]
struct Asked {
    /// The batch of each, and since when it waited for a credit, ps; `u64::MAX` if it did not.
    requests: VecDeque<(u32, u64)>,
    /// The last so many of them wait for a credit.
    waiting: u32,
}

#[derive(Clone, Copy)]
struct Link {
    from: u32,
    to: u32,
    /// The queue pair; [`NONE`] within a host.
    pair: u32,
    bytes: u64,
    role: Role,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Ring,
    Up,
    Down,
    Request,
    Response,
}

impl Programs {
    /// Whether a tenant runs an application.
    pub(crate) fn belong_to(&self, tenant: u16) -> bool {
        self.programs.iter().any(|program| program.tenant == tenant)
    }

    fn add_actors(&mut self, count: u32) {
        let program = self.programs.len() as u32;
        self.actors.extend((0..count).map(|_| Actor {
            program,
            cpu_free: 0,
            received: 0,
            finished: 0,
            out: Vec::new(),
            turn: 0,
            batches: Vec::new(),
        }));
    }
}

/// Messages that each worker of a ring receives per operation.
fn steps(workers: u32) -> u64 {
    2 * (u64::from(workers) - 1)
}
