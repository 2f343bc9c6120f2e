//! A testbed made of formulas, for tests of the code that calls the trait: instant, and with a known answer.
//!
//! Every tenant alone gets the link rate for large messages and 10 million messages per second for small ones; a
//! distributed application, 10,000 operations per second. A neighbour whose name contains `storm` takes nine tenths of
//! every tenant's rate and shows as a stalled receive unit on host B; any other neighbour halves the link. Seeds move
//! rates by a few parts in a thousand.

use crate::{Testbed, TestbedError, check};
use isolane_rdma_scenario::model::{Host, Scenario, Tenant, Traffic};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_results::rdma::{
    ApplicationResult, HostCounters, LatencyResult, RunResult, TenantResult,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// Operations of an application that is alone.
const OPERATIONS_PER_S: f64 = 1e4;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct FakeTestbed {
    /// How long each run pretends to take, for tests of interruption.
    pub pause: Duration,
}

impl Testbed for FakeTestbed {
    fn name(&self) -> &str {
        "fake"
    }

    fn run(&self, scenario: &Scenario, profile: &Profile) -> Result<RunResult, TestbedError> {
        check(scenario, profile)?;
        if !self.pause.is_zero() {
            std::thread::sleep(self.pause);
        }
        Ok(answer(scenario, profile))
    }
}

fn answer(scenario: &Scenario, profile: &Profile) -> RunResult {
    let link_gbps = profile.value("link", "rate_gbps");
    let storm = |tenant: &Tenant| tenant.name.contains("storm") || tenant.name.contains("RNR");
    let stormy = scenario.tenants.iter().any(storm);
    let wobble = 1.0 + (scenario.seed % 7) as f64 / 1000.0;
    let tenants = scenario.tenants.iter().map(|tenant| {
        let factor = match (scenario.tenants.len(), storm(tenant)) {
            (1, _) => 1.0,
            (_, false) if stormy && scenario.policy.name == "none" => 0.1,
            (n, _) => 1.0 / n as f64,
        };
        result_of(tenant, link_gbps, factor * wobble, scenario)
    });
    let ratios = |host: Host| {
        let mut ratios = BTreeMap::from([
            ("link_tx_utilisation".to_owned(), 0.5),
            ("requester_unit_utilisation".to_owned(), 0.2),
            ("rnr_stall_ratio".to_owned(), 0.0),
        ]);
        if stormy && host == Host::B {
            ratios.insert("rnr_stall_ratio".to_owned(), 0.99);
        }
        ratios
    };
    RunResult {
        tenants: tenants.collect(),
        counters: [Host::A, Host::B]
            .map(|host| HostCounters {
                host,
                values: BTreeMap::new(),
                ratios: ratios(host),
            })
            .to_vec(),
        ..RunResult::empty(scenario, &profile.name, "fake")
    }
}

fn result_of(tenant: &Tenant, link_gbps: f64, factor: f64, scenario: &Scenario) -> TenantResult {
    let bytes = tenant
        .workloads
        .iter()
        .find_map(|workload| match &workload.traffic {
            Traffic::Data(data) => Some(data.pattern[0].bytes().get() as f64),
            Traffic::Control(_) | Traffic::Application(_) => None,
        });
    let rate_per_s = bytes.map_or(0.0, |bytes| {
        f64::min(link_gbps * 1e9 / (8.0 * bytes), 10e6) * factor
    });
    let goodput_gbps = rate_per_s * bytes.unwrap_or(0.0) * 8.0 / 1e9;
    let points =
        (scenario.duration.as_ps() / scenario.sample_interval.as_ps().max(1)).min(1000) as usize;
    let latency_us = bytes.map(|_| LatencyResult {
        samples: 1000,
        min: 1.0 / factor,
        mean: 1.5 / factor,
        p50: 1.5 / factor,
        p99: 2.0 / factor,
        p999: 2.5 / factor,
        max: 3.0 / factor,
        steady: true,
    });
    let operations_per_s = OPERATIONS_PER_S * factor;
    let application = tenant
        .workloads
        .iter()
        .any(|workload| matches!(workload.traffic, Traffic::Application(_)))
        .then_some(ApplicationResult {
            operations_per_s,
            pace_per_s: Some(operations_per_s),
            operation_us: None,
        });
    TenantResult {
        application,
        name: tenant.name.clone(),
        class: tenant.class,
        declared_class: tenant.class,
        offered_gbps: None,
        goodput_gbps,
        wire_gbps: goodput_gbps,
        message_rate_per_s: rate_per_s,
        control_rate_per_s: if bytes.is_none() { 5000.0 } else { 0.0 },
        share: goodput_gbps / link_gbps,
        latency_us,
        policy_cores: 0.0,
        errors: 0,
        queue_pair_gbps: [goodput_gbps; 3],
        goodput_series_gbps: vec![goodput_gbps; points],
        p99_series_us: vec![Some(2.0 / factor); points],
    }
}
