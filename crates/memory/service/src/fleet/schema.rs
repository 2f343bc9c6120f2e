//! The extender against the fields that a Kubernetes API server knows.
//!
//! Problem: an extender that drops, renames or cannot read a field breaks scheduling in ways that tests with small pods do not
//! show. Method: `kubernetes_fields.txt` is the table of every field of pods and nodes of a real API server's published
//! schema, and of the scheduler's extender types (`lab/kubernetes_fields.py` makes it). Pods and nodes that have every one
//! of these fields go through the extender; what comes back is held to the table, unknown fields included.
//! Units: none. Limits: kinds, not formats; no cluster runs. Source: Kubernetes 1.31.0.

use super::extender::{NODE_ANNOTATION, answer};
use super::tests::summary;
use crate::application::pod;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const FIELDS: &str = include_str!("kubernetes_fields.txt");
const GB: u64 = 1_000_000_000;

/// What a type is: fields with their kinds and whether they must be there, or another name for a kind.
enum Type {
    Fields(BTreeMap<String, (String, bool)>),
    Alias(String),
}

struct Schema(BTreeMap<String, Type>);

impl Schema {
    fn read() -> Self {
        let mut types: BTreeMap<String, Type> = BTreeMap::new();
        let mut last = String::new();
        for line in FIELDS.lines().filter(|line| !line.starts_with('#')) {
            if let Some((field, kind)) = line
                .strip_prefix("  ")
                .and_then(|line| line.split_once(' '))
            {
                let Some(Type::Fields(fields)) = types.get_mut(&last) else {
                    panic!("a field without a type: {line}");
                };
                let name = field.trim_end_matches('!');
                fields.insert(name.to_owned(), (kind.to_owned(), name != field));
            } else if let Some((name, kind)) = line.split_once(" = ") {
                types.insert(name.to_owned(), Type::Alias(kind.to_owned()));
            } else {
                last = line.to_owned();
                types.insert(last.clone(), Type::Fields(BTreeMap::new()));
            }
        }
        Self(types)
    }

    /// A value of a kind with every field that it may have.
    fn full(&self, kind: &str) -> Value {
        if let Some(inner) = inside(kind, '[', ']') {
            return json!([self.full(inner)]);
        }
        if let Some(inner) = inside(kind, '{', '}') {
            return json!({ "some/key": self.full(inner) });
        }
        match (kind, self.0.get(kind)) {
            (_, Some(Type::Alias(kind))) => self.full(kind),
            (_, Some(Type::Fields(fields))) => {
                let each = fields.iter();
                let each = each.map(|(name, (kind, _))| (name.clone(), self.full(kind)));
                Value::Object(each.collect())
            }
            ("string" | "any", _) => json!("x"),
            ("integer", _) => json!(7),
            ("number", _) => json!(0.5),
            ("boolean", _) => json!(true),
            _ => panic!("no kind is named {kind}"),
        }
    }

    /// The first place where a value is not of its kind.
    fn wrong(&self, kind: &str, value: &Value, place: &str) -> Option<String> {
        let bad = |what: &str| Some(format!("{place}: {what} instead of {kind}: {value}"));
        if let Some(inner) = inside(kind, '[', ']') {
            let Some(all) = value.as_array() else {
                return bad("no list");
            };
            return all.iter().find_map(|one| self.wrong(inner, one, place));
        }
        if let Some(inner) = inside(kind, '{', '}') {
            let Some(all) = value.as_object() else {
                return bad("no map");
            };
            return all.values().find_map(|one| self.wrong(inner, one, place));
        }
        match (kind, self.0.get(kind)) {
            (_, Some(Type::Alias(kind))) => self.wrong(kind, value, place),
            (_, Some(Type::Fields(fields))) => {
                let Some(object) = value.as_object() else {
                    return bad("no object");
                };
                let must = fields
                    .iter()
                    .find(|(name, (_, must))| *must && !object.contains_key(*name));
                if let Some((name, _)) = must {
                    return Some(format!("{place}: {name} is missing"));
                }
                object
                    .iter()
                    .find_map(|(name, value)| match fields.get(name) {
                        None => Some(format!("{place}: {kind} has no field {name}")),
                        // Absent in Go.
                        Some(_) if value.is_null() => None,
                        Some((kind, _)) => self.wrong(kind, value, &format!("{place}.{name}")),
                    })
            }
            ("string", _) if !value.is_string() => bad("no string"),
            ("integer", _) if !value.is_i64() => bad("no whole number"),
            ("number", _) if !value.is_number() => bad("no number"),
            ("boolean", _) if !value.is_boolean() => bad("no truth"),
            _ => None,
        }
    }
}

