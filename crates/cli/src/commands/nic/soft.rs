//! `isolane nic soft`: one configuration, real traffic of this kernel, and a card in this process.

use super::study::named;
use super::table;
use crate::inputs;
use crate::output;
use crate::status::Status;
use crate::target::cancel_on_signal;
use anyhow::Result;
use isolane_core::units::{BitRate, Duration};
use isolane_scenario::nic::model::{NicStudy, TcpCongestion};
use isolane_soft_nic::SoftNicError;
use isolane_soft_nic::testbed::{self, TestbedOptions};

/// Arguments of `isolane nic soft`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Configuration: C1 to C9, XPS, T1 to T3, TX1 to TX3, fq_codel, fq, cake, isolane
    #[arg(long, value_name = "NAME", default_value = "isolane")]
    config: String,
    /// Long flows of iperf3
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    flows: u32,
    /// Line rate in Gb/s
    #[arg(long, value_name = "GBPS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    rate: u64,
    /// Transmit queues of the card
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    queues: u16,
    /// Measured time, like 2s
    #[arg(long, value_parser = inputs::duration, default_value = "3s")]
    duration: Duration,
    /// DCTCP instead of CUBIC
    #[arg(long)]
    dctcp: bool,
    /// Run the card's thread on this processor
    #[arg(long, value_name = "CPU")]
    processor: Option<usize>,
    /// Deliver packet by packet with complete checksums: slower, but the receiver checks every byte
    #[arg(long)]
    checksums: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let mut study = NicStudy::of_paper(named(&arguments.config)?, arguments.flows, 1);
    study.card.rate = BitRate::from_gbps(arguments.rate);
    study.card.queues = arguments.queues;
    study.duration = arguments.duration;
    if arguments.dctcp {
        study.congestion = TcpCongestion::Dctcp;
    }
    let cancel = cancel_on_signal()?;
    let options = TestbedOptions {
        nic_processor: arguments.processor,
        complete_checksums: arguments.checksums,
        ..TestbedOptions::new(&cancel)
    };
    let result = match testbed::run(&study, &options, &mut output::note) {
        Ok(result) => result,
        Err(SoftNicError::Interrupted) => return Ok(Status::Interrupted),
        Err(error) => return Err(error.into()),
    };
    match arguments.json {
        true => output::print_json(&result)?,
        false => output::print(&table::one(&result))?,
    }
    Ok(Status::Done)
}
