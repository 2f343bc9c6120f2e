//! Names of scenarios, tenants and the like.

use crate::error::InputError;
use crate::table::Table;

/// Longest name, bytes.
const NAME_MAX: usize = 100;

/// The file's name without directories and `.toml`: the default name of a scenario.
pub fn stem(file: &str) -> &str {
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
    match name.strip_suffix(".toml") {
        Some(stem) if !stem.is_empty() => stem,
        _ if name.is_empty() => "scenario",
        _ => name,
    }
}

/// `name`, if it is one line of printable text. Fails for a name that is empty, too long, or not printable.
pub fn checked_name<'a>(table: &Table<'_>, name: &'a str) -> Result<&'a str, InputError> {
    let printable = name.chars().all(|c| !c.is_control());
    if name.trim().is_empty() || name.len() > NAME_MAX || !printable {
        return Err(table.wrong(
            "name",
            format!("must have 1 to {NAME_MAX} bytes of printable text"),
        ));
    }
    Ok(name)
}

/// The `name` that a scenario gives itself, or the stem of its file. Fails as [`checked_name`] does.
pub fn scenario_name(top: &Table<'_>, file: &str) -> Result<String, InputError> {
    match top.text("name")? {
        Some(name) => Ok(checked_name(top, name)?.to_owned()),
        None => Ok(stem(file).to_owned()),
    }
}
