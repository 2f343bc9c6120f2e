//! Tests pacing with a small test daemon: it receives exactly the wanted limits across restarts of either side. Time is
//! an argument.

use super::*;
use proptest::prelude::*;
use rustix::net::{accept_with, bind, listen as await_callers};

struct Door {
    socket: OwnedFd,
    path: PathBuf,
}

impl Door {
    fn open(folder: &tempfile::TempDir) -> Self {
        let path = folder.path().join("s");
        let _ = std::fs::remove_file(&path);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        await_callers(&socket, 4).unwrap();
        Self { socket, path }
    }

    fn accept(&self) -> Option<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        accept_with(&self.socket, flags).ok()
    }
}

fn say(socket: &OwnedFd, message: &ToShim) {
    send(socket, &message.encode(), SendFlags::NOSIGNAL).unwrap();
}

/// All messages that are waiting in the socket.
fn heard(socket: &OwnedFd) -> Vec<ToDaemon> {
    let mut all = Vec::new();
    let mut bytes = [0; MESSAGE_MAX];
    while let Ok((length @ 1.., _)) = recv(socket, &mut bytes[..], RecvFlags::DONTWAIT) {
        all.push(ToDaemon::decode(&bytes[..length]).unwrap());
    }
    all
}

fn table(rates: &[(usize, u64)], processes: &[(u32, usize)]) -> Table {
    let mut table = Table::default();
    for &(place, rate) in rates {
        table.limit(place, rate);
    }
    for &(process, place) in processes {
        table.assign(process, place);
    }
    table
}

fn limit(tenant: u32, bytes_per_s: u64) -> ToDaemon {
    ToDaemon::Limit {
        tenant,
        bytes_per_s,
    }
}

fn belongs(process: u32, tenant: u32) -> ToDaemon {
    ToDaemon::Belongs { process, tenant }
}

#[test]
fn what_changed_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let door = Door::open(&folder);
    let now = Instant::now();
    let mut pacing = Pacing::new(door.path.clone());
    // The process of a tenant without a limit is not named.
    let wanted = table(&[(0, 100)], &[(7, 0), (8, 1)]);
    pacing.step(now, &wanted);
    let daemon = door.accept().expect("it comes");
    assert_eq!(heard(&daemon), [ToDaemon::Enforce]);
    pacing.step(now, &wanted);
    assert_eq!((heard(&daemon), pacing.is_heeded()), (vec![], false));
    say(&daemon, &ToShim::Heeded);
    pacing.step(now, &wanted);
    assert!(pacing.is_heeded());
    assert_eq!(heard(&daemon), [limit(0, 100), belongs(7, 0)]);
    pacing.step(now, &wanted);
    assert_eq!(heard(&daemon), []);
    pacing.step(now, &table(&[(0, 200)], &[(9, 0)]));
    assert_eq!(
        heard(&daemon),
        [limit(0, 200), belongs(9, 0), belongs(7, NO_TENANT)]
    );
    pacing.step(now, &Table::default());
    assert_eq!(heard(&daemon), [limit(0, NO_LIMIT), belongs(9, NO_TENANT)]);
}

#[test]
fn a_daemon_that_comes_back_gets_everything_again() {
    let folder = tempfile::tempdir().unwrap();
    let door = Door::open(&folder);
    let (mut now, wanted) = (Instant::now(), table(&[(3, 5)], &[(7, 3)]));
    let mut pacing = Pacing::new(door.path.clone());
    for _ in 0..2 {
        pacing.step(now, &wanted);
        let daemon = door.accept().expect("it comes");
        say(&daemon, &ToShim::Heeded);
        pacing.step(now, &wanted);
        let greeting = ToDaemon::Enforce;
        assert_eq!(heard(&daemon), [greeting, limit(3, 5), belongs(7, 3)]);
        drop(daemon);
        pacing.step(now, &wanted);
        assert!(!pacing.is_heeded());
        pacing.step(now, &wanted);
        assert!(door.accept().is_none(), "not before its time");
        now += AGAIN;
    }
}

#[test]
fn without_a_daemon_or_limits_nothing_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let now = Instant::now();
    let mut pacing = Pacing::new(folder.path().join("none"));
    pacing.step(now, &table(&[(0, 1)], &[]));
    assert_eq!((pacing.is_heeded(), pacing.refusal()), (false, None));
    let door = Door::open(&folder);
    let mut pacing = Pacing::new(door.path.clone());
    pacing.step(now, &Table::default());
    assert!(door.accept().is_none(), "no tenant is limited");
}

#[test]
fn a_refusal_names_the_daemon_and_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let door = Door::open(&folder);
    let (now, wanted) = (Instant::now(), table(&[(0, 1)], &[]));
    let mut pacing = Pacing::new(door.path.clone());
    pacing.step(now, &wanted);
    let daemon = door.accept().expect("it comes");
    let reason = "process 3 sets limits already".to_owned();
    say(&daemon, &ToShim::Refused { reason });
    pacing.step(now, &wanted);
    let refusal = pacing.refusal().expect("a reason");
    assert!(
        refusal.ends_with("/s: process 3 sets limits already"),
        "{refusal}"
    );
    // A message of another release does not cause a failure either.
    pacing.step(now + AGAIN, &wanted);
    let daemon = door.accept().expect("it comes again");
    send(&daemon, &[1; 9], SendFlags::NOSIGNAL).unwrap();
    pacing.step(now + AGAIN, &wanted);
    let refusal = pacing.refusal().expect("a reason");
    assert!(refusal.contains("same release"), "{refusal}");
}

#[test]
fn a_daemon_that_does_not_read_delays_no_other_and_gets_the_rest_later() {
    let folder = tempfile::tempdir().unwrap();
    let door = Door::open(&folder);
    let now = Instant::now();
    let processes: Vec<(u32, usize)> = (1..3_000).map(|process| (process, 0)).collect();
    let wanted = table(&[(0, 1)], &processes);
    let mut pacing = Pacing::new(door.path.clone());
    pacing.step(now, &wanted);
    let daemon = door.accept().expect("it comes");
    say(&daemon, &ToShim::Heeded);
    let mut all = Vec::new();
    for _ in 0..10_000 {
        pacing.step(now, &wanted);
        let more = heard(&daemon);
        if more.is_empty() {
            break;
        }
        all.extend(more);
    }
    assert_eq!(all.len(), 2 + processes.len());
}

proptest! {
    /// Goal: after any changes the peer knows the table. Method: the peer applies the received messages.
    #[test]
    fn the_other_end_follows(
        tables in prop::collection::vec(
            (prop::collection::vec((0usize..6, 0u64..4), 0..6), prop::collection::vec((0u32..9, 0usize..6), 0..9)),
            1..12,
        )
    ) {
        let mut known = Table::default();
        for (rates, processes) in tables {
            let wanted = table(&rates, &processes);
            let mut said = 0;
            while let Some(message) = wanted.next_difference(&known) {
                let coded = ToDaemon::decode(&message.encode()).unwrap();
                known.hear(&coded);
                said += 1;
                prop_assert!(said <= 40, "it ends");
            }
            prop_assert_eq!(&known, &wanted);
        }
    }
}
