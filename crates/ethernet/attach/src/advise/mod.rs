//! Advice: what a device's configuration costs its flows in fairness or latency, and how to change it.
//!
//! Method: each rule of `rules` checks one property. It returns nothing, or the finding, its cost, a measurement of
//! that cost, and the command that changes it. The measurements are those of titan, tables 3 and 4: a 10 Gb/s card with
//! 8 queues and 8 threads. They show direction and size, not the values of this machine. Limits: rules see files and
//! sockets, not firmware settings. Nothing is changed.

mod rules;
#[cfg(test)]
mod tests;

use crate::device::Device;
use crate::error::NicError;
use crate::journal::Journal;
use crate::system::System;
use serde::Serialize;

/// Version of the advice's format.
const VERSION: u32 = 1;

/// Importance of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// It costs fairness or latency and can be changed.
    Change,
    /// It cannot be changed here, or the change depends on the user's goals.
    Know,
}

/// A finding of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Finding {
    /// Name of the rule.
    pub rule: &'static str,
    /// Its importance.
    pub weight: Weight,
    /// The observed configuration.
    pub found: String,
    /// What it costs.
    pub costs: &'static str,
    /// A measurement of the cost, with its source.
    pub measured: &'static str,
    /// The command that changes it; `None` if there is none.
    pub command: Option<String>,
}

/// The advice for a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Advice {
    /// Version of the advice's format.
    pub version: u32,
    /// The kernel's version.
    pub kernel: String,
    /// The device as it was read.
    pub device: Device,
    /// Whether Titan is attached.
    pub attached: bool,
    /// The findings; those that can be changed come first.
    pub findings: Vec<Finding>,
}

impl Advice {
    /// Whether a finding should be changed.
    pub fn is_change_due(&self) -> bool {
        let due = |finding: &Finding| finding.weight == Weight::Change;
        self.findings.iter().any(due)
    }

    /// The advice as text.
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
            "Advice for the device {}: {}, {queues}, {}{speed}, kernel {}\n",
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

/// Reads the device with that name and returns the findings. Fails if the device does not exist.
pub fn advise(system: &System, name: &str) -> Result<Advice, NicError> {
    let device = Device::read(system, name)?;
    device.refuse_software(system)?;
    // Without permission to read the journals, the advice ignores the attachment.
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
