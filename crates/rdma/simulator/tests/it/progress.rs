//! Nothing that could send waits for ever, and no queue grows without bound: each test is a way to get stuck.
use crate::common::{bulk, counter, goodput, of, ratio, run, run_with, small, tenant};
use isolane_rdma_scenario::model::Host;

#[test]
fn reads_of_many_pages_run() {
    let result = run(&tenant(
        "reader",
        "bandwidth",
        "verb = \"read\"\nsize = \"64KiB\"\nqueue_pairs = 4",
    ));
    assert!(
        goodput(&result, "reader") > 80.0,
        "{}",
        goodput(&result, "reader")
    );
}

#[test]
fn control_loops_of_several_processes_are_like_threads_of_one() {
    let rate = |threads: u32, processes: u32| {
        let text = format!(
            "duration = \"10ms\"\n[[tenant]]\nname = \"loops\"\n[[tenant.control]]\nobject = \"memory-region\"\n\
             objects = 8\nthreads = {threads}\nprocesses = {processes}\n"
        );
        of(&run(&text), "loops").control_rate_per_s
    };
    assert_eq!(rate(6, 1), rate(2, 3));
}

/// A paced process with a short queue and one with a long queue do the same, and take about as many steps: the
/// second would not end if every completion left a timer behind that renews itself.
#[test]
fn a_paced_process_keeps_one_timer_per_pair() {
    let text = |pairs: u32| {
        let traffic = format!(
            "verb = \"write\"\nsize = 512\nqueue_pairs = {pairs}\ndepth = 128\narrival = \"paced\"\nrate = \"4Gb/s\""
        );
        format!(
            "duration = \"20ms\"\n{}",
            tenant("paced", "bandwidth", &traffic)
        )
    };
    for pairs in [1, 8] {
        let result = run(&text(pairs));
        assert!(
            (goodput(&result, "paced") - 4.0).abs() < 0.1,
            "{pairs}: {}",
            goodput(&result, "paced")
        );
    }
}

#[test]
fn completions_rarer_than_lists_do_not_fill_the_queue_for_ever() {
    let traffic =
        "verb = \"write\"\nsize = 64\npost_list = 64\ndepth = 128\ncompletion_every = 100";
    let result = run(&tenant("lists", "throughput", traffic));
    assert!(
        of(&result, "lists").message_rate_per_s > 1e6,
        "{}",
        of(&result, "lists").message_rate_per_s
    );
}

#[test]
fn open_loop_lists_longer_than_the_waiting_room_are_posted() {
    let traffic = "verb = \"write\"\nsize = 64\npost_list = 8192\ndepth = 8192\narrival = \"open\"\ninterval = \"1ms\"";
    let result = run(&format!(
        "duration = \"4ms\"\n{}",
        tenant("lists", "throughput", traffic)
    ));
    assert!(
        of(&result, "lists").message_rate_per_s > 7e6,
        "{}",
        of(&result, "lists").message_rate_per_s
    );
    assert_eq!(of(&result, "lists").errors, 0);
}

#[test]
fn open_loop_arrivals_end_with_the_iterations() {
    let traffic = "verb = \"write\"\nsize = 64\ndepth = 16\niterations = 100\narrival = \"open\"\ninterval = \"1us\"";
    let result = run(&format!(
        "warmup = \"0us\"\nduration = \"10ms\"\n{}",
        tenant("few", "throughput", traffic)
    ));
    let few = of(&result, "few");
    assert_eq!((few.message_rate_per_s * result.measured_s).round(), 100.0);
    assert_eq!(
        few.errors, 0,
        "arrivals after the last iteration are lost work"
    );
    assert!(few.offered_gbps.expect("open loop") <= few.goodput_gbps * 1.01);
}

