//! Scenario changes, and judging with a made-up world.

use super::*;
use crate::audit::{AuditRequest, Findings};
use crate::claim::Claim;
use crate::expression::tests::{findings, run};
use crate::world::RequestBytes;
use expect_test::expect;
use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::model::{PolicySpec, Scenario, Topology};
use isolane_study_results::network::FabricResult;
use isolane_study_results::rdma::RunResult;
use std::sync::atomic::{AtomicUsize, Ordering};

const SCENARIO: &str = r#"
profile = "cx5-100g-roce"
duration = "2ms"
[policy]
name = "justitia"
target_us = 2.0
[[tenant]]
name = "small"
perftest = "ib_write_lat -s 16"
[[tenant]]
name = "bulk"
[[tenant.traffic]]
verb = "write"
size = "1MB"
"#;

fn changed(rest: &str) -> String {
    let run: ClaimRun =
        toml::from_str(&format!("label = \"r\"\nscenario = \"s.toml\"\n{rest}")).unwrap();
    run_text(&run, 5, &ScenarioFiles::from([("s.toml", SCENARIO)])).unwrap_or_else(|error| error)
}

#[test]
fn a_run_changes_what_it_names_and_nothing_else() {
    let text = changed(
        "policy = \"none\"\nprofile = \"cx3pro-56g-ib\"\ncopies = { bulk = 2 }\n\
         [set]\n\"tenant.bulk-2.traffic.0.size\" = \"1GB\"\n\"tenant.small.weight\" = 2\n\"policy.target_us\" = 10.0\n",
    );
    expect![[r#"
        duration = "2ms"
        name = "s"
        profile = "cx3pro-56g-ib"
        seed = 5

        [policy]
        name = "none"
        target_us = 10.0

        [[tenant]]
        name = "small"
        perftest = "ib_write_lat -s 16"
        weight = 2

        [[tenant]]
        name = "bulk-1"

        [[tenant.traffic]]
        size = "1MB"
        verb = "write"

        [[tenant]]
        name = "bulk-2"

        [[tenant.traffic]]
        size = "1GB"
        verb = "write"
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_run_may_keep_some_tenants() {
    let text = changed("only = [\"small\"]\n");
    assert!(
        text.contains("\"small\"") && !text.contains("\"bulk\""),
        "{text}"
    );
}

#[test]
fn unknown_places_are_named() {
    let lines = [
        changed("only = [\"smal\"]\n"),
        changed("copies = { bulk = 0 }\n"),
        changed("copies = { bul = 2 }\n"),
        changed("[set]\n\"tenant.nobody.weight\" = 1\n"),
        changed("[set]\n\"profile.name\" = 1\n"),
    ];
    expect![[r#"
        run "r": no tenant is called "smal", did you mean "small"?
        run "r": copies of "bulk": must be 1 to 1024
        run "r": no tenant is called "bul", did you mean "bulk"?
        run "r": set "tenant.nobody.weight": the list has no member "nobody"
        run "r": set "profile.name": "name" is inside a string"#]]
    .assert_eq(&lines.join("\n"));
}

/// Counts runs; every scenario is the same.
struct Counting(AtomicUsize);

impl World for Counting {
    fn scenario(&self, text: &str, _: &str) -> Result<Scenario, String> {
        Ok(Scenario {
            name: text.to_owned(),
            description: String::new(),
            profile: "p".to_owned(),
            topology: Topology::BackToBack,
            warmup: Duration::ZERO,
            duration: Duration::from_ms(1),
            seed: 1,
            sample_interval: Duration::from_us(1),
            network: None,
            policy: PolicySpec {
                name: "none".to_owned(),
                parameters: BTreeMap::new(),
            },
            tenants: Vec::new(),
        })
    }
    fn run(&self, _: &Scenario) -> Result<RunResult, String> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(run())
    }
    fn network(&self, _: &str, file: &str) -> Result<FabricResult, String> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(format!("{file} is a network"))
    }
    fn audit(
        &self,
        request: &AuditRequest,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Findings, String> {
        self.0.fetch_add(1, Ordering::Relaxed);
        progress(1, 1);
        let mut found = findings();
        found
            .cells
            .retain(|cell| request.columns.contains(&cell.column));
        Ok(found)
    }
    fn model(&self, _: &str, _: &str, _: &[(String, f64)]) -> Result<f64, String> {
        Err("no models".to_owned())
    }
    fn parameter(&self, _: &str, _: &str, _: &str) -> Result<f64, String> {
        Err("no parameters".to_owned())
    }
    fn network_bytes(&self, _: &RequestBytes) -> Result<u64, String> {
        Err("no bytes".to_owned())
    }
    fn pcie_bytes(&self, _: &RequestBytes) -> Result<u64, String> {
        Err("no bytes".to_owned())
    }
}

fn claim(id: &str, published: &str, metric: &str) -> Claim {
    let text = format!(
        "id = {id:?}\nsystem = \"justitia\"\npaper = \"p\"\nstatement = \"s\"\nkind = \"prediction\"\nunit = \"x\"\n\
         {published}\nmetric = {metric:?}\nmiss_reason = \"known\"\n[[run]]\nlabel = \"r\"\nscenario = \"s.toml\"\n"
    );
    Claim::parse(&text, &format!("claims/justitia/{id}.toml")).unwrap()
}

fn audit_claim(id: &str, published: &str, metric: &str, columns: &str) -> Claim {
    let text = format!(
        "id = {id:?}\nsystem = \"husky\"\npaper = \"p\"\nstatement = \"s\"\nkind = \"prediction\"\nunit = \"count\"\n\
         {published}\nmetric = {metric:?}\nseeds = [1]\n[[audit]]\nlabel = \"cells\"\nprofile = \"p\"\npolicy = \"none\"\n\
         columns = [{columns}]\n"
    );
    Claim::parse(&text, &format!("claims/husky/{id}.toml")).unwrap()
}

#[test]
fn audits_that_differ_in_columns_run_once_and_count_their_own_cells() {
    let claims = [
        audit_claim("a", "at_least = 1", "violations(cells)", "\"pu-data\""),
        audit_claim("b", "published = 2", "judged(cells)", "\"pu-data\""),
        audit_claim("c", "at_most = 0", "violations(cells)", "\"cache-data\""),
        audit_claim("d", "at_most = 0", "violations(cells)", "\"pcie-data\""),
    ];
    let world = Counting(AtomicUsize::new(0));
    let claims: Vec<&Claim> = claims.iter().collect();
    let reports = check(&claims, &ScenarioFiles::new(), &world, &|_, _| {});
    assert_eq!(
        world.0.load(Ordering::Relaxed),
        1,
        "one audit for all columns"
    );
    expect![[r#"
        claim    kind        published  ours  tolerance  verdict
        husky/a  prediction  >= 1       1     exact      within
        husky/b  prediction  2          2     exact      within
        husky/c  prediction  <= 0       1     exact      MISS
            why: Cause unknown.
        husky/d  prediction  <= 0       none  exact      MISS
            why: no cell of audit "cells" applies to the device
        4 claims: 2 within tolerance, 2 missed, 0 reported without a published number
    "#]]
    .assert_eq(&crate::report::table(&reports, None));
}

#[test]
fn equal_runs_are_shared_between_claims() {
    let claims = [
        claim(
            "a",
            "published = 2.0",
            "r:small.latency_us.p99 / r:small.latency_us.p50",
        ),
        claim("b", "published = 9.0", "r:bulk-1.goodput_gbps"),
        claim("c", "withheld = true", "r:bulk-1.goodput_gbps"),
        claim("d", "at_least = 1.0", "r:starved.latency_us.p50"),
        claim("e", "published = 1.0", "r:bulk-2.goodput_gbps"),
    ];
    let world = Counting(AtomicUsize::new(0));
    let files = ScenarioFiles::from([("s.toml", SCENARIO)]);
    let claims: Vec<&Claim> = claims.iter().collect();
    let reports = check(&claims, &files, &world, &|_, all| assert_eq!(all, 3));
    assert_eq!(world.0.load(Ordering::Relaxed), 3, "one run per seed");
    expect![[r#"
        claim       kind        published  ours  tolerance  verdict
        justitia/a  prediction  2x         2x    25 %       within
        justitia/b  prediction  9x         10x   25 %       within
        justitia/c  prediction  withheld   10x   25 %       reported
        justitia/d  prediction  >= 1x      none  exact      MISS
            why: tenant "starved" completed no measured message in run "r"
        justitia/e  prediction  1x         30x   25 %       MISS
            why: Cause unknown. Not checked: known
        5 claims: 2 within tolerance, 2 missed, 1 reported without a published number
    "#]]
    .assert_eq(&crate::report::table(&reports, None));
    expect![[r##"
        # Claims

        What the papers state in numbers, and what Isolane's simulators give. `make claims` writes this page; do not edit it.

        - `prediction`: no parameter, setting or mechanism was changed to meet the published number.
        - `calibration`: a parameter, setting or mechanism was changed to meet it.
        - Out-of-sample: predictions for whose sake, as far as the history shows, no mechanism or setting was changed; no change has moved their values.
        - In-sample: all calibrations and all other predictions.
        - `ordering`: words that are read as a number, and comparisons that hardly can fail. They count apart.
        - `arithmetic`: the claim follows from formats, definitions and formulas.

        Tolerances are fixed before the run. A claim over several seeds holds only if its value and four of five seeds hold.
        The run that writes this page also checks the reasons of misses: a miss runs again with the change that its reason names.
        A confirmed reason need not be the cause: another change may have the same effect. The number in the change is chosen for this claim and has no source, and other claims may miss with it. `isolane claims --why` prints the reasons. `isolane claims --report DIR` writes a page with every claim, its statement, source and reason, to search and filter.
        [claims/outcomes.txt](claims/outcomes.txt) has the outcome of every claim. [The format](docs/internals/claims.md) of a claim.

        | system | in-sample | out-of-sample | predictions of both | orderings | arithmetic | number withheld |
        |---|---|---|---|---|---|---|
        | justitia | none | 2 of 4 (50 %) | 2 of 4 (50 %) | none | none | 1 |
        | all | none | 2 of 4 (50 %) | 2 of 4 (50 %) | none | none | 1 |

        calibration: 0 of 0 within tolerance; prediction: 2 of 4 within tolerance; ordering: 0 of 0 within tolerance; arithmetic: 0 of 0 within tolerance.

        The out-of-sample rate rests on 4 of 4 judged predictions; the other 0 are in-sample. A miss that led to a change of the model is in-sample, so the rate is too favourable: [how many predictions held in their first run](docs/internals/claims.md#first-runs). 0 orderings are in neither rate.

        ## Misses

        2 misses: 0 have a reason that a run confirms, 0 one that a run refutes; the cause of the 2 others is unknown.

        justitia:

        - `d` (prediction): none, published >= 1x. tenant "starved" completed no measured message in run "r"
        - `e` (prediction): 30x, published 1x
    "##]].assert_eq(&crate::report::markdown(&reports));
}

#[test]
fn a_scenario_with_a_fabric_table_runs_as_a_network() {
    let text = "id = \"n\"\nsystem = \"justitia\"\npaper = \"p\"\nstatement = \"s\"\nkind = \"prediction\"\n\
                unit = \"us\"\nseeds = [7]\npublished = 1.0\nmetric = \"r:high.rnl_us.p50\"\n[[run]]\nlabel = \"r\"\n\
                inline = \"[fabric]\\nhosts = 2\"\n[run.set]\n\"fabric.hosts\" = 3\n";
    let claim = Claim::parse(text, "claims/justitia/n.toml").unwrap();
    let world = Counting(AtomicUsize::new(0));
    let reports = check(&[&claim], &ScenarioFiles::new(), &world, &|_, _| {});
    let why = reports[0].reason.as_deref();
    assert_eq!(why, Some("claims/justitia/n.toml, run \"r\" is a network"));
}
