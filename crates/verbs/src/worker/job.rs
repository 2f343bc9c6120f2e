//! What a worker is asked to do, and the limits that nothing may exceed.

use isolane_scenario::model::{ControlObject, Message, Transport};
use serde::{Deserialize, Serialize};

/// Limits of a job: they bound what a worker allocates, whoever asks.
pub mod limits {
    /// Ends of one worker (each is a thread).
    pub const ENDS: usize = 256;
    /// Queue pairs of one end.
    pub const QUEUE_PAIRS: u32 = 4_096;
    /// Work requests a queue pair has outstanding.
    pub const DEPTH: u32 = 65_536;
    /// Receives posted per queue pair.
    pub const RECEIVE_DEPTH: u32 = 65_536;
    /// Messages of a pattern.
    pub const PATTERN: usize = 4_096;
    /// Elements of a message.
    pub const ELEMENTS: usize = 256;
    /// Bytes of a message.
    pub const MESSAGE: u64 = 1 << 31;
    /// Memory regions of one end.
    pub const MEMORY_REGIONS: u32 = 65_536;
    /// Bytes of all regions and receive buffers of one end.
    pub const MEMORY: u64 = 64 << 30;
    /// Objects a control loop has alive.
    pub const OBJECTS: u32 = 65_536;
    /// Threads of a control loop.
    pub const THREADS: u32 = 64;
    /// Longest run, nanoseconds: a day.
    pub const TIME_NS: u64 = 86_400 * 1_000_000_000;
    /// Points of a time series.
    pub const SAMPLES: u64 = 10_000;
    /// Longest name, bytes.
    pub const NAME: usize = 256;
}

/// One tenant's part on one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// [`crate::worker::VERSION`].
    pub version: u32,
    /// The tenant's name, for messages and reports.
    pub tenant: String,
    /// The RDMA device, like `mlx5_0` or `r0`. A server over TCP uses its own instead.
    pub device: String,
    /// Its port, from 1.
    pub port: u8,
    /// Index in the port's GID table; without it the first RoCE v2 address over IPv4, then any RoCE v2, then 0.
    pub gid_index: Option<u32>,
    /// Time before measuring.
    pub warmup: Warmup,
    /// Measured time, nanoseconds.
    pub duration_ns: u64,
    /// Width of one point of the series, nanoseconds.
    pub sample_interval_ns: u64,
    /// Random sources derive from it.
    pub seed: u64,
    /// Every byte is written as a pattern and verified; slower, and queues are kept short.
    pub check: bool,
    /// Completions by event (sleeping) instead of polling.
    pub events: bool,
    /// What runs.
    pub ends: Vec<EndJob>,
}

/// Time before measuring starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Warmup {
    /// So long.
    Fixed {
        /// Nanoseconds.
        ns: u64,
    },
    /// Until the rate is steady, at most so long.
    Steady {
        /// Nanoseconds.
        max_ns: u64,
    },
}

impl Warmup {
    /// The longest it takes, nanoseconds.
    pub fn max_ns(self) -> u64 {
        match self {
            Self::Fixed { ns } | Self::Steady { max_ns: ns } => ns,
        }
    }
}

/// One process of a workload, seen from one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndJob {
    /// Unique within the tenant over all hosts; the peer's is [`crate::worker::peer_of`] it.
    pub id: u32,
    /// The workload's name.
    pub name: String,
    /// When it begins to post, nanoseconds after the start of the run.
    pub begin_ns: u64,
    /// When it stops posting; at the end of the run if absent.
    pub end_ns: Option<u64>,
    /// What it does.
    pub work: Work,
}

/// What an end does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Work {
    /// Data verbs, with a peer.
    Data(DataWork),
    /// Control verbs in a loop.
    Control(ControlWork),
    /// Work requests that must fail, in a loop.
    Fault(FaultWork),
}

/// Which side of a connection an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// Posts the requests.
    From,
    /// Is written to, read from, or receives; posts too if the traffic is bidirectional or ping-pong.
    To,
}

/// A data operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// RDMA WRITE.
    Write,
    /// RDMA WRITE with immediate data: consumes a receive at the other end.
    WriteImm,
    /// RDMA READ.
    Read,
    /// SEND into a posted receive.
    Send,
    /// 8-byte FETCH_AND_ADD.
    FetchAdd,
    /// 8-byte CMP_AND_SWAP.
    CompareSwap,
}

