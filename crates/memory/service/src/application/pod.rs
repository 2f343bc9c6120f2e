//! Where an application's processes are, and what a pod says of itself in its annotations.
//!
//! Problem: containers are known by cgroup, by the runtime's identifier or by their pod; a pod says what it needs in
//! annotations, as Kubernetes has no other place for it.
//! Method: the pod as `kubectl get pod NAME -o json` prints it; annotations `isolane.dev/type`, `isolane.dev/slo`,
//! `isolane.dev/priority` and the optional `isolane.dev/name`, `/weight`, `/memory`, `/local-max`, `/far-tiers`.
//! Unknown ones below `isolane.dev/` are errors, as a misspelt objective is none. The cgroup is that of the pod's UID.
//! Limits: one application for each pod. Source: annotations as in nri-plugins and memtierd's users' requests.

use super::amounts;
use super::{Application, ApplicationError, Cap, Floors, Slo, WEIGHT};
use isolane_common_quantities::units::Bytes;
use isolane_common_toml_input::quantity;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What our annotations begin with.
pub const PREFIX: &str = "isolane.dev/";
const KNOWN: [&str; 8] = [
    "type",
    "slo",
    "priority",
    "name",
    "weight",
    "memory",
    "local-max",
    "far-tiers",
];
/// Characters of a container's identifier that name it, as runtimes print it.
const CONTAINER_MIN: usize = 12;
/// Longest path of a cgroup.
const PATH_MAX: usize = 4_096;

/// Where an application's processes are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The process that asks, and what it will start: a cgroup is made for it.
    Caller,
    /// A cgroup of another owner, as the line `0::` of `/proc/PID/cgroup` shows it.
    Cgroup(String),
    /// The pod of this UID.
    Pod(String),
    /// The container whose identifier begins so.
    Container(String),
}

impl Place {
    /// Checks it: the text is from outside and becomes a path. The error says what is allowed.
    pub fn check(&self) -> Result<(), ApplicationError> {
        let word = |text: &str| {
            text.len() <= 128
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        match self {
            Self::Cgroup(path) => {
                let parts_are_plain = path.split('/').all(|part| part != ".." && part != ".");
                let is_plain = path.len() <= PATH_MAX && !path.contains(|c: char| c.is_control());
                match path.starts_with('/')
                    && !path.trim_matches('/').is_empty()
                    && parts_are_plain
                    && is_plain
                {
                    true => Ok(()),
                    false => Err(ApplicationError::new(
                        "cgroup",
                        format!("{path:?}"),
                        "must be a path below the cgroup root that begins with /, as the line 0:: of /proc/PID/cgroup shows it",
                    )),
                }
            }
            Self::Pod(uid) if uid.is_empty() || !word(uid) => Err(ApplicationError::new(
                "pod",
                format!("{uid:?}"),
                "must be a pod's UID, as metadata.uid has it",
            )),
            Self::Container(id) if id.len() < CONTAINER_MIN || !word(id) => {
                Err(ApplicationError::new(
                    "container",
                    format!("{id:?}"),
                    format!(
                        "must be a container's identifier, {CONTAINER_MIN} characters at least, as the runtime prints it"
                    ),
                ))
            }
            _ => Ok(()),
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        match self {
            Self::Caller => "a cgroup of its own".to_owned(),
            Self::Cgroup(path) => format!("cgroup {path}"),
            Self::Pod(uid) => format!("pod {uid}"),
            Self::Container(id) => format!("container {id}"),
        }
    }
}

/// The part of a pod that matters here; the rest is skipped.
#[derive(Debug, Deserialize)]
struct Pod {
    kind: Option<String>,
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// The application that a pod is by its annotations, and where it is; `text` is the pod as JSON. Fails without a pod or
/// a UID, and for an annotation that is missing, misspelt or wrong.
pub fn parse(text: &str) -> Result<(Application, Place), ApplicationError> {
    let pod: Pod = serde_json::from_str(text).map_err(|error| {
        ApplicationError::new(
            "--pod",
            format!("line {}", error.line()),
            format!("is no pod as JSON ({error}); kubectl get pod NAME -o json prints one, and a file in TOML goes without --pod"),
        )
    })?;
    if let Some(kind) = pod.kind.filter(|kind| kind != "Pod") {
        return Err(ApplicationError::new(
            "kind",
            kind,
            "must be Pod; use kubectl get pod NAME -o json",
        ));
    }
    let metadata = pod.metadata;
    let place = Place::Pod(metadata.uid);
    place.check()?;
    let application = annotations(&metadata.name, &metadata.annotations)?;
    Ok((application, place))
}

/// The application that annotations describe; `pod` names it where they do not. Fails if an annotation is missing,
/// misspelt or wrong.
pub fn annotations(
    pod: &str,
    annotations: &BTreeMap<String, String>,
) -> Result<Application, ApplicationError> {
    let ours: BTreeMap<&str, &str> = annotations
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value.as_str())))
        .collect();
    if let Some(key) = ours.keys().find(|key| !KNOWN.contains(key)) {
        let expected = format!(
            "unknown annotation; there are {PREFIX}{}",
            KNOWN.join(&format!(", {PREFIX}"))
        );
        return Err(ApplicationError::new(
            "annotation",
            format!("{PREFIX}{key}"),
            expected,
        ));
    }
    let slo = slo(&ours)?;
    let priority = needed(
        &ours,
        "priority",
        "a whole number; larger is more important",
    )?;
    let memory = ours.get("memory").map(|text| {
        let size = kubernetes_size(text);
        size.map(Bytes::get)
            .map_err(|reason| wrong("memory", text, reason))
    });
    let cap = ours.get("local-max").map(|text| {
        let most = amounts::amount(text);
        most.map(|most| Cap { tier: 0, most })
            .map_err(|reason| wrong("local-max", text, reason))
    });
    let far_tiers = ours.get("far-tiers").map(|text| far_tiers(text));
    let application = Application {
        name: ours.get("name").copied().unwrap_or(pod).to_owned(),
        slo,
        priority: number("priority", priority)?,
        weight: ours
            .get("weight")
            .map_or(Ok(WEIGHT), |text| number("weight", text))?,
        memory_bytes: memory.transpose()?,
        caps: cap.transpose()?.into_iter().collect(),
        far_tiers: far_tiers.transpose()?.unwrap_or_default(),
        floors: Floors::default(),
        profile: None,
    };
    application.check()?;
    Ok(application)
}

