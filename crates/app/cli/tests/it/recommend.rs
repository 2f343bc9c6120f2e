//! `isolane recommend`: objectives that it derives, tenants that it cannot judge, hardware that is not on sale.
#![allow(clippy::unwrap_used)]

use crate::newcomer::file;
use crate::support::{check, has_all};
use std::fs;
use std::path::Path;

/// The scenario that README shows as the user's own tenants.
fn readme_scenario(directory: &Path) -> String {
    let readme = fs::read_to_string(file("README.md")).unwrap();
    let begin = readme.find("```toml\nprofile = ").unwrap() + "```toml\n".len();
    let end = begin + readme[begin..].find("```").unwrap();
    let path = directory.join("mine.toml");
    fs::write(&path, &readme[begin..end]).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_scenario_of_the_readme_gets_a_recommendation_with_derived_objectives() {
    let directory = tempfile::tempdir().unwrap();
    let mine = readme_scenario(directory.path());
    let ask = [
        "recommend",
        &mine,
        "--policies",
        "none,justitia",
        "--seeds",
        "1",
    ];
    let (text, _) = check(&ask, 0);
    has_all(
        &text,
        &[
            "No tenant states an objective",
            "cache: slo = { p99_max = ",
            "backup: slo = { goodput_min = ",
        ],
    );
    // The lines that it prints are the objectives: a scenario with them gets the same answer.
    let slo = |tenant: &str| {
        let line = text
            .lines()
            .find(|line| line.trim().starts_with(&format!("{tenant}: slo")));
        line.unwrap().split_once(": ").unwrap().1.to_owned()
    };
    let mut own = fs::read_to_string(&mine).unwrap();
    for tenant in ["cache", "backup"] {
        let name = format!("name = \"{tenant}\"\n");
        own = own.replace(&name, &format!("{name}{}\n", slo(tenant)));
    }
    fs::write(&mine, own).unwrap();
    let (again, _) = check(&ask, 0);
    assert!(!again.contains("No tenant states an objective"), "{again}");
    let table = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.contains('/'));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(table(&text)[..3], table(&again)[..3]);
}

#[test]
fn a_tenant_without_a_measurement_is_named_and_does_not_pass_a_gate() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("silent.toml");
    let text = r#"
        profile = "cx3pro-56g-ib"
        warmup = "1ms"
        duration = "5ms"

        [[tenant]]
        name = "slow"
        class = "latency"
        traffic = [{ verb = "write", size = 16, arrival = "open", interval = "50ms" }]

        [[tenant]]
        name = "bulk"
        class = "bandwidth"
        traffic = [{ verb = "write", size = "1MB", depth = 1 }]
    "#;
    fs::write(&path, text).unwrap();
    let words = [
        "recommend",
        path.to_str().unwrap(),
        "--seeds",
        "1",
        "--policies",
        "none",
    ];
    let (_, said) = check(&[&words[..], &["--fail-on-violation"]].concat(), 1);
    has_all(
        &said,
        &["tenant slow completes nothing", "give the tenant an slo"],
    );
}

#[test]
fn hardware_that_is_not_on_sale_is_marked_and_advised_on_request_only() {
    let directory = tempfile::tempdir().unwrap();
    let mine = readme_scenario(directory.path());
    let start = ["recommend", &mine, "--seeds", "1", "--json"];
    let answer = |more: &[&str]| -> serde_json::Value {
        let (text, _) = check(&[&start[..], more].concat(), 0);
        serde_json::from_str(&text).unwrap()
    };
    let usual = answer(&[]);
    let policies = usual["policies"].as_array().unwrap();
    let on_sale: Vec<bool> = policies
        .iter()
        .map(|one| one["on_sale"].as_bool().unwrap())
        .collect();
    let mut sorted = on_sale.clone();
    sorted.sort_by_key(|on_sale| !on_sale);
    assert!(on_sale == sorted && on_sale.contains(&false), "{on_sale:?}");
    let advice = usual["advice"].as_str().unwrap();
    assert!(
        !advice.contains("isolane ") && !advice.contains("isolane,"),
        "{advice}"
    );
    let asked = answer(&["--policies", "none,isolane"]);
    let advice = asked["advice"].as_str().unwrap();
    assert!(advice.starts_with("isolane meets"), "{advice}");
    let (list, _) = check(&["catalog", "policies"], 0);
    has_all(
        &list,
        &["isolane *", "* needs hardware that is not on sale"],
    );
    let (run, _) = check(
        &[
            "sim",
            &mine,
            "--policies",
            "none,palos",
            "--duration",
            "100us",
        ],
        0,
    );
    has_all(&run, &["palos *", "* needs hardware that is not on sale"]);
}
