//! Worst delay of any number of classes, exactly: the fluid server followed from event to event.
//!
//! Method: while traffic arrives, the rates of a fluid weighted fair server are constant: classes that need no more
//! than their fair part get their need, the others divide the rest by weight (water filling). Afterwards the classes
//! that still have a queue divide the line by weight until one after the other is empty. Arrivals and service of a
//! class are then piecewise linear, and the largest horizontal distance between two such curves is at one of their
//! corners; there are at most as many corners as classes plus one. Cost: O(classes^2) time, no more memory than that.
//! Units: see [`super`]. Source: Aequitas 3.4.1 leaves more than two classes to simulation; network calculus gives the
//! distance.

use super::{Arrivals, QueueingError, check_shares, check_weights};

/// A port with a weight for each class and the traffic's shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    weights: Vec<f64>,
    arrivals: Arrivals,
}

impl Port {
    /// A port whose class `i` has weight `weights[i]`. Fails if there is no class, or a weight is not above 0.
    pub fn new(weights: &[f64], arrivals: Arrivals) -> Result<Self, QueueingError> {
        check_weights(weights)?;
        Ok(Self {
            weights: weights.to_vec(),
            arrivals,
        })
    }

    /// The classes' weights.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// The traffic's shape.
    pub fn arrivals(&self) -> Arrivals {
        self.arrivals
    }

    /// The worst delay of each class for the given shares of the traffic, in periods; a class without traffic has 0.
    ///
    /// ```
    /// use isolane_rpc_policy::queueing::{Arrivals, fluid::Port};
    /// let port = Port::new(&[8.0, 4.0, 1.0], Arrivals::new(0.8, 1.4)?)?;
    /// let delays = port.delays(&[0.2, 0.3, 0.5])?;
    /// assert_eq!(delays[0], 0.0); // 1.4 x 0.2 of the line is less than its 8/13.
    /// assert!(delays[2] > 0.0);
    /// # Ok::<(), isolane_rpc_policy::queueing::QueueingError>(())
    /// ```
    ///
    /// # Errors
    /// When there are not as many shares as classes, or they are no division of the whole.
    pub fn delays(&self, shares: &[f64]) -> Result<Vec<f64>, QueueingError> {
        if shares.len() != self.weights.len() {
            return Err(QueueingError::Classes(shares.len()));
        }
        check_shares(shares)?;
        let demands: Vec<f64> = shares
            .iter()
            .map(|share| share * self.arrivals.burst)
            .collect();
        let end = self.arrivals.end();
        let rates = fair_rates(&self.weights, &demands);
        let mut classes: Vec<Class> = demands
            .iter()
            .zip(&rates)
            .map(|(&demand, &rate)| Class::after_arrival(demand, rate, end))
            .collect();
        self.drain(&mut classes, end);
        Ok(classes.iter().map(|class| class.delay).collect())
    }

    /// Serves what waits at `now` until nothing does.
    fn drain(&self, classes: &mut [Class], mut now: f64) {
        loop {
            let waiting: f64 = classes
                .iter()
                .zip(&self.weights)
                .filter(|(class, _)| class.queue > 0.0)
                .map(|(_, weight)| weight)
                .sum();
            let step = classes
                .iter()
                .zip(&self.weights)
                .filter(|(class, _)| class.queue > 0.0)
                .map(|(class, weight)| class.queue * waiting / weight)
                .fold(f64::INFINITY, f64::min);
            if !step.is_finite() {
                return;
            }
            now += step;
            for (class, weight) in classes.iter_mut().zip(&self.weights) {
                class.serve(step * weight / waiting, now);
            }
        }
    }
}

/// One class on its way through the period.
#[derive(Clone, Copy, Debug)]
struct Class {
    /// Its arrival rate while traffic arrives.
    demand: f64,
    arrived: f64,
    /// What waits.
    queue: f64,
    /// The worst delay so far.
    delay: f64,
}

/// What is left of a queue by rounding alone, as a part of the class's traffic.
const ROUNDING: f64 = 1e-12;

impl Class {
    fn after_arrival(demand: f64, rate: f64, end: f64) -> Self {
        let arrived = demand * end;
        let mut class = Self {
            demand,
            arrived,
            queue: arrived,
            delay: 0.0,
        };
        if demand > 0.0 {
            class.serve(rate * end, end);
        }
        class
    }

    /// `work` of it has been served since the last corner; now is another corner.
    fn serve(&mut self, work: f64, now: f64) {
        if self.queue <= 0.0 {
            return;
        }
        self.queue -= work;
        if self.queue <= ROUNDING * self.arrived {
            self.queue = 0.0;
        }
        // The data that leaves now arrived when the arrival curve had the present value of the service curve.
        let arrived_at = (self.arrived - self.queue) / self.demand;
        self.delay = self.delay.max(now - arrived_at);
        if self.delay < ROUNDING {
            self.delay = 0.0;
        }
    }
}

