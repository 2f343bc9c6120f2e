//! Promises and needs that contradict each other or the link, and policies that do not fit: messages with the sums.

use super::*;

/// Two tenants that write large messages from A to B, with these lines each.
fn two(first: &str, second: &str) -> String {
    format!(
        "profile = \"test-nic\"\n[[tenant]]\nname = \"db\"\nperftest = \"ib_write_bw -s 65536 -m 4096\"\n{first}\n\
         [[tenant]]\nname = \"backup\"\nperftest = \"ib_write_bw -s 65536 -m 4096\"\n{second}\n"
    )
}

#[test]
fn needs_above_the_link_are_refused_with_the_sum() {
    check_error(
        &two(
            "slo = { goodput_min = \"60Gb/s\" }",
            "slo = { goodput_min = \"50Gb/s\" }",
        ),
        expect![
            "x.toml:2: SLOs add up to more than the link carries out of host A: db 60.00Gb/s + backup 50.00Gb/s = 110.00Gb/s, above 99.51Gb/s of payload (100.00Gb/s x 4096 B / (4096 B + 20 B per packet)): lower one, or move a tenant to another NIC"
        ],
    );
}

#[test]
fn a_need_for_messages_counts_with_their_size() {
    check_error(
        &two(
            "slo = { messages_per_s_min = 100_000 }",
            "slo = { messages_per_s_min = 100_000 }",
        ),
        expect![
            "x.toml:2: SLOs add up to more than the link carries out of host A: db 52.43Gb/s (100000 messages/s x 64KiB) + backup 52.43Gb/s (100000 messages/s x 64KiB) = 104.86Gb/s, above 99.51Gb/s of payload (100.00Gb/s x 4096 B / (4096 B + 20 B per packet)): lower one, or move a tenant to another NIC"
        ],
    );
}

#[test]
fn guarantees_above_the_link_are_refused_with_the_sum() {
    check_error(
        &two(
            "guarantee = { rate = \"60Gb/s\" }",
            "guarantee = { rate = \"50Gb/s\" }",
        ),
        expect![
            "x.toml:2: guaranteed rates add up to more than the link carries out of host A: db 60.00Gb/s + backup 50.00Gb/s = 110.00Gb/s, above 99.51Gb/s of payload (100.00Gb/s x 4096 B / (4096 B + 20 B per packet)): lower one, or move a tenant to another NIC"
        ],
    );
}

#[test]
fn the_two_directions_of_a_link_do_not_add_up() {
    let needs = "slo = { goodput_min = \"60Gb/s\" }";
    let opposite = format!("from = \"b\"\nto = \"a\"\n{needs}");
    read(&two(needs, &opposite)).expect("each direction has its own link");
    let within = format!("from = \"a\"\nto = \"a\"\n{needs}");
    read(&two(needs, &within)).expect("traffic within a host does not cross the link");
    let from_c = format!("from = \"c\"\nto = \"b\"\n{needs}");
    let error =
        read(&two(needs, &from_c).replacen("[[tenant]]", "topology = \"switch\"\n[[tenant]]", 1));
    let error = error.expect_err("both go to one host").to_string();
    assert!(
        error.contains("into host B: db 60.00Gb/s + backup 60.00Gb/s"),
        "{error}"
    );
    let read_back = two(needs, needs).replacen("ib_write_bw", "ib_read_bw", 1);
    read(&read_back).expect("the data of a READ goes towards the requester");
}

#[test]
fn a_need_above_its_own_guarantee_is_refused() {
    check_error(
        &two(
            "guarantee = { rate = \"10Gb/s\" }\nslo = { goodput_min = \"20Gb/s\" }",
            "",
        ),
        expect![[
            r#"x.toml:2: tenant "db": its SLO needs 20.00Gb/s and its guarantee, which it may not exceed, is 10.00Gb/s: raise the guarantee or lower the SLO"#
        ]],
    );
}

#[test]
fn a_need_above_what_is_offered_is_refused() {
    check_error(
        &traffic(
            "size = 1024\narrival = \"paced\"\nrate = \"1Gb/s\"\n[tenant.slo]\ngoodput_min = \"2Gb/s\"",
        ),
        expect![[
            r#"x.toml:2: tenant "redis": its SLO needs 2.00Gb/s and its workloads offer 1.00Gb/s: lower the SLO or offer more"#
        ]],
    );
    check_error(
        &traffic(
            "size = 1024\narrival = \"open\"\ninterval = \"10us\"\n[tenant.slo]\nmessages_per_s_min = 200_000",
        ),
        expect![[
            r#"x.toml:2: tenant "redis": its SLO needs 1.64Gb/s (200000 messages/s x 1KiB) and its workloads offer 0.82Gb/s: lower the SLO or offer more"#
        ]],
    );
}

#[test]
fn weights_start_at_one() {
    check_error(
        &tenant("perftest = \"ib_write_bw\"\nweight = 0"),
        expect![[r#"x.toml:5: tenant "redis": weight = 0: must be 1 to 1000000"#]],
    );
    check_error(
        &traffic("size = 64\nweight = 0"),
        expect![[r#"x.toml:7: tenant "redis": weight = 0: must be 1 to 1000000"#]],
    );
}

#[test]
fn a_tenant_without_workloads_is_refused() {
    check_error(
        &tenant("weight = 1"),
        expect![[
            r#"x.toml:2: tenant "redis": perftest is missing: must be exactly one of perftest, engine, workload, [[tenant.application]], or [[tenant.traffic]] and [[tenant.control]]"#
        ]],
    );
}

#[test]
fn policies_that_do_not_combine_or_do_not_fit_are_refused() {
    let under = |profile: &str, policy: &str| {
        format!(
            "profile = \"{profile}\"\n[policy]\nname = \"{policy}\"\n[[tenant]]\nname = \"db\"\n\
             perftest = \"ib_write_bw\"\n"
        )
    };
    check_error(
        &under("cx5-100g-roce", "justitia+lite"),
        expect![
            "x.toml:3: policy: policy justitia+lite: both control when work requests reach the RDMA NIC: choose one of them"
        ],
    );
    check_error(
        &under("cx5-100g-roce", "sriov+justitia"),
        expect![
            "x.toml:3: policy: policy sriov+justitia: Justitia isolates tenants of one function; with SR-IOV each tenant has its own (husky 4.5, note 2)"
        ],
    );
    check_error(
        &under("t62100-40g-iwarp", "sriov"),
        expect![
            "x.toml:2: policy sriov: t62100-40g-iwarp has no virtual function support: choose another policy or profile"
        ],
    );
    check_error(
        &under("cx4-100g-ib", "harmonic"),
        expect![
            "x.toml:2: policy harmonic: cx4-100g-ib has no congestion notifications, which are RoCEv2's: choose a RoCE profile"
        ],
    );
}
