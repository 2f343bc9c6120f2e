//! The file of `isolane rdma enforce`: what is accepted, and what every mistake says.

use crate::enforcement::{Enforcement, OnDeath, parse};
use expect_test::{Expect, expect};
use isolane_common_quantities::units::BitRate;
use proptest::prelude::*;

fn refused(text: &str, expected: Expect) {
    let error = parse(text, "p.toml").expect_err("a mistake");
    expected.assert_eq(&error.to_string());
}

fn accepted(text: &str) -> Enforcement {
    parse(text, "p.toml").unwrap()
}

const FULL: &str = r#"
on_death = "closed"
[capacity]
rate = "25Gb/s"
data_requests_per_s = 30_000_000

[[tenant]]
name = "web"
cgroup = "/kubepods.slice/web"
weight = 2
guarantee = { rate = "10Gb/s", control_requests_per_s = 500, priority = 1 }
control = { memory_regions = 100, burst = 10 }
cap = { objects = 1000, handles = 20 }

[[tenant]]
name = "guests"
others = true
guarantee = { control_requests_per_s = 50 }
"#;

#[test]
fn a_full_file_is_read_to_the_last_key() {
    let file = accepted(FULL);
    assert_eq!(file.on_death, OnDeath::Closed);
    let capacity = file.capacity.unwrap();
    assert_eq!(
        (capacity.rate, capacity.data_requests_per_s),
        (BitRate::from_gbps(25), 30_000_000)
    );
    let web = &file.tenants[0];
    assert_eq!(web.selector.cgroup.as_deref(), Some("/kubepods.slice/web"));
    assert_eq!((web.weight, web.guarantee.priority), (2, 1));
    assert_eq!(
        (web.control.memory_regions, web.control.burst),
        (Some(100), Some(10))
    );
    assert_eq!((web.cap.objects, web.cap.handles), (Some(1000), Some(20)));
    assert!(file.tenants[1].others);
}

#[test]
fn a_limit_of_zero_is_refused() {
    refused(
        "[[tenant]]\nname = \"a\"\nguarantee = { control_requests_per_s = 0 }",
        expect![[r#"p.toml:3: tenant "a": control_requests_per_s = 0: must be 1 to 10000000"#]],
    );
    refused(
        "[[tenant]]\nname = \"a\"\ncontrol = { memory_regions = 0 }",
        expect![[r#"p.toml:3: tenant "a": memory_regions = 0: must be 1 to 10000000"#]],
    );
}

#[test]
fn tenants_that_cannot_be_distinguished_are_refused() {
    refused(
        "[[tenant]]\nname = \"a\"\ncgroup = \"/x\"\n[[tenant]]\nname = \"b\"\ncgroup = \"/x/y\"",
        expect![[
            r#"p.toml:6: tenant "b": cgroup = "/x/y": overlaps with tenant "a": a process could be of both; make the conditions exclude each other"#
        ]],
    );
    refused(
        "[[tenant]]\nname = \"a\"\nuser = 1000\n[[tenant]]\nname = \"b\"\nuser = 1000",
        expect![[
            r#"p.toml:6: tenant "b": user = 1000: overlaps with tenant "a": a process could be of both; make the conditions exclude each other"#
        ]],
    );
    refused(
        "[[tenant]]\nname = \"a\"\nothers = true\n[[tenant]]\nname = \"b\"\nothers = true",
        expect![[
            r#"p.toml:6: tenant "b": others = true: tenant "a" already takes all other processes"#
        ]],
    );
    refused(
        "[[tenant]]\nname = \"a\"\n[[tenant]]\nname = \"a\"",
        expect![[
            r#"p.toml:4: tenant "a": name = "a": is the name of an earlier tenant: choose another"#
        ]],
    );
}

#[test]
fn tenants_of_one_user_in_two_cgroups_are_distinguished() {
    let file = accepted(
        "[[tenant]]\nname = \"a\"\nuser = 1\ncgroup = \"/x\"\n[[tenant]]\nname = \"b\"\nuser = 1\ncgroup = \"/x2\"",
    );
    assert_eq!(file.tenants.len(), 2);
}

#[test]
fn the_more_precise_condition_wins() {
    let file = accepted(
        "[[tenant]]\nname = \"a\"\nuser = 1\n[[tenant]]\nname = \"b\"\ncgroup = \"/x\"\n[[tenant]]\nname = \"c\"\npod = \"u\"",
    );
    let precision: Vec<u32> = file
        .tenants
        .iter()
        .map(|tenant| tenant.selector.precision())
        .collect();
    assert_eq!(precision, [1, 2, 4]);
}

#[test]
fn mistakes_name_the_line_and_the_remedy() {
    refused("", expect!["p.toml:1: tenant is missing: the tenants"]);
    refused(
        "[[tenant]]\nname = \"a\"\ncgroups = \"/x\"",
        expect!["p.toml:3: unknown key cgroups; did you mean cgroup?"],
    );
    refused(
        "[[tenant]]\nname = \"a\"\ncgroup = \"x\"",
        expect![[
            r#"p.toml:3: tenant "a": cgroup = "x": must begin with /, as the line 0:: of /proc/PID/cgroup shows it"#
        ]],
    );
    refused(
        "[[tenant]]\nname = \"a\"\nguarantee = { rate = \"1Gb/s\" }",
        expect![[
            r#"p.toml:3: tenant "a": a guarantee of rate or data requests needs the NIC's: add [capacity] with its rate"#
        ]],
    );
    refused(
        "[[tenant]]\nname = \"a\"\nuser = 7\ncap = { objects = 5 }",
        expect![[
            r#"p.toml:4: tenant "a": cap = { objects = 5 }: is a limit of a cgroup: name the tenant's cgroup as well"#
        ]],
    );
    refused(
        "on_death = \"ajar\"\n[[tenant]]\nname = \"a\"",
        expect![[r#"p.toml:1: on_death = "ajar": unknown; must be one of open, closed"#]],
    );
}

proptest! {
    /// Any bytes and any edit of a valid file: an answer or a message with the file's name, never a panic.
    #[test]
    fn any_text_is_read_or_refused(cut in 0_usize..FULL.len(), paste in "[ -~\n]{0,20}", drop in 0_usize..40) {
        let end = (cut + drop).min(FULL.len());
        let text = format!("{}{paste}{}", &FULL[..cut], &FULL[end..]);
        if let Err(error) = parse(&text, "p.toml") {
            prop_assert!(error.to_string().starts_with("p.toml"));
        }
    }

    #[test]
    fn any_noise_is_refused_politely(text in ".{0,200}") {
        if let Err(error) = parse(&text, "p.toml") {
            prop_assert!(error.to_string().starts_with("p.toml"));
        }
    }
}
