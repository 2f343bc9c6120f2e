//! The backends over made-up trees: the test plays the kernel, step by step.

use super::cpuset::Cpuset;
use super::engine::{Engine, Mover, Next, PATIENCE};
use super::move_pages::{MovePages, Pages};
use super::per_numa_high::PerNumaHigh;
use super::reclaim::Reclaim;
use super::*;
use crate::testing::{APP, Tree, engine, near};
use proptest::prelude::*;
use std::io;
use std::sync::{Arc, Mutex};

/// An application at `/app` that holds so many MiB near and far.
fn app(tree: &Tree, near: u64, far: u64) -> Cgroup {
    let group = tree.cgroup("/app", &[(0, near), (1, far)]);
    tree.write("/sys/fs/cgroup/app/memory.reclaim", "");
    tree.write("/sys/kernel/mm/numa/demotion_enabled", "true\n");
    group
}

/// The backend's engine with [`APP`], which holds so many MiB, all near.
fn adopted<M: Mover>(tree: &Tree, held: u64, backend: M) -> Engine<M> {
    let group = app(tree, held, 0);
    let mut engine = engine(tree, backend);
    engine.adopt(APP, group, vec![]).unwrap();
    engine
}

fn in_words(progress: &[Progress]) -> String {
    let words = progress.iter().map(|progress| match progress {
        Progress::Moving { app, .. } => format!("moving {}", app.0),
        Progress::Reached { app, .. } => format!("reached {}", app.0),
        Progress::Stuck { app, why, .. } => format!("stuck {}: {why}", app.0),
        Progress::Gone { app } => format!("gone {}", app.0),
        other => format!("{other:?}"),
    });
    words.collect::<Vec<_>>().join("; ")
}

fn tick<M: Mover>(engine: &mut Engine<M>) -> (String, Next) {
    let mut tell = Vec::new();
    let next = engine.tick(&mut tell);
    (in_words(&tell), next)
}

#[test]
fn names_of_backends_are_read_back_and_a_wrong_one_lists_them() {
    for kind in BackendKind::PREFERENCE {
        assert_eq!(kind.name().parse(), Ok(kind));
    }
    let error = "damos".parse::<BackendKind>().unwrap_err();
    assert!(
        error.contains("`damos`") && error.contains("reclaim, damos_quota"),
        "{error}"
    );
}

#[test]
fn nothing_is_asked_of_the_kernel_before_there_are_limits() {
    let tree = Tree::two_tiers();
    let mut engine = adopted(&tree, 100, Reclaim::default());
    assert_eq!(tick(&mut engine), (String::new(), Next::Idle));
    assert_eq!(tree.read("/sys/fs/cgroup/app/memory.reclaim"), "");
}

#[test]
fn reclaim_requests_a_little_first_and_pieces_when_pages_move() {
    let tree = Tree::two_tiers();
    let mut engine = adopted(&tree, 100, Reclaim::default());
    engine.apply(APP, near(60));
    assert_eq!(tick(&mut engine).0, "moving 1");
    assert_eq!(
        tree.read("/sys/fs/cgroup/app/memory.reclaim"),
        (1_u64 << 20).to_string()
    );
    // Nothing has been seen to move yet, so the next one is as small.
    tick(&mut engine);
    assert_eq!(
        tree.read("/sys/fs/cgroup/app/memory.reclaim"),
        (1_u64 << 20).to_string()
    );
    tree.hold("/app", &[(0, 60), (1, 40)]);
    assert_eq!(tick(&mut engine), ("reached 1".to_owned(), Next::Idle));
    assert_eq!(tick(&mut engine), (String::new(), Next::Idle));
}

#[test]
fn an_application_that_grows_again_is_reported_again() {
    let tree = Tree::two_tiers();
    let mut engine = adopted(&tree, 50, Reclaim::default());
    engine.apply(APP, near(60));
    assert_eq!(tick(&mut engine).0, "reached 1");
    tree.hold("/app", &[(0, 80), (1, 0)]);
    assert_eq!(tick(&mut engine).0, "moving 1");
    tree.hold("/app", &[(0, 60), (1, 20)]);
    assert_eq!(tick(&mut engine).0, "reached 1");
}

#[test]
fn pages_that_never_move_make_an_application_stuck_with_a_reason() {
    let tree = Tree::two_tiers();
    let mut engine = adopted(&tree, 100, Reclaim::default());
    engine.apply(APP, near(60));
    let mut last = String::new();
    for _ in 0..=PATIENCE {
        last = tick(&mut engine).0;
    }
    assert!(
        last.starts_with("stuck 1: 40 MiB of `/app` stay above") && last.contains("mlock"),
        "{last}"
    );
    // It is tried more rarely now.
    assert_eq!(tick(&mut engine), (String::new(), Next::Idle));
}

