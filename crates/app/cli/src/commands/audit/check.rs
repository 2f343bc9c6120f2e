//! `isolane audit --check-settling`: whether verdicts depend on how long runs are, or on their seeds.

use crate::output;
use crate::progress::ProgressArguments;
use crate::status::Status;
use anyhow::Result;
use isolane_study_audit::matrix::{AuditResult, Progress};
use isolane_study_audit::plan::Plan;
use isolane_study_audit::run::{RunOptions, run as run_plan};
use isolane_study_audit::stability::{compare, doubled};
use isolane_study_testbed::Testbed;
use std::sync::atomic::AtomicBool;

/// Runs `plan`, and again with every time doubled and other seeds.
pub(super) fn run(
    plan: &Plan,
    testbed: &dyn Testbed,
    jobs: usize,
    cancel: &AtomicBool,
    shown: ProgressArguments,
) -> Result<Status> {
    let audit = |plan: &Plan| -> Result<AuditResult> {
        let bar = shown.runs();
        let mut show = |progress: Progress| {
            bar.set_length(progress.runs_total);
            bar.set_position(progress.runs_done);
        };
        let options = RunOptions {
            jobs,
            cancel,
            journal: None,
            build: "",
            resume: false,
            on_resume: &mut |_| {},
            on_progress: &mut show,
        };
        let result = run_plan(plan, testbed, options);
        bar.finish_and_clear();
        Ok(result?)
    };
    let first = audit(plan)?;
    let second = audit(&doubled(plan))?;
    if first.progress.partial || second.progress.partial {
        output::note("isolane: interrupted before both audits were done");
        return Ok(Status::Interrupted);
    }
    let stability = compare(&first, &second);
    output::show(&stability.render())?;
    Ok(match stability.is_enough() {
        true => Status::Done,
        false => Status::No,
    })
}
