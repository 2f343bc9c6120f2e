//! One fact per mechanism that only some devices show: on a device that has it alone a workload suffers, and runs as it
//! should on one that has none. Which of them together make which published anomaly is tested with the hunt.
use crate::common::{counter, of, profile, ratio, scenario};
use isolane_rdma_scenario::model::Host::{A, B};
use isolane_study_results::rdma::RunResult;

const F: &str = "cx6-200g-roce";
const H: &str = "p2100-100g-roce";

/// Queue pairs of one tenant on one switch; without congestion control, whose reaction is another mechanism.
fn text(device: &str, pairs: u32, both_ways: bool, traffic: &str) -> String {
    let directions: &[&str] = match both_ways {
        true => &["from = \"a\"\nto = \"b\"", "from = \"b\"\nto = \"a\""],
        false => &["from = \"a\"\nto = \"b\""],
    };
    let mut text = format!(
        "profile = \"{device}\"\ntopology = \"switch\"\nwarmup = \"600us\"\nduration = \"300us\"\n[[tenant]]\n\
         name = \"t\"\nclass = \"bandwidth\"\n"
    );
    // Processes of eight pairs at most, so that posting is not the limit.
    let (processes, each) = (pairs.div_ceil(8), pairs.min(8));
    for (number, hosts) in directions.iter().enumerate() {
        text.push_str(&format!(
            "[[tenant.traffic]]\nname = \"way-{number}\"\nprocesses = {processes}\nqueue_pairs = {each}\n{hosts}\n{traffic}\n"
        ));
    }
    text
}

/// Runs `text` on its device without any of these mechanisms, and with those called `names` alone.
fn without_and_with(text: &str, names: &[&str]) -> (RunResult, RunResult) {
    let scenario = scenario(text);
    let run = |kept: &[&str]| {
        let mut profile = profile(&scenario.profile);
        for (name, sourced) in &mut profile.microarchitecture {
            if !kept.contains(&name.as_str()) {
                sourced.value = 0.0;
            }
        }
        for name in kept {
            assert!(profile.micro(name) > 0.0, "{name} is off in the profile");
        }
        isolane_rdma_simulator::rnic::run(&scenario, &profile)
            .unwrap_or_else(|error| panic!("{error}"))
    };
    (run(&[]), run(names))
}

/// Payload per second of the tenant, Gb/s.
fn goodput(result: &RunResult) -> f64 {
    of(result, "t").goodput_gbps
}

/// The longer of both hosts' parts of the time in which they pause their link.
fn paused(result: &RunResult) -> f64 {
    ratio(result, A, "tx_pause_ratio").max(ratio(result, B, "tx_pause_ratio"))
}

/// What kept receives need.
const KEPT: [&str; 4] = [
    "receive_cache_bytes",
    "receive_miss_slots",
    "receive_miss_ns",
    "receive_list_bytes",
];

#[test]
fn receives_that_do_not_fit_are_read_one_at_a_time_and_hold_credits_back() {
    let traffic = |list: u32| {
        let receives = format!("receive_depth = 2048\nreceive_batch = {list}");
        let data = "verb = \"send\"\npattern = [[512, 512]]\nmtu = 1024\ndepth = 1024";
        text(
            F,
            32,
            false,
            &format!("{data}\npost_list = {list}\n{receives}"),
        )
    };
    let names = [&KEPT[..], &["receive_credits"]].concat();
    let (without, with) = without_and_with(&traffic(8), &names);
    assert!(
        goodput(&with) < 0.7 * goodput(&without),
        "{}",
        goodput(&with)
    );
    assert!(paused(&with) < 0.001, "senders are held back instead");
    assert!(counter(&with, B, "receive_wqe_cache_miss") > 0);
    // A long list is read ahead whole.
    let (_, long) = without_and_with(&traffic(64), &names);
    assert!(
        goodput(&long) > 0.95 * goodput(&without),
        "{}",
        goodput(&long)
    );
}

