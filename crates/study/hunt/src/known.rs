//! Anomalies whose conditions are known: what a hunt found, or what was published of a device.
//!
//! A file of published anomalies has a profile, a source, and for each anomaly its name, its symptom, perhaps a note, and
//! its conditions in the keys of a restricted space. Those of a paper come with the program; they are reports about real
//! machines and no results of ours. Limits: conditions are a product of ranges, as in a minimal feature set.

use crate::HuntError;
use crate::hunt::{Ended, HuntResult};
use crate::mfs::Checks;
use crate::monitor::Symptom;
use crate::region::Region;
use crate::space::{Feature, Space, restrict};
use isolane_common_toml_input::error::InputError;
use isolane_common_toml_input::keys::{Key, Kind, key, required};
use isolane_common_toml_input::table::{Source, Table};

/// Published anomalies that come with the program: profile and file.
const EMBEDDED: [(&str, &str, &str); 2] = [
    (
        "cx6-200g-roce",
        "anomalies/cx6-200g-roce.toml",
        include_str!("../../../../anomalies/cx6-200g-roce.toml"),
    ),
    (
        "p2100-100g-roce",
        "anomalies/p2100-100g-roce.toml",
        include_str!("../../../../anomalies/p2100-100g-roce.toml"),
    ),
];

const FILE_KEYS: &[Key] = &[
    required("profile", Kind::Text, "the device's profile"),
    required("source", Kind::Text, "where it was published"),
    required("anomaly", Kind::Tables, "the anomalies"),
];
const ANOMALY_KEYS: &[Key] = &[
    required("name", Kind::Text, "its name"),
    required("symptom", Kind::Text, "what is seen"),
    key("note", Kind::Text, "what else is known"),
    required("conditions", Kind::Table, "when it shows"),
];

/// An anomaly with its conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Its name: a number in a hunt or in a paper.
    pub name: String,
    /// What is seen.
    pub symptom: Symptom,
    /// Its conditions.
    pub region: Region,
    /// What else is known.
    pub note: Option<String>,
    /// How the conditions were verified.
    pub checks: Option<Checks>,
    /// A hunt ended before it tested them: they follow from single runs.
    pub untested: bool,
}

/// What is known of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownSet {
    /// Where from, for people.
    pub source: String,
    /// The anomalies.
    pub known: Vec<Known>,
    /// Names of anomalies whose conditions are not known.
    pub unreduced: Vec<String>,
}

impl KnownSet {
    /// What a hunt found.
    pub fn of(found: &HuntResult) -> Self {
        let known = found.anomalies.iter().filter_map(|anomaly| {
            let set = anomaly.set.as_ref()?;
            Some(Known {
                name: anomaly.number.to_string(),
                symptom: anomaly.symptom,
                region: set.region.clone(),
                note: None,
                checks: set.checks.clone(),
                untested: set.checks.is_none(),
            })
        });
        let unreduced = found.anomalies.iter().filter(|one| one.set.is_none());
        let after = found.spent.experiments;
        let source = match found.ended {
            Ended::Budget | Ended::Exhausted => {
                format!("a hunt of {after} experiments on {}", found.target)
            }
            Ended::Interrupted | Ended::Unfinished => format!(
                "an unfinished hunt on {} (what it had found after {after} experiments; --resume goes on)",
                found.target
            ),
        };
        Self {
            source,
            known: known.collect(),
            unreduced: unreduced.map(|one| one.number.to_string()).collect(),
        }
    }

    /// What was published of the device with this profile, within `device`. Fails for a mistake in a file that comes
    /// with the program.
    pub fn published(profile: &str, device: &Space) -> Result<Option<Self>, HuntError> {
        let found = EMBEDDED.iter().find(|(name, _, _)| *name == profile);
        found
            .map(|(_, file, text)| Self::parse(text, file, device))
            .transpose()
    }

