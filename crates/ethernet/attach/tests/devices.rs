//! Devices with a structure: traffic classes, and bonds.

#[allow(dead_code, reason = "the other test files use the rest")]
mod lab;

use isolane_common_linux::skip::does_not_apply;
use isolane_ethernet_attach::attach::{attach, undo_latest};
use isolane_ethernet_attach::bond::{self, BondController};
use isolane_ethernet_attach::control::Controller;
use isolane_ethernet_attach::detach::{Detached, detach};
use isolane_ethernet_attach::journal::Journal;
use isolane_ethernet_attach::options::{Options, Segments};
use isolane_ethernet_attach::{Device, System};
use isolane_ethernet_bpf::{Dqa, FlowSnapshot};
use lab::{Lab, run, wait_for};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

fn options(segments: Segments) -> Options {
    Options {
        segments,
        ..Options::default()
    }
}

/// Runs a command in the sender's namespace; false, with the reason printed, where this kernel lacks a module for it.
fn kernel_can(lab: &Lab, line: &str) -> bool {
    let mut all = vec!["ip", "netns", "exec", lab.sender.as_str()];
    all.extend(line.split(' '));
    match run(&all) {
        Ok(_) => true,
        Err(reason) if reason.contains("nknown") => {
            does_not_apply(reason);
            false
        }
        Err(reason) => panic!("{reason}"),
    }
}

/// Whether nothing of Isolane is on the device.
fn is_bare(system: &System, name: &str) -> bool {
    let device = Device::read(system, name).expect("the device is there");
    device.egress.is_empty() && !device.disciplines.has_clsact()
}

/// Goal: a packet takes a queue of its traffic class, also after the classes change, and the kernel overrules nothing.
/// Method: sockets of two priorities; `mqprio` gives each priority its own queues.
#[test]
fn flows_take_queues_of_their_traffic_class() {
    const SOCKETS: usize = 6;
    const SEND: &str = "import socket, sys\nfor _ in range(6):\n one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n \
        one.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, int(sys.argv[1]))\n one.bind(('', 0))\n \
        one.sendto(bytes(int(sys.argv[2])), ('10.98.0.2', 9))\n";
    /// Ethernet, IPv4 and UDP.
    const HEADERS: u64 = 42;
    let Some(lab) = Lab::new(8) else { return };
    let del = "tc qdisc del dev v0 root";
    let add = |queues: &str| {
        format!("tc qdisc add dev v0 root mqprio num_tc 2 map 0 0 0 0 0 1 queues {queues} hw 0")
    };
    lab.in_sender(&del.split(' ').collect::<Vec<_>>());
    if !kernel_can(&lab, &add("6@0 2@6")) {
        return;
    }
    let system = lab.enter();
    let journal = attach(&system, "v0", options(Segments::Off)).unwrap();
    let stop = AtomicBool::new(false);
    let dqa = Dqa::open(&journal.pins).unwrap();
    // The size of its one packet tells a flow.
    let queues = |priority: u32, bytes: usize| -> Vec<u16> {
        let words = [SEND, &priority.to_string(), &bytes.to_string()];
        lab.in_sender(&[&["python3", "-c"], &words[..]].concat());
        let found = || -> Vec<u16> {
            let of_size = |flow: &FlowSnapshot| flow.sent_bytes == bytes as u64 + HEADERS;
            dqa.flows()
                .iter()
                .filter(of_size)
                .map(|flow| flow.queue)
                .collect()
        };
        wait_for("a flow for each socket", || found().len() == SOCKETS);
        found()
    };
    let found = thread::scope(|scope| {
        scope.spawn(|| {
            let controller = Controller::new(&system, journal.clone());
            controller.unwrap().run(&stop).unwrap()
        });
        let mut found = vec![queues(0, 701), queues(5, 702)];
        for line in [del, &add("2@0 6@2")] {
            lab.in_sender(&line.split(' ').collect::<Vec<_>>());
        }
        wait_for("the new classes", || {
            let now = Journal::of_device(&system, "v0").unwrap().unwrap();
            now.priority_queues[0] == 3 && now.priority_queues[5] == 0xfc
        });
        found.extend([queues(0, 703), queues(5, 704)]);
        stop.store(true, Ordering::Relaxed);
        found
    });
    let allowed = [0..6, 6..8, 0..2, 2..8];
    for (queues, allowed) in found.iter().zip(allowed) {
        assert!(
            queues.iter().all(|queue| allowed.contains(queue)),
            "{found:?}"
        );
    }
    let counters = dqa.counters().unwrap();
    assert_eq!(counters.moved, 0, "{counters:?}");
    // `detach` would end this process, which is the controller.
    undo_latest(&system, &journal).unwrap();
}

/// Goal: a bond is attached as a whole, follows devices that join and leave, and leaves nothing behind. Method: a bond of two
/// veth devices with 4 queues each; a third one joins and the first one leaves.
#[test]
fn a_bond_is_attached_with_all_its_devices() {
    let Some(lab) = Lab::new(4) else { return };
    let ip =
        |words: &str| lab.in_sender(&[&["ip"], &words.split(' ').collect::<Vec<_>>()[..]].concat());
    let bond = "ip link add bond0 type bond mode active-backup";
    if !kernel_can(&lab, bond) {
        return;
    }
    for device in ["w0", "w1", "w2"] {
        ip(&format!(
            "link add {device} numtxqueues 4 type veth peer name {device}p"
        ));
    }
    for device in ["w0", "w1"] {
        ip(&format!("link set {device} master bond0"));
    }
    let system = lab.enter();
    let attached = || -> Vec<String> {
        let journals = bond::journals(&system, "bond0").unwrap();
        let running = journals
            .iter()
            .filter(|journal| journal.running(&system).is_some());
        running.map(|journal| journal.device.clone()).collect()
    };
    let sized = bond::attach(&system, "bond0", options(Segments::Bytes(16 << 10))).unwrap_err();
    assert!(sized.to_string().contains("bond0 is a bond"), "{sized}");
    assert_eq!(
        bond::attach(&system, "bond0", Options::default())
            .unwrap()
            .len(),
        2
    );
    let mut controllers = BondController::new(&system, "bond0").unwrap();
    assert_eq!(attached(), ["w0", "w1"]);
    let alone = detach(&system, "w1").unwrap_err().to_string();
    assert!(alone.contains("`isolane nic detach bond0"), "{alone}");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| controllers.run(&stop, &mut |_| ()).unwrap());
        ip("link set w2 master bond0");
        wait_for("the device that joins", || attached() == ["w0", "w1", "w2"]);
        ip("link set w0 nomaster");
        wait_for("the end of the device that left", || {
            attached() == ["w1", "w2"]
        });
        assert!(is_bare(&system, "w0"));
        stop.store(true, Ordering::Relaxed);
    });
    // `detach` would end this process, which is the controller.
    bond::undo_all(&system, "bond0").unwrap();
    assert_eq!(bond::detach(&system, "bond0").unwrap(), Detached::Nothing);
    assert!(is_bare(&system, "w1") && is_bare(&system, "w2"));
    assert_eq!(Journal::all(&system).unwrap(), []);
}
