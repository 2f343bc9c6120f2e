//! From the labels of pods to assignments.
//!
//! The author of a pod chooses its labels, so the operator sets bounds ([`Bounds`]): who may use the latency class, and
//! the largest weight. A label outside its bounds is named and has no effect.

use isolane_common_linux::cgroup::is_pod_uid;
use isolane_rdma_session::message::Class;
use isolaned::config::{Assignment, Members};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The labels.
const CLASS: &str = "isolane.dev/class";
const WEIGHT: &str = "isolane.dev/weight";
const TENANT: &str = "isolane.dev/tenant";
/// Beginning of the assignments' names.
pub(super) const PREFIX: &str = "pod-";
/// Longest name of a tenant, bytes.
const TENANT_MAX: usize = 64;

/// What pods may request.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounds {
    /// Namespaces whose pods may have the latency class; `*` is every namespace.
    pub(super) latency_namespaces: Vec<String>,
    /// Largest weight.
    pub(super) weight_max: u32,
}

/// A list of pods, as the API server and `kubectl get pods -o json` print it. Other fields are ignored.
#[derive(Debug, Deserialize)]
pub(super) struct Pods {
    items: Vec<Pod>,
}

#[derive(Debug, Deserialize)]
struct Pod {
    metadata: Metadata,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
    namespace: String,
    uid: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
struct PodStatus {
    #[serde(default)]
    phase: String,
}

/// Assignments by name, and lines about labels without an effect.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Wanted {
    pub(super) assignments: BTreeMap<String, Assignment>,
    pub(super) notes: Vec<String>,
}

impl Wanted {
    /// What the labels of running pods request within the bounds.
    pub(super) fn of(pods: &Pods, bounds: &Bounds) -> Self {
        let mut wanted = Self::default();
        for pod in &pods.items {
            let ended = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
            let labels = [CLASS, WEIGHT, TENANT];
            let labelled = labels
                .iter()
                .any(|label| pod.metadata.labels.contains_key(*label));
            if labelled && !ended {
                wanted.add(&pod.metadata, bounds);
            }
        }
        wanted
    }

    fn add(&mut self, pod: &Metadata, bounds: &Bounds) {
        // Not the annotation of a static pod's hash: every author may write it.
        let identifier = &pod.uid;
        if !is_pod_uid(identifier) {
            self.say(
                pod,
                &format!(
                    "uid {identifier:?} must have 32 lower-case hexadecimal digits and dashes"
                ),
            );
            return;
        }
        let assignment = Assignment {
            members: Members::Pod(identifier.clone()),
            tenant: Some(self.tenant(pod)),
            class: self.class(pod, bounds),
            weight: self.weight(pod, bounds),
            lasts_while: None,
        };
        self.assignments
            .insert(format!("{PREFIX}{identifier}"), assignment);
    }

    fn say(&mut self, pod: &Metadata, what: &str) {
        self.notes
            .push(format!("pod {}/{}: {what}", pod.namespace, pod.name));
    }

    /// The namespace and the label, or the pod's name: a namespace cannot name another one's tenant.
    fn tenant(&mut self, pod: &Metadata) -> String {
        let own = format!("{PREFIX}{}", pod.uid);
        let label = pod.labels.get(TENANT).filter(|label| !label.is_empty());
        let name = format!("{}/{}", pod.namespace, label.unwrap_or(&pod.name));
        match (name.len() <= TENANT_MAX, label) {
            (true, _) => name,
            (false, None) => own,
            (false, Some(label)) => {
                self.say(pod, &format!("{TENANT}={label}: namespace and tenant have more than {TENANT_MAX} bytes together; the pod is its own tenant"));
                own
            }
        }
    }

    fn class(&mut self, pod: &Metadata, bounds: &Bounds) -> Option<Class> {
        let label = pod.labels.get(CLASS)?;
        let Some(class) = Class::from_name(label) else {
            self.say(pod, &format!("{CLASS}={label}: must be latency, throughput, bandwidth or auto; the daemon detects the class"));
            return None;
        };
        let may = |known: &String| known == "*" || *known == pod.namespace;
        if class == Class::Latency && !bounds.latency_namespaces.iter().any(may) {
            self.say(pod, &format!("{CLASS}=latency: the namespace may not use it; list the namespace with --latency-namespace"));
            return None;
        }
        Some(class)
    }

