//! Policies that are right, wrong, and written again.

use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;

const WHOLE: &str = r#"device = "mlx5_0"
rate = "100 Gb/s"
cable_m = 5

[[class]]
name = "latency"
strict = true
dscp = 46

[[class]]
name = "bulk"
share_percent = 60
priority = 3
lossless = true

[[tenant]]
name = "cache"
weight = 2
guarantee = "10 Gb/s"
limit = "40 Gb/s"
p99 = "2500ns"
class = "latency"
functions = ["vf0", "sf88"]
cgroup = "/tenants/cache"
objects_max = 1000
handles_max = 8
"#;

fn rejected(text: &str, message: Expect) {
    message.assert_eq(&parse("p.toml", text).unwrap_err().to_string());
}

/// `WHOLE` with one line replaced.
fn with(line: &str, by: &str) -> String {
    assert!(WHOLE.contains(line));
    WHOLE.replace(line, by)
}

#[test]
fn a_written_policy_reads_back() {
    let policy = parse("p.toml", WHOLE).unwrap();
    assert_eq!(policy.to_toml(), WHOLE);
    assert_eq!(parse("p.toml", &policy.to_toml()).unwrap(), policy);
}

#[test]
fn mistakes_are_named_with_line_and_remedy() {
    rejected(
        &with("class = \"latency\"", "class = \"latncy\""),
        expect![[r#"p.toml:22: tenant "cache": class = "latncy": unknown; did you mean latency?"#]],
    );
    rejected(
        &with("guarantee = \"10 Gb/s\"", "guarantee = \"50Gb/s\""),
        expect![[
            r#"p.toml:19: tenant "cache": guarantee = "50Gb/s": must be at most limit, 40.00Gb/s"#
        ]],
    );
    rejected(
        &with("\"sf88\"", "\"sf088\""),
        expect![[
            r#"p.toml:23: tenant "cache": functions = ["vf0", "sf088"]: must be "vfN" or "sfN" with N from 0, or a list of them"#
        ]],
    );
    rejected(
        &with("/tenants/cache", "/tenants/../x"),
        expect![[
            r#"p.toml:24: tenant "cache": cgroup = "/tenants/../x": must be a path below the cgroup mount, like "/tenants/blue""#
        ]],
    );
    rejected(
        &with("strict = true", "strict = true\nshare_percent = 20"),
        expect![[
            r#"p.toml:8: class "latency": share_percent = 20: is for a class with a share; remove it or strict"#
        ]],
    );
    rejected(
        &with("cgroup = \"/tenants/cache\"\n", ""),
        expect![[
            r#"p.toml:16: tenant "cache": cgroup is missing: objects_max and handles_max limit a cgroup; name it"#
        ]],
    );
    rejected(
        &format!("{WHOLE}\n[[tenant]]\nname = \"two\"\nfunctions = \"vf0\"\n"),
        expect![[
            r#"p.toml:30: tenant "two": functions = "vf0": vf0 is a function of tenant cache too; each has one tenant"#
        ]],
    );
    rejected(
        "device = \"mlx5_0\"\n",
        expect!["p.toml:1: tenant is missing: a tenant: at least one [[tenant]]"],
    );
}

#[test]
fn the_schema_lists_every_key() {
    let schema = schema();
    let tenant = &schema["properties"]["tenant"]["items"]["properties"];
    assert_eq!(tenant.as_object().unwrap().len(), TENANT.len());
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,200}") {
        let _ = parse("p.toml", &text);
    }
}