impl Operation {
    /// Whether the other end has to post receives.
    pub fn needs_receives(self) -> bool {
        matches!(self, Self::Send | Self::WriteImm)
    }

    /// Whether it is one of the 8-byte atomics.
    pub fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }
}

/// Data traffic of one end; both ends of a connection get the same but for `side`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataWork {
    /// Which side this is.
    pub side: Side,
    /// Every request's operation.
    pub operation: Operation,
    /// Every queue pair's transport.
    pub transport: Transport,
    /// Messages posted in turn, for ever.
    pub pattern: Vec<Message>,
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Work requests per doorbell.
    pub post_list: u32,
    /// Work requests outstanding per queue pair.
    pub depth: u32,
    /// One in this many work requests asks for a completion.
    pub completion_every: u32,
    /// Receives kept posted per queue pair; 0 posts none.
    pub receive_depth: u32,
    /// Receives posted back at once; 0 posts none ever: the sender meets RNR.
    pub receive_batch: u32,
    /// Wait so long before receives are posted back, nanoseconds: the receiver that is late.
    pub receive_delay_ns: u64,
    /// RNR timer code of the IB specification, 0 to 31.
    pub min_rnr_timer: u8,
    /// READs and atomics outstanding per queue pair.
    pub max_read_atomic: u32,
    /// Largest payload sent inside the work request, bytes.
    pub inline_bytes: u32,
    /// Path MTU, bytes; lowered to the port's active one.
    pub mtu: u32,
    /// Memory regions at each end.
    pub memory_regions: u32,
    /// Length of each region, bytes.
    pub region_bytes: u64,
    /// How work is offered.
    pub arrival: Arrival,
    /// Both ends post.
    pub bidirectional: bool,
    /// Stop after so many work requests per queue pair.
    pub iterations: Option<u64>,
}

impl DataWork {
    /// Whether this end posts send work requests of its own accord.
    pub fn posts(&self) -> bool {
        self.side == Side::From || self.bidirectional
    }

    /// Bytes of the largest message.
    pub fn largest_message(&self) -> u64 {
        let sizes = self.pattern.iter().map(|message| message.bytes().get());
        sizes.max().unwrap_or(0)
    }

    /// Elements of the message with most.
    pub fn most_elements(&self) -> usize {
        let counts = self.pattern.iter().map(|message| message.elements.len());
        counts.max().unwrap_or(1)
    }
}

/// How an end offers work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Arrival {
    /// As much as `depth` allows; after each completion a pause of this mean (exponential), nanoseconds.
    Closed {
        /// Mean pause, nanoseconds; 0 for none.
        think_ns: u64,
    },
    /// One message at a time, answered by the same from the other end; latency is half the round trip.
    PingPong,
    /// Lists arrive whatever the device does; latency counts from the arrival.
    Open {
        /// Mean time between the lists of one queue pair, nanoseconds.
        interval_ns: u64,
        /// Exponential intervals; otherwise constant.
        poisson: bool,
    },
    /// No more than this rate, bits per second of payload.
    Paced {
        /// Bits per second.
        rate_bps: u64,
    },
}

/// A loop of control verbs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlWork {
    /// What is made and destroyed.
    pub object: ControlObject,
    /// Threads, each with its own context.
    pub threads: u32,
    /// Objects alive at once per thread.
    pub objects: u32,
    /// Protection domains in use.
    pub protection_domains: u32,
    /// Length of each region, bytes.
    pub region_bytes: u64,
    /// Which verbs count.
    pub phase: ControlPhase,
    /// At most so many verbs per second and thread; 0 for no limit.
    pub verbs_per_s: u64,
}

/// Which control verbs count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlPhase {
    /// Creation and destruction.
    Cycle,
    /// Creation.
    Create,
    /// Destruction.
    Destroy,
    /// Queue pairs are moved through their states instead (queue pairs only).
    Modify,
}

/// Work requests that must fail, on a pair of queue pairs of this device, made anew after each failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultWork {
    /// A WRITE with a remote key that nobody gave out: the other side refuses it.
    RemoteKey,
    /// A SEND from memory that is not registered: the own device refuses it.
    LocalKey,
    /// A SEND to a receiver without receives, with no retries.
    ReceiverNotReady,
}

/// Why a job cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("job for tenant {tenant:?}: {what} is {value}: {remedy}")]
pub struct JobError {
    /// The tenant.
    pub tenant: String,
    /// The field.
    pub what: &'static str,
    /// Its value.
    pub value: String,
    /// What it must be.
    pub remedy: String,
}

