//! Two hosts, a cgroup, and a client without any instrumentation; nothing outlives the test.
//!
//! Method: network namespaces `a` and `b` on a veth pair. At `a` an HTB has one class for each code point, whose counters
//! are what was sent on the wire. A client runs in `a` and in the cgroup of the test, a server in `b`. Both are this test
//! program, started again with a job in its environment. Without root, namespaces, HTB or version 2 cgroups a test is
//! skipped with the reason.

use isolane_common_linux::command::{command, run};
use isolane_common_linux::namespaces::{self, Space};
use isolane_common_linux::skip::skip;
use isolane_common_linux::{Root, cgroup};
use isolane_rpc::admission::Admission;
use isolane_rpc_agent::rules::Rules;
use isolane_rpc_agent::{Agent, Options};
use rustix::net::sockopt::{
    ip_tos, set_ip_tos, set_socket_linger, set_socket_send_buffer_size, set_tcp_congestion,
};
use rustix::net::{AddressFamily, SocketType, connect, socket};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const JOB: &str = "ISOLANE_RPC_AGENT_TEST";
const PREFIX: &str = "isolane-rpc-agent-";
pub(crate) const PORT: u16 = 7_001;
/// Code points of the two classes.
pub(crate) const HIGH: u8 = 46;
pub(crate) const LOW: u8 = 8;

/// Far longer than any client works.
const HANGING: Duration = Duration::from_secs(300);

/// The hosts and the cgroup.
pub(crate) struct Lab {
    a: Space,
    b: Space,
    cgroup: PathBuf,
}

/// Bytes and packets at the wire by code point.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wire {
    pub(crate) high: u64,
    pub(crate) low: u64,
}

impl Lab {
    /// `None` after a line with the reason, where this machine cannot. In CI that is a failure.
    pub(crate) fn new(word: &str, rate: &str) -> Option<Self> {
        match Self::make(word, rate) {
            Ok(lab) => Some(lab),
            Err(reason) => {
                skip(format_args!(
                    "{word} needs root, namespaces, HTB and cgroups of version 2: {reason}"
                ));
                None
            }
        }
    }

    fn make(word: &str, rate: &str) -> Result<Self, String> {
        if !namespaces::is_root() {
            return Err("not root".to_owned());
        }
        let mount = cgroup::mount(&Root::machine()).ok_or("no version 2 cgroups")?;
        namespaces::remove_stale(PREFIX);
        let name = format!("{PREFIX}{}-{word}", namespaces::maker());
        let space = |end: &str| Space::make(format!("{name}{end}")).map_err(|e| e.to_string());
        let (a, b) = (space("a")?, space("b")?);
        let (from, to) = (a.name(), b.name());
        let packet = 1_514;
        for line in [
            format!("ip -n {from} link add v type veth peer name v netns {to}"),
            format!("ip -n {from} addr add 10.78.0.1/24 dev v"),
            format!("ip -n {to} addr add 10.78.0.2/24 dev v"),
            format!("ip -n {from} addr add fd78::1/64 dev v nodad"),
            format!("ip -n {to} addr add fd78::2/64 dev v nodad"),
            format!("ip -n {from} link set v up gso_max_segs 1"),
            format!("ip -n {to} link set v up gso_max_segs 1"),
            format!("ip -n {from} route add 10.79.0.0/16 via 10.78.0.2"),
            format!("ip -n {to} route add local 10.79.0.0/16 dev lo"),
            format!("tc -n {from} qdisc add dev v root handle 1: htb default 3"),
            htb(from, 1, rate, packet),
            htb(from, 2, rate, packet),
            htb(from, 3, rate, packet),
            code_point(from, HIGH, 1),
            code_point(from, LOW, 2),
        ] {
            run(&line).map_err(|error| error.to_string())?;
        }
        let cgroup = Path::new(&mount).join(&name);
        std::fs::create_dir(&cgroup).map_err(|error| error.to_string())?;
        Ok(Self { a, b, cgroup })
    }

