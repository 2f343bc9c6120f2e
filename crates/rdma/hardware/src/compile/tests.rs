//! The compiler on recorded devices and on random policies.

use super::*;
use crate::policy;
use crate::text::render;
use expect_test::{Expect, expect, expect_file};
use isolane_common_linux::Root;
use proptest::prelude::*;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/hardware");

fn example(name: &str) -> String {
    Root::at(EXAMPLES).read(name).unwrap()
}

fn host(name: &str) -> Host {
    Host::parse(&example(name)).unwrap()
}

/// The example policy on a recorded host, as text.
fn on(name: &str) -> String {
    let policy = policy::parse("policy.toml", &example("policy.toml")).unwrap();
    let host = host(name);
    let plan = compile(&policy, &host);
    plan.map_or_else(
        |error| format!("{error}\n"),
        |plan| render(&plan, &host.devices[0], None),
    )
}

#[test]
fn one_policy_becomes_a_plan_on_each_kind_of_device() {
    for name in ["switchdev", "legacy", "rxe", "infiniband", "ethernet"] {
        let golden = format!("../../golden/{name}.txt");
        expect_file![golden].assert_eq(&on(&format!("{name}.json")));
    }
}

fn check(policy: &str, host: &Host, expected: Expect) {
    let policy = policy::parse("p.toml", policy).unwrap();
    let text = match compile(&policy, host) {
        Err(error) => error.to_string(),
        Ok(plan) => {
            let settings = plan.settings.iter();
            let lines = settings.map(|setting| format!("{}: {}\n", setting.target, setting.value));
            let remaining = plan.remaining.iter();
            let rest = remaining
                .map(|rest| format!("{} {}: {}\n", rest.subject, rest.need, rest.by.name()));
            lines.chain(rest).collect()
        }
    };
    expected.assert_eq(&text);
}

#[test]
fn guarantees_beyond_the_rate_are_rejected() {
    let policy = "[[tenant]]\nname = \"a\"\nguarantee = \"60Gb/s\"\n[[tenant]]\nname = \"b\"\nguarantee = \"50Gb/s\"\n";
    check(
        policy,
        &host("legacy.json"),
        expect!["the guarantees sum to 110 Gb/s, and mlx5_0 has 100 Gb/s; lower them"],
    );
}

