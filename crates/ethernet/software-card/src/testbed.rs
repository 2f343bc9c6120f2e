//! One run of a study on the real kernel: two namespaces, the soft card between them, iperf3, ping, and what came out.
//!
//! Method: the configuration is applied as far as this machine can; what it cannot is said in words. Senders start, and
//! when all flows were seen on the wire and the warm-up is over, everything is counted at the wire for the study's time,
//! with pings beside it.
//! Processor time is that of the sending host only: what the iperf3 senders used, and the time that the card's thread
//! spent inside the sender's kernel handing over acknowledgements (the sender's receive interrupts, and the transmissions
//! that they set off). The card's own work, the receivers and everything else on the machine do not count.
//! Units: the types say them. Limits: fairness at the wire is exact; latency and processor time are as noisy as the machine.
//! Source: titan 6 (methodology).

use crate::card::Discipline;
use crate::error::SoftNicError;
use crate::nic::{Loads, Nic, NicCounts, NicOptions};
use crate::plan::{self, Plan};
use crate::programs::{self, Program};
use crate::queueing::Queueing;
use crate::record::{self, FlowRecord, WireRecord};
use crate::spaces::{self, DeviceOptions, Pair};
use isolane_common_quantities::units::Duration;
use isolane_ethernet_policy::titan::segments::{SegmentOptions, SegmentSize};
use isolane_ethernet_scenario::model::{NicStudy, NicTraffic};
use isolane_study_results::ethernet::{NIC_RESULT_VERSION, NicResult};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// How long flows may take to appear.
const APPEAR_S: u64 = 15;
/// How long no queue must have been shared before segments grow again.
const SEGMENT_HOLD: Duration = Duration::from_ms(200);
/// What a flow sends at least while it is waited for: more than iperf3 says on its control connections.
const BULK_BYTES: u64 = 8_192;
/// How often a wait looks whether it is interrupted, and whether queues are shared.
const LOOK: std::time::Duration = std::time::Duration::from_millis(20);

/// How the testbed runs.
#[derive(Clone, Copy, Debug)]
pub struct TestbedOptions<'a> {
    /// The processor of the card's thread; the kernel chooses if none.
    pub nic_processor: Option<usize>,
    /// Deliver packet by packet with complete checksums: slower, but the receiver checks every byte.
    pub complete_checksums: bool,
    /// Least time between two deliveries.
    pub interrupt: Duration,
    /// Assign queues and keep limits by the BPF programs, as far as the kernel has BPF. Without them the device is as
    /// the kernel has it, to measure what they cost.
    pub programs: bool,
    /// Set from outside to end the run.
    pub interrupted: &'a AtomicBool,
}

impl<'a> TestbedOptions<'a> {
    /// 100 us between deliveries, merged, on any processor.
    pub fn new(interrupted: &'a AtomicBool) -> Self {
        Self {
            nic_processor: None,
            complete_checksums: false,
            interrupt: Duration::from_us(100),
            programs: true,
            interrupted,
        }
    }
}

/// Runs one study; `progress` is called with one line per step. Fails if the study is not one of flows between two
/// hosts, the machine lacks a part, or a program ends early. Nothing is left behind.
pub fn run(
    study: &NicStudy,
    options: &TestbedOptions<'_>,
    progress: &mut dyn FnMut(&str),
) -> Result<NicResult, SoftNicError> {
    let NicTraffic::Flows {
        flows,
        ping,
        ping_interval,
    } = study.traffic
    else {
        return Err(SoftNicError::Input(format!(
            "study `{}` is of a cluster; the NIC in user space joins two hosts: run it in the simulator (--sim)",
            study.name
        )));
    };
    progress(&format!(
        "{}: two namespaces, {} queues",
        study.name, study.card.queues
    ));
    let mut bed = Bed::build(study, options)?;
    bed.start_flows(flows, study)?;
    bed.wait_for_flows(flows, study, options)?;
    progress(&format!("{}: {flows} flows, measuring", study.name));
    let ping = programs::start_ping(bed.pair.sender(), ping, ping_interval, study.duration)?;
    let measured = bed.measure(study.duration, ping, options)?;
    Ok(bed.result(study, flows, &measured))
}

