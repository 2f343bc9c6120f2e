//! What Palos does for tenants on the simulated NIC (palos IV, V).
use crate::common::{goodput, median, of, p99, run, small, tenant};
use isolane_study_results::rdma::RunResult;

fn palos(parameters: &str, tenants: &str) -> RunResult {
    run(&format!(
        "warmup = \"1ms\"\nduration = \"4ms\"\n[policy]\nname = \"palos\"\n{parameters}\n{tenants}"
    ))
}

/// A group of `weight` with one kind of traffic for each size, count and weight of queue pairs, each of a process.
fn group(name: &str, weight: u32, traffic: &[(&str, u32, u32)]) -> String {
    let mut text =
        format!("\n[[tenant]]\nname = \"{name}\"\nclass = \"bandwidth\"\nweight = {weight}\n");
    for (number, (size, pairs, weight)) in traffic.iter().enumerate() {
        text += &format!(
            "[[tenant.traffic]]\nname = \"t{number}\"\nverb = \"write\"\nsize = \"{size}\"\nprocesses = {pairs}\n\
             weight = {weight}\ndepth = {}\npost_list = {}\n",
            if size.contains("Mi") { 4 } else { 128 },
            if size.contains("Mi") { 1 } else { 16 },
        );
    }
    text
}

fn share(result: &RunResult, name: &str) -> f64 {
    let total: f64 = result
        .tenants
        .iter()
        .map(|tenant| tenant.goodput_gbps)
        .sum();
    goodput(result, name) / total
}

/// One group per queue pair: the seventeen flows are then distinct tenants with equal weights.
#[test]
fn one_large_and_sixteen_small_flows_share_by_their_number_at_any_small_size() {
    for size in ["256B", "512B", "1024B", "2048B", "4096B"] {
        let tenants = format!(
            "{}{}",
            group("large", 1, &[("2MiB", 1, 1)]),
            group("small", 1, &[(size, 16, 1)])
        );
        let result = palos("per_queue_pair = 1", &tenants);
        let large = share(&result, "large");
        assert!((large * 17.0 - 1.0).abs() < 0.02, "{size}: {large}");
    }
}

#[test]
fn a_group_does_not_feel_how_many_flows_another_one_has() {
    for flows in [1, 4, 16, 64] {
        let tenants = format!(
            "{}{}",
            group("group-a", 1, &[("128B", 16, 1)]),
            group("group-b", 1, &[("2MiB", flows, 1)])
        );
        let share = share(&palos("", &tenants), "group-a");
        assert!((share - 0.5).abs() < 0.01, "{flows}: {share}");
    }
}

#[test]
fn groups_and_their_queue_pairs_share_by_weight() {
    // Each queue pair of weight 2 and 3 is a process of its own tenant; the tenant is the group.
    let weights: Vec<u32> = (10..=25).collect();
    let tenants: String = weights
        .iter()
        .map(|&weight| {
            group(
                &format!("g{weight}"),
                weight,
                &[("2MiB", 1, 2), ("2MiB", 1, 3)],
            )
        })
        .collect();
    let result = palos("", &tenants);
    for weight in weights {
        let exact = f64::from(weight) / 280.0;
        let share = share(&result, &format!("g{weight}"));
        assert!((share / exact - 1.0).abs() < 0.02, "{weight}: {share}");
        let [two, _, three] = of(&result, &format!("g{weight}")).queue_pair_gbps;
        assert!((three / two - 1.5).abs() < 0.05, "{weight}: {two} {three}");
    }
}

#[test]
fn weights_inside_a_group_leave_another_group_alone() {
    for weight in [1, 3, 6] {
        let tenants = format!(
            "{}{}",
            group("group-a", 1, &[("2MiB", 3, 2)]),
            group(
                "group-b",
                1,
                &[("2MiB", 1, 3), ("2MiB", 1, 2), ("2MiB", 1, weight)]
            )
        );
        let share = share(&palos("", &tenants), "group-a");
        assert!((share - 0.5).abs() < 0.01, "{weight}: {share}");
    }
}

