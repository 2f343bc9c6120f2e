//! A run that goes on equals a run of fixed times where it should, and begins each measured time empty.

use super::*;
use isolane_rdma_scenario::library::Library;

const WARM_UP: WarmUp = WarmUp {
    settle: Duration::from_us(100),
    stuck: None,
    latest: Duration::from_ms(2),
};
const MEASURED: Duration = Duration::from_us(200);

fn scenario(policy: &str, pairs: u32, size: &str) -> (Scenario, Profile) {
    let library = Library::embedded();
    let text = format!(
        "profile = \"cx6-200g-roce\"\ntopology = \"switch\"\nwarmup = \"2ms\"\nduration = \"200us\"\n\
         sample_interval = \"5us\"\n[policy]\nname = \"{policy}\"\n[[tenant]]\nname = \"one\"\nclass = \"bandwidth\"\n\
         [[tenant.traffic]]\nverb = \"write\"\nsize = \"{size}\"\nqueue_pairs = {pairs}\ndepth = 16\n\
         [[tenant]]\nname = \"two\"\nclass = \"latency\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = \"16B\"\ndepth = 1\n"
    );
    let scenario = isolane_rdma_scenario::parse(&text, "continued.toml", &library);
    let profile = library.profile("cx6-200g-roce").expect("shipped").clone();
    (scenario.expect("it is well-formed"), profile)
}

#[test]
fn a_short_warm_up_measures_what_a_long_one_does() {
    let (scenario, profile) = scenario("none", 8, "64KiB");
    let long = crate::rnic::run(&scenario, &profile).unwrap();
    let mut run = Continued::new(&scenario, &profile).unwrap();
    assert!(run.warm_up(&WARM_UP) < scenario.warmup);
    run.measure(MEASURED);
    let short = run.result();
    let (long, of_short) = (long.tenants[0].goodput_gbps, short.tenants[0].goodput_gbps);
    assert!((of_short / long - 1.0).abs() < 0.02, "{of_short} {long}");
    assert_eq!(short.measured_s, 200e-6);
    assert_eq!(short.tenants[0].goodput_series_gbps.len(), 40);
}

#[test]
fn the_warm_up_ends_when_the_first_burst_is_done_or_at_the_latest() {
    let (scenario, profile) = scenario("none", 600, "512B");
    let mut run = Continued::new(&scenario, &profile).unwrap();
    let used = run.warm_up(&WARM_UP);
    assert!(used >= WARM_UP.settle && used < WARM_UP.latest, "{used:?}");
    let mut pairs = run.world.pairs.iter().filter(|pair| pair.tenant == 0);
    assert!(pairs.all(|pair| pair.acknowledged >= 16));
    let mut run = Continued::new(&scenario, &profile).unwrap();
    let latest = Duration::from_us(1);
    assert_eq!(run.warm_up(&WarmUp { latest, ..WARM_UP }), latest);
}

#[test]
fn pairs_that_never_finish_their_first_posting_are_given_up() {
    // One message of 1 GiB takes 43 ms.
    let (scenario, profile) = scenario("none", 1, "1GiB");
    let mut run = Continued::new(&scenario, &profile).unwrap();
    let stuck = Some(Duration::from_us(300));
    let used = run.warm_up(&WarmUp { stuck, ..WARM_UP });
    // The second tenant's first message is done within the first look but one.
    let most = Duration::from_us(300 + 2 * 20) + WARM_UP.settle;
    assert!(used >= Duration::from_us(400) && used <= most, "{used:?}");
}