#[test]
fn a_far_tier_without_room_is_reported_and_nothing_is_requested() {
    let tree = Tree::two_tiers();
    tree.node(1, 1024, 10);
    let mut engine = adopted(&tree, 100, Reclaim::default());
    engine.apply(APP, near(60));
    let said = tick(&mut engine).0;
    assert!(
        said.starts_with("stuck 1: tier 1 has 10 MiB free and 40 MiB should move there"),
        "{said}"
    );
    assert_eq!(tree.read("/sys/fs/cgroup/app/memory.reclaim"), "");
}

#[test]
fn a_vanished_group_is_gone_and_its_release_is_no_error() {
    let tree = Tree::two_tiers();
    tree.write("/sys/fs/cgroup/app/memory.per_numa_high", "max\nmax\n");
    let mut engine = adopted(&tree, 100, PerNumaHigh::default());
    engine.apply(APP, near(60));
    tick(&mut engine);
    tree.remove("/sys/fs/cgroup/app");
    assert_eq!(tick(&mut engine).0, "gone 1");
    assert!(engine.release(APP).is_ok());
    assert_eq!(tick(&mut engine).0, "");
}

#[test]
fn a_write_that_is_refused_is_reported_and_the_others_go_on() {
    let tree = Tree::two_tiers();
    let other = tree.cgroup("/other", &[(0, 90), (1, 0)]);
    tree.write("/sys/fs/cgroup/other/memory.reclaim", "");
    let mut engine = adopted(&tree, 100, Reclaim::default());
    engine.adopt(AppId(2), other, vec![]).unwrap();
    engine.apply(APP, near(60));
    engine.apply(AppId(2), near(60));
    tree.remove("/sys/fs/cgroup/app/memory.reclaim");
    let said = tick(&mut engine).0;
    assert!(
        said.contains("stuck 1: cannot write") && said.contains("moving 2"),
        "{said}"
    );
}

#[test]
fn the_patched_kernels_file_is_written_once_per_change_and_lifted_at_the_end() {
    let tree = Tree::two_tiers();
    tree.write("/sys/fs/cgroup/app/memory.per_numa_high", "max\nmax\n");
    let mut engine = adopted(&tree, 100, PerNumaHigh::default());
    engine.apply(APP, near(60));
    tick(&mut engine);
    let expected = format!("{}\nmax", 60 << 20);
    assert_eq!(
        tree.read("/sys/fs/cgroup/app/memory.per_numa_high"),
        expected
    );
    engine.stop();
    assert_eq!(
        tree.read("/sys/fs/cgroup/app/memory.per_numa_high"),
        "max\nmax"
    );
}

#[test]
fn cpuset_puts_all_far_and_promotes_it_when_everything_fits() {
    let tree = Tree::two_tiers();
    tree.write("/sys/fs/cgroup/app/cpuset.mems", "\n");
    let mut engine = adopted(&tree, 100, Cpuset::default());
    engine.apply(APP, near(60));
    tick(&mut engine);
    assert_eq!(tree.read("/sys/fs/cgroup/app/cpuset.mems"), "1");
    tree.hold("/app", &[(0, 0), (1, 100)]);
    engine.apply(APP, near(80));
    tick(&mut engine);
    assert_eq!(
        tree.read("/sys/fs/cgroup/app/cpuset.mems"),
        "1",
        "it would not fit"
    );
    engine.apply(APP, near(120));
    tick(&mut engine);
    assert_eq!(
        tree.read("/sys/fs/cgroup/app/cpuset.mems"),
        "\n",
        "as it was before us"
    );
}

#[test]
fn a_set_that_the_manager_gave_the_group_meanwhile_stays() {
    for near_limit in [60, 120] {
        let tree = Tree::two_tiers();
        tree.write("/sys/fs/cgroup/app/cpuset.mems", "0-1\n");
        let mut engine = adopted(&tree, 100, Cpuset::default());
        engine.apply(APP, near(60));
        tick(&mut engine);
        assert_eq!(tree.read("/sys/fs/cgroup/app/cpuset.mems"), "1");
        tree.hold("/app", &[(0, 0), (1, 100)]);
        tree.write("/sys/fs/cgroup/app/cpuset.mems", "0\n");
        engine.apply(APP, near(near_limit));
        tick(&mut engine);
        engine.stop();
        assert_eq!(tree.read("/sys/fs/cgroup/app/cpuset.mems"), "0\n");
    }
}

