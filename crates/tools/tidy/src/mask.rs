//! Rust text with everything but code blanked, so that a search finds code and nothing else.
//!
//! Every masked character becomes one space and line breaks stay, so that line numbers hold. This is a lexer for
//! comments, strings and character literals, not a parser.

/// `text` with comments, strings and character literals blanked.
pub(crate) fn code_only(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut masked = String::with_capacity(text.len());
    let mut at = 0;
    while at < characters.len() {
        let end = literal_or_comment_end(&characters, at);
        if end == at {
            masked.push(characters[at]);
            at += 1;
        } else {
            masked.extend(characters[at..end].iter().map(|&c| blank(c)));
            at = end;
        }
    }
    masked
}

/// `masked` (see [`code_only`]) with every item behind `#[cfg(test)]` blanked too.
pub(crate) fn without_tests(masked: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut result = String::with_capacity(masked.len());
    let mut rest = masked;
    while let Some(start) = rest.find(MARK) {
        let end = start + item_end(&rest[start..]);
        result.push_str(&rest[..start]);
        result.extend(rest[start..end].chars().map(blank));
        rest = &rest[end..];
    }
    result.push_str(rest);
    result
}

/// Byte length of the item at the start of `text`: to its semicolon or to its matching brace.
fn item_end(text: &str) -> usize {
    let mut depth = 0_usize;
    for (index, character) in text.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth <= 1 => return index + 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return index + 1,
            _ => {}
        }
    }
    text.len()
}

/// Where the comment, string or character literal that starts at `at` ends; `at` itself when none starts there.
fn literal_or_comment_end(text: &[char], at: usize) -> usize {
    let next = text.get(at + 1).copied();
    match text[at] {
        '/' if next == Some('/') => (at..text.len())
            .find(|&index| text[index] == '\n')
            .unwrap_or(text.len()),
        '/' if next == Some('*') => block_comment_end(text, at),
        '"' => quoted_end(text, at, '"'),
        '\'' if next == Some('\\') || text.get(at + 2) == Some(&'\'') => quoted_end(text, at, '\''),
        'r' => raw_string_end(text, at),
        _ => at,
    }
}

fn block_comment_end(text: &[char], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at + 1 < text.len() {
        match (text[at], text[at + 1]) {
            ('/', '*') => {
                depth += 1;
                at += 2;
            }
            ('*', '/') => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    text.len()
}

fn quoted_end(text: &[char], start: usize, quote: char) -> usize {
    let mut at = start + 1;
    while at < text.len() {
        match text[at] {
            '\\' => at += 2,
            character if character == quote => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

fn raw_string_end(text: &[char], start: usize) -> usize {
    let identifier = |index: usize| text[index].is_alphanumeric() || text[index] == '_';
    let prefix = start > 0 && matches!(text[start - 1], 'b' | 'c');
    let before = if prefix { start - 1 } else { start };
    if before > 0 && identifier(before - 1) {
        return start;
    }
    let hashes = text[start + 1..].iter().take_while(|&&c| c == '#').count();
    let open = start + 1 + hashes;
    if text.get(open) != Some(&'"') {
        return start;
    }
    (open + 1..text.len())
        .find(|&at| {
            text[at] == '"'
                && text[at + 1..].len() >= hashes
                && text[at + 1..at + 1 + hashes].iter().all(|&c| c == '#')
        })
        .map_or(text.len(), |at| at + 1 + hashes)
}

fn blank(character: char) -> char {
    if character == '\n' { '\n' } else { ' ' }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(code_only(text), expected);
    }

    #[test]
    fn comments_are_blanked_and_lines_kept() {
        check("a // b\nc", "a     \nc");
        check("a /* b /* c */\n d */ e", "a             \n      e");
    }

    #[test]
    fn strings_are_blanked_with_their_escapes() {
        check(r#"f("a\"b", c)"#, "f(      , c)");
        check("f(\"one\ntwo\") g", "f(    \n    ) g");
    }

    #[test]
    fn raw_strings_end_at_their_own_hashes() {
        check("r#\"a\"b\"# c", "         c");
        check("br\"a\" c", "b     c");
        check("r#type + bar\"x\"", "r#type + bar   ");
    }

    #[test]
    fn lifetimes_are_code_and_characters_are_not() {
        check("&'a str, '\"', '\\'', b", "&'a str,    ,     , b");
    }

    #[test]
    fn test_items_are_blanked_to_their_closing_brace() {
        let masked = without_tests("a\n#[cfg(test)]\nmod tests { fn b() {} }\nc");
        assert_eq!(masked.replace(' ', ""), "a\n\n\nc");
        let masked = without_tests("#[cfg(test)]\nmod slow_model;\nc");
        assert_eq!(masked.replace(' ', ""), "\n\nc");
    }
}
