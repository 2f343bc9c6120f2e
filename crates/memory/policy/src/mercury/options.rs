//! Mercury's parameters: the machine, and constants of the policy.
//!
//! Units: bytes, bytes per second, thousandths. Defaults are set where a value is published or follows from the period;
//! our own defaults are marked. Source: mercury 5.3.1, 5.5.2, algorithm 4.

use super::{CPU_ONE, Thresholds};
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::Bytes;

/// Whose memory and bandwidth a needy application may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// All memory of every less important application (mercury 5.4.1).
    #[default]
    Strict,
    /// What others hold beyond their share by weight; priorities only order (ours).
    Weighted,
}

/// Parameters of [`Mercury`](super::Mercury).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MercuryOptions {
    /// Where interference begins, from profiling the machine.
    pub thresholds: Thresholds,
    /// Most bandwidth of the near tier in bytes per second; unknown: nothing is given up for it.
    pub near_bandwidth: Option<u64>,
    /// Traffic to far tiers at which hint faults reach their threshold, in bytes per second; unknown: learned.
    pub far_bandwidth: Option<u64>,
    /// How much slower far memory is than near memory in latency, in thousandths (figure 5.3a: about 2000); the
    /// profile of an application overrules it.
    pub latency_ratio: u32,
    /// The same in bandwidth of a stream (figure 5.3b: about 4000).
    pub bandwidth_ratio: u32,
    /// Alpha of algorithm 4: the least change of a memory limit.
    pub memory_step: Bytes,
    /// Beta: the least change of a processor limit, in thousandths.
    pub cpu_step: u32,
    /// What a squeezed application keeps, in thousandths: it goes on as best effort (mercury 5.4.1, note 1).
    pub cpu_floor: u32,
    /// An application that is better than its objective by more than this, in thousandths, has too much. Aim is the
    /// middle of the band, so that an ordinary wobble leads to nothing.
    pub band: u32,
    /// Strict priority or weights.
    pub sharing: Sharing,
}

impl MercuryOptions {
    /// The defaults for a machine whose near tier holds `near` bytes.
    pub fn new(thresholds: Thresholds, near: Bytes) -> Self {
        Self {
            thresholds,
            near_bandwidth: None,
            far_bandwidth: None,
            latency_ratio: 2_000,
            bandwidth_ratio: 4_000,
            memory_step: Bytes::new((near.get() / STEPS_OF_NEAR).max(MEMORY_STEP_MIN.get())),
            cpu_step: 50,
            cpu_floor: 10,
            band: 50,
            sharing: Sharing::Strict,
        }
    }

    /// Whether the options make sense. The error names the first one that does not.
    pub fn check(&self) -> Result<(), OptionError> {
        let ranges = [
            ("latency_ratio", self.latency_ratio, 1_000, 100_000),
            ("bandwidth_ratio", self.bandwidth_ratio, 1_000, 100_000),
            ("cpu_step", self.cpu_step, 1, CPU_ONE / 2),
            ("cpu_floor", self.cpu_floor, 1, CPU_ONE),
            ("band", self.band, 1, 500),
        ];
        for (name, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                let remedy = format!("choose {least} to {most} thousandths");
                return Err(OptionError::new(name, value, remedy));
            }
        }
        if self.memory_step < Bytes::new(PAGE) {
            let remedy = format!("choose at least one page, {PAGE} bytes");
            return Err(OptionError::new("memory_step", self.memory_step, remedy));
        }
        let faults = self.thresholds.hint_faults_per_s;
        if !faults.is_finite() || faults < 0.0 {
            let remedy = "profile the machine, or write a positive number per second";
            return Err(OptionError::new("hint_faults_per_s", faults, remedy));
        }
        Ok(())
    }
}

/// A limit moves in 128ths of the near tier: 0.8 %, far below the band of any objective.
const STEPS_OF_NEAR: u64 = 128;
/// Smaller steps than this drown in what the kernel's own bookkeeping moves.
const MEMORY_STEP_MIN: Bytes = Bytes::from_mib(1);
const PAGE: u64 = 4_096;
