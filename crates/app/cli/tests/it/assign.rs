//! `isolane rdma assign`, `pods` and `cdi` as a scheduler uses them. The API server of Kubernetes is one of the test's own
//! over TLS.
#![allow(clippy::unwrap_used)]

use crate::support::{check, has_all, refuses};
use isolaned::assignments;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A directory that the daemon's would be.
fn folder() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("assignments").display().to_string();
    (directory, folder)
}

fn names(folder: &str) -> Vec<String> {
    assignments::names(Path::new(folder))
}

#[test]
fn a_job_is_assigned_listed_and_ended() {
    let (_directory, folder) = folder();
    let words = ["rdma", "assign", "slurm-42", "--folder", &folder];
    let job = [
        "--cgroup",
        "/slurm/job_42/**",
        "--tenant",
        "ml",
        "--class",
        "bandwidth",
        "--weight",
        "2",
    ];
    check(&[&words[..], &job[..]].concat(), 0);
    let (listed, _) = check(&["rdma", "assign", "--list", "--folder", &folder], 0);
    let want = "  assignment  tenant  class      weight  processes\n  slurm-42    ml      bandwidth       2  /slurm/job_42/**\n";
    assert_eq!(listed, want);
    let (listed, _) = check(
        &["rdma", "assign", "--list", "--json", "--folder", &folder],
        0,
    );
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(
        (&listed[0]["tenant"], &listed[0]["lasts_while"]),
        (&"ml".into(), &Value::Null)
    );
    for _ in 0..2 {
        check(&[&words[..], &["--end"]].concat(), 0);
    }
    assert!(names(&folder).is_empty());
}

#[test]
fn wrong_assignments_are_bad_input() {
    let (_directory, folder) = folder();
    let refused = |arguments: &[&str], parts: &[&str]| {
        refuses(
            &[&["rdma", "assign", "--folder", &folder], arguments].concat(),
            parts,
        );
    };
    refused(&["../x", "--end"], &["../x", "letters, digits"]);
    refused(
        &["x", "--cgroup", "/*", "--class", "auto"],
        &["cgroup", "must name a part"],
    );
    refused(
        &["x", "--cgroup", "/**/job_7", "--class", "auto"],
        &["cgroup", "** only behind the last /"],
    );
    refused(
        &["x", "--pod", "*", "--class", "auto"],
        &["pod", "hexadecimal digits and dashes"],
    );
    refused(&["x", "--cgroup", "/a"], &["must give tenant or class"]);
    refused(
        &["x", "--cgroup", "/a", "--tenant", "t", "--weight", "0"],
        &["--weight", "from 1 to 1048576"],
    );
    refused(&["x", "--cgroup", "/a", "--weight", "3"], &["--tenant"]);
    assert!(!Path::new(&folder).exists());
}

#[test]
fn without_a_daemon_the_exit_code_is_3() {
    let arguments = [
        "rdma",
        "assign",
        "x",
        "--cgroup",
        "/a",
        "--class",
        "auto",
        "--folder",
        "/nonexistent/assignments",
    ];
    let (_, stderr) = check(&arguments, 3);
    has_all(&stderr, &["/nonexistent/assignments", "start isolaned"]);
}

fn pod(name: &str, number: u32, labels: &str) -> String {
    format!(
        "{{\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"prod\",\"uid\":\"3f2a1c9e-0000-4000-8000-{number:012}\",\"labels\":{{{labels}}}}},\"status\":{{\"phase\":\"Running\"}}}}"
    )
}

