//! The time constants that a run waits for before its windows say anything: the policy's and those of control loops.
//!
//! Units: simulated time. A policy's constants come from its parameters where a scenario gives them, and from the device's
//! profile or the policy's own defaults otherwise. `docs/internals/settling.md` explains each.

use isolane_common_quantities::settle::WINDOWS;
use isolane_common_quantities::units::{BitRate, Duration};
use isolane_rdma_policy::isolane::software::SLICE_BESIDE_LATENCY;
use isolane_rdma_policy::justitia::JustitiaOptions;
use isolane_rdma_scenario::model::{
    Class, ControlObject, ControlTraffic, PolicySpec, Scenario, Tenant, Traffic,
};
use isolane_rdma_scenario::profile::Profile;
use isolane_rdma_scenario::stack::parts;
use isolane_study_testbed::settle::Congestion;

/// How long a run has to wait, and how long it has to look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Constants {
    /// What the policy and the loops need from their start until they act as they go on acting.
    pub warmup: Duration,
    /// The longest period of what repeats: windows shorter than this differ by chance of where they begin.
    pub period: Duration,
    /// The longest round of control loops whose commands last longer than what they leave behind. A command acts when it
    /// ends, so all windows together, not each, have to hold a whole round.
    pub round: Duration,
}

/// What the end of a command leaves in queues and caches is gone after this time: stalls of a few commands and the refill
/// of caches of some 10,000 entries. The warm-up need not be longer, however long a command takes.
const AFTERMATH: Duration = Duration::from_ms(1);

impl Constants {
    /// Those of `scenario` on the device of `profile`.
    pub fn of(scenario: &Scenario, profile: &Profile) -> Self {
        let round = control_round(&scenario.tenants, profile);
        let tokens = tokens(&scenario.policy, &scenario.tenants, profile);
        // Windows shorter than a round of short commands hold more of their ends or fewer, by where they begin.
        let (short, long) = match round <= AFTERMATH {
            true => (round, Duration::ZERO),
            false => (Duration::ZERO, round),
        };
        let poll = match is_part("harmonic", &scenario.policy) {
            true => harmonic_period(&scenario.policy),
            false => Duration::ZERO,
        };
        Self {
            warmup: settling(&scenario.policy, profile).max(tokens.warmup) + round.min(AFTERMATH),
            period: short.max(tokens.period).max(poll),
            round: long,
        }
    }

    /// Each of them so many times.
    pub fn times(self, times: u64) -> Self {
        Self {
            warmup: self.warmup * times,
            period: self.period * times,
            round: self.round * times,
        }
    }

    /// The least measured time: each window has the longest period in it, and ends where another one begins; all windows
    /// together hold whole rounds.
    pub fn measured(self, least: Duration) -> Duration {
        let all = self.period * WINDOWS as u64;
        let whole = |least: Duration, part: Duration| match part.is_zero() {
            true => least,
            false => part * least.as_ps().div_ceil(part.as_ps()).max(1),
        };
        whole(whole(least, all), self.round)
    }
}

/// What congestion control of the device of `profile` needs, each `times` times. Each notification halves a rate, at
/// most one per interval. After a cut, ticks of fast recovery raise the rate again.
pub fn congestion(profile: &Profile, times: u64) -> Congestion {
    let value = |name| profile.value("congestion", name);
    if value("enabled") == 0.0 {
        return Congestion::default();
    }
    let halvings = (profile.value("link", "rate_gbps") * 1e3 / value("minimum_mbps")).log2();
    Congestion {
        descent: us(value("notification_us") * halvings.ceil()) * times,
        recovery: us(value("increase_us") * value("fast_steps")) * times,
    }
}

/// Harmonic's T_basic unless a scenario names another, microseconds (harmonic 5.6.2).
const T_BASIC_US: f64 = 500.0;

