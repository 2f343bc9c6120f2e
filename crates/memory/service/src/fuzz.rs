//! The crate continues with any content of the files and lines that it reads.
//!
//! Goal: no text panics a parser, and what is accepted keeps the rules. Method: pure noise, which tests the first steps of a
//! parser, and right texts with a few bytes changed, put in, left out or repeated, which reach the others; files of the
//! kernel are damaged in a made-up tree, and everything that reads there looks at it. Units: none.

use crate::application::tests::redis;
use crate::application::{self, Application, pod};
use crate::backend::damos::files;
use crate::backend::undo::undo;
use crate::doctor;
use crate::fleet::extender;
use crate::indicator::Sensors;
use crate::indicator::machine::MachineSensors;
use crate::journal::{Entry, Journal};
use crate::probe;
use crate::profile::application::AppProfile;
use crate::profile::machine::MachineProfile;
use crate::service::settings;
use crate::testing::Tree;
use isolane_common_quantities::units::Instant;
use isolane_memory_policy::mercury::AppId;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Change {
    Set(usize, u8),
    Insert(usize, Vec<u8>),
    Cut(usize, usize),
    Repeat(usize, usize),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let at = any::<prop::sample::Index>().prop_map(|index| index.index(1 << 14));
    // Bytes that parsers treat in a way of their own, before all others.
    let byte = prop_oneof![
        prop::sample::select(b"0123456789\"{}[],:=-. \n\t%eEN/\\\0".to_vec()),
        any::<u8>()
    ];
    let one = prop_oneof![
        (at.clone(), byte.clone()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (at.clone(), prop::collection::vec(byte, 1..24))
            .prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        (at.clone(), 1usize..40).prop_map(|(at, count)| Change::Cut(at, count)),
        (at, 1usize..40).prop_map(|(at, count)| Change::Repeat(at, count)),
    ];
    prop::collection::vec(one, 0..6)
}

fn damaged(text: &[u8], changes: &[Change]) -> Vec<u8> {
    let mut bytes = text.to_vec();
    for change in changes {
        let length = bytes.len();
        let place = |at: usize| at % (length + 1);
        match change {
            Change::Set(at, byte) if length > 0 => bytes[at % length] = *byte,
            Change::Set(..) => {}
            Change::Insert(at, more) => {
                let at = place(*at);
                bytes.splice(at..at, more.iter().copied());
            }
            Change::Cut(at, count) => {
                let at = place(*at);
                bytes.drain(at..(at + count).min(length));
            }
            Change::Repeat(at, count) => {
                let at = place(*at);
                let part = bytes[at..(at + count).min(length)].to_vec();
                bytes.splice(at..at, part);
            }
        }
    }
    bytes
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const APP: &str = include_str!("../tests/data/application.toml");

const SETTINGS: &str = include_str!("../tests/data/settings.toml");

const POD: &str = r#"{"kind":"Pod","metadata":{"name":"redis-0","uid":"0a1b-2c","annotations":{
"isolane.dev/type":"ls","isolane.dev/slo":"160ns","isolane.dev/priority":"3","isolane.dev/memory":"20Gi",
"isolane.dev/local-max":"25%","isolane.dev/far-tiers":"1,2","other/annotation":"x"}}}"#;

const MACHINE: &str = r#"{"format":1,"origin":{"machine":"a","processor":"b","kernel":"c","version":"d"},"near_latency_ns":100.0,
"far_latency_ns":200.0,"near_bandwidth_bytes_per_s":2e11,"far_bandwidth_bytes_per_s":5e10,"local_threshold_bytes_per_s":1e11,
"local_threshold_reached":true,"far_threshold_bytes_per_s":3e10,"hint_fault_threshold_per_s":3e4,"far_threshold_reached":true}"#;

const PROFILE: &str = r#"{"format":1,"origin":{"machine":"a","processor":"b","kernel":"c","version":"d"},"command":"x","slo_latency_ns":160.0,
"slo_bandwidth_bytes_per_s":null,"admissible":true,"local_bytes":1,"cpu_thousandths":1000,"bandwidth_bytes_per_s":1,
"best_latency_ns":120.0,"best_bandwidth_bytes_per_s":null,"footprint_bytes":1,"measurements":3}"#;

