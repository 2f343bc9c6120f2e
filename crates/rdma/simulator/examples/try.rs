//! Runs scenario files and prints a line per tenant: a developer's quick look at the model.
use isolane_rdma_scenario::library::Library;

fn main() {
    let mut library = Library::embedded();
    let mut policy = None;
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = args.iter().position(|a| a == "--policy") {
        policy = Some(args[at + 1].clone());
        args.drain(at..at + 2);
    }
    if let Some(at) = args.iter().position(|a| a == "--profile-file") {
        let text = std::fs::read_to_string(&args[at + 1]).expect("readable");
        library
            .add_profile_text(&text, &args[at + 1])
            .expect("valid profile");
        args.drain(at..at + 2);
    }
    for file in args {
        let text = std::fs::read_to_string(&file).expect("readable");
        let mut scenario =
            isolane_rdma_scenario::parse(&text, &file, &library).unwrap_or_else(|e| panic!("{e}"));
        if let Some(policy) = &policy {
            scenario.policy.name.clone_from(policy);
        }
        let profile = library.profile(&scenario.profile).expect("known");
        let start = std::time::Instant::now();
        let result = isolane_rdma_simulator::rnic::run(&scenario, profile)
            .unwrap_or_else(|e| panic!("{e:?}"));
        println!(
            "{file} {} {:.0} ms",
            result.policy,
            start.elapsed().as_secs_f64() * 1e3
        );
        for t in &result.tenants {
            let l = t.latency_us.as_ref();
            println!(
                "  {:18} {:>8.3} Gb/s wire {:>8.3} {:>8.3} M/s  p50 {:>8.2} p99 {:>8.2} us  ctl {:>7.0}/s err {} qp {:.2?} cores {:.2}",
                t.name,
                t.goodput_gbps,
                t.wire_gbps,
                t.message_rate_per_s / 1e6,
                l.map_or(0.0, |l| l.p50),
                l.map_or(0.0, |l| l.p99),
                t.control_rate_per_s,
                t.errors,
                t.queue_pair_gbps,
                t.policy_cores
            );
        }
        if std::env::var_os("V").is_some() {
            for h in &result.counters {
                print!("  {:?}:", h.host);
                for (k, v) in &h.ratios {
                    if *v > 0.001 {
                        print!(" {k}={v:.3}");
                    }
                }
                println!();
            }
            println!("  {:?}", result.policy_state);
        }
    }
}
