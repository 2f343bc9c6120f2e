//! Services with a defect each: the check must find every one, and none in the service without a defect.

use crate::services::{port_of, remember, state};
use crate::short::{OnDisk, Stores, same};
use crate::table::{Clock, Disk, Service, Subject};
use crate::{over_tcp, port};
use isolane_common_linux::listener::STACK_BYTES;
use isolane_common_linux::pool::has_memory;
use isolane_common_linux::skip::skip;
use isolane_tools_abuse::{Attack, Place, Running, Target, check, check_some};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) const REQUEST: &[u8] = b"{\"say\":\"something\"}\n";
/// Connections at once, and how long each may take.
const PLACES: usize = 64;
const LONGEST: Duration = Duration::from_millis(300);

/// Listens, with this defect. A request is a line, and so is its answer.
pub(crate) fn serve(defect: &str, folder: &Path) -> String {
    let listener = TcpListener::bind(port_of(folder)).unwrap();
    let address = remember(folder, listener.local_addr().unwrap());
    if defect == "locks by a file" {
        File::create_new(folder.join("lock")).expect("no other service runs");
    }
    let defect = defect.to_owned();
    std::thread::spawn(move || accept(&listener, &defect));
    address.to_string()
}

#[expect(clippy::zombie_processes, reason = "the child is one of the defects")]
fn accept(listener: &TcpListener, defect: &str) {
    let open = Arc::new(AtomicUsize::new(0));
    let mut leaked = Vec::new();
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(_) if defect == "spins" => continue,
            Err(error) if defect == "ends" => {
                eprintln!("{error}");
                std::process::exit(1);
            }
            Err(_) => {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if defect == "leaves connections to a child" {
            let connection = OwnedFd::from(stream.try_clone().unwrap());
            let mut command = Command::new("sleep");
            command.arg("600").stdin(connection).stdout(Stdio::null());
            command.spawn().unwrap();
        }
        if defect == "leaks" {
            leaked.extend(stream.try_clone());
        }
        if defect == "serves one after the other" {
            answer(stream, defect);
            continue;
        }
        // Not a rule for a product: newcomers wait for a place, which the others must leave soon.
        while defect != "has no bound" && open.load(Ordering::Relaxed) >= PLACES {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Without memory it closes the connection.
        if defect != "starts threads without memory" && !has_memory(0) {
            continue;
        }
        open.fetch_add(1, Ordering::Relaxed);
        let (open, defect) = (Arc::clone(&open), defect.to_owned());
        let serve = move || {
            answer(stream, &defect);
            open.fetch_sub(1, Ordering::Relaxed);
        };
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        thread.spawn(serve).expect("memory for a thread");
    }
}

fn answer(stream: TcpStream, defect: &str) {
    let longest = match defect {
        "serves one after the other" | "has no bound" => Duration::from_secs(60),
        _ => LONGEST,
    };
    stream.set_read_timeout(Some(longest)).unwrap();
    let most = match defect {
        "reads without end" => u64::MAX,
        _ => 1 << 10,
    };
    let mut line = Vec::new();
    let read = BufReader::new((&stream).take(most)).read_until(b'\n', &mut line);
    if read.is_ok() && line == REQUEST {
        // The peer may be gone.
        let _ = (&stream).write_all(b"yes\n");
    }
}

/// A service that appends each line to a file, and confirms also what it could not write.
pub(crate) fn store(folder: &Path) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let file = state(folder).join("line");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            let file = file.clone();
            std::thread::spawn(move || change(&stream, &file));
        }
    });
    address.to_string()
}

