//! Sizes of calls: drawing from a distribution, and its means.
//!
//! Problem: loads are given in line rates, so a generator must know the mean size exactly, and must draw sizes that
//! have it.
//! Method: the inverse of the cumulative distribution, linear between its points; a share above zero at the first
//! point is an atom of that size, and two points of one size are an atom there. The means are integrals of the same
//! lines.
//! Units: bytes of payload. A drawn size is rounded up to whole bytes, and at least 1.
//! Limits: rounding up adds half a byte to the mean.

use isolane_common_quantities::rng::Stream;
use isolane_network_scenario::model::SizeDistribution;

/// A distribution to draw from.
#[derive(Clone, Debug)]
pub(super) enum Sizes {
    Fixed(u64),
    /// (part of calls not larger, size), from part 0 to part 1.
    Points(Vec<(f64, f64)>),
}

impl Sizes {
    /// As the scenario has it.
    pub(super) fn new(distribution: &SizeDistribution) -> Self {
        match distribution {
            SizeDistribution::Fixed { size } => Self::Fixed(size.get()),
            SizeDistribution::Cumulative { points, .. } => {
                let mut lines = Vec::with_capacity(points.len() + 1);
                let first = points.first().map_or(0.0, |point| point.0.get() as f64);
                lines.push((0.0, first));
                lines.extend(points.iter().map(|&(size, part)| (part, size.get() as f64)));
                Self::Points(lines)
            }
        }
    }

    /// One size.
    #[inline]
    pub(super) fn draw(&self, stream: &mut Stream) -> u64 {
        match self {
            Self::Fixed(size) => *size,
            Self::Points(lines) => {
                let uniform = (stream.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
                let above = lines.partition_point(|line| line.0 <= uniform);
                let (part, size) = lines[above.min(lines.len() - 1)];
                let (part_below, size_below) = lines[above.max(1) - 1];
                let way = match part > part_below {
                    true => (uniform - part_below) / (part - part_below),
                    false => 1.0,
                };
                ((size_below + way * (size - size_below)).ceil() as u64).max(1)
            }
        }
    }

    pub(super) fn mean(&self) -> f64 {
        match self {
            Self::Fixed(size) => *size as f64,
            Self::Points(lines) => lines
                .windows(2)
                .map(|pair| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0)
                .sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_common_quantities::units::Bytes;
    use proptest::prelude::*;

    fn of(points: &[(u64, f64)]) -> Sizes {
        Sizes::new(&SizeDistribution::Cumulative {
            name: "inline".to_owned(),
            points: points
                .iter()
                .map(|&(size, part)| (Bytes::new(size), part))
                .collect(),
        })
    }

    #[test]
    fn an_atom_is_drawn_as_often_as_it_says() {
        let sizes = of(&[(100, 0.25), (100, 0.5), (200, 0.5), (200, 1.0)]);
        let mut stream = Stream::named(1, "sizes");
        let drawn: Vec<u64> = (0..10_000).map(|_| sizes.draw(&mut stream)).collect();
        let small = drawn.iter().filter(|size| **size == 100).count();
        assert!((4_800..5_200).contains(&small), "{small}");
        assert!(drawn.iter().all(|size| [100, 200].contains(size)));
    }

    #[test]
    fn a_line_is_drawn_evenly() {
        let sizes = of(&[(0, 0.0), (1_000, 1.0)]);
        let mut stream = Stream::named(2, "sizes");
        let low = (0..10_000)
            .filter(|_| sizes.draw(&mut stream) <= 250)
            .count();
        assert!((2_350..2_650).contains(&low), "{low}");
        assert_eq!(sizes.mean(), 500.0);
    }

    proptest! {
        #[test]
        fn the_mean_of_many_draws_is_the_mean(
            steps in prop::collection::vec((1u64..50_000, 1u32..100), 1..12),
            seed: u64,
        ) {
            let total: u32 = steps.iter().map(|step| step.1).sum();
            let (mut size, mut part) = (0, 0);
            let mut points: Vec<(u64, f64)> = Vec::new();
            for (more, share) in steps {
                size += more;
                part += share;
                points.push((size, f64::from(part) / f64::from(total)));
            }
            let sizes = of(&points);
            let mut stream = Stream::named(seed, "sizes");
            let count = 20_000;
            let drawn: f64 = (0..count).map(|_| sizes.draw(&mut stream) as f64).sum();
            let widest = size as f64;
            // Seven standard errors of the widest possible spread.
            let allowed = 7.0 * widest / 2.0 / f64::from(count).sqrt() + 0.5;
            prop_assert!((drawn / f64::from(count) - sizes.mean()).abs() < allowed);
        }
    }
}
