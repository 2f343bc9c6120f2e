//! What must hold on every testbed: on the simulator here, and on the devices that `ISOLANE_TEST_TARGET` names, with
//! the program `ISOLANE_TEST_PROGRAM` (`isolane` as it is installed).
#![allow(clippy::unwrap_used)]

use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::model::{Host, Scenario};
use isolane_study_results::rdma::RunResult;
use isolane_study_testbed::Testbed;
use isolane_study_testbed_simulator::SimTestbed;
use isolane_study_testbed_verbs::testbed::lengthen;
use isolane_study_testbed_verbs::{Reach, VerbsTestbed};

const BULK: &str =
    "class = \"bandwidth\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = \"64KiB\"\ndepth = 16\n";
const LATENCY: &str =
    "class = \"latency\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 16\ndepth = 1\n";

/// Runs `body` on the simulator, and on real devices where some are named.
fn everywhere(body: fn(&Question<'_>)) {
    let library = Library::embedded();
    body(&Question {
        testbed: &SimTestbed,
        library: &library,
        real: None,
    });
    let (Ok(target), Ok(program)) = (
        std::env::var("ISOLANE_TEST_TARGET"),
        std::env::var("ISOLANE_TEST_PROGRAM"),
    ) else {
        println!("skipped on real devices: ISOLANE_TEST_TARGET and ISOLANE_TEST_PROGRAM name none");
        return;
    };
    let testbed = VerbsTestbed::new(
        target.parse().unwrap(),
        Reach::of(program.into()),
        Default::default(),
        Box::new(|_| {}),
    );
    body(&Question {
        testbed: &testbed,
        library: &library,
        real: Some(&testbed),
    });
}

struct Question<'a> {
    testbed: &'a dyn Testbed,
    library: &'a Library,
    real: Option<&'a VerbsTestbed>,
}

impl Question<'_> {
    /// The result of `tenants`, each a name and its lines.
    fn ask(&self, tenants: &[(&str, &str)]) -> RunResult {
        let mut text =
            "profile = \"cx5-100g-roce\"\nwarmup = \"200us\"\nduration = \"2ms\"\n".to_owned();
        for (name, lines) in tenants {
            text.push_str(&format!("[[tenant]]\nname = \"{name}\"\n{lines}"));
        }
        let mut scenario: Scenario =
            isolane_rdma_scenario::parse(&text, "same.toml", self.library).unwrap();
        if self.real.is_some() {
            lengthen(&mut scenario);
        }
        let profile = self.library.profile(&scenario.profile).unwrap();
        let result = self.testbed.run(&scenario, profile).unwrap();
        assert_eq!(result.testbed, self.testbed.name());
        assert_eq!(result.tenants.len(), tenants.len());
        result
    }

    /// Payload per second that no tenant can exceed.
    fn link_gbps(&self) -> f64 {
        match self.real {
            None => self
                .library
                .profile("cx5-100g-roce")
                .unwrap()
                .value("link", "rate_gbps"),
            // One run's figure varies on a busy machine; a doubled rate would be a counting mistake.
            Some(real) => 2.0 * real.calibration().unwrap().goodput_gbps,
        }
    }
}

/// Two tenants that do the same get the same, within a tenth of the sum.
#[test]
fn equal_bulk_tenants_share_equally() {
    everywhere(|question| {
        let result = question.ask(&[("one", BULK), ("two", BULK)]);
        let [one, two] = ["one", "two"].map(|name| result.tenant(name).unwrap().goodput_gbps);
        let jain = (one + two).powi(2) / (2.0 * (one * one + two * two));
        println!(
            "{}: {one:.3} and {two:.3} Gb/s, Jain {jain:.4}",
            result.testbed
        );
        assert!(jain >= 0.97, "{one} {two}");
    });
}

#[test]
fn a_latency_tenant_alone_has_samples_in_order() {
    everywhere(|question| {
        let result = question.ask(&[("small", LATENCY)]);
        let tenant = result.tenant("small").unwrap();
        let latency = tenant.latency_us.as_ref().unwrap();
        println!(
            "{}: p50 {} us, p99 {} us",
            result.testbed, latency.p50, latency.p99
        );
        assert!(latency.samples > 100, "{}", latency.samples);
        assert!(latency.steady);
        assert!(0.0 < latency.min && latency.min <= latency.p50);
        assert!(latency.p50 <= latency.p99 && latency.p99 <= latency.p999);
        assert!(latency.p999 <= latency.max);
        // One at a time: messages are what fits into the measured time, one latency after the other.
        let fit = 1e6 / latency.mean;
        assert!(
            tenant.message_rate_per_s <= 1.05 * fit,
            "{} {fit}",
            tenant.message_rate_per_s
        );
        assert!(
            tenant.message_rate_per_s >= 0.3 * fit,
            "{} {fit}",
            tenant.message_rate_per_s
        );
    });
}

#[test]
fn writes_do_not_exceed_the_link_and_figures_agree() {
    everywhere(|question| {
        let link_gbps = question.link_gbps();
        let result = question.ask(&[("one", BULK), ("two", BULK), ("small", LATENCY)]);
        let sum: f64 = result
            .tenants
            .iter()
            .map(|tenant| tenant.goodput_gbps)
            .sum();
        assert!(sum > 0.0 && sum <= link_gbps, "{sum} of {link_gbps}");
        for tenant in &result.tenants {
            let bytes = if tenant.name == "small" {
                16.0
            } else {
                65_536.0
            };
            let by_messages = tenant.message_rate_per_s * bytes * 8.0 / 1e9;
            let (name, goodput) = (&tenant.name, tenant.goodput_gbps);
            let apart = |other: f64| (other - goodput).abs() / goodput;
            assert!(apart(by_messages) < 0.05, "{name}: {by_messages} {goodput}");
            let points = &tenant.goodput_series_gbps;
            let mean = points.iter().sum::<f64>() / points.len() as f64;
            // Messages on their way at either end of the time may fall to either side.
            assert!(apart(mean) < 0.2, "{name}: {mean} {goodput}");
            assert_eq!(tenant.errors, 0);
            assert!(tenant.wire_gbps >= tenant.goodput_gbps);
        }
        let hosts: Vec<Host> = result.counters.iter().map(|of| of.host).collect();
        assert_eq!(hosts, [Host::A, Host::B]);
        for ratio in result.counters.iter().flat_map(|of| of.ratios.values()) {
            assert!((0.0..=1.0).contains(ratio), "{ratio}");
        }
    });
}
