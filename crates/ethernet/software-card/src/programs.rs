//! The unmodified programs of the testbed: iperf3 servers and clients, and ping.
//!
//! Method: each program runs in its namespace, on request bound to a processor, and ends with the thread that started
//! it (`setpriv --pdeathsig`). So a killed testbed leaves no program behind. Senders run until they are killed. A
//! sender that waits for a processor while others work leaves its socket empty, and its flow looks treated unfairly by
//! the card: so programs go before other work. Where the kernel divides processors among sessions (`autogroup`), `nice`
//! counts within one only, so each program has a session of its own, with its priority. Units: microseconds for round
//! trips; nanoseconds of processor time, where the kernel counts them. Limits: the text of iperf3 is not read:
//! everything is measured at the wire. Source: manuals of iperf3, ping and proc(5).

use crate::error::SoftNicError;
use crate::spaces::RECEIVER;
use isolane_common_linux::command::{command, package};
use isolane_common_linux::namespaces;
use isolane_common_quantities::units::{Bytes, Duration};
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;

/// First port of the servers.
const PORT: u16 = 5_201;
/// Longer than any study: senders are killed before.
const SEND_S: u32 = 86_400;
/// What a tick of `/proc/PID/stat` is.
const TICK_MS: u64 = 10;
/// Of the programs, as `nice` counts.
const PRIORITY: &str = "-15";
/// Gives the session its priority, `$0`, and runs what follows; where there are no such sessions, `nice` was enough.
const GO_FIRST: &str = r#"{ echo "$0" >/proc/self/autogroup; } 2>/dev/null; exec "$@""#;
/// What is kept of a program's words.
const WORDS_MAX: usize = 400;

/// A program that runs; killed when dropped.
#[derive(Debug)]
pub struct Program {
    line: String,
    child: Child,
    output: Option<JoinHandle<String>>,
}

