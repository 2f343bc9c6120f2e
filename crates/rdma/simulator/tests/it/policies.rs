//! What each policy promises, kept on the simulated NIC.
use crate::common::{bulk, counter, goodput, median, of, p99, run, small, tenant};
use isolane_rdma_scenario::model::{Class, Host};
use isolane_study_results::rdma::RunResult;

fn under(policy: &str, tenants: &str) -> RunResult {
    run(&format!(
        "warmup = \"8ms\"\nduration = \"4ms\"\n[policy]\nname = \"{policy}\"\n{tenants}"
    ))
}

#[test]
fn justitia_shares_equally_between_large_and_small_messages_and_one_and_many_pairs() {
    for latency in [String::new(), small("pings")] {
        for (left, right) in [(("1MiB", 1), ("64KiB", 1)), (("1MiB", 16), ("1MiB", 1))] {
            let tenants = bulk("left", left.0, left.1) + &bulk("right", right.0, right.1);
            let result = under("justitia", &format!("{latency}{tenants}"));
            let ratio = goodput(&result, "left") / goodput(&result, "right");
            assert!((ratio - 1.0).abs() < 0.1, "{left:?} to {right:?}: {ratio}");
        }
    }
}

#[test]
fn without_a_policy_pairs_decide() {
    let pairs = under(
        "none",
        &format!("{}{}", bulk("many", "1MiB", 16), bulk("one", "1MiB", 1)),
    );
    let ratio = goodput(&pairs, "many") / goodput(&pairs, "one");
    assert!((ratio - 16.0).abs() < 1.0, "{ratio}");
}

#[test]
fn justitia_shares_by_weight() {
    let weighted = |name: &str, weight: u32| {
        bulk(name, "1MiB", 2).replace("class =", &format!("weight = {weight}\nclass ="))
    };
    let result = under(
        "justitia",
        &format!(
            "{}{}{}",
            weighted("one", 1),
            weighted("two", 2),
            weighted("four", 4)
        ),
    );
    let one = goodput(&result, "one");
    for (name, weight) in [("two", 2.0), ("four", 4.0)] {
        let ratio = goodput(&result, name) / one;
        assert!((ratio / weight - 1.0).abs() < 0.1, "{name}: {ratio}");
    }
    let total: f64 = result
        .tenants
        .iter()
        .map(|tenant| tenant.goodput_gbps)
        .sum();
    assert!(total > 90.0, "{total}");
}

#[test]
fn justitia_keeps_latency_near_idle() {
    let idle = p99(&under("none", &small("pings")), "pings");
    let bulk = bulk("bulk", "1MiB", 16);
    let none = p99(
        &under("none", &format!("{}{bulk}", small("pings"))),
        "pings",
    );
    let justitia = under("justitia", &format!("{}{bulk}", small("pings")));
    assert!(none > 3.0 * idle, "{none} {idle}");
    assert!(
        p99(&justitia, "pings") < 2.0 * idle,
        "{} {idle}",
        p99(&justitia, "pings")
    );
    assert!(
        goodput(&justitia, "bulk") > 40.0,
        "{}",
        goodput(&justitia, "bulk")
    );
}

#[test]
fn lite_helps_latency_and_costs_bandwidth() {
    let tenants = format!("{}{}", small("pings"), bulk("bulk", "1MiB", 16));
    let (none, lite) = (under("none", &tenants), under("lite", &tenants));
    // While latency work is seen, LITE holds low priority to half of the device without splitting its messages.
    assert!(median(&lite, "pings") < 0.7 * median(&none, "pings"));
    let kept = goodput(&lite, "bulk") / goodput(&none, "bulk");
    assert!((0.2..0.55).contains(&kept), "{kept}");
}

#[test]
fn reads_are_paced_by_the_host_whose_nic_they_load() {
    let reads = tenant(
        "reads",
        "bandwidth",
        "verb = \"read\"\nsize = \"1MiB\"\nqueue_pairs = 4\ndepth = 4\nfrom = \"b\"\nto = \"a\"",
    );
    let tenants = format!("{}{}{reads}", small("pings"), bulk("writes", "1MiB", 4));
    let result = under("justitia", &tenants);
    // Both leave host A's NIC.
    let ratio = goodput(&result, "reads") / goodput(&result, "writes");
    assert!((ratio - 1.0).abs() < 0.15, "{ratio}");
    let none = p99(&under("none", &tenants), "pings");
    assert!(
        p99(&result, "pings") < 0.7 * none,
        "{} {none}",
        p99(&result, "pings")
    );
}

#[test]
fn an_idle_tenant_returns_its_share() {
    // One tenant sends a message every 50 ms, that is: once.
    let idle = tenant(
        "idle",
        "bandwidth",
        "verb = \"write\"\nsize = \"1MiB\"\narrival = \"open\"\ninterval = \"50ms\"",
    );
    let text = format!(
        "warmup = \"20ms\"\nduration = \"4ms\"\n[policy]\nname = \"justitia\"\nidle_after_us = 2000\n{}{idle}",
        bulk("busy", "1MiB", 4)
    );
    let result = run(&text);
    assert!(
        goodput(&result, "busy") > 90.0,
        "{}",
        goodput(&result, "busy")
    );
}

#[test]
fn a_mislabelled_tenant_is_caught_when_declarations_are_not_trusted() {
    let text = |trust: u32| {
        let liar = bulk("liar", "1MiB", 8).replace("\"bandwidth\"", "\"latency\"");
        format!(
            "warmup = \"10ms\"\nduration = \"4ms\"\n[policy]\nname = \"justitia\"\ntrust_declared = {trust}\n{}{}{liar}",
            small("pings"),
            bulk("honest", "1MiB", 1)
        )
    };
    let (trusted, checked) = (run(&text(1)), run(&text(0)));
    assert_eq!(of(&trusted, "liar").class, Class::Latency);
    assert_eq!(of(&checked, "liar").class, Class::Bandwidth);
    assert_eq!(of(&checked, "pings").class, Class::Latency);
    assert!(p99(&checked, "pings") < p99(&trusted, "pings"));
    let ratio = goodput(&checked, "liar") / goodput(&checked, "honest");
    assert!((ratio - 1.0).abs() < 0.15, "{ratio}");
}

#[test]
fn a_tenant_that_says_nothing_is_classified() {
    let quiet = |text: String| {
        text.replace("class = \"bandwidth\"", "class = \"auto\"")
            .replace("class = \"latency\"", "class = \"auto\"")
    };
    let result = under(
        "justitia",
        &quiet(format!("{}{}", small("pings"), bulk("bulk", "1MiB", 4))),
    );
    assert_eq!(of(&result, "pings").class, Class::Latency);
    assert_eq!(of(&result, "bulk").class, Class::Bandwidth);
}

#[test]
fn splitting_leaves_messages_whole_for_the_application() {
    let result = under(
        "justitia",
        &format!("{}{}", small("pings"), bulk("bulk", "64KiB", 4)),
    );
    let bulk = of(&result, "bulk");
    let bytes_per_message = bulk.goodput_gbps * 1e9 / 8.0 / bulk.message_rate_per_s;
    assert!(
        (bytes_per_message / 65_536.0 - 1.0).abs() < 0.02,
        "{bytes_per_message}"
    );
    assert!(
        counter(&result, Host::A, "wqe_fetched") as f64
            > 1.5 * bulk.message_rate_per_s * result.measured_s
    );
}