    /// The profiles with published anomalies.
    pub fn published_profiles() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|(name, _, _)| *name)
    }

    /// The profile that a file of published anomalies is about. Fails for a mistake in the text, with its line.
    pub fn profile_of(text: &str, file: &str) -> Result<String, HuntError> {
        let source = Source { file, text };
        let tree = source.tree()?;
        let top = Table::open(source, tree.get_ref(), 0, FILE_KEYS, None)?;
        Ok(top.text("profile")?.unwrap_or_default().to_owned())
    }

    /// Reads a file of published anomalies. Fails for a mistake in the text, with its line.
    pub fn parse(text: &str, file: &str, device: &Space) -> Result<Self, HuntError> {
        let source = Source { file, text };
        let tree = source.tree()?;
        let top = Table::open(source, tree.get_ref(), 0, FILE_KEYS, None)?;
        let mut known: Vec<Known> = Vec::new();
        for (index, (start, map)) in top.tables("anomaly")?.into_iter().enumerate() {
            let place = format!("anomaly {}", index + 1);
            let table = Table::open(source, map, start, ANOMALY_KEYS, Some(place))?;
            let one = anomaly(&table, device)?;
            if known.iter().any(|other| other.name == one.name) {
                return Err(table.wrong("name", "is there twice").into());
            }
            known.push(one);
        }
        Ok(Self {
            source: top.text("source")?.unwrap_or_default().to_owned(),
            known,
            unreduced: Vec::new(),
        })
    }
}

fn anomaly(table: &Table<'_>, device: &Space) -> Result<Known, InputError> {
    let conditions = table
        .table("conditions", restrict::KEYS)?
        .ok_or_else(|| table.missing("conditions", "when it shows"))?;
    let mut space = device.clone();
    space.read_all(&conditions)?;
    let narrowed = Feature::ALL
        .into_iter()
        .filter(|&feature| space.allowed(feature) != device.allowed(feature));
    let features = narrowed.map(|feature| (feature, space.allowed(feature).clone()));
    let region = Region {
        features: features.collect(),
    };
    if region.features.is_empty() {
        return Err(table.wrong("conditions", "name at least one condition"));
    }
    let symptom = match table.text("symptom")? {
        Some("pause-frames") => Symptom::PauseFrames,
        Some("low-throughput") => Symptom::LowThroughput,
        _ => return Err(table.wrong("symptom", "must be pause-frames or low-throughput")),
    };
    Ok(Known {
        name: table.text("name")?.unwrap_or_default().to_owned(),
        symptom,
        region,
        note: table.text("note")?.map(str::to_owned),
        checks: None,
        untested: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::tests::profile;

    fn device(name: &str) -> Space {
        Space::of(&profile(name))
    }

    #[test]
    fn every_published_row_is_read_and_names_its_device() {
        let count = |name: &str| {
            let set = KnownSet::published(name, &device(name)).unwrap().unwrap();
            set.known.len()
        };
        // Rows 11 and 12 of the table are two each, as either host's memory may be elsewhere, and so are those about
        // receive requests: the paper's work queue is both ends'.
        assert_eq!([count("cx6-200g-roce"), count("p2100-100g-roce")], [19, 7]);
        for (name, file, text) in EMBEDDED {
            assert_eq!(KnownSet::profile_of(text, file).unwrap(), name);
        }
        let none = KnownSet::published("cx5-100g-roce", &device("cx5-100g-roce"));
        assert_eq!(none.unwrap(), None);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let error = |anomaly: &str| {
            let text = format!("profile = \"p\"\nsource = \"s\"\n[[anomaly]]\n{anomaly}");
            let read = KnownSet::parse(&text, "a.toml", &device("cx6-200g-roce"));
            read.unwrap_err().to_string()
        };
        for (anomaly, part) in [
            (
                "name = \"1\"\nsymptom = \"slow\"\n[anomaly.conditions]\nmtu = 1024",
                "pause-frames or",
            ),
            (
                "name = \"1\"\nsymptom = \"pause-frames\"\n[anomaly.conditions]\n",
                "at least one condition",
            ),
            (
                "name = \"1\"\nsymptom = \"pause-frames\"\n[anomaly.conditions]\nmtu = 1000",
                "this device has",
            ),
            (
                "name = \"1\"\nsymptom = \"pause-frames\"\n[anomaly.conditions]\nmtus = 1024",
                "mtu",
            ),
        ] {
            let said = error(anomaly);
            assert!(said.contains("a.toml") && said.contains(part), "{said}");
        }
    }
}
