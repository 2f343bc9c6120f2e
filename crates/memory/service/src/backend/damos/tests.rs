//! DAMON as files in a made-up tree: the test plays the kernel.

use super::files::{KDAMONDS, MARK, NEVER, Owner, clear, owner};
use super::goal::GoalDriven;
use super::leaves;
use super::quota::{self, Quota};
use crate::backend::Progress;
use crate::backend::engine::{Context, Engine};
use crate::cgroup::Cgroup;
use crate::error::MemError;
use crate::testing::{APP, Tree, near};
use isolane_common_quantities::units::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const PAGE: u64 = 4096;
const CONTEXT: &str = "/sys/kernel/mm/damon/admin/kdamonds/0/contexts/0";

/// A machine whose DAMON has room for so many schemes.
fn tree(schemes: usize) -> Tree {
    let tree = Tree::two_tiers();
    tree.write("/proc/sys/kernel/random/boot_id", "boot-1\n");
    tree.write("/sys/devices/system/memory/block_size_bytes", "8000000\n");
    for block in 0..4 {
        tree.write(
            &format!("/sys/devices/system/node/node0/memory{block}/state"),
            "online",
        );
    }
    for block in 4..12 {
        tree.write(
            &format!("/sys/devices/system/node/node1/memory{block}/state"),
            "online",
        );
    }
    tree.write(&format!("{KDAMONDS}/nr_kdamonds"), "0\n");
    tree.write(&format!("{KDAMONDS}/0/state"), "off\n");
    tree.write(&format!("{KDAMONDS}/0/contexts/nr_contexts"), "0\n");
    let files = "operations monitoring_attrs/intervals/sample_us monitoring_attrs/intervals/aggr_us \
         monitoring_attrs/intervals/update_us monitoring_attrs/nr_regions/min monitoring_attrs/nr_regions/max \
         targets/nr_targets targets/0/regions/nr_regions targets/0/regions/0/start targets/0/regions/0/end \
         targets/0/regions/1/start targets/0/regions/1/end schemes/nr_schemes";
    for file in files.split_whitespace() {
        tree.write(&format!("{CONTEXT}/{file}"), "");
    }
    let files = "action target_nid access_pattern/sz/min access_pattern/sz/max access_pattern/nr_accesses/min \
         access_pattern/nr_accesses/max access_pattern/age/min access_pattern/age/max quotas/ms quotas/bytes \
         quotas/reset_interval_ms quotas/weights/sz_permil quotas/weights/nr_accesses_permil quotas/weights/age_permil \
         quotas/goals/nr_goals filters/nr_filters filters/0/type filters/0/memcg_path filters/0/matching filters/1/type \
         filters/1/addr_start filters/1/addr_end filters/1/matching";
    for scheme in 0..schemes {
        for file in files.split_whitespace() {
            tree.write(&format!("{CONTEXT}/schemes/{scheme}/{file}"), "");
        }
    }
    tree
}

fn goals(tree: &Tree, schemes: usize) {
    for scheme in 0..schemes {
        for file in "goals/0/target_metric goals/0/target_value goals/0/nid goals/0/path \
                     goal_tuner fail_charge_num fail_charge_denom"
            .split_whitespace()
        {
            tree.write(&format!("{CONTEXT}/schemes/{scheme}/quotas/{file}"), "");
        }
    }
}

fn scheme(tree: &Tree, index: usize, file: &str) -> String {
    tree.read(&format!("{CONTEXT}/schemes/{index}/{file}"))
}

/// A mover with a clock of the test's, in milliseconds.
fn quota(tree: &Tree) -> (Result<Engine<Quota>, MemError>, Arc<AtomicU64>) {
    let clock = Arc::new(AtomicU64::new(0));
    let read = Arc::clone(&clock);
    let context = Context::new(tree.host()).unwrap();
    let mover = Quota::open(
        &context,
        Box::new(move || Duration::from_millis(read.load(Ordering::Relaxed))),
    );
    (mover.map(|mover| Engine::new(context, mover)), clock)
}

