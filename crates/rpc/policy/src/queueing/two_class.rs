//! Worst delay of two classes in closed form: equations 3.1, 3.4 and B.4 of Aequitas.
//!
//! Method: each of the five cases is a condition on the share of the high class and an expression, derived as in
//! appendix B.2.2. The printed equations need two corrections, which the exact solution of [`super::fluid`] confirms
//! and the tests keep: in case 3 of 3.1 the factor is `phi / (rho x)` (the derivation has it so, the printed equation
//! `phi x / rho`), and where a case's interval is empty the next case begins at that interval's end.
//! In B.4 the class that arrives alone above the line rate waits `mu (1 - 1/rho)` up to the share where it would still
//! be the last to finish.
//! Units: see [`super`].

use super::{Arrivals, QueueingError, check_weights};

/// Which of the five situations of appendix B.2.2 holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// 1: the high class has no delay, the low one has.
    HighUndelayed,
    /// 2: both wait, and the high class is done first.
    HighFirst,
    /// 3: both wait, and the low class is done first: priority inversion.
    LowFirst,
    /// 4: the low class has no delay, the high one has.
    LowUndelayed,
    /// 5: the high class alone arrives faster than the line.
    HighAboveLine,
    /// 5 of the low class: it alone arrives faster than the line.
    LowAboveLine,
}

/// Two classes at one port; the low one has weight 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TwoClasses {
    phi: f64,
    arrivals: Arrivals,
}

impl TwoClasses {
    /// A high class of weight `phi` beside a low one of weight 1. Fails if `phi` is not above 0.
    pub fn new(phi: f64, arrivals: Arrivals) -> Result<Self, QueueingError> {
        check_weights(&[phi, 1.0])?;
        Ok(Self { phi, arrivals })
    }

    /// Worst delay of the high class when its share of the traffic is `share` (equation 3.1), in periods.
    ///
    /// ```
    /// use isolane_rpc_policy::queueing::{Arrivals, two_class::TwoClasses};
    /// // The example of appendix B.2.2: x - 0.4 between shares of 0.4 and 0.8.
    /// let port = TwoClasses::new(4.0, Arrivals::new(0.8, 2.0)?)?;
    /// assert_eq!(port.high_delay(0.4), 0.0);
    /// assert!((port.high_delay(0.5) - 0.1).abs() < 1e-12);
    /// assert!((port.high_delay(0.9) - 0.4).abs() < 1e-12);
    /// # Ok::<(), isolane_rpc_policy::queueing::QueueingError>(())
    /// ```
    pub fn high_delay(&self, share: f64) -> f64 {
        delay(self.phi, self.arrivals, share)
    }

    /// Worst delay of the low class when the high class's share is `share` (equation B.4), in periods.
    ///
    /// By symmetry it is the high class's with weight 1/phi and share `1 - share`.
    pub fn low_delay(&self, share: f64) -> f64 {
        delay(1.0 / self.phi, self.arrivals, 1.0 - share)
    }

    /// Which case holds when the high class's share is `share`.
    pub fn case(&self, share: f64) -> Case {
        case(self.phi, self.arrivals, share)
    }

    /// The share of the high class beyond which it waits longer than the low class (lemma 1).
    pub fn inversion_share(&self) -> f64 {
        self.phi / (self.phi + 1.0)
    }
}

/// Delay of the high class as its weight grows without bound (equation 3.4), in periods.
pub fn high_delay_of_infinite_weight(arrivals: Arrivals, share: f64) -> f64 {
    (arrivals.load * (share - 1.0 / arrivals.burst)).max(0.0)
}

fn case(phi: f64, arrivals: Arrivals, share: f64) -> Case {
    let rho = arrivals.burst;
    let guaranteed = phi / (phi + 1.0);
    let high_rate = rho * share;
    let low_rate = rho * (1.0 - share);
    if high_rate <= guaranteed {
        match low_rate > 1.0 {
            true => Case::LowAboveLine,
            false => Case::HighUndelayed,
        }
    } else if low_rate <= 1.0 - guaranteed {
        match high_rate > 1.0 {
            true => Case::HighAboveLine,
            false => Case::LowUndelayed,
        }
    } else if share <= guaranteed {
        Case::HighFirst
    } else if high_rate > 1.0 {
        Case::HighAboveLine
    } else {
        Case::LowFirst
    }
}

/// Worst delay of the class with weight `phi` to 1 and the given share.
fn delay(phi: f64, arrivals: Arrivals, share: f64) -> f64 {
    let Arrivals {
        load: mu,
        burst: rho,
    } = arrivals;
    match case(phi, arrivals, share) {
        Case::HighUndelayed | Case::LowAboveLine => 0.0,
        Case::HighFirst => mu * ((phi + 1.0) / phi * share - 1.0 / rho),
        Case::LowFirst => mu * (1.0 - share) * (phi + 1.0 - phi / (rho * share)),
        Case::LowUndelayed => mu * (1.0 / rho - 1.0 / (rho * rho)) / share,
        Case::HighAboveLine => mu * (1.0 - 1.0 / rho),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queueing::fluid::Port;
    use proptest::prelude::*;

    fn port(phi: f64, rho: f64, mu: f64) -> TwoClasses {
        TwoClasses::new(phi, Arrivals::new(mu, rho).expect("sound")).expect("sound")
    }

    fn exact(phi: f64, rho: f64, mu: f64, share: f64) -> [f64; 2] {
        let arrivals = Arrivals::new(mu, rho).expect("sound");
        let port = Port::new(&[phi, 1.0], arrivals).expect("sound");
        let delays = port.delays(&[share, 1.0 - share]).expect("shares");
        [delays[0], delays[1]]
    }

    #[test]
    fn the_derived_example_of_the_appendix_comes_out() {
        let port = port(4.0, 2.0, 0.8);
        for hundredths in 1..100 {
            let share = f64::from(hundredths) / 100.0;
            let expected = (share - 0.4).clamp(0.0, 0.4);
            assert!((port.high_delay(share) - expected).abs() < 1e-12, "{share}");
        }
    }

    #[test]
    fn both_classes_wait_equally_long_at_the_inversion_point() {
        for phi in [1.0, 4.0, 50.0] {
            let port = port(phi, 1.3, 0.8);
            let share = port.inversion_share();
            assert!((port.high_delay(share) - port.low_delay(share)).abs() < 1e-12);
        }
    }

    #[test]
    fn a_growing_weight_approaches_its_limit() {
        let arrivals = Arrivals::new(0.8, 1.4).expect("sound");
        let port = TwoClasses::new(1e9, arrivals).expect("sound");
        for share in [0.3, 0.6, 0.75, 0.9] {
            let limit = high_delay_of_infinite_weight(arrivals, share);
            assert!((port.high_delay(share) - limit).abs() < 1e-6, "{share}");
        }
    }

    proptest! {
        #[test]
        fn the_closed_forms_are_the_exact_solution(
            phi in 0.05f64..60.0,
            rho in 1.01f64..8.0,
            mu in 0.05f64..1.0,
            share in 0.001f64..0.999,
        ) {
            let port = port(phi, rho, mu);
            let [high, low] = exact(phi, rho, mu, share);
            prop_assert!((port.high_delay(share) - high).abs() < 1e-9, "high {} {high}", port.high_delay(share));
            prop_assert!((port.low_delay(share) - low).abs() < 1e-9, "low {} {low}", port.low_delay(share));
        }
    }
}
