//! Command lines against what the tools themselves do with them.

use super::{engine, perftest};
use crate::check::DeviceLimits;
use crate::model::{
    Arrival, Class, ControlPhase, DataTraffic, Host, MemoryPlace, Message, Traffic, Transport, Verb,
};
use expect_test::{Expect, expect};
use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use proptest::prelude::*;

const DEVICE: DeviceLimits = DeviceLimits {
    inline_max: 28,
    ..DeviceLimits::PERMISSIVE
};

fn data(line: &str) -> DataTraffic {
    let command = if line.starts_with("Rdma") {
        engine(line, &DEVICE)
    } else {
        perftest(line, &DEVICE)
    };
    match command.expect("a valid line").workload.traffic {
        Traffic::Data(data) => data,
        _ => panic!("expected data traffic"),
    }
}

fn check_error(line: &str, expected: Expect) {
    let result = if line.contains("Rdma") {
        engine(line, &DEVICE)
    } else {
        perftest(line, &DEVICE)
    };
    expected.assert_eq(&result.expect_err("must be refused").to_string());
}

#[test]
fn bandwidth_tests_have_perftests_defaults() {
    let traffic = data("ib_write_bw");
    assert_eq!(traffic.pattern, [Message::of(65_536)]);
    assert_eq!(
        (
            traffic.depth,
            traffic.completion_every,
            traffic.inline_bytes
        ),
        (128, 1, 0)
    );
    assert_eq!(data("ib_write_bw -s 64").completion_every, 100);
    assert_eq!(data("ib_write_bw -s 64 -t 16").completion_every, 16);
    assert_eq!(data("ib_write_bw -l 16").completion_every, 16);
    assert_eq!(data("ib_send_bw").receive_depth, 512);
    assert_eq!(data("ib_read_bw").max_read_atomic, 16);
    assert_eq!(
        data("ib_write_bw -q 4").region_bytes,
        Bytes::new(2 * 4 * 65_536)
    );
}

#[test]
fn latency_tests_have_perftests_defaults() {
    let write = data("ib_write_lat");
    assert_eq!((write.pattern[0].bytes(), write.depth), (Bytes::new(2), 1));
    assert_eq!((write.arrival, write.inline_bytes), (Arrival::PingPong, 28));
    let read = data("ib_read_lat -s 16");
    let think = Duration::ZERO;
    assert_eq!(
        (read.arrival, read.depth, read.inline_bytes),
        (Arrival::Closed { think }, 1, 0)
    );
    assert_eq!(data("ib_atomic_lat").verb, Verb::FetchAdd);
}

#[test]
fn options_may_be_short_long_joined_or_cut() {
    let lines = [
        "ib_write_bw -s 8 -l 16 -q 4 -RF",
        "ib_write_bw --size=8 --post_list 16 --qp=4 server",
        "/usr/bin/ib_write_bw -s8 -l16 -Fq4 --run_inf",
        "ib_write_bw -s 0x8 -l 16 -q 4 -d mlx5_0 -x 3 --tos=105 10.0.0.1",
    ];
    for line in lines {
        assert_eq!(data(line), data(lines[0]), "{line}");
    }
}

#[test]
fn classes_follow_the_rule() {
    let class = |line| perftest(line, &DEVICE).expect("valid").class;
    assert_eq!(class("ib_write_lat -s 65536"), Class::Latency);
    assert_eq!(class("ib_write_bw -s 1024 -l 16"), Class::Throughput);
    assert_eq!(class("ib_write_bw -s 1025 -l 16"), Class::Bandwidth);
    assert_eq!(class("ib_write_bw -s 8 -l 15"), Class::Bandwidth);
}

#[test]
fn every_honoured_option_shapes_the_traffic() {
    assert_eq!(data("ib_send_bw -c UD").transport, Transport::Ud);
    assert_eq!(data("ib_send_bw -c UD").pattern, [Message::of(4096)]);
    assert_eq!(data("ib_write_bw -m 1024").mtu, 1024);
    assert_eq!(data("ib_atomic_bw -A CMP_AND_SWAP").verb, Verb::CompareSwap);
    assert_eq!(data("ib_send_bw -r 64 --recv_post_list=8").receive_batch, 8);
    assert_eq!(data("ib_write_bw --mr_per_qp -q 3").memory_regions, 3);
    assert_eq!(data("ib_write_bw --use_cuda=0").memory, MemoryPlace::Gpu);
    assert!(data("ib_write_bw -b").bidirectional);
    let rate = |gbps| Arrival::Paced {
        rate: BitRate::from_gbps(gbps),
    };
    assert_eq!(data("ib_write_bw -q 2 --rate_limit=5").arrival, rate(10));
    assert_eq!(
        data("ib_write_bw -q 2 --rate_limit=5 --rate_limit_type=SW").arrival,
        rate(5)
    );
    let reversed = perftest("ib_write_bw --reversed", &DEVICE)
        .expect("valid")
        .workload;
    assert_eq!((reversed.from, reversed.to), (Host::B, Host::A));
}