#[test]
fn a_device_is_named_where_there_are_several() {
    let mut several = host("legacy.json");
    let mut second = several.devices[0].clone();
    second.name = "mlx5_1".to_owned();
    several.devices.push(second);
    let tenant = "[[tenant]]\nname = \"a\"\n";
    check(
        tenant,
        &several,
        expect![
            "device is missing, and this host has several; write device = one of mlx5_0, mlx5_1"
        ],
    );
    check(
        &format!("device = \"mlx5_7\"\n{tenant}"),
        &several,
        expect![[r#"device = "mlx5_7": this host has no such device; it has mlx5_0, mlx5_1"#]],
    );
    several.devices.clear();
    check(
        tenant,
        &several,
        expect![
            "this host has no RDMA device and no NIC that the plan could use; `isolane rdma doctor` says what is missing"
        ],
    );
}

#[test]
fn strict_classes_get_the_last_classes_of_a_small_device() {
    let mut small = host("legacy.json");
    small.devices[0].bridging.as_mut().unwrap().classes = 3;
    let policy = r#"
        [[class]]
        name = "a"
        dscp = 10
        [[class]]
        name = "b"
        strict = true
        dscp = 20
        [[class]]
        name = "c"
        strict = true
        dscp = 30
        [[tenant]]
        name = "t"
        class = "a"
    "#;
    check(
        policy,
        &small,
        expect![[r#"
            traffic classes of ens1f0np0: class 0 100 % (priority 0,1,2,3,6,7), class 1 strict (priority 4), class 2 strict (priority 5)
            DSCP 30 of ens1f0np0: priority 4
            DSCP 20 of ens1f0np0: priority 5
            flow control of ens1f0np0: no priority
            class a a share of the port: isolaned
        "#]],
    );
}

#[test]
fn a_port_without_enough_buffer_keeps_its_own() {
    let mut small = host("switchdev.json");
    small.devices[0]
        .bridging
        .as_mut()
        .unwrap()
        .buffers
        .as_mut()
        .unwrap()
        .total_bytes = 100_000;
    let policy = "cable_m = 100\n[[class]]\nname = \"a\"\ndscp = 26\nlossless = true\n[[tenant]]\nname = \"t\"\nclass = \"a\"\n";
    check(
        policy,
        &small,
        expect![[r#"
            traffic classes of ens1f0np0: class 0 1 % (priority 0,1,2,4,5,6,7), class 1 99 % (priority 3)
            DSCP 26 of ens1f0np0: priority 3
            flow control of ens1f0np0: priority 3
            class a a buffer for 100 m of cable: you
        "#]],
    );
}

#[test]
fn the_daemon_gets_the_tenants_that_the_device_cannot_separate() {
    let policy = policy::parse("policy.toml", &example("policy.toml")).unwrap();
    let plan = compile(&policy, &host("rxe.json")).unwrap();
    expect_file!["../../golden/rxe-isolaned.toml"].assert_eq(&plan.daemon.unwrap());
}

/// A policy of random numbers.
fn policies() -> impl Strategy<Value = String> {
    let class = (any::<bool>(), proptest::option::of(1u8..14), any::<bool>());
    let tenant = (1u32..1_000, 0u64..12_000, 0u64..3, 0usize..8);
    let parts = (
        proptest::collection::vec(class, 0..6),
        proptest::collection::vec(tenant, 1..9),
    );
    parts.prop_map(|(classes, tenants)| {
        let mut text = String::from("cable_m = 10\n");
        for (index, (strict, share, lossless)) in classes.iter().enumerate() {
            text.push_str(&format!("[[class]]\nname = \"c{index}\"\nstrict = {strict}\nlossless = {lossless}\ndscp = {index}\n"));
            if let (false, Some(share)) = (strict, share) {
                text.push_str(&format!("share_percent = {share}\n"));
            }
        }
        for (index, (weight, guarantee, extra, class)) in tenants.iter().enumerate() {
            text.push_str(&format!("[[tenant]]\nname = \"t{index}\"\nweight = {weight}\nfunctions = \"vf{index}\"\n"));
            if *guarantee > 0 {
                text.push_str(&format!("guarantee = \"{guarantee}Mb/s\"\n"));
            }
            if *extra > 0 {
                text.push_str(&format!("limit = \"{}Mb/s\"\n", guarantee + extra));
            }
            if *class < classes.len() {
                text.push_str(&format!("class = \"c{class}\"\n"));
            }
        }
        text
    })
}

proptest! {
    #[test]
    fn rates_fit_the_port_and_shares_of_classes_sum_to_a_hundred(text in policies(), name in proptest::sample::select(vec!["switchdev.json", "legacy.json"])) {
        let policy = policy::parse("p.toml", &text).unwrap();
        let host = host(name);
        let Ok(plan) = compile(&policy, &host) else { return Ok(()) };
        let rate = host.devices[0].rate_bps;
        let mut sum = 0;
        for setting in &plan.settings {
            match &setting.value {
                Value::Rate(rate) => {
                    prop_assert_eq!(rate.share_bps % RATE_UNIT_BPS, 0);
                    prop_assert!(rate.max_bps == 0 || rate.share_bps <= rate.max_bps);
                    sum += rate.share_bps;
                }
                Value::FunctionRate { share_mbps, max_mbps } => {
                    prop_assert!(*max_mbps == 0 || share_mbps <= max_mbps);
                    sum += u64::from(*share_mbps) * RATE_UNIT_BPS;
                }
                Value::Classes(classes) => {
                    let shares: u32 = classes.share_percent.iter().map(|share| u32::from(*share)).sum();
                    prop_assert_eq!(shares, 100);
                }
                _ => {}
            }
        }
        prop_assert!(sum <= rate, "{} of {}", sum, rate);
        // A need is met, or remains with a reason.
        prop_assert!(plan.remaining.iter().all(|remaining| !remaining.reason.is_empty()));
    }
}
