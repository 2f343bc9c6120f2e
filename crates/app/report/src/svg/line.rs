//! Values over time.

use super::{Anchor, Drawing, Scale, Ticks, cut, linear, text_width};

/// Lines over a common time axis, each labelled at its end.
#[derive(Clone, Debug, Default)]
pub struct LinePlot {
    /// What the plot shows, for screen readers.
    pub label: String,
    /// Title of the vertical axis with its unit: `goodput, Gb/s`.
    pub y_title: String,
    /// Title of the horizontal axis with its unit: `time, ms`.
    pub x_title: String,
    /// Time between two points, in the horizontal axis' unit.
    pub x_step: f64,
    /// The value that the vertical axis reaches at least; plots to be compared share it.
    pub y_max: f64,
    /// The lines.
    pub series: Vec<LineSeries>,
    /// Horizontal rules, such as a bound.
    pub rules: Vec<Rule>,
    /// A moment at which something changes.
    pub mark: Option<Mark>,
    /// Areas on top of each other instead of lines; the first is at the bottom.
    pub stacked: bool,
    /// Width, pixels.
    pub width: f64,
    /// Height, pixels.
    pub height: f64,
}

/// One line.
#[derive(Clone, Debug, Default)]
pub struct LineSeries {
    /// Its name, written at its end.
    pub name: String,
    /// Its colour, an index of the style sheet's inks.
    pub ink: usize,
    /// Values at 1, 2, 3, ... steps; a value covers the step before it. One that is not finite is a gap.
    pub values: Vec<f64>,
}

/// A horizontal rule.
#[derive(Clone, Debug, Default)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// Where, in the vertical axis' unit.
    pub value: f64,
}

/// A moment.
#[derive(Clone, Debug, Default)]
pub struct Mark {
    /// What happens.
    pub name: String,
    /// When, in the horizontal axis' unit.
    pub at: f64,
}

/// Ticks to aim for.
const TICKS: usize = 5;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 34.0;
/// Least distance between two labels at the right, pixels.
const LABEL_DISTANCE: f64 = 12.5;
/// Part of the axis that a layer must fill at the end to have a label.
const LAYER_MIN: f64 = 0.02;
/// Part of the width that labels at the right may take.
const LABEL_PART: f64 = 0.36;

impl LinePlot {
    /// The SVG element.
    pub fn render(&self) -> String {
        let mut drawing = Drawing::new(self.width, self.height, &self.label);
        let tops = self.tops();
        let frame = self.frame(&tops);
        self.draw_axes(&mut drawing, &frame);
        let mut labels = Vec::new();
        for rule in &self.rules {
            let at = frame.y.map(rule.value);
            drawing.segment("rule", (frame.left, at), (frame.right, at));
            labels.push((at, "rule-label".to_owned(), rule.name.as_str()));
        }
        for (number, series) in self.series.iter().enumerate() {
            let end = match self.stacked {
                true => self.draw_layer(&mut drawing, &frame, &tops, number),
                false => self.draw_line(&mut drawing, &frame, &tops[number], series.ink),
            };
            if let Some(end) = end {
                let class = format!("label t{}", series.ink % super::INKS);
                labels.push((frame.y.map(end), class, series.name.as_str()));
            }
        }
        for (at, class, name) in spread(labels, TOP, frame.bottom) {
            drawing.text(
                &class,
                (frame.right + 6.0, at + 3.5),
                Anchor::Start,
                &cut(name, frame.label_width),
            );
        }
        if let Some(mark) = &self.mark {
            let at = frame.x.map(mark.at);
            drawing.segment("rule", (at, TOP), (at, frame.bottom));
            let half = text_width(&mark.name) / 2.0;
            // Right of the axis, names of series are at the same height.
            let centre = at.min(frame.right - half).max(frame.left + half);
            drawing.text(
                "rule-label",
                (centre, TOP - 4.0),
                Anchor::Middle,
                &mark.name,
            );
        }
        drawing.finish()
    }

    /// The positions of the axes, for series with these upper edges.
    fn frame(&self, tops: &[Vec<f64>]) -> Frame {
        let values = tops.iter().flatten();
        let rules = self.rules.iter().map(|rule| &rule.value);
        let high = values
            .chain(rules)
            .copied()
            .filter(|value| value.is_finite())
            .fold(self.y_max, f64::max);
        let y_ticks = linear(0.0, high, TICKS);
        let lengths = self.series.iter().map(|series| series.values.len());
        let x_end = self.x_step * lengths.max().unwrap_or(0).max(1) as f64;
        let tick_labels = y_ticks.labels.iter();
        let left = 10.0
            + tick_labels
                .map(|label| text_width(label))
                .fold(0.0, f64::max);
        let names = self.series.iter().map(|series| &series.name);
        let widest = names
            .chain(self.rules.iter().map(|rule| &rule.name))
            .map(|name| text_width(name))
            .fold(0.0, f64::max);
        let label_width = widest.min(self.width * LABEL_PART);
        let (right, bottom) = (self.width - label_width - 10.0, self.height - BOTTOM);
        let y_top = *y_ticks.values.last().expect("an axis has ticks");
        Frame {
            left,
            right,
            bottom,
            label_width,
            y_top,
            x_end,
            x: Scale::linear((0.0, x_end), (left, right)),
            y: Scale::linear((0.0, y_top), (bottom, TOP)),
            y_ticks,
        }
    }

