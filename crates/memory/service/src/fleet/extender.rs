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
use super::json::Json;
use crate::application::{Application, pod};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The annotation of a node that holds its summary.
pub const NODE_ANNOTATION: &str = "isolane.dev/machine";

/// The scheduler's best score.
const SCORE_MAX: u32 = 10;

/// Nodes of one request: Kubernetes is made for 5,000.
const NODES_MAX: usize = 20_000;

/// An answer: HTTP status and body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// JSON.
    pub body: String,
}

impl Answer {
    /// An answer that says what is wrong.
    pub(super) fn error(status: u16, why: &str) -> Self {
        let body = json!({ "Error": why }).to_string();
        Self { status, body }
    }
}

/// Answers one request; `now_unix_s` judges how old summaries are.
pub fn answer(method: &str, path: &str, body: &[u8], now_unix_s: u64) -> Answer {
    let path = path.split('?').next().unwrap_or(path).trim_end_matches('/');
    match (method, path) {
        ("GET", "/healthz") => ok(json!("ok").to_string()),
        ("POST", "/filter") => match Request::parse(body) {
            Ok(request) => ok(request.filter(now_unix_s)),
            Err(error) => Answer::error(200, &error),
        },
        ("POST", "/prioritize") => match Request::parse(body) {
            Ok(request) => ok(request.prioritize(now_unix_s)),
            // This answer has no place for an error, so the status says it.
            Err(error) => Answer::error(400, &error),
        },
        ("GET" | "POST", _) => {
            let known = "there are POST /filter, POST /prioritize and GET /healthz";
            Answer::error(404, known)
        }
        _ => Answer::error(405, "use POST"),
    }
}

fn ok(body: String) -> Answer {
    Answer { status: 200, body }
}

/// A request whose nodes stay where they are in its text.
struct Request<'a> {
    application: Option<Application>,
    list: Json<'a>,
}

impl<'a> Request<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, String> {
        let request =
            Json::check(body).map_err(|error| format!("the request is no JSON: {error}"))?;
        let pod = named(request, "Pod").ok_or("the request has no Pod")?;
        let application = application(pod)?;
        let list = named(request, "Nodes").filter(|nodes| nodes.is_object());
        let list = list.ok_or(
            "the request has no Nodes; set nodeCacheCapable: false for this extender, since it reads annotations of nodes",
        )?;
        let request = Self { application, list };
        match request.nodes().take(NODES_MAX + 1).count() > NODES_MAX {
            true => Err(format!("the request has more than {NODES_MAX} nodes")),
            false => Ok(request),
        }
    }

    fn nodes(&self) -> impl Iterator<Item = Json<'a>> {
        let items = self.list.field("items");
        items.into_iter().flat_map(Json::items)
    }

    /// The list of nodes as it came, with those that fit, and why the others do not.
    fn filter(&self, now: u64) -> String {
        let mut fit = String::new();
        let mut failed = Map::new();
        for node in self.nodes() {
            match self.judge(node, now) {
                Ok(_) => {
                    let comma = if fit.is_empty() { "" } else { "," };
                    fit.push_str(comma);
                    fit.push_str(node.raw());
                }
                Err(reason) => {
                    failed.insert(name(node), Value::String(format!("isolane: {reason}")));
                }
            }
        }
        let others = self.list.fields().filter(|(key, _)| !key.is("items"));
        let others = others.map(|(key, value)| format!("{}:{},", key.raw(), value.raw()));
        let failed = Value::Object(failed);
        format!(
            "{{\"Nodes\":{{{}\"items\":[{fit}]}},\"NodeNames\":null,\"FailedNodes\":{failed},\
             \"FailedAndUnresolvableNodes\":{{}},\"Error\":\"\"}}",
            others.collect::<String>()
        )
    }

    fn prioritize(&self, now: u64) -> String {
        let scores = self.nodes().map(|node| {
            let score = self.judge(node, now).unwrap_or(0);
            json!({ "Host": name(node), "Score": score })
        });
        scores.collect::<Value>().to_string()
    }

    /// The score of a node that suits, or why it does not.
    fn judge(&self, node: Json<'_>, now: u64) -> Result<u32, String> {
        let Some(application) = &self.application else {
            return Ok(0);
        };
        let text = annotations(node)
            .and_then(|annotations| annotations.field(NODE_ANNOTATION))
            .and_then(Json::text)
            .ok_or_else(|| {
                format!("the node has no annotation {NODE_ANNOTATION}: run isolaned --mem there and publish its summary")
            })?;
        let judgement = Summary::parse(&text)?.judge(application, now);
        if !judgement.suitability.keeps_objective {
            return Err(judgement.reason);
        }
        Ok((judgement.suitability.score * SCORE_MAX).div_ceil(100))
    }
}

