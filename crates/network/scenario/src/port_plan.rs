//! What `isolane net plan` reads: a switch port, its traffic, and the classes with their latency objectives.
//!
//! Units: percentages of the line rate or of the traffic as whole numbers, so that a sum is exact; rates, sizes and times
//! with their units as everywhere.

use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use isolane_common_toml_input::error::{InputError, Problem};
use isolane_common_toml_input::keys::{Key, Kind, key, required};
use isolane_common_toml_input::table::{Source, Table};

/// Classes of one port that a plan handles: four with objectives and the lowest.
pub const CLASSES_MAX: usize = 5;
/// Differentiated services code points: six bits.
const DSCP_MAX: u64 = 63;
/// From a nanosecond, shorter than any packet, to ten seconds.
const TIME: Kind = Kind::duration(1_000, 10_000_000_000_000);

const TOP: &[Key] = &[
    required("port", Kind::Table, "the switch port: [port]"),
    required(
        "class",
        Kind::Tables,
        "the classes, the most important first: [[class]]",
    ),
];

#[rustfmt::skip]
const PORT: &[Key] = &[
    required("rate", Kind::Rate, "line rate, like \"100Gb/s\""),
    required("load_percent", Kind::Count { min: 1, max: 100 }, "average load in percent of the line rate; above 100 no queue is stable"),
    required(
        "burst_percent",
        Kind::Count { min: 101, max: 10_000 },
        "rate while a burst arrives, in percent of the line rate; up to 100 nothing queues",
    ),
    required("period", TIME, "a burst and the pause after it, like \"100us\""),
    key("mtu", Kind::size(64, 65_536), "payload of a packet (4096)"),
    key("idle_latency", TIME, "what an idle network takes besides sending the bytes: propagation, switches, host (4us)"),
];

#[rustfmt::skip]
const CLASS: &[Key] = &[
    required("name", Kind::Text, "name of the class"),
    required("share_percent", Kind::Count { min: 0, max: 100 }, "its part of the wanted traffic"),
    required("dscp", Kind::Count { min: 0, max: DSCP_MAX }, "its code point, 0 to 63"),
    key("slo", TIME, "longest network latency of a call; the lowest class has none"),
    key("percentile", Kind::Text, "part of the calls that must meet it, like \"99.9\" (99.9)"),
    key("call_bytes", Kind::size(1, 1 << 40), "size of a call (32KiB)"),
];

/// The checked file.
#[derive(Clone, Debug, PartialEq)]
pub struct PortPlan {
    /// Line rate.
    pub rate: BitRate,
    /// Average load in percent of it.
    pub load_percent: u64,
    /// Rate of a burst in percent of it.
    pub burst_percent: u64,
    /// Length of a period.
    pub period: Duration,
    /// Payload of a packet.
    pub mtu: Bytes,
    /// What an idle network takes besides sending the bytes.
    pub idle_latency: Duration,
    /// The classes, the most important first; all but the last have an objective.
    pub classes: Vec<PlanClass>,
}

/// One class.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanClass {
    /// Its name.
    pub name: String,
    /// Its part of the wanted traffic.
    pub share_percent: u64,
    /// Its code point.
    pub dscp: u8,
    /// Its objective; the last class has none.
    pub objective: Option<CallObjective>,
}

/// An objective for calls of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct CallObjective {
    /// Longest network latency of a call.
    pub slo: Duration,
    /// Part of the calls that must meet it, in percent.
    pub percentile: f64,
    /// Size of a call.
    pub call_bytes: Bytes,
    /// What of the objective is left for queues.
    pub queueing_max: Duration,
}

/// The plan's input that `text` says; `file` is its name in messages. The error is the first mistake with file, line,
/// key, value and remedy: among others an objective that an idle network already misses, with the arithmetic.
pub fn parse(file: &str, text: &str) -> Result<PortPlan, InputError> {
    let source = Source { file, text };
    let tree = source.tree()?;
    let top = Table::open(source, tree.get_ref(), 0, TOP, None)?;
    let port = top.table("port", PORT)?.expect("the key is required");
    let mut plan = PortPlan {
        rate: port.rate("rate")?.expect("the key is required"),
        load_percent: port.count("load_percent")?.expect("the key is required"),
        burst_percent: port.count("burst_percent")?.expect("the key is required"),
        period: port.duration("period")?.expect("the key is required"),
        mtu: port.size("mtu")?.unwrap_or(Bytes::new(4096)),
        idle_latency: port
            .duration("idle_latency")?
            .unwrap_or(Duration::from_us(4)),
        classes: Vec::new(),
    };
    let tables = top.tables("class")?;
    if !(2..=CLASSES_MAX).contains(&tables.len()) {
        let expected = format!(
            "must list 2 to {CLASSES_MAX} classes, the last one without objective for what is not admitted, not {}",
            tables.len()
        );
        return Err(top.wrong("class", expected));
    }
    let last = tables.len() - 1;
    for (index, (start, map)) in tables.into_iter().enumerate() {
        let table = Table::open(source, map, start, CLASS, Some("class".to_owned()))?;
        let name = table.text("name")?.expect("the key is required");
        let table = table.placed(format!("class {name:?}"));
        let class = class(&table, &plan, name, index == last)?;
        plan.classes.push(class);
    }
    let sum: u64 = plan.classes.iter().map(|class| class.share_percent).sum();
    if sum != 100 {
        let terms: Vec<String> = plan
            .classes
            .iter()
            .map(|class| class.share_percent.to_string())
            .collect();
        let problem = format!(
            "share_percent of the classes is {} = {sum}, not 100; give all of the traffic",
            terms.join(" + ")
        );
        return Err(top.error_at("class", Problem::Promise { problem }));
    }
    Ok(plan)
}

