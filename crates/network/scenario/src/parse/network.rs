//! `[fabric]`, `[ports]` and `[[class]]`.

use crate::keys::{CLASS, ECN, FABRIC, PFC, PORTS, SLO};
use crate::model::{
    CLASSES_MAX, CallSlo, Ecn, FabricPolicyKind, FabricTopology, HOSTS_MAX, Pfc, PortScheduler,
    PortSettings, Shape, TrafficClass,
};
use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use isolane_common_toml_input::error::{InputError, Problem};
use isolane_common_toml_input::name::checked_name;
use isolane_common_toml_input::table::Table;

const RATE: BitRate = BitRate::from_gbps(100);
const HOP_DELAY: Duration = Duration::from_ns(200);
const MTU: Bytes = Bytes::new(5_080);
const HEADER: Bytes = Bytes::new(40);
const BUFFER: Bytes = Bytes::from_kib(512);
const PERCENTILE: f64 = 99.9;
/// A pause frame on the wire: the smallest Ethernet frame.
const PAUSE_FRAME: Bytes = Bytes::new(64);
/// A time of pauses in bits (IEEE 802.1Qbb).
const QUANTUM_BITS: u64 = 512;

/// Reads `[fabric]`.
pub(super) fn topology(top: &Table<'_>) -> Result<FabricTopology, InputError> {
    let table = top.table("fabric", FABRIC)?.expect("the key is required");
    let table = table.placed("fabric".to_owned());
    let host_rate = table.rate("rate")?.unwrap_or(RATE);
    let nic_rate = table.rate("nic_rate")?.unwrap_or(host_rate);
    if nic_rate < host_rate {
        let expected =
            format!("a port that is slower than its link of {host_rate}: must be at least that");
        return Err(table.wrong("nic_rate", expected));
    }
    let name = table.text("topology")?.expect("the key is required");
    // Reports a wrong name with the nearest one.
    let own: &[&str] = match name {
        "single-switch" => &["hosts"],
        "leaf-spine" => &["leaves", "spines", "hosts_per_leaf", "uplink_rate"],
        "fat-tree" => &["k"],
        "two-racks" => &["hosts_per_rack", "uplink_rate"],
        _ => {
            let problem =
                Problem::unknown_name("topology", name, crate::keys::SHAPES.iter().copied());
            return Err(table.error_at("topology", problem));
        }
    };
    let shaped = [
        "hosts",
        "leaves",
        "spines",
        "hosts_per_leaf",
        "k",
        "hosts_per_rack",
        "uplink_rate",
    ];
    let misplaced = shaped
        .iter()
        .find(|key| table.has(key) && !own.contains(key));
    if let Some(key) = misplaced {
        let expected = format!(
            "has no meaning for {name}, which has {}: drop it",
            own.join(", ")
        );
        return Err(table.wrong(key, expected));
    }
    Ok(FabricTopology {
        shape: shape(&table, name, host_rate)?,
        host_rate,
        nic_rate,
        hop_delay: table.duration("hop_delay")?.unwrap_or(HOP_DELAY),
    })
}

fn needed(table: &Table<'_>, key: &str, about: &str) -> Result<u32, InputError> {
    table.count32(key)?.ok_or_else(|| table.missing(key, about))
}

