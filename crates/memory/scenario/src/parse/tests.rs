//! Valid tiered-memory scenarios, and the errors of invalid ones.

use super::*;
use expect_test::{Expect, expect};

const HEAD: &str = "duration = \"10s\"\n[memory]\nmachine = \"genoa-cxl\"\nlocal = \"20GB\"\n";
const PROBE: &str = "[[app]]\nname = \"probe\"\nkind = \"latency\"\nworking_set = \"4GB\"\n";

fn check(app: &str, expected: Expect) {
    let text = format!("{HEAD}{PROBE}{app}");
    let said = match parse(&text, "x.toml") {
        Ok(scenario) => format!("{:?}", scenario.apps),
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&said);
}

#[test]
fn bandwidth_of_memory_is_in_bytes() {
    let app = |rate: &str| {
        format!(
            "[[app]]\nname = \"a\"\nkind = \"llama\"\nworking_set = \"1GB\"\nslo_bandwidth = \"{rate}\"\n"
        )
    };
    check(
        &app("40Gb/s"),
        expect![[
            r#"x.toml:13: app 2: slo_bandwidth = "40Gb/s": is in bits; bandwidth of memory is in bytes, like "40GB/s""#
        ]],
    );
    check(
        &app("40Gbps"),
        expect![[
            r#"x.toml:13: app 2: slo_bandwidth = "40Gbps": is in bits; bandwidth of memory is in bytes, like "40GB/s""#
        ]],
    );
    let scenario = parse(&format!("{HEAD}{}", app("40GB/s")), "x.toml").expect("valid");
    assert_eq!(
        scenario.apps[0].objective,
        Objective::Bandwidth(40_000_000_000)
    );
}

#[test]
fn what_is_not_written_has_a_default() {
    let scenario = parse(&format!("{HEAD}{PROBE}"), "probe.toml").expect("valid");
    assert_eq!(scenario.policy, MemPolicyName::Tpp);
    assert_eq!(scenario.capacity, [Some(Bytes::new(20_000_000_000)), None]);
    let app = &scenario.apps[0];
    assert_eq!((app.cores, app.priority, app.cpu_limit), (1, 1, 1_000));
    assert_eq!(app.objective, Objective::BestEffort);
    assert_eq!((scenario.seed, scenario.sample_interval), (1, None));
}

#[test]
fn what_the_caller_wants_replaces_what_is_written() {
    let overrides = MemOverrides {
        policy: Some("static".to_owned()),
        seed: Some(7),
        duration: Some(Duration::from_secs(5)),
        points: Some(50),
    };
    let scenario = overrides
        .parse(&format!("{HEAD}{PROBE}"), "x.toml")
        .expect("valid");
    assert_eq!((scenario.policy, scenario.seed), (MemPolicyName::Static, 7));
    assert_eq!(scenario.duration, Duration::from_secs(5));
    assert_eq!(scenario.sample_interval, Some(Duration::from_ms(100)));
    let overrides = MemOverrides {
        policy: Some("mercry".to_owned()),
        ..MemOverrides::default()
    };
    let error = overrides
        .parse(&format!("{HEAD}{PROBE}"), "x.toml")
        .expect_err("unknown");
    assert!(error.to_string().contains("mercury"), "{error}");
}

#[test]
fn a_load_changes_in_steps_and_in_straight_lines() {
    let text = format!(
        "{HEAD}{PROBE}activity = 0\n[[app.change]]\nat = \"2s\"\nactivity = 50\n\
         [[app.change]]\nat = \"4s\"\nuntil = \"6s\"\nworking_set = \"8GB\"\n"
    );
    let scenario = parse(&text, "x.toml").expect("valid");
    let app = &scenario.apps[0];
    assert_eq!(app.footprint, Bytes::new(8_000_000_000));
    let at = |ms| {
        let load = app.load(Duration::from_ms(ms));
        (load.activity, load.working_set.get())
    };
    assert_eq!(at(1_999), (0.0, 4_000_000_000));
    assert_eq!(at(2_000), (0.5, 4_000_000_000));
    assert_eq!(at(5_000), (0.5, 6_000_000_000));
    assert_eq!(at(60_000), (0.5, 8_000_000_000));
}

