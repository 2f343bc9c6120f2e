//! The space as a whole: what is drawn, mutated and converted is valid, and restrictions hold.

use super::convert::{Times, scenario, scenario_text};
use super::*;
use expect_test::{Expect, expect};
use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::check::check_against;
use isolane_rdma_scenario::library::Library;
use proptest::prelude::*;

/// One queue pair, 4 KiB WRITEs.
pub(crate) fn plain() -> Point {
    Point {
        direction: point::ONE_WAY,
        memory_a: 0,
        memory_b: 0,
        regions: 1,
        region_bytes: 65_536,
        service: 1,
        queue_pairs: 8,
        mtu: 4_096,
        post_list: 1,
        depth: 128,
        receive_depth: 512,
        receive_batch: 1,
        requests: vec![vec![4_096]],
        control: 0,
        receives: 0,
        second: None,
    }
}

/// One kind of traffic, or two.
fn space_of(seed: u64) -> Space {
    match seed % 2 {
        0 => space(),
        _ => space().with_two_kinds(),
    }
}

pub(crate) fn profile(name: &str) -> Profile {
    let library = Library::embedded();
    library.profile(name).expect("it is embedded").clone()
}

fn space() -> Space {
    Space::of(&profile("cx6-200g-roce"))
}

const TIMES: Times = Times {
    warmup: Duration::from_us(100),
    duration: Duration::from_us(200),
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_drawn_mutated_and_crossed_is_valid(seed in any::<u64>()) {
        let space = space_of(seed);
        let mut stream = Stream::named(seed, "test");
        let mut point = space.draw(&mut stream).unwrap();
        let other = space.draw(&mut stream).unwrap();
        for _ in 0..20 {
            prop_assert_eq!(space.check(&point), Ok(()));
            let next = space.mutate(&point, &mut stream).unwrap();
            prop_assert_ne!(&next, &point);
            point = next;
        }
        let child = space.cross(&point, &other, &mut stream).unwrap();
        prop_assert_eq!(space.check(&child), Ok(()));
    }

    #[test]
    fn every_point_is_a_valid_scenario_and_its_file_says_the_same(seed in any::<u64>()) {
        let profile = profile("cx6-200g-roce");
        let point = space_of(seed).draw(&mut Stream::named(seed, "test")).unwrap();
        let made = scenario(&point, "p", &profile.name, 3, TIMES);
        prop_assert!(check_against(&made, &profile).is_ok());
        let text = scenario_text(&point, ("p", ""), &profile.name, 3, TIMES);
        let library = Library::embedded();
        let read = isolane_rdma_scenario::parse(&text, "p.toml", &library);
        prop_assert_eq!(read.unwrap(), made, "{}", text);
    }

    #[test]
    fn queue_pairs_are_all_there_at_any_number(pairs in 2u64..20_000, direction in 0u64..3) {
        let point = Point { queue_pairs: pairs, direction, depth: 1, ..plain() };
        let made = scenario(&point, "p", "cx6-200g-roce", 1, TIMES);
        let sum: u64 = made.tenants[0].workloads.iter().map(|workload| {
            let isolane_rdma_scenario::model::Traffic::Data(data) = &workload.traffic else { return 0 };
            u64::from(workload.processes) * u64::from(data.queue_pairs)
        }).sum();
        let directions = if direction == point::BIDIRECTIONAL { 2 } else { 1 };
        prop_assert_eq!(sum, pairs * directions);
    }
}

#[test]
fn with_changes_one_feature_or_nothing() {
    let space = space();
    let deeper = space.with(&plain(), Feature::Depth, 200).unwrap();
    assert_eq!(Feature::Depth.of(&deeper), 200);
    assert_eq!(Feature::Depth.set(&deeper, 128), plain());
    assert_eq!(space.with(&plain(), Feature::Depth, 512), None);
    assert_eq!(space.with(&plain(), Feature::QueuePairs, 20_001), None);
}

#[test]
fn a_restriction_holds_for_all_that_is_drawn_and_mutated() {
    let text = "service = \"rc-read\"\nmtu = [1024]\nqueue_pairs = [3, 40]\nsizes = [\"64B\", \"4KiB\"]\nelements = 2";
    let space = space().restricted(text, "app.toml").unwrap();
    let mut stream = Stream::named(5, "test");
    let mut point = space.draw(&mut stream).unwrap();
    for _ in 0..500 {
        assert_eq!(
            (point.service, point.mtu, Feature::Elements.of(&point)),
            (point::READ, 1_024, 2)
        );
        assert!((3..=40).contains(&point.queue_pairs));
        assert!((64..=4_096).contains(&Feature::Largest.of(&point)));
        point = space.mutate(&point, &mut stream).unwrap();
    }
}