fn shape(table: &Table<'_>, name: &str, host_rate: BitRate) -> Result<Shape, InputError> {
    let most = u64::from(HOSTS_MAX);
    let counted = |key: &str, hosts: u64, sum: &str| match hosts {
        0 | 1 => Err(table.wrong(key, format!("{sum} = {hosts} hosts: a call needs two"))),
        hosts if hosts > most => Err(table.wrong(
            key,
            format!("{sum} = {hosts} hosts: must be at most {most}"),
        )),
        _ => Ok(()),
    };
    let uplink_rate = table.rate("uplink_rate")?.unwrap_or(host_rate);
    match name {
        "single-switch" => {
            let hosts = needed(table, "hosts", "how many hosts the switch has, like 33")?;
            counted("hosts", u64::from(hosts), &format!("1 switch x {hosts}"))?;
            Ok(Shape::SingleSwitch { hosts })
        }
        "leaf-spine" => {
            let leaves = needed(table, "leaves", "how many leaf switches, like 9")?;
            let spines = needed(table, "spines", "how many spine switches, like 4")?;
            let hosts_per_leaf = needed(table, "hosts_per_leaf", "hosts of each leaf, like 16")?;
            let sum = format!("{leaves} leaves x {hosts_per_leaf}");
            let key = if leaves < 2 {
                "leaves"
            } else {
                "hosts_per_leaf"
            };
            counted(key, u64::from(leaves) * u64::from(hosts_per_leaf), &sum)?;
            if spines == 0 && leaves > 1 {
                let expected = format!(
                    "leaves the racks apart: no way leads from hosts 0-{} to the other {} leaves; must be at least 1",
                    hosts_per_leaf - 1,
                    leaves - 1
                );
                return Err(table.wrong("spines", expected));
            }
            Ok(Shape::LeafSpine {
                leaves,
                spines,
                hosts_per_leaf,
                uplink_rate,
            })
        }
        "fat-tree" => {
            let k = needed(table, "k", "ports of a switch, like 16")?;
            if k == 0 || k % 2 != 0 {
                let expected = format!(
                    "a switch has as many ports up as down, {k} / 2 = {}: must be even, 2 to 40",
                    f64::from(k) / 2.0
                );
                return Err(table.wrong("k", expected));
            }
            Ok(Shape::FatTree { k })
        }
        _ => {
            let hosts_per_rack = needed(table, "hosts_per_rack", "hosts of each rack, like 16")?;
            counted(
                "hosts_per_rack",
                2 * u64::from(hosts_per_rack),
                &format!("2 racks x {hosts_per_rack}"),
            )?;
            Ok(Shape::TwoRacks {
                hosts_per_rack,
                uplink_rate,
            })
        }
    }
}

/// Reads `[ports]`.
pub(super) fn ports(top: &Table<'_>) -> Result<PortSettings, InputError> {
    let Some(table) = top.table("ports", PORTS)? else {
        return Ok(PortSettings {
            scheduler: PortScheduler::Wfq,
            mtu: MTU,
            header: HEADER,
            buffer: BUFFER,
            shared_buffer: false,
            ecn: None,
            pfc: None,
        });
    };
    let table = table.placed("ports".to_owned());
    let mtu = table.size("mtu")?.unwrap_or(MTU);
    let header = table.size("header")?.unwrap_or(HEADER);
    let buffer = table.size("buffer")?.unwrap_or(BUFFER);
    if buffer < mtu + header {
        let expected = format!(
            "no full packet fits: must be at least {mtu} of payload + {header} of headers = {}",
            mtu + header
        );
        return Err(table.wrong("buffer", expected));
    }
    Ok(PortSettings {
        scheduler: table.choice("scheduler")?.unwrap_or(PortScheduler::Wfq),
        mtu,
        header,
        buffer,
        shared_buffer: table.flag("shared")?.unwrap_or(false),
        ecn: ecn(&table, buffer)?,
        pfc: pfc(&table, buffer, mtu + header)?,
    })
}

fn ecn(ports: &Table<'_>, buffer: Bytes) -> Result<Option<Ecn>, InputError> {
    let Some(table) = ports.table("ecn", ECN)? else {
        return Ok(None);
    };
    let table = table.placed("ports.ecn".to_owned());
    let min = table.size("min")?.expect("the key is required");
    let max = table.size("max")?.expect("the key is required");
    if min > max {
        return Err(table.wrong("min", format!("must be at most max, {max}")));
    }
    if min >= buffer {
        let expected = format!("never marks: the buffer is full at {buffer}; must be below");
        return Err(table.wrong("min", expected));
    }
    Ok(Some(Ecn {
        min,
        max,
        max_probability: table.number("max_probability")?.unwrap_or(1.0),
    }))
}

fn pfc(ports: &Table<'_>, buffer: Bytes, packet: Bytes) -> Result<Option<Pfc>, InputError> {
    let Some(table) = ports.table("pfc", PFC)? else {
        return Ok(None);
    };
    let table = table.placed("ports.pfc".to_owned());
    let xoff = table.size("xoff")?.expect("the key is required");
    let xon = table.size("xon")?.expect("the key is required");
    if xon > xoff {
        return Err(table.wrong("xon", format!("must be at most xoff, {xoff}")));
    }
    if xoff >= buffer {
        let expected = format!("never pauses: the buffer is full at {buffer}; must be below");
        return Err(table.wrong("xoff", expected));
    }
    let quanta = match table.count32("quanta")? {
        // The key's range ends at 65535.
        Some(quanta) => Some(quanta_that_last(&table, quanta as u16, packet)?),
        None => None,
    };
    Ok(Some(Pfc { xoff, xon, quanta }))
}

