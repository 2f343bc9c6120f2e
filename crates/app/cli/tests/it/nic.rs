//! `isolane nic` from the command line: what a hurried newcomer gets wrong, and attach, status and detach on a real device
//! under traffic.
//!
//! The second half needs root, BPF and iperf3, and is skipped with the reason without them.
#![allow(clippy::unwrap_used)]

use crate::support;
use isolane_common_linux::skip::skip;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The exit code, and both outputs.
fn check(arguments: &[&str], code: i32) -> (String, String) {
    support::check(&[&["nic"], arguments].concat(), code)
}

fn refuses(arguments: &[&str], code: i32, parts: &[&str]) {
    let (stdout, stderr) = check(arguments, code);
    assert_eq!(stdout, "", "{arguments:?}");
    support::has_all(&stderr, parts);
}

#[test]
fn mistakes_name_the_object_the_value_and_the_remedy() {
    refuses(&["attach", "lo0"], 2, &["`lo0`", "did you mean lo?"]);
    for command in ["attach", "advise"] {
        let parts = ["lo is a software device", "no hardware queues"];
        refuses(&[command, "lo"], 3, &parts);
    }
    refuses(
        &["attach", "lo", "--dsos", "100K"],
        2,
        &["`100K`", "4K to 64K"],
    );
    let container = ["attach", "lo", "--container", "/web=2"];
    refuses(&container, 2, &["--weights cgroup"]);
    let nowhere = ["status", "lo", "--netns", "no-such-space"];
    refuses(&nowhere, 2, &["`no-such-space`", "ip netns list"]);
    refuses(
        &["top", "lo"],
        2,
        &["lo is not attached", "isolane nic attach lo"],
    );
    refuses(&["study", "--configs", "C10"], 2, &["\"C10\"", "isolane"]);
    refuses(&["study", "--hosts", "6"], 2, &["--sim"]);
    let short = ["--duration 999us", "at least 1ms"];
    refuses(&["study", "--sim", "--duration", "999us"], 2, &short);
    refuses(&["study", "--flows", "3,3"], 2, &["3 is named twice"]);
    refuses(&["study", "--paired", "0"], 2, &["--paired"]);
    refuses(&["study", "--sim", "--paired", "3"], 2, &["--paired"]);
    refuses(&["soft", "--weights", "1,2"], 2, &["2 values for 8 queues"]);
}

#[test]
fn the_help_of_top_says_over_which_time_fairness_is_measured() {
    let (help, _) = check(&["top", "--help"], 0);
    support::has_all(&help, &["fairness among flows, measured over the interval"]);
}

#[test]
fn disciplines_that_cannot_act_over_the_soft_card_are_left_out_with_the_reason() {
    let parts = ["left out fq_codel", "TUN takes frames at once", "--sim"];
    refuses(&["study", "--configs", "fq_codel"], 2, &parts);
    let modelled = [
        "study",
        "--sim",
        "--configs",
        "fq_codel",
        "--flows",
        "3",
        "--seeds",
        "1",
    ];
    let (table, _) = check(&[&modelled[..], &["--duration", "20ms"]].concat(), 0);
    assert!(table.contains("fq_codel"), "{table}");
}

/// A veth pair of four queues between two namespaces; gone when dropped.
struct Pair {
    sender: String,
    receiver: String,
}

impl Pair {
    fn new() -> Result<Self, String> {
        // Tests of one process run side by side.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let name = |end| format!("isolane-nic-{end}-{process}-{number}");
        let pair = Self {
            sender: name("s"),
            receiver: name("r"),
        };
        let (sender, receiver) = (&pair.sender, &pair.receiver);
        for line in [
            format!("ip netns add {sender}"),
            format!("ip netns add {receiver}"),
            format!(
                "ip link add v0 numtxqueues 4 netns {sender} type veth peer name v1 numrxqueues 4 netns {receiver}"
            ),
            format!("ip -n {sender} addr add 10.97.0.1/24 dev v0"),
            format!("ip -n {receiver} addr add 10.97.0.2/24 dev v1"),
            format!("ip -n {sender} link set v0 up"),
            format!("ip -n {receiver} link set v1 up"),
            format!("tc -n {sender} qdisc replace dev v0 root handle 1: mq"),
            "iperf3 --version".to_owned(),
        ] {
            let mut words = line.split(' ');
            let program = words.next().unwrap();
            let done = Command::new(program).args(words).output();
            let done = done.map_err(|error| format!("{program}: {error}"))?;
            if !done.status.success() {
                let said = String::from_utf8_lossy(&done.stderr).into_owned();
                return Err(format!("{line}: {}", said.trim()));
            }
        }
        Ok(pair)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for space in [&self.sender, &self.receiver] {
            let _ = Command::new("ip").args(["netns", "del", space]).output();
        }
    }
}

