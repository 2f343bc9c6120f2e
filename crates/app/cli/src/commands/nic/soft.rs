//! `isolane nic soft`: a card in this process, by itself between two namespaces, or with one configuration of the study
//! and its traffic.
//!
//! Without options the software NIC forwards the packets of other programs until an interrupt, and prints once per
//! second the packets of each queue.

use super::study::named;
use crate::card_study::table;
use crate::inputs::{self, bad};
use crate::output;
use crate::status::Status;
use crate::target::cancel_on_signal;
use anyhow::Result;
use isolane_common_quantities::units::{BitRate, Duration};
use isolane_ethernet_scenario::config::NicConfig;
use isolane_ethernet_scenario::model::{NicStudy, TcpCongestion};
use isolane_ethernet_software_card::SoftNicError;
use isolane_ethernet_software_card::serve::{self, Second, ServeOptions};
use isolane_ethernet_software_card::testbed::{self, TestbedOptions};

/// Arguments of `isolane nic soft`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Run this configuration with its own traffic and end: C1 to C9, XPS, T1 to T3, TX1 to TX3, fq_codel, fq, cake,
    /// isolane
    #[arg(long, value_name = "NAME")]
    config: Option<String>,
    /// With --config: long flows of iperf3
    #[arg(long, value_name = "N", default_value_t = 12, requires = "config", value_parser = crate::numbers::whole::<u32>(1..=4_096))]
    flows: u32,
    /// Without --config: namespaces of sender and receiver, as `ip netns` names them; two are made if none are given
    #[arg(long, value_name = "SENDER,RECEIVER", value_delimiter = ',')]
    #[arg(num_args = 1, conflicts_with = "config")]
    between: Vec<String>,
    /// Without --config: weight of each queue, one for each; equal if not given
    #[arg(long, value_name = "W1,W2,...", value_delimiter = ',', num_args = 1)]
    #[arg(conflicts_with = "config")]
    weights: Vec<u32>,
    /// Without --config: serve queues in turn and ignore their weights
    #[arg(long, conflicts_with_all = ["config", "weights"])]
    round_robin: bool,
    /// Line rate in Gb/s
    #[arg(long, value_name = "GBPS", default_value_t = super::study::SOFT_GBPS, value_parser = crate::numbers::real(0.01..=100.0))]
    rate: f64,
    /// Transmit queues of the NIC
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = crate::numbers::whole::<u16>(1..=64))]
    queues: u16,
    /// Measured time, like 2s; without --config how long to carry traffic [default: 3s, or until interrupted]
    #[arg(long, value_parser = inputs::duration)]
    duration: Option<Duration>,
    /// With --config: DCTCP instead of CUBIC
    #[arg(long, requires = "config")]
    dctcp: bool,
    /// Run the NIC's thread on this processor
    #[arg(long, value_name = "CPU")]
    processor: Option<usize>,
    /// With --config: deliver packet by packet with complete checksums: slower, but the receiver checks every byte
    #[arg(long, requires = "config")]
    checksums: bool,
    /// Print JSON; without --config a line each second
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    match &arguments.config {
        Some(config) => run_configuration(arguments, named(config)?),
        None => carry(arguments),
    }
}

fn run_configuration(arguments: &Arguments, config: NicConfig) -> Result<Status> {
    let mut study = NicStudy::of_paper(config, arguments.flows, 1);
    study.card.rate = BitRate::from_gbps_f64(arguments.rate);
    study.card.queues = arguments.queues;
    study.duration = arguments.duration.unwrap_or(Duration::from_secs(3));
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
        false => output::show(&table::one(&result))?,
    }
    Ok(Status::Done)
}

fn carry(arguments: &Arguments) -> Result<Status> {
    let spaces = match arguments.between.as_slice() {
        [] => None,
        [sender, receiver] if sender != receiver => Some((sender.clone(), receiver.clone())),
        other => {
            let given = other.join(",");
            return Err(bad(format!(
                "--between {given}: give two different namespaces, like --between left,right"
            )));
        }
    };
    let options = ServeOptions {
        rate: BitRate::from_gbps_f64(arguments.rate),
        queues: arguments.queues,
        weights: (!arguments.weights.is_empty()).then(|| arguments.weights.clone()),
        round_robin: arguments.round_robin,
        spaces,
        processor: arguments.processor,
    };
    let cancel = cancel_on_signal()?;
    let until = arguments.duration.map(|duration| {
        std::time::Instant::now() + std::time::Duration::from_nanos(duration.as_ps() / 1_000)
    });
    let mut failure = None;
    serve::serve(
        &options,
        &cancel,
        &mut |sender, receiver, address| {
            output::note(&format!(
                "carrying traffic from namespace {sender} to {receiver} ({address}) at {} Gb/s; try: ip netns exec {sender} ping {address}",
                arguments.rate
            ));
        },
        &mut |second| {
            let printed = print_second(arguments, second);
            if printed.is_err() || until.is_some_and(|until| std::time::Instant::now() >= until) {
                failure = printed.err();
                cancel.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        },
    )?;
    failure.map_or(Ok(Status::Done), Err)
}

fn print_second(arguments: &Arguments, second: &Second) -> Result<()> {
    let length = second.length.as_secs_f64();
    let mbps = |bytes: u64| bytes as f64 * 8e-6 / length;
    if arguments.json {
        let queues: Vec<_> = second
            .queues
            .iter()
            .zip(&second.weights)
            .map(|(queue, weight)| {
                serde_json::json!({
                    "mbps": mbps(queue.bytes), "packets": queue.packets, "frames": queue.frames, "weight": weight,
                })
            })
            .collect();
        let line = serde_json::json!({ "seconds": length, "queues": queues });
        return output::print(&format!("{}\n", output::compact_json(&line)?.trim_end()));
    }
    let queues: Vec<String> = second
        .queues
        .iter()
        .map(|queue| format!("{:.1}", mbps(queue.bytes)))
        .collect();
    let sum: f64 = second.queues.iter().map(|queue| mbps(queue.bytes)).sum();
    output::print(&format!(
        "{sum:.1} Mb/s; Mb/s of each queue: {}\n",
        queues.join(" ")
    ))
}
