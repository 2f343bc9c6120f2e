//! The JSON schema of a scenario.

use crate::model::MESSAGE_MAX;
use crate::spec::{APPLICATION, CONTROL, GUARANTEE, SLO, TENANT, TOP, TRAFFIC};
use crate::stack;
use isolane_common_toml_input::keys::{Key, Kind};
use isolane_common_toml_input::schema::{object, size, titled};
use serde_json::{Map, Value, json};

/// The schema of a scenario, for editors that complete TOML by a JSON schema.
pub fn scenario() -> Value {
    titled("Scenario", object(TOP, below))
}

fn below(key: &Key) -> Value {
    if matches!(key.kind, Kind::Pattern) {
        let one = size(1, MESSAGE_MAX.get());
        return json!({ "type": "array", "minItems": 1, "items": { "anyOf": [one, { "type": "array", "minItems": 1, "items": one }] } });
    }
    let keys = match key.name {
        "policy" => return policy(),
        "network" => return isolane_network_scenario::schema::behind(),
        "tenant" => TENANT,
        "traffic" => TRAFFIC,
        "application" => APPLICATION,
        "guarantee" => GUARANTEE,
        "slo" => SLO,
        _ => CONTROL,
    };
    object(keys, below)
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
