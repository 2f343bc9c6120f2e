//! Experiments of the query planner as runs of claims: listed here, run by the Python package.
//!
//! Problem: the statements about Vulcan are of searches for plans of live queries, and the planner is Python. Their claims
//! are files of the same form, so that one list holds all that is claimed; `isolane edge plan --check-claims` runs them.
//!
//! Units end the names. Method: a run says `plan = { experiment = "search", query = "traffic", searcher = "vulcan" }`, and
//! [`PlannerRun::check`] refuses what no experiment has; a measurement is `label:plan.field` with one of [`FIELDS`].
//! Limits: whether a query or a searcher exists is for the package to say.
//! Source: vulcan 4.6 and appendix C.

use crate::error::nearest;
use serde::Deserialize;

/// What a run may be.
pub(crate) const EXPERIMENTS: [&str; 7] = [
    "toy",
    "knobs",
    "search",
    "configure",
    "order",
    "adapt",
    "drift",
];

/// What a measurement may name of a planner's run.
pub(crate) const FIELDS: [&str; 28] = [
    "accuracy",
    "latency_ms",
    "latency_p99_ms",
    "network_share",
    "network_mbit_per_s",
    "compute_share",
    "utility",
    "relative_utility",
    "launches",
    "profiling_cost_s",
    "best_at_launch",
    "meets_objectives",
    "same_placement",
    "same_configuration",
    "configuration",
    "placement",
    "configurations",
    "placements",
    "values",
    "lowest",
    "highest",
    "cases",
    "right_cases",
    "placement_changes",
    "detector_tier",
    "latency_before_p99_ms",
    "utility_drop",
    "distance_steps",
];

/// One experiment, by what it says.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannerRun {
    /// One of [`EXPERIMENTS`].
    pub experiment: String,
    /// Which of the repository's queries; none for a toy example.
    #[serde(default)]
    pub query: Option<String>,
    /// The searcher, placement strategy or system.
    #[serde(default)]
    pub searcher: Option<String>,
    /// The searcher whose profiling time is all that this one has.
    #[serde(default)]
    pub budget_of: Option<String>,
    /// Random configurations before the first suggestion.
    #[serde(default)]
    pub random_starts: Option<u32>,
    /// Suggestions without improvement before the search stops.
    #[serde(default)]
    pub patience: Option<u32>,
    /// The knob whose values are counted, `operator.knob`.
    #[serde(default)]
    pub knob: Option<String>,
    /// The figure whose objectives a toy example has, `4.4` or the first.
    #[serde(default)]
    pub figure: Option<String>,
    /// A toy example's order of filters, `GV` or `VG`.
    #[serde(default)]
    pub order: Option<String>,
    /// A toy example's configuration, from 1.
    #[serde(default)]
    pub configuration: Option<u32>,
    /// A toy example's placement, from 1.
    #[serde(default)]
    pub placement: Option<u32>,
    /// How many times less bandwidth a link has after the change.
    #[serde(default)]
    pub link_cut: Option<u32>,
}

impl PlannerRun {
    /// Whether the experiment exists and says what it needs; the error names what is wrong and the remedy.
    pub fn check(&self) -> Result<(), String> {
        let experiment = self.experiment.as_str();
        if !EXPERIMENTS.contains(&experiment) {
            let hint = nearest(experiment, EXPERIMENTS);
            return Err(format!(
                "plan: no experiment is called {experiment:?}{hint}"
            ));
        }
        match (experiment == "toy", &self.query) {
            (true, Some(query)) => Err(format!("plan: a toy example has no query {query:?}")),
            (false, None) => Err(format!("plan: experiment {experiment:?} needs query")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::claim::Claim;
    use crate::claim::tests::parsed;
    use expect_test::expect;

    fn parse(unit: &str, metric: &str, rest: &str, run: &str) -> Result<Claim, String> {
        parsed(("vulcan", unit), metric, rest, run)
    }

    const RATIO: &str = "unit = \"x\"\npublished = 1.0";
    const RUN: &str = "plan = { experiment = \"search\", query = \"traffic\" }";
    const HERE: &str = "testbed = \"planner\"";

    #[test]
    fn a_claim_of_the_planner_is_listed_and_not_run() {
        let claim = parse(
            RATIO,
            "r:plan.latency_ms",
            &format!("{HERE}\nover = \"median-of-runs\""),
            RUN,
        )
        .unwrap();
        let report = crate::report::ClaimReport::elsewhere(&claim);
        expect![[r#"
            claim     kind        published  ours  tolerance  verdict
            vulcan/a  prediction  1x         none  25 %       not run
            1 claim: 0 within tolerance, 0 missed, 0 reported without a published number, 1 for the query planner (isolane edge plan --check-claims)
        "#]]
        .assert_eq(&crate::report::table(std::slice::from_ref(&report), None));
        let text = crate::report::markdown(&[report]);
        assert!(text.contains("1 in the query planner"), "{text}");
        assert!(!text.contains("| vulcan |"), "{text}");
    }

    #[test]
    fn what_no_experiment_has_is_refused() {
        let of = |metric: &str, rest: &str, run: &str| parse(RATIO, metric, rest, run).unwrap_err();
        let lines = [
            of("r:plan.latency_ms", "", RUN),
            of("r:plan.latency_ms", HERE, "scenario = \"s.toml\""),
            of("r:plan.latency", HERE, RUN),
            of(
                "r:plan.latency_ms",
                HERE,
                "plan = { experiment = \"serch\", query = \"traffic\" }",
            ),
            of(
                "r:plan.latency_ms",
                HERE,
                "plan = { experiment = \"search\" }",
            ),
            of(
                "r:plan.latency_ms",
                HERE,
                &format!("{RUN}\npolicy = \"none\""),
            ),
            of(
                "r:a.share",
                "over = \"median-of-runs\"",
                "scenario = \"s.toml\"",
            ),
        ];
        expect![[r#"
            claims/vulcan/a.toml:10: run "r": testbed = "planner" and plan go together
            claims/vulcan/a.toml:10: run "r": testbed = "planner" and plan go together
            claims/vulcan/a.toml:8: metric: unknown field "latency", did you mean "latency_ms"? (character 1 of the metric)
            claims/vulcan/a.toml:10: run "r": plan: no experiment is called "serch", did you mean "search"?
            claims/vulcan/a.toml:10: run "r": plan: experiment "search" needs query
            claims/vulcan/a.toml:10: run "r": policy, profile, only, copies and set belong to scenarios; say it in plan
            claims/vulcan/a.toml:10: run "r": over = "median-of-runs" is for runs of the planner"#]].assert_eq(&lines.join("\n"));
    }
}
