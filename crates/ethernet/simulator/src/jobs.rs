//! Jobs of the processors: the effect and the cost of each.

use crate::host::Arrival;
use crate::processor::Job;
use crate::segment::Kind;
use crate::world::{Event, World};
use isolane_common_quantities::units::{Duration, Instant};

impl World {
    pub(crate) fn plan(&mut self, host: u16, processor: u16, job: Job) {
        let entry = &mut self.hosts[usize::from(host)];
        if entry.processors[usize::from(processor)].plan(job) {
            let awake = entry.wake(processor, self.now, &self.settings.sleep);
            self.events
                .schedule(awake, Event::Processor { host, processor });
        }
    }

    /// The processor is free: the next job.
    pub(crate) fn next_job(&mut self, host: u16, processor: u16) {
        let entry = &mut self.hosts[usize::from(host)].processors[usize::from(processor)];
        let Some(job) = entry.next(self.now) else {
            return;
        };
        self.spent = Duration::ZERO;
        match job {
            Job::Poll { vector } => self.poll(host, vector),
            Job::Wake { flow } => self.wake(flow, processor),
            Job::RunQueue { queue } => self.planned_run(host, queue, processor),
            Job::RunBatch { queue } => self.batched_run(host, queue, processor),
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
        let sibling = self.hosts[usize::from(host)].sibling(processor);
        match sibling.is_some_and(|thread| thread.is_running(self.now)) {
            true => self.settings.cost.sibling_percent,
            false => 100,
        }
    }

    /// When the running job will be done, as far as is known.
    #[inline]
    pub(crate) fn job_end(&self) -> Instant {
        self.now + self.spent
    }

    pub(crate) fn ping_due(&mut self) {
        let source = self.flows[self.pings.flow as usize].source;
        self.plan(source, self.pings.processor, Job::Ping);
        self.events
            .schedule(self.now + self.pings.interval, Event::Ping);
    }

    fn send_ping(&mut self, host: u16, processor: u16) {
        let number = self.pings.begin(self.now);
        self.echo(host, Kind::Ping, number, processor);
    }

    pub(crate) fn answer_ping(&mut self, host: u16, arrival: &Arrival, processor: u16) {
        self.echo(host, Kind::Pong, arrival.seq as u32, processor);
    }

    fn echo(&mut self, host: u16, kind: Kind, number: u32, processor: u16) {
        let segment = self.pings.segment(&self.settings, self.now, kind, number);
        self.transmit(host, segment, processor, false);
    }

    pub(crate) fn ping_returned(&mut self, arrival: &Arrival) {
        let (end, extra) = (self.job_end(), self.settings.cost.ping);
        self.pings
            .returned(arrival.seq, self.measure.from, end, extra);
    }
}
