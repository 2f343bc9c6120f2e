//! Tests of whole texts: every mistake the format can make, and that no text makes a parser panic.

use crate::catalogue::{Catalogue, Category, Column, Direction};
use crate::check::{DeviceLimits, check_against};
use crate::library::Library;
use crate::model::{
    Arrival, Class, DataTraffic, Host, Message, Scenario, Traffic, Transport, Verb,
};
use crate::profile::Profile;
use crate::{Overrides, parse, parse_with};
use expect_test::{Expect, expect};
use isolane_common_quantities::units::{Bytes, Duration};

mod applications;
mod enforcement;
mod fuzz;
mod promises;

const NIC: &str = include_str!("../fixtures/test-nic.toml");

fn library() -> Library {
    let mut library = Library::embedded();
    library.add_profile(Profile::parse(NIC, "test-nic.toml").expect("the fixture is valid"));
    library
}

fn read(text: &str) -> Result<Scenario, isolane_common_toml_input::error::InputError> {
    parse(text, "x.toml", &library())
}

/// A scenario with one tenant of the given lines.
fn tenant(lines: &str) -> String {
    format!("profile = \"test-nic\"\n[[tenant]]\nname = \"redis\"\n{lines}\n")
}

/// A scenario with one tenant written in full; the lines follow `verb = "write"` on line 6.
fn traffic(lines: &str) -> String {
    tenant(&format!("[[tenant.traffic]]\nverb = \"write\"\n{lines}"))
}

fn check_error(text: &str, expected: Expect) {
    match read(text) {
        Ok(scenario) => panic!("must be refused, but reads as {scenario:?}"),
        Err(error) => expected.assert_eq(&error.to_string()),
    }
}

fn data(scenario: &Scenario) -> &DataTraffic {
    match &scenario.tenants[0].workloads[0].traffic {
        Traffic::Data(data) => data,
        _ => panic!("expected data traffic"),
    }
}

#[test]
fn defaults_fill_a_short_scenario() {
    let scenario = read(&traffic("size = 64")).expect("valid");
    assert_eq!(scenario.name, "x");
    assert_eq!(scenario.duration, Duration::from_ms(2));
    assert_eq!(scenario.sample_interval, Duration::from_us(40));
    assert_eq!(scenario.policy.name, "none");
    assert_eq!(scenario.tenants[0].class, Class::Auto);
    let data = data(&scenario);
    assert_eq!(
        (data.depth, data.completion_every, data.mtu),
        (128, 1, 4096)
    );
    assert_eq!(data.region_bytes, Bytes::from_kib(4));
}

#[test]
fn a_full_tenant_reads_as_written() {
    let scenario = read(&traffic(
        "pattern = [[128, 65536, 1024], [64], \"4KiB\"]\nqueue_pairs = 16\npost_list = 4\n\
         arrival = \"open\"\ninterval = \"1.5us\"\npoisson = true\nfrom = \"b\"\nto = \"a\"\nprocesses = 3",
    ))
    .expect("valid");
    let workload = &scenario.tenants[0].workloads[0];
    assert_eq!(
        (workload.from, workload.to, workload.processes),
        (Host::B, Host::A, 3)
    );
    let data = data(&scenario);
    assert_eq!(data.pattern[0].elements, [128, 65536, 1024]);
    assert_eq!(data.pattern[2], Message::of(4096));
    let interval = Duration::from_ns(1_500);
    assert_eq!(
        data.arrival,
        Arrival::Open {
            interval,
            poisson: true
        }
    );
}

