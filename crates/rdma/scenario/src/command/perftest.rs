//! `ib_{write,read,send,atomic}_{bw,lat}` of perftest 4.5.
//!
//! Defaults are perftest's own: 65,536 B and a queue of 128 for `_bw`, 2 B and one outstanding for `_lat`, a
//! completion every 100 requests (every list when posted in lists, every request above 8 KiB), receive queue 512,
//! 16 outstanding READs. Buffers are one region per process, both halves (send and receive) of every queue pair,
//! at least a 4 KiB page each. `_lat` puts messages up to 220 B (WRITE), 236 B (SEND) or 188 B (SEND over UD)
//! inside the work request, as far as the device allows.
//!
//! Limits: `-n` is reported, not applied: the caller decides whether a run ends by itself.

use super::options::{Found, scan};
use super::{Command, program};
use crate::check::{self, DeviceLimits, class_of};
use crate::model::{
    Arrival, Class, DataTraffic, Host, MESSAGE_MAX, MTUS, MemoryPlace, Message, Traffic, Transport,
    Verb, Workload,
};
use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use isolane_common_toml_input::error::{CommandError, nearest};

const SIZE_BANDWIDTH: u32 = 65_536;
const SIZE_LATENCY: u32 = 2;
const SIZE_ATOMIC: u32 = 8;
const DEPTH_BANDWIDTH: u32 = 128;
const DEPTH_LATENCY: u32 = 1;
const DEPTH_MAX: u64 = 15_000;
const RECEIVE_DEPTH: u32 = 512;
const RECEIVE_DEPTH_MAX: u64 = 16_384;
const QUEUE_PAIRS_MAX: u64 = 16_384;
const COMPLETION_EVERY: u32 = 100;
const COMPLETION_EVERY_MAX: u64 = 1_024;
/// Above this size perftest signals every work request, bytes.
const COMPLETION_EVERY_SIZE_MAX: u32 = 8_192;
const INLINE_MAX: u64 = 912;
const INLINE_WRITE: u32 = 220;
const INLINE_SEND: u32 = 236;
const INLINE_SEND_UD: u32 = 188;
const OUTSTANDING_READS: u32 = 16;
const ITERATIONS: (u64, u64) = (5, 100_000_000);
const ITERATIONS_WRITE_BANDWIDTH: u64 = 5_000;
const ITERATIONS_OTHER: u64 = 1_000;
/// Smallest buffer of one queue pair and half, bytes: perftest cycles through a page.
const BUFFER_MIN: u64 = 4_096;
/// Longest `-D`, seconds: beyond any run, and far below what a [`Duration`] holds.
const DURATION_MAX_S: u64 = 1_000_000;

const PROGRAMS: [(&str, Verb, bool); 8] = [
    ("ib_write_bw", Verb::Write, false),
    ("ib_write_lat", Verb::Write, true),
    ("ib_read_bw", Verb::Read, false),
    ("ib_read_lat", Verb::Read, true),
    ("ib_send_bw", Verb::Send, false),
    ("ib_send_lat", Verb::Send, true),
    ("ib_atomic_bw", Verb::FetchAdd, false),
    ("ib_atomic_lat", Verb::FetchAdd, true),
];

/// Whether `line` begins with the name of a perftest program.
pub fn is_perftest(line: &str) -> bool {
    PROGRAMS.iter().any(|(name, ..)| *name == program(line))
}

/// The options given, by name.
struct Options {
    found: Vec<Found>,
}