fn journal() -> String {
    let entry = Entry {
        id: 3,
        application: redis(),
        cgroup: "/isolane-mem/redis".to_owned(),
        inode: Some(7),
        own: true,
        cpu_before: Some("max 100000".to_owned()),
        cpu_ours: vec!["50000 100000".to_owned()],
        mems_before: Some("0-1".to_owned()),
        memory_bytes: 1 << 30,
        trouble: Some("no".to_owned()),
        limited: false,
        let_go: true,
    };
    let journal = Journal {
        next_id: 4,
        entries: vec![entry],
        backend: Some(crate::BackendKind::Cpuset),
        ..Journal::empty("now")
    };
    serde_json::to_string(&journal).unwrap()
}

/// Applications from any file or line follow the rules of applications.
fn read_all(bytes: &[u8]) {
    let text = text(bytes);
    let holds = |application: &Application| assert_eq!(application.check(), Ok(()));
    if let Ok(file) = application::parse(&text, "app.toml") {
        holds(&file.application);
        assert_eq!(file.place.check(), Ok(()));
    }
    if let Ok((application, place)) = pod::parse(&text) {
        holds(&application);
        assert_eq!(place.check(), Ok(()));
    }
    if let Ok(journal) = Journal::parse(&text) {
        journal
            .entries
            .iter()
            .for_each(|entry| holds(&entry.application));
        let tree = Tree::two_tiers();
        undo(&tree.host(), &mut journal.clone());
    }
    if let Ok(settings) = settings::parse(&text, "mem.toml") {
        assert!(settings.socket_mode <= 0o777);
    }
    if let Ok(profile) = serde_json::from_str::<MachineProfile>(&text) {
        // Numbers of a file may be anything: the options are checked, and nothing is acted upon that is no number.
        let _ = profile
            .options(isolane_common_quantities::units::Bytes::new(1 << 30))
            .check();
    }
    if let Ok(profile) = serde_json::from_str::<AppProfile>(&text) {
        let _ = profile.profile();
    }
    for path in ["/filter", "/prioritize"] {
        let answer = extender::answer("POST", path, bytes, 1_000);
        assert!(matches!(answer.status, 200 | 400), "{}", answer.status);
    }
}

