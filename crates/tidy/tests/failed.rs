//! What `.ci/failed` makes of the logs of test runs: which tests may be run again, and which failures are final.

use std::path::Path;
use std::process::Command;

/// A run of three programs, one of which failed in one test.
const ONE: &str = "     Running unittests src/lib.rs (target/debug/deps/isolane_core-0)
test tokens::tests::a_bucket_refills ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
     Running tests/attach.rs (target/debug/deps/attach-0)
test one ... ok
test two ... FAILED
failures:
    two
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
error: test failed, to rerun pass `-p isolane-nic --test attach`
     Running tests/theory/main.rs (target/debug/deps/theory-0)
test wfq ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
error: 1 target failed:
    `-p isolane-nic --test attach`
";

/// What the script prints about a log, or nothing where it says that nothing may run again.
fn again(log: &str) -> Option<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("log");
    std::fs::write(&file, log).expect("the log is written");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/failed");
    let answer = Command::new("bash").arg(script).arg(file).output();
    let answer = answer.expect("bash runs");
    let text = String::from_utf8(answer.stdout).expect("text");
    answer.status.success().then_some(text)
}

#[test]
fn the_failed_test_is_named_with_its_target() {
    assert_eq!(again(ONE).as_deref(), Some("--test attach\ttwo\n"));
    let folder = ONE.replace("tests/attach.rs", "tests/attach/main.rs");
    assert_eq!(again(&folder).as_deref(), Some("--test attach\ttwo\n"));
    let library = ONE.replace("tests/attach.rs", "unittests src/lib.rs");
    assert_eq!(again(&library).as_deref(), Some("--lib\ttwo\n"));
    let binary = ONE.replace("tests/attach.rs", "unittests src/main.rs");
    assert_eq!(again(&binary).as_deref(), Some("--bins\ttwo\n"));
}

#[test]
fn failures_that_another_run_would_not_explain_are_final() {
    let passed = ONE.replace("... FAILED", "... ok");
    let killed = ONE.replace("test result: FAILED. 1 passed; 1 failed", "killed by 9");
    let silent = ONE.replace("test two ... FAILED\n", "");
    let example = ONE.replace("     Running tests/attach.rs", "   Doc-tests isolane_nic");
    let unbuilt = format!("{ONE}error: could not compile `isolane-nic` (test \"attach\")\n");
    let more = "test more ... FAILED\n".repeat(5) + "test two ... FAILED";
    let many = ONE.replace("test two ... FAILED", &more);
    let many = many.replace("1 passed; 1 failed", "1 passed; 6 failed");
    for log in [
        passed,
        killed,
        silent,
        example,
        unbuilt,
        many,
        String::new(),
    ] {
        assert_eq!(again(&log), None, "{log}");
    }
}