/// A field by its name in any case of letters; none where it is null.
fn named<'a>(value: Json<'a>, name: &str) -> Option<Json<'a>> {
    let mut fields = value.fields();
    let found = fields.find(|(key, _)| {
        let key = key.text().unwrap_or_default();
        key.eq_ignore_ascii_case(name)
    });
    found
        .map(|(_, value)| value)
        .filter(|value| !value.is_null())
}

fn name(value: Json<'_>) -> String {
    let name = value.field("metadata").and_then(|data| data.field("name"));
    name.and_then(Json::text).unwrap_or_default()
}

fn annotations(value: Json<'_>) -> Option<Json<'_>> {
    value.field("metadata")?.field("annotations")
}

/// The application that the pod is by its annotations; none without any of ours.
fn application(value: Json<'_>) -> Result<Option<Application>, String> {
    let all = annotations(value).into_iter().flat_map(Json::fields);
    let texts = all.filter_map(|(key, value)| Some((key.text()?, value.text()?)));
    let ours: BTreeMap<String, String> = texts
        .filter(|(key, _)| key.starts_with(pod::PREFIX))
        .collect();
    if ours.is_empty() {
        return Ok(None);
    }
    let name = name(value);
    pod::annotations(&name, &ours)
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

    fn body(answer: &Answer) -> Value {
        serde_json::from_str(&answer.body).unwrap()
    }

    fn items(answer: &Answer) -> Vec<String> {
        let body = body(answer);
        let nodes = body["Nodes"]["items"].as_array().unwrap();
        let names = nodes.iter().map(|node| node["metadata"]["name"].as_str());
        names.map(|name| name.unwrap().to_owned()).collect()
    }

    #[test]
    fn nodes_that_suit_pass_and_the_others_say_why_not() {
        let answer = answer("POST", "/filter", &redis("2"), 1_000);
        assert_eq!(items(&answer), ["roomy", "full"]);
        expect![[r#"
            {
              "silent": "isolane: the node has no annotation isolane.dev/machine: run isolaned --mem there and publish its summary"
            }"#]]
        .assert_eq(&serde_json::to_string_pretty(&body(&answer)["FailedNodes"]).unwrap());
        // What we do not understand comes back as it was.
        let body = body(&answer);
        assert_eq!(body["Nodes"]["items"][0]["status"]["kept"], true);
        assert_eq!(body["Error"], "");
    }

    /// The scheduler decodes exactly these fields of its two results.
    #[test]
    fn answers_have_the_schedulers_fields() {
        let filter = body(&answer("POST", "/filter", &redis("2"), 1_000));
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
        let scores = body(&answer("POST", "/prioritize", &redis("2"), 1_000));
        for score in scores.as_array().unwrap() {
            assert!(score["Host"].is_string());
            assert!((0..=10).contains(&score["Score"].as_i64().unwrap()));
        }
    }

    #[test]
    fn the_node_where_nobody_is_harmed_scores_more() {
        let answer = answer("POST", "/prioritize", &redis("2"), 1_000);
        let scores: Vec<(String, u64)> = body(&answer)
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
        let body = body(&answer);
        let why = body["FailedNodes"]["full"].as_str().unwrap();
        assert!(why.contains("`old` has this priority"), "{why}");
    }

    #[test]
    fn bad_requests_are_told() {
        let error = |path, body: &[u8]| answer("POST", path, body, 0);
        let text = |answer: Answer| body(&answer)["Error"].as_str().unwrap().to_owned();
        assert!(text(error("/filter", b"x")).contains("no JSON"));
        assert!(text(error("/filter", b"{\"Pod\":{}}")).contains("nodeCacheCapable"));
        let misspelt = request(json!({ "isolane.dev/typ": "ls" }));
        assert!(text(error("/filter", &misspelt)).contains("unknown annotation"));
        assert_eq!(error("/prioritize", b"x").status, 400);
        assert_eq!(error("/bind", b"{}").status, 404);
        assert_eq!(answer("PUT", "/filter", b"", 0).status, 405);
    }

    /// Goal: the answer takes no more memory than the request, for any list. Method: a list of numbers instead of
    /// nodes.
    #[test]
    fn a_list_of_millions_is_refused_and_a_long_one_is_answered_in_place() {
        let request = |count: usize| {
            let zeros = vec!["0"; count].join(",");
            format!("{{\"Pod\":{{}},\"Nodes\":{{\"items\":[{zeros}]}}}}").into_bytes()
        };
        let refused = answer("POST", "/filter", &request(2_000_000), 0);
        assert_eq!(
            body(&refused)["Error"],
            "the request has more than 20000 nodes"
        );
        let long = request(NODES_MAX);
        let passed = answer("POST", "/filter", &long, 0);
        assert!(passed.body.len() < long.len() + 200);
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
