//! One fact per mechanism of the model, on the 100 Gb/s RoCE profile unless said otherwise.
use crate::common::{
    bulk, counter, goodput, median, of, p99, profile, ratio, run, run_with, small, tenant,
};
use isolane_rdma_scenario::model::Host::{A, B};

const CX3: &str = "profile = \"cx3pro-56g-ib\"\n";

// Post and doorbell, work request fetch.

#[test]
fn a_single_byte_message_pays_one_doorbell_and_no_fetch_when_inline() {
    let text = |inline: u32| {
        tenant(
            "one",
            "latency",
            &format!("verb = \"write\"\nsize = 1\ninline = {inline}\ndepth = 1"),
        )
    };
    let (inline, fetched) = (run(&text(16)), run(&text(0)));
    let messages = of(&inline, "one").message_rate_per_s * inline.measured_s;
    assert!((counter(&inline, A, "doorbells") as f64 - messages).abs() <= 1.0);
    assert_eq!(counter(&inline, A, "wqe_fetched"), 0);
    assert!(counter(&fetched, A, "wqe_fetched") > 0);
    assert!(
        median(&fetched, "one") > median(&inline, "one") + 0.4,
        "a fetch and a payload read take two DMA reads"
    );
}

#[test]
fn lists_share_a_doorbell() {
    let result = run(&tenant(
        "lists",
        "throughput",
        "verb = \"write\"\nsize = 64\npost_list = 16\ndepth = 64",
    ));
    let messages = of(&result, "lists").message_rate_per_s * result.measured_s;
    let per_doorbell = messages / counter(&result, A, "doorbells") as f64;
    assert!((per_doorbell - 16.0).abs() < 0.2, "{per_doorbell}");
}

// Schedule queue and engines.

#[test]
fn bulk_reaches_line_rate() {
    let result = run(&bulk("bulk", "1MiB", 4));
    let payload_of_line = 100.0 * 4096.0 / 4178.0;
    assert!(
        goodput(&result, "bulk") > 0.99 * payload_of_line,
        "{}",
        goodput(&result, "bulk")
    );
    assert!(goodput(&result, "bulk") <= payload_of_line * 1.001);
}

#[test]
fn packet_round_robin_gives_each_pair_one_packet() {
    // Pairs share equally at any size of their messages, and tenants in proportion to their pairs.
    let result = run(&format!(
        "{}{}",
        bulk("three", "1MiB", 3),
        bulk("one", "64KiB", 1)
    ));
    let [least, _, most] = of(&result, "three").queue_pair_gbps;
    assert!(most / least < 1.02, "{least} to {most}");
    let ratio = goodput(&result, "three") / goodput(&result, "one");
    assert!((ratio - 3.0).abs() < 0.15, "{ratio}");
}

#[test]
fn greedy_turns_block_small_messages() {
    let latency = |pairs: u32| {
        let others = if pairs == 0 {
            String::new()
        } else {
            bulk("bulk", "1MB", pairs).replace("depth = 4", "depth = 1")
        };
        median(
            &run(&format!(
                "{CX3}duration = \"10ms\"\n{}{others}",
                small("pings")
            )),
            "pings",
        )
    };
    let (idle, one, two, sixteen) = (latency(0), latency(1), latency(2), latency(16));
    assert!(
        idle < one && one < two && two < sixteen,
        "{idle} {one} {two} {sixteen}"
    );
    assert!(
        sixteen / idle > 20.0,
        "the window grows turns with the number of pairs: {idle} {sixteen}"
    );
}

/// Sixteen bulk pairs with turns of 35 packets of 2 KiB take 190 us of a 48 Gb/s link. A turn of 35 small messages in this time
/// would be 0.2 M/s.
#[test]
fn a_turn_on_a_device_that_prefetches_counts_bytes() {
    let calls = "verb = \"send\"\ntransport = \"ud\"\nsize = 32\npost_list = 8\ndepth = 64";
    let result = run(&format!(
        "{CX3}warmup = \"2ms\"\nduration = \"6ms\"\n{}{}",
        tenant("calls", "throughput", calls),
        bulk("bulk", "1MB", 16)
    ));
    let rate = of(&result, "calls").message_rate_per_s;
    assert!(rate > 1e6, "{rate}");
}

