//! Dashboards and alerts of `packaging/monitoring` use metrics that the daemon has, and Debian's Prometheus scrapes
//! them. The latter needs `prometheus` and `promtool` on PATH, and is skipped with a reason elsewhere.
#![allow(clippy::unwrap_used)]

use crate::support::wait_for;
use isolane_rdma_inventory::unheld::{Reason, Unheld};
use isolaned::settings::Listen;
use isolaned::show::openmetrics::render;
use isolaned::show::server::{Server, Shown, Source};
use isolaned::snapshot::{
    DaemonFigures, DeviceSnapshot, LimitSnapshot, MeterSnapshot, SessionSnapshot, Snapshot,
    TenantSnapshot,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/monitoring")
}

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap()
}

/// A busy daemon: every family has a sample.
fn snapshot(count: u64) -> Snapshot {
    let meter = |remote_read| MeterSnapshot {
        device: "r0".to_owned(),
        remote_read,
        active: true,
        lease_bytes_per_s: 1_000_000,
        limit_bytes_per_s: Some(2_000_000),
        passed_bytes: count * 1_000,
        ..MeterSnapshot::default()
    };
    Snapshot {
        daemon: DaemonFigures {
            sessions: 1,
            sessions_total: count,
            periods_total: count * 1_000,
            ..DaemonFigures::default()
        },
        devices: vec![DeviceSnapshot {
            name: "r0".to_owned(),
            policy: "justitia".to_owned(),
            rate_max_bps: 90,
            safe_util_bps: 50,
            minimum_rate_bps: 20,
            active_sending: 1,
            foreign_bytes_per_s: Some(count),
            figures: BTreeMap::from([
                ("reference_p99_us".to_owned(), 2.5),
                ("target_us".to_owned(), 3.0),
            ]),
            ..DeviceSnapshot::default()
        }],
        tenants: vec![TenantSnapshot {
            name: "backup".to_owned(),
            weight: 3,
            sessions: 1,
            passed_bytes: count * 1_000,
            ..TenantSnapshot::default()
        }],
        limits: vec![LimitSnapshot {
            number: 4,
            bytes_per_s: 2_000_000,
            ..LimitSnapshot::default()
        }],
        sessions: vec![SessionSnapshot {
            session: 1,
            tenant: "backup".to_owned(),
            meters: vec![meter(false), meter(true)],
            ..SessionSnapshot::default()
        }],
        unheld: vec![Unheld {
            pid: 7,
            program: "copy".to_owned(),
            devices: vec!["r0".to_owned()],
            queue_pairs: 1,
            reason: Reason::Static,
            evidence: String::new(),
        }],
        ..Snapshot::default()
    }
}

/// Names of all samples that the daemon exports.
fn exported() -> BTreeSet<String> {
    let text = render(&snapshot(1), "");
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let name = |line: &str| line.split(['{', ' ']).next().unwrap().to_owned();
    samples.map(name).collect()
}

/// The words of `text` that are names of metrics.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let names = words.filter(|word| word.starts_with("isolane_"));
    names.map(str::to_owned).collect()
}

/// All texts below keys called `key`.
fn texts(value: &Value, key: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                match value.as_str() {
                    Some(text) if name == key => found.push(text.to_owned()),
                    _ => texts(value, key, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| texts(value, key, found)),
        _ => {}
    }
}

/// The queries of the dashboard's panels.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("isolane-rdma.json")).unwrap();
    let mut found = Vec::new();
    texts(&dashboard, "expr", &mut found);
    found
}

#[test]
fn dashboards_and_alerts_name_only_metrics_that_the_daemon_has() {
    let exported = exported();
    let dashboard: Value = serde_json::from_str(&read("isolane-rdma.json")).unwrap();
    let mut variables = Vec::new();
    texts(&dashboard, "definition", &mut variables);
    assert_eq!(variables.len(), 2);
    assert!(queries().len() > 20);
    let alerts = read("alerts.yml");
    let asked = [queries(), variables, vec![alerts, read("alerts.test.yml")]].concat();
    for text in asked {
        let used = names(&text);
        assert!(!used.is_empty(), "{text}");
        let unknown: Vec<_> = used.difference(&exported).collect();
        assert!(unknown.is_empty(), "{unknown:?} in {text}");
    }
    // The check finds a metric that does not exist.
    assert!(!names("rate(isolane_tenant_bytes_total[1m])").is_subset(&exported));
}

