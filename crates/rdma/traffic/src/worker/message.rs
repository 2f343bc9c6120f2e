//! The messages between coordinator and worker.

use super::job::Job;
use isolane_common_quantities::stats::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A map with numeric keys as a list of pairs: serde reads tagged messages through a form in which a numeric JSON key
/// stays text.
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

/// Messages of the coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ToWorker {
    /// The job.
    Job(Box<Job>),
    /// The peers' addresses, by the id of the *own* end.
    Connect {
        /// Address of the peer of each end that has one.
        #[serde(with = "pairs")]
        peers: BTreeMap<u32, EndAddress>,
    },
    /// Start the traffic.
    Start {
        /// Delay after this message is read, nanoseconds.
        after_ns: u64,
    },
    /// End and report.
    Stop {
        /// The posting side's window, for a passive side; absent: the whole run.
        window: Option<Window>,
    },
}

/// Messages of the worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum FromWorker {
    /// All objects are created.
    Prepared(Prepared),
    /// The queue pairs are connected and receives are posted.
    Connected,
    /// Sent every half second during the run.
    Progress(Progress),
    /// The results.
    Report(Box<Report>),
    /// The job is impossible, or the run failed.
    Failed(Failure),
}

/// The addresses of a worker's ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// Process id of the worker.
    pub process_id: u32,
    /// Addresses by end id.
    #[serde(with = "pairs")]
    pub ends: BTreeMap<u32, EndAddress>,
}

/// The address of an end.
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
    /// Memory that the peer may access.
    pub memory: Vec<MemoryAddress>,
}

/// Address of one queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePairAddress {
    /// Queue pair number, 24 bits.
    pub number: u32,
    /// First packet sequence number it sends, 24 bits.
    pub packet_sequence: u32,
}

/// Address of one memory region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryAddress {
    /// Virtual address.
    pub address: u64,
    /// Length, bytes.
    pub length: u64,
    /// Remote key.
    pub remote_key: u32,
}

/// Progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Time since the start, nanoseconds.
    pub elapsed_ns: u64,
    /// Messages completed or received so far, by all ends.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
}

/// A time interval after the start, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Begin of the interval.
    pub from_ns: u64,
    /// End of the interval.
    pub to_ns: u64,
}

impl Window {
    /// Length, seconds.
    pub fn seconds(self) -> f64 {
        self.to_ns.saturating_sub(self.from_ns) as f64 / 1e9
    }
}

/// Results of a worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Tenant name.
    pub tenant: String,
    /// Device name.
    pub device: String,
    /// The measured window: the widest of its ends' windows.
    pub window: Window,
    /// Whether a steady rate was reached before it (true for a fixed warm-up).
    pub steady: bool,
    /// Processor time of the whole process since the start, seconds.
    pub cpu_s: f64,
    /// Width of one point of the series, nanoseconds.
    pub sample_interval_ns: u64,
    /// Latency over all posting ends, within the window; absent if nothing completed.
    pub latency: Option<LatencyNs>,
    /// Latency histogram, `[nanoseconds, count]`; several workers' histograms can be added.
    pub latency_counts: Vec<(u64, u64)>,
    /// All ends together in points of time, from the start.
    pub series: Vec<Sample>,
    /// Results of each end.
    pub ends: Vec<EndReport>,
}

/// Results of one end. `posted` counts its own requests, `received` the peer's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndReport {
    /// End id.
    pub id: u32,
    /// Name of the workload.
    pub name: String,
    /// Measured window.
    pub window: Window,
    /// Own messages completed within the window.
    pub posted_messages: u64,
    /// Bytes of these messages.
    pub posted_bytes: u64,
    /// Messages received within the window (SEND, WRITE with immediate data).
    pub received_messages: u64,
    /// Bytes of these messages.
    pub received_bytes: u64,
    /// Own messages completed over the whole run.
    pub posted_messages_total: u64,
    /// Messages received over the whole run.
    pub received_messages_total: u64,
    /// Control verbs completed within the window.
    pub control_verbs: u64,
    /// Intended failures within the window (fault loops).
    pub faults: u64,
    /// Number of unexpected error completions over the whole run, by status name.
    pub errors: BTreeMap<String, u64>,
    /// Number of verified bytes.
    pub checked_bytes: u64,
    /// Number of bytes with wrong content.
    pub wrong_bytes: u64,
    /// Bytes of own completed messages per queue pair, within the window.
    pub queue_pair_bytes: Vec<u64>,
    /// Whether the device, not the process, kept the rate of a paced end.
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
    /// Bytes of these messages.
    pub posted_bytes: u64,
    /// Messages received.
    pub received_messages: u64,
    /// Bytes of these messages.
    pub received_bytes: u64,
    /// Completed control verbs, or intended failures.
    pub control_verbs: u64,
    /// 99th percentile latency of own messages, nanoseconds (the largest over the ends); 0 if none completed.
    pub p99_ns: u64,
}

impl Sample {
    /// Adds the same point of another end.
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
        Self {
            posted_messages: fields[0],
            posted_bytes: fields[1],
            received_messages: fields[2],
            received_bytes: fields[3],
            control_verbs: fields[4],
            p99_ns: fields[5],
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

/// Latency statistics, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyNs {
    /// Number of messages.
    pub samples: u64,
    /// Minimum.
    pub min: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Maximum.
    pub max: u64,
}

impl LatencyNs {
    /// Statistics of a histogram of nanoseconds; `None` if it is empty.
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

    /// Statistics of several workers' histograms together.
    pub fn merged<'a>(counts: impl IntoIterator<Item = &'a [(u64, u64)]>) -> Option<Self> {
        let mut histogram = Histogram::new();
        for (value, times) in counts.into_iter().flatten() {
            histogram.record_n(*value, *times);
        }
        Self::of(&histogram)
    }
}

/// A worker's failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Kind, for the exit code.
    pub kind: FailureKind,
    /// One line for people: object, value, remedy.
    pub message: String,
}

/// Kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The job is invalid (exit code 2).
    Job,
    /// This machine has no such device, no library, no permission, or too little memory (exit code 3).
    Machine,
    /// The peer closed or the traffic failed (exit code 1).
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
