//! Coming and going: load, attach, open from pins, detach, beside other people's filters; and what happens when
//! something is missing: room in the table, completions, the process.
//!
//! Goal: a device's data path neither depends on a process nor loses what others put there, and is never a dead link.
#![allow(unsafe_code)]

use crate::support::{Host, Tun, command, ifindex, in_lab, ip, packet_socket, programs_of, veth};
use isolane_common_linux::skip::skip;
use isolane_ethernet_bpf::{
    Completion, Dqa, DqaSettings, EbpfError, Gate, LoadOptions, QueueSet, WEIGHT_ONE, WeightSource,
};
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn options(device: &str, pins: &Path) -> LoadOptions {
    LoadOptions {
        ifindex: ifindex(device),
        queues: 8,
        completion: Completion::HandedOver,
        hardware_segmentation: true,
        pins: pins.into(),
        flows: 0,
    }
}

/// Whether a BPF program filters what leaves the device.
fn has_filter(device: &str) -> bool {
    command("tc", &format!("filter show dev {device} egress")).contains(" bpf ")
}

fn ping() {
    command("ping", "-c 3 -i 0.01 -W 1 10.1.0.2");
}

/// A TUN device with the programs at it, and `count` connected sockets.
pub(crate) fn tun(
    pins: &Path,
    settings: &DqaSettings,
    flows: u32,
    count: u16,
) -> (Tun, Dqa, Vec<UdpSocket>) {
    let tun = Tun::new("t0", 8);
    ip("addr add 10.2.0.1/24 dev t0");
    let options = LoadOptions {
        completion: Completion::Freed,
        flows,
        ..options("t0", pins)
    };
    let mut dqa = Dqa::load(&options, settings).expect("loads");
    dqa.attach().expect("attaches");
    tun.steer(dqa.steering_program());
    let sockets = (0..count)
        .map(|port| {
            let socket = UdpSocket::bind("10.2.0.1:0").expect("bind");
            socket.connect(("10.2.0.2", 5000 + port)).expect("connect");
            socket
        })
        .collect();
    (tun, dqa, sockets)
}

fn read_all(tun: &Tun) -> usize {
    let queues = 0..tun.queues.len();
    queues
        .map(|queue| std::iter::from_fn(|| tun.read(queue)).count())
        .sum()
}

#[test]
fn a_device_is_left_as_it_was() {
    in_lab("a_device_is_left_as_it_was", |pins| {
        let _peer = veth();
        let before = command("tc", "qdisc show dev v0");
        let mut dqa = Dqa::load(&options("v0", pins), &DqaSettings::default()).expect("loads");
        assert!(!has_filter("v0"));
        dqa.attach().expect("attaches");
        dqa.attach().expect("again is no error");
        assert!(has_filter("v0"));
        let again = Dqa::load(&options("v0", pins), &DqaSettings::default());
        assert!(matches!(again, Err(EbpfError::Exists { .. })), "{again:?}");
        ping();
        let counters = dqa.counters().expect("readable");
        assert!(counters.assigned >= 3, "{counters:?}");
        assert!(counters.completed >= 3, "{counters:?}");
        dqa.detach().expect("detaches");
        assert_eq!(command("tc", "qdisc show dev v0"), before);
        assert!(matches!(Dqa::open(pins), Err(EbpfError::Absent { .. })));
        assert!(!pins.exists(), "nothing is left behind");
        ping();
    });
}

/// Goal: a process that is killed while it loads or removes the programs leaves nothing that stops the next one, or stays.
#[test]
fn a_part_of_the_pins_is_replaced_and_removed() {
    in_lab("a_part_of_the_pins", |pins| {
        let _peer = veth();
        for missing in ["egress", "counters", "dropped"] {
            let load = || Dqa::load(&options("v0", pins), &DqaSettings::default());
            load().expect("loads");
            std::fs::remove_file(pins.join(missing)).expect("it was pinned");
            let open = Dqa::open(pins);
            assert!(matches!(open, Err(EbpfError::Absent { .. })), "{open:?}");
            load().expect("loads again");
            std::fs::remove_file(pins.join(missing)).expect("it was pinned");
            Dqa::remove_part(pins);
            assert!(!pins.exists(), "without {missing}");
        }
    });
}

