//! The points of a sweep: every combination of the values given, times the seeds.
//!
//! Every point is parsed before the first one runs, so that a wrong value ends the sweep at once.

use super::Arguments;
use super::store::{DOCUMENT_VERSION, Document, PointResult};
use crate::inputs::bad;
use crate::network;
use crate::text::counted;
use anyhow::{Result, bail};
use isolane_network_scenario as fabric;
use isolane_network_scenario::FabricOverrides;
use isolane_network_scenario::model::FabricScenario;
use isolane_study_results::network::FabricResult;
use std::collections::BTreeMap;
use std::str::FromStr;

/// Path of the policy's name.
const POLICY: &str = "policy.name";
/// Points of one sweep.
const POINTS_MAX: u64 = 1_000_000;

/// Which points are this process's: every `of`-th, from number `index` on, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    index: u64,
    of: u64,
}

impl Shard {
    /// All of them.
    pub(super) const WHOLE: Self = Self { index: 1, of: 1 };

    fn has(self, point: u64) -> bool {
        point % self.of == self.index - 1
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text
            .split_once('/')
            .map(|(index, of)| (index.parse(), of.parse()));
        match numbers {
            Some((Ok(index), Ok(of))) if 1 <= index && index <= of => Ok(Self { index, of }),
            _ => Err("must be I/N with I from 1 to N, like 1/4".to_owned()),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) index: u64,
    settings: BTreeMap<String, String>,
    pub(super) scenario: FabricScenario,
}

impl Point {
    /// The point with what came out.
    pub(super) fn with(&self, result: FabricResult) -> PointResult {
        PointResult {
            index: self.index,
            settings: self.settings.clone(),
            seed: self.scenario.seed,
            result,
        }
    }
}

#[derive(Debug)]
pub(super) struct Plan {
    keys: Vec<String>,
    digest: String,
    points: Vec<Point>,
}

impl Plan {
    /// The points of `arguments` for the scenario in `text`, called `file`.
    pub(super) fn of(arguments: &Arguments, text: &str, file: &str) -> Result<Self> {
        let common = network::settings(&arguments.set)?;
        let axes = axes(&arguments.vary)?;
        let combinations = axes
            .iter()
            .try_fold(arguments.seeds, |product, (_, values)| {
                product.checked_mul(values.len() as u64)
            });
        let Some(count) = combinations.filter(|&count| count <= POINTS_MAX) else {
            let terms: Vec<String> = axes
                .iter()
                .map(|(key, values)| format!("{} of {key}", values.len()))
                .collect();
            bail!(bad(format!(
                "{} x {} are more than {POINTS_MAX} points: vary less",
                terms.join(" x "),
                counted(arguments.seeds, "seed")
            )));
        };
        let overrides = FabricOverrides {
            seed: arguments.seed,
            duration: arguments.duration,
            settings: common.clone(),
            ..FabricOverrides::default()
        };
        let first_seed = match arguments.seed {
            Some(seed) => seed,
            None => {
                point(0, None, 1, &axes, &overrides, text, file)?
                    .scenario
                    .seed
            }
        };
        let mut points = Vec::new();
        for index in 0..count {
            points.push(point(
                index,
                Some(first_seed),
                arguments.seeds,
                &axes,
                &overrides,
                text,
                file,
            )?);
        }
        let digest = digest(&points);
        Ok(Self {
            keys: axes.into_iter().map(|(key, _)| key).collect(),
            digest,
            points,
        })
    }

    /// The points of `shard`.
    pub(super) fn points(&self, shard: Shard) -> impl Iterator<Item = Point> {
        self.points
            .iter()
            .filter(move |point| shard.has(point.index))
            .cloned()
    }

