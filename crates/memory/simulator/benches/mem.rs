//! How fast the simulator is: one simulated hour of ten applications, median of three runs.
use isolane_memory_scenario::model::MEM_POLICIES;
use isolane_memory_scenario::parse::MemOverrides;
use std::time::Instant;

const RUNS: usize = 3;

fn main() {
    let mut text = String::from(
        "duration = \"3600s\"\n[memory]\nmachine = \"genoa-cxl\"\nlocal = \"100GB\"\n",
    );
    let kinds = ["redis", "vector-hnsw", "llama", "dlrm", "vector-flat"];
    for index in 0..10 {
        let kind = kinds[index % kinds.len()];
        text.push_str(&format!(
            "[[app]]\nname = \"{kind}-{index}\"\nkind = \"{kind}\"\ncores = 8\nworking_set = \"20GB\"\n"
        ));
        let slo = match kind {
            "llama" | "dlrm" => "slo_bandwidth = \"20GB/s\"",
            _ => "slo_latency = \"250ns\"",
        };
        text.push_str(&format!(
            "{slo}\n[[app.change]]\nat = \"600s\"\nuntil = \"1800s\"\nworking_set = \"25GB\"\n"
        ));
    }
    for policy in MEM_POLICIES {
        let overrides = MemOverrides {
            policy: Some(policy.to_owned()),
            ..MemOverrides::default()
        };
        let scenario = overrides.parse(&text, "bench.toml").expect("valid");
        let mut times: Vec<f64> = (0..RUNS)
            .map(|_| {
                let start = Instant::now();
                std::hint::black_box(isolane_memory_simulator::run(&scenario));
                start.elapsed().as_secs_f64()
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!("{policy:8} 1 h of 10 applications in {:.2} s", times[1]);
    }
}
