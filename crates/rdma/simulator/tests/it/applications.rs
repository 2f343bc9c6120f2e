//! How applications offer work, and what latency means for each.
use crate::common::{median, of, run, tenant};

#[test]
fn open_loop_latency_includes_waiting() {
    let latency = |interval: &str| {
        let traffic = format!(
            "verb = \"write\"\nsize = \"64KiB\"\ndepth = 1\narrival = \"open\"\ninterval = \"{interval}\""
        );
        let result = run(&format!(
            "duration = \"4ms\"\n{}",
            tenant("t", "bandwidth", &traffic)
        ));
        (
            median(&result, "t"),
            of(&result, "t").offered_gbps.expect("open loop"),
        )
    };
    let (idle, offered) = latency("100us");
    assert!(
        (offered - 5.24).abs() < 0.3 && idle < 12.0,
        "{offered} {idle}"
    );
    let (overloaded, offered) = latency("4us");
    assert!(
        offered > 100.0 && overloaded > 100.0,
        "{offered} {overloaded}"
    );
}

/// Poisson arrivals to one queue with a nearly constant service time: M/D/1 says that the mean wait is
/// `load / (2 (1 - load))` services.
#[test]
fn waiting_grows_with_load_as_a_queue_with_constant_service_says() {
    let mean = |interval: &str| {
        let traffic = format!(
            "verb = \"write\"\nsize = \"64KiB\"\ndepth = 1\narrival = \"open\"\npoisson = true\ninterval = \"{interval}\""
        );
        let result = run(&format!(
            "duration = \"40ms\"\n{}",
            tenant("t", "bandwidth", &traffic)
        ));
        of(&result, "t")
            .latency_us
            .as_ref()
            .expect("completed")
            .mean
    };
    let service = mean("1ms");
    let load = service / 14.0;
    let (waited, expected) = (
        mean("14us") - service,
        load / (2.0 * (1.0 - load)) * service,
    );
    assert!(
        (waited / expected - 1.0).abs() < 0.25,
        "service {service}, waited {waited}, M/D/1 {expected}"
    );
}

#[test]
fn thinking_lowers_the_rate() {
    let traffic = "verb = \"write\"\nsize = 8\ninline = 8\ndepth = 1\nthink = \"20us\"";
    let rate = of(
        &run(&format!(
            "duration = \"10ms\"\n{}",
            tenant("t", "latency", traffic)
        )),
        "t",
    )
    .message_rate_per_s;
    assert!((1e6 / rate - 21.5).abs() < 2.0, "{rate}");
}

#[test]
fn a_paced_process_spreads_its_rate_over_its_queue_pairs() {
    let traffic = "verb = \"write\"\nsize = 4096\nqueue_pairs = 4\ndepth = 16\n\
                   arrival = \"paced\"\nrate = \"20Gb/s\"";
    let result = run(&format!(
        "duration = \"4ms\"\n{}",
        tenant("t", "bandwidth", traffic)
    ));
    let paced = of(&result, "t");
    assert_eq!(paced.offered_gbps, Some(20.0));
    assert!((paced.goodput_gbps - 20.0).abs() < 0.5, "{paced:?}");
    let [least, _, most] = paced.queue_pair_gbps;
    assert!(least > 4.5 && most < 5.5, "{least} {most}");
}
