//! The services, each as its program starts it, with devices and machines that are made up where it needs some.

use crate::limits;
use isolane_common_quantities::units::BitRate;
use isolane_memory_service::fleet;
use isolane_memory_service::service;
use isolane_rdma_emulator::directory::Directory;
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
use isolane_tools_abuse::stopped;
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
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread::spawn;

/// Runs the service `role` with its files in `folder` until the process is killed.
pub(crate) fn serve(role: &str, folder: &Path) {
    let place = match role {
        "memory-that-forgets" => return memory(folder, &format!("run{}", std::process::id())),
        "enforcer" => return limits::enforcer(folder),
        "enforcer-that-forgets" => return limits::enforcer_that_forgets(folder),
        "guardian" => return limits::guardian(folder),
        "callers" => return limits::callers(folder),
        "nic" => return limits::nic(folder),
        "nic-detach" => return limits::nic_detach(folder),
        "marks" => return limits::marks(folder),
        "connections" => return limits::connections(folder),
        stopped::ROLE => return stopped::peer(folder),
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
        "quota-port" => quota("listen = \"127.0.0.1:0\"", folder),
        "extender" => extender(folder),
        "memory" => return memory(folder, "run"),
        "metrics" => metrics(folder),
        "daemon" => daemon(folder),
        "peers" => peers(folder),
        "emulator" => emulator(folder),
        "agent" => agent(folder),
        "traffic" => traffic(folder),
        "confirms what it has not stored" => crate::planted::store(folder),
        defect => crate::planted::serve(defect, folder),
    };
    serve_until_killed(&place);
}

/// Where a service stores what it must not lose: on the disk that a test has made for it, or in its directory.
pub(crate) fn state(folder: &Path) -> PathBuf {
    let made = fs::read_to_string(folder.join("state"));
    made.map_or_else(|_| folder.to_owned(), PathBuf::from)
}

/// The file of a key that its owner alone can read.
fn key_file(folder: &Path) -> PathBuf {
    let key = folder.join("key");
    fs::write(&key, "k".repeat(40)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    key
}

/// The address at which the service of this directory listened before it was killed; a free port for the first one. It is a
/// loopback address of the test's own, so that no other program gets the port while the service does not run.
pub(crate) fn port_of(folder: &Path) -> SocketAddr {
    let text = fs::read_to_string(folder.join("address"));
    let [_, high, middle, low] = parent_id().to_be_bytes();
    let free = || SocketAddr::from(([127, 64 | high & 63, middle, low], 0));
    text.map_or_else(|_| free(), |text| text.parse().unwrap())
}

/// Lets the next service of this directory listen at the same address.
pub(crate) fn remember(folder: &Path, address: SocketAddr) -> SocketAddr {
    // Complete under its name, or not there: the service may be killed meanwhile.
    let unnamed = folder.join("address.new");
    fs::write(&unnamed, address.to_string()).unwrap();
    fs::rename(unnamed, folder.join("address")).unwrap();
    address
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
        state(folder).display()
    );
    let settings = isolane_rpc::quota::settings::parse("abuse", &text).unwrap();
    let server = QuotaServer::open(&settings).unwrap();
    let address = server.address();
    spawn(move || server.serve(|line| println!("{line}")));
    address.to_string()
}

fn extender(folder: &Path) -> String {
    let listener = TcpListener::bind(port_of(folder)).unwrap();
    let address = remember(folder, listener.local_addr().unwrap());
    spawn(move || fleet::server::serve(listener, &AtomicBool::new(false), &|_| {}));
    address.to_string()
}

/// The memory service on an emulated machine, with its journal in this directory of `folder`. It stops as its program does
/// when the test asks for its end.
fn memory(folder: &Path, journal: &str) {
    let mut settings = service::settings::Settings::fake(folder);
    settings.run_dir = state(folder).join(journal);
    let service = service::open(&settings).unwrap();
    let stop = never();
    let stopped = stop.try_clone().unwrap();
    let running = spawn(move || service.run(&stopped));
    serve_until_killed(&settings.socket.display().to_string());
    rustix::io::write(&stop, &1_u64.to_ne_bytes()).unwrap();
    running.join().unwrap();
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
        listen: Some(port_of(folder)),
        key_file: key_file(folder),
    });
    let (ready, started) = channel();
    let (folder, files) = (folder.to_owned(), folder.to_owned());
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
    let address = printed.strip_prefix("listens for peers at ").unwrap();
    remember(&files, address.parse().unwrap()).to_string()
}

/// A broker of two emulated hosts.
fn emulator(folder: &Path) -> String {
    let library = Library::embedded();
    let directory = Directory::at(&state(folder).join("nics")).unwrap();
    let profile = library.profile("cx5-100g-roce").unwrap();
    let broker = Broker::start(Settings {
        profile: profile.clone(),
        hosts: 2,
        dilation: 1.0,
        seed: 1,
        chances: Chances::default(),
        paces: false,
        socket: directory.socket(),
        tree: directory.tree(),
        open_time: OPEN_TIME,
    });
    // It serves until this process is killed.
    let place = directory.socket().display().to_string();
    std::mem::forget((broker.unwrap(), directory));
    place
}

/// An agent whose sessions run `cat` in place of `isolane rdma agent --stdio`.
fn agent(folder: &Path) -> String {
    let directory = folder.join("certificates");
    let address = port_of(folder);
    let own = address.ip().to_string();
    let names = [own.clone(), "controller".to_owned()];
    // A killed one left them.
    if !directory.exists() {
        identity::create(&directory, &names).unwrap();
    }
    let listener = Listener::bind(ListenOptions {
        address: address.to_string(),
        identity: directory.join(own),
        sessions: 8,
        program: "cat".into(),
        arguments: Vec::new(),
    })
    .unwrap();
    let address = remember(folder, listener.address());
    spawn(move || listener.serve(&|_| {}));
    address.to_string()
}

fn traffic(folder: &Path) -> String {
    let address = port_of(folder);
    let listener = tcp::listen(&address.ip().to_string(), address.port()).unwrap();
    let address = remember(folder, listener.address().unwrap());
    spawn(move || tcp::serve_clients(&listener, &Overrides::default(), |_| {}));
    address.to_string()
}
