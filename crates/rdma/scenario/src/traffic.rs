//! `[[tenant.traffic]]`: data traffic written in full.

use crate::check::{DeviceLimits, traffic_allowed};
use crate::model::MESSAGE_MAX;
use crate::model::{
    ATOMIC_BYTES, Arrival, DataTraffic, Host, MemoryPlace, Message, Traffic, Transport, Verb,
    Workload,
};
use crate::spec::{ELEMENTS_MAX, PATTERN_MAX};
use isolane_common_quantities::units::{Bytes, Duration};
use isolane_common_toml_input::error::InputError;
use isolane_common_toml_input::error::Problem;
use isolane_common_toml_input::table::Table;
use toml::Spanned;
use toml::de::DeValue;

const DEPTH: u32 = 128;
const RECEIVE_DEPTH: u32 = 512;
const OUTSTANDING_READS: u32 = 16;
/// Smallest default region, bytes: a page.
const REGION_MIN: u64 = 4_096;

/// Keys that one arrival has and the others do not.
#[rustfmt::skip]
const ARRIVAL_KEYS: [(&str, &str); 4] = [("think", "closed"), ("interval", "open"), ("poisson", "open"), ("rate", "paced")];
/// Keys that only SEND has.
const SEND_KEYS: [&str; 3] = ["receive_depth", "receive_batch", "min_rnr_timer"];

/// Reads the `index`-th table of a tenant, for a device of `limits`.
pub(crate) fn read(
    table: &Table<'_>,
    index: usize,
    limits: &DeviceLimits,
) -> Result<Workload, InputError> {
    let traffic = data(table, limits)?;
    traffic_allowed(&traffic, limits).map_err(|fault| {
        // A rule may reject a key whose value is a default: then the rule's own value is shown.
        let blamed = match fault.key {
            "size" if table.has("pattern") => "pattern",
            key => key,
        };
        match table.has(blamed) {
            true => table.wrong(blamed, fault.expected),
            false => table.error_at(
                blamed,
                isolane_common_toml_input::error::Problem::value(
                    blamed,
                    fault.value,
                    fault.expected,
                ),
            ),
        }
    })?;
    let name = match table.text("name")? {
        Some(name) => name.to_owned(),
        None => format!("traffic-{}", index + 1),
    };
    Ok(Workload {
        name,
        processes: table.count32("processes")?.unwrap_or(1),
        from: table.choice("from")?.unwrap_or(Host::A),
        to: table.choice("to")?.unwrap_or(Host::B),
        traffic: Traffic::Data(traffic),
    })
}

fn data(table: &Table<'_>, limits: &DeviceLimits) -> Result<DataTraffic, InputError> {
    let verb: Verb = table
        .choice("verb")?
        .expect("opening checked that it is there");
    if verb != Verb::Send
        && let Some(key) = SEND_KEYS.iter().find(|key| table.has(key))
    {
        return Err(table.wrong(key, "has a meaning for verb = \"send\" only: drop it"));
    }
    let transport = table.choice("transport")?.unwrap_or(Transport::Rc);
    let pattern = pattern(table, verb)?;
    let arrival = arrival(table)?;
    let ping_pong = arrival == Arrival::PingPong;
    let post_list = table.count32("post_list")?.unwrap_or(1);
    let depth_default = if ping_pong { 1 } else { DEPTH.max(post_list) };
    let largest = pattern
        .iter()
        .map(|message| message.bytes().get())
        .max()
        .unwrap_or(0);
    let mtu_default = match transport {
        Transport::Ud => limits.mtu_max,
        _ => limits.mtu_default,
    };
    let min_rnr_timer = table
        .count32("min_rnr_timer")?
        .unwrap_or(crate::plain::RNR_TIMER.into());
    Ok(DataTraffic {
        verb,
        transport,
        pattern,
        queue_pairs: table.count32("queue_pairs")?.unwrap_or(1),
        post_list,
        depth: table.count32("depth")?.unwrap_or(depth_default),
        completion_every: table.count32("completion_every")?.unwrap_or(post_list),
        receive_depth: table.count32("receive_depth")?.unwrap_or(RECEIVE_DEPTH),
        receive_batch: table.count32("receive_batch")?.unwrap_or(1),
        min_rnr_timer: u8::try_from(min_rnr_timer).expect("the key's range fits 8 bits"),
        max_read_atomic: table
            .count32("max_read_atomic")?
            .unwrap_or(OUTSTANDING_READS),
        inline_bytes: table.count32("inline")?.unwrap_or(0),
        mtu: table.count32("mtu")?.unwrap_or(mtu_default),
        memory_regions: table.count32("memory_regions")?.unwrap_or(1),
        region_bytes: table
            .size("region")?
            .unwrap_or(Bytes::new(largest.max(REGION_MIN))),
        arrival,
        weight: table.count32("weight")?.unwrap_or(1),
        bidirectional: table.flag("bidirectional")?.unwrap_or(false),
        iterations: table.count("iterations")?,
        memory: table.choice("memory")?.unwrap_or(MemoryPlace::Local),
        remote_memory: table.choice("remote_memory")?.unwrap_or(MemoryPlace::Local),
    })
}