#[test]
fn priority_queue_isolates_latency() {
    let text = |policy: &str| {
        format!(
            "warmup = \"5ms\"\nduration = \"2ms\"\n[policy]\nname = \"{policy}\"\n{}{}",
            small("pings"),
            bulk("bulk", "1MiB", 16)
        )
    };
    let (none, queues) = (run(&text("none")), run(&text("hw-priority")));
    assert!(
        p99(&queues, "pings") < 0.7 * p99(&none, "pings"),
        "{} {}",
        p99(&queues, "pings"),
        p99(&none, "pings")
    );
    assert!(goodput(&queues, "bulk") > 0.95 * goodput(&none, "bulk"));
}

// Processing units.

#[test]
fn verbs_reach_the_rates_of_their_processing_units() {
    let rate = |verb: &str| {
        let traffic = format!(
            "verb = \"{verb}\"\nsize = 8\nqueue_pairs = 8\nprocesses = 8\npost_list = 16\ndepth = 128"
        );
        of(&run(&tenant("t", "throughput", &traffic)), "t").message_rate_per_s / 1e6
    };
    let (write, read, add, swap) = (
        rate("write"),
        rate("read"),
        rate("fetch-add"),
        rate("compare-swap"),
    );
    assert!(
        write > read && read > add && add > swap,
        "{write} {read} {add} {swap}"
    );
    assert!(
        write < 1e3 / 11.0 * 1.01 && add < 5.3 && swap < 4.9,
        "{write} {add} {swap}"
    );
}

#[test]
fn reads_respect_max_read_atomic() {
    let rate = |limit: u32| {
        let traffic = format!("verb = \"read\"\nsize = 64\ndepth = 64\nmax_read_atomic = {limit}");
        of(&run(&tenant("t", "throughput", &traffic)), "t").message_rate_per_s
    };
    let (one, two) = (rate(1), rate(2));
    assert!((two / one - 2.0).abs() < 0.2, "{one} {two}");
    let device = profile("cx5-100g-roce");
    let least =
        (device.value("pcie", "read_ns") + 2.0 * device.value("link", "propagation_ns")) / 1e3;
    assert!(
        1e6 / one > least,
        "a READ takes a DMA read and both ways, {least} us: {one}/s"
    );
}

// Caches.

#[test]
fn a_larger_working_set_misses_more() {
    let miss = |regions: u32| {
        let traffic = format!(
            "verb = \"write\"\nsize = 512\nqueue_pairs = 16\npost_list = 16\nmemory_regions = {regions}\nregion = \"64KiB\""
        );
        ratio(
            &run(&tenant("t", "throughput", &traffic)),
            A,
            "mtt_miss_ratio",
        )
    };
    let (few, some, many) = (miss(16), miss(128), miss(512));
    assert!(
        few < 0.05 && few < some && some < many && many > 0.5,
        "{few} {some} {many}"
    );
}

#[test]
fn more_pairs_than_contexts_miss() {
    let miss = |pairs: u32| {
        let traffic = format!("verb = \"write\"\nsize = 64\nqueue_pairs = {pairs}\ndepth = 4");
        ratio(
            &run(&tenant("t", "throughput", &traffic)),
            A,
            "icm_miss_ratio",
        )
    };
    let (few, many) = (miss(64), miss(2048));
    assert!(few < 0.001 && many > 0.05, "{few} {many}");
}

#[test]
fn a_context_miss_takes_its_time() {
    let latency = |miss_ns: f64| {
        // A hundred pairs, each with a message now and then: every message misses.
        let text = tenant(
            "t",
            "latency",
            "verb = \"write\"\nsize = 8\ninline = 8\nqueue_pairs = 100\ndepth = 1\nthink = \"1ms\"",
        );
        median(
            &run_with(
                &format!("duration = \"10ms\"\n{text}"),
                &[
                    ("cache", "miss_ns", miss_ns),
                    ("cache", "context_entries", 8.0),
                ],
            ),
            "t",
        )
    };
    let longer = latency(2800.0) - latency(800.0);
    assert!(
        (1.8..8.5).contains(&longer),
        "one to four misses of 2 us more each: {longer}"
    );
}