/// An annotation that must be there, in the form that the error names.
fn needed<'a>(
    ours: &BTreeMap<&str, &'a str>,
    key: &str,
    form: &str,
) -> Result<&'a str, ApplicationError> {
    let missing = || {
        ApplicationError::new(
            "annotation",
            format!("{PREFIX}{key}"),
            format!("is missing: {form}"),
        )
    };
    ours.get(key).copied().ok_or_else(missing)
}

fn wrong(key: &'static str, text: &str, reason: impl Into<String>) -> ApplicationError {
    ApplicationError::new(key, format!("{text:?}"), reason)
}

fn number(key: &'static str, text: &str) -> Result<u32, ApplicationError> {
    text.parse()
        .map_err(|_| wrong(key, text, "must be a whole number"))
}

fn slo(ours: &BTreeMap<&str, &str>) -> Result<Slo, ApplicationError> {
    let kind = needed(ours, "type", "ls, bi or best-effort")?;
    let slo = match kind {
        "ls" => quantity::duration(needed(ours, "slo", "a latency, like 160ns")?)
            .map(|latency| Slo::LatencyPs(latency.as_ps())),
        "bi" => amounts::bandwidth(needed(ours, "slo", "a bandwidth, like 40GB/s")?)
            .map(Slo::BandwidthBytesPerS),
        "best-effort" => Ok(Slo::BestEffort),
        _ => return Err(wrong("type", kind, "must be ls, bi or best-effort")),
    };
    slo.map_err(|reason| wrong("slo", ours["slo"], reason))
}

fn far_tiers(text: &str) -> Result<Vec<u8>, ApplicationError> {
    let tier = |number: &str| number.trim().parse::<u8>();
    let tier = |part: &str| {
        tier(part).map_err(|_| wrong("far-tiers", part, "must be numbers with commas, like 1,2"))
    };
    text.split(',').map(tier).collect()
}

/// A size as Kubernetes writes it (`20Gi`) or as we do (`20GiB`).
fn kubernetes_size(text: &str) -> Result<Bytes, String> {
    let text = text.trim();
    match text.ends_with(['i', 'k', 'K', 'M', 'G']) {
        true => quantity::size(&format!("{text}B")),
        false => quantity::size(text),
    }
}
