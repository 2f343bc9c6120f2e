//! From latency objectives and traffic to weights and admitted shares.
//!
//! Problem: classes with objectives share a port with a lowest class, which has no objective and takes the downgraded
//! traffic. Which weights admit the most of the requested traffic, and how much of each class do they admit? Method:
//! weights come from a short list that switches can all express ([`WEIGHTS`]), falling from class to class, the lowest
//! class having 1. For each choice, classes whose worst delay exceeds their bound give traffic to the lowest class, by
//! bisection, until all bounds hold: first the class that exceeds its bound by the largest factor, as all depend on
//! each other, again and again. The best choice admits the most traffic; among equals, the one whose largest weight is
//! smallest, because an extreme weight starves the lowest class. Bounds are on queueing alone: what an idle network
//! takes is subtracted before (see [`Objective`]). Cost: 12 choices for each class with an objective, so a few thousand
//! solutions of the fluid server for four classes. Limits: the best of the list, not of all real weights; a fluid
//! server. Source: Aequitas 3.4.2 and 3.5.2 for the region; the search is ours.

use super::fluid::Port;
use super::region::{PRECISION, guaranteed_share};
use super::{Arrivals, CLASSES_MAX, QueueingError};

/// Weights that a class may get.
pub const WEIGHTS: [u32; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
/// Most classes with an objective: each multiplies the work by twelve.
pub const OBJECTIVES_MAX: usize = 4;
/// Rounds of giving traffic away; each ends with one class at its bound.
const ROUNDS_MAX: usize = 64;

/// One class's wish; the lowest class has none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// Its part of the wanted traffic, from 0 to 1.
    pub share: f64,
    /// The longest it may queue, in periods.
    pub delay_max: f64,
}

/// What comes out for one class with an objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Planned {
    /// Its weight, the lowest class having 1.
    pub weight: u32,
    /// The part of all traffic that it may send in its own class.
    pub admitted: f64,
    /// Its worst queueing delay then, in periods.
    pub delay: f64,
    /// The least admitted rate at any load of the others, in line rates.
    pub guaranteed: f64,
}

/// The best plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The classes with objectives, in the given order.
    pub classes: Vec<Planned>,
    /// What the lowest class then carries, its own traffic and what the others gave it.
    pub lowest_share: f64,
    /// Its worst queueing delay, in periods.
    pub lowest_delay: f64,
}

/// The weights and admitted shares for `objectives`, the most important class first, below which the lowest class
/// carries the rest.
///
/// ```
/// use isolane_rpc_policy::queueing::{Arrivals, plan::{Objective, plan}};
/// let wish = Objective { share: 0.7, delay_max: 0.1 };
/// let plan = plan(Arrivals::new(0.8, 2.0)?, &[wish])?;
/// // More than 0.5 + 0.1 / 0.8 could not be admitted under any weight (equation 3.4).
/// assert!(plan.classes[0].admitted > 0.6 && plan.classes[0].admitted <= 0.625);
/// # Ok::<(), isolane_rpc_policy::queueing::QueueingError>(())
/// ```
///
/// # Errors
/// When there is no objective or more than [`OBJECTIVES_MAX`], or the shares exceed the whole.
pub fn plan(arrivals: Arrivals, objectives: &[Objective]) -> Result<Plan, QueueingError> {
    if !(1..=OBJECTIVES_MAX.min(CLASSES_MAX - 1)).contains(&objectives.len()) {
        return Err(QueueingError::Classes(objectives.len() + 1));
    }
    let wanted: Vec<f64> = objectives.iter().map(|objective| objective.share).collect();
    let sum: f64 = wanted.iter().sum();
    if sum > 1.0 + PRECISION {
        let terms: Vec<String> = wanted.iter().map(f64::to_string).collect();
        let terms = terms.join(" + ");
        return Err(QueueingError::ShareSum { sum, terms });
    }
    let mut best: Option<(Plan, f64)> = None;
    for weights in choices(objectives.len()) {
        let candidate = admit(arrivals, objectives, &weights)?;
        let admitted: f64 = candidate.classes.iter().map(|class| class.admitted).sum();
        let better = best
            .as_ref()
            .is_none_or(|(_, most)| admitted > most + PRECISION.sqrt());
        if better {
            best = Some((candidate, admitted));
        }
    }
    Ok(best.expect("there is at least one choice of weights").0)
}

/// All falling choices of weights, the least extreme first.
fn choices(classes: usize) -> Vec<Vec<u32>> {
    let mut all: Vec<Vec<u32>> = vec![Vec::new()];
    for _ in 0..classes {
        all = all
            .into_iter()
            .flat_map(|choice| {
                let most = choice.last().copied().unwrap_or(u32::MAX);
                WEIGHTS
                    .into_iter()
                    .filter(move |weight| *weight <= most)
                    .map(move |weight| [choice.clone(), vec![weight]].concat())
            })
            .collect();
    }
    all.sort_by_key(|choice| (choice[0], choice.iter().sum::<u32>()));
    all
}