#[test]
fn misses_of_another_tenant_at_the_receiver_do_not_hold_up_acknowledgements() {
    let small = "verb = \"write\"\nsize = 16\ninline = 16\ndepth = 1";
    let latency = |regions: u32| {
        let misses = format!(
            "verb = \"write\"\nsize = 64\nqueue_pairs = 8\ndepth = 4\nmemory_regions = {regions}\nregion = \"64KiB\""
        );
        let text = format!(
            "duration = \"4ms\"\n{}{}",
            tenant("small", "latency", small),
            tenant("misses", "throughput", &misses)
        );
        median(&run(&text), "small")
    };
    let (hits, misses) = (latency(1), latency(600));
    assert!(
        misses < 1.15 * hits,
        "free miss slots hide other tenants' misses: {hits} {misses}"
    );
}

// Payload DMA and the bus.

#[test]
fn loopback_takes_pcie_from_the_wire() {
    let alone = run(&bulk("wire", "1MiB", 4));
    let shared = run(&format!(
        "{}{}",
        bulk("wire", "1MiB", 4),
        bulk("loop", "1MiB", 4).replace("depth", "to = \"a\"\ndepth")
    ));
    assert!(
        goodput(&shared, "wire") < 0.7 * goodput(&alone, "wire"),
        "{}",
        goodput(&shared, "wire")
    );
    assert!(ratio(&shared, A, "pcie_to_nic_utilisation") > 0.9);
}

#[test]
fn gpu_and_remote_socket_memory_add_latency() {
    let latency = |place: &str| {
        median(
            &run(&tenant(
                "t",
                "latency",
                &format!("verb = \"write\"\nsize = 64\ndepth = 1\nmemory = \"{place}\""),
            )),
            "t",
        )
    };
    let (local, socket, gpu) = (latency("local"), latency("remote-socket"), latency("gpu"));
    assert!(
        (socket - local - 0.12).abs() < 0.05 && (gpu - local - 0.35).abs() < 0.05,
        "{local} {socket} {gpu}"
    );
}

#[test]
fn a_narrow_bus_limits_goodput_to_what_it_carries() {
    for data_link in [0.0, 0.25] {
        let bus = [
            ("pcie", "rate_gbps", 32.0),
            ("pcie", "data_link_share", data_link),
            ("pcie", "payload_max_bytes", 128.0),
        ];
        let result = run_with(&bulk("bulk", "1MiB", 4), &bus);
        let most = 32.0 * (1.0 - data_link) * 128.0 / 148.0;
        assert!(
            goodput(&result, "bulk") < 1.001 * most && goodput(&result, "bulk") > 0.93 * most,
            "{} of {most}",
            goodput(&result, "bulk")
        );
    }
}

#[test]
fn pcie_carries_what_its_generation_and_width_allow_less_the_data_link_layer() {
    for (name, transfers_per_ns, lanes) in [
        ("cx3pro-56g-ib", 8.0, 8.0),
        ("cx4-40g-roce", 8.0, 8.0),
        ("cx4lx-10g-roce", 8.0, 8.0),
        ("t62100-40g-iwarp", 8.0, 8.0),
        ("cx4-100g-ib", 8.0, 16.0),
        ("cx5-100g-roce", 8.0, 16.0),
    ] {
        let coded = transfers_per_ns * lanes * 128.0 / 130.0;
        let measured = coded * 57.88 / (8.0 * 8.0 * 128.0 / 130.0);
        let profile = profile(name);
        assert!(
            (profile.value("pcie", "rate_gbps") - coded).abs() < 0.01,
            "{name}: {coded}"
        );
        let rest = profile.pcie_transaction_gbps();
        assert!((rest / measured - 1.0).abs() < 1e-3, "{name}: {rest}");
    }
}

// The wire.

