//! Processors: each executes one job at a time, in order of arrival.
//!
//! Method: all work of software is a job on a processor. A job takes effect when it begins and occupies its processor
//! for what its steps cost; the next one begins then. Busy time is the sum of costs, so that a processor that cannot
//! keep up delays its queue of jobs and, through that, its flows. Processors p and p + n/2 of n are the threads of one
//! core, as Linux counts them: a job that begins while the other thread is busy takes longer. Limits: soft interrupts
//! do not go before applications (they wait for at most one write), and no other work runs.

use isolane_common_quantities::units::Duration;
use std::collections::VecDeque;

/// Something that software does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// A poll of a vector after its interrupt, or again.
    Poll { vector: u16 },
    /// A flow that waited for completions sends again.
    Wake { flow: u32 },
    /// A run of a software queue.
    RunQueue { queue: u16 },
    /// An application writes.
    Write { flow: u32 },
    /// A retransmission timer.
    Timeout { flow: u32 },
    /// A delayed acknowledgement.
    DelayedAck { flow: u32 },
    /// A ping is sent.
    Ping,
}

/// A hardware thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Processor {
    jobs: VecDeque<Job>,
    /// A job is running or an event will start the next.
    active: bool,
    pub(crate) busy: Duration,
}

impl Processor {
    /// Adds a job. True if the processor was idle: the caller must schedule its start.
    pub(crate) fn plan(&mut self, job: Job) -> bool {
        self.jobs.push_back(job);
        !std::mem::replace(&mut self.active, true)
    }

    /// The next job; without one the processor is idle.
    pub(crate) fn next(&mut self) -> Option<Job> {
        let job = self.jobs.pop_front();
        self.active = job.is_some();
        job
    }

    /// Whether a job is running or about to.
    pub(crate) fn is_active(&self) -> bool {
        self.active
    }
}
