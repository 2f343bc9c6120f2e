//! The answers of a Kubernetes scheduler extender: which nodes suit a pod, and how well.
//!
//! Method: `filter` and `prioritize` of the extender's first version. The pod says by annotations what it is
//! ([`crate::application::pod`]); a node says by the annotation [`NODE_ANNOTATION`] what it has ([`super::Summary`]). A pod
//! without our annotations fits everywhere; a node without a summary fits no pod that has them. Names of fields are
//! written as the scheduler writes them and read without regard to case, as it does.
//!
//! Units: scores are 0 to 10, as the scheduler wants. Limits: nodes must come whole (`nodeCacheCapable: false`), because
//! their annotations are read; everything else of pod and node is passed through untouched. Source: the types of
//! k8s.io/kube-scheduler/extender/v1.

use super::Summary;
use crate::application::{Application, pod};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The annotation of a node that holds its summary.
pub const NODE_ANNOTATION: &str = "isolane.dev/machine";

/// The scheduler's best score.
const SCORE_MAX: u32 = 10;

/// An answer: HTTP status and body.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// JSON.
    pub body: Value,
}

/// Answers one request; `now_unix_s` judges how old summaries are.
pub fn answer(method: &str, path: &str, body: &[u8], now_unix_s: u64) -> Answer {
    let path = path.split('?').next().unwrap_or(path).trim_end_matches('/');
    match (method, path) {
        ("GET", "/healthz") => Answer {
            status: 200,
            body: json!("ok"),
        },
        ("POST", "/filter") => ok(match Request::parse(body) {
            Ok(request) => request.filter(now_unix_s),
            Err(error) => json!({ "Error": error }),
        }),
        ("POST", "/prioritize") => match Request::parse(body) {
            Ok(request) => ok(request.prioritize(now_unix_s)),
            // This answer has no place for an error, so the status says it.
            Err(error) => Answer {
                status: 400,
                body: json!({ "Error": error }),
            },
        },
        ("GET" | "POST", _) => Answer {
            status: 404,
            body: json!({ "Error": "there are POST /filter, POST /prioritize and GET /healthz" }),
        },
        _ => Answer {
            status: 405,
            body: json!({ "Error": "use POST" }),
        },
    }
}

fn ok(body: Value) -> Answer {
    Answer { status: 200, body }
}

struct Request {
    application: Option<Application>,
    list: Map<String, Value>,
    nodes: Vec<Value>,
}

impl Request {
    fn parse(body: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|error| format!("the request is no JSON: {error}"))?;
        let pod = field(&value, "Pod").ok_or("the request has no Pod")?;
        let application = application(pod)?;
        let list = field(&value, "Nodes").and_then(Value::as_object);
        let list = list.ok_or(
            "the request has no Nodes; set nodeCacheCapable: false for this extender, since it reads annotations of nodes",
        )?;
        let nodes = list.get("items").and_then(Value::as_array);
        Ok(Self {
            application,
            nodes: nodes.cloned().unwrap_or_default(),
            list: list.clone(),
        })
    }

    fn filter(&self, now: u64) -> Value {
        let mut fit = Vec::new();
        let mut failed = Map::new();
        for node in &self.nodes {
            match self.judge(node, now) {
                Ok(_) => fit.push(node.clone()),
                Err(reason) => {
                    failed.insert(name(node), Value::String(format!("isolane: {reason}")));
                }
            }
        }
        let mut list = self.list.clone();
        list.insert("items".to_owned(), Value::Array(fit));
        json!({
            "Nodes": list,
            "NodeNames": null,
            "FailedNodes": failed,
            "FailedAndUnresolvableNodes": {},
            "Error": "",
        })
    }

    fn prioritize(&self, now: u64) -> Value {
        let scores = self.nodes.iter().map(|node| {
            let score = self.judge(node, now).unwrap_or(0);
            json!({ "Host": name(node), "Score": score })
        });
        scores.collect()
    }

    /// The score of a node that suits, or why it does not.
    fn judge(&self, node: &Value, now: u64) -> Result<u32, String> {
        let Some(application) = &self.application else {
            return Ok(0);
        };
        let text = node
            .pointer("/metadata/annotations")
            .and_then(|annotations| annotations.get(NODE_ANNOTATION))
            .and_then(Value::as_str)
            .ok_or_else(|| {
                format!("the node has no annotation {NODE_ANNOTATION}: run isolaned --mem there and publish its summary")
            })?;
        let judgement = Summary::parse(text)?.judge(application, now);
        if !judgement.suitability.keeps_objective {
            return Err(judgement.reason);
        }
        Ok((judgement.suitability.score * SCORE_MAX).div_ceil(100))
    }
}

/// A field by its name, whatever the case of its letters.
fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let fields = value.as_object()?;
    let found = fields
        .iter()
        .find(|(key, _)| key.eq_ignore_ascii_case(name));
    found
        .map(|(_, value)| value)
        .filter(|value| !value.is_null())
}

fn name(node: &Value) -> String {
    let name = node.pointer("/metadata/name").and_then(Value::as_str);
    name.unwrap_or_default().to_owned()
}