/// An engine that keeps an application of 120 MiB at 60 MiB of near memory.
fn limited(tree: &Tree) -> (Engine<Quota>, Arc<AtomicU64>) {
    let group = tree.cgroup("/app", &[(0, 120), (1, 0)]);
    let (engine, clock) = quota(tree);
    let mut engine = engine.unwrap();
    engine.adopt(APP, group, vec![]).unwrap();
    engine.apply(APP, near(60));
    (engine, clock)
}

#[test]
fn a_scheme_rests_through_its_first_window_and_then_has_half_of_the_excess() {
    let tree = tree(2);
    let (mut engine, clock) = limited(&tree);
    let mut tell = Vec::new();
    engine.tick(&mut tell);
    assert_eq!(tree.read(&format!("{KDAMONDS}/0/state")), "on");
    assert_eq!(scheme(&tree, 0, "access_pattern/sz/min"), NEVER.to_string());
    assert_eq!(scheme(&tree, 0, "quotas/bytes"), "4096");
    clock.store(300, Ordering::Relaxed);
    engine.tick(&mut tell);
    assert_eq!(
        scheme(&tree, 0, "access_pattern/sz/min"),
        NEVER.to_string(),
        "the first window is not over"
    );
    clock.store(600, Ordering::Relaxed);
    engine.tick(&mut tell);
    assert_eq!(tree.read(&format!("{KDAMONDS}/0/state")), "commit");
    assert_eq!(scheme(&tree, 0, "action"), "migrate_cold");
    assert_eq!(scheme(&tree, 0, "target_nid"), "1");
    assert_eq!(scheme(&tree, 0, "access_pattern/sz/min"), "4096");
    assert_eq!(
        scheme(&tree, 0, "quotas/bytes"),
        (Bytes::from_mib(30).get() - PAGE).to_string(),
        "half of it, an odd number of pages"
    );
    assert_eq!(scheme(&tree, 0, "filters/0/memcg_path"), "/app");
    // Far memory is left out: from 512 MiB to 1536 MiB.
    assert_eq!(
        scheme(&tree, 0, "filters/1/addr_start"),
        (512_u64 << 20).to_string()
    );
    assert_eq!(scheme(&tree, 0, "filters/1/matching"), "Y");
    assert_eq!(
        scheme(&tree, 1, "access_pattern/sz/min"),
        NEVER.to_string(),
        "nothing comes back meanwhile"
    );
}

/// Goal: where the kernel takes long over a commit, windows that pass meanwhile have parts of the excess, not half each.
#[test]
fn a_slow_commit_makes_smaller_windows() {
    let tree = tree(2);
    let group = tree.cgroup("/app", &[(0, 120), (1, 0)]);
    let context = Context::new(tree.host()).unwrap();
    // Every look at this clock is a second later.
    let clock = AtomicU64::new(0);
    let mover = Quota::open(
        &context,
        Box::new(move || Duration::from_millis(clock.fetch_add(1_000, Ordering::Relaxed))),
    );
    let mut engine = Engine::new(context, mover.unwrap());
    engine.adopt(APP, group, vec![]).unwrap();
    engine.apply(APP, near(60));
    for _ in 0..3 {
        engine.tick(&mut Vec::new());
    }
    // A commit took 1 s, and the next one comes 0.2 s later: three windows of 0.4 s begin, and one is under way.
    assert_eq!(
        scheme(&tree, 0, "quotas/bytes"),
        (Bytes::from_mib(15).get() - PAGE).to_string()
    );
}

/// Goal: on a machine so busy that DAMON's thread has not looked twice, no scheme wakes with the unlimited first window.
#[test]
fn a_scheme_rests_until_its_quota_is_in_force() {
    let tree = tree(2);
    let (mut engine, clock) = limited(&tree);
    let effective = |index: usize| format!("{CONTEXT}/schemes/{index}/quotas/effective_bytes");
    tree.write(&effective(0), "4096\n");
    tree.write(&effective(1), "0\n");
    for round in 0..5 {
        clock.store(round * 2_000, Ordering::Relaxed);
        engine.tick(&mut Vec::new());
        assert_eq!(scheme(&tree, 0, "access_pattern/sz/min"), NEVER.to_string());
    }
    assert_eq!(
        tree.read(&format!("{KDAMONDS}/0/state")),
        "update_schemes_effective_quotas"
    );
    tree.write(&effective(1), "4096\n");
    clock.store(10_000, Ordering::Relaxed);
    engine.tick(&mut Vec::new());
    assert_eq!(scheme(&tree, 0, "access_pattern/sz/min"), "4096");
}

