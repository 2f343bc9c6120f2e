//! Texts of a policy's verdicts and reasons.
//!
//! Units: gigabytes (1e9), gigabytes per second, nanoseconds, as in the rest of a result. Method: a policy names applications
//! by number; here they get their names back, and a refusal its remedy.

use crate::host::App;
use isolane_common_quantities::units::Bytes;
use isolane_memory_policy::mercury::{AppId, Objective, Reason, Refusal, Shortfall, Verdict};

fn name(app: AppId, apps: &[App<'_>]) -> String {
    apps.get(app.0 as usize)
        .map_or_else(|| app.to_string(), |app| app.spec.name.clone())
}

/// Why limits changed.
pub(crate) fn of_reason(reason: Reason, apps: &[App<'_>]) -> String {
    reason.text(|app| name(app, apps))
}

/// Why an application may not run, or what it lacks while it does; nothing of one that has all it needs.
pub(crate) fn of_verdict(verdict: &Verdict, apps: &[App<'_>]) -> Option<String> {
    match verdict {
        Verdict::Admitted => None,
        Verdict::BestEffort(lacks) => Some(format!(
            "runs with less than its objective needs: {}, which more important applications hold",
            short(lacks)
        )),
        Verdict::Refused(refusal) => Some(of_refusal(refusal, apps)),
    }
}

fn of_refusal(refusal: &Refusal, apps: &[App<'_>]) -> String {
    match refusal {
        Refusal::Inadmissible(Objective::Latency(best)) => format!(
            "its objective cannot be met on this machine: alone, with all the near memory it can use, it reaches {best}; ask \
             for no less"
        ),
        Refusal::Inadmissible(Objective::Bandwidth(best)) => format!(
            "its objective cannot be met on this machine: alone, with all the near memory it can use, it reaches {:.1} GB/s; \
             ask for no more, or give it more cores",
            *best as f64 / 1e9
        ),
        Refusal::Inadmissible(Objective::BestEffort) => {
            "its objective cannot be met on this machine: weaken it".to_owned()
        }
        Refusal::DuplicatePriority(other) => format!(
            "{} has its priority already: priorities are unique",
            name(*other, apps)
        ),
        Refusal::Duplicate => "it is here already".to_owned(),
        Refusal::TooLarge {
            footprint,
            capacity,
        } => format!(
            "it uses {} GB at most, and the tiers that it may use have {} GB",
            gigabytes(*footprint),
            gigabytes(*capacity)
        ),
        Refusal::Exhausted(lacks) => format!(
            "{}, and this policy takes nothing back from earlier applications",
            short(lacks)
        ),
    }
}

fn short(lacks: &Shortfall) -> String {
    let mut parts = Vec::new();
    if lacks.local > Bytes::ZERO {
        parts.push(format!("{} GB of near memory", gigabytes(lacks.local)));
    }
    if lacks.bandwidth > 0 {
        parts.push(format!("{:.1} GB/s", lacks.bandwidth as f64 / 1e9));
    }
    format!("{} short", parts.join(" and "))
}

fn gigabytes(bytes: Bytes) -> String {
    format!("{:.1}", bytes.get() as f64 / 1e9)
}
