//! Measures the rates and latencies of a target's devices with traffic.
//!
//! A profile describes the simulator's device; the real devices may differ. So three short runs, one tenant alone from
//! host A to host B, give the reference of the results: the goodput of large WRITEs, the rate of small ones, and the
//! latency of a single small one at a time.
//!
//! Limits: each is one run of 600 ms, and a software device on a busy machine varies by tens of percent; the figures
//! are in every result (`policy_state`, `device.*`), so a reader knows the reference of each share.

use isolane_common_quantities::units::Duration;
use isolane_common_toml_input::sourced::{SourceKind, Sourced};
use isolane_rdma_scenario::model::{
    Class, DataTraffic, Host, Message, Scenario, Tenant, Topology, Traffic, Transport, Verb,
    Workload,
};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_results::rdma::RunResult;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Time before measuring.
const WARMUP: Duration = Duration::from_ms(150);
/// Measured time of each run.
const MEASURED: Duration = Duration::from_ms(600);
/// Large messages, and how many are outstanding.
const LARGE: (u32, u32) = (65_536, 16);
/// Small messages, how many are outstanding per process, and processes.
const SMALL: (u32, u32, u32) = (16, 128, 2);

/// What the devices can do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Payload of 64 KiB WRITEs of one process, 16 outstanding, gigabits per second.
    pub goodput_gbps: f64,
    /// 16 B WRITEs of two processes, 128 outstanding each, per second.
    pub messages_per_s: f64,
    /// Median latency of one 16 B WRITE at a time, microseconds; 0 where none completed.
    pub idle_p50_us: f64,
    /// Its 99th percentile.
    pub idle_p99_us: f64,
}

impl Calibration {
    /// As figures of a result.
    pub fn figures(&self) -> BTreeMap<String, f64> {
        [
            ("device.goodput_gbps", self.goodput_gbps),
            ("device.messages_per_s", self.messages_per_s),
            ("device.idle_p50_us", self.idle_p50_us),
            ("device.idle_p99_us", self.idle_p99_us),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// `profile` with the link's rate and the message rates that were measured on `target`, for who divides by them.
    /// Its other parameters describe the profile's own device and say nothing of this one.
    pub fn applied_to(&self, profile: &Profile, target: &str) -> Profile {
        let mut profile = profile.clone();
        let source = format!("measured on {target} before the run");
        let mut set = |section: &str, name: &str, value: f64| {
            let section = profile.section_mut(section);
            section.expect("every profile has it").insert(
                name.to_owned(),
                Sourced {
                    value,
                    kind: SourceKind::Derived,
                    source: source.clone(),
                },
            );
        };
        set(
            "link",
            "rate_gbps",
            self.goodput_gbps.max(f64::MIN_POSITIVE),
        );
        let message_ns = 1e9 / self.messages_per_s.max(1.0);
        for name in PER_MESSAGE {
            set("processing", name, message_ns);
        }
        profile.name = format!("{target} (rates measured)");
        profile.title = format!("{target}; rates measured, mechanisms unknown");
        profile
    }
}

/// Times per message that a message rate is worked out from.
const PER_MESSAGE: [&str; 9] = [
    "write_ns",
    "respond_write_ns",
    "send_ns",
    "respond_send_ns",
    "read_ns",
    "respond_read_ns",
    "atomic_ns",
    "respond_fetch_add_ns",
    "respond_compare_swap_ns",
];

/// The three runs.
pub(crate) fn scenarios() -> [Scenario; 3] {
    let (large, large_depth) = LARGE;
    let (small, small_depth, processes) = SMALL;
    [
        scenario("goodput", Class::Bandwidth, large, large_depth, 1),
        scenario("messages", Class::Throughput, small, small_depth, processes),
        scenario("latency", Class::Latency, small, 1, 1),
    ]
}

/// What they found.
pub(crate) fn calibration(results: &[RunResult; 3]) -> Calibration {
    let [goodput, messages, latency] = results.each_ref().map(|result| &result.tenants[0]);
    let idle = latency.latency_us.as_ref();
    Calibration {
        goodput_gbps: goodput.goodput_gbps,
        messages_per_s: messages.message_rate_per_s,
        idle_p50_us: idle.map_or(0.0, |latency| latency.p50),
        idle_p99_us: idle.map_or(0.0, |latency| latency.p99),
    }
}

fn scenario(name: &str, class: Class, bytes: u32, depth: u32, processes: u32) -> Scenario {
    let message = Message::of(bytes);
    let traffic = DataTraffic::plain(Verb::Write, Transport::Rc, message, depth);
    let tenant = Tenant {
        workloads: vec![Workload {
            name: "traffic-1".to_owned(),
            processes,
            from: Host::A,
            to: Host::B,
            traffic: Traffic::Data(traffic),
        }],
        ..Tenant::named(name, class)
    };
    Scenario {
        topology: Topology::BackToBack,
        warmup: WARMUP,
        ..Scenario::plain(format!("calibration/{name}"), "", MEASURED, vec![tenant])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_rdma_scenario::library::Library;

    #[test]
    fn a_measured_profile_has_the_measured_rates_and_their_source() {
        let library = Library::embedded();
        let calibration = Calibration {
            goodput_gbps: 0.5,
            messages_per_s: 20_000.0,
            idle_p50_us: 40.0,
            idle_p99_us: 900.0,
        };
        for name in library.profile_names() {
            let measured = calibration.applied_to(library.profile(name).unwrap(), "verbs:r0,r1");
            assert_eq!(measured.value("link", "rate_gbps"), 0.5);
            for parameter in PER_MESSAGE {
                assert_eq!(measured.value("processing", parameter), 50_000.0);
            }
            assert_eq!(measured.name, "verbs:r0,r1 (rates measured)");
            assert!(measured.title.contains("verbs:r0,r1"));
        }
    }

    #[test]
    fn calibration_runs_are_jobs_that_workers_accept() {
        let options = isolane_rdma_traffic::worker::Options {
            devices: [(Host::A, "r0".to_owned()), (Host::B, "r1".to_owned())].into(),
            ..Default::default()
        };
        for scenario in scenarios() {
            isolane_rdma_traffic::worker::plan(&scenario, &scenario.tenants[0], &options).unwrap();
        }
    }
}
