//! What an operator can set, and which values make sense.

use crate::classify::ClassifierOptions;
use crate::pacing::{Capacity, Pool};
use isolane_common_quantities::OptionError;
use isolane_common_quantities::stats::SlidingQuantile;
use isolane_common_quantities::units::{BitRate, Bytes, Duration};

/// Parameters of one host. [`JustitiaOptions::for_device`] gives the paper's.
#[derive(Clone, Debug, PartialEq)]
pub struct JustitiaOptions {
    /// Application-level bandwidth of the idle device: MaxRate in bits (justitia 4.3.1).
    pub rate_max: BitRate,
    /// Messages per second of the idle device: MaxRate in operations.
    pub message_rate_max_per_s: u64,
    /// Target99: the reference flow's 99th percentile that SafeUtil must keep (justitia 4.3.3).
    pub target: Duration,
    /// RefPeriod: time between reference messages, and between updates of SafeUtil.
    pub reference_period: Duration,
    /// RefCount: reference latencies the percentile is taken over, the latest ones.
    pub reference_count: usize,
    /// Count all latency flows together with weight one, however many there are (justitia 4.3.1).
    pub count_latency_as_one: bool,
    /// The smallest token that still reaches a rate, by ascending rate (justitia 5.2, figure 10). A rate above
    /// the last takes the last.
    pub token_dictionary: Vec<(BitRate, Bytes)>,
    /// Token size while no latency flow exists.
    pub token_without_latency: Bytes,
    /// What SafeUtil gains per RefPeriod while the target is met: the "+1" of pseudocode 1. The paper gives no
    /// unit; the public prototype counts megabytes per second, so the default is 8 Mb/s.
    pub additive_step: BitRate,
    /// Tokens kept while no flow takes them (the public prototype's bucket holds 5).
    pub token_backlog_max: u32,
    /// A hungry flow that shows no sign of life for this long gives its share back (justitia F). It must be
    /// longer than the flow's own pauses, or shares flap.
    pub idle_after: Duration,
    /// How to find the class of flows that declare none; `None` treats them as bandwidth for ever
    /// (justitia 4.2).
    pub classifier: Option<ClassifierOptions>,
}

impl JustitiaOptions {
    /// The paper's defaults for a device: RefPeriod 20 us, RefCount 10,000, L counted as one, 5 kB tokens while
    /// a latency flow exists and 1 MB otherwise; declared classes are trusted and silent flows classified.
    pub fn for_device(rate_max: BitRate, message_rate_max_per_s: u64, target: Duration) -> Self {
        Self {
            rate_max,
            message_rate_max_per_s,
            target,
            reference_period: Duration::from_us(20),
            reference_count: 10_000,
            count_latency_as_one: true,
            token_dictionary: vec![(rate_max, Bytes::new(5_000))],
            token_without_latency: Bytes::new(1_000_000),
            additive_step: BitRate::from_bps(8_000_000),
            token_backlog_max: 5,
            idle_after: Duration::from_ms(10),
            classifier: Some(ClassifierOptions::for_device(message_rate_max_per_s)),
        }
    }

    /// The token size while a latency flow exists: the smallest that reaches `rate`.
    pub fn token_for(&self, rate: BitRate) -> Bytes {
        let enough = self
            .token_dictionary
            .iter()
            .find(|&&(reached, _)| reached >= rate);
        let (_, bytes) = enough
            .or(self.token_dictionary.last())
            .expect("check() refuses an empty dictionary");
        *bytes
    }

    /// The device's two limits.
    pub(crate) fn capacity(&self) -> Capacity {
        Capacity {
            rate: self.rate_max,
            messages_per_s: self.message_rate_max_per_s,
        }
    }

    /// Refuses options under which the policy cannot work. The error names the first option that is wrong, and what it
    /// may be.
    pub fn check(&self) -> Result<(), OptionError> {
        let positive = [
            ("rate_max", self.rate_max.as_bps()),
            ("message_rate_max_per_s", self.message_rate_max_per_s),
            ("target", self.target.as_ps()),
            ("reference_period", self.reference_period.as_ps()),
            ("additive_step", self.additive_step.as_bps()),
            ("token_backlog_max", u64::from(self.token_backlog_max)),
            ("idle_after", self.idle_after.as_ps()),
        ];
        OptionError::require_positive(&positive)?;
        self.classifier
            .as_ref()
            .map_or(Ok(()), ClassifierOptions::check)?;
        if !(1..=SlidingQuantile::MAX_CAPACITY).contains(&self.reference_count) {
            let remedy = format!("choose between 1 and {}", SlidingQuantile::MAX_CAPACITY);
            return Err(OptionError::new(
                "reference_count",
                self.reference_count,
                remedy,
            ));
        }
        let rates: Vec<BitRate> = self.token_dictionary.iter().map(|entry| entry.0).collect();
        if rates.is_empty() || !rates.is_sorted_by(|a, b| a < b) {
            let remedy = "list at least one (rate, size), by ascending rate";
            let value = format!("{rates:?}");
            return Err(OptionError::new("token_dictionary", value, remedy));
        }
        let sizes = self.token_dictionary.iter().map(|&(_, bytes)| bytes);
        sizes
            .map(|bytes| ("token_dictionary", bytes))
            .chain([("token_without_latency", self.token_without_latency)])
            .try_for_each(|(name, bytes)| self.check_token(name, bytes))
    }

    /// A token must permit at least one byte and one message, or its owner would wait for ever.
    fn check_token(&self, name: &'static str, bytes: Bytes) -> Result<(), OptionError> {
        let operations = match bytes {
            Bytes::ZERO => 0,
            _ => Pool::new(self.capacity(), bytes, 1).token().operations,
        };
        if operations > 0 {
            return Ok(());
        }
        let rate = u128::from(self.rate_max.as_bps());
        let least = rate.div_ceil(8 * u128::from(self.message_rate_max_per_s));
        let remedy = format!(
            "at {} and {} messages/s a token carries less than one message: give at least {least} B",
            self.rate_max, self.message_rate_max_per_s
        );
        Err(OptionError::new(name, bytes, remedy))
    }
}
