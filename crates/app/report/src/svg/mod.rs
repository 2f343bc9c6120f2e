//! A small plot library: axes, lines, horizontal bars, dots on a logarithmic axis, heat maps; as SVG text.
//!
//! Plots carry classes, not colours: the page's style sheet gives `s0`..`s7` (series), `v0`..`v6` (heat) and the axes
//! their colours, so one plot serves light and dark. Every plot has a label for screen readers, a unit on each axis,
//! and direct labels in place of a legend. Sizes are in CSS pixels; plots are about 360 wide, which fits a phone at its
//! natural size; a wide screen has several side by side.
//!
//! Limits: text widths are estimated, not measured; names are cut where the estimate exceeds the room.

mod bar;
mod dots;
mod heat_map;
mod line;
mod scale;
mod ticks;

pub use bar::{Bar, BarPlot, BarRow};
pub use dots::{Dot, DotPlot, DotRow};
pub use heat_map::{HeatCell, HeatMap, Span};
pub use line::{LinePlot, LineSeries, Mark, Rule};
pub use scale::Scale;
pub use ticks::{Ticks, linear, logarithmic};

use crate::html::escape;
use std::fmt::Write;

/// Colours of series that the style sheet defines, `s0` to `s7`; more series start over.
pub const INKS: usize = 8;

/// Average width of a character of the plots' 11-pixel text, pixels; generous, since fonts differ.
const CHARACTER_WIDTH: f64 = 6.1;

/// SVG text under construction. Coordinates are rounded to a tenth of a pixel.
#[derive(Clone, Debug)]
pub struct Drawing {
    text: String,
}

/// Where a text sits relative to its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// It begins there.
    Start,
    /// It is centred there.
    Middle,
    /// It ends there.
    End,
}

impl Drawing {
    /// An empty drawing of `width` by `height` pixels; `label` describes the drawing for a screen reader.
    pub fn new(width: f64, height: f64, label: &str) -> Self {
        let label = escape(label);
        let text = format!(
            "<svg class=\"plot\" role=\"img\" aria-label=\"{label}\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" \
             height=\"{h}\" xmlns=\"http://www.w3.org/2000/svg\">",
            w = tenth(width),
            h = tenth(height)
        );
        Self { text }
    }

    /// A line segment.
    pub fn segment(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.write(format_args!(
            "<path class=\"{class}\" d=\"M{} {}L{} {}\"/>",
            tenth(from.0),
            tenth(from.1),
            tenth(to.0),
            tenth(to.1)
        ));
    }

    /// A horizontal axis below a plot that reaches from `span.0` down to `span.1`: a grid line and a label for each
    /// tick, the one at zero drawn as the axis, and the title with its unit.
    pub fn across(&mut self, ticks: &Ticks, x: &Scale, span: (f64, f64), title: &str) {
        let bottom = span.1;
        for (value, label) in ticks.values.iter().zip(&ticks.labels) {
            let class = if *value == 0.0 { "axis" } else { "grid" };
            let at = x.map(*value);
            self.segment(class, (at, span.0), (at, bottom));
            self.text("tick", (at, bottom + 14.0), Anchor::Middle, label);
        }
        let under = (x.middle(), bottom + 31.0);
        self.text("axis-title", under, Anchor::Middle, title);
    }

    /// A polyline; points that are not finite interrupt it. A point between two gaps is a line without length, which
    /// round ends show as a dot.
    pub fn polyline(&mut self, class: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        let points: Vec<(f64, f64)> = points.into_iter().collect();
        let mut path = String::new();
        for part in unbroken(&points) {
            let again = (part.len() == 1).then_some(&part[0]);
            for (index, (x, y)) in part.iter().chain(again).enumerate() {
                let command = if index == 0 { 'M' } else { 'L' };
                write!(path, "{command}{} {}", tenth(*x), tenth(*y))
                    .expect("writing to a String succeeds");
            }
        }
        self.write(format_args!("<path class=\"{class}\" d=\"{path}\"/>"));
    }

