//! What requests of each verb cost an idle device, next to a WRITE.
//!
//! An offline profiling run (harmonic 5.5.1): 16 processes with eight pairs each post 1 B requests (atomics 8 B) of one
//! verb in lists of 16, which saturates the bottleneck of the verb, and the cost is one over the rate. Of the two
//! atomics the dearer one counts. Harmonic normalises request rates with these costs.
//!
//! Units: millions of requests per second; costs are multiples of a WRITE's, rounded to two digits.

use crate::CalibrationError;
use crate::oracle::{failed, round, run};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_testbed::Testbed;
use serde::Serialize;

/// Processes that post.
const PROCESSES: u32 = 16;

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RequestCosts {
    /// The profile measured.
    pub profile: String,
    /// Each verb, WRITE first.
    pub verbs: Vec<VerbCost>,
}

/// One verb.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerbCost {
    /// As people call it.
    pub verb: &'static str,
    /// Requests per second, millions.
    pub rate_mps: f64,
    /// Rate of WRITE over this rate.
    pub cost: f64,
}

/// Measures `profile` on `testbed`; `progress` is called after each run with (done, all). A device without atomics
/// is measured without them. Fails if a run fails, or completes nothing.
pub fn measure(
    profile: &Profile,
    testbed: &dyn Testbed,
    progress: &dyn Fn(usize, usize),
) -> Result<RequestCosts, CalibrationError> {
    let all = if profile.atomics { 5 } else { 3 };
    let mut verbs: Vec<VerbCost> = Vec::new();
    for (number, (verb, command)) in VERBS.into_iter().take(all).enumerate() {
        let result = run(profile, testbed, command, PROCESSES)?;
        let rate = result.tenants[0].message_rate_per_s / 1e6;
        if rate <= 0.0 {
            return Err(failed(profile, &format!("{command} completed nothing")));
        }
        let write = verbs.first().map_or(rate, |first| first.rate_mps);
        verbs.push(VerbCost {
            verb,
            rate_mps: rate,
            cost: round(write / rate, 2),
        });
        progress(number + 1, all);
    }
    for verb in &mut verbs {
        verb.rate_mps = round(verb.rate_mps, 3);
    }
    Ok(RequestCosts {
        profile: profile.name.clone(),
        verbs,
    })
}

impl RequestCosts {
    /// The profile's parameters in `[harmonic]`: names and values.
    pub fn parameters(&self) -> [(&'static str, f64); 3] {
        let dearest = |verbs: &[&str]| {
            let measured = self.verbs.iter().filter(|one| verbs.contains(&one.verb));
            measured.map(|one| one.cost).fold(0.0, f64::max)
        };
        let atomic = dearest(&["FETCH_AND_ADD", "CMP_AND_SWAP"]);
        [
            ("send_cost", dearest(&["SEND"])),
            ("read_cost", dearest(&["READ"])),
            ("atomic_cost", if atomic > 0.0 { atomic } else { 1.0 }),
        ]
    }
}

/// Verbs and the commands that measure them.
const VERBS: [(&str, &str); 5] = [
    ("WRITE", "ib_write_bw -s 1 -l 16 -q 8 --run_infinitely"),
    ("SEND", "ib_send_bw -s 1 -l 16 -q 8 --run_infinitely"),
    ("READ", "ib_read_bw -s 1 -l 16 -q 8 --run_infinitely"),
    (
        "FETCH_AND_ADD",
        "ib_atomic_bw -A FETCH_AND_ADD -l 16 -q 8 --run_infinitely",
    ),
    (
        "CMP_AND_SWAP",
        "ib_atomic_bw -A CMP_AND_SWAP -l 16 -q 8 --run_infinitely",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_common_toml_input::sourced::SourceKind;
    use isolane_rdma_scenario::library::Library;
    use isolane_study_testbed_simulator::SimTestbed;

    #[test]
    fn shipped_costs_are_what_the_profiling_run_measures() {
        for profile in Library::embedded().profiles() {
            let costs =
                measure(profile, &SimTestbed, &|_, _| ()).unwrap_or_else(|error| panic!("{error}"));
            for (name, measured) in costs.parameters() {
                let shipped = &profile.harmonic[name];
                // Published ones are of the device, not of this run.
                if shipped.kind != SourceKind::Published {
                    assert!(
                        (measured / shipped.value - 1.0).abs() < 0.02,
                        "{}: {name} is {}, measured {measured}: {costs:?}",
                        profile.name,
                        shipped.value
                    );
                }
            }
        }
    }
}
