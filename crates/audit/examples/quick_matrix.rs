//! Prints what is violated under some policies: a developer's quick look at the model.
use isolane_audit::matrix::Verdict;
use isolane_audit::plan::{ALPHA, DURATION, Plan, TENANTS, TOPOLOGY, WARMUP};
use isolane_audit::predicate::{Part, Predicate};
use isolane_audit::run::{RunOptions, run};
use isolane_audit::select::Selection;
use isolane_scenario::library::Library;
use isolane_scenario::model::PolicySpec;
use isolane_testbed::SimTestbed;
use std::sync::atomic::AtomicBool;

fn main() {
    let mut args = std::env::args().skip(1);
    let policies = args.next().expect("policies");
    let victims = args.next();
    let attackers = args.next();
    let detail = args.next().is_some();
    let library = Library::embedded();
    let name = std::env::var("PROFILE").unwrap_or("cx5-100g-roce".into());
    let profile = library.profile(&name).expect("known").clone();
    let glob = |g: Option<String>| g.filter(|g| g != "-");
    let selection = Selection {
        victims: glob(victims),
        attackers: glob(attackers),
        quick: false,
    };
    let (victims, attackers) = selection.of(&library.catalogue, &profile).expect("names");
    let policies: Vec<PolicySpec> = policies
        .split(',')
        .map(|name| PolicySpec {
            name: name.into(),
            parameters: Default::default(),
        })
        .collect();
    let plan = Plan {
        rerun: String::new(),
        left_out: vec![],
        profile,
        policies,
        victims,
        attackers,
        seeds: vec![1],
        predicate: Predicate::Share {
            alpha: ALPHA,
            part: Part {
                weight: 1,
                sum: TENANTS,
            },
        },
        warmup: WARMUP,
        duration: DURATION,
        topology: TOPOLOGY,
    };
    let cancel = AtomicBool::new(false);
    let result = run(
        &plan,
        &SimTestbed,
        RunOptions {
            jobs: 2,
            cancel: &cancel,
            journal: None,
            build: "x",
            resume: false,
            on_resume: &mut |_| {},
            on_progress: &mut |_| {},
        },
    )
    .expect("runs");
    println!("{}", serde_json::to_string(&result).expect("json"));
    let _ = (Verdict::Violation, detail);
}