/// The loading process, when [`programs_outlive_the_process_that_loaded_them`] starts this file again.
#[test]
fn child() {
    let Some(pins) = std::env::var_os("ISOLANE_EBPF_CHILD") else {
        return;
    };
    let options = options("v0", Path::new(&pins));
    let mut dqa = Dqa::load(&options, &DqaSettings::default()).expect("loads");
    dqa.attach().expect("attaches");
    println!("\nready");
    loop {
        std::thread::park();
    }
}

#[test]
fn programs_outlive_the_process_that_loaded_them() {
    in_lab("programs_outlive_the_process", |pins| {
        let _peer = veth();
        let mut child = Command::new(std::env::current_exe().expect("this file"))
            .args(["--exact", "attach::child", "--nocapture"])
            .env("ISOLANE_EBPF_CHILD", pins)
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let ready = lines.map_while(Result::ok).any(|line| line == "ready");
        assert!(ready, "the child ended early");
        child.kill().expect("kill -9");
        child.wait().expect("gone");
        ping();
        let dqa = Dqa::open(pins).expect("pins outlive who made them");
        assert!(has_filter("v0"));
        let before = dqa.counters().expect("readable");
        ping();
        let after = dqa.counters().expect("readable");
        assert!(after.completed >= before.completed + 3, "{after:?}");
        dqa.detach().expect("another process may detach");
        ping();
    });
}

#[test]
fn other_filters_stay_and_still_run() {
    in_lab("other_filters_stay", |pins| {
        let _peer = veth();
        command("tc", "qdisc add dev v0 clsact");
        // A filter of another kind at the first place, and one that accepts everything after ours.
        let first = "filter add dev v0 egress pref 1 protocol ip u32 match ip dst 10.1.0.77/32";
        command("tc", &format!("{first} classid 1:7"));
        command(
            "tc",
            "filter add dev v0 egress pref 500 protocol all u32 match u32 0 0 classid 1:0",
        );
        let before = command("tc", "filter show dev v0 egress");
        let mut dqa = Dqa::load(&options("v0", pins), &DqaSettings::default()).expect("loads");
        dqa.set_patience(Duration::from_millis(100), Duration::from_millis(400));
        dqa.attach().expect("attaches");
        // That one clears our marks: first nothing seems to complete, then completions go by the hash.
        command("ping", "-c 30 -i 0.02 -W 1 10.1.0.2");
        assert!(dqa.is_untagged());
        let before_ping = dqa.counters().expect("readable");
        ping();
        let counters = dqa.counters().expect("readable");
        assert!(
            counters.completed >= before_ping.completed + 3,
            "{counters:?}"
        );
        assert_eq!(counters.untouched, before_ping.untouched);
        dqa.detach().expect("detaches");
        assert_eq!(command("tc", "filter show dev v0 egress"), before);
        assert!(command("tc", "qdisc show dev v0").contains("clsact"));
        ping();
    });
}

#[test]
fn clsact_that_others_came_to_use_stays() {
    in_lab("clsact_stays", |pins| {
        let _peer = veth();
        let mut dqa = Dqa::load(&options("v0", pins), &DqaSettings::default()).expect("loads");
        dqa.attach().expect("attaches");
        let ingress = "filter add dev v0 ingress protocol ip u32 match u32 0 0 classid 1:1";
        command("tc", ingress);
        dqa.detach().expect("detaches");
        assert!(command("tc", "filter show dev v0 ingress").contains("u32"));
    });
}

#[test]
fn a_full_table_leaves_packets_to_the_kernel() {
    in_lab("a_full_table", |pins| {
        let (tun, dqa, sockets) = tun(pins, &DqaSettings::default(), 4, 20);
        for socket in &sockets {
            socket.send(&[0; 100]).expect("passes all the same");
        }
        let counters = dqa.counters().expect("readable");
        assert_eq!((counters.assigned, counters.full), (4, 16), "{counters:?}");
        assert_eq!(read_all(&tun), 20);
        // With nothing outstanding, entries go to the next flows.
        for socket in &sockets {
            socket.send(&[0; 100]).expect("send");
            assert_eq!(read_all(&tun), 1);
        }
        let counters = dqa.counters().expect("readable");
        assert_eq!((counters.assigned, counters.full), (24, 16), "{counters:?}");
        assert!(counters.evicted >= 16, "{counters:?}");
        dqa.detach().expect("detaches");
    });
}

