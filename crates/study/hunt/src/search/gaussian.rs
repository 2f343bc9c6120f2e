//! A small Gaussian process: what a function is likely to be where it was not measured.
//!
//! Zero mean after subtraction of the samples' own, Matern 5/2 covariance of one length, noise on the diagonal,
//! Cholesky factorisation. The length is the one of a short list under which the samples are likeliest. Limits: cubic
//! in the number of samples, so callers keep to some hundred; one length for all inputs. Source: Rasmussen and
//! Williams, Gaussian Processes for Machine Learning (2006), algorithm 2.1, equations 4.17 and 5.8. No dependency: this
//! is a hundred lines, and crates for it depend on linear algebra libraries.

/// A process with samples.
#[derive(Clone, Debug)]
pub struct Gaussian {
    inputs: Vec<Vec<f64>>,
    mean: f64,
    scale: f64,
    length: f64,
    /// Lower triangle of the factor, row by row.
    factor: Vec<Vec<f64>>,
    weights: Vec<f64>,
    likelihood: f64,
}

/// What the process says of one place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guess {
    /// Expected value.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
}

/// Variance of the noise, part of that of the samples.
pub const NOISE: f64 = 1e-3;

impl Gaussian {
    /// A process of covariance `length` through `values` at `inputs`; none without samples.
    pub fn fit(inputs: &[Vec<f64>], values: &[f64], length: f64) -> Option<Self> {
        assert_eq!(inputs.len(), values.len(), "each input has a value");
        if inputs.is_empty() {
            return None;
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
            / count;
        let scale = if variance > 0.0 {
            libm::sqrt(variance)
        } else {
            1.0
        };
        let centred: Vec<f64> = values.iter().map(|value| (value - mean) / scale).collect();
        let factor = cholesky(inputs.len(), |row, column| {
            let noise = if row == column { NOISE } else { 0.0 };
            covariance(&inputs[row], &inputs[column], length) + noise
        })?;
        let half = forward(&factor, &centred);
        let fit: f64 = half.iter().map(|value| value * value).sum();
        let volume: f64 = (0..factor.len())
            .map(|row| libm::log(factor[row][row]))
            .sum();
        let likelihood = -0.5 * fit - volume - 0.5 * count * libm::log(std::f64::consts::TAU);
        Some(Self {
            inputs: inputs.to_vec(),
            mean,
            scale,
            length,
            weights: backward(&factor, &half),
            factor,
            likelihood,
        })
    }

    /// The likeliest of several lengths.
    pub fn fit_best(inputs: &[Vec<f64>], values: &[f64], lengths: &[f64]) -> Option<Self> {
        let fits = lengths
            .iter()
            .filter_map(|&length| Self::fit(inputs, values, length));
        fits.max_by(|left, right| left.likelihood.total_cmp(&right.likelihood))
    }

    /// The length of its covariance.
    pub fn length(&self) -> f64 {
        self.length
    }

    /// What it says at `input`.
    pub fn guess(&self, input: &[f64]) -> Guess {
        let to = |other: &Vec<f64>| covariance(input, other, self.length);
        let covariances: Vec<f64> = self.inputs.iter().map(to).collect();
        let mean: f64 = covariances
            .iter()
            .zip(&self.weights)
            .map(|(k, w)| k * w)
            .sum();
        let half = forward(&self.factor, &covariances);
        let known: f64 = half.iter().map(|value| value * value).sum();
        Guess {
            mean: self.mean + self.scale * mean,
            deviation: self.scale * libm::sqrt((1.0 - known).max(0.0)),
        }
    }
}

impl Guess {
    /// By how much the value is expected to exceed `best` (Mockus): 0 counts where it does not.
    pub fn expected_improvement(self, best: f64) -> f64 {
        let gain = self.mean - best;
        if self.deviation <= 0.0 {
            return gain.max(0.0);
        }
        let z = gain / self.deviation;
        let density = libm::exp(-0.5 * z * z) / libm::sqrt(std::f64::consts::TAU);
        let below = 0.5 * libm::erfc(-z / std::f64::consts::SQRT_2);
        gain * below + self.deviation * density
    }
}

/// Matern 5/2 with variance 1.
fn covariance(left: &[f64], right: &[f64], length: f64) -> f64 {
    let squares = left.iter().zip(right).map(|(a, b)| (a - b) * (a - b));
    let r = libm::sqrt(5.0 * squares.sum::<f64>()) / length;
    (1.0 + r + r * r / 3.0) * libm::exp(-r)
}

/// The lower factor of a symmetric matrix; none where it is not positive definite.
fn cholesky(size: usize, entry: impl Fn(usize, usize) -> f64) -> Option<Vec<Vec<f64>>> {
    let mut factor: Vec<Vec<f64>> = Vec::with_capacity(size);
    for row in 0..size {
        let mut line: Vec<f64> = Vec::with_capacity(row + 1);
        let dot = |left: &[f64], right: &[f64]| -> f64 {
            left.iter().zip(right).map(|(a, b)| a * b).sum()
        };
        for (column, other) in factor.iter().enumerate() {
            let rest = entry(row, column) - dot(&line, &other[..column]);
            line.push(rest / other[column]);
        }
        let rest = entry(row, row) - dot(&line, &line);
        if rest <= 0.0 {
            return None;
        }
        line.push(libm::sqrt(rest));
        factor.push(line);
    }
    Some(factor)
}

/// Solves `factor` x = `right`.
fn forward(factor: &[Vec<f64>], right: &[f64]) -> Vec<f64> {
    let mut solution: Vec<f64> = Vec::with_capacity(right.len());
    for (row, value) in factor.iter().zip(right) {
        let known: f64 = row.iter().zip(&solution).map(|(a, b)| a * b).sum();
        solution.push((value - known) / row[solution.len()]);
    }
    solution
}

/// Solves the transpose of `factor` x = `right`.
fn backward(factor: &[Vec<f64>], right: &[f64]) -> Vec<f64> {
    let mut solution = right.to_vec();
    for row in (0..factor.len()).rev() {
        solution[row] /= factor[row][row];
        let value = solution[row];
        for (column, entry) in factor[row][..row].iter().enumerate() {
            solution[column] -= entry * value;
        }
    }
    solution
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_common_quantities::rng::Stream;

    fn close(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-9, "{left} {right}");
    }

