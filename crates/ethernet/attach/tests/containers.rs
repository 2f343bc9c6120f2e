//! Container weights on a device of the real kernel: the program at a container's cgroup comes and goes with the attachment.

#[allow(dead_code, reason = "the other test file uses the rest")]
mod lab;

use isolane_ethernet_attach::attach::{attach, undo_latest};
use isolane_ethernet_attach::control::{Controller, Ended};
use isolane_ethernet_attach::options::{Options, Segments, Weights};
use isolane_ethernet_attach::status::{Asked, report};
use isolane_ethernet_bpf::Dqa;
use lab::{Lab, wait_for};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Goal: a container's cgroup has the program that notes its flows while the device is attached, the report names a
/// container without this program, and nothing stays after detach.
#[test]
fn a_containers_flows_are_noted_until_detach() {
    let Some(lab) = Lab::new(4) else { return };
    let system = lab.enter();
    let name = format!("isolane-nic-{}", std::process::id());
    let path = system.cgroups().path(&name);
    if std::fs::create_dir(&path).is_err() {
        eprintln!("skipped: needs cgroup version 2");
        return;
    }
    let ended = std::panic::catch_unwind(|| {
        let options = Options {
            weights: Weights::Cgroup,
            containers: vec![format!("/{name}=200").parse().unwrap()],
            segments: Segments::Off,
            ..Options::default()
        };
        let journal = attach(&system, "v0", options).unwrap();
        let not_carried = || {
            let report = report(&system, "v0", Asked::default()).unwrap();
            report.not_carried
        };
        assert_eq!(not_carried(), Vec::<String>::new());
        let dqa = Dqa::open(&journal.pins).unwrap();
        let carried = dqa.carried();
        assert_eq!(carried.len(), 1, "{carried:?}");
        std::fs::remove_file(journal.pins.join(format!("carry-{}", carried[0]))).unwrap();
        assert_eq!(not_carried(), [format!("/{name}")]);
        // The controller tries again.
        let mut controller = Controller::new(&system, journal.clone()).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                wait_for("a program at the cgroup", || dqa.carries(carried[0]));
                stop.store(true, Ordering::Relaxed);
            });
            assert_eq!(controller.run(&stop).unwrap(), Ended::Stopped);
        });
        assert_eq!(not_carried(), Vec::<String>::new());
        undo_latest(&system, &journal).unwrap();
        assert!(!journal.pins.exists());
    });
    std::fs::remove_dir(&path).unwrap();
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}