#[test]
fn ping_pong_latency_is_half_the_round_trip() {
    let result = run(&small("pings"));
    let per_second = of(&result, "pings").message_rate_per_s;
    // Both directions count as messages: one takes half a round trip.
    let half_round_trip = 1e6 / per_second;
    let mean = of(&result, "pings")
        .latency_us
        .as_ref()
        .expect("completed")
        .mean;
    assert!(
        (mean / half_round_trip - 1.0).abs() < 0.05,
        "{mean} {half_round_trip}"
    );
}

#[test]
fn a_switch_adds_its_delay_and_a_second_cable() {
    let latency = |topology: &str| {
        median(
            &run(&format!("topology = \"{topology}\"\n{}", small("pings"))),
            "pings",
        )
    };
    let added = latency("switch") - latency("back-to-back");
    let device = profile("cx5-100g-roce");
    let expected =
        (device.value("link", "propagation_ns") + device.value("link", "switch_ns")) / 1e3;
    assert!((added - expected).abs() < 0.03, "{added} {expected}");
}

// Receive buffer, pauses, congestion.

/// A message without a receive now and then stops the receiver's units, so that its buffer fills.
fn slow_receiver(topology: &str, congestion: f64) -> isolane_study_results::rdma::RunResult {
    slow_receiver_of(topology, congestion, &bulk("bulk", "64KiB", 1))
}

/// The same with the traffic that suffers.
fn slow_receiver_of(
    topology: &str,
    congestion: f64,
    bulk: &str,
) -> isolane_study_results::rdma::RunResult {
    let drops = "verb = \"send\"\ntransport = \"uc\"\nsize = 64\ndepth = 1\nreceive_batch = 0\narrival = \"open\"\ninterval = \"200us\"";
    let text = format!(
        "topology = \"{topology}\"\nduration = \"4ms\"\n{}{}",
        bulk,
        tenant("drops", "throughput", drops)
    );
    let changes = [
        ("errors", "unreliable_drop_us", 50.0),
        ("congestion", "enabled", congestion),
    ];
    run_with(&text.replace("depth = 4", "depth = 64"), &changes)
}

#[test]
fn pause_reaches_the_sender_and_nothing_is_lost() {
    let result = slow_receiver("back-to-back", 1.0);
    assert!(counter(&result, B, "tx_prio3_pause") > 0);
    assert!(counter(&result, A, "rx_prio3_pause") > 0);
    let (sent, paused) = (
        ratio(&result, B, "tx_pause_ratio"),
        ratio(&result, A, "rx_pause_ratio"),
    );
    assert!(
        (sent - paused).abs() < 0.02 && sent > 0.1,
        "{sent} {paused}"
    );
    let left = counter(&result, A, "tx_vport_rdma_unicast_bytes");
    let arrived = counter(&result, B, "rx_vport_rdma_unicast_bytes");
    assert!(left.abs_diff(arrived) < 600_000, "{left} {arrived}");
}

#[test]
fn ecn_marks_slow_the_pair_behind_a_switch() {
    let (marked, off) = (slow_receiver("switch", 1.0), slow_receiver("switch", 0.0));
    assert!(counter(&marked, B, "np_ecn_marked_roce_packets") > 0);
    assert!(counter(&marked, A, "rp_cnp_handled") > 0);
    assert_eq!(counter(&off, A, "rp_cnp_handled"), 0);
    assert!(
        goodput(&marked, "bulk") < 0.95 * goodput(&off, "bulk"),
        "{} {}",
        goodput(&marked, "bulk"),
        goodput(&off, "bulk")
    );
    let (marked, off) = (
        ratio(&marked, B, "tx_pause_ratio"),
        ratio(&off, B, "tx_pause_ratio"),
    );
    assert!(
        marked < off,
        "slowed pairs fill the buffer less: {marked} {off}"
    );
}

