//! Attaches Titan to a device of the real kernel under real traffic: no stall, nothing left behind.

mod lab;

use isolane_ethernet_attach::attach::{attach, undo, undo_latest};
use isolane_ethernet_attach::control::{Controller, Ended};
use isolane_ethernet_attach::detach::{Detached, detach};
use isolane_ethernet_attach::effect::Aside;
use isolane_ethernet_attach::journal::Journal;
use isolane_ethernet_attach::link::{Route, Sizes};
use isolane_ethernet_attach::options::{Options, Segments};
use isolane_ethernet_attach::status::{Asked, report};
use isolane_ethernet_attach::{Device, NicError, System, qdisc, queues};
use isolane_ethernet_bpf::Dqa;
use lab::{Lab, intervals, run, wait_for};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Lower bound of the mean segment without a limit, bytes: far above 16 KiB.
const LARGE: f64 = 20_000.0;

/// The state that a device must return to.
#[derive(Debug, PartialEq)]
struct State {
    maps: Vec<queues::SavedMap>,
    sizes: Sizes,
    discipline: String,
    clsact: bool,
    egress: Vec<qdisc::Filter>,
}

fn state(system: &System, name: &str) -> State {
    let device = Device::read(system, name).expect("the device is there");
    State {
        maps: queues::saved_maps(system, name),
        sizes: device.sizes,
        discipline: device.discipline,
        clsact: device.disciplines.has_clsact(),
        egress: device.egress,
    }
}

fn options(segments: Segments) -> Options {
    Options {
        segments,
        ..Options::default()
    }
}

fn set_map(lab: &Lab, queue: u16, processors: &str) {
    let path = format!("/sys/class/net/v0/queues/tx-{queue}/xps_cpus");
    lab.in_sender(&["sh", "-c", &format!("echo {processors} > {path}")]);
}

/// Goal: bytes flow in every half second of attach, a change of settings and detach, and the device returns to its
/// state, including its XPS maps and a foreign program.
#[test]
fn traffic_flows_through_attach_change_and_detach() {
    let Some(mut lab) = Lab::new(8) else { return };
    set_map(&lab, 0, "1");
    set_map(&lab, 1, "2");
    lab.in_sender(&["tc", "qdisc", "add", "dev", "v0", "clsact"]);
    let theirs =
        "tc filter add dev v0 egress pref 7 protocol ip u32 match ip dst 10.99.0.9/32 flowid 1:1";
    lab.in_sender(&theirs.split(' ').collect::<Vec<_>>());
    let system = lab.enter();
    let before = state(&system, "v0");
    assert!(
        before.maps.len() == 2 && !before.egress.is_empty(),
        "{before:?}"
    );
    let client = lab.iperf(4, &[]);
    let journal = attach(&system, "v0", options(Segments::Off)).unwrap();
    let during = state(&system, "v0");
    assert_eq!(during.maps, []);
    assert_eq!(during.egress.len(), before.egress.len() + 1, "{during:?}");
    lab.flows_move_on();
    let mut dqa = Dqa::open(&journal.pins).unwrap();
    let counters = dqa.counters().unwrap();
    assert!(counters.assigned > 0, "{counters:?}");
    let light = Journal {
        options: Options {
            latency: true,
            ..Options::default()
        },
        ..journal
    };
    dqa.set(&isolane_ethernet_attach::attach::settings(&system, &light))
        .unwrap();
    lab.flows_move_on();
    assert_eq!(detach(&system, "v0").unwrap(), Detached::Undone);
    assert_eq!(detach(&system, "v0").unwrap(), Detached::Nothing);
    assert!(lab.flows_kept_moving(client) >= 7);
    assert_eq!(state(&system, "v0"), before);
    assert_eq!(Journal::all(&system).unwrap(), []);
}

