//! Parts of a JSON text, found in place.
//!
//! Problem: a scheduler's request has megabytes of nodes, and only a name and one annotation of each matter; a tree of
//! values takes a hundred times the text. Method: the whole text is checked once, without building anything; after that
//! a part is a slice of the text, found by counting brackets outside strings. Units: bytes. Limits: a search reads its
//! part from the beginning each time. Where a field comes twice, the last one counts.

use serde::de::IgnoredAny;

/// One valid value, without the space around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Json<'a>(&'a str);

impl<'a> Json<'a> {
    /// The text as one value. The error says what is no JSON, and where.
    pub(super) fn check(bytes: &'a [u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        serde_json::from_str::<IgnoredAny>(text).map_err(|error| error.to_string())?;
        Ok(Self(text.trim_matches(SPACE)))
    }

    /// The value as it was written.
    pub(super) fn raw(self) -> &'a str {
        self.0
    }

    /// The text of a string; none where it is another value.
    pub(super) fn text(self) -> Option<String> {
        serde_json::from_str(self.0).ok()
    }

    /// Length as it was written, bytes.
    pub(super) fn length(self) -> usize {
        self.0.len()
    }

    pub(super) fn is_text(self) -> bool {
        self.0.starts_with('"')
    }

    pub(super) fn is_null(self) -> bool {
        self.0 == "null"
    }

    pub(super) fn is_object(self) -> bool {
        self.0.starts_with('{')
    }

    /// Names and values of an object; nothing where it is another value.
    pub(super) fn fields(self) -> impl Iterator<Item = (Json<'a>, Json<'a>)> {
        let mut parts = Parts::of(self.0, '{');
        std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
    }

    /// The field of exactly this name.
    pub(super) fn field(self, name: &str) -> Option<Json<'a>> {
        let named = self.fields().filter(|(key, _)| key.is(name));
        named.last().map(|(_, value)| value)
    }

    /// The values of a list; nothing where it is another value.
    pub(super) fn items(self) -> impl Iterator<Item = Json<'a>> {
        Parts::of(self.0, '[')
    }

    pub(super) fn is(self, name: &str) -> bool {
        // A name without escapes, the usual case, is compared in place.
        let plain = self.0.get(1..self.0.len() - 1).unwrap_or_default();
        match plain.contains('\\') {
            true => self.text().as_deref() == Some(name),
            false => plain == name,
        }
    }
}

/// The parts between the brackets of a value, without commas and colons.
struct Parts<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str, open: char) -> Self {
        let inner = text.strip_prefix(open).unwrap_or("]");
        Self { text: inner, at: 0 }
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Json<'a>;

    fn next(&mut self) -> Option<Json<'a>> {
        let bytes = self.text.as_bytes();
        let between = |byte: &u8| b" \t\r\n,:".contains(byte);
        self.at += bytes[self.at..]
            .iter()
            .take_while(|byte| between(byte))
            .count();
        match bytes.get(self.at)? {
            b']' | b'}' => None,
            _ => {
                let from = self.at;
                self.at = end(bytes, from);
                Some(Json(&self.text[from..self.at]))
            }
        }
    }
}

/// Where the value that begins at `from` ends.
fn end(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    let mut depth = 0u64;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = string_end(bytes, at),
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth -= 1;
                at += 1;
            }
            _ if depth > 0 => {
                at += 1;
                continue;
            }
            _ => {
                let plain = |byte: &&u8| !b" \t\r\n,]}".contains(byte);
                at += bytes[at..].iter().take_while(plain).count();
            }
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// One past the quote that ends the string at `from`.
fn string_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// White space of JSON.
const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn check(text: &str) -> Json<'_> {
        Json::check(text.as_bytes()).unwrap()
    }

    #[test]
    fn parts_are_slices_of_the_text() {
        let text = check(" {\"a\" : [1, {\"b]\": \"}\\\"\"} ,null,\"x,y\"], \"\\u0061b\":-2e3}\n");
        let parts: Vec<&str> = text.field("a").unwrap().items().map(Json::raw).collect();
        assert_eq!(parts, ["1", "{\"b]\": \"}\\\"\"}", "null", "\"x,y\""]);
        assert_eq!(text.field("ab").unwrap().raw(), "-2e3");
        assert_eq!(text.field("b]"), None);
        assert_eq!(check("{\"a\":1,\"a\":2}").field("a").unwrap().raw(), "2");
        assert_eq!(
            check("7").items().count() + check("[[],{}]").fields().count(),
            0
        );
        assert!(Json::check(b"{\"a\":}").is_err() && Json::check(b"\"\xff\"").is_err());
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i32>().prop_map(Value::from),
            "[a\"\\\\{}\\[\\],: ]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 4, |inner| {
            let name = "[a\"\\\\{}\\[\\],: ]{0,3}";
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(name, inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Goal: parts are those of a real parser. Method: any value, written plainly and with spaces, taken apart.
        #[test]
        fn parts_are_what_a_parser_finds(value in values(), pretty in any::<bool>()) {
            let text = match pretty {
                true => serde_json::to_string_pretty(&value).unwrap(),
                false => value.to_string(),
            };
            let json = check(&text);
            let parse = |part: Json<'_>| serde_json::from_str::<Value>(part.raw()).unwrap();
            let items: Vec<Value> = json.items().map(parse).collect();
            prop_assert_eq!(items, value.as_array().cloned().unwrap_or_default());
            let fields: Vec<(String, Value)> = json.fields().map(|(name, value)| (name.text().unwrap(), parse(value))).collect();
            let known = value.as_object().cloned().unwrap_or_default();
            prop_assert_eq!(fields, known.into_iter().collect::<Vec<_>>());
        }
    }
}
