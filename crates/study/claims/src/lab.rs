//! What the lab measured on real devices, as runs of claims: listed here, checked by `isolane claims --lab DIR`.
//!
//! Problem: what is published of an RDMA device can be measured as a ratio on any device, so also on Soft-RoCE and siw in the
//! virtual machine of `lab/`, with unmodified programs and kernels. That takes an hour of a quiet machine, so the claims are
//! held against results that `lab/run` wrote. Method: a run says `lab = { proof = "latency", device = "rxe" }`, and a
//! measurement is `label:lab.quantity` with one of [`FIELDS`], the names that the proof prints.
//!
//! Units are the proof's own; formulas make ratios of them. Limits: two emulated processors do the work of a NIC, so a ratio says
//! how isolation does on that device and not what a NIC does; a proof that failed or was left out has no numbers.

use crate::error::{nearest, number};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the lab is called in a measurement: `l:lab.alone_p99`.
pub const NAME: &str = "lab";

/// Devices by their name in a claim, as people call them.
pub const DEVICES: [(&str, &str); 2] =
    [("rxe", "Soft-RoCE (rdma_rxe)"), ("siw", "Soft-iWARP (siw)")];

/// Proofs that measure what some claim names.
pub const PROOFS: [&str; 4] = ["cost", "enforce", "latency", "shares"];

/// What a measurement may name of a proof.
pub const FIELDS: [&str; 32] = [
    "alone_p99",
    "p99_next_to_1_none",
    "p99_next_to_2_none",
    "p99_next_to_8_none",
    "p99_next_to_1_isolane",
    "p99_next_to_2_isolane",
    "p99_next_to_8_isolane",
    "typical_next_to_1_none",
    "typical_next_to_2_none",
    "typical_next_to_8_none",
    "typical_next_to_1_isolane",
    "typical_next_to_2_isolane",
    "typical_next_to_8_isolane",
    "goodput_next_to_1",
    "goodput_next_to_2",
    "goodput_next_to_8",
    "jain_64KiB_vs_8MiB_isolane",
    "jain_1_vs_16_queue_pairs_isolane",
    "goodput_64KiB_vs_8MiB",
    "goodput_1_vs_16_queue_pairs",
    "largest_error_of_a_share",
    "latency_class_typical_rxe",
    "latency_class_typical_siw",
    "throughput_class_64B_rxe",
    "throughput_class_64B_siw",
    "attackers_at_20",
    "attackers_at_200",
    "attackers_at_1000",
    "attackers_beside_victim_at_1000",
    "errors_at_1000",
    "victim_alone",
    "victim_beside_free_attackers",
];

/// One proof on one device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabRun {
    /// One of [`PROOFS`].
    pub proof: String,
    /// One of [`DEVICES`].
    pub device: String,
}

impl LabRun {
    /// Whether there is such a proof and device; the error names what is wrong and the remedy.
    pub fn check(&self) -> Result<(), String> {
        let proof = self.proof.as_str();
        if !PROOFS.contains(&proof) {
            let hint = nearest(proof, PROOFS);
            return Err(format!("lab: no proof is called {proof:?}{hint}"));
        }
        match self.device_name() {
            Some(_) => Ok(()),
            None => {
                let hint = nearest(&self.device, DEVICES.map(|(name, _)| name));
                Err(format!("lab: no device is called {:?}{hint}", self.device))
            }
        }
    }

    /// The device as people call it.
    pub fn device_name(&self) -> Option<&'static str> {
        let mut devices = DEVICES.into_iter();
        devices
            .find(|(name, _)| *name == self.device)
            .map(|(_, called)| called)
    }
}

/// What one proof measured, by the names it printed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabNumbers(pub BTreeMap<String, f64>);

impl LabNumbers {
    /// The number `field` of what is called `name`, which is the lab.
    pub(crate) fn value(&self, name: &str, field: &str) -> Result<f64, String> {
        let value = number(&self.0, ("a proof", NAME), (name, field))?;
        value.ok_or_else(|| format!("the proof measured no {field}"))
    }
}

/// One directory of results of `lab/run`, or several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabResults {
    proofs: BTreeMap<String, Measured>,
}

/// What became of one proof.
#[derive(Clone, Debug, PartialEq)]
struct Measured {
    /// Why there are no numbers, where it did not pass.
    numbers: Result<LabNumbers, String>,
    /// Quick runs have one round of measuring, full ones medians of several.
    mode: String,
    /// The machine that it ran on, in words; empty where its kernel left none.
    machine: String,
}

#[derive(Deserialize)]
struct Document {
    mode: String,
    proofs: Vec<Proof>,
}

#[derive(Deserialize)]
struct Proof {
    name: String,
    verdict: String,
    #[serde(default)]
    reason: String,
    lines: Vec<Line>,
}

#[derive(Deserialize)]
struct Line {
    quantity: String,
    value: String,
}

impl LabResults {
    /// Adds what is in `results`, the text of a `results.json`; `kernel_log` gives what the kernel of a proof printed. The error says
    /// what is wrong with the text; a proof that is known already is one, since it is not clear which counts.
    pub fn add(
        &mut self,
        results: &str,
        kernel_log: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), String> {
        let document: Document = serde_json::from_str(results)
            .map_err(|error| format!("these are no results of lab/run: {error}"))?;
        for proof in document.proofs {
            let numbers = match proof.verdict.as_str() {
                "passed" => Ok(LabNumbers(
                    proof
                        .lines
                        .into_iter()
                        // Some lines are lists of ratios, for people.
                        .filter_map(|line| Some((line.quantity, line.value.parse().ok()?)))
                        .collect(),
                )),
                other => Err(format!(
                    "the proof {} {other}: {}",
                    proof.name, proof.reason
                )),
            };
            let measured = Measured {
                numbers,
                mode: document.mode.clone(),
                machine: kernel_log(&proof.name)
                    .and_then(|log| machine(&log))
                    .unwrap_or_default(),
            };
            if self.proofs.insert(proof.name.clone(), measured).is_some() {
                return Err(format!("it has the proof {:?} once more", proof.name));
            }
        }
        Ok(())
    }

    /// The numbers of a proof, or why there are none.
    pub fn numbers(&self, run: &LabRun) -> Result<LabNumbers, String> {
        let measured = self.proofs.get(&run.proof).ok_or_else(|| {
            format!(
                "the results have no proof {0}: `lab/run --only {0}` measures it",
                run.proof
            )
        })?;
        measured.numbers.clone()
    }

    /// Each proof with its kind of rounds (`quick`, `full`) and its machine in words, empty where the kernel left no log.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.proofs.iter().map(|(name, measured)| {
            let (mode, machine) = (measured.mode.as_str(), measured.machine.as_str());
            (name.as_str(), mode, machine)
        })
    }
}

/// A virtual machine in words, by what its kernel printed at boot.
fn machine(log: &str) -> Option<String> {
    let version = after(log, "Linux version ")?;
    // `smp: Brought up 1 node, 2 CPUs`, where there is more than one.
    let processors = after(log, "nr_cpu_ids=").unwrap_or("1");
    let processors = processors.trim_end_matches('.');
    let plural = if processors == "1" { "" } else { "s" };
    Some(format!(
        "Linux {version}, {processors} emulated processor{plural}"
    ))
}

/// The word behind `mark`.
fn after<'a>(text: &'a str, mark: &str) -> Option<&'a str> {
    text.split_once(mark)?.1.split_whitespace().next()
}

#[cfg(test)]
mod tests;
