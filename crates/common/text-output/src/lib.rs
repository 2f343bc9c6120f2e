//! Text for terminals: tables that fold on a narrow terminal, sentences that are broken there ([`wrapped`]), and counts
//! with their noun. Text for scrapers: [`openmetrics`].
//!
//! Columns are two spaces apart, text aligned left, numbers aligned right. If a width is given and the table is wider,
//! its widest text column is broken at spaces. If that is not enough, the columns that do not fit are printed in a
//! second block below, with the first columns (the keys) repeated. Nothing is left out.
//!
//! Limits: a character counts as one column of the terminal.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![forbid(unsafe_code)]

pub mod openmetrics;
mod prose;

pub use prose::wrapped;

use std::fmt::Write;

/// Escape code that ends a colour.
const RESET: &str = "\x1b[0m";
/// Text columns narrower than this are not broken: the table is folded instead.
const BROKEN_MIN: usize = 24;
/// Spaces in front of each column.
const GAP: usize = 2;

/// `1 attacker`, `2 attackers`.
pub fn counted(count: u64, noun: &str) -> String {
    format!("{count} {}", plural(count, noun))
}

/// `noun`, or its plural where `count` is not 1: `pair`, `pairs`; `anomaly`, `anomalies`; `process`, `processes`.
pub fn plural(count: u64, noun: &str) -> String {
    if count == 1 {
        return noun.to_owned();
    }
    let stem = noun.strip_suffix('y');
    match stem.filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u'])) {
        Some(stem) => format!("{stem}ies"),
        None if noun.ends_with('s') || noun.ends_with('x') || noun.ends_with("ch") => {
            format!("{noun}es")
        }
        None => format!("{noun}s"),
    }
}

/// Text of a cell and its colour.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    /// Escape code that begins the colour; empty for none.
    code: &'static str,
}

impl Cell {
    /// `text` in the colour of the escape code; no colour if the code is empty.
    pub fn painted(text: impl Into<String>, code: &'static str) -> Self {
        Self {
            text: text.into(),
            code,
        }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }

    /// Broken at spaces into lines of at most `width`; a longer word has a line of its own.
    fn broken(&self, width: usize) -> Vec<Self> {
        let lines = prose::broken(&self.text, width, width).into_iter();
        lines.map(|text| Self::painted(text, self.code)).collect()
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::painted(text, "")
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::painted(text, "")
    }
}

/// A table under construction.
#[derive(Clone, Debug)]
pub struct Table {
    /// The headings first.
    rows: Vec<Vec<Cell>>,
    /// Per column `l` (text, on the left) or `r` (numbers, on the right).
    columns: String,
    keys: usize,
    stacked: bool,
}

impl Table {
    /// A table with these headings; `columns` has an `l` (left) or `r` (right) for each.
    pub fn new<C: Into<Cell> + Clone>(columns: impl Into<String>, headings: &[C]) -> Self {
        let headings = headings.iter().map(|heading| heading.clone().into());
        Self {
            rows: vec![headings.collect()],
            columns: columns.into(),
            keys: 1,
            stacked: false,
        }
    }

    /// Sets how many first columns a folded table repeats; the default is 1.
    #[must_use]
    pub fn keys(mut self, keys: usize) -> Self {
        self.keys = keys;
        self
    }

    /// Prints headings of several words on as many lines.
    #[must_use]
    pub fn stacked(mut self) -> Self {
        self.stacked = true;
        self
    }

