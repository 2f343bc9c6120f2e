//! Device profile TOML to a checked [`Profile`].
//!
//! Every parameter of [`PARAMETERS`] must be there, within its range, with a source; nothing else may be. A
//! parameter is written `name = { value = 1.5, kind = "published", source = "paper, section" }` in its section.

use crate::profile::{MICROARCHITECTURE, PARAMETERS, Profile, TokenSize};
use isolane_common_toml_input::error::{InputError, Problem, ProfileError};
use isolane_common_toml_input::keys::{Key, Kind};
use isolane_common_toml_input::sourced::Sourced;
use isolane_common_toml_input::sourced::{profile_name, section_of};
use isolane_common_toml_input::table::{Source, Table, number};
use std::collections::BTreeMap;

/// The profiles compiled in: add one with one line.
#[rustfmt::skip]
const EMBEDDED: &[(&str, &str)] = &[
    ("profiles/cx3pro-56g-ib.toml", include_str!("../../../../profiles/cx3pro-56g-ib.toml")),
    ("profiles/cx4-100g-ib.toml", include_str!("../../../../profiles/cx4-100g-ib.toml")),
    ("profiles/cx4-40g-roce.toml", include_str!("../../../../profiles/cx4-40g-roce.toml")),
    ("profiles/cx4lx-10g-roce.toml", include_str!("../../../../profiles/cx4lx-10g-roce.toml")),
    ("profiles/cx5-100g-roce.toml", include_str!("../../../../profiles/cx5-100g-roce.toml")),
    ("profiles/cx6-200g-roce.toml", include_str!("../../../../profiles/cx6-200g-roce.toml")),
    ("profiles/cx6dx-25g-roce.toml", include_str!("../../../../profiles/cx6dx-25g-roce.toml")),
    ("profiles/p2100-100g-roce.toml", include_str!("../../../../profiles/p2100-100g-roce.toml")),
    ("profiles/soft-roce.toml", include_str!("../../../../profiles/soft-roce.toml")),
    ("profiles/t62100-40g-iwarp.toml", include_str!("../../../../profiles/t62100-40g-iwarp.toml")),
];

/// Every profile compiled in, in the order of the list.
pub(crate) fn embedded() -> Vec<Profile> {
    let profiles = EMBEDDED.iter();
    profiles
        .map(|(file, text)| Profile::parse(text, file).expect("tests parse every embedded profile"))
        .collect()
}

const fn key(name: &'static str, kind: Kind, required: bool, about: &'static str) -> Key {
    Key {
        name,
        kind,
        required,
        about,
    }
}

#[rustfmt::skip]
const KEYS: &[Key] = &[
    key("name", Kind::Text, true, "short name, as --profile takes it"),
    key("title", Kind::Text, true, "one line for people"),
    key("papers", Kind::Commands, false, "which papers measured this device"),
    key("link_layer", Kind::Choice(&["roce", "infiniband", "iwarp"]), true, "what the link carries"),
    key("atomics", Kind::Flag, true, "whether the device has RDMA atomics"),
    key("virtual_functions", Kind::Count { min: 0, max: 4_096 }, true, "virtual functions, 0 for none"),
    key("traffic_classes", Kind::Count { min: 1, max: 16 }, true, "hardware traffic classes"),
    key("link", Kind::Table, true, "section"),
    key("pcie", Kind::Table, true, "section"),
    key("wqe", Kind::Table, true, "section"),
    key("scheduler", Kind::Table, true, "section"),
    key("processing", Kind::Table, true, "section"),
    key("cache", Kind::Table, true, "section"),
    key("receive", Kind::Table, true, "section"),
    key("errors", Kind::Table, true, "section"),
    key("control", Kind::Table, true, "section"),
    key("congestion", Kind::Table, true, "section"),
    key("host", Kind::Table, true, "section"),
    key("justitia", Kind::Table, true, "section"),
    key("harmonic", Kind::Table, true, "section"),
    key("microarchitecture", Kind::Table, false, "section"),
    key("token_dictionary", Kind::Tables, false, "smallest token that reaches a rate"),
];

#[rustfmt::skip]
const TOKEN: &[Key] = &[
    key("rate_gbps", Kind::Text, true, "up to this rate, Gb/s"),
    key("token_bytes", Kind::Count { min: 1, max: 1 << 31 }, true, "the token of this size suffices, bytes"),
];

