//! What `isolane hunt --resume` says where nothing was measured before.

use crate::hunt::{check, restricted, restriction};
use std::fs;

#[test]
fn a_resume_of_an_empty_journal_says_that_the_hunt_starts_with_the_first_experiment() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("empty");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("hunt.jsonl"), "").unwrap();
    let file = restriction(directory.path());
    let start = restricted(&file, out.to_str().expect("the path is text"));
    let run = |budget| check(&[&start[..], &["--resume", "--budget", budget]].concat(), 0).1;
    let first = run("12");
    assert!(
        first.contains("empty has no finished experiment to resume; starting with the first"),
        "{first}"
    );
    let second = run("14");
    assert!(second.contains(" experiments done already"), "{second}");
}
