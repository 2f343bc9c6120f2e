//! The soft card with the real kernel: namespaces, TUN, unmodified programs. Skipped, with the reason, without root or TUN.

use isolane_core::units::{BitRate, Bytes, Duration};
use isolane_scenario::nic::config;
use isolane_scenario::nic::model::{NicStudy, NicTraffic};
use isolane_soft_nic::card::Discipline;
use isolane_soft_nic::nic::{Nic, NicOptions};
use isolane_soft_nic::spaces::{self, DeviceOptions, Pair, RECEIVER, RECEIVER6};
use isolane_soft_nic::testbed::{self, TestbedOptions};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

/// Why real-kernel tests cannot run here, if they cannot.
fn missing() -> Option<&'static str> {
    if !isolane_host::namespaces::is_root() {
        return Some("this is not root");
    }
    if !std::path::Path::new("/dev/net/tun").exists() {
        return Some("there is no /dev/net/tun");
    }
    let has = |program| {
        isolane_host::command::command(program)
            .arg("--version")
            .output()
            .is_ok()
    };
    if !has("iperf3") || !has("ip") || !has("ping") {
        return Some("iperf3, iproute2 and ping are not all installed");
    }
    None
}

macro_rules! kernel_test {
    () => {
        if let Some(reason) = missing() {
            eprintln!("skipped: {reason}");
            return;
        }
    };
}

fn study(name: &str, flows: u32) -> NicStudy {
    let config = config::named(name).expect("a configuration");
    let mut study = NicStudy::of_paper(*config, flows, 1);
    study.card.rate = BitRate::from_bps(200_000_000);
    study.warmup = Duration::from_ms(300);
    study.duration = Duration::from_ms(700);
    study
}

fn card(pair: &Pair, rate: BitRate, complete_checksums: bool) -> Nic {
    let device = DeviceOptions {
        queues: 8,
        segmentation: true,
        queue_frames: 16,
        mtu: 1_500,
    };
    let (from, to) =
        spaces::open_devices(pair.sender(), pair.receiver(), &device).expect("devices");
    let options = NicOptions {
        rate,
        discipline: Discipline::Weighted,
        interrupt: Duration::from_us(100),
        complete_checksums,
        processor: None,
    };
    Nic::start(from, to, options, None).expect("a card")
}

#[test]
fn iperf3_moves_data_without_checksum_errors() {
    kernel_test!();
    let interrupted = AtomicBool::new(false);
    let mut options = TestbedOptions::new(&interrupted);
    // Every packet is cut and summed by us and checked by the receiver's kernel.
    options.complete_checksums = true;
    let result =
        testbed::run(&study("C1", 2), &options, &mut |line| eprintln!("{line}")).expect("a run");
    assert_eq!(result.counts["checksum_errors"], 0);
    assert_eq!(result.counts["drops"], 0);
    assert!(result.counts["packets"] > 100, "{result:?}");
    assert_eq!(result.flow_gbps.len(), 2);
    assert!(
        result.throughput_gbps <= 0.2001,
        "never above the line rate: {}",
        result.throughput_gbps
    );
    assert!(
        result.ping_us.is_some_and(|ping| ping.count > 0),
        "pings are answered"
    );
}

/// Pseudo-random bytes, the same in every run.
fn bytes(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..count / 8).flat_map(|_| next()).collect()
}

/// Sends `data` through the card with `python3` sockets and returns what arrived.
fn through(pair: &Pair, address: &str, data: &[u8]) -> Vec<u8> {
    let receive = "import socket,sys\n\
                   s=socket.create_server((sys.argv[1],7000),family=socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET)\n\
                   print('ready',file=sys.stderr,flush=True)\n\
                   c,_=s.accept()\n\
                   while True:\n d=c.recv(1<<16)\n if not d: break\n sys.stdout.buffer.write(d)";
    let send = "import socket,sys\n\
                c=socket.create_connection((sys.argv[1],7000))\n\
                c.sendall(sys.stdin.buffer.read())\n\
                c.shutdown(1); c.recv(1)";
    let python = |space: &str, script: &str| {
        let mut command = isolane_host::command::command("ip");
        command.args([
            "netns", "exec", space, "timeout", "30", "python3", "-c", script, address,
        ]);
        command
    };
    let mut receiver = python(pair.receiver(), receive)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a receiver");
    let mut ready = [0; 5];
    receiver
        .stderr
        .as_mut()
        .expect("piped")
        .read_exact(&mut ready)
        .expect("the receiver listens");
    let mut sender = python(pair.sender(), send)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a sender");
    sender
        .stdin
        .take()
        .expect("piped")
        .write_all(data)
        .expect("the sender takes it");
    let output = receiver.wait_with_output().expect("the receiver ends");
    let _ = sender.kill();
    let _ = sender.wait();
    output.stdout
}

#[test]
fn a_random_file_arrives_unchanged_over_both_versions_of_ip() {
    kernel_test!();
    let pair = Pair::make().expect("namespaces");
    let data = bytes(4_000_000);
    for complete_checksums in [false, true] {
        let nic = card(&pair, BitRate::from_gbps(1), complete_checksums);
        for address in [RECEIVER, RECEIVER6] {
            let got = through(&pair, address, &data);
            assert_eq!(got.len(), data.len(), "over {address}");
            assert!(got == data, "over {address}");
        }
        drop(nic);
    }
}

#[test]
fn nothing_is_left_behind() {
    kernel_test!();
    let pair = Pair::make().expect("namespaces");
    let (sender, receiver) = (pair.sender().to_owned(), pair.receiver().to_owned());
    let nic = card(&pair, BitRate::from_gbps(1), false);
    let names = || isolane_host::command::run("ip netns list").expect("a list");
    assert!(names().contains(&sender) && names().contains(&receiver));
    drop(nic);
    drop(pair);
    assert!(!names().contains(&sender) && !names().contains(&receiver));
}

/// A process that is killed cannot clean up; the next one does.
#[test]
fn what_a_killed_process_left_is_removed_by_the_next() {
    kernel_test!();
    let mut gone = Command::new("true").spawn().expect("a process");
    let stale = format!("{}{}.1-0-s", spaces::PREFIX, gone.id());
    gone.wait().expect("it ends");
    isolane_host::command::run(&format!("ip netns add {stale}")).expect("a namespace");
    let mut left = isolane_host::command::command("ip")
        .args(["netns", "exec", &stale, "sleep", "60"])
        .spawn()
        .expect("a program in it");
    std::thread::sleep(std::time::Duration::from_millis(200));
    let pair = Pair::make().expect("namespaces");
    let names = isolane_host::command::run("ip netns list").expect("a list");
    assert!(!names.contains(&stale), "{names}");
    assert!(
        !left.wait().expect("it ended").success(),
        "the program was killed"
    );
    drop(pair);
}

#[test]
fn a_cluster_is_refused_with_the_remedy() {
    let mut cluster = study("C1", 1);
    cluster.traffic = NicTraffic::AllToAll {
        hosts: 6,
        second_switch: 0,
        bytes: Bytes::from_mib(1),
    };
    let interrupted = AtomicBool::new(false);
    let error = testbed::run(&cluster, &TestbedOptions::new(&interrupted), &mut |_| {})
        .expect_err("refused");
    assert!(error.to_string().contains("--sim"), "{error}");
}
