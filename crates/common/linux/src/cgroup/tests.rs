//! Paths of every common runtime, the controller over a test hierarchy, and arbitrary text.

use super::*;
use crate::root::Root;
use proptest::prelude::*;
use std::fs;

const DIGITS: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const UID: &str = "01234567-89ab-cdef-0123-456789abcdef";

fn shown(path: &str) -> String {
    let workload = Workload::of(path);
    let container = workload.container.map(|container| {
        let identifier = container.identifier.replace(DIGITS, "ID");
        format!("{} {identifier}", container.runtime)
    });
    let pod = workload.pod.map(|pod| pod.replace(UID, "UID"));
    format!(
        "unit {} slice {} container {} pod {}",
        workload.unit.as_deref().unwrap_or("-"),
        workload.slice.as_deref().unwrap_or("-"),
        container.as_deref().unwrap_or("-"),
        pod.as_deref().unwrap_or("-")
    )
}

#[test]
fn every_common_runtime_is_recognised() {
    let underscored = UID.replace('-', "_");
    let cases = [
        (
            format!("/docker/{DIGITS}"),
            "unit - slice - container docker ID pod -",
        ),
        (
            format!("/system.slice/docker-{DIGITS}.scope"),
            "unit - slice system.slice container docker ID pod -",
        ),
        (
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{underscored}.slice/cri-containerd-{DIGITS}.scope"
            ),
            &format!(
                "unit - slice kubepods-burstable-pod{underscored}.slice container containerd ID pod UID"
            ),
        ),
        (
            format!("/kubepods/besteffort/pod{UID}/{DIGITS}"),
            "unit - slice - container unknown ID pod UID",
        ),
        (
            format!("/kubepods.slice/kubepods-pod{underscored}.slice/crio-{DIGITS}.scope"),
            &format!("unit - slice kubepods-pod{underscored}.slice container cri-o ID pod UID"),
        ),
        (
            format!("/machine.slice/libpod-{DIGITS}.scope/container"),
            "unit - slice machine.slice container podman ID pod -",
        ),
        (
            "/lxc.payload.web/init.scope".to_owned(),
            "unit init.scope slice - container lxc web pod -",
        ),
        (
            "/user.slice/user-1000.slice/session-3.scope".to_owned(),
            "unit session-3.scope slice user-1000.slice container - pod -",
        ),
        (
            "/system.slice/isolaned.service".to_owned(),
            "unit isolaned.service slice system.slice container - pod -",
        ),
        ("/".to_owned(), "unit - slice - container - pod -"),
    ];
    for (path, expected) in cases {
        assert_eq!(shown(&path), expected, "{path}");
    }
}

/// The attack: a container or a user creates a cgroup with another pod's or container's name.
#[test]
fn the_outermost_pod_and_container_count() {
    let other = "99999999-2222-3333-4444-555555555555";
    let made = DIGITS.replace(&DIGITS[..1], "e");
    for (path, expected) in [
        (
            format!("/kubepods/burstable/pod{UID}/{DIGITS}/kubepods/pod{other}/{made}"),
            "unit - slice - container unknown ID pod UID",
        ),
        (
            format!("/docker/{DIGITS}/pod{other}/docker-{made}.scope"),
            "unit - slice - container docker ID pod -",
        ),
        (
            format!("/user.slice/user-1000.slice/user@1000.service/docker-{made}.scope"),
            "unit user@1000.service slice user-1000.slice container - pod -",
        ),
        (
            format!("/system.slice/batch.service/pod{other}"),
            "unit batch.service slice system.slice container - pod -",
        ),
        // A cgroup at the root that its owner may divide.
        (
            format!("/batch/pod{other}"),
            "unit - slice - container - pod -",
        ),
        (
            format!("/kubepods-batch/pod{other}"),
            "unit - slice - container - pod -",
        ),
    ] {
        assert_eq!(shown(&path), expected, "{path}");
    }
}

#[test]
fn paths_of_both_hierarchies_are_read() {
    assert_eq!(path("0::/a/b\n"), "/a/b");
    let mixed = "3:cpu:/x\n1:name=systemd:/docker/77\n0::/\n";
    assert_eq!(path(mixed), "/docker/77");
    assert_eq!(path("nonsense"), "");
}

