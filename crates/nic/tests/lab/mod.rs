//! Two network namespaces with a veth pair of several queues between them, and real traffic.
//!
//! Needs root, `ip`, `tc`, `iperf3` and BPF; [`Lab::new`] says what is missing, and the test that asks is skipped then,
//! unless `ISOLANE_REQUIRE_LAB` is set, as where everything is installed. Everything is removed on drop.
//! Names carry the process number and a count, so that tests may run side by side.

use isolane_nic::System;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

static COUNT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Lab {
    pub(crate) sender: String,
    receiver: String,
    directory: TempDir,
    server: Option<Child>,
}

impl Lab {
    /// A lab whose sender has so many queues; none, with the reason printed, where it cannot be.
    pub(crate) fn new(queues: u16) -> Option<Self> {
        match Self::try_new(queues) {
            Ok(lab) => Some(lab),
            Err(reason) if std::env::var_os("ISOLANE_REQUIRE_LAB").is_some() => panic!("{reason}"),
            Err(reason) => {
                eprintln!("skipped: {reason}");
                None
            }
        }
    }

    fn try_new(queues: u16) -> Result<Self, String> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("nic{end}{}-{number}", std::process::id());
        let lab = Self {
            sender: name("s"),
            receiver: name("r"),
            directory: tempfile::tempdir().map_err(|error| error.to_string())?,
            server: None,
        };
        let (sender, receiver) = (lab.sender.as_str(), lab.receiver.as_str());
        let queues = queues.to_string();
        run(&["ip", "netns", "add", sender])?;
        run(&["ip", "netns", "add", receiver])?;
        run(&[
            "ip",
            "link",
            "add",
            "v0",
            "numtxqueues",
            &queues,
            "numrxqueues",
            &queues,
            "netns",
            sender,
            "type",
            "veth",
            "peer",
            "name",
            "v1",
            "numtxqueues",
            &queues,
            "numrxqueues",
            &queues,
            "netns",
            receiver,
        ])?;
        for (namespace, device, host) in [(sender, "v0", 1), (receiver, "v1", 2)] {
            let addresses = [format!("10.98.0.{host}/24"), format!("fd98::{host}/64")];
            for address in &addresses {
                run(&[
                    "ip", "-n", namespace, "addr", "add", address, "dev", device, "nodad",
                ])
                .or_else(|_| {
                    run(&["ip", "-n", namespace, "addr", "add", address, "dev", device])
                })?;
            }
            run(&["ip", "-n", namespace, "link", "set", device, "up"])?;
            run(&["ip", "-n", namespace, "link", "set", "lo", "up"])?;
        }
        if queues != "1" {
            run(&[
                "tc", "-n", sender, "qdisc", "replace", "dev", "v0", "root", "handle", "1:", "mq",
            ])?;
        }
        Ok(lab)
    }

    /// Moves this thread into the sender's namespace; journals lie in the lab's directory.
    pub(crate) fn enter(&self) -> System {
        let system = System::enter(&self.sender).expect("the namespace was just made");
        system.with_run(self.directory())
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn in_sender(&self, arguments: &[&str]) -> String {
        let all = [&["ip", "netns", "exec", self.sender.as_str()], arguments].concat();
        run(&all).expect("a command in the sender's namespace")
    }

    /// Starts a server, then a client that sends for `seconds` in `flows` flows, and reports each half second.
    pub(crate) fn iperf(&mut self, seconds: u32, flows: u32, more: &[&str]) -> Child {
        let mut command = Command::new("ip");
        command.args([
            "netns",
            "exec",
            &self.receiver,
            "iperf3",
            "-s",
            "-1",
            "--forceflush",
        ]);
        let mut server = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("iperf3 is installed");
        // The server says that it listens.
        let mut said = [0; 64];
        let out = server.stdout.as_mut().expect("piped");
        assert!(out.read(&mut said).expect("a pipe") > 0, "the server ended");
        self.server = Some(server);
        let (seconds, flows) = (seconds.to_string(), flows.to_string());
        let mut client = Command::new("ip");
        client.args([
            "netns",
            "exec",
            &self.sender,
            "iperf3",
            "-t",
            &seconds,
            "-P",
            &flows,
        ]);
        client.args(["-i", "0.5", "-J"]).args(more);
        if !more.contains(&"-c") {
            client.args(["-c", "10.98.0.2"]);
        }
        client
            .stdout(Stdio::piped())
            .spawn()
            .expect("iperf3 is installed")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
        for namespace in [&self.sender, &self.receiver] {
            let _ = run(&["ip", "netns", "del", namespace]);
        }
    }
}

/// Bytes of each interval, summed over flows, and the retransmissions of all.
pub(crate) fn intervals(client: Child) -> (Vec<u64>, u64) {
    let output: Output = client.wait_with_output().expect("iperf3 ends");
    let text = String::from_utf8_lossy(&output.stdout);
    let report: serde_json::Value = serde_json::from_str(&text).expect("iperf3 reports JSON");
    assert!(report.get("error").is_none(), "{text}");
    let intervals = report["intervals"]
        .as_array()
        .expect("a report has intervals");
    let bytes = intervals
        .iter()
        .map(|interval| interval["sum"]["bytes"].as_u64().expect("bytes"));
    let retransmits = report["end"]["sum_sent"]["retransmits"]
        .as_u64()
        .unwrap_or(0);
    (bytes.collect(), retransmits)
}

/// Standard output of a command, or what it said instead.
pub(crate) fn run(arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(arguments[0]);
    let output = command.args(&arguments[1..]).output();
    let output = output.map_err(|error| format!("{}: {error}", arguments[0]))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{}: {}", arguments.join(" "), said.trim()))
        }
    }
}
