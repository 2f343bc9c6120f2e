//! `RdmaEngine` and `RdmaCtrlTest`: the traffic engine of Collie and Husky.
//!
//! `RdmaEngine` keeps `send_wq_depth` requests outstanding per queue pair and rings one doorbell per `send_batch`
//! of them. A request is `op_n_bytes`, or `op_n_bytes1_..._bytesn` with `n` scatter-gather elements; `op` is `w`
//! (WRITE), `r` (READ) or `s` (SEND); several are joined by commas. `RdmaCtrlTest` creates and destroys objects:
//! its two phases, one after the other, are one loop here.
//!
//! Defaults are the engine's: queues of 1,024, one region of one 64 KiB buffer, RNR timer 14, 16 outstanding
//! READs, MTU 1,024 B. UD takes the port's MTU, since a path MTU does not apply to datagrams.

use super::{Command, program};
use crate::check::{self, DeviceLimits, class_of};
use crate::model::{
    Class, ControlObject, ControlPhase, ControlTraffic, DataTraffic, Host, MESSAGE_MAX, MTUS,
    MemoryPlace, Message, Traffic, Transport, Verb, Workload,
};
use crate::spec::{DEPTH_MAX, ELEMENTS_MAX, OBJECTS_MAX, PATTERN_MAX, QUEUE_PAIRS_MAX, REGION_MAX};
use isolane_common_quantities::units::Bytes;
use isolane_common_toml_input::error::{CommandError, nearest};
use std::collections::BTreeMap;

const DATA: &str = "RdmaEngine";
const CONTROL: &str = "RdmaCtrlTest";
/// The engine as Collie builds it.
const DATA_COLLIE: &str = "collie_engine";

const QUEUE_DEPTH: u64 = 1_024;
const BUFFER_BYTES: u64 = 65_536;
const RNR_TIMER: u64 = 14;
const OUTSTANDING_READS: u64 = 16;
const MTU: u64 = 1_024;

/// Flags of `RdmaEngine` that shape the traffic.
const DATA_FLAGS: &[&str] = &[
    "qp_num",
    "send_wq_depth",
    "send_batch",
    "recv_wq_depth",
    "recv_batch",
    "mr_num",
    "buf_num",
    "buf_size",
    "qp_type",
    "min_rnr_timer",
    "max_rd_atom",
    "mtu",
    "request",
    "gpu_id",
];
/// Flags that do not.
const DATA_IGNORED: &[&str] = &[
    "connect",
    "cq_depth",
    "dev",
    "dev_a",
    "gid",
    "gid_index",
    "hop_limit",
    "host",
    "iters",
    "ip",
    "memalign",
    "port",
    "qp_timeout",
    "receive",
    "retry_cnt",
    "retry_num",
    "rnr_retry",
    "rnr_retry_num",
    "run_infinitely",
    "send_sge",
    "share_cq",
    "share_mr",
    "sl",
    "tos",
];
const CONTROL_FLAGS: &[&str] = &[
    "test",
    "num_pd",
    "num_buffer",
    "mr_size",
    "thread",
    "num_qp",
    "num_cq",
];
const CONTROL_IGNORED: &[&str] = &[
    "alloc",
    "middle",
    "memalign",
    "dev",
    "gid",
    "batch",
    "num_cqe",
    "num_send_cq",
    "num_recv_cq",
    "qp_type",
    "max_send_wr",
    "max_recv_wr",
    "max_send_sge",
    "max_recv_sge",
    "max_inline_data",
    "port",
];

/// Whether `line` begins with the name of an engine program.
pub fn is_engine(line: &str) -> bool {
    [DATA, CONTROL, DATA_COLLIE].contains(&program(line))
}

/// The workload behind an engine command line (the client's), on a device of `limits`. Fails if the program is not the
/// engine's, the line has parts for a shell or begins with a wrapper, or a flag is unknown, has no meaning here, or is
/// out of range.
///
/// ```
/// use isolane_rdma_scenario::{check::DeviceLimits, command::engine, model::Traffic};
/// let command = engine("RdmaEngine --qp_num=6 --request=w_1_257", &DeviceLimits::PERMISSIVE)?;
/// let Traffic::Data(traffic) = command.workload.traffic else { unreachable!() };
/// assert_eq!((traffic.queue_pairs, traffic.depth), (6, 1024));
/// # Ok::<(), isolane_common_toml_input::error::CommandError>(())
/// ```
pub fn engine(line: &str, limits: &DeviceLimits) -> Result<Command, CommandError> {
    super::refuse_shell(line)?;
    match program(line) {
        DATA | DATA_COLLIE => data(&Flags::read(line, DATA_FLAGS, DATA_IGNORED)?, limits),
        CONTROL => control(&Flags::read(line, CONTROL_FLAGS, CONTROL_IGNORED)?),
        other => Err(CommandError {
            option: if other.is_empty() {
                "\"\"".into()
            } else {
                other.into()
            },
            reason: format!("is not {DATA} or {CONTROL}"),
            nearest: nearest(other, [DATA, CONTROL]).map(str::to_owned),
        }),
    }
}