    /// Adds a row.
    pub fn row<C: Into<Cell>>(&mut self, cells: Vec<C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The table at its full width, without colours.
    pub fn render(&self) -> String {
        self.render_within(None, false)
    }

    /// The table, at most `width` columns wide if possible, in colours if `colour`. Every line begins with two spaces
    /// and ends with a newline.
    pub fn render_within(&self, width: Option<usize>, colour: bool) -> String {
        let widths = self.widths();
        let most = width.unwrap_or(usize::MAX);
        if total(&widths) <= most {
            let all: Vec<usize> = (0..widths.len()).collect();
            return self.block(&all, &widths, colour);
        }
        if let Some(widths) = self.with_one_broken(&widths, most) {
            let all: Vec<usize> = (0..widths.len()).collect();
            return self.block(&all, &widths, colour);
        }
        self.folded(&widths, most, colour)
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let heading = |cell: &Cell| match self.stacked {
            true => cell.broken(1).iter().map(Cell::width).max().unwrap_or(0),
            false => cell.width(),
        };
        let width = |column: usize| {
            let (headings, body) = self.rows.split_first().expect("the headings are there");
            let cells = body.iter().filter_map(|row| row.get(column));
            let cells = cells.map(Cell::width);
            cells.chain(headings.get(column).map(heading)).max()
        };
        (0..columns)
            .map(|column| width(column).unwrap_or(0))
            .collect()
    }

    /// The widths with the widest text column narrowed to the rest of `most`; `None` if that is too narrow.
    fn with_one_broken(&self, widths: &[usize], most: usize) -> Option<Vec<usize>> {
        let is_text = |column: &usize| self.columns.as_bytes().get(*column) == Some(&b'l');
        let text = (self.keys..widths.len()).filter(is_text);
        let widest = text.max_by_key(|column| widths[*column])?;
        let others = total(widths) - widths[widest];
        let left = most
            .checked_sub(others)
            .filter(|left| *left >= BROKEN_MIN)?;
        let mut widths = widths.to_vec();
        widths[widest] = left;
        Some(widths)
    }

    /// Blocks below each other, each with the keys and as many other columns as fit.
    fn folded(&self, widths: &[usize], most: usize, colour: bool) -> String {
        let keys: Vec<usize> = (0..self.keys.min(widths.len())).collect();
        let mut blocks: Vec<Vec<usize>> = Vec::new();
        let mut widths = widths.to_vec();
        let keys_width: usize = keys.iter().map(|key| GAP + widths[*key]).sum();
        for column in keys.len()..widths.len() {
            // A column wider than the terminal is broken, if it is text.
            let left = most.saturating_sub(keys_width + GAP).max(BROKEN_MIN);
            if self.columns.as_bytes().get(column) == Some(&b'l') {
                widths[column] = widths[column].min(left);
            }
            let fits = |block: &Vec<usize>| {
                let columns = block.iter().chain([&column]);
                columns.map(|column| GAP + widths[*column]).sum::<usize>() <= most
            };
            match blocks.last_mut().filter(|block| fits(block)) {
                Some(block) => block.push(column),
                None => blocks.push(keys.iter().copied().chain([column]).collect()),
            }
        }
        let blocks = blocks.iter();
        let blocks = blocks.map(|block| self.block(block, &widths, colour));
        blocks.collect::<Vec<_>>().join("\n")
    }

    /// The columns called `shown`, in lines.
    fn block(&self, shown: &[usize], widths: &[usize], colour: bool) -> String {
        let mut text = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            let cells: Vec<Vec<Cell>> = shown
                .iter()
                .map(|&column| match row.get(column) {
                    Some(cell) if index == 0 && self.stacked => cell.broken(1),
                    Some(cell) if cell.width() > widths[column] => cell.broken(widths[column]),
                    Some(cell) => vec![cell.clone()],
                    None => Vec::new(),
                })
                .collect();
            let lines = cells.iter().map(Vec::len).max().unwrap_or(0);
            for line in 0..lines {
                let cells = shown.iter().zip(&cells);
                let cells = cells.map(|(&column, cell)| (column, cell.get(line)));
                self.line(&mut text, cells, widths, colour);
            }
        }
        text
    }