/// Intervals of T_basic that a tenant gets to come near its part. One is the wait for the first batch; a batch of four
/// cuts a rate to an eighth, so two more reduce the rate of one connection of many from the line rate to its earlier
/// rate. The remaining intervals are for the swings that follow.
const HARMONIC_BATCHES: f64 = 8.0;

/// How long the slowest part of `policy` needs on the device of `profile` before a run shows it: one that ends
/// before would judge the device without it.
pub fn settling(policy: &PolicySpec, profile: &Profile) -> Duration {
    let parts = parts(&policy.name).unwrap_or_default();
    let slowest = parts
        .iter()
        .map(|part| settling_of(part.name, policy, profile));
    slowest.max().unwrap_or(Duration::ZERO)
}

/// The same of one part. A hardware queue's mapping takes milliseconds to change. Harmonic learns of an excess after
/// T_basic at most and needs several batches until a tenant has its rate. The NIC's limiters take the ticks of fast
/// recovery for each batch. Working sets of queue pairs change twice.
fn settling_of(part: &str, policy: &PolicySpec, profile: &Profile) -> Duration {
    match part {
        "hw-priority" => {
            let once = parameter(policy, "reconfigure_us");
            us(2.0 * once.unwrap_or_else(|| profile.value("host", "reconfigure_us")))
        }
        "harmonic" => {
            let tick = profile.value("congestion", "increase_us");
            let recovery = us(tick * profile.value("congestion", "fast_steps"));
            let slowest = harmonic_period(policy).max(recovery);
            us(HARMONIC_BATCHES * slowest.as_us_f64())
        }
        "isolane-sw" => SLICE_BESIDE_LATENCY * 2,
        _ => Duration::ZERO,
    }
}

/// The longest of Harmonic's periods.
fn harmonic_period(policy: &PolicySpec) -> Duration {
    let asked = ["t_basic_us", "t_min_us", "poll_us"].map(|name| parameter(policy, name));
    us(asked.into_iter().flatten().fold(T_BASIC_US, f64::max))
}

/// Justitia without a latency tenant: tokens of a megabyte. Each tenant gets one in turn, and at the start spends what
/// was saved. Beside a latency tenant tokens are of five kilobytes and their turns shorter than anything else. The slow
/// rise of SafeUtil and its percentile over 10,000 references (200 ms) are not waited for.
fn tokens(policy: &PolicySpec, tenants: &[Tenant], profile: &Profile) -> Constants {
    let has_latency = tenants.iter().any(|tenant| tenant.class == Class::Latency);
    if has_latency || !is_part("justitia", policy) {
        return Constants::default();
    }
    let rate = BitRate::from_gbps_f64(profile.value("justitia", "rate_max_gbps"));
    let defaults = JustitiaOptions::for_device(rate, 1, us(1.0));
    let bytes = parameter(policy, "token_without_latency_bytes");
    let bytes = bytes.unwrap_or(defaults.token_without_latency.get() as f64);
    let saved = parameter(policy, "token_backlog_max");
    let saved = saved.unwrap_or(f64::from(defaults.token_backlog_max));
    let one = bytes * 8.0 / rate.as_gbps_f64() / 1e3;
    let turn = one * tenants.len() as f64;
    Constants {
        warmup: us(turn * saved),
        period: us(turn),
        round: Duration::ZERO,
    }
}

/// The longest time in which every thread of a tenant's control loops has one command done: those of one queue go on in
/// step, and each deregistration stalls others for a part of that time.
fn control_round(tenants: &[Tenant], profile: &Profile) -> Duration {
    let of = |tenant: &Tenant| {
        let rounds = tenant
            .workloads
            .iter()
            .filter_map(|workload| match &workload.traffic {
                Traffic::Control(control) => Some(
                    command_us(control, profile) * f64::from(control.threads * workload.processes),
                ),
                Traffic::Data(_) | Traffic::Application(_) => None,
            });
        rounds.sum::<f64>()
    };
    let longest = tenants.iter().map(of).fold(0.0, f64::max);
    us(longest / profile.value("control", "commands_in_parallel"))
}

