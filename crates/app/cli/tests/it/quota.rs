//! `isolane rpc quota` from the command line, and through a kill of the server.
#![allow(clippy::unwrap_used)]

use crate::support::text;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const SETTINGS: &str = include_str!("../data/quota.toml");

fn isolane(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_isolane"))
        .args(["rpc", "quota"])
        .args(arguments)
        .output();
    output.unwrap()
}

/// A server, killed at the end.
struct Server(Child);

impl Server {
    fn start(folder: &Path) -> Self {
        Self::start_with(folder, SETTINGS).0
    }

    /// With other settings; and where it listens.
    fn start_with(folder: &Path, settings: &str) -> (Self, String) {
        let file = folder.join("quota.toml");
        std::fs::write(&file, settings.replace("FOLDER", folder.to_str().unwrap())).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_isolane"))
            .args(["rpc", "quota", "serve", file.to_str().unwrap()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.find_map(|line| {
            let line = line.unwrap();
            line.strip_prefix("listening on ").map(str::to_owned)
        });
        (Self(child), ready.expect("it ended before it listened"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGKILL: nothing is put in order.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn show(server: &str) -> Value {
    let shown = isolane(&["show", "--server", server, "--json"]);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    serde_json::from_slice(&shown.stdout).unwrap()
}

#[test]
fn what_was_set_and_leased_survives_a_kill() {
    use isolane_rpc::quota::client::ask_once;
    use isolane_rpc::quota::protocol::{Answer, Request, Want};
    let folder = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/socket", folder.path().display());
    let renew = |client: &str, demand: u64| {
        let request = Request::Renew {
            tenant: "search".to_owned(),
            client: client.to_owned(),
            wants: vec![Want {
                group: "rack".to_owned(),
                class: "high".to_owned(),
                demand_bytes_per_s: demand,
                holds: None,
            }],
        };
        match ask_once(&address.parse().unwrap(), None, &request).unwrap() {
            Answer::Leases(leases) => leases[0].rate_bytes_per_s,
            other => panic!("{other:?}"),
        }
    };
    let server = Server::start(folder.path());
    let set = [
        "set", "--server", &address, "mail", "--group", "rack", "--class", "high",
    ];
    let done = isolane(&[&set[..], &["--guarantee", "15Gb/s", "--weight", "3"]].concat());
    assert_eq!(
        text(&done.stdout),
        "mail: rack/high weight 3, guarantee 15 Gb/s\n"
    );
    // What is not given stays.
    for weight in ["4", "3"] {
        let done = isolane(&[&set[..], &["--weight", weight]].concat());
        let expected = format!("mail: rack/high weight {weight}, guarantee 15 Gb/s\n");
        assert_eq!(text(&done.stdout), expected);
    }
    let refused = isolane(&[&set[..], &["--guarantee", "16Gb/s"]].concat());
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(
        text(&refused.stderr),
        "isolane rpc quota: guarantees of 36 Gb/s exceed what can be guaranteed, \
         100 Gb/s x 8/13 x 0.8/1.4 = 35.165 Gb/s: search 20 Gb/s + mail 16 Gb/s; lower one of them\n"
    );
    assert_eq!(renew("one", 4_000_000_000), 4_000_000_000);
    drop(server);

    let away = isolane(&["show", "--server", &address]);
    assert_eq!(away.status.code(), Some(3), "{}", text(&away.stderr));
    let _server = Server::start(folder.path());
    let pools = show(&address);
    assert_eq!(pools[0]["leased_bytes_per_s"], 4_000_000_000u64);
    let tenants = pools[0]["tenants"].as_array().unwrap();
    assert_eq!(tenants[0]["tenant"], "mail");
    assert_eq!(tenants[0]["weight"], 3);
    // Another client gets what the first may not be using: 4,395,604,395 less 4,000,000,000.
    assert_eq!(renew("two", 4_000_000_000), 395_604_395);
    let table = text(&isolane(&["show", "--server", &address]).stdout);
    assert!(
        table.contains("rack/high: leased 35.165 Gb/s of 100 Gb/s x 8/13"),
        "{table}"
    );
}

/// A key file of `length` characters.
fn key_file(folder: &Path, name: &str, length: usize) -> String {
    use std::os::unix::fs::PermissionsExt;
    let file = folder.join(name);
    std::fs::write(&file, format!("{}\n", name.repeat(length / name.len()))).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn an_address_that_others_reach_needs_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("quota.toml");
    let sound = SETTINGS.replace("FOLDER", folder.path().to_str().unwrap());
    let socket = format!("unix:{}/socket", folder.path().display());
    let key = key_file(folder.path(), "kkkk", 40);
    let short = key_file(folder.path(), "s", 20);
    let check = |listen: &str, key: Option<&str>| {
        let key = key.map_or(String::new(), |key| format!("key_file = \"{key}\"\n"));
        std::fs::write(&file, key + &sound.replace(&socket, listen)).unwrap();
        let output = isolane(&["serve", "--check", file.to_str().unwrap()]);
        (output.status.code(), text(&output.stderr))
    };
    for (listen, key) in [
        ("0.0.0.0:7480", Some(&*key)),
        ("127.0.0.1:7480", None),
        ("unix:/run/q", None),
    ] {
        assert_eq!(check(listen, key), (Some(0), String::new()), "{listen}");
    }
    for (listen, key, expected) in [
        (
            "0.0.0.0:7480",
            None,
            "quota.toml:1: listen = \"0.0.0.0:7480\": other machines reach it",
        ),
        ("[::]:7480", None, "add key_file = \"/path\""),
        ("0.0.0.0:7480", Some("key"), "must be an absolute path"),
        (
            "0.0.0.0:7480",
            Some("/nowhere"),
            "the key file /nowhere: No such file",
        ),
        (
            "127.0.0.1:7480",
            Some(&*short),
            "has 20 bytes, needs 32 or more",
        ),
    ] {
        let (code, stderr) = check(listen, key);
        assert_eq!(code, Some(2), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
}

#[test]
fn an_operator_without_the_key_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (key, other) = (
        key_file(folder.path(), "kkkk", 40),
        key_file(folder.path(), "oooo", 40),
    );
    let settings = SETTINGS
        .replace("unix:FOLDER/socket", "127.0.0.1:0")
        .replacen("listen", &format!("key_file = \"{key}\"\nlisten"), 1);
    let (_server, address) = Server::start_with(folder.path(), &settings);
    let show = |key: &[&str]| isolane(&[&["show", "--server", &address][..], key].concat());
    let answered = show(&["--key-file", &key]);
    assert!(answered.status.success(), "{}", text(&answered.stderr));
    assert!(text(&answered.stdout).starts_with("rack/high: leased 0 b/s of 100 Gb/s"));
    for (given, code, expected) in [
        (&[][..], 1, "this server needs a key"),
        (
            &["--key-file", &other],
            1,
            "the key is another one than this server's",
        ),
        (
            &["--key-file", "/nowhere"],
            2,
            "the key file /nowhere: No such file",
        ),
    ] {
        let refused = show(given);
        let stderr = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
        assert!(refused.stdout.is_empty());
    }
}

#[test]
fn mistakes_end_with_2_and_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("quota.toml");
    let sound = SETTINGS.replace("FOLDER", folder.path().to_str().unwrap());
    for (from, to, expected) in [
        (
            "load = 0.8",
            "load = 1.8",
            "the load (mu), 1.8 line rates, is not above 0",
        ),
        (
            "class = \"high\"",
            "class = \"low\"",
            "is the lowest class, which has no guarantees",
        ),
        (
            "group = \"rack\"",
            "group = \"rakc\"",
            "is not one of [[group]]",
        ),
        (
            "20Gb/s",
            "40Gb/s",
            "guarantees of 40 Gb/s exceed what can be guaranteed",
        ),
        (
            "store =",
            "stroe =",
            "unknown key stroe; did you mean store?",
        ),
        ("\"60s\"", "\"1ms\"", "term = \"1ms\": must be"),
    ] {
        std::fs::write(&file, sound.replacen(from, to, 1)).unwrap();
        let output = isolane(&["serve", "--check", file.to_str().unwrap()]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
    std::fs::write(&file, &sound).unwrap();
    let output = isolane(&["serve", "--check", file.to_str().unwrap()]);
    assert!(output.status.success());
    assert_eq!(
        text(&output.stdout),
        "rack/high: at most 100 Gb/s x 8/13 x 0.8/1.4 = 35.165 Gb/s\n\
         rack/middle: at most 100 Gb/s x 4/13 x 0.8/1.4 = 17.582 Gb/s\n"
    );
}
