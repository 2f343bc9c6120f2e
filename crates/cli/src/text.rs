//! Text tables: text on the left of its column, numbers on the right, two spaces between.

/// A table under construction.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// Per column `l` (text, on the left) or `r` (numbers, on the right).
    columns: String,
}

impl Table {
    /// A table with these headings; `columns` has an `l` (left) or `r` (right) for each.
    pub(crate) fn new(columns: impl Into<String>, headings: &[&str]) -> Self {
        let rows = vec![headings.iter().map(|&heading| heading.to_owned()).collect()];
        Self {
            rows,
            columns: columns.into(),
        }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table, every line ending in a newline, each indented by two spaces.
    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, &width), side) in row.iter().zip(&widths).zip(self.columns.chars()) {
                line.push_str("  ");
                line.push_str(&match side {
                    'l' => format!("{cell:width$}"),
                    _ => format!("{cell:>width$}"),
                });
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// `value` with about four significant digits, without an exponent.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// `value`, or a dash.
pub(crate) fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_align_right_and_text_left() {
        let mut table = Table::new("lr", &["tenant", "Gb/s"]);
        table.row(vec!["cache".into(), number(0.0123)]);
        table.row(vec!["b".into(), number(96.64)]);
        let want = "  tenant    Gb/s
  cache   0.0123
  b        96.64
";
        assert_eq!(table.render(), want);
    }
}
