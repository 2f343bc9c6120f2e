//! What an application has to do with the anomalies that a hunt found: which it can reach, and what gets it out.
//!
//! Problem: a developer knows what an application may request, but not which requests cause an anomaly on a device.
//! Method: the application is a restricted space; an anomaly is reachable where a workload can be drawn from the
//! intersection of both. Breaking one condition of an anomaly ends it, so every condition is a way out: the values
//! outside of it, first those that the application can request already, else those that the device has. For each way
//! the anomalies that would still be reachable are found by the same intersection, so that a way into another anomaly
//! is not advised. Ways that open no other anomaly come first, of those the ones within what the application can do,
//! then by what they cost a developer ([`Effort`]). Limits: what no hunt found is unknown; a region whose random
//! members seldom show the anomaly is said with its share. Drawing is random, so a sliver of an intersection may be
//! missed. Source: collie 3.5.2, 3.12.

use crate::compare;
use crate::known::{Known, KnownSet};
use crate::region::{Region, condition};
use crate::space::{Allowed, Feature, Point, Space};
use isolane_common_quantities::rng::Stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Seed of the draws.
const SEED: u64 = 1;
/// Ways out that are reported for each anomaly.
const WAYS_MAX: usize = 4;

/// The effort of a change, the least first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Effort {
    /// A setting of the link or of the connection.
    Setting,
    /// A constant of the program.
    Constant,
    /// How messages are put together.
    Messages,
    /// How many connections and regions there are.
    Resources,
    /// The place of memory.
    Placement,
    /// Transport or verb.
    Transport,
    /// Which hosts send to which.
    Topology,
}

impl Effort {
    /// Of changing a feature.
    pub const fn of(feature: Feature) -> Self {
        match feature {
            Feature::Mtu => Self::Setting,
            Feature::PostList
            | Feature::Depth
            | Feature::ReceiveDepth
            | Feature::ReceiveBatch
            | Feature::Receives => Self::Constant,
            Feature::Requests | Feature::Elements | Feature::Smallest | Feature::Largest => {
                Self::Messages
            }
            Feature::Regions | Feature::RegionBytes | Feature::QueuePairs => Self::Resources,
            Feature::MemoryA | Feature::MemoryB => Self::Placement,
            Feature::Service | Feature::Control | Feature::Second => Self::Transport,
            Feature::Direction => Self::Topology,
            // Of a second kind as of the first.
            _ => match feature.of_first() {
                Some(first) => Self::of(first),
                None => Self::Transport,
            },
        }
    }

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Setting => "a setting",
            Self::Constant => "a constant of the program",
            Self::Messages => "the layout of messages",
            Self::Resources => "the number of connections or regions",
            Self::Placement => "place of memory",
            Self::Transport => "transport or verb",
            Self::Topology => "which hosts send",
        }
    }
}

/// One change that ends an anomaly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Way {
    /// What changes.
    pub feature: Feature,
    /// What it costs.
    pub effort: Effort,
    /// Whether the application can already request it: then it only has to keep to it.
    pub within: bool,
    /// The condition to keep: `queue_pairs <= 32`.
    pub keep: String,
    /// Anomalies that are reachable now and are not afterwards.
    pub ends: Vec<String>,
    /// Anomalies that are not reachable now and are afterwards.
    pub opens: Vec<String>,
}

/// An anomaly that the application can reach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reached {
    /// Its name: a number in a hunt or in a paper.
    pub name: String,
    /// What is seen.
    pub symptom: String,
    /// Its conditions.
    pub conditions: String,
    /// A workload of the application that has them all.
    pub example: String,
    /// Whether every request of the application meets them.
    pub always: bool,
    /// What else is known of it.
    pub note: Option<String>,
    /// Of so many random workloads with all conditions.
    pub tried: Option<u32>,
    /// So many showed it.
    pub shown: Option<u32>,
    /// The hunt ended before it tested the conditions: they follow from single runs.
    #[serde(default)]
    pub untested: bool,
    /// Single changes that end it, the cheapest first.
    pub ways: Vec<Way>,
}

/// The advice for one application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Advice {
    /// Form of the advice.
    pub version: u32,
    /// Where the anomalies are known from.
    pub source: String,
    /// Anomalies with known conditions; rows that differ in a letter are one.
    pub known: u32,
    /// Anomalies that were found and not reduced, so that nothing can be said of them.
    pub unreduced: Vec<String>,
    /// What can be reached.
    pub reached: Vec<Reached>,
}

