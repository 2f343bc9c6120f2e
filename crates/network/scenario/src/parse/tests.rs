//! What the parser takes, and what it says of what it does not take.

use super::{FabricOverrides, parse, parse_with};
use crate::model::{
    Arrivals, BurstPhase, Congestion, FabricPolicyKind, FabricScenario, Pattern, Recovery, Shape,
    SizeDistribution,
};
use expect_test::{Expect, expect};
use isolane_common_quantities::units::{Bytes, Duration};
use proptest::prelude::*;

const GOOD: &str = r#"
name = "33-node"
description = "All hosts call all others."
warmup = "1ms"
duration = "10ms"
calls = 500_000
sample_interval = "100us"

[fabric]
topology = "single-switch"
hosts = 33

[ports]
scheduler = "wfq"
buffer = "512KiB"

[[class]]
name = "high"
weight = 8
slo = { target = "15us", per_mtu = false }

[[class]]
name = "medium"
weight = 4
slo = { target = "25us", percentile = 99 }

[[class]]
name = "low"

[transport]
congestion = "swift"
target_us = 10

[policy]
name = "aequitas"
floor = 0.1

[[traffic]]
name = "all"
pattern = "all-to-all"
mix = [0.6, 0.3, 0.1]
sizes = "32KiB"
load = 0.8
burst = 1.4
period = "100us"
"#;

fn good() -> FabricScenario {
    parse(GOOD, "good.toml").unwrap_or_else(|error| panic!("{error}"))
}

fn refused_text(text: &str) -> String {
    match parse(text, "f.toml") {
        Err(error) => error.to_string(),
        Ok(scenario) => panic!("it is taken: {scenario:?}"),
    }
}

/// The good text with `from` replaced by `to`, and what is said of it.
fn refused(from: &str, to: &str, expected: Expect) {
    assert!(GOOD.contains(from), "{from}");
    expected.assert_eq(&refused_text(&GOOD.replacen(from, to, 1)));
}

fn with(settings: &[(&str, &str)]) -> Result<FabricScenario, String> {
    let settings = settings
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let overrides = FabricOverrides {
        settings: settings.collect(),
        ..FabricOverrides::default()
    };
    parse_with(GOOD, "f.toml", &overrides).map_err(|error| error.to_string())
}

#[test]
fn a_full_text_becomes_what_it_says() {
    let scenario = good();
    assert_eq!(scenario.topology.shape, Shape::SingleSwitch { hosts: 33 });
    assert_eq!(scenario.topology.host_rate.as_gbps_f64(), 100.0);
    assert_eq!(scenario.topology.hop_delay, Duration::from_ns(200));
    assert_eq!(scenario.ports.mtu, Bytes::new(5_080));
    assert_eq!(scenario.classes.len(), 3);
    assert_eq!(scenario.classes[2].weight, 1);
    assert!(scenario.classes[2].slo.is_none());
    assert!(
        scenario.classes[1]
            .slo
            .is_some_and(|slo| slo.per_mtu && slo.percentile == 99.0)
    );
    assert_eq!(scenario.transport.congestion, Congestion::Swift);
    assert_eq!(scenario.transport.recovery, Recovery::GoBackN);
    assert_eq!(scenario.transport.parameters["target_us"], 10.0);
    assert_eq!(scenario.policy.kind, FabricPolicyKind::Aequitas);
    assert_eq!(scenario.policy.parameters["floor"], 0.1);
    assert_eq!(scenario.calls, Some(500_000));
    assert_eq!(scenario.drain, scenario.duration);
    let group = &scenario.traffic[0];
    assert!(matches!(&group.pattern, Pattern::AllToAll { hosts } if hosts.len() == 33));
    let size = Bytes::from_kib(32);
    assert_eq!(group.sizes, [SizeDistribution::Fixed { size }]);
    let expected = Arrivals::Open {
        load: 0.8,
        burst: 1.4,
        period: Duration::from_us(100),
        bursts: BurstPhase::Together,
        poisson: true,
    };
    assert_eq!(group.arrivals, expected);
}

