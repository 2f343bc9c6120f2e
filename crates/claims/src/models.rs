//! Numbers that a policy's own code gives without a run: what claims of kind `arithmetic` call.
//!
//! Problem: a paper states what follows from its formats and formulas (bytes per poll, an interval, a division of
//! a bus), and a claim that typed the same formula would only check itself. So each name here calls the code that
//! the simulator runs. Units: as each entry says. Limits: arguments are plain numbers.

/// One function.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// The policy it belongs to.
    pub system: &'static str,
    /// Its name in formulas.
    pub name: &'static str,
    /// The arguments it needs, by name.
    pub arguments: &'static [&'static str],
    /// What it gives, with its unit.
    pub about: &'static str,
    /// The code.
    run: fn(&[f64]) -> Result<f64, String>,
}

/// Every function, by system and name.
pub const MODELS: &[Model] = &[];

/// The function called `name` of `system`.
pub fn find(system: &str, name: &str) -> Option<&'static Model> {
    MODELS
        .iter()
        .find(|model| model.system == system && model.name == name)
}

/// The names of `system`'s functions.
pub fn names(system: &str) -> impl Iterator<Item = &'static str> {
    let own = MODELS.iter().filter(move |model| model.system == system);
    own.map(|model| model.name)
}

/// The value of `name` of `system` with `arguments` by name.
///
/// # Errors
/// An unknown name, a missing argument, or a value that the code refuses; in words for people.
pub fn value(system: &str, name: &str, arguments: &[(String, f64)]) -> Result<f64, String> {
    let model = find(system, name).ok_or_else(|| format!("{system} has no {name:?}"))?;
    let given = model.arguments.iter().map(|wanted| {
        let found = arguments.iter().find(|(key, _)| key == wanted);
        found
            .map(|(_, value)| *value)
            .ok_or_else(|| format!("{name} needs {wanted}="))
    });
    (model.run)(&given.collect::<Result<Vec<f64>, String>>()?)
}
