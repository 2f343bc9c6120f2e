//! Readers shared by several settings files: names, paths, and fractional numbers.

use isolane_common_toml_input::error::InputError;
use isolane_common_toml_input::table::Table;
use std::path::PathBuf;
use toml::de::DeValue;

type Result<T> = std::result::Result<T, InputError>;

/// Longest name, bytes.
pub(crate) const NAME_MAX: usize = 64;

/// Whether `name` is allowed: names appear in metadata, in keys of stores and in labels.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(plain)
}

/// The table's required `name`.
pub(crate) fn name(table: &Table<'_>) -> Result<String> {
    let name = table.text("name")?.expect("the key is required");
    match is_name(name) {
        true => Ok(name.to_owned()),
        false => Err(table.wrong(
            "name",
            format!(
                "must be 1 to {NAME_MAX} letters, digits, '-', '_' or '.': it travels in metadata"
            ),
        )),
    }
}

/// An absolute path of a file or directory.
pub(crate) fn absolute(table: &Table<'_>, key: &str) -> Result<Option<PathBuf>> {
    match table.text(key)? {
        None => Ok(None),
        Some(path) if path.starts_with('/') => Ok(Some(path.into())),
        Some(_) => Err(table.wrong(key, "must be an absolute path")),
    }
}

pub(crate) fn number(table: &Table<'_>, key: &str) -> Result<Option<f64>> {
    let Some(value) = table.raw(key) else {
        return Ok(None);
    };
    let number = match value.get_ref() {
        DeValue::Integer(integer) => integer.as_str().parse::<f64>().ok(),
        DeValue::Float(float) => float.as_str().parse().ok(),
        _ => None,
    };
    match number.filter(|number| number.is_finite()) {
        Some(number) => Ok(Some(number)),
        None => Err(table.wrong(key, "must be a number")),
    }
}