#[test]
fn each_alert_has_a_part_of_the_guide_and_a_test() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/guides/monitoring.md");
    let guide = fs::read_to_string(guide).unwrap();
    let alerts = read("alerts.yml");
    let alerts: Vec<&str> = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert_eq!(alerts.len(), 10);
    let tests = read("alerts.test.yml");
    for alert in alerts {
        assert!(
            guide.contains(&format!("`{alert}`")),
            "{alert} is not in the guide"
        );
        assert!(
            tests.contains(&format!("\"{alert}\"")),
            "{alert} has no test"
        );
    }
}

#[test]
fn panels_do_not_overlap_and_have_their_own_number() {
    let dashboard: Value = serde_json::from_str(&read("isolane-rdma.json")).unwrap();
    let mut cells = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(numbers.insert(panel["id"].as_u64().unwrap()));
        let place = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        for x in place("x")..place("x") + place("w") {
            assert!(x < 24, "{}", panel["title"]);
            for y in place("y")..place("y") + place("h") {
                assert!(
                    cells.insert((x, y)),
                    "{} overlaps at {x},{y}",
                    panel["title"]
                );
            }
        }
    }
}

/// Whether the tools are there. CI installs them.
fn has_prometheus() -> bool {
    let starts = |program: &str| {
        let mut command = Command::new(program);
        command
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let there = starts("prometheus") && starts("promtool");
    assert!(
        there || std::env::var_os("ISOLANE_REQUIRE_PROMETHEUS").is_none(),
        "prometheus and promtool are required here"
    );
    if !there {
        eprintln!("skipped: no prometheus and promtool on PATH (Debian's package prometheus)");
    }
    there
}

#[test]
fn promtool_accepts_the_alerts_and_each_rises_when_it_should() {
    if !has_prometheus() {
        return;
    }
    for arguments in [
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts.test.yml"],
        ["check", "config", "prometheus.yml"],
    ] {
        let output = Command::new("promtool")
            .args(arguments)
            .current_dir(folder())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{arguments:?}: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// Counts its snapshots.
struct Busy(u64);

impl Source for Busy {
    fn snapshot(&mut self) -> Option<Snapshot> {
        self.0 += 1;
        Some(snapshot(self.0))
    }
}

/// Prometheus with its data in a directory of the test.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    /// Scrapes `target` twice a second, with the alerts.
    fn start(target: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("alerts.yml"), read("alerts.yml")).unwrap();
        let configuration = read("prometheus.yml")
            .replace("127.0.0.1:9471", &target.to_string())
            .replace("scrape_interval: 10s", "scrape_interval: 500ms");
        assert!(
            configuration.contains(&target.to_string()),
            "{configuration}"
        );
        fs::write(folder.path().join("prometheus.yml"), configuration).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let option = |name: &str, value: &str| format!("--{name}={value}");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let child = Command::new("prometheus")
            .arg(option("config.file", &path("prometheus.yml")))
            .arg(option("storage.tsdb.path", &path("data")))
            .arg(option("web.listen-address", &address.to_string()))
            .arg(option("log.level", "warn"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            child,
            address,
            _folder: folder,
        }
    }

    /// The answer to a request of its interface; `None` while it does not answer.
    fn ask(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: test\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        serde_json::from_str(body).ok()
    }

    /// The values of a query, an error of the query as a panic.
    fn query(&self, query: &str) -> Vec<Value> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let Some(answer) = self.ask(&format!("/api/v1/query?query={encoded}")) else {
            return Vec::new();
        };
        assert_ne!(answer["status"], "error", "{query}: {answer}");
        answer["data"]["result"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn prometheus_scrapes_the_daemon_and_every_panel_has_data() {
    if !has_prometheus() {
        return;
    }
    let (stop, stopper) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut server = Server::new(Busy(0), stop.into());
    server
        .listen(&Listen::Tcp("127.0.0.1:0".parse().unwrap()), Shown::Metrics)
        .unwrap();
    let target = server.address().unwrap();
    let thread = std::thread::spawn(move || server.run());
    let prometheus = Prometheus::start(target);
    wait_for("a scrape", || {
        let up = prometheus.query("up{job=\"isolaned\"} == 1");
        !up.is_empty()
    });
    for query in queries() {
        let query = query
            .replace("$instance", ".*")
            .replace("$device", ".*")
            .replace("$__rate_interval", "1m");
        assert!(!query.contains('$'), "{query}");
        wait_for(&query, || !prometheus.query(&query).is_empty());
    }
    let rules = prometheus.ask("/api/v1/rules").unwrap();
    let rules = rules["data"]["groups"][0]["rules"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(rules.len(), 10);
    drop(prometheus);
    drop(stopper);
    thread.join().unwrap();
}