#[test]
fn a_mistake_is_reported_with_key_value_and_remedy() {
    let app = "[[app]]\nkind = \"llama\"\nworking_set = \"40GB\"\n";
    check(
        &format!("{app}name = \"probe\""),
        expect![[
            r#"x.toml:12: app "probe": name = "probe": another application has this name: give it its own"#
        ]],
    );
    check(
        &format!("{app}name = \"b\"\npriority = 2"),
        expect![[
            r#"x.toml:13: app "b": priority = 2: application "probe" has priority 2 already: priorities are unique"#
        ]],
    );
    check(
        &format!("{app}name = \"b\"\nslo_latency = \"160ns\"\nslo_bandwidth = \"40GB/s\""),
        expect![[
            r#"x.toml:14: app 2: slo_bandwidth = "40GB/s": an application has one objective: drop slo_latency or slo_bandwidth"#
        ]],
    );
    check(
        &format!("{app}name = \"b\"\nslo_bandwidth = \"40GBs\""),
        expect![[
            r#"x.toml:13: app 2: slo_bandwidth = "40GBs": unknown unit "GBs", did you mean "Gb/s"? must be text with a number and a unit of b/s, Kb/s, Mb/s, Gb/s or B/s ... GB/s, like "10Gb/s""#
        ]],
    );
    check(
        &format!("{app}name = \"b\"\ncores = 96"),
        expect![
            "x.toml:5: applications that run at 0ps have 97 cores, and machine genoa-cxl has 96: take cores from some, or let them follow one another"
        ],
    );
    check(
        &format!("{app}name = \"b\"\nworking_se = 2"),
        expect!["x.toml:13: app 2: unknown key working_se; did you mean working_set?"],
    );
    check(
        &format!("{app}name = \"b\"\n[[app.change]]\nat = \"4s\"\nuntil = \"3s\""),
        expect![[r#"x.toml:15: app 2: until = "3s": must not be before at, 4s"#]],
    );
    check(
        "[[app]]\nname = \"b\"\nkind = \"reddis\"\nworking_set = \"1GB\"",
        expect![[r#"x.toml:11: app 2: kind = "reddis": unknown; did you mean redis?"#]],
    );
    check(
        "[[app]]\nname = \"b\"\nkind = \"redis\"\nworking_set = \"300GB\"",
        expect![
            "x.toml:3: applications that run at 0ps use 304.0 GB at most, and all tiers of machine genoa-cxl together have 276.0 GB here: make working sets smaller, or let applications follow one another"
        ],
    );
}

#[test]
fn limits_that_a_policy_ignores_are_refused_in_a_file_and_reported_elsewhere() {
    let wrong = |policy: &str, tail: &str| {
        let text = format!("{HEAD}[policy]\nname = {policy:?}\n{PROBE}{tail}\n");
        match parse(&text, "x.toml") {
            Ok(_) => "runs".to_owned(),
            Err(error) => error.to_string(),
        }
    };
    expect![[
        r#"x.toml:5: local_limit of application "probe" has no effect under tpp, which sets no limits; drop it, or choose static, mercury, weighted or fcfs"#
    ]]
    .assert_eq(&wrong("tpp", "local_limit = \"1GB\""));
    expect![[
        r#"x.toml:5: cpu_limit of application "probe" has no effect under mercury; drop it, or choose static"#
    ]]
    .assert_eq(&wrong("mercury", "cpu_limit = 50"));
    expect![[
        r#"x.toml:5: policy static: no application has a local_limit or cpu_limit, so that nothing differs from tpp; give at least one a limit"#
    ]]
    .assert_eq(&wrong("static", ""));
    for (policy, tail) in [
        ("mercury", "local_limit = \"1GB\""),
        ("weighted", "weight = 2"),
        ("static", "cpu_limit = 50"),
    ] {
        assert_eq!(wrong(policy, tail), "runs");
    }
    // The same file under another policy: a comparison, with a remark.
    let text = format!("{HEAD}[policy]\nname = \"static\"\n{PROBE}local_limit = \"1GB\"\n");
    let overrides = MemOverrides {
        policy: Some("none".to_owned()),
        ..MemOverrides::default()
    };
    let scenario = overrides.parse(&text, "x.toml").expect("may be compared");
    assert_eq!(scenario.idle_limits().len(), 1);
}

#[test]
fn a_limit_above_the_near_tier_is_refused() {
    let head = format!("{HEAD}[policy]\nname = \"static\"\n");
    let said = |limit: &str| parse(&format!("{head}{PROBE}local_limit = {limit:?}\n"), "x.toml");
    expect![[
        r#"x.toml:11: app "probe": local_limit = "21GB": the near tier has 20.0 GB here: write at most that, or drop the key for no limit"#
    ]]
    .assert_eq(&said("21GB").expect_err("too much").to_string());
    assert!(said("20GB").is_ok());
}

#[test]
fn a_latency_without_a_unit_is_offered_nanoseconds() {
    check(
        "[[app]]\nname = \"b\"\nkind = \"redis\"\nworking_set = \"1GB\"\nslo_latency = 160",
        expect![[r#"x.toml:13: app 2: slo_latency = 160: has no unit; write "160ns" or "160us""#]],
    );
}

#[test]
fn a_machine_is_named_and_has_the_tiers_that_are_resized() {
    let wrong = |from: &str, to: &str| {
        let text = format!("{HEAD}{PROBE}").replace(from, to);
        parse(&text, "x.toml").expect_err("a mistake").to_string()
    };
    assert!(wrong("genoa-cxl", "genoa").contains("genoa-cxl"));
    let message = wrong("local = \"20GB\"", "farther = \"20GB\"");
    assert!(message.contains("no such tier"), "{message}");
    expect![[
        r#"x.toml:4: local = "769GB": machine genoa-cxl has 768.0 GB in that tier: write at most that, or drop the key to use all of it"#
    ]]
    .assert_eq(&wrong("\"20GB\"", "\"769GB\""));
    let message = wrong("local = \"20GB\"", "far = \"257GB\"");
    assert!(message.contains("has 256.0 GB in that tier"), "{message}");
    let all = HEAD.replace("20GB", "768GB") + PROBE;
    assert!(parse(&all, "x.toml").is_ok());
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(tail in ".{0,200}") {
        let _ = parse(&format!("{HEAD}{PROBE}{tail}"), "x.toml");
        let _ = parse(&tail, "x.toml");
    }
}