fn class(
    table: &Table<'_>,
    plan: &PortPlan,
    name: &str,
    lowest: bool,
) -> Result<PlanClass, InputError> {
    if name.is_empty() || name.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(table.wrong("name", "must be a name without spaces"));
    }
    if plan.classes.iter().any(|class| class.name == name) {
        return Err(table.wrong("name", "is listed twice; give each class its own name"));
    }
    let dscp = table.count("dscp")?.expect("the key is required") as u8;
    if let Some(other) = plan.classes.iter().find(|class| class.dscp == dscp) {
        let expected = format!(
            "is also that of class {:?}; a switch could not distinguish them",
            other.name
        );
        return Err(table.wrong("dscp", expected));
    }
    Ok(PlanClass {
        name: name.to_owned(),
        share_percent: table.count("share_percent")?.expect("the key is required"),
        dscp,
        objective: objective(table, plan, lowest)?,
    })
}

fn objective(
    table: &Table<'_>,
    plan: &PortPlan,
    lowest: bool,
) -> Result<Option<CallObjective>, InputError> {
    let slo = match (table.duration("slo")?, lowest) {
        (Some(slo), false) => slo,
        (None, true) => return Ok(None),
        (Some(_), true) => {
            return Err(table.wrong(
                "slo",
                "cannot be kept: the lowest class takes what the others may not send; add a class below it",
            ));
        }
        (None, false) => {
            return Err(table.missing("slo", "only the last class may be without objective"));
        }
    };
    let percentile = match table.text("percentile")? {
        None => 99.9,
        Some(text) => match text.parse::<f64>() {
            Ok(value) if value > 0.0 && value < 100.0 => value,
            _ => {
                return Err(table.wrong(
                    "percentile",
                    "must be a number above 0 and below 100, like \"99.9\"",
                ));
            }
        },
    };
    let call_bytes = table.size("call_bytes")?.unwrap_or(Bytes::from_kib(32));
    let wire = plan.rate.time_for(call_bytes);
    let least = wire + plan.idle_latency;
    let queueing_max = slo.saturating_sub(least);
    if queueing_max.is_zero() {
        let expected = format!(
            "must be above {least}: {call_bytes} take {wire} on the wire and the idle network {}",
            plan.idle_latency
        );
        return Err(table.wrong("slo", expected));
    }
    Ok(Some(CallObjective {
        slo,
        percentile,
        call_bytes,
        queueing_max,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = include_str!("../../../../examples/slo.toml");

    fn refused(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from), "{from}");
        let text = GOOD.replacen(from, to, 1);
        parse("slo.toml", &text)
            .expect_err("it is wrong")
            .to_string()
    }

    #[test]
    fn the_example_is_sound() {
        let plan = parse("slo.toml", GOOD).expect("sound");
        assert_eq!(plan.classes.len(), 3);
        let first = plan.classes[0].objective.as_ref().expect("an objective");
        // 32 KiB at 100 Gb/s take 2.62 us, the idle network 4 us.
        assert_eq!(
            first.queueing_max.as_ns_f64().round(),
            15_000.0 - 4_000.0 - 2_621.0
        );
    }

    #[test]
    fn mistakes_are_named_with_line_and_arithmetic() {
        let message = refused("slo = \"15us\"", "slo = \"6us\"");
        assert!(
            message.contains("class \"performance-critical\"") && message.contains("on the wire"),
            "{message}"
        );
        let message = refused("share_percent = 60", "share_percent = 50");
        assert!(message.contains("50 + 30 + 10 = 90"), "{message}");
        let message = refused("load_percent = 80", "load_percent = 120");
        assert!(
            message.contains("slo.toml:") && message.contains("120"),
            "{message}"
        );
        let message = refused("dscp = 18", "dscp = 46");
        assert!(message.contains("could not distinguish them"), "{message}");
        let message = refused("slo = \"25us\"\n", "");
        assert!(message.contains("slo is missing"), "{message}");
        let message = refused("burst_percent", "burst_procent");
        assert!(message.contains("did you mean burst_percent?"), "{message}");
    }
}
