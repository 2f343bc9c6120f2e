//! The operator's file of the memory service: `isolaned --mem --mem-config FILE`.
//!
//! Every key is optional. Units: in the values (`"80GB/s"`, `"120ns"`).

use crate::application::amounts;
use crate::backend::BackendKind;
use crate::journal;
use crate::protocol::SOCKET_PATH;
use isolane_common_toml_input::error::InputError;
use isolane_common_toml_input::keys::{Key, Kind, key};
use isolane_common_toml_input::table::{Source, Table};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What an operator sets.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where the service listens.
    pub socket: PathBuf,
    /// Who may connect.
    pub socket_mode: u32,
    /// Directory of its journal.
    pub run_dir: PathBuf,
    /// Directory of profiling results.
    pub profile_dir: PathBuf,
    /// The policy's name.
    pub policy: String,
    /// The backend; none: the best that works here.
    pub backend: Option<BackendKind>,
    /// A made-up machine below this directory instead of this one.
    pub fake: Option<PathBuf>,
    /// Thresholds set by hand: healthy bandwidth of the near tier, bytes per second.
    pub local_bandwidth: Option<u64>,
    /// And the healthy rate of hint faults, per second.
    pub hint_faults_per_s: Option<f64>,
    /// Whether tiers are probed by a pointer chase where the processor counts no latency.
    pub probe: bool,
    /// Where OpenMetrics are served; none: only with the daemon's own.
    pub metrics: Option<MetricsPlace>,
}

/// Where OpenMetrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsPlace {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP address of this machine's loopback: metrics name tenants, and there is no TLS.
    Loopback(SocketAddr),
}

/// Policies of the service.
pub const POLICIES: &[&str] = &["mercury", "weighted", "static", "fcfs"];
/// When tiers are probed.
const PROBES: &[&str] = &["auto", "off"];
/// Directory of profiling results.
pub const PROFILES: &str = "/var/lib/isolane/mem";
/// The service's user and group may ask.
const SOCKET_MODE: u32 = 0o660;

impl Default for Settings {
    fn default() -> Self {
        Self {
            socket: SOCKET_PATH.into(),
            socket_mode: SOCKET_MODE,
            run_dir: journal::DIRECTORY.into(),
            profile_dir: PROFILES.into(),
            policy: "mercury".to_owned(),
            backend: None,
            fake: None,
            local_bandwidth: None,
            hint_faults_per_s: None,
            probe: true,
            metrics: None,
        }
    }
}

impl Settings {
    /// Those of a made-up machine below `directory`, with everything else there too.
    pub fn fake(directory: &Path) -> Self {
        Self {
            socket: directory.join("mem.sock"),
            run_dir: directory.join("run"),
            profile_dir: directory.join("profiles"),
            fake: Some(directory.to_owned()),
            ..Self::default()
        }
    }
}

#[rustfmt::skip]
const KEYS: &[Key] = &[
    key("socket", Kind::Text, "where the service listens"),
    key("socket_mode", Kind::Text, "who may connect, like \"0660\""),
    key("run_dir", Kind::Text, "directory of its journal"),
    key("profile_dir", Kind::Text, "directory of profiling results"),
    key("policy", Kind::Choice(POLICIES), "what decides (mercury)"),
    key("backend", Kind::Text, "what enforces tier limits (the best that works here)"),
    key("fake", Kind::Text, "a directory for a made-up machine, to try everything without tiers"),
    key("local_bandwidth", Kind::Text, "healthy bandwidth of the near tier; measured by isolane mem measure-machine"),
    key("hint_faults_per_s", Kind::number(0.0, 1e12), "healthy rate of hint faults; measured likewise"),
    key("probe", Kind::Choice(PROBES), "a pointer chase where the processor counts no latency (auto)"),
    key("metrics", Kind::Text, "where scrapers connect, where no RDMA device is served: an address of loopback or the path of a Unix socket"),
];