    /// An agent with the class `high` for [`PORT`].
    pub(crate) fn agent(&self, text: &str, delay: Duration) -> Agent {
        let admission = Arc::new(Admission::from_text("t", text).unwrap());
        self.attach(admission, delay)
    }

    /// The same for an admission that the test changes.
    pub(crate) fn attach(&self, admission: Arc<Admission>, delay: Duration) -> Agent {
        let mut rules = Rules::default();
        rules.ports.insert(PORT, 0);
        let options = Options {
            cgroup: self.cgroup.clone(),
            rules,
            acknowledgement_delay: delay,
        };
        Agent::attach(admission, &options).expect("the kernel accepts the programs")
    }

    /// Packets so far.
    pub(crate) fn wire(&self) -> Wire {
        let text = run(&format!("tc -n {} -s class show dev v", self.a.name())).unwrap();
        let packets = |class: u8| -> u64 {
            let head = format!("class htb 1:{class} ");
            let line = text.lines().skip_while(|line| !line.starts_with(&head));
            let sent = line.skip(1).map(str::trim).next().unwrap();
            let words: Vec<&str> = sent.split(' ').collect();
            assert_eq!((words[0], words[4]), ("Sent", "pkt"), "{sent}");
            words[3].parse().unwrap()
        };
        Wire {
            high: packets(1),
            low: packets(2),
        }
    }

    /// Runs a client: `messages` of `bytes` in a closed loop, each answered by four bytes. While it runs, `agent` works.
    /// Returns the time of each message as the client saw it.
    pub(crate) fn client(
        &self,
        agent: &mut Agent,
        messages: u32,
        bytes: u32,
        how: &str,
    ) -> Vec<Duration> {
        self.client_with(agent, (messages, bytes), how, |_| {})
    }

    /// The same, with `turn` after each batch of messages.
    pub(crate) fn client_with(
        &self,
        agent: &mut Agent,
        (messages, bytes): (u32, u32),
        how: &str,
        mut turn: impl FnMut(&mut Agent),
    ) -> Vec<Duration> {
        let connections = if how == "many" { messages } else { 1 };
        let job = format!("server {connections} {how}");
        let cgroup = (how == "both").then_some(&*self.cgroup);
        let (mut server, mut said) = start(self.b.name(), cgroup, &job);
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let job = format!("client {messages} {bytes} {how}");
        let (mut client, mut said) = start(self.a.name(), Some(&self.cgroup), &job);
        let begin = Instant::now();
        while client.0.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < HANGING, "the client hangs");
            if agent.step(Duration::from_millis(10)).unwrap() > 0 {
                turn(agent);
            }
        }
        while agent.step(Duration::ZERO).unwrap() > 0 {}
        assert!(server.0.wait().unwrap().success());
        let mut text = String::new();
        said.read_to_string(&mut text).unwrap();
        let times = text.lines().filter_map(|line| line.strip_prefix("took "));
        let times: Vec<Duration> = times
            .map(|ns| Duration::from_nanos(ns.parse().unwrap()))
            .collect();
        assert_eq!(times.len(), messages as usize, "{text}");
        assert!(client.0.wait().unwrap().success(), "{text}");
        times
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.cgroup);
    }
}

fn htb(space: &str, class: u8, rate: &str, packet: u32) -> String {
    let burst = 2 * packet;
    format!(
        "tc -n {space} class add dev v parent 1: classid 1:{class} htb rate {rate} burst {burst} cburst {burst} quantum {packet}"
    )
}

fn code_point(space: &str, dscp: u8, class: u8) -> String {
    let field = u32::from(dscp) << 2;
    format!(
        "tc -n {space} filter add dev v parent 1: protocol ip prio 1 u32 match ip dsfield {field:#04x} 0xfc flowid 1:{class}"
    )
}