/// Kernel and firmware time of one command.
fn command_us(control: &ControlTraffic, profile: &Profile) -> f64 {
    let value = |name| profile.value("control", name);
    match control.object {
        ControlObject::MemoryRegion => {
            let pages = control.region_bytes.get().div_ceil(PAGE) as f64;
            value("registration_us").max(value("deregistration_us"))
                + pages * value("page_ns") / 1e3
        }
        ControlObject::QueuePair | ControlObject::CompletionQueue => value("queue_pair_us"),
    }
}

/// Bytes of a page that is registered.
const PAGE: u64 = 4096;

fn is_part(name: &str, policy: &PolicySpec) -> bool {
    let parts = parts(&policy.name).unwrap_or_default();
    parts.iter().any(|part| part.name == name)
}

fn parameter(policy: &PolicySpec, name: &str) -> Option<f64> {
    policy.parameters.get(name).copied()
}

fn us(us: f64) -> Duration {
    Duration::from_ns_f64(us * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_rdma_scenario::library::Library;

    fn constants(policy: &str, tenants: &str) -> Constants {
        let library = Library::embedded();
        let text = format!("profile = \"cx5-100g-roce\"\n[policy]\nname = \"{policy}\"\n{tenants}");
        let scenario = isolane_rdma_scenario::parse(&text, "constants.toml", &library);
        let profile = library.profile("cx5-100g-roce").expect("shipped");
        Constants::of(&scenario.expect("it is well-formed"), profile)
    }

    const BULK: &str = "[[tenant]]\nname = \"a\"\nperftest = \"ib_write_bw\"\n";
    const CONTROL: &str =
        "[[tenant]]\nname = \"c\"\n[[tenant.control]]\nobject = \"memory-region\"\nthreads = 6\n";
    const LATENCY: &str = "[[tenant]]\nname = \"l\"\nperftest = \"ib_write_lat\"\n";

    #[test]
    fn without_a_policy_and_loops_there_is_nothing_to_wait_for() {
        assert_eq!(constants("none", BULK), Constants::default());
        let least = Duration::from_us(400);
        assert_eq!(Constants::default().measured(least), least);
    }

    #[test]
    fn justitia_spends_its_large_tokens_first() {
        let alone = constants("justitia", BULK);
        assert!(alone.warmup > Duration::from_us(300) && alone.period > Duration::from_us(70));
        let both = constants("justitia", &format!("{BULK}{LATENCY}"));
        assert_eq!(both, Constants::default());
        let stacked = constants("justitia+hw-tc", BULK);
        assert_eq!(stacked, alone);
    }

    #[test]
    fn six_threads_on_three_commands_take_two_commands_each_round() {
        let round = constants("none", CONTROL).period;
        assert!(
            round >= Duration::from_us(400) && round < Duration::from_us(500),
            "{round:?}"
        );
    }

    #[test]
    fn every_window_holds_whole_periods_and_all_of_them_whole_rounds() {
        let us = Duration::from_us;
        let periods = Constants {
            warmup: Duration::ZERO,
            period: us(150),
            round: Duration::ZERO,
        };
        assert_eq!(periods.measured(us(400)), us(600));
        assert_eq!(periods.measured(us(601)), us(1200));
        let both = Constants {
            round: us(450),
            ..periods
        };
        assert_eq!(both.measured(us(400)), us(900));
    }

    #[test]
    fn a_command_of_milliseconds_does_not_make_the_warm_up_as_long() {
        let large = CONTROL.replace("threads = 6", "threads = 6\nregion = \"1GiB\"");
        let constants = constants("none", &large);
        assert_eq!(constants.warmup, AFTERMATH);
        assert!(constants.round > Duration::from_ms(20), "{constants:?}");
    }
}