/// The file written in `text`; `file` names it in messages. The error is the first mistake, with file, line, key, value
/// and remedy.
pub fn parse(text: &str, file: &str) -> Result<Settings, InputError> {
    let source = Source { file, text };
    let tree = source.tree()?;
    let table = Table::open(source, tree.get_ref(), 0, KEYS, None)?;
    let path = |key: &str| -> Result<Option<PathBuf>, InputError> {
        match table.text(key)? {
            Some("") => Err(table.wrong(key, "must be a path")),
            text => Ok(text.map(PathBuf::from)),
        }
    };
    let mut settings = match path("fake")? {
        Some(directory) => Settings::fake(&directory),
        None => Settings::default(),
    };
    if let Some(socket) = path("socket")? {
        settings.socket = socket;
    }
    if let Some(directory) = path("run_dir")? {
        settings.run_dir = directory;
    }
    if let Some(directory) = path("profile_dir")? {
        settings.profile_dir = directory;
    }
    settings.metrics = metrics(&table)?;
    if let Some(mode) = table.text("socket_mode")? {
        let mode = u32::from_str_radix(mode, 8)
            .ok()
            .filter(|mode| *mode <= 0o777);
        settings.socket_mode =
            mode.ok_or_else(|| table.wrong("socket_mode", "must be octal, \"0\" to \"0777\""))?;
    }
    if let Some(policy) = table.text("policy")? {
        // Reports what is not in the list, with the nearest that is.
        let _: Option<String> = table.choice("policy")?;
        settings.policy = policy.to_owned();
    }
    if let Some(backend) = table.text("backend")?.filter(|name| *name != "auto") {
        settings.backend = Some(
            backend
                .parse()
                .map_err(|reason: String| table.wrong("backend", reason))?,
        );
    }
    if let Some(rate) = table.text("local_bandwidth")? {
        settings.local_bandwidth = Some(
            amounts::bandwidth(rate).map_err(|reason| table.wrong("local_bandwidth", reason))?,
        );
    }
    if let Some(probe) = table.text("probe")? {
        let _: Option<String> = table.choice("probe")?;
        settings.probe = probe != "off";
    }
    settings.hint_faults_per_s = table.number("hint_faults_per_s")?;
    Ok(settings)
}

fn metrics(table: &Table<'_>) -> Result<Option<MetricsPlace>, InputError> {
    let Some(text) = table.text("metrics")? else {
        return Ok(None);
    };
    let path = text.strip_prefix("unix:").unwrap_or(text);
    if path.starts_with('/') {
        return Ok(Some(MetricsPlace::Unix(path.into())));
    }
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(Some(MetricsPlace::Loopback(address))),
        Ok(_) => Err(table.wrong(
            "metrics",
            "can be reached by other machines, and metrics name applications; use an address of loopback, like \"127.0.0.1:9472\"",
        )),
        Err(_) => Err(table.wrong(
            "metrics",
            "must be an address and a port of loopback, like \"127.0.0.1:9472\", or an absolute path of a Unix socket",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn an_empty_file_is_the_defaults() {
        assert_eq!(parse("", "x").unwrap(), Settings::default());
    }

    #[test]
    fn a_made_up_machine_keeps_everything_in_its_directory() {
        let settings = parse(
            "fake = \"/tmp/f\"\nsocket_mode = \"0666\"\nbackend = \"auto\"",
            "x",
        )
        .unwrap();
        let expected = Settings {
            socket_mode: 0o666,
            ..Settings::fake(Path::new("/tmp/f"))
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn the_probe_can_be_switched_off() {
        assert!(parse("probe = \"auto\"", "x").unwrap().probe);
        assert!(!parse("probe = \"off\"", "x").unwrap().probe);
    }

    #[test]
    fn metrics_are_served_on_loopback_or_a_unix_socket_and_nowhere_else() {
        let place = |text: &str| {
            parse(&format!("metrics = {text:?}"), "mem.toml").map(|found| found.metrics)
        };
        let socket = Some(MetricsPlace::Unix("/run/m.sock".into()));
        assert_eq!(place("/run/m.sock").unwrap(), socket);
        assert_eq!(place("unix:/run/m.sock").unwrap(), socket);
        for address in ["127.0.0.1:9472", "[::1]:9472"] {
            let expected = Some(MetricsPlace::Loopback(address.parse().unwrap()));
            assert_eq!(place(address).unwrap(), expected);
        }
        expect![[r#"mem.toml:1: metrics = "0.0.0.0:9472": can be reached by other machines, and metrics name applications; use an address of loopback, like "127.0.0.1:9472""#]]
            .assert_eq(&place("0.0.0.0:9472").unwrap_err().to_string());
        expect![[r#"mem.toml:1: metrics = "m.sock": must be an address and a port of loopback, like "127.0.0.1:9472", or an absolute path of a Unix socket"#]]
            .assert_eq(&place("m.sock").unwrap_err().to_string());
    }

    #[test]
    fn mistakes_name_line_key_value_and_remedy() {
        let said = |text: &str| parse(text, "mem.toml").unwrap_err().to_string();
        expect![[r#"mem.toml:1: policy = "mercurry": unknown; did you mean mercury?"#]]
            .assert_eq(&said("policy = \"mercurry\""));
        expect![[r#"mem.toml:2: local_bandwidth = "80Gb/s": is in bits; bandwidth of memory is in bytes: must be a number and a unit of B/s, KB/s, MB/s or GB/s, like "40GB/s""#]]
            .assert_eq(&said("\nlocal_bandwidth = \"80Gb/s\""));
        expect![[r#"mem.toml:1: socket_mode = "999": must be octal, "0" to "0777""#]]
            .assert_eq(&said("socket_mode = \"999\""));
        assert!(said("backend = \"damos\"").contains("damos_goal"));
    }
}
