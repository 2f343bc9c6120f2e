//! What can go wrong with a network device, with the object, the value and the remedy in every message.

use isolane_common_linux::HostError;
use isolane_ethernet_bpf::EbpfError;
use std::io;
use std::path::PathBuf;

/// Names less alike than this are not offered as what was meant (Jaro-Winkler similarity, 0 to 1).
const SIMILARITY_MIN: f64 = 0.7;

/// Why something about a network device did not happen.
#[derive(Debug, thiserror::Error)]
pub enum NicError {
    /// No device of that name in this network namespace.
    #[error("no network device is named `{device}` here{}", suggestion(.device, .known))]
    NoDevice {
        /// The name asked for.
        device: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// A device with one transmit queue.
    #[error(
        "{device} has one transmit queue: there is nothing to choose between; {}", more_queues(.command)
    )]
    SingleQueue {
        /// The device.
        device: String,
        /// What gives it more; none if nothing does.
        command: Option<String>,
    },
    /// A device of the kernel's own, like the loopback: no card is behind it.
    #[error(
        "{device} is a device in software: it has no hardware queues, so that no configuration of it helps; {}",
        in_words(.cards)
    )]
    Software {
        /// The device.
        device: String,
        /// Devices here that have a card behind them.
        cards: Vec<String>,
    },
    /// A device that hands packets to others, which choose queues themselves.
    #[error("{device} sends through {}: attach {} instead", .lower.join(", "), if .lower.len() == 1 { "that" } else { "those" })]
    Upper {
        /// The device.
        device: String,
        /// The devices below.
        lower: Vec<String>,
    },
    /// A driver that is known to choose queues itself.
    #[error(
        "{device}: its driver {driver} {how}, so flows do not get the queues that they are given; --any-driver attaches all the same"
    )]
    Ignored {
        /// The device.
        device: String,
        /// Its driver.
        driver: String,
        /// How it chooses.
        how: &'static str,
    },
    /// Root is needed.
    #[error("{action}: not permitted; run as root, or with CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON")]
    NotPermitted {
        /// What was to be done.
        action: String,
    },
    /// The kernel lacks something.
    #[error("{action}: {detail}")]
    Kernel {
        /// What was to be done.
        action: String,
        /// What is missing, and what to do.
        detail: String,
    },
    /// The device is attached already.
    #[error(
        "{device} is attached already{}; `isolane nic detach {device}{place}` first, or `isolane nic status {device}{place}`",
        by(*.process)
    )]
    Attached {
        /// The device.
        device: String,
        /// What names its namespace on the command line ([`crate::System::place`]).
        place: String,
        /// The controller that runs, if one does.
        process: Option<u32>,
    },
    /// The device is not attached.
    #[error("{device} is not attached; `isolane nic attach {device}{place}` does it")]
    NotAttached {
        /// The device.
        device: String,
        /// What names its namespace on the command line ([`crate::System::place`]).
        place: String,
    },
    /// Another attach or detach is at work on the device.
    #[error("another `isolane nic` is at work on {device}; wait for it, or end it")]
    Busy {
        /// The device.
        device: String,
    },
    /// The device went away.
    #[error("{device} is gone: removed, or its driver was unloaded")]
    Gone {
        /// The device.
        device: String,
    },
    /// A network namespace that cannot be entered.
    #[error(
        "cannot enter the network namespace `{name}`: {reason}; `ip netns list` shows the named ones"
    )]
    Namespace {
        /// Its name.
        name: String,
        /// Why.
        reason: io::Error,
    },
    /// A value that does not fit.
    #[error("{what} `{value}`: {expected}")]
    Value {
        /// Which value.
        what: &'static str,
        /// What it was.
        value: String,
        /// What it must be.
        expected: String,
    },
    /// A file of ours that cannot be read, written or understood.
    #[error("{}: {detail}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why, and what to do.
        detail: String,
    },
    /// The kernel's answer.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The programs in the kernel.
    #[error(transparent)]
    Programs(#[from] EbpfError),
}

impl NicError {
    /// True when the command line asked for something that cannot be, false when the machine cannot do it.
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

/// The member of `known` that looks most like `name`; none when all are far.
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
