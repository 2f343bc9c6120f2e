//! The limits of a job and their check. A worker trusts no coordinator.

use super::job::{Arrival, ControlPhase, ControlWork, DataWork, Job, Operation, Work};
use isolane_rdma_scenario::model::{ControlObject, Transport};

/// Limits of a job: they bound a worker's allocations for any client.
pub mod limits {
    /// Ends of one worker; each is a thread.
    pub const ENDS: usize = 256;
    /// Queue pairs of one end.
    pub const QUEUE_PAIRS: u32 = 4_096;
    /// Outstanding work requests per queue pair.
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
    /// Live objects of a control loop.
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

/// Why a job is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("job for tenant {tenant:?}: {what} is {value}: {remedy}")]
pub struct JobError {
    /// Tenant name.
    pub tenant: String,
    /// Name of the field.
    pub what: &'static str,
    /// Value of the field.
    pub value: String,
    /// What is allowed.
    pub remedy: String,
}

impl Job {
    /// Checks all fields against [`limits`]. The error is the first field out of its range.
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
        let same = self.version == super::VERSION;
        let remedy = "use the same isolane at both ends";
        rule(same, "version", &self.version, remedy)?;
        let length = self.device.len();
        let named = length <= limits::NAME && !self.device.contains(['/', '\0']);
        rule(named, "device", &length, "must be a device's name")?;
        let length = self.tenant.len();
        rule(length <= limits::NAME, "tenant", &length, SHORT)?;
        rule(self.port > 0, "port", &self.port, "ports count from 1")?;
        let times = [
            ("warmup", self.warmup.max_ns()),
            ("duration_ns", self.duration_ns),
        ];
        for (what, value) in times {
            let short = value <= limits::TIME_NS;
            rule(short, what, &value, "must be at most a day")?;
        }
        rule(self.duration_ns > 0, "duration_ns", &0, "must be above 0")?;
        let interval = self.sample_interval_ns;
        let points = (self.warmup.max_ns() + self.duration_ns) / interval.max(1);
        let few = interval > 0 && points <= limits::SAMPLES;
        let remedy = "must give at most 10,000 points";
        rule(few, "sample_interval_ns", &interval, remedy)?;
        let count = self.ends.len();
        let few = (1..=limits::ENDS).contains(&count);
        rule(few, "ends", &count, "must be 1 to 256")?;
        for (index, end) in self.ends.iter().enumerate() {
            let unique = self.ends[..index].iter().all(|other| other.id != end.id);
            rule(unique, "end id", &end.id, "must be unique")?;
            let length = end.name.len();
            rule(length <= limits::NAME, "end name", &length, SHORT)?;
            match &end.work {
                Work::Data(data) => check_data(data, self.check, &rule)?,
                Work::Control(control) => check_control(control, &rule)?,
                Work::Fault(_) => {}
            }
        }
        Ok(())
    }
}

/// Expectation of a name.
const SHORT: &str = "must be at most 256 bytes long";

type Rule<'a> = dyn Fn(bool, &'static str, &dyn ToString, &str) -> Result<(), JobError> + 'a;

fn check_data(data: &DataWork, check: bool, rule: &Rule<'_>) -> Result<(), JobError> {
    check_counts(
        &[
            ("queue_pairs", data.queue_pairs, 1, limits::QUEUE_PAIRS),
            ("depth", data.depth, 1, limits::DEPTH),
            ("post_list", data.post_list, 1, data.depth),
            ("completion_every", data.completion_every, 1, data.depth),
            (
                "receive_depth",
                data.receive_depth,
                0,
                limits::RECEIVE_DEPTH,
            ),
            ("receive_batch", data.receive_batch, 0, data.receive_depth),
            ("min_rnr_timer", data.min_rnr_timer.into(), 0, 31),
            ("max_read_atomic", data.max_read_atomic, 0, 255),
            (
                "memory_regions",
                data.memory_regions,
                1,
                limits::MEMORY_REGIONS,
            ),
        ],
        rule,
    )?;
    let delay = data.receive_delay_ns;
    rule(
        delay <= limits::TIME_NS,
        "receive_delay_ns",
        &delay,
        "must be at most a day",
    )?;
    let mtu = isolane_rdma_scenario::model::MTUS.contains(&data.mtu);
    rule(
        mtu,
        "mtu",
        &data.mtu,
        "must be 256, 512, 1024, 2048 or 4096",
    )?;
    check_pattern(data, rule)?;
    check_operation(data, check, rule)?;
    let fits = data.region_bytes >= data.largest_message();
    rule(
        fits,
        "region_bytes",
        &data.region_bytes,
        "must hold the largest message",
    )?;
    let bytes = u64::from(data.memory_regions).saturating_mul(data.region_bytes);
    rule(
        bytes <= limits::MEMORY,
        "memory of one end",
        &bytes,
        "lower memory_regions or region_bytes",
    )
}

/// Counts with the least and the greatest allowed value.
fn check_counts(counts: &[(&'static str, u32, u32, u32)], rule: &Rule<'_>) -> Result<(), JobError> {
    for (what, value, low, high) in counts {
        let remedy = format!("must be {low} to {high}");
        rule((low..=high).contains(&value), what, value, &remedy)?;
    }
    Ok(())
}

fn check_pattern(data: &DataWork, rule: &Rule<'_>) -> Result<(), JobError> {
    let length = data.pattern.len();
    rule(
        (1..=limits::PATTERN).contains(&length),
        "pattern",
        &length,
        "must have 1 to 4,096 messages",
    )?;
    let elements = data.most_elements();
    let mut messages = data.pattern.iter();
    let all = messages.all(|message| !message.elements.is_empty());
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
    )
}

/// What the operation requires of the transport, the messages and their arrival.
fn check_operation(data: &DataWork, check: bool, rule: &Rule<'_>) -> Result<(), JobError> {
    let largest = data.largest_message();
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
    let ping_pong = data.arrival == Arrival::PingPong;
    let answered = matches!(data.operation, Operation::Write | Operation::Send);
    rule(
        !ping_pong || answered,
        "arrival",
        &"ping-pong",
        "must be with write or send",
    )?;
    let mut messages = data.pattern.iter();
    let empty = messages.any(|message| message.bytes().get() == 0);
    rule(
        !ping_pong || !empty,
        "message",
        &0,
        "a ping-pong needs at least one byte",
    )?;
    rule(
        data.transport != Transport::Ud || largest <= u64::from(data.mtu),
        "message",
        &largest,
        "a datagram is at most one MTU",
    )
}

fn check_control(control: &ControlWork, rule: &Rule<'_>) -> Result<(), JobError> {
    check_counts(
        &[
            ("threads", control.threads, 1, limits::THREADS),
            ("objects", control.objects, 1, limits::OBJECTS),
            (
                "protection_domains",
                control.protection_domains,
                1,
                limits::OBJECTS,
            ),
        ],
        rule,
    )?;
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
