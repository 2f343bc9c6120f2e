//! With any small scenario, the model ends, stays finite and within capacity, and repeats itself.
use crate::common::profile;
use isolane_rdma_scenario::library::Library;
use isolane_study_results::rdma::RunResult;
use proptest::prelude::*;

const PROFILES: [&str; 5] = [
    "cx5-100g-roce",
    "cx3pro-56g-ib",
    "cx6dx-25g-roce",
    "cx6-200g-roce",
    "t62100-40g-iwarp",
];

/// Every part the simulator has, and every two of them that may be combined.
fn policies() -> Vec<String> {
    let parts = isolane_rdma_simulator::rnic::POLICIES;
    let pairs = parts
        .iter()
        .flat_map(|first| parts.iter().map(move |second| format!("{first}+{second}")));
    let all = parts.iter().map(|part| (*part).to_owned()).chain(pairs);
    let mut names: Vec<String> = all
        .filter_map(|name| isolane_rdma_scenario::stack::canonical(&name).ok())
        .collect();
    names.sort();
    names.dedup();
    names
}

const CLASSES: [&str; 4] = ["latency", "throughput", "bandwidth", "auto"];
const SIZES: [u32; 7] = [1, 8, 64, 1000, 4096, 20_000, 1 << 20];
const ENDS: [&str; 4] = [
    "",
    "from = \"b\"\nto = \"a\"\n",
    "to = \"a\"\n",
    "bidirectional = true\n",
];

fn traffic() -> impl Strategy<Value = String> {
    let kind = (
        0usize..8,
        0usize..SIZES.len(),
        0usize..4,
        0usize..ENDS.len(),
    );
    let queues = (1u32..5, 1u32..9, 1u32..4, 1u32..20, 0u32..3);
    (kind, queues, any::<[bool; 4]>()).prop_map(|((kind, size, arrival, ends), (pairs, list, factor, every, batch), flags)| {
        let (verb, transport) = [
            ("write", "rc"), ("write", "uc"), ("read", "rc"), ("send", "rc"), ("send", "uc"), ("send", "ud"),
            ("fetch-add", "rc"), ("compare-swap", "rc"),
        ][kind];
        let atomic = kind >= 6;
        let bytes = if atomic { 8 } else if transport == "ud" { SIZES[size].min(1000) } else { SIZES[size] };
        let answers = matches!(verb, "write" | "send") && transport != "ud" && arrival == 1;
        let (list, depth) = if answers { (1, 1) } else { (list, list * factor) };
        let mut text = format!(
            "verb = \"{verb}\"\ntransport = \"{transport}\"\nsize = {bytes}\nqueue_pairs = {pairs}\npost_list = {list}\ndepth = {depth}\ncompletion_every = {}\n",
            every.min(depth)
        );
        if verb == "send" {
            text += &format!("receive_depth = 16\nreceive_batch = {batch}\n");
        }
        text += match arrival {
            1 if answers => "arrival = \"ping-pong\"\n",
            2 => "arrival = \"open\"\ninterval = \"3us\"\npoisson = true\n",
            3 if !atomic => "arrival = \"paced\"\nrate = \"3Gb/s\"\n",
            _ if flags[0] => "think = \"2us\"\n",
            _ => "",
        };
        if !(answers && ENDS[ends].starts_with("bidirectional")) {
            text += ENDS[ends];
        }
        if flags[1] {
            text += "mtu = 1024\n";
        }
        if flags[2] {
            text += "memory_regions = 300\n";
        }
        if flags[3] && (verb != "send" || batch > 0) {
            text += "iterations = 7\n";
        }
        text
    })
}

fn experiment() -> impl Strategy<Value = String> {
    let tenants = prop::collection::vec((traffic(), 0usize..4, any::<bool>(), any::<bool>()), 1..4);
    let policies = prop::sample::select(policies());
    (tenants, 0usize..PROFILES.len(), policies, any::<bool>(), 0u32..1000).prop_map(
        |(tenants, profile, policy, switch, seed)| {
            let topology = if switch { "switch" } else { "back-to-back" };
            let mut text = format!(
                "profile = \"{}\"\ntopology = \"{topology}\"\nseed = {seed}\nwarmup = \"50us\"\nduration = \"300us\"\n[policy]\nname = \"{}\"\n",
                PROFILES[profile], policy
            );
            for (number, (traffic, class, late, stops)) in tenants.into_iter().enumerate() {
                text += &format!("[[tenant]]\nname = \"t{number}\"\nclass = \"{}\"\n", CLASSES[class]);
                text += if late { "start = \"100us\"\n" } else { "" };
                text += if stops { "stop = \"200us\"\n" } else { "" };
                text += &format!("[[tenant.traffic]]\n{traffic}");
                if number == 1 && stops {
                    text += "[[tenant.control]]\nobject = \"memory-region\"\nobjects = 3\nprocesses = 2\n";
                }
            }
            text
        },
    )
}

fn finite_and_within_capacity(result: &RunResult, link_gbps: f64) -> Result<(), TestCaseError> {
    for tenant in &result.tenants {
        let numbers = [
            tenant.goodput_gbps,
            tenant.wire_gbps,
            tenant.message_rate_per_s,
            tenant.share,
            tenant.policy_cores,
        ];
        prop_assert!(
            numbers
                .iter()
                .all(|number| number.is_finite() && *number >= 0.0),
            "{tenant:?}"
        );
        if let Some(latency) = &tenant.latency_us {
            prop_assert!(
                latency.min > 0.0 && latency.min <= latency.p50 && latency.p50 <= latency.max,
                "{latency:?}"
            );
        }
    }
    for counters in &result.counters {
        for (name, ratio) in &counters.ratios {
            prop_assert!((0.0..=1.0).contains(ratio), "{name} = {ratio}");
        }
        let bytes = counters.values["tx_vport_rdma_unicast_bytes"] as f64;
        // What was booked on the wire within the pipeline's time at the end counts too.
        let slack = link_gbps * 3e-6 * 1e9 / 8.0 + 100_000.0;
        prop_assert!(
            bytes <= link_gbps * 1e9 / 8.0 * result.measured_s + slack,
            "{bytes} B left a {link_gbps} Gb/s port"
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 320, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_small_scenario_runs_and_repeats(text in experiment()) {
        // Some combinations are not allowed on some devices; the parser rejects them.
        let Ok(parsed) = isolane_rdma_scenario::parse(&text, "random.toml", &Library::embedded()) else { return Ok(()) };
        let profile = profile(&parsed.profile);
        let result = isolane_rdma_simulator::rnic::run(&parsed, &profile).expect("policies exist");
        finite_and_within_capacity(&result, profile.value("link", "rate_gbps"))?;
        let again = isolane_rdma_simulator::rnic::run(&parsed, &profile).expect("policies exist");
        prop_assert_eq!(serde_json::to_string(&result).expect("plain data"), serde_json::to_string(&again).expect("plain data"));
    }
}

#[test]
fn most_random_scenarios_are_valid() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let valid = (0..100).filter(|_| {
        let text = experiment()
            .new_tree(&mut runner)
            .expect("generates")
            .current();
        isolane_rdma_scenario::parse(&text, "random.toml", &Library::embedded()).is_ok()
    });
    assert!(valid.count() > 60);
}
