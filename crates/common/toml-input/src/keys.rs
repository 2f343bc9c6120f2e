//! Keys of a format: names, kinds and ranges, used by the parser and the JSON schema.

/// Kind of a key's value.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Text.
    Text,
    /// A whole number.
    Count {
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// `true` or `false`.
    Flag,
    /// A duration, picoseconds.
    Duration {
        /// Smallest value, ps.
        min: u64,
        /// Largest value, ps.
        max: u64,
    },
    /// A size, bytes.
    Size {
        /// Smallest value, bytes.
        min: u64,
        /// Largest value, bytes.
        max: u64,
    },
    /// A rate above zero.
    Rate,
    /// A number, whole or fractional.
    Number {
        /// Smallest value.
        min: f64,
        /// Largest value.
        max: f64,
    },
    /// Hosts of a network: `"0-15,20"`, `"all"` or a list of numbers.
    Hosts,
    /// Pairs of hosts: a list of lists of two numbers.
    Pairs,
    /// A list of shares that sum to one.
    Shares,
    /// Sizes of calls: a size, the name of a published distribution, a list of points, or a list of those.
    Sizes,
    /// One of a list.
    Choice(&'static [&'static str]),
    /// A command line or a list of them.
    Commands,
    /// A list of messages.
    Pattern,
    /// A table.
    Table,
    /// An array of tables.
    Tables,
}

impl Kind {
    /// A duration from `min` to `max` picoseconds.
    pub const fn duration(min: u64, max: u64) -> Self {
        Self::Duration { min, max }
    }

    /// A size from `min` to `max` bytes.
    pub const fn size(min: u64, max: u64) -> Self {
        Self::Size { min, max }
    }

    /// A number from `min` to `max`.
    pub const fn number(min: f64, max: f64) -> Self {
        Self::Number { min, max }
    }
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Name as written in the text.
    pub name: &'static str,
    /// Kind of its value.
    pub kind: Kind,
    /// Whether it is required.
    pub required: bool,
    /// Help text.
    pub about: &'static str,
}

/// An optional key.
pub const fn key(name: &'static str, kind: Kind, about: &'static str) -> Key {
    Key {
        name,
        kind,
        required: false,
        about,
    }
}

/// The name of a scenario.
pub const NAME: Key = key(
    "name",
    Kind::Text,
    "name in reports; the file's stem unless given",
);
/// What a scenario is for.
pub const DESCRIPTION: Key = key("description", Kind::Text, "what the experiment shows");
/// The seed of a scenario's random numbers.
pub const SEED: Key = key("seed", count(0, i64::MAX as u64), "run seed (1)");

/// A required key.
pub const fn required(name: &'static str, kind: Kind, about: &'static str) -> Key {
    Key {
        name,
        kind,
        required: true,
        about,
    }
}

/// A whole number from `min` to `max`.
pub const fn count(min: u64, max: u64) -> Kind {
    Kind::Count { min, max }
}