/// The workload behind a perftest command line, on a device of `limits`. Fails if the program is none of perftest's,
/// the line has parts for a shell or begins with a wrapper, or an option is unknown, has no meaning here, or is out of
/// range.
///
/// ```
/// use isolane_rdma_scenario::{check::DeviceLimits, command::perftest, model::Traffic};
/// let command = perftest("ib_write_bw -s 65536 -l 128 -q 16", &DeviceLimits::PERMISSIVE)?;
/// let Traffic::Data(traffic) = command.workload.traffic else { unreachable!() };
/// assert_eq!((traffic.queue_pairs, traffic.post_list, traffic.depth), (16, 128, 128));
/// # Ok::<(), isolane_common_toml_input::error::CommandError>(())
/// ```
pub fn perftest(line: &str, limits: &DeviceLimits) -> Result<Command, CommandError> {
    super::refuse_shell(line)?;
    let name = program(line);
    let Some(&(name, verb, latency)) = PROGRAMS.iter().find(|(known, ..)| *known == name) else {
        return Err(CommandError {
            option: if name.is_empty() {
                "\"\"".into()
            } else {
                name.into()
            },
            reason: "is not one of ib_{write,read,send,atomic}_{bw,lat}".into(),
            nearest: nearest(name, PROGRAMS.iter().map(|(known, ..)| *known)).map(str::to_owned),
        });
    };
    let options = Options { found: scan(line)? };
    let verb = options.verb(verb)?;
    options.refuse_meaningless(verb, latency)?;
    let traffic = options.traffic(verb, latency, limits)?;
    check::traffic_allowed(&traffic, limits).map_err(|fault| {
        let option = option_of(fault.key);
        CommandError::new(option, format!("{}: {}", fault.value, fault.expected))
    })?;

    let infinite = options.has("run_infinitely");
    let run_for = match options.number("duration", (1, DURATION_MAX_S))? {
        Some(seconds) if !infinite => Some(Duration::from_secs(seconds)),
        _ => None,
    };
    let iterations = options
        .number("iters", ITERATIONS)?
        .unwrap_or(match (verb, latency) {
            (Verb::Write, false) => ITERATIONS_WRITE_BANDWIDTH,
            _ => ITERATIONS_OTHER,
        });
    let (from, to) = match options.has("reversed") {
        false => (Host::A, Host::B),
        true => (Host::B, Host::A),
    };
    let traffic = Traffic::Data(traffic);
    Ok(Command {
        class: if latency {
            Class::Latency
        } else {
            class_of(&traffic)
        },
        workload: Workload {
            name: name.to_owned(),
            processes: 1,
            from,
            to,
            traffic,
        },
        run_for,
        iterations: (!infinite && run_for.is_none()).then_some(iterations),
    })
}

/// The option behind a key of traffic written in full.
fn option_of(key: &str) -> &'static str {
    match key {
        "transport" => "--connection",
        "size" => "--size",
        "queue_pairs" => "--qp",
        "post_list" => "--post_list",
        "depth" => "--tx-depth",
        "completion_every" => "--cq-mod",
        "receive_batch" => "--recv_post_list",
        "inline" => "--inline_size",
        "mtu" => "--mtu",
        _ => "this command line",
    }
}

impl Options {
    fn option(&self, name: &str) -> Option<&Found> {
        self.found.iter().find(|found| found.name == name)
    }

    fn has(&self, name: &str) -> bool {
        self.option(name).is_some()
    }

    /// A whole number within `range`, decimal or `0x`.
    fn number(&self, name: &str, (min, max): (u64, u64)) -> Result<Option<u64>, CommandError> {
        let Some(found) = self.option(name) else {
            return Ok(None);
        };
        let text = found.value.as_str();
        let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        let option = format!("{} {text}", found.written);
        match number {
            Ok(number) if (min..=max).contains(&number) => Ok(Some(number)),
            Ok(_) => Err(CommandError::new(option, format!("must be {min} to {max}"))),
            Err(_) => Err(CommandError::new(
                option,
                format!("must be a whole number without a unit, {min} to {max}"),
            )),
        }
    }

    fn number32(&self, name: &str, range: (u64, u64)) -> Result<Option<u32>, CommandError> {
        let number = self.number(name, range)?;
        Ok(number.map(|number| u32::try_from(number).expect("the range fits 32 bits")))
    }

    fn verb(&self, verb: Verb) -> Result<Verb, CommandError> {
        let Some(found) = self.option("atomic_type") else {
            return Ok(verb);
        };
        if verb != Verb::FetchAdd {
            return Err(CommandError::new(
                &found.written,
                "only ib_atomic_bw and ib_atomic_lat have an atomic type",
            ));
        }
        match found.value.as_str() {
            "FETCH_AND_ADD" => Ok(Verb::FetchAdd),
            "CMP_AND_SWAP" => Ok(Verb::CompareSwap),
            other => Err(CommandError {
                option: format!("{} {other}", found.written),
                reason: "must be FETCH_AND_ADD or CMP_AND_SWAP".into(),
                nearest: nearest(other, ["FETCH_AND_ADD", "CMP_AND_SWAP"]).map(str::to_owned),
            }),
        }
    }