#[test]
fn used_memory_goes_only_when_unused_memory_is_not_enough() {
    let tree = tree(2);
    let (mut engine, clock) = limited(&tree);
    let mut tell = Vec::new();
    let mut seen = Vec::new();
    for round in 0..14 {
        clock.store(round * 600, Ordering::Relaxed);
        engine.tick(&mut tell);
        seen.push(scheme(&tree, 0, "access_pattern/nr_accesses/max"));
    }
    let first = seen.iter().position(|max| max == "4294967295").unwrap();
    assert!((8..12).contains(&first), "{seen:?}");
}

#[test]
fn a_limit_that_is_kept_lets_its_scheme_rest() {
    let tree = tree(2);
    let (mut engine, clock) = limited(&tree);
    let mut tell = Vec::new();
    for round in 0..3 {
        clock.store(round * 600, Ordering::Relaxed);
        engine.tick(&mut tell);
    }
    assert_eq!(scheme(&tree, 0, "access_pattern/sz/min"), "4096");
    tree.hold("/app", &[(0, 60), (1, 60)]);
    clock.store(2400, Ordering::Relaxed);
    engine.tick(&mut tell);
    assert_eq!(scheme(&tree, 0, "access_pattern/sz/min"), NEVER.to_string());
    engine.apply(APP, near(100));
    clock.store(3000, Ordering::Relaxed);
    engine.tick(&mut tell);
    assert_eq!(scheme(&tree, 1, "action"), "migrate_hot");
    assert_eq!(
        scheme(&tree, 1, "quotas/bytes"),
        (Bytes::from_mib(20).get() - PAGE).to_string()
    );
}

#[test]
fn damon_is_free_at_the_end() {
    let tree = tree(2);
    let (engine, _) = quota(&tree);
    let mut engine = engine.unwrap();
    assert_eq!(owner(&tree.host()), Owner::Ours);
    engine.stop();
    assert_eq!(tree.read(&format!("{KDAMONDS}/nr_kdamonds")), "0");
    assert_eq!(owner(&tree.host()), Owner::Free);
}

#[test]
fn a_foreign_damon_is_refused_and_not_written() {
    let tree = tree(2);
    tree.write(&format!("{KDAMONDS}/nr_kdamonds"), "1\n");
    assert!(matches!(
        quota(&tree).0.err(),
        Some(MemError::NotOurs { .. })
    ));
    assert_eq!(tree.read(&format!("{KDAMONDS}/nr_kdamonds")), "1\n");
    // A mark of another boot proves nothing, and neither does one beside schemes that are not like ours.
    tree.write(MARK, "boot-0");
    assert_eq!(owner(&tree.host()), Owner::Other(1));
    tree.write(MARK, "boot-1");
    tree.write(&format!("{CONTEXT}/schemes/nr_schemes"), "1\n");
    tree.write(&format!("{CONTEXT}/schemes/0/action"), "pageout\n");
    assert_eq!(owner(&tree.host()), Owner::Other(1));
}

#[test]
fn what_a_killed_daemon_left_is_taken_over() {
    let tree = tree(2);
    drop(quota(&tree).0.unwrap());
    // No orderly end: the thread's directory and the mark are still there.
    assert_eq!(owner(&tree.host()), Owner::Ours);
    let mut engine = quota(&tree).0.unwrap();
    engine.stop();
    assert_eq!(owner(&tree.host()), Owner::Free);
}

