//! Reasons of misses, checked: each claim that misses and has a `[check]` runs again with its change.
//!
//! Problem: some reasons contradict the model that they explain. Method: if the claim holds with the change, its reason is
//! confirmed; if not, the reason is refuted. A miss without `[check]` has no known cause. Units: those of the claim.
//! Limits: a confirmed reason is sufficient, not necessary: another change may do the same.

use crate::claim::Claim;
use crate::report::ClaimReport;
use isolane_common_text_output::counted;
use std::fmt::Write as _;

/// Runs `claims` by `run`, and the misses among them again with what their reasons change.
pub fn check(claims: &[&Claim], run: impl Fn(&[&Claim]) -> Vec<ClaimReport>) -> Vec<ClaimReport> {
    let mut reports = run(claims);
    let mut at = Vec::new();
    let mut changed = Vec::new();
    for (index, (claim, report)) in claims.iter().zip(&reports).enumerate() {
        if let (Some(check), Some(false)) = (&claim.check, report.within) {
            at.push(index);
            changed.push(check.apply(claim).expect("reading the claim applied it"));
        }
    }
    let checked = run(&changed.iter().collect::<Vec<_>>());
    for (index, checked) in at.into_iter().zip(&checked) {
        reports[index].judge_reason(checked);
    }
    reports
}

/// The misses among `reports` for a terminal: a block for each with its reason, then their number.
pub fn text(reports: &[ClaimReport]) -> String {
    let mut text = String::new();
    let missed = || reports.iter().filter(|report| report.within == Some(false));
    for report in missed() {
        let (system, id) = (&report.system, &report.id);
        let (ours, published) = (report.ours_text(), report.published_text());
        let _ = write!(text, "{system}/{id}: {ours}, published {published}");
        if let Some(changed) = report.changed_text() {
            let word = match report.confirmed {
                Some(true) => "confirmed",
                _ => "refuted",
            };
            let _ = write!(text, "; with the change {changed}: {word}");
        }
        let _ = match (&report.because, &report.reason) {
            (Some(because), _) if report.confirmed.is_some() => write!(text, "\n    {because}\n"),
            (_, Some(reason)) => write!(text, "\n    {reason}\n"),
            (_, None) => writeln!(text),
        };
    }
    let count = |confirmed| {
        missed()
            .filter(|report| report.confirmed == confirmed)
            .count()
    };
    let _ = writeln!(
        text,
        "{}: {} confirmed, {} refuted, {} of unknown cause",
        counted(missed().count() as u64, "miss"),
        count(Some(true)),
        count(Some(false)),
        count(None)
    );
    text
}

#[cfg(test)]
mod tests;
