//! Text to tokens.

use super::SyntaxError;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Number(f64),
    /// A word: a function, a label or a plain argument.
    Word(String),
    Quoted(String),
    /// `label:tenant.field`, taken apart.
    Measurement(String, String, String),
    /// Operators and punctuation: `+ - * / ( ) , = < <= > >=`.
    Symbol(&'static str),
}

/// A token and where it starts (byte offset).
pub(super) type Located = (usize, Token);

const SYMBOLS: [&str; 12] = ["<=", ">=", "<", ">", "+", "-", "*", "/", "(", ")", ",", "="];

pub(super) fn tokens(text: &str) -> Result<Vec<Located>, SyntaxError> {
    let mut located = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let (length, token) = if first.is_ascii_digit() {
            number(rest, at)?
        } else if first.is_ascii_alphabetic() || first == '_' {
            word_or_measurement(rest, at)?
        } else if first == '"' || first == '\'' {
            quoted(rest, first, at)?
        } else if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            (symbol.len(), Token::Symbol(symbol))
        } else {
            return Err(error(at, format!("unexpected {first:?}")));
        };
        located.push((at, token));
        at += length;
    }
    Ok(located)
}

fn number(rest: &str, at: usize) -> Result<(usize, Token), SyntaxError> {
    let mut length = prefix(rest, |c| c.is_ascii_digit() || c == '.' || c == '_');
    // An exponent belongs to the number only when digits follow: `2e` is a mistake, not `2` and `e`.
    if rest[length..].starts_with(['e', 'E']) {
        let sign = usize::from(rest[length + 1..].starts_with(['+', '-']));
        let digits = prefix(&rest[length + 1 + sign..], |c| c.is_ascii_digit());
        length += 1 + sign + digits;
    }
    let text: String = rest[..length].chars().filter(|c| *c != '_').collect();
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok((length, Token::Number(value))),
        _ => Err(error(at, format!("{:?} is not a number", &rest[..length]))),
    }
}

fn word_or_measurement(rest: &str, at: usize) -> Result<(usize, Token), SyntaxError> {
    let word = prefix(rest, is_word);
    let label = &rest[..word];
    if !rest[word..].starts_with(':') {
        return Ok((word, Token::Word(label.to_owned())));
    }
    let tenant_at = word + 1;
    let tenant = prefix(&rest[tenant_at..], |c| is_word(c) || c == '-' || c == '*');
    let field_at = tenant_at + tenant + 1;
    if tenant == 0 || !rest[tenant_at + tenant..].starts_with('.') {
        return Err(error(
            at,
            format!("{label:?} begins a measurement: write label:tenant.field"),
        ));
    }
    let field = prefix(&rest[field_at..], |c| is_word(c) || c == '.');
    if field == 0 {
        return Err(error(
            at,
            format!("the measurement of {label:?} names no field"),
        ));
    }
    let token = Token::Measurement(
        label.to_owned(),
        rest[tenant_at..tenant_at + tenant].to_owned(),
        rest[field_at..field_at + field].to_owned(),
    );
    Ok((field_at + field, token))
}

fn quoted(rest: &str, quote: char, at: usize) -> Result<(usize, Token), SyntaxError> {
    match rest[1..].find(quote) {
        Some(length) => Ok((length + 2, Token::Quoted(rest[1..1 + length].to_owned()))),
        None => Err(error(at, "a quoted name that does not end".to_owned())),
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Length in bytes of the longest prefix whose (ASCII) characters all satisfy `accept`.
fn prefix(text: &str, accept: impl Fn(char) -> bool) -> usize {
    text.find(|c| !accept(c)).unwrap_or(text.len())
}

fn error(at: usize, message: String) -> SyntaxError {
    SyntaxError {
        position: at + 1,
        message,
    }
}