#[test]
fn a_key_of_the_second_kind_allows_two_kinds() {
    let two = space().restricted("second = \"rc-read\"\nsecond_depth = [1, 16]", "app.toml");
    let two = two.unwrap();
    let mut stream = Stream::named(5, "test");
    for _ in 0..200 {
        let point = two.draw(&mut stream).unwrap();
        assert_eq!(Feature::Second.of(&point), point::READ + 1);
        assert!(Feature::SecondDepth.of(&point) <= 16, "{point:?}");
    }
    let attackers = Space::attackers(&profile("cx6-200g-roce"));
    let refused = attackers.restricted("\nsecond_mtu = 1024", "app.toml");
    assert_eq!(
        refused.unwrap_err().to_string(),
        "app.toml:2: second_mtu = 1024: an attacker of a victim has one kind of traffic: drop the key"
    );
    let one = space().restricted("depth = [1, 16]", "app.toml").unwrap();
    assert!(!one.has_two_kinds());
    assert_eq!(one.features().len(), Feature::OF_ONE_KIND);
    assert!(one.check(&plain().beside(&plain())).is_err());
}

fn refuses(text: &str, expected: Expect) {
    let error = space().restricted(text, "app.toml").unwrap_err();
    expected.assert_eq(&error.to_string());
}

#[test]
fn bad_restrictions_say_where_and_what_to_do() {
    refuses(
        "service = \"rc-wirte\"",
        expect![[r#"app.toml:1: service = "rc-wirte": did you mean "rc-write"?"#]],
    );
    refuses(
        "servise = \"rc-write\"",
        expect!["app.toml:1: unknown key servise; did you mean service?"],
    );
    refuses(
        "mtu = 1500",
        expect!["app.toml:1: mtu = 1500: this device has 256B, 512B, 1KiB, 2KiB, 4KiB only"],
    );
    refuses(
        "queue_pairs = []",
        expect![
            "app.toml:1: queue_pairs = []: leaves nothing: name at least one value, or drop the key"
        ],
    );
    refuses(
        "queue_pairs = [64, 16]",
        expect!["app.toml:1: queue_pairs = [64, 16]: the least value is first: swap the two"],
    );
    refuses(
        "\nqueue_pairs = 30000",
        expect!["app.toml:2: queue_pairs = 30000: must be within 1 to 20000"],
    );
    refuses(
        "sizes = 64\nlargest = 128",
        expect!["app.toml:2: largest = 128: sizes sets smallest and largest: drop one of them"],
    );
    refuses(
        "region_bytes = \"64\"",
        expect![[
            r#"app.toml:1: region_bytes = "64": has no unit; must be whole bytes, or text with a unit of B, KiB, MiB, GiB, TiB, KB, MB, GB or TB, like "64KiB""#
        ]],
    );
}

#[test]
fn contradictory_restrictions_leave_an_empty_space() {
    refuses(
        "service = \"ud-send\"\nmtu = 1024\nsizes = \"8KiB\"",
        expect![
            "app.toml: the restricted search space is empty: no workload meets all of it; the last one tried failed because smallest = 256B is not in the space; widen one of the two"
        ],
    );
    refuses(
        "smallest = 4096\nlargest = 64",
        expect![
            "app.toml: the restricted search space is empty: no workload meets all of it; the last one tried failed because smallest = 64B is not in the space; widen one of the two"
        ],
    );
    refuses(
        "post_list = 64\ndepth = 16",
        expect![
            "app.toml: the restricted search space is empty: no workload meets all of it; the last one tried failed because a list of post_list = 64 requests does not fit depth = 16; widen one of the two"
        ],
    );
}

#[test]
fn every_feature_gives_back_what_it_was_set_to() {
    for feature in Feature::ALL {
        let value = match feature.names() {
            Some(names) => names.len() as u64 - 1,
            None => 7,
        };
        let start = match feature.of_first() {
            Some(_) => plain().beside(&plain()),
            None => plain(),
        };
        let set = feature.set(&start, value);
        assert_eq!(feature.of(&set), value, "{}", feature.name());
    }
}

#[test]
fn a_mixed_pattern_moves_at_one_end_and_a_uniform_one_as_a_whole() {
    let mixed = Point {
        requests: vec![vec![128, 65_536, 1_024]],
        ..plain()
    };
    assert_eq!(
        Feature::Smallest.set(&mixed, 64).requests,
        [[64, 65_536, 1_024]]
    );
    assert_eq!(
        Feature::Largest.set(&mixed, 4_096).requests,
        [[128, 4_096, 1_024]]
    );
    let longer = Feature::Elements.set(&mixed, 5);
    assert_eq!(longer.requests, [[128, 65_536, 1_024, 128, 65_536]]);
    let uniform = Feature::Smallest.set(&plain(), 64);
    assert!(uniform.is_uniform() && Feature::Largest.of(&uniform) == 64);
}

#[test]
fn sizes_keep_whole_units() {
    let text = [1, 1_024, 1_500, 3 << 20, 1 << 30].map(point::size_text);
    assert_eq!(text, ["1B", "1KiB", "1500B", "3MiB", "1GiB"]);
}
