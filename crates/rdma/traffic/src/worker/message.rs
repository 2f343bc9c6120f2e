//! What goes over the line.

use super::job::Job;
use isolane_common_quantities::stats::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A map with numbers for keys as a list of pairs: serde reads a tagged message by way of a form in which a number
/// that became a JSON key stays text.
mod pairs {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::collections::BTreeMap;

    pub(super) fn serialize<S: Serializer, V: Serialize>(
        map: &BTreeMap<u32, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        map.iter().collect::<Vec<_>>().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<u32, V>, D::Error> {
        Ok(Vec::deserialize(deserializer)?.into_iter().collect())
    }
}

/// From the coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ToWorker {
    /// What to do.
    Job(Box<Job>),
    /// The other ends' addresses, by the id of the *own* end.
    Connect {
        /// Address of the peer of each end that has one.
        #[serde(with = "pairs")]
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
    #[serde(with = "pairs")]
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
    /// All ends together in points of time, from the start.
    pub series: Vec<Sample>,
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
    /// The device kept the rate of a paced end, not the process.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paced_by_device: bool,
    /// Latency of own messages within the window (of control verbs, in control loops).
    pub latency: Option<LatencyNs>,
}

/// One point of a series; in JSON an array of its fields in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 6]", into = "[u64; 6]")]
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
    /// 99th percentile latency of own messages, nanoseconds (the largest of the ends'); 0 where none completed.
    pub p99_ns: u64,
}

impl Sample {
    /// Adds another end's same point.
    pub fn add(&mut self, other: &Self) {
        self.posted_messages += other.posted_messages;
        self.posted_bytes += other.posted_bytes;
        self.received_messages += other.received_messages;
        self.received_bytes += other.received_bytes;
        self.control_verbs += other.control_verbs;
        self.p99_ns = self.p99_ns.max(other.p99_ns);
    }
}

impl From<[u64; 6]> for Sample {
    fn from(fields: [u64; 6]) -> Self {
        let [
            posted_messages,
            posted_bytes,
            received_messages,
            received_bytes,
            control_verbs,
            p99_ns,
        ] = fields;
        Self {
            posted_messages,
            posted_bytes,
            received_messages,
            received_bytes,
            control_verbs,
            p99_ns,
        }
    }
}

impl From<Sample> for [u64; 6] {
    fn from(sample: Sample) -> Self {
        [
            sample.posted_messages,
            sample.posted_bytes,
            sample.received_messages,
            sample.received_bytes,
            sample.control_verbs,
            sample.p99_ns,
        ]
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_by_end_survive_the_line() {
        let ends = BTreeMap::from([(3, EndAddress::default()), (8, EndAddress::default())]);
        let prepared = FromWorker::Prepared(Prepared {
            process_id: 7,
            ends: ends.clone(),
        });
        let line = serde_json::to_string(&prepared).expect("JSON");
        assert_eq!(
            serde_json::from_str::<FromWorker>(&line).expect("a message"),
            prepared
        );
        let connect = ToWorker::Connect { peers: ends };
        let line = serde_json::to_string(&connect).expect("JSON");
        assert_eq!(
            serde_json::from_str::<ToWorker>(&line).expect("a message"),
            connect
        );
    }
}