/// As much of the wanted traffic as keeps all bounds under `weights`.
fn admit(
    arrivals: Arrivals,
    objectives: &[Objective],
    weights: &[u32],
) -> Result<Plan, QueueingError> {
    let all: Vec<f64> = weights
        .iter()
        .map(|weight| f64::from(*weight))
        .chain([1.0])
        .collect();
    let port = Port::new(&all, arrivals)?;
    let delays = |shares: &[f64]| port.delays(&mix(shares));
    let mut shares: Vec<f64> = objectives.iter().map(|objective| objective.share).collect();
    for _ in 0..ROUNDS_MAX {
        let now = delays(&shares)?;
        let worst = (0..objectives.len())
            .filter(|&class| now[class] > objectives[class].delay_max + PRECISION)
            .max_by(|&a, &b| {
                let excess = |class: usize| now[class] - objectives[class].delay_max;
                excess(a).total_cmp(&excess(b))
            });
        let Some(class) = worst else { break };
        let (mut low, mut high) = (0.0, shares[class]);
        while high - low > PRECISION {
            shares[class] = f64::midpoint(low, high);
            match delays(&shares)?[class] <= objectives[class].delay_max {
                true => low = shares[class],
                false => high = shares[class],
            }
        }
        shares[class] = low;
    }
    let end = delays(&shares)?;
    // What still exceeds its bound after all rounds is not admitted at all: a plan never promises what it cannot keep.
    let kept = (0..objectives.len())
        .all(|class| end[class] <= objectives[class].delay_max + PRECISION.sqrt());
    if !kept {
        shares.fill(0.0);
    }
    let end = delays(&shares)?;
    let classes = (0..objectives.len()).map(|class| Planned {
        weight: weights[class],
        admitted: shares[class],
        delay: end[class],
        guaranteed: guaranteed_share(&port, class),
    });
    Ok(Plan {
        classes: classes.collect(),
        lowest_share: (1.0 - shares.iter().sum::<f64>()).max(0.0),
        lowest_delay: end[objectives.len()],
    })
}

/// The shares of all classes, the lowest taking the rest.
fn mix(shares: &[f64]) -> Vec<f64> {
    let rest = (1.0 - shares.iter().sum::<f64>()).max(0.0);
    let sum: f64 = shares.iter().sum::<f64>() + rest;
    shares
        .iter()
        .chain([&rest])
        .map(|share| share / sum)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wish(share: f64, delay_max: f64) -> Objective {
        Objective { share, delay_max }
    }

    #[test]
    fn what_fits_is_admitted_whole_under_the_mildest_weights() {
        let arrivals = Arrivals::new(0.8, 1.4).expect("sound");
        let plan = plan(arrivals, &[wish(0.2, 0.0)]).expect("sound");
        assert!((plan.classes[0].admitted - 0.2).abs() < 1e-9);
        // 1.4 x 0.2 = 0.28 of the line is less than half of it, so weight 1 does.
        assert_eq!(plan.classes[0].weight, 1);
    }

    #[test]
    fn no_weight_admits_more_than_an_infinite_one() {
        let arrivals = Arrivals::new(0.8, 2.0).expect("sound");
        for delay_max in [0.0, 0.05, 0.1, 0.2] {
            let plan = plan(arrivals, &[wish(0.9, delay_max)]).expect("sound");
            let limit = 1.0 / 2.0 + delay_max / 0.8;
            assert!(plan.classes[0].admitted <= limit + 1e-6, "{plan:?}");
            assert!(plan.classes[0].admitted >= 0.9 * limit, "{plan:?}");
        }
    }

    #[test]
    fn shares_above_the_whole_are_refused_with_the_sum() {
        let arrivals = Arrivals::new(0.8, 2.0).expect("sound");
        let error = plan(arrivals, &[wish(0.7, 0.1), wish(0.5, 0.1)]).expect_err("1.2");
        assert!(error.to_string().contains("0.7 + 0.5"), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_plan_keeps_every_bound(
            high in 0.01f64..0.6,
            middle in 0.01f64..0.4,
            bounds in (0.0f64..0.2, 0.0f64..0.4),
            rho in 1.1f64..3.0,
            mu in 0.2f64..0.95,
        ) {
            let arrivals = Arrivals::new(mu, rho).expect("sound");
            let wishes = [wish(high, bounds.0), wish(middle, bounds.1)];
            let plan = plan(arrivals, &wishes).expect("sound");
            for (class, wish) in plan.classes.iter().zip(&wishes) {
                prop_assert!(class.delay <= wish.delay_max + 1e-4, "{plan:?}");
                prop_assert!(class.admitted <= wish.share + 1e-9);
                // At least what the theory guarantees, unless less was wanted.
                let guaranteed = class.guaranteed / mu;
                prop_assert!(class.admitted + 1e-4 >= wish.share.min(guaranteed), "{plan:?}");
            }
        }
    }
}
