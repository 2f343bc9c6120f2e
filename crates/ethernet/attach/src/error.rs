//! Errors of network devices; each message names object, value and remedy.

use isolane_common_linux::HostError;
use isolane_ethernet_bpf::EbpfError;
use std::io;
use std::path::PathBuf;

/// Lowest similarity of a suggested name (Jaro-Winkler, 0 to 1).
const SIMILARITY_MIN: f64 = 0.7;

/// Why an operation on a network device failed.
#[derive(Debug, thiserror::Error)]
pub enum NicError {
    /// The namespace has no device with that name.
    #[error("no network device is named `{device}` here{}", suggestion(.device, .known))]
    NoDevice {
        /// The requested name.
        device: String,
        /// The existing names.
        known: Vec<String>,
    },
    /// The device has one transmit queue.
    #[error(
        "{device} has one transmit queue: there is nothing to choose between; {}", more_queues(.command)
    )]
    SingleQueue {
        /// Device name.
        device: String,
        /// Command that adds queues; `None` if no command can.
        command: Option<String>,
    },
    /// A software device without a card, such as the loopback.
    #[error(
        "{device} is a device in software: it has no hardware queues, so that no configuration of it helps; {}",
        in_words(.cards)
    )]
    Software {
        /// Device name.
        device: String,
        /// Devices of this host with a card.
        cards: Vec<String>,
    },
    /// A device that passes packets to others, which choose queues themselves.
    #[error("{device} sends through {}: attach {} instead", .lower.join(", "), if .lower.len() == 1 { "that" } else { "those" })]
    Upper {
        /// Device name.
        device: String,
        /// The lower devices.
        lower: Vec<String>,
    },
    /// The driver is known to choose queues itself.
    #[error(
        "{device}: its driver {driver} {how}, so flows do not get the queues that they are given; --any-driver attaches all the same"
    )]
    Ignored {
        /// Device name.
        device: String,
        /// Driver name.
        driver: String,
        /// How the driver chooses.
        how: &'static str,
    },
    /// A privilege is missing.
    #[error("{action}: not permitted; run as root, or with CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON")]
    NotPermitted {
        /// The attempted action.
        action: String,
    },
    /// A kernel feature is missing.
    #[error("{action}: {detail}")]
    Kernel {
        /// The attempted action.
        action: String,
        /// The missing feature and the remedy.
        detail: String,
    },
    /// The device is already attached.
    #[error(
        "{device} is attached already{}; `isolane nic detach {device}{place}` first, or `isolane nic status {device}{place}`",
        by(*.process)
    )]
    Attached {
        /// Device name.
        device: String,
        /// Command line option for its namespace ([`crate::System::place`]).
        place: String,
        /// Process id of the running controller, if any.
        process: Option<u32>,
    },
    /// The device is not attached.
    #[error("{device} is not attached; `isolane nic attach {device}{place}` does it")]
    NotAttached {
        /// Device name.
        device: String,
        /// Command line option for its namespace ([`crate::System::place`]).
        place: String,
    },
    /// Another process attaches or detaches the device.
    #[error("another `isolane nic` changes {device}; wait for it to end, or end it")]
    Busy {
        /// Device name.
        device: String,
    },
    /// The device was removed.
    #[error("{device} is gone: removed, or its driver was unloaded")]
    Gone {
        /// Device name.
        device: String,
    },
    /// The network namespace cannot be entered.
    #[error(
        "cannot enter the network namespace `{name}`: {reason}; `ip netns list` shows the named ones"
    )]
    Namespace {
        /// Name of the namespace.
        name: String,
        /// The kernel's error.
        reason: io::Error,
    },
    /// A value out of range.
    #[error("{what} `{value}`: {expected}")]
    Value {
        /// Name of the value.
        what: &'static str,
        /// The given value.
        value: String,
        /// What is allowed.
        expected: String,
    },
    /// A file that cannot be read, written or parsed.
    #[error("{}: {detail}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The reason and the remedy.
        detail: String,
    },
    /// An error of the kernel or of a host file.
    #[error(transparent)]
    Host(#[from] HostError),
    /// An error of the BPF programs.
    #[error(transparent)]
    Programs(#[from] EbpfError),
}

impl NicError {
    /// Whether the command line is wrong, rather than the machine.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::NoDevice { .. }
                | Self::Attached { .. }
                | Self::NotAttached { .. }
                | Self::Value { .. }
                | Self::Upper { .. }
                | Self::Ignored { .. }
                | Self::Namespace { .. }
                | Self::Programs(EbpfError::BadInput(_) | EbpfError::Containers { .. })
        )
    }

    pub(crate) fn file(path: impl Into<PathBuf>, detail: impl std::fmt::Display) -> Self {
        Self::File {
            path: path.into(),
            detail: detail.to_string(),
        }
    }
}

/// The most similar member of `known`; `None` if none is similar.
fn nearest<'a>(name: &str, known: &'a [String]) -> Option<&'a str> {
    known
        .iter()
        .map(|known| (strsim::jaro_winkler(name, known), known.as_str()))
        .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1)))
        .map(|(_, name)| name)
}

fn suggestion(name: &str, known: &[String]) -> String {
    match nearest(name, known) {
        Some(name) => format!("; did you mean {name}?"),
        None if known.is_empty() => "; there is none".to_owned(),
        None => format!("; there are: {}", known.join(", ")),
    }
}

fn more_queues(command: &Option<String>) -> String {
    match command {
        None => "a device that can have more is needed (`ethtool -l` shows it)".to_owned(),
        Some(command) => format!("its driver can have more: `{command}`"),
    }
}

fn in_words(cards: &[String]) -> String {
    match cards {
        [] => "this machine has no device with a card behind it".to_owned(),
        cards => format!("devices with a card behind them: {}", cards.join(", ")),
    }
}

fn by(process: Option<u32>) -> String {
    process.map_or_else(String::new, |process| format!(", by process {process}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_gets_the_nearest() {
        let error = |device: &str, known: &[&str]| {
            let known = known.iter().map(|&name| name.to_owned()).collect();
            NicError::NoDevice {
                device: device.to_owned(),
                known,
            }
            .to_string()
        };
        assert_eq!(
            error("eht0", &["lo", "eth0", "eth1"]),
            "no network device is named `eht0` here; did you mean eth0?"
        );
        assert_eq!(
            error("bond0", &["lo"]),
            "no network device is named `bond0` here; there are: lo"
        );
    }
}
