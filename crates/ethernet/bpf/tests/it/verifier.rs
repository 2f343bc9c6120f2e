//! The verifier has little to do: its own count of instructions.
#![allow(unsafe_code)]

use crate::support::{ifindex, in_lab};
use isolane_ethernet_bpf::{Completion, Dqa, DqaSettings, LoadOptions};

/// Far below the limit of a million, with room for kernels that follow more paths than 6.18 (which needs 50,000).
const VERIFIED_AT_MOST: u32 = 150_000;

#[test]
fn the_verifier_has_little_to_do() {
    in_lab("the_verifier", |pins| {
        println!("completion   program    verified instructions (at most {VERIFIED_AT_MOST})");
        for completion in [Completion::Freed, Completion::HandedOver] {
            let options = LoadOptions {
                ifindex: ifindex("lo"),
                queues: 64,
                completion,
                hardware_segmentation: false,
                pins: pins.into(),
                flows: 0,
            };
            let dqa = Dqa::load(&options, &DqaSettings::default()).expect("loads");
            let cost = dqa.run_time().expect("readable");
            for (name, program) in [
                ("egress", cost.egress),
                ("completed", cost.completed),
                ("dropped", cost.dropped),
                ("steer", cost.steer),
            ] {
                let verified = program.verified_instructions;
                println!("{completion:<11?}  {name:<9}  {verified:>7}");
                assert!(
                    (1..=VERIFIED_AT_MOST).contains(&verified),
                    "{name}: {verified}"
                );
            }
            dqa.detach().expect("detaches");
        }
    });
}