/// A child, which ends with the test.
struct Job(Child);

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts this program in a namespace with a job.
fn start(space: &str, cgroup: Option<&Path>, job: &str) -> (Job, BufReader<ChildStdout>) {
    let join = match cgroup {
        Some(path) => format!("echo $$ > {}/cgroup.procs && ", path.display()),
        None => String::new(),
    };
    let script =
        format!("{join}exec ip netns exec {space} \"$0\" --exact support::a_job_runs --nocapture");
    let mut child = command("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(JOB, job)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    let mut said = said;
    // The test harness prints its own lines before.
    let mut line = String::new();
    while !line.contains("begun") {
        line.clear();
        assert!(
            said.read_line(&mut line).unwrap() > 0,
            "the job {job:?} did not begin"
        );
    }
    (Job(child), said)
}

/// The job of a child; nothing in a test run.
#[test]
fn a_job_runs() {
    let Ok(job) = std::env::var(JOB) else { return };
    let words: Vec<&str> = job.split(' ').collect();
    match words[..] {
        ["server", connections, how] => serve(connections.parse().unwrap(), how),
        ["client", messages, bytes, how] => {
            call(messages.parse().unwrap(), bytes.parse().unwrap(), how);
        }
        _ => panic!("{job}"),
    }
}

fn serve(connections: u32, how: &str) {
    println!("\nbegun");
    let listener =
        TcpListener::bind((if how == "six" { "fd78::2" } else { "0.0.0.0" }, PORT)).unwrap();
    println!("listening");
    for _ in 0..connections {
        let (stream, _) = listener.accept().unwrap();
        answer(stream);
    }
}

fn answer(mut stream: TcpStream) {
    let mut head = [0; 4];
    while stream.read_exact(&mut head).is_ok() {
        let mut body = vec![0; u32::from_le_bytes(head) as usize];
        // A client that resets its connection ends the job.
        if stream.read_exact(&mut body).is_err() {
            return;
        }
        stream.write_all(&head).unwrap();
    }
}

/// An address of the server, another one for each of the first 65,536 numbers.
fn other(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 79, 0, 0)) + (number & 0xffff))
}

fn connected(to: Ipv4Addr, how: &str) -> TcpStream {
    let mapped = SocketAddr::new(to.to_ipv6_mapped().into(), PORT);
    let (family, to) = match how {
        "six" => (AddressFamily::INET6, "[fd78::2]:7001".parse().unwrap()),
        "mapped" => (AddressFamily::INET6, mapped),
        _ => (AddressFamily::INET, SocketAddr::new(to.into(), PORT)),
    };
    let socket = socket(family, SocketType::STREAM, None).unwrap();
    if how == "marked" {
        set_ip_tos(&socket, 0x28).unwrap();
    }
    if matches!(how, "bbr" | "cubic") {
        set_tcp_congestion(&socket, how).unwrap();
    }
    connect(&socket, &to).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true).unwrap();
    // A write never waits for room, so that a message is written at once.
    set_socket_send_buffer_size(&stream, 1 << 20).unwrap();
    if how == "marks" {
        set_ip_tos(&stream, 0x28).unwrap();
    }
    stream
}

fn call(messages: u32, bytes: u32, how: &str) {
    println!("\nbegun");
    let server = Ipv4Addr::new(10, 78, 0, 2);
    let mut stream = connected(if how == "many" { other(0) } else { server }, how);
    let mut message = (bytes - 4).to_le_bytes().to_vec();
    message.resize(bytes as usize, 7);
    for turn in 0..messages {
        if how == "many" && turn > 0 {
            stream = connected(other(turn), how);
        }
        let begin = Instant::now();
        stream.write_all(&message).unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
        println!("took {}", begin.elapsed().as_nanos());
    }
    if how == "waits" {
        // The answer is acknowledged within a fraction of a second, and this acknowledgement has the mark of the class.
        let begin = Instant::now();
        while ip_tos(&stream).unwrap() >> 2 != HIGH {
            assert!(begin.elapsed() < Duration::from_secs(30), "the mark stays");
            std::thread::yield_now();
        }
    }
    if how == "resets" {
        stream.write_all(&message).unwrap();
        set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    }
}