    fn line<'a>(
        &self,
        text: &mut String,
        cells: impl Iterator<Item = (usize, Option<&'a Cell>)>,
        widths: &[usize],
        colour: bool,
    ) {
        let mut line = String::new();
        let empty = Cell::default();
        let mut end = 0;
        for (column, cell) in cells {
            let cell = cell.unwrap_or(&empty);
            let padding = widths[column].saturating_sub(cell.width());
            let before = match self.columns.as_bytes().get(column) {
                Some(b'r') => padding,
                _ => 0,
            };
            line.extend(std::iter::repeat_n(' ', GAP + before));
            match (colour && !cell.code.is_empty(), cell.text.is_empty()) {
                (_, true) => {}
                (true, _) => {
                    let _ = write!(line, "{}{}{RESET}", cell.code, cell.text);
                }
                (false, _) => line.push_str(&cell.text),
            }
            if !cell.text.is_empty() {
                end = line.len();
            }
            line.extend(std::iter::repeat_n(' ', padding - before));
        }
        line.truncate(end);
        text.push_str(&line);
        text.push('\n');
    }
}

fn total(widths: &[usize]) -> usize {
    widths.iter().map(|width| GAP + width).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(table: &Table, width: usize, wanted: Expect) {
        let text = table.render_within(Some(width), false);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest.unwrap_or(0) <= width, "{text}");
        wanted.assert_eq(&without_margin(&text));
    }

    /// The lines without the margin of two spaces that each of them has; expected texts lose their own.
    fn without_margin(text: &str) -> String {
        let lines = text.lines().map(|line| match line.is_empty() {
            true => "\n".to_owned(),
            false => format!("{}\n", line.strip_prefix("  ").expect("a margin")),
        });
        lines.collect()
    }

    fn tenants() -> Table {
        let mut table = Table::new("lrrr", &["tenant", "goodput Gb/s", "p99 us", "cores"]);
        table.row(vec!["cache", "0.0123", "2.10", "0"]);
        table.row(vec!["backup", "96.64", "1234.5", "1.63"]);
        table
    }

    #[test]
    fn numbers_are_aligned_right_and_text_left() {
        expect![[r#"
              tenant  goodput Gb/s  p99 us  cores
              cache         0.0123    2.10      0
              backup         96.64  1234.5   1.63
        "#]]
        .assert_eq(&without_margin(&tenants().render()));
    }

    #[test]
    fn columns_that_do_not_fit_are_below_beside_the_key() {
        check(
            &tenants(),
            32,
            expect![[r#"
                  tenant  goodput Gb/s  p99 us
                  cache         0.0123    2.10
                  backup         96.64  1234.5

                  tenant  cores
                  cache       0
                  backup   1.63
            "#]],
        );
    }

    #[test]
    fn a_column_of_sentences_is_broken_at_spaces() {
        let mut table = Table::new("lrl", &["parameter", "value", "source"]);
        table.row(vec![
            "link.rate",
            "100",
            "the data sheet of the card, page 2",
        ]);
        check(
            &table,
            46,
            expect![[r#"
                  parameter  value  source
                  link.rate    100  the data sheet of the
                                    card, page 2
            "#]],
        );
    }

    #[test]
    fn stacked_headings_take_a_line_for_each_word_and_colours_no_room() {
        let mut table = Table::new("lr", &["policy", "RC errors"]).stacked();
        table.row(vec![Cell::from("none"), Cell::painted("6/6", "\x1b[31m")]);
        expect![[r#"
              policy      RC
                      errors
              none       6/6
        "#]]
        .assert_eq(&without_margin(&table.render()));
        let coloured = table.render_within(Some(80), true);
        assert!(
            coloured.ends_with("     \x1b[31m6/6\x1b[0m\n"),
            "{coloured:?}"
        );
    }

    #[test]
    fn counts_have_the_noun_s_number() {
        let said = [
            counted(1, "attacker"),
            counted(2, "attacker"),
            counted(0, "anomaly"),
            counted(1, "anomaly"),
            counted(3, "process"),
            counted(2, "key"),
        ];
        let want = "1 attacker, 2 attackers, 0 anomalies, 1 anomaly, 3 processes, 2 keys";
        assert_eq!(said.join(", "), want);
    }
}
