//! The services, each as its program starts it, with devices and machines that are made up where it needs some.

use isolane_common_quantities::units::BitRate;
use isolane_memory_service::fleet;
use isolane_memory_service::service;
use isolane_rdma_emulator::faults::Chances;
use isolane_rdma_emulator::server::OPEN_TIME;
use isolane_rdma_emulator::{Broker, Settings};
use isolane_rdma_scenario::library::Library;
use isolane_rdma_traffic::engine::Overrides;
use isolane_rdma_traffic::tcp;
use isolane_rpc::quota::server::Server as QuotaServer;
use isolane_study_testbed_verbs::identity;
use isolane_study_testbed_verbs::listen::{ListenOptions, Listener};
use isolane_tools_abuse::process::serve_until_killed;
use isolaned::config::{Config, DeviceConfig};
use isolaned::governor::Governor;
use isolaned::peers::{Peers, Targets};
use isolaned::server::{Server as DaemonServer, now_ns};
use isolaned::settings::{Listen, Peering};
use isolaned::show::server::{Server as ShowServer, Shown, Source};
use isolaned::snapshot::Snapshot;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread::spawn;

/// Runs the service `role` with its files in `folder` until the process is killed.
pub(crate) fn serve(role: &str, folder: &Path) {
    let place = match role {
        "quota" => quota(
            &format!("listen = \"unix:{}/socket\"", folder.display()),
            folder,
        ),
        "quota-key" => {
            let key = key_file(folder);
            let listen = "listen = \"127.0.0.1:0\"";
            quota(
                &format!("{listen}\nkey_file = \"{}\"", key.display()),
                folder,
            )
        }
        "extender" => extender(),
        "memory" => memory(folder),
        "metrics" => metrics(folder),
        "daemon" => daemon(folder),
        "peers" => peers(folder),
        "emulator" => emulator(folder),
        "agent" => agent(folder),
        "traffic" => traffic(),
        defect => crate::planted::serve(defect),
    };
    serve_until_killed(&place);
}

/// The file of a key that its owner alone can read.
fn key_file(folder: &Path) -> PathBuf {
    let key = folder.join("key");
    fs::write(&key, "k".repeat(40)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    key
}

fn quota(listen: &str, folder: &Path) -> String {
    let text = format!(
        r#"
{listen}
store = "{}/store"
[[class]]
name = "high"
weight = 4
[[class]]
name = "low"
weight = 1
[[group]]
name = "all"
line_rate = "1Gb/s"
load = 0.8
burst = 1.6
[[tenant]]
name = "search"
group = "all"
class = "high"
guarantee = "200Mb/s"
"#,
        folder.display()
    );
    let settings = isolane_rpc::quota::settings::parse("abuse", &text).unwrap();
    let server = QuotaServer::open(&settings).unwrap();
    let address = server.address().unwrap();
    spawn(move || server.serve(|_| {}));
    address.to_string()
}

fn extender() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    spawn(move || fleet::server::serve(&listener, &AtomicBool::new(false), &|_| {}));
    address.to_string()
}

fn memory(folder: &Path) -> String {
    let settings = service::settings::Settings::fake(folder);
    let service = service::open(&settings).unwrap();
    spawn(move || service.run(&never()));
    settings.socket.display().to_string()
}

/// A descriptor that is never readable.
fn never() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

struct Empty;

impl Source for Empty {
    fn snapshot(&mut self) -> Option<Snapshot> {
        Some(Snapshot::default())
    }
}

fn metrics(folder: &Path) -> String {
    let mut server = ShowServer::new(Empty, never());
    let port = Listen::Tcp("127.0.0.1:0".parse().unwrap());
    server.listen(&port, Shown::Metrics).unwrap();
    let control = Listen::Unix(folder.join("control.sock"));
    server.listen(&control, Shown::Everything).unwrap();
    let address = server.address().unwrap();
    spawn(move || server.run());
    address.to_string()
}

/// An `isolaned` of one device that no machine has.
fn daemon_server(folder: &Path) -> DaemonServer {
    let config = Config {
        socket: folder.join("run/isolaned.sock"),
        devices: vec![DeviceConfig {
            name: "rxe0".to_owned(),
            rate: Some(BitRate::from_gbps(8)),
            ..DeviceConfig::default()
        }],
        ..Config::default()
    };
    let governor = Governor::new(config, vec![BitRate::from_gbps(10)], now_ns()).unwrap();
    DaemonServer::new(governor, never()).unwrap()
}

fn daemon(folder: &Path) -> String {
    let (ready, started) = channel();
    let folder = folder.to_owned();
    spawn(move || {
        let server = daemon_server(&folder);
        ready.send(()).unwrap();
        server.run().unwrap();
    });
    started.recv().unwrap();
    String::new()
}

/// What the daemon has printed about its port for peers.
static PRINTED: OnceLock<String> = OnceLock::new();

/// The port for peers in the event loop of an `isolaned`. It has no device that a peer could reach.
fn peers(folder: &Path) -> String {
    let mut settings = isolaned::settings::Settings::for_devices(&[]);
    settings.peering = Some(Peering {
        listen: Some("127.0.0.1:0".parse().unwrap()),
        key_file: key_file(folder),
    });
    let (ready, started) = channel();
    let folder = folder.to_owned();
    spawn(move || {
        let say = |line: &str| _ = PRINTED.set(line.to_owned());
        let peers = Peers::start(&settings, Targets::default(), say).unwrap();
        let mut server = daemon_server(&folder);
        server.attach(Box::new(peers)).unwrap();
        ready.send(()).unwrap();
        server.run().unwrap();
    });
    started.recv().unwrap();
    let printed = PRINTED.get().unwrap();
    let address = printed.strip_prefix("listens for peers at ");
    address.unwrap().to_owned()
}

/// A broker of two emulated hosts.
fn emulator(folder: &Path) -> String {
    let library = Library::embedded();
    let profile = library.profile("cx5-100g-roce").unwrap();
    let broker = Broker::start(Settings {
        profile: profile.clone(),
        hosts: 2,
        dilation: 1.0,
        seed: 1,
        chances: Chances::default(),
        socket: folder.join("broker.sock"),
        open_time: OPEN_TIME,
    });
    // It serves until this process is killed.
    std::mem::forget(broker.unwrap());
    String::new()
}

/// An agent whose sessions run `cat` in place of `isolane rdma agent --stdio`.
fn agent(folder: &Path) -> String {
    let directory = folder.join("certificates");
    let names = ["127.0.0.1", "controller"].map(str::to_owned);
    identity::create(&directory, &names).unwrap();
    let listener = Listener::bind(ListenOptions {
        address: "127.0.0.1:0".to_owned(),
        identity: directory.join("127.0.0.1"),
        sessions: 8,
        program: "cat".into(),
        arguments: Vec::new(),
    })
    .unwrap();
    let address = listener.address().unwrap();
    spawn(move || listener.serve(&|_| {}));
    address.to_string()
}

fn traffic() -> String {
    let listener = tcp::listen("127.0.0.1", 0).unwrap();
    let address = listener.local_addr().unwrap();
    spawn(move || tcp::serve_clients(&listener, &Overrides::default(), |_| {}));
    address.to_string()
}
