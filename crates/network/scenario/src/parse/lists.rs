//! Values that are lists: hosts, pairs, shares, sizes.

use crate::keys::CALL_MAX;
use crate::model::SizeDistribution;
use crate::sizes::{PUBLISHED, Published};
use isolane_common_quantities::units::Bytes;
use isolane_common_toml_input::error::{InputError, Problem};
use isolane_common_toml_input::table::{Table, number};
use std::collections::BTreeSet;
use toml::Spanned;
use toml::de::DeValue;

type Value<'a> = Spanned<DeValue<'a>>;

/// How far a sum of written shares may be from one: what decimals with nine places lose.
const SUM_ERROR: f64 = 1e-9;
/// Pairs of one group.
const PAIRS_MAX: usize = 1 << 20;
/// Points of a distribution.
const POINTS_MAX: usize = 100_000;
const HOSTS_FORM: &str = "must be \"all\", ranges like \"0-15,20\", or a list of host numbers";
const PAIRS_FORM: &str = "must be a list of pairs of host numbers, like [[0, 1], [2, 1]]";
const SIZES_FORM: &str = "must be a size, the name of a published distribution, points like \
                          [[\"1KiB\", 0.5], [\"64KiB\", 1.0]], or a list with one of these per class";

/// The hosts that `key` names; `None` where it is absent.
pub(super) fn hosts(
    table: &Table<'_>,
    key: &str,
    count: u32,
) -> Result<Option<Vec<u32>>, InputError> {
    let Some(value) = table.raw(key) else {
        return Ok(None);
    };
    let mut hosts = Vec::new();
    match value.get_ref() {
        DeValue::String(text) if text.trim() == "all" => hosts.extend(0..count),
        DeValue::String(text) => {
            for part in text.split(',') {
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                let first = first.trim().parse::<u64>();
                let last = last.trim().parse::<u64>();
                let (Ok(first), Ok(last)) = (first, last) else {
                    return Err(table.wrong(key, HOSTS_FORM));
                };
                if first > last {
                    let expected = format!("counts down: must be {last}-{first}");
                    return Err(table.wrong(key, expected));
                }
                let end = existing(table, key, last, count)?;
                hosts.extend(existing(table, key, first, count)?..=end);
                if hosts.len() > count as usize {
                    return Err(table.wrong(key, "names hosts twice: name each once"));
                }
            }
        }
        DeValue::Array(list) => {
            for host in list {
                hosts.push(host_of(table, key, host, count, HOSTS_FORM)?);
            }
        }
        _ => return Err(table.wrong(key, HOSTS_FORM)),
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = hosts.iter().find(|&&host| !seen.insert(host)) {
        return Err(table.wrong(key, format!("names host {twice} twice: name each once")));
    }
    if hosts.is_empty() {
        return Err(table.wrong(key, HOSTS_FORM));
    }
    Ok(Some(hosts))
}

/// `host` if the network has it.
pub(super) fn existing(
    table: &Table<'_>,
    key: &str,
    host: u64,
    count: u32,
) -> Result<u32, InputError> {
    match u32::try_from(host) {
        Ok(host) if host < count => Ok(host),
        _ => {
            let expected = format!(
                "host {host} does not exist: the network has {count} hosts, 0 to {}",
                count - 1
            );
            Err(table.wrong(key, expected))
        }
    }
}

fn host_of(
    table: &Table<'_>,
    key: &str,
    value: &Value<'_>,
    count: u32,
    form: &str,
) -> Result<u32, InputError> {
    let whole = value
        .get_ref()
        .as_integer()
        .and_then(|integer| u64::from_str_radix(integer.as_str(), integer.radix()).ok());
    match whole {
        Some(host) => existing(table, key, host, count),
        None => Err(table.wrong(key, form)),
    }
}

/// The pairs that `key` names.
pub(super) fn pairs(
    table: &Table<'_>,
    key: &str,
    count: u32,
) -> Result<Vec<(u32, u32)>, InputError> {
    let about = "who calls whom, like [[0, 1], [2, 1]]";
    let value = table.raw(key).ok_or_else(|| table.missing(key, about))?;
    let form = || table.wrong(key, PAIRS_FORM);
    let list = value.get_ref().as_array().ok_or_else(form)?;
    if list.is_empty() || list.len() > PAIRS_MAX {
        return Err(table.wrong(key, format!("must have 1 to {PAIRS_MAX} pairs")));
    }
    let mut pairs = Vec::with_capacity(list.len());
    let mut seen = BTreeSet::new();
    for pair in list {
        let ends = pair.get_ref().as_array().ok_or_else(form)?;
        let [from, to] = &ends[..] else {
            return Err(form());
        };
        let from = host_of(table, key, from, count, PAIRS_FORM)?;
        let to = host_of(table, key, to, count, PAIRS_FORM)?;
        if from == to {
            let expected = format!("host {from} calls itself: a call needs the network");
            return Err(table.wrong(key, expected));
        }
        if !seen.insert((from, to)) {
            let expected = format!("names [{from}, {to}] twice: name each pair once");
            return Err(table.wrong(key, expected));
        }
        pairs.push((from, to));
    }
    Ok(pairs)
}

/// One share per class, summing to one; all of it without the key if there is one class.
pub(super) fn mix(table: &Table<'_>, classes: &[&str]) -> Result<Vec<f64>, InputError> {
    let form = format!(
        "must be one share per class ({}), like {:?}",
        classes.join(", "),
        example_mix(classes.len())
    );
    let Some(value) = table.raw("mix") else {
        return match classes {
            [_] => Ok(vec![1.0]),
            _ => Err(table.missing("mix", &form)),
        };
    };
    let list = value.get_ref().as_array();
    let shares: Option<Vec<f64>> = list.and_then(|list| {
        let numbers = list.iter().map(|value| number(value.get_ref()));
        numbers.collect()
    });
    let Some(shares) = shares.filter(|shares| shares.len() == classes.len()) else {
        return Err(table.wrong("mix", form));
    };
    if let Some(share) = shares.iter().find(|share| !(0.0..=1.0).contains(*share)) {
        let expected = format!("{share} is no share: must be 0 to 1 each");
        return Err(table.wrong("mix", expected));
    }
    let sum: f64 = shares.iter().sum();
    if (sum - 1.0).abs() > SUM_ERROR {
        let terms: Vec<String> = shares.iter().map(f64::to_string).collect();
        let expected = format!(
            "{} = {}, not 1: the classes must share all of the calls",
            terms.join(" + "),
            rounded(sum)
        );
        return Err(table.wrong("mix", expected));
    }
    Ok(shares)
}

/// A tenth for every class but the highest.
fn example_mix(classes: usize) -> Vec<f64> {
    let mut mix = vec![0.1; classes];
    mix[0] = rounded(1.0 - 0.1 * (classes - 1) as f64);
    mix
}

/// `value` without the noise of binary sums.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// One distribution for all classes, or one per class.
pub(super) fn sizes(
    table: &Table<'_>,
    classes: &[&str],
) -> Result<Vec<SizeDistribution>, InputError> {
    let value = table.raw("sizes").expect("the key is required");
    let Some(list) = value.get_ref().as_array() else {
        return Ok(vec![one(table, value)?]);
    };
    if is_points(value) {
        return Ok(vec![one(table, value)?]);
    }
    if list.len() != classes.len() {
        let expected = format!(
            "lists {} distributions for {} classes ({}): must be one for all or one for each",
            list.len(),
            classes.len(),
            classes.join(", ")
        );
        return Err(table.wrong("sizes", expected));
    }
    list.iter().map(|value| one(table, value)).collect()
}

/// Whether `value` is a list of points: its first member is a list that does not hold lists.
fn is_points(value: &Value<'_>) -> bool {
    let first = value.get_ref().as_array().and_then(|list| list.first());
    let inner = first.and_then(|point| point.get_ref().as_array());
    inner.is_some_and(|point| {
        point
            .first()
            .is_none_or(|value| !value.get_ref().is_array())
    })
}

fn one(table: &Table<'_>, value: &Value<'_>) -> Result<SizeDistribution, InputError> {
    match value.get_ref() {
        DeValue::Array(_) if is_points(value) => points(table, value),
        DeValue::Array(_) => Err(table.wrong("sizes", SIZES_FORM)),
        DeValue::String(text) if !text.starts_with(|c: char| c.is_ascii_digit()) => {
            let Some(published) = Published::find(text) else {
                let names = PUBLISHED.iter().map(|one| one.name);
                let problem = Problem::unknown_name("sizes", text, names);
                return Err(table.error(value.span().start, problem));
            };
            Ok(published.distribution())
        }
        DeValue::String(_) | DeValue::Integer(_) => Ok(SizeDistribution::Fixed {
            size: table.size_of("sizes", value, (1, CALL_MAX))?,
        }),
        _ => Err(table.wrong("sizes", SIZES_FORM)),
    }
}

fn points(table: &Table<'_>, value: &Value<'_>) -> Result<SizeDistribution, InputError> {
    let list = value.get_ref().as_array().expect("the caller saw a list");
    if list.len() > POINTS_MAX {
        return Err(table.wrong("sizes", format!("must have at most {POINTS_MAX} points")));
    }
    let mut points: Vec<(Bytes, f64)> = Vec::with_capacity(list.len());
    for point in list {
        let wrong = |expected: String| {
            let shown = table.source().shown(point.span());
            table.error(point.span().start, Problem::value("sizes", shown, expected))
        };
        let form = || wrong("must be a point, [size, part of calls not larger]".to_owned());
        let ends = point.get_ref().as_array().ok_or_else(form)?;
        let [size, share] = &ends[..] else {
            return Err(form());
        };
        let size = table.size_of("sizes", size, (1, CALL_MAX))?;
        let share = number(share.get_ref()).ok_or_else(form)?;
        if !(0.0..=1.0).contains(&share) {
            return Err(wrong(format!("{share} is no share: must be 0 to 1")));
        }
        if let Some(&(before, least)) = points.last()
            && (size < before || share < least || (size, share) == (before, least))
        {
            let expected = format!(
                "does not rise: the point before has {before} and {least}, and neither size nor share may fall"
            );
            return Err(wrong(expected));
        }
        points.push((size, share));
    }
    let last = points.last().map_or(0.0, |point| point.1);
    if (last - 1.0).abs() > SUM_ERROR {
        let expected = format!(
            "the last share is {last}: the shares of all calls must reach 1, and {} of them have no size",
            rounded(1.0 - last)
        );
        return Err(table.wrong("sizes", expected));
    }
    if let Some(point) = points.last_mut() {
        point.1 = 1.0;
    }
    Ok(SizeDistribution::Cumulative {
        name: "inline".to_owned(),
        points,
    })
}