#[test]
fn measuring_in_windows_changes_nothing_of_a_run() {
    for policy in ["none", "justitia", "harmonic", "isolane-sw"] {
        let (scenario, profile) = scenario(policy, 8, "64KiB");
        let whole = crate::rnic::run(&scenario, &profile).unwrap();
        let mut run = Continued::new(&scenario, &profile).unwrap();
        let latest = scenario.warmup;
        let settle = latest;
        assert_eq!(
            run.warm_up(&WarmUp {
                latest,
                settle,
                stuck: None
            }),
            latest
        );
        let windows = run.measure(scenario.duration);
        assert_eq!(run.result(), whole, "{policy}");
        let bytes: u64 = windows[0].counts.iter().map(|counts| counts.bytes).sum();
        let gbps = bytes as f64 * 8.0 / 1e9 / whole.measured_s;
        assert!((gbps - whole.tenants[0].goodput_gbps).abs() < 1e-9);
        let latency = whole.tenants[1].latency_us.as_ref().unwrap();
        assert_eq!(windows[1].latencies.samples, latency.samples);
        assert_eq!(windows[1].latencies.p99, Some(latency.p99));
    }
}

#[test]
fn what_is_measured_next_begins_empty_in_the_same_world() {
    for policy in ["none", "justitia"] {
        let (scenario, profile) = scenario(policy, 8, "64KiB");
        let run = || {
            let mut run = Continued::new(&scenario, &profile).unwrap();
            run.warm_up(&WARM_UP);
            let first = run.measure(MEASURED);
            let once = run.result();
            let second = run.measure(MEASURED * 2);
            (first, once, second, run.result(), run.at())
        };
        let (first, once, second, twice, at) = run();
        assert_eq!(twice.measured_s, 2.0 * once.measured_s);
        assert_eq!(twice.tenants[0].goodput_series_gbps.len(), 40);
        let ratio = twice.tenants[0].goodput_gbps / once.tenants[0].goodput_gbps;
        assert!((ratio - 1.0).abs() < 0.05, "{policy} {ratio}");
        assert_eq!(run(), (first, once, second, twice, at));
    }
}

#[test]
fn a_policy_s_timers_run_on_behind_the_first_measured_time() {
    let (scenario, profile) = scenario("justitia", 8, "64KiB");
    let mut run = Continued::new(&scenario, &profile).unwrap();
    run.warm_up(&WARM_UP);
    for _ in 0..3 {
        run.measure(MEASURED);
        let result = run.result();
        assert!(result.policy_state["host_a.tokens_per_s"] > 0.0);
        assert!(result.tenants[0].goodput_gbps > 1.0, "{result:?}");
    }
}

/// Goal: a queue that fills is seen before it is full. Method: datagrams without a posted receive stall the receive units, so
/// that the victim's READs and the datagrams fill the buffer for a millisecond; then pauses and congestion control act.
#[test]
fn a_receive_buffer_that_fills_is_seen_until_it_is_full() {
    let library = Library::embedded();
    let engine = "RdmaEngine --qp_num=1 --send_wq_depth=1 --send_batch=1 --recv_batch=0 --qp_type=4 --request=s_1_4096";
    let text = format!(
        "profile = \"cx5-100g-roce\"\ntopology = \"switch\"\nduration = \"200us\"\n\
         [[tenant]]\nname = \"one\"\n[[tenant.traffic]]\nverb = \"read\"\nsize = \"512B\"\nqueue_pairs = 16\ndepth = 1\n\
         [[tenant]]\nname = \"two\"\nengine = \"{engine}\"\n"
    );
    let scenario = isolane_rdma_scenario::parse(&text, "filling.toml", &library).unwrap();
    // The buffer fills between the third and the sixth of the measured times.
    let mut profile = library.profile("cx5-100g-roce").expect("shipped").clone();
    let drops = profile.errors.get_mut("unreliable_drop_us");
    drops.expect("each device drops").value = 2.0;
    let mut run = Continued::new(&scenario, &profile).unwrap();
    run.go_on(Duration::from_us(100));
    let mut fills = Vec::new();
    for _ in 0..10 {
        run.measure(MEASURED);
        fills.push(run.is_filling());
    }
    assert!(fills[..3].iter().all(|&fills| fills), "{fills:?}");
    assert!(fills[5..].iter().all(|&fills| !fills), "{fills:?}");
}
