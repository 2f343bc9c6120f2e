//! Messages between a controller and an agent: JSON, one message per line.
//!
//! Problem: a controller on one machine starts worker processes on several machines, exchanges lines with each worker,
//! and all workers must end when the controller ends. Method: the agent is a small supervisor at the end of a byte
//! stream (a pipe, ssh, TLS). The controller sends [`Request`]s, the agent [`Event`]s. Lines to and from workers pass
//! through unread.
//!
//! Order: the first request is `Hello`, the first event `Welcome` or `Failed`. Requests that have an answer get it
//! in their order; `Said` and `Ended` may come between. The end of the stream ends the session and every process of
//! it.
//!
//! Limits: a line has at most [`LINE_MAX`] bytes; unknown fields and kinds are errors, since both ends must be of one
//! release ([`VERSION`]). Decoding never panics and allocates no more than the line times a small factor.

use isolane_rdma_traffic::nodes::Nodes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the protocol; raised with every change.
pub const VERSION: u32 = 3;

/// Longest line in either direction, bytes: a report with 100,000 points of two series fits.
pub const LINE_MAX: usize = 4 << 20;

/// Most workers of one session: both ends of 128 tenants.
pub const WORKERS_MAX: usize = 256;

/// What the controller says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Who it is. Answer: `Welcome`.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The program's release, for people.
        program: String,
    },
    /// Start worker `worker`. No answer but what it says.
    Spawn {
        /// Its number, not in use.
        worker: u32,
        /// As which tenant of the session's daemon; none where nothing paces it.
        pacing: Option<Pacing>,
    },
    /// Start a daemon of the session's own, until the next `Clear`. Answer: `Paced`.
    Pace(Paced),
    /// Pass `line` to a worker.
    Say {
        /// Its number.
        worker: u32,
        /// Without the line's end.
        line: String,
    },
    /// Close a worker's input, on which the worker ends.
    Close {
        /// Its number.
        worker: u32,
    },
    /// By how much did a device's counters rise since the last such request? Answer: `Counters`.
    Counters {
        /// The device.
        device: String,
        /// Its port.
        port: u8,
    },
    /// Firmware, driver, kernel and settings of a device and its machine. Answer: `Described`.
    Describe {
        /// The device.
        device: String,
        /// Its port.
        port: u8,
    },
    /// Kill every process of the session, and wait for them. Answer: `Cleared`.
    Clear,
}

/// How a worker is to be treated by the session's daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pacing {
    /// `latency`, `throughput`, `bandwidth` or `auto`.
    pub class: String,
    /// The tenant, letters and digits.
    pub tenant: String,
}

/// What a daemon paces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paced {
    /// The devices it serves; the first two watch the link between them.
    pub devices: Vec<PacedDevice>,
    /// Weights of tenants.
    pub weights: BTreeMap<String, u32>,
}

/// One device that a daemon serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacedDevice {
    /// Its name.
    pub name: String,
    /// Its port.
    pub port: u8,
    /// Payload of the idle device, kilobits per second.
    pub rate_kbps: u64,
    /// Messages of the idle device, per second.
    pub messages_per_s: u64,
    /// What the reference flow's 99th percentile must stay below, microseconds; the daemon's own choice if absent.
    pub target_us: Option<u64>,
    /// Time between reference messages, microseconds; the daemon's own choice if absent.
    pub reference_period_us: Option<u64>,
}

/// What the agent says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Event {
    /// The session begins.
    Welcome {
        /// [`VERSION`].
        version: u32,
        /// The program's release, for people.
        program: String,
        /// The RDMA devices of the machine, each with the NUMA nodes of its buffers.
        devices: BTreeMap<String, Nodes>,
    },
    /// A worker wrote a line.
    Said {
        /// Its number.
        worker: u32,
        /// Without the line's end.
        line: String,
    },
    /// A worker has ended, for any reason.
    Ended {
        /// Its number.
        worker: u32,
        /// How, for people: `exit status 1`, `signal 9`.
        how: String,
        /// True after exit code 0.
        well: bool,
        /// The last lines it wrote to stderr.
        complaint: String,
    },
    /// The daemon serves its devices.
    Paced,
    /// A device's counters.
    Counters {
        /// The device.
        device: String,
        /// Time between the two readings; 0 for the first.
        seconds: f64,
        /// By how much each rose; nothing for the first reading.
        rises: BTreeMap<String, u64>,
    },
    /// What a device and its machine are.
    Described {
        /// The device.
        device: String,
        /// Each fact by name.
        facts: BTreeMap<String, String>,
    },
    /// Every process of the session is gone.
    Cleared,
    /// A request failed; sent instead of its answer.
    Failed {
        /// Why, in one line for people.
        reason: String,
    },
}

/// Why a line is no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum MessageError {
    #[error("a line of more than {LINE_MAX} bytes")]
    Long,
    #[error(
        "no message of this release: {reason}; install the same release of isolane on both machines"
    )]
    Malformed { reason: String },
    #[error("{field} of a message is out of range")]
    Field { field: &'static str },
}

/// A message that a line holds.
pub trait Message: Serialize + Sized {
    /// Reads a line, without its end.
    fn decode(line: &str) -> Result<Self, MessageError>;