/// Goal: a forged journal makes `detach` write nothing. Method: its map names another device's attribute, whose value
/// the privileged program would have written.
#[test]
fn a_forged_journal_writes_to_no_other_device() {
    let Some(lab) = Lab::new(4) else { return };
    let system = lab.enter();
    let journal = attach(&system, "v0", options(Segments::Off)).unwrap();
    let file = format!("{}-{}.json", journal.namespace, journal.index);
    let path = system.run().join(file);
    let honest = std::fs::read_to_string(&path).unwrap();
    let map = r#""maps": [{"queue": 0, "file": "../../../lo/tx_queue_len", "value": "777"}]"#;
    let forged = honest.replace("\"maps\": []", map);
    assert_ne!(forged, honest, "{honest}");
    std::fs::write(&path, forged).unwrap();
    let length = system.sys().text("class/net/lo/tx_queue_len");
    let error = detach(&system, "v0").unwrap_err().to_string();
    assert!(error.contains("has maps ="), "{error}");
    assert_eq!(system.sys().text("class/net/lo/tx_queue_len"), length);
    std::fs::write(&path, honest).unwrap();
    assert_eq!(detach(&system, "v0").unwrap(), Detached::Undone);
}

/// Goal: after the kill of a controller, traffic and queue assignment go on; a detach undoes everything, and a new
/// attach starts from the device's original state.
#[test]
fn a_killed_controller_harms_no_flow() {
    let Some(mut lab) = Lab::new(4) else { return };
    let system = lab.enter();
    let before = state(&system, "v0");
    let client = lab.iperf(9, &[]);
    let journal = attach(&system, "v0", options(Segments::Auto)).unwrap();
    let mut controller = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "controller_process", "--ignored", "--nocapture"])
        .env("ISOLANE_NIC_NAMESPACE", &lab.sender)
        .env("ISOLANE_NIC_RUN", lab.directory())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // On a veth only the queueing discipline counts as outstanding, so it is random whether nine flows share at a beat.
    wait_for("a controller", || {
        Journal::all(&system).unwrap()[0].running(&system).is_some()
    });
    let again = attach(&system, "v0", options(Segments::Auto)).unwrap_err();
    assert!(
        matches!(
            again,
            NicError::Attached {
                process: Some(_),
                ..
            }
        ),
        "{again}"
    );
    controller.kill().unwrap();
    controller.wait().unwrap();
    let assigned = || {
        Dqa::open(&journal.pins)
            .unwrap()
            .counters()
            .unwrap()
            .assigned
    };
    let first = assigned();
    wait_for("packets that are assigned", || assigned() > first);
    let second = attach(&system, "v0", options(Segments::Auto)).unwrap();
    assert_eq!(second.controller, None);
    assert_eq!(detach(&system, "v0").unwrap(), Detached::Undone);
    assert!(lab.flows_kept_moving(client) >= 7);
    assert_eq!(state(&system, "v0"), before);
}

/// Not a test: the controller that the test above kills.
#[test]
#[ignore = "started by another test"]
fn controller_process() {
    let Ok(namespace) = std::env::var("ISOLANE_NIC_NAMESPACE") else {
        return;
    };
    let run = std::env::var_os("ISOLANE_NIC_RUN").expect("set together");
    let system = System::enter(&namespace).unwrap().with_run(run.as_ref());
    let journal = Journal::all(&system).unwrap().remove(0);
    Controller::new(&system, journal)
        .unwrap()
        .run(&AtomicBool::new(false))
        .unwrap();
}

/// Goal: forgotten pins of another version do not block an attachment. Method: two pins change names, so their maps
/// have other sizes, and the journal is lost.
#[test]
fn pins_of_another_version_without_a_journal_are_replaced() {
    let Some(lab) = Lab::new(4) else { return };
    let system = lab.enter();
    let before = state(&system, "v0");
    let lost = attach(&system, "v0", options(Segments::Off)).unwrap();
    let pin = |name| lost.pins.join(name);
    for (from, to) in [
        ("config", "left"),
        ("counters", "config"),
        ("left", "counters"),
    ] {
        std::fs::rename(pin(from), pin(to)).unwrap();
    }
    assert!(Dqa::open(&lost.pins).is_err());
    lost.remove(&system).unwrap();
    attach(&system, "v0", options(Segments::Off)).unwrap();
    assert_eq!(state(&system, "v0").egress.len(), before.egress.len() + 1);
    assert_eq!(detach(&system, "v0").unwrap(), Detached::Undone);
    // The unreadable maps recorded who added clsact, which is empty again.
    let after = state(&system, "v0");
    assert_eq!((after.egress, after.maps), (before.egress, before.maps));
}