#[test]
fn copies_for_a_capture_are_not_completions() {
    in_lab("a_capture", |pins| {
        let (tun, dqa, sockets) = tun(pins, &DqaSettings::default(), 0, 2);
        let capture = packet_socket();
        for _ in 0..10 {
            sockets[0].send(&[0; 100]).expect("send");
        }
        drop(capture);
        let flow = dqa.flows().iter().find(|flow| flow.sent_packets == 10);
        assert_eq!(flow.expect("an entry").outstanding, 10);
        assert_eq!(read_all(&tun), 10);
        assert!(dqa.flows().iter().all(|flow| flow.outstanding == 0));
        assert_eq!(dqa.counters().expect("readable").unknown, 0);
        dqa.detach().expect("detaches");
    });
}

#[test]
fn without_completions_the_programs_stand_aside_and_come_back() {
    in_lab("without_completions", |pins| {
        let (tun, mut dqa, sockets) = tun(pins, &DqaSettings::default(), 0, 1);
        dqa.set_patience(Duration::from_millis(50), Duration::from_millis(200));
        // Without a reader nothing completes.
        for _ in 0..30 {
            sockets[0].send(&[0; 100]).expect("send");
            std::thread::sleep(Duration::from_millis(20));
        }
        let counters = dqa.counters().expect("readable");
        assert!(counters.untouched > 5, "{counters:?}");
        assert_eq!(read_all(&tun), 30, "every packet passed");
        sockets[0].send(&[0; 100]).expect("send");
        let after = dqa.counters().expect("readable");
        assert_eq!(after.untouched, counters.untouched, "completions are back");
        assert_eq!(read_all(&tun), 1);
        dqa.detach().expect("detaches");
    });
}

#[test]
fn flows_whose_completions_were_lost_are_healed() {
    in_lab("lost completions", |pins| {
        let (tun, mut dqa, sockets) = tun(pins, &DqaSettings::default(), 64, 6);
        dqa.set_patience(Duration::from_secs(60), Duration::from_secs(60));
        for socket in &sockets {
            socket.send(&[0; 100]).expect("send");
        }
        // Most queues are never read: as if their completions had been lost.
        let weight = |dqa: &Dqa| dqa.queues().iter().map(|queue| queue.weight).sum::<u64>();
        assert_eq!(weight(&dqa), 6 * u64::from(WEIGHT_ONE));
        dqa.set_patience(Duration::from_millis(50), Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(100));
        // One living flow is enough to find the others, a few sets at each tick.
        for _ in 0..40 {
            sockets[0].send(&[0; 100]).expect("send");
            let queue = dqa.flows().iter().find(|flow| flow.sent_packets > 1);
            let queue = queue.expect("its entry").queue;
            while tun.read(usize::from(queue)).is_some() {}
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(weight(&dqa), 0, "{:?}", dqa.flows());
        assert!(dqa.counters().expect("readable").healed >= 4);
        dqa.detach().expect("detaches");
    });
}

#[test]
fn the_gate_holds_back_what_has_something_outstanding() {
    in_lab("the_gate", |pins| {
        let gate = Gate {
            flow_bytes: 3000,
            queue_bytes: 0,
        };
        let settings = DqaSettings {
            gate: Some(gate),
            ..DqaSettings::default()
        };
        let (tun, dqa, sockets) = tun(pins, &settings, 0, 1);
        for _ in 0..10 {
            // What the gate drops is lost, as at a full queue.
            let _ = sockets[0].send(&[0; 1000 - 28]);
        }
        assert_eq!(dqa.counters().expect("readable").gated, 7);
        assert_eq!(
            dqa.queues().iter().map(|queue| queue.bytes).sum::<u64>(),
            3000
        );
        assert_eq!(read_all(&tun), 3);
        assert_eq!(dqa.queues().iter().map(|queue| queue.bytes).sum::<u64>(), 0);
        sockets[0]
            .send(&[0; 3500])
            .expect("one packet always passes");
        assert_eq!(read_all(&tun), 1);
        dqa.detach().expect("detaches");
    });
}

/// Goal: in a full queue a flow that came first does not keep out one that has less than its part.
#[test]
fn a_full_queue_holds_back_who_has_his_part() {
    in_lab("a_full_queue", |pins| {
        let settings = DqaSettings {
            gate: Some(Gate {
                flow_bytes: 0,
                queue_bytes: 8000,
            }),
            ..DqaSettings::default()
        };
        // Two flows on each of eight queues.
        let (tun, dqa, sockets) = tun(pins, &settings, 0, 16);
        for count in [1, 20] {
            for socket in &sockets {
                for _ in 0..count {
                    // What the gate drops is lost, as at a full queue.
                    let _ = socket.send(&[0; 1000 - 28]);
                }
            }
        }
        let flows = dqa.flows();
        let mut of_queue = [(); 8].map(|()| Vec::new());
        for flow in flows.iter() {
            of_queue[usize::from(flow.queue)].push(flow.outstanding_bytes);
        }
        for bytes in &mut of_queue {
            bytes.sort_unstable();
            // The first took what was left; the second still got its half.
            assert_eq!(*bytes, [4000, 7000], "{flows:?}");
        }
        assert_eq!(read_all(&tun), 8 * 11);
        dqa.detach().expect("detaches");
    });
}

/// Where cgroup version 2 is mounted.
fn cgroups() -> Option<&'static Path> {
    let roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
    roots
        .into_iter()
        .find(|root| root.join("cgroup.procs").exists())
}

