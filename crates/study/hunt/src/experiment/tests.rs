//! Experiments of the simulator, and when one has settled.

use super::*;
use crate::space::Space;
use crate::space::tests::{plain, profile};
use isolane_study_testbed_simulator::SimTestbed;

#[test]
fn a_series_is_steady_when_its_quarters_are_alike() {
    assert!(is_steady(&[10.0; 40]));
    assert!(is_steady(&[]) && !is_steady(&[0.0; 40]));
    let rising: Vec<f64> = (0..40).map(f64::from).collect();
    assert!(!is_steady(&rising));
    let mut dip = vec![10.0; 40];
    dip[20..30].fill(8.0);
    assert!(!is_steady(&dip));
}

/// The simulator, whose receivers get nothing in a quarter of the time.
pub(crate) struct Uneven;

impl Testbed for Uneven {
    fn name(&self) -> &str {
        "uneven"
    }

    fn run(
        &self,
        scenario: &isolane_rdma_scenario::model::Scenario,
        profile: &Profile,
    ) -> Result<RunResult, isolane_study_testbed::TestbedError> {
        let mut result = SimTestbed.run(scenario, profile)?;
        for host in &mut result.counters {
            host.values
                .values_mut()
                .for_each(|count| *count = *count * 3 / 4);
        }
        for tenant in &mut result.tenants {
            tenant.message_rate_per_s *= 0.75;
            tenant.goodput_gbps *= 0.75;
            let series = &mut tenant.goodput_series_gbps;
            let quarter = series.len() / 4;
            series[..quarter].fill(0.0);
        }
        Ok(result)
    }
}

#[test]
fn a_real_run_that_did_not_settle_has_no_symptom_and_a_simulated_one_has() {
    let profile = profile("cx5-100g-roce");
    let bounds = {
        let lab = Lab::simulated(&SimTestbed, &profile);
        crate::bounds::Bounds::measure(&lab, &profile, &Space::of(&profile), 1).unwrap()
    };
    let mut lab = Lab::simulated(&Uneven, &profile);
    let long = Point {
        requests: vec![vec![65_536]],
        ..point::Feature::Service.set(&plain(), 0)
    };
    let judged = |lab: &Lab<'_>| {
        let measured = lab.measure(&long, 1).unwrap();
        crate::monitor::judge(&long, &measured, &bounds)
    };
    let simulated = judged(&lab);
    assert_eq!(
        simulated.symptom,
        Some(crate::monitor::Symptom::LowThroughput)
    );
    lab.is_noisy = true;
    let real = judged(&lab);
    assert_eq!((real.symptom, real.unsettled), (None, true), "{real:?}");
    assert_eq!(real.of_bits, simulated.of_bits);
}

#[test]
fn modelled_time_spans_the_papers_range() {
    let most = Point {
        queue_pairs: 20_000,
        regions: 200_000,
        ..plain()
    };
    assert!((20.0..20.1).contains(&modelled_s(&plain())));
    assert_eq!(modelled_s(&most), 60.0);
}

#[test]
fn deep_queues_of_many_pairs_are_measured_after_they_are_filled() {
    let profile = profile("cx6-200g-roce");
    let lab = Lab::simulated(&SimTestbed, &profile);
    let point = Point {
        queue_pairs: 256,
        depth: 1_024,
        mtu: 4_096,
        region_bytes: 65_536,
        requests: vec![vec![65_536]],
        ..point::Feature::Service.set(&plain(), 0)
    };
    let measured = lab.measure(&point, 1).unwrap();
    assert!(measured.slowest.gbps > 190.0, "{measured:?}");
}

/// WRITEs from A and SENDs from B fill both directions; SENDs beside WRITEs share one; a half of the link each is sound.
#[test]
fn two_plain_kinds_of_traffic_fill_the_links_that_they_use() {
    let profile = profile("cx5-100g-roce");
    let lab = Lab::simulated(&SimTestbed, &profile);
    let bounds = crate::bounds::Bounds::measure(&lab, &profile, &Space::of(&profile), 1).unwrap();
    let long = |service: u64| Point {
        requests: vec![vec![65_536]],
        ..Feature::Service.set(&plain(), service)
    };
    for direction in [point::ONE_WAY, point::BIDIRECTIONAL] {
        for second in [1, 2] {
            let point = Point {
                direction,
                ..long(0).beside(&long(second))
            };
            let measured = lab.measure(&point, 1).unwrap();
            let judged = crate::monitor::judge(&point, &measured, &bounds);
            assert_eq!(judged.symptom, None, "{point:?} {measured:?}");
            let same = measured.kinds[0].arrived == measured.kinds[1].arrived;
            // READs bring data the other way.
            assert_eq!(same, (direction == point::ONE_WAY) == (second == 1));
            let moved = measured.kinds.iter().all(|kind| kind.messages_per_s > 0.0);
            assert!(moved && measured.slowest.gbps > 90.0, "{measured:?}");
        }
    }
}

#[test]
fn a_plain_workload_fills_each_link_that_it_uses() {
    let profile = profile("cx5-100g-roce");
    let lab = Lab::simulated(&SimTestbed, &profile);
    for direction in [point::ONE_WAY, point::BIDIRECTIONAL] {
        for service in [0, 2] {
            let service = point::Feature::Service.set(&plain(), service);
            let point = Point {
                direction,
                requests: vec![vec![65_536]],
                ..service
            };
            let measured = lab.measure(&point, 1).unwrap();
            assert!(measured.steady, "{point:?} {measured:?}");
            assert!(measured.slowest.gbps > 90.0, "{point:?} {measured:?}");
            assert_eq!(measured, lab.measure(&point, 1).unwrap());
        }
    }
}
