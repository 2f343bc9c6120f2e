//! From a file that a user submits to the bytes in the kernel's files: percentages, several far tiers, weights, pods.
//!
//! Goal: what a file says reaches the kernel. Method: a made-up machine of three tiers with the real parser, policy, sensors,
//! control groups, journal and the backend `per_numa_high`, whose file shows every limit; only its thread is left out.

use super::super::groups::HostGroups;
use super::super::{About, Controller, Parts};
use crate::application::{self, pod};
use crate::backend::engine::{Context, Engine};
use crate::backend::per_numa_high::PerNumaHigh;
use crate::cgroup::own::PARENT;
use crate::indicator::machine::MachineSensors;
use crate::journal::FileStore;
use crate::protocol::{Answer, Request, Submission};
use crate::testing::Tree;
use isolane_common_quantities::units::{Bytes, Instant};
use isolane_memory_policy::mercury::{Mercury, MercuryOptions, PERIOD, Sharing, Thresholds};

const MIB: u64 = 1 << 20;

struct Machine {
    tree: Tree,
    controller: Controller,
    now: Instant,
    _journal: tempfile::TempDir,
}

impl Machine {
    /// 512 MiB near (12 MiB of them the kernel's), and 1 GiB in each of two far tiers.
    fn new(sharing: Sharing) -> Self {
        let tree = Tree::two_tiers();
        tree.write("/sys/devices/system/node/has_memory", "0-2\n");
        tree.write(
            "/sys/devices/virtual/memory_tiering/memory_tier20/nodelist",
            "2\n",
        );
        tree.node(0, 512, 500);
        tree.node(1, 1024, 1000);
        tree.node(2, 1024, 1000);
        let journal = tempfile::tempdir().unwrap();
        let thresholds = Thresholds {
            local_bandwidth: u64::MAX / 2,
            hint_faults_per_s: 1e12,
        };
        let options = MercuryOptions {
            sharing,
            ..MercuryOptions::new(thresholds, Bytes::from_mib(512))
        };
        let context = Context::new(tree.host()).unwrap();
        let parts = Parts {
            policy: Box::new(Mercury::new(options).unwrap()),
            backend: Box::new(Engine::new(context, PerNumaHigh::default())),
            sensors: Box::new(MachineSensors::new(tree.host(), None)),
            groups: Box::new(HostGroups::new(tree.host())),
            store: Box::new(FileStore::open(journal.path(), "now").unwrap()),
        };
        let controller = Controller::start(Instant::ZERO, parts, About::default()).unwrap();
        let mut machine = Self {
            tree,
            controller,
            now: Instant::ZERO,
            _journal: journal,
        };
        machine.step();
        machine
    }

    fn step(&mut self) {
        self.now = self.now.saturating_add(PERIOD);
        self.controller.step(self.now);
    }

    /// A control group with so much near memory, as the kernel shows it.
    fn group(&self, path: &str, near: u64) {
        self.tree.cgroup(path, &[(0, near), (1, 0), (2, 0)]);
        self.tree.write(
            &format!("/sys/fs/cgroup{path}/memory.per_numa_high"),
            "max\nmax\nmax\n",
        );
    }

    fn submit(&mut self, submission: Submission) -> Answer {
        let answer = self
            .controller
            .answer(self.now, Request::Submit(submission), None);
        self.step();
        answer
    }

    fn submit_file(&mut self, text: &str) -> Answer {
        let file = application::parse(text, "app.toml").unwrap();
        self.submit(Submission {
            application: file.application,
            place: file.place,
        })
    }

    /// The limits of each node in MiB; none is no limit.
    fn limits(&self, path: &str) -> Vec<Option<u64>> {
        let text = self
            .tree
            .read(&format!("/sys/fs/cgroup{path}/memory.per_numa_high"));
        text.lines()
            .map(|line| line.parse::<u64>().ok().map(|bytes| bytes / MIB))
            .collect()
    }
}

/// An application's file with `more` lines.
fn file(name: &str, priority: u32, more: &str) -> String {
    format!(
        "name = \"{name}\"\ntype = \"ls\"\nslo_latency = \"160ns\"\npriority = {priority}\n{more}\n\
         memory = \"400MiB\"\ncgroup = \"/{name}\"\n"
    )
}

