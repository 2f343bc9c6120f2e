//! From values to pixels.

/// A map from an axis' unit to pixels, linear or logarithmic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    domain: (f64, f64),
    pixels: (f64, f64),
    logarithmic: bool,
}

impl Scale {
    /// Halfway between the ends, pixels.
    pub fn middle(&self) -> f64 {
        (self.pixels.0 + self.pixels.1) / 2.0
    }

    /// A linear map of the `domain`'s ends to the `pixels`' ends.
    pub fn linear(domain: (f64, f64), pixels: (f64, f64)) -> Self {
        Self {
            domain,
            pixels,
            logarithmic: false,
        }
    }

    /// A logarithmic map; the `domain` is above zero.
    pub fn logarithmic(domain: (f64, f64), pixels: (f64, f64)) -> Self {
        assert!(
            domain.0 > 0.0 && domain.1 > 0.0,
            "a logarithmic axis begins above zero"
        );
        Self {
            domain: (domain.0.ln(), domain.1.ln()),
            pixels,
            logarithmic: true,
        }
    }

    /// The pixel of `value`. Values outside the domain stop at its ends.
    pub fn map(&self, value: f64) -> f64 {
        let value = if self.logarithmic {
            value.max(f64::MIN_POSITIVE).ln()
        } else {
            value
        };
        let width = self.domain.1 - self.domain.0;
        let part = if width == 0.0 {
            0.0
        } else {
            (value - self.domain.0) / width
        };
        if part.is_nan() {
            return f64::NAN;
        }
        self.pixels.0 + part.clamp(0.0, 1.0) * (self.pixels.1 - self.pixels.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_map_to_ends_and_nothing_leaves_the_plot() {
        let up = Scale::linear((0.0, 10.0), (100.0, 0.0));
        assert_eq!((up.map(0.0), up.map(5.0), up.map(99.0)), (100.0, 50.0, 0.0));
        let decades = Scale::logarithmic((1.0, 100.0), (0.0, 10.0));
        assert_eq!(
            (decades.map(0.0), decades.map(1.0), decades.map(100.0)),
            (0.0, 0.0, 10.0)
        );
        assert!((decades.map(10.0) - 5.0).abs() < 1e-9);
        assert!(up.map(f64::NAN).is_nan());
    }
}
