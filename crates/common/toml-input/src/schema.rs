//! JSON schemas of formats, generated from the key lists of their parsers, so that both always agree.

use crate::keys::{Key, Kind};
use serde_json::{Map, Value, json};

/// `schema` with the draft that it follows and its `title`.
pub fn titled(title: &str, mut schema: Value) -> Value {
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!(title);
    schema
}

/// An object of `keys`. `below` gives the schema of a key that only its format knows: a table, a list of tables' element,
/// messages, sizes of calls.
pub fn object(keys: &[Key], below: fn(&Key) -> Value) -> Value {
    let mut properties = Map::new();
    for key in keys {
        let mut property = property(key, below);
        property["description"] = json!(key.about);
        properties.insert(key.name.to_owned(), property);
    }
    let required: Vec<&str> = keys
        .iter()
        .filter(|key| key.required)
        .map(|key| key.name)
        .collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn property(key: &Key, below: fn(&Key) -> Value) -> Value {
    let text = json!({ "type": "string" });
    match key.kind {
        Kind::Text | Kind::Duration { .. } | Kind::Rate => text,
        Kind::Count { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Size { min, max } => size(min, max),
        Kind::Choice(names) => json!({ "type": "string", "enum": names }),
        Kind::Commands => {
            json!({ "anyOf": [text, { "type": "array", "items": { "type": "string" }, "minItems": 1 }] })
        }
        Kind::Number { min, max } => json!({ "type": "number", "minimum": min, "maximum": max }),
        Kind::Hosts => {
            json!({ "anyOf": [text, { "type": "array", "items": { "type": "integer", "minimum": 0 }, "minItems": 1 }] })
        }
        Kind::Pairs => {
            let pair = json!({ "type": "array", "items": { "type": "integer", "minimum": 0 }, "minItems": 2, "maxItems": 2 });
            json!({ "type": "array", "items": pair, "minItems": 1 })
        }
        Kind::Shares => {
            json!({ "type": "array", "items": { "type": "number", "minimum": 0, "maximum": 1 }, "minItems": 1 })
        }
        Kind::Pattern | Kind::Sizes | Kind::Table => below(key),
        Kind::Tables => json!({ "type": "array", "items": below(key) }),
    }
}

/// A size from `min` to `max` bytes: a number, or text with a unit.
pub fn size(min: u64, max: u64) -> Value {
    json!({ "anyOf": [{ "type": "integer", "minimum": min, "maximum": max }, { "type": "string" }] })
}