#[test]
fn goals_are_shares_of_the_near_node_and_refused_where_unknown() {
    let tree = tree(2);
    let context = Context::new(tree.host()).unwrap();
    let error = GoalDriven::open(&context).err().unwrap().to_string();
    assert!(
        error.contains("goal_tuner") && error.contains("7.2"),
        "{error}"
    );
    assert_eq!(
        tree.read(&format!("{KDAMONDS}/nr_kdamonds")),
        "0",
        "nothing is left behind"
    );
    goals(&tree, 2);
    let group = tree.cgroup("/app", &[(0, 200), (1, 0)]);
    let mut engine = Engine::new(context.clone(), GoalDriven::open(&context).unwrap());
    engine.adopt(APP, group, vec![]).unwrap();
    engine.apply(APP, near(128));
    engine.tick(&mut Vec::new());
    // 128 of 512 MiB.
    assert_eq!(
        scheme(&tree, 0, "quotas/goals/0/target_metric"),
        "node_memcg_used_bp"
    );
    assert_eq!(scheme(&tree, 0, "quotas/goals/0/target_value"), "2500");
    assert_eq!(
        scheme(&tree, 1, "quotas/goals/0/target_metric"),
        "node_memcg_free_bp"
    );
    assert_eq!(scheme(&tree, 1, "quotas/goals/0/target_value"), "7500");
    assert_eq!(scheme(&tree, 1, "quotas/goals/0/path"), "/app");
    assert_eq!(scheme(&tree, 1, "quotas/goal_tuner"), "temporal");
    // A 256th of the node.
    assert_eq!(scheme(&tree, 1, "quotas/bytes"), "2097152");
}

/// Goal: a kernel that refuses the thread has no such backend, and an application that rests keeps its schemes. Both failed on Linux 7.2.
#[test]
fn goals_start_before_an_application_and_last_while_it_is_stuck() {
    let tree = tree(2);
    goals(&tree, 2);
    let context = Context::new(tree.host()).unwrap();
    let group = tree.cgroup("/app", &[(0, 200), (1, 0)]);
    let mut engine = Engine::new(context.clone(), GoalDriven::open(&context).unwrap());
    assert_eq!(tree.read(&format!("{KDAMONDS}/0/state")), "on");
    engine.adopt(APP, group, vec![]).unwrap();
    engine.apply(APP, near(128));
    let mut tell = Vec::new();
    // Nothing moves: the engine reports it, and leaves the application out of ever more ticks.
    for _ in 0..400 {
        engine.tick(&mut tell);
        assert_eq!(scheme(&tree, 1, "access_pattern/sz/min"), PAGE.to_string());
        assert_eq!(scheme(&tree, 1, "quotas/goals/0/target_value"), "7500");
    }
    assert!(
        tell.iter()
            .any(|progress| matches!(progress, Progress::Stuck { .. }))
    );
}

#[test]
fn a_damon_that_the_kernel_uses_is_refused_and_named() {
    let tree = tree(2);
    goals(&tree, 2);
    tree.write("/sys/module/damon_stat/parameters/enabled", "Y\n");
    let context = Context::new(tree.host()).unwrap();
    let error = GoalDriven::open(&context).err().unwrap().to_string();
    assert!(error.contains("damon_stat"), "{error}");
    assert_eq!(tree.read(&format!("{KDAMONDS}/nr_kdamonds")), "0\n");
}

#[test]
fn groups_below_an_application_get_schemes_of_their_own() {
    let tree = Tree::two_tiers();
    let group = tree.cgroup("/app", &[(0, 1)]);
    tree.cgroup("/app/a", &[(0, 1)]);
    tree.cgroup("/app/a/b", &[(0, 1)]);
    let paths: Vec<String> = leaves(&tree.host(), &group)
        .iter()
        .map(Cgroup::to_string)
        .collect();
    assert_eq!(paths, ["/app", "/app/a", "/app/a/b"]);
}