impl Job {
    /// Whether some end of it posts, so that it reports without being told to stop.
    pub fn posts(&self) -> bool {
        self.ends.iter().any(|end| match &end.work {
            Work::Data(data) => data.posts(),
            Work::Control(_) | Work::Fault(_) => true,
        })
    }

    /// Refuses what no worker may be asked to do.
    ///
    /// # Errors
    /// The first field out of its range.
    pub fn check(&self) -> Result<(), JobError> {
        let rule = |holds: bool, what, value: &dyn ToString, remedy: &str| match holds {
            true => Ok(()),
            false => Err(JobError {
                tenant: self.tenant.chars().take(limits::NAME).collect(),
                what,
                value: value.to_string(),
                remedy: remedy.to_owned(),
            }),
        };
        let version = self.version;
        let same = version == super::VERSION;
        rule(
            same,
            "version",
            &version,
            "use the same isolane at both ends",
        )?;
        let short = |text: &str| text.len() <= limits::NAME && !text.contains(['/', '\0']);
        rule(
            short(&self.device),
            "device",
            &self.device.len(),
            "must be a device's name",
        )?;
        let named = self.tenant.len() <= limits::NAME;
        rule(
            named,
            "tenant",
            &self.tenant.len(),
            "must be at most 256 bytes long",
        )?;
        rule(self.port > 0, "port", &self.port, "ports count from 1")?;
        let times = [
            ("warmup", self.warmup.max_ns()),
            ("duration_ns", self.duration_ns),
        ];
        for (what, value) in times {
            rule(
                value <= limits::TIME_NS,
                what,
                &value,
                "must be at most a day",
            )?;
        }
        rule(self.duration_ns > 0, "duration_ns", &0, "must be above 0")?;
        let interval = self.sample_interval_ns;
        let points = (self.warmup.max_ns() + self.duration_ns) / interval.max(1);
        let few = interval > 0 && points <= limits::SAMPLES;
        rule(
            few,
            "sample_interval_ns",
            &interval,
            "must give at most 10,000 points",
        )?;
        let count = self.ends.len();
        rule(
            (1..=limits::ENDS).contains(&count),
            "ends",
            &count,
            "must be 1 to 256",
        )?;
        for (index, end) in self.ends.iter().enumerate() {
            let unique = self.ends[..index].iter().all(|other| other.id != end.id);
            rule(unique, "end id", &end.id, "must be unique")?;
            let named = end.name.len() <= limits::NAME;
            rule(
                named,
                "end name",
                &end.name.len(),
                "must be at most 256 bytes long",
            )?;
            match &end.work {
                Work::Data(data) => check_data(data, self.check, &rule)?,
                Work::Control(control) => check_control(control, &rule)?,
                Work::Fault(_) => {}
            }
        }
        Ok(())
    }
}

type Rule<'a> = dyn Fn(bool, &'static str, &dyn ToString, &str) -> Result<(), JobError> + 'a;

