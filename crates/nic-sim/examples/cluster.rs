//! scratch
use isolane_core::units::{Bytes, Duration};
use isolane_scenario::nic::config::named;
use isolane_scenario::nic::model::*;
use isolane_scenario::nic::profile::NicProfile;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let hosts: u32 = args[0].parse().unwrap();
    let second: u32 = args[1].parse().unwrap();
    let mb: u64 = args[2].parse().unwrap();
    let queues: u16 = args[3].parse().unwrap();
    let mut profile = NicProfile::of_paper();
    for set in args.iter().skip(5) {
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
    for name in args[4].split(',') {
        let mut study = NicStudy::of_paper(*named(name).unwrap(), 1, 1);
        study.warmup = Duration::from_ps(0);
        study.card.queues = queues;
        study.card.processors = queues;
        study.traffic = NicTraffic::AllToAll {
            hosts,
            second_switch: second,
            bytes: Bytes::new(mb * 1_000_000),
        };
        let t = std::time::Instant::now();
        let r = isolane_nic_sim::run(&study, &profile);
        let e = t.elapsed().as_secs_f64();
        let c = r.completion_ms.unwrap();
        let n = c.all_ms.len();
        let mut s = c.spread_ms.clone();
        s.sort_by(f64::total_cmp);
        println!(
            "{name:8} sim {:.3} s real {e:.2} ratio {:.1} Mpps {:.2} first {:.1} p50 {:.1} p90 {:.1} last {:.1} spread min {:.1} p50 {:.1} max {:.1} cpu {:.0} tput {:.2} drops {} rtx {} to {} pk {} re {}",
            r.measured_s,
            e / r.measured_s,
            r.counts["packets"] as f64 / e / 1e6,
            c.all_ms[0],
            c.all_ms[n / 2],
            c.all_ms[n * 9 / 10],
            c.all_ms[n - 1],
            s[0],
            s[s.len() / 2],
            s[s.len() - 1],
            r.cpu_percent,
            r.throughput_gbps,
            r.counts["drops"],
            r.counts["retransmissions"],
            r.counts["timeouts"],
            r.counts["packets"],
            r.counts["reordered"]
        );
    }
}
