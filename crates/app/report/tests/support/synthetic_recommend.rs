//! A made-up recommendation for the tests of its page; it says nothing about any device.

use isolane_study_recommend::result::{
    Objective, ObjectiveKind, ObjectiveOutcome, PolicyOutcome, RECOMMENDATION_VERSION,
    Recommendation, TenantNeeds, TenantOutcome,
};

const NEEDS: [(&str, ObjectiveKind, f64); 2] = [
    ("kv", ObjectiveKind::P99Max, 4.0),
    ("storage", ObjectiveKind::GoodputMin, 30.0),
];

/// Nine policies: the first meets everything, the fourth one starves a tenant, `none` is the last.
pub(crate) fn recommendation() -> Recommendation {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "none"];
    let policies = names.iter().zip(1u32..);
    Recommendation {
        version: RECOMMENDATION_VERSION,
        scenario: "made-up".to_owned(),
        profile: "cx5-100g-roce".to_owned(),
        testbed: "sim".to_owned(),
        seeds: vec![1, 2, 3],
        measured_us: 1_000.0,
        settling: None,
        tenants: NEEDS.map(needs).to_vec(),
        policies: policies.map(|(name, rank)| policy(name, rank)).collect(),
        left_out: Vec::new(),
        advice: "a meets all 2 objectives and uses 87 % of the RDMA NIC for 2.25 cores".to_owned(),
        rerun: "isolane recommend made-up.toml".to_owned(),
    }
}

fn needs((name, kind, target): (&str, ObjectiveKind, f64)) -> TenantNeeds {
    TenantNeeds {
        name: name.to_owned(),
        weight: 1,
        objectives: vec![Objective { kind, target }],
        derived: false,
    }
}

fn policy(name: &str, rank: u32) -> PolicyOutcome {
    let rank = f64::from(rank);
    let measured = [(rank != 4.0).then_some(rank * 1.7), Some(64.0 - 5.0 * rank)];
    let tenants: Vec<TenantOutcome> = NEEDS
        .into_iter()
        .zip(measured)
        .map(|((tenant, kind, target), measured)| TenantOutcome {
            name: tenant.to_owned(),
            metrics: Default::default(),
            objectives: vec![ObjectiveOutcome {
                kind,
                target,
                measured,
                met: Objective { kind, target }.met(measured),
                borderline: false,
                settled: true,
            }],
        })
        .collect();
    let objectives = tenants.iter().flat_map(|tenant| &tenant.objectives);
    PolicyOutcome {
        policy: name.to_owned(),
        about: "made up".to_owned(),
        on_sale: true,
        settling: None,
        met: objectives.filter(|one| one.met).count() as u32,
        objectives: NEEDS.len() as u32,
        utilisation: 0.9 - rank / 50.0,
        goodput_gbps: 60.0,
        policy_cores: rank / 4.0,
        tenants,
        misses: Vec::new(),
    }
}