#[test]
fn a_device_that_goes_away_leaves_nothing() {
    let Some(lab) = Lab::new(4) else { return };
    let system = lab.enter();
    let journal = attach(&system, "v0", options(Segments::Off)).unwrap();
    run(&["ip", "-n", &lab.sender, "link", "del", "v0"]).unwrap();
    assert_eq!(detach(&system, "v0").unwrap(), Detached::Gone);
    assert!(!journal.pins.exists());
    assert_eq!(Journal::all(&system).unwrap(), []);
    let error = detach(&system, "v0").unwrap_err();
    assert!(matches!(error, NicError::NoDevice { .. }), "{error}");
}

/// Goal: the controller detects the removal of the device, undoes what is left, and attaches the device that returns
/// with the same name and address, as after reloading its driver.
#[test]
fn a_device_that_comes_back_is_attached_again() {
    let Some(lab) = Lab::new(4) else { return };
    let system = lab.enter();
    let address = "02:00:00:00:98:01";
    run(&[
        "ip",
        "-n",
        &lab.sender,
        "link",
        "set",
        "v0",
        "address",
        address,
    ])
    .unwrap();
    let first = attach(&system, "v0", options(Segments::Off)).unwrap();
    let mut controller = Controller::new(&system, first.clone()).unwrap();
    run(&["ip", "-n", &lab.sender, "link", "del", "v0"]).unwrap();
    let add = format!(
        "ip -n {} link add v0 address {address} numtxqueues 6 type veth peer name v9 numrxqueues 6",
        lab.sender
    );
    run(&add.split(' ').collect::<Vec<_>>()).unwrap();
    let ended = run_until(&lab, &mut controller, |journals| {
        journals.iter().any(|journal| journal.queues == 6)
    });
    assert_eq!(ended, Ended::Stopped);
    let second = controller.journal().clone();
    assert!(
        second.index != first.index && second.queues == 6,
        "{second:?}"
    );
    assert!(!first.pins.exists());
    undo(&system, &second).unwrap();
}

/// Goal: a smaller number of queues, and maps set by others, are detected under traffic; the maps are restored at the
/// end.
#[test]
fn another_number_of_queues_is_followed_under_traffic() {
    let Some(mut lab) = Lab::new(8) else { return };
    let system = lab.enter();
    let client = lab.iperf(6, &[]);
    let light = Options {
        latency: true,
        pools: true,
        ..options(Segments::Off)
    };
    let journal = attach(&system, "v0", light).unwrap();
    let mut controller = Controller::new(&system, journal).unwrap();
    lab.in_sender(&["ethtool", "-L", "v0", "tx", "3"]);
    set_map(&lab, 1, "2");
    let ended = run_until(&lab, &mut controller, |journals| {
        journals[0].queues == 3 && journals[0].maps.len() == 1
    });
    assert_eq!(ended, Ended::Stopped);
    assert_eq!(queues::saved_maps(&system, "v0"), []);
    assert_eq!(
        Dqa::open(&controller.journal().pins)
            .unwrap()
            .queues()
            .len(),
        3
    );
    undo(&system, controller.journal()).unwrap();
    assert_eq!(queues::saved_maps(&system, "v0").len(), 1);
    lab.flows_kept_moving(client);
}

