//! Containers on the soft card: real iperf3 flows in two cgroups, whose weights and not whose flows decide.
//!
//! Method: one container has a single flow, the other sixteen and twice the weight. The BPF programs restrict each
//! container to queues of its own, the NIC gets the policy's weights of queues, and bytes are counted at the wire. In one
//! test the containers are in a network namespace behind the sender, which routes their packets.
//! Skipped, with the reason, without root, TUN or version 2 cgroups. Everything is removed at the end.

use isolane_common_linux::namespaces::{self, Space};
use isolane_common_linux::skip::skip;
use isolane_common_quantities::units::{BitRate, Duration};
use isolane_ethernet_bpf::{
    Completion, Dqa, DqaSettings, Gate, LoadOptions, WEIGHT_ONE, WeightSource, bpffs,
};
use isolane_ethernet_policy::titan::{QueueSet, pools};
use isolane_ethernet_software_card::card::Discipline;
use isolane_ethernet_software_card::nic::{Nic, NicOptions};
use isolane_ethernet_software_card::programs::{self, Share};
use isolane_ethernet_software_card::spaces::{self, DEVICE, DeviceOptions, Pair, RECEIVER};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

/// Queues of the card.
const QUEUES: u16 = 8;
/// Flows of the two containers, and their weights.
const FLOWS: [u32; 2] = [1, 16];
const WEIGHTS: [u32; 2] = [1, 2];

/// A cgroup, removed when dropped.
struct Group(PathBuf);

