//! Parameters of policies and transports: names, ranges and meaning.

/// A parameter of a policy.
#[derive(Clone, Copy, Debug)]
pub struct PolicyParameter {
    /// Name; its unit ends it.
    pub name: &'static str,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Help text.
    pub about: &'static str,
}

/// A parameter called `name` within `range`.
pub const fn parameter(
    name: &'static str,
    range: (f64, f64),
    about: &'static str,
) -> PolicyParameter {
    PolicyParameter {
        name,
        min: range.0,
        max: range.1,
        about,
    }
}
