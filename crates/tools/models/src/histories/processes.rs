//! The processes of a run: a real etcd, and quota servers with clocks that jump.
//!
//! Method: a server is this program again, in the role [`serve`]. Each start gets a time namespace in which the
//! machine's clocks have another offset, as on another machine or after a reboot, where the kernel permits it. The
//! wall clock of the server's process jumps while it runs, where libfaketime is installed. Limits: etcd is a Go program
//! without the C library, so its wall clock does not jump.

use super::Defect;
use super::broken::Broken as BrokenStore;
use isolane_rpc::quota::server::Server as QuotaServer;
use isolane_rpc::quota::settings::parse;
use isolane_rpc::quota::store::Store;
use isolane_rpc::quota::store::etcd::EtcdStore;
use isolane_tools_abuse::shortage::{faketime, with_wall};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

/// Longest start of etcd.
const ETCD_PATIENCE: Duration = Duration::from_secs(60);
/// Longest start of a server: it reads the store, and each call may take two seconds.
const SERVER_PATIENCE: Duration = Duration::from_secs(8);
/// First port for etcd and their number: below those that Linux gives to connections by default.
const PORTS: (u16, u16) = (14_000, 16_000);
/// Start of the line in which a server says where it listens.
const SAID: &str = "listening: ";

/// A process that is killed when it is dropped.
#[derive(Debug)]
pub(super) struct Process(Child);

impl Process {
    fn signal(&self, signal: Signal) {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.0), signal);
    }

    /// Stops it until [`Process::go_on`].
    pub(super) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it continue.
    pub(super) fn go_on(&self) {
        self.signal(Signal::CONT);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.0.wait();
    }
}

/// An etcd of one member on loopback. Its files outlive its process.
#[derive(Debug)]
pub struct Etcd {
    folder: tempfile::TempDir,
    address: SocketAddr,
    peers: SocketAddr,
    process: Option<Process>,
}