#[test]
fn a_switch_without_buffer_lets_the_sender_go_on() {
    let drops = "verb = \"send\"\ntransport = \"uc\"\nsize = 64\ndepth = 4\nreceive_batch = 0";
    let text = format!(
        "topology = \"switch\"\nduration = \"4ms\"\n{}{}",
        bulk("bulk", "64KiB", 8),
        tenant("drops", "throughput", drops)
    );
    let small = [
        ("link", "switch_buffer_bytes", 0.0),
        ("receive", "pause_bytes", 8192.0),
        ("receive", "resume_bytes", 4096.0),
    ];
    let result = run_with(&text, &small);
    assert!(counter(&result, Host::A, "rx_prio3_pause") > 10);
    let last = *of(&result, "bulk")
        .goodput_series_gbps
        .last()
        .expect("a series");
    assert!(last > 1.0, "{last} Gb/s at the end");
}

/// 2 MiB messages become more chunks than the send queue holds; when the last latency tenant leaves, its
/// neighbour is let go in the middle of a message.
#[test]
fn a_flow_released_in_the_middle_of_a_message_goes_on() {
    for stop in ["600us", "610us", "640us", "700us", "777us", "800us"] {
        let text = format!(
            "duration = \"4ms\"\n[policy]\nname = \"lite\"\n{}{}",
            small("pings").replace("class =", &format!("stop = \"{stop}\"\nclass =")),
            tenant(
                "bulk",
                "bandwidth",
                "verb = \"write\"\nsize = \"2MiB\"\ndepth = 1"
            ),
        );
        let result = run(&text);
        assert!(
            goodput(&result, "bulk") > 30.0,
            "stop at {stop}: {}",
            goodput(&result, "bulk")
        );
        let last = *result.tenants[1]
            .goodput_series_gbps
            .last()
            .expect("a series");
        assert!(last > 30.0, "stop at {stop}: {last} at the end");
    }
}

/// Packets that loop back wait inside the NIC, not in a queue without end, while the receiving units stall.
#[test]
fn a_stalled_loopback_keeps_its_packets_outside_the_buffer() {
    let send = "verb = \"send\"\nsize = 64\ndepth = 1\nreceive_batch = 0\nto = \"a\"";
    let write = "verb = \"write\"\nsize = \"1MiB\"\ndepth = 64\nto = \"a\"";
    let text = format!(
        "duration = \"5ms\"\n{}{}",
        tenant("unready", "latency", send),
        tenant("loop", "bandwidth", write)
    );
    let result = run(&text);
    let looped = counter(&result, Host::A, "loopback_bytes");
    assert!(
        looped < 2_000_000,
        "{looped} bytes looped back into a stalled receiver"
    );
    assert!(ratio(&result, Host::A, "rnr_stall_ratio") > 0.9);
}

#[test]
fn splitting_a_send_takes_one_receive_per_message() {
    let send = "verb = \"send\"\nsize = \"1MiB\"\ndepth = 1\nreceive_depth = 1\nreceive_batch = 1";
    let text = format!(
        "duration = \"4ms\"\n[policy]\nname = \"justitia\"\n{}{}",
        small("pings"),
        tenant("sends", "bandwidth", send)
    );
    let result = run(&text);
    assert_eq!(counter(&result, Host::B, "rnr_nak_sent"), 0);
    assert!(
        goodput(&result, "sends") > 10.0,
        "{}",
        goodput(&result, "sends")
    );
}

#[test]
fn work_of_a_tenant_that_stops_while_held_disappears() {
    let text = format!(
        "duration = \"4ms\"\n[policy]\nname = \"justitia\"\n{}{}{}",
        small("pings"),
        bulk("leaver", "1MiB", 4).replace("class =", "stop = \"1ms\"\nclass ="),
        bulk("stayer", "1MiB", 1),
    );
    let result = run(&text);
    let series = |name| of(&result, name).goodput_series_gbps.clone();
    assert_eq!(series("leaver").last(), Some(&0.0));
    assert!(*series("stayer").last().expect("a series") > 20.0);
}

#[test]
fn messages_of_two_gibibytes_move() {
    let result = run(&tenant(
        "huge",
        "bandwidth",
        "verb = \"write\"\nsize = \"2GiB\"\ndepth = 1",
    ));
    assert!(
        goodput(&result, "huge") > 90.0,
        "{}",
        goodput(&result, "huge")
    );
}