    fn weight(&mut self, pod: &Metadata, bounds: &Bounds) -> Option<u32> {
        let label = pod.labels.get(WEIGHT)?;
        let most = bounds.weight_max;
        match label.parse::<u32>() {
            Ok(weight) if weight > most => {
                self.say(
                    pod,
                    &format!("{WEIGHT}={label}: at most {most} is permitted; the weight is {most}"),
                );
                Some(most)
            }
            Ok(weight) if weight > 0 => Some(weight),
            _ => {
                self.say(
                    pod,
                    &format!(
                        "{WEIGHT}={label}: must be a whole number from 1 to {most}; the weight is 1"
                    ),
                );
                Some(1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UID: &str = "3f2a1c9e-0000-4000-8000-00000000000a";

    fn pods(items: &str) -> Pods {
        serde_json::from_str(&format!("{{\"items\":[{items}]}}")).unwrap()
    }

    fn pod(namespace: &str, name: &str, labels: &str) -> String {
        format!(
            "{{\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"{namespace}\",\"uid\":\"{UID}\",\"labels\":{{{labels}}}}},\"spec\":{{\"x\":1}},\"status\":{{\"phase\":\"Running\"}}}}"
        )
    }

    fn wanted(items: &str) -> Wanted {
        let bounds = Bounds {
            latency_namespaces: vec!["prod".to_owned()],
            weight_max: 8,
        };
        Wanted::of(&pods(items), &bounds)
    }

    fn only(wanted: &Wanted) -> &Assignment {
        assert_eq!(wanted.assignments.len(), 1);
        &wanted.assignments[&format!("pod-{UID}")]
    }

    #[test]
    fn labels_give_class_weight_and_tenant() {
        let labels = "\"isolane.dev/class\":\"latency\",\"isolane.dev/weight\":\"4\",\"isolane.dev/tenant\":\"cache\"";
        let wanted = wanted(&pod("prod", "cache-0", labels));
        let want = Assignment {
            members: Members::Pod(UID.to_owned()),
            tenant: Some("prod/cache".to_owned()),
            class: Some(Class::Latency),
            weight: Some(4),
            lasts_while: None,
        };
        assert_eq!((only(&wanted), wanted.notes.len()), (&want, 0));
    }

    #[test]
    fn a_namespace_without_permission_does_not_get_the_latency_class() {
        let wanted = wanted(&pod("test", "a", "\"isolane.dev/class\":\"latency\""));
        assert_eq!(only(&wanted).class, None);
        assert_eq!(
            wanted.notes,
            [
                "pod test/a: isolane.dev/class=latency: the namespace may not use it; list the namespace with --latency-namespace"
            ]
        );
    }

    #[test]
    fn weights_are_bounded_and_wrong_labels_named() {
        let weight = |label: &str| {
            let wanted = wanted(&pod(
                "prod",
                "a",
                &format!("\"isolane.dev/weight\":\"{label}\""),
            ));
            (only(&wanted).weight, wanted.notes.len())
        };
        assert_eq!(weight("8"), (Some(8), 0));
        assert_eq!(weight("9"), (Some(8), 1));
        assert_eq!(
            [weight("0"), weight("-1"), weight("two")],
            [(Some(1), 1); 3]
        );
        let wanted = wanted(&pod("prod", "a", "\"isolane.dev/class\":\"fast\""));
        assert_eq!((only(&wanted).class, wanted.notes.len()), (None, 1));
    }

    #[test]
    fn pods_without_labels_and_ended_pods_have_no_assignment() {
        let unlabelled = pod("prod", "a", "\"app\":\"x\"");
        let ended =
            pod("prod", "b", "\"isolane.dev/weight\":\"2\"").replace("Running", "Succeeded");
        assert_eq!(wanted(&format!("{unlabelled},{ended}")), Wanted::default());
    }

    /// The attack: an author writes the annotations of a static pod, with the identifier of another pod.
    #[test]
    fn an_annotation_makes_no_pod_another_one() {
        let victim = pod("prod", "cache", "\"isolane.dev/weight\":\"8\"");
        let own = UID.replace("00a", "00b");
        let notes =
            ["hash", "mirror"].map(|name| format!("\"kubernetes.io/config.{name}\":\"{UID}\""));
        let attacker = pod("evil", "a", "\"isolane.dev/weight\":\"2\"")
            .replace(UID, &own)
            .replace(
                "\"labels\"",
                &format!("\"annotations\":{{{}}},\"labels\"", notes.join(",")),
            );
        for list in [
            format!("{victim},{attacker}"),
            format!("{attacker},{victim}"),
        ] {
            let wanted = wanted(&list);
            let names: Vec<_> = wanted.assignments.keys().cloned().collect();
            assert_eq!(names, [format!("pod-{UID}"), format!("pod-{own}")]);
            let tenant = &wanted.assignments[&format!("pod-{UID}")].tenant;
            assert_eq!(tenant.as_deref(), Some("prod/cache"));
        }
    }

    proptest! {
        /// Goal: no text of the API server becomes a key of an assignment's file. Method: the file is read again.
        #[test]
        fn any_text_of_the_server_is_a_value_in_the_file(
            labels in prop::collection::btree_map("isolane\\.dev/(class|weight|tenant)", "(?s).*|[0-9]{1,3}", 0..4),
            namespace in "(?s).*",
            name in "(?s).*",
            uid in prop_oneof![Just(UID.to_owned()), "(?s).*"],
        ) {
            let metadata = serde_json::json!({"name": name, "namespace": namespace, "uid": uid, "labels": labels});
            let wanted = wanted(&serde_json::json!({"metadata": metadata}).to_string());
            for (name, assignment) in wanted.assignments {
                prop_assert_eq!(&name, &format!("pod-{UID}"));
                if let Ok(read) = isolaned::settings::assignment::parse(&name, &assignment.text()) {
                    prop_assert_eq!(read, assignment);
                }
            }
        }
    }

    #[test]
    fn a_hostile_uid_makes_no_assignment() {
        let pod = pod("prod", "a", "\"isolane.dev/weight\":\"2\"").replace(UID, "*");
        let wanted = wanted(&pod);
        assert_eq!((wanted.assignments.len(), wanted.notes.len()), (0, 1));
    }

    #[test]
    fn a_name_that_is_too_long_leaves_the_pod_its_own_tenant() {
        let long = "x".repeat(63);
        let by_name = wanted(&pod("prod", &long, "\"isolane.dev/weight\":\"2\""));
        assert_eq!(only(&by_name).tenant, Some(format!("pod-{UID}")));
        assert!(by_name.notes.is_empty());
        let by_label = wanted(&pod(
            "prod",
            "a",
            &format!("\"isolane.dev/tenant\":\"{long}\""),
        ));
        assert_eq!(
            (only(&by_label).tenant.clone(), by_label.notes.len()),
            (Some(format!("pod-{UID}")), 1)
        );
    }
}
