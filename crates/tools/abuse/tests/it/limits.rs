//! The programs that limit others, for the kills, and the processes that they limit.
#![allow(unsafe_code)]

use crate::services::{port_of, remember};
use isolane_ethernet_attach::attach::attach;
use isolane_ethernet_attach::control::Controller;
use isolane_ethernet_attach::detach::detach;
use isolane_ethernet_attach::options::Options as NicOptions;
use isolane_ethernet_attach::{NicError, System};
use isolane_rdma_enforcer::control::supervisor::{Mode, Supervisor, Tenant};
use isolane_rdma_enforcer::enforcer::{Enforcer, Options, PAUSE};
use isolane_rdma_enforcer::guardian::{Link, OnDeath, serve};
use isolane_rdma_enforcer::launch::{Launch, supervise_self};
use isolane_rdma_enforcer::seccomp::filter::RDMA_VERBS_IOCTL;
use isolane_rdma_scenario::enforcement;
use isolane_rpc::admission::Admission;
use isolane_rpc_agent::rules::Rules;
use isolane_rpc_agent::{Agent, Options as AgentOptions};
use isolane_tools_abuse::process::{command, serve_until_killed};
use rustix::net::sockopt::{ip_tos, set_socket_linger};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::spawn;
use std::time::Duration;

/// Threads of a process whose calls are limited, and the calls per second that all of them may make.
pub(crate) const CALLERS: usize = 3;
const CALLS_PER_S: u64 = 2_000;
/// The device in the namespace of a lab.
pub(crate) const DEVICE: &str = "v0";
/// The code point of the class of connections.
pub(crate) const CODE_POINT: u8 = 46;

/// Set when the test asks for the end of the program.
fn ends_with_the_test(place: &str) -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let (flag, place) = (Arc::clone(&stop), place.to_owned());
    spawn(move || {
        serve_until_killed(&place);
        flag.store(true, Ordering::Relaxed);
    });
    stop
}

/// The command of a guardian for this directory.
fn guardian_command(folder: &Path) -> Vec<OsString> {
    let command = command("guardian", folder);
    let variables = command.get_envs().map(|(name, value)| {
        let mut pair = name.to_owned();
        pair.push("=");
        pair.push(value.expect("it is set"));
        pair
    });
    let own = command.get_args().map(OsString::from);
    let program = [command.get_program().to_owned()];
    let words = ["env".into()].into_iter().chain(variables).chain(program);
    words.chain(own).collect()
}

/// As `isolane rdma enforce`, without an RDMA device.
pub(crate) fn enforcer(folder: &Path) {
    let on_death = fs::read_to_string(folder.join("on_death")).unwrap();
    let text = format!(
        "on_death = \"{on_death}\"\n[[tenant]]\nname = \"guests\"\nothers = true\n\
         guarantee = {{ control_requests_per_s = {CALLS_PER_S} }}\n"
    );
    let mut enforcer = Enforcer::start(Options {
        file: enforcement::parse(&text, "kills").unwrap(),
        directory: folder.to_owned(),
        guardian: guardian_command(folder),
        mode: Mode::Enforce,
        device: None,
        notify: BTreeMap::new(),
        daemon: folder.join("no-daemon.sock"),
        needs_device: false,
    })
    .unwrap();
    let stop = ends_with_the_test("");
    while !stop.load(Ordering::Relaxed) {
        enforcer.step().unwrap();
        std::thread::sleep(PAUSE);
    }
}

/// An enforcer with a defect: it does not record which calls it has received.
pub(crate) fn enforcer_that_forgets(folder: &Path) {
    let (link, _) = Link::open(folder, &guardian_command(folder), OnDeath::Open).unwrap();
    let mut tenant = Tenant::default();
    tenant.limits.all = Some(CALLS_PER_S);
    let supervisor = Supervisor::start(vec![tenant], Mode::Enforce, None).unwrap();
    spawn(move || {
        while let Ok(Some(handed)) = link.receive() {
            supervisor.watch(handed.listener, 0, None);
        }
    });
    serve_until_killed("");
}

pub(crate) fn guardian(folder: &Path) {
    serve::serve(folder).unwrap();
}

/// A process under supervision whose threads call all the time. Each counts its calls in the file `calls`, and the
/// error of a call that failed for another reason than that `/dev/null` is no device in the file `failed`.
pub(crate) fn callers(folder: &Path) {
    let launch = Launch {
        directory: folder.to_owned(),
        tenant: None,
    };
    supervise_self(&launch).unwrap();
    let calls = File::create(folder.join("calls")).unwrap();
    calls.set_len(8 * CALLERS as u64).unwrap();
    for thread in 0..CALLERS {
        let (calls, failed) = (calls.try_clone().unwrap(), folder.join("failed"));
        spawn(move || {
            for count in 1_u64.. {
                if let Err(error) = call() {
                    fs::write(failed, error.to_string()).unwrap();
                    return;
                }
                let at = 8 * thread as u64;
                calls.write_all_at(&count.to_ne_bytes(), at).unwrap();
            }
        });
    }
    serve_until_killed("");
}

