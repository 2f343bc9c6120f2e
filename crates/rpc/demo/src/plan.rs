//! The lab's traffic, and what theory predicts for it.
//!
//! Traffic (section 3.6.1): in every period calls arrive at `burst` times the line rate until `load` times the line's
//! capacity in a period is reached; then no calls arrive until the next period. All clients use the same clock. Units:
//! bits per second, bytes, milliseconds; mixes are fractions of the calls by class, the highest class first. Method:
//! wire times by division, queueing delays by the exact fluid solution of `isolane_rpc_policy::queueing`.

use crate::error::LabError;
use crate::network::HEADERS;
use isolane_rpc_policy::queueing::fluid::Port;
use isolane_rpc_policy::queueing::region::guaranteed_share;
use isolane_rpc_policy::queueing::{Arrivals, QueueingError};
use serde::Serialize;

/// Number of classes: high, medium, and the lowest.
pub const CLASSES: usize = 3;
/// Classes under control: all but the last.
pub const CONTROLLED: usize = CLASSES - 1;

/// All parameters of a lab.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Rate of the overloaded port, bits per second.
    pub line_bit_per_s: u64,
    /// MTU of all links, without the Ethernet header.
    pub link_mtu: u32,
    /// Weights of the classes.
    pub weights: [u32; CLASSES],
    /// Code point of each class.
    pub dscp: [u8; CLASSES],
    /// Payload of a call, bytes.
    pub call_bytes: u32,
    /// Fraction of the calls that request each class.
    pub asked_mix: [f64; CLASSES],
    /// The mix whose latencies become the objectives.
    pub target_mix: [f64; CLASSES],
    /// Average load of the port, in line rates.
    pub load: f64,
    /// Load during a burst, in line rates.
    pub burst: f64,
    /// Time from the start of one burst to the next.
    pub period_ms: u64,
    /// Percentage of calls that must meet the objective.
    pub percentile: f64,
    /// Length of the run at the target mix.
    pub target_ms: u64,
    /// Length of the run without admission.
    pub without_ms: u64,
    /// Length of the run with admission.
    pub with_ms: u64,
    /// Start of the run with admission that is not judged: probabilities begin at one and must fall first.
    pub settle_ms: u64,
    /// Seed of the calls' times and classes.
    pub seed: u64,
}

/// Predictions of theory for one mix.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Theory {
    /// Worst queueing delay of each class under fluid traffic.
    pub delay_us: [f64; CLASSES],
    /// Time of one call alone on the wire.
    pub wire_us: f64,
    /// Time of one call of each class while all classes are backlogged.
    pub guaranteed_us: [f64; CLASSES],
    /// Smallest admitted fraction of all calls by class, at any load of the others; the last class has no bound.
    pub guaranteed_share: Vec<f64>,
}

impl Plan {
    /// A plan of less than a minute.
    pub fn quick() -> Self {
        Self {
            line_bit_per_s: 100_000_000,
            link_mtu: 5120,
            weights: [8, 4, 1],
            dscp: [46, 26, 10],
            call_bytes: 32_768,
            asked_mix: [0.5, 0.35, 0.15],
            target_mix: [0.2, 0.3, 0.5],
            load: 0.8,
            burst: 1.4,
            period_ms: 250,
            percentile: 99.0,
            target_ms: 10_000,
            without_ms: 8_000,
            with_ms: 20_000,
            settle_ms: 6_000,
            seed: 1,
        }
    }

    /// A plan that is long enough for the 99.9th percentile.
    pub fn full() -> Self {
        Self {
            target_ms: 60_000,
            without_ms: 30_000,
            with_ms: 120_000,
            settle_ms: 20_000,
            ..Self::quick()
        }
    }

    /// Payload of a full packet: one MTU of a call.
    pub fn mtu_bytes(&self) -> u32 {
        self.link_mtu + 14 - HEADERS
    }

    /// Size of a call in MTUs.
    pub fn call_mtus(&self) -> u32 {
        self.call_bytes.div_ceil(self.mtu_bytes())
    }

    /// Bytes of a call as the port counts them: payload, the frames of HTTP/2, the headers of its packets.
    pub fn wire_bytes(&self) -> u64 {
        let frames = u64::from(self.call_bytes).div_ceil(16_384) * 9;
        let request = u64::from(self.call_bytes) + frames + CALL_HEADERS;
        request + request.div_ceil(u64::from(self.mtu_bytes())) * u64::from(HEADERS)
    }

