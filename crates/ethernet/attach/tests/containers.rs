//! Container weights on a device of the real kernel: the program at a container's cgroup comes and goes with the attachment.

#[allow(dead_code, reason = "the other test file uses the rest")]
mod lab;

use isolane_common_linux::skip::skip;
use isolane_ethernet_attach::attach::{attach, undo_latest};
use isolane_ethernet_attach::containers::NotCarried;
use isolane_ethernet_attach::control::{Controller, Ended};
use isolane_ethernet_attach::options::{Options, Segments, Weights};
use isolane_ethernet_attach::status::{Asked, report};
use isolane_ethernet_attach::system::System;
use isolane_ethernet_bpf::Dqa;
use lab::{Lab, wait_for};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// A cgroup for one test, with its children.
struct Group(PathBuf);

impl Group {
    /// `None` where version 2 cgroups are missing.
    fn new(system: &System, name: &str) -> Option<Self> {
        let path = system.cgroups().path(name);
        let made = std::fs::create_dir(&path).map(|()| Self(path));
        made.inspect_err(|_| skip("needs cgroup version 2")).ok()
    }

    fn child(&self, name: &str) {
        std::fs::create_dir(self.0.join(name)).expect("a new name in our group");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for child in std::fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let _ = std::fs::remove_dir(child.path());
        }
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Goal: the end of a named container changes nothing for the others: new children of the slice get the program, and the
/// report names a container without it. Method: the named container ends after the attachment.
#[test]
fn a_named_container_that_has_ended_does_not_stop_the_others() {
    let Some(lab) = Lab::new(4) else { return };
    let system = lab.enter();
    let name = format!("isolane-nic-slice-{}", std::process::id());
    let Some(group) = Group::new(&system, &name) else {
        return;
    };
    group.child("named");
    let options = Options {
        weights: Weights::Cgroup,
        slice: Some(format!("/{name}")),
        containers: vec![format!("/{name}/named=200").parse().unwrap()],
        segments: Segments::Off,
        ..Options::default()
    };
    let journal = attach(&system, "v0", options).unwrap();
    let dqa = Dqa::open(&journal.pins).unwrap();
    let named = dqa.carried();
    std::fs::remove_dir(group.0.join("named")).unwrap();
    group.child("new");
    let not_carried = || report(&system, "v0", Asked::default()).unwrap().not_carried;
    assert_eq!(paths(not_carried()), [format!("/{name}/new")]);
    let mut controller = Controller::new(&system, journal.clone()).unwrap();
    run_until(
        &mut controller,
        "the new child in place of the named one",
        || {
            let carried = dqa.carried();
            carried.len() == 1 && carried != named
        },
    );
    assert_eq!(not_carried(), []);
    undo_latest(&system, &journal).unwrap();
}

/// Stops the controller, also when a wait fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Goal: a container's cgroup has the program that notes its flows while the device is attached, the report names a
/// container without this program and the reason, and nothing stays after detach.
#[test]
fn a_containers_flows_are_noted_until_detach() {
    let Some(lab) = Lab::new(4) else { return };
    let system = lab.enter();
    let name = format!("isolane-nic-{}", std::process::id());
    let Some(_group) = Group::new(&system, &name) else {
        return;
    };
    let options = Options {
        weights: Weights::Cgroup,
        containers: vec![format!("/{name}=200").parse().unwrap()],
        segments: Segments::Off,
        ..Options::default()
    };
    let journal = attach(&system, "v0", options).unwrap();
    let not_carried = || report(&system, "v0", Asked::default()).unwrap().not_carried;
    assert_eq!(not_carried(), []);
    let dqa = Dqa::open(&journal.pins).unwrap();
    let carried = dqa.carried();
    assert_eq!(carried.len(), 1, "{carried:?}");
    let pin = |name: &str| journal.pins.join(name);
    std::fs::remove_file(pin(&format!("carry-{}", carried[0]))).unwrap();
    let refusal = || {
        let refused = not_carried();
        assert_eq!(paths(refused.clone()), [format!("/{name}")]);
        refused[0].reason.clone()
    };
    assert_eq!(refusal(), "no controller has tried yet");
    // An earlier release has no such program.
    std::fs::rename(pin("carry"), pin("kept")).unwrap();
    assert!(
        refusal().ends_with("attach the device again"),
        "{}",
        refusal()
    );
    // A program that no cgroup takes.
    std::fs::hard_link(pin("steer"), pin("carry")).unwrap();
    let mut controller = Controller::new(&system, journal.clone()).unwrap();
    run_until(&mut controller, "reason of the kernel", || {
        refusal().contains(&format!("egress of cgroup {}: Invalid", carried[0]))
    });
    std::fs::rename(pin("kept"), pin("carry")).unwrap();
    run_until(&mut controller, "a program at the cgroup", || {
        dqa.carries(carried[0])
    });
    assert_eq!(not_carried(), []);
    undo_latest(&system, &journal).unwrap();
    assert!(!journal.pins.exists());
}

fn paths(refused: Vec<NotCarried>) -> Vec<String> {
    refused.into_iter().map(|one| one.path).collect()
}

/// Runs the controller until the event.
fn run_until(controller: &mut Controller, what: &str, is_so: impl FnMut() -> bool + Send) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _stop = Stop(&stop);
            wait_for(what, is_so);
        });
        let ended = controller.run(&stop).expect("the device stays");
        assert_eq!(ended, Ended::Stopped);
    });
}