    #[test]
    fn two_samples_follow_the_closed_form() {
        // Values 1 and 3: mean 2, scale 1, centred -1 and 1. With correlation k and noise n the weights are
        // -1/(1 - k + n) and 1/(1 - k + n), by symmetry.
        let (length, inputs) = (0.7, [vec![0.0], vec![0.5]]);
        let process = Gaussian::fit(&inputs, &[1.0, 3.0], length).unwrap();
        let k = |distance: f64| {
            let r = 5f64.sqrt() * distance / length;
            (1.0 + r + r * r / 3.0) * (-r).exp()
        };
        let weight = 1.0 / (1.0 - k(0.5) + NOISE);
        let at = 0.2;
        let guess = process.guess(&[at]);
        close(guess.mean, 2.0 + weight * (k(0.3) - k(0.2)));
        let (a, b, d) = (k(0.2), k(0.3), 1.0 + NOISE);
        let known = (d * (a * a + b * b) - 2.0 * k(0.5) * a * b) / (d * d - k(0.5) * k(0.5));
        close(guess.deviation, (1.0 - known).sqrt());
        let determinant = d * d - k(0.5) * k(0.5);
        let expected = -weight - 0.5 * determinant.ln() - std::f64::consts::TAU.ln();
        close(process.likelihood, expected);
    }

    #[test]
    fn one_sample_far_away_says_nothing() {
        let process = Gaussian::fit(&[vec![0.0]], &[5.0], 0.1).unwrap();
        let guess = process.guess(&[100.0]);
        close(guess.mean, 5.0);
        close(guess.deviation, 1.0);
        assert!(Gaussian::fit(&[], &[], 1.0).is_none());
    }

    #[test]
    fn expected_improvement_matches_its_integral() {
        for (mean, deviation, best) in [
            (0.0, 1.0, 0.0),
            (1.0, 0.5, 2.0),
            (-1.0, 2.0, 0.5),
            (3.0, 0.1, 1.0),
        ] {
            // The mean of max(0, y - best) over a normal distribution, by the trapezium rule over 12 deviations.
            let steps = 200_000;
            let width = 12.0 * deviation / f64::from(steps);
            let integral: f64 = (0..=steps)
                .map(|step| {
                    let y = mean - 6.0 * deviation + f64::from(step) * width;
                    let z: f64 = (y - mean) / deviation;
                    let density = (-0.5 * z * z).exp() / (deviation * std::f64::consts::TAU.sqrt());
                    (y - best).max(0.0) * density * width
                })
                .sum();
            let closed = Guess { mean, deviation }.expected_improvement(best);
            assert!((closed - integral).abs() < 1e-6, "{closed} {integral}");
        }
        let sure = Guess {
            mean: 2.0,
            deviation: 0.0,
        };
        close(sure.expected_improvement(1.5), 0.5);
        close(sure.expected_improvement(3.0), 0.0);
    }

    #[test]
    fn it_learns_a_smooth_function_and_knows_where_it_does_not() {
        let f = |x: f64, y: f64| (3.0 * x).sin() + y * y;
        let mut stream = Stream::named(1, "test");
        let mut unit = || (stream.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let inputs: Vec<Vec<f64>> = (0..60).map(|_| vec![unit(), unit()]).collect();
        let values: Vec<f64> = inputs.iter().map(|x| f(x[0], x[1])).collect();
        let process = Gaussian::fit_best(&inputs, &values, &[0.05, 0.3, 1.0]).unwrap();
        assert_ne!(process.length, 0.05, "the function is smoother than that");
        for _ in 0..50 {
            let (x, y) = (unit(), unit());
            let guess = process.guess(&[x, y]);
            assert!((guess.mean - f(x, y)).abs() < 0.1, "{x} {y}: {guess:?}");
        }
        assert!(process.guess(&[3.0, 3.0]).deviation > 10.0 * process.guess(&[0.5, 0.5]).deviation);
    }
}