    /// Options that perftest itself refuses for this program.
    fn refuse_meaningless(&self, verb: Verb, latency: bool) -> Result<(), CommandError> {
        let one_sided = verb != Verb::Send;
        let fetches = !matches!(verb, Verb::Write | Verb::Send);
        let atomic = matches!(verb, Verb::FetchAdd | Verb::CompareSwap);
        let rules = [
            (
                "qp",
                latency,
                "latency tests use one queue pair: write processes instead",
            ),
            (
                "post_list",
                latency,
                "latency tests post one request at a time",
            ),
            (
                "recv_post_list",
                latency,
                "latency tests post one receive at a time",
            ),
            (
                "tx-depth",
                latency,
                "latency tests have one request outstanding",
            ),
            ("cq-mod", latency, "latency tests await every completion"),
            (
                "bidirectional",
                latency,
                "only bandwidth tests can be bidirectional",
            ),
            (
                "run_infinitely",
                latency,
                "exists in bandwidth tests only: drop it, tenants run until their stop anyway",
            ),
            ("rate_limit", latency, "exists in bandwidth tests only"),
            ("mr_per_qp", latency, "exists in bandwidth tests only"),
            (
                "inline_size",
                fetches,
                "READ and atomics carry no payload to the NIC",
            ),
            (
                "outs",
                !fetches,
                "only READ and atomics have outstanding reads",
            ),
            ("rx-depth", one_sided, "only SEND has a receive queue"),
            ("recv_post_list", one_sided, "only SEND has a receive queue"),
            ("rate_units", !self.has("rate_limit"), "needs --rate_limit"),
            (
                "rate_limit_type",
                !self.has("rate_limit"),
                "needs --rate_limit",
            ),
            ("rate_limit", atomic, "has no meaning for atomics"),
        ];
        for (name, broken, reason) in rules {
            if let (true, Some(found)) = (broken, self.option(name)) {
                return Err(CommandError::new(&found.written, reason));
            }
        }
        Ok(())
    }

    fn transport(&self) -> Result<Transport, CommandError> {
        let Some(found) = self.option("connection") else {
            return Ok(Transport::Rc);
        };
        let option = format!("{} {}", found.written, found.value);
        match found.value.as_str() {
            "RC" => Ok(Transport::Rc),
            "UC" => Ok(Transport::Uc),
            "UD" => Ok(Transport::Ud),
            "XRC" | "DC" | "SRD" => Err(CommandError::new(
                option,
                "is not modelled: must be RC, UC or UD",
            )),
            other => Err(CommandError {
                option,
                reason: "must be RC, UC or UD".into(),
                nearest: nearest(other, ["RC", "UC", "UD"]).map(str::to_owned),
            }),
        }
    }

    fn mtu(&self, transport: Transport, limits: &DeviceLimits) -> Result<u32, CommandError> {
        let Some(found) = self.option("mtu") else {
            let whole_port = transport == Transport::Ud;
            return Ok(if whole_port {
                limits.mtu_max
            } else {
                limits.mtu_default
            });
        };
        let mtu = found.value.parse().ok().filter(|mtu| MTUS.contains(mtu));
        mtu.ok_or_else(|| {
            CommandError::new(
                format!("{} {}", found.written, found.value),
                "must be 256, 512, 1024, 2048 or 4096",
            )
        })
    }

    fn size(
        &self,
        (verb, latency): (Verb, bool),
        transport: Transport,
        mtu: u32,
    ) -> Result<u32, CommandError> {
        let given = self.number32("size", (1, MESSAGE_MAX.get()))?;
        let default = match verb {
            Verb::FetchAdd | Verb::CompareSwap => SIZE_ATOMIC,
            _ if latency => SIZE_LATENCY,
            _ if transport == Transport::Ud => SIZE_BANDWIDTH.min(mtu),
            _ => SIZE_BANDWIDTH,
        };
        Ok(given.unwrap_or(default))
    }

