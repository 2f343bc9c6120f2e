//! Processors: one thing at a time, in order of arrival.
//!
//! Method: whatever software does is a job on a processor. A job takes effect when it begins and occupies its processor for
//! what its steps cost; the next one begins then. Busy time is the sum of costs, so that a processor that cannot keep up
//! delays its queue of jobs and, through that, its flows.
//! Processors p and p + n/2 of n are the threads of one core, as Linux counts them: a job that begins while the other thread
//! is busy takes longer.
//! Limits: soft interrupts do not go before applications (they wait for at most one write), and no other work runs.

use crate::world::{Event, World};
use isolane_common_quantities::units::{Duration, Instant};
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

impl World {
    /// Plans a job.
    pub(crate) fn plan(&mut self, host: u16, processor: u16, job: Job) {
        let entry = &mut self.hosts[usize::from(host)].processors[usize::from(processor)];
        entry.jobs.push_back(job);
        if !entry.active {
            entry.active = true;
            self.events
                .schedule(self.now, Event::Processor { host, processor });
        }
    }

    /// The processor is free: the next job.
    pub(crate) fn next_job(&mut self, host: u16, processor: u16) {
        let entry = &mut self.hosts[usize::from(host)].processors[usize::from(processor)];
        let Some(job) = entry.jobs.pop_front() else {
            entry.active = false;
            return;
        };
        self.spent = Duration::ZERO;
        match job {
            Job::Poll { vector } => self.poll(host, vector),
            Job::Wake { flow } => self.wake(flow, processor),
            Job::RunQueue { queue } => self.planned_run(host, queue, processor),
            Job::Write { flow } => self.write(flow, processor),
            Job::Timeout { flow } => self.timeout(flow, processor),
            Job::DelayedAck { flow } => self.delayed_ack(flow, processor),
            Job::Ping => self.send_ping(host, processor),
        }
        let spent = self.spent * self.slowness(host, processor) / 100;
        let entry = &mut self.hosts[usize::from(host)].processors[usize::from(processor)];
        entry.busy += spent;
        self.events
            .schedule(self.now + spent, Event::Processor { host, processor });
    }

    /// Percent of its costs that a job takes: more while the other thread of the core is busy.
    fn slowness(&self, host: u16, processor: u16) -> u64 {
        let processors = &self.hosts[usize::from(host)].processors;
        let sibling = (usize::from(processor) + processors.len() / 2) % processors.len();
        let is_shared = processors.len().is_multiple_of(2) && processors[sibling].active;
        if is_shared {
            self.settings.cost.sibling_percent
        } else {
            100
        }
    }

    /// When the running job will be done, as far as is known.
    #[inline]
    pub(crate) fn job_end(&self) -> Instant {
        self.now + self.spent
    }
}
