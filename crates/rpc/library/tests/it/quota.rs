//! Real server and clients of quotas: sockets, files, and an etcd where one is installed.
#![allow(clippy::unwrap_used)]

use isolane_rpc::admission::Admission;
use isolane_rpc::quota::client::ask_once;
use isolane_rpc::quota::line::Address;
use isolane_rpc::quota::protocol::{Answer, Leased, PoolState, Request, Terms, Want};
use isolane_rpc::quota::server::Server;
use isolane_rpc::quota::settings::parse;
use isolane_rpc::quota::store::etcd::EtcdStore;
use isolane_rpc::quota::store::{Record, Store, StoreError};
use isolane_rpc::table::Ask;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

fn settings(folder: &Path, place: &str) -> String {
    format!(
        "
listen = \"unix:{}/socket\"
{place}
[[class]]
name = \"high\"
weight = 4
[[class]]
name = \"low\"
weight = 1
[[group]]
name = \"all\"
line_rate = \"1Gb/s\"
load = 0.8
burst = 1.6
[[tenant]]
name = \"search\"
group = \"all\"
class = \"high\"
guarantee = \"200Mb/s\"
[[tenant]]
name = \"ads\"
group = \"all\"
class = \"high\"
weight = 2
",
        folder.display()
    )
}

fn serve(folder: &Path) -> Address {
    let place = format!("store = \"{}/store\"", folder.display());
    serve_settings(&settings(folder, &place))
}

/// A server on a free port of loopback whose clients need the key in `key_file`.
fn serve_over_tcp(folder: &Path, key_file: &str) -> Address {
    let folder_name = folder.display();
    let place = format!("key_file = \"{key_file}\"\nstore = \"{folder_name}/store\"");
    let socket = format!("unix:{folder_name}/socket");
    serve_settings(&settings(folder, &place).replace(&socket, "127.0.0.1:0"))
}

fn serve_settings(text: &str) -> Address {
    let server = Server::open(&parse("test", text).unwrap()).unwrap();
    let address = server.address();
    std::thread::spawn(move || server.serve(|_| {}));
    address
}

fn renew(server: &Address, tenant: &str, demand: u64, holds: Option<u64>) -> Answer {
    let wants = vec![Want {
        group: "all".to_owned(),
        class: "high".to_owned(),
        demand_bytes_per_s: demand,
        holds,
    }];
    let request = Request::Renew {
        tenant: tenant.to_owned(),
        client: "here".to_owned(),
        wants,
    };
    ask_once(server, None, &request).unwrap()
}

fn lease(answer: Answer) -> Leased {
    match answer {
        Answer::Leases(leases) => leases[0],
        other => panic!("{other:?}"),
    }
}

fn show(server: &Address) -> Vec<PoolState> {
    match ask_once(server, None, &Request::Show).unwrap() {
        Answer::Pools(pools) => pools,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_server_divides_refuses_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path());
    // 1 Gb/s x 4/5 x 0.8/1.6 is 400 Mb/s.
    assert_eq!(
        lease(renew(&server, "ads", 1 << 40, None)).rate_bytes_per_s,
        50_000_000
    );
    assert_eq!(
        lease(renew(&server, "search", 1 << 40, None)).rate_bytes_per_s,
        0
    );
    let pools = show(&server);
    assert_eq!(pools[0].arithmetic, "1 Gb/s x 4/5 x 0.8/1.6 = 400 Mb/s");
    assert_eq!(pools[0].leased_bytes_per_s, 50_000_000);
    let targets: Vec<u64> = pools[0]
        .tenants
        .iter()
        .map(|tenant| tenant.target_bytes_per_s)
        .collect();
    assert_eq!(
        targets,
        [16_666_666, 33_333_334],
        "a guarantee, and the rest by weight"
    );
    let terms = Terms {
        tenant: "mail".to_owned(),
        group: "all".to_owned(),
        class: "high".to_owned(),
        weight: 1,
        guarantee_bytes_per_s: 25_000_001,
    };
    let Answer::Error(reason) = ask_once(&server, None, &Request::Set(terms)).unwrap() else {
        panic!("more than can be promised");
    };
    assert!(
        reason.contains("exceed what can be guaranteed, 1 Gb/s x 4/5 x 0.8/1.6 = 400 Mb/s"),
        "{reason}"
    );
    let Answer::Error(reason) = renew(&server, "nobody", 1, None) else {
        panic!("unknown");
    };
    assert!(reason.contains("isolane rpc quota set"), "{reason}");
    let second = Server::open(
        &parse(
            "t",
            &settings(
                folder.path(),
                &format!("store = \"{}/store\"", folder.path().display()),
            ),
        )
        .unwrap(),
    );
    assert!(
        second
            .err()
            .unwrap()
            .to_string()
            .contains("another quota server")
    );
}

