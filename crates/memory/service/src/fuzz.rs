//! The crate continues with any content of the kernel's files, its journal and the scheduler's requests.
//!
//! Goal: nothing panics, and an answer has its form. Method: right texts with a few bytes changed, put in, left out or
//! repeated; files of the kernel are damaged in a made-up tree, and everything that reads there looks at it. Units: none.
//! Limits: `crates/tools/fuzz` has the parsers of files and lines.

use crate::application::tests::redis;
use crate::backend::damos::files;
use crate::backend::undo::undo;
use crate::doctor;
use crate::fleet::extender;
use crate::indicator::Sensors;
use crate::indicator::machine::MachineSensors;
use crate::journal::{Entry, Journal};
use crate::probe;
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

const POD: &str = r#"{"kind":"Pod","metadata":{"name":"redis-0","uid":"0a1b-2c","annotations":{
"isolane.dev/type":"ls","isolane.dev/slo":"160ns","isolane.dev/priority":"3","isolane.dev/memory":"20Gi",
"isolane.dev/local-max":"25%","isolane.dev/far-tiers":"1,2","other/annotation":"x"}}}"#;

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

/// Files that the machine of [`Tree`] lacks, with a valid text for each.
#[rustfmt::skip]
const MORE: &[(&str, &str)] = &[
    ("/proc/sys/kernel/osrelease", "7.2.0-1-amd64\n"),
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
    fn whatever_a_damaged_journal_says_can_be_undone(changes in changes()) {
        let bytes = damaged(journal().as_bytes(), &changes);
        if let Ok(mut journal) = Journal::parse(&String::from_utf8_lossy(&bytes)) {
            for entry in &journal.entries {
                assert_eq!(entry.application.check(), Ok(()));
            }
            undo(&Tree::two_tiers().host(), &mut journal);
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
