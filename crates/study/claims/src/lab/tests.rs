//! Claims of the lab: what is refused, whose numbers count, and what the page says.

use super::*;
use crate::claim::Claim;
use crate::claim::tests::parsed;
use crate::report::{ClaimReport, devices};

fn parse(metric: &str, rest: &str, run: &str) -> Result<Claim, String> {
    let system = ("justitia", "unit = \"x\"\npublished = 4");
    parsed(system, metric, rest, run)
}

const HERE: &str = "testbed = \"lab\"";
const RUN: &str = "lab = { proof = \"latency\", device = \"rxe\" }";
const METRIC: &str = "r:lab.p99_next_to_1_none / r:lab.alone_p99";
const RESULTS: &str = r#"{"mode": "full", "proofs": [
    {"name": "latency", "verdict": "passed", "reason": "", "seconds": 1.0, "lines": [
        {"quantity": "alone_p99", "value": "2.5", "unit": "us", "expectation": "-", "verdict": "measured"},
        {"quantity": "shares", "value": "1.00:2.01", "unit": "ratio", "expectation": "-", "verdict": "measured"}]},
    {"name": "cost", "verdict": "failed", "reason": "not done within 900 s", "seconds": 900.0, "lines": []}]}"#;

fn run_of(proof: &str) -> LabRun {
    LabRun {
        proof: proof.to_owned(),
        device: "rxe".to_owned(),
    }
}

fn results() -> LabResults {
    let mut results = LabResults::default();
    let log = |proof: &str| {
        (proof == "latency").then(|| {
            "[ 0.0] Linux version 6.12.1 (gcc)\n[ 0.3] NR_CPUS=8192 to nr_cpu_ids=2.\n".to_owned()
        })
    };
    results.add(RESULTS, &log).unwrap();
    results
}

#[test]
fn a_claim_of_the_lab_is_listed_with_its_device_and_not_run() {
    let claim = parse(METRIC, HERE, RUN).unwrap();
    assert_eq!(claim.seeds.len(), 1);
    let report = ClaimReport::elsewhere(&claim);
    assert_eq!(report.device, Some("Soft-RoCE (rdma_rxe)"));
    let text = crate::report::markdown(&[report]);
    assert!(text.contains("1 on Soft-RoCE and siw"), "{text}");
    assert!(!text.contains("| justitia |"), "{text}");
}

#[test]
fn what_the_lab_has_not_is_refused() {
    let refused = |metric: &str, rest: &str, run: &str| parse(metric, rest, run).unwrap_err();
    assert!(refused(METRIC, "", RUN).contains("testbed = \"lab\" and lab go together"));
    let seeds = "testbed = \"lab\"\nseeds = [1, 2]";
    assert!(refused(METRIC, seeds, RUN).contains("no seeds"));
    assert!(refused("r:lab.alone_p98", HERE, RUN).contains("did you mean \"alone_p99\""));
    let wrong = "lab = { proof = \"latncy\", device = \"rxe\" }";
    assert!(refused(METRIC, HERE, wrong).contains("did you mean \"latency\""));
    let wrong = "lab = { proof = \"latency\", device = \"mlx5\" }";
    assert!(refused(METRIC, HERE, wrong).contains("no device is called \"mlx5\""));
    let changed = format!("{RUN}\npolicy = \"none\"");
    assert!(refused(METRIC, HERE, &changed).contains("belong to scenarios"));
}

#[test]
fn numbers_are_those_of_proofs_that_passed() {
    let results = results();
    let numbers = results.numbers(&run_of("latency")).unwrap();
    assert_eq!(numbers.value(NAME, "alone_p99"), Ok(2.5));
    assert!(
        numbers.value(NAME, "shares").is_err(),
        "a list is no number"
    );
    assert!(
        numbers
            .value("nic", "alone_p99")
            .unwrap_err()
            .contains("write label:lab.alone_p99")
    );
    let failed = results.numbers(&run_of("cost")).unwrap_err();
    assert_eq!(failed, "the proof cost failed: not done within 900 s");
    let absent = results.numbers(&run_of("shares")).unwrap_err();
    assert!(absent.contains("lab/run --only shares"), "{absent}");
}

#[test]
fn results_that_contradict_or_are_none_are_refused() {
    let mut twice = results();
    let error = twice.add(RESULTS, &|_| None).unwrap_err();
    assert!(error.contains("\"latency\" once more"), "{error}");
    for text in ["", "[]", "{\"mode\": 1}", "{\"proofs\": []}"] {
        let error = LabResults::default().add(text, &|_| None).unwrap_err();
        assert!(error.contains("no results of lab/run"), "{error}");
    }
}

#[test]
fn the_page_says_where_numbers_are_from_and_what_ran_on_which_device() {
    let claim = parse(METRIC, HERE, RUN).unwrap();
    let report = ClaimReport {
        ran: true,
        ..ClaimReport::elsewhere(&claim)
    };
    let page = devices(&results(), &[report], "isolane claims --lab out/lab");
    for line in [
        "| latency | full | Linux 6.12.1, 2 emulated processors |",
        "| cost | full | unknown: it left no kernel log |",
        "## Soft-RoCE (rdma_rxe)",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
    assert!(!page.contains("## Soft-iWARP"), "{page}");
}