#[test]
fn a_tenant_cannot_multiply_the_groups_that_count_for_it() {
    let pod = "11111111-2222-3333-4444-555555555555";
    for (path, expected) in [
        ("/system.slice/ssh.service", "/system.slice/ssh.service"),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope",
            "/user.slice/user-1000.slice",
        ),
        (
            "/lxc.payload.web/system.slice/a.service",
            "/lxc.payload.web",
        ),
        ("/a/b/c.slice/d.scope", "/a/b"),
        ("/a", "/a"),
        ("/", "/"),
        ("", ""),
        ("nonsense", ""),
    ] {
        assert_eq!(responsible(path), expected, "{path}");
    }
    let made = format!("/kubepods/burstable/pod{pod}/0123456789ab/own/1.scope");
    assert_eq!(responsible(&made), format!("/kubepods/burstable/pod{pod}"));
}

#[test]
fn a_uid_has_32_digits() {
    let long = UID.replace('-', "-0");
    for (text, want) in [
        (UID, true),
        (&UID.replace('-', ""), true),
        (&UID.to_uppercase(), false),
        (&UID[..35], false),
        (&long, false),
        (&"-".repeat(32), false),
        ("", false),
    ] {
        assert_eq!(is_pod_uid(text), want, "{text}");
    }
}

#[test]
fn a_conmon_scope_is_no_container() {
    let path = format!("/machine.slice/libpod-conmon-{DIGITS}.scope");
    assert_eq!(Workload::of(&path).container, None);
}

#[test]
fn a_process_in_a_mixed_hierarchy_has_the_unified_path() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir_all(directory.path().join("proc/7")).unwrap();
    let text = "9:name=systemd:/other\n4:memory:/a\n0::/tenants/blue\n";
    fs::write(directory.path().join("proc/7/cgroup"), text).unwrap();
    let path = of_process(&Root::at(directory.path()), 7);
    assert_eq!(path.as_deref(), Some("/tenants/blue"));
}

#[test]
fn limits_are_read_and_written_as_the_kernel_has_them() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("sys/fs/cgroup/tenants/blue");
    fs::create_dir_all(&folder).unwrap();
    fs::write(
        directory.path().join("sys/fs/cgroup/cgroup.controllers"),
        "rdma",
    )
    .unwrap();
    fs::write(
        folder.join("rdma.max"),
        "r0 hca_handle=max hca_object=2000\nr1 hca_handle=3 hca_object=max\n",
    )
    .unwrap();
    fs::write(
        folder.join("rdma.current"),
        "r0 hca_handle=1 hca_object=20\n",
    )
    .unwrap();
    let root = Root::at(directory.path());
    let controller = RdmaController::of(&root, "/tenants/blue").unwrap();
    let limits = controller.limits().unwrap();
    assert_eq!(
        limits["r0"],
        RdmaLimits {
            handles: Limit::Max,
            objects: Limit::AtMost(2000)
        }
    );
    assert_eq!(
        limits["r1"],
        RdmaLimits {
            handles: Limit::AtMost(3),
            objects: Limit::Max
        }
    );
    assert_eq!(
        controller.current().unwrap()["r0"],
        RdmaUse {
            handles: 1,
            objects: 20
        }
    );
    let tighter = RdmaLimits {
        handles: Limit::AtMost(4),
        objects: Limit::Max,
    };
    controller.set_limits("r0", tighter).unwrap();
    let written = fs::read_to_string(folder.join("rdma.max")).unwrap();
    assert_eq!(written, "r0 hca_handle=4 hca_object=max");
}

#[test]
fn a_cgroup_without_the_controller_says_how_to_enable_it() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir_all(directory.path().join("sys/fs/cgroup/a")).unwrap();
    fs::write(
        directory.path().join("sys/fs/cgroup/cgroup.controllers"),
        "cpu",
    )
    .unwrap();
    let root = Root::at(directory.path());
    let error = RdmaController::of(&root, "/a").unwrap_err().to_string();
    assert!(error.contains("cgroup.subtree_control"), "{error}");
}

proptest! {
    #[test]
    fn any_path_and_any_entry_are_read_without_a_panic(text in "\\PC{0,80}", path in "(/[a-z0-9.:_-]{0,40}){0,5}") {
        let _ = Workload::of(&text);
        let _ = Workload::of(&path);
        let _ = parse_entry(&text);
    }
}

/// Found by the fuzz target `tables`: the end was counted from a `/` that the path did not have, into a character.
#[test]
fn a_path_without_its_first_slash_has_no_part_of_the_host() {
    assert_eq!(responsible("\u{20ac}/a.slice/b\u{20ac}/c"), "");
    assert_eq!(
        responsible("/\u{20ac}.slice/b\u{20ac}/c"),
        "/\u{20ac}.slice/b\u{20ac}"
    );
}
