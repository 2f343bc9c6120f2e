//! Wald's sequential test: does an experiment show the anomaly, or not?
//!
//! An experiment repeated with other random numbers (or on real hardware, which is never twice the same) shows the
//! symptom with some probability p. The test decides between p >= [`PRESENT`] and p <= [`ABSENT`]; in both cases it
//! errs with a probability of at most [`ERROR`]. Each outcome moves the log-likelihood ratio by ln 9 up or down, and
//! it stops at ln 19 either way, which two outcomes more of one kind reach. In between, where neither hypothesis holds, it
//! may say either; after [`REPEATS_MAX`] runs it says what the majority said and that it is not sure. Source:
//! Wald, Sequential Tests of Statistical Hypotheses (1945). The public prototype of Collie decides by one run.

/// A symptom that appears at least this often is there.
pub(crate) const PRESENT: f64 = 0.9;
/// A symptom that appears at most this often is not.
pub(crate) const ABSENT: f64 = 0.1;
/// Probability of a wrong answer, for each of the two.
pub(crate) const ERROR: f64 = 0.05;
/// Runs after which it stops. An odd number, so that there is a majority.
pub(crate) const REPEATS_MAX: u32 = 15;
/// Outcomes that the shortest decision needs: these may be observed at once.
pub(crate) const REPEATS_MIN: u32 = 2;

/// What is known so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sequential {
    shown: u32,
    not: u32,
    /// Runs without an outcome.
    skipped: u32,
}

/// The end of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the symptom is there.
    pub present: bool,
    /// Whether the error rate holds; false where the test ran out of repeats.
    pub sure: bool,
}

impl Sequential {
    pub(crate) fn add(&mut self, shown: bool) {
        match shown {
            true => self.shown += 1,
            false => self.not += 1,
        }
    }

    /// Counts a run that decides nothing.
    pub(crate) fn skip(&mut self) {
        self.skipped += 1;
    }

    /// Runs so far, with those that did not settle.
    pub(crate) fn tried(&self) -> u32 {
        self.shown + self.not + self.skipped
    }

    /// The decision, once there is one.
    pub(crate) fn decision(&self) -> Option<Decision> {
        let step = libm::log(PRESENT / ABSENT);
        let ratio = step * (f64::from(self.shown) - f64::from(self.not));
        let bound = libm::log((1.0 - ERROR) / ERROR);
        match () {
            () if ratio.abs() >= bound => Some(Decision {
                present: ratio > 0.0,
                sure: true,
            }),
            () if self.tried() >= REPEATS_MAX => Some(Decision {
                present: self.shown > self.not,
                sure: false,
            }),
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probability that a test of a symptom with probability `p` says it is there, over every sequence of outcomes,
    /// and the mean number of outcomes.
    fn says_present(test: Sequential, p: f64) -> (f64, f64) {
        if let Some(decision) = test.decision() {
            let said = if decision.present { 1.0 } else { 0.0 };
            return (said, f64::from(test.tried()));
        }
        let (mut yes, mut no) = (test, test);
        yes.add(true);
        no.add(false);
        let (yes, no) = (says_present(yes, p), says_present(no, p));
        let mean = |of: fn(&(f64, f64)) -> f64| p * of(&yes) + (1.0 - p) * of(&no);
        (mean(|pair| pair.0), mean(|pair| pair.1))
    }

    #[test]
    fn error_rates_are_below_the_stated_ones() {
        let (present, repeats) = says_present(Sequential::default(), PRESENT);
        assert!(1.0 - present <= ERROR, "{present}");
        assert!(repeats < 2.6, "{repeats}");
        let (absent, _) = says_present(Sequential::default(), ABSENT);
        assert!(absent <= ERROR, "{absent}");
    }

    #[test]
    fn it_matches_the_closed_form() {
        // A walk that ends two steps up or down: p^2 / (p^2 + q^2), but for the few that run out of repeats.
        for p in [0.05, 0.2, 0.5, 0.7, 0.95] {
            let closed = p * p / (p * p + (1.0 - p) * (1.0 - p));
            let (said, _) = says_present(Sequential::default(), p);
            assert!((said - closed).abs() < 0.005, "{p}: {said} {closed}");
        }
    }

    #[test]
    fn a_coin_ends_unsure_at_the_limit() {
        let mut test = Sequential::default();
        for outcome in 0..REPEATS_MAX {
            assert_eq!(test.decision(), None, "{outcome}");
            test.add(outcome % 2 == 0);
        }
        let decision = test.decision().unwrap();
        assert!(decision.present && !decision.sure);
    }
}
