//! What a hunt calls anomalous: the rules that judge its experiments.
//!
//! A device alone is compared with its bounds ([`crate::monitor`]), and on request also with its own latency
//! (`latency`). A victim beside an attacker is compared with what it is owed by the audit's predicate
//! ([`crate::victim`]). One hunt has one of the two.

use crate::bounds::Bounds;
use crate::experiment::Measured;
use crate::latency::Baseline;
use crate::monitor::{self, Judgement};
use crate::space::Point;
use crate::victim::Owed;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// A device, and its latencies where they count.
    Device(Bounds, Option<Baseline>),
    /// A victim.
    Victim(Box<Owed>),
}

impl Rule {
    /// Judges `measured`, the experiment of `point`.
    pub fn judge(&self, point: &Point, measured: &Measured) -> Judgement {
        match self {
            Self::Device(bounds, latency) => {
                let judgement = monitor::judge(point, measured, bounds);
                match latency {
                    Some(baseline) if judgement.is_sound() && measured.best_quarter.is_none() => {
                        baseline.judge(point, measured, bounds, judgement)
                    }
                    _ => judgement,
                }
            }
            Self::Victim(owed) => owed.judge(measured),
        }
    }

    /// The bounds of the device, where that is what counts.
    pub fn bounds(&self) -> Option<&Bounds> {
        match self {
            Self::Device(bounds, _) => Some(bounds),
            Self::Victim(_) => None,
        }
    }
}
