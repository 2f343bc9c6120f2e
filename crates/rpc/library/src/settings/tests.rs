//! Valid files, and the messages of mistakes.

use super::*;
use expect_test::expect;

const GOOD: &str = r#"
mode = "shadow"
mtu_bytes = 5080
alpha = 0.02

[[class]]
name = "critical"
dscp = 46
target_per_mtu = "15us"
beta = 0.0015

[[class]]
name = "normal"
dscp = 26
target_per_mtu = "25us"
percentile = 99

[[class]]
name = "scavenger"
dscp = 8
"#;

#[test]
fn a_file_says_what_it_means() {
    let settings = parse("rpc.toml", GOOD).unwrap();
    assert_eq!(settings.mode, Mode::Shadow);
    assert_eq!(settings.mtu_bytes, 5080);
    assert_eq!(
        (settings.destinations_max, settings.metrics_destinations),
        (100_000, 100)
    );
    let high = settings.options(0).unwrap();
    assert_eq!(high.percentile, 99.9);
    assert!((high.increment.as_f64() - 0.02).abs() < 1e-9);
    assert!((high.decrement_per_mtu.as_f64() - 0.0015).abs() < 1e-9);
    assert_eq!(settings.options(1).unwrap().percentile, 99.0);
    assert_eq!(settings.options(2), None);
    assert_eq!(settings.class("normal"), Some(1));
    assert_eq!(settings.class("other"), None);
}

#[test]
fn mistakes_are_named_with_line_value_and_remedy() {
    let mut errors = String::new();
    for (from, to) in [
        ("mode", "moed"),
        ("\"shadow\"", "\"shadwo\""),
        ("5080", "1"),
        ("0.02", "0"),
        ("0.02", "\"a\""),
        ("46", "64"),
        ("26", "46"),
        ("\"critical\"", "\"two words\""),
        ("\"normal\"", "\"critical\""),
        ("target_per_mtu = \"25us\"", ""),
        ("\"15us\"", "15"),
        ("percentile = 99", "percentile = 100"),
        ("dscp = 8", "dscp = 8\ntarget_per_mtu = \"1ms\""),
        ("beta = 0.0015", "floor = nan"),
        ("mtu_bytes = 5080", "mtu_bytes = "),
    ] {
        let text = GOOD.replacen(from, to, 1);
        let error = parse("rpc.toml", &text).expect_err(to);
        errors.push_str(&format!("{error}\n"));
    }
    expect![[r#"
        rpc.toml:2: unknown key moed; did you mean mode?
        rpc.toml:2: mode = "shadwo": unknown; did you mean shadow?
        rpc.toml:3: mtu_bytes = 1: must be 64 to 65535
        rpc.toml:4: alpha = 0: must be above 0 and at most 1: otherwise the admit probability could never change again
        rpc.toml:4: alpha = "a": must be a number
        rpc.toml:8: class "critical": dscp = 64: must be 0 to 63
        rpc.toml:14: class "normal": dscp = 46: class "critical" has the same mark, so the network could not distinguish them; give another
        rpc.toml:7: class: name = "two words": must be 1 to 64 letters, digits, '-', '_' or '.': it travels in metadata
        rpc.toml:13: class "critical": name = "critical": is listed twice; rename or remove one
        rpc.toml:12: class "normal": target_per_mtu is missing: every class but the last needs an objective, like target_per_mtu = "15us"
        rpc.toml:9: class "critical": target_per_mtu = 15: has no unit; write "15ns", "15us" or "15ms"
        rpc.toml:16: class "normal": percentile = 100: must be above 0 and below 100, like 99.9
        rpc.toml:21: class "scavenger": target_per_mtu = "1ms": the last class takes all calls that are not admitted and has no target; remove the key, or add a lower class
        rpc.toml:10: class "critical": floor = nan: must be a number
        rpc.toml:3: not valid TOML: string values must be quoted, expected literal string
    "#]].assert_eq(&errors);
}

/// Goal: each algorithm has its own parameters and defaults, and rejects those of the other one.
#[test]
fn the_second_algorithm_has_its_own_parameters() {
    let text = GOOD
        .replace("alpha = 0.02", "algorithm = \"aequitas-2\"")
        .replace("beta = 0.0015", "cut = 0.25");
    let settings = parse("rpc.toml", &text).unwrap();
    assert_eq!(settings.algorithm, Algorithm::Aequitas2);
    let floor = settings.options(0).unwrap().floor.as_f64();
    assert!((floor - 0.01).abs() < 1e-9);
    assert_eq!(
        [0, 1].map(|class| settings.classes[class].cut.as_f64()),
        [0.25, 0.0625]
    );
    let good = parse("rpc.toml", GOOD).unwrap();
    assert_eq!(good.algorithm, Algorithm::Aequitas);
    assert_eq!(good.needs_restart(&settings), ["algorithm"]);
    let mut errors = String::new();
    for text in [
        text.replace("aequitas-2", "aequitas2"),
        text.replace("cut = 0.25", "beta = 0.1"),
        GOOD.replace("alpha = 0.02", "cut = 0.1"),
    ] {
        errors.push_str(&format!("{}\n", parse("rpc.toml", &text).unwrap_err()));
    }
    expect![[r#"
        rpc.toml:4: algorithm = "aequitas2": unknown; did you mean aequitas-2?
        rpc.toml:10: class "critical": beta = 0.1: has no effect with the algorithm aequitas-2, which has cut; remove the key
        rpc.toml:4: cut = 0.1: has no effect with the algorithm aequitas; remove the key, or give algorithm = "aequitas-2"
    "#]]
    .assert_eq(&errors);
}

#[test]
fn one_class_is_too_few_and_nine_are_too_many() {
    let last = GOOD.rfind("[[class]]").unwrap();
    let few = parse("f", &GOOD[last..]).unwrap_err().to_string();
    assert!(few.contains("1 classes: must be 2 to 8"), "{few}");
    let many: String = (0..9)
        .map(|class| {
            format!("[[class]]\nname = \"c{class}\"\ndscp = {class}\ntarget_per_mtu = \"1ms\"\n")
        })
        .collect();
    let many = parse("f", &many).unwrap_err().to_string();
    assert!(many.contains("9 classes: must be 2 to 8"), "{many}");
}

#[test]
fn names_and_marks_need_a_restart_and_objectives_do_not() {
    let old = parse("f", GOOD).unwrap();
    let next = parse("f", &GOOD.replace("15us", "30us").replace("shadow", "off")).unwrap();
    assert!(old.needs_restart(&next).is_empty());
    let next = parse("f", &GOOD.replace("46", "34")).unwrap();
    assert_eq!(old.needs_restart(&next), ["class (number, name, dscp)"]);
}

#[test]
fn the_example_is_sound() {
    let text = include_str!("../../../../../examples/rpc.toml");
    let settings = parse("rpc.toml", text).unwrap();
    let quota = settings.quota.unwrap();
    assert_eq!(quota.server.to_string(), "127.0.0.1:7480");
    assert_eq!(quota.tenant, "search");
}
