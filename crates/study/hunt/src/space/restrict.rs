//! A search space cut down to what one application can do, from a TOML file.
//!
//! One key per feature. A named choice takes a name or a list of names; `mtu` takes a number or a list; every other
//! feature takes one value or `[least, most]`, sizes also as text with a unit. `sizes` sets `smallest` and `largest`
//! together. What is not mentioned stays free, except that a point has one kind of traffic unless a key of the second kind is
//! mentioned. Limits: ranges of single features only; that two features never meet
//! cannot be said. Source: collie 3.5.2 (developers restrict the space to represent their workloads).

use super::{Allowed, Feature, Space};
use crate::HuntError;
use isolane_common_quantities::rng::Stream;
use isolane_common_toml_input::error::InputError;
use isolane_common_toml_input::keys::{Key, Kind, key};
use isolane_common_toml_input::quantity;
use isolane_common_toml_input::table::{Source, Table};
use toml::Spanned;
use toml::de::DeValue;

pub(crate) const KEYS: &[Key] = &[
    key("direction", Kind::Text, "which hosts send to which"),
    key("memory_a", Kind::Text, "where host A's memory is"),
    key("memory_b", Kind::Text, "where host B's memory is"),
    key("regions", Kind::Text, "memory regions"),
    key("region_bytes", Kind::Text, "length of a region"),
    key("service", Kind::Text, "transport and verb"),
    key("queue_pairs", Kind::Text, "queue pairs"),
    key("mtu", Kind::Text, "path MTUs"),
    key("post_list", Kind::Text, "work requests per doorbell"),
    key("depth", Kind::Text, "outstanding work requests"),
    key("receive_depth", Kind::Text, "receive queue length"),
    key("receive_batch", Kind::Text, "receives posted at once"),
    key("requests", Kind::Text, "requests in the vector"),
    key("elements", Kind::Text, "elements per request"),
    key("smallest", Kind::Text, "smallest element"),
    key("largest", Kind::Text, "largest element"),
    key("sizes", Kind::Text, "all elements"),
    key(
        "control",
        Kind::Text,
        "control verbs in place of data (attackers)",
    ),
    key(
        "receives",
        Kind::Text,
        "whether receives are posted (attackers)",
    ),
    key("second", Kind::Text, "transport and verb of a second kind"),
    key("second_queue_pairs", Kind::Text, "its queue pairs"),
    key("second_mtu", Kind::Text, "its path MTUs"),
    key("second_post_list", Kind::Text, "its requests per doorbell"),
    key("second_depth", Kind::Text, "its outstanding requests"),
    key("second_receive_depth", Kind::Text, "its receive queue"),
    key("second_receive_batch", Kind::Text, "its receives at once"),
    key("second_requests", Kind::Text, "requests in its vector"),
    key("second_elements", Kind::Text, "its elements per request"),
    key("second_smallest", Kind::Text, "its smallest element"),
    key("second_largest", Kind::Text, "its largest element"),
];

/// Seed of the draws that look whether the space is empty: any will do.
const PROBE_SEED: u64 = 1;

impl Space {
    /// This space with the restrictions of `text`, from the file `file`. Fails for a mistake in the text, with its
    /// line, and with [`HuntError::Empty`] where nothing is left.
    pub fn restricted(mut self, text: &str, file: &str) -> Result<Self, HuntError> {
        let source = Source { file, text };
        let tree = source.tree()?;
        let table = Table::open(source, tree.get_ref(), 0, KEYS, None)?;
        self.read_all(&table)?;
        self.probed(file)
    }

    /// All features that `table` names.
    pub(crate) fn read_all(&mut self, table: &Table<'_>) -> Result<(), InputError> {
        let mut seconds = Feature::ALL.into_iter().filter(|f| f.is_of_second());
        if let Some(second) = seconds.find(|f| table.has(f.name())) {
            if self.is_of_attackers() {
                let expected = "an attacker of a victim has one kind of traffic: drop the key";
                return Err(table.wrong(second.name(), expected));
            }
            if !self.has_two_kinds() {
                *self = self.clone().with_two_kinds();
            }
        }
        for feature in Feature::ALL {
            self.read(table, feature.name(), feature)?;
        }
        if table.has("sizes") {
            let ends = ["smallest", "largest"];
            if let Some(both) = ends.into_iter().find(|name| table.has(name)) {
                let expected = "sizes sets smallest and largest: drop one of them";
                return Err(table.wrong(both, expected));
            }
            self.read(table, "sizes", Feature::Smallest)?;
            self.read(table, "sizes", Feature::Largest)?;
        }
        Ok(())
    }