impl Group {
    fn make(root: &Path, name: &str) -> Self {
        let path = root.join(format!("isolane-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a cgroup");
        Self(path)
    }

    fn number(&self) -> u64 {
        std::fs::metadata(&self.0).expect("it was made").ino()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes were killed just now.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// A container's iperf3, killed when dropped.
struct Sender(Child);

impl Sender {
    /// Joins the cgroup first: under `ip netns exec` the hierarchy is out of sight.
    fn start(group: &Group, space: &str, index: usize) -> Self {
        let script = format!(
            "echo $$ > {}/cgroup.procs && exec setpriv --pdeathsig KILL ip netns exec {space} \
             iperf3 -c {RECEIVER} -p {} -t 600 -P {} -i 0",
            group.0.display(),
            5_201 + index,
            FLOWS[index]
        );
        let mut shell = isolane_common_linux::command::command("sh");
        let started = shell.args(["-c", &script]).stdout(Stdio::null()).spawn();
        Self(started.expect("sh"))
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory of pins, removed when dropped.
struct Pins(PathBuf);

impl Drop for Pins {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn cgroups() -> Option<&'static Path> {
    let roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
    let found = roots
        .into_iter()
        .find(|root| root.join("cgroup.procs").exists());
    found.filter(|_| {
        namespaces::is_root() && Path::new("/dev/net/tun").exists() && {
            let iperf3 = isolane_common_linux::command::command("iperf3")
                .arg("--version")
                .output();
            iperf3.is_ok()
        }
    })
}

/// A namespace whose packets the sender routes to the receiver.
fn behind(pair: &Pair) -> Space {
    let name = format!("{}-inner", pair.sender());
    let inner = Space::make(name).expect("a namespace");
    let (space, sender, receiver) = (inner.name(), pair.sender(), pair.receiver());
    for line in [
        format!("ip -n {space} link add c0 type veth peer name c1 netns {sender}"),
        format!("ip -n {space} addr add 10.99.0.2/24 dev c0"),
        format!("ip -n {space} link set c0 up"),
        format!("ip -n {sender} addr add 10.99.0.1/24 dev c1"),
        format!("ip -n {sender} link set c1 up"),
        format!("ip -n {space} route add default via 10.99.0.1"),
        format!("ip -n {receiver} route add 10.99.0.0/24 dev {DEVICE}"),
        format!("ip netns exec {sender} tee /proc/sys/net/ipv4/ip_forward"),
    ] {
        let mut words = line.split(' ');
        let mut command =
            isolane_common_linux::command::command(words.next().expect("the program's name"));
        let mut child = command
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("ip");
        let mut input = child.stdin.take().expect("piped");
        // Only the last command reads.
        let _ = input.write_all(b"1");
        drop(input);
        assert!(child.wait().expect("ends").success(), "{line}");
    }
    inner
}

/// The programs on the sender's device, each container held to its queues, and its flows noted at its cgroup.
fn programs_of(
    sender: &str,
    pins: &Path,
    groups: &[Group; 2],
    containers: &[(u64, u32, QueueSet)],
) -> Dqa {
    let index =
        isolane_common_linux::command::run(&format!("ip -n {sender} -o link show dev {DEVICE}"))
            .expect("the device is there");
    let index = index
        .split(':')
        .next()
        .and_then(|word| word.trim().parse().ok());
    let options = LoadOptions {
        ifindex: index.expect("a number"),
        queues: QUEUES,
        completion: Completion::InHand,
        hardware_segmentation: true,
        pins: pins.to_owned(),
        flows: 0,
    };
    let settings = DqaSettings {
        weights: WeightSource::Containers,
        gate: Some(Gate {
            flow_bytes: 2 * 65_664,
            queue_bytes: 4 * 65_664,
        }),
        ..DqaSettings::default()
    };
    let space = File::open(namespaces::file(sender)).expect("the namespace was made");
    std::thread::scope(|scope| {
        let loaded = scope.spawn(|| {
            move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("root may enter");
            let mut dqa = Dqa::load(&options, &settings).expect("programs load");
            for (cgroup, weight, set) in containers {
                dqa.set_container(*cgroup, *weight, *set)
                    .expect("room for two");
            }
            for group in groups {
                let directory = File::open(&group.0).expect("its directory");
                dqa.carry(group.number(), directory.as_fd())
                    .expect("a fresh cgroup");
            }
            dqa.attach().expect("a fresh device");
            dqa
        });
        loaded.join().expect("loading does not panic")
    })
}

/// Waits for what comes by itself. The limit only ends a test that would wait for ever.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < until, "{what}: not in a minute");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn weights_of_containers_decide_however_many_flows_they_have() {
    if let Some((ratio, said)) = ratio_of(false) {
        assert!((1.7..2.3).contains(&ratio), "{said}");
    }
}

/// Goal: routing, which takes the socket from the packets, leaves containers their weights.
#[test]
fn weights_of_routed_containers_decide_too() {
    if let Some((ratio, said)) = ratio_of(true) {
        assert!((ratio - 2.0).abs() <= 0.1, "{said}");
    }
}

/// The bytes of the container with weight 2 and sixteen flows for each byte of the other one, the median of five windows,
/// and all of them beside the queues.
fn ratio_of(routed: bool) -> Option<(f64, String)> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(root) = cgroups() else {
        skip("needs root, TUN, iperf3 and cgroup version 2");
        return None;
    };
    let groups = ["one", "many"].map(|name| Group::make(root, name));
    let pair = Pair::make().expect("namespaces");
    let device = DeviceOptions {
        queues: QUEUES,
        segmentation: true,
        queue_frames: 512,
        mtu: 1_500,
    };
    let (mut from, to) =
        spaces::open_devices(pair.sender(), pair.receiver(), &device).expect("devices");
    let inner = routed.then(|| behind(&pair));
    let space = inner.as_ref().map_or(pair.sender(), Space::name);
    let sets = pools::divide(&WEIGHTS, QueueSet::first(QUEUES));
    let holders = [0, 1].map(|index| (WEIGHTS[index] * WEIGHT_ONE, sets[index]));
    let containers =
        [0, 1].map(|index| (groups[index].number(), holders[index].0, holders[index].1));
    let root_of_pins = bpffs::find_or_mount().expect("a BPF file system");
    let pins = Pins(root_of_pins.join(format!("soft-{}-containers", namespaces::maker())));
    let dqa = Arc::new(programs_of(pair.sender(), &pins.0, &groups, &containers));
    from.set_steering(dqa.clone()).expect("TUN is steered");
    let loads = {
        let dqa = dqa.clone();
        move || {
            let queues = dqa.queues();
            let flows: Vec<u32> = queues.iter().map(|queue| queue.flows).collect();
            let own: Vec<u64> = queues.iter().map(|queue| queue.weight).collect();
            pools::loads(&holders, &flows, &own)
        }
    };
    let card = NicOptions {
        // Little enough that a busy machine keeps every queue full: the single flow's bytes in the card last 60 ms.
        rate: BitRate::from_bps(50_000_000),
        discipline: Discipline::Weighted,
        interrupt: Duration::from_us(100),
        complete_checksums: false,
        processor: None,
    };
    let mut nic = Nic::start(from, to, card, Some(Box::new(loads))).expect("a card");
    let shares = FLOWS.map(|flows| Share {
        processor: 0,
        flows,
    });
    let servers = programs::start_servers(pair.receiver(), &shares).expect("iperf3");
    wait_until("servers that listen", || {
        programs::listening(servers[0].id(), pair.receiver()) >= shares.len()
    });
    let senders = [0, 1].map(|index| Sender::start(&groups[index], space, index));
    let all: u32 = FLOWS.iter().sum();
    wait_until("every flow sends", || {
        let flows = dqa.flows();
        let busy = flows.iter().filter(|flow| flow.sent_bytes > 200_000);
        busy.count() >= all as usize
    });
    // The median: in one of the windows the machine may stop the single flow's sender for longer than its queue lasts.
    let mut ratios = [0; 5].map(|_| ratio_in_a_window(&mut nic));
    ratios.sort_by(f64::total_cmp);
    let queues = dqa.queues().into_iter();
    drop(senders);
    drop(servers);
    let queues: Vec<_> = queues.map(|queue| (queue.flows, queue.weight)).collect();
    let said = format!(
        "weight 2 and 16 flows have {ratios:.3?} times the bytes; flows and weights of queues: {queues:?}"
    );
    eprintln!("17 flows, routed {routed}: {said}");
    Some((ratios[2], said))
}

/// A segment is a sixtieth of what the single flow sends in a window.
fn ratio_in_a_window(nic: &mut Nic) -> f64 {
    nic.record().expect("the card runs");
    std::thread::sleep(std::time::Duration::from_secs(2));
    let (record, _) = nic.recorded().expect("the card runs").expect("it recorded");
    let flows = record.bulk(17);
    assert_eq!(flows.len(), 17, "every flow sends");
    let bytes = |port: u16| {
        let of = flows.iter().filter(|flow| flow.key.ports[1] == port);
        of.map(|flow| flow.bytes).sum::<u64>() as f64
    };
    bytes(5_202) / bytes(5_201)
}