/// Compares `application`, a part of `device`, with what is known of the device.
pub fn advise(application: &Space, device: &Space, set: &KnownSet) -> Advice {
    let reachable = |space: &Space| -> Vec<&str> {
        let met = set.known.iter().filter(|one| meets(one, space).is_some());
        met.map(|one| one.name.as_str()).collect()
    };
    // A change that no workload can make is none.
    let possible = |space: &Space| {
        let drawn = space.draw(&mut Stream::named(SEED, "advise/way"));
        drawn.is_ok()
    };
    let reached = set.known.iter().filter_map(|one| {
        let example = meets(one, application)?;
        let mut ways = ways(one, application, device, &reachable);
        ways.retain(|(_, changed)| possible(changed));
        let mut ways: Vec<Way> = ways.into_iter().map(|(way, _)| way).collect();
        ways.truncate(WAYS_MAX);
        Some(Reached {
            name: one.name.clone(),
            symptom: one.symptom.name().to_owned(),
            conditions: one.region.text(device),
            example: example.text(),
            always: covers(&one.region, application),
            note: one.note.clone(),
            tried: one.checks.as_ref().map(|checks| checks.tried),
            shown: one.checks.as_ref().map(|checks| checks.shown),
            untested: one.untested,
            ways,
        })
    });
    Advice {
        version: crate::state::HUNT_VERSION,
        source: set.source.clone(),
        known: compare::numbers(set).len() as u32,
        unreduced: set.unreduced.clone(),
        reached: reached.collect(),
    }
}

/// The single changes that end an anomaly by what `reachable` says of a space, the cheapest first, each with the changed
/// application.
pub(crate) fn ways<'a>(
    known: &Known,
    application: &Space,
    device: &Space,
    reachable: &impl Fn(&Space) -> Vec<&'a str>,
) -> Vec<(Way, Space)> {
    let now = reachable(application);
    let way = |(&feature, inside): (&Feature, &Allowed)| {
        let (within, rest) = outside(application, device, feature, inside)?;
        let rest = clean(application, feature, rest, &now, reachable);
        let mut changed = application.clone();
        changed.narrow(feature, rest.clone());
        let then = reachable(&changed);
        let ends = without(&now, &then);
        let way = Way {
            feature,
            effort: Effort::of(feature),
            within,
            keep: condition(feature, &rest, device),
            opens: without(&then, &now),
            ends,
        };
        way.ends.contains(&known.name).then_some((way, changed))
    };
    let mut ways: Vec<(Way, Space)> = known.region.features.iter().filter_map(way).collect();
    ways.sort_by_key(|(way, _)| {
        let ends = usize::MAX - way.ends.len();
        (way.opens.len(), !way.within, way.effort, ends, way.feature)
    });
    ways
}

/// Of the named choices in `rest` those that open no other anomaly; all of them where each one does.
fn clean<'a>(
    application: &Space,
    feature: Feature,
    rest: Allowed,
    now: &[&str],
    reachable: &impl Fn(&Space) -> Vec<&'a str>,
) -> Allowed {
    let Allowed::Set(values) = &rest else {
        return rest;
    };
    let opens_nothing = |value: &u64| {
        let mut changed = application.clone();
        changed.narrow(feature, Allowed::Set(vec![*value]));
        without(&reachable(&changed), now).is_empty()
    };
    let clean: Vec<u64> = values.iter().copied().filter(opens_nothing).collect();
    match clean.is_empty() {
        true => rest,
        false => Allowed::Set(clean),
    }
}

/// The names in `one` that are not in `other`.
fn without(one: &[&str], other: &[&str]) -> Vec<String> {
    let gone = one.iter().filter(|name| !other.contains(name));
    gone.map(|&name| name.to_owned()).collect()
}

/// A workload of `space` inside the conditions, if one can be drawn.
fn meets(known: &Known, space: &Space) -> Option<Point> {
    let both = intersection(known, space)?;
    let mut stream = Stream::named(SEED, "advise/meets");
    let point = both.draw(&mut stream).ok()?;
    known.region.has(&point).then_some(point)
}

/// `space` with the values of each feature that the conditions allow; `None` where a feature has none. No workload may
/// have all of them at once.
pub(crate) fn intersection(known: &Known, space: &Space) -> Option<Space> {
    let mut both = space.clone();
    for (&feature, inside) in &known.region.features {
        both.narrow(feature, meet(space.allowed(feature), inside)?);
    }
    Some(both)
}

