//! What queueing theory says of a port under weighted fair queueing, without simulating a packet.
//!
//! Problem: an operator chooses class weights and how much traffic a class may admit; the worst delay follows from
//! both, and from how bursty the traffic is. Model (Aequitas 3.4.1, figure 3.7): time is one period. All classes
//! together arrive at `burst` times the line rate from time zero until the period's traffic, `load` times what the line
//! could carry, is there; then no class sends. A class has a share of the arriving traffic and a weight. The server is
//! fluid (generalised processor sharing). Units: rates are fractions of the line rate, delays fractions of the period,
//! shares fractions of the traffic. Method: [`two_class`] has the closed forms, [`fluid`] the exact solution for any
//! number of classes, [`region`] what follows for admission, [`plan`] chooses weights. The closed forms and the
//! solution agree to rounding; the tests hold them to that. Limits: fluid traffic. Packets add at most the time of one
//! largest packet of each class. Source: Aequitas 3.4, 3.5.2 and appendix B.2 (in the thesis "cloud QoS"); Parekh and
//! Gallager 1993.

pub mod fluid;
pub mod plan;
pub mod region;
pub mod two_class;

/// Traffic of one period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrivals {
    /// Average over the period, in line rates: above 0, at most 1 (more could not be carried).
    pub load: f64,
    /// While it arrives, in line rates: above 1 (otherwise nothing ever waits).
    pub burst: f64,
}

/// What cannot be computed, with the arithmetic.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum QueueingError {
    #[error(
        "the load (mu), {0} line rates, is not above 0 and at most 1: a line carries at most its rate, and above it queues grow from period to period; lower the load"
    )]
    Load(f64),
    #[error(
        "the rate of a burst (rho), {0} line rates, is not above 1: traffic that never exceeds the line rate does not queue; give the highest rate of a burst"
    )]
    Burst(f64),
    #[error(
        "the load (mu) {load} exceeds the rate of a burst (rho) {burst}: the average of a period cannot be above its highest rate"
    )]
    LoadAboveBurst { load: f64, burst: f64 },
    #[error(
        "weight {weight} of class {class} is not above 0: the class would wait for ever; give it at least a small weight"
    )]
    Weight { class: usize, weight: f64 },
    #[error("share {share} of class {class} is not from 0 to 1")]
    Share { class: usize, share: f64 },
    #[error("the shares sum to {sum}, not to 1: {terms}")]
    ShareSum { sum: f64, terms: String },
    #[error("{0} classes: a port has from 1 to {max} of them", max = CLASSES_MAX)]
    Classes(usize),
}

/// Most classes of a port; no switch has more queues.
pub const CLASSES_MAX: usize = 64;

/// How far a sum of shares may be from 1: the rounding of shares written with a few decimals.
const SHARE_SUM_SLACK: f64 = 1e-9;

impl Arrivals {
    /// Traffic of average `load` and highest rate `burst`, both in line rates. Fails if the load cannot be carried, or
    /// nothing would ever wait.
    pub fn new(load: f64, burst: f64) -> Result<Self, QueueingError> {
        if !(load > 0.0 && load <= 1.0) {
            return Err(QueueingError::Load(load));
        }
        if !(burst > 1.0 && burst.is_finite()) {
            return Err(QueueingError::Burst(burst));
        }
        if load > burst {
            return Err(QueueingError::LoadAboveBurst { load, burst });
        }
        Ok(Self { load, burst })
    }

    /// When the last traffic of the period has arrived.
    pub fn end(self) -> f64 {
        self.load / self.burst
    }
}

/// Refuses weights that starve a class.
fn check_weights(weights: &[f64]) -> Result<(), QueueingError> {
    if !(1..=CLASSES_MAX).contains(&weights.len()) {
        return Err(QueueingError::Classes(weights.len()));
    }
    let bad = weights
        .iter()
        .enumerate()
        .find(|(_, weight)| !(**weight > 0.0 && weight.is_finite()));
    match bad {
        Some((class, &weight)) => Err(QueueingError::Weight { class, weight }),
        None => Ok(()),
    }
}

/// Refuses shares that are not a division of the whole.
fn check_shares(shares: &[f64]) -> Result<(), QueueingError> {
    let bad = shares
        .iter()
        .enumerate()
        .find(|(_, share)| !(0.0..=1.0).contains(*share));
    if let Some((class, &share)) = bad {
        return Err(QueueingError::Share { class, share });
    }
    let sum: f64 = shares.iter().sum();
    if (sum - 1.0).abs() > SHARE_SUM_SLACK {
        let terms: Vec<String> = shares.iter().map(f64::to_string).collect();
        return Err(QueueingError::ShareSum {
            sum,
            terms: terms.join(" + "),
        });
    }
    Ok(())
}