#[test]
fn reads_are_scheduled_where_their_data_leaves() {
    let reads = tenant(
        "reads",
        "bandwidth",
        "verb = \"read\"\nsize = \"1MiB\"\nqueue_pairs = 8\ndepth = 4\nfrom = \"b\"\nto = \"a\"",
    );
    let result = palos(
        "",
        &format!("{reads}{}", group("writes", 1, &[("1MiB", 1, 1)])),
    );
    let share = share(&result, "reads");
    assert!((share - 0.5).abs() < 0.02, "{share}");
}

#[test]
fn a_labelled_flow_does_not_wait_for_large_ones() {
    let with = |flows: u32, parameters: &str| {
        let bulk = if flows == 0 {
            String::new()
        } else {
            group("large", 1, &[("2MiB", flows, 1)])
        };
        palos(parameters, &format!("{}{bulk}", small("pings")))
    };
    let (one, sixteen) = (with(1, ""), with(16, ""));
    // Large flows ahead in the pipeline are all that is felt, so their number is not.
    let ratio = p99(&sixteen, "pings") / p99(&one, "pings");
    assert!(ratio < 1.1, "{ratio}");
    let unlabelled = with(16, "priority_bytes_max = 0");
    assert!(median(&unlabelled, "pings") > 1.5 * median(&sixteen, "pings"));
    assert!(goodput(&sixteen, "large") > 85.0);
}

#[test]
fn a_tenant_that_labels_its_bulk_harms_neither_latency_nor_bandwidth() {
    let liar = tenant(
        "liar",
        "latency",
        "verb = \"write\"\nsize = 1024\nqueue_pairs = 32\ndepth = 64\npost_list = 16",
    );
    let bulk = group("bulk", 1, &[("1MiB", 4, 1)]);
    let honest = palos("", &format!("{}{bulk}", small("pings")));
    let attacked = |parameters: &str| {
        let tenants = format!("{}{bulk}{liar}", small("pings"));
        palos(parameters, &tenants)
    };
    let (guarded, trusting) = (attacked(""), attacked("priority_share_max = 1.0"));
    assert!(
        p99(&guarded, "pings") < 1.3 * p99(&honest, "pings"),
        "{} {}",
        p99(&guarded, "pings"),
        p99(&honest, "pings")
    );
    let kept = |result: &RunResult| goodput(result, "bulk") / goodput(result, "liar");
    assert!(kept(&guarded) > 0.8, "{}", kept(&guarded));
    assert!(kept(&trusting) < 0.5, "{}", kept(&trusting));
}

#[test]
fn a_slow_clock_is_felt_less_with_a_large_quantum() {
    let tenants = group("bulk", 1, &[("1MiB", 4, 1)]);
    let rate = |parameters: &str| goodput(&palos(parameters, &tenants), "bulk");
    let (fast, slow) = (rate("clock_mhz = 250"), rate("clock_mhz = 2"));
    // A decision of five cycles every 2.5 us for 4096 B is 13 Gb/s.
    assert!(fast > 90.0 && (10.0..14.0).contains(&slow), "{fast} {slow}");
    // Sixteen packets for each decision: what shows is what the pipeline does not cover of its 3.5 us.
    let hidden = rate("clock_mhz = 2\nquantum_bytes = 65536");
    assert!(hidden > 4.0 * slow && hidden < fast, "{hidden}");
}

#[test]
fn it_composes_with_classes_and_functions() {
    let tenants = format!(
        "{}{}{}",
        small("pings"),
        group("group-a", 1, &[("256B", 4, 1), ("64KiB", 1, 3)]),
        group("group-b", 2, &[("64KiB", 16, 1)])
    );
    for policy in [
        "palos+hw-tc",
        "palos+sriov",
        "palos+hw-tc+sriov",
        "justitia+palos",
    ] {
        let text = format!(
            "profile = \"cx6dx-25g-roce\"\nwarmup = \"1ms\"\nduration = \"2ms\"\n[policy]\nname = \"{policy}\"\n{tenants}"
        );
        let (first, second) = (run(&text), run(&text));
        assert_eq!(first, second, "{policy}");
        for tenant in &first.tenants {
            assert!(tenant.message_rate_per_s > 0.0, "{policy}: {}", tenant.name);
        }
    }
}