    fn traffic(
        &self,
        verb: Verb,
        latency: bool,
        limits: &DeviceLimits,
    ) -> Result<DataTraffic, CommandError> {
        let transport = self.transport()?;
        let mtu = self.mtu(transport, limits)?;
        let size = self.size((verb, latency), transport, mtu)?;
        let queue_pairs = self.number32("qp", (1, QUEUE_PAIRS_MAX))?.unwrap_or(1);
        let post_list = self.number32("post_list", (1, DEPTH_MAX))?.unwrap_or(1);
        let depth_default = if latency {
            DEPTH_LATENCY
        } else {
            DEPTH_BANDWIDTH
        };
        let depth = self
            .number32("tx-depth", (1, DEPTH_MAX))?
            .unwrap_or(depth_default);
        let completion_every = self.completion_every(post_list, depth, (size, transport))?;
        let inline_default = match (latency, verb, transport) {
            (true, Verb::Write, _) => INLINE_WRITE.min(limits.inline_max),
            (true, Verb::Send, Transport::Ud) => INLINE_SEND_UD.min(limits.inline_max),
            (true, Verb::Send, _) => INLINE_SEND.min(limits.inline_max),
            _ => 0,
        };
        let one_sided = verb != Verb::Send;
        let buffer = u64::from(size).max(BUFFER_MIN);
        let per_pair = self.has("mr_per_qp");
        let regions = if per_pair { queue_pairs } else { 1 };
        let pairs_per_region = if per_pair { 1 } else { u64::from(queue_pairs) };
        let gpu = self.has("use_cuda") || self.has("use_cuda_bus_id");
        let memory = if gpu {
            MemoryPlace::Gpu
        } else {
            MemoryPlace::Local
        };
        let receive_depth = self.number32("rx-depth", (1, RECEIVE_DEPTH_MAX))?;
        let receive_batch = self.number32("recv_post_list", (1, RECEIVE_DEPTH_MAX))?;
        Ok(DataTraffic {
            queue_pairs,
            post_list,
            completion_every,
            receive_depth: receive_depth.unwrap_or(if one_sided { 1 } else { RECEIVE_DEPTH }),
            receive_batch: receive_batch.unwrap_or(1),
            max_read_atomic: self
                .number32("outs", (1, 255))?
                .unwrap_or(OUTSTANDING_READS),
            inline_bytes: self
                .number32("inline_size", (0, INLINE_MAX))?
                .unwrap_or(inline_default),
            mtu,
            memory_regions: regions,
            region_bytes: Bytes::new(2 * buffer * pairs_per_region),
            arrival: self.arrival((verb, latency), (size, queue_pairs))?,
            bidirectional: self.has("bidirectional"),
            memory,
            remote_memory: memory,
            ..DataTraffic::plain(verb, transport, Message::of(size), depth)
        })
    }

    fn completion_every(
        &self,
        post_list: u32,
        depth: u32,
        (size, transport): (u32, Transport),
    ) -> Result<u32, CommandError> {
        let per_list = post_list > 1;
        Ok(match self.number32("cq-mod", (1, COMPLETION_EVERY_MAX))? {
            Some(every) if per_list && !post_list.is_multiple_of(every) => {
                return Err(CommandError::new(
                    format!("--cq-mod {every}"),
                    format!("the list of {post_list} must be a multiple of it"),
                ));
            }
            Some(every) => every.min(depth),
            None if per_list => post_list,
            None if size > COMPLETION_EVERY_SIZE_MAX && transport != Transport::Ud => 1,
            None => COMPLETION_EVERY.min(depth),
        })
    }

    fn arrival(
        &self,
        (verb, latency): (Verb, bool),
        (size, queue_pairs): (u32, u32),
    ) -> Result<Arrival, CommandError> {
        if latency && matches!(verb, Verb::Write | Verb::Send) {
            return Ok(Arrival::PingPong);
        }
        let Some(limit) = self.option("rate_limit") else {
            return Ok(Arrival::Closed {
                think: Duration::ZERO,
            });
        };
        let wrong = |found: &Found, reason: &str| {
            CommandError::new(format!("{} {}", found.written, found.value), reason)
        };
        let value: f64 = limit.value.parse().unwrap_or(f64::NAN);
        if !(value.is_finite() && value > 0.0) {
            return Err(wrong(limit, "must be a number above 0"));
        }
        let units = self.option("rate_units");
        let gbps = match units.map_or("g", |found| found.value.as_str()) {
            "g" => value,
            "M" => value * 8.0 * 1_048_576.0 / 1e9,
            "p" => value * 8.0 * f64::from(size) / 1e9,
            _ => {
                let found = units.expect("the default unit is known");
                return Err(wrong(
                    found,
                    "must be g (Gb/s), M (MiB/s) or p (messages/s)",
                ));
            }
        };
        let kind = self.option("rate_limit_type");
        let limiters = match kind.map_or("HW", |found| found.value.as_str()) {
            // The hardware limits each queue pair, the software the whole process.
            "HW" => f64::from(queue_pairs),
            "SW" => 1.0,
            _ => {
                let found = kind.expect("the default type is known");
                return Err(wrong(found, "must be HW or SW; PP is for raw Ethernet"));
            }
        };
        let rate = BitRate::from_gbps_f64(gbps * limiters);
        if rate == BitRate::ZERO {
            return Err(wrong(limit, "must be at least 1 b/s"));
        }
        Ok(Arrival::Paced { rate })
    }
}