#[test]
fn unknown_keys_get_the_nearest_spelling() {
    check_error(
        &traffic("size = 8\nqueue_pair = 3"),
        expect![[r#"x.toml:7: tenant "redis": unknown key queue_pair; did you mean queue_pairs?"#]],
    );
    check_error(
        &format!("profle = \"x\"\n{}", tenant("perftest = \"ib_write_bw\"")),
        expect!["x.toml:1: unknown key profle; did you mean profile?"],
    );
    check_error(
        &format!(
            "{}\n[policy]\nname = \"justitia\"\ntarget_ms = 1",
            tenant("perftest = \"ib_write_bw\"")
        ),
        expect!["x.toml:8: policy: unknown key target_ms; did you mean target_us?"],
    );
}

#[test]
fn a_networks_file_names_the_commands_that_take_it() {
    check_error(
        "duration = \"1ms\"\ndrain = \"1ms\"\n[fabric]\ntopology = \"single-switch\"",
        expect![
            "x.toml:3: [fabric] makes this the scenario of a network, and this command takes scenarios of RDMA hosts ([[tenant]] and a profile): run it with isolane sim, compare policies with isolane sim --policies A,B, or try many settings with isolane sweep"
        ],
    );
}

#[test]
fn impossible_values_name_their_range() {
    check_error(
        &traffic("size = 8\nqueue_pairs = 0"),
        expect![[r#"x.toml:7: tenant "redis": queue_pairs = 0: must be 1 to 20000"#]],
    );
    check_error(
        &traffic("size = \"3GiB\""),
        expect![[r#"x.toml:6: tenant "redis": size = "3GiB": must be 1B to 2GiB"#]],
    );
    check_error(
        &traffic("pattern = [[2147483648, 1]]"),
        expect![[
            r#"x.toml:6: tenant "redis": pattern = [2147483648, 1]: the message has 2147483649B: must be at most 2GiB"#
        ]],
    );
    check_error(
        &traffic("size = 8\nmtu = 1500"),
        expect![[
            r#"x.toml:7: tenant "redis": mtu = 1500: must be 256, 512, 1024, 2048 or 4096: there is no other path MTU on InfiniBand (1500 is an Ethernet MTU)"#
        ]],
    );
    check_error(
        &traffic("size = 8\ninline = 300"),
        expect![[
            r#"x.toml:7: tenant "redis": inline = 300: must be 0 to 256, the profile's limit"#
        ]],
    );
    check_error(
        &traffic("size = 8\npost_list = 8\ndepth = 4"),
        expect![[
            r#"x.toml:8: tenant "redis": depth = 4: must be at least post_list, 8: a list has to fit the queue"#
        ]],
    );
}

#[test]
fn unit_mistakes_name_the_remedy() {
    let rest = tenant("perftest = \"ib_write_bw\"");
    check_error(
        &format!("duration = 20\n{rest}"),
        expect![[r#"x.toml:1: duration = 20: has no unit; write "20us", "20ms" or "20s""#]],
    );
    check_error(
        &format!("duration = \"20 msec\"\n{rest}"),
        expect![[
            r#"x.toml:1: duration = "20 msec": unknown unit "msec", did you mean "ms"? must be text with a number and a unit of ps, ns, us, ms or s, like "20us""#
        ]],
    );
    check_error(
        &traffic("size = \"64Kb\""),
        expect![[
            r#"x.toml:6: tenant "redis": size = "64Kb": unknown unit "Kb", did you mean "KB"? must be whole bytes, or text with a unit of B, KiB, MiB, GiB, TiB, KB, MB, GB or TB, like "64KiB""#
        ]],
    );
    check_error(
        &traffic("size = 64\narrival = \"paced\"\nrate = 10"),
        expect![[
            r#"x.toml:8: tenant "redis": rate = 10: must be text with a number and a unit of b/s, Kb/s, Mb/s, Gb/s or B/s ... GB/s, like "10Gb/s""#
        ]],
    );
}

#[test]
fn unknown_names_get_the_nearest_one() {
    check_error(
        "profile = \"test_nic\"\n[[tenant]]\nname = \"a\"\nperftest = \"ib_write_bw\"",
        expect![[r#"x.toml:1: profile = "test_nic": unknown; did you mean test-nic?"#]],
    );
    check_error(
        &tenant("workload = \"victim/small_tput_ib_writebw\""),
        expect![[
            r#"x.toml:4: tenant "redis": workload = "victim/small_tput_ib_writebw": unknown; did you mean victim/small_tput_ib_write_bw?"#
        ]],
    );
    check_error(
        &tenant("class = \"latancy\"\nperftest = \"ib_write_bw\""),
        expect![[r#"x.toml:4: tenant "redis": class = "latancy": unknown; did you mean latency?"#]],
    );
    check_error(
        &format!(
            "{}\n[policy]\nname = \"justicia\"",
            tenant("perftest = \"ib_write_bw\"")
        ),
        expect![[r#"x.toml:7: policy: name = "justicia": unknown; did you mean justitia?"#]],
    );
}

#[test]
fn verbs_need_a_transport_that_has_them() {
    let with =
        |verb: &str, rest: &str| tenant(&format!("[[tenant.traffic]]\nverb = \"{verb}\"\n{rest}"));
    check_error(
        &with("send", "transport = \"ud\"\nsize = 8192"),
        expect![[
            r#"x.toml:7: tenant "redis": size = 8192: a UD message must fit one packet: at most the MTU, 4096"#
        ]],
    );
    check_error(
        &with("read", "transport = \"uc\"\nsize = 8"),
        expect![[r#"x.toml:6: tenant "redis": transport = "uc": READ must use "rc""#]],
    );
    check_error(
        &with("fetch-add", "transport = \"ud\""),
        expect![[r#"x.toml:6: tenant "redis": transport = "ud": FETCH_AND_ADD must use "rc""#]],
    );
    check_error(
        &with("compare-swap", "size = 16"),
        expect![[
            r#"x.toml:6: tenant "redis": size = 16: an atomic must be 8 bytes in one element"#
        ]],
    );
}

#[test]
fn a_device_without_atomics_refuses_them() {
    let mut library = library();
    let text = NIC.replace("atomics = true", "atomics = false");
    library.add_profile(Profile::parse(&text, "nic.toml").expect("valid"));
    let text = tenant("perftest = \"ib_atomic_bw\"");
    let error = parse(&text, "x.toml", &library).expect_err("no atomics");
    expect![[r#"x.toml:4: tenant "redis": perftest: this command line: FETCH_AND_ADD: the device of this profile has no atomics"#]]
        .assert_eq(&error.to_string());
}

#[test]
fn a_scenario_that_never_finishes_is_refused() {
    let rest = tenant("perftest = \"ib_write_bw\"");
    check_error(
        &format!("duration = \"0us\"\n{rest}"),
        expect![[r#"x.toml:1: duration = "0us": must be above 0 and at most 100s"#]],
    );
    check_error(
        &traffic("size = 8\niterations = 0"),
        expect![[r#"x.toml:7: tenant "redis": iterations = 0: must be 1 to 9223372036854775807"#]],
    );
    check_error(
        &tenant("start = \"1ms\"\nstop = \"500us\"\nperftest = \"ib_write_bw\""),
        expect![[r#"x.toml:5: tenant "redis": stop = "500us": must be after start, 1ms"#]],
    );
    check_error(
        &tenant("start = \"10ms\"\nperftest = \"ib_write_bw\""),
        expect![[
            r#"x.toml:4: tenant "redis": start = "10ms": never starts: must be before the end of the run, 2.2ms"#
        ]],
    );
    check_error(
        &tenant("[[tenant.traffic]]\nverb = \"send\"\nsize = 8\nreceive_batch = 0\niterations = 5"),
        expect![[
            r#"x.toml:7: tenant "redis": receive_batch = 0: no receive is ever posted, so that iterations can never be reached: must be at least 1, or drop iterations"#
        ]],
    );
    check_error(
        &traffic("size = 8\ndepth = 4\ncompletion_every = 8"),
        expect![[
            r#"x.toml:8: tenant "redis": completion_every = 8: must be at most depth, 4: the queue fills before a completion, for ever"#
        ]],
    );
}

#[test]
fn tenants_say_once_what_they_run() {
    check_error(
        &tenant("perftest = \"ib_write_bw\"\nworkload = \"victim/x\""),
        expect![[
            r#"x.toml:5: tenant "redis": workload = "victim/x": must be exactly one of perftest, engine, workload, [[tenant.application]], or [[tenant.traffic]] and [[tenant.control]]"#
        ]],
    );
    check_error(
        &tenant("weight = 1"),
        expect![[
            r#"x.toml:2: tenant "redis": perftest is missing: must be exactly one of perftest, engine, workload, [[tenant.application]], or [[tenant.traffic]] and [[tenant.control]]"#
        ]],
    );
    let twice = format!(
        "{}[[tenant]]\nname = \"redis\"\nperftest = \"ib_write_bw\"\n",
        tenant("perftest = \"ib_write_bw\"")
    );
    check_error(
        &twice,
        expect![[
            r#"x.toml:6: tenant "redis": name = "redis": is taken by an earlier tenant: must be unique"#
        ]],
    );
    check_error(
        &traffic("size = 8\nreceive_depth = 8"),
        expect![[
            r#"x.toml:7: tenant "redis": receive_depth = 8: has a meaning for verb = "send" only: drop it"#
        ]],
    );
    check_error(
        &traffic("size = 8\nrate = \"1Gb/s\""),
        expect![[
            r#"x.toml:7: tenant "redis": rate = "1Gb/s": has a meaning for arrival = "paced" only, and arrival is "closed""#
        ]],
    );
}

#[test]
fn broken_toml_has_a_line() {
    let error = read("profile = \"a\"\nname = = 3")
        .expect_err("broken")
        .to_string();
    assert!(error.starts_with("x.toml:2: not valid TOML: "), "{error}");
}

#[test]
fn a_command_line_error_names_the_option() {
    check_error(
        &tenant("perftest = \"ib_write_bw -q 0\""),
        expect![[r#"x.toml:4: tenant "redis": perftest: -q 0: must be 1 to 16384"#]],
    );
    check_error(
        &tenant("perftest = \"ib_write_bw --post-list 8\""),
        expect![[
            r#"x.toml:4: tenant "redis": perftest: --post-list: perftest has no such option; did you mean --post_list?"#
        ]],
    );
    check_error(
        &tenant("perftest = [\n  \"ib_write_bw\",\n  \"ib_write_bw -a\",\n]"),
        expect![[
            r#"x.toml:6: tenant "redis": perftest: -a: one run has one size: give -s, or one tenant per size"#
        ]],
    );
}

#[test]
fn iterations_count_only_when_asked() {
    let plain = read(&tenant("perftest = \"ib_write_bw -n 100\"")).expect("valid");
    assert_eq!(data(&plain).iterations, None);
    let asked = read(&tenant(
        "honour_iterations = true\nperftest = \"ib_write_bw -n 100\"",
    ))
    .expect("valid");
    assert_eq!(
        (data(&asked).iterations, data(&asked).depth),
        (Some(100), 100)
    );
    let forever = read(&tenant(
        "honour_iterations = true\nperftest = \"ib_write_bw -n 100 --run_infinitely\"",
    ))
    .expect("valid");
    assert_eq!(data(&forever).iterations, None);
}

#[test]
fn a_duration_option_sets_the_stop() {
    let scenario =
        read(&tenant("start = \"1ms\"\nperftest = \"ib_write_bw -D 2\"")).expect("valid");
    assert_eq!(
        scenario.tenants[0].stop,
        Some(Duration::from_secs(2) + Duration::from_ms(1))
    );
}

#[test]
fn overrides_replace_profile_policy_and_seed() {
    let text = format!(
        "{}\n[policy]\nname = \"justitia\"\ntarget_us = 2",
        tenant("perftest = \"ib_write_bw\"").replace("test-nic", "none-such")
    );
    let overrides = Overrides {
        profile: Some("test-nic".into()),
        policy: Some("lite".into()),
        seed: Some(7),
    };
    let scenario = parse_with(&text, "x.toml", &library(), &overrides).expect("valid");
    assert_eq!((scenario.profile.as_str(), scenario.seed), ("test-nic", 7));
    assert_eq!(scenario.policy.name, "lite");
    assert!(scenario.policy.parameters.is_empty());
}

#[test]
fn a_scenario_is_checked_against_another_device() {
    let scenario = read(&traffic("size = 8\ninline = 200")).expect("valid");
    let text = NIC.replace(
        "inline_max_bytes = { value = 256",
        "inline_max_bytes = { value = 28",
    );
    let profile = Profile::parse(&text, "nic.toml").expect("valid");
    let error = check_against(&scenario, &profile).expect_err("inline is over the limit");
    expect![[r#"x: tenant "redis": inline = 200: must be 0 to 28, the profile's limit"#]]
        .assert_eq(&error.to_string());
}

#[test]
fn the_catalogue_has_huskys_workloads_and_the_latency_victims() {
    let catalogue = Catalogue::embedded();
    let latency = |category| category == Category::Latency;
    let application = |category| category == Category::Application;
    assert_eq!(
        catalogue
            .victims()
            .filter(|entry| !latency(entry.category) && !application(entry.category))
            .count(),
        21
    );
    assert_eq!(
        catalogue
            .victims()
            .filter(|entry| latency(entry.category))
            .count(),
        4
    );
    assert_eq!(catalogue.attackers().count(), 50);
    let count = |category| {
        catalogue
            .attackers()
            .filter(|entry| entry.category == category)
            .count()
    };
    let groups = [
        Category::Bandwidth,
        Category::Pcie,
        Category::ProcessingUnits,
        Category::Cache,
    ];
    assert_eq!(groups.map(count), [6, 4, 14, 26]);
    for entry in catalogue.victims().filter(|entry| latency(entry.category)) {
        assert_eq!(entry.latency_bound.map(|bound| bound.over_solo), Some(2.0));
        assert_eq!(entry.class, Class::Latency);
    }
}

#[test]
fn every_catalogue_entry_runs_on_the_test_device() {
    let library = library();
    let profile = library.profile("test-nic").expect("the fixture");
    let limits = DeviceLimits::of(profile);
    let mut lines = Vec::new();
    for entry in &library.catalogue.entries {
        let workloads = entry
            .workloads(&limits)
            .expect("the device can do everything");
        for workload in workloads {
            lines.push((entry.path(), workload));
        }
    }
    let attacker = |name: &str| {
        let path = format!("attacker/{name}");
        let (_, workload) = lines
            .iter()
            .find(|(other, _)| *other == path)
            .expect("there");
        workload.clone()
    };
    let backward = attacker("PU-request_cas_backward");
    assert_eq!(
        (backward.from, backward.to, backward.processes),
        (Host::B, Host::A, 8)
    );
    let control = attacker("Cache-ctrl_num_pd_receiver");
    assert_eq!((control.from, control.to), (Host::B, Host::B));
    let rnr = attacker("PU-RNR_UD-RNR");
    let Traffic::Data(rnr) = rnr.traffic else {
        panic!("data")
    };
    assert_eq!(
        (rnr.transport, rnr.verb, rnr.receive_batch),
        (Transport::Ud, Verb::Send, 0)
    );
    let loopback = library
        .catalogue
        .find("attacker/PCIe-loopback_sender")
        .expect("there");
    assert_eq!(loopback.direction, Direction::LoopbackA);
    let long = library
        .catalogue
        .find("attacker/PU-RNR_RC-RNR-longms")
        .expect("there");
    assert_eq!(long.column, Some(Column::PuErrorRc));
}

#[test]
fn a_profile_mistake_has_a_line_and_a_range() {
    let check = |from: &str, to: &str, expected: Expect| {
        assert!(NIC.contains(from), "{from}");
        let text = NIC.replacen(from, to, 1);
        let error = Profile::parse(&text, "nic.toml").expect_err("a mistake");
        expected.assert_eq(&error.to_string());
    };
    check(
        "rate_gbps = { value = 100,",
        "rate_gbps = { value = -1,",
        expect![
            "nic.toml:10: link.rate_gbps: value = -1: must be a number, 0.1 to 1600 (rate at which frames leave, headers and gaps included)"
        ],
    );
    check(
        "rate_gbps =",
        "rate_gpbs =",
        expect!["nic.toml:10: link: unknown key rate_gpbs; did you mean rate_gbps?"],
    );
    check(
        "kind = \"standard\", source = \"test\"",
        "kind = \"standard\", source = \"\"",
        expect![[
            r#"nic.toml:10: link.rate_gbps: source = "": must say where the number comes from"#
        ]],
    );
    let line = NIC
        .lines()
        .find(|line| line.starts_with("prefetch ="))
        .expect("there");
    check(
        &format!("{line}\n"),
        "",
        expect![
            "nic.toml:34: wqe: prefetch is missing: work requests fetched per read and queue pair, 1 to 4096"
        ],
    );
}

#[test]
fn embedded_profiles_are_valid_and_unique() {
    let library = Library::embedded();
    for profile in library.profiles() {
        assert!(
            DeviceLimits::of(profile).mtu_default >= 256,
            "{}",
            profile.name
        );
    }
}

#[test]
fn the_manual_lists_every_key_and_parameter() {
    let manual = include_str!("../../../../docs/reference/scenario.md");
    let lists = [
        crate::spec::TOP,
        crate::spec::TENANT,
        crate::spec::TRAFFIC,
        crate::spec::CONTROL,
    ];
    let keys = lists.into_iter().flatten().map(|key| key.name);
    let parameters = crate::POLICIES.iter().flat_map(|part| part.parameters);
    for name in keys.chain(parameters.map(|parameter| parameter.name)) {
        let code = format!("`{name}`");
        let shown = manual.contains(&code)
            || manual.contains(&format!("`[{name}]`"))
            || manual.contains(&format!("`[[{name}]]`"))
            || manual.contains(&format!("`[[tenant.{name}]]`"));
        assert!(shown, "{name}");
    }
}

#[test]
fn the_manuals_examples_are_valid() {
    let manual = include_str!("../../../../docs/reference/scenario.md");
    let blocks = manual.split("```toml\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().expect("split yields one"));
    for block in blocks {
        let mut text = block.replace("cx5-100g-roce", "test-nic");
        if !text.contains("profile =") {
            text = format!("profile = \"test-nic\"\n{text}");
        }
        if !text.contains("[[tenant]]") {
            text.push_str("[[tenant]]\nname = \"x\"\nperftest = \"ib_write_bw\"\n");
        }
        if let Err(error) = read(&text) {
            panic!("{error}\n{text}");
        }
    }
}