    /// This space, if anything is left of it.
    fn probed(self, file: &str) -> Result<Self, HuntError> {
        let mut stream = Stream::named(PROBE_SEED, "hunt/restrict");
        self.draw(&mut stream).map_err(|rule| HuntError::Empty {
            file: file.to_owned(),
            rule,
        })?;
        Ok(self)
    }

    fn read(&mut self, table: &Table<'_>, name: &str, feature: Feature) -> Result<(), InputError> {
        let Some(value) = table.raw(name) else {
            return Ok(());
        };
        let values = values(table, name, feature, value)?;
        let narrowed = match self.allowed(feature) {
            Allowed::Set(known) => set(table, name, feature, known, values)?,
            Allowed::Range(least, most) => range(table, name, feature, (*least, *most), &values)?,
        };
        self.narrow(feature, narrowed);
        Ok(())
    }
}

/// The values at a key: at least one.
fn values(
    table: &Table<'_>,
    name: &str,
    feature: Feature,
    value: &Spanned<DeValue<'_>>,
) -> Result<Vec<u64>, InputError> {
    let one = |value: &DeValue<'_>| read_value(feature, value).map_err(|e| table.wrong(name, e));
    match value.get_ref() {
        DeValue::Array(list) if list.is_empty() => Err(table.wrong(
            name,
            "leaves nothing: name at least one value, or drop the key",
        )),
        DeValue::Array(list) => list.iter().map(|value| one(value.get_ref())).collect(),
        single => Ok(vec![one(single)?]),
    }
}

fn read_value(feature: Feature, value: &DeValue<'_>) -> Result<u64, String> {
    if let Some(names) = feature.names() {
        let form = || format!("must be of {}", names.join(", "));
        let text = value.as_str().ok_or_else(form)?;
        let index = names.iter().position(|known| *known == text);
        return index.map(|index| index as u64).ok_or_else(|| {
            let near = crate::nearest(text, names.iter().copied());
            near.map_or_else(form, |near| format!("did you mean {near:?}?"))
        });
    }
    match value {
        DeValue::Integer(integer) => {
            let number = u64::from_str_radix(integer.as_str(), integer.radix());
            number.map_err(|_| "must be a whole number above 0".to_owned())
        }
        DeValue::String(text) if feature.is_size() => quantity::size(text).map(|size| size.get()),
        _ if feature.is_size() => Err("must be a size, like 65536 or \"64KiB\"".to_owned()),
        _ => Err("must be a whole number".to_owned()),
    }
}

fn set(
    table: &Table<'_>,
    name: &str,
    feature: Feature,
    known: &[u64],
    mut values: Vec<u64>,
) -> Result<Allowed, InputError> {
    if values.iter().any(|value| !known.contains(value)) {
        let known: Vec<String> = known.iter().map(|&value| feature.shown(value)).collect();
        let expected = format!("this device has {} only", known.join(", "));
        return Err(table.wrong(name, expected));
    }
    values.sort_unstable();
    values.dedup();
    Ok(Allowed::Set(values))
}

fn range(
    table: &Table<'_>,
    name: &str,
    feature: Feature,
    (least, most): (u64, u64),
    values: &[u64],
) -> Result<Allowed, InputError> {
    let (low, high) = match *values {
        [one] => (one, one),
        [low, high] if low <= high => (low, high),
        [_, _] => return Err(table.wrong(name, "the least value is first: swap the two")),
        _ => return Err(table.wrong(name, "must be one value or [least, most]")),
    };
    if low < least || high > most {
        let (least, most) = (feature.shown(least), feature.shown(most));
        return Err(table.wrong(name, format!("must be within {least} to {most}")));
    }
    Ok(Allowed::Range(low, high))
}
