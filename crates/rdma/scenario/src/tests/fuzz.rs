//! No text makes a parser panic, and what is shipped is valid.

use super::{NIC, library, read, tenant};
use crate::catalogue::Catalogue;
use crate::check::{DeviceLimits, check_against};
use crate::library::Library;
use crate::profile::Profile;
use crate::{Overrides, parse, parse_with};
use proptest::prelude::*;

/// Every scenario shipped in `scenarios/`, for tests.
const SHIPPED: &[(&str, &str)] = &[
    (
        "latency-vs-bulk.toml",
        include_str!("../../../../../scenarios/justitia/latency-vs-bulk.toml"),
    ),
    (
        "throughput-vs-bulk.toml",
        include_str!("../../../../../scenarios/justitia/throughput-vs-bulk.toml"),
    ),
    (
        "bulk-sizes.toml",
        include_str!("../../../../../scenarios/justitia/bulk-sizes.toml"),
    ),
    (
        "many-bulk.toml",
        include_str!("../../../../../scenarios/justitia/many-bulk.toml"),
    ),
    (
        "read-vs-write.toml",
        include_str!("../../../../../scenarios/justitia/read-vs-write.toml"),
    ),
    (
        "cx5-mixed.toml",
        include_str!("../../../../../scenarios/examples/cx5-mixed.toml"),
    ),
    (
        "perftest.toml",
        include_str!("../../../../../scenarios/examples/perftest.toml"),
    ),
    (
        "open-loop.toml",
        include_str!("../../../../../scenarios/examples/open-loop.toml"),
    ),
];

#[test]
fn shipped_scenarios_are_valid() {
    let library = library();
    let overrides = Overrides {
        profile: Some("test-nic".into()),
        ..Overrides::default()
    };
    for (file, text) in SHIPPED {
        if let Err(error) = parse_with(text, file, &library, &overrides) {
            panic!("{error}");
        }
    }
}

#[test]
fn shipped_scenarios_are_valid_on_the_device_they_name() {
    let library = Library::embedded();
    for (file, text) in SHIPPED {
        if let Err(error) = parse(text, file, &library) {
            panic!("{error}");
        }
    }
}

#[test]
fn the_whole_catalogue_runs_on_the_audits_device() {
    let library = Library::embedded();
    let profile = library
        .profile("cx5-100g-roce")
        .expect("the audit's profile is embedded");
    let limits = DeviceLimits::of(profile);
    for entry in &library.catalogue.entries {
        if let Err(error) = entry.workloads(&limits) {
            panic!("{}: {error}", entry.path());
        }
    }
}

/// Replaces a slice of a text, at character borders.
fn mutated(text: &str, at: usize, length: usize, with: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let start = at % (characters.len() + 1);
    let end = (start + length).min(characters.len());
    let head = characters[..start].iter();
    head.chain(with.chars().collect::<Vec<_>>().iter())
        .chain(&characters[end..])
        .collect()
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,200}") {
        let _ = read(&text);
        let _ = read(&tenant(&text));
        let _ = Profile::parse(&text, "x");
        let _ = Catalogue::parse(&text, "x");
    }

    #[test]
    fn no_mutated_scenario_panics(
        which in 0..SHIPPED.len(),
        at in 0usize..4_000,
        length in 0usize..12,
        with in "[a-z0-9\"\\[\\]{}=.,\n -]{0,8}|[0-9]{1,40}|\\PC{0,3}",
    ) {
        let text = SHIPPED[which].1.replace("cx3pro-56g-ib", "test-nic").replace("cx5-100g-roce", "test-nic");
        if let Ok(scenario) = read(&mutated(&text, at, length, &with)) {
            let profile = Profile::parse(NIC, "nic").expect("valid");
            prop_assert!(check_against(&scenario, &profile).is_ok());
        }
    }

    #[test]
    fn no_mutated_profile_panics(at in 0usize..8_000, length in 0usize..12, with in "[a-z0-9\"={}.,\n -]{0,8}") {
        let _ = Profile::parse(&mutated(NIC, at, length, &with), "nic");
    }
}
