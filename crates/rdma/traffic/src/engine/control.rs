//! Control verbs in a loop: objects are created and destroyed repeatedly, as by an attacker on the control path.
//!
//! Each thread opens the device itself, as a process would. A verb's latency is the time of the call. Verbs that the
//! workload does not count (such as destruction in a loop of creations) run but are not recorded.

use super::data::Device;
use super::error::EndError;
use super::meter::{Counted, Deliver, Meter};
use super::shared::Shared;
use crate::worker::{ControlPhase, ControlWork, EndJob, Job};
use isolane_rdma_scenario::model::ControlObject;
use isolane_rdma_verbs_sys::safe::{
    Capacity, CompletionQueue, MemoryRegion, ProtectionDomain, QueuePair,
};
use isolane_rdma_verbs_sys::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, Library};
use std::sync::Arc;
use std::time::Duration;

/// A control end before the start.
#[derive(Debug)]
pub(crate) struct ControlEnd {
    begin_ns: u64,
    end_ns: Option<u64>,
    work: ControlWork,
    threads: Vec<Maker>,
}

/// The objects of one thread that new objects depend on.
#[derive(Debug)]
struct Maker {
    device: Device,
    domains: Vec<Arc<ProtectionDomain>>,
    queue: Arc<CompletionQueue>,
}

/// A created object; dropping destroys it.
#[expect(dead_code, reason = "held for what dropping does")]
enum Object {
    Region(Arc<MemoryRegion>),
    Pair(QueuePair),
    Queue(Arc<CompletionQueue>),
}

impl ControlEnd {
    pub(crate) fn prepare(
        library: &Library,
        job: &Job,
        end: &EndJob,
        work: &ControlWork,
    ) -> Result<Self, EndError> {
        let threads = (0..work.threads).map(|_| {
            let device = Device::open(library, job)?;
            let domains = (0..work.protection_domains)
                .map(|_| ProtectionDomain::new(&device.context))
                .collect::<Result<_, _>>()?;
            let queue = CompletionQueue::new(&device.context, 16, None)?;
            Ok(Maker {
                device,
                domains,
                queue,
            })
        });
        Ok(Self {
            begin_ns: end.begin_ns,
            end_ns: end.end_ns,
            work: work.clone(),
            threads: threads.collect::<Result<_, EndError>>()?,
        })
    }

    /// Runs all threads until the end of the run; `deliver` gets the figures once.
    pub(crate) fn run(
        &self,
        job: &Job,
        shared: &Shared,
        deliver: Deliver<'_>,
    ) -> Result<(), EndError> {
        shared.await_start();
        let answers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .threads
                .iter()
                .map(|maker| scope.spawn(|| self.turns(maker, job, shared)))
                .collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined
                .map(|answer| answer.expect("a control thread does not panic"))
                .collect()
        });
        let mut answer = Ok(());
        let mut sum: Option<Counted> = None;
        for (counted, outcome) in answers {
            match &mut sum {
                Some(sum) => sum.merge(counted),
                None => sum = Some(counted),
            }
            answer = answer.and(outcome);
        }
        if let Some(sum) = sum {
            deliver(sum);
        }
        answer
    }

    fn turns(&self, maker: &Maker, job: &Job, shared: &Shared) -> (Counted, Result<(), EndError>) {
        let mut meter = Meter::new(job.warmup, job.duration_ns, job.sample_interval_ns, 0);
        let mut answer = Ok(());
        let mut objects = Vec::with_capacity(self.work.objects as usize);
        let mut last = 0;
        loop {
            let now = shared.now();
            meter.tick(now);
            let end_ns = self.end_ns.unwrap_or(u64::MAX).min(meter.end_ns());
            if shared.stopped() || now >= meter.end_ns() {
                break;
            }
            if now < self.begin_ns || now >= end_ns {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            let turned = match self.work.phase {
                ControlPhase::Modify => self.modify(maker, job.port, shared, &mut meter),
                _ => self.cycle(maker, &mut objects, shared, &mut meter),
            };
            let done = meter.progress().0;
            shared.add_progress(done - last, 0);
            last = done;
            if let Err(error) = turned {
                meter.error(&error.to_string());
                answer = Err(error);
                break;
            }
        }
        drop(objects);
        (meter.report(shared.now(), None), answer)
    }

    /// Creates all objects, then destroys them.
    fn cycle(
        &self,
        maker: &Maker,
        objects: &mut Vec<Object>,
        shared: &Shared,
        meter: &mut Meter,
    ) -> Result<(), EndError> {
        let counts = |phase| self.work.phase == ControlPhase::Cycle || self.work.phase == phase;
        for index in 0..self.work.objects as usize {
            if shared.stopped() {
                return Ok(());
            }
            let before = shared.now();
            objects.push(self.make(maker, index)?);
            self.record(counts(ControlPhase::Create), before, shared, meter);
        }
        while let Some(object) = objects.pop() {
            let before = shared.now();
            drop(object);
            self.record(counts(ControlPhase::Destroy), before, shared, meter);
        }
        Ok(())
    }

    /// Moves a queue pair to INIT and back to RESET, as often as there are objects.
    fn modify(
        &self,
        maker: &Maker,
        port: u8,
        shared: &Shared,
        meter: &mut Meter,
    ) -> Result<(), EndError> {
        let Object::Pair(pair) = self.make(maker, 0)? else {
            return Ok(());
        };
        for _ in 0..self.work.objects {
            let before = shared.now();
            pair.initialise(port, IBV_ACCESS_REMOTE_WRITE)?;
            self.record(true, before, shared, meter);
            let before = shared.now();
            pair.reset()?;
            self.record(true, before, shared, meter);
        }
        Ok(())
    }

    fn record(&self, counts: bool, before: u64, shared: &Shared, meter: &mut Meter) {
        let now = shared.now();
        if counts {
            meter.control(now, now - before);
        }
        if let Some(interval) = 1_000_000_000_u64.checked_div(self.work.verbs_per_s) {
            let rest = (before + interval).saturating_sub(shared.now());
            std::thread::sleep(Duration::from_nanos(rest));
        }
    }

    fn make(&self, maker: &Maker, index: usize) -> Result<Object, EndError> {
        let domain = &maker.domains[index % maker.domains.len()];
        Ok(match self.work.object {
            ControlObject::MemoryRegion => {
                let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
                Object::Region(MemoryRegion::new(domain, self.work.region_bytes, access)?)
            }
            ControlObject::QueuePair => {
                let capacity = Capacity {
                    sends: 1,
                    receives: 1,
                    send_elements: 1,
                    receive_elements: 1,
                    inline_bytes: 0,
                };
                let queue = &maker.queue;
                Object::Pair(QueuePair::reliable(domain, queue, capacity)?)
            }
            ControlObject::CompletionQueue => {
                Object::Queue(CompletionQueue::new(&maker.device.context, 1, None)?)
            }
        })
    }
}
