//! Numbers on the command line: what is no number, or is outside the range, is answered with the range and an example.
//!
//! Options with a range have a [`Whole`] or a [`Real`] as their parser. Options without one have clap's own parsers, whose
//! messages are Rust's; [`allowed`] says the same of them by the type of the option.

use clap::Arg;
use clap::builder::TypedValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::any::TypeId;
use std::ffi::OsStr;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

/// Time between two views, as a terminal can bear it.
#[cfg(any(feature = "rdma-hosts", feature = "rpc"))]
pub(crate) fn interval(text: &str) -> Result<std::time::Duration, String> {
    use std::time::Duration;
    let duration = crate::inputs::duration(text)?;
    let duration = Duration::from_nanos(duration.as_ps() / 1_000);
    match (Duration::from_millis(100)..=Duration::from_secs(100)).contains(&duration) {
        true => Ok(duration),
        false => Err("must be 100ms to 100s".to_owned()),
    }
}

/// A whole number within a range.
#[derive(Clone, Debug)]
pub(crate) struct Whole<T> {
    range: RangeInclusive<u64>,
    of: PhantomData<T>,
}

/// Parses whole numbers within `range` as a `T`, which has to hold both ends.
pub(crate) fn whole<T>(range: RangeInclusive<u64>) -> Whole<T> {
    Whole {
        range,
        of: PhantomData,
    }
}

impl<T: TryFrom<u64> + Clone + Send + Sync + 'static> TypedValueParser for Whole<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        let number = value.to_str().and_then(|text| text.trim().parse().ok());
        let number = number.filter(|number| self.range.contains(number));
        let number = number.and_then(|number: u64| T::try_from(number).ok());
        number.ok_or_else(|| {
            let wrong = range_in_words(*self.range.start(), *self.range.end());
            refusal(command, argument, value, wrong)
        })
    }
}

/// A number with a fraction within a range.
#[derive(Clone, Debug)]
pub(crate) struct Real {
    range: RangeInclusive<f64>,
}

/// Parses numbers within `range`, whose ends are no infinities.
pub(crate) fn real(range: RangeInclusive<f64>) -> Real {
    Real { range }
}

impl TypedValueParser for Real {
    type Value = f64;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<f64, clap::Error> {
        let number = value.to_str().and_then(|text| text.trim().parse().ok());
        let number = number.filter(|number| self.range.contains(number));
        number.ok_or_else(|| {
            let (least, most) = (self.range.start(), self.range.end());
            // The largest of a few numbers that a person would type.
            let mut examples = [0.25, 2.5, 10.0].into_iter().rev();
            let example = examples.find(|example| self.range.contains(example));
            let example = example.unwrap_or(*least);
            let names = argument.and_then(Arg::get_value_names).unwrap_or_default();
            let unit = match names.iter().any(|name| name.as_str() == "GBPS") {
                true => " of Gb/s, without the unit",
                false => "",
            };
            let wrong = format!("must be a number from {least} to {most}{unit}, like {example}");
            refusal(command, argument, value, wrong)
        })
    }
}

/// What an option takes whose parser is clap's own for numbers; none for other types.
pub(crate) fn allowed(argument: &Arg) -> Option<String> {
    let kind = argument.get_value_parser().type_id();
    let whole = [
        (TypeId::of::<u8>(), u64::from(u8::MAX)),
        (TypeId::of::<u16>(), u64::from(u16::MAX)),
        (TypeId::of::<u32>(), u64::from(u32::MAX)),
        (TypeId::of::<u64>(), u64::MAX),
        (TypeId::of::<usize>(), usize::MAX as u64),
    ];
    if let Some((_, most)) = whole.iter().find(|(known, _)| kind == *known) {
        return Some(range_in_words(0, *most));
    }
    let is_real = kind == TypeId::of::<f64>();
    is_real.then(|| "must be a number, like 0.5".to_owned())
}

/// The largest number that examples use.
const EXAMPLE: u64 = 7;

fn range_in_words(least: u64, most: u64) -> String {
    let example = EXAMPLE.clamp(least, most);
    format!("must be a whole number from {least} to {most}, like {example}")
}

/// The error of a value that the parser of `argument` refuses, with the reason `wrong`.
fn refusal(
    command: &clap::Command,
    argument: Option<&Arg>,
    value: &OsStr,
    wrong: String,
) -> clap::Error {
    let mut error = clap::Error::new(ErrorKind::ValueValidation).with_cmd(command);
    let name = argument.map_or_else(String::new, ToString::to_string);
    let value = value.to_string_lossy().into_owned();
    error.insert(ContextKind::InvalidArg, ContextValue::String(name));
    error.insert(ContextKind::InvalidValue, ContextValue::String(value));
    error.insert(ContextKind::Custom, ContextValue::String(wrong));
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;

    fn parsed(text: &str) -> Result<u32, String> {
        let argument = Arg::new("jobs")
            .long("jobs")
            .value_parser(whole::<u32>(1..=64));
        let command = Command::new("isolane").arg(argument);
        let matches = command.try_get_matches_from(["isolane", "--jobs", text]);
        matches
            .map(|found| *found.get_one("jobs").expect("it was parsed"))
            .map_err(|error| match error.get(ContextKind::Custom) {
                Some(ContextValue::String(wrong)) => wrong.clone(),
                other => panic!("{other:?}"),
            })
    }

    #[test]
    fn numbers_outside_the_range_are_answered_with_it() {
        assert_eq!(parsed("64"), Ok(64));
        for wrong in ["0", "65", "abc", "", "1.5", "99999999999999999999"] {
            let said = parsed(wrong).expect_err(wrong);
            assert_eq!(said, "must be a whole number from 1 to 64, like 7");
        }
    }

    #[test]
    fn parsers_of_clap_are_described_by_their_type() {
        let of = |argument: Arg| allowed(&argument);
        let port = Arg::new("port").value_parser(clap::value_parser!(u16));
        let want = "must be a whole number from 0 to 65535, like 7";
        assert_eq!(of(port).as_deref(), Some(want));
        let name = Arg::new("name").value_parser(clap::value_parser!(String));
        assert_eq!(of(name), None);
    }
}
