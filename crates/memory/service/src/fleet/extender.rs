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
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The annotation of a node that holds its summary.
pub const NODE_ANNOTATION: &str = "isolane.dev/machine";

/// The scheduler's best score.
const SCORE_MAX: u32 = 10;

/// Nodes of one request: Kubernetes is made for 5,000.
const NODES_MAX: usize = 20_000;
/// Annotations of a pod with our prefix: there are about a dozen.
const ANNOTATIONS_MAX: usize = 64;
/// Longest annotation of ours, key or value, and longest name of a pod that has such annotations, bytes of JSON.
const ANNOTATION_MAX: usize = 4_096;
/// Longest reason against a node, bytes: it may have a name from the node's summary.
const REASON_MAX: usize = 1_000;
/// Longest summary of a node: Kubernetes limits all annotations of an object to 256 KiB. Bytes of JSON.
const SUMMARY_MAX: usize = 256 << 10;

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
    ///
    /// The reasons come first, so that the answer is written once, into memory of its size.
    fn filter(&self, now: u64) -> String {
        let judged = self.nodes().map(|node| (node, self.judge(node, now)));
        let reasons: Vec<Option<String>> = judged.map(|(_, judged)| judged.err()).collect();
        let judged = || self.nodes().zip(&reasons);
        let others = || self.list.fields().filter(|(key, _)| !key.is("items"));
        let mut pieces = Pieces::default();
        for is_counting in [true, false] {
            pieces.begin(is_counting);
            pieces.add("{\"Nodes\":{");
            for (key, value) in others() {
                for piece in [key.raw(), ":", value.raw(), ","] {
                    pieces.add(piece);
                }
            }
            pieces.add("\"items\":[");
            pieces.list(
                judged()
                    .filter(|(_, reason)| reason.is_none())
                    .map(|(node, _)| [node.raw()]),
            );
            pieces.add("]},\"NodeNames\":null,\"FailedNodes\":{");
            let failed = judged().filter_map(|(node, reason)| Some((node, reason.as_ref()?)));
            pieces.list(failed.map(|(node, reason)| [raw_name(node), ":", reason]));
            pieces.add("},\"FailedAndUnresolvableNodes\":{},\"Error\":\"\"}");
        }
        pieces.text
    }

    fn prioritize(&self, now: u64) -> String {
        let score = |node| self.judge(node, now).unwrap_or(0).to_string();
        let scores: Vec<String> = self.nodes().map(score).collect();
        let mut pieces = Pieces::default();
        for is_counting in [true, false] {
            pieces.begin(is_counting);
            pieces.add("[");
            let nodes = self.nodes().zip(&scores);
            pieces
                .list(nodes.map(|(node, score)| {
                    ["{\"Host\":", raw_name(node), ",\"Score\":", score, "}"]
                }));
            pieces.add("]");
        }
        pieces.text
    }

    /// The score of a node that suits, or as JSON why it does not.
    fn judge(&self, node: Json<'_>, now: u64) -> Result<u32, String> {
        self.suits(node, now).map_err(|mut reason| {
            reason.truncate(reason.floor_char_boundary(REASON_MAX));
            Value::String(format!("isolane: {reason}")).to_string()
        })
    }

    fn suits(&self, node: Json<'_>, now: u64) -> Result<u32, String> {
        let Some(application) = &self.application else {
            return Ok(0);
        };
        let text = annotations(node)
            .and_then(|annotations| annotations.field(NODE_ANNOTATION))
            .filter(|summary| summary.length() <= SUMMARY_MAX)
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

/// A text of many pieces: the first round counts their bytes, the second writes into memory of that size.
#[derive(Default)]
struct Pieces {
    is_counting: bool,
    bytes: usize,
    text: String,
}

impl Pieces {
    fn begin(&mut self, is_counting: bool) {
        self.is_counting = is_counting;
        if !is_counting {
            self.text.reserve_exact(self.bytes);
        }
    }

    fn add(&mut self, piece: &str) {
        match self.is_counting {
            true => self.bytes += piece.len(),
            false => self.text.push_str(piece),
        }
    }

    /// Entries with commas between them.
    fn list<'a, const N: usize>(&mut self, entries: impl Iterator<Item = [&'a str; N]>) {
        for (place, entry) in entries.enumerate() {
            if place > 0 {
                self.add(",");
            }
            for piece in entry {
                self.add(piece);
            }
        }
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

/// The name of a pod or node, none where it has no text for a name.
fn name(value: Json<'_>) -> Option<Json<'_>> {
    let name = value.field("metadata")?.field("name")?;
    name.is_text().then_some(name)
}

/// The name as it was written, in its quotes.
fn raw_name(value: Json<'_>) -> &str {
    name(value).map_or("\"\"", Json::raw)
}

fn annotations(value: Json<'_>) -> Option<Json<'_>> {
    value.field("metadata")?.field("annotations")
}

/// The application that the pod is by its annotations; none without any of ours.
fn application(value: Json<'_>) -> Result<Option<Application>, String> {
    let all = annotations(value).into_iter().flat_map(Json::fields);
    let mut ours = BTreeMap::new();
    let mut count = 0;
    for (key, value) in all.filter(|(key, _)| key.length() <= ANNOTATION_MAX) {
        let Some(key) = key.text().filter(|key| key.starts_with(pod::PREFIX)) else {
            continue;
        };
        count += 1;
        if value.length() > ANNOTATION_MAX || count > ANNOTATIONS_MAX {
            return Err(format!(
                "the pod has more than {ANNOTATIONS_MAX} annotations {}* or one of more than {ANNOTATION_MAX} bytes; remove them",
                pod::PREFIX
            ));
        }
        if let Some(value) = value.text() {
            ours.insert(key, value);
        }
    }
    if ours.is_empty() {
        return Ok(None);
    }
    let name = name(value).filter(|name| name.length() <= ANNOTATION_MAX);
    let name = name.and_then(Json::text).unwrap_or_default();
    pod::annotations(&name, &ours)
        .map(Some)
        .map_err(|error| format!("pod `{name}`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::summary;
    use super::*;
    use expect_test::expect;
    use serde_json::Map;

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
    fn the_node_without_harm_scores_more() {
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
    fn bad_requests_get_an_error() {
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
    fn names_are_read_in_any_case() {
        let text = String::from_utf8(redis("2")).unwrap();
        let lower = text
            .replace("\"Pod\"", "\"pod\"")
            .replace("\"Nodes\"", "\"nodes\"");
        let answer = answer("POST", "/filter", lower.as_bytes(), 1_000);
        assert_eq!(items(&answer), ["roomy", "full"]);
    }
}
