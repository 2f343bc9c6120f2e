//! What goes over the line.

use super::job::Job;
use isolane_core::stats::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// From the coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ToWorker {
    /// What to do.
    Job(Box<Job>),
    /// The other ends' addresses, by the id of the *own* end.
    Connect {
        /// Address of the peer of each end that has one.
        peers: BTreeMap<u32, EndAddress>,
    },
    /// Begin.
    Start {
        /// So many nanoseconds after this message is read.
        after_ns: u64,
    },
    /// End now and report.
    Stop {
        /// What the posting side measured, so that a passive side counts the same time; all of the run if absent.
        window: Option<Window>,
    },
}

/// From the worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum FromWorker {
    /// Everything is made.
    Prepared(Prepared),
    /// The queue pairs are connected and receives are posted.
    Connected,
    /// Still at it.
    Progress(Progress),
    /// Done.
    Report(Box<Report>),
    /// Not possible, or broken.
    Failed(Failure),
}

/// The addresses of a worker's ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// Process id of the worker.
    pub process_id: u32,
    /// By end id.
    pub ends: BTreeMap<u32, EndAddress>,
}

/// Where to reach an end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndAddress {
    /// GID of the port, 32 hexadecimal digits.
    pub gid: String,
    /// LID of the port; 0 on Ethernet.
    pub lid: u16,
    /// Active MTU of the port, bytes.
    pub mtu: u32,
    /// In the order of the end's queue pairs.
    pub queue_pairs: Vec<QueuePairAddress>,
    /// Memory open to the other end.
    pub memory: Vec<MemoryAddress>,
}

/// One queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePairAddress {
    /// Its number, 24 bits.
    pub number: u32,
    /// First packet sequence number it sends, 24 bits.
    pub packet_sequence: u32,
}

/// One memory region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryAddress {
    /// Its virtual address.
    pub address: u64,
    /// Its length, bytes.
    pub length: u64,
    /// Its remote key.
    pub remote_key: u32,
}

/// A sign of life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Since the start, nanoseconds.
    pub elapsed_ns: u64,
    /// Messages completed or received so far, by all ends.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A stretch of time after the start, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Its beginning.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
}

impl Window {
    /// Its length, seconds.
    pub fn seconds(self) -> f64 {
        self.to_ns.saturating_sub(self.from_ns) as f64 / 1e9
    }
}

/// What a worker measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The tenant.
    pub tenant: String,
    /// The device it used.
    pub device: String,
    /// The measured window: the widest of its ends'.
    pub window: Window,
    /// Whether a steady rate was reached before it (true for a fixed warm-up).
    pub steady: bool,
    /// Processor time of the whole process since the start, seconds.
    pub cpu_s: f64,
    /// Width of one point of the series, nanoseconds.
    pub sample_interval_ns: u64,
    /// Latency over all posting ends, within the window; absent where nothing completed.
    pub latency: Option<LatencyNs>,
    /// Counts of latencies, `[nanoseconds, count]`, from which percentiles over several workers can be had.
    pub latency_counts: Vec<(u64, u64)>,
    /// Every end.
    pub ends: Vec<EndReport>,
}

/// What one end measured. Counts named `posted` are of its own requests, `received` of the other end's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndReport {
    /// The end.
    pub id: u32,
    /// Its workload.
    pub name: String,
    /// What was measured.
    pub window: Window,
    /// Own messages completed within the window.
    pub posted_messages: u64,
    /// Their bytes.
    pub posted_bytes: u64,
    /// Messages received within the window (SEND, WRITE with immediate data).
    pub received_messages: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Own messages completed over the whole run.
    pub posted_messages_total: u64,
    /// Messages received over the whole run.
    pub received_messages_total: u64,
    /// Control verbs completed within the window.
    pub control_verbs: u64,
    /// Requests that failed within the window because the workload wants it (fault loops).
    pub faults: u64,
    /// Completions with an error that nobody wanted, over the whole run, by the status's name.
    pub errors: BTreeMap<String, u64>,
    /// Bytes whose content was verified.
    pub checked_bytes: u64,
    /// Bytes that were wrong.
    pub wrong_bytes: u64,
    /// Bytes of own completed messages per queue pair, within the window.
    pub queue_pair_bytes: Vec<u64>,
    /// Latency of own messages within the window (of control verbs, in control loops).
    pub latency: Option<LatencyNs>,
    /// The run in points, from the start.
    pub series: Vec<Sample>,
}

/// One point of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Own messages completed.
    pub posted_messages: u64,
    /// Their bytes.
    pub posted_bytes: u64,
    /// Messages received.
    pub received_messages: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Control verbs completed, or wanted failures.
    pub control_verbs: u64,
    /// 99th percentile latency of own messages, nanoseconds; 0 where none completed.
    pub p99_ns: u64,
}

/// Latency figures, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyNs {
    /// Messages.
    pub samples: u64,
    /// Smallest.
    pub min: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Largest.
    pub max: u64,
}

impl LatencyNs {
    /// The figures of a histogram of nanoseconds; `None` when it is empty.
    pub fn of(histogram: &Histogram) -> Option<Self> {
        let figures = histogram.summary()?;
        Some(Self {
            samples: figures.count,
            min: figures.min,
            mean: figures.mean,
            p50: figures.p50,
            p99: figures.p99,
            p999: figures.p999,
            max: figures.max,
        })
    }

    /// The figures of several workers together, from their reports' counts.
    pub fn merged<'a>(counts: impl IntoIterator<Item = &'a [(u64, u64)]>) -> Option<Self> {
        let mut histogram = Histogram::new();
        for (value, times) in counts.into_iter().flatten() {
            histogram.record_n(*value, *times);
        }
        Self::of(&histogram)
    }
}

/// Why a worker gave up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Which kind, for the exit code.
    pub kind: FailureKind,
    /// One line for people: object, value, remedy.
    pub message: String,
}

/// Kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The job cannot be (exit code 2).
    Job,
    /// This machine has no such device, no library, no permission, or too little memory (exit code 3).
    Machine,
    /// The peer went or the traffic broke (exit code 1).
    Traffic,
}