fn change(stream: &TcpStream, file: &Path) {
    stream.set_read_timeout(Some(LONGEST)).unwrap();
    let mut line = String::new();
    let read = BufReader::new(stream.take(1 << 10)).read_line(&mut line);
    let answer = match read {
        Ok(_) if line == "show\n" => {
            let text = fs::read_to_string(file).unwrap_or_default();
            text.lines().last().unwrap_or_default().to_owned()
        }
        Ok(_) if line.starts_with("set ") => {
            let opened = File::options().append(true).create(true).open(file);
            // The defect.
            let _ = opened.and_then(|mut file| file.write_all(line.as_bytes()));
            "done".to_owned()
        }
        _ => return,
    };
    // The peer may be gone.
    let _ = (&mut &*stream).write_all(answer.as_bytes());
}

/// Its lines. Each replaces the one before.
fn lines(_: &Path) -> Stores {
    let line = |number: u64| format!("set {number:01000}");
    Stores {
        change: Box::new(move |running, number| {
            let answer = over_tcp(port(running), format!("{}\n", line(number)).as_bytes())?;
            same(answer.as_str(), "done").map(|()| true)
        }),
        kept: Box::new(move |running, confirmed| {
            let wanted = confirmed
                .last()
                .map_or_else(String::new, |last| line(*last));
            same(over_tcp(port(running), b"show\n")?, wanted)
        }),
    }
}

#[test]
fn a_change_that_is_confirmed_and_not_stored_is_found_on_a_full_disk() {
    let service = Service {
        role: "confirms what it has not stored",
        subject: |running| {
            let address = port(running);
            let target = Target {
                place: Place::Tcp(address),
                request: b"show\n".to_vec(),
                crowd: 1,
                memory_max: 0,
                descriptors_max: 100,
            };
            Subject::new(target, move || over_tcp(address, b"show\n").map(drop))
        },
        disk: Disk::Stores(lines),
        clock: Clock::Serves,
    };
    let Some(mut case) = OnDisk::new(&service) else {
        skip("no namespaces for a small disk");
        return;
    };
    let found = case.check().unwrap_err();
    assert!(found.contains("in place of"), "{found}");
}

/// What the check says about the service with this defect, with all attacks or this one.
fn verdict(defect: &str, attack: Option<Attack>) -> Result<(), String> {
    let running = Running::start(defect);
    let target = Target {
        place: Place::Tcp(port(&running)),
        request: REQUEST.to_vec(),
        crowd: 200,
        memory_max: 64 << 20,
        // The leak must be found after an attack, not during it.
        descriptors_max: match defect {
            "leaks" => 10_000,
            _ => PLACES + 20,
        },
    };
    let honest = || match over_tcp(port(&running), REQUEST)?.as_str() {
        "yes\n" => Ok(()),
        other => Err(format!("{other:?}")),
    };
    match attack {
        None => check(&running, &target, &honest),
        Some(attack) => check_some(&[attack], &running, &target, &honest),
    }
}

#[test]
fn a_service_without_a_defect_passes() {
    assert_eq!(verdict("none", None), Ok(()));
}

#[test]
fn a_stopped_peer_finds_defects_alone() {
    let found = |defect| verdict(defect, Some(Attack::Stopped)).expect_err(defect);
    let one = found("serves one after the other");
    assert!(one.contains("an honest client has no answer"), "{one}");
    let more = found("has no bound");
    assert!(more.contains("open descriptors, 84 are the most"), "{more}");
}

#[test]
fn every_planted_defect_is_found() {
    let cases = [
        (
            "serves one after the other",
            "an honest client has no answer",
        ),
        ("has no bound", "open descriptors, 84 are the most"),
        (
            "reads without end",
            "[Endless]: an honest client has no answer",
        ),
        ("leaks", "open descriptors after the attack"),
        ("spins", "when it gets no descriptor, it computes"),
        ("ends", "it ended when it got no descriptor"),
        ("starts threads without memory", "got no memory"),
    ];
    std::thread::scope(|scope| {
        for (defect, wanted) in cases {
            scope.spawn(move || {
                let found = verdict(defect, None).expect_err(defect);
                assert!(found.contains(wanted), "{defect}: {found}");
            });
        }
    });
}
