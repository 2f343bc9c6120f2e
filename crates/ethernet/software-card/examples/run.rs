//! Runs one configuration of the study on the soft card: `run CONFIG FLOWS RATE_GBPS SECONDS [NIC_PROCESSOR]`.

use isolane_common_quantities::units::{BitRate, Duration};
use isolane_ethernet_scenario::config;
use isolane_ethernet_scenario::model::NicStudy;
use isolane_ethernet_software_card::testbed::{self, TestbedOptions};
use std::sync::atomic::AtomicBool;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word =
        |index: usize, default: &str| words.get(index).map_or(default, String::as_str).to_owned();
    let number =
        |index: usize, default: &str| word(index, default).parse::<f64>().expect("a number");
    let config = config::named(&word(0, "C6")).expect("a configuration's name");
    let mut study = NicStudy::of_paper(*config, number(1, "3") as u32, 1);
    study.card.rate = BitRate::from_gbps_f64(number(2, "1"));
    study.duration = Duration::from_secs_f64(number(3, "3"));
    let interrupted = AtomicBool::new(false);
    let mut options = TestbedOptions::new(&interrupted);
    options.nic_processor = words.get(4).map(|word| word.parse().expect("a processor"));
    if let Some(us) = words.get(5) {
        options.interrupt = Duration::from_us(us.parse().expect("microseconds"));
    }
    match testbed::run(&study, &options, &mut |line| eprintln!("{line}")) {
        Ok(result) => println!("{result:#?}"),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(3);
        }
    }
}
