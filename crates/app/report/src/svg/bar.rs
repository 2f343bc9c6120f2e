//! Horizontal bars, each with its number at its end.

use super::ticks::Ticks;
use super::{Anchor, Drawing, Scale, cut, linear, text_width};

/// Groups of horizontal bars over a common axis.
#[derive(Clone, Debug, Default)]
pub struct BarPlot {
    /// What the plot shows, for screen readers.
    pub label: String,
    /// Title of the axis with its unit: `pairs that break isolation, %`.
    pub x_title: String,
    /// The value that the axis reaches at least.
    pub x_max: f64,
    /// The groups, from the top.
    pub rows: Vec<BarRow>,
    /// Width, pixels.
    pub width: f64,
}

/// One group of bars with its heading.
#[derive(Clone, Debug, Default)]
pub struct BarRow {
    /// The heading, above the bars; may be empty.
    pub name: String,
    /// The bars.
    pub bars: Vec<Bar>,
    /// Where a bound is, in the axis' unit.
    pub bound: Option<f64>,
}

/// One bar.
#[derive(Clone, Debug, Default)]
pub struct Bar {
    /// Its name, at its left; may be empty when there is but one kind.
    pub name: String,
    /// Its colour, an index of the style sheet's inks.
    pub ink: usize,
    /// Its length, in the axis' unit.
    pub value: f64,
    /// What is written at its end, unit included.
    pub text: String,
}

/// Ticks to aim for.
const TICKS: usize = 5;
const BAR_HEIGHT: f64 = 12.0;
/// Length of a bar at least, pixels: a zero is seen too.
const BAR_MIN: f64 = 1.0;
const BAR_PITCH: f64 = 16.0;
const HEADING: f64 = 18.0;
const ROW_GAP: f64 = 8.0;
const AXIS: f64 = 36.0;

/// Room for a group's heading.
fn heading(row: &BarRow) -> f64 {
    match row.name.is_empty() {
        true => 2.0,
        false => HEADING,
    }
}

impl BarPlot {
    /// The widths of names and the place where bars begin, pixels, the ticks, and the scale of the axis.
    fn axis(&self) -> ((f64, f64), Ticks, Scale) {
        let bars = || self.rows.iter().flat_map(|row| &row.bars);
        let widest_name = bars().map(|bar| text_width(&bar.name)).fold(0.0, f64::max);
        let name_width = widest_name.min(self.width * 0.3);
        let left = if name_width > 0.0 {
            name_width + 8.0
        } else {
            1.0
        };
        let widest_text = bars().map(|bar| text_width(&bar.text)).fold(0.0, f64::max);
        let right = (self.width - widest_text - 8.0).max(left + 40.0);
        let bounds = self.rows.iter().filter_map(|row| row.bound);
        let high = bars()
            .map(|bar| bar.value)
            .chain(bounds)
            .filter(|value| value.is_finite())
            .fold(self.x_max, f64::max);
        let ticks = linear(0.0, high, TICKS);
        let x = Scale::linear(
            (0.0, *ticks.values.last().expect("an axis has ticks")),
            (left, right),
        );
        ((name_width, left), ticks, x)
    }

    /// The SVG element; its height follows from the rows.
    pub fn render(&self) -> String {
        let heights = self
            .rows
            .iter()
            .map(|row| heading(row) + row.bars.len() as f64 * BAR_PITCH + ROW_GAP);
        let bottom: f64 = heights.sum();
        let mut drawing = Drawing::new(self.width, bottom + AXIS, &self.label);

        let ((name_width, left), ticks, x) = self.axis();
        drawing.across(&ticks, &x, (2.0, bottom), &self.x_title);

        let mut top = 0.0;
        // Numbers come last: no bound covers them.
        let mut values = Vec::new();
        for row in &self.rows {
            if !row.name.is_empty() {
                drawing.text(
                    "heading",
                    (0.0, top + 13.0),
                    Anchor::Start,
                    &cut(&row.name, self.width),
                );
            }
            top += heading(row);
            let first = top;
            for bar in &row.bars {
                let length = x.map(bar.value) - left;
                drawing.rectangle(
                    &format!("bar f{}", bar.ink % super::INKS),
                    (left, top),
                    (length.max(BAR_MIN), BAR_HEIGHT),
                );
                drawing.text(
                    "tick",
                    (left - 6.0, top + 10.0),
                    Anchor::End,
                    &cut(&bar.name, name_width),
                );
                let at = (left + length.max(0.0) + 5.0, top + 10.0);
                values.push((at, &bar.text));
                top += BAR_PITCH;
            }
            if let Some(bound) = row.bound {
                drawing.segment(
                    "bound",
                    (x.map(bound), first - 2.0),
                    (x.map(bound), top - 2.0),
                );
            }
            top += ROW_GAP;
        }
        for (at, text) in values {
            drawing.text("value", at, Anchor::Start, text);
        }
        drawing.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn bars_carry_their_numbers() {
        let plot = BarPlot {
            label: "violations".into(),
            x_title: "pairs, %".into(),
            x_max: 100.0,
            width: 300.0,
            rows: vec![BarRow {
                name: "PCIe".into(),
                bars: vec![Bar {
                    name: "none".into(),
                    ink: 0,
                    value: 40.0,
                    text: "10 of 25".into(),
                }],
                bound: Some(50.0),
            }],
        };
        expect![[r#"
            <svg class="plot" role="img" aria-label="violations" viewBox="0 0 300 78" width="300" height="78" xmlns="http://www.w3.org/2000/svg">
            <path class="axis" d="M32.4 2L32.4 42"/>
            <text class="tick" x="32.4" y="56" text-anchor="middle">0</text>
            <path class="grid" d="M74.6 2L74.6 42"/>
            <text class="tick" x="74.6" y="56" text-anchor="middle">20</text>
            <path class="grid" d="M116.7 2L116.7 42"/>
            <text class="tick" x="116.7" y="56" text-anchor="middle">40</text>
            <path class="grid" d="M158.9 2L158.9 42"/>
            <text class="tick" x="158.9" y="56" text-anchor="middle">60</text>
            <path class="grid" d="M201 2L201 42"/>
            <text class="tick" x="201" y="56" text-anchor="middle">80</text>
            <path class="grid" d="M243.2 2L243.2 42"/>
            <text class="tick" x="243.2" y="56" text-anchor="middle">100</text>
            <text class="axis-title" x="137.8" y="73" text-anchor="middle">pairs, %</text>
            <text class="heading" x="0" y="13">PCIe</text>
            <rect class="bar f0" x="32.4" y="18" width="84.3" height="12"/>
            <text class="tick" x="26.4" y="28" text-anchor="end">none</text>
            <path class="bound" d="M137.8 16L137.8 32"/>
            <text class="value" x="121.7" y="28">10 of 25</text>
            </svg>"#]].assert_eq(&plot.render().replace("><", ">\n<"));
    }
}
