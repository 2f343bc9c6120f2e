//! What is left on the machine by a service that was killed, and what the next one makes of it.
//!
//! Goal: for any backend before and after a restart, the limits of the earlier service are lifted and the former
//! settings of the groups are restored. Method: made-up trees; a kill is a mover that is dropped without its end.

use super::cpuset::Cpuset;
use super::engine::{Engine, Mover};
use super::per_numa_high::PerNumaHigh;
use super::undo::undo;
use super::*;
use crate::application::tests::redis;
use crate::journal::{Entry, Journal};
use crate::testing::{APP, Tree, engine, near};

const MEMS: &str = "/sys/fs/cgroup/app/cpuset.mems";
const HIGH: &str = "/sys/fs/cgroup/app/memory.per_numa_high";

fn adopted<M: Mover>(tree: &Tree, mover: M) -> Engine<M> {
    let mut engine = engine(tree, mover);
    let group = Cgroup::new("/app").unwrap();
    engine.adopt(APP, group, vec![]).unwrap();
    engine
}

fn limit<M: Mover>(engine: &mut Engine<M>) {
    engine.apply(APP, near(60));
    engine.tick(&mut Vec::new());
}

fn journal(kind: BackendKind) -> Journal {
    let entry = Entry {
        id: 1,
        application: redis(),
        cgroup: "/app".to_owned(),
        inode: None,
        own: false,
        cpu_before: None,
        cpu_ours: Vec::new(),
        mems_before: Some("0-1".to_owned()),
        memory_bytes: 1 << 30,
        trouble: None,
        limited: false,
        let_go: false,
    };
    Journal {
        backend: Some(kind),
        entries: vec![entry],
        ..Journal::empty("now")
    }
}

#[test]
fn far_nodes_of_a_dead_service_are_not_what_the_group_had_before() {
    let tree = Tree::two_tiers();
    tree.cgroup("/app", &[(0, 100), (1, 0)]);
    tree.write(MEMS, "0-1\n");
    limit(&mut adopted(&tree, Cpuset::default()));
    assert_eq!(tree.read(MEMS), "1", "killed while the group is far");
    assert!(undo(&tree.host(), &mut journal(BackendKind::Cpuset)).is_empty());
    assert_eq!(tree.read(MEMS), "0-1");
    let mut next = adopted(&tree, Cpuset::default());
    limit(&mut next);
    assert_eq!(tree.read(MEMS), "1");
    next.release(APP).unwrap();
    assert_eq!(tree.read(MEMS), "0-1");
}

#[test]
fn adopting_again_keeps_what_the_group_had_before() {
    let tree = Tree::two_tiers();
    let group = tree.cgroup("/app", &[(0, 100), (1, 0)]);
    tree.write(MEMS, "0-1\n");
    let mut engine = adopted(&tree, Cpuset::default());
    limit(&mut engine);
    engine.adopt(APP, group, vec![]).unwrap();
    engine.release(APP).unwrap();
    assert_eq!(tree.read(MEMS), "0-1");
}

#[test]
fn limits_in_the_patched_kernel_are_lifted_by_the_successor() {
    let tree = Tree::two_tiers();
    tree.cgroup("/app", &[(0, 100), (1, 0)]);
    tree.write(HIGH, "max\nmax\n");
    limit(&mut adopted(&tree, PerNumaHigh::default()));
    assert_ne!(tree.read(HIGH), "max\nmax");
    adopted(&tree, PerNumaHigh::default()).release(APP).unwrap();
    assert_eq!(tree.read(HIGH), "max\nmax", "adopted and released");
    limit(&mut adopted(&tree, PerNumaHigh::default()));
    assert!(undo(&tree.host(), &mut journal(BackendKind::PerNumaHigh)).is_empty());
    assert_eq!(tree.read(HIGH), "max\nmax", "undone for another backend");
}

#[test]
fn a_group_that_is_another_by_now_is_left_alone_and_failures_are_reported() {
    let tree = Tree::two_tiers();
    tree.cgroup("/app", &[(0, 100), (1, 0)]);
    tree.write(MEMS, "1\n");
    let mut journal = journal(BackendKind::Cpuset);
    journal.entries[0].inode = Some(u64::MAX);
    assert!(undo(&tree.host(), &mut journal).is_empty());
    assert_eq!(tree.read(MEMS), "1\n");
    journal.entries[0].inode = None;
    tree.remove(MEMS);
    tree.write(&format!("{MEMS}/directory"), "");
    let said = undo(&tree.host(), &mut journal).join("; ");
    assert!(said.contains("redis") && said.contains("cpuset"), "{said}");
    // Another backend begins, is killed as well, and the debt is still known; the kernel takes it now.
    journal.backend = Some(BackendKind::Reclaim);
    assert_eq!(journal.owed.len(), 1);
    tree.remove(MEMS);
    tree.write(MEMS, "1\n");
    assert!(undo(&tree.host(), &mut journal).is_empty());
    assert_eq!((tree.read(MEMS).as_str(), journal.owed.len()), ("0-1", 0));
}