fn pattern(table: &Table<'_>, verb: Verb) -> Result<Vec<Message>, InputError> {
    let size = table.size("size")?;
    match (size, messages(table, "pattern")?) {
        (Some(_), Some(_)) => Err(table.wrong("pattern", "size is given too: must be one of them")),
        (None, Some(pattern)) => Ok(pattern),
        (Some(size), None) => {
            let size = u32::try_from(size.get()).expect("the key's range fits 32 bits");
            Ok(vec![Message::of(size)])
        }
        (None, None) if matches!(verb, Verb::FetchAdd | Verb::CompareSwap) => {
            Ok(vec![Message::of(ATOMIC_BYTES as u32)])
        }
        (None, None) => Err(table.missing("size", "size of every message, or pattern")),
    }
}

fn arrival(table: &Table<'_>) -> Result<Arrival, InputError> {
    let name = table.text("arrival")?.unwrap_or("closed");
    if table.has("arrival") {
        // Checks the spelling; the value has further keys, which serde's tag would not allow.
        let _: Option<String> = table.choice("arrival")?;
    }
    for (key, owner) in ARRIVAL_KEYS {
        if owner != name && table.has(key) {
            return Err(table.wrong(
                key,
                format!("has a meaning for arrival = {owner:?} only, and arrival is {name:?}"),
            ));
        }
    }
    Ok(match name {
        "ping-pong" => Arrival::PingPong,
        "open" => Arrival::Open {
            interval: table.duration("interval")?.ok_or_else(|| {
                table.missing(
                    "interval",
                    "arrival = \"open\" needs the mean time between lists",
                )
            })?,
            poisson: table.flag("poisson")?.unwrap_or(false),
        },
        "paced" => Arrival::Paced {
            rate: table.rate("rate")?.ok_or_else(|| {
                table.missing("rate", "arrival = \"paced\" needs a rate, like \"10Gb/s\"")
            })?,
        },
        _ => Arrival::Closed {
            think: table.duration("think")?.unwrap_or(Duration::ZERO),
        },
    })
}

/// perftest never makes a queue longer than the run has iterations.
pub(crate) fn shorten_queues(data: &mut DataTraffic) {
    let Some(iterations) = data.iterations.and_then(|n| u32::try_from(n).ok()) else {
        return;
    };
    data.depth = data.depth.min(iterations).max(data.post_list);
    data.completion_every = data.completion_every.min(data.depth);
    data.receive_depth = data.receive_depth.min(iterations).max(data.receive_batch);
}

/// A list of messages, each a size or a list of sizes.
pub(crate) fn messages(table: &Table<'_>, key: &str) -> Result<Option<Vec<Message>>, InputError> {
    let Some(value) = table.raw(key) else {
        return Ok(None);
    };
    let form = "must be a list of messages, each a size or a list of scatter-gather lengths";
    let DeValue::Array(list) = value.get_ref() else {
        return Err(table.wrong(key, form));
    };
    if list.is_empty() || list.len() > PATTERN_MAX {
        return Err(table.wrong(key, format!("must have 1 to {PATTERN_MAX} messages")));
    }
    list.iter()
        .map(|one| message(table, key, one))
        .collect::<Result<_, _>>()
        .map(Some)
}

fn message(
    table: &Table<'_>,
    key: &str,
    value: &Spanned<DeValue<'_>>,
) -> Result<Message, InputError> {
    let range = (1, MESSAGE_MAX.get());
    let length = |value: &Spanned<DeValue<'_>>| -> Result<u32, InputError> {
        let bytes = table.size_of(key, value, range)?.get();
        Ok(u32::try_from(bytes).expect("2 GiB fits 32 bits"))
    };
    let DeValue::Array(list) = value.get_ref() else {
        return Ok(Message::of(length(value)?));
    };
    let wrong = |expected: String| {
        let shown = table.source().shown(value.span());
        table.error(value.span().start, Problem::value(key, shown, expected))
    };
    if list.is_empty() || list.len() > ELEMENTS_MAX {
        return Err(wrong(format!(
            "a message must have 1 to {ELEMENTS_MAX} elements"
        )));
    }
    let elements = list.iter().map(length).collect::<Result<_, _>>()?;
    let message = Message { elements };
    if message.bytes() > MESSAGE_MAX {
        return Err(wrong(format!(
            "the message has {}: must be at most {MESSAGE_MAX}",
            message.bytes()
        )));
    }
    Ok(message)
}
