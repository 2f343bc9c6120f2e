//! The papers' quantitative statements as data, and how ours compare.
//!
//! Problem: a simulator is worth what its agreement with published measurements is worth, and a reader must be
//! able to check each one. So every statement is a file (`claims/<system>/<id>.toml`) with what is published, a
//! formula over runs, a tolerance, and whether parameters were fitted to it (`calibration`) or not
//! (`prediction`). `isolane claims` runs them all and says which hold; misses stay.
//!
//! Units: each claim names its own ([`verdict::Unit`]). Method: distinct runs once, in parallel; the verdict is
//! over the median of the seeds unless the claim says otherwise. A run is of RDMA hosts on a device, of a network (a
//! scenario with `[fabric]`), of tiered memory (`[memory]`), or of a host's network card.
//! `docs/internals/claims.md` describes the files.
//!
//! * [`claim`] - one claim, read and checked;
//! * [`expression`] - the language of metrics;
//! * `models` - the policies' code, for arithmetic;
//! * [`verdict`] - tolerances;
//! * `memory` - runs of tiered memory;
//! * `nic` - studies of a network card as runs of a claim;
//! * [`hunt`] - comparisons of searchers as runs of a claim;
//! * [`lab`] - what was measured on real devices as runs of a claim;
//! * `planner` - experiments of the query planner as runs of a claim;
//! * [`audit`] - parts of the audit as runs of a claim;
//! * [`plan`] - runs shared between claims;
//! * [`report`] - table, JSON, Markdown;
//! * `check` - what a reason of a miss changes, `device` - of a device; [`why`] - reasons of misses, checked by runs;
//! * [`cross`] - cross-validation of the parameters that were fitted;
//! * [`world`] - what the caller provides, [`laboratory`] - the same on a testbed;
//! * `embedded` - the repository's claims inside the binary.
#![forbid(unsafe_code)]

pub mod audit;
mod check;
pub mod claim;
pub mod cross;
mod device;
mod embedded;
mod error;
pub mod expression;
pub mod figure;
pub mod hunt;
pub mod lab;
pub mod laboratory;
mod memory;
pub mod models;
mod nic;
pub mod plan;
mod planner;
pub mod report;
pub mod verdict;
pub mod why;
pub mod world;

pub use error::ClaimError;

use claim::Claim;
use isolane_common_toml_input::glob;
use std::collections::{BTreeMap, BTreeSet};

/// Reads `files` (path inside the repository, text), sorted by system and id.
pub fn read<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Vec<Claim>, ClaimError> {
    let mut claims = files
        .into_iter()
        .map(|(file, text)| Claim::parse(text, file))
        .collect::<Result<Vec<Claim>, ClaimError>>()?;
    let mut seen: BTreeMap<&str, &Claim> = BTreeMap::new();
    for claim in &claims {
        if let Some(earlier) = seen.insert(&claim.id, claim) {
            return Err(ClaimError::Duplicate {
                file: claim.file.clone(),
                id: claim.id.clone(),
                other: earlier.file.clone(),
            });
        }
    }
    claims.sort_by(|a, b| (&a.system, &a.id).cmp(&(&b.system, &b.id)));
    Ok(claims)
}

/// The claims that come with this binary.
pub fn embedded_claims() -> Result<Vec<Claim>, ClaimError> {
    read(embedded::CLAIMS.iter().copied())
}

/// Their scenario files, by name under `scenarios/claims/`; those of other directories by name under `scenarios/`.
pub fn embedded_scenarios() -> plan::ScenarioFiles<'static> {
    embedded::SCENARIOS
        .iter()
        .map(|(path, text)| (short_name(path), *text))
        .collect()
}

/// The members of `claims` whose id, or `system/id`, matches one of `patterns` (`*` is any text, `?` one character); all of them
/// without patterns. A pattern that matches nothing is an error.
pub fn select<'a>(claims: &'a [Claim], patterns: &[String]) -> Result<Vec<&'a Claim>, ClaimError> {
    let matches = |pattern: &str, claim: &Claim| {
        glob::matches(pattern, &claim.id)
            || glob::matches(pattern, &format!("{}/{}", claim.system, claim.id))
    };
    for pattern in patterns {
        if !claims.iter().any(|claim| matches(pattern, claim)) {
            let systems: BTreeSet<&str> =
                claims.iter().map(|claim| claim.system.as_str()).collect();
            let longer = format!("{pattern}*");
            let nearest = match systems.contains(pattern.as_str()) {
                true => format!(", did you mean \"{pattern}/*\""),
                false if claims.iter().any(|claim| matches(&longer, claim)) => {
                    format!(", did you mean {longer:?}")
                }
                false => error::nearest(pattern, claims.iter().map(|claim| claim.id.as_str()))
                    .trim_end_matches('?')
                    .to_owned(),
            };
            let systems: Vec<&str> = systems.into_iter().collect();
            return Err(ClaimError::NoMatch {
                pattern: pattern.clone(),
                nearest,
                systems: systems.join(", "),
            });
        }
    }
    Ok(claims
        .iter()
        .filter(|claim| {
            patterns.is_empty() || patterns.iter().any(|pattern| matches(pattern, claim))
        })
        .collect())
}

fn short_name(path: &str) -> &str {
    path.strip_prefix(SCENARIO_FOLDER)
        .or_else(|| path.strip_prefix("scenarios/"))
        .unwrap_or(path)
}

/// The path, inside the repository, of scenarios that only claims need.
const SCENARIO_FOLDER: &str = "scenarios/claims/";

#[cfg(test)]
mod tests;