/// Goal: a mark that another program's thread came after proves nothing, and ours is known by its process.
#[test]
fn a_thread_of_another_process_is_not_ours_even_without_schemes() {
    let tree = tree(2);
    let (group, pid) = (
        tree.cgroup("/app", &[(0, 120), (1, 0)]),
        format!("{KDAMONDS}/0/pid"),
    );
    let mut engine = quota(&tree).0.unwrap();
    engine.adopt(APP, group, vec![]).unwrap();
    engine.apply(APP, near(60));
    tree.write(&pid, "77\n");
    engine.tick(&mut Vec::new());
    drop(engine);
    assert_eq!(tree.read(MARK), "boot-1\n77");
    assert_eq!(owner(&tree.host()), Owner::Ours);
    tree.write(&pid, "78\n");
    tree.write(&format!("{CONTEXT}/schemes/nr_schemes"), "0\n");
    assert_eq!(owner(&tree.host()), Owner::Other(1));
    clear(&tree.host()).unwrap();
    assert_eq!(tree.read(&format!("{KDAMONDS}/nr_kdamonds")), "1");
    tree.write(&pid, "77\n");
    clear(&tree.host()).unwrap();
    assert_eq!(tree.read(&format!("{KDAMONDS}/nr_kdamonds")), "0");
    assert_eq!(owner(&tree.host()), Owner::Free);
}

#[test]
fn no_thread_is_made_that_cannot_be_marked_and_no_mark_is_left_without_one() {
    let tree = tree(2);
    tree.write("/run/isolane/mem", "in the way");
    assert!(quota(&tree).0.is_err());
    assert_eq!(tree.read(&format!("{KDAMONDS}/nr_kdamonds")), "0\n");
    tree.remove("/run/isolane/mem");
    tree.remove(&format!("{CONTEXT}/operations"));
    tree.write(&format!("{CONTEXT}/operations/directory"), "");
    assert!(quota(&tree).0.is_err());
    assert_eq!(tree.read(&format!("{KDAMONDS}/nr_kdamonds")), "0");
    assert!(!tree.host().root.exists(MARK));
}

/// Goal: after a commit that failed the schemes are committed again and rest first, however late that is.
#[test]
fn a_failed_commit_begins_with_a_rest_again() {
    let tree = tree(2);
    let (mut engine, clock) = limited(&tree);
    let state = format!("{KDAMONDS}/0/state");
    tree.remove(&state);
    tree.write(&format!("{state}/directory"), "");
    engine.tick(&mut Vec::new());
    tree.remove(&state);
    tree.write(&state, "off\n");
    for tick in 1..=8 {
        clock.store(tick * 10_000, Ordering::Relaxed);
        engine.tick(&mut Vec::new());
        if tree.read(&state) == "on" {
            break;
        }
    }
    assert_eq!(tree.read(&state), "on");
    assert_eq!(scheme(&tree, 0, "access_pattern/sz/min"), NEVER.to_string());
}

/// Pages that the kernel (6.12) tries in one window, of `range` pages from `from` on, and where the next one begins: it
/// charges whole pages until nothing of the quota is left, notes the place, and leaves out the first page that
/// follows. With less than a page left nothing more is tried, and no place is noted.
fn window(range: u64, from: Option<u64>, bytes: u64) -> (Vec<u64>, Option<u64>) {
    let first = from.map_or(0, |from| from + 1);
    let tried: Vec<u64> = (first..first + bytes / PAGE)
        .map(|page| page % range)
        .collect();
    let next = (first + bytes / PAGE) % range;
    (tried, bytes.is_multiple_of(PAGE).then_some(next))
}

/// Goal: every huge page, which DAMON counts at its first page, gets its turn in one pass, for any excess above the
/// limit. Method: the kernel's windows, page by page. Half of the excess, plainly divided, is the bad input that this
/// finds.
#[test]
fn quotas_bring_every_huge_page_its_turn() {
    let range = 33 * 512;
    let missed = |quota: u64| {
        let (mut from, mut tried) = (None, std::collections::BTreeSet::new());
        for _ in 0..=range * PAGE / quota {
            let pages;
            (pages, from) = window(range, from, quota);
            tried.extend(pages.into_iter().filter(|page| page % 512 == 0));
        }
        33 - tried.len()
    };
    for pages in (2..9_000).step_by(7) {
        let quota = quota::whole(pages * PAGE / 2);
        assert_eq!(missed(quota), 0, "{pages} pages above the limit");
        assert!(quota <= (pages * PAGE / 2).max(PAGE));
    }
    // An odd number of pages above: all windows see the same three huge pages. An even one: some heads are left out.
    assert_eq!(missed(2_053 * PAGE / 2), 30);
    assert!(missed(2_048 * PAGE / 2) > 0);
}
