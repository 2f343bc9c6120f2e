//! More than two hosts on one switch.
use crate::common::{self, counter, goodput, of, p99, ratio, run, scenario};
use isolane_rdma_scenario::model::Host;
use isolane_rdma_scenario::model::Host::{A, B, C, D};

/// A tenant of closed-loop WRITEs from one host to another.
fn writes(name: &str, from: char, to: char, size: &str) -> String {
    format!(
        "\n[[tenant]]\nname = \"{name}\"\nclass = \"bandwidth\"\n[[tenant.traffic]]\nverb = \"write\"\n\
         size = \"{size}\"\nqueue_pairs = 4\ndepth = 16\nfrom = \"{from}\"\nto = \"{to}\"\n"
    )
}

fn on_a_switch(duration: &str, tenants: &str) -> String {
    format!("topology = \"switch\"\nduration = \"{duration}\"\n{tenants}")
}

#[test]
fn a_cable_joins_two_hosts_only() {
    let text = format!(
        "profile = \"cx5-100g-roce\"\n{}",
        writes("t", 'a', 'c', "4KiB")
    );
    let library = isolane_rdma_scenario::library::Library::embedded();
    let error =
        isolane_rdma_scenario::parse(&text, "test.toml", &library).expect_err("no cable to c");
    let message = error.to_string();
    assert!(
        message.contains("\"t\" uses host c: must be \"switch\""),
        "{message}"
    );
    assert!(
        !scenario(&on_a_switch("1ms", &writes("t", 'a', 'c', "4KiB")))
            .tenants
            .is_empty()
    );
}

#[test]
fn pairs_of_hosts_do_not_disturb_each_other() {
    let alone = run(&on_a_switch("1ms", &writes("ab", 'a', 'b', "64KiB")));
    let both = run(&on_a_switch(
        "1ms",
        &format!(
            "{}{}",
            writes("ab", 'a', 'b', "64KiB"),
            writes("cd", 'c', 'd', "64KiB")
        ),
    ));
    let (before, after) = (goodput(&alone, "ab"), goodput(&both, "ab"));
    assert!((after / before - 1.0).abs() < 0.01, "{before} {after}");
    assert!((goodput(&both, "cd") / before - 1.0).abs() < 0.01);
}

#[test]
fn results_have_the_hosts_in_use_and_the_first_two() {
    let hosts = |tenants: &str| -> Vec<Host> {
        let result = run(&on_a_switch("100us", tenants));
        result.counters.iter().map(|of| of.host).collect()
    };
    assert_eq!(hosts(&writes("t", 'a', 'b', "4KiB")), [A, B]);
    assert_eq!(hosts(&writes("t", 'a', 'd', "4KiB")), [A, B, D]);
}

/// Several senders to one host: its port carries no more than the link, every sender gets a part, and what was sent
/// arrives but for what the switch holds and what is under way.
#[test]
fn many_senders_share_the_port_of_one_receiver() {
    let senders = ['b', 'c', 'd'];
    let tenants: String = senders
        .iter()
        .map(|&from| writes(&format!("from-{from}"), from, 'a', "64KiB"))
        .collect();
    let result = run(&on_a_switch("4ms", &tenants));
    let total: f64 = result
        .tenants
        .iter()
        .map(|tenant| tenant.goodput_gbps)
        .sum();
    assert!((80.0..100.0).contains(&total), "{total}");
    assert!(ratio(&result, A, "link_rx_utilisation") <= 1.0);
    for tenant in &result.tenants {
        assert!(tenant.goodput_gbps > 10.0, "{tenant:?}");
    }
    let sent: u64 = [B, C, D]
        .iter()
        .map(|&host| counter(&result, host, "tx_vport_rdma_unicast_bytes"))
        .sum();
    let received = counter(&result, A, "rx_vport_rdma_unicast_bytes");
    assert!(sent.abs_diff(received) < 4 << 20, "{sent} {received}");
    assert!(counter(&result, A, "np_ecn_marked_roce_packets") > 0);
}

/// Without congestion control only pauses are left. They stop whole ports: a host that overruns one receiver, in
/// company, cannot send to an idle one either.
#[test]
fn a_pause_reaches_the_ports_that_feed_the_full_one_and_no_other() {
    let incast: String = ['b', 'c']
        .iter()
        .map(|&from| writes(&format!("from-{from}"), from, 'a', "64KiB"))
        .collect();
    let text = on_a_switch(
        "4ms",
        &format!("{incast}{}", writes("apart", 'e', 'd', "64KiB")),
    );
    let result = common::run_with(&text, &[("congestion", "enabled", 0.0)]);
    for host in [B, C] {
        assert!(counter(&result, host, "rx_prio3_pause") > 0, "{host:?}");
    }
    assert_eq!(counter(&result, Host::E, "rx_prio3_pause"), 0);
    assert!(goodput(&result, "apart") > 90.0);
    let [one, two] = ["from-b", "from-c"].map(|name| goodput(&result, name));
    assert!(
        (one + two) > 85.0 && (one / two - 1.0).abs() < 0.2,
        "{one} {two}"
    );
}

#[test]
fn justitia_protects_a_latency_tenant_whose_competitor_sends_to_a_third_host() {
    let ping = "\n[[tenant]]\nname = \"ping\"\nclass = \"latency\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 16\n\
                inline = 16\ndepth = 1\narrival = \"ping-pong\"\nfrom = \"a\"\nto = \"b\"\n";
    let bulk = writes("bulk", 'a', 'c', "1MiB");
    let under = |policy: &str| {
        run(&format!(
            "topology = \"switch\"\nwarmup = \"8ms\"\nduration = \"4ms\"\n[policy]\nname = \"{policy}\"\n{ping}{bulk}"
        ))
    };
    let (raw, paced) = (under("none"), under("justitia"));
    assert!(p99(&paced, "ping") < p99(&raw, "ping"));
    assert!(of(&paced, "bulk").goodput_gbps > 20.0);
    assert!(paced.policy_state["host_a.reference_samples"] > 100.0);
}

/// Every pair of eight hosts: nothing gets stuck, and equal runs are equal.
#[test]
fn eight_hosts_all_to_all_make_progress_and_repeat() {
    let mut tenants = String::new();
    let hosts = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];
    for from in hosts {
        for to in hosts.into_iter().filter(|&to| to != from) {
            tenants += &writes(&format!("{from}{to}"), from, to, "16KiB");
        }
    }
    let text = on_a_switch("500us", &tenants);
    let (one, two) = (run(&text), run(&text));
    assert_eq!(one, two);
    assert_eq!(one.counters.len(), 8);
    for tenant in &one.tenants {
        assert!(tenant.goodput_gbps > 0.0, "{}", tenant.name);
    }
}
