//! The small language that says what a claim measures.
//!
//! Problem: a claim's number is a formula over several runs ("latency beside a bulk tenant divided by latency
//! alone"), and a reader must see it in the claim's file, not in code.
//!
//! * a number: `2`, `0.5`, `1e6`;
//! * a measurement `label:tenant.field`: `contended:latency.latency_us.p50`. Labels and fields are words of
//!   letters, digits and `_`; a tenant's name may also hold `-`. Fields are the names of a tenant's JSON result,
//!   with [`FIELDS`] listing them; units end the names;
//! * `+ - * /`, brackets, unary minus, comparisons `< <= > >=`, and `and` between comparisons;
//! * `min(a, b, ...)`, `max(a, b, ...)`;
//! * over all tenants whose name matches a pattern with `*`: `sum`, `mean`, `lowest`, `highest`, `jain`, as in
//!   `lowest(run:bulk*.goodput_gbps)`;
//! * `counter(label, host, name)`, `ratio(label, host, name)`, `state(label, name)`: a NIC's counters and derived
//!   ratios, and the policy's own figures;
//! * `parameter(profile, section, name)`: a number of a device profile;
//! * `network_bytes(payload=29)`, `pcie_bytes(payload=29)`: bytes of one request on the wire and on PCIe, with
//!   `profile` (default `cx5-100g-roce`), `verb` (`write`), `transport` (`rc`), `mtu` (`4096`) and
//!   `post_list` (`1`).
//! * of a run on a network, `label:class.field`, `label:pair-0-2-class.field` and `label:network.field` ([`network`]
//!   has the names, [`NETWORK_FIELDS`] the fields), and `series(label, name, part)` with `first`, `last`, `mean`, `min`
//!   or `max`, and `settled_us(label, name, part)`: when the series came within that part of the mean of its second
//!   half for good;
//! * of a run on a network card, `label:nic.field` with the fields of `nic::FIELDS`; of one of the query planner,
//!   `label:plan.field` with those of `planner::FIELDS`; of tiered memory `label:app.field`, `label:tier.field`
//!   and `label:machine.field` with those of `memory::FIELDS`;
//! * `violations(label)`, `judged(label)`: cells of an `[[audit]]` that violate, and cells that have a verdict;
//! * `harmonic(name, key=value, ...)`, `palos(name, key=value, ...)`: what that policy's own code gives without a
//!   run, [`crate::models`] listing the names.
//!
//! Names with a hyphen are written in quotes as arguments. Limits: [`DEPTH_MAX`] levels of nesting.

mod evaluate;
mod lexer;
pub mod network;
mod parser;

pub use evaluate::{Audits, Evaluation, Runs, Value};
pub use parser::parse;

use crate::error::nearest;
use crate::hunt;
use crate::lab;
use crate::memory;
use crate::nic;
use crate::planner;
use crate::world::RequestBytes;

/// Brackets, calls and signs may nest this deep; deeper formulas are a mistake and would cost stack.
pub const DEPTH_MAX: usize = 64;

/// Characters of a formula. Long chains (`1+1+1...`) nest to the left, so this bounds the stack as well.
pub const TEXT_MAX: usize = 2_000;

/// What a reference may name of a tenant.
pub const FIELDS: [&str; 21] = [
    "offered_gbps",
    "goodput_gbps",
    "wire_gbps",
    "message_rate_per_s",
    "control_rate_per_s",
    "share",
    "policy_cores",
    "errors",
    "latency_us.samples",
    "latency_us.min",
    "latency_us.mean",
    "latency_us.p50",
    "latency_us.p99",
    "latency_us.p999",
    "latency_us.max",
    "queue_pair_gbps.min",
    "queue_pair_gbps.median",
    "queue_pair_gbps.max",
    "queue_pair_gbps.max_over_min",
    "operations_per_s",
    "operation_us.p99",
];

/// What a reference may name of a class, a pair of hosts or the whole of a network.
pub const NETWORK_FIELDS: [&str; 44] = [
    "issued",
    "admitted",
    "downgraded",
    "terminated",
    "unfinished",
    "asked_share",
    "ran_share",
    "admitted_share",
    "met_slo_share",
    "met_slo_bytes_share",
    "ran_met_slo_share",
    "goodput_gbps",
    "outstanding_p50",
    "outstanding_p99",
    "rnl_us.min",
    "rnl_us.mean",
    "rnl_us.p50",
    "rnl_us.p99",
    "rnl_us.p999",
    "rnl_us.max",
    "rnl_us.count",
    "rnl_per_mtu_us.min",
    "rnl_per_mtu_us.mean",
    "rnl_per_mtu_us.p50",
    "rnl_per_mtu_us.p99",
    "rnl_per_mtu_us.p999",
    "rnl_per_mtu_us.max",
    "rnl_per_mtu_us.count",
    "admit_probability.min",
    "admit_probability.p01",
    "admit_probability.mean",
    "admit_probability.last",
    "utilisation",
    "measured_s",
    "hosts",
    "sent",
    "delivered",
    "dropped",
    "in_flight",
    "data",
    "repeated",
    "marked",
    "pauses",
    "queue_max_bytes",
];