    /// A filled area between two lines of equal length.
    pub fn area(&mut self, class: &str, upper: &[(f64, f64)], lower: &[(f64, f64)]) {
        let mut path = String::new();
        for (index, (x, y)) in upper.iter().chain(lower.iter().rev()).enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            write!(path, "{command}{} {}", tenth(*x), tenth(*y))
                .expect("writing to a String succeeds");
        }
        self.write(format_args!("<path class=\"{class}\" d=\"{path}Z\"/>"));
    }

    /// A rectangle; negative sizes count as zero.
    pub fn rectangle(&mut self, class: &str, corner: (f64, f64), size: (f64, f64)) {
        self.write(format_args!(
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
            tenth(corner.0),
            tenth(corner.1),
            tenth(size.0.max(0.0)),
            tenth(size.1.max(0.0))
        ));
    }

    /// A filled circle with a text that shows when the pointer rests on it.
    pub fn circle(&mut self, class: &str, centre: (f64, f64), radius: f64, title: &str) {
        self.write(format_args!(
            "<circle class=\"{class}\" cx=\"{}\" cy=\"{}\" r=\"{}\"><title>{}</title></circle>",
            tenth(centre.0),
            tenth(centre.1),
            tenth(radius),
            escape(title)
        ));
    }

    /// Text; escaped here.
    pub fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        self.write(format_args!(
            "<text class=\"{class}\" x=\"{}\" y=\"{}\"{anchor}>{}</text>",
            tenth(at.0),
            tenth(at.1),
            escape(text)
        ));
    }

    /// The finished SVG element.
    pub fn finish(mut self) -> String {
        self.text.push_str("</svg>");
        self.text
    }

    fn write(&mut self, arguments: std::fmt::Arguments<'_>) {
        self.text
            .write_fmt(arguments)
            .expect("writing to a String succeeds");
    }
}

/// A series with gaps in the form that plots take: a point without a value is not finite.
pub fn with_gaps(values: &[Option<f64>]) -> Vec<f64> {
    values
        .iter()
        .map(|value| value.unwrap_or(f64::NAN))
        .collect()
}

/// The longest parts of `points` without one that is not finite.
fn unbroken(points: &[(f64, f64)]) -> impl Iterator<Item = &[(f64, f64)]> {
    points
        .split(|(x, y)| !(x.is_finite() && y.is_finite()))
        .filter(|part| !part.is_empty())
}

/// The points of a line between two gaps, in the form of a polyline, which needs a thicker pen.
fn between_gaps(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let single = unbroken(points).filter(|part| part.len() == 1);
    single
        .flat_map(|part| [part[0], (f64::NAN, f64::NAN)])
        .collect()
}

/// Estimated width of `text`, pixels.
fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER_WIDTH
}

/// `text` cut to about `width` pixels, with an ellipsis when something is missing.
fn cut(text: &str, width: f64) -> String {
    if text_width(text) <= width {
        return text.to_owned();
    }
    let room = (width / CHARACTER_WIDTH).floor().max(2.0) as usize - 1;
    let mut out: String = text.chars().take(room).collect();
    out.push('…');
    out
}

/// A coordinate with at most one decimal.
fn tenth(value: f64) -> String {
    let value = if value.is_finite() { value } else { 0.0 };
    let rounded = (value * 10.0).round() / 10.0;
    // Avoids "-0".
    format!("{}", rounded + 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_drawing_escapes_its_texts() {
        let mut drawing = Drawing::new(10.0, 5.25, "a \"quoted\" <label>");
        drawing.text("t", (1.0, 2.06), Anchor::End, "<script>&");
        drawing.polyline(
            "s0",
            [(0.0, -0.01), (1.0, f64::NAN), (2.0, 2.0), (3.0, 1.0)],
        );
        expect![[r#"<svg class="plot" role="img" aria-label="a &quot;quoted&quot; &lt;label&gt;" viewBox="0 0 10 5.3" width="10" height="5.3" xmlns="http://www.w3.org/2000/svg"><text class="t" x="1" y="2.1" text-anchor="end">&lt;script&gt;&amp;</text><path class="s0" d="M0 0L0 0M2 2L3 1"/></svg>"#]]
        .assert_eq(&drawing.finish());
    }

    #[test]
    fn long_names_are_cut_to_the_room() {
        assert_eq!(cut("short", 60.0), "short");
        assert_eq!(cut("a rather long name", 60.0), "a rather…");
        assert_eq!(cut("ab", 1.0), "a…");
    }
}