/// The application that the pod is by its annotations; none without any of ours.
fn application(value: &Value) -> Result<Option<Application>, String> {
    let annotations = value
        .pointer("/metadata/annotations")
        .and_then(Value::as_object);
    let annotations: BTreeMap<String, String> = annotations
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect();
    if !annotations.keys().any(|key| key.starts_with(pod::PREFIX)) {
        return Ok(None);
    }
    let name = name(value);
    pod::annotations(&name, &annotations)
        .map(Some)
        .map_err(|error| format!("pod `{name}`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::summary;
    use super::*;
    use expect_test::expect;

    const GB: u64 = 1_000_000_000;

    fn node(name: &str, summary: Option<&Summary>) -> Value {
        let mut annotations = Map::new();
        if let Some(summary) = summary {
            let text = serde_json::to_string(summary).unwrap();
            annotations.insert(NODE_ANNOTATION.to_owned(), Value::String(text));
        }
        json!({ "metadata": { "name": name, "annotations": annotations }, "status": { "kept": true } })
    }

    fn request(annotations: Value) -> Vec<u8> {
        let nodes = [
            node("roomy", Some(&summary(5 * GB, 150.0))),
            node("full", Some(&summary(20 * GB, 190.0))),
            node("silent", None),
        ];
        let request = json!({
            "Pod": { "metadata": { "name": "redis-0", "uid": "1", "annotations": annotations } },
            "Nodes": { "metadata": {}, "items": nodes },
            "NodeNames": null,
        });
        serde_json::to_vec(&request).unwrap()
    }

    fn redis(priority: &str) -> Vec<u8> {
        request(json!({
            "isolane.dev/type": "ls",
            "isolane.dev/slo": "160ns",
            "isolane.dev/priority": priority,
            "isolane.dev/memory": "10GB",
            "other/annotation": "x",
        }))
    }

    fn items(answer: &Answer) -> Vec<String> {
        let nodes = answer.body["Nodes"]["items"].as_array().unwrap();
        nodes.iter().map(name).collect()
    }

    #[test]
    fn nodes_that_suit_pass_and_the_others_say_why_not() {
        let answer = answer("POST", "/filter", &redis("2"), 1_000);
        assert_eq!(items(&answer), ["roomy", "full"]);
        expect![[r#"
            {
              "silent": "isolane: the node has no annotation isolane.dev/machine: run isolaned --mem there and publish its summary"
            }"#]]
        .assert_eq(&serde_json::to_string_pretty(&answer.body["FailedNodes"]).unwrap());
        // What we do not understand comes back as it was.
        assert_eq!(answer.body["Nodes"]["items"][0]["status"]["kept"], true);
        assert_eq!(answer.body["Error"], "");
    }

    /// The scheduler decodes exactly these fields of its two results.
    #[test]
    fn answers_have_the_schedulers_fields() {
        let filter = answer("POST", "/filter", &redis("2"), 1_000).body;
        let keys: Vec<&str> = filter
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let fields = [
            "Nodes",
            "NodeNames",
            "FailedNodes",
            "FailedAndUnresolvableNodes",
            "Error",
        ];
        assert_eq!(keys, fields);
        let scores = answer("POST", "/prioritize", &redis("2"), 1_000).body;
        for score in scores.as_array().unwrap() {
            assert!(score["Host"].is_string());
            assert!((0..=10).contains(&score["Score"].as_i64().unwrap()));
        }
    }

    #[test]
    fn the_node_where_nobody_is_harmed_scores_more() {
        let answer = answer("POST", "/prioritize", &redis("2"), 1_000);
        let scores: Vec<(String, u64)> = answer
            .body
            .as_array()
            .unwrap()
            .iter()
            .map(|score| {
                (
                    score["Host"].as_str().unwrap().to_owned(),
                    score["Score"].as_u64().unwrap(),
                )
            })
            .collect();
        expect![[r#"[("roomy", 9), ("full", 5), ("silent", 0)]"#]]
            .assert_eq(&format!("{scores:?}"));
    }

    #[test]
    fn a_pod_without_our_annotations_fits_everywhere() {
        let answer = answer("POST", "/filter", &request(json!({ "a": "b" })), 1_000);
        assert_eq!(items(&answer), ["roomy", "full", "silent"]);
    }

    #[test]
    fn a_priority_that_is_taken_there_does_not_fit() {
        let answer = answer("POST", "/filter", &redis("1"), 1_000);
        assert_eq!(items(&answer), Vec::<String>::new());
        let why = answer.body["FailedNodes"]["full"].as_str().unwrap();
        assert!(why.contains("`old` has this priority"), "{why}");
    }

    #[test]
    fn bad_requests_are_told() {
        let error = |path, body: &[u8]| answer("POST", path, body, 0);
        let text = |answer: Answer| answer.body["Error"].as_str().unwrap().to_owned();
        assert!(text(error("/filter", b"x")).contains("no JSON"));
        assert!(text(error("/filter", b"{\"Pod\":{}}")).contains("nodeCacheCapable"));
        let misspelt = request(json!({ "isolane.dev/typ": "ls" }));
        assert!(text(error("/filter", &misspelt)).contains("unknown annotation"));
        assert_eq!(error("/prioritize", b"x").status, 400);
        assert_eq!(error("/bind", b"{}").status, 404);
        assert_eq!(answer("PUT", "/filter", b"", 0).status, 405);
    }

    #[test]
    fn names_are_read_whatever_their_case() {
        let text = String::from_utf8(redis("2")).unwrap();
        let lower = text
            .replace("\"Pod\"", "\"pod\"")
            .replace("\"Nodes\"", "\"nodes\"");
        let answer = answer("POST", "/filter", lower.as_bytes(), 1_000);
        assert_eq!(items(&answer), ["roomy", "full"]);
    }
}
