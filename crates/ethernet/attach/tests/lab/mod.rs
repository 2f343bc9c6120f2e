//! Two network namespaces with a veth pair of several queues between them, and real traffic.
//!
//! Needs root, `ip`, `tc`, `iperf3` and BPF. [`Lab::new`] prints what is missing, and the test is skipped, unless
//! `ISOLANE_REQUIRE_LAB` is set. Everything is removed on drop. Names contain the process id and a count, so tests may
//! run concurrently.

use isolane_ethernet_attach::System;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

static COUNT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Lab {
    pub(crate) sender: String,
    receiver: String,
    directory: TempDir,
    server: Option<Child>,
}

impl Lab {
    /// A lab whose sender has `queues` queues; `None`, with the reason printed, where it cannot be made.
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

    /// Moves this thread into the sender's namespace; journals are in the lab's directory.
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

    /// Bytes and packets that the sender's device has sent. One line of the kernel contains both; two reads would be of
    /// different times on a busy machine.
    pub(crate) fn sent(&self) -> (u64, u64) {
        const TX_BYTES: usize = 8;
        const TX_PACKETS: usize = 9;
        let text = self.in_sender(&["cat", "/proc/net/dev"]);
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.trim().strip_prefix("v0:"));
        let words = line.expect("the device is there").split_whitespace();
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        (numbers[TX_BYTES], numbers[TX_PACKETS])
    }

    /// Waits until the flows have moved a few megabytes, however long that takes.
    pub(crate) fn flows_move_on(&self) {
        const MUCH: u64 = 4 << 20;
        let before = self.sent().0;
        wait_for("flows that move on", || self.sent().0 > before + MUCH);
    }

    /// Ends `client`, whose flows moved in each of its intervals; their number.
    pub(crate) fn flows_kept_moving(&self, client: Child) -> usize {
        self.flows_move_on();
        let bytes = intervals(client);
        assert!(bytes.iter().all(|bytes| *bytes > 0), "{bytes:?}");
        bytes.len()
    }

    /// Starts a server and a client that sends in `flows` flows until [`intervals`] ends it, with a report each half
    /// second. Returns when bytes flow.
    pub(crate) fn iperf(&mut self, flows: u32, more: &[&str]) -> Child {
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
        // The server reports that it listens.
        let mut said = [0; 64];
        let out = server.stdout.as_mut().expect("piped");
        assert!(out.read(&mut said).expect("a pipe") > 0, "the server ended");
        self.server = Some(server);
        let flows = flows.to_string();
        let mut client = Command::new("ip");
        client.args([
            "netns",
            "exec",
            &self.sender,
            "iperf3",
            "-t",
            "600",
            "-P",
            &flows,
        ]);
        client.args(["-i", "0.5", "-J"]).args(more);
        if !more.contains(&"-c") {
            client.args(["-c", "10.98.0.2"]);
        }
        let client = client
            .stdout(Stdio::piped())
            .spawn()
            .expect("iperf3 is installed");
        self.flows_move_on();
        client
    }
}

/// Opens a TUN device with several queues, reports it, and reads what is sent through it until its standard input ends.
const TUN: &str = r#"
import fcntl, os, select, struct, sys
name, count = sys.argv[1].encode(), int(sys.argv[2])
queues = []
for _ in range(count):
    queues.append(os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK))
    # TUNSETIFF with IFF_TUN, IFF_NO_PI, IFF_MULTI_QUEUE
    fcntl.ioctl(queues[-1], 0x400454CA, struct.pack("16sH22x", name, 0x0001 | 0x1000 | 0x0100))
print("open", flush=True)
while True:
    for ready in select.select(queues + [sys.stdin], [], [])[0]:
        if ready is sys.stdin:
            sys.exit()
        os.read(ready, 65536)
"#;

/// A TUN device that a child process reads.
pub(crate) struct Tun(Child);

impl Drop for Tun {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Lab {
    /// A TUN device in the sender's namespace with `queues` queues and no steering program. It is removed when the
    /// value is dropped.
    pub(crate) fn tun(&self, name: &str, queues: u16) -> Tun {
        let count = queues.to_string();
        let mut child = Command::new("ip")
            .args([
                "netns",
                "exec",
                &self.sender,
                "python3",
                "-c",
                TUN,
                name,
                &count,
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let mut said = [0; 16];
        let out = child.stdout.as_mut().expect("piped");
        assert!(out.read(&mut said).expect("a pipe") > 0, "no TUN device");
        Tun(child)
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

/// Ends the client after four more seconds and returns the bytes of each whole interval, summed over flows.
pub(crate) fn intervals(client: Child) -> Vec<u64> {
    /// Intervals shorter than half of one were cut off by the end.
    const WHOLE_S: f64 = 0.25;
    std::thread::sleep(Duration::from_secs(4));
    // `ip netns exec` has become iperf3, which reports its results when it is interrupted.
    let id = rustix::process::Pid::from_child(&client);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it still runs");
    let output: Output = client.wait_with_output().expect("iperf3 ends");
    let text = String::from_utf8_lossy(&output.stdout);
    let report: serde_json::Value = serde_json::from_str(&text).expect("iperf3 reports JSON");
    let ended = report["error"].as_str().expect("it did not end by itself");
    assert!(ended.contains("terminated"), "{text}");
    let sums = report["intervals"].as_array().expect("a list").iter();
    let whole = sums
        .map(|interval| &interval["sum"])
        .filter(|sum| sum["seconds"].as_f64() > Some(WHOLE_S));
    let bytes: Vec<u64> = whole
        .map(|sum| sum["bytes"].as_u64().expect("bytes"))
        .collect();
    assert!(!bytes.is_empty(), "{text}");
    bytes
}

/// Waits for an event of another process. The limit only ends a test that would wait forever.
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < until, "no {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Standard output of a command, or its error output.
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
