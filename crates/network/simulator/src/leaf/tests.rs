//! Both models together: times add up, marks and pauses cross the border, nothing is lost, equal runs are equal.

use super::*;
use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::model::Host;
use isolane_study_results::rdma::TenantResult;

const PROFILE: &str = "cx4lx-10g-roce";

fn scenario(network: &str, tenants: &str) -> Scenario {
    let text = format!(
        "profile = \"{PROFILE}\"\ntopology = \"switch\"\nwarmup = \"200us\"\nduration = \"2ms\"\n{network}{tenants}"
    );
    isolane_rdma_scenario::parse(&text, "test.toml", &Library::embedded())
        .expect("a valid scenario")
}

/// Two hosts on one switch with the delays of the RNIC model's own: 50 ns of cable twice and 220 ns of switch.
fn one_switch(hosts: u32, ecn: &str) -> String {
    let places: Vec<String> = (0..hosts).map(|host| host.to_string()).collect();
    format!(
        "[network]\nhosts = [{}]\n[network.fabric]\ntopology = \"single-switch\"\nhosts = {hosts}\nrate = \"10Gb/s\"\n\
         hop_delay = \"160ns\"\n[network.ports]\nmtu = 1024\nheader = 98\nbuffer = \"512KiB\"\n{ecn}\
         pfc = {{ xoff = \"300KB\", xon = \"280KB\" }}\n",
        places.join(", ")
    )
}

fn tenant(name: &str, from: &str, size: &str) -> String {
    format!(
        "[[tenant]]\nname = \"{name}\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = \"{size}\"\ndepth = 1\n\
         from = \"{from}\"\nto = \"a\"\n"
    )
}

fn run_leaf(scenario: &Scenario) -> RunResult {
    let library = Library::embedded();
    run(scenario, library.profile(PROFILE).expect("shipped")).expect("it runs")
}

fn of<'a>(result: &'a RunResult, name: &str) -> &'a TenantResult {
    let found = result.tenants.iter().find(|tenant| tenant.name == name);
    found.expect("a tenant of the scenario")
}

fn counter(result: &RunResult, host: Host, name: &str) -> u64 {
    let of = result
        .counters
        .iter()
        .find(|counters| counters.host == host);
    of.expect("a host of the scenario").values[name]
}

#[test]
fn a_lone_message_is_later_than_behind_the_own_switch_by_storing_its_frames() {
    let tenants = tenant("one", "b", "16B");
    let with = scenario(&one_switch(2, ""), &tenants);
    let without = scenario("", &tenants);
    let library = Library::embedded();
    let own =
        isolane_rdma_simulator::rnic::run(&without, library.profile(PROFILE).unwrap()).unwrap();
    let (leaf, own) = (of(&run_leaf(&with), "one").clone(), of(&own, "one").clone());
    let (leaf, own) = (leaf.latency_us.unwrap(), own.latency_us.unwrap());
    // 16 + 82 + 16 B and an answer of 86 B at 10 Gb/s, each stored once: 91 + 69 ns. Buckets of latencies are 1 % wide.
    let later = leaf.min - own.min;
    assert!((later - 0.160).abs() < 0.02 * own.min, "{later} us");
}

#[test]
fn equal_runs_are_equal() {
    let both = tenant("one", "b", "100KB") + &tenant("two", "c", "100KB");
    let scenario = scenario(
        &one_switch(3, "ecn = { min = \"20KB\", max = \"100KB\" }\n"),
        &both,
    );
    assert_eq!(run_leaf(&scenario), run_leaf(&scenario));
}

#[test]
fn two_senders_fill_the_receivers_line_and_the_networks_marks_slow_them() {
    let both = tenant("one", "b", "1MB") + &tenant("two", "c", "1MB");
    let marking = "ecn = { min = \"20KB\", max = \"100KB\" }\n";
    let result = run_leaf(&scenario(&one_switch(3, marking), &both));
    assert!(counter(&result, Host::A, "np_ecn_marked_roce_packets") > 0);
    assert!(counter(&result, Host::B, "rp_cnp_handled") > 0);
    assert!(counter(&result, Host::C, "rp_cnp_handled") > 0);
    assert!(result.policy_state["network.frames_marked"] > 0.0);
    assert_eq!(result.policy_state["network.packets_dropped"], 0.0);
}

#[test]
fn without_marks_pauses_of_the_switch_hold_the_senders_and_nothing_is_lost() {
    let both = tenant("one", "b", "1MB") + &tenant("two", "c", "1MB");
    let result = run_leaf(&scenario(&one_switch(3, ""), &both));
    assert_eq!(counter(&result, Host::A, "np_ecn_marked_roce_packets"), 0);
    assert!(counter(&result, Host::B, "rx_prio3_pause") > 0);
    assert!(counter(&result, Host::C, "rx_prio3_pause") > 0);
    // 1,024 of 1,106 B are payload; both together have the whole line.
    let goodput = of(&result, "one").goodput_gbps + of(&result, "two").goodput_gbps;
    assert!((9.1..=9.26).contains(&goodput), "{goodput}");
    assert_eq!(result.policy_state["network.packets_dropped"], 0.0);
}

#[test]
fn reads_and_their_answers_cross_the_network() {
    let read = "[[tenant]]\nname = \"read\"\n[[tenant.traffic]]\nverb = \"read\"\nsize = \"100KB\"\ndepth = 4\n";
    let result = run_leaf(&scenario(&one_switch(2, ""), read));
    assert!(of(&result, "read").goodput_gbps > 8.5);
}

#[test]
fn other_traffic_on_the_uplink_delays_the_hosts_frames() {
    // Four windows of 64 packets, 280 KB, wait at a line of 20 Gb/s: more than 100 us.
    let racks = |others: &str| {
        format!(
            "[network]\nhosts = [4, 9]\n[network.fabric]\ntopology = \"two-racks\"\nhosts_per_rack = 5\nrate = \"10Gb/s\"\n\
             uplink_rate = \"20Gb/s\"\n[network.ports]\nmtu = 1024\nheader = 98\nbuffer = \"512KiB\"\n\
             ecn = {{ min = \"40KB\", max = \"200KB\", max_probability = 0.01 }}\n\
             pfc = {{ xoff = \"300KB\", xon = \"280KB\" }}\n[network.transport]\ncongestion = \"window\"\nwindow_packets = 64\n{others}"
        )
    };
    let others = "[[network.class]]\nname = \"all\"\n[[network.traffic]]\npattern = \"pairs\"\n\
                  pairs = [[0, 5], [1, 6], [2, 7], [3, 8]]\nsizes = \"1MB\"\nmix = [1.0]\narrivals = \"closed\"\noutstanding = 1\n";
    let small = "[[tenant]]\nname = \"small\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 16\ndepth = 1\n";
    let p99 = |others: &str| {
        let result = run_leaf(&scenario(&racks(others), small));
        of(&result, "small").latency_us.clone().unwrap().p99
    };
    let (alone, among) = (p99(""), p99(others));
    assert!(
        among > 2.0 * alone,
        "{alone} us alone, {among} us among others"
    );
}
