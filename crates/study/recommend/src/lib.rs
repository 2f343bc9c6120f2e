//! Which policy meets the needs of a scenario's own tenants, and what each one cannot protect against.
//!
//! Each tenant has objectives (`[tenant.slo]`). Every policy runs all tenants together, once per seed, and medians over
//! the seeds are compared with the objectives. Policies are ranked by objectives met, then by utilisation, then by the
//! CPU cores that they use. For a tenant that misses an objective, further runs of the first seed find the cause: the
//! tenant alone, and all tenants except one of the others. The counters of both NICs name the resource that ran out.
//!
//! Where no tenant says what it needs, objectives are derived from what each gets alone (`derive`).
//!
//! * `needs` - what tenants need, and whether they got it;
//! * [`result`] - the answer as plain data;
//! * [`mod@run`] - runs the policies and ranks them;
//! * `cause` - which tenants and which resource cause a miss;
//! * [`text`] - the answer for a terminal.
//!
//! Units end the names, as in [`isolane_study_audit::matrix`]. Nothing in a result depends on when, where or with how many
//! workers it was made.
#![forbid(unsafe_code)]

mod advice;
mod cause;
mod derive;
mod needs;
pub mod result;
pub mod run;
pub mod text;

/// Why there is no recommendation.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum RecommendError {
    /// No tenant has an objective, or no tenant completes anything.
    #[error(
        "scenario {scenario}: no tenant has an SLO, and none completes a message alone from which one could be derived; say \
         what one needs, like slo = {{ p99_max = \"10us\" }} or slo = {{ goodput_min = \"20Gb/s\" }} in its [[tenant]]"
    )]
    NoNeeds { scenario: String },
    #[error("scenario {scenario}: no policy is left to compare: {reasons}")]
    NoPolicy { scenario: String, reasons: String },
    #[error("cannot start {jobs} workers: {reason}; try a smaller --jobs")]
    Workers { jobs: usize, reason: String },
    #[error(transparent)]
    Testbed(#[from] isolane_study_testbed::TestbedError),
}