/// The flags of one line, by name.
struct Flags<'a> {
    values: BTreeMap<&'a str, &'a str>,
}

impl<'a> Flags<'a> {
    fn read(line: &'a str, known: &[&str], ignored: &[&str]) -> Result<Self, CommandError> {
        let mut values = BTreeMap::new();
        for word in line.split_whitespace().skip(1) {
            let Some(flag) = word.strip_prefix("--") else {
                return Err(CommandError::new(word, "flags are written --name=value"));
            };
            let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
            if name == "server" {
                return Err(CommandError::new(
                    word,
                    "give the client's command line, not the server's",
                ));
            }
            if ignored.contains(&name) {
                continue;
            }
            if !known.contains(&name) {
                let names = known.iter().chain(ignored).copied();
                return Err(CommandError {
                    option: word.to_owned(),
                    reason: "the engine has no such flag".into(),
                    nearest: nearest(name, names).map(|near| format!("--{near}")),
                });
            }
            if values.insert(name, value).is_some() {
                return Err(CommandError::new(word, "is given twice"));
            }
        }
        Ok(Self { values })
    }

    fn number(
        &self,
        name: &str,
        default: u64,
        (min, max): (u64, u64),
    ) -> Result<u64, CommandError> {
        let Some(text) = self.values.get(name) else {
            return Ok(default);
        };
        match text.parse() {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ => Err(CommandError::new(
                format!("--{name}={text}"),
                format!("must be a whole number, {min} to {max}"),
            )),
        }
    }

    fn number32(&self, name: &str, default: u64, range: (u64, u64)) -> Result<u32, CommandError> {
        let number = self.number(name, default, range)?;
        Ok(u32::try_from(number).expect("the range fits 32 bits"))
    }
}

fn data(flags: &Flags<'_>, limits: &DeviceLimits) -> Result<Command, CommandError> {
    let (verb, pattern) = requests(flags.values.get("request").copied().unwrap_or("w_1_65536"))?;
    let transport = match flags.number("qp_type", 2, (2, 4))? {
        2 => Transport::Rc,
        3 => Transport::Uc,
        _ => Transport::Ud,
    };
    let mtu_default = match transport {
        Transport::Ud => u64::from(limits.mtu_max),
        _ => MTU.min(u64::from(limits.mtu_max)),
    };
    let mtu = flags.number32("mtu", mtu_default, (256, 4_096))?;
    if !MTUS.contains(&mtu) {
        return Err(CommandError::new(
            format!("--mtu={mtu}"),
            "must be 256, 512, 1024, 2048 or 4096",
        ));
    }
    let queue = (1, DEPTH_MAX);
    let memory = match flags.number("gpu_id", 0, (0, 64)) {
        Ok(_) if flags.values.contains_key("gpu_id") => MemoryPlace::Gpu,
        _ => MemoryPlace::Local,
    };
    let depth = flags.number32("send_wq_depth", QUEUE_DEPTH, queue)?;
    let post_list = flags.number32("send_batch", 1, queue)?;
    // The engine raises the queue to the batch where it is shorter.
    let depth = depth.max(post_list);
    let traffic = DataTraffic {
        pattern,
        queue_pairs: flags.number32("qp_num", 1, (1, QUEUE_PAIRS_MAX))?,
        post_list,
        completion_every: post_list,
        receive_depth: flags.number32("recv_wq_depth", QUEUE_DEPTH, queue)?,
        receive_batch: flags.number32("recv_batch", 1, (0, DEPTH_MAX))?,
        min_rnr_timer: u8::try_from(flags.number("min_rnr_timer", RNR_TIMER, (0, 31))?)
            .expect("the range fits 8 bits"),
        max_read_atomic: flags.number32("max_rd_atom", OUTSTANDING_READS, (1, 255))?,
        mtu,
        memory_regions: flags.number32("mr_num", 1, (1, OBJECTS_MAX))?,
        region_bytes: region(flags)?,
        memory,
        remote_memory: memory,
        ..DataTraffic::plain(verb, transport, Message::of(1), depth)
    };
    check::traffic_allowed(&traffic, limits).map_err(|fault| {
        let flag = match fault.key {
            "transport" => "--qp_type",
            "size" | "verb" => "--request",
            "region" => "--buf_size",
            "mtu" => "--mtu",
            "receive_batch" => "--recv_batch",
            _ => "this command line",
        };
        CommandError::new(flag, format!("{}: {}", fault.value, fault.expected))
    })?;
    let traffic = Traffic::Data(traffic);
    Ok(Command {
        class: class_of(&traffic),
        workload: Workload {
            name: DATA.to_owned(),
            processes: 1,
            from: Host::A,
            to: Host::B,
            traffic,
        },
        run_for: None,
        iterations: None,
    })
}