#[test]
fn percentages_and_explicit_far_tiers_of_a_file_reach_the_kernel() {
    let mut machine = Machine::new(Sharing::Strict);
    machine.group("/a", 100);
    let answer = machine.submit_file(&file(
        "a",
        2,
        "max = { local = \"12.5%\" }\nfar_tiers = [2]",
    ));
    assert!(matches!(answer, Answer::Admitted(_)), "{answer:?}");
    assert_eq!(machine.limits("/a"), [Some(50), Some(0), None]);
    machine.group("/b", 100);
    let answer = machine.submit_file(&file(
        "b",
        1,
        "max = { local = \"100.5MiB\", tier1 = \"12.5%\" }",
    ));
    assert!(matches!(answer, Answer::Admitted(_)), "{answer:?}");
    assert_eq!(machine.limits("/b"), [Some(100), Some(50), None]);
}

#[test]
fn weights_of_files_share_what_is_too_little() {
    let mut machine = Machine::new(Sharing::Weighted);
    machine.group("/a", 0);
    machine.group("/b", 0);
    machine.submit_file(&file("a", 2, "weight = 1000"));
    assert_eq!(machine.limits("/a")[0], Some(400));
    // Less important, and three times the weight: under strict priority it would get the rest.
    machine.submit_file(&file("b", 1, "weight = 3000"));
    let (a, b) = (
        machine.limits("/a")[0].unwrap(),
        machine.limits("/b")[0].unwrap(),
    );
    assert_eq!((a, b), (125, 375));
    let mut strict = Machine::new(Sharing::Strict);
    strict.group("/a", 0);
    strict.group("/b", 0);
    strict.submit_file(&file("a", 2, "weight = 1000"));
    strict.submit_file(&file("b", 1, "weight = 3000"));
    assert_eq!(
        (strict.limits("/a")[0], strict.limits("/b")[0]),
        (Some(400), Some(100))
    );
}

#[test]
fn more_than_the_machine_has_is_refused_with_what_it_has() {
    let mut machine = Machine::new(Sharing::Strict);
    machine.group("/a", 100);
    let head = "name = \"a\"\ntype = \"ls\"\nslo_latency = \"160ns\"\npriority = 2\nmemory = \"400MiB\"\ncgroup = \"/a\"\n";
    let mut said = |rest: &str| match machine.submit_file(&format!("{head}{rest}")) {
        Answer::Failed(failure) => failure.message,
        answer => panic!("{answer:?}"),
    };
    let message = said("max = { local = \"9000GB\" }\n");
    assert!(
        message.contains("8.19 TiB of tier 0") && message.contains("512 MiB"),
        "{message}"
    );
    let message = said("[measured]\nlocal = \"9000GB\"\n");
    assert!(
        message.contains("measured.local = 8.19 TiB") && message.contains("512 MiB"),
        "{message}"
    );
    let message = said("far_tiers = [3]\n");
    assert_eq!(
        message,
        "tier 3 does not exist: this machine has tiers 0 to 2"
    );
}

/// With a larger floor of the parent the kernel protects applications that have no floor.
#[test]
fn the_floor_of_an_application_that_ends_leaves_the_parent() {
    let mut machine = Machine::new(Sharing::Strict);
    let file = |path: &str| format!("/sys/fs/cgroup{PARENT}{path}");
    for name in ["", "/a", "/b"] {
        machine.group(&format!("{PARENT}{name}"), 0);
        for (key, text) in [
            ("cgroup.controllers", "memory cpu"),
            ("cgroup.subtree_control", ""),
            ("cgroup.events", "populated 0\n"),
            ("memory.low", "0\n"),
            ("memory.min", "0\n"),
        ] {
            machine.tree.write(&file(&format!("{name}/{key}")), text);
        }
    }
    for (priority, name, floor) in [(2, "a", "memory_min = \"64MiB\""), (1, "b", "")] {
        let text = format!(
            "name = \"{name}\"\ntype = \"best-effort\"\npriority = {priority}\nmemory = \"100MiB\"\n{floor}\n"
        );
        let submitted = application::parse(&text, "app.toml").unwrap();
        let request = Request::Submit(Submission {
            application: submitted.application,
            place: submitted.place,
        });
        let answer = machine.controller.answer(machine.now, request, Some(4711));
        assert!(matches!(answer, Answer::Admitted(_)), "{answer:?}");
        let events = file(&format!("/{name}/cgroup.events"));
        machine.tree.write(&events, "populated 1\n");
        machine.step();
    }
    let parent = |machine: &Machine| machine.tree.read(&file("/memory.min"));
    assert_eq!(parent(&machine), (64 * MIB).to_string());
    machine.tree.remove(&file("/a"));
    machine.step();
    assert_eq!(machine.controller.len(), 1);
    assert_eq!(parent(&machine), "0");
}

