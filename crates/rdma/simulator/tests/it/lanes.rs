//! Hardware queues: traffic classes, virtual lanes, virtual functions, and software chunking beside them.
use crate::common::{self, bulk, of as tenant_of, p99 as p99_of, run, scenario, small, tenant};

/// A scenario under `policy` (a table's lines) with the tenants' texts.
fn under(policy: &str, tenants: &[String]) -> String {
    format!(
        "warmup = \"300us\"\nduration = \"3ms\"\n[policy]\n{policy}\n{}",
        tenants.concat()
    )
}

fn named(policy: &str) -> String {
    format!("name = \"{policy}\"")
}

/// A tenant's text with more lines in its table.
fn with(text: &str, lines: &str) -> String {
    text.replacen(
        "\n[[tenant.traffic]]",
        &format!("\n{lines}\n[[tenant.traffic]]"),
        1,
    )
}

fn close(actual: f64, expected: f64, part: f64) -> bool {
    (actual - expected).abs() <= expected * part
}

/// READs of `size` by `pairs` queue pairs.
fn reads(name: &str, size: &str, pairs: u32) -> String {
    tenant(
        name,
        "bandwidth",
        &format!("verb = \"read\"\nsize = \"{size}\"\nqueue_pairs = {pairs}\ndepth = 4"),
    )
}

/// SENDs whose receiver posts no receives.
fn not_ready(name: &str, transport: &str) -> String {
    tenant(
        name,
        "throughput",
        &format!(
            "verb = \"send\"\ntransport = \"{transport}\"\nsize = 1024\nqueue_pairs = 8\ndepth = 64\nreceive_depth = 1\nreceive_batch = 0"
        ),
    )
}

#[test]
fn traffic_classes_share_a_full_link_by_weight() {
    let weights = [1.0, 2.0, 5.0];
    // The lighter a tenant, the more queue pairs and the smaller the messages it uses to get more than its share.
    let tenants = [
        with(&bulk("one", "64KiB", 32), "weight = 1"),
        with(&bulk("two", "1MiB", 8), "weight = 2"),
        with(&bulk("five", "1MiB", 4), "weight = 5"),
    ];
    let result = run(&under(&named("hw-tc"), &tenants));
    let total: f64 = result.tenants.iter().map(|tenant| tenant.wire_gbps).sum();
    assert!(total > 98.0, "the link carries {total} Gb/s");
    for (tenant, weight) in result.tenants.iter().zip(weights) {
        let expected = total * weight / 8.0;
        assert!(
            close(tenant.wire_gbps, expected, 0.02),
            "{}: {} of {expected}",
            tenant.name,
            tenant.wire_gbps
        );
    }
}

#[test]
fn an_idle_class_gives_its_share_away() {
    let alone = run(&under(&named("none"), &[bulk("bulk", "1MiB", 4)]));
    let tenants = [with(&small("idle"), "weight = 9"), bulk("bulk", "1MiB", 4)];
    let beside = run(&under(&named("hw-tc"), &tenants));
    let (alone, beside) = (
        tenant_of(&alone, "bulk").goodput_gbps,
        tenant_of(&beside, "bulk").goodput_gbps,
    );
    assert!(beside > 0.98 * alone, "{beside} of {alone} Gb/s");
}

#[test]
fn a_limited_class_does_not_take_what_is_left() {
    let tenants = [with(&small("idle"), "weight = 3"), bulk("bulk", "1MiB", 4)];
    let result = run(&under("name = \"hw-tc\"\nrate_limit = 1", &tenants));
    let wire = tenant_of(&result, "bulk").wire_gbps;
    assert!(
        close(wire, 25.0, 0.001),
        "{wire} Gb/s of a quarter of the link"
    );
}

#[test]
fn a_function_sends_at_exactly_its_limit() {
    for text in [
        bulk("busy", "1MiB", 4),
        reads("busy", "1MiB", 4),
        bulk("busy", "4KiB", 16),
    ] {
        let result = run(&under(&named("sriov"), &[text, small("idle")]));
        let wire = tenant_of(&result, "busy").wire_gbps;
        assert!(close(wire, 50.0, 0.01), "{wire} Gb/s of half of the link");
    }
}