/// Goal: a device with another address is still the attached one; an older journal also undoes what the controller
/// recorded later.
#[test]
fn an_address_may_change_and_an_old_journal_undoes_what_is_new() {
    let Some(lab) = Lab::new(4) else { return };
    let system = lab.enter();
    let before = state(&system, "v0");
    let old = attach(&system, "v0", options(Segments::Off)).unwrap();
    let mut controller = Controller::new(&system, old.clone()).unwrap();
    let address = ["ip", "link", "set", "v0", "address", "02:00:00:00:98:07"];
    lab.in_sender(&address);
    set_map(&lab, 1, "2");
    let ended = run_until(&lab, &mut controller, |journals| {
        journals[0].address[5] == 7 && journals[0].aside == Some(Aside::XpsMaps)
    });
    assert_eq!(
        (ended, controller.journal().index),
        (Ended::Stopped, old.index)
    );
    assert!(old.pins.exists() && old.maps.is_empty());
    undo_latest(&system, &old).unwrap();
    assert_eq!(Journal::all(&system).unwrap(), []);
    lab.in_sender(&["ip", "link", "set", "v0", "name", "v1"]);
    assert_eq!(queues::saved_maps(&system, "v1").len(), 1);
    assert_eq!(state(&system, "v1").egress, before.egress);
}

/// Goal: the next change of sizes removes an IPv6 route of ours that a kill left behind, and none of ours stays.
#[test]
fn no_route_of_ours_stays() {
    let Some(lab) = Lab::new(2) else { return };
    let system = lab.enter();
    let routes = || lab.in_sender(&["ip", "-6", "route", "show", "table", "all"]);
    let before = routes();
    let left = "ip -6 route add unreachable fd98::/64 proto 219 metric 4294967294";
    lab.in_sender(&left.split(' ').collect::<Vec<_>>());
    assert_ne!(routes(), before);
    let mut route = Route::open().unwrap();
    let index = route.link("v0").unwrap().index;
    isolane_ethernet_attach::segments::forget_routes(&system, &mut route, index).unwrap();
    assert_eq!(routes(), before);
}

/// Goal: namespace numbers are reused, so pins of a lost attachment under this number must not block an attachment.
/// Method: pins of one lab are moved to the path of the other's.
#[test]
fn pins_of_an_ended_namespace_of_the_same_number_are_replaced() {
    let (Some(ended), Some(lab)) = (Lab::new(4), Lab::new(4)) else {
        return;
    };
    let before = ended.enter();
    let left = attach(&before, "v0", options(Segments::Off)).unwrap();
    let system = lab.enter();
    let index = Route::open().unwrap().link("v0").unwrap().index;
    let name = format!("nic-{}-{index}", System::namespace());
    std::fs::rename(&left.pins, left.pins.with_file_name(name)).unwrap();
    let journal = attach(&system, "v0", options(Segments::Off)).unwrap();
    undo(&system, &journal).unwrap();
    let before = ended.enter();
    undo(&before, &left).unwrap();
}

/// Goal: eight queues, one, and eight again: packets pass untouched meanwhile and are assigned afterwards.
#[test]
fn programs_that_stood_aside_come_back() {
    let Some(mut lab) = Lab::new(8) else { return };
    let system = lab.enter();
    let journal = attach(&system, "v0", options(Segments::Off)).unwrap();
    let mut controller = Controller::new(&system, journal.clone()).unwrap();
    let (stop, sender) = (AtomicBool::new(false), lab.sender.clone());
    let client = lab.iperf(4, &[]);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _stop = Stop(&stop);
            let dqa = Dqa::open(&journal.pins).expect("pinned");
            let chosen = || {
                let counters = dqa.counters().expect("counted");
                counters.assigned + counters.kept
            };
            let queues = |count: &str| {
                let tool = [
                    "ip", "netns", "exec", &sender, "ethtool", "-L", "v0", "tx", count,
                ];
                run(&tool).expect("the number of queues changes");
            };
            queues("1");
            wait_for("programs that leave the choice to the kernel", || {
                let before = chosen();
                lab.flows_move_on();
                chosen() == before
            });
            queues("8");
            let first = chosen();
            wait_for("packets that are assigned", || chosen() > first);
        });
        assert_eq!(controller.run(&stop).unwrap(), Ended::Stopped);
    });
    undo(&system, controller.journal()).unwrap();
    lab.flows_kept_moving(client);
}