#[test]
fn runs_end_as_perftest_ends_them() {
    let ends = |line| {
        let command = perftest(line, &DEVICE).expect("valid");
        (command.run_for, command.iterations)
    };
    assert_eq!(ends("ib_write_bw"), (None, Some(5_000)));
    assert_eq!(ends("ib_read_bw -n 7"), (None, Some(7)));
    assert_eq!(ends("ib_write_bw -n 7 --run_infinitely"), (None, None));
    assert_eq!(
        ends("ib_write_bw -n 7 -D 3"),
        (Some(Duration::from_secs(3)), None)
    );
    let week = Duration::from_secs(604_800);
    assert_eq!(ends("ib_write_bw -D 604800"), (Some(week), None));
}

#[test]
fn wrappers_and_shells_are_to_be_left_out() {
    check_error(
        "numactl -N 0 ib_write_bw",
        expect![
            "numactl: leave out numactl and its options: the line has to begin with the traffic program"
        ],
    );
    check_error(
        "/usr/bin/sudo ib_write_bw -s 8",
        expect![
            "/usr/bin/sudo: leave out /usr/bin/sudo and its options: the line has to begin with the traffic program"
        ],
    );
    check_error(
        "MLX5_SINGLE_THREADED=1 ib_write_bw",
        expect![
            "MLX5_SINGLE_THREADED=1: leave out variables: the line has to begin with the traffic program"
        ],
    );
    check_error(
        "ib_write_bw -s 8 server > out.txt",
        expect![">: is for a shell, and there is none: leave out redirections, pipes, & and ;"],
    );
    check_error(
        "ib_write_bw -s 8 2>&1",
        expect!["2>&1: is for a shell, and there is none: leave out redirections, pipes, & and ;"],
    );
    check_error(
        "ib_write_bw -s 8 | tee out.txt",
        expect!["|: is for a shell, and there is none: leave out redirections, pipes, & and ;"],
    );
    check_error(
        "ib_write_bw &",
        expect!["&: is for a shell, and there is none: leave out redirections, pipes, & and ;"],
    );
    check_error(
        "taskset 1 RdmaEngine --qp_num=1",
        expect![
            "taskset: leave out taskset and its options: the line has to begin with the traffic program"
        ],
    );
    check_error(
        "RdmaEngine --qp_num=1 &",
        expect!["&: is for a shell, and there is none: leave out redirections, pipes, & and ;"],
    );
}