struct Bed {
    // The order of the fields is that of the removal: programs, card, namespaces.
    senders: Vec<Program>,
    servers: Vec<Program>,
    nic: Nic,
    queueing: Option<Queueing>,
    pair: Pair,
    segments: Option<SegmentSize>,
    begin: Instant,
    congestion: Option<&'static str>,
    not_done: Vec<String>,
}

struct Measured {
    record: WireRecord,
    length: Duration,
    before: Snapshot,
    after: Snapshot,
    round_trips_us: Vec<f64>,
}

struct Snapshot {
    nic: NicCounts,
    programs: BTreeMap<&'static str, u64>,
    /// Processor time of the senders.
    senders: Duration,
    kernel: BTreeMap<&'static str, u64>,
}

impl Bed {
    fn build(study: &NicStudy, options: &TestbedOptions<'_>) -> Result<Self, SoftNicError> {
        let controls = plan::congestion_controls();
        let without = Plan::of(study, &controls, false)?;
        let pair = Pair::make()?;
        let device = DeviceOptions {
            queues: study.card.queues,
            segmentation: study.config.segmentation_offload,
            queue_frames: without.queue_frames,
            mtu: study.card.mtu.get() as u32,
        };
        let (mut from, to) = spaces::open_devices(pair.sender(), pair.receiver(), &device)?;
        let attached = options
            .programs
            .then(|| Queueing::attach(study, pair.sender(), &mut from));
        let (queueing, plan) = match attached {
            Some(Ok(queueing)) => (Some(queueing), Plan::of(study, &controls, true)?),
            Some(Err(error)) if plan::needs_programs(&study.config) => return Err(error),
            Some(Err(_)) | None => (None, without),
        };
        spaces::set_queue_frames(pair.sender(), plan.queue_frames)?;
        if let Some(segment) = plan.segment {
            spaces::set_segment(pair.sender(), segment.get())?;
        }
        let nic = NicOptions {
            rate: study.card.rate,
            discipline: match study.config.queue_weights {
                true => Discipline::Weighted,
                false => Discipline::RoundRobin,
            },
            interrupt: options.interrupt,
            complete_checksums: options.complete_checksums,
            processor: options.nic_processor,
        };
        let loads = queueing
            .as_ref()
            .map(|queueing| Box::new(queueing.loads()) as Loads);
        Ok(Self {
            nic: Nic::start(from, to, nic, loads)?,
            senders: Vec::new(),
            servers: Vec::new(),
            pair,
            segments: segments(study),
            queueing,
            begin: Instant::now(),
            congestion: plan.congestion,
            not_done: plan.not_done,
        })
    }

    fn start_flows(&mut self, flows: u32, study: &NicStudy) -> Result<(), SoftNicError> {
        let processors = plan::processors(study.card.processors);
        if processors.len() < usize::from(study.card.processors) {
            self.not_done.push(format!(
                "processors: {} of {}",
                processors.len(),
                study.card.processors
            ));
        }
        let shares = programs::deal(flows, &processors);
        self.servers = programs::start_servers(self.pair.receiver(), &shares)?;
        let begin = Instant::now();
        while self.servers.first().is_some_and(|server| {
            programs::listening(server.id(), self.pair.receiver()) < shares.len()
        }) {
            for server in &mut self.servers {
                server.must_run()?;
            }
            if begin.elapsed().as_secs() > APPEAR_S {
                return Err(SoftNicError::Machine(format!(
                    "iperf3 servers do not listen after {APPEAR_S} s"
                )));
            }
            std::thread::sleep(LOOK);
        }
        self.senders = programs::start_senders(self.pair.sender(), &shares, self.congestion)?;
        Ok(())
    }

