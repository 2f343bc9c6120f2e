//! Keys of a format: names, kinds and ranges, in one place for the parser and the JSON schema.

/// What a key holds.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Text.
    Text,
    /// A whole number.
    Count {
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
    /// `true` or `false`.
    Flag,
    /// A duration, picoseconds.
    Duration {
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
    /// A size, bytes.
    Size {
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
    /// A rate above zero.
    Rate,
    /// A number, whole or not.
    Number {
        /// Least.
        min: f64,
        /// Most.
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

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// As written.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Whether it must be there.
    pub required: bool,
    /// What it means.
    pub about: &'static str,
}

/// A key that may be left out.
pub const fn key(name: &'static str, kind: Kind, about: &'static str) -> Key {
    Key {
        name,
        kind,
        required: false,
        about,
    }
}

/// A key that must be there.
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
