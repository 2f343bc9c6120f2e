//! What takes part in an audit, on the embedded catalogue.

use super::*;
use isolane_study_audit::figures::COLUMNS;

fn request(policy: &str, columns: &[Column]) -> AuditRequest {
    AuditRequest {
        profile: "cx5-100g-roce".to_owned(),
        policy: policy.to_owned(),
        parameters: BTreeMap::new(),
        victims: None,
        verbs: Vec::new(),
        alpha: 0.25,
        device: DeviceChanges::default(),
        seed: 1,
        columns: columns.iter().copied().collect(),
    }
}

fn planned(request: &AuditRequest) -> Result<Plan, String> {
    let library = Library::embedded();
    let profile = library.profile(&request.profile).expect("shipped");
    plan_of(request, profile, &library.catalogue)
}

#[test]
fn a_column_takes_its_attackers_and_every_rate_victim() {
    let plan = planned(&request("none", &[Column::PuErrorRc])).unwrap();
    let catalogue = Catalogue::embedded();
    let of_column = catalogue
        .attackers()
        .filter(|entry| entry.column == Some(Column::PuErrorRc));
    assert_eq!(plan.attackers.len(), of_column.count());
    assert_eq!(plan.victims.len(), 21, "husky's, and no latency victim");
}

#[test]
fn all_columns_together_are_husky_without_bandwidth() {
    let all = &COLUMNS[1..];
    let plan = planned(&request("none", all)).unwrap();
    let bandwidth = Catalogue::embedded()
        .attackers()
        .filter(|entry| entry.column == Some(Column::Bandwidth))
        .count();
    assert_eq!(plan.attackers.len(), 50 - bandwidth);
}

#[test]
fn a_choice_of_verbs_leaves_control_verbs_in() {
    let mut request = request("justitia", &[Column::PuData, Column::CacheControl]);
    let whole = planned(&request).unwrap();
    request.verbs = vec![Verb::Write, Verb::Send];
    let plan = planned(&request).unwrap();
    let names: Vec<&str> = plan
        .attackers
        .iter()
        .map(|attacker| attacker.info.name.as_str())
        .collect();
    assert!(names.contains(&"PU-request_write_forward"));
    assert!(names.contains(&"Cache-ctrl_all_sender"));
    assert!(!names.contains(&"PU-request_faa_forward"));
    assert!(!names.contains(&"PU-request_read_forward"));
    assert!(plan.victims.len() < whole.victims.len());
}

#[test]
fn what_cannot_be_audited_says_why() {
    let says = |request: AuditRequest| planned(&request).unwrap_err();
    assert!(says(request("justitia+sriov", &[Column::PuData])).contains("one function"));
    let mut parameter = request("justitia", &[Column::PuData]);
    parameter.parameters.insert("target_us".to_owned(), -1.0);
    assert!(says(parameter).contains("target_us = -1"));
    let mut nobody = request("none", &[Column::PuErrorRc]);
    nobody.verbs = vec![Verb::CompareSwap];
    assert!(says(nobody).contains("no victim or no attacker"));
}

#[test]
fn requests_that_differ_in_columns_only_go_together() {
    let one = request("none", &[Column::PuData]);
    let other = request("none", &[Column::PcieData]);
    assert_eq!(one.key(), other.key());
    assert_ne!(one.key(), request("justitia", &[Column::PuData]).key());
    let next = AuditRequest {
        seed: 2,
        ..one.clone()
    };
    assert_ne!(one.key(), next.key());
}

#[test]
fn every_claims_audit_is_a_plan() {
    for claim in crate::embedded_claims().unwrap() {
        for audit in &claim.audits {
            let request = AuditRequest::of(audit, 1);
            if let Err(problem) = planned(&request) {
                panic!("{}: {problem}", claim.file);
            }
        }
    }
}