    /// Waits until every flow was seen within one warm-up.
    fn wait_for_flows(
        &mut self,
        flows: u32,
        study: &NicStudy,
        options: &TestbedOptions<'_>,
    ) -> Result<(), SoftNicError> {
        let begin = Instant::now();
        loop {
            self.nic.record()?;
            self.wait(study.warmup.max(Duration::from_ms(100)), options)?;
            for program in self.senders.iter_mut().chain(&mut self.servers) {
                program.must_run()?;
            }
            let seen = self.nic.recorded()?;
            let sends = |flow: &&&FlowRecord| flow.goodput_bytes >= BULK_BYTES;
            let seen = seen.map_or(0, |(record, _)| {
                record.bulk(flows as usize).iter().filter(sends).count()
            });
            if seen >= flows as usize {
                return Ok(());
            }
            if begin.elapsed().as_secs() > APPEAR_S {
                return Err(SoftNicError::Machine(format!(
                    "only {seen} of {flows} flows send after {APPEAR_S} s; the machine may be too busy"
                )));
            }
        }
    }

    fn measure(
        &mut self,
        length: Duration,
        mut ping: Program,
        options: &TestbedOptions<'_>,
    ) -> Result<Measured, SoftNicError> {
        let before = self.snapshot()?;
        self.nic.record()?;
        self.wait(length, options)?;
        let recorded = self.nic.recorded()?;
        let after = self.snapshot()?;
        for sender in &mut self.senders {
            sender.must_run()?;
        }
        let begin = Instant::now();
        while !ping.has_ended() && begin.elapsed().as_millis() < 1_000 {
            std::thread::sleep(LOOK);
        }
        let (record, length) = recorded.expect("a recording was begun");
        Ok(Measured {
            record,
            length,
            before,
            after,
            round_trips_us: programs::round_trips_us(&ping.end()),
        })
    }

    /// Waits, and sets the segment size by the policy meanwhile.
    fn wait(&mut self, length: Duration, options: &TestbedOptions<'_>) -> Result<(), SoftNicError> {
        let begin = Instant::now();
        let length = std::time::Duration::from_secs_f64(length.as_secs_f64());
        loop {
            if options.interrupted.load(Ordering::Relaxed) {
                return Err(SoftNicError::Interrupted);
            }
            self.size_segments()?;
            let left = length.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(LOOK));
        }
    }

    fn size_segments(&mut self) -> Result<(), SoftNicError> {
        let (Some(segments), Some(queueing)) = (&mut self.segments, &self.queueing) else {
            return Ok(());
        };
        let now = isolane_common_quantities::units::Instant::from_ps(
            self.begin.elapsed().as_nanos() as u64 * 1_000,
        );
        match segments.update(now, queueing.is_oversubscribed()) {
            Some(size) => spaces::set_segment(self.pair.sender(), size.get()),
            None => Ok(()),
        }
    }

    fn snapshot(&mut self) -> Result<Snapshot, SoftNicError> {
        let ids: Vec<u32> = self.senders.iter().map(Program::id).collect();
        let mut kernel = BTreeMap::new();
        let places = [
            (
                self.senders.first(),
                "retransmissions",
                "Tcp",
                "RetransSegs",
            ),
            (self.servers.first(), "reordered", "TcpExt", "TCPOFOQueue"),
            (
                self.servers.first(),
                "checksum_errors",
                "Tcp",
                "InCsumErrors",
            ),
        ];
        for (program, name, group, counter) in places {
            let value =
                program.and_then(|program| programs::kernel_counter(program.id(), group, counter));
            kernel.insert(name, value.unwrap_or(0));
        }
        let mut programs = BTreeMap::new();
        if let Some(queueing) = &self.queueing {
            let counters = queueing.counters()?;
            programs.insert("assigned", counters.assigned);
            programs.insert("gated", counters.gated);
        }
        Ok(Snapshot {
            nic: self.nic.counts()?,
            programs,
            senders: ids.into_iter().map(programs::processor_time).sum(),
            kernel,
        })
    }

    fn result(self, study: &NicStudy, flows: u32, measured: &Measured) -> NicResult {
        let seconds = measured.length.as_secs_f64();
        let sent = record::sent(&measured.record, flows, measured.length, study.card.rate);
        let mut not_done = self.not_done;
        plan::note_rate(study.card.rate.as_gbps_f64(), sent.wire_gbps, &mut not_done);
        NicResult {
            version: NIC_RESULT_VERSION,
            testbed: "soft-nic".to_owned(),
            config: study.config.name.to_owned(),
            flows,
            seed: study.seed,
            measured_s: seconds,
            throughput_gbps: sent.flow_gbps.iter().sum(),
            cpu_percent: cpu_percent(measured),
            ping_us: record::quantiles(&measured.round_trips_us),
            nfm_1ms: sent.nfm_1ms,
            nfm_1s: sent.nfm_1s,
            flow_gbps: sent.flow_gbps,
            queue_bytes: queue_bytes(measured),
            queue_bytes_max: self
                .queueing
                .as_ref()
                .map_or_else(Vec::new, Queueing::longest),
            completion_ms: None,
            counts: counts(measured, sent.moves),
            not_done,
        }
    }
}