/// Goal: every file that a killed `isolane rdma pods` leaves is complete, and the next one completes the list. Method: the
/// API server names other pods and weights each time. `make kills KILLS=n PROGRAM=pods` kills it more often.
#[test]
fn a_killed_program_of_pods_leaves_complete_files_and_the_next_one_goes_on() {
    let (_directory, folder) = folder();
    let (_kept, account) = account();
    let config = trusted(&account);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for (turn, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let weight = format!("\"isolane.dev/weight\":\"{}\"", 1 + turn % 5);
            let body = list(&[pod("a", 1, &weight), pod("b", 2 + turn as u32 % 2, &weight)]);
            let text = format!("HTTP/1.0 200 OK\r\n\r\n{body}");
            let config = Arc::clone(&config);
            std::thread::spawn(move || answer(stream, config, &text));
        }
    });
    let path = account.to_str().unwrap();
    let words = [
        "rdma",
        "pods",
        "--node",
        "n",
        "--server",
        &place,
        "--account",
        path,
        "--folder",
        &folder,
    ];
    let kills = std::env::var("ISOLANE_KILLS").map_or(12, |text| text.parse().unwrap());
    for done in 0..kills {
        let every = [&words[..], &["--interval", "100ms"]].concat();
        let mut program = crate::support::command(&every).spawn().unwrap();
        // Primes, so that all moments of a start and of a turn come.
        std::thread::sleep(Duration::from_micros(done * 7_919 % 150_001));
        assert_eq!(program.try_wait().unwrap(), None, "after {done} kills");
        program.kill().unwrap();
        program.wait().unwrap();
        for name in names(&folder) {
            let read = assignments::read(Path::new(&folder), &name).unwrap();
            let weight = read.unwrap().weight.unwrap();
            assert!((1..=5).contains(&weight), "{name} has the weight {weight}");
        }
    }
    let left = fs::read_dir(&folder).map_or(0, Iterator::count);
    println!(
        "{kills} kills left {} unfinished files",
        left - names(&folder).len()
    );
    let once = [&words[..], &["--once"]].concat();
    check(&once, 0);
    let [first, second] = names(&folder).try_into().unwrap();
    assert!(first.ends_with("1") && (second.ends_with("2") || second.ends_with("3")));
    // The daemon removes what killed programs had not completed.
    let later = SystemTime::now() + Duration::from_secs(3_600);
    assignments::Folder::new(PathBuf::from(&folder)).look(later);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
}

fn list(pods: &[String]) -> String {
    format!("{{\"kind\":\"PodList\",\"items\":[{}]}}", pods.join(","))
}

#[test]
fn pods_from_a_file_are_assigned_and_those_that_are_gone_end() {
    let (directory, folder) = folder();
    let file = directory.path().join("pods.json");
    let path = file.to_str().unwrap();
    let run = |pods: &[String]| {
        fs::write(&file, list(pods)).unwrap();
        check(
            &[
                "rdma",
                "pods",
                "--from",
                path,
                "--folder",
                &folder,
                "--latency-namespace",
                "prod",
            ],
            0,
        )
    };
    check(
        &[
            "rdma", "assign", "slurm-1", "--cgroup", "/a", "--class", "auto", "--folder", &folder,
        ],
        0,
    );
    let first = pod("a", 1, "\"isolane.dev/class\":\"latency\"");
    run(&[first.clone(), pod("b", 2, "\"isolane.dev/weight\":\"2\"")]);
    let one = "pod-3f2a1c9e-0000-4000-8000-000000000001".to_owned();
    let two = one.replace("001", "002");
    assert_eq!(names(&folder), [one.clone(), two, "slurm-1".to_owned()]);
    run(&[first]);
    assert_eq!(names(&folder), [one, "slurm-1".to_owned()]);
    run(&[]);
    assert_eq!(names(&folder), ["slurm-1"]);
}

#[test]
fn a_dry_run_prints_and_writes_nothing() {
    let (directory, folder) = folder();
    let file = directory.path().join("pods.json");
    fs::write(&file, list(&[pod("a", 1, "\"isolane.dev/weight\":\"99\"")])).unwrap();
    let path = file.to_str().unwrap();
    let (stdout, stderr) = check(
        &[
            "rdma",
            "pods",
            "--from",
            path,
            "--dry-run",
            "--folder",
            &folder,
        ],
        0,
    );
    has_all(
        &stdout,
        &["prod/a", "16", "pod 3f2a1c9e-0000-4000-8000-000000000001"],
    );
    has_all(&stderr, &["pod prod/a: isolane.dev/weight=99: at most 16"]);
    assert!(!Path::new(&folder).exists());
    fs::write(&file, "[]").unwrap();
    refuses(
        &["rdma", "pods", "--from", path, "--folder", &folder],
        &["must be a list of pods in JSON"],
    );
}

/// The settings of a server with a certificate for 127.0.0.1, which the account trusts.
fn trusted(account: &Path) -> Arc<ServerConfig> {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    fs::write(account.join("ca.crt"), certificate.pem()).unwrap();
    fs::write(account.join("token"), "secret-token\n").unwrap();
    let chain = vec![CertificateDer::from(certificate.der().to_vec())];
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
    Arc::new(config)
}