/// A formula.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// A constant.
    Number(f64),
    /// One measured number.
    Measurement(Measurement),
    /// `-a`.
    Negate(Box<Expression>),
    /// `a op b`, a number.
    Arithmetic(Arithmetic, Box<Expression>, Box<Expression>),
    /// `a op b`, true or false.
    Compare(Comparison, Box<Expression>, Box<Expression>),
    /// `a and b`.
    And(Box<Expression>, Box<Expression>),
    /// The smallest or largest of some formulas.
    Extreme(Extreme, Vec<Expression>),
    /// One number over several tenants.
    Aggregate(Aggregate, Measurement),
    /// A counter of a NIC.
    Counter(HostValue),
    /// A ratio a NIC derives from its counters, 0 to 1.
    HostRatio(HostValue),
    /// A figure of the policy.
    State {
        /// Which run.
        label: String,
        /// The figure's name.
        name: String,
    },
    /// A number of a network's time series.
    Series {
        /// Which run.
        label: String,
        /// The series' name.
        name: String,
        /// Which number.
        part: SeriesPart,
    },
    /// A number of a device profile.
    Parameter {
        /// The profile's name.
        profile: String,
        /// Its section.
        section: String,
        /// The parameter's name.
        name: String,
    },
    /// Bytes that one request takes.
    RequestBytes(RequestBytes),
    /// Cells of an audit.
    Cells {
        /// Which audit.
        label: String,
        /// Which of its cells.
        cells: Cells,
    },
    /// What a policy's code gives without a run.
    Model {
        /// The policy.
        system: String,
        /// What of it.
        name: String,
        /// Numbers by name.
        arguments: Vec<(String, f64)>,
    },
}

/// `label:tenant.field`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measurement {
    /// Which run.
    pub label: String,
    /// Which tenant; may hold `*` inside an aggregate.
    pub tenant: String,
    /// One of [`FIELDS`].
    pub field: String,
}

/// Which number of a time series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SeriesPart {
    /// Its first measured value.
    First,
    /// Its last.
    Last,
    /// The mean of all.
    Mean,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// Microseconds from the series' start until all values stay within this part of the mean of its second half.
    SettledUs {
        /// Fraction of that mean.
        within: f64,
    },
}

/// A named value of one host's NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostValue {
    /// Which run.
    pub label: String,
    /// `a` or `b`.
    pub host: isolane_rdma_scenario::model::Host,
    /// The value's name.
    pub name: String,
}

/// An operator between two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
}

/// A relation between two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
}

/// Which end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extreme {
    /// The smallest.
    Min,
    /// The largest.
    Max,
}

/// How several tenants become one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The smallest.
    Lowest,
    /// The largest.
    Highest,
    /// Jain's fairness index: 1 when all are equal, 1/n when one has everything.
    Jain,
}

/// Which cells of an audit are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cells {
    /// Those that violate.
    Violations,
    /// Those with a verdict.
    Judged,
}

/// What is wrong with a formula.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (character {position} of the metric)")]
pub struct SyntaxError {
    /// Character, from 1.
    pub position: usize,
    /// What is wrong and what would be right.
    pub message: String,
}

impl Expression {
    /// True when the formula yields true or false instead of a number.
    pub fn is_ordering(&self) -> bool {
        matches!(self, Self::Compare(..) | Self::And(..))
    }

    /// The labels of all runs the formula needs, each once, in order of appearance.
    pub fn labels(&self) -> Vec<&str> {
        self.each_once(|part| match part {
            Self::Measurement(measurement) | Self::Aggregate(_, measurement) => {
                Some(&measurement.label)
            }
            Self::Counter(value) | Self::HostRatio(value) => Some(&value.label),
            Self::State { label, .. } | Self::Series { label, .. } => Some(label),
            _ => None,
        })
    }

    /// The labels of all audits the formula needs, likewise.
    pub fn audit_labels(&self) -> Vec<&str> {
        self.each_once(|part| match part {
            Self::Cells { label, .. } => Some(label),
            _ => None,
        })
    }

    fn each_once<'a>(&'a self, of: impl Fn(&'a Self) -> Option<&'a String>) -> Vec<&'a str> {
        let mut labels = Vec::new();
        self.visit(&mut |part| {
            labels.extend(of(part).map(String::as_str));
        });
        let mut seen = std::collections::BTreeSet::new();
        labels.retain(|label| seen.insert(*label));
        labels
    }

    /// Calls `visit` for this formula and each of its parts, from left to right.
    fn visit<'a>(&'a self, visitor: &mut dyn FnMut(&'a Self)) {
        visitor(self);
        match self {
            Self::Negate(inner) => inner.visit(visitor),
            Self::Arithmetic(_, left, right)
            | Self::Compare(_, left, right)
            | Self::And(left, right) => {
                left.visit(visitor);
                right.visit(visitor);
            }
            Self::Extreme(_, members) => {
                for member in members {
                    member.visit(visitor);
                }
            }
            _ => {}
        }
    }
}

fn unknown_field(field: &str) -> String {
    let known = FIELDS
        .into_iter()
        .chain(NETWORK_FIELDS)
        .chain(nic::FIELDS)
        .chain(planner::FIELDS)
        .chain(hunt::FIELDS)
        .chain(lab::FIELDS)
        .chain(memory::FIELDS);
    format!("unknown field {field:?}{}", nearest(field, known))
}

#[cfg(test)]
pub(crate) mod tests;