    /// The output, still without points.
    pub(super) fn document(&self, shard: Shard) -> Document {
        Document {
            version: DOCUMENT_VERSION,
            scenario: self.points[0].scenario.name.clone(),
            keys: self.keys.clone(),
            digest: self.digest.clone(),
            points_total: self.points.len() as u64,
            shard: (shard != Shard::WHOLE).then(|| format!("{}/{}", shard.index, shard.of)),
            points: Vec::new(),
        }
    }
}

type Axis = (String, Vec<String>);

/// The point numbered `index`; without a first seed it has the scenario's own.
fn point(
    index: u64,
    first_seed: Option<u64>,
    seeds: u64,
    axes: &[Axis],
    common: &FabricOverrides,
    text: &str,
    file: &str,
) -> Result<Point> {
    let mut rest = index / seeds;
    let mut chosen = Vec::new();
    for (key, values) in axes.iter().rev() {
        let count = values.len() as u64;
        chosen.push((key.clone(), values[(rest % count) as usize].clone()));
        rest /= count;
    }
    chosen.reverse();
    let mut overrides = common.clone();
    overrides.seed = first_seed.map(|seed| seed.saturating_add(index % seeds));
    if let Some((_, policies)) = axes.iter().find(|(key, _)| key == POLICY) {
        let own = chosen.iter().find(|(key, _)| key == POLICY);
        let own = own.map_or("", |(_, name)| name.as_str());
        let others = |key: &str| network::only_others(key, own, policies);
        overrides.settings.retain(|(key, _)| !others(key));
    }
    overrides.settings.extend(chosen.iter().cloned());
    Ok(Point {
        index,
        settings: chosen.into_iter().collect(),
        scenario: fabric::parse_with(text, file, &overrides)?,
    })
}

/// `KEY=a,b,c` as a key and its values; commas within brackets, braces and quotes do not part values.
fn axes(written: &[String]) -> Result<Vec<Axis>> {
    let mut axes: Vec<Axis> = Vec::new();
    let has_key = |one: &&String| {
        one.split_once('=')
            .is_some_and(|(key, _)| !key.trim().is_empty())
    };
    if let Some(wrong) = written.iter().find(|one| !has_key(one)) {
        bail!(bad(format!(
            "--vary {wrong}: must be KEY=VALUE,VALUE,..., like traffic.all.load=0.5,0.8"
        )));
    }
    for (key, values) in network::settings(written)? {
        if matches!(key.as_str(), "seed") {
            bail!(bad("--vary seed=...: --seeds N and --seed do that"));
        }
        if axes.iter().any(|(known, _)| *known == key) {
            bail!(bad(format!(
                "--vary names {key} twice: list its values once"
            )));
        }
        let values = parted(&values);
        if values.iter().any(String::is_empty) {
            bail!(bad(format!("--vary {key}=...: a value is empty")));
        }
        if let Some(twice) = values
            .iter()
            .enumerate()
            .find(|(at, one)| values[..*at].contains(one))
        {
            bail!(bad(format!("--vary {key}=...: lists {} twice", twice.1)));
        }
        axes.push((key, values));
    }
    Ok(axes)
}

fn parted(text: &str) -> Vec<String> {
    let mut values = vec![String::new()];
    let (mut depth, mut quoted) = (0u32, false);
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        match (c, depth, quoted) {
            (',', 0, false) => values.push(String::new()),
            _ => values.last_mut().expect("it begins with one").push(c),
        }
    }
    values.iter().map(|value| value.trim().to_owned()).collect()
}

/// A number that two sweeps share only if all their points are equal (FNV-1a over the scenarios' JSON).
fn digest(points: &[Point]) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for point in points {
        let scenario = serde_json::to_string(&point.scenario).expect("a scenario is plain data");
        for byte in scenario.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parted_at_outer_commas_only() {
        assert_eq!(parted("a,b"), ["a", "b"]);
        assert_eq!(
            parted("[0.6, 0.4],[0.5, 0.5]"),
            ["[0.6, 0.4]", "[0.5, 0.5]"]
        );
        assert_eq!(
            parted("\"a,b\", {x = 1, y = 2}"),
            ["\"a,b\"", "{x = 1, y = 2}"]
        );
    }

    #[test]
    fn shards_share_all_points_without_overlap() {
        let shards: Vec<Shard> = ["1/3", "2/3", "3/3"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        for point in 0..20 {
            assert_eq!(shards.iter().filter(|shard| shard.has(point)).count(), 1);
        }
        for wrong in ["0/3", "4/3", "1", "a/b", "1/0"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_axis_is_given_once_and_has_values() {
        let wrong = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            axes(&words).unwrap_err().to_string()
        };
        assert!(wrong(&["load"]).contains("KEY=VALUE"));
        assert!(wrong(&["load=1", "load=2"]).contains("twice"));
        assert!(wrong(&["load=1,,2"]).contains("empty"));
        assert!(wrong(&["load=1,1"]).contains("lists 1 twice"));
        assert!(wrong(&["seed=1,2"]).contains("--seeds"));
    }
}
