//! A matrix of small coloured cells with a mark in each cell that fails.
//!
//! Colour is never the only channel: a failing cell carries a cross, and one without a verdict a stroke.

use super::{Anchor, Drawing, cut, text_width};

/// Rows by columns of cells, grouped along both sides.
#[derive(Clone, Debug, Default)]
pub struct HeatMap {
    /// What the plot shows, for screen readers.
    pub label: String,
    /// Title of the columns, at the bottom.
    pub x_title: String,
    /// Groups of adjacent columns, from the left.
    pub columns: Vec<Span>,
    /// Groups of adjacent rows, from the top.
    pub rows: Vec<Span>,
    /// Cells in row order; a row is as long as the columns' groups together.
    pub cells: Vec<HeatCell>,
    /// Width, pixels.
    pub width: f64,
    /// Height of one cell, pixels.
    pub cell_height: f64,
}

/// Adjacent rows or columns under one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The name.
    pub name: String,
    /// How many rows or columns.
    pub count: usize,
}

/// One cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeatCell {
    /// The style sheet's class, `v0` to `v6`, `na`, or `ns` for a pair that did not settle: it carries a stroke.
    pub class: &'static str,
    /// Does it carry the cross?
    pub fails: bool,
}

impl Span {
    /// Equal neighbours of `names` joined.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Self> {
        let mut spans: Vec<Self> = Vec::new();
        for name in names {
            match spans.last_mut() {
                Some(last) if last.name == name => last.count += 1,
                _ => spans.push(Self {
                    name: name.to_owned(),
                    count: 1,
                }),
            }
        }
        spans
    }
}

const TOP: f64 = 18.0;
const BOTTOM: f64 = 18.0;
/// Between groups, pixels.
const GAP: f64 = 3.0;
/// Room for the rows' names at least and at most, pixels.
const NAMES: (f64, f64) = (40.0, 130.0);

impl HeatMap {
    /// The SVG element; its height follows from the rows.
    pub fn render(&self) -> String {
        let column_count: usize = self.columns.iter().map(|span| span.count).sum();
        let row_count: usize = self.rows.iter().map(|span| span.count).sum();
        assert_eq!(
            self.cells.len(),
            column_count * row_count,
            "a heat map has one cell per row and column"
        );
        let left_edge = self.left_edge();
        let gaps = GAP * self.columns.len().saturating_sub(1) as f64;
        let cell_width = (self.width - left_edge - gaps) / column_count.max(1) as f64;
        let height = TOP
            + row_count as f64 * self.cell_height
            + GAP * self.rows.len().saturating_sub(1) as f64;
        let mut drawing = Drawing::new(self.width, height + BOTTOM, &self.label);

        let mut left = left_edge;
        for span in &self.columns {
            let width = span.count as f64 * cell_width;
            if width > 14.0 {
                drawing.text(
                    "tick",
                    (left, TOP - 6.0),
                    Anchor::Start,
                    &cut(&span.name, width + GAP),
                );
            }
            left += width + GAP;
        }
        let mut top = TOP;
        let mut row = 0;
        for span in &self.rows {
            let middle = top + span.count as f64 * self.cell_height / 2.0;
            drawing.text(
                "tick",
                (left_edge - 6.0, middle + 3.5),
                Anchor::End,
                &cut(&span.name, left_edge - 6.0),
            );
            for _ in 0..span.count {
                let cells = &self.cells[row * column_count..(row + 1) * column_count];
                self.row(&mut drawing, cells, top, cell_width);
                row += 1;
                top += self.cell_height;
            }
            top += GAP;
        }
        drawing.text(
            "axis-title",
            ((left_edge + self.width) / 2.0, height + 13.0),
            Anchor::Middle,
            &self.x_title,
        );
        drawing.finish()
    }

    /// Where the cells begin.
    fn left_edge(&self) -> f64 {
        let widest = self
            .rows
            .iter()
            .map(|span| text_width(&span.name))
            .fold(0.0, f64::max);
        (widest + 8.0).clamp(NAMES.0, NAMES.1)
    }

    /// One row; neighbours of one class share a path, crosses share another.
    fn row(&self, drawing: &mut Drawing, cells: &[HeatCell], top: f64, width: f64) {
        let mut left = self.left_edge();
        let mut crosses = Vec::new();
        let inner = (width - 0.6, self.cell_height - 0.6);
        let mut cells = cells.iter();
        for span in &self.columns {
            for cell in cells.by_ref().take(span.count) {
                drawing.rectangle(cell.class, (left, top), inner);
                if cell.fails {
                    let (x, y) = (left + inner.0 / 2.0, top + inner.1 / 2.0);
                    let arm = inner.0.min(inner.1) * 0.27;
                    crosses.extend([(x - arm, y - arm), (x + arm, y + arm), (f64::NAN, f64::NAN)]);
                    crosses.extend([(x - arm, y + arm), (x + arm, y - arm), (f64::NAN, f64::NAN)]);
                }
                if cell.class == "ns" {
                    let (x, y) = (left + inner.0 / 2.0, top + inner.1 / 2.0);
                    let arm = inner.0.min(inner.1) * 0.27;
                    crosses.extend([(x - arm, y + arm), (x + arm, y - arm), (f64::NAN, f64::NAN)]);
                }
                left += width;
            }
            left += GAP;
        }
        if !crosses.is_empty() {
            drawing.polyline("cross", crosses);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_failing_cell_carries_a_cross() {
        let plot = HeatMap {
            label: "who breaks whom".into(),
            x_title: "attackers".into(),
            columns: Span::of(["BW", "BW", "PCIe"]),
            rows: Span::of(["large bandwidth"]),
            cells: vec![
                HeatCell {
                    class: "v6",
                    fails: false,
                },
                HeatCell {
                    class: "v0",
                    fails: true,
                },
                HeatCell {
                    class: "na",
                    fails: false,
                },
            ],
            width: 159.0,
            cell_height: 20.0,
        };
        expect![[r#"
            <svg class="plot" role="img" aria-label="who breaks whom" viewBox="0 0 159 56" width="159" height="56" xmlns="http://www.w3.org/2000/svg">
            <text class="tick" x="99.5" y="12">BW</text>
            <text class="tick" x="140.2" y="12">PC…</text>
            <text class="tick" x="93.5" y="31.5" text-anchor="end">large bandwidth</text>
            <rect class="v6" x="99.5" y="18" width="18.2" height="19.4"/>
            <rect class="v0" x="118.3" y="18" width="18.2" height="19.4"/>
            <rect class="na" x="140.2" y="18" width="18.2" height="19.4"/>
            <path class="cross" d="M122.5 22.8L132.4 32.6M122.5 32.6L132.4 22.8"/>
            <text class="axis-title" x="129.3" y="51" text-anchor="middle">attackers</text>
            </svg>"#]].assert_eq(&plot.render().replace("><", ">\n<"));
    }
}
