//! JSON schemas: of a result, and of a scenario as it is written.
//!
//! The scenario's schema is made from the same list of keys that the parser checks, so that the two cannot part.

use crate::fabric::keys as network;
use crate::fabric::parameters;
use crate::fabric::result::FabricResult;
use crate::fabric::sizes::PUBLISHED;
use crate::measure::RunResult;
use crate::mem::keys as memory;
use crate::mem::result::MemResult;
use crate::nic::parse as nic;
use crate::nic::result::NicResult;
use crate::policy_parts::PolicyParameter;
use crate::spec::{APPLICATION, CONTROL, GUARANTEE, Key, Kind, SLO, TENANT, TOP, TRAFFIC};
use crate::stack;
use serde_json::{Map, Value, json};

/// The schema of the JSON form of a [`RunResult`].
pub fn result() -> Value {
    schemars::schema_for!(RunResult).to_value()
}

/// The schema of a scenario, for editors that complete TOML by a JSON schema.
pub fn scenario() -> Value {
    titled("Scenario", object(TOP, below))
}

/// The schema of the JSON form of a [`FabricResult`].
pub fn network_result() -> Value {
    schemars::schema_for!(FabricResult).to_value()
}

/// The schema of a network's scenario.
pub fn network_scenario() -> Value {
    titled("Network scenario", object(network::TOP, network_below))
}

/// The schema of the JSON form of a [`NicResult`].
pub fn nic_result() -> Value {
    schemars::schema_for!(NicResult).to_value()
}

/// The schema of a study of ordinary cards.
pub fn nic_scenario() -> Value {
    titled("Study of ordinary cards", object(nic::TOP, nic_below))
}

/// The schema of the JSON form of a [`MemResult`].
pub fn memory_result() -> Value {
    schemars::schema_for!(MemResult).to_value()
}

/// The schema of a scenario of tiered memory.
pub fn memory_scenario() -> Value {
    titled("Tiered memory scenario", object(memory::TOP, memory_below))
}

fn titled(title: &str, mut schema: Value) -> Value {
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!(title);
    schema
}

/// An object of `keys`; `below` is the schema of a table by its key.
fn object(keys: &[Key], below: fn(&str) -> Value) -> Value {
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

fn property(key: &Key, below: fn(&str) -> Value) -> Value {
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
        Kind::Sizes => sizes(),
        Kind::Table => below(key.name),
        Kind::Tables => json!({ "type": "array", "items": below(key.name) }),
    }
}

/// One distribution, or one per class.
fn sizes() -> Value {
    let size = size(1, network::CALL_MAX);
    let names: Vec<&str> = PUBLISHED.iter().map(|one| one.name).collect();
    let point = json!({
        "type": "array",
        "prefixItems": [size, { "type": "number", "minimum": 0, "maximum": 1 }],
        "minItems": 2,
        "maxItems": 2,
    });
    let one = json!({ "anyOf": [size, { "enum": names }, { "type": "array", "items": point, "minItems": 1 }] });
    json!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
}

fn size(min: u64, max: u64) -> Value {
    json!({ "anyOf": [{ "type": "integer", "minimum": min, "maximum": max }, { "type": "string" }] })
}

fn below(name: &str) -> Value {
    let keys = match name {
        "policy" => return policy(),
        "network" => return object(network::BEHIND, network_below),
        "tenant" => TENANT,
        "traffic" => TRAFFIC,
        "application" => APPLICATION,
        "guarantee" => GUARANTEE,
        "slo" => SLO,
        _ => CONTROL,
    };
    object(keys, below)
}

fn network_below(name: &str) -> Value {
    let keys = match name {
        "fabric" => network::FABRIC,
        "ports" => network::PORTS,
        "ecn" => network::ECN,
        "pfc" => network::PFC,
        "class" => network::CLASS,
        "slo" => network::SLO,
        "traffic" => network::TRAFFIC,
        "transport" => network::TRANSPORT,
        _ => network::POLICY,
    };
    let mut schema = object(keys, network_below);
    let lists: Vec<&[PolicyParameter]> = match name {
        "transport" => parameters::every_congestion()
            .map(|(_, list)| list)
            .collect(),
        "policy" => parameters::every_policy().collect(),
        _ => Vec::new(),
    };
    for parameter in lists.into_iter().flatten() {
        schema["properties"][parameter.name] = json!({
            "type": "number",
            "minimum": parameter.min,
            "maximum": parameter.max,
            "description": parameter.about,
        });
    }
    schema
}

fn nic_below(name: &str) -> Value {
    let keys = match name {
        "nic" => nic::NIC,
        "flows" => nic::FLOWS,
        _ => nic::CLUSTER,
    };
    object(keys, nic_below)
}

fn memory_below(name: &str) -> Value {
    let keys = match name {
        "memory" => memory::MEMORY_KEYS,
        "policy" => memory::POLICY,
        "app" => memory::APP,
        _ => memory::CHANGE,
    };
    object(keys, memory_below)
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
    fn the_study_schema_lists_the_configurations() {
        let schema = super::nic_scenario();
        let config = &schema["properties"]["nic"]["properties"]["config"]["enum"];
        assert_eq!(config[0], "C1");
        assert_eq!(schema["properties"]["cluster"]["required"][0], "hosts");
        assert!(super::nic_result().to_string().contains("cpu_percent"));
    }

    #[test]
    fn the_memory_schema_has_every_level_and_unit() {
        let schema = super::memory_scenario();
        let app = &schema["properties"]["app"]["items"]["properties"];
        assert_eq!(app["kind"]["enum"][0], "bandwidth");
        assert_eq!(app["change"]["items"]["required"][0], "at");
        let text = super::memory_result().to_string();
        assert!(text.contains("latency_ns") && text.contains("bandwidth_gb_per_s"));
    }

    #[test]
    fn the_network_schema_has_every_level_and_parameter() {
        let schema = super::network_scenario();
        let properties = &schema["properties"];
        assert_eq!(properties["fabric"]["required"][0], "topology");
        assert_eq!(
            properties["class"]["items"]["properties"]["slo"]["required"][0],
            "target"
        );
        assert_eq!(
            properties["transport"]["properties"]["target_us"]["type"],
            "number"
        );
        assert_eq!(properties["policy"]["properties"]["floor"]["maximum"], 1.0);
        let text = super::network_result().to_string();
        assert!(text.contains("rnl_per_mtu_us") && text.contains("measured_s"));
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
