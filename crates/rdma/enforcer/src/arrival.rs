//! The message that a launcher or a container runtime sends with a listener.
//!
//! Method: one JSON object, the `ContainerProcessState` of the OCI runtime specification, with the listener as a file
//! descriptor beside it. `isolane rdma run --enforce` sends the same object with fewer fields, so one parser reads
//! both. `metadata` carries the tenant's name as `isolane-tenant=NAME`.
//!
//! The message is untrusted. `tenants` decides which fields count: a runtime that runs as root may name any
//! process and container, any other sender only itself.
//!
//! Limits: [`BYTES_MAX`] bytes. Source: OCI runtime specification, "Seccomp", "ContainerProcessState".

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Longest message, bytes.
pub const BYTES_MAX: usize = 65_536;
/// The name of the listener in the message's `fds`.
const LISTENER: &str = "seccompFd";
/// The prefix of a tenant's name in `metadata`.
const TENANT: &str = "isolane-tenant=";
/// Longest accepted tenant name, bytes.
const TENANT_MAX: usize = 100;

/// A parsed message. Its values are claims of the sender.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Arrival {
    /// Process id in the sender's PID namespace.
    pub process: u32,
    /// Container id (`state.id`).
    pub container: Option<String>,
    /// The container's annotations.
    pub annotations: BTreeMap<String, String>,
    /// The tenant that the sender claims.
    pub tenant: Option<String>,
    /// Index of the listener among the descriptors.
    pub listener: usize,
}

/// Why a message is rejected.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum ArrivalError {
    #[error("the message is no ContainerProcessState: {0}")]
    Json(#[from] serde_json::Error),
    #[error("pid = {0} in the message names no process")]
    Process(i64),
    #[error("fds = {0:?} in the message names no seccompFd; the runtime must send its listener")]
    NoListener(Vec<String>),
}

#[derive(Deserialize)]
struct ProcessState {
    #[serde(default)]
    fds: Vec<String>,
    pid: i64,
    #[serde(default)]
    metadata: Option<String>,
    #[serde(default)]
    state: Option<ContainerState>,
}

#[derive(Deserialize)]
struct ContainerState {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

impl Arrival {
    /// Parses a message. Fails if it is not the object of the specification, or lacks process or listener.
    ///
    /// ```
    /// use isolane_rdma_enforcer::arrival::Arrival;
    /// let text = br#"{"ociVersion": "1.1.0", "fds": ["seccompFd"], "pid": 42, "state": {"id": "web-1"}}"#;
    /// let arrival = Arrival::parse(text)?;
    /// assert_eq!((arrival.process, arrival.container.as_deref()), (42, Some("web-1")));
    /// # Ok::<(), isolane_rdma_enforcer::arrival::ArrivalError>(())
    /// ```
    pub fn parse(bytes: &[u8]) -> Result<Self, ArrivalError> {
        let said: ProcessState = serde_json::from_slice(bytes)?;
        let process = u32::try_from(said.pid).ok().filter(|process| *process > 0);
        let process = process.ok_or(ArrivalError::Process(said.pid))?;
        let listener = said.fds.iter().position(|name| name == LISTENER);
        let Some(listener) = listener else {
            return Err(ArrivalError::NoListener(said.fds));
        };
        let metadata = said.metadata.unwrap_or_default();
        let tenant = metadata
            .split(';')
            .find_map(|part| part.strip_prefix(TENANT));
        let state = said.state;
        Ok(Self {
            process,
            listener,
            tenant: tenant
                .filter(|name| !name.is_empty() && name.len() <= TENANT_MAX)
                .map(str::to_owned),
            container: state.as_ref().and_then(|state| state.id.clone()),
            annotations: state
                .and_then(|state| state.annotations)
                .unwrap_or_default(),
        })
    }

    /// Builds the message of a process outside containers.
    pub fn message(process: u32, tenant: Option<&str>) -> Vec<u8> {
        let metadata = tenant.map_or_else(String::new, |name| format!("{TENANT}{name}"));
        let message = serde_json::json!({
            "ociVersion": "1.1.0",
            "fds": [LISTENER],
            "pid": process,
            "metadata": metadata,
        });
        message.to_string().into_bytes()
    }
}

/// Whether `bytes` hold a complete JSON value. A stream can deliver a message in several pieces.
pub fn is_whole(bytes: &[u8]) -> bool {
    match serde_json::from_slice::<serde::de::IgnoredAny>(bytes) {
        Ok(_) => true,
        Err(error) => !error.is_eof(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RUNC: &str = r#"{"ociVersion":"1.0.2-dev","fds":["initFd","seccompFd"],"pid":4422,
        "metadata":"x;isolane-tenant=web","state":{"ociVersion":"1.0.2-dev","id":"oci-container1",
        "status":"creating","pid":4422,"bundle":"/b","annotations":{"app":"db"}}}"#;

    #[test]
    fn a_runtimes_message_is_read() {
        let arrival = Arrival::parse(RUNC.as_bytes()).unwrap();
        assert_eq!((arrival.process, arrival.listener), (4422, 1));
        assert_eq!(arrival.container.as_deref(), Some("oci-container1"));
        assert_eq!(arrival.annotations["app"], "db");
        assert_eq!(arrival.tenant.as_deref(), Some("web"));
    }

    #[test]
    fn our_own_message_is_read_back() {
        let arrival = Arrival::parse(&Arrival::message(7, Some("bulk"))).unwrap();
        assert_eq!(
            (arrival.process, arrival.tenant.as_deref()),
            (7, Some("bulk"))
        );
        assert_eq!(
            Arrival::parse(&Arrival::message(7, None)).unwrap().tenant,
            None
        );
    }

    #[test]
    fn absent_and_null_parts_are_no_mistake() {
        let text = br#"{"fds":["seccompFd"],"pid":1,"metadata":null,"state":{"id":null,"annotations":null}}"#;
        assert_eq!(Arrival::parse(text).unwrap().process, 1);
    }

    #[test]
    fn a_message_without_process_or_listener_is_refused() {
        for (text, said) in [
            (r#"{"fds":["seccompFd"],"pid":0}"#, "pid = 0"),
            (r#"{"fds":["seccompFd"],"pid":-5}"#, "pid = -5"),
            (r#"{"fds":["x"],"pid":5}"#, "names no seccompFd"),
            ("[]", "no ContainerProcessState"),
        ] {
            let error = Arrival::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Arrival::parse(&bytes);
            let _ = is_whole(&bytes);
        }

        /// A message that is cut anywhere is incomplete. Deep nesting does no harm.
        #[test]
        fn edits_of_a_message_are_read_or_refused(cut in 0_usize..RUNC.len(), paste in "[\\[\\]{}\",:0-9a-z]{0,200}") {
            prop_assert!(!is_whole(&RUNC.as_bytes()[..cut]));
            let text = format!("{}{paste}{}", &RUNC[..cut], &RUNC[cut..]);
            let _ = Arrival::parse(text.as_bytes());
        }
    }
}
