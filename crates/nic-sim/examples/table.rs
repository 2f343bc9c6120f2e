//! scratch
use isolane_core::units::Duration;
use isolane_scenario::nic::config::CATALOGUE;
use isolane_scenario::nic::model::NicStudy;
use isolane_scenario::nic::profile::NicProfile;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let flows: u32 = args[0].parse().unwrap();
    let ms: u64 = args[1].parse().unwrap();
    let seeds: u64 = args[2].parse().unwrap();
    let only: Option<Vec<&str>> = args.get(3).map(|s| s.split(',').collect());
    let mut profile = NicProfile::of_paper();
    for set in args.iter().skip(4) {
        let (k, v) = set.split_once('=').unwrap();
        let (s, n) = k.split_once('.').unwrap();
        profile
            .sections
            .get_mut(s)
            .unwrap()
            .get_mut(n)
            .unwrap()
            .value = v.parse().unwrap();
    }
    for c in CATALOGUE {
        if only
            .as_ref()
            .is_some_and(|o| !o.contains(&"all") && !o.contains(&c.name))
        {
            continue;
        }
        let (mut t, mut cpu, mut p, mut n1, mut n2) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let mut counts = Default::default();
        let mut mean = 0.0;
        let mut best = (9.9f64, 0.0);
        for seed in 1..=seeds {
            let mut study = NicStudy::of_paper(*c, flows, seed);
            if let Ok(k) = std::env::var("BQL") {
                study.config.byte_limit = isolane_scenario::nic::config::ByteLimit::Fixed(
                    isolane_core::units::Bytes::new(k.parse::<u64>().unwrap() * 1024),
                );
            }
            if let Ok(k) = std::env::var("BATCH") {
                study.config.transmit_batching = k == "1";
            }
            study.warmup = Duration::from_ms(200);
            study.duration = Duration::from_ms(ms);
            let r = isolane_nic_sim::run(&study, &profile);
            t += r.throughput_gbps;
            cpu += r.cpu_percent;
            p += r.ping_us.map_or(0.0, |q| q.p90);
            if r.nfm_1s < best.0 {
                best = (r.nfm_1s, r.throughput_gbps);
            }
            mean += r.counts["nfm_1ms_mean_thousandths"] as f64 / 1e3;
            n1 += r.nfm_1ms;
            n2 += r.nfm_1s;
            counts = r.counts;
        }
        let k = seeds as f64;
        println!(
            "{:9} {:.2} cpu {:4.0} ping {:5.0} nfm {:.2} (mean {:.2}) {:.2} best {:.2} {:.2} int {} seg {} moves {} ww {}",
            c.name,
            t / k,
            cpu / k,
            p / k,
            n1 / k,
            mean / k,
            n2 / k,
            best.0,
            best.1,
            counts["interrupts"],
            counts["segments"],
            counts["moves"],
            counts["weight_writes"]
        );
    }
}
