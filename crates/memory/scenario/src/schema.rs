//! The JSON schema of a scenario.

use crate::keys;
use isolane_common_toml_input::keys::Key;
use isolane_common_toml_input::schema::{object, titled};
use serde_json::Value;

/// The schema of a scenario.
pub fn scenario() -> Value {
    titled("Tiered memory scenario", object(keys::TOP, below))
}

fn below(key: &Key) -> Value {
    let keys = match key.name {
        "memory" => keys::MEMORY_KEYS,
        "policy" => keys::POLICY,
        "app" => keys::APP,
        _ => keys::CHANGE,
    };
    object(keys, below)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_memory_schema_has_every_level_and_unit() {
        let schema = super::scenario();
        let app = &schema["properties"]["app"]["items"]["properties"];
        assert_eq!(app["kind"]["enum"][0], "bandwidth");
        assert_eq!(app["change"]["items"]["required"][0], "at");
    }
}
