//! Errors of network devices; each message names object, value and remedy.

use isolane_common_linux::HostError;
use isolane_ethernet_bpf::EbpfError;
use std::io;
use std::path::PathBuf;

/// Lowest similarity of a suggested name (Jaro-Winkler, 0 to 1).
const SIMILARITY_MIN: f64 = 0.7;

/// Why an operation on a network device failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum NicError {
    #[error("no network device is named `{device}` here{}", suggestion(.device, .known))]
    NoDevice { device: String, known: Vec<String> },
    #[error(
        "{device} has one transmit queue, and `attach` needs at least two; {}", more_queues(.command)
    )]
    SingleQueue {
        device: String,
        /// Command that adds queues; `None` if no command can.
        command: Option<String>,
    },
    #[error(
        "{device} is a software device: it has no hardware queues among which flows could be divided; {}",
        in_words(.cards)
    )]
    Software {
        device: String,
        /// Devices of this host with a card.
        cards: Vec<String>,
    },
    /// A device that passes packets to others, which choose queues themselves.
    #[error("{device} sends through {}: attach {} instead", .lower.join(", "), if .lower.len() == 1 { "that" } else { "those" })]
    Upper { device: String, lower: Vec<String> },
    #[error(
        "{device}: its driver {driver} {how}, so flows do not get the queues that they are given; --any-driver attaches all the same"
    )]
    Ignored {
        device: String,
        driver: String,
        how: &'static str,
    },
    #[error("{action}: not permitted; run as root, or with CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON")]
    NotPermitted { action: String },
    #[error("{action}: {detail}")]
    Kernel { action: String, detail: String },
    #[error(
        "{device} is attached already{}; `isolane nic detach {device}{place}` first, or `isolane nic status {device}{place}`",
        by(*.process)
    )]
    Attached {
        device: String,
        /// Command line option for its namespace ([`crate::System::place`]).
        place: String,
        /// Process id of the running controller, if any.
        process: Option<u32>,
    },
    #[error("{device} is not attached; run `isolane nic attach {device}{place}`")]
    NotAttached {
        device: String,
        /// Command line option for its namespace ([`crate::System::place`]).
        place: String,
    },
    #[error("another `isolane nic` changes {device}; wait for it to end, or end it")]
    Busy { device: String },
    #[error("{device} is gone: removed, or its driver was unloaded")]
    Gone { device: String },
    #[error(
        "cannot enter the network namespace `{name}`: {reason}; `ip netns list` shows the named ones"
    )]
    Namespace { name: String, reason: io::Error },
    #[error("{what} `{value}`: {expected}")]
    Value {
        what: &'static str,
        value: String,
        expected: String,
    },
    /// A file that cannot be read, written or parsed.
    #[error("{}: {detail}", path.display())]
    File { path: PathBuf, detail: String },
    /// An error of the kernel or of a host file.
    #[error(transparent)]
    Host(#[from] HostError),
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
        None => format!(
            "; there are: {}; --netns NAME names another namespace",
            known.join(", ")
        ),
    }
}

fn more_queues(command: &Option<String>) -> String {
    match command {
        None => "use a device that can have more (`ethtool -l DEVICE` shows how many)".to_owned(),
        Some(command) => format!("its driver can have more: `{command}`"),
    }
}

fn in_words(cards: &[String]) -> String {
    match cards {
        [] => "this machine has no device of a NIC".to_owned(),
        cards => format!("devices of NICs: {}", cards.join(", ")),
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
            "no network device is named `bond0` here; there are: lo; --netns NAME names another namespace"
        );
    }
}
