//! The plan of the tests' audits.

use isolane_rdma_scenario::catalogue::Catalogue;
use isolane_rdma_scenario::model::PolicySpec;
use isolane_rdma_scenario::profile::Profile;
use isolane_study_audit::plan::{DURATION, Plan, TOPOLOGY, WARMUP};
use isolane_study_audit::predicate::{Part, Predicate};
use isolane_study_audit::select::Selection;
use std::collections::BTreeMap;

/// An audit of the catalogue's `selection` under `policies`, with runs of a fixed time.
pub(crate) fn plan(profile: Profile, selection: &Selection, policies: &[&str]) -> Plan {
    let (victims, attackers) = selection.of(&Catalogue::embedded(), &profile).unwrap();
    let policy = |name: &&str| PolicySpec {
        name: (*name).to_owned(),
        parameters: BTreeMap::new(),
    };
    Plan {
        profile,
        policies: policies.iter().map(policy).collect(),
        left_out: Vec::new(),
        victims,
        attackers,
        seeds: vec![1, 2, 3],
        predicate: Predicate::Share {
            alpha: 0.25,
            part: Part::one_of(2),
        },
        warmup: WARMUP,
        duration: DURATION,
        cap: None,
        least_times: 1,
        topology: TOPOLOGY,
        rerun: "isolane audit".to_owned(),
    }
}
