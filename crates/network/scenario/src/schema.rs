//! The JSON schema of a network's scenario.

use crate::keys::{self, CALL_MAX};
use crate::parameters;
use crate::sizes::PUBLISHED;
use isolane_common_toml_input::keys::{Key, Kind};
use isolane_common_toml_input::policy_parameter::PolicyParameter;
use isolane_common_toml_input::schema::{object, size, titled};
use serde_json::{Value, json};

/// The schema of a network's scenario.
pub fn scenario() -> Value {
    titled("Network scenario", object(keys::TOP, below))
}

/// The schema of the network behind RDMA hosts: `[network]` of their scenario.
pub fn behind() -> Value {
    object(keys::BEHIND, below)
}

fn below(key: &Key) -> Value {
    if matches!(key.kind, Kind::Sizes) {
        return sizes();
    }
    let keys = match key.name {
        "fabric" => keys::FABRIC,
        "ports" => keys::PORTS,
        "ecn" => keys::ECN,
        "pfc" => keys::PFC,
        "class" => keys::CLASS,
        "slo" => keys::SLO,
        "traffic" => keys::TRAFFIC,
        "transport" => keys::TRANSPORT,
        _ => keys::POLICY,
    };
    let mut schema = object(keys, below);
    let lists: Vec<&[PolicyParameter]> = match key.name {
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

/// One distribution, or one per class.
fn sizes() -> Value {
    let size = size(1, CALL_MAX);
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

#[cfg(test)]
mod tests {
    #[test]
    fn the_network_schema_has_every_level_and_parameter() {
        let schema = super::scenario();
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
    }
}
