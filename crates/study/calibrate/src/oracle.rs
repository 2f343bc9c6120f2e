//! The parameters of an idle device for Justitia.
//!
//! * `rate_max_gbps`: goodput of sixteen pairs with 1 MB WRITEs; `message_rate_max_mps`: 16 B WRITEs in lists of
//!   many pairs (justitia 4.3.1, MaxRate).
//! * `target_us`: the 99th percentile of 10 B WRITEs on the idle device (the latency oracle of justitia 4.3.3)
//!   with two fifths on top, since a target equal to the idle tail is missed by every second sample.
//! * the token dictionary: for each tenth of the rate, the smallest message that reaches it when one pair sends
//!   messages of that size back to back, as a pacer does with chunks (justitia 5.2, figure 10), and not smaller
//!   than lets the daemon keep up: it makes at most one token per 0.83 us.
//!
//! Units: Gb/s of payload, million messages per second, microseconds, bytes.

use crate::CalibrationError;
use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::profile::{Profile, TokenSize};
use isolane_study_results::rdma::RunResult;
use isolane_study_testbed::Testbed;
use serde::Serialize;

/// What the target adds to the idle tail: the paper sets 2 us where the idle 99th percentile is 1.4 us.
const HEAD_ROOM: f64 = 2.0 / 1.4;
/// Token sizes tried, bytes; 5000 is the paper's choice.
const SIZES: [u64; 16] = [
    256, 512, 1024, 2048, 3000, 4096, 5000, 6144, 8192, 12_288, 16_384, 32_768, 65_536, 131_072,
    262_144, 1_000_000,
];
/// Least time between tokens, microseconds: the paper's 5 KB at 48 Gb/s (justitia 4.3.4, 5.2).
const TOKEN_INTERVAL_US: f64 = 5_000.0 * 8.0 / 48_000.0;
/// Tokens are whole multiples of this, bytes.
const TOKEN_STEP: u64 = 256;
/// Share of a rate that counts as reaching it.
const REACHED: f64 = 0.98;

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Oracle {
    /// The profile measured.
    pub profile: String,
    /// Bulk goodput, Gb/s.
    pub rate_max_gbps: f64,
    /// Small messages, millions per second.
    pub message_rate_max_mps: f64,
    /// Median of idle small messages, microseconds.
    pub idle_p50_us: f64,
    /// Their 99th percentile, microseconds.
    pub idle_p99_us: f64,
    /// The target that follows, microseconds.
    pub target_us: f64,
    /// Goodput per message size, (bytes, Gb/s): figure 10.
    pub sizes: Vec<(u64, f64)>,
    /// The dictionary that follows.
    pub token_dictionary: Vec<TokenSize>,
}

/// Measures `profile` on `testbed`; `progress` is called after each run with (done, all). Fails if a run fails, for
/// example because the profile lacks what the measurement needs.
pub fn measure(
    profile: &Profile,
    testbed: &dyn Testbed,
    progress: &dyn Fn(usize, usize),
) -> Result<Oracle, CalibrationError> {
    let all = SIZES.len() + 3;
    let bulk = run(
        profile,
        testbed,
        "ib_write_bw -s 1000000 -q 16 --run_infinitely",
        1,
    )?;
    progress(1, all);
    let small = run(
        profile,
        testbed,
        "ib_write_bw -s 16 -l 16 -q 8 --run_infinitely",
        16,
    )?;
    progress(2, all);
    let idle = run_idle(profile, testbed)?;
    progress(3, all);
    let latency = idle.tenants[0]
        .latency_us
        .as_ref()
        .ok_or_else(|| failed(profile, "no message completed"))?;
    let mut sizes = Vec::new();
    for (number, bytes) in SIZES.into_iter().enumerate() {
        let result = run(
            profile,
            testbed,
            &format!("ib_write_bw -s {bytes} -q 1 -l 1 --run_infinitely"),
            1,
        )?;
        let goodput = result.tenants[0].goodput_gbps;
        sizes.push((bytes, round(goodput, digits(goodput, 2))));
        progress(number + 4, all);
    }
    let millions = small.tenants[0].message_rate_per_s / 1e6;
    let message_rate_max = floor(millions, digits(millions, 2));
    let goodput = bulk.tenants[0].goodput_gbps;
    let rate_max = floor(goodput, digits(goodput, 1));
    Ok(Oracle {
        profile: profile.name.clone(),
        rate_max_gbps: rate_max,
        message_rate_max_mps: message_rate_max,
        idle_p50_us: round(latency.p50, 3),
        idle_p99_us: round(latency.p99, 3),
        target_us: round(latency.p99 * HEAD_ROOM, 1),
        token_dictionary: dictionary(rate_max, message_rate_max, &sizes),
        sizes,
    })
}

