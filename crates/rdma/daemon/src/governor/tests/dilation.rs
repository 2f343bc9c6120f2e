//! Emulated devices, whose clock is slower than real time.

use super::*;
use crate::dilation::Dilation;
use crate::governor::device::options;
use isolane_common_linux::root::Root;
use isolane_common_quantities::units::Duration;

const FACTOR: u64 = 1_000;

fn slowed() -> Dilation {
    let folder = tempfile::tempdir().unwrap();
    let device = folder.path().join("sys/class/infiniband/rxe0");
    std::fs::create_dir_all(&device).unwrap();
    std::fs::write(device.join("dilation"), FACTOR.to_string()).unwrap();
    Dilation::of(&Root::at(folder.path()), ["rxe0"].into_iter()).unwrap()
}

/// With the period of 20 us that emulated devices have by default.
#[test]
fn the_policy_takes_the_same_steps_in_the_time_of_the_device() {
    let port = BitRate::from_gbps(100);
    let fast = Config {
        devices: vec![DeviceConfig::default()],
        period: Some(Duration::from_us(20)),
        idle_after: Some(Duration::from_us(400)),
        ..Config::default()
    };
    let slow = Config {
        devices: fast.devices.clone(),
        dilation: slowed(),
        ..Config::default()
    };
    let real = options(&fast, &fast.devices[0], port);
    let port = BitRate::from_bps(port.as_bps() / FACTOR);
    let emulated = options(&slow, &slow.devices[0], port);
    assert_eq!(emulated.rate_max.as_bps(), real.rate_max.as_bps() / FACTOR);
    let messages = real.message_rate_max_per_s / FACTOR;
    assert_eq!(emulated.message_rate_max_per_s, messages);
    // The time of a chunk is rounded to a picosecond.
    let target = (real.target * FACTOR).as_ps();
    assert!(emulated.target.as_ps().abs_diff(target) <= 2 * FACTOR);
    assert_eq!(emulated.reference_period, real.reference_period * FACTOR);
    assert_eq!(emulated.idle_after, real.idle_after * FACTOR);
    assert_eq!(emulated.token_without_latency, real.token_without_latency);
    let step = real.additive_step.as_bps() / FACTOR;
    assert!(emulated.additive_step.as_bps().abs_diff(step) <= 1);
    emulated.check().unwrap();
}

#[test]
fn a_lease_outlasts_the_pause_between_two_readings() {
    let mut config = config();
    config.period = Some(Duration::from_ms(500));
    config.idle_after = Some(Duration::from_secs(10));
    let mut host = Host::new(config);
    let bulk = host.start_bulk(who("a", Class::Bandwidth));
    for _ in 0..100 {
        host.run(100);
        let lease = host.processes[bulk].lease();
        assert!(lease.valid_until_ns > host.now_ns, "{lease:?}");
    }
}

#[test]
fn a_sender_is_never_idle_between_two_readings() {
    let of = |dilation, period, idle_after| Config {
        dilation,
        period,
        idle_after,
        ..Config::default()
    };
    let ms = |ms| Some(Duration::from_ms(ms));
    let (real, slow) = (Dilation::default(), slowed());
    // By default 20 ms and 0.4 s beside this emulated device, 1 ms and 20 ms beside a real one.
    for (dilation, period, idle_after) in [
        (slow, None, ms(19)),
        (slow, ms(401), None),
        (real, ms(21), None),
    ] {
        let error = of(dilation, period, idle_after).check().unwrap_err();
        assert_eq!(error.name, "idle_after");
    }
    of(slow, ms(100), None).check().unwrap();
    of(real, None, ms(19)).check().unwrap();
    assert!(Governor::new(of(slow, None, ms(19)), Vec::new(), 0).is_err());
}
