//! Text in lines as narrow as the terminal.
//!
//! A line that is too wide is broken at spaces. The lines that continue it hang: they begin below the text after the
//! line's last gap (two spaces or more) in the left half, or else two columns behind the line's indentation. A line
//! without gap and indentation is a paragraph and does not hang. A number stays with the word after it, its unit.
//!
//! A line with ` && ` or a comment after `   # ` is a command of a shell and stays whole, so that it can be copied.
//!
//! Limits: a character counts as one column and a colour as none. A word that is wider than the terminal stays whole.

use std::iter;

/// Columns that text has at least beside its indentation: on a narrow terminal the indentation shrinks, as it does for a long word.
const TEXT_MIN: usize = 24;

/// `text` with its lines at most `width` columns wide; as it is without a width.
pub fn wrapped(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else {
        return text.to_owned();
    };
    let lines = text.split_inclusive('\n');
    lines
        .map(|line| match line.strip_suffix('\n') {
            Some(line) => wrapped_line(line, width) + "\n",
            None => wrapped_line(line, width),
        })
        .collect()
}

fn wrapped_line(line: &str, width: usize) -> String {
    let is_command = line.contains(" && ") || line.contains("   # ");
    if is_command || columns(line) <= width {
        return line.to_owned();
    }
    let most = width.saturating_sub(TEXT_MIN);
    let text = line.trim_start_matches(' ');
    let indent = line.len() - text.len();
    let hang = last_gap(line, width / 2).or((indent > 0).then_some(indent + 2));
    let (indent, hang) = (indent.min(most), hang.unwrap_or(0).min(most));
    let rows = broken(text, width - indent, width - hang);
    let indents = iter::once(indent).chain(iter::repeat(hang));
    let rows = rows.into_iter().zip(indents).map(|(row, indent)| {
        let left = width.saturating_sub(columns(&row));
        " ".repeat(indent.min(left)) + &row
    });
    rows.collect::<Vec<_>>().join("\n")
}

/// `text` in rows: the first at most `first` columns wide, the others at most `others`. A longer word has its own row.
pub(crate) fn broken(text: &str, first: usize, others: usize) -> Vec<String> {
    let mut rows = vec![String::new()];
    let mut spaces = 0;
    for word in words(text) {
        let room = match rows.len() {
            1 => first,
            _ => others,
        };
        let row = rows.last_mut().expect("there is always a row");
        if word.is_empty() {
            spaces += 1;
        } else if row.is_empty() || columns(row) + spaces + columns(word) <= room {
            let before = if row.is_empty() { 0 } else { spaces };
            row.extend(iter::repeat_n(' ', before));
            row.push_str(word);
            spaces = 1;
        } else {
            rows.push(word.to_owned());
            spaces = 1;
        }
    }
    rows
}

/// The parts of `text` between spaces where a line may be broken; empty between two spaces.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut begin = 0;
    for (at, _) in text.match_indices(' ') {
        if !is_amount(&text[begin..at], &text[at + 1..]) {
            words.push(&text[begin..at]);
            begin = at + 1;
        }
    }
    words.push(&text[begin..]);
    words
}

/// True of a number before a word: `3.21` in `3.21 us`.
fn is_amount(before: &str, after: &str) -> bool {
    let number = before.trim_start_matches(['(', '+', '-', '~']);
    number.parse::<f64>().is_ok()
        && number.starts_with(|first: char| first.is_ascii_digit())
        && after.starts_with(|first: char| first.is_alphabetic() || first == '%')
}

/// The column after the last gap of `line` that ends at `most` columns at the latest.
fn last_gap(line: &str, most: usize) -> Option<usize> {
    let (mut gap, mut spaces, mut column) = (None, 0, 0);
    let mut in_text = false;
    for character in plain(line) {
        if character == ' ' {
            spaces += 1;
        } else {
            if in_text && spaces >= 2 && column <= most {
                gap = Some(column);
            }
            (in_text, spaces) = (true, 0);
        }
        column += 1;
    }
    gap
}

/// Columns that `text` takes.
pub(crate) fn columns(text: &str) -> usize {
    plain(text).count()
}

/// The characters of `text` without its colours.
fn plain(text: &str) -> impl Iterator<Item = char> {
    let mut in_code = false;
    text.chars().filter(move |&character| {
        let begins = character == '\x1b';
        let shown = !in_code && !begins;
        in_code = begins || (in_code && character != 'm');
        shown
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(text: &str, width: usize, wanted: Expect) {
        let found = wrapped(text, Some(width));
        wanted.assert_eq(&found);
        let widest = found.lines().map(columns).max();
        assert!(widest.unwrap_or(0) <= width, "{found}");
        // Nothing is lost but spaces and ends of lines.
        let letters = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(letters(&found), letters(text));
    }

    #[test]
    fn a_line_hangs_below_its_text() {
        check(
            "kernel\n  warn    modules         rdma_rxe is not loaded, so that there is no software device\n",
            60,
            expect![[r#"
                kernel
                  warn    modules         rdma_rxe is not loaded, so that
                                          there is no software device
            "#]],
        );
    }

    #[test]
    fn a_list_hangs_by_two_columns_and_a_paragraph_does_not() {
        let line = "the link was busy for most of the time that was measured";
        check(
            &format!("{line}\n  {line}\n"),
            40,
            expect![[r#"
                the link was busy for most of the time
                that was measured
                  the link was busy for most of the time
                    that was measured
            "#]],
        );
    }

    #[test]
    fn a_command_is_never_broken() {
        let line =
            "   do: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0   # for tests";
        assert_eq!(wrapped(line, Some(40)), line);
    }

    #[test]
    fn an_indentation_shrinks_where_it_leaves_no_room() {
        let line = format!("{:26}do: load the module of the software device", "");
        assert_eq!(
            wrapped(&line, Some(40)),
            format!(
                "{0:16}do: load the module of\n{0:16}the software device",
                ""
            )
        );
    }

    #[test]
    fn an_indentation_shrinks_for_a_long_word() {
        let line = format!("{:26}boot with systemd.unified_cgroup_hierarchy=1 only", "");
        let (first, word, last) = (" ".repeat(26), " ".repeat(26), " ".repeat(28));
        assert_eq!(
            wrapped(&line, Some(60)),
            format!("{first}boot with\n{word}systemd.unified_cgroup_hierarchy=1\n{last}only")
        );
    }

    #[test]
    fn a_number_stays_with_its_unit_and_words_stay_whole() {
        check(
            "A message waited (alone: 0 us, 97 %, +3.36 us) for 16 queue pairs.",
            26,
            expect![[r#"
                A message waited (alone:
                0 us, 97 %, +3.36 us) for
                16 queue pairs."#]],
        );
        let long = "  see https://an.example/of/an/address/without/spaces there";
        assert_eq!(
            wrapped(long, Some(30)),
            "  see\nhttps://an.example/of/an/address/without/spaces\n    there"
        );
    }

    #[test]
    fn colours_take_no_room_and_no_width_breaks_nothing() {
        let line = "\x1b[31;1mbroken\x1b[0m isolation";
        assert_eq!(wrapped(line, Some(16)), line);
        assert_eq!(
            wrapped(line, Some(15)),
            "\x1b[31;1mbroken\x1b[0m\nisolation"
        );
        let long = "word ".repeat(99);
        assert_eq!(wrapped(&long, None), long);
    }
}