/// Rates of a fluid weighted fair server of rate 1: weighted max-min of the demands.
///
/// The sum is 1, or that of the demands if that is less.
pub fn fair_rates(weights: &[f64], demands: &[f64]) -> Vec<f64> {
    assert_eq!(weights.len(), demands.len(), "one demand for each weight");
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|&a, &b| (demands[a] / weights[a]).total_cmp(&(demands[b] / weights[b])));
    let mut rates = vec![0.0; weights.len()];
    let mut rest = 1.0;
    let mut weight: f64 = weights.iter().sum();
    for (position, &class) in order.iter().enumerate() {
        let fair = rest * weights[class] / weight;
        if demands[class] > fair {
            for &other in &order[position..] {
                rates[other] = rest * weights[other] / weight;
            }
            break;
        }
        rates[class] = demands[class];
        rest -= demands[class];
        weight -= weights[class];
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The slow and obvious server: small steps of time, a queue for each class, first come first served inside it.
    fn stepped(port: &Port, shares: &[f64], steps: usize) -> Vec<f64> {
        let end = port.arrivals.end();
        let step = 1.0 / steps as f64;
        let total: Vec<f64> = shares.iter().map(|s| s * port.arrivals.load).collect();
        let demand: Vec<f64> = shares.iter().map(|s| s * port.arrivals.burst).collect();
        let mut served = vec![0.0; shares.len()];
        let mut delays = vec![0.0f64; shares.len()];
        for index in 0..steps {
            let now = index as f64 * step;
            let arrived: Vec<f64> = demand
                .iter()
                .zip(&total)
                .map(|(d, t)| (d * (now + step).min(end)).min(*t))
                .collect();
            let asks: Vec<f64> = arrived
                .iter()
                .zip(&served)
                .map(|(a, s)| ((a - s) / step).max(0.0))
                .collect();
            let rates = fair_rates(&port.weights, &asks);
            for class in 0..shares.len() {
                if total[class] == 0.0 || served[class] >= total[class] - 1e-12 {
                    continue;
                }
                served[class] += rates[class] * step;
                let arrived_at = served[class] / demand[class];
                delays[class] = delays[class].max(now + step - arrived_at);
            }
        }
        delays
    }

    fn shares_of(parts: &[f64]) -> Vec<f64> {
        let sum: f64 = parts.iter().sum();
        parts.iter().map(|part| part / sum).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_solution_is_that_of_small_steps(
            classes in prop::collection::vec((0.1f64..20.0, 0.01f64..1.0), 1..6),
            rho in 1.05f64..4.0,
            mu in 0.1f64..0.95,
        ) {
            let (weights, parts): (Vec<f64>, Vec<f64>) = classes.into_iter().unzip();
            let port = Port::new(&weights, Arrivals::new(mu, rho).expect("sound")).expect("sound");
            let shares = shares_of(&parts);
            let exact = port.delays(&shares).expect("shares");
            let slow = stepped(&port, &shares, 4000);
            // A step of arrival counts as arrived at its end, and rates change a step late.
            for (class, (exact, slow)) in exact.iter().zip(&slow).enumerate() {
                prop_assert!((exact - slow).abs() < 0.01, "class {class}: {exact} against {slow}");
            }
        }

        #[test]
        fn the_last_class_is_done_when_the_line_has_carried_all(
            classes in prop::collection::vec((0.1f64..20.0, 0.01f64..1.0), 1..6),
            rho in 1.05f64..4.0,
            mu in 0.1f64..0.95,
        ) {
            let (weights, parts): (Vec<f64>, Vec<f64>) = classes.into_iter().unzip();
            let arrivals = Arrivals::new(mu, rho).expect("sound");
            let port = Port::new(&weights, arrivals).expect("sound");
            let delays = port.delays(&shares_of(&parts)).expect("shares");
            let worst = delays.iter().fold(0.0f64, |a, b| a.max(*b));
            // Work is conserved: the line is busy from 0 to mu, so the last bit of one class leaves at mu.
            prop_assert!(worst >= mu - arrivals.end() - 1e-9);
            prop_assert!(worst <= mu);
        }

        #[test]
        fn fair_rates_use_the_line_and_favour_no_class(
            classes in prop::collection::vec((0.1f64..20.0, 0.0f64..2.0), 1..8),
        ) {
            let (weights, demands): (Vec<f64>, Vec<f64>) = classes.into_iter().unzip();
            let rates = fair_rates(&weights, &demands);
            let asked: f64 = demands.iter().sum();
            let given: f64 = rates.iter().sum();
            prop_assert!((given - asked.min(1.0)).abs() < 1e-9);
            let level = |class: usize| rates[class] / weights[class];
            for class in 0..rates.len() {
                prop_assert!(rates[class] <= demands[class] + 1e-12);
                if rates[class] < demands[class] - 1e-9 {
                    for other in 0..rates.len() {
                        prop_assert!(level(other) <= level(class) + 1e-9, "who wants more has the highest level");
                    }
                }
            }
        }
    }

    #[test]
    fn a_class_without_traffic_has_no_delay() {
        let port = Port::new(&[4.0, 1.0], Arrivals::new(0.8, 2.0).expect("sound")).expect("sound");
        let delays = port.delays(&[0.0, 1.0]).expect("shares");
        assert_eq!(delays[0], 0.0);
        assert!((delays[1] - 0.4).abs() < 1e-12);
    }

    #[test]
    fn shares_that_leave_traffic_out_are_refused_with_the_sum() {
        let port = Port::new(&[4.0, 1.0], Arrivals::new(0.8, 2.0).expect("sound")).expect("sound");
        let error = port.delays(&[0.5, 0.4]).expect_err("0.9");
        assert_eq!(
            error.to_string(),
            "the shares sum to 0.9, not to 1: 0.5 + 0.4"
        );
    }
}
