//! `[[traffic]]`: who calls whom, how often, with how much.

use super::lists;
use crate::keys::{GROUPS_MAX, PATTERNS, TRAFFIC};
use crate::model::{Arrivals, FabricTopology, Pattern, Traffic, TrafficClass};
use isolane_common_quantities::units::Duration;
use isolane_common_toml_input::error::{InputError, Problem};
use isolane_common_toml_input::name::checked_name;
use isolane_common_toml_input::table::Table;

/// Reads `[[traffic]]`.
pub(super) fn read(
    top: &Table<'_>,
    topology: &FabricTopology,
    classes: &[TrafficClass],
    end: Duration,
) -> Result<Vec<Traffic>, InputError> {
    let tables = top.tables("traffic")?;
    if tables.is_empty() || tables.len() > GROUPS_MAX {
        let shown = format!("{} tables", tables.len());
        let expected = format!("must be 1 to {GROUPS_MAX} tables, [[traffic]]");
        return Err(top.error_at("traffic", Problem::value("traffic", shown, expected)));
    }
    let names: Vec<&str> = classes.iter().map(|class| class.name.as_str()).collect();
    let hosts = topology.shape.hosts();
    let mut groups: Vec<Traffic> = Vec::with_capacity(tables.len());
    for (index, (start, map)) in tables.into_iter().enumerate() {
        let place = Some(format!("traffic {}", index + 1));
        let table = Table::open(top.source(), map, start, TRAFFIC, place)?;
        let name = match table.text("name")? {
            Some(name) => checked_name(&table, name)?.to_owned(),
            None => format!("traffic-{}", index + 1),
        };
        let table = table.placed(format!("traffic {name:?}"));
        if groups.iter().any(|group| group.name == name) {
            return Err(table.wrong("name", "is taken by an earlier group: must be unique"));
        }
        let (start, stop) = times(&table, end)?;
        groups.push(Traffic {
            name,
            pattern: pattern(&table, hosts)?,
            mix: lists::mix(&table, &names)?,
            sizes: lists::sizes(&table, &names)?,
            arrivals: arrivals(&table)?,
            start,
            stop,
        });
    }
    Ok(groups)
}

fn times(table: &Table<'_>, end: Duration) -> Result<(Duration, Option<Duration>), InputError> {
    let start = table.duration("start")?.unwrap_or(Duration::ZERO);
    if start >= end {
        let expected = format!("never starts: must be before the end of the run, {end}");
        return Err(table.wrong("start", expected));
    }
    let stop = table.duration("stop")?;
    if stop.is_some_and(|stop| stop <= start) {
        return Err(table.wrong("stop", format!("must be after start, {start}")));
    }
    Ok((start, stop))
}

fn pattern(table: &Table<'_>, count: u32) -> Result<Pattern, InputError> {
    let name = table.text("pattern")?.expect("the key is required");
    let own: &[&str] = match name {
        "all-to-all" => &["hosts", "senders"],
        "permutation" | "shuffle" => &["hosts"],
        "incast" => &["senders", "receiver"],
        "pairs" => &["pairs"],
        _ => {
            let problem = Problem::unknown_name("pattern", name, PATTERNS.iter().copied());
            return Err(table.error_at("pattern", problem));
        }
    };
    let keys = ["hosts", "senders", "receiver", "pairs"];
    let misplaced = keys.iter().find(|key| table.has(key) && !own.contains(key));
    if let Some(key) = misplaced {
        let expected = format!(
            "has no meaning for {name}, which has {}: drop it",
            own.join(", ")
        );
        return Err(table.wrong(key, expected));
    }
    match name {
        "incast" => incast(table, count),
        "pairs" => Ok(Pattern::Pairs {
            pairs: lists::pairs(table, "pairs", count)?,
        }),
        _ => {
            let hosts = lists::hosts(table, "hosts", count)?;
            let hosts = hosts.unwrap_or_else(|| (0..count).collect());
            if hosts.len() < 2 {
                return Err(table.wrong("hosts", "is one host: a call needs two"));
            }
            Ok(match name {
                "all-to-all" => match lists::hosts(table, "senders", count)? {
                    Some(senders) => some_to_all(&senders, &hosts),
                    None => Pattern::AllToAll { hosts },
                },
                "permutation" => Pattern::Permutation { hosts },
                _ => Pattern::Shuffle { hosts },
            })
        }
    }
}

/// Each sender calls all of `hosts` but itself.
fn some_to_all(senders: &[u32], hosts: &[u32]) -> Pattern {
    let of = |&sender: &u32| {
        let called = hosts.iter().filter(move |&&host| host != sender);
        called.map(move |&host| (sender, host))
    };
    let pairs = senders.iter().flat_map(of).collect();
    Pattern::Pairs { pairs }
}

fn incast(table: &Table<'_>, count: u32) -> Result<Pattern, InputError> {
    let receiver = table.count("receiver")?;
    let receiver = receiver.ok_or_else(|| table.missing("receiver", "the host that all call"))?;
    let receiver = lists::existing(table, "receiver", receiver, count)?;
    let senders = lists::hosts(table, "senders", count)?;
    let senders = senders.unwrap_or_else(|| (0..count).filter(|&host| host != receiver).collect());
    if senders.contains(&receiver) {
        let expected = format!("host {receiver} is the receiver and cannot call itself: drop it");
        return Err(table.wrong("senders", expected));
    }
    Ok(Pattern::Incast { senders, receiver })
}

fn arrivals(table: &Table<'_>) -> Result<Arrivals, InputError> {
    let written = table.choice::<String>("arrivals")?;
    let name = written.as_deref().unwrap_or("poisson");
    let (closed, others): (bool, &[&str]) = match name {
        "closed" => (true, &["load", "burst", "period", "bursts"]),
        _ => (false, &["outstanding", "calls_per_pair"]),
    };
    if let Some(key) = others.iter().find(|key| table.has(key)) {
        let expected = match closed {
            true => "has no meaning for closed: a call begins when one ends; drop it",
            false => "has a meaning for arrivals = \"closed\" only: drop it",
        };
        return Err(table.wrong(key, expected));
    }
    if closed {
        return Ok(Arrivals::Closed {
            outstanding: table.count32("outstanding")?.unwrap_or(1),
            calls_per_pair: table.count("calls_per_pair")?,
        });
    }
    let about = "mean payload of each caller, in parts of its line rate, like 0.8";
    let load = table.number("load")?;
    let load = load.ok_or_else(|| table.missing("load", about))?;
    if load == 0.0 {
        return Err(table.wrong("load", "no call would ever begin: must be above 0"));
    }
    let burst = table.number("burst")?.unwrap_or(load);
    if burst < load {
        let expected = format!(
            "a burst of {burst} and the idle time behind it cannot make a mean of {load}: must be at least {load}"
        );
        return Err(table.wrong("burst", expected));
    }
    let period = table.duration("period")?;
    if burst > load && period.is_none() {
        let about = "one burst and the idle time behind it, like \"100us\"; a burst lasts period x load / burst";
        return Err(table.missing("period", about));
    }
    let bursts = burst > load;
    if !bursts && table.has("bursts") {
        let expected =
            "says when bursts begin, and there are none: give burst and period, or drop it";
        return Err(table.wrong("bursts", expected));
    }
    Ok(Arrivals::Open {
        load,
        burst,
        period: period.filter(|_| bursts).unwrap_or(Duration::ZERO),
        bursts: table.choice("bursts")?.unwrap_or_default(),
        poisson: name == "poisson",
    })
}