/// A repeat must come before the pause that it prolongs is over: it may wait for a full packet and for the frames of
/// the other classes, going and coming.
fn quanta_that_last(pfc: &Table<'_>, quanta: u16, packet: Bytes) -> Result<u16, InputError> {
    let frames = PAUSE_FRAME.get() * CLASSES_MAX as u64;
    let wait = packet.get() + frames;
    let least = (2 * wait * 8).div_ceil(QUANTUM_BITS);
    if u64::from(quanta) >= least {
        return Ok(quanta);
    }
    let expected = format!(
        "a pause is over before its repeat is there, which comes half of it later and waits for up to a packet of \
         {packet} and {frames}B of frames: must be at least 2 x {wait} x 8 / {QUANTUM_BITS} = {least}"
    );
    Err(pfc.wrong("quanta", expected))
}

/// Reads `[[class]]`.
pub(super) fn classes(
    top: &Table<'_>,
    policy: FabricPolicyKind,
    ports: &PortSettings,
) -> Result<Vec<TrafficClass>, InputError> {
    let tables = top.tables("class")?;
    let count = tables.len();
    let least = if policy.is_admission() { 2 } else { 1 };
    if !(least..=CLASSES_MAX).contains(&count) {
        let why = match (least, count) {
            (2, 1) => ": calls that are not admitted need a lower one",
            _ => "",
        };
        let expected = format!("must be {least} to {CLASSES_MAX} tables, [[class]]{why}");
        let problem = Problem::value("class", format!("{count} tables"), expected);
        return Err(top.error_at("class", problem));
    }
    let mut classes: Vec<TrafficClass> = Vec::with_capacity(count);
    for (index, (start, map)) in tables.into_iter().enumerate() {
        let place = format!("class {}", index + 1);
        let table = Table::open(top.source(), map, start, CLASS, Some(place))?;
        let name = table.text("name")?.expect("the key is required");
        let name = checked_name(&table, name)?;
        let table = table.placed(format!("class {name:?}"));
        if classes.iter().any(|class| class.name == name) {
            return Err(table.wrong("name", "is taken by an earlier class: must be unique"));
        }
        let weight = table.count32("weight")?.unwrap_or(1);
        if weight == 0 {
            let expected = "a class is sure of its weight over the sum of all, and 0 / sum = 0: its calls need never end; \
                            must be 1 to 1000000";
            return Err(table.wrong("weight", expected));
        }
        let slo = slo(&table)?;
        if slo.is_some() && index + 1 == count && count > 1 {
            let expected = "cannot be kept: the last class takes what the others may not send; add a class below it";
            return Err(table.wrong("slo", expected));
        }
        classes.push(TrafficClass {
            name: name.to_owned(),
            weight,
            buffer: class_buffer(&table, ports)?,
            slo,
        });
    }
    Ok(classes)
}

fn class_buffer(class: &Table<'_>, ports: &PortSettings) -> Result<Option<Bytes>, InputError> {
    let Some(buffer) = class.size("buffer")? else {
        return Ok(None);
    };
    let packet = ports.mtu + ports.header;
    if buffer < packet {
        let expected = format!("no full packet fits: must be at least {packet}");
        return Err(class.wrong("buffer", expected));
    }
    if let Some(pfc) = ports.pfc {
        let expected = format!(
            "would drop what ports.pfc promises to hold: leave it out; xoff = {} bounds each class of a port of entry",
            pfc.xoff
        );
        return Err(class.wrong("buffer", expected));
    }
    Ok(Some(buffer))
}

fn slo(class: &Table<'_>) -> Result<Option<CallSlo>, InputError> {
    let Some(table) = class.table("slo", SLO)? else {
        return Ok(None);
    };
    let percentile = table.number("percentile")?.unwrap_or(PERCENTILE);
    if percentile <= 0.0 || percentile >= 100.0 {
        let expected = "must be above 0 and below 100, like 99.9";
        return Err(table.wrong("percentile", expected));
    }
    Ok(Some(CallSlo {
        target: table.duration("target")?.expect("the key is required"),
        per_mtu: table.flag("per_mtu")?.unwrap_or(true),
        percentile,
    }))
}