    fn draw_axes(&self, drawing: &mut Drawing, frame: &Frame) {
        drawing.text("axis-title", (0.0, 11.0), Anchor::Start, &self.y_title);
        for (value, label) in frame.y_ticks.values.iter().zip(&frame.y_ticks.labels) {
            let class = if *value == 0.0 { "axis" } else { "grid" };
            let at = frame.y.map(*value);
            drawing.segment(class, (frame.left, at), (frame.right, at));
            drawing.text("tick", (frame.left - 5.0, at + 3.5), Anchor::End, label);
        }
        let x_ticks = linear(0.0, frame.x_end, TICKS);
        for (value, label) in x_ticks.values.iter().zip(&x_ticks.labels) {
            if *value <= frame.x_end * (1.0 + 1e-9) {
                let at = (frame.x.map(*value), frame.bottom + 14.0);
                drawing.text("tick", at, Anchor::Middle, label);
            }
        }
        drawing.text(
            "axis-title",
            ((frame.left + frame.right) / 2.0, self.height - 4.0),
            Anchor::Middle,
            &self.x_title,
        );
    }

    fn points(&self, frame: &Frame, values: &[f64]) -> Vec<(f64, f64)> {
        let values = values.iter().enumerate();
        values
            .map(|(index, &value)| {
                let x = frame.x.map((index + 1) as f64 * self.x_step);
                (x, frame.y.map(value))
            })
            .collect()
    }

    /// Draws an area on top of those below it; returns the value beside which its label is.
    fn draw_layer(
        &self,
        drawing: &mut Drawing,
        frame: &Frame,
        tops: &[Vec<f64>],
        number: usize,
    ) -> Option<f64> {
        let top = &tops[number];
        let floor = match number.checked_sub(1) {
            Some(below) => tops[below].clone(),
            None => vec![0.0; top.len()],
        };
        let step = frame.x.map(self.x_step) - frame.x.map(0.0);
        let class = format!("area f{}", self.series[number].ink % super::INKS);
        let (upper, lower) = (self.points(frame, top), self.points(frame, &floor));
        layer(drawing, &class, &upper, &lower, step);
        // A label is in the middle of its area; an area that is zero at the end has none.
        let ends = top.last().zip(floor.last());
        ends.filter(|(top, bottom)| *top - *bottom > LAYER_MIN * frame.y_top)
            .map(|(top, bottom)| (top + bottom) / 2.0)
    }

    /// Draws a line, and points between gaps; returns the value beside which its label is.
    fn draw_line(
        &self,
        drawing: &mut Drawing,
        frame: &Frame,
        values: &[f64],
        ink: usize,
    ) -> Option<f64> {
        let ink = ink % super::INKS;
        let line = self.points(frame, values);
        let points = super::between_gaps(&line);
        drawing.polyline(&format!("line s{ink}"), line);
        if !points.is_empty() {
            drawing.polyline(&format!("line s{ink} point"), points);
        }
        let mut last = values.iter().rev();
        last.find(|value| value.is_finite()).copied()
    }

    /// The upper edge of each series: its values, on top of those below it where areas are stacked.
    fn tops(&self) -> Vec<Vec<f64>> {
        let mut tops: Vec<Vec<f64>> = Vec::with_capacity(self.series.len());
        for series in &self.series {
            let mut top = series.values.clone();
            if let (true, Some(below)) = (self.stacked, tops.last()) {
                for (value, floor) in top.iter_mut().zip(below) {
                    *value += floor;
                }
            }
            tops.push(top);
        }
        tops
    }
}

/// The positions of a plot's axes, in its units of length, and what the axes measure.
struct Frame {
    left: f64,
    right: f64,
    bottom: f64,
    label_width: f64,
    y_top: f64,
    x_end: f64,
    x: Scale,
    y: Scale,
    y_ticks: Ticks,
}

/// A layer between two lines of equal length, `step` pixels between their points. A gap interrupts it; a point between
/// two gaps covers the step before it.
fn layer(
    drawing: &mut Drawing,
    class: &str,
    upper: &[(f64, f64)],
    lower: &[(f64, f64)],
    step: f64,
) {
    let pairs: Vec<_> = upper.iter().zip(lower).collect();
    for part in pairs.split(|(top, bottom)| !(top.1.is_finite() && bottom.1.is_finite())) {
        let mut tops: Vec<(f64, f64)> = part.iter().map(|(top, _)| **top).collect();
        let mut bottoms: Vec<(f64, f64)> = part.iter().map(|(_, bottom)| **bottom).collect();
        match part {
            [] => continue,
            [(top, bottom)] => {
                tops.insert(0, (top.0 - step, top.1));
                bottoms.insert(0, (bottom.0 - step, bottom.1));
            }
            _ => {}
        }
        drawing.area(class, &tops, &bottoms);
    }
}

