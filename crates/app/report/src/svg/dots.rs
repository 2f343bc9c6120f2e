//! Dots on a logarithmic axis: percentiles of latency, one row per tenant.

use super::{Anchor, Drawing, Scale, cut, logarithmic};

/// Rows of dots over a common logarithmic axis.
#[derive(Clone, Debug, Default)]
pub struct DotPlot {
    /// What the plot shows, for screen readers.
    pub label: String,
    /// Title of the axis with its unit: `latency, µs (logarithmic)`.
    pub x_title: String,
    /// The smallest and the largest value that the axis spans at least; both above zero.
    pub x_range: (f64, f64),
    /// The rows, from the top.
    pub rows: Vec<DotRow>,
    /// Width, pixels.
    pub width: f64,
}

/// One row.
#[derive(Clone, Debug, Default)]
pub struct DotRow {
    /// Its heading, above the dots.
    pub name: String,
    /// Its colour, an index of the style sheet's inks.
    pub ink: usize,
    /// The dots, in ascending order; a thin line joins the first and the last.
    pub dots: Vec<Dot>,
    /// Where a bound is, in the axis' unit.
    pub bound: Option<f64>,
}

/// One dot.
#[derive(Clone, Debug, Default)]
pub struct Dot {
    /// Its name below it: `p50`, `p99`, ...
    pub name: String,
    /// Where, in the axis' unit.
    pub value: f64,
    /// Its number with its unit, shown when the pointer rests on it.
    pub text: String,
}

impl Dot {
    /// A dot for each name and value, with the text that `text` makes of the value.
    pub fn all<const N: usize>(points: [(&str, f64); N], text: fn(f64) -> String) -> Vec<Self> {
        let points = points.into_iter();
        let dot = |(name, value): (&str, f64)| Self {
            name: name.to_owned(),
            value,
            text: text(value),
        };
        points.map(dot).collect()
    }
}

const ROW: f64 = 46.0;
const AXIS: f64 = 36.0;
/// Labels of dots nearer than this are not written, pixels.
const LABEL_DISTANCE: f64 = 34.0;
const MARGIN: f64 = 18.0;

impl DotPlot {
    /// The SVG element; its height follows from the rows.
    pub fn render(&self) -> String {
        let bottom = self.rows.len() as f64 * ROW;
        let mut drawing = Drawing::new(self.width, bottom + AXIS, &self.label);
        let values = || {
            let dots = self.rows.iter().flat_map(|row| &row.dots);
            let bounds = self.rows.iter().filter_map(|row| row.bound);
            dots.map(|dot| dot.value)
                .chain(bounds)
                .filter(|value| value.is_finite() && *value > 0.0)
        };
        let low = values().fold(self.x_range.0, f64::min);
        let high = values().fold(self.x_range.1, f64::max);
        let ticks = logarithmic(low, high);
        let (first, last) = (ticks.values[0], ticks.values[ticks.values.len() - 1]);
        let x = Scale::logarithmic((first, last), (MARGIN, self.width - MARGIN));

        drawing.across(&ticks, &x, (4.0, bottom), &self.x_title);

        for (index, row) in self.rows.iter().enumerate() {
            let top = index as f64 * ROW;
            let middle = top + 23.0;
            drawing.text(
                "heading",
                (0.0, top + 12.0),
                Anchor::Start,
                &cut(&row.name, self.width),
            );
            let ink = row.ink % super::INKS;
            if let (Some(first), Some(last)) = (row.dots.first(), row.dots.last()) {
                drawing.segment(
                    &format!("line s{ink}"),
                    (x.map(first.value), middle),
                    (x.map(last.value), middle),
                );
            }
            if let Some(bound) = row.bound {
                let at = x.map(bound);
                drawing.segment("bound", (at, middle - 7.0), (at, middle + 7.0));
            }
            let mut labelled_to = f64::NEG_INFINITY;
            for (order, dot) in row.dots.iter().enumerate() {
                let at = x.map(dot.value);
                let title = format!("{}: {}", dot.name, dot.text);
                drawing.circle(
                    &format!("dot f{ink}"),
                    (at, middle),
                    5.0 - order.min(2) as f64,
                    &title,
                );
                if at - labelled_to >= LABEL_DISTANCE {
                    drawing.text("tick", (at, middle + 15.0), Anchor::Middle, &dot.name);
                    labelled_to = at;
                }
            }
        }
        drawing.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn dots_near_each_other_share_a_label() {
        let dot = |name: &str, value: f64| Dot {
            name: name.into(),
            value,
            text: format!("{value} µs"),
        };
        let plot = DotPlot {
            label: "latency".into(),
            x_title: "latency, µs".into(),
            x_range: (1.0, 10.0),
            width: 200.0,
            rows: vec![DotRow {
                name: "lat".into(),
                ink: 2,
                dots: vec![dot("p50", 2.0), dot("p99", 2.1), dot("p99.9", 9.0)],
                bound: None,
            }],
        };
        expect![[r#"
            <svg class="plot" role="img" aria-label="latency" viewBox="0 0 200 82" width="200" height="82" xmlns="http://www.w3.org/2000/svg">
            <path class="grid" d="M18 4L18 46"/>
            <text class="tick" x="18" y="60" text-anchor="middle">1</text>
            <path class="grid" d="M67.4 4L67.4 46"/>
            <text class="tick" x="67.4" y="60" text-anchor="middle">2</text>
            <path class="grid" d="M132.6 4L132.6 46"/>
            <text class="tick" x="132.6" y="60" text-anchor="middle">5</text>
            <path class="grid" d="M182 4L182 46"/>
            <text class="tick" x="182" y="60" text-anchor="middle">10</text>
            <text class="axis-title" x="100" y="77" text-anchor="middle">latency, µs</text>
            <text class="heading" x="0" y="12">lat</text>
            <path class="line s2" d="M67.4 23L174.5 23"/>
            <circle class="dot f2" cx="67.4" cy="23" r="5">
            <title>p50: 2 µs</title>
            </circle>
            <text class="tick" x="67.4" y="38" text-anchor="middle">p50</text>
            <circle class="dot f2" cx="70.8" cy="23" r="4">
            <title>p99: 2.1 µs</title>
            </circle>
            <circle class="dot f2" cx="174.5" cy="23" r="3">
            <title>p99.9: 9 µs</title>
            </circle>
            <text class="tick" x="174.5" y="38" text-anchor="middle">p99.9</text>
            </svg>"#]].assert_eq(&plot.render().replace("><", ">\n<"));
    }
}
