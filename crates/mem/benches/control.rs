//! What the control loop costs: one period and one admission beside 100 applications, files included.
//!
//! Method: a made-up machine in a temporary directory (files of the kernel's form), the real sensors, control groups, journal
//! and Mercury; the backend only takes notes, as migrations run on a thread of their own. Half of the applications are
//! streams. Each figure is the median of repeated runs, with the least and the most. Units: microseconds.
//! Limits: reading a file of a disk's cache is cheaper than the kernel's making of one; `step_max_us` of a running service
//! has the real ones.

use isolane_core::policy::mercury::{Mercury, MercuryOptions, PERIOD, Thresholds};
use isolane_core::units::{Bytes, Instant};
use isolane_host::Root;
use isolane_mem::MemoryHost;
use isolane_mem::application::pod::Place;
use isolane_mem::application::{Application, Promise};
use isolane_mem::backend::fake::FakeBackend;
use isolane_mem::controller::groups::HostGroups;
use isolane_mem::controller::{About, Controller, Parts};
use isolane_mem::indicator::machine::MachineSensors;
use isolane_mem::journal::FileStore;
use isolane_mem::protocol::{Answer, Request, Submission};
use std::fs;
use std::path::Path;

const APPLICATIONS: u32 = 100;
const REPEATS: usize = 301;
const MIB: u64 = 1 << 20;

fn main() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let root = directory.path();
    machine(root);
    let mut controller = start(root);
    let mut now = Instant::ZERO;
    for number in 0..APPLICATIONS {
        group(root, number);
        admit(&mut controller, now, number);
    }
    let mut steps = Vec::new();
    for _ in 0..REPEATS {
        now = now.saturating_add(PERIOD);
        let begun = std::time::Instant::now();
        controller.step(now);
        steps.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    let mut admissions = Vec::new();
    for number in (APPLICATIONS..).take(21) {
        group(root, number);
        now = now.saturating_add(PERIOD);
        controller.step(now);
        let begun = std::time::Instant::now();
        admit(&mut controller, now, number);
        admissions.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    show("control step, 100 applications", steps);
    show("admission beside 100 and more", admissions);
}

fn show(what: &str, mut values: Vec<f64>) {
    values.sort_by(f64::total_cmp);
    let (least, most) = (values[0], values[values.len() - 1]);
    println!(
        "{what}: {:.0} us (median of {}; {least:.0} to {most:.0})",
        values[values.len() / 2],
        values.len()
    );
}

fn start(root: &Path) -> Controller {
    let host = MemoryHost::at(Root::at(root));
    let thresholds = Thresholds {
        local_bandwidth: 80_000_000_000,
        hint_faults_per_s: 50_000.0,
    };
    let options = MercuryOptions::new(thresholds, Bytes::new(64 << 30));
    let parts = Parts {
        policy: Box::new(Mercury::new(options).expect("good options")),
        backend: Box::new(FakeBackend::new()),
        sensors: Box::new(MachineSensors::new(host.clone(), None)),
        groups: Box::new(HostGroups::new(host)),
        store: Box::new(FileStore::open(&root.join("run"), "now").expect("a journal")),
    };
    let mut controller =
        Controller::start(Instant::ZERO, parts, About::default()).expect("an empty journal");
    controller.step(Instant::ZERO);
    controller
}

fn admit(controller: &mut Controller, now: Instant, number: u32) {
    let promise = match number % 2 {
        0 => Promise::LatencyPs(160_000),
        _ => Promise::BandwidthBytesPerS(1_000_000_000),
    };
    let application = Application {
        name: format!("app-{number}"),
        promise,
        priority: number,
        weight: 1_000,
        memory_bytes: Some(512 * MIB),
        caps: Vec::new(),
        far_tiers: Vec::new(),
        profile: None,
    };
    let place = Place::Cgroup(format!("/apps/app-{number}"));
    let submission = Submission { application, place };
    let answer = controller.answer(now, Request::Submit(submission), None);
    assert!(matches!(answer, Answer::Admitted(_)), "{answer:?}");
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path.trim_start_matches('/'));
    fs::create_dir_all(path.parent().expect("not the root")).expect("a directory");
    fs::write(path, text).expect("a file");
}

fn machine(root: &Path) {
    let node = "/sys/devices/system/node";
    let tier = "/sys/devices/virtual/memory_tiering";
    let memory = |number: u32, mib: u64, free: u64| {
        format!(
            "Node {number} MemTotal:       {} kB\nNode {number} MemFree:        {} kB\n",
            mib << 10,
            free << 10
        )
    };
    for (path, text) in [
        (
            "/proc/mounts".to_owned(),
            "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n".to_owned(),
        ),
        (format!("{node}/has_memory"), "0-1\n".to_owned()),
        (format!("{node}/has_cpu"), "0\n".to_owned()),
        (format!("{tier}/memory_tier4/nodelist"), "0\n".to_owned()),
        (format!("{tier}/memory_tier10/nodelist"), "1\n".to_owned()),
        (format!("{node}/node0/meminfo"), memory(0, 65_536, 14_000)),
        (format!("{node}/node1/meminfo"), memory(1, 262_144, 200_000)),
        (
            "/proc/sys/kernel/numa_balancing".to_owned(),
            "2\n".to_owned(),
        ),
        (
            "/proc/vmstat".to_owned(),
            "numa_hint_faults 9\nnuma_hint_faults_local 3\n".to_owned(),
        ),
        (
            "/sys/devices/system/cpu/online".to_owned(),
            "0-31\n".to_owned(),
        ),
        (
            "/sys/fs/cgroup/cgroup.controllers".to_owned(),
            "cpuset cpu memory\n".to_owned(),
        ),
    ] {
        write(root, &path, &text);
    }
}

fn group(root: &Path, number: u32) {
    let numa = format!(
        "anon N0={} N1={}\nfile N0={MIB} N1=0\nkernel_stack N0=0 N1=0\nshmem N0=0 N1=0\n",
        400 * MIB,
        100 * MIB
    );
    for (file, text) in [
        ("cgroup.procs", format!("{number}\n")),
        ("cgroup.events", "populated 1\nfrozen 0\n".to_owned()),
        ("cpu.max", "max 100000\n".to_owned()),
        ("cpu.stat", "usage_usec 1000\nuser_usec 900\n".to_owned()),
        ("memory.numa_stat", numa),
    ] {
        write(
            root,
            &format!("/sys/fs/cgroup/apps/app-{number}/{file}"),
            &text,
        );
    }
}