/// Labels moved apart where they would overlap, in order of height, between `top` and `bottom` where they fit.
fn spread(mut labels: Vec<(f64, String, &str)>, top: f64, bottom: f64) -> Vec<(f64, String, &str)> {
    labels.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut floor = f64::NEG_INFINITY;
    for label in &mut labels {
        label.0 = label.0.max(floor).max(top);
        floor = label.0 + LABEL_DISTANCE;
    }
    let mut ceiling = bottom;
    for label in labels.iter_mut().rev() {
        label.0 = label.0.min(ceiling);
        ceiling = label.0 - LABEL_DISTANCE;
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_line_plot_has_units_and_labels_at_the_ends() {
        let plot = LinePlot {
            label: "goodput over time".into(),
            y_title: "goodput, Gb/s".into(),
            x_title: "time, ms".into(),
            x_step: 0.5,
            series: vec![LineSeries {
                name: "bulk".into(),
                ink: 1,
                values: vec![90.0, 92.0, f64::NAN, 91.0],
            }],
            rules: vec![Rule {
                name: "owed".into(),
                value: 50.0,
            }],
            width: 200.0,
            height: 120.0,
            ..LinePlot::default()
        };
        expect![[r#"
            <svg class="plot" role="img" aria-label="goodput over time" viewBox="0 0 200 120" width="200" height="120" xmlns="http://www.w3.org/2000/svg">
            <text class="axis-title" x="0" y="11">goodput, Gb/s</text>
            <path class="axis" d="M28.3 86L165.6 86"/>
            <text class="tick" x="23.3" y="89.5" text-anchor="end">0</text>
            <path class="grid" d="M28.3 74L165.6 74"/>
            <text class="tick" x="23.3" y="77.5" text-anchor="end">20</text>
            <path class="grid" d="M28.3 62L165.6 62"/>
            <text class="tick" x="23.3" y="65.5" text-anchor="end">40</text>
            <path class="grid" d="M28.3 50L165.6 50"/>
            <text class="tick" x="23.3" y="53.5" text-anchor="end">60</text>
            <path class="grid" d="M28.3 38L165.6 38"/>
            <text class="tick" x="23.3" y="41.5" text-anchor="end">80</text>
            <path class="grid" d="M28.3 26L165.6 26"/>
            <text class="tick" x="23.3" y="29.5" text-anchor="end">100</text>
            <text class="tick" x="28.3" y="100" text-anchor="middle">0.0</text>
            <text class="tick" x="62.6" y="100" text-anchor="middle">0.5</text>
            <text class="tick" x="97" y="100" text-anchor="middle">1.0</text>
            <text class="tick" x="131.3" y="100" text-anchor="middle">1.5</text>
            <text class="tick" x="165.6" y="100" text-anchor="middle">2.0</text>
            <text class="axis-title" x="96.9" y="116" text-anchor="middle">time, ms</text>
            <path class="rule" d="M28.3 56L165.6 56"/>
            <path class="line s1" d="M62.6 32L97 30.8M165.6 31.4L165.6 31.4"/>
            <path class="line s1 point" d="M165.6 31.4L165.6 31.4"/>
            <text class="label t1" x="171.6" y="34.9">bulk</text>
            <text class="rule-label" x="171.6" y="59.5">owed</text>
            </svg>"#]].assert_eq(&plot.render().replace("><", ">\n<"));
    }

    #[test]
    fn a_gap_interrupts_layers_and_a_point_between_gaps_is_seen() {
        let plot = LinePlot {
            x_step: 1.0,
            series: vec![LineSeries {
                values: vec![4.0, f64::NAN, 2.0, 2.0],
                ..LineSeries::default()
            }],
            stacked: true,
            width: 100.0,
            height: 100.0,
            ..LinePlot::default()
        };
        let text = plot.render();
        let areas: Vec<&str> = text
            .split("<path class=\"area f0\" d=\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .collect();
        expect![[r#"
            [
                "M16.1 26L34.6 26L34.6 66L16.1 66Z",
                "M71.5 46L90 46L90 66L71.5 66Z",
            ]
        "#]]
        .assert_debug_eq(&areas);
        let line = LinePlot {
            stacked: false,
            ..plot
        };
        let dot = "d=\"M34.6 26L34.6 26M71.5 46L90 46\"";
        assert!(line.render().contains(dot), "{}", line.render());
    }

    #[test]
    fn labels_never_overlap() {
        let labels = vec![
            (50.0, String::new(), "a"),
            (51.0, String::new(), "b"),
            (99.0, String::new(), "c"),
        ];
        let heights: Vec<f64> = spread(labels, 0.0, 100.0)
            .iter()
            .map(|label| label.0)
            .collect();
        assert_eq!(heights, [50.0, 62.5, 99.0]);
        let low = vec![(99.0, String::new(), "a"), (99.0, String::new(), "b")];
        let heights: Vec<f64> = spread(low, 0.0, 100.0)
            .iter()
            .map(|label| label.0)
            .collect();
        assert_eq!(heights, [87.5, 100.0]);
    }
}
