//! Reads a TOML table key by key and reports every mistake with its line.
//!
//! Method: the text is parsed into a tree with byte positions. A [`Table`] checks its keys against a list when it is
//! opened, and each reader checks kind and range, so callers see checked values.

use crate::error::{InputError, Problem, nearest};
use crate::quantity;
use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, IntoDeserializer};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::keys::{Key, Kind};

/// Longer values are cut in messages, characters.
const SHOWN_MAX: usize = 60;

/// A text with its name.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Its name, for messages.
    pub file: &'a str,
    /// The text.
    pub text: &'a str,
}

impl<'a> Source<'a> {
    /// The tree behind the text.
    pub fn tree(&self) -> Result<Spanned<DeTable<'a>>, InputError> {
        DeTable::parse(self.text).map_err(|error| {
            let message = error.message().trim().replace('\n', "; ");
            InputError {
                file: self.file.to_owned(),
                line: error.span().map(|span| self.line(span.start)),
                place: None,
                problem: Box::new(Problem::Syntax { message }),
            }
        })
    }

    /// The line of a byte position, from 1.
    pub fn line(&self, offset: usize) -> usize {
        let end = offset.min(self.text.len());
        1 + self.text.as_bytes()[..end]
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count()
    }

    /// The text at `span` on one line, cut to a readable length.
    pub fn shown(&self, span: Range<usize>) -> String {
        let text = self.text.get(span).unwrap_or("");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if text.chars().count() <= SHOWN_MAX {
            return text;
        }
        let cut: String = text.chars().take(SHOWN_MAX).collect();
        format!("{cut}...")
    }
}

/// One table of a text.
#[derive(Clone, Debug)]
pub struct Table<'a> {
    source: Source<'a>,
    map: &'a DeTable<'a>,
    start: usize,
    keys: &'static [Key],
    place: Option<String>,
}

impl<'a> Table<'a> {
    /// Reads `text`, whose top level has `keys`; `file` names the text in messages. The error is the first mistake of
    /// the text.
    pub fn read<T, E: From<InputError>>(
        file: &str,
        text: &str,
        keys: &'static [Key],
        read: impl FnOnce(&Table<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let source = Source { file, text };
        let tree = source.tree()?;
        read(&Table::open(source, tree.get_ref(), 0, keys, None)?)
    }

    /// Opens `map`, whose text begins at byte `start`; rejects keys that are not in `keys`.
    pub fn open(
        source: Source<'a>,
        map: &'a DeTable<'a>,
        start: usize,
        keys: &'static [Key],
        place: Option<String>,
    ) -> Result<Self, InputError> {
        let table = Self {
            place,
            ..Self::unchecked(source, map, start, keys)
        };
        let mut unknown: Vec<_> = map
            .keys()
            .filter(|name| keys.iter().all(|key| key.name != name.get_ref().as_ref()))
            .collect();
        unknown.sort_by_key(|name| name.span().start);
        if let Some(name) = unknown.first() {
            let names = keys.iter().map(|key| key.name);
            let problem = Problem::UnknownKey {
                key: name.get_ref().to_string(),
                nearest: nearest(name.get_ref(), names.clone()).map(str::to_owned),
                known: names.map(str::to_owned).collect(),
            };
            return Err(table.error(name.span().start, problem));
        }
        for key in keys.iter().filter(|key| key.required) {
            if table.raw(key.name).is_none() {
                return Err(table.missing(key.name, key.about));
            }
        }
        Ok(table)
    }

    /// Like [`Table::open`], but accepts keys that are not in `keys`: the caller reads them.
    pub fn unchecked(
        source: Source<'a>,
        map: &'a DeTable<'a>,
        start: usize,
        keys: &'static [Key],
    ) -> Self {
        Self {
            source,
            map,
            start,
            keys,
            place: None,
        }
    }

    /// The same table, with another name in messages.
    pub fn placed(mut self, place: String) -> Self {
        self.place = Some(place);
        self
    }

    /// The same table with another list of keys, for a key that accepts values of two kinds.
    pub fn with_keys(mut self, keys: &'static [Key]) -> Self {
        self.keys = keys;
        self
    }

    /// The name in messages.
    pub fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }

    /// The value of `key` with its position.
    pub fn raw(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.map
            .iter()
            .find(|(name, _)| name.get_ref().as_ref() == key)
            .map(|(_, value)| value)
    }

    /// Whether `key` is present.
    pub fn has(&self, key: &str) -> bool {
        self.raw(key).is_some()
    }

    /// An error at byte `offset`.
    pub fn error(&self, offset: usize, problem: Problem) -> InputError {
        InputError {
            file: self.source.file.to_owned(),
            line: Some(self.source.line(offset)),
            place: self.place.clone(),
            problem: Box::new(problem),
        }
    }

