//! What a device's configuration costs its flows in fairness or latency, by how much, and what changes it.
//!
//! Method: each rule of `rules` looks at one thing and is silent, or says what it found, what that costs, the
//! measurement that shows it, and the command that changes it. The measurements are those of titan, tables 3 and 4: a
//! 10 Gb/s card with 8 queues and 8 threads, so they say which way and how much, not what this machine would measure.
//! Limits: rules know what files and sockets tell; firmware settings are unseen. Nothing is changed here.

mod rules;
#[cfg(test)]
mod tests;

use crate::device::Device;
use crate::error::NicError;
use crate::journal::Journal;
use crate::system::System;
use serde::Serialize;

/// The form of the advice.
const VERSION: u32 = 1;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// It costs fairness or latency and can be changed.
    Change,
    /// Worth knowing: it cannot be changed here, or it depends on what is wanted.
    Know,
}

/// Something found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Finding {
    /// The rule's name.
    pub rule: &'static str,
    /// How much it matters.
    pub weight: Weight,
    /// What is so.
    pub found: String,
    /// What that costs.
    pub costs: &'static str,
    /// The measurement, with its source.
    pub measured: &'static str,
    /// The command that changes it; none if none does.
    pub command: Option<String>,
}

/// The advice for a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Advice {
    /// Form of the advice.
    pub version: u32,
    /// The kernel.
    pub kernel: String,
    /// The device as it was found.
    pub device: Device,
    /// Whether Titan is attached.
    pub attached: bool,
    /// What was found, what can be changed first.
    pub findings: Vec<Finding>,
}

impl Advice {
    /// Whether something should be changed.
    pub fn is_change_due(&self) -> bool {
        let due = |finding: &Finding| finding.weight == Weight::Change;
        self.findings.iter().any(due)
    }

    /// In words.
    pub fn text(&self) -> String {
        let device = &self.device;
        let queues = match device.queues.len() {
            1 => "1 transmit queue".to_owned(),
            count => format!("{count} transmit queues"),
        };
        let speed = device
            .speed_mbps
            .map_or_else(String::new, |speed| format!(", {speed} Mb/s"));
        let mut text = format!(
            "{}: {}, {queues}, {}{speed}, kernel {}\n",
            device.name, device.driver, device.discipline, self.kernel
        );
        if self.findings.is_empty() {
            text.push_str("Nothing found that costs fairness or latency.\n");
        }
        for finding in &self.findings {
            let mark = match finding.weight {
                Weight::Change => "change",
                Weight::Know => "know",
            };
            text.push_str(&format!("\n{mark:<7} {}\n", finding.found));
            text.push_str(&format!(
                "  costs    {}\n  measured {}\n",
                finding.costs, finding.measured
            ));
            if let Some(command) = &finding.command {
                text.push_str(&format!("  command  {command}\n"));
            }
        }
        text
    }
}

/// Reads the device of that name and says what is found.
///
/// # Errors
/// A device that is not there; the kernel's.
pub fn advise(system: &System, name: &str) -> Result<Advice, NicError> {
    let device = Device::read(system, name)?;
    device.refuse_software(system)?;
    // Whoever may not read them is not told of the attachment.
    let journals = match Journal::all(system) {
        Err(NicError::NotPermitted { .. }) => Vec::new(),
        journals => journals?,
    };
    let journal = journals
        .iter()
        .find(|journal| journal.index == device.index);
    let attachment = journal.map(|journal| rules::Attachment {
        controlled: journal.running(system).is_some(),
        segments: journal.options.segments.reduced().is_some(),
    });
    Ok(of(system.kernel(), device, attachment))
}

/// The advice for a device that was read.
fn of(kernel: String, device: Device, attachment: Option<rules::Attachment>) -> Advice {
    let mut findings: Vec<Finding> = rules::ALL
        .iter()
        .filter_map(|rule| rule(&device, attachment))
        .collect();
    findings.sort_by_key(|finding| finding.weight);
    Advice {
        version: VERSION,
        kernel,
        device,
        attached: attachment.is_some(),
        findings,
    }
}
