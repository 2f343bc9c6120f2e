//! `isolane claims --lab DIR`: the claims on real devices, held against what `lab/run` measured.

use crate::file_kind::Wanted;
use crate::inputs::{self, bad};
use crate::laboratory::Equipped;
use anyhow::{Result, bail};
use isolane_study_claims::claim::{Claim, ClaimTestbed};
use isolane_study_claims::lab::LabResults;
use isolane_study_claims::plan;
use isolane_study_claims::report::{self, ClaimReport};
use std::path::{Path, PathBuf};

/// What `lab/run` writes into its directory.
const RESULTS: &str = "results.json";

/// Verdicts on those of `claims` that are about real devices, and their page. Errors name the directory.
pub(super) fn check(
    claims: &[&Claim],
    directories: &[PathBuf],
) -> Result<(Vec<ClaimReport>, String)> {
    let claims: Vec<&Claim> = claims
        .iter()
        .copied()
        .filter(|claim| claim.testbed == ClaimTestbed::Lab)
        .collect();
    if claims.is_empty() {
        bail!(bad(
            "--only: none of these claims is about a real device: `isolane claims --list --only '*/lab-*'` lists those"
        ));
    }
    let results = read(directories)?;
    let library = inputs::library();
    let laboratory = Equipped::with_lab(&library, &results);
    let files = isolane_study_claims::embedded_scenarios();
    let reports = plan::check(&claims, &files, &laboratory, &|_, _| {});
    let words: Vec<String> = directories
        .iter()
        .map(|directory| format!(" --lab {}", directory.display()))
        .collect();
    let command = format!("isolane claims{}", words.concat());
    let page = report::devices(&results, &reports, &command);
    Ok((reports, page))
}

/// What [`RESULTS`] must be.
const PROOFS: Wanted = Wanted {
    kind: |_| true,
    words: "results of the lab",
};

fn read(directories: &[PathBuf]) -> Result<LabResults> {
    let mut results = LabResults::default();
    for directory in directories {
        let file = directory.join(RESULTS);
        if !file.exists() {
            bail!(bad(format!(
                "--lab {}: there is no {RESULTS}: name a directory that `make lab` or `lab/run --out` has written, like out/lab",
                directory.display()
            )));
        }
        results
            .add(&inputs::read(&file, &PROOFS)?, &|proof| {
                kernel_log(directory, proof)
            })
            .map_err(|error| bad(format!("--lab {}: {error}", directory.display())))?;
    }
    Ok(results)
}

/// What the kernel printed while `proof` ran; none where it is gone.
fn kernel_log(directory: &Path, proof: &str) -> Option<String> {
    let bytes = std::fs::read(directory.join(format!("{proof}.kernel.log"))).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