const ID: &str = "0123456789abcdef0123456789abcdef";

/// The names that kubelet and runtimes give, with both drivers of control groups.
#[test]
fn pods_and_containers_are_found_as_kubelet_and_runtimes_name_them() {
    let uid = "5bd5e9a4-11aa-4ee1-9d3c-0c5f3c0b4b1e";
    let systemd = uid.replace('-', "_");
    let slice =
        format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{systemd}.slice");
    for (pod_path, container) in [
        (slice.clone(), format!("cri-containerd-{ID}.scope")),
        (slice.clone(), format!("docker-{ID}.scope")),
        (slice, format!("crio-{ID}.scope")),
        (format!("/kubepods/burstable/pod{uid}"), ID.to_owned()),
    ] {
        let mut machine = Machine::new(Sharing::Strict);
        machine.group(&pod_path, 100);
        machine.group(&format!("{pod_path}/{container}"), 100);
        // The monitor of CRI-O, and another pod.
        machine.group(&format!("{pod_path}/crio-conmon-{ID}.scope"), 0);
        machine.group(
            "/kubepods/burstable/pod11111111-11aa-4ee1-9d3c-0c5f3c0b4b1e",
            0,
        );
        let pod = format!(
            r#"{{"kind":"Pod","metadata":{{"name":"redis-0","uid":"{uid}","annotations":{{
            "isolane.dev/type":"ls","isolane.dev/slo":"160ns","isolane.dev/priority":"3","isolane.dev/memory":"400Mi",
            "isolane.dev/local-max":"25%","isolane.dev/far-tiers":"2"}}}}}}"#
        );
        let (application, place) = pod::parse(&pod).unwrap();
        let Answer::Admitted(admission) = machine.submit(Submission { application, place }) else {
            panic!("not admitted");
        };
        assert_eq!(admission.cgroup, pod_path);
        assert_eq!(machine.limits(&pod_path), [Some(100), Some(0), None]);
        let mut machine = Machine::new(Sharing::Strict);
        let path = format!("{pod_path}/{container}");
        machine.group(&path, 100);
        machine.group(&format!("{pod_path}/crio-conmon-{ID}.scope"), 0);
        let answer = machine.submit_file(&format!(
            "name = \"c\"\ntype = \"best-effort\"\npriority = 1\nmemory = \"64MiB\"\ncontainer = \"{}\"\n",
            &ID[..12]
        ));
        let Answer::Admitted(admission) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(admission.cgroup, path);
    }
}

/// The attack: a container makes cgroups with the names of another pod and another container below its own.
#[test]
fn what_a_container_makes_below_its_cgroup_is_no_pod_and_no_container() {
    let uid = "5bd5e9a4-11aa-4ee1-9d3c-0c5f3c0b4b1e";
    let other = "11111111-11aa-4ee1-9d3c-0c5f3c0b4b1e";
    let wanted = "fedcba9876543210fedcba9876543210";
    let theirs = format!("/kubepods/burstable/pod{other}/{ID}");
    let own = format!("/kubepods/burstable/pod{uid}");
    for (place, path) in [
        (format!("pod = \"{uid}\""), own.clone()),
        (
            format!("container = \"{wanted}\""),
            format!("{own}/{wanted}"),
        ),
    ] {
        let request = format!(
            "name = \"x\"\ntype = \"best-effort\"\npriority = 1\nmemory = \"64MiB\"\n{place}\n"
        );
        let mut machine = Machine::new(Sharing::Strict);
        machine.group(&format!("{theirs}/pod{uid}"), 100);
        machine.group(&format!("{theirs}/{wanted}"), 100);
        machine.group(&format!("/system.slice/a.service/{wanted}"), 100);
        let answer = machine.submit_file(&request);
        assert!(!matches!(answer, Answer::Admitted(_)), "{answer:?}");
        machine.group(&path, 100);
        let Answer::Admitted(admission) = machine.submit_file(&request) else {
            panic!("{path} is not the only one");
        };
        assert_eq!(admission.cgroup, path);
    }
}
