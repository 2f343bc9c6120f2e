//! Numbers that a policy's own code gives without a run: what claims of kind `arithmetic` call.
//!
//! Problem: a paper states what follows from its formats and formulas (bytes per poll, an interval, a division of
//! a bus), and a claim that typed the same formula would only check itself. So each name here calls the code that
//! the simulator runs. Units: as each entry says. Limits: arguments are plain numbers.

mod aequitas;
mod harmonic;
mod palos;

/// One function.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Its name in formulas.
    pub name: &'static str,
    /// The arguments it needs, by name.
    pub arguments: &'static [&'static str],
    /// The code.
    run: fn(&[f64]) -> Result<f64, String>,
}

const fn model(
    name: &'static str,
    arguments: &'static [&'static str],
    run: fn(&[f64]) -> Result<f64, String>,
) -> Model {
    Model {
        name,
        arguments,
        run,
    }
}

/// The functions of `system`; none for a system without functions.
fn all(system: &str) -> &'static [Model] {
    match system {
        "aequitas" => aequitas::MODELS,
        "harmonic" => harmonic::MODELS,
        "palos" => palos::MODELS,
        _ => &[],
    }
}

/// The function called `name` of `system`.
pub fn find(system: &str, name: &str) -> Option<&'static Model> {
    all(system).iter().find(|model| model.name == name)
}

/// The names of `system`'s functions.
pub fn names(system: &str) -> impl Iterator<Item = &'static str> + use<> {
    all(system).iter().map(|model| model.name)
}

/// The value of `name` of `system` with `arguments` by name. Fails for an unknown name, a missing argument, or a value
/// that the code refuses.
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

/// `value` as a whole number, at least 1.
fn whole(name: &str, value: f64) -> Result<u64, String> {
    let fits = value.fract() == 0.0 && (1.0..=1e15).contains(&value);
    fits.then_some(value as u64)
        .ok_or_else(|| format!("{name} = {value}: must be a whole number from 1 to 10^15"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_has_a_name_of_its_own() {
        for system in ["aequitas", "harmonic", "palos"] {
            let mut seen = std::collections::BTreeSet::new();
            assert!(names(system).all(|name| seen.insert(name)), "{system}");
            assert!(!seen.is_empty(), "{system}");
        }
    }

    #[test]
    fn what_is_asked_wrongly_is_refused() {
        let says = |name: &str, arguments: &[(&str, f64)]| {
            let arguments: Vec<(String, f64)> = arguments
                .iter()
                .map(|(key, value)| ((*key).to_owned(), *value))
                .collect();
            value("palos", name, &arguments).unwrap_err()
        };
        assert!(says("nothing", &[]).contains("palos has no \"nothing\""));
        assert!(says("weight_entries_written", &[]).contains("needs queue_pairs="));
        assert!(says("weight_entries_written", &[("queue_pairs", 0.5)]).contains("whole number"));
    }
}
