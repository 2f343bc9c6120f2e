//! The text form of metrics, read back by a parser of the standard's rules.

use super::*;
use crate::snapshot::DaemonFigures;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A snapshot with two of everything and names from the caller.
pub(crate) fn snapshot(name: &str) -> Snapshot {
    let meter = |remote_read| MeterSnapshot {
        device: name.to_owned(),
        remote_read,
        limit_bytes_per_s: (!remote_read).then_some(125_000),
        passed_bytes: 7,
        waiting_ns: 1_500_000,
        ..MeterSnapshot::default()
    };
    let session = |session| SessionSnapshot {
        session,
        tenant: name.to_owned(),
        program: name.to_owned(),
        class: "auto".to_owned(),
        meters: vec![meter(false), meter(true)],
        ..SessionSnapshot::default()
    };
    Snapshot {
        daemon: DaemonFigures {
            sessions: 2,
            ..DaemonFigures::default()
        },
        devices: vec![DeviceSnapshot {
            name: name.to_owned(),
            policy: "justitia".to_owned(),
            rate_max_bps: u64::MAX,
            figures: BTreeMap::from([
                ("reference_p99_us".to_owned(), 2.5),
                ("x".to_owned(), f64::NAN),
            ]),
            ..DeviceSnapshot::default()
        }],
        tenants: vec![TenantSnapshot {
            name: name.to_owned(),
            weight: 3,
            ..TenantSnapshot::default()
        }],
        limits: vec![LimitSnapshot {
            number: 4,
            bytes_per_s: 250_000,
            sessions: 3,
            unheld: 1,
            tenants: vec![name.to_owned()],
        }],
        sessions: vec![session(1), session(2)],
        ..Snapshot::default()
    }
}

/// Reads the text by the grammar of the specification, strictly; returns the samples. Families do not mix, metadata
/// comes before samples and once, units end names, counters end in `_total`, no sample is there twice, the end mark ends.
fn read(text: &str) -> Result<BTreeMap<String, f64>, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("no end mark")?;
    let mut samples = BTreeMap::new();
    let mut families = BTreeSet::new();
    let (mut family, mut kind) = (String::new(), String::new());
    for line in body.lines() {
        let wrong = |why: &str| Err(format!("{why}: {line:?}"));
        if let Some(rest) = line.strip_prefix("# ") {
            let words: Vec<&str> = rest.splitn(3, ' ').collect();
            let [what, name, value] = words[..] else {
                return wrong("metadata has three parts");
            };
            match what {
                "TYPE" => {
                    if !families.insert(name.to_owned()) {
                        return wrong("a family twice");
                    }
                    (family, kind) = (name.to_owned(), value.to_owned());
                }
                "UNIT" | "HELP" if name != family => return wrong("metadata of another family"),
                "UNIT" if !name.ends_with(&format!("_{value}")) => {
                    return wrong("a name without its unit");
                }
                "UNIT" | "HELP" => {}
                _ => return wrong("unknown metadata"),
            }
            continue;
        }
        let end = line.find(['{', ' ']).ok_or("no value")?;
        let suffix = line[..end]
            .strip_prefix(&family)
            .ok_or(format!("outside its family: {line:?}"))?;
        let wanted = match kind.as_str() {
            "counter" => "_total",
            "info" => "_info",
            "gauge" => "",
            _ => return wrong("unknown type"),
        };
        if suffix != wanted {
            return wrong("wrong suffix");
        }
        let rest = match line[end..].strip_prefix('{') {
            None => &line[end..],
            Some(labels) => {
                let end = labels_end(labels).ok_or(format!("labels do not end: {line:?}"))?;
                &labels[end..]
            }
        };
        let value = rest
            .strip_prefix(' ')
            .ok_or(format!("no space: {line:?}"))?;
        let value: f64 = value
            .replace("+Inf", "inf")
            .parse()
            .map_err(|_| format!("no number: {line:?}"))?;
        let key = line[..line.len() - rest.len()].to_owned();
        if samples.insert(key, value).is_some() {
            return wrong("a sample twice");
        }
    }
    Ok(samples)
}

/// Where the labels end, after the brace, by the specification's escapes.
fn labels_end(text: &str) -> Option<usize> {
    let mut rest = text;
    loop {
        let name = rest.find("=\"")?;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name == 0 || !rest[..name].chars().all(plain) {
            return None;
        }
        rest = &rest[name + 2..];
        let mut characters = rest.char_indices();
        let end = loop {
            match characters.next()? {
                (_, '\\') => match characters.next()?.1 {
                    '\\' | '"' | 'n' => {}
                    _ => return None,
                },
                (at, '"') => break at,
                (_, '\n') => return None,
                _ => {}
            }
        };
        rest = &rest[end + 1..];
        match rest.chars().next()? {
            ',' => rest = &rest[1..],
            '}' => return Some(text.len() - rest.len() + 1),
            _ => return None,
        }
    }
}

#[test]
fn the_text_follows_the_specification() {
    let samples = read(&render(&snapshot("r0"))).unwrap();
    assert_eq!(samples["isolane_sessions"], 2.0);
    assert_eq!(samples["isolane_tenant_weight{tenant=\"r0\"}"], 3.0);
    let waiting = "isolane_meter_waiting_seconds{session=\"1\",device=\"r0\",direction=\"send\"}";
    assert_eq!(samples[waiting], 0.0015);
    assert_eq!(
        samples["isolane_limit_bytes_per_second{limit=\"4\"}"],
        250e3
    );
    assert_eq!(samples["isolane_limit_sessions{limit=\"4\"}"], 3.0);
    assert_eq!(samples["isolane_limit_unheld_sessions{limit=\"4\"}"], 1.0);
    let part = |session, direction| {
        let labels = format!("session=\"{session}\",device=\"r0\",direction=\"{direction}\"");
        samples.get(&format!("isolane_meter_limit_bytes_per_second{{{labels}}}"))
    };
    assert_eq!(part(2, "send"), Some(&125e3));
    assert_eq!(
        part(2, "read"),
        None,
        "a meter without a limit has no sample"
    );
    assert!(samples["isolane_device_policy_figure{device=\"r0\",figure=\"x\"}"].is_nan());
}

#[test]
fn an_empty_daemon_has_a_text_too() {
    assert!(read(&render(&Snapshot::default())).is_ok());
}

/// The reader above must be able to refuse, or it proves nothing.
#[test]
fn the_reader_refuses_what_is_wrong() {
    let good = render(&snapshot("r0"));
    for (from, to) in [
        ("# EOF\n", ""),
        ("_bytes_total{", "_bytes{"),
        (
            "# UNIT isolane_tenant_passed_bytes bytes",
            "# UNIT isolane_tenant_passed_bytes seconds",
        ),
        ("{tenant=\"r0\"}", "{tenant=r0}"),
        ("session=\"2\"", "session=\"1\""),
    ] {
        assert!(good.contains(from), "{from}");
        assert!(read(&good.replace(from, to)).is_err(), "{from} -> {to}");
    }
}

proptest! {
    #[test]
    fn any_name_is_escaped(name in "\\PC{0,20}|[\\\\\"\n{}=, ]{0,12}") {
        prop_assert!(read(&render(&snapshot(&name))).is_ok());
    }
}
