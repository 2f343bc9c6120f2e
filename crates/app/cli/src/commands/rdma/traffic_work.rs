//! The options of `isolane rdma traffic`, as the jobs of its two ends.

use crate::inputs::{bad, scenario_text};
use anyhow::{Result, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use isolane_common_toml_input::quantity;
use isolane_rdma_scenario::Overrides;
use isolane_rdma_scenario::model::{ControlObject, Host, MemoryPlace, Message, Tenant, Transport};
use isolane_rdma_traffic::worker::{
    self, Arrival, ControlPhase, ControlWork, DataWork, EndJob, FaultWork, Job, Operation, Options,
    Plan, Side, Warmup, Work,
};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Default points of the series: one per second, but at least this number.
const SAMPLES_MIN: u64 = 10;
const SECOND_NS: u64 = 1_000_000_000;
/// Longest warm-up that looks for a steady rate.
const STEADY_NS: u64 = 10 * SECOND_NS;

/// The traffic; the same options for `client` and `local`.
#[derive(Debug, clap::Args)]
pub(crate) struct Traffic {
    /// RDMA device, like mlx5_0
    #[arg(long, short)]
    pub(crate) device: String,
    /// Port of the device
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) ib_port: u8,
    /// Index in the GID table; without it RoCE v2 over IPv4 is preferred
    #[arg(long, value_name = "N")]
    pub(crate) gid_index: Option<u32>,
    /// Take the traffic of a tenant of this scenario file (hosts a and b) instead of the options below
    #[arg(long, value_name = "FILE", requires = "tenant")]
    scenario: Option<PathBuf>,
    /// The tenant of --scenario
    #[arg(long, value_name = "NAME", requires = "scenario")]
    tenant: Option<String>,
    /// Operation of every request
    #[arg(long, default_value = "write", value_parser = choice(OPERATIONS))]
    verb: Operation,
    /// Transport of every queue pair
    #[arg(long, default_value = "rc", value_parser = choice(TRANSPORTS))]
    transport: Transport,
    /// Message size
    #[arg(long, short, default_value = "64KiB", value_parser = size)]
    size: Bytes,
    /// Messages in turn instead of --size, elements joined by +: 4KiB,64B+64B
    #[arg(long, value_name = "SIZES", value_parser = pattern)]
    pattern: Option<Pattern>,
    /// Scatter-gather elements of each message of --size
    #[arg(long, default_value_t = 1, value_name = "N")]
    sges: u32,
    /// Queue pairs
    #[arg(long, short, default_value_t = 1, value_name = "N")]
    qps: u32,
    /// Processes (threads), each with its own queue pairs, regions and context
    #[arg(long, default_value_t = 1, value_name = "N")]
    processes: u32,
    /// Work requests outstanding per queue pair
    #[arg(long, default_value_t = 128, value_name = "N")]
    depth: u32,
    /// Work requests per doorbell
    #[arg(long, default_value_t = 1, value_name = "N")]
    post_list: u32,
    /// One in this many requests is signaled; the default is the value of --post-list
    #[arg(long, value_name = "N")]
    cq_mod: Option<u32>,
    /// Memory regions at each end
    #[arg(long, default_value_t = 1, value_name = "N")]
    mrs: u32,
    /// Length of each region; the largest message unless given
    #[arg(long, value_name = "SIZE", value_parser = size)]
    region: Option<Bytes>,
    /// Where the own buffers are: a NUMA node, seen from the device, or the first NVIDIA GPU
    #[arg(long, default_value = "local", value_parser = choice(PLACES))]
    memory: MemoryPlace,
    /// Where the peer's buffers are: a NUMA node, seen from its device, or its first NVIDIA GPU
    #[arg(long, default_value = "local", value_parser = choice(PLACES))]
    peer_memory: MemoryPlace,
    /// Receives posted per queue pair
    #[arg(long, default_value_t = 512, value_name = "N")]
    receive_depth: u32,
    /// Receives posted back at once; 0 never posts any, so that every SEND meets RNR
    #[arg(long, default_value_t = 1, value_name = "N")]
    receive_batch: u32,
    /// The receiver is late: wait so long before posting a receive back
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    receive_delay: Option<Duration>,
    /// RNR timer code of the IB specification
    #[arg(long, default_value_t = 12, value_name = "CODE")]
    min_rnr_timer: u8,
    /// READs and atomics outstanding per queue pair
    #[arg(long, default_value_t = 16, value_name = "N")]
    max_read_atomic: u32,
    /// Send messages up to this size inside the work request
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    inline: u32,
    /// Path MTU; lowered to what the ports have
    #[arg(long, default_value_t = 4096, value_name = "BYTES")]
    mtu: u32,
    /// Ping-pong: one message at a time, answered by the same; latency is half the round trip (write, send)
    #[arg(long, conflicts_with_all = ["rate", "interval", "think"])]
    ping_pong: bool,
    /// Offer at most this rate per process, like 10Gb/s
    #[arg(long, value_parser = quantity::rate, conflicts_with_all = ["interval", "think"])]
    rate: Option<BitRate>,
    /// Open loop: a list of each queue pair arrives at this rate, independent of completions
    #[arg(long, value_name = "TIME", value_parser = quantity::duration, conflicts_with = "think")]
    interval: Option<Duration>,
    /// Open loop: exponential intervals
    #[arg(long, requires = "interval")]
    poisson: bool,
    /// Closed loop: mean pause after each completion
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    think: Option<Duration>,
    /// Both ends send
    #[arg(long, short)]
    bidirectional: bool,
    /// End after so many messages per queue pair
    #[arg(long, short = 'n', value_name = "N")]
    iterations: Option<u64>,
    /// Loop over control verbs on these objects instead of data traffic
    #[arg(long, value_name = "OBJECT", value_parser = choice(OBJECTS))]
    #[arg(conflicts_with_all = ["scenario", "fault"])]
    control: Option<ControlObject>,
    /// Which control verbs count
    #[arg(long, default_value = "cycle", requires = "control", value_parser = choice(PHASES))]
    phase: ControlPhase,
    /// Objects that a control loop has alive at once, per thread (--processes)
    #[arg(long, default_value_t = 16, value_name = "N", requires = "control")]
    objects: u32,
    /// At most so many control verbs per second and thread
    #[arg(long, value_name = "N", requires = "control")]
    verbs_per_s: Option<u64>,
    /// Loop over requests that must fail instead of data traffic
    #[arg(long, value_name = "KIND", conflicts_with = "scenario", value_parser = choice(FAULTS))]
    fault: Option<FaultWork>,
    /// Time before measuring: a time, or auto to wait for a steady rate (10 s at most)
    #[arg(long, default_value = "500ms", value_name = "TIME", value_parser = warmup)]
    warmup: Warmup,
    /// Measured time
    #[arg(long, short = 'D', default_value = "5s", value_name = "TIME", value_parser = quantity::duration)]
    duration: Duration,
    /// Width of one point of the series; a second unless the run is short
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    sample: Option<Duration>,
    /// Sleep for completions (events) instead of polling
    #[arg(long, short)]
    events: bool,
    /// Write a pattern and verify every byte; queues are 16 deep at most
    #[arg(long)]
    check: bool,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Messages in turn.
#[derive(Clone, Debug)]
struct Pattern(Vec<Message>);

/// Parses one of the words of `choices` as its value.
fn choice<T, const N: usize>(choices: [(&'static str, T); N]) -> impl TypedValueParser<Value = T>
where
    T: Clone + Send + Sync + 'static,
{
    let words = PossibleValuesParser::new(choices.each_ref().map(|(word, _)| *word));
    words.map(move |word| {
        let found = choices.iter().find(|(known, _)| *known == word);
        found.expect("clap accepts no other word").1.clone()
    })
}

const OPERATIONS: [(&str, Operation); 6] = [
    ("write", Operation::Write),
    ("write-imm", Operation::WriteImm),
    ("read", Operation::Read),
    ("send", Operation::Send),
    ("fetch-add", Operation::FetchAdd),
    ("compare-swap", Operation::CompareSwap),
];

const TRANSPORTS: [(&str, Transport); 3] = [
    ("rc", Transport::Rc),
    ("uc", Transport::Uc),
    ("ud", Transport::Ud),
];

const PLACES: [(&str, MemoryPlace); 3] = [
    ("local", MemoryPlace::Local),
    ("remote-socket", MemoryPlace::RemoteSocket),
    ("gpu", MemoryPlace::Gpu),
];

const OBJECTS: [(&str, ControlObject); 3] = [
    ("mr", ControlObject::MemoryRegion),
    ("qp", ControlObject::QueuePair),
    ("cq", ControlObject::CompletionQueue),
];

const PHASES: [(&str, ControlPhase); 4] = [
    ("cycle", ControlPhase::Cycle),
    ("create", ControlPhase::Create),
    ("destroy", ControlPhase::Destroy),
    ("modify", ControlPhase::Modify),
];

const FAULTS: [(&str, FaultWork); 3] = [
    ("remote-key", FaultWork::RemoteKey),
    ("local-key", FaultWork::LocalKey),
    ("rnr", FaultWork::ReceiverNotReady),
];

impl Traffic {
    /// The jobs of both ends: host A has `device`, host B has `other`.
    pub(crate) fn plan(&self, other: &str) -> Result<Plan> {
        let plan = match (&self.scenario, &self.tenant) {
            (Some(file), Some(tenant)) => self.plan_of_scenario(file, tenant, other)?,
            _ => self.plan_of_options(other)?,
        };
        for job in plan.jobs.values() {
            job.check().map_err(|error| bad(error.to_string()))?;
        }
        Ok(plan)
    }

    fn plan_of_scenario(&self, file: &std::path::Path, tenant: &str, other: &str) -> Result<Plan> {
        let (text, name) = scenario_text(file)?;
        let library = crate::inputs::library();
        let overrides = Overrides::default();
        let scenario = isolane_rdma_scenario::parse_with(&text, &name, &library, &overrides)?;
        let found = scenario.tenants.iter().find(|known| known.name == tenant);
        let Some(found) = found else {
            let names: Vec<&str> = scenario
                .tenants
                .iter()
                .map(|known| known.name.as_str())
                .collect();
            bail!(bad(format!(
                "{name} has no tenant {tenant:?}; it has {}",
                names.join(", ")
            )));
        };
        let options = Options {
            devices: BTreeMap::from([(Host::A, self.device.clone()), (Host::B, other.to_owned())]),
            gid_index: self.gid_index,
            check: self.check,
            events: self.events,
        };
        // A scenario's times are a simulator's: those of the command line hold here.
        let tenant = Tenant {
            start: Duration::ZERO,
            stop: None,
            ..found.clone()
        };
        let plan = worker::plan(&scenario, &tenant, &options);
        let mut plan = plan.map_err(|error| bad(error.to_string()))?;
        for (host, job) in &mut plan.jobs {
            let empty = self.job(*host, other);
            let ends = std::mem::take(&mut job.ends);
            let tenant = std::mem::take(&mut job.tenant);
            *job = Job {
                ends,
                tenant,
                ..empty
            };
        }
        Ok(plan)
    }

    fn plan_of_options(&self, other: &str) -> Result<Plan> {
        let mut jobs = BTreeMap::new();
        let mut add = |host: Host, id: u32, name: &str, work: Work| {
            let job = jobs.entry(host).or_insert_with(|| self.job(host, other));
            job.ends.push(EndJob {
                id,
                name: name.to_owned(),
                begin_ns: 0,
                end_ns: None,
                work,
            });
        };
        if let Some(object) = self.control {
            add(Host::A, 0, "control", Work::Control(self.control(object)));
        } else if let Some(fault) = self.fault {
            for process in 0..self.processes {
                add(Host::A, process * 2, "fault", Work::Fault(fault));
            }
        } else {
            for process in 0..self.processes {
                let id = process * 2;
                let end = |side| Work::Data(self.data(side));
                add(Host::A, id, "data", end(Side::From));
                add(Host::B, worker::peer_of(id), "data", end(Side::To));
            }
        }
        Ok(Plan { jobs })
    }

    fn job(&self, host: Host, other: &str) -> Job {
        let duration_ns = nanoseconds(self.duration);
        let short = (duration_ns / SAMPLES_MIN).max(1);
        let sample = self.sample.map(nanoseconds);
        Job {
            version: worker::VERSION,
            tenant: "traffic".to_owned(),
            device: match host {
                Host::A => self.device.clone(),
                _ => other.to_owned(),
            },
            port: self.ib_port,
            gid_index: self.gid_index,
            warmup: self.warmup,
            duration_ns,
            sample_interval_ns: sample.unwrap_or(short.min(SECOND_NS)),
            seed: self.seed,
            check: self.check,
            events: self.events,
            ends: Vec::new(),
        }
    }

    fn data(&self, side: Side) -> DataWork {
        let operation = self.verb;
        let pattern = match &self.pattern {
            _ if operation.is_atomic() => vec![Message::of(8)],
            Some(Pattern(messages)) => messages.clone(),
            None => vec![split(self.size, self.sges)],
        };
        let largest = pattern.iter().map(|message| message.bytes().get()).max();
        let depth = if self.ping_pong { 1 } else { self.depth };
        let post_list = if self.ping_pong { 1 } else { self.post_list };
        DataWork {
            side,
            operation,
            transport: self.transport,
            pattern,
            queue_pairs: self.qps,
            post_list,
            depth,
            completion_every: self.cq_mod.unwrap_or(post_list).min(depth),
            receive_depth: self.receive_depth,
            receive_batch: self.receive_batch,
            receive_delay_ns: self.receive_delay.map_or(0, nanoseconds),
            min_rnr_timer: self.min_rnr_timer,
            max_read_atomic: self.max_read_atomic,
            inline_bytes: self.inline,
            mtu: self.mtu,
            memory_regions: self.mrs,
            memory: match side {
                Side::From => self.memory,
                Side::To => self.peer_memory,
            },
            region_bytes: self
                .region
                .map_or(largest.unwrap_or(0).max(4_096), Bytes::get),
            arrival: match (self.ping_pong, self.rate, self.interval) {
                (true, _, _) => Arrival::PingPong,
                (_, Some(rate), _) => Arrival::Paced {
                    rate_bps: rate.as_bps(),
                },
                (_, _, Some(interval)) => Arrival::Open {
                    interval_ns: nanoseconds(interval).max(1),
                    poisson: self.poisson,
                },
                _ => Arrival::Closed {
                    think_ns: self.think.map_or(0, nanoseconds),
                },
            },
            bidirectional: self.bidirectional,
            iterations: self.iterations,
        }
    }

    fn control(&self, object: ControlObject) -> ControlWork {
        ControlWork {
            object,
            threads: self.processes,
            objects: self.objects,
            protection_domains: 1,
            region_bytes: self.region.map_or(4_096, Bytes::get),
            phase: self.phase,
            verbs_per_s: self.verbs_per_s.unwrap_or(0),
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    duration.as_ps() / 1_000
}

/// A message of `size` in `elements` nearly equal elements.
fn split(size: Bytes, elements: u32) -> Message {
    let (size, count) = (size.get(), u64::from(elements.max(1)));
    let part = |index: u64| size * (index + 1) / count - size * index / count;
    let parts = (0..count).map(|index| u32::try_from(part(index)).unwrap_or(u32::MAX));
    Message {
        elements: parts.collect(),
    }
}

/// A size with a unit, or plain bytes.
fn size(text: &str) -> Result<Bytes, String> {
    match text.parse() {
        Ok(bytes) => Ok(Bytes::new(bytes)),
        Err(_) => quantity::size(text),
    }
}

fn pattern(text: &str) -> Result<Pattern, String> {
    let message = |text: &str| {
        let elements = text.split('+').map(|element| {
            let bytes = size(element)?.get();
            u32::try_from(bytes).map_err(|_| format!("{element:?} is larger than 4 GiB"))
        });
        Ok(Message {
            elements: elements.collect::<Result<_, String>>()?,
        })
    };
    text.split(',')
        .map(message)
        .collect::<Result<_, String>>()
        .map(Pattern)
}

fn warmup(text: &str) -> Result<Warmup, String> {
    match text {
        "auto" => Ok(Warmup::Steady { max_ns: STEADY_NS }),
        "0" => Ok(Warmup::Fixed { ns: 0 }),
        text => quantity::duration(text).map(|duration| Warmup::Fixed {
            ns: nanoseconds(duration),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_add_up_to_the_message() {
        assert_eq!(split(Bytes::new(10), 3).elements, [3, 3, 4]);
        assert_eq!(split(Bytes::new(64), 1).elements, [64]);
    }

    #[test]
    fn a_pattern_has_messages_of_elements() {
        let Pattern(messages) = pattern("4KiB,64B+64").expect("a pattern");
        assert_eq!(messages[0].elements, [4_096]);
        assert_eq!(messages[1].elements, [64, 64]);
        assert!(pattern("4KiB,").is_err());
        assert!(pattern("x").is_err());
    }
}