/// Goal: XPS maps that the user sets while the device is attached are respected: the programs step aside, report it,
/// and leave the maps at detach; they resume when the maps are gone.
#[test]
fn maps_that_the_user_sets_are_respected_and_kept() {
    let Some(lab) = Lab::new(4) else { return };
    set_map(&lab, 0, "1");
    let system = lab.enter();
    let journal = attach(&system, "v0", options(Segments::Off)).unwrap();
    let mut controller = Controller::new(&system, journal).unwrap();
    let aside = |journals: &[Journal]| journals.iter().any(|one| one.aside == Some(Aside::XpsMaps));
    set_map(&lab, 1, "2");
    assert_eq!(run_until(&lab, &mut controller, aside), Ended::Stopped);
    let report = report(&system, "v0", Asked::default()).unwrap();
    assert_eq!(report.aside, Some(Aside::XpsMaps));
    set_map(&lab, 1, "0");
    let works = |journals: &[Journal]| journals.iter().all(|one| one.aside.is_none());
    assert_eq!(run_until(&lab, &mut controller, works), Ended::Stopped);
    set_map(&lab, 1, "2");
    assert_eq!(run_until(&lab, &mut controller, aside), Ended::Stopped);
    undo(&system, controller.journal()).unwrap();
    let kept = queues::saved_maps(&system, "v0");
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!((kept[0].queue, kept[0].value.as_str()), (1, "2"));
}

/// Goal: a driver that chooses queues itself is rejected. If it is attached anyway, the controller detects it, so
/// `status` never shows a false fairness. Method: a TUN device of four queues without a steering program, whose packets
/// are read at once, and 64 flows.
#[test]
fn a_driver_that_chooses_itself_is_refused_or_found_out() {
    let Some(lab) = Lab::new(1) else { return };
    let system = lab.enter();
    let _tun = lab.tun("t0", 4);
    lab.in_sender(&["ip", "addr", "add", "10.97.0.1/24", "dev", "t0"]);
    lab.in_sender(&["ip", "link", "set", "t0", "up"]);
    let wanted = options(Segments::Off);
    let refused = attach(&system, "t0", wanted.clone()).unwrap_err();
    assert!(refused.is_bad_input(), "{refused}");
    assert!(
        refused
            .to_string()
            .contains("its driver tun chooses by a table of its own"),
        "{refused}"
    );
    let all_the_same = Options {
        any_driver: true,
        ..wanted
    };
    let journal = attach(&system, "t0", all_the_same).unwrap();
    let mut controller = Controller::new(&system, journal).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let traffic = Stop(&stop);
        scope.spawn(|| {
            let sockets: Vec<UdpSocket> = (0..64)
                .map(|_| UdpSocket::bind("10.97.0.1:0").expect("a socket"))
                .collect();
            while !stop.load(Ordering::Relaxed) {
                for socket in &sockets {
                    // A full ring drops packets; both count as traffic.
                    let _ = socket.send_to(&[0; 100], "10.97.0.2:9");
                }
            }
        });
        let found = |journals: &[Journal]| {
            let is_overruled = |one: &Journal| matches!(one.aside, Some(Aside::Overruled { .. }));
            journals.iter().any(is_overruled)
        };
        assert_eq!(run_until(&lab, &mut controller, found), Ended::Stopped);
        drop(traffic);
    });
    let report = report(&system, "t0", Asked::default()).unwrap();
    assert!(
        matches!(report.aside, Some(Aside::Overruled { .. })),
        "{report:?}"
    );
    undo(&system, controller.journal()).unwrap();
}