impl Program {
    /// Starts `words` in the namespace `space`. Fails if a program is not there.
    pub fn start(
        space: &str,
        processor: Option<usize>,
        words: &[String],
    ) -> Result<Self, SoftNicError> {
        let mut line: Vec<String> = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "setsid",
            "nice",
            "-n",
            PRIORITY,
            "sh",
            "-c",
            GO_FIRST,
            PRIORITY,
            "ip",
            "netns",
            "exec",
            space,
        ]
        .map(str::to_owned)
        .to_vec();
        if let Some(processor) = processor {
            line.extend(["taskset".to_owned(), "-c".to_owned(), processor.to_string()]);
        }
        line.extend_from_slice(words);
        let started = command(&line[0])
            .args(&line[1..])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = started.map_err(|error| match error.kind() {
            ErrorKind::NotFound => SoftNicError::Machine(format!(
                "there is no `{0}` on PATH; install {1}",
                line[0],
                package(&line[0])
            )),
            _ => SoftNicError::Machine(format!("cannot run `{}`: {error}", line.join(" "))),
        })?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let output = std::thread::spawn(move || {
            let errors = std::thread::spawn(move || read_all(err));
            let mut text = read_all(out);
            text.push_str(&errors.join().unwrap_or_default());
            text
        });
        Ok(Self {
            line: words.join(" "),
            child,
            output: Some(output),
        })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// An error if it has ended. Fails if it has ended, with what it wrote last.
    pub fn must_run(&mut self) -> Result<(), SoftNicError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(SoftNicError::Program {
                program: self.line.clone(),
                problem: "ended early".to_owned(),
                words: last_words(&self.end()),
            }),
        }
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it, and returns what it wrote.
    pub fn end(&mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let output = self.output.take();
        output
            .and_then(|thread| thread.join().ok())
            .unwrap_or_default()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

fn read_all(from: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        // A killed program's pipe just ends.
        let _ = from.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn last_words(text: &str) -> String {
    let skipped = text.chars().count().saturating_sub(WORDS_MAX);
    text.trim().chars().skip(skipped).collect()
}

/// Flows that one pair of iperf3 processes carries, and on which processor its sender runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The sender's processor.
    pub processor: usize,
    /// Flows.
    pub flows: u32,
}

/// Deals flows out: half of the processors get twice as many as the other half (titan 6). Each flow has a process of its
/// own while there are few.
pub fn deal(flows: u32, processors: &[usize]) -> Vec<Share> {
    let order: Vec<usize> = (0..processors.len())
        .flat_map(|index| match index < processors.len().div_ceil(2) {
            true => vec![index; 2],
            false => vec![index],
        })
        .collect();
    let mut of = vec![0_u32; processors.len()];
    for flow in 0..flows as usize {
        of[order[flow % order.len()]] += 1;
    }
    let shares = of.iter().zip(processors);
    shares
        .flat_map(|(&flows, &processor)| {
            let own = flows_alone(flows, processors.len());
            let processes = if own { flows } else { flows.min(1) };
            (0..processes).map(move |_| Share {
                processor,
                flows: if own { 1 } else { flows },
            })
        })
        .collect()
}

/// Whether a processor's flows get a process each: more than a dozen processes in all switch more than they send.
fn flows_alone(flows: u32, processors: usize) -> bool {
    flows as usize * processors <= 16
}

/// Starts the servers. Fails if iperf3 is not there.
pub fn start_servers(receiver: &str, shares: &[Share]) -> Result<Vec<Program>, SoftNicError> {
    let server = |index| {
        let port = (PORT + index as u16).to_string();
        let words = ["iperf3", "-s", "-1", "-p", &port].map(str::to_owned);
        Program::start(receiver, None, &words)
    };
    (0..shares.len()).map(server).collect()
}

/// Starts the senders. Fails if iperf3 is not there.
pub fn start_senders(
    sender: &str,
    shares: &[Share],
    congestion: Option<&str>,
) -> Result<Vec<Program>, SoftNicError> {
    let client = |(index, share): (usize, &Share)| {
        let mut words = vec![
            "iperf3".to_owned(),
            "-c".to_owned(),
            RECEIVER.to_owned(),
            "-p".to_owned(),
            (PORT + index as u16).to_string(),
            "-t".to_owned(),
            SEND_S.to_string(),
            "-P".to_owned(),
            share.flows.to_string(),
            "-i".to_owned(),
            "0".to_owned(),
        ];
        if let Some(congestion) = congestion {
            words.extend(["-C".to_owned(), congestion.to_owned()]);
        }
        Program::start(sender, Some(share.processor), &words)
    };
    shares.iter().enumerate().map(client).collect()
}

/// Starts pings for this long. Fails if ping is not there.
pub fn start_ping(
    sender: &str,
    payload: Bytes,
    interval: Duration,
    length: Duration,
) -> Result<Program, SoftNicError> {
    let count = (length.as_secs_f64() / interval.as_secs_f64())
        .ceil()
        .max(1.0);
    let words = [
        "ping".to_owned(),
        "-n".to_owned(),
        "-s".to_owned(),
        payload.get().to_string(),
        "-i".to_owned(),
        format!("{:.6}", interval.as_secs_f64()),
        "-c".to_owned(),
        format!("{count:.0}"),
        "-W".to_owned(),
        "1".to_owned(),
        RECEIVER.to_owned(),
    ];
    Program::start(sender, None, &words)
}

/// Round trips in what ping wrote, microseconds.
pub fn round_trips_us(text: &str) -> Vec<f64> {
    let time = |line: &str| {
        let (_, rest) = line.split_once(" time=")?;
        let ms: f64 = rest.split_whitespace().next()?.parse().ok()?;
        Some(ms * 1_000.0)
    };
    text.lines().filter_map(time).collect()
}

/// How many sockets listen in the namespace `space`, seen through a process that was started there; none before it has
/// entered it, as it sees the machine's own sockets until then.
pub fn listening(process: u32, space: &str) -> usize {
    const LISTEN: &str = "0A";
    let number = |path: &Path| fs::metadata(path).map(|file| file.ino()).ok();
    let seen = number(Path::new(&format!("/proc/{process}/ns/net")));
    if seen.is_none() || seen != number(&namespaces::file(space)) {
        return 0;
    }
    ["tcp", "tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(format!("/proc/{process}/net/{table}")).ok())
        .map(|text| {
            let states = text
                .lines()
                .skip(1)
                .filter_map(|line| line.split_whitespace().nth(3));
            states.filter(|state| *state == LISTEN).count()
        })
        .sum()
}

/// Processor time of a process until now. Living threads are counted in nanoseconds where the scheduler counts them; the time
/// of threads that ended is in the process's ticks alone, so that the larger of both is right within a tick.
pub fn processor_time(process: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter();
    let of_thread = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    let living: u64 = threads.flatten().flatten().filter_map(of_thread).sum();
    Duration::from_ns(living).max(Duration::from_ms(processor_ticks(process) * TICK_MS))
}

/// The same in ticks, which every kernel counts.
fn processor_ticks(process: u32) -> u64 {
    const USER: usize = 11;
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after = text.rsplit_once(')').map_or("", |(_, after)| after);
    let words: Vec<&str> = after.split_whitespace().collect();
    let number = |index: usize| words.get(index).and_then(|word| word.parse::<u64>().ok());
    number(USER).unwrap_or(0) + number(USER + 1).unwrap_or(0)
}

/// A counter of the namespace of a process, from `/proc/PID/net/snmp` or `netstat`: `Tcp`, `RetransSegs`.
pub fn kernel_counter(process: u32, group: &str, name: &str) -> Option<u64> {
    let tables = ["snmp", "netstat"];
    let texts = tables.map(|table| fs::read_to_string(format!("/proc/{process}/net/{table}")));
    texts
        .iter()
        .flatten()
        .find_map(|text| find_counter(text, group, name))
}

/// Reads a counter from pairs of lines: names, then values.
fn find_counter(text: &str, group: &str, name: &str) -> Option<u64> {
    let prefix = format!("{group}:");
    let mut lines = text.lines().filter(|line| line.starts_with(&prefix));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|word| word == name)?;
    values.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_processors_get_twice_as_many_flows() {
        let per_processor = |flows, processors: &[usize]| {
            let shares = deal(flows, processors);
            let of = |processor| {
                let own = shares.iter().filter(|share| share.processor == processor);
                own.map(|share| share.flows).sum::<u32>()
            };
            processors
                .iter()
                .map(|processor| of(*processor))
                .collect::<Vec<_>>()
        };
        assert_eq!(per_processor(3, &[0, 1]), [2, 1]);
        assert_eq!(per_processor(12, &[0, 1]), [8, 4]);
        assert_eq!(per_processor(48, &[0, 1]), [32, 16]);
        assert_eq!(per_processor(12, &[0, 1, 2, 3]), [4, 4, 2, 2]);
        assert_eq!(per_processor(5, &[3]), [5]);
        assert_eq!(deal(48, &[0, 1]).len(), 2, "one process a processor");
        assert_eq!(deal(3, &[0, 1]).len(), 3, "one process a flow");
    }

    #[test]
    fn round_trips_are_read_from_what_ping_writes() {
        let text = "PING 10.98.0.2 (10.98.0.2) 1000(1028) bytes of data.\n\
                    1008 bytes from 10.98.0.2: icmp_seq=1 ttl=64 time=0.345 ms\n\
                    1008 bytes from 10.98.0.2: icmp_seq=2 ttl=64 time=12.0 ms\n\n--- statistics ---\n";
        assert_eq!(round_trips_us(text), [345.0, 12_000.0]);
    }

    #[test]
    fn sockets_of_another_namespace_do_not_count() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        assert!(listener.local_addr().is_ok(), "one listens here");
        assert_eq!(listening(std::process::id(), "isolane-no-such-space"), 0);
    }

    #[test]
    fn processor_time_of_a_thread_that_ended_still_counts() {
        let own = std::process::id();
        let work = || (0..20_000_000_u64).fold(0, |sum: u64, n| std::hint::black_box(sum ^ n));
        let target = processor_time(own) + Duration::from_ms(4 * TICK_MS);
        // More than a tick each time or two, in any build.
        let is_reached = (0..20).any(|_| {
            std::thread::spawn(work).join().expect("it counts");
            processor_time(own) >= target
        });
        assert!(is_reached, "{:?} of {target:?}", processor_time(own));
        assert_eq!(processor_time(u32::MAX), Duration::ZERO);
    }

    #[test]
    fn counters_are_found_by_name() {
        let text = "Ip: A B\nIp: 1 2\nTcp: X RetransSegs InCsumErrors\nTcp: 1 22 0\n";
        assert_eq!(find_counter(text, "Tcp", "RetransSegs"), Some(22));
        assert_eq!(find_counter(text, "Tcp", "No"), None);
        assert_eq!(find_counter("", "Tcp", "X"), None);
    }
}
