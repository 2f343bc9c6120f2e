//! JSON schemas: of a result, and of a scenario as it is written.
//!
//! The scenario's schema is made from the same list of keys that the parser checks, so that the two cannot part.

use crate::measure::RunResult;
use crate::spec::{APPLICATION, CONTROL, GUARANTEE, Key, Kind, SLO, TENANT, TOP, TRAFFIC};
use crate::stack;
use serde_json::{Map, Value, json};

/// The schema of the JSON form of a [`RunResult`].
pub fn result() -> Value {
    schemars::schema_for!(RunResult).to_value()
}

/// The schema of a scenario, for editors that complete TOML by a JSON schema.
pub fn scenario() -> Value {
    let mut schema = object(TOP);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Scenario");
    schema
}

fn object(keys: &[Key]) -> Value {
    let mut properties = Map::new();
    for key in keys {
        let mut property = property(key);
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

fn property(key: &Key) -> Value {
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
        Kind::Pattern => {
            let one = size(1, crate::model::MESSAGE_MAX.get());
            json!({ "type": "array", "minItems": 1, "items": { "anyOf": [one, { "type": "array", "minItems": 1, "items": one }] } })
        }
        Kind::Table if key.name == "policy" => policy(),
        Kind::Table => object(below(key.name)),
        Kind::Tables => json!({ "type": "array", "items": object(below(key.name)) }),
    }
}

fn size(min: u64, max: u64) -> Value {
    json!({ "anyOf": [{ "type": "integer", "minimum": min, "maximum": max }, { "type": "string" }] })
}

fn below(name: &str) -> &'static [Key] {
    match name {
        "tenant" => TENANT,
        "traffic" => TRAFFIC,
        "application" => APPLICATION,
        "guarantee" => GUARANTEE,
        "slo" => SLO,
        _ => CONTROL,
    }
}

/// Any stack of parts, with every parameter there is; the parser checks which of them the stack has.
fn policy() -> Value {
    let mut properties = Map::new();
    properties.insert(
        "name".to_owned(),
        json!({
            "type": "string",
            "examples": stack::ALL,
            "pattern": format!("^({0})( *\\+ *({0}))*$", stack::part_names().collect::<Vec<_>>().join("|")),
        }),
    );
    for name in stack::part_names() {
        for parameter in stack::parameters(name) {
            let range = json!({
                "type": ["number", "boolean"],
                "minimum": parameter.min,
                "maximum": parameter.max,
                "description": parameter.about,
            });
            properties.insert(parameter.name.to_owned(), range);
        }
    }
    json!({ "type": "object", "properties": properties, "required": ["name"], "additionalProperties": false })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_result_schema_names_the_units() {
        let text = super::result().to_string();
        assert!(text.contains("goodput_gbps") && text.contains("latency_us"));
    }

    #[test]
    fn the_scenario_schema_has_every_level() {
        let schema = super::scenario();
        let tenant = &schema["properties"]["tenant"]["items"]["properties"];
        let traffic = &tenant["traffic"]["items"]["properties"];
        assert_eq!(traffic["queue_pairs"]["maximum"], 20_000);
        let policy = &schema["properties"]["policy"]["properties"];
        assert_eq!(policy["name"]["examples"][0], "none");
        assert_eq!(policy["target_us"]["type"][0], "number");
        assert_eq!(tenant["slo"]["properties"]["p99_max"]["type"], "string");
    }
}
