//! From published numbers to a profile's parameters, by a search that every user can run again.
//!
//! Four parts, all on a testbed:
//!
//! * [`oracle`] measures the parameters of an idle device for Justitia: its two maximum rates, the latency target, and
//!   the smallest token that reaches each rate (justitia 4.3, 5.2, figure 10);
//! * [`requests`] measures what requests of each verb cost, which Harmonic has to know (harmonic 5.5.1);
//! * [`fit`] moves the parameters a profile marks `calibrated` until the claims marked `calibration` fit best, and
//!   touches nothing else: predictions are then independent of the fit;
//! * [`identify`] finds parameters of a device by experiments on it, with an interval for each.
//!
//! [`edit`] puts new values into a profile's text without disturbing the rest of it.
#![forbid(unsafe_code)]

pub mod edit;
pub mod fit;
pub mod identify;
pub mod oracle;
pub mod requests;

use isolane_study_testbed::TestbedError;

/// Why a calibration gave no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum CalibrationError {
    /// A scenario of ours did not parse or run on this profile.
    #[error("profile {profile}: {reason}")]
    Run {
        profile: String,
        /// What the parser or the testbed said.
        reason: String,
    },
    /// The testbed could not run one.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// Nothing to fit to, or nothing to fit.
    #[error("profile {profile} has no {what}: {remedy}")]
    Nothing {
        profile: String,
        what: &'static str,
        remedy: &'static str,
    },
    #[error(
        "the profile's text has no line `{name} = {{ value = ... }}` in [{section}]: write it on one line"
    )]
    Line { section: String, name: String },
}