fn cpu_percent(measured: &Measured) -> f64 {
    let (before, after) = (&measured.before, &measured.after);
    let senders = after.senders.saturating_sub(before.senders);
    let handed = (after.nic.back.write_time).saturating_sub(before.nic.back.write_time);
    (senders + handed).as_secs_f64() / measured.length.as_secs_f64() * 100.0
}

fn queue_bytes(measured: &Measured) -> Vec<u64> {
    let before = measured.before.nic.queues.iter();
    let pairs = measured.after.nic.queues.iter().zip(before);
    pairs
        .map(|(after, before)| after.bytes - before.bytes)
        .collect()
}

fn counts(measured: &Measured, moves: u64) -> BTreeMap<String, u64> {
    let (before, after) = (&measured.before, &measured.after);
    let mut counts = BTreeMap::new();
    let earlier = before.kernel.iter().chain(&before.programs);
    let earlier: BTreeMap<_, _> = earlier.collect();
    for (name, value) in after.kernel.iter().chain(&after.programs) {
        let earlier = earlier.get(name).map_or(0, |value| **value);
        counts.insert((*name).to_owned(), value.saturating_sub(earlier));
    }
    let sum = |counts: &NicCounts, of: fn(&crate::card::QueueCount) -> u64| {
        counts.queues.iter().map(of).sum::<u64>()
    };
    let difference =
        |of: fn(&crate::card::QueueCount) -> u64| sum(&after.nic, of) - sum(&before.nic, of);
    counts.insert("packets".to_owned(), difference(|queue| queue.packets));
    counts.insert("segments".to_owned(), difference(|queue| queue.frames));
    counts.insert("moves".to_owned(), moves);
    let nic = |of: fn(&NicCounts) -> u64| of(&after.nic) - of(&before.nic);
    counts.insert("weight_writes".to_owned(), nic(|nic| nic.weight_writes));
    counts.insert("held".to_owned(), nic(|nic| nic.forward.held));
    counts.insert("interrupts".to_owned(), nic(|nic| nic.forward.interrupts));
    counts.insert(
        "drops".to_owned(),
        nic(|nic| nic.forward.malformed + nic.forward.refused),
    );
    counts
}

/// The policy of segment sizes, where the configuration has one.
fn segments(study: &NicStudy) -> Option<SegmentSize> {
    let reduced = study.config.shared_segment?;
    Some(SegmentSize::new(SegmentOptions {
        normal: study.config.segment,
        reduced: reduced.min(study.config.segment),
        hold: SEGMENT_HOLD,
    }))
}
