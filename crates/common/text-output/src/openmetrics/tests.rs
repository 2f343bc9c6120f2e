//! The text, read back by a parser of the standard's rules.

use super::*;
use expect_test::expect;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn text(name: &str) -> String {
    let mut families = Families::default();
    families
        .family(Kind::Info, "isolane_build", "Version of the program")
        .sample(&[("version", &"1.2")], 1u64);
    let mut sent = families.family(Kind::Counter, "isolane_sent_bytes", "Payload that was sent");
    for number in 1..3u64 {
        sent.sample(&[("session", &number), ("tenant", &name)], number * 1_000);
    }
    families
        .family(Kind::Gauge, "isolane_lease_bytes_per_second", "Leased rate")
        .sample(&[], f64::INFINITY);
    families
        .family(Kind::Gauge, "isolane_served", "1 while \"it\" is served")
        .sample(&[], true);
    families
        .family(Kind::Histogram, "isolane_wait_seconds", "Time of waiting")
        .histogram(
            &[("tenant", &name)],
            [(0.5, 2), (1.0, 0), (f64::INFINITY, 3)],
            7.25,
        );
    families.append("# TYPE isolane_x gauge\n# HELP isolane_x X\nisolane_x NaN\n");
    families.into_text()
}

#[test]
fn unit_and_suffix_follow_from_name_and_kind() {
    expect![[r##"
        # TYPE isolane_build info
        # HELP isolane_build Version of the program
        isolane_build_info{version="1.2"} 1
        # TYPE isolane_sent_bytes counter
        # UNIT isolane_sent_bytes bytes
        # HELP isolane_sent_bytes Payload that was sent
        isolane_sent_bytes_total{session="1",tenant="r0"} 1000
        isolane_sent_bytes_total{session="2",tenant="r0"} 2000
        # TYPE isolane_lease_bytes_per_second gauge
        # UNIT isolane_lease_bytes_per_second bytes_per_second
        # HELP isolane_lease_bytes_per_second Leased rate
        isolane_lease_bytes_per_second +Inf
        # TYPE isolane_served gauge
        # HELP isolane_served 1 while \"it\" is served
        isolane_served 1
        # TYPE isolane_wait_seconds histogram
        # UNIT isolane_wait_seconds seconds
        # HELP isolane_wait_seconds Time of waiting
        isolane_wait_seconds_bucket{tenant="r0",le="0.5"} 2
        isolane_wait_seconds_bucket{tenant="r0",le="1"} 2
        isolane_wait_seconds_bucket{tenant="r0",le="+Inf"} 5
        isolane_wait_seconds_sum{tenant="r0"} 7.25
        isolane_wait_seconds_count{tenant="r0"} 5
        # TYPE isolane_x gauge
        # HELP isolane_x X
        isolane_x NaN
        # EOF
    "##]]
    .assert_eq(&text("r0"));
}

/// Parses the text strictly by the grammar of the specification; returns the samples. Checks that families do not mix,
/// metadata comes once and before samples, units end names, counters end in `_total`, samples are unique, and the end
/// mark is last.
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
            "histogram" if ["_bucket", "_sum", "_count"].contains(&suffix) => suffix,
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
    let samples = read(&text("r0")).unwrap();
    assert_eq!(samples["isolane_served"], 1.0);
    assert!(samples["isolane_x"].is_nan());
    assert_eq!(read(&Families::default().into_text()).unwrap().len(), 0);
}

/// Shows that the reader above can reject text.
#[test]
fn the_reader_refuses_what_is_wrong() {
    let good = text("r0");
    for (from, to) in [
        ("# EOF\n", ""),
        ("_bytes_total{", "_bytes{"),
        (
            "# UNIT isolane_sent_bytes bytes",
            "# UNIT isolane_sent_bytes seconds",
        ),
        ("tenant=\"r0\"", "tenant=r0"),
        ("session=\"2\"", "session=\"1\""),
    ] {
        assert!(good.contains(from), "{from}");
        assert!(read(&good.replace(from, to)).is_err(), "{from} -> {to}");
    }
}

proptest! {
    #[test]
    fn any_label_is_escaped(name in "\\PC{0,20}|[\\\\\"\n{}=, ]{0,12}") {
        prop_assert!(read(&text(&name)).is_ok());
    }
}