    /// As a line with its end.
    fn encode(&self) -> String {
        let mut line = serde_json::to_string(self).expect("messages are plain data");
        line.push('\n');
        line
    }
}

impl Message for Request {
    fn decode(line: &str) -> Result<Self, MessageError> {
        let request: Self = parse(line)?;
        request.check()?;
        Ok(request)
    }
}

impl Message for Event {
    fn decode(line: &str) -> Result<Self, MessageError> {
        parse(line)
    }
}

impl Request {
    /// The ranges that the types do not say.
    fn check(&self) -> Result<(), MessageError> {
        let wrong = |field| Err(MessageError::Field { field });
        match self {
            Self::Spawn {
                pacing: Some(pacing),
                ..
            } => {
                if !CLASSES.contains(&pacing.class.as_str()) {
                    return wrong("class");
                }
                match is_plain(&pacing.tenant) {
                    true => Ok(()),
                    false => wrong("tenant"),
                }
            }
            Self::Pace(paced) => paced.check(),
            Self::Say { line, .. } if line.contains('\n') => wrong("line"),
            Self::Counters { device, .. } | Self::Describe { device, .. }
                if crate::target::check_device(device).is_err() =>
            {
                wrong("device")
            }
            _ => Ok(()),
        }
    }
}

impl Paced {
    fn check(&self) -> Result<(), MessageError> {
        let wrong = |field| Err(MessageError::Field { field });
        if self.devices.is_empty() || self.devices.len() > crate::target::PLACES_MAX {
            return wrong("devices");
        }
        for device in &self.devices {
            let named = crate::target::check_device(&device.name).is_ok() && device.port > 0;
            if !named || device.rate_kbps == 0 || device.messages_per_s == 0 {
                return wrong("device");
            }
        }
        let weights = |(name, weight): (&String, &u32)| is_plain(name) && *weight > 0;
        match self.weights.len() <= WORKERS_MAX && self.weights.iter().all(weights) {
            true => Ok(()),
            false => wrong("weights"),
        }
    }
}

/// Classes, as `isolane rdma run` takes them.
const CLASSES: [&str; 4] = ["latency", "throughput", "bandwidth", "auto"];

/// Letters and digits, not many.
fn is_plain(name: &str) -> bool {
    (1..=32).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn parse<T: for<'a> Deserialize<'a>>(line: &str) -> Result<T, MessageError> {
    if line.len() > LINE_MAX {
        return Err(MessageError::Long);
    }
    serde_json::from_str(line).map_err(|error| MessageError::Malformed {
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request() -> impl Strategy<Value = Request> {
        let name = "[a-z][a-z0-9_]{0,20}";
        prop_oneof![
            (any::<u32>(), ".{0,30}")
                .prop_map(|(version, program)| Request::Hello { version, program }),
            (
                any::<u32>(),
                proptest::option::of(("(latency|auto)", "[a-z0-9]{1,9}"))
            )
                .prop_map(|(worker, pacing)| Request::Spawn {
                    worker,
                    pacing: pacing.map(|(class, tenant)| Pacing { class, tenant }),
                }),
            (any::<u32>(), "[^\n]{0,80}").prop_map(|(worker, line)| Request::Say { worker, line }),
            (name, any::<u8>()).prop_map(|(device, port)| Request::Counters { device, port }),
            (name, any::<u8>()).prop_map(|(device, port)| Request::Describe { device, port }),
            Just(Request::Clear),
        ]
    }

    proptest! {
        #[test]
        fn requests_come_back_as_they_were(request in request()) {
            let line = request.encode();
            prop_assert!(line.ends_with('\n') && !line[..line.len() - 1].contains('\n'));
            prop_assert_eq!(Request::decode(line.trim_end_matches('\n')).unwrap(), request);
        }

        #[test]
        fn arbitrary_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let text = String::from_utf8_lossy(&bytes);
            let _ = Request::decode(&text);
            let _ = Event::decode(&text);
        }

        #[test]
        fn a_changed_byte_never_panics(request in request(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = request.encode().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = Request::decode(&String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn fields_out_of_range_are_refused() {
        for line in [
            r#"{"kind":"counters","device":"../../etc","port":1}"#,
            r#"{"kind":"describe","device":"a/b","port":1}"#,
            r#"{"kind":"say","worker":1,"line":"a\nb"}"#,
            r#"{"kind":"spawn","worker":1,"pacing":null,"command":"sh"}"#,
            r#"{"kind":"spawn","worker":1,"pacing":{"class":"fast","tenant":"a"}}"#,
            r#"{"kind":"spawn","worker":1,"pacing":{"class":"auto","tenant":"--x"}}"#,
            r#"{"kind":"pace","devices":[],"weights":{}}"#,
            r#"{"kind":"pace","devices":[{"name":"a/b","port":1,"rate_kbps":1,"messages_per_s":1,"target_us":null,"reference_period_us":null}],"weights":{}}"#,
            r#"{"kind":"run","command":"sh"}"#,
        ] {
            assert!(Request::decode(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let line = "x".repeat(LINE_MAX + 1);
        assert_eq!(Request::decode(&line), Err(MessageError::Long));
    }
}