    /// Calls per second of all clients together during a burst.
    pub fn burst_calls_per_s(&self) -> f64 {
        self.burst * self.line_bit_per_s as f64 / (8.0 * self.wire_bytes() as f64)
    }

    /// Duration of a burst, microseconds.
    pub fn burst_us(&self) -> u64 {
        (self.period_ms as f64 * 1000.0 * self.load / self.burst) as u64
    }

    /// Calls per second of all clients on average.
    pub fn calls_per_s(&self) -> f64 {
        self.burst_calls_per_s() * self.load / self.burst
    }

    /// Predictions of theory for `mix`. Fails if the load or the mix is invalid.
    pub fn theory(&self, mix: &[f64; CLASSES]) -> Result<Theory, QueueingError> {
        let weights = self.weights.map(f64::from);
        let port = Port::new(&weights, Arrivals::new(self.load, self.burst)?)?;
        let period_us = self.period_ms as f64 * 1000.0;
        let delays = port.delays(mix)?;
        let wire_us = self.wire_bytes() as f64 * 8e6 / self.line_bit_per_s as f64;
        let sum: f64 = weights.iter().sum();
        let last = CLASSES - 1;
        Ok(Theory {
            delay_us: std::array::from_fn(|class| delays[class] * period_us),
            wire_us,
            guaranteed_us: weights.map(|weight| wire_us * sum / weight),
            guaranteed_share: (0..last)
                .map(|class| (guaranteed_share(&port, class) / self.load).min(1.0))
                .collect(),
        })
    }

    /// Rejects plans that cannot be run. The error has the option, its value and the remedy.
    pub fn check(&self) -> Result<(), LabError> {
        if !(self.percentile > 0.0 && self.percentile < 100.0) {
            return Err(LabError::Input(format!(
                "--percentile {} is not above 0 and below 100; give one like 99",
                self.percentile
            )));
        }
        if !(LINE_MIN..=LINE_MAX).contains(&self.line_bit_per_s) {
            return Err(LabError::Input(format!(
                "--line-mbit {} is not from {} to {}: below, a call takes longer than a burst; above, this machine's processors \
                 would be what is overloaded",
                self.line_bit_per_s / 1_000_000,
                LINE_MIN / 1_000_000,
                LINE_MAX / 1_000_000
            )));
        }
        self.theory(&self.asked_mix)
            .and_then(|_| self.theory(&self.target_mix))
            .map_err(|error| LabError::Input(error.to_string()))?;
        Ok(())
    }
}

/// Headers of a call in HTTP/2 and gRPC, compressed, about.
const CALL_HEADERS: u64 = 60;
const LINE_MIN: u64 = 10_000_000;
const LINE_MAX: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_seven_packets_of_the_link() {
        let plan = Plan::quick();
        assert_eq!(plan.mtu_bytes(), 5068);
        assert_eq!(plan.call_mtus(), 7);
        assert_eq!(plan.wire_bytes(), 32_768 + 18 + 60 + 7 * 66);
    }

    #[test]
    fn theory_finds_the_asked_mix_overloaded_and_the_target_mix_not() {
        let plan = Plan::quick();
        let asked = plan.theory(&plan.asked_mix).unwrap();
        let target = plan.theory(&plan.target_mix).unwrap();
        // 1.4 * 0.5 of the line is above 8/13, 1.4 * 0.2 is not.
        assert!(
            asked.delay_us[0] > 0.0 && asked.delay_us[1] > 0.0,
            "{asked:?}"
        );
        assert_eq!(target.delay_us[0], 0.0);
        assert!((target.guaranteed_us[0] / target.wire_us - 13.0 / 8.0).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_run_is_refused_with_the_value() {
        let check = |plan: Plan| plan.check().unwrap_err().to_string();
        let plan = Plan::quick();
        assert!(plan.check().is_ok() && Plan::full().check().is_ok());
        assert!(
            check(Plan {
                percentile: 100.0,
                ..plan.clone()
            })
            .contains("--percentile 100")
        );
        assert!(
            check(Plan {
                line_bit_per_s: 1_000_000,
                ..plan.clone()
            })
            .contains("--line-mbit 1 ")
        );
        assert!(
            check(Plan {
                asked_mix: [0.5, 0.5, 0.5],
                ..plan
            })
            .contains("sum to 1.5")
        );
    }
}
