//! Requests that must fail, in a loop, on two queue pairs of one device.
//!
//! Problem: failing requests of a tenant also cost its neighbours: error packets, retries, destroyed queue pairs. A
//! failure leaves both queue pairs in the error state. Every turn therefore creates two queue pairs, connects them to
//! each other, posts one bad request, waits for its completion and destroys them.

use super::data::Device;
use super::error::EndError;
use super::meter::{Deliver, Meter};
use super::shared::Shared;
use crate::worker::{EndJob, FaultWork, Job};
use isolane_rdma_verbs_sys::safe::{
    Capacity, CompletionQueue, Connection, Element, MemoryRegion, Peer, ProtectionDomain,
    QueuePair, Request, SendList, Target, Timers,
};
use isolane_rdma_verbs_sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, IBV_WC_SUCCESS, Library, ibv_wc,
};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of each bad request.
const BYTES: u32 = 64;
/// Longest wait for a completion, nanoseconds.
const PATIENCE_NS: u64 = 5_000_000_000;

/// A fault end before the start.
#[derive(Debug)]
pub(crate) struct FaultEnd {
    begin_ns: u64,
    end_ns: Option<u64>,
    work: FaultWork,
    device: Device,
    domain: Arc<ProtectionDomain>,
    queue: Arc<CompletionQueue>,
    region: Arc<MemoryRegion>,
}

impl FaultEnd {
    pub(crate) fn prepare(
        library: &Library,
        job: &Job,
        end: &EndJob,
        work: FaultWork,
    ) -> Result<Self, EndError> {
        let device = Device::open(library, job)?;
        let domain = ProtectionDomain::new(&device.context)?;
        let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
        Ok(Self {
            begin_ns: end.begin_ns,
            end_ns: end.end_ns,
            work,
            queue: CompletionQueue::new(&device.context, 16, None)?,
            region: MemoryRegion::new(&domain, 4_096, access)?,
            device,
            domain,
        })
    }

    pub(crate) fn run(
        &self,
        job: &Job,
        shared: &Shared,
        deliver: Deliver<'_>,
    ) -> Result<(), EndError> {
        shared.await_start();
        let mut meter = Meter::new(job.warmup, job.duration_ns, job.sample_interval_ns, 0);
        let mut answer = Ok(());
        loop {
            let now = shared.now();
            meter.tick(now);
            if shared.stopped() || now >= meter.end_ns() {
                break;
            }
            if now < self.begin_ns || self.end_ns.is_some_and(|end_ns| now >= end_ns) {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            match self.turn(job, shared) {
                Ok(true) => {
                    let after = shared.now();
                    meter.fault(after, after - now);
                    shared.add_progress(1, 0);
                }
                Ok(false) if shared.stopped() => break,
                Ok(false) => meter.error("a bad request did not fail"),
                Err(error) => {
                    meter.error(&error.to_string());
                    answer = Err(error);
                    break;
                }
            }
        }
        deliver(meter.report(shared.now(), None));
        answer
    }

    /// Causes one failure. Returns false if it did not happen.
    fn turn(&self, job: &Job, shared: &Shared) -> Result<bool, EndError> {
        let (from, _to) = self.connected(job)?;
        let target = match self.work {
            FaultWork::RemoteKey => Target::Write {
                address: self.region.address(),
                key: !self.region.remote_key(),
                immediate: None,
            },
            FaultWork::LocalKey | FaultWork::ReceiverNotReady => Target::Send {
                immediate: None,
                datagram: None,
            },
        };
        let request = Request {
            id: 0,
            target,
            signaled: true,
            inline: false,
            wrong_key: self.work == FaultWork::LocalKey,
        };
        let element = Element {
            region: 0,
            offset: 0,
            length: BYTES,
        };
        let mut list = SendList::new(vec![Arc::clone(&self.region)]);
        list.push(&request, &[element])?;
        if let Err((error, _)) = list.post(&from) {
            // Some devices reject a bad local key at once, which counts as a failure too.
            return match self.work {
                FaultWork::LocalKey => Ok(true),
                FaultWork::RemoteKey | FaultWork::ReceiverNotReady => Err(error.into()),
            };
        }
        let begin = shared.now();
        let mut completions = [ibv_wc::default(); 4];
        while shared.now() - begin < PATIENCE_NS && !shared.stopped() {
            let count = self.queue.poll(&mut completions)?;
            let mine = completions[..count]
                .iter()
                .find(|wc| wc.qp_num == from.number());
            if let Some(completion) = mine {
                return Ok(completion.status != IBV_WC_SUCCESS);
            }
            std::thread::yield_now();
        }
        Ok(false)
    }

    /// Two queue pairs that are connected to each other.
    fn connected(&self, job: &Job) -> Result<(QueuePair, QueuePair), EndError> {
        let capacity = Capacity {
            sends: 2,
            receives: 1,
            send_elements: 1,
            receive_elements: 1,
            inline_bytes: 0,
        };
        let pair = || {
            let pair = QueuePair::reliable(&self.domain, &self.queue, capacity)?;
            pair.initialise(job.port, IBV_ACCESS_REMOTE_WRITE)?;
            Ok::<_, EndError>(pair)
        };
        let (from, to) = (pair()?, pair()?);
        let connection = Connection {
            port: self.device.port.number,
            gid_index: self.device.gid_index,
            mtu: self.device.port.mtu,
            packet_sequence: 0,
            traffic_class: 0,
            service_level: 0,
            read_atomic: 0,
            timers: Timers {
                min_rnr: 1,
                rnr_retries: 0,
                ..Timers::default()
            },
        };
        let peer = |pair: &QueuePair| Peer {
            gid: self.device.gid,
            lid: self.device.port.lid,
            queue_pair: pair.number(),
            packet_sequence: 0,
        };
        to.connect(&connection, &peer(&from))?;
        from.connect(&connection, &peer(&to))?;
        Ok((from, to))
    }
}