#[test]
fn marks_on_read_responses_slow_the_responder_that_sends_them() {
    // B reads from A: the responses fill B's buffer, and A, which sends them, is notified.
    let reads = tenant(
        "bulk",
        "bandwidth",
        "verb = \"read\"\nsize = \"64KiB\"\nqueue_pairs = 1\ndepth = 4\nfrom = \"b\"\nto = \"a\"",
    );
    let (marked, off) = (
        slow_receiver_of("switch", 1.0, &reads),
        slow_receiver_of("switch", 0.0, &reads),
    );
    assert!(counter(&marked, B, "np_ecn_marked_roce_packets") > 0);
    assert!(counter(&marked, A, "rp_cnp_handled") > 0);
    assert_eq!(counter(&marked, B, "rp_cnp_handled"), 0);
    assert!(
        goodput(&marked, "bulk") < 0.95 * goodput(&off, "bulk"),
        "{} {}",
        goodput(&marked, "bulk"),
        goodput(&off, "bulk")
    );
}

// Errors.

fn next_to_unready(transport: &str, batch: u32) -> isolane_study_results::rdma::RunResult {
    let send = format!(
        "verb = \"send\"\ntransport = \"{transport}\"\nsize = 64\ndepth = 1\nreceive_batch = {batch}"
    );
    run(&format!(
        "warmup = \"1ms\"\nduration = \"4ms\"\n{}{}",
        bulk("bulk", "64KiB", 4).replace("queue_pairs", "bidirectional = true\nqueue_pairs"),
        tenant("sender", "latency", &send)
    ))
}

#[test]
fn one_receiver_not_ready_stalls_both_directions() {
    let ready = next_to_unready("rc", 1);
    let stalled = next_to_unready("rc", 0);
    assert!(
        goodput(&ready, "bulk") > 100.0,
        "{}",
        goodput(&ready, "bulk")
    );
    assert!(
        goodput(&stalled, "bulk") < 0.05 * goodput(&ready, "bulk"),
        "{}",
        goodput(&stalled, "bulk")
    );
    assert!(ratio(&stalled, B, "rnr_stall_ratio") > 0.9);
}

#[test]
fn uc_drops_stall_for_less() {
    let (reliable, unreliable) = (next_to_unready("rc", 0), next_to_unready("uc", 0));
    assert!(counter(&unreliable, B, "unreliable_drops") > 0);
    assert_eq!(counter(&unreliable, B, "rnr_nak_sent"), 0);
    assert!(goodput(&unreliable, "bulk") > 10.0 * goodput(&reliable, "bulk"));
}

#[test]
fn a_receiver_not_ready_is_retried_after_its_timer() {
    // Timer code 1 is 10 us, code 10 is 320 us: one attempt takes the wait and the stall.
    let naks = |code: u32| {
        let send = format!(
            "verb = \"send\"\nsize = 64\ndepth = 1\nreceive_batch = 0\nmin_rnr_timer = {code}"
        );
        let text = format!(
            "warmup = \"0us\"\nduration = \"10ms\"\n{}",
            tenant("t", "latency", &send)
        );
        counter(
            &run_with(&text, &[("errors", "rnr_stall_us", 1.0)]),
            B,
            "rnr_nak_sent",
        )
    };
    let (short, long) = (naks(1), naks(10));
    assert!(
        (700..1000).contains(&short) && (28..33).contains(&long),
        "{short} {long}"
    );
}

// Control verbs.

#[test]
fn deregistration_hurts_senders_not_receivers() {
    let text = |from: &str, phase: &str| {
        let write = "verb = \"write\"\nsize = 512\nqueue_pairs = 16\nprocesses = 6\npost_list = 16\nmemory_regions = 16\nregion = \"64KiB\"";
        format!(
            "duration = \"4ms\"\n{}[[tenant]]\nname = \"loop\"\n[[tenant.control]]\nobject = \"memory-region\"\nobjects = 1024\nphase = \"{phase}\"\nthreads = 2\nfrom = \"{from}\"\n",
            tenant("victim", "bandwidth", write)
        )
    };
    let victim = |from, phase| goodput(&run(&text(from, phase)), "victim");
    let (registering, sender, receiver) = (
        victim("a", "create"),
        victim("a", "destroy"),
        victim("b", "destroy"),
    );
    assert!(sender < 0.7 * registering, "{sender} {registering}");
    assert!(receiver > 0.9 * registering, "{receiver} {registering}");
}
