//! The proof of `isolane rdma calibrate --identify`: how many parameters of hidden devices it finds.
//!
//! `cargo run --release -p isolane-study-calibrate --example hidden_devices -- 50` mutates the profile cx5-100g-roce 50
//! times and prints, for each parameter, how often it was reported as known and how often that was right.

use isolane_rdma_scenario::library::Library;
use isolane_study_calibrate::identify::bench::trial;
use isolane_study_calibrate::identify::{KNOWN_WITHIN, Method};
use isolane_study_testbed_simulator::SimTestbed;

fn main() {
    let devices: u64 = std::env::args().nth(1).map_or(10, |text| {
        text.parse().expect("the argument is a number of devices")
    });
    let library = Library::embedded();
    let start = library.profile("cx5-100g-roce").expect("a shipped profile");
    let experiments = Method::of(start).experiments;
    let mut counts = vec![(0u64, 0u64); experiments.len()];
    for number in 1..=devices {
        let trial = trial(start, number, &SimTestbed).unwrap_or_else(|error| panic!("{error}"));
        let pairs = trial.identified.parameters.iter().zip(&trial.truth);
        for ((found, truth), count) in pairs.zip(&mut counts) {
            let right = (found.value / truth - 1.0).abs() <= KNOWN_WITHIN;
            count.0 += u64::from(found.known());
            count.1 += u64::from(found.known() && right);
            if found.known() != right {
                println!("device {number}: truth {truth}, {found:?}");
            }
        }
        let (known, right) = trial.score();
        println!("device {number}: {right} of {known} known parameters within 15 %");
    }
    println!("\nparameter                            known  right   of {devices} devices");
    for (experiment, (known, right)) in experiments.iter().zip(&counts) {
        let name = format!("{}.{}", experiment.parameter.0, experiment.parameter.1);
        println!("{name:36} {known:5}  {right:5}");
    }
    let known: u64 = counts.iter().map(|count| count.0).sum();
    let right: u64 = counts.iter().map(|count| count.1).sum();
    println!("{right} of {known} known parameters are right");
}