    /// An error at `key`, or at the table where the key is absent.
    pub fn error_at(&self, key: &str, problem: Problem) -> InputError {
        let offset = self.raw(key).map_or(self.start, |value| value.span().start);
        self.error(offset, problem)
    }

    /// The error for a wrong value of `key`; `expected` says what is allowed.
    pub fn wrong(&self, key: &str, expected: impl Into<String>) -> InputError {
        let value = self
            .raw(key)
            .map_or_else(String::new, |value| self.source.shown(value.span()));
        self.error_at(key, Problem::value(key, value, expected))
    }

    /// The error for a missing `key`.
    pub fn missing(&self, key: &str, expected: &str) -> InputError {
        self.error(
            self.start,
            Problem::Missing {
                key: key.to_owned(),
                expected: expected.to_owned(),
            },
        )
    }

    fn kind(&self, key: &str) -> Kind {
        self.keys
            .iter()
            .find(|known| known.name == key)
            .map(|known| known.kind)
            .expect("readers use keys of their own list only")
    }

    /// Text: not empty, one line.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, InputError> {
        let Some(value) = self.raw(key) else {
            return Ok(None);
        };
        match value.get_ref().as_str() {
            Some(text) => Ok(Some(text)),
            None => Err(self.wrong(key, "must be text in quotes")),
        }
    }

    /// A whole number within the key's range.
    pub fn count(&self, key: &str) -> Result<Option<u64>, InputError> {
        let Kind::Count { min, max } = self.kind(key) else {
            unreachable!("{key} is not a count");
        };
        let Some(value) = self.raw(key) else {
            return Ok(None);
        };
        let range = format!("must be {min} to {max}");
        let number = value
            .get_ref()
            .as_integer()
            .and_then(|integer| i128::from_str_radix(integer.as_str(), integer.radix()).ok());
        match number.and_then(|number| u64::try_from(number).ok()) {
            Some(number) if (min..=max).contains(&number) => Ok(Some(number)),
            None if !value.get_ref().is_integer() => {
                Err(self.wrong(key, format!("must be a whole number, {min} to {max}")))
            }
            _ => Err(self.wrong(key, range)),
        }
    }

    /// A whole number that fits 32 bits, within the key's range.
    pub fn count32(&self, key: &str) -> Result<Option<u32>, InputError> {
        Ok(self
            .count(key)?
            .map(|count| u32::try_from(count).expect("the key's range fits 32 bits")))
    }

    /// A number within the key's range.
    pub fn number(&self, key: &str) -> Result<Option<f64>, InputError> {
        let Kind::Number { min, max } = self.kind(key) else {
            unreachable!("{key} is not a number");
        };
        match self.raw(key).map(|value| number(value.get_ref())) {
            None => Ok(None),
            Some(Some(number)) if (min..=max).contains(&number) => Ok(Some(number)),
            Some(_) => Err(self.wrong(key, format!("must be a number, {min} to {max}"))),
        }
    }

    /// `true` or `false`.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, InputError> {
        match self.raw(key).map(|value| value.get_ref().as_bool()) {
            None => Ok(None),
            Some(Some(flag)) => Ok(Some(flag)),
            Some(None) => Err(self.wrong(key, "must be true or false")),
        }
    }

    /// A duration within the key's range.
    pub fn duration(&self, key: &str) -> Result<Option<Duration>, InputError> {
        let Kind::Duration { min, max } = self.kind(key) else {
            unreachable!("{key} is not a duration");
        };
        let Some(value) = self.raw(key) else {
            return Ok(None);
        };
        let Some(text) = value.get_ref().as_str() else {
            let shown = self.source.shown(value.span());
            let remedy = if value.get_ref().is_integer() || value.get_ref().is_float() {
                quantity::with_time_units(&shown, min, max)
            } else {
                quantity::DURATION_FORM.to_owned()
            };
            return Err(self.wrong(key, remedy));
        };
        let duration = quantity::duration(text).map_err(|reason| self.wrong(key, reason))?;
        if (min..=max).contains(&duration.as_ps()) {
            return Ok(Some(duration));
        }
        let (least, most) = (Duration::from_ps(min), Duration::from_ps(max));
        Err(self.wrong(
            key,
            match min {
                0 => format!("must be at most {most}"),
                1 => format!("must be above 0 and at most {most}"),
                _ => format!("must be {least} to {most}"),
            },
        ))
    }

    /// A size within the key's range.
    pub fn size(&self, key: &str) -> Result<Option<Bytes>, InputError> {
        let Kind::Size { min, max } = self.kind(key) else {
            unreachable!("{key} is not a size");
        };
        match self.raw(key) {
            None => Ok(None),
            Some(value) => self.size_of(key, value, (min, max)).map(Some),
        }
    }

    /// The size in `value`, which belongs to `key`, from `min` to `max` bytes. Fails for text that is not a size, or a
    /// size out of range.
    pub fn size_of(
        &self,
        key: &str,
        value: &Spanned<DeValue<'a>>,
        (min, max): (u64, u64),
    ) -> Result<Bytes, InputError> {
        let wrong = |expected: String| {
            let shown = self.source.shown(value.span());
            self.error(value.span().start, Problem::value(key, shown, expected))
        };
        let bytes = match value.get_ref() {
            DeValue::String(text) => quantity::size(text).map_err(&wrong)?.get(),
            DeValue::Integer(integer) => {
                let number = i128::from_str_radix(integer.as_str(), integer.radix());
                number.ok().map_or(u64::MAX, |number| {
                    u64::try_from(number).unwrap_or(if number < 0 { 0 } else { u64::MAX })
                })
            }
            _ => return Err(wrong(quantity::SIZE_FORM.to_owned())),
        };
        if (min..=max).contains(&bytes) {
            return Ok(Bytes::new(bytes));
        }
        let (least, most) = (Bytes::new(min), Bytes::new(max));
        Err(wrong(format!("must be {least} to {most}")))
    }

    /// A rate above zero.
    pub fn rate(&self, key: &str) -> Result<Option<BitRate>, InputError> {
        let Some(value) = self.raw(key) else {
            return Ok(None);
        };
        let Some(text) = value.get_ref().as_str() else {
            return Err(self.wrong(key, quantity::RATE_FORM));
        };
        let rate = quantity::rate(text).map_err(|reason| self.wrong(key, reason))?;
        if rate == BitRate::ZERO {
            return Err(self.wrong(key, "must be above 0"));
        }
        Ok(Some(rate))
    }

    /// One of the key's list, as the type that serde reads from it.
    pub fn choice<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, InputError> {
        let Kind::Choice(names) = self.kind(key) else {
            unreachable!("{key} is not a choice");
        };
        let Some(text) = self.text(key)? else {
            return Ok(None);
        };
        if !names.contains(&text) {
            return Err(self.error_at(key, Problem::unknown_name(key, text, names.iter().copied())));
        }
        let deserializer: StrDeserializer<'_, serde::de::value::Error> = text.into_deserializer();
        let value = T::deserialize(deserializer).expect("the list has the type's own names");
        Ok(Some(value))
    }

    /// A command line, or a list of them; each with its position.
    pub fn commands(&self, key: &str) -> Result<Vec<(usize, &'a str)>, InputError> {
        let Some(value) = self.raw(key) else {
            return Ok(Vec::new());
        };
        let form = "must be a command line in quotes, or a list of them";
        let one = |value: &'a Spanned<DeValue<'a>>| {
            let text = value.get_ref().as_str();
            text.map(|text| (value.span().start, text))
                .ok_or_else(|| self.wrong(key, form))
        };
        match value.get_ref() {
            DeValue::Array(list) if list.is_empty() => Err(self.wrong(key, form)),
            DeValue::Array(list) => list.iter().map(one).collect(),
            _ => Ok(vec![one(value)?]),
        }
    }

    /// A table below this one.
    pub fn table(&self, key: &str, keys: &'static [Key]) -> Result<Option<Table<'a>>, InputError> {
        match self.raw(key) {
            None => Ok(None),
            Some(value) => match value.get_ref() {
                DeValue::Table(map) => Self::open(
                    self.source,
                    map,
                    value.span().start,
                    keys,
                    self.place.clone(),
                )
                .map(Some),
                _ => Err(self.wrong(key, format!("must be a table, [{key}]"))),
            },
        }
    }

    /// The raw tables of an array of tables, with their positions.
    pub fn tables(&self, key: &str) -> Result<Vec<(usize, &'a DeTable<'a>)>, InputError> {
        let form = || self.wrong(key, format!("must be written as [[{key}]]"));
        match self.raw(key).map(Spanned::get_ref) {
            None => Ok(Vec::new()),
            Some(DeValue::Array(list)) => list
                .iter()
                .map(|value| match value.get_ref() {
                    DeValue::Table(map) => Ok((value.span().start, map)),
                    _ => Err(form()),
                })
                .collect(),
            Some(_) => Err(form()),
        }
    }

    /// The named text this table is part of.
    pub fn source(&self) -> Source<'a> {
        self.source
    }
}

/// A number, whole or not.
pub fn number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(integer) => {
            let whole = i128::from_str_radix(integer.as_str(), integer.radix()).ok()?;
            Some(whole as f64)
        }
        DeValue::Float(float) => float.as_str().parse().ok(),
        _ => None,
    }
}