/// The smallest size for each tenth of `rate_max`; tenths that need the same size become one entry. A token must
/// permit at least one message in its time, or its owner would wait for ever.
fn dictionary(rate_max: f64, message_rate_max_mps: f64, sizes: &[(u64, f64)]) -> Vec<TokenSize> {
    let one_message = (rate_max * 1e3 / 8.0 / message_rate_max_mps).ceil() as u64;
    let largest = sizes.last().map_or(0, |entry| entry.0);
    let mut entries: Vec<TokenSize> = Vec::new();
    for tenth in 1..=10 {
        let rate = rate_max * f64::from(tenth) / 10.0;
        let rate = round(rate, digits(rate, 2));
        let enough = sizes
            .iter()
            .find(|&&(_, reached)| reached >= rate * REACHED);
        let in_time = (rate * 1e3 / 8.0 * TOKEN_INTERVAL_US).ceil() as u64;
        let bytes = enough
            .map_or(largest, |entry| entry.0)
            .max(in_time)
            .max(one_message);
        let bytes = bytes.next_multiple_of(TOKEN_STEP);
        match entries.last_mut() {
            Some(last) if last.token_bytes >= bytes => last.rate_gbps = rate,
            _ => entries.push(TokenSize {
                rate_gbps: rate,
                token_bytes: bytes,
            }),
        }
    }
    entries
}

pub(crate) fn run(
    profile: &Profile,
    testbed: &dyn Testbed,
    perftest: &str,
    processes: u32,
) -> Result<RunResult, CalibrationError> {
    let tenant = format!("perftest = {perftest:?}\nprocesses = {processes}\n");
    run_tenant(profile, testbed, &tenant)
}

fn run_idle(profile: &Profile, testbed: &dyn Testbed) -> Result<RunResult, CalibrationError> {
    let tenant = "class = \"latency\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 10\ninline = 10\ndepth = 1\n";
    run_tenant(profile, testbed, tenant)
}

fn run_tenant(
    profile: &Profile,
    testbed: &dyn Testbed,
    tenant: &str,
) -> Result<RunResult, CalibrationError> {
    let head = format!(
        "profile = {:?}\ntopology = \"switch\"\nwarmup = \"500us\"\nduration = \"4ms\"\n",
        profile.name
    );
    let text = format!("{head}[[tenant]]\nname = \"probe\"\n{tenant}");
    let library = Library::new(
        vec![profile.clone()],
        isolane_rdma_scenario::catalogue::Catalogue::default(),
    );
    let scenario = isolane_rdma_scenario::parse(&text, "calibration", &library)
        .map_err(|error| failed(profile, &error.to_string()))?;
    testbed
        .run(&scenario, profile)
        .map_err(|error| failed(profile, &error.to_string()))
}

pub(crate) fn failed(profile: &Profile, reason: &str) -> CalibrationError {
    CalibrationError::Run {
        profile: profile.name.clone(),
        reason: reason.to_owned(),
    }
}

/// Decimals to keep: `least`, and three digits of a value below 1, which a slow device has.
fn digits(value: f64, least: i32) -> i32 {
    match value > 0.0 && value < 1.0 {
        true => least.max(2 - value.log10().floor() as i32),
        false => least,
    }
}

pub(crate) fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

fn floor(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).floor() / scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_study_testbed_simulator::SimTestbed;

    #[test]
    fn a_dictionary_gives_the_smallest_size_for_each_rate() {
        let sizes = [(1024, 0.1), (4096, 0.45), (8192, 0.99), (16_384, 1.0)];
        let entries: Vec<(f64, u64)> = dictionary(1.0, 100.0, &sizes)
            .iter()
            .map(|entry| (entry.rate_gbps, entry.token_bytes))
            .collect();
        assert_eq!(entries, [(0.1, 1024), (0.4, 4096), (1.0, 8192)]);
    }

    #[test]
    fn a_token_gives_the_daemon_time_to_make_the_next() {
        let entries = dictionary(48.0, 30.0, &[(64, 48.0)]);
        let last = entries.last().expect("a dictionary is never empty");
        // 5,000 B rounded up to whole steps.
        assert_eq!((last.rate_gbps, last.token_bytes), (48.0, 5_120));
    }

    #[test]
    fn an_unreachable_rate_takes_the_largest_size() {
        let entries = dictionary(10.0, 100.0, &[(1024, 5.0), (4096, 6.0)]);
        assert_eq!(
            entries
                .last()
                .map(|entry| (entry.rate_gbps, entry.token_bytes)),
            Some((10.0, 4096))
        );
    }

    #[test]
    fn a_token_permits_at_least_one_message() {
        // 36.5 Gb/s at 4.76 M/s are 959 B per message.
        let entries = dictionary(36.5, 4.76, &[(64, 36.5)]);
        assert!(
            entries.iter().all(|entry| entry.token_bytes >= 959),
            "{entries:?}"
        );
    }

    #[test]
    fn every_shipped_profile_can_be_measured() {
        for profile in Library::embedded().profiles() {
            let oracle =
                measure(profile, &SimTestbed, &|_, _| ()).unwrap_or_else(|error| panic!("{error}"));
            let link = profile.value("link", "rate_gbps");
            let copy = profile.micro("copy_gbps");
            let most = if copy > 0.0 {
                let bits = profile.value("link", "mtu_default_bytes") * 8.0;
                bits / (profile.value("processing", "packet_ns") + bits / copy)
            } else {
                link
            };
            assert!(
                oracle.rate_max_gbps > 0.7 * most && oracle.rate_max_gbps < most,
                "{oracle:?}"
            );
            assert!(
                oracle.idle_p50_us <= oracle.idle_p99_us && oracle.idle_p99_us < oracle.target_us,
                "{oracle:?}"
            );
            assert!(
                oracle
                    .token_dictionary
                    .is_sorted_by(|a, b| a.rate_gbps < b.rate_gbps),
                "{oracle:?}"
            );
        }
    }
}