/// What a kind is a list or a map of.
fn inside(kind: &str, open: char, close: char) -> Option<&str> {
    kind.strip_prefix(open)?.strip_suffix(close)
}

/// What a scheduler sends, with every field that pods and nodes may have.
fn request(schema: &Schema) -> Value {
    let mut request = schema.full("ExtenderArgs");
    request["NodeNames"] = Value::Null;
    request["Pod"]["metadata"]["annotations"] = json!({
        "isolane.dev/type": "ls",
        "isolane.dev/slo": "160ns",
        "isolane.dev/priority": "2",
        "isolane.dev/memory": "10GB",
        "some/key": "x",
    });
    let mut nodes = Vec::new();
    for (name, used) in [("roomy", Some(5 * GB)), ("silent", None)] {
        let mut node = schema.full("Node");
        node["metadata"]["name"] = json!(name);
        if let Some(used) = used {
            let text = serde_json::to_string(&summary(used, 150.0)).unwrap();
            node["metadata"]["annotations"][NODE_ANNOTATION] = json!(text);
        }
        nodes.push(node);
    }
    request["Nodes"]["items"] = Value::Array(nodes);
    assert_eq!(schema.wrong("ExtenderArgs", &request, "request"), None);
    request
}

fn ask(path: &str, request: &Value) -> Value {
    let said = answer("POST", path, &serde_json::to_vec(request).unwrap(), 1_000);
    assert_eq!(said.status, 200, "{}", said.body);
    serde_json::from_str(&said.body).unwrap()
}

#[test]
fn nodes_with_every_field_come_back_as_they_were() {
    let schema = Schema::read();
    let request = request(&schema);
    let said = ask("/filter", &request);
    assert_eq!(schema.wrong("ExtenderFilterResult", &said, "answer"), None);
    assert_eq!(
        said["Nodes"]["items"],
        json!([request["Nodes"]["items"][0]])
    );
    assert_eq!(said["Nodes"]["metadata"], request["Nodes"]["metadata"]);
    let failed: Vec<&String> = said["FailedNodes"].as_object().unwrap().keys().collect();
    assert_eq!(failed, ["silent"]);
}

#[test]
fn scores_are_of_the_schedulers_kind() {
    let schema = Schema::read();
    let said = ask("/prioritize", &request(&schema));
    assert_eq!(schema.wrong("[HostPriority]", &said, "answer"), None);
    assert_eq!(said.as_array().unwrap().len(), 2);
}

#[test]
fn a_pod_with_every_field_is_read() {
    let schema = Schema::read();
    let mut pod = request(&schema)["Pod"].clone();
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!("redis-0");
    pod["metadata"]["uid"] = json!("a1b2c3d4");
    let (application, place) = pod::parse(&pod.to_string()).unwrap();
    assert_eq!(
        (application.name.as_str(), application.priority),
        ("redis-0", 2)
    );
    assert_eq!(place, pod::Place::Pod("a1b2c3d4".to_owned()));
}

/// The check finds what it is for: a missing field, an unknown one, a wrong kind.
#[test]
fn the_table_finds_what_is_wrong() {
    let schema = Schema::read();
    let wrong = |change: &dyn Fn(&mut Map<String, Value>)| {
        let mut list = schema.full("NodeList");
        change(list.as_object_mut().unwrap());
        schema.wrong("NodeList", &list, "list").unwrap_or_default()
    };
    assert_eq!(wrong(&|_| {}), "");
    assert_eq!(
        wrong(&|list| drop(list.remove("items"))),
        "list: items is missing"
    );
    let unknown = |list: &mut Map<String, Value>| drop(list.insert("Items".into(), json!([])));
    assert_eq!(wrong(&unknown), "list: NodeList has no field Items");
    let number = |list: &mut Map<String, Value>| list["items"][0]["metadata"]["name"] = json!(1);
    assert_eq!(
        wrong(&number),
        "list.items.metadata.name: no string instead of string: 1"
    );
}
