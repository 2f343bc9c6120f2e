//! Scenarios as short texts, and the figures for the tests.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::model::{Host, Scenario};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_results::rdma::{RunResult, TenantResult};

/// Parses a scenario; a text without a profile gets `cx5-100g-roce`.
pub fn scenario(text: &str) -> Scenario {
    let text = if text.contains("profile =") {
        text.to_owned()
    } else {
        format!("profile = \"cx5-100g-roce\"\n{text}")
    };
    isolane_rdma_scenario::parse(&text, "test.toml", &Library::embedded())
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The shipped profile `name`.
pub fn profile(name: &str) -> Profile {
    Library::embedded()
        .profile(name)
        .expect("a shipped profile")
        .clone()
}

/// Runs a scenario text on its profile.
pub fn run(text: &str) -> RunResult {
    run_with(text, &[])
}

/// The same on a profile with some parameters changed.
pub fn run_with(text: &str, changes: &[(&str, &str, f64)]) -> RunResult {
    let scenario = scenario(text);
    let mut profile = profile(&scenario.profile);
    for &(section, name, value) in changes {
        let map = profile.section_mut(section);
        let map = map.unwrap_or_else(|| panic!("no section {section}"));
        map.get_mut(name)
            .unwrap_or_else(|| panic!("no {section}.{name}"))
            .value = value;
    }
    isolane_rdma_simulator::rnic::run(&scenario, &profile).unwrap_or_else(|error| panic!("{error}"))
}

/// One tenant with one kind of traffic.
pub fn tenant(name: &str, class: &str, traffic: &str) -> String {
    format!("\n[[tenant]]\nname = \"{name}\"\nclass = \"{class}\"\n[[tenant.traffic]]\n{traffic}\n")
}

/// `pairs` queue pairs of closed-loop WRITEs of `size`.
pub fn bulk(name: &str, size: &str, pairs: u32) -> String {
    tenant(
        name,
        "bandwidth",
        &format!("verb = \"write\"\nsize = \"{size}\"\nqueue_pairs = {pairs}\ndepth = 4"),
    )
}

/// A ping-pong of inline 16 B WRITEs.
pub fn small(name: &str) -> String {
    tenant(
        name,
        "latency",
        "verb = \"write\"\nsize = 16\ninline = 16\ndepth = 1\narrival = \"ping-pong\"",
    )
}

/// The tenant called `name`.
pub fn of<'a>(result: &'a RunResult, name: &str) -> &'a TenantResult {
    result
        .tenant(name)
        .unwrap_or_else(|| panic!("no tenant {name}"))
}

/// Goodput of a tenant, Gb/s.
pub fn goodput(result: &RunResult, name: &str) -> f64 {
    of(result, name).goodput_gbps
}

/// Median latency of a tenant, us.
pub fn median(result: &RunResult, name: &str) -> f64 {
    of(result, name)
        .latency_us
        .as_ref()
        .unwrap_or_else(|| panic!("{name} completed nothing"))
        .p50
}

/// 99th percentile of a tenant's latency, us.
pub fn p99(result: &RunResult, name: &str) -> f64 {
    of(result, name)
        .latency_us
        .as_ref()
        .unwrap_or_else(|| panic!("{name} completed nothing"))
        .p99
}

/// A counter of a host.
pub fn counter(result: &RunResult, host: Host, name: &str) -> u64 {
    let counters = result
        .counters
        .iter()
        .find(|counters| counters.host == host)
        .expect("both hosts report");
    *counters
        .values
        .get(name)
        .unwrap_or_else(|| panic!("no counter {name}"))
}

/// A ratio of a host.
pub fn ratio(result: &RunResult, host: Host, name: &str) -> f64 {
    let counters = result
        .counters
        .iter()
        .find(|counters| counters.host == host)
        .expect("both hosts report");
    *counters
        .ratios
        .get(name)
        .unwrap_or_else(|| panic!("no ratio {name}"))
}
