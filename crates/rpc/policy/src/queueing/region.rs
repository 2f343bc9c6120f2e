//! What an operator may admit: the admissible region, priority inversion and the guaranteed share.
//!
//! Method: the traffic of one class is varied from nothing to everything while the others keep their ratio among
//! themselves (as figure 3.9 of Aequitas does). Delays are continuous in the share, so the points where a class begins
//! to wait, passes a bound or waits longer than the next lower class are found by scanning [`SCAN`] shares and
//! bisecting the steps in which the answer changes; they are exact to [`PRECISION`].
//! Limits: two crossings inside one step of the scan cancel and are not seen.
//! Source: Aequitas 3.4.2 (lemma 1, equation 3.3) and 3.5.2 (guaranteed share).

use super::fluid::Port;
use super::{CLASSES_MAX, QueueingError};

/// Shares that a scan looks at.
pub const SCAN: usize = 1000;
/// How exact a point is, in shares.
pub const PRECISION: f64 = 1e-9;

/// A line through the space of mixes: one class varies, the others keep their ratio.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    port: Port,
    varied: usize,
    /// Parts of the others of what the varied class leaves; the varied class's own is 0.
    rest: Vec<f64>,
}

impl Line {
    /// Class `varied` of `port` takes any share; the others divide the rest in proportion to `rest`, which has one
    /// entry for each class (that of the varied class is not looked at). Fails if `rest` has not one entry for each
    /// class or no traffic for the others.
    pub fn new(port: Port, varied: usize, rest: &[f64]) -> Result<Self, QueueingError> {
        let classes = port.weights().len();
        if rest.len() != classes || varied >= classes || classes > CLASSES_MAX {
            return Err(QueueingError::Classes(rest.len()));
        }
        if let Some(class) = (0..classes).find(|class| rest[*class].is_nan() || rest[*class] < 0.0)
        {
            return Err(QueueingError::Share {
                class,
                share: rest[class],
            });
        }
        let others = |class: &usize| *class != varied;
        let sum: f64 = (0..classes).filter(others).map(|class| rest[class]).sum();
        if !(sum > 0.0 && sum.is_finite()) {
            return Err(QueueingError::ShareSum {
                sum,
                terms: "the other classes have no traffic".to_owned(),
            });
        }
        let rest = (0..classes)
            .map(|class| match class == varied {
                true => 0.0,
                false => rest[class] / sum,
            })
            .collect();
        Ok(Self { port, varied, rest })
    }

    /// The mix at which the varied class has `share` of the traffic.
    pub fn mix(&self, share: f64) -> Vec<f64> {
        let mut mix: Vec<f64> = self.rest.iter().map(|rest| rest * (1.0 - share)).collect();
        mix[self.varied] = share;
        mix
    }

    /// The delays there, in periods.
    pub fn delays(&self, share: f64) -> Vec<f64> {
        self.port
            .delays(&self.mix(share))
            .expect("a mix of the line is a division of the whole")
    }

    /// The shares at which no class waits longer than the next lower one (equation 3.3), as intervals in order.
    pub fn admissible(&self) -> Vec<(f64, f64)> {
        self.intervals(|delays| delays.windows(2).all(|pair| pair[0] <= pair[1] + PRECISION))
    }

    /// The shares at which every class keeps its bound in periods; a class without bound has `None`.
    pub fn within(&self, bounds: &[Option<f64>]) -> Vec<(f64, f64)> {
        self.intervals(|delays| {
            delays
                .iter()
                .zip(bounds)
                .all(|(delay, bound)| bound.is_none_or(|bound| *delay <= bound + PRECISION))
        })
    }

    /// The shares at which `holds`, as intervals in order.
    fn intervals(&self, holds: impl Fn(&[f64]) -> bool) -> Vec<(f64, f64)> {
        let at = |share: f64| holds(&self.delays(share));
        let mut intervals = Vec::new();
        let mut begin = at(0.0).then_some(0.0);
        for index in 0..SCAN {
            let [left, right] = [index, index + 1].map(|index| index as f64 / SCAN as f64);
            match (begin, at(right)) {
                (Some(from), false) => {
                    intervals.push((from, self.edge(left, right, &at).0));
                    begin = None;
                }
                (None, true) => begin = Some(self.edge(left, right, &at).1),
                _ => {}
            }
        }
        if let Some(from) = begin {
            intervals.push((from, 1.0));
        }
        intervals
    }

    /// The last share on either side of the change between `left` and `right`.
    fn edge(&self, mut left: f64, mut right: f64, at: &impl Fn(f64) -> bool) -> (f64, f64) {
        let before = at(left);
        while right - left > PRECISION {
            let middle = f64::midpoint(left, right);
            match at(middle) == before {
                true => left = middle,
                false => right = middle,
            }
        }
        (left, right)
    }
}

/// What class `class` of `port` is admitted at least on average, in line rates (3.5.2): `phi_i / sum phi x mu / rho`.
pub fn guaranteed_share(port: &Port, class: usize) -> f64 {
    let arrivals = port.arrivals();
    let weights = port.weights();
    weights[class] / weights.iter().sum::<f64>() * arrivals.load / arrivals.burst
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queueing::Arrivals;
    use crate::queueing::two_class::TwoClasses;

    fn port(weights: &[f64], mu: f64, rho: f64) -> Port {
        Port::new(weights, Arrivals::new(mu, rho).expect("sound")).expect("sound")
    }

    #[test]
    fn two_classes_are_admissible_up_to_the_closed_forms_inversion_point() {
        for phi in [1.0, 4.0, 9.0] {
            let arrivals = Arrivals::new(0.8, 1.2).expect("sound");
            let line = Line::new(port(&[phi, 1.0], 0.8, 1.2), 0, &[0.0, 1.0]).expect("a line");
            let inversion = TwoClasses::new(phi, arrivals)
                .expect("sound")
                .inversion_share();
            let [(from, to)] = line.admissible()[..] else {
                panic!("one interval, not {:?}", line.admissible());
            };
            assert_eq!(from, 0.0);
            assert!((to - inversion).abs() < 1e-6, "{to} against {inversion}");
        }
    }

    #[test]
    fn a_larger_weight_moves_the_inversion_to_the_right() {
        let end = |weights: &[f64]| {
            let line = Line::new(port(weights, 0.8, 1.4), 0, &[0.0, 2.0, 1.0]).expect("a line");
            line.admissible().first().expect("an interval").1
        };
        assert!(end(&[50.0, 4.0, 1.0]) > end(&[8.0, 4.0, 1.0]));
    }

    #[test]
    fn traffic_inside_the_guaranteed_share_never_waits() {
        let port = port(&[8.0, 4.0, 1.0], 0.8, 1.4);
        let share = guaranteed_share(&port, 0) / 0.8;
        let line = Line::new(port, 0, &[0.0, 2.0, 1.0]).expect("a line");
        assert_eq!(line.delays(share)[0], 0.0);
        assert!(line.delays(share + 0.3)[0] > 0.0);
    }

    #[test]
    fn bounds_cut_the_region() {
        let line = Line::new(port(&[4.0, 1.0], 0.8, 2.0), 0, &[0.0, 1.0]).expect("a line");
        let [(from, to)] = line.within(&[Some(0.1), None])[..] else {
            panic!("one interval");
        };
        assert_eq!(from, 0.0);
        assert!(
            (to - 0.5).abs() < 1e-6,
            "x - 0.4 is 0.1 at one half, not {to}"
        );
    }
}
