//! Every target with changed seeds, within seconds, and the drivers themselves.

use isolane_tools_fuzz::driver::{Crash, fuzz};
use isolane_tools_fuzz::targets::ALL;
use isolane_tools_fuzz::{Target, target};
use std::collections::BTreeSet;

/// Changed inputs for each target in `make test`. `ISOLANE_FUZZ_INPUTS` and `ISOLANE_FUZZ_SEED` choose others,
/// `ISOLANE_FUZZ_TARGET` one target.
const INPUTS: u64 = 1_000;

fn number(variable: &str, default: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.map_or(default, |text| text.parse().expect("a whole number"))
}

#[test]
fn no_decoder_panics_on_changed_messages_and_files() {
    let (seed, count) = (
        number("ISOLANE_FUZZ_SEED", 1),
        number("ISOLANE_FUZZ_INPUTS", INPUTS),
    );
    let only = std::env::var("ISOLANE_FUZZ_TARGET").ok();
    let chosen = |target: &&Target| only.as_deref().is_none_or(|only| target.name == only);
    let mut ran = 0;
    let mut crashes = Vec::new();
    for target in ALL.iter().copied().flatten().filter(chosen) {
        match fuzz(target, seed, count) {
            Ok(inputs) => ran += inputs,
            Err(crash) => crashes.push(crash),
        }
    }
    println!("{ran} inputs");
    for Crash {
        target,
        number,
        input,
    } in &crashes
    {
        println!(
            "{target}: a panic at input {number} of seed {seed}; add it to crates/tools/fuzz/corpus/{target}: {:?}\n\
             run again: ISOLANE_FUZZ_SEED={seed} ISOLANE_FUZZ_INPUTS={count} cargo test -p isolane-tools-fuzz",
            String::from_utf8_lossy(input)
        );
    }
    assert!(crashes.is_empty(), "{} targets panicked", crashes.len());
}

/// A seed that its decoder rejects at once reaches nothing.
#[test]
fn every_target_has_a_name_of_its_own_and_seeds() {
    let all: Vec<&Target> = ALL.iter().copied().flatten().collect();
    let names: BTreeSet<&str> = all.iter().map(|target| target.name).collect();
    assert_eq!(names.len(), all.len());
    for target in all {
        assert!(!target.inputs().is_empty(), "{}", target.name);
    }
    assert!(target("session").is_some() && target("sessions").is_none());
}

type Planted = (&'static str, fn(&[u8]));

/// Goal: the driver finds defects. Method: decoders with one defect each of a usual kind.
#[test]
fn planted_defects_are_found() {
    let planted: [Planted; 4] = [
        ("a length that is believed", |bytes| {
            let Some((&length, rest)) = bytes.split_first() else {
                return;
            };
            let _ = &rest[..usize::from(length)];
        }),
        ("a number that overflows", |bytes| {
            if let Some(number) = bytes.first_chunk::<4>() {
                let sum = u32::from_le_bytes(*number).checked_add(16);
                assert!(sum.is_some());
            }
        }),
        ("a text cut within a character", |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let _ = &text[..text.len().min(12)];
        }),
        ("a key that comes twice", |bytes| {
            let text = String::from_utf8_lossy(bytes);
            assert!(text.matches("key=").count() < 2);
        }),
    ];
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found: Vec<bool> = planted
        .iter()
        .map(|&(name, run)| {
            let target = Target {
                name,
                run,
                seeds: || vec![b"\x04\0\0\0key=value".to_vec()],
            };
            fuzz(&target, 1, 20_000).is_err()
        })
        .collect();
    std::panic::set_hook(quiet);
    assert_eq!(found, [true; 4]);
}

#[test]
fn the_same_seed_gives_the_same_inputs() {
    use std::cell::RefCell;
    thread_local!(static SEEN: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) });
    let target = Target {
        name: "recorder",
        run: |bytes| SEEN.with_borrow_mut(|seen| seen.push(bytes.to_vec())),
        seeds: || vec![b"a=1\n".to_vec(), vec![0; 16]],
    };
    let run = |seed| {
        assert_eq!(fuzz(&target, seed, 100), Ok(102));
        SEEN.take()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
