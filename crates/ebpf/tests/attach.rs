//! Coming and going: load, attach, open from pins, detach, beside other people's filters.
//!
//! Goal: a device's data path neither depends on a process nor loses what others put there.
#![allow(unsafe_code)]

mod support;

use isolane_ebpf::{Completion, Dqa, DqaSettings, EbpfError, LoadOptions};
use std::path::Path;
use support::{command, ifindex, in_lab, veth};

fn options(device: &str, pins: &Path) -> LoadOptions {
    LoadOptions {
        ifindex: ifindex(device),
        queues: 8,
        completion: Completion::HandedOver,
        hardware_segmentation: true,
        pins: pins.into(),
        flows: 0,
    }
}

#[test]
fn a_device_is_left_as_it_was() {
    in_lab("a_device_is_left_as_it_was", |pins| {
        let _peer = veth();
        let before = command("tc", "qdisc show dev v0");
        let mut dqa = Dqa::load(&options("v0", pins), &DqaSettings::default()).expect("loads");
        assert!(!dqa.is_attached().expect("here"));
        dqa.attach().expect("attaches");
        dqa.attach().expect("again is no error");
        assert!(dqa.is_attached().expect("here"));
        let again = Dqa::load(&options("v0", pins), &DqaSettings::default());
        assert!(matches!(again, Err(EbpfError::Exists { .. })), "{again:?}");
        command("ping", "-c 3 -i 0.01 -W 1 10.1.0.2");
        let counters = dqa.counters().expect("readable");
        assert!(counters.assigned >= 3, "{counters:?}");
        assert!(counters.completed >= 3, "{counters:?}");
        drop(dqa);

        let dqa = Dqa::open(pins).expect("pins outlive who made them");
        command("ping", "-c 3 -i 0.01 -W 1 10.1.0.2");
        assert!(dqa.counters().expect("readable").assigned > counters.assigned);
        dqa.detach().expect("detaches");
        assert_eq!(command("tc", "qdisc show dev v0"), before);
        assert!(matches!(Dqa::open(pins), Err(EbpfError::Absent { .. })));
        assert!(!pins.exists(), "nothing is left behind");
        command("ping", "-c 1 -W 1 10.1.0.2");
    });
}