#[test]
fn a_guaranteed_rate_is_the_share_and_others_split_the_rest() {
    let tenants = [
        with(
            &bulk("promised", "1MiB", 4),
            "guarantee = { rate = \"20Gb/s\" }",
        ),
        with(&bulk("one", "1MiB", 4), "weight = 1"),
        with(&bulk("three", "1MiB", 4), "weight = 3"),
    ];
    for policy in ["sriov", "hw-tc", "hw-tc+sriov"] {
        let result = run(&under(&named(policy), &tenants));
        for (name, expected) in [("promised", 20.0), ("one", 20.0), ("three", 60.0)] {
            let wire = tenant_of(&result, name).wire_gbps;
            assert!(
                close(wire, expected, 0.02),
                "{policy}, {name}: {wire} Gb/s of {expected}"
            );
        }
    }
}

#[test]
fn functions_without_limits_conserve_work() {
    let result = run(&under(
        "name = \"sriov\"\nvf_rate_limit = 0",
        &[bulk("busy", "1MiB", 4), small("idle")],
    ));
    let wire = tenant_of(&result, "busy").wire_gbps;
    assert!(wire > 95.0, "{wire} Gb/s");
}

#[test]
fn a_function_keeps_its_receiver_not_ready_to_itself_but_not_its_drops() {
    let victim = bulk("victim", "64KiB", 4);
    let share = |policy: &str, transport: &str| {
        let tenants = [victim.clone(), not_ready("attacker", transport)];
        let beside = tenant_of(&run(&under(&named(policy), &tenants)), "victim").goodput_gbps;
        let quiet = [victim.clone(), small("attacker")];
        beside / tenant_of(&run(&under(&named(policy), &quiet)), "victim").goodput_gbps
    };
    assert!(share("none", "rc") < 0.5);
    assert!(share("hw-tc", "rc") < 0.5);
    assert!(share("sriov", "rc") > 0.95);
    assert!(share("hw-tc+sriov", "rc") > 0.95);
    for transport in ["uc", "ud"] {
        assert!(share("none", transport) < 0.5);
        assert!(share("sriov", transport) < 0.5);
        assert!(share("hw-tc+sriov", transport) < 0.5);
    }
}

#[test]
fn the_high_table_keeps_a_small_message_out_of_the_queue() {
    let tenants = [small("pings"), bulk("bulk", "1MiB", 16)];
    let p99 = |policy: &str| {
        let result = run(&under(policy, &tenants));
        p99_of(&result, "pings")
    };
    let (none, high) = (p99(&named("none")), p99(&named("vl-qos")));
    let low = p99("name = \"vl-qos\"\nlatency_high = 0");
    assert!(high < low && low < none, "{high}, {low}, {none} us");
}

#[test]
fn the_high_limit_leaves_the_low_table_something() {
    let tenants = |class: &str| {
        [
            bulk("high", "64KiB", 8).replace("bandwidth", class),
            bulk("low", "64KiB", 8),
        ]
    };
    let low = |policy: &str| {
        let result = run(&under(policy, &tenants("latency")));
        tenant_of(&result, "low").wire_gbps
    };
    let unlimited = low("name = \"vl-qos\"\nhigh_limit = 255");
    // A low packet after at least 40 960 bytes of high ones: one in eleven of the largest.
    let limited = low(&named("vl-qos"));
    let even = low("name = \"vl-qos\"\nlatency_high = 0");
    assert!(unlimited < 0.5, "{unlimited} Gb/s below a full high table");
    assert!(
        close(limited, 100.0 / 11.0, 0.1),
        "{limited} Gb/s of an eleventh"
    );
    assert!(close(even, 50.0, 0.02), "{even} Gb/s of half of the link");
}

#[test]
fn infiniband_devices_have_the_same_queues() {
    let tenants = [
        with(&bulk("one", "64KiB", 16), "weight = 1"),
        with(&bulk("three", "1MiB", 4), "weight = 3"),
    ];
    for policy in ["hw-tc", "vl-qos", "sriov", "hw-tc+sriov"] {
        let text = format!(
            "profile = \"cx3pro-56g-ib\"\n{}",
            under(&named(policy), &tenants)
        );
        let result = run(&text);
        let (one, three) = (
            tenant_of(&result, "one").wire_gbps,
            tenant_of(&result, "three").wire_gbps,
        );
        // A greedy sender reads far ahead for one message; a part of the wire stays free beside limited functions.
        assert!(
            close(three / one, 3.0, 0.1),
            "{policy}: {one} and {three} Gb/s"
        );
    }
}

