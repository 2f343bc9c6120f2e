//! Cross-validation in a world where one parameter decides everything.

use super::*;
use crate::audit::{AuditRequest, Finding, Findings};
use crate::expression::tests::NoWorld;
use crate::nic::tests::result;
use crate::world::RequestBytes;
use expect_test::expect;
use isolane_ethernet_scenario::model::NicStudy;
use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::model::Scenario;
use isolane_study_results::ethernet::NicResult;
use isolane_study_results::network::FabricResult;
use isolane_study_results::rdma::RunResult;

/// A NIC whose processor time is the cost of a segment, in microseconds, for each flow; and an RDMA NIC on which one pair of each
/// column violates, but in the PCIe column as many as 1000 less the entries of the context cache.
struct Proportional;

impl World for Proportional {
    fn nic(&self, study: &NicStudy) -> Result<NicResult, String> {
        self.nic_on(study, &DeviceChanges::default())
    }
    fn nic_on(&self, study: &NicStudy, device: &DeviceChanges) -> Result<NicResult, String> {
        let card = device.of_nic(&NicProfile::of_paper())?;
        let isolane_ethernet_scenario::model::NicTraffic::Flows { flows, .. } = study.traffic
        else {
            return Err("flows only".to_owned());
        };
        let mut found = result("C6", flows, 1);
        found.cpu_percent = card.value("cost", "segment_ns") / 1e3 * f64::from(flows);
        if flows == ODD_FLOWS && study.seed == 1 {
            found.cpu_percent *= 2.0;
        }
        Ok(found)
    }
    fn scenario(&self, text: &str, file: &str) -> Result<Scenario, String> {
        NoWorld.scenario(text, file)
    }
    fn run(&self, scenario: &Scenario) -> Result<RunResult, String> {
        NoWorld.run(scenario)
    }
    fn network(&self, text: &str, file: &str) -> Result<FabricResult, String> {
        NoWorld.network(text, file)
    }
    fn audit(
        &self,
        request: &AuditRequest,
        _: &mut dyn FnMut(usize, usize),
    ) -> Result<Findings, String> {
        let library = Library::embedded();
        let profile = request.device.of_rnic(library.profile(RNIC).unwrap())?;
        let entries = profile.section("cache").unwrap()["context_entries"].value;
        let violated = |column| match column {
            Column::PcieData => (1000.0 - entries) as usize,
            _ => 1,
        };
        let cell = |column| Finding {
            column,
            victim: "victim".to_owned(),
            attacker: "attacker".to_owned(),
            violated: Some(true),
        };
        let columns = request.columns.iter();
        Ok(Findings {
            cells: columns
                .flat_map(|column| vec![cell(*column); violated(*column)])
                .collect(),
        })
    }
    fn model(&self, system: &str, name: &str, arguments: &[(String, f64)]) -> Result<f64, String> {
        NoWorld.model(system, name, arguments)
    }
    fn parameter(&self, profile: &str, section: &str, name: &str) -> Result<f64, String> {
        NoWorld.parameter(profile, section, name)
    }
    fn network_bytes(&self, request: &RequestBytes) -> Result<u64, String> {
        NoWorld.network_bytes(request)
    }
    fn pcie_bytes(&self, request: &RequestBytes) -> Result<u64, String> {
        NoWorld.pcie_bytes(request)
    }
}

/// With so many flows the first seed gives twice what the others do.
const ODD_FLOWS: u32 = 9;

/// The processor time of `flows` flows; `published` of them are printed.
fn claim(id: &str, flows: u32, published: f64) -> Claim {
    claim_of("C6", id, flows, published)
}

fn claim_of(config: &str, id: &str, flows: u32, published: f64) -> Claim {
    let text = format!(
        "id = {id:?}\nsystem = \"titan\"\npaper = \"p\"\nstatement = \"s\"\nkind = \"prediction\"\nunit = \"%\"\n\
         published = {published}\nmetric = \"r:nic.cpu_percent\"\n[[run]]\nlabel = \"r\"\nnic = {{ config = {config:?}, flows = {flows} }}\n"
    );
    Claim::parse(&text, &format!("claims/titan/{id}.toml")).unwrap()
}

fn rates(claims: &[Claim]) -> CrossRates {
    rates_without(LeaveOut::Runs, claims)
}

fn rates_without(leave_out: LeaveOut, claims: &[Claim]) -> CrossRates {
    rates_of(Family::of_nic(&NicProfile::of_paper()), leave_out, claims)
}

fn rates_of(family: Family, leave_out: LeaveOut, claims: &[Claim]) -> CrossRates {
    let options = CrossOptions {
        draws: 64,
        leave_out,
    };
    let claims: Vec<&Claim> = claims.iter().collect();
    let files = ScenarioFiles::new();
    check(
        &[family],
        &claims,
        &files,
        &Proportional,
        options,
        &|_, _| {},
    )
    .remove(0)
}

/// The shipped cost is 2.8 us; all claims are of a card with 4 us.
#[test]
fn what_the_other_claims_determine_is_predicted() {
    let claims: Vec<Claim> = (1..=6)
        .map(|flows| claim(&format!("a{flows}"), flows, 4.0 * f64::from(flows)))
        .collect();
    let found = rates(&claims);
    assert_eq!((found.shipped, found.fitted, found.left_out), (0, 6, 6));
}