#[test]
fn options_without_meaning_say_why() {
    check_error(
        "ib_write_bw -e",
        expect!["-e: completions are polled in this model; sleeping on events is not modelled"],
    );
    check_error(
        "ib_write_bw -c XRC",
        expect!["-c XRC: is not modelled: must be RC, UC or UD"],
    );
    check_error(
        "ib_write_bw -c rc",
        expect!["-c rc: must be RC, UC or UD; did you mean RC?"],
    );
    check_error(
        "ib_write_lat -q 4",
        expect!["-q: latency tests use one queue pair: write processes instead"],
    );
    check_error(
        "ib_read_bw -I 16",
        expect!["-I: READ and atomics carry no payload to the NIC"],
    );
    check_error(
        "ib_write_bw -o 4",
        expect!["-o: only READ and atomics have outstanding reads"],
    );
    check_error(
        "ib_write_bw -I 64",
        expect!["--inline_size: 64: must be 0 to 28, the profile's limit"],
    );
    check_error(
        "ib_write_bw -m 1500",
        expect!["-m 1500: must be 256, 512, 1024, 2048 or 4096"],
    );
    check_error(
        "ib_write_bw -l 256",
        expect!["--tx-depth: 128: must be at least post_list, 256: a list has to fit the queue"],
    );
    check_error(
        "ib_write_bw -s 64K",
        expect!["-s 64K: must be a whole number without a unit, 1 to 2147483648"],
    );
    check_error("ib_write_bw -s 1 -s 2", expect!["-s: is given twice"]);
    check_error("ib_write_bw -q", expect!["-q: needs a value"]);
    check_error(
        "ib_write_bw a b",
        expect!["b: is not an option, and the server is a already"],
    );
    check_error(
        "ib_wirte_bw",
        expect![
            "ib_wirte_bw: is not one of ib_{write,read,send,atomic}_{bw,lat}; did you mean ib_write_bw?"
        ],
    );
    check_error(
        "ib_write_bw -j 1",
        expect!["-j: belongs to raw_ethernet_* tests, which are not RDMA"],
    );
    check_error(
        "ib_read_bw -c UD",
        expect![[r#"--connection: "ud": READ must use "rc""#]],
    );
    check_error(
        "ib_atomic_bw -s 16",
        expect!["--size: 16B: an atomic must be 8 bytes in one element"],
    );
    check_error(
        "ib_send_bw -c UD -s 8192",
        expect!["--size: 8KiB: a UD message must fit one packet: at most the MTU, 4096"],
    );
}

#[test]
fn the_manual_lists_every_option() {
    let manual = include_str!("../../../../../docs/reference/perftest.md");
    for option in super::options::OPTIONS {
        let row = match option.letter {
            Some(letter) => format!("| `-{letter}`, `--{}` |", option.long),
            None => format!("| `--{}` |", option.long),
        };
        assert!(manual.contains(&row), "{row}");
    }
}

#[test]
fn the_engine_has_its_own_defaults_and_requests() {
    let traffic = data("RdmaEngine --qp_num=16 --request=w_1_129");
    assert_eq!(
        (traffic.depth, traffic.post_list, traffic.mtu),
        (1024, 1, 1024)
    );
    assert_eq!(
        (traffic.min_rnr_timer, traffic.region_bytes),
        (14, Bytes::new(65_536))
    );
    let gathered = data("RdmaEngine --request=s_3_128_65536_1024,s_1_64");
    assert_eq!(gathered.pattern[0].elements, [128, 65536, 1024]);
    assert_eq!(gathered.verb, Verb::Send);
    let datagrams = data("RdmaEngine --qp_type=4 --recv_batch=0 --request=s_1_4096");
    assert_eq!(
        (datagrams.transport, datagrams.mtu, datagrams.receive_batch),
        (Transport::Ud, 4096, 0)
    );
    let regions = data("RdmaEngine --mr_num=16 --buf_num=16 --buf_size=4096 --request=r_1_512");
    assert_eq!(
        (regions.memory_regions, regions.region_bytes),
        (16, Bytes::new(65_536))
    );
}

#[test]
fn the_engine_refuses_what_it_cannot_honour() {
    check_error(
        "RdmaEngine --request=x_1_8",
        expect!["--request=x_1_8: must begin with w, r or s, like w_1_65536"],
    );
    check_error(
        "RdmaEngine --request=w_2_8",
        expect!["--request=w_2_8: must name 1 to 30 elements and the length of each"],
    );
    check_error(
        "RdmaEngine --request=w_1_8,r_1_8",
        expect![
            "--request=w_1_8,r_1_8: mixes WRITE and READ: one process has one verb here, write two tenants or workloads"
        ],
    );
    check_error(
        "RdmaEngine --server",
        expect!["--server: give the client's command line, not the server's"],
    );
    check_error(
        "RdmaEngine --qpnum=4",
        expect!["--qpnum=4: the engine has no such flag; did you mean --qp_num?"],
    );
    check_error(
        "RdmaEngine --buf_size=64 --request=w_1_65",
        expect!["--buf_size: 64B: must hold the largest element of the pattern"],
    );
    check_error(
        "RdmaCtrlTest --test=pd",
        expect!["--test=pd: is not modelled: must be mr, qp or cq"],
    );
}

#[test]
fn a_control_test_is_a_loop_on_one_host() {
    let line = "RdmaCtrlTest --test=mr --alloc=5 --middle=10 --num_pd=1 --num_buffer=1024 --mr_size=1048576 --memalign=1 --thread=6";
    let workload = engine(line, &DEVICE).expect("valid").workload;
    assert_eq!(workload.from, workload.to);
    let Traffic::Control(control) = workload.traffic else {
        panic!("expected control verbs")
    };
    assert_eq!(
        (control.threads, control.objects, control.phase),
        (6, 1024, ControlPhase::Cycle)
    );
}

proptest! {
    #[test]
    fn no_line_panics(rest in "[-a-zA-Z0-9_=., \\PC]{0,60}") {
        for program in ["", "ib_write_bw ", "ib_send_lat -", "ib_atomic_bw --", "RdmaEngine --", "RdmaCtrlTest "] {
            let line = format!("{program}{rest}");
            let _ = (perftest(&line, &DEVICE), engine(&line, &DEVICE));
        }
    }
}