/// Pages of one process: address 4096 times the index is on the node of that index.
#[derive(Clone, Default)]
struct FakePages(Arc<Mutex<Vec<i32>>>);

impl Pages for FakePages {
    fn move_pages(
        &mut self,
        process: u32,
        addresses: &[u64],
        to: Option<u32>,
    ) -> io::Result<Vec<i32>> {
        if process != 7 {
            return Err(io::Error::from_raw_os_error(3));
        }
        let mut nodes = self.0.lock().unwrap();
        let one = |address: &u64| {
            let index = usize::try_from(address / 4096).unwrap();
            if let Some(to) = to {
                nodes[index] = i32::try_from(to).unwrap();
            }
            nodes[index]
        };
        Ok(addresses.iter().map(one).collect())
    }
}

/// A tree with process 7 (and 9, which has ended) and as many pages.
fn paged(tree: &Tree, pages: usize) -> FakePages {
    tree.write("/sys/fs/cgroup/app/cgroup.procs", "7\n9\n");
    let end = pages * 4096;
    tree.write(
        "/proc/7/maps",
        &format!("00000000-{end:x} rw-p 00000000 00:00 0\n7fff0000-7fff1000 r-xp 00000000 00:00 0 [vdso]\n"),
    );
    let map: Vec<u8> = (0..pages)
        .flat_map(|_| (1_u64 << 63).to_ne_bytes())
        .collect();
    tree.write_bytes("/proc/7/pagemap", &map);
    FakePages(Arc::new(Mutex::new(vec![0; pages])))
}

#[test]
fn move_pages_moves_the_excess_and_promotes_what_fits() {
    let tree = Tree::two_tiers();
    let group = app(&tree, 32, 0);
    let pages = paged(&tree, 8192);
    let count = |node: i32| {
        pages
            .0
            .lock()
            .unwrap()
            .iter()
            .filter(|at| **at == node)
            .count() as u64
    };
    let sync = |tree: &Tree| tree.hold("/app", &[(0, count(0) >> 8), (1, count(1) >> 8)]);
    let mut engine = engine(&tree, MovePages::new(pages.clone()));
    engine.adopt(APP, group, vec![]).unwrap();
    engine.apply(APP, near(12));
    for _ in 0..4 {
        tick(&mut engine);
        sync(&tree);
    }
    assert_eq!(count(0), 12 << 8);
    engine.apply(APP, near(28));
    for _ in 0..4 {
        tick(&mut engine);
        sync(&tree);
    }
    assert_eq!(count(0), 28 << 8);
}

proptest! {
    // Each case writes a few hundred files.
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Goal: for any limits and sizes, a backend never moves more than the excess above the limit, and in the end the
    /// limit holds. Method: move_pages over a made-up process, held read back after every step.
    #[test]
    fn limits_are_reached_without_overshoot(held in 1_u64..32, limits in prop::collection::vec(0_u64..40, 1..4)) {
        let tree = Tree::two_tiers();
        let group = app(&tree, held, 0);
        let pages = paged(&tree, usize::try_from(held << 8).unwrap());
        let count = |node: i32| pages.0.lock().unwrap().iter().filter(|at| **at == node).count() as u64;
        let mut engine = engine(&tree, MovePages::new(pages.clone()));
        engine.adopt(APP, group, vec![]).unwrap();
        for limit in limits {
            engine.apply(APP, near(limit));
            let before = count(0);
            for _ in 0..8 {
                tick(&mut engine);
                let text = format!("anon N0={} N1={}\nfile N0=0 N1=0\n", count(0) * 4096, count(1) * 4096);
                tree.write("/sys/fs/cgroup/app/memory.numa_stat", &text);
                prop_assert!(count(0) >= before.min(limit << 8), "overshoot: {} pages at limit {limit} MiB", count(0));
            }
            let slack = 1 << 8;
            prop_assert!(count(0) <= (limit << 8) + slack, "{} pages at limit {limit} MiB", count(0));
        }
    }
}

#[test]
fn excess_is_per_tier() {
    let mib = Bytes::from_mib;
    let held = [mib(10), mib(5), mib(0), mib(0)];
    let limits = [Some(mib(4)), Some(mib(9)), None, Some(mib(0))];
    assert_eq!(excess(&held, &limits), [mib(6), mib(0), mib(0), mib(0)]);
}
