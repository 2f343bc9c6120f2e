//! Device profile TOML to a checked [`Profile`].
//!
//! Every parameter of [`PARAMETERS`] must be there, within its range, with a source; nothing else may be. A
//! parameter is written `name = { value = 1.5, kind = "published", source = "paper, section" }` in its section.

use crate::error::{InputError, Problem, ProfileError, nearest};
use crate::profile::{
    MICROARCHITECTURE, PARAMETERS, Parameter, Profile, SourceKind, Sourced, TokenSize,
};
use crate::spec::{Key, Kind};
use crate::table::{Source, Table, number};
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::DeValue;

/// The profiles compiled in: add one with one line.
const EMBEDDED: &[(&str, &str)] = &[
    (
        "profiles/cx3pro-56g-ib.toml",
        include_str!("../../../profiles/cx3pro-56g-ib.toml"),
    ),
    (
        "profiles/cx4-100g-ib.toml",
        include_str!("../../../profiles/cx4-100g-ib.toml"),
    ),
    (
        "profiles/cx4-40g-roce.toml",
        include_str!("../../../profiles/cx4-40g-roce.toml"),
    ),
    (
        "profiles/cx4lx-10g-roce.toml",
        include_str!("../../../profiles/cx4lx-10g-roce.toml"),
    ),
    (
        "profiles/cx5-100g-roce.toml",
        include_str!("../../../profiles/cx5-100g-roce.toml"),
    ),
    (
        "profiles/cx6-200g-roce.toml",
        include_str!("../../../profiles/cx6-200g-roce.toml"),
    ),
    (
        "profiles/cx6dx-25g-roce.toml",
        include_str!("../../../profiles/cx6dx-25g-roce.toml"),
    ),
    (
        "profiles/p2100-100g-roce.toml",
        include_str!("../../../profiles/p2100-100g-roce.toml"),
    ),
    (
        "profiles/t62100-40g-iwarp.toml",
        include_str!("../../../profiles/t62100-40g-iwarp.toml"),
    ),
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

const KEYS: &[Key] = &[
    key(
        "name",
        Kind::Text,
        true,
        "short name, as --profile takes it",
    ),
    key("title", Kind::Text, true, "one line for people"),
    key(
        "papers",
        Kind::Commands,
        true,
        "which papers measured this device",
    ),
    key(
        "link_layer",
        Kind::Choice(&["roce", "infiniband", "iwarp"]),
        true,
        "what the link carries",
    ),
    key(
        "atomics",
        Kind::Flag,
        true,
        "whether the device has RDMA atomics",
    ),
    key(
        "virtual_functions",
        Kind::Count { min: 0, max: 4_096 },
        true,
        "virtual functions, 0 for none",
    ),
    key(
        "traffic_classes",
        Kind::Count { min: 1, max: 16 },
        true,
        "hardware traffic classes",
    ),
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
    key(
        "token_dictionary",
        Kind::Tables,
        false,
        "smallest token that reaches a rate",
    ),
];

const SOURCED: &[Key] = &[
    key(
        "value",
        Kind::Text,
        true,
        "the number, in the unit that ends the name",
    ),
    key(
        "kind",
        Kind::Choice(&["published", "standard", "derived", "calibrated"]),
        true,
        "how it is known: published, standard, derived or calibrated",
    ),
    key(
        "source",
        Kind::Text,
        true,
        "paper and section, standard, or the derivation",
    ),
];

const TOKEN: &[Key] = &[
    key("rate_gbps", Kind::Text, true, "up to this rate, Gb/s"),
    key(
        "token_bytes",
        Kind::Count {
            min: 1,
            max: 1 << 31,
        },
        true,
        "the token of this size suffices, bytes",
    ),
];

impl Profile {
    /// The profile written in `text`; `file` names it in messages.
    ///
    /// # Errors
    /// The first mistake, with its line: a parameter that is missing, unknown, out of range or without a source.
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

pub(crate) fn profile_name(top: &Table<'_>) -> Result<String, InputError> {
    let name = top.text("name")?.expect("opening checked that it is there");
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    match !name.is_empty() && name.chars().all(plain) {
        true => Ok(name.to_owned()),
        false => Err(top.wrong("name", "must be lower-case letters, digits and dashes")),
    }
}

fn section(top: &Table<'_>, name: &'static str) -> Result<BTreeMap<String, Sourced>, InputError> {
    section_of(top, name, PARAMETERS)
}

/// The table `name` of `top`: those of `parameters` that belong there, all of them, nothing else.
pub(crate) fn section_of(
    top: &Table<'_>,
    name: &'static str,
    parameters: &[Parameter],
) -> Result<BTreeMap<String, Sourced>, InputError> {
    let value = top.raw(name).expect("opening checked that it is there");
    let DeValue::Table(map) = value.get_ref() else {
        return Err(top.wrong(name, format!("must be a table, [{name}]")));
    };
    let place = top.clone().placed(name.to_owned());
    let known: Vec<&Parameter> = parameters
        .iter()
        .filter(|parameter| parameter.section == name)
        .collect();
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut section = BTreeMap::new();
    for (key, value) in entries {
        let Some(parameter) = known
            .iter()
            .find(|known| known.name == key.get_ref().as_ref())
        else {
            let names = known.iter().map(|known| known.name);
            let problem = Problem::UnknownKey {
                key: key.get_ref().to_string(),
                nearest: nearest(key.get_ref(), names.clone()).map(str::to_owned),
                known: names.map(str::to_owned).collect(),
            };
            return Err(place.error(key.span().start, problem));
        };
        section.insert(
            parameter.name.to_owned(),
            sourced(&place, parameter, value)?,
        );
    }
    if let Some(absent) = known.iter().find(|known| !section.contains_key(known.name)) {
        let problem = Problem::Missing {
            key: absent.name.to_owned(),
            expected: format!("{}, {} to {}", absent.about, absent.min, absent.max),
        };
        return Err(place.error(value.span().start, problem));
    }
    Ok(section)
}

fn sourced<'a>(
    place: &Table<'a>,
    parameter: &Parameter,
    value: &'a Spanned<DeValue<'a>>,
) -> Result<Sourced, InputError> {
    let DeValue::Table(map) = value.get_ref() else {
        let shown = place.source().shown(value.span());
        let expected = "must be { value = ..., kind = \"published\", source = \"...\" }";
        return Err(place.error(
            value.span().start,
            Problem::value(parameter.name, shown, expected),
        ));
    };
    let name = format!("{}.{}", parameter.section, parameter.name);
    let table = Table::open(place.source(), map, value.span().start, SOURCED, Some(name))?;
    let range = parameter.min..=parameter.max;
    let number = table.raw("value").and_then(|value| number(value.get_ref()));
    let Some(number) = number.filter(|number| range.contains(number)) else {
        let expected = format!(
            "must be a number, {} to {} ({})",
            parameter.min, parameter.max, parameter.about
        );
        return Err(table.wrong("value", expected));
    };
    let source = table
        .text("source")?
        .expect("opening checked that it is there");
    if source.trim().is_empty() {
        return Err(table.wrong("source", "must say where the number comes from"));
    }
    let kind: SourceKind = table
        .choice("kind")?
        .expect("opening checked that it is there");
    Ok(Sourced {
        value: number,
        kind,
        source: source.to_owned(),
    })
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