impl Etcd {
    /// Starts it. `Ok(None)`: no etcd is installed. Fails if it does not answer.
    pub fn start() -> io::Result<Option<Self>> {
        if Command::new("etcd").arg("--version").output().is_err() {
            return Ok(None);
        }
        // Another process may take a free port before etcd does; etcd then ends.
        let mut last = io::Error::other("etcd was not started");
        for _ in 0..3 {
            let mut etcd = Self {
                folder: tempfile::tempdir()?,
                address: free_port()?,
                peers: free_port()?,
                process: None,
            };
            match etcd.run() {
                Ok(()) => return Ok(Some(etcd)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Where its clients connect.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process, while it runs.
    pub(super) fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Kills it.
    pub(super) fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it again unless it runs, and waits until it answers.
    pub(super) fn run(&mut self) -> io::Result<()> {
        if self.process.is_none() {
            self.process = Some(self.spawn()?);
        }
        let begun = Instant::now();
        // The reading tests that etcd answers; no server uses this prefix.
        while EtcdStore::new(self.address, "/ready").load().is_err() {
            let process = self.process.as_mut().expect("started above");
            if let Some(status) = process.0.try_wait()? {
                return Err(io::Error::other(format!("etcd ended: {status}")));
            }
            if begun.elapsed() > ETCD_PATIENCE {
                return Err(io::Error::other("etcd does not answer"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn spawn(&self) -> io::Result<Process> {
        let url = |address: SocketAddr| format!("http://{address}");
        let child = with_us("etcd")
            .arg("--data-dir")
            .arg(self.folder.path())
            .args(["--listen-client-urls", &url(self.address)])
            .args(["--advertise-client-urls", &url(self.address)])
            .args(["--listen-peer-urls", &url(self.peers)])
            .args(["--initial-advertise-peer-urls", &url(self.peers)])
            .args(["--initial-cluster", &format!("default={}", url(self.peers))])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Process(child))
    }
}

/// A free port that the kernel gives to no other connection by default, because etcd uses it again after a kill.
fn free_port() -> io::Result<SocketAddr> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..PORTS.1 {
        let next = NEXT.fetch_add(1, Ordering::Relaxed) + std::process::id() * 16;
        let port = PORTS.0 + (next % u32::from(PORTS.1)) as u16;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err(io::Error::other("no free port for etcd"))
}

/// The clocks that the run can change.
#[derive(Clone, Debug)]
pub struct Clocks {
    /// Whether servers can start with another offset of the machine's clocks.
    pub offsets: bool,
    /// Whether the wall clock of servers can jump.
    pub jumps: bool,
}

impl Clocks {
    /// Tries both with this program.
    pub fn find(program: &Path) -> io::Result<Self> {
        let tried = Command::new("unshare").args(["--time", "true"]).output();
        Ok(Self {
            offsets: tried.is_ok_and(|output| output.status.success()),
            jumps: faketime().exists() && wall_jumps(program)?,
        })
    }
}

/// Whether a process of this program sees another wall clock when the file changes while the process runs.
fn wall_jumps(program: &Path) -> io::Result<bool> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("wall");
    std::fs::write(&file, "+0")?;
    let mut command = Command::new(program);
    command
        .arg("--wall")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = with_wall(&mut command, &file).spawn()?;
    let mut input = child.stdin.take().expect("a pipe");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut second = || -> io::Result<u64> {
        let line = lines.next().ok_or(io::ErrorKind::UnexpectedEof)??;
        line.parse().map_err(io::Error::other)
    };
    let before = second()?;
    std::fs::write(&file, "+1000000")?;
    input.write_all(b"\n")?;
    let after = second()?;
    child.wait()?;
    Ok(after > before + 500_000)
}

/// The role of a process that prints the wall clock's seconds, reads a line, and prints them again.
pub fn print_wall() -> io::Result<()> {
    let seconds = || match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => since.as_secs(),
        Err(_) => 0,
    };
    println!("{}", seconds());
    io::stdin().lock().read_line(&mut String::new())?;
    println!("{}", seconds());
    Ok(())
}

/// A program that the kernel kills when the thread that starts it ends, also while the program is stopped.
fn with_us(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// How a server starts.
#[derive(Clone, Debug)]
pub(super) struct Start<'a> {
    /// This program.
    pub(super) program: &'a Path,
    /// The file of its settings.
    pub(super) settings: PathBuf,
    /// What is wrong on purpose.
    pub(super) defect: Defect,
    /// Seconds by which the machine's clocks are ahead, where they can be.
    pub(super) ahead_s: Option<u64>,
    /// The file with the offset of the wall clock, where it can jump.
    pub(super) wall: Option<&'a Path>,
}

/// A quota server in its own process.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) process: Process,
    pub(super) address: SocketAddr,
    /// Starts are numbered.
    pub(super) number: u64,
}

impl Server {
    /// Starts a server and waits until it listens. `Ok(None)`: it ended or took too long, as without etcd.
    pub(super) fn start(start: &Start<'_>, number: u64) -> io::Result<Option<Self>> {
        let mut command = match start.ahead_s {
            None => with_us(start.program),
            Some(ahead) => {
                let ahead = ahead.to_string();
                let mut command = with_us("unshare");
                command.args(["--time", "--boottime", &ahead, "--monotonic", &ahead, "--"]);
                command.arg(start.program);
                command
            }
        };
        command
            .arg("--serve")
            .arg(&start.settings)
            .arg(start.defect.name())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if let Some(file) = start.wall {
            with_wall(&mut command, file);
        }
        let mut child = command.spawn()?;
        let said = said(child.stdout.take().expect("a pipe"));
        let process = Process(child);
        let Ok(address) = said.recv_timeout(SERVER_PATIENCE) else {
            return Ok(None);
        };
        Ok(Some(Self {
            process,
            address,
            number,
        }))
    }
}

/// The address in the output, from a thread of its own.
fn said(output: impl Read + Send + 'static) -> Receiver<SocketAddr> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        let mut addresses = lines.filter_map(|line| line.strip_prefix(SAID)?.parse().ok());
        if let Some(address) = addresses.next() {
            // The run may have given up.
            let _ = sender.send(address);
        }
    });
    receiver
}

/// The role of a server's process: serves until it is killed, or until the run's process ends.
pub fn serve(file: &Path, defect: Defect) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let settings = std::fs::read_to_string(file).map_err(|error| text(&error))?;
    let settings = parse("settings", &settings).map_err(|error| text(&error))?;
    let opened = match defect {
        Defect::None | Defect::KeepsRate => QuotaServer::open(&settings),
        broken => QuotaServer::over(&settings, |settings| {
            Ok(Box::new(BrokenStore::new(settings, broken)) as Box<dyn Store>)
        }),
    };
    let server = opened.map_err(|error| text(&error))?;
    let address = server.address();
    println!("{SAID}{address}");
    std::thread::spawn(|| {
        // Ends with the process that holds the other end.
        let _ = io::stdin().lock().read_line(&mut String::new());
        std::process::exit(0);
    });
    server.serve(|_| {});
    Ok(())
}
