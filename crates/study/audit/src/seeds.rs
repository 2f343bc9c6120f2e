//! Several seeds' runs of one cell as one: medians, spreads, how they settled, and whether the verdict is known.

use crate::cell::{Expected, Metrics, SeedRun, Settling, Spread};
use crate::outcome::{Outcome, rounded};
use crate::predicate::value;

/// The rounded medians of `all`.
pub(crate) fn medians<'a>(all: impl IntoIterator<Item = &'a Metrics>) -> Metrics {
    rounded(Metrics::medians(all))
}

/// What each seed's run gave.
pub(crate) fn seed_runs(seeds: &[u64], attacked: &[&Outcome]) -> Vec<SeedRun> {
    seeds
        .iter()
        .zip(attacked)
        .map(|(&seed, outcome)| SeedRun {
            seed,
            victim: outcome.victim,
            attacker: outcome.attacker.unwrap_or_default(),
        })
        .collect()
}

/// The least and the largest judged value; none where no run has one.
pub(crate) fn spread(expected: &Expected, attacked: &[&Outcome]) -> Option<Spread> {
    let values = attacked
        .iter()
        .filter_map(|run| value(expected.metric, &run.victim));
    values.fold(None, |spread, value| {
        let Spread { min, max } = spread.unwrap_or(Spread {
            min: value,
            max: value,
        });
        Some(Spread {
            min: min.min(value),
            max: max.max(value),
        })
    })
}

/// How the victim's runs settled, over the seeds.
pub(crate) fn settling(runs: &[&Outcome]) -> Option<Settling> {
    let all: Option<Vec<Settling>> = runs.iter().map(|run| run.settling).collect();
    let both =
        |left: Option<f64>, right: Option<f64>, of: fn(f64, f64) -> f64| Some(of(left?, right?));
    all?.into_iter().reduce(|sum, one| Settling {
        settled: sum.settled + one.settled,
        on_the_edge: sum.on_the_edge + one.on_the_edge,
        settled_after_us: sum.settled_after_us.max(one.settled_after_us),
        measured_us: sum.measured_us.max(one.measured_us),
        samples: sum.samples.min(one.samples),
        p99_low_us: both(sum.p99_low_us, one.p99_low_us, f64::min),
        p99_high_us: both(sum.p99_high_us, one.p99_high_us, f64::max),
    })
}

/// Whether the verdict `kept` of the median is known: the runs of more than half of the seeds settled and have this
/// verdict, or all settled. The victim alone has to have settled for more than half of the seeds.
pub(crate) fn is_known(
    alone: &[&Outcome],
    attacked: &[&Outcome],
    keeps: impl Fn(&&Outcome) -> bool,
    kept: bool,
) -> bool {
    let settled = |run: &&&Outcome| run.settling.is_none_or(|one| one.settled > 0);
    let most = |count: usize, of: usize| 2 * count > of;
    let agree = attacked
        .iter()
        .filter(settled)
        .filter(|run| keeps(run) == kept);
    most(alone.iter().filter(settled).count(), alone.len())
        && (most(agree.count(), attacked.len()) || attacked.iter().all(|run| settled(&run)))
}