/// A control verb on a file that is no device. The kernel traps the call before it looks at the file.
fn call() -> std::io::Result<()> {
    let file = File::open("/dev/null")?;
    let bytes = [0_u8; 256];
    // SAFETY: `/dev/null` knows no ioctl and reads nothing; a supervisor reads the bytes, which outlive the call.
    let done = unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            libc::Ioctl::from(RDMA_VERBS_IOCTL),
            bytes.as_ptr(),
        )
    };
    let error = std::io::Error::last_os_error();
    match (done, error.raw_os_error()) {
        (-1, Some(libc::ENOTTY)) => Ok(()),
        _ => Err(error),
    }
}

/// This thread in the network namespace of the lab in `folder`.
fn enter(folder: &Path) -> System {
    let name = fs::read_to_string(folder.join("namespace")).unwrap();
    let system = System::enter(&name).unwrap();
    system.with_run(&folder.join("run"))
}

/// As `isolane nic attach --foreground`.
pub(crate) fn nic(folder: &Path) {
    let system = enter(folder);
    let journal = attach(&system, DEVICE, NicOptions::default()).unwrap();
    let mut controller = Controller::new(&system, journal).unwrap();
    let stop = ends_with_the_test("");
    controller.run(&stop).unwrap();
}

/// As `isolane nic detach`, which may be killed before it listens.
pub(crate) fn nic_detach(folder: &Path) {
    match detach(&enter(folder), DEVICE) {
        Ok(_) | Err(NicError::NotAttached { .. }) => serve_until_killed(""),
        Err(error) => panic!("{error}"),
    }
}

/// The settings of one class for everything.
const CLASSES: &str = "mtu_bytes = 1448\n\
    [[class]]\nname = \"high\"\ndscp = 46\ntarget_per_mtu = \"1s\"\npercentile = 99\n\
    [[class]]\nname = \"low\"\ndscp = 8\n";

/// As `isolane rpc enforce` for the cgroup that `folder` names, with a class for the port of its file.
pub(crate) fn marks(folder: &Path) {
    let cgroup = fs::read_to_string(folder.join("cgroup")).unwrap();
    let mut rules = Rules::default();
    rules.ports.insert(port_of(folder).port(), 0);
    let options = AgentOptions {
        cgroup: cgroup.into(),
        rules,
        acknowledgement_delay: Duration::ZERO,
    };
    let admission = Arc::new(Admission::from_text("kills", CLASSES).unwrap());
    let mut agent = Agent::attach(admission, &options).unwrap();
    let stop = ends_with_the_test("");
    while !stop.load(Ordering::Relaxed) {
        agent.step(Duration::from_millis(10)).unwrap();
    }
}

/// What a process in the cgroup has done: messages on its lasting connection, new connections, and the code point of the
/// latest one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) messages: u64,
    pub(crate) connections: u64,
    pub(crate) code_point: u8,
}

impl Done {
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        let text = fs::read_to_string(folder.join("done")).ok()?;
        let mut words = text.split(' ');
        let mut next = || words.next()?.parse().ok();
        Some(Self {
            messages: next()?,
            connections: next()?,
            code_point: u8::try_from(next()?).ok()?,
        })
    }

    fn write(self, folder: &Path) {
        let unnamed = folder.join("done.new");
        let text = format!("{} {} {}", self.messages, self.connections, self.code_point);
        fs::write(&unnamed, text).unwrap();
        fs::rename(unnamed, folder.join("done")).unwrap();
    }
}

/// Messages on a lasting connection and on new ones, all the time, with a server in the same process. The process is in
/// the cgroup before it connects.
pub(crate) fn connections(folder: &Path) {
    let cgroup = fs::read_to_string(folder.join("cgroup")).unwrap();
    fs::write(
        Path::new(&cgroup).join("cgroup.procs"),
        std::process::id().to_string(),
    )
    .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = remember(folder, listener.local_addr().unwrap());
    spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            spawn(move || echo(stream));
        }
    });
    let folder = folder.to_owned();
    spawn(move || {
        let mut lasting = TcpStream::connect(address).unwrap();
        for number in 1.. {
            exchange(&mut lasting);
            let done = Done {
                messages: number,
                connections: number,
                code_point: code_point(address),
            };
            done.write(&folder);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    serve_until_killed("");
}

fn echo(mut stream: TcpStream) {
    let mut message = [0; 1_000];
    while stream.read_exact(&mut message).is_ok() {
        // A client that has ended needs no answer.
        let _ = stream.write_all(&message);
    }
}

fn exchange(stream: &mut TcpStream) {
    let mut message = [7; 1_000];
    stream.write_all(&message).unwrap();
    stream.read_exact(&mut message).unwrap();
}

/// The code point of a new connection after a message.
fn code_point(address: SocketAddr) -> u8 {
    let mut stream = TcpStream::connect(address).unwrap();
    exchange(&mut stream);
    // No port waits for late packets after the end: there are many connections.
    set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    ip_tos(&stream).unwrap() >> 2
}
