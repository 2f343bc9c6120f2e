//! The soft card with the real kernel: namespaces, TUN, unmodified programs. Skipped, with the reason, without root or TUN.

use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use isolane_ethernet_scenario::config;
use isolane_ethernet_scenario::model::{NicStudy, NicTraffic};
use isolane_ethernet_software_card::card::Discipline;
use isolane_ethernet_software_card::nic::{Nic, NicOptions};
use isolane_ethernet_software_card::spaces::{self, DeviceOptions, Pair, RECEIVER, RECEIVER6};
use isolane_ethernet_software_card::testbed::{self, TestbedOptions};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;

/// Why real-kernel tests cannot run here, if they cannot.
fn missing() -> Option<&'static str> {
    if !isolane_common_linux::namespaces::is_root() {
        return Some("this is not root");
    }
    if !std::path::Path::new("/dev/net/tun").exists() {
        return Some("there is no /dev/net/tun");
    }
    let has = |program| {
        isolane_common_linux::command::command(program)
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
            isolane_common_linux::skip::skip(reason);
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

fn card(pair: &Pair, rate: BitRate, queue_frames: u32, complete_checksums: bool) -> Nic {
    let device = DeviceOptions {
        queues: 8,
        segmentation: true,
        queue_frames,
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

/// Waits for what comes by itself. The limit only ends a test that would wait for ever.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < until, "{what}: not in a minute");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
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
        let mut command = isolane_common_linux::command::command("ip");
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
        let nic = card(&pair, BitRate::from_gbps(1), 16, complete_checksums);
        for address in [RECEIVER, RECEIVER6] {
            let got = through(&pair, address, &data);
            assert_eq!(got.len(), data.len(), "over {address}");
            assert!(got == data, "over {address}");
        }
        drop(nic);
    }
}

/// Flows that keep their queue full have the same share to a few packets, which flows that met in a queue would not have,
/// and nothing is reordered though flows change queues. (A flow that TCP itself keeps small is no concern of the card's.)
#[test]
fn with_dynamic_assignment_backlogged_flows_share_evenly_and_in_order() {
    kernel_test!();
    let interrupted = AtomicBool::new(false);
    let options = TestbedOptions::new(&interrupted);
    let result =
        testbed::run(&study("T1", 3), &options, &mut |line| eprintln!("{line}")).expect("a run");
    let most = result.flow_gbps.iter().copied().fold(0.0, f64::max);
    let backlogged = result
        .flow_gbps
        .iter()
        .filter(|gbps| **gbps > 0.75 * most)
        .count();
    // Two that shared a queue would have half of the third's, alone with it. Flows that moved to a queue of their own while it
    // was measured have a little less than the third.
    assert!(backlogged >= 2, "{result:?}");
    assert_eq!(result.counts["reordered"], 0, "{result:?}");
    assert_eq!(
        result.counts["held"], 0,
        "no flow moved while its frame was in hand: {result:?}"
    );
    assert!(!result.queue_bytes_max.is_empty());
}

/// Two queues that are always backlogged share the wire by their weights. They hold more than leaves them while it is
/// measured, so it does not matter when a busy machine lets the flood run.
#[test]
fn weights_of_one_to_three_divide_the_wire_one_to_three() {
    kernel_test!();
    let pair = Pair::make().expect("namespaces");
    let mut nic = card(&pair, BitRate::from_bps(20_000_000), RING, false);
    let (queues, mut sender) = flood(&pair, &mut nic);
    let mut weights = vec![1; 8];
    (weights[queues[0]], weights[queues[1]]) = (1_000, 3_000);
    nic.set_weights(weights).expect("weights");
    let sent = |nic: &mut Nic| {
        let counts = nic.counts().expect("counts");
        queues.map(|queue| counts.queues[queue].bytes)
    };
    let before = sent(&mut nic);
    std::thread::sleep(std::time::Duration::from_millis(2_000));
    let after = sent(&mut nic);
    let _ = sender.kill();
    let _ = sender.wait();
    let [one, three] = [0, 1].map(|index| (after[index] - before[index]) as f64);
    let ratio = three / one;
    assert!(
        (2.94..=3.06).contains(&ratio),
        "{ratio}: {before:?} {after:?}"
    );
}

/// Frames that a queue of the flooded card holds: three seconds of its larger share.
const RING: u32 = 4_000;

/// Datagrams without end on two queues, which are full; returns which, and the sender.
fn flood(pair: &Pair, nic: &mut Nic) -> ([usize; 2], Child) {
    let script = "import socket,sys,time\n\
                  s=[]\n\
                  for p in range(9000,9032):\n\
                  \x20 c=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); c.bind(('',p+9000)); c.connect((sys.argv[1],p)); s.append(c)\n\
                  a,b=int(sys.argv[2]),int(sys.argv[3])\n\
                  def go(c):\n\
                  \x20 try: c.send(b'x'*1400)\n\
                  \x20 except OSError: pass\n\
                  if a<0:\n\
                  \x20 c=s[b]; go(c); sys.exit()\n\
                  t=time.time()+300\n\
                  while time.time()<t:\n\
                  \x20 for _ in range(20): go(s[a]); go(s[b])\n\
                  \x20 time.sleep(0.001)";
    let python = |a: &str, b: &str| {
        let mut command = isolane_common_linux::command::command("ip");
        command.args([
            "netns",
            "exec",
            pair.sender(),
            "python3",
            "-c",
            script,
            RECEIVER,
            a,
            b,
        ]);
        command
    };
    let bytes = |nic: &mut Nic| -> Vec<u64> {
        let counts = nic.counts().expect("counts");
        counts.queues.iter().map(|queue| queue.bytes).collect()
    };
    // The kernel's hash says where a socket's datagrams go: try sockets until two are apart.
    let mut found: Vec<(usize, usize)> = Vec::new();
    for socket in 0..32 {
        let before = bytes(nic);
        python("-1", &socket.to_string()).status().expect("python3");
        // The kernel itself sends small packets now and then.
        let mut found_at = None;
        wait_until("a datagram passes the card", || {
            let after = bytes(nic);
            found_at = (0..8).find(|queue| after[*queue] >= before[*queue] + 1_400);
            found_at.is_some()
        });
        let queue = found_at.expect("just found");
        if found.iter().all(|(_, other)| *other != queue) {
            found.push((socket, queue));
        }
        if found.len() == 2 {
            break;
        }
    }
    let [(a, first), (b, second)] = found[..] else {
        panic!("two queues of eight among 32 sockets: {found:?}");
    };
    let child = python(&a.to_string(), &b.to_string())
        .spawn()
        .expect("python3");
    // As many go to one as to the other: when so many found no place, both are full.
    let dropped = || {
        let file = format!(
            "cat /sys/class/net/{}/statistics/tx_dropped",
            spaces::DEVICE
        );
        let line = format!("ip netns exec {} {file}", pair.sender());
        let text = isolane_common_linux::command::run(&line).expect("a counter");
        text.trim().parse::<u32>().expect("a number")
    };
    wait_until("full queues", || dropped() > 3 * RING);
    ([first, second], child)
}

#[test]
fn nothing_is_left_behind() {
    kernel_test!();
    let pair = Pair::make().expect("namespaces");
    let (sender, receiver) = (pair.sender().to_owned(), pair.receiver().to_owned());
    let nic = card(&pair, BitRate::from_gbps(1), 16, false);
    let names = || isolane_common_linux::command::run("ip netns list").expect("a list");
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
    let stale = format!("{}{}_1-0-s", spaces::PREFIX, gone.id());
    gone.wait().expect("it ends");
    isolane_common_linux::command::run(&format!("ip netns add {stale}")).expect("a namespace");
    let mut left = isolane_common_linux::command::command("ip")
        .args(["netns", "exec", &stale, "sleep", "60"])
        .spawn()
        .expect("a program in it");
    let own = std::fs::read_link("/proc/self/ns/net").expect("a namespace");
    let its = || std::fs::read_link(format!("/proc/{}/ns/net", left.id()));
    wait_until("it enters the namespace", || {
        its().is_ok_and(|its| its != own)
    });
    let pair = Pair::make().expect("namespaces");
    let names = isolane_common_linux::command::run("ip netns list").expect("a list");
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