/// Goal: the commands of the guide as they are typed, while iperf3 runs: attach, attach again, status, kill -9 of the
/// controller, detach. No half second of the flows is without bytes, and the device has none of our programs afterwards.
#[test]
fn attach_status_and_detach_on_a_veth_pair_under_traffic() {
    let pair = match Pair::new() {
        Ok(pair) => pair,
        Err(reason) => {
            skip(reason);
            return;
        }
    };
    let inside = |space: &str, words: &[&str]| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", space]).args(words);
        command.stdout(Stdio::piped());
        command
    };
    let server = ["iperf3", "-s", "-1"];
    let mut server = inside(&pair.receiver, &server).spawn().unwrap();
    let listens = || {
        let sockets = inside(&pair.receiver, &["ss", "-ltn"]).output().unwrap();
        String::from_utf8_lossy(&sockets.stdout).contains(":5201")
    };
    while !listens() {
        assert!(server.try_wait().unwrap().is_none(), "the server ended");
    }
    let client = [
        "iperf3",
        "-c",
        "10.97.0.2",
        "-P",
        "8",
        "-t",
        "600",
        "-i",
        "0.5",
        "-J",
    ];
    let client = inside(&pair.sender, &client).spawn().unwrap();
    let sent = || {
        let file = "/sys/class/net/v0/statistics/tx_bytes";
        let output = inside(&pair.sender, &["cat", file]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.trim().parse::<u64>().unwrap()
    };
    // With enough time for a busy machine.
    let flows_move_on = || {
        let (before, until) = (sent(), Instant::now() + Duration::from_secs(120));
        while sent() < before + (4 << 20) {
            assert!(Instant::now() < until, "the flows make no progress");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    flows_move_on();
    let place = ["v0", "--netns", &pair.sender];
    let of = |question, more: &[&str]| [&[question][..], &place, more].concat().join(" ");
    let typed = |line: String, code| check(&line.split(' ').collect::<Vec<_>>(), code);
    typed(of("status", &[]), 1);
    let (said, _) = typed(of("attach", &["--latency"]), 0);
    assert!(
        said.contains("v0: 4 queues; each new flow gets the queue with the least weight"),
        "{said}"
    );
    flows_move_on();
    let (_, again) = typed(of("attach", &[]), 2);
    assert!(again.contains("is attached already, by process"), "{again}");
    let (status, _) = typed(of("status", &["--json"]), 0);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["queues"].as_array().map(Vec::len), Some(4));
    assert!(status["events"]["assigned"].as_u64() > Some(0), "{status}");
    let controller = status["controller"].as_u64().unwrap().to_string();
    let killed = Command::new("kill").args(["-9", &controller]).status();
    assert!(killed.unwrap().success());
    typed(of("status", &[]), 0);
    typed(of("detach", &[]), 0);
    let (nothing, _) = typed(of("detach", &[]), 0);
    assert!(nothing.contains("was not attached"), "{nothing}");
    flows_move_on();
    std::thread::sleep(Duration::from_secs(1));
    // `ip netns exec` has become iperf3, which reports what it has when it is interrupted.
    // Ten intervals at least, those before included.
    std::thread::sleep(Duration::from_secs(5));
    let id = client.id().to_string();
    let ended = Command::new("kill").args(["-INT", &id]).status();
    assert!(ended.unwrap().success());
    let report = client.wait_with_output().unwrap().stdout;
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    // The last one was cut short.
    let bytes: Vec<u64> = report["intervals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|interval| &interval["sum"])
        .filter(|sum| sum["seconds"].as_f64() > Some(0.25))
        .map(|sum| sum["bytes"].as_u64().unwrap())
        .collect();
    assert!(bytes.len() >= 10 && !bytes.contains(&0), "{bytes:?}");
    let show = ["tc", "filter", "show", "dev", "v0", "egress"];
    let filters = inside(&pair.sender, &show).output().unwrap().stdout;
    assert_eq!(String::from_utf8_lossy(&filters), "");
    server.wait().unwrap();
}

/// Goal: Ctrl-C keeps the rounds of a study that have ended. Method: the signal comes after the line about the first of four
/// rounds, which a pipe gets in place of a bar.
#[test]
fn an_interrupted_study_prints_its_ended_rounds() {
    if let Err(reason) = Pair::new() {
        skip(reason);
        return;
    }
    let words = "nic study --paired 4 --configs C6 --flows 3 --duration 500ms";
    let mut study = Command::new(env!("CARGO_BIN_EXE_isolane"))
        .args(words.split(' '))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(study.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(
        first.starts_with("isolane: 2 of 8 runs done, about "),
        "{first}"
    );
    let id = study.id().to_string();
    let ended = Command::new("kill").args(["-INT", &id]).status();
    assert!(ended.unwrap().success());
    let said: Vec<String> = lines.map(Result::unwrap).collect();
    let output = study.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{said:?}");
    assert!(
        said.last()
            .unwrap()
            .ends_with(" of 4 rounds did not end; the results are of 1 round"),
        "{said:?}"
    );
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(
        table.starts_with("3 flows: medians of 1 of 4 rounds, "),
        "{table}"
    );
}