/// A client of the server that `server` names in TOML, and the lines that the client reports.
fn client(server: &str) -> (Arc<Admission>, Receiver<String>) {
    let classes = include_str!("../data/two-classes.toml");
    let text = format!(
        "mtu_bytes = 1000\n{classes}[[group]]\nname = \"all\"\ndestinations = \"*\"\n\
         [quota]\nserver = {server}\ntenant = \"search\"\n"
    );
    let admission = Arc::new(Admission::from_text("test", &text).unwrap());
    let (sender, messages) = channel();
    let say = move |line: &str| sender.send(line.to_owned()).unwrap_or(());
    admission.start(say).unwrap();
    (admission, messages)
}

/// The whole path: a client thread beside the table, a call that is admitted despite the admit probability, and a
/// missing server that does not affect calls.
#[test]
fn a_client_gets_its_lease_and_does_without() {
    let folder = tempfile::tempdir().unwrap();
    let server = format!("\"unix:{}/socket\"", folder.path().display());
    let (admission, messages) = client(&server);
    // No server yet: reported once, and calls are decided as without quotas.
    let line = messages.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(line.contains("going on without"), "{line}");
    let ask = Ask {
        destination: b"host",
        class: 0,
        bytes: 10_000,
    };
    let verdict = admission.decide(ask);
    admission
        .complete(verdict.ticket, Duration::from_secs(1_000))
        .unwrap();
    let leased = || admission.table().counts(b"host", 0).unwrap().leased;
    assert_eq!(leased(), 0);
    let server = serve(folder.path());
    let line = messages.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(line.contains("again"), "{line}");
    // The demand of these calls is reported with the next renewals; then they use the lease.
    for _ in 0..6_000 {
        admission.decide(ask);
        if leased() > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(leased() > 0);
    let pool = &show(&server)[0];
    assert!(pool.leased_bytes_per_s > 0 && pool.leased_bytes_per_s <= pool.bound_bytes_per_s);
    // A stopped client releases its rate and does not use it any more, although calls go on.
    admission.stop();
    for _ in 0..6_000 {
        if show(&server)[0].leased_bytes_per_s == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(show(&server)[0].leased_bytes_per_s, 0);
    let before = leased();
    for _ in 0..100 {
        admission.decide(ask);
    }
    assert_eq!(leased(), before);
}

/// A real etcd that ends with the test.
struct Etcd {
    process: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn etcd() -> Option<Etcd> {
    if Command::new("etcd").arg("--version").output().is_err() {
        let required = std::env::var_os("ISOLANE_REQUIRE_ETCD").is_some();
        assert!(!required, "no etcd here, and CI must have one");
        println!("skipped: no etcd on this machine (Debian: etcd-server)");
        return None;
    }
    // Another process may take a free port before etcd does; etcd then ends.
    let started = (0..3).find_map(|_| start_etcd());
    assert!(started.is_some(), "etcd ends as soon as it starts");
    started
}

fn start_etcd() -> Option<Etcd> {
    let folder = tempfile::tempdir().unwrap();
    let free = || {
        TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
    };
    let (address, peer) = (free(), free());
    let process = Command::new("etcd")
        .args(["--data-dir", folder.path().to_str().unwrap()])
        .args(["--listen-client-urls", &format!("http://{address}")])
        .args(["--advertise-client-urls", &format!("http://{address}")])
        .args(["--listen-peer-urls", &format!("http://{peer}")])
        .args(["--initial-advertise-peer-urls", &format!("http://{peer}")])
        .args(["--initial-cluster", &format!("default=http://{peer}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut etcd = Etcd {
        process,
        address,
        _folder: folder,
    };
    for _ in 0..1_200 {
        if TcpStream::connect(address).is_ok() && EtcdStore::new(address, "/ready").load().is_ok() {
            return Some(etcd);
        }
        if etcd.process.try_wait().unwrap().is_some() {
            return None;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("etcd does not answer on {address}");
}

#[test]
fn promises_live_in_etcd_and_only_the_latest_server_writes() {
    let Some(etcd) = etcd() else { return };
    let folder = tempfile::tempdir().unwrap();
    let text = settings(folder.path(), &format!("etcd = \"{}\"", etcd.address));
    let server = Server::open(&parse("test", &text).unwrap()).unwrap();
    let address = server.address();
    std::thread::spawn(move || server.serve(|_| {}));
    let first = lease(renew(&address, "ads", 1 << 40, None));
    assert_eq!(first.rate_bytes_per_s, 50_000_000);

    // Another server takes over and loads the promise.
    let other = tempfile::tempdir().unwrap();
    let text = settings(other.path(), &format!("etcd = \"{}\"", etcd.address));
    let next = Server::open(&parse("test", &text).unwrap()).unwrap();
    let next_address = next.address();
    std::thread::spawn(move || next.serve(|_| {}));
    assert_eq!(show(&next_address)[0].leased_bytes_per_s, 50_000_000);
    assert_eq!(
        lease(renew(&next_address, "search", 1 << 40, None)).rate_bytes_per_s,
        0
    );
    // The first server promises nothing any more.
    let Answer::Error(reason) = renew(&address, "ads", 1 << 40, Some(first.serial)) else {
        panic!("two servers promise");
    };
    assert!(reason.contains("another quota server"), "{reason}");

    // Many records at once, read back in full.
    let mut store = EtcdStore::new(etcd.address, "/many");
    store.load().unwrap();
    let records: Vec<Record> = (0..250)
        .map(|number| Record::Grant {
            group: "g".to_owned(),
            class: "c".to_owned(),
            tenant: "t".to_owned(),
            client: format!("client/{number:03}"),
            serial: number,
            rate_bytes_per_s: 7,
            term_ms: None,
        })
        .collect();
    store.append(&records).unwrap();
    let mut again = EtcdStore::new(etcd.address, "/many");
    let mut loaded = again.load().unwrap().records;
    // They are read in the order of their keys.
    loaded.sort_by_key(|record| match record {
        Record::Grant { serial, .. } => *serial,
        Record::Set(_) => u64::MAX,
    });
    assert!(
        loaded == records,
        "{} of {} records",
        loaded.len(),
        records.len()
    );
    assert!(matches!(store.append(&records), Err(StoreError::Taken(_))));
}

/// Goal: messages of the quota client are kept where no thread of the application can receive them.
#[test]
fn a_message_without_a_listener_waits_to_be_taken() {
    let text = "[[class]]\nname = \"high\"\ndscp = 46\ntarget_per_mtu = \"15us\"\n[[class]]\nname = \"low\"\ndscp = 8\n\
                [[group]]\nname = \"all\"\ndestinations = \"*\"\n\
                [quota]\nserver = \"unix:/nowhere/quota\"\ntenant = \"search\"\n";
    let admission = Arc::new(Admission::from_text("test", text).unwrap());
    admission.start_and_keep().unwrap();
    let take = |capacity: usize| {
        let mut taken = String::new();
        let looked: Result<(), ()> = admission.take_said(|said| {
            taken.push_str(said);
            Ok(said.len() < capacity)
        });
        looked.unwrap();
        taken
    };
    while take(0).is_empty() {
        std::thread::yield_now();
    }
    let said = take(1_000);
    assert!(said.contains("no quota from unix:/nowhere/quota"), "{said}");
    assert_eq!(take(1_000), "", "it was taken");
    admission.stop();
}

#[test]
fn a_socket_has_the_permissions_of_the_file_and_others_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let with = |line: &str| {
        let place = format!("{line}\nstore = \"{}/store\"", folder.path().display());
        settings(folder.path(), &place)
    };
    let server = Server::open(&parse("test", &with("socket_mode = \"0660\"")).unwrap()).unwrap();
    let mode = std::fs::metadata(folder.path().join("socket"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o660);
    drop(server);
    for wrong in ["rw", "66", "0060", "0999", "00660"] {
        let error = parse("test", &with(&format!("socket_mode = \"{wrong}\""))).unwrap_err();
        assert!(
            error.to_string().contains("three octal digits"),
            "{wrong}: {error}"
        );
    }
    let tcp = with("socket_mode = \"0660\"").replace(
        &format!("unix:{}/socket", folder.path().display()),
        "127.0.0.1:0",
    );
    let error = parse("test", &tcp).unwrap_err();
    assert!(
        error.to_string().contains("is for a Unix socket"),
        "{error}"
    );
}

/// Goal: over TCP only clients with the server's key get leases, and without leases calls go on. Method: one server, a
/// client with the key and one with another key.
#[test]
fn over_tcp_a_client_needs_the_servers_key() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let key_file = |name: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, name.repeat(40)).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (key, other) = (key_file("k"), key_file("o"));
    let address = serve_over_tcp(folder.path(), &key);
    let start = |key_file: &str| client(&format!("\"{address}\"\nkey_file = \"{key_file}\""));
    let (stranger, messages) = start(&other);
    let line = messages.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(
        line.contains("the key is another one than this server's"),
        "{line}"
    );
    assert!(line.ends_with("going on without"), "{line}");
    let ask = Ask {
        destination: b"host",
        class: 0,
        bytes: 10_000,
    };
    stranger.decide(ask);
    let clients = || {
        let Answer::Pools(pools) =
            ask_once(&address, Some(Path::new(&key)), &Request::Show).unwrap()
        else {
            panic!("the key was refused");
        };
        pools[0]
            .tenants
            .iter()
            .map(|tenant| tenant.clients)
            .sum::<usize>()
    };
    assert_eq!(clients(), 0, "a stranger is no client");
    let (member, messages) = start(&key);
    for _ in 0..6_000 {
        if clients() > 0 {
            break;
        }
        member.decide(ask);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(clients(), 1);
    assert!(messages.try_recv().is_err(), "nothing to say");
    member.stop();
    stranger.stop();
}
