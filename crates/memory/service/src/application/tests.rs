//! Files, pods and rules of applications: what is read, and every kind of mistake.

use super::amounts::Amount;
use super::pod::{self, Place};
use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;

const REDIS: &str = r#"
name = "redis"
type = "ls"
slo_latency = "160ns"
priority = 3
"#;

/// A latency-sensitive application, for tests.
pub(crate) fn redis() -> Application {
    parse(REDIS, "app.toml").unwrap().application
}

fn check(text: &str, expected: Expect) {
    let said = match parse(text, "app.toml") {
        Ok(file) => format!("{file:?}"),
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&said);
}

/// The file with one line changed or added.
fn with(line: &str) -> String {
    let key = line.split('=').next().unwrap().trim();
    let kept = REDIS
        .lines()
        .filter(|old| old.split('=').next().unwrap().trim() != key);
    kept.chain([line]).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_full_file_is_read() {
    let text = r#"
name = "llama"
type = "bi"
slo_bandwidth = "30.5GB/s"
priority = 1
weight = 500
memory = "40GiB"
far_tiers = [2, 1]
cgroup = "/kubepods.slice/llama"
max = { local = "25%", tier1 = "8GiB" }

[measured]
local = "10GiB"
cpu = "64%"
bandwidth = "31GB/s"
best = "80GB/s"
"#;
    let file = parse(text, "app.toml").unwrap();
    assert_eq!(
        file.place,
        Place::Cgroup("/kubepods.slice/llama".to_owned())
    );
    let spec = file.application.spec(AppId(7), Bytes::new(1));
    assert_eq!(
        spec.objective,
        mercury::Objective::Bandwidth(30_500_000_000)
    );
    assert_eq!(spec.footprint, Bytes::new(40 << 30));
    assert_eq!(
        spec.caps[..2],
        [Some(Bytes::new(10 << 30)), Some(Bytes::new(8 << 30))]
    );
    assert_eq!(spec.far_tiers, [2, 1]);
    let profile = spec.profile.unwrap();
    assert_eq!((profile.admissible, profile.cpu), (true, 640));
    assert_eq!(profile.best, mercury::Objective::Bandwidth(80_000_000_000));
    let text = serde_json::to_string(&file.application).unwrap();
    assert_eq!(
        serde_json::from_str::<Application>(&text).unwrap(),
        file.application
    );
}

#[test]
fn floors_are_read_and_stay_within_the_memory() {
    let file = parse(
        &with("memory_low = \"2GiB\"\nmemory_min = \"1GiB\""),
        "app.toml",
    )
    .unwrap();
    let floors = Floors {
        low_bytes: 2 << 30,
        min_bytes: 1 << 30,
    };
    assert_eq!(file.application.floors, floors);
    let place = "cgroup = \"/x\"\nmemory_low = \"0GiB\"\nmemory_min = \"1GiB\"";
    check(
        &with(place),
        expect![[
            r#"app.toml:8: memory_min = "1GiB": needs a cgroup that the service makes: write command in place of the cgroup, pod or container, or leave the floor out"#
        ]],
    );
    // Journals and requests of earlier releases have none.
    let text = serde_json::to_string(&redis()).unwrap();
    assert!(!text.contains("floors"), "{text}");
    let large = Application {
        memory_bytes: Some(1 << 30),
        floors,
        ..redis()
    };
    expect!["memory-low = 2 GiB: must be at most the application's memory, 1 GiB"]
        .assert_eq(&large.check().unwrap_err().to_string());
}

#[test]
fn mistakes_name_line_key_value_and_remedy() {
    check(
        "",
        expect![[r#"app.toml:1: name is missing: unique name on this machine"#]],
    );
    check(
        &with("type = \"LS\""),
        expect![[r#"app.toml:5: type = "LS": unknown; did you mean ls?"#]],
    );
    check(
        &with("slo_latency = \"160\""),
        expect![[
            r#"app.toml:5: slo_latency = "160": has no unit; must be a number and a unit of ns or us, like "160ns""#
        ]],
    );
    check(
        &with("slo_latency = \"2ms\""),
        expect![[r#"app.toml:5: slo_latency = 2ms: must be 1ns to 1ms"#]],
    );
    check(
        &with("slo_bandwidth = \"2GB/s\""),
        expect![[
            r#"app.toml:6: slo_bandwidth = "2GB/s": does not go with type = "ls": write slo_latency, or change the type"#
        ]],
    );
    check(
        &with("type = \"bi\""),
        expect![[
            r#"app.toml:3: slo_latency = "160ns": does not go with type = "bi": write slo_bandwidth, or change the type"#
        ]],
    );
    check(
        &with("type = \"best-effort\""),
        expect![[
            r#"app.toml:3: slo_latency = "160ns": type = "best-effort" has no objective: leave it out, or change the type"#
        ]],
    );
    check(
        &with("priority = -1"),
        expect![[r#"app.toml:5: priority = -1: must be 0 to 1000000"#]],
    );
    check(
        &with("weight = 0"),
        expect![[r#"app.toml:6: weight = 0: must be 1 to 10000"#]],
    );
    check(
        &with("memory = \"1KiB\""),
        expect![[r#"app.toml:6: memory = "1KiB": must be 1MiB to 1048576GiB"#]],
    );
    check(
        &with("max = { local = \"25%\" }"),
        expect![[
            r#"app.toml:6: max = 25%: a percentage is one of the application's memory: say how much that is (memory)"#
        ]],
    );
    check(
        &with("max = { near = \"25%\" }"),
        expect![[r#"app.toml:6: unknown key near; must be one of local, tier1, tier2, tier3"#]],
    );
    check(
        &with("max = { local = \"25\" }"),
        expect![[
            r#"app.toml:6: local = "25": has no unit; must be a number and a unit of B, KiB, MiB, GiB, TiB, KB, MB, GB or TB, like "20GiB"; or a percentage, like "25%""#
        ]],
    );
    check(
        &with("far_tiers = [0]"),
        expect![[r#"app.toml:6: far_tiers = [0]: must be a list of numbers, 1 to 3, like [1]"#]],
    );
    check(
        &with("far_tiers = [1, 1]"),
        expect![[r#"app.toml:6: far_tiers = 1: is named twice"#]],
    );
    check(
        &with("name = \"../x\""),
        expect![[
            r#"app.toml:5: name = "../x": must be 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit"#
        ]],
    );
    check(
        &with("cgroup = \"kube\""),
        expect![[
            r#"app.toml:6: cgroup = "kube": must be a path below the cgroup root that begins with /, as the line 0:: of /proc/PID/cgroup shows it"#
        ]],
    );
    check(
        &with("cgroup = \"/a/../b\""),
        expect![[
            r#"app.toml:6: cgroup = "/a/../b": must be a path below the cgroup root that begins with /, as the line 0:: of /proc/PID/cgroup shows it"#
        ]],
    );
    check(
        &with("command = \"redis-server --port 1\""),
        expect![[
            r#"app.toml:6: command = "redis-server --port 1": must be a list of program and arguments, like ["redis-server", "--port", "7777"]"#
        ]],
    );
    check(
        &format!("{}\npod = \"u\"\ncgroup = \"/a\"", REDIS),
        expect![[
            r#"app.toml:7: pod = "u": cgroup says already where the application is: leave one of the two out"#
        ]],
    );
    check(
        &with("container = \"abc\""),
        expect![[
            r#"app.toml:6: container = "abc": must be a container's identifier, 12 characters at least, as the runtime prints it"#
        ]],
    );
    check(
        &with("measured = { local = \"1GiB\", best = \"fast\" }"),
        expect![[
            r#"app.toml:6: best = "fast": must be a latency or a bandwidth, like "120ns" or "80GB/s""#
        ]],
    );
    check(
        &with("measured = { local = \"1GiB\", cpu = \"120%\" }"),
        expect![[
            r#"app.toml:6: cpu = "120%": must be 0% to 100%, with at most four decimals, like "12.5%""#
        ]],
    );
}

fn annotated(more: &str) -> String {
    format!(
        r#"{{"kind":"Pod","metadata":{{"name":"redis-0","uid":"a1b2-c3","annotations":{{
            "isolane.dev/type":"ls","isolane.dev/slo":"160ns","isolane.dev/priority":"3","other/x":"y"{more}}}}},
            "spec":{{"containers":[]}}}}"#
    )
}

#[test]
fn a_pod_says_what_it_needs() {
    let (application, place) = pod::parse(&annotated("")).unwrap();
    let expected = Application {
        name: "redis-0".to_owned(),
        ..redis()
    };
    assert_eq!(
        (application, place),
        (expected, Place::Pod("a1b2-c3".to_owned()))
    );
    let more = r#","isolane.dev/memory":"20Gi","isolane.dev/local-max":"50%","isolane.dev/far-tiers":"1, 2""#;
    let (application, _) = pod::parse(&annotated(more)).unwrap();
    assert_eq!(application.memory_bytes, Some(20 << 30));
    assert_eq!(
        application.caps,
        [Cap {
            tier: 0,
            most: Amount::Millionths(500_000)
        }]
    );
    assert_eq!(application.far_tiers, [1, 2]);
}

#[test]
fn a_pods_mistakes_are_named() {
    let said = |text: &str| pod::parse(text).unwrap_err().to_string();
    expect![[r#"annotation = isolane.dev/prio: unknown annotation; there are isolane.dev/type, isolane.dev/slo, isolane.dev/priority, isolane.dev/name, isolane.dev/weight, isolane.dev/memory, isolane.dev/local-max, isolane.dev/far-tiers"#]]
        .assert_eq(&said(&annotated(r#","isolane.dev/prio":"3""#)));
    expect![[r#"annotation = isolane.dev/slo: is missing: a latency, like 160ns"#]]
        .assert_eq(&said(&annotated("").replace("isolane.dev/slo", "x/slo")));
    expect![[r#"slo = "160": has no unit; must be text with a number and a unit of ps, ns, us, ms or s, like "20us""#]]
        .assert_eq(&said(&annotated("").replace("160ns", "160")));
    expect![[r#"pod = "": must be a pod's UID, as metadata.uid has it"#]]
        .assert_eq(&said(&annotated("").replace("a1b2-c3", "")));
    expect![[r#"kind = List: must be Pod; use kubectl get pod NAME -o json"#]]
        .assert_eq(&said(&annotated("").replace("\"Pod\"", "\"List\"")));
    assert!(said("{}").contains("is no pod as JSON"));
}

proptest! {
    #[test]
    fn no_text_panics(text in ".*", line in "[a-z_]{1,12} = [\\[{\"a-z0-9%.,= \\]}]{0,30}") {
        let _ = parse(&text, "x");
        let _ = parse(&with(&line), "x");
        let _ = pod::parse(&text);
    }
}