/// Files that the machine of [`Tree`] lacks, with a valid text for each.
#[rustfmt::skip]
const MORE: &[(&str, &str)] = &[
    ("/proc/sys/kernel/osrelease", "6.19.0-1-amd64\n"),
    ("/proc/sys/kernel/random/boot_id", "boot-1\n"),
    ("/proc/sys/kernel/numa_balancing", "2\n"),
    ("/proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n"),
    ("/proc/swaps", "Filename Type Size\n"),
    ("/proc/vmstat", "numa_hint_faults 100\nnuma_hint_faults_local 30\n"),
    ("/proc/cpuinfo", "vendor_id : GenuineIntel\nmodel name : x\ncpu MHz : 2400.0\n"),
    ("/proc/7/maps", "00000000-00004000 rw-p 00000000 00:00 0 [heap]\n"),
    ("/sys/kernel/mm/numa/demotion_enabled", "true\n"),
    ("/sys/devices/system/cpu/online", "0-3\n"),
    ("/sys/devices/system/memory/block_size_bytes", "8000000\n"),
    ("/sys/fs/cgroup/app/cgroup.procs", "7\n"),
    ("/sys/fs/cgroup/app/cpuset.cpus.effective", "0-1\n"),
    ("/sys/fs/cgroup/app/memory.per_numa_high", "max\nmax\n"),
    ("/sys/fs/resctrl/info/L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n"),
    ("/sys/fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes", "123456\n"),
    ("/sys/fs/resctrl/mon_data/mon_L3_00/mbm_local_bytes", "1234\n"),
    ("/run/isolane/mem/damon", "boot-1\n77\n"),
    ("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "1\n"),
    ("/sys/kernel/mm/damon/admin/kdamonds/0/pid", "77\n"),
    ("/sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/schemes/nr_schemes", "1\n"),
    ("/sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/schemes/0/action", "migrate_cold\n"),
    ("/sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/schemes/0/filters/0/type", "memcg\n"),
];

/// Files of the machine of [`Tree`] that are read.
const READ: &[&str] = &[
    "/proc/mounts",
    "/sys/devices/system/node/has_memory",
    "/sys/devices/system/node/has_cpu",
    "/sys/devices/virtual/memory_tiering/memory_tier4/nodelist",
    "/sys/devices/system/node/node0/meminfo",
    "/sys/fs/cgroup/cgroup.controllers",
    "/sys/fs/cgroup/app/memory.numa_stat",
    "/sys/fs/cgroup/app/cpu.stat",
    "/sys/fs/cgroup/app/cpu.max",
    "/sys/fs/cgroup/app/cgroup.events",
];

/// Files of the kernel that this crate reads, with a valid text for each.
fn kernel() -> (Tree, Vec<(String, String)>) {
    let tree = Tree::two_tiers();
    tree.cgroup("/app", &[(0, 100), (1, 20)]);
    for (path, text) in MORE {
        tree.write(path, text);
    }
    let files = MORE.iter().map(|(path, _)| path).chain(READ);
    let files = files
        .map(|path| ((*path).to_owned(), tree.read(path)))
        .collect();
    (tree, files)
}

/// Looks at a machine in every way that changes nothing, and in those that put things in order.
fn look_at(tree: &Tree) {
    let host = tree.host();
    let findings = doctor::examine(&host);
    findings.render();
    probe::look(&host);
    files::owner(&host);
    let mut sensors = MachineSensors::new(host.clone(), None);
    if let Ok(group) = crate::Cgroup::new("/app") {
        let _ = sensors.adopt(AppId(1), &group);
        crate::backend::damos::ranges::runs(&host, &[7]);
        let _ = host.is_populated(&group);
    }
    for second in 1..12 {
        let seen = sensors.observe(Instant::from_ps(second * 1_000_000_000_000));
        for view in &seen.apps {
            assert_eq!(view.id, AppId(1));
        }
    }
    sensors.sources();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn noise_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        read_all(&bytes);
    }

    #[test]
    fn damaged_files_and_lines_are_refused_or_keep_the_rules(changes in changes()) {
        for good in [APP, SETTINGS, POD, MACHINE, PROFILE, &journal()] {
            read_all(&damaged(good.as_bytes(), &changes));
        }
    }

    /// The scheduler's request: the answer has its form for any pod and nodes.
    #[test]
    fn a_damaged_request_of_the_scheduler_is_answered_in_its_form(changes in changes(), prioritizes in any::<bool>()) {
        let summary = serde_json::to_string(&crate::fleet::tests::summary(5 << 30, 150.0)).unwrap();
        let request = serde_json::json!({
            "Pod": serde_json::from_str::<serde_json::Value>(POD).unwrap(),
            "Nodes": { "items": [{ "metadata": { "name": "n", "annotations": { extender::NODE_ANNOTATION: summary } } }] },
        });
        let bytes = damaged(request.to_string().as_bytes(), &changes);
        let path = if prioritizes { "/prioritize" } else { "/filter" };
        let answer = extender::answer("POST", path, &bytes, 1_000);
        let body: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        match answer.status {
            200 if prioritizes => {
                for score in body.as_array().unwrap() {
                    prop_assert!(score["Host"].is_string());
                    prop_assert!((0..=10).contains(&score["Score"].as_i64().unwrap()));
                }
            }
            200 => prop_assert!(body["Error"].is_string()),
            400 => prop_assert!(prioritizes),
            other => prop_assert!(false, "status {}", other),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn damaged_files_of_the_kernel_are_lived_with(changes in changes(), noise in prop::collection::vec(any::<u8>(), 0..60)) {
        let (tree, files) = kernel();
        for (place, (path, good)) in files.iter().enumerate() {
            let bad = match place % 8 == changes.len() {
                true => noise.clone(),
                false => damaged(good.as_bytes(), &changes),
            };
            tree.write_bytes(path, &bad);
            if place % 6 == 5 {
                look_at(&tree);
                tree.write(path, good);
            }
        }
        look_at(&tree);
    }
}
