//! Control groups as files in a made-up tree.

use super::*;
use crate::testing::Tree;
use proptest::prelude::*;

#[test]
fn paths_are_below_the_mount_and_never_the_root() {
    let path = |text: &str| Cgroup::new(text).map(|group| group.path().to_owned());
    assert_eq!(path("/a/b/").unwrap(), "/a/b");
    assert_eq!(path("/sys/fs/cgroup/a").unwrap(), "/a");
    for bad in ["", "/", "a", "/a/../b", "/a//b", "/sys/fs/cgroup", "/a\nb"] {
        assert!(path(bad).is_err(), "{bad:?} was taken");
    }
}

#[test]
fn a_group_is_within_itself_and_its_ancestors_only() {
    let group = |text: &str| Cgroup::new(text).unwrap();
    assert!(group("/a/b").is_within(&group("/a")));
    assert!(group("/a").is_within(&group("/a")));
    assert!(!group("/ab").is_within(&group("/a")));
    assert!(!group("/a").is_within(&group("/a/b")));
}

#[test]
fn anonymous_and_file_pages_count_and_nothing_else() {
    let text =
        "anon N0=100 N1=20\nfile N0=3 N1=0\nkernel_stack N0=16384 N1=0\nanon_thp N0=50 N1=0\n";
    let held = parse_numa_stat(text).unwrap();
    assert_eq!(
        held,
        BTreeMap::from([(0, Bytes::new(103)), (1, Bytes::new(20))])
    );
    assert_eq!(parse_numa_stat(""), None);
    assert_eq!(parse_numa_stat("anon N0=x\n"), None);
}

#[test]
fn processor_limits_are_written_as_quota_and_period() {
    assert_eq!(cpu_max(1000, 4), "max 100000");
    assert_eq!(cpu_max(250, 4), "100000 100000");
    assert_eq!(cpu_max(333, 1), "33300 100000");
    assert_eq!(cpu_max(0, 1), "1000 100000");
    assert_eq!(cpu_max_below("max 100000", 500, 4), "200000 100000");
    assert_eq!(cpu_max_below("70000 100000", 500, 4), "35000 100000");
    assert_eq!(cpu_max_below("900000 100000", 500, 4), "200000 100000");
    // The kernel takes no less than 1 ms, and that may be all there was.
    assert_eq!(cpu_max_below("1000 1000000", 500, 4), "1000 1000000");
    assert_eq!(cpu_max_below("70000 50000", 1000, 4), "70000 50000");
}

#[test]
fn processes_of_children_belong_to_the_application() {
    let tree = Tree::two_tiers();
    let group = tree.cgroup("/app", &[(0, 10), (1, 0)]);
    tree.cgroup("/app/worker", &[(0, 0), (1, 0)]);
    tree.write("/sys/fs/cgroup/app/cgroup.procs", "12\n7\n");
    tree.write("/sys/fs/cgroup/app/worker/cgroup.procs", "99\n");
    assert_eq!(tree.host().processes(&group).unwrap(), [7, 12, 99]);
}

#[test]
fn a_vanished_group_is_distinguished_from_a_refused_write() {
    let tree = Tree::two_tiers();
    let group = tree.cgroup("/app", &[(0, 10), (1, 0)]);
    let host = tree.host();
    tree.remove("/sys/fs/cgroup/app/cpu.max");
    let refused = host.set_cpu(&group, 500, 2).unwrap_err();
    assert!(!matches!(refused, MemError::Gone(_)), "{refused}");
    assert!(refused.to_string().contains("+cpu"), "{refused}");
    tree.remove("/sys/fs/cgroup/app");
    assert!(matches!(
        host.set_cpu(&group, 500, 2),
        Err(MemError::Gone(_))
    ));
    assert!(matches!(host.held_by_node(&group), Err(MemError::Gone(_))));
}

proptest! {
    #[test]
    fn no_text_of_the_kernel_makes_the_reader_panic(text in "[a-z NF0-9=\n\\-]{0,80}") {
        let _ = parse_numa_stat(&text);
    }

    #[test]
    fn the_quota_never_exceeds_its_share(thousandths in 0_u32..2000, cores in 0_u32..512) {
        let text = cpu_max(thousandths, cores);
        if let Some(quota) = text.split(' ').next().and_then(|word| word.parse::<u64>().ok()) {
            let full = 100_000 * u64::from(cores.max(1));
            prop_assert!(quota * 1000 <= full * u64::from(thousandths) || quota == 1000);
        } else {
            prop_assert!(thousandths >= 1000);
        }
    }
}