#[test]
fn parts_act_together() {
    let tenants = [small("pings"), bulk("bulk", "1MiB", 16)];
    let of = |policy: &str| run(&under(policy, &tenants));
    let both = of(&named("justitia+hw-tc"));
    assert!(
        both.policy_state["host_a.tokens_per_s"] > 0.0,
        "Justitia grants"
    );
    let limited = of("name = \"justitia+hw-tc\"\nrate_limit = 1");
    let wire = tenant_of(&limited, "bulk").wire_gbps;
    assert!(
        wire <= 50.05,
        "{wire} Gb/s of a class limited to half of the link"
    );
    let functions = of("name = \"hw-tc+sriov\"\nvf_rate_limit = 0");
    let wire = tenant_of(&functions, "bulk").wire_gbps;
    assert!(
        wire > 90.0,
        "{wire} Gb/s: without limits both conserve work"
    );
}

#[test]
fn chunks_make_room_for_others_at_a_price() {
    let tenants = [small("pings"), bulk("bulk", "4MiB", 4)];
    let text = |policy: &str| format!("profile = \"cx3pro-56g-ib\"\n{}", under(policy, &tenants));
    let (none, split) = (
        run(&text(&named("none"))),
        run(&text(&named("sw-chunking"))),
    );
    let bulk =
        |result| -> isolane_study_results::rdma::TenantResult { tenant_of(result, "bulk").clone() };
    assert!(bulk(&none).policy_cores == 0.0 && bulk(&split).policy_cores > 0.01);
    let (before, after) = (bulk(&none).goodput_gbps, bulk(&split).goodput_gbps);
    assert!(after > 0.9 * before, "{after} of {before} Gb/s");
    let state = &split.policy_state;
    assert!(state["host_a.chunk_bytes"] > 4_096.0, "{state:?}");
}

#[test]
fn any_window_of_chunks_moves() {
    for (verb, transport) in [
        ("write", "rc"),
        ("send", "rc"),
        ("read", "rc"),
        ("write", "uc"),
    ] {
        for chunks in [1, 2, 7] {
            let traffic = format!(
                "verb = \"{verb}\"\ntransport = \"{transport}\"\nsize = 100000\nqueue_pairs = 2\ndepth = 8\ncompletion_every = 8\npost_list = 4"
            );
            let policy = format!(
                "name = \"sw-chunking\"\nchunk_bytes = 10000\nchunks_outstanding = {chunks}"
            );
            let result = run(&under(&policy, &[tenant("bulk", "bandwidth", &traffic)]));
            let goodput = tenant_of(&result, "bulk").goodput_gbps;
            assert!(
                goodput > 20.0,
                "{verb} {transport}, {chunks} chunks: {goodput} Gb/s"
            );
        }
    }
}

#[test]
fn a_smaller_window_means_less_in_the_nic() {
    let p99 = |chunks: u32| {
        let policy =
            format!("name = \"sw-chunking\"\nchunk_bytes = 4096\nchunks_outstanding = {chunks}");
        let tenants = [small("pings"), bulk("bulk", "4MiB", 8)];
        let text = format!("profile = \"cx3pro-56g-ib\"\n{}", under(&policy, &tenants));
        p99_of(&run(&text), "pings")
    };
    let (one, two, many) = (p99(1), p99(2), p99(200));
    assert!(one < two && two < many, "{one}, {two} and {many} us");
}

#[test]
fn unknown_parts_are_refused_by_name() {
    let mut scenario = scenario(&under(&named("none"), &[small("pings")]));
    let profile = common::profile(&scenario.profile);
    scenario.policy.name = "magic".to_owned();
    let error =
        isolane_rdma_simulator::rnic::run(&scenario, &profile).expect_err("there is no magic");
    assert!(error.to_string().contains("magic"), "{error}");
}