impl Profile {
    /// The profile written in `text`; `file` names it in messages. The error is the first mistake, with its line: a
    /// parameter that is missing, unknown, out of range or without a source.
    pub fn parse(text: &str, file: &str) -> Result<Self, ProfileError> {
        let source = Source { file, text };
        let tree = source.tree()?;
        let top = Table::open(source, tree.get_ref(), 0, KEYS, None)?;
        let present = "opening checked that it is there";
        let section = |name| section(&top, name);
        let papers = top.commands("papers")?;
        Ok(Self {
            name: profile_name(&top)?,
            title: top.text("title")?.expect(present).to_owned(),
            papers: papers
                .into_iter()
                .map(|(_, paper)| paper.to_owned())
                .collect(),
            link_layer: top.choice("link_layer")?.expect(present),
            atomics: top.flag("atomics")?.expect(present),
            virtual_functions: top.count32("virtual_functions")?.expect(present),
            traffic_classes: top.count32("traffic_classes")?.expect(present),
            link: section("link")?,
            pcie: section("pcie")?,
            wqe: section("wqe")?,
            scheduler: section("scheduler")?,
            processing: section("processing")?,
            cache: section("cache")?,
            receive: section("receive")?,
            errors: section("errors")?,
            control: section("control")?,
            congestion: section("congestion")?,
            host: section("host")?,
            justitia: section("justitia")?,
            harmonic: section("harmonic")?,
            microarchitecture: match top.raw("microarchitecture") {
                Some(_) => section_of(&top, "microarchitecture", MICROARCHITECTURE)?,
                None => BTreeMap::new(),
            },
            token_dictionary: token_dictionary(&top)?,
        })
        .and_then(|profile| consistent(&top, profile))
    }
}

fn section(top: &Table<'_>, name: &'static str) -> Result<BTreeMap<String, Sourced>, InputError> {
    section_of(top, name, PARAMETERS)
}

fn token_dictionary(top: &Table<'_>) -> Result<Vec<TokenSize>, InputError> {
    let mut entries: Vec<TokenSize> = Vec::new();
    for (start, map) in top.tables("token_dictionary")? {
        let table = Table::open(
            top.source(),
            map,
            start,
            TOKEN,
            Some("token_dictionary".to_owned()),
        )?;
        let rate = table
            .raw("rate_gbps")
            .and_then(|value| number(value.get_ref()));
        let last = entries.last().map_or(0.0, |entry| entry.rate_gbps);
        let Some(rate_gbps) = rate.filter(|rate| rate.is_finite() && *rate > last) else {
            return Err(table.wrong(
                "rate_gbps",
                format!("must be a number above the entry before, {last}"),
            ));
        };
        let token_bytes = table
            .count("token_bytes")?
            .expect("opening checked that it is there");
        entries.push(TokenSize {
            rate_gbps,
            token_bytes,
        });
    }
    Ok(entries)
}

/// Parameters that only make sense together.
fn consistent(top: &Table<'_>, profile: Profile) -> Result<Profile, InputError> {
    let rules = [
        ("link", "mtu_default_bytes", "link", "mtu_max_bytes"),
        ("receive", "pause_bytes", "receive", "buffer_bytes"),
        ("receive", "resume_bytes", "receive", "pause_bytes"),
    ];
    for (section, small, large_section, large) in rules {
        let (low, high) = (
            profile.value(section, small),
            profile.value(large_section, large),
        );
        if low > high {
            let problem = Problem::value(
                &format!("{section}.{small}"),
                low.to_string(),
                format!("must be at most {large_section}.{large}, {high}"),
            );
            return Err(top.error_at(section, problem));
        }
    }
    for name in ["mtu_default_bytes", "mtu_max_bytes"] {
        let mtu = profile.value("link", name);
        if !crate::model::MTUS
            .iter()
            .any(|&known| f64::from(known) == mtu)
        {
            let problem = Problem::value(
                &format!("link.{name}"),
                mtu.to_string(),
                "must be 256, 512, 1024, 2048 or 4096",
            );
            return Err(top.error_at("link", problem));
        }
    }
    Ok(profile)
}