fn check_data(data: &DataWork, check: bool, rule: &Rule<'_>) -> Result<(), JobError> {
    let counts: [(&'static str, u64, u64, u64); 9] = [
        (
            "queue_pairs",
            data.queue_pairs.into(),
            1,
            limits::QUEUE_PAIRS.into(),
        ),
        ("depth", data.depth.into(), 1, limits::DEPTH.into()),
        ("post_list", data.post_list.into(), 1, data.depth.into()),
        (
            "completion_every",
            data.completion_every.into(),
            1,
            data.depth.into(),
        ),
        (
            "receive_depth",
            data.receive_depth.into(),
            0,
            limits::RECEIVE_DEPTH.into(),
        ),
        (
            "receive_batch",
            data.receive_batch.into(),
            0,
            data.receive_depth.into(),
        ),
        ("min_rnr_timer", data.min_rnr_timer.into(), 0, 31),
        ("max_read_atomic", data.max_read_atomic.into(), 0, 255),
        (
            "memory_regions",
            data.memory_regions.into(),
            1,
            limits::MEMORY_REGIONS.into(),
        ),
    ];
    for (what, value, low, high) in counts {
        let remedy = format!("must be {low} to {high}");
        rule((low..=high).contains(&value), what, &value, &remedy)?;
    }
    let late = data.receive_delay_ns <= limits::TIME_NS;
    rule(
        late,
        "receive_delay_ns",
        &data.receive_delay_ns,
        "must be at most a day",
    )?;
    let mtu = isolane_scenario::model::MTUS.contains(&data.mtu);
    rule(
        mtu,
        "mtu",
        &data.mtu,
        "must be 256, 512, 1024, 2048 or 4096",
    )?;
    let length = data.pattern.len();
    rule(
        (1..=limits::PATTERN).contains(&length),
        "pattern",
        &length,
        "must have 1 to 4,096 messages",
    )?;
    let elements = data.most_elements();
    let all = data
        .pattern
        .iter()
        .all(|message| !message.elements.is_empty());
    rule(
        all && elements <= limits::ELEMENTS,
        "pattern elements",
        &elements,
        "must be 1 to 256",
    )?;
    let largest = data.largest_message();
    rule(
        largest <= limits::MESSAGE,
        "message",
        &largest,
        "must be at most 2 GiB",
    )?;
    let eight = data.pattern.iter().all(|message| message.elements == [8]);
    rule(
        !data.operation.is_atomic() || eight,
        "message",
        &largest,
        "an atomic has 8 bytes",
    )?;
    let transport = match (data.operation, data.transport) {
        (_, Transport::Rc) | (Operation::Send, _) => true,
        (Operation::Write | Operation::WriteImm, Transport::Uc) => true,
        (_, Transport::Uc | Transport::Ud) => false,
    };
    rule(
        transport,
        "transport",
        &format!("{:?}", data.transport),
        "must be rc for this operation",
    )?;
    let checked = !check || data.transport == Transport::Rc || data.operation == Operation::Send;
    rule(
        checked,
        "check",
        &true,
        "WRITE over UC cannot be checked: use send, or rc",
    )?;
    let answered = match data.arrival {
        Arrival::PingPong => matches!(data.operation, Operation::Write | Operation::Send),
        _ => true,
    };
    rule(
        answered,
        "arrival",
        &"ping-pong",
        "must be with write or send",
    )?;
    let empty = data
        .pattern
        .iter()
        .any(|message| message.bytes().get() == 0);
    let visible = !empty || data.arrival != Arrival::PingPong;
    rule(
        visible,
        "message",
        &0,
        "a ping-pong needs at least one byte",
    )?;
    let datagram = data.transport != Transport::Ud || largest <= u64::from(data.mtu);
    rule(
        datagram,
        "message",
        &largest,
        "a datagram is at most one MTU",
    )?;
    let fits = data.region_bytes >= largest;
    rule(
        fits,
        "region_bytes",
        &data.region_bytes,
        "must hold the largest message",
    )?;
    let regions = u64::from(data.memory_regions).saturating_mul(data.region_bytes);
    let bytes = regions.saturating_add(receive_bytes(data));
    rule(
        bytes <= limits::MEMORY,
        "memory of one end",
        &bytes,
        "lower memory_regions, region_bytes or receive_depth",
    )
}

/// Bytes that receives need when each has a buffer of its own.
fn receive_bytes(data: &DataWork) -> u64 {
    match data.operation {
        Operation::Send => (u64::from(data.queue_pairs) * u64::from(data.receive_depth))
            .saturating_mul(data.largest_message() + 64),
        _ => 0,
    }
}

fn check_control(control: &ControlWork, rule: &Rule<'_>) -> Result<(), JobError> {
    let counts: [(&'static str, u32, u32, u32); 3] = [
        ("threads", control.threads, 1, limits::THREADS),
        ("objects", control.objects, 1, limits::OBJECTS),
        (
            "protection_domains",
            control.protection_domains,
            1,
            limits::OBJECTS,
        ),
    ];
    for (what, value, low, high) in counts {
        let remedy = format!("must be {low} to {high}");
        rule((low..=high).contains(&value), what, &value, &remedy)?;
    }
    let bytes = u64::from(control.threads)
        .saturating_mul(u64::from(control.objects))
        .saturating_mul(control.region_bytes);
    let region = control.object != ControlObject::MemoryRegion || control.region_bytes > 0;
    rule(
        region,
        "region_bytes",
        &control.region_bytes,
        "must be above 0",
    )?;
    rule(
        bytes <= limits::MEMORY,
        "memory of one end",
        &bytes,
        "lower objects or region_bytes",
    )?;
    let modify =
        control.phase != ControlPhase::Modify || control.object == ControlObject::QueuePair;
    rule(modify, "phase", &"modify", "must be for queue pairs")
}
