//! Runs of cards: what a claim may say, and the numbers of a result.

use super::*;
use crate::claim::Claim;
use crate::expression::{Evaluation, Value, parse, tests::NoWorld};
use crate::plan::{ScenarioFiles, check};
use crate::world::{RunOutcome, World};
use expect_test::expect;
use isolane_study_results::ethernet::{Completions, Quantiles};
use std::sync::Mutex;

pub(crate) fn result(config: &str, flows: u32, seed: u64) -> NicResult {
    NicResult {
        throughput_gbps: 9.4,
        cpu_percent: 40.0 + seed as f64,
        ping_us: Some(Quantiles {
            count: 100,
            p50: 100.0,
            p90: 300.0 * seed as f64,
            p99: 900.0,
        }),
        nfm_1ms: 0.5,
        nfm_1s: 0.25 * seed as f64,
        flow_gbps: vec![4.0, 2.0],
        queue_bytes: vec![1, 2],
        queue_bytes_max: vec![65_536, 131_072],
        counts: BTreeMap::from([("moves".to_owned(), 7)]),
        ..NicResult::simulated(config, flows, seed)
    }
}

fn run(text: &str) -> NicRun {
    toml::from_str(text).unwrap()
}

#[test]
fn a_run_is_the_papers_with_what_it_changes() {
    let study = run("config = \"c6\"\nflows = 12\nqueues = 4\nqueue_weights = true\n")
        .study(3)
        .unwrap();
    assert_eq!((study.name.as_str(), study.seed), ("C6-12-flows", 3));
    assert_eq!((study.card.queues, study.card.processors), (4, 8));
    assert!(study.config.queue_weights);
    let cluster = run("config = \"T1\"\nhosts = 24\nsecond_switch = 20\nmegabytes = 10\n")
        .study(1)
        .unwrap();
    let all = NicTraffic::AllToAll {
        hosts: 24,
        second_switch: 20,
        bytes: Bytes::new(10_000_000),
    };
    assert_eq!(cluster.traffic, all);
}