/// A dropped datagram is taken back from the traffic of the port, of which a loop has none.
#[test]
fn datagrams_that_are_dropped_inside_a_host_do_not_count_at_its_port() {
    let data =
        "verb = \"send\"\ntransport = \"ud\"\nsize = 64\nmtu = 1024\ndepth = 1024\npost_list = 8";
    let receives = "receive_depth = 2048\nreceive_batch = 8";
    let traffic = text(F, 16, false, &format!("{data}\n{receives}"));
    let scenario = scenario(&traffic.replace("to = \"b\"", "to = \"a\""));
    let looped = isolane_rdma_simulator::rnic::run(&scenario, &profile(F)).unwrap();
    assert!(counter(&looped, A, "unreliable_drops") > 0);
    assert_eq!(counter(&looped, A, "rx_vport_rdma_unicast_packets"), 0);
    assert_eq!(counter(&looped, A, "rx_vport_rdma_unicast_bytes"), 0);
}

#[test]
fn without_credits_packets_wait_for_their_receives_and_the_link_pauses() {
    let traffic = text(
        H,
        80,
        false,
        "verb = \"send\"\nsize = 1024\nmtu = 1024\ndepth = 128\npost_list = 1\nreceive_depth = 256\nreceive_batch = 1",
    );
    let (without, with) = without_and_with(&traffic, &KEPT);
    assert!(
        paused(&without) < 0.001 && paused(&with) > 0.05,
        "{}",
        paused(&with)
    );
}

#[test]
fn a_burst_of_receives_beyond_the_window_displaces_the_next_in_turn() {
    let traffic = |depth: u32| {
        let data = "verb = \"send\"\ntransport = \"ud\"\nsize = 2048\nmtu = 2048\npost_list = 64\nreceive_batch = 64";
        let depths = format!("depth = {depth}\nreceive_depth = {}", 2 * depth);
        text(F, 1, false, &format!("{data}\n{depths}"))
    };
    let burst = [
        "receive_burst",
        "receive_window_bytes",
        "receive_ud_bytes",
        "receive_ud_miss_ns",
    ];
    let names = [&KEPT[..], &burst].concat();
    let (without, with) = without_and_with(&traffic(256), &names);
    assert!(
        paused(&without) < 0.001 && paused(&with) > 0.02,
        "{}",
        paused(&with)
    );
    let (_, shallow) = without_and_with(&traffic(128), &names);
    assert!(paused(&shallow) < 0.001, "{}", paused(&shallow));
}

#[test]
fn requests_that_do_not_fit_are_read_again_for_read_responses() {
    let traffic = |both: bool| {
        let data = "verb = \"read\"\npattern = [[32, 32, 32, 32]]\ndepth = 128\npost_list = 128";
        text(F, 80, both, data)
    };
    let names = [
        "request_cache_bytes",
        "responder_pair_bytes",
        "receive_miss_slots",
        "receive_miss_ns",
    ];
    let (without, with) = without_and_with(&traffic(true), &names);
    assert!(
        goodput(&with) < 0.8 * goodput(&without),
        "{}",
        goodput(&with)
    );
    let (without, with) = without_and_with(&traffic(false), &names);
    assert!(
        goodput(&with) > 0.98 * goodput(&without),
        "one way they fit"
    );
}

#[test]
fn small_responses_fill_the_buffer_by_the_cells_that_they_take() {
    let data = "verb = \"read\"\npattern = [[32, 32, 32, 32]]\ndepth = 128\npost_list = 128";
    let names = [
        "request_cache_bytes",
        "responder_pair_bytes",
        "receive_miss_slots",
        "receive_miss_ns",
    ];
    let traffic = text(F, 80, true, data);
    let (_, bytes) = without_and_with(&traffic, &names);
    let (_, cells) = without_and_with(&traffic, &[&names[..], &["receive_cell_bytes"]].concat());
    assert!(
        paused(&bytes) < 0.001 && paused(&cells) > 0.01,
        "{} {}",
        paused(&bytes),
        paused(&cells)
    );
}