#[test]
fn what_contradicts_the_other_claims_misses_when_it_is_left_out() {
    let mut claims: Vec<Claim> = (1..=6)
        .map(|flows| claim(&format!("a{flows}"), flows, 4.0 * f64::from(flows)))
        .collect();
    // Shipped values were fitted to this one.
    claims.push(claim("b", 7, 2.8 * 7.0));
    let found = rates(&claims);
    assert_eq!((found.claims, found.shipped, found.left_out), (7, 1, 6));
}

/// Its first seed would miss.
#[test]
fn a_claim_over_several_seeds_is_judged_by_all() {
    let mut claims: Vec<Claim> = (1..=8)
        .map(|flows| claim(&format!("a{flows}"), flows, 4.0 * f64::from(flows)))
        .collect();
    for claim in &mut claims {
        claim.seeds = vec![1];
    }
    let mut odd = claim("odd", ODD_FLOWS, 4.0 * f64::from(ODD_FLOWS));
    odd.seeds = vec![1, 2, 3, 4, 5];
    claims.push(odd);
    let found = rates(&claims);
    assert_eq!((found.fitted, found.left_out), (9, 9));
    claims[8].seeds = vec![1];
    assert_eq!(rates(&claims).left_out_missed, ["odd"]);
}

#[test]
fn claims_of_the_same_runs_are_left_out_together() {
    // Each of the two determines the other, and nothing else does.
    let claims = [claim("a", 2, 8.0), claim("b", 2, 8.4)];
    assert_eq!(rates(&claims).left_out, 0);
}

/// Eight claims of C1 determine each other; the one claim of C6 contradicts them.
#[test]
fn claims_of_one_configuration_are_left_out_together() {
    let many = (1..=8).map(|flows| {
        let id = format!("a{flows}");
        claim_of("C1", &id, flows, 4.0 * f64::from(flows))
    });
    let mut claims: Vec<Claim> = many.collect();
    claims.push(claim_of("C6", "b", 1, 3.0));
    let left_out = |leave_out, claims: &[Claim]| rates_without(leave_out, claims).left_out;
    assert_eq!(left_out(LeaveOut::Runs, &claims), 8);
    assert_eq!(left_out(LeaveOut::Configuration, &claims), 0);
    // A configuration that agrees with the others is predicted.
    claims.pop();
    claims.push(claim_of("C6", "b", 1, 4.0));
    assert_eq!(left_out(LeaveOut::Configuration, &claims), 9);
}

#[test]
fn settings_stay_within_the_ranges_of_their_parameters() {
    for profile in Library::embedded().profiles() {
        let family = Family::of_rnic(profile);
        for draw in 0..100 {
            family.setting(draw).of_rnic(profile).unwrap();
        }
    }
}

#[test]
fn the_table_has_a_row_for_each_device_and_their_sum() {
    let row = |device: &str, claims| CrossRates {
        device: device.to_owned(),
        free: 2,
        claims,
        shipped: 4,
        fitted: 3,
        left_out: 2,
        left_out_missed: Vec::new(),
    };
    // The first line keeps the indentation of the others.
    let table = format!("rates:\n{}", text(&[row("one", 4), row("two", 6)]));
    expect![[r#"
        rates:
          device  fitted  claims    shipped  best draw  left out
          one          2       4  4 (100 %)   3 (75 %)  2 (50 %)
          two          2       6   4 (67 %)   3 (50 %)  2 (33 %)
          all          4      10   8 (80 %)   6 (60 %)  4 (40 %)
    "#]]
    .assert_eq(&table);
}

const RNIC: &str = "cx5-100g-roce";

fn audit_claim(policy: &str, column: &str, published: u32) -> Claim {
    let id = format!("{policy}-{column}");
    let text = format!(
        "id = {id:?}\nsystem = \"husky\"\npaper = \"p\"\nstatement = \"s\"\nkind = \"prediction\"\nunit = \"count\"\n\
         published = {published}\ntolerance = {{ relative = 0.1 }}\nmetric = 'violations(cells)'\n[[audit]]\nlabel = \"cells\"\n\
         profile = {:?}\npolicy = {policy:?}\ncolumns = [{column:?}]\n",
        RNIC
    );
    Claim::parse(&text, &format!("claims/husky/{id}.toml")).unwrap()
}

/// 400 entries are shipped, and 500 give what both cells of the PCIe column say. The other column says nothing about them.
#[test]
fn a_column_of_attackers_is_left_out_under_every_policy() {
    let missed = |leave_out| {
        let claims = [
            audit_claim("none", "pcie-data", 500),
            audit_claim("justitia", "pcie-data", 500),
            audit_claim("none", "pu-data", 1),
        ];
        let library = Library::embedded();
        let family = Family::of_rnic(library.profile(RNIC).unwrap());
        rates_of(family, leave_out, &claims).left_out_missed
    };
    assert_eq!(missed(LeaveOut::Runs), [""; 0]);
    let both = ["none-pcie-data", "justitia-pcie-data"];
    assert_eq!(missed(LeaveOut::Configuration), both);
}