#[test]
fn mistakes_are_named_with_their_remedy() {
    let lines: String = [
        "config = \"C66\"\nflows = 3",
        "config = \"C6\"",
        "config = \"C6\"\nflows = 0",
        "config = \"C6\"\nflows = 3\nhosts = 6",
        "config = \"C6\"\nhosts = 1",
        "config = \"C6\"\nhosts = 6\nsecond_switch = 6",
        "config = \"C6\"\nflows = 3\nmegabytes = 5",
        "config = \"C6\"\nflows = 3\nqueues = 200",
        "config = \"C6\"\nflows = 3\nrate_gbps = 0",
        "config = \"C6\"\nflows = 3\nshared_segment_kib = 65",
    ]
    .map(|text| format!("{}\n", run(text).study(1).unwrap_err()))
    .concat();
    expect![[r#"
        nic: no configuration is called "C66", did you mean "C6"?
        nic: give flows, or hosts of a cluster
        nic: flows = 0: must be 1 to 4096
        nic: give flows or hosts, not both
        nic: hosts = 1: must be 2 to 64
        nic: second_switch = 6: must be below hosts = 6
        nic: megabytes and second_switch belong to clusters: give hosts
        nic: queues = 200: must be 1 to 128
        nic: rate_gbps = 0: must be 0.1 to 100
        nic: shared_segment_kib = 65: must be 0 or 2 to 64
    "#]]
    .assert_eq(&lines);
}

#[test]
fn every_field_has_a_number_where_it_was_measured() {
    let mut all = result("C6", 2, 2);
    all.completion_ms = Some(Completions {
        all_ms: (1..=10).map(f64::from).collect(),
        spread_ms: vec![4.0, 2.0],
    });
    for name in ["retransmissions", "drops", "reordered", "weight_writes"]
        .into_iter()
        .chain(["interrupts", "segments", "packets"])
    {
        all.counts.insert(name.to_owned(), 1);
    }
    let outcome = RunOutcome::Nic(NicNumbers::of(&all));
    let evaluation = Evaluation {
        runs: [("r", &outcome)].into(),
        audits: BTreeMap::new(),
        world: &NoWorld,
    };
    let mut lines = String::new();
    for field in FIELDS {
        let formula = parse(&format!("r:nic.{field}")).unwrap();
        match evaluation.value(&formula) {
            Ok(Value::Number(number)) => lines.push_str(&format!("{field} {number}\n")),
            other => panic!("{field}: {other:?}"),
        }
    }
    expect![[r#"
        throughput_gbps 9.4
        cpu_percent 42
        ping_us.p50 100
        ping_us.p90 600
        ping_us.p99 900
        nfm_1ms 0.5
        nfm_1s 0.5
        flow_gbps.min 2
        flow_gbps.max 4
        flow_gbps.jain 0.9
        queue_bytes_max 131072
        completion_ms.p50 5
        completion_ms.p90 9
        completion_ms.p99 10
        completion_ms.mean 5.5
        completion_ms.min 1
        completion_ms.max 10
        spread_ms.p50 2
        spread_ms.p90 4
        spread_ms.mean 3
        spread_ms.max 4
        counts.retransmissions 1
        counts.drops 1
        counts.reordered 1
        counts.moves 7
        counts.weight_writes 1
        counts.interrupts 1
        counts.segments 1
        counts.packets 1
    "#]]
    .assert_eq(&lines);
    let wrong = ["r:host.nfm_1s", "r:nic.goodput_gbps", "state(r, p_admit)"];
    let errors = wrong.map(|text| evaluation.value(&parse(text).unwrap()).unwrap_err());
    expect![[r#"
        a NIC's run has no "host", but nic: write label:nic.nfm_1s
        the run measured no goodput_gbps
        run "r" is one of a network card: it has no policy's figures"#]]
    .assert_eq(&errors.join("\n"));
}

/// Gives the made-up result, and remembers what it ran.
#[derive(Default)]
struct Cards(Mutex<Vec<String>>);

impl World for Cards {
    fn scenario(
        &self,
        text: &str,
        file: &str,
    ) -> Result<isolane_rdma_scenario::model::Scenario, String> {
        NoWorld.scenario(text, file)
    }
    fn run(
        &self,
        scenario: &isolane_rdma_scenario::model::Scenario,
    ) -> Result<isolane_study_results::rdma::RunResult, String> {
        NoWorld.run(scenario)
    }
    fn network(
        &self,
        text: &str,
        file: &str,
    ) -> Result<isolane_study_results::network::FabricResult, String> {
        NoWorld.network(text, file)
    }
    fn nic(&self, study: &NicStudy) -> Result<NicResult, String> {
        let mut ran = self.0.lock().unwrap();
        ran.push(format!("{} {}", study.name, study.seed));
        Ok(result(study.config.name, 2, study.seed))
    }
    fn audit(
        &self,
        request: &crate::audit::AuditRequest,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<crate::audit::Findings, String> {
        NoWorld.audit(request, progress)
    }
    fn model(&self, system: &str, name: &str, list: &[(String, f64)]) -> Result<f64, String> {
        NoWorld.model(system, name, list)
    }
    fn parameter(&self, profile: &str, section: &str, name: &str) -> Result<f64, String> {
        NoWorld.parameter(profile, section, name)
    }
    fn network_bytes(&self, request: &crate::world::RequestBytes) -> Result<u64, String> {
        NoWorld.network_bytes(request)
    }
    fn pcie_bytes(&self, request: &crate::world::RequestBytes) -> Result<u64, String> {
        NoWorld.pcie_bytes(request)
    }
}

fn claim(id: &str, rest: &str, metric: &str) -> Claim {
    let text = format!(
        "id = {id:?}\nsystem = \"titan\"\npaper = \"p\"\nstatement = \"s\"\nkind = \"prediction\"\n\
         seeds = [1, 2, 3, 4, 50]\n{rest}\nmetric = {metric:?}\n[[run]]\nlabel = \"r\"\n\
         nic = {{ config = \"C6\", flows = 12 }}\n"
    );
    Claim::parse(&text, &format!("claims/titan/{id}.toml")).unwrap()
}

/// One run per seed however many claims need it. Of the processor time (41, 42, 43, 44 and 90 %) each way of putting the seeds
/// together gives another number, so each claim holds only by its own.
#[test]
fn seeds_are_put_together_as_the_claim_says() {
    let number = |id: &str, published: &str, tolerance: &str, over: &str| {
        let rest = format!(
            "unit = \"%\"\npublished = {published}\ntolerance = {{ absolute = {tolerance} }}\nover = {over:?}"
        );
        claim(id, &rest, "r:nic.cpu_percent")
    };
    let of_means = |id: &str, tolerance: &str| {
        let rest = format!(
            "unit = \"x\"\npublished = 0.0577\ntolerance = {{ absolute = {tolerance} }}\nover = \"mean-of-runs\""
        );
        claim(id, &rest, "r:nic.nfm_1s / r:nic.cpu_percent")
    };
    let ordering = |id: &str, over: &str| {
        let rest = format!("unit = \"ordering\"\nover = {over:?}");
        claim(id, &rest, "r:nic.nfm_1s > r:nic.nfm_1ms")
    };
    let claims = [
        number("a-median", "43", "2.5", "median"),
        // The median is right, but only three of five seeds are.
        number("a-median-narrow", "43", "1.5", "median"),
        // No single seed is right.
        number("b-mean", "52", "0.5", "mean"),
        number("c-lowest", "41", "0.5", "lowest"),
        number("d-highest", "90", "0.5", "highest"),
        of_means("e-mean-of-runs", "0.01"),
        // The whole mean is right, but only two of the five that leave out a seed are.
        of_means("e-mean-of-runs-narrow", "0.008"),
        // True of the means, and of three of five seeds.
        ordering("f-ordering-of-means", "mean-of-runs"),
        ordering("g-ordering", "median"),
    ];
    let world = Cards::default();
    let claims: Vec<&Claim> = claims.iter().collect();
    let reports = check(&claims, &ScenarioFiles::new(), &world, &|_, _| {});
    let mut ran = world.0.into_inner().unwrap();
    ran.sort();
    assert_eq!(
        ran,
        [1, 2, 3, 4, 50].map(|seed| format!("C6-12-flows {seed}")),
        "one run per seed"
    );
    expect![[r#"
        claim                        kind        published  ours           tolerance  verdict
        titan/a-median               prediction  43 %       43 %           +-2.5      within
        titan/a-median-narrow        prediction  43 %       43 %           +-1.5      MISS
            why: Only 3 of 5 seeds hold.
        titan/b-mean                 prediction  52 %       52 %           +-0.5      within
        titan/c-lowest               prediction  41 %       41 %           +-0.5      within
        titan/d-highest              prediction  90 %       90 %           +-0.5      within
        titan/e-mean-of-runs         prediction  0.0577x    0.05769x       +-0.01     within
        titan/e-mean-of-runs-narrow  prediction  0.0577x    0.05769x       +-0.008    MISS
            why: Only 2 of 5 means that leave out one seed hold.
        titan/f-ordering-of-means    prediction  holds      holds          exact      within
        titan/g-ordering             prediction  holds      does not hold  exact      MISS
            why: Cause unknown.
        9 claims: 6 within tolerance, 3 missed, 0 reported without a published number
    "#]]
    .assert_eq(&crate::report::table(&reports, None));
}

#[test]
fn a_claim_of_the_soft_card_is_listed_and_not_run() {
    let claim = claim(
        "soft",
        "unit = \"x\"\npublished = 1.0\ntestbed = \"soft-nic\"",
        "r:nic.nfm_1s",
    );
    let report = crate::report::ClaimReport::elsewhere(&claim);
    expect![[r#"
        claim       kind        published  ours  tolerance  verdict
        titan/soft  prediction  1x         none  25 %       not run
        1 claim: 0 within tolerance, 0 missed, 0 reported without a published number, 1 for the soft network card (isolane nic study --check-claims)
    "#]]
    .assert_eq(&crate::report::table(std::slice::from_ref(&report), None));
    let text = crate::report::markdown(&[report]);
    assert!(text.contains("1 on the soft network card"), "{text}");
    assert!(!text.contains("\nsoft:\n"), "{text}");
}

#[test]
fn only_runs_of_cards_can_be_averaged_or_soft() {
    let parse = |rest: &str, run: &str| {
        let text = format!(
            "id = \"a\"\nsystem = \"titan\"\npaper = \"p\"\nstatement = \"s\"\nkind = \"prediction\"\nunit = \"x\"\n\
             published = 1.0\nmetric = \"r:a.share\"\n{rest}\n[[run]]\nlabel = \"r\"\n{run}\n"
        );
        Claim::parse(&text, "claims/titan/a.toml")
            .unwrap_err()
            .to_string()
    };
    let file = "scenario = \"s.toml\"";
    let card = "nic = { config = \"C6\", flows = 3 }";
    let lines = [
        parse("over = \"mean-of-runs\"", file),
        parse("testbed = \"soft-nic\"", file),
        parse("", &format!("{file}\n{card}")),
        parse("", &format!("{card}\npolicy = \"none\"")),
        parse("", "nic = { config = \"C0\", flows = 3 }"),
        parse("", "nic = { config = \"C6\", flow = 3 }"),
    ];
    expect![[r#"
        claims/titan/a.toml:10: run "r": over = "mean-of-runs" is for runs of network cards
        claims/titan/a.toml:10: run "r": testbed = "soft-nic" is for runs of network cards
        claims/titan/a.toml:10: run "r": needs one of scenario, inline, nic, plan, hunt and lab
        claims/titan/a.toml:10: run "r": policy, profile, only, copies and set belong to scenarios; say it in nic
        claims/titan/a.toml:10: run "r": nic: no configuration is called "C0", did you mean "C1"?
        claims/titan/a.toml:12: unknown field `flow`, expected one of `config`, `flows`, `hosts`, `second_switch`, `megabytes`, `queue_weights`, `shared_segment_kib`, `rate_gbps`, `queues`, `processors`, `congestion`, `duration_ms`, `warmup_ms`, `pings`, `byte_limit_kib`, did you mean "flows"?"#]].assert_eq(&lines.join("\n"));
}