#[test]
fn small_packets_of_large_responses_are_more_than_the_requester_stands() {
    let traffic = |mtu: u32| {
        let data = format!(
            "verb = \"read\"\nsize = \"1MiB\"\nregion = \"1MiB\"\nmtu = {mtu}\ndepth = 128"
        );
        text(F, 8, false, &data)
    };
    let (without, with) = without_and_with(&traffic(1024), &["response_packet_ns"]);
    assert!(
        paused(&without) < 0.001 && paused(&with) > 0.02,
        "{}",
        paused(&with)
    );
    let (_, large) = without_and_with(&traffic(4096), &["response_packet_ns"]);
    assert!(paused(&large) < 0.001, "{}", paused(&large));
}

#[test]
fn fetching_a_request_needs_its_context() {
    let data = "verb = \"write\"\nsize = 512\nmtu = 1024\ndepth = 16\npost_list = 1";
    let (without, with) = without_and_with(&text(F, 640, false, data), &["fetch_context"]);
    let (before, after) = (
        counter(&without, A, "icm_cache_miss"),
        counter(&with, A, "icm_cache_miss"),
    );
    assert!(after > before, "{before} {after}");
    assert!(goodput(&with) < goodput(&without), "{}", goodput(&with));
}

#[test]
fn a_region_s_entry_is_read_before_its_translation_and_lists_look_ahead() {
    let traffic = |list: u32| {
        let data = "verb = \"write\"\nsize = 512\nmtu = 1024\ndepth = 128\nmemory_regions = 24576\nregion = \"64KiB\"";
        text(F, 24, false, &format!("{data}\npost_list = {list}"))
    };
    let (without, with) = without_and_with(&traffic(1), &["translation_levels"]);
    assert!(
        goodput(&with) < 0.95 * goodput(&without),
        "{}",
        goodput(&with)
    );
    let (without, with) = without_and_with(&traffic(16), &["list_lookahead"]);
    assert!(
        goodput(&with) > 1.2 * goodput(&without),
        "{}",
        goodput(&with)
    );
}

#[test]
fn a_run_begins_with_the_translations_that_it_uses_where_an_entry_covers_more_than_a_page() {
    let traffic = |regions: u32, region: &str| {
        let data = format!(
            "verb = \"write\"\nsize = 512\nmtu = 1024\ndepth = 128\nmemory_regions = {regions}\nregion = \"{region}\""
        );
        text(F, 1, false, &data)
    };
    let misses = |result: &RunResult, kind: &str| {
        let of = |what: &str| counter(result, A, &format!("{kind}_cache_{what}")) as f64;
        of("miss") / (of("miss") + of("hit"))
    };
    // 4 GiB: a million pages, or 2048 entries of 2 MiB.
    let (without, with) = without_and_with(&traffic(64, "64MiB"), &["translation_page_bytes"]);
    assert!(misses(&without, "mtt") > 0.9, "{}", misses(&without, "mtt"));
    assert!(misses(&with, "mtt") < 0.01, "{}", misses(&with, "mtt"));
    assert!(goodput(&with) > goodput(&without), "{}", goodput(&with));
    // Every region takes an entry of its own, and 64 Ki of them four times as many as there are.
    let (_, with) = without_and_with(&traffic(65_536, "64KiB"), &["translation_page_bytes"]);
    assert!(
        (misses(&with, "mtt") - 0.75).abs() < 0.05,
        "{}",
        misses(&with, "mtt")
    );
}