/// The length of a region: all its buffers.
fn region(flags: &Flags<'_>) -> Result<Bytes, CommandError> {
    let buffers = flags.number("buf_num", 1, (1, OBJECTS_MAX))?;
    let buffer = flags.number("buf_size", BUFFER_BYTES, (1, REGION_MAX))?;
    let region = Bytes::new(buffers.saturating_mul(buffer));
    let most = Bytes::new(REGION_MAX);
    match region > most {
        true => Err(CommandError::new(
            format!("--buf_num={buffers} --buf_size={buffer}"),
            format!("a region must be at most {most}"),
        )),
        false => Ok(region),
    }
}

/// The verb and the messages of a request vector.
fn requests(text: &str) -> Result<(Verb, Vec<Message>), CommandError> {
    let wrong =
        |request: &str, reason: String| CommandError::new(format!("--request={request}"), reason);
    let mut verb = None;
    let mut pattern = Vec::new();
    for request in text.split(',') {
        let mut parts = request.split('_');
        let this = match parts.next() {
            Some("w") => Verb::Write,
            Some("r") => Verb::Read,
            Some("s") => Verb::Send,
            _ => {
                return Err(wrong(
                    request,
                    "must begin with w, r or s, like w_1_65536".into(),
                ));
            }
        };
        if let Some(first) = verb.replace(this).filter(|first| *first != this) {
            let reason = format!(
                "mixes {} and {}: one process has one verb here, write two tenants or workloads",
                first.name(),
                this.name()
            );
            return Err(wrong(text, reason));
        }
        let count: Option<usize> = parts.next().and_then(|count| count.parse().ok());
        let elements: Option<Vec<u32>> = parts
            .map(|bytes| {
                let bytes: u64 = bytes.parse().ok()?;
                let bytes = (1..=MESSAGE_MAX.get()).contains(&bytes).then_some(bytes)?;
                u32::try_from(bytes).ok()
            })
            .collect();
        let (Some(count), Some(elements)) = (count, elements) else {
            return Err(wrong(
                request,
                "must be op_n_bytes with 1 to 2147483648 bytes".into(),
            ));
        };
        if elements.len() != count || !(1..=ELEMENTS_MAX).contains(&count) {
            let reason = format!("must name 1 to {ELEMENTS_MAX} elements and the length of each");
            return Err(wrong(request, reason));
        }
        pattern.push(Message { elements });
    }
    match verb {
        Some(verb) if pattern.len() <= PATTERN_MAX => Ok((verb, pattern)),
        _ => Err(wrong(
            text,
            format!("must have 1 to {PATTERN_MAX} requests"),
        )),
    }
}

fn control(flags: &Flags<'_>) -> Result<Command, CommandError> {
    let object = match flags.values.get("test").copied().unwrap_or("mr") {
        "mr" => ControlObject::MemoryRegion,
        "qp" => ControlObject::QueuePair,
        "cq" => ControlObject::CompletionQueue,
        other => {
            return Err(CommandError::new(
                format!("--test={other}"),
                "is not modelled: must be mr, qp or cq",
            ));
        }
    };
    let count = (1, OBJECTS_MAX);
    let objects = match object {
        ControlObject::MemoryRegion => flags.number32("num_buffer", 1, count)?,
        ControlObject::QueuePair => flags.number32("num_qp", 1, count)?,
        ControlObject::CompletionQueue => flags.number32("num_cq", 1, count)?,
    };
    let traffic = ControlTraffic {
        object,
        threads: flags.number32("thread", 1, (1, 256))?,
        objects,
        protection_domains: flags.number32("num_pd", 1, count)?,
        region_bytes: Bytes::new(flags.number("mr_size", BUFFER_BYTES, (1, REGION_MAX))?),
        phase: ControlPhase::Cycle,
    };
    Ok(Command {
        class: Class::Auto,
        workload: Workload {
            name: CONTROL.to_owned(),
            processes: 1,
            from: Host::A,
            to: Host::A,
            traffic: Traffic::Control(traffic),
        },
        run_for: None,
        iterations: None,
    })
}