#[test]
fn senders_of_all_to_all_call_all_hosts_but_themselves() {
    let pattern = "pattern = \"all-to-all\"";
    let text = GOOD.replace(
        pattern,
        &format!("{pattern}\nhosts = [0, 1, 3]\nsenders = [1, 2]"),
    );
    let scenario = parse(&text, "f.toml").unwrap();
    let pairs = vec![(1, 0), (1, 3), (2, 0), (2, 1), (2, 3)];
    assert_eq!(scenario.traffic[0].pattern, Pattern::Pairs { pairs });
}

#[test]
fn weights_loads_and_shares_are_checked_with_their_arithmetic() {
    refused(
        "weight = 8",
        "weight = 0",
        expect![[
            r#"f.toml:19: class "high": weight = 0: a class is sure of its weight over the sum of all, and 0 / sum = 0: its calls need never end; must be 1 to 1000000"#
        ]],
    );
    refused(
        "load = 0.8",
        "load = -0.8",
        expect![[r#"f.toml:43: traffic "all": load = -0.8: must be a number, 0 to 1000"#]],
    );
    refused(
        "load = 0.8",
        "load = 0",
        expect![[
            r#"f.toml:43: traffic "all": load = 0: no call would ever begin: must be above 0"#
        ]],
    );
    refused(
        "load = 0.8",
        "load = 1.5",
        expect![[
            r#"f.toml:44: traffic "all": burst = 1.4: a burst of 1.4 and the idle time behind it cannot make a mean of 1.5: must be at least 1.5"#
        ]],
    );
    refused(
        "burst = 1.4",
        "burst = 0.4",
        expect![[
            r#"f.toml:44: traffic "all": burst = 0.4: a burst of 0.4 and the idle time behind it cannot make a mean of 0.8: must be at least 0.8"#
        ]],
    );
    refused(
        "period = \"100us\"",
        "",
        expect![[
            r#"f.toml:38: traffic "all": period is missing: one burst and the idle time behind it, like "100us"; a burst lasts period x load / burst"#
        ]],
    );
    refused(
        "[0.6, 0.3, 0.1]",
        "[0.6, 0.3, 0.2]",
        expect![[
            r#"f.toml:41: traffic "all": mix = [0.6, 0.3, 0.2]: 0.6 + 0.3 + 0.2 = 1.1, not 1: the classes must share all of the calls"#
        ]],
    );
    refused(
        "[0.6, 0.3, 0.1]",
        "[0.6, 0.4]",
        expect![[
            r#"f.toml:41: traffic "all": mix = [0.6, 0.4]: must be one share per class (high, medium, low), like [0.8, 0.1, 0.1]"#
        ]],
    );
    refused(
        "[0.6, 0.3, 0.1]",
        "[1.6, -0.3, -0.3]",
        expect![[
            r#"f.toml:41: traffic "all": mix = [1.6, -0.3, -0.3]: 1.6 is no share: must be 0 to 1 each"#
        ]],
    );
}

#[test]
fn an_overloaded_link_is_named_with_its_sum() {
    let incast = "pattern = \"incast\"\nreceiver = 0\nsenders = \"1-2\"";
    refused(
        "pattern = \"all-to-all\"",
        incast,
        expect![
            "f.toml:38: load: the link to host 0 would get 1.6 (all) line rates on average and carries 1: load 1.6 is above 1, so its queue grows as long as the run lasts. Divide the loads by 1.6, or say overload = true if that is the experiment"
        ],
    );
    let text = GOOD.replacen("pattern = \"all-to-all\"", incast, 1);
    assert!(parse(&format!("overload = true\n{text}"), "f.toml").is_ok());
    let racks = "topology = \"leaf-spine\"\nleaves = 2\nspines = 1\nhosts_per_leaf = 4";
    refused(
        "topology = \"single-switch\"\nhosts = 33",
        racks,
        expect![
            "f.toml:40: load: the links out of rack 0 would get 1.828571 (all) line rates on average and carries 1 (all links of the rack together): load 1.828571 is above 1, so its queue grows as long as the run lasts. Divide the loads by 1.828571, or say overload = true if that is the experiment"
        ],
    );
}

#[test]
fn impossible_networks_are_refused() {
    let network = |text: &str| {
        refused_text(&GOOD.replacen("topology = \"single-switch\"\nhosts = 33", text, 1))
    };
    expect!["f.toml:11: fabric: k = 7: a switch has as many ports up as down, 7 / 2 = 3.5: must be even, 2 to 40"].assert_eq(&network("topology = \"fat-tree\"\nk = 7"));
    expect!["f.toml:12: fabric: spines = 0: leaves the racks apart: no way leads from hosts 0-7 to the other 3 leaves; must be at least 1"].assert_eq(&network(
        "topology = \"leaf-spine\"\nleaves = 4\nspines = 0\nhosts_per_leaf = 8",
    ));
    expect!["f.toml:13: fabric: hosts_per_leaf = 8000: 4 leaves x 8000 = 32000 hosts: must be at most 16384"].assert_eq(&network(
        "topology = \"leaf-spine\"\nleaves = 4\nspines = 2\nhosts_per_leaf = 8000",
    ));
    expect!["f.toml:11: fabric: hosts = 1: 1 switch x 1 = 1 hosts: a call needs two"]
        .assert_eq(&network("topology = \"single-switch\"\nhosts = 1"));
    expect!["f.toml:9: fabric: hosts is missing: how many hosts the switch has, like 33"]
        .assert_eq(&network("topology = \"single-switch\""));
    expect!["f.toml:11: fabric: hosts = 4: has no meaning for two-racks, which has hosts_per_rack, uplink_rate: drop it"].assert_eq(&network("topology = \"two-racks\"\nhosts = 4"));
    expect![[r#"f.toml:10: fabric: topology = "fat-trea": unknown; did you mean fat-tree?"#]]
        .assert_eq(&network("topology = \"fat-trea\"\nk = 8"));
}

#[test]
fn objectives_below_the_wire_time_are_refused_with_the_least_time() {
    refused(
        "\"15us\"",
        "\"3us\"",
        expect![[
            r#"f.toml:20: class "high": slo.target = "3us": below what an idle network takes. A call of 32KiB needs 7 packets: 2.644us on a link of 100.00Gb/s, 186.24ns for the last packet through the sender's port, 6.4ns for the acknowledgement, 2 x 2 links x 200ns: 3.636us; must be above 3.636us"#
        ]],
    );
    refused(
        "\"25us\"",
        "\"500ns\"",
        expect![[
            r#"f.toml:25: class "medium": slo.target = "500ns": below what an idle network takes. A call of 32KiB needs 7 packets: 2.644us on a link of 100.00Gb/s, 186.24ns for the last packet through the sender's port, 6.4ns for the acknowledgement, 2 x 2 links x 200ns: 3.636us / 7 = 519.497ns per MTU; must be above 519.497ns"#
        ]],
    );
    let nic = "topology = \"single-switch\"\nnic_rate = \"1000Gb/s\"";
    let text = GOOD.replacen("topology = \"single-switch\"", nic, 1);
    expect![[r#"f.toml:21: class "high": slo.target = "3us": below what an idle network takes. A call of 32KiB needs 7 packets: 2.644us on a link of 100.00Gb/s, 18.624ns for the last packet through the sender's port, 3.52ns for the acknowledgement, 2 x 2 links x 200ns: 3.466us; must be above 3.466us"#]].assert_eq(&refused_text(&text.replacen("\"15us\"", "\"3us\"", 1)));
    // Of calls between 1 B and 15 MB some can meet 3 us, and which do is for the run to say.
    let text = GOOD.replacen("\"32KiB\"", "\"google-rpc-2008\"", 1);
    assert!(parse(&text.replacen("\"15us\"", "\"3us\"", 1), "f.toml").is_ok());
    let slo = "name = \"low\"\nslo = { target = \"1ms\" }";
    refused(
        "name = \"low\"",
        slo,
        expect![[
            r#"f.toml:29: class "low": slo = { target = "1ms" }: cannot be kept: the last class takes what the others may not send; add a class below it"#
        ]],
    );
    refused(
        "percentile = 99 ",
        "percentile = 100 ",
        expect![[
            r#"f.toml:25: class "medium": percentile = 100: must be above 0 and below 100, like 99.9"#
        ]],
    );
}

#[test]
fn distributions_must_rise_to_one() {
    let sizes = |text: &str| refused_text(&GOOD.replacen("\"32KiB\"", text, 1));
    expect![[r#"f.toml:42: traffic "all": sizes = [[1000, 0.5], [2000, 0.9]]: the last share is 0.9: the shares of all calls must reach 1, and 0.1 of them have no size"#]].assert_eq(&sizes("[[1000, 0.5], [2000, 0.9]]"));
    expect![[r#"f.toml:42: traffic "all": sizes = [500, 1.0]: does not rise: the point before has 1000B and 0.5, and neither size nor share may fall"#]].assert_eq(&sizes("[[1000, 0.5], [500, 1.0]]"));
    expect![[r#"f.toml:42: traffic "all": sizes = [2000, 0.4]: does not rise: the point before has 1000B and 0.5, and neither size nor share may fall"#]].assert_eq(&sizes("[[1000, 0.5], [2000, 0.4], [3000, 1.0]]"));
    expect![[r#"f.toml:42: traffic "all": sizes = [1000, 0.5, 3]: must be a point, [size, part of calls not larger]"#]].assert_eq(&sizes("[[1000, 0.5, 3], [2000, 1.0]]"));
    expect![[
        r#"f.toml:42: traffic "all": sizes = "google-rpc": unknown; did you mean google-all-rpc?"#
    ]]
    .assert_eq(&sizes("\"google-rpc\""));
    expect![[r#"f.toml:42: traffic "all": sizes = ["1KiB", "2KiB"]: lists 2 distributions for 3 classes (high, medium, low): must be one for all or one for each"#]].assert_eq(&sizes("[\"1KiB\", \"2KiB\"]"));
    expect![[r#"f.toml:42: traffic "all": sizes = []: lists 0 distributions for 3 classes (high, medium, low): must be one for all or one for each"#]].assert_eq(&sizes("[]"));
    expect![[r#"f.toml:42: traffic "all": sizes = "0B": must be 1B to 64GiB"#]]
        .assert_eq(&sizes("\"0B\""));
    let text = GOOD.replacen(
        "\"32KiB\"",
        "[\"1KiB\", \"web-search\", [[1, 0.5], [1, 1]]]",
        1,
    );
    let scenario = parse(&text, "f.toml").expect("one for each class");
    assert_eq!(scenario.traffic[0].sizes.len(), 3);
}

#[test]
fn names_are_checked_against_the_known_ones() {
    refused(
        "\"aequitas\"",
        "\"aequitos\"",
        expect![[r#"f.toml:35: policy: name = "aequitos": unknown; did you mean aequitas?"#]],
    );
    refused(
        "floor = 0.1",
        "flor = 0.1",
        expect!["f.toml:36: policy: unknown key flor; did you mean floor?"],
    );
    refused(
        "floor = 0.1",
        "floor = 2",
        expect!["f.toml:36: policy: floor = 2: must be a number, 0.000000001 to 1"],
    );
    refused(
        "\"swift\"",
        "\"swfit\"",
        expect![[r#"f.toml:31: transport: congestion = "swfit": unknown; did you mean swift?"#]],
    );
    refused(
        "\"swift\"",
        "\"dcqcn\"",
        expect![[
            r#"f.toml:31: transport: congestion = "dcqcn": slows down by marks, and no port marks: set ports.ecn = { min = ..., max = ... }"#
        ]],
    );
    refused(
        "target_us = 10",
        "window_packets = 10",
        expect![
            "f.toml:32: transport: unknown key window_packets; did you mean window_min_packets?"
        ],
    );
    refused(
        "\"all-to-all\"",
        "\"all-to-one\"",
        expect![[
            r#"f.toml:40: traffic "all": pattern = "all-to-one": unknown; did you mean all-to-all?"#
        ]],
    );
    refused(
        "name = \"medium\"",
        "name = \"high\"",
        expect![[
            r#"f.toml:23: class "high": name = "high": is taken by an earlier class: must be unique"#
        ]],
    );
    refused(
        "warmup",
        "profile",
        expect![
            "f.toml:4: profile belongs to a scenario of RDMA hosts, and f.toml describes a network because it has [fabric]: drop one of them"
        ],
    );
}

#[test]
fn hosts_must_exist_and_be_named_once() {
    let hosts =
        |text: &str| refused_text(&GOOD.replacen("load = 0.8", &format!("load = 0.8\n{text}"), 1));
    expect![[r#"f.toml:44: traffic "all": hosts = "0-33": host 33 does not exist: the network has 33 hosts, 0 to 32"#]].assert_eq(&hosts("hosts = \"0-33\""));
    expect![[r#"f.toml:44: traffic "all": hosts = "0-3,2": names host 2 twice: name each once"#]]
        .assert_eq(&hosts("hosts = \"0-3,2\""));
    expect![[r#"f.toml:44: traffic "all": hosts = "3-0": counts down: must be 0-3"#]]
        .assert_eq(&hosts("hosts = \"3-0\""));
    expect![[r#"f.toml:44: traffic "all": hosts = [0]: is one host: a call needs two"#]]
        .assert_eq(&hosts("hosts = [0]"));
    expect![[r#"f.toml:44: traffic "all": hosts = [0, -1]: must be "all", ranges like "0-15,20", or a list of host numbers"#]].assert_eq(&hosts("hosts = [0, -1]"));
    expect![[r#"f.toml:44: traffic "all": receiver = 0: has no meaning for all-to-all, which has hosts, senders: drop it"#]].assert_eq(&hosts("receiver = 0"));
    let pairs = |text: &str| {
        refused_text(&GOOD.replacen("\"all-to-all\"", &format!("\"pairs\"\n{text}"), 1))
    };
    expect![[r#"f.toml:41: traffic "all": pairs = [[0, 0]]: host 0 calls itself: a call needs the network"#]].assert_eq(&pairs("pairs = [[0, 0]]"));
    expect![[r#"f.toml:41: traffic "all": pairs = [[0, 1], [0, 1]]: names [0, 1] twice: name each pair once"#]].assert_eq(&pairs("pairs = [[0, 1], [0, 1]]"));
    expect![[r#"f.toml:41: traffic "all": pairs = [[0, 1, 2]]: must be a list of pairs of host numbers, like [[0, 1], [2, 1]]"#]].assert_eq(&pairs("pairs = [[0, 1, 2]]"));
    expect![[
        r#"f.toml:38: traffic "all": pairs is missing: who calls whom, like [[0, 1], [2, 1]]"#
    ]]
    .assert_eq(&pairs(""));
}

#[test]
fn ports_must_hold_a_packet_and_mark_before_they_are_full() {
    let ports = |text: &str| refused_text(&GOOD.replacen("buffer = \"512KiB\"", text, 1));
    expect![[r#"f.toml:15: ports: buffer = "4KiB": no full packet fits: must be at least 5080B of payload + 40B of headers = 5KiB"#]].assert_eq(&ports("buffer = \"4KiB\""));
    expect![[r#"f.toml:15: ports.ecn: min = "50KB": must be at most max, 40000B"#]]
        .assert_eq(&ports("ecn = { min = \"50KB\", max = \"40KB\" }"));
    expect![[r#"f.toml:15: ports.ecn: min = "1MiB": never marks: the buffer is full at 512KiB; must be below"#]].assert_eq(&ports("ecn = { min = \"1MiB\", max = \"2MiB\" }"));
    expect![[r#"f.toml:15: ports.pfc: xon = "200KB": must be at most xoff, 100000B"#]]
        .assert_eq(&ports("pfc = { xoff = \"100KB\", xon = \"200KB\" }"));
    expect!["f.toml:15: ports: xon is missing: bytes below which the peer may send again"]
        .assert_eq(&ports("pfc = { xoff = \"100KB\" }"));
    expect!["f.toml:15: ports.pfc: quanta = 100: a pause is over before its repeat is there, which comes half of it later and waits for up to a packet of 5KiB and 512B of frames: must be at least 2 x 5632 x 8 / 512 = 176"].assert_eq(&ports("pfc = { xoff = \"100KB\", xon = \"80KB\", quanta = 100 }"));
    expect!["f.toml:15: ports.pfc: quanta = 70000: must be 1 to 65535"].assert_eq(&ports(
        "pfc = { xoff = \"100KB\", xon = \"80KB\", quanta = 70000 }",
    ));
    let class =
        |text: &str| refused_text(&GOOD.replacen("weight = 8", &format!("weight = 8\n{text}"), 1));
    expect![[
        r#"f.toml:20: class "high": buffer = "4KiB": no full packet fits: must be at least 5KiB"#
    ]]
    .assert_eq(&class("buffer = \"4KiB\""));
}

#[test]
fn settings_replace_what_the_text_says() {
    let scenario = with(&[
        ("traffic.all.load", "0.5"),
        ("traffic.0.burst", "2"),
        ("ports.buffer", "1MiB"),
        ("class.high.slo.target", "20us"),
        ("floor", "0.2"),
        ("seed", "7"),
        ("congestion", "timely"),
    ]);
    // Swift's parameters are not TIMELY's.
    assert!(scenario.unwrap_err().contains("target_us"));
    let scenario = with(&[
        ("traffic.all.load", "0.5"),
        ("ports.buffer", "1MiB"),
        ("floor", "0.2"),
        ("seed", "7"),
    ]);
    let scenario = scenario.unwrap();
    assert!(matches!(
        scenario.traffic[0].arrivals,
        Arrivals::Open { load: 0.5, .. }
    ));
    assert_eq!(scenario.ports.buffer, Bytes::from_mib(1));
    assert_eq!(
        (scenario.policy.parameters["floor"], scenario.seed),
        (0.2, 7)
    );
    let said = |path: &str, value: &str| with(&[(path, value)]).unwrap_err();
    expect!["f.toml: setting flor: unknown key flor; did you mean floor?"]
        .assert_eq(&said("flor", "0.2"));
    expect![[r#"f.toml: setting traffic.al.load: traffic = "al": unknown; did you mean all?"#]]
        .assert_eq(&said("traffic.al.load", "0.2"));
    expect![[r#"f.toml:44: traffic "all": burst = 1.4: a burst of 1.4 and the idle time behind it cannot make a mean of 2: must be at least 2"#]].assert_eq(&said("traffic.all.load", "2"));
    expect![[r#"f.toml with traffic.all.load set: traffic "all": load = "lots": must be a number, 0 to 1000"#]].assert_eq(&said("traffic.all.load", "lots"));
    expect!["f.toml with ports.bufer set: unknown key bufer; did you mean buffer?"]
        .assert_eq(&said("ports.bufer", "1MiB"));
    expect!["f.toml: setting name.x: name = x: is no table: nothing can be set below it"]
        .assert_eq(&said("name.x", "1"));
    expect![[r#"f.toml with ports.buffer set: ports: buffer = "1KiB\nx = 2": unknown unit "KiB\nx = 2", did you mean "KiB"? must be whole bytes, or text with a unit of B, KiB, MiB, GiB, TiB, KB, MB, GB or TB, like "64KiB""#]].assert_eq(&said("ports.buffer", "1KiB\nx = 2"));
}

#[test]
fn a_word_is_a_parameter_of_the_policy_that_is_set_wherever_that_is_said() {
    let text = GOOD.replacen("name = \"aequitas\"\nfloor = 0.1", "name = \"none\"", 1);
    let settings = [("floor", "0.2"), ("policy.name", "aequitas")];
    let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let by_path = FabricOverrides {
        settings: settings.to_vec(),
        ..FabricOverrides::default()
    };
    let by_option = FabricOverrides {
        policy: Some("aequitas".to_owned()),
        settings: settings[..1].to_vec(),
        ..FabricOverrides::default()
    };
    for overrides in [by_path, by_option] {
        let scenario = parse_with(&text, "f.toml", &overrides).unwrap();
        assert_eq!(scenario.policy.parameters["floor"], 0.2);
    }
}

#[test]
fn another_policy_keeps_no_parameters() {
    let with_policy = |policy: &str| {
        let overrides = FabricOverrides {
            policy: Some(policy.to_owned()),
            seed: Some(3),
            duration: Some(Duration::from_ms(1)),
            ..FabricOverrides::default()
        };
        parse_with(GOOD, "f.toml", &overrides)
    };
    let spq = with_policy("spq").unwrap();
    assert_eq!(
        (spq.policy.kind, spq.policy.parameters.len()),
        (FabricPolicyKind::Spq, 0)
    );
    assert_eq!((spq.seed, spq.duration), (3, Duration::from_ms(1)));
    assert_eq!(with_policy("aequitas").unwrap().policy.parameters.len(), 1);
    expect![[
        r#"f.toml with policy.name set: policy: name = "aequitos": unknown; did you mean aequitas?"#
    ]]
    .assert_eq(&with_policy("aequitos").unwrap_err().to_string());
}

proptest! {
    #[test]
    fn no_text_panics(text in "[\\PC\\n]{0,200}") {
        let _ = parse(&text, "f.toml");
    }

    /// Goal: bytes that are nearly a scenario. Method: one token of the good text becomes another.
    #[test]
    fn no_changed_text_panics(at in 0usize..GOOD.len(), cut in 0usize..12, with in prop::sample::select(vec![
        "", "0", "-1", "1e308", "nan", "inf", "\"\"", "[]", "[[]]", "{}", "true", "\"0-99999999999\"", "= 3\n", "\n[x]\n", "999999999999999999999", "\"1s\"", "\"1B\"", "[[0,1],[0,1]]",
    ])) {
        let mut text = GOOD.to_owned();
        text.replace_range(at..(at + cut).min(GOOD.len()), with);
        let _ = parse(&text, "f.toml");
    }

    #[test]
    fn no_setting_panics(path in "[a-z._0-9]{0,24}", value in "[ -~]{0,24}") {
        let _ = with(&[(&path, &value)]);
    }

    /// Goal: what a value cannot break. Method: any value for a known path either fits or is refused in words.
    #[test]
    fn no_value_panics(path in prop::sample::select(vec![
        "traffic.all.sizes", "traffic.all.hosts", "traffic.all.mix", "traffic.all.load", "class.high.weight",
        "class.high.slo.target", "fabric.hosts", "ports.mtu", "policy.name", "sample_interval",
    ]), value in "[0-9a-z\\[\\], \"._-]{0,24}") {
        if let Err(error) = with(&[(path, &value)]) {
            prop_assert!(!error.is_empty());
        }
    }
}