#[test]
fn ordered_writes_wait_where_a_read_changes_between_short_and_long_elements() {
    let traffic = |pattern: &str| {
        let data = format!(
            "verb = \"write\"\npattern = {pattern}\nregion = \"4MiB\"\ndepth = 128\npost_list = 8"
        );
        text(F, 8, true, &data)
    };
    let mixed = traffic("[[128, 65536, 1024]]");
    let (without, with) = without_and_with(&mixed, &["ordering_ns"]);
    assert!(
        goodput(&with) < 0.6 * goodput(&without),
        "{}",
        goodput(&with)
    );
    let apart = traffic("[[128], [65536], [1024]]");
    let (without, with) = without_and_with(&apart, &["ordering_ns"]);
    assert!(
        goodput(&with) > 0.99 * goodput(&without),
        "{}",
        goodput(&with)
    );
}

#[test]
fn lists_that_are_not_at_hand_cost_packets_amid_messages() {
    let traffic = |pairs: u32, list: u32| {
        let data = format!(
            "verb = \"write\"\nsize = 65536\nregion = \"64KiB\"\nmtu = 1024\ndepth = 64\npost_list = {list}"
        );
        text(H, pairs, true, &data)
    };
    let names = ["hot_requests", "swap_ns"];
    let (without, with) = without_and_with(&traffic(32, 16), &names);
    assert!(
        paused(&without) < 0.001 && paused(&with) > 0.01,
        "{}",
        paused(&with)
    );
    for (pairs, list) in [(4, 16), (32, 1)] {
        let (_, few) = without_and_with(&traffic(pairs, list), &names);
        assert!(paused(&few) < 0.001, "{pairs}, {list}: {}", paused(&few));
    }
}

#[test]
fn the_paths_to_far_memory_carry_what_they_carry() {
    for (place, name) in [("remote-socket", "remote_socket_gbps"), ("gpu", "gpu_gbps")] {
        let data = format!(
            "verb = \"write\"\nsize = 65536\nregion = \"64KiB\"\ndepth = 64\nmemory = \"{place}\"\nremote_memory = \"{place}\""
        );
        // Both directions are read and written over the same path at each end. How much that is to the byte is tested
        // where what waits at its ends can be seen.
        let (without, with) = without_and_with(&text(F, 8, true, &data), &[name]);
        assert!(goodput(&without) > 1.05 * goodput(&with), "{place}");
    }
}

#[test]
fn payload_is_read_twice_where_connections_reserve_more_than_the_packet_memory() {
    let traffic = |pattern: &str| {
        let data = format!(
            "verb = \"write\"\npattern = {pattern}\nregion = \"64KiB\"\nmtu = 4096\ndepth = 16"
        );
        text(H, 1024, true, &data)
    };
    let names = ["staging_bytes", "staging_element_bytes"];
    let gathered = traffic("[[16384, 16384, 16384, 16384]]");
    let (without, with) = without_and_with(&gathered, &names);
    let read =
        |result: &RunResult| counter(result, A, "pcie_inbound_bytes") as f64 / goodput(result);
    assert!(
        read(&with) > 1.7 * read(&without),
        "{} {}",
        read(&with),
        read(&without)
    );
    let (without, with) = without_and_with(&traffic("[[65536]]"), &names);
    assert!(
        read(&with) < 1.1 * read(&without),
        "{} {}",
        read(&with),
        read(&without)
    );
}

