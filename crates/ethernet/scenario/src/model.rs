//! The checked study of one host's card, or of a cluster of hosts.
//!
//! A value is valid by construction of the parser or of [`NicStudy::of_paper`].
//! Units: the types say them.
//! Source: titan 3 and 6 (methodology).

use super::config::NicConfig;
use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use serde::{Deserialize, Serialize};

/// One experiment: one configuration, one set of flows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NicStudy {
    /// Name, for reports.
    pub name: String,
    /// The host's set-up.
    pub config: NicConfig,
    /// The card.
    pub card: Card,
    /// Who sends what.
    pub traffic: NicTraffic,
    /// TCP's congestion control.
    pub congestion: TcpCongestion,
    /// Time before measuring.
    pub warmup: Duration,
    /// Time measured.
    pub duration: Duration,
    /// Run seed.
    pub seed: u64,
}

/// A network card and its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Card {
    /// Line rate.
    pub rate: BitRate,
    /// Transmit queues.
    pub queues: u16,
    /// Processors (hardware threads) of the host.
    pub processors: u16,
    /// Largest packet without Ethernet framing.
    pub mtu: Bytes,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum NicTraffic {
    /// Long flows from one host to another over an idle switch, and a ping beside them. Half of the processors have twice
    /// as many flows as the other half (titan 6).
    Flows {
        /// How many.
        flows: u32,
        /// Payload of a ping.
        ping: Bytes,
        /// Time between pings.
        ping_interval: Duration,
    },
    /// Every host opens a connection to every other at once and sends this much (titan 7.2).
    AllToAll {
        /// Hosts; of those, `second_switch` hang on a second switch that is joined with the first.
        hosts: u32,
        /// Hosts behind the second switch.
        second_switch: u32,
        /// Payload of a connection.
        bytes: Bytes,
    },
}

/// TCP's congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TcpCongestion {
    /// CUBIC (RFC 9438).
    Cubic,
    /// DCTCP (RFC 8257).
    Dctcp,
}

impl NicStudy {
    /// The study's experiment: 10 Gb/s, 8 queues, 8 hardware threads, CUBIC, a 1 KB ping.
    pub fn of_paper(config: NicConfig, flows: u32, seed: u64) -> Self {
        Self {
            name: format!("{}-{flows}-flows", config.name),
            config,
            card: Card {
                rate: BitRate::from_gbps(10),
                queues: 8,
                processors: 8,
                mtu: Bytes::new(1500),
            },
            traffic: NicTraffic::Flows {
                flows,
                ping: Bytes::new(1000),
                ping_interval: Duration::from_ms(10),
            },
            congestion: TcpCongestion::Cubic,
            warmup: Duration::from_ms(500),
            duration: Duration::from_secs(5),
            seed,
        }
    }
}
