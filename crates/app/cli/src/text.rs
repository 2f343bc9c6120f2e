//! Text tables as wide as the terminal, and numbers in words.

use crate::output;

pub(crate) use isolane_common_text_output::{Table, counted};

/// `table` for stdout: no wider than the terminal, where stdout is one.
pub(crate) fn fitted(table: &Table) -> String {
    table.render_within(output::width(), false)
}

/// `value` with about four significant digits; an exponent only below 0.0001.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        v if v >= 1e-4 => format!("{value:.4}"),
        _ => format!("{value:.0e}"),
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
    fn numbers_have_about_four_digits() {
        let said = [0.0, 1e-9, 0.0123, 1.0, 96.64, 123.45, 12_345.6].map(number);
        assert_eq!(said.join(" "), "0 1e-9 0.0123 1.00 96.64 123.5 12346");
    }
}