/// The values that both allow; none where there are none.
fn meet(one: &Allowed, other: &Allowed) -> Option<Allowed> {
    match (one, other) {
        (Allowed::Range(a, b), Allowed::Range(c, d)) => {
            let (least, most) = (*a.max(c), *b.min(d));
            (least <= most).then_some(Allowed::Range(least, most))
        }
        (Allowed::Set(values), other) | (other, Allowed::Set(values)) => {
            let values: Vec<u64> = values.iter().copied().filter(|&v| other.has(v)).collect();
            (!values.is_empty()).then_some(Allowed::Set(values))
        }
    }
}

/// Whether every value of the application meets every condition. A condition on a feature that not every workload has
/// (receive queues) is not always met.
fn covers(region: &Region, application: &Space) -> bool {
    region
        .features
        .iter()
        .all(|(&feature, inside)| match application.allowed(feature) {
            Allowed::Range(least, most) => inside.has(*least) && inside.has(*most),
            Allowed::Set(values) => values.iter().all(|&value| inside.has(value)),
        })
}

/// The values of `feature` outside of `inside`, and whether the application can request them: the side with more room
/// of a range, so that one bound says it.
fn outside(
    application: &Space,
    device: &Space,
    feature: Feature,
    inside: &Allowed,
) -> Option<(bool, Allowed)> {
    let rest = |all: &Allowed| match (all, inside) {
        (Allowed::Range(least, most), Allowed::Range(from, to)) => {
            // Between two points of the grid nothing was measured: the last sound one is a power of two below.
            let below = all.grid().into_iter().filter(|value| value < from).max();
            let above = all.grid().into_iter().filter(|value| value > to).min();
            match (below, above) {
                (Some(high), _) => Some(Allowed::Range(*least, high)),
                (None, Some(low)) => Some(Allowed::Range(low, *most)),
                (None, None) => None,
            }
        }
        (all, inside) => {
            let values: Vec<u64> = all.grid().into_iter().filter(|&v| !inside.has(v)).collect();
            (!values.is_empty()).then_some(Allowed::Set(values))
        }
    };
    match rest(application.allowed(feature)) {
        Some(values) => Some((true, values)),
        None => rest(device.allowed(feature)).map(|values| (false, values)),
    }
}

impl Advice {
    /// In words.
    pub fn text(&self) -> String {
        let known = match self.known {
            1 => "1 known anomaly".to_owned(),
            count => format!("{count} known anomalies"),
        };
        let mut text = match self.reached.len() {
            0 if self.known == 0 => format!(
                "{}: no conditions are known yet, so nothing can be said of the application; that is no promise that it is \
                 safe\n",
                self.source
            ),
            0 => format!("{}: the application reaches none of {known}\n", self.source),
            count => format!(
                "{}: the application reaches {count} of {known}\n",
                self.source
            ),
        };
        for one in &self.reached {
            let how = if one.always { "is always" } else { "can be" };
            text.push_str(&format!(
                "\nanomaly {} ({}), {how} reached\n  conditions  {}\n  example     {}\n",
                one.name, one.symptom, one.conditions, one.example
            ));
            if let Some(note) = &one.note {
                text.push_str(&format!("  known       {note}\n"));
            }
            if let (Some(tried), Some(shown)) = (one.tried, one.shown) {
                text.push_str(&format!(
                    "  verified    {shown} of {tried} random workloads with these conditions show it\n"
                ));
            }
            if one.untested {
                text.push_str("  verified    no: the hunt ended before it tested these conditions (--resume with a larger budget)\n");
            }
            if one.ways.is_empty() {
                text.push_str(
                    "  way out     none by a single change; search with --restrict for more\n",
                );
            }
            for (index, way) in one.ways.iter().enumerate() {
                let word = if index == 0 { "way out" } else { "or" };
                let keep = if way.within { "keep" } else { "change to" };
                text.push_str(&format!(
                    "  {word:<11} {keep} {} ({})",
                    way.keep,
                    way.effort.name()
                ));
                let others: Vec<&str> = way
                    .ends
                    .iter()
                    .filter(|name| **name != one.name)
                    .map(String::as_str)
                    .collect();
                if !others.is_empty() {
                    text.push_str(&format!("; also ends {}", others.join(", ")));
                }
                if !way.opens.is_empty() {
                    text.push_str(&format!("; but opens {}", way.opens.join(", ")));
                }
                text.push('\n');
            }
        }
        if !self.unreduced.is_empty() {
            text.push_str(&format!(
                "\nNothing can be said of {}: found, but the hunt ended before the conditions were known.\n",
                self.unreduced.join(", ")
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests;
