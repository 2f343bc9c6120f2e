//! Metric families as OpenMetrics text, the form that Prometheus scrapes.
//!
//! A family's name ends with its unit, where it has one: the `# UNIT` line follows from the name, and a sample's suffix
//! (`_total`, `_info`, `_bucket`) follows from the kind. Label values and help texts are escaped.
//!
//! Units: base units (bytes, seconds, ratios of 1), as the format wants them.
//! Limits: the caller opens a family once and writes a set of labels once; the writer does not check either.
//! Source: the OpenMetrics specification, version 1.0.0.

use std::fmt::{Display, Write};

/// Value of `Content-Type` for the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Ends a whole text.
pub const END: &str = "# EOF\n";
/// Suffixes of names that are units.
const UNITS: &[&str] = &[
    "bytes",
    "seconds",
    "ratio",
    "bytes_per_second",
    "bits_per_second",
    "operations_per_second",
];

/// Kind of a family's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Never falls while the process lives; samples end with `_total`.
    Counter,
    /// May fall.
    Gauge,
    /// Counts below bounds, their total and their sum.
    Histogram,
    /// Facts as labels of a sample that is 1; samples end with `_info`.
    Info,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Gauge | Self::Histogram => "",
            Self::Info => "_info",
        }
    }
}

/// A number as the format writes it.
pub trait Value {
    /// Appends the number to `text`.
    fn write(self, text: &mut String);
}

impl Value for f64 {
    fn write(self, text: &mut String) {
        match self {
            value if value.is_nan() => text.push_str("NaN"),
            Self::INFINITY => text.push_str("+Inf"),
            Self::NEG_INFINITY => text.push_str("-Inf"),
            value => show(text, value),
        }
    }
}

impl Value for bool {
    fn write(self, text: &mut String) {
        text.push(if self { '1' } else { '0' });
    }
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Value for $integer {
            fn write(self, text: &mut String) {
                show(text, self);
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, usize);

/// Names and values of labels.
pub type Labels<'a> = [(&'a str, &'a dyn Display)];

/// Families in the order in which they were opened.
#[derive(Debug, Default)]
pub struct Families(String);

impl Families {
    /// Opens a family: its samples must follow before the next family is opened.
    pub fn family<'a>(&'a mut self, kind: Kind, name: &'a str, help: &str) -> Family<'a> {
        let text = &mut self.0;
        let _ = writeln!(text, "# TYPE {name} {}", kind.name());
        let ends = |unit: &&&str| {
            let front = name.strip_suffix(**unit);
            front.is_some_and(|front| front.ends_with('_'))
        };
        if let Some(unit) = UNITS.iter().find(ends) {
            let _ = writeln!(text, "# UNIT {name} {unit}");
        }
        let _ = write!(text, "# HELP {name} ");
        let _ = Escaped(text).write_str(help);
        text.push('\n');
        Family { text, kind, name }
    }

    /// Appends families that another writer wrote, without their end mark.
    pub fn append(&mut self, families: &str) {
        self.0.push_str(families);
    }

    /// The families without the end mark, for [`Families::append`].
    pub fn into_families(self) -> String {
        self.0
    }

    /// The whole text with its end mark.
    pub fn into_text(self) -> String {
        self.0 + END
    }
}

/// A family whose samples are being written.
#[derive(Debug)]
pub struct Family<'a> {
    text: &'a mut String,
    kind: Kind,
    name: &'a str,
}

impl Family<'_> {
    /// One sample of a counter, a gauge or an info (where the value is 1).
    pub fn sample(&mut self, labels: &Labels<'_>, value: impl Value) {
        self.line(self.kind.suffix(), labels, None, value);
    }

    /// One series of a histogram: the count of each bucket with its upper bound, and the sum of all values. The last
    /// bound is infinite.
    pub fn histogram(
        &mut self,
        labels: &Labels<'_>,
        buckets: impl IntoIterator<Item = (f64, u64)>,
        sum: f64,
    ) {
        let mut below = 0;
        for (bound, count) in buckets {
            below += count;
            self.line("_bucket", labels, Some(bound), below);
        }
        self.line("_sum", labels, None, sum);
        self.line("_count", labels, None, below);
    }

    fn line(&mut self, suffix: &str, labels: &Labels<'_>, bound: Option<f64>, value: impl Value) {
        let text = &mut *self.text;
        text.push_str(self.name);
        text.push_str(suffix);
        let mut before = '{';
        for (label, value) in labels {
            let _ = write!(text, "{before}{label}=\"");
            let _ = write!(Escaped(text), "{value}");
            text.push('"');
            before = ',';
        }
        if let Some(bound) = bound {
            let _ = write!(text, "{before}le=\"");
            bound.write(text);
            text.push('"');
            before = ',';
        }
        if before == ',' {
            text.push('}');
        }
        text.push(' ');
        value.write(text);
        text.push('\n');
    }
}

/// Appends text with the format's escapes.
struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for character in text.chars() {
            match character {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            }
        }
        Ok(())
    }
}

fn show(text: &mut String, value: impl Display) {
    let _ = write!(text, "{value}");
}

#[cfg(test)]
mod tests;