/// A cgroup, removed when dropped; its processes have ended by then.
struct Group(std::path::PathBuf);

impl Group {
    fn make(root: &Path, name: &str) -> Self {
        let path = root.join(format!("isolane-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a cgroup");
        Self(path)
    }

    fn id(&self) -> u64 {
        std::fs::metadata(&self.0).expect("exists").ino()
    }

    /// Runs a Python script in it, after `enter`. A socket belongs to the cgroup of the process that makes it.
    fn python(&self, enter: &str, script: &str) {
        let join = format!(
            "echo $$ > {}/cgroup.procs && exec {enter} python3 -",
            self.0.display()
        );
        let mut shell = Command::new("sh")
            .args(["-c", &join])
            .stdin(Stdio::piped())
            .spawn()
            .expect("sh");
        let mut input = shell.stdin.take().expect("piped");
        std::io::Write::write_all(&mut input, script.as_bytes()).expect("a script");
        drop(input);
        assert!(shell.wait().expect("ends").success());
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Sends one packet on each of four connected sockets.
const FOUR_FLOWS: &str = "import socket\n\
    a=[socket.socket(socket.AF_INET,socket.SOCK_DGRAM) for _ in range(4)]\n\
    [(s.connect(('10.2.0.2',6000+i)),s.send(b'x'*200)) for i,s in enumerate(a)]\n";

#[test]
fn flows_of_a_container_share_its_weight_and_its_queues() {
    let Some(root) = cgroups() else {
        skip("flows_of_a_container needs cgroup version 2");
        return;
    };
    in_lab("containers", |pins| {
        let group = Group::make(root, "test");
        let id = group.id();
        let settings = DqaSettings {
            weights: WeightSource::Containers,
            ..DqaSettings::default()
        };
        let (tun, mut dqa, _) = tun(pins, &settings, 0, 0);
        dqa.set_container(id, 4 * WEIGHT_ONE, QueueSet(0b11))
            .expect("room");
        group.python("", FOUR_FLOWS);
        let flows: Vec<_> = dqa.flows().iter().filter(|flow| flow.owner == id).collect();
        let mut weights: Vec<u32> = flows.iter().map(|flow| flow.weight / 4).collect();
        weights.sort_unstable();
        // The first alone, then a half, a third, a quarter.
        assert_eq!(weights, [256, 341, 512, 1024]);
        assert!(flows.iter().all(|flow| flow.queue < 2), "{flows:?}");
        assert_eq!(read_all(&tun), 4);
        assert!(dqa.queues().iter().all(|queue| queue.weight == 0));
        dqa.remove_container(id).expect("known");
        dqa.remove_container(id).expect("unknown is no error");
        dqa.detach().expect("detaches");
    });
}

/// Goal: a container in a routed network namespace has its weight, and detach leaves nothing at its cgroup.
#[test]
fn routed_flows_keep_their_container() {
    let Some(root) = cgroups() else {
        skip("routed_flows needs cgroup version 2");
        return;
    };
    in_lab("routed_flows", |pins| {
        let groups = ["routed", "noted"].map(|name| Group::make(root, name));
        let settings = DqaSettings {
            weights: WeightSource::Containers,
            ..DqaSettings::default()
        };
        let (tun, mut dqa, _) = tun(pins, &settings, 0, 0);
        let inner = Host::new();
        let path = inner.path();
        ip(&format!("link add c1 type veth peer name c0 netns {path}"));
        ip("addr add 10.3.0.1/24 dev c1");
        ip("link set c1 up");
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("of this namespace");
        inner.run(|| {
            ip("addr add 10.3.0.2/24 dev c0");
            ip("link set c0 up");
            ip("route add default via 10.3.0.1");
        });
        let enter = format!("nsenter --net={path}");
        for group in &groups {
            dqa.set_container(group.id(), 2 * WEIGHT_ONE, QueueSet(0))
                .expect("room");
        }
        let noted = std::fs::File::open(&groups[1].0).expect("its directory");
        dqa.carry(groups[1].id(), noted.as_fd()).expect("attaches");
        dqa.carry(groups[1].id(), noted.as_fd())
            .expect("again is no error");
        assert_eq!(dqa.carried(), [groups[1].id()]);
        // Without the program at its cgroup, a routed container is unknown: the error that this mends.
        groups[0].python(&enter, FOUR_FLOWS);
        assert!(
            dqa.flows()
                .iter()
                .all(|flow| flow.owner == 0 && flow.weight == WEIGHT_ONE)
        );
        assert_eq!(read_all(&tun), 4);
        groups[1].python(&enter, FOUR_FLOWS);
        let flows = dqa.flows().iter();
        let flows: Vec<_> = flows.filter(|flow| flow.owner == groups[1].id()).collect();
        let mut weights: Vec<u32> = flows.iter().map(|flow| flow.weight / 2).collect();
        weights.sort_unstable();
        assert_eq!(weights, [256, 341, 512, 1024]);
        assert_eq!(dqa.counters().expect("readable").carried, 4);
        assert_eq!(read_all(&tun), 4);
        let reopened = Dqa::open(pins).expect("pinned");
        assert!(reopened.carries(groups[1].id()) && !reopened.carries(groups[0].id()));
        assert_eq!(programs_of(noted.as_fd()), 1);
        dqa.detach().expect("detaches");
        drop(reopened);
        assert!(!pins.exists(), "nothing is left behind");
        assert_eq!(programs_of(noted.as_fd()), 0);
    });
}

#[test]
fn a_device_that_is_gone_can_be_detached() {
    in_lab("a_device_that_is_gone", |pins| {
        let (tun, dqa, _) = tun(pins, &DqaSettings::default(), 0, 0);
        ip("link del t0");
        drop(tun);
        dqa.detach().expect("no error");
        assert!(!pins.exists());
    });
}

#[test]
fn the_number_of_queues_may_change_while_packets_flow() {
    in_lab("the_number_of_queues", |pins| {
        let (tun, mut dqa, sockets) = tun(pins, &DqaSettings::default(), 0, 16);
        for socket in &sockets {
            socket.send(&[0; 100]).expect("send");
        }
        dqa.set_queues(3).expect("fewer");
        assert_eq!(read_all(&tun), 16);
        for socket in &sockets {
            socket.send(&[0; 100]).expect("send");
        }
        assert!(
            dqa.flows().iter().all(|flow| flow.queue < 3),
            "{:?}",
            dqa.flows()
        );
        let flows: Vec<u32> = dqa.queues().iter().map(|queue| queue.flows).collect();
        assert_eq!(flows.iter().sum::<u32>(), 16);
        assert!(
            flows.iter().all(|flows| (5..=6).contains(flows)),
            "{flows:?}"
        );
        assert_eq!(read_all(&tun), 16);
        dqa.set_queues(8).expect("as before");
        assert!(dqa.queues().iter().all(|queue| queue.weight == 0));
        assert!(matches!(dqa.set_queues(65), Err(EbpfError::BadInput(_))));
        dqa.detach().expect("detaches");
    });
}

#[test]
fn bad_settings_have_distinct_errors() {
    let none = LoadOptions {
        ifindex: 1,
        queues: 0,
        completion: Completion::Freed,
        hardware_segmentation: true,
        pins: "/nowhere".into(),
        flows: 0,
    };
    let message = |options: &LoadOptions, settings: &DqaSettings| {
        Dqa::load(options, settings)
            .expect_err("bad input")
            .to_string()
    };
    let usual = DqaSettings::default();
    expect_test::expect!["0 transmit queues: the programs manage 1 to 64"]
        .assert_eq(&message(&none, &usual));
    let odd = LoadOptions {
        queues: 8,
        flows: 100,
        ..none.clone()
    };
    expect_test::expect!["a table of 100 flows: a power of two from 4 to 16384, or 0 for the most"]
        .assert_eq(&message(&odd, &usual));
    let ninth = DqaSettings {
        latency_queue: Some(8),
        ..usual
    };
    let eight = LoadOptions { queues: 8, ..none };
    expect_test::expect!["latency queue 8 of 8: one of at least two, counted from 0"]
        .assert_eq(&message(&eight, &ninth));
}