/// Answers one request, whose client may end meanwhile; returns the request.
fn answer(stream: TcpStream, config: Arc<ServerConfig>, answer: &str) -> String {
    let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => request.push(byte[0]),
            _ => break,
        }
    }
    let _ = stream.write_all(answer.as_bytes());
    stream.conn.send_close_notify();
    let _ = stream.flush();
    String::from_utf8(request).unwrap()
}

/// A server with a certificate for 127.0.0.1 that answers one request with `text`; returns the request.
fn server(account: &Path, text: String) -> (String, std::thread::JoinHandle<String>) {
    let config = trusted(account);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap().to_string();
    let thread = std::thread::spawn(move || answer(listener.accept().unwrap().0, config, &text));
    (place, thread)
}

fn account() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    (directory, path)
}

fn ask(place: &str, account: &Path, folder: &str, code: i32) -> (String, String) {
    let account = account.to_str().unwrap();
    let words = [
        "rdma",
        "pods",
        "--once",
        "--node",
        "worker-1",
        "--server",
        place,
        "--account",
        account,
        "--folder",
        folder,
    ];
    check(&words, code)
}

#[test]
fn pods_of_the_machine_are_listed_over_tls_with_the_accounts_token() {
    let (_directory, folder) = folder();
    let (_kept, account) = account();
    let body = list(&[pod("a", 1, "\"isolane.dev/weight\":\"2\"")]);
    let (place, thread) = server(
        &account,
        format!("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{body}"),
    );
    ask(&place, &account, &folder, 0);
    let request = thread.join().unwrap();
    has_all(
        &request,
        &[
            "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dworker-1&resourceVersion=0 HTTP/1.0\r\n",
            "Authorization: Bearer secret-token\r\n",
        ],
    );
    assert_eq!(names(&folder), ["pod-3f2a1c9e-0000-4000-8000-000000000001"]);
}

#[test]
fn a_server_that_refuses_or_sends_false_data_changes_no_assignment() {
    let (_directory, folder) = folder();
    check(
        &[
            "rdma", "assign", "pod-old", "--cgroup", "/a", "--class", "auto", "--folder", &folder,
        ],
        0,
    );
    let cases = [
        (
            "HTTP/1.0 403 Forbidden\r\n\r\n{}",
            "needs the right to list pods",
        ),
        ("HTTP/1.0 500 Oops\r\n\r\n{}", "500 Oops"),
        ("HTTP/1.0 200 OK\r\n\r\n{\"items\":[", "no list of pods"),
        ("nonsense", "not HTTP"),
    ];
    for (answer, said) in cases {
        let (_kept, account) = account();
        let (place, thread) = server(&account, answer.to_owned());
        let (_, stderr) = ask(&place, &account, &folder, 3);
        assert!(stderr.contains(said), "{stderr}");
        thread.join().unwrap();
    }
    assert_eq!(names(&folder), ["pod-old"]);
}

#[test]
fn a_server_with_another_authority_gets_no_token() {
    let (_directory, folder) = folder();
    let (_kept, account) = account();
    let (_other_kept, other) = self::account();
    let (place, thread) = server(&account, String::new());
    drop(server(&other, String::new()));
    fs::copy(other.join("ca.crt"), account.join("ca.crt")).unwrap();
    let (_, stderr) = ask(&place, &account, &folder, 3);
    assert!(stderr.contains("certificate"), "{stderr}");
    assert!(!thread.join().unwrap().contains("secret-token"));
}

#[test]
fn the_cdi_specification_is_written_with_a_copy_of_the_library() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    fs::write(at("shim.so"), "library").unwrap();
    let output = crate::support::command(&[
        "rdma",
        "cdi",
        "--write",
        &at("cdi"),
        "--library-folder",
        &at("lib"),
        "--copy-library",
    ])
    .env(isolane_rdma_session::environment::SHIM, at("shim.so"))
    .output()
    .unwrap();
    crate::support::ended(&output, 0);
    let text = fs::read_to_string(at("cdi/isolane.dev-rdma.json")).unwrap();
    let specification: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(specification["cdiVersion"], "0.5.0");
    let library = &specification["devices"][0]["containerEdits"]["mounts"][0]["hostPath"];
    assert_eq!(
        fs::read_to_string(library.as_str().unwrap()).unwrap(),
        "library"
    );
}