#[test]
fn devices_that_cannot_be_attached_say_why() {
    let Some(lab) = Lab::new(1) else { return };
    let system = lab.enter();
    let single = attach(&system, "v0", Options::default()).unwrap_err();
    assert!(matches!(single, NicError::SingleQueue { .. }), "{single}");
    let missing = attach(&system, "v00", Options::default())
        .unwrap_err()
        .to_string();
    assert!(missing.contains("did you mean v0?"), "{missing}");
    assert_eq!(Journal::all(&system).unwrap(), []);
}

/// Goal: without privileges (as where BPF is not permitted) the message names them, and the device is unchanged.
/// Method: a thread drops its capabilities.
#[test]
fn without_privileges_nothing_changes() {
    let Some(lab) = Lab::new(4) else { return };
    let system = lab.enter();
    set_map(&lab, 1, "2");
    let before = state(&system, "v0");
    let refused = thread::scope(|scope| {
        let without = scope.spawn(|| {
            let mut sets = capabilities(None).expect("a thread has capabilities");
            sets.effective = CapabilitySet::empty();
            set_capabilities(None, sets).expect("they may be given up");
            attach(&system, "v0", Options::default()).unwrap_err()
        });
        without.join().expect("refused, not broken")
    });
    let words = refused.to_string();
    assert!(
        words.contains("CAP_NET_ADMIN") && !refused.is_bad_input(),
        "{words}"
    );
    assert_eq!(Journal::all(&system).unwrap(), []);
    assert_eq!(state(&system, "v0"), before);
}

/// Goal: a limit set under a running flow changes the sent segments, in both address families. Method: the kernel
/// counts packets and bytes at the device before it segments; their ratio is the mean segment.
#[test]
fn a_smaller_limit_makes_smaller_segments_under_a_running_flow() {
    for family in [&["-c", "10.98.0.2"], &["-c", "fd98::2"]] {
        let Some(mut lab) = Lab::new(4) else { return };
        let system = lab.enter();
        let client = lab.iperf(1, family);
        let mut route = Route::open().unwrap();
        let before = route.link("v0").unwrap();
        let small_sizes = isolane_ethernet_attach::segments::sizes(
            before.sizes,
            isolane_common_quantities::units::Bytes::from_kib(16),
        );
        is_mean_segment(&lab, "large segments", |mean| mean > LARGE);
        isolane_ethernet_attach::segments::set(&system, &mut route, before.index, small_sizes)
            .unwrap();
        // Segments of several packets below 16 KiB, not single packets: the sockets use the limit, and the device need
        // not split.
        is_mean_segment(&lab, "segments below 16 KiB", |mean| {
            mean <= 16_384.0 && mean > 8_000.0
        });
        isolane_ethernet_attach::segments::set(&system, &mut route, before.index, before.sizes)
            .unwrap();
        is_mean_segment(&lab, "large segments again", |mean| mean > LARGE);
        let bytes = intervals(client);
        assert!(bytes.iter().all(|bytes| *bytes > 0), "{bytes:?}");
    }
}

/// Waits until the mean segment is as wanted over a few megabytes: segments in flight at a change have the old size.
fn is_mean_segment(lab: &Lab, what: &str, wanted: impl Fn(f64) -> bool) {
    wait_for(what, || {
        let first = lab.sent();
        lab.flows_move_on();
        let second = lab.sent();
        wanted((second.0 - first.0) as f64 / (second.1 - first.1) as f64)
    });
}

/// Stops a controller when a concurrent thread ends or panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a controller until a concurrent thread in the same namespace sees `is_done` in the journals.
fn run_until(lab: &Lab, controller: &mut Controller, is_done: fn(&[Journal]) -> bool) -> Ended {
    let (stop, namespace, run) = (AtomicBool::new(false), lab.sender.clone(), lab.directory());
    thread::scope(|scope| {
        let stopped = &stop;
        scope.spawn(move || {
            let _stop = Stop(stopped);
            let system = System::enter(&namespace)
                .expect("the lab's namespace")
                .with_run(run);
            wait_for("what the journals are to say", || {
                Journal::all(&system).is_ok_and(|journals| is_done(&journals))
            });
        });
        controller.run(&stop).expect("the device is followed")
    })
}
