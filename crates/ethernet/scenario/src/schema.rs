//! The JSON schema of a scenario.

use crate::parse;
use isolane_common_toml_input::keys::Key;
use isolane_common_toml_input::schema::{object, titled};
use serde_json::Value;

/// The schema of a scenario.
pub fn scenario() -> Value {
    titled("Study of ordinary cards", object(parse::TOP, below))
}

fn below(key: &Key) -> Value {
    let keys = match key.name {
        "nic" => parse::NIC,
        "flows" => parse::FLOWS,
        _ => parse::CLUSTER,
    };
    object(keys, below)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_study_schema_lists_the_configurations() {
        let schema = super::scenario();
        let config = &schema["properties"]["nic"]["properties"]["config"]["enum"];
        assert_eq!(config[0], "C1");
        assert_eq!(schema["properties"]["cluster"]["required"][0], "hosts");
    }
}