/// Fewer pairs than fill each resource, twice and eight times as many: its occupancy rises, and is 1 where it runs out.
#[test]
fn occupancies_rise_before_a_resource_runs_out() {
    let reads =
        "verb = \"read\"\npattern = [[32, 32, 32, 32]]\ndepth = 128\npost_list = 128\nmtu = 4096";
    let writes = "verb = \"write\"\nsize = 4096\nmtu = 4096\ndepth = 2";
    let sends = "verb = \"send\"\nsize = 64\ndepth = 64\nreceive_depth = 512";
    let of = |traffic: &str, pairs: u32, host, names: &[&str], occupancy: &str| {
        let (without, with) = without_and_with(&text(H, pairs, false, traffic), names);
        assert_eq!(ratio(&without, host, occupancy), 0.0, "{occupancy}");
        ratio(&with, host, occupancy)
    };
    let kept = [
        "request_cache_bytes",
        "receive_miss_slots",
        "receive_miss_ns",
    ];
    let memory = ["staging_bytes", "staging_element_bytes"];
    for (traffic, few, host, names, occupancy) in [
        (reads, 20, A, &kept[..], "request_cache_peak_ratio"),
        (writes, 512, A, &memory, "packet_memory_ratio"),
        (sends, 6, B, &KEPT, "receive_cache_peak_ratio"),
    ] {
        let [some, twice, all] =
            [1, 2, 8].map(|times| of(traffic, times * few, host, names, occupancy));
        assert!(some > 0.1 && some < 0.6, "{occupancy}: {some}");
        assert!(twice > 1.3 * some, "{occupancy}: {some} {twice}");
        assert_eq!(all, 1.0, "{occupancy}");
    }
}

#[test]
fn a_path_that_is_a_bottleneck_works_all_the_time_and_its_writes_fill_the_buffer() {
    for (place, name, use_of) in [
        (
            "remote-socket",
            "remote_socket_gbps",
            "remote_socket_utilisation",
        ),
        ("gpu", "gpu_gbps", "gpu_path_utilisation"),
    ] {
        let traffic = |queue_pairs: u32| {
            let far = format!("memory = \"{place}\"\nremote_memory = \"{place}\"");
            let data = "verb = \"write\"\nsize = 65536\nregion = \"64KiB\"\ndepth = 64";
            text(F, queue_pairs, true, &format!("{data}\n{far}"))
        };
        let (without, with) = without_and_with(&traffic(8), &[name]);
        assert_eq!(ratio(&without, B, use_of), 0.0, "{place}");
        assert!(
            ratio(&with, B, use_of) > 0.97,
            "{place}: {}",
            ratio(&with, B, use_of)
        );
        let peak = |result: &RunResult| ratio(result, B, "receive_buffer_peak_ratio");
        assert!(
            peak(&without) < 0.5 && peak(&with) > 0.9,
            "{} {}",
            peak(&without),
            peak(&with)
        );
    }
}

#[test]
fn a_device_in_software_works_for_requests_packets_and_bytes_one_after_the_other() {
    let run = |verb: &str, size: u64, depth: u32| {
        let text = format!(
            "profile = \"soft-roce\"\nwarmup = \"50ms\"\nduration = \"400ms\"\n[[tenant]]\nname = \"t\"\n[[tenant.traffic]]\n\
             verb = \"{verb}\"\nsize = {size}\ndepth = {depth}\nmtu = 1024\n"
        );
        let scenario = scenario(&text);
        isolane_rdma_simulator::rnic::run(&scenario, &profile("soft-roce")).expect("it runs")
    };
    let device = profile("soft-roce");
    let ns = |name: &str| device.value("processing", name);
    let byte_ns = 8.0 / device.micro("copy_gbps");
    let close = |measured: f64, expected: f64| {
        assert!(
            (measured / expected - 1.0).abs() < 0.02,
            "{measured} {expected}"
        );
    };
    // Sixteen packets: the request pays for the first.
    let whole = 15.0 * ns("packet_ns") + 16_384.0 * byte_ns;
    let rate = |result: &RunResult| of(result, "t").message_rate_per_s;
    close(
        rate(&run("write", 16_384, 16)),
        1e9 / (ns("write_ns") + whole),
    );
    close(rate(&run("read", 16_384, 16)), 1e9 / whole);
    // One at a time: the receiver's part is in the sender's.
    let idle = |result: &RunResult| {
        let latency = of(result, "t").latency_us.as_ref();
        latency.expect("it completes messages").p50 * 1e3
    };
    let way = 2.0 * device.value("link", "propagation_ns");
    close(idle(&run("read", 16_384, 1)), ns("read_ns") + whole + way);
}
