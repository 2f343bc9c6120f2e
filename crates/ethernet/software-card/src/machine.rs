//! A study whose sender is a virtual machine: a stock kernel, its virtio driver and its queueing disciplines over the card.
//!
//! Problem: over TUN no discipline acts and no byte limit, since a frame counts as sent when it is read. Method: the card is the
//! machine's own, by vhost-user, and returns a frame when its last packet has left. The machine is the lab's, which runs the
//! script `card_study.py`; the script prints a line when its flows are warm and one at the end, between which the wire is
//! recorded. Processor time, pings and the bytes in the driver's rings come from the machine. Every round runs each
//! configuration once. Units: the types say them. Limits: the machine is emulated, so its processor time compares
//! configurations and nothing else; the card serves its queues in turn. Source: titan 6 (methodology).

use crate::card::Discipline;
use crate::error::SoftNicError;
use crate::nic::{Nic, NicOptions};
use crate::programs::Program;
use crate::record::{self, WireRecord};
use crate::spaces::{self, Pair};
use crate::vhost::Vhost;
use isolane_common_linux::command::command;
use isolane_common_quantities::units::{BitRate, Duration};
use isolane_study_results::ethernet::{NIC_RESULT_VERSION, NicResult};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

/// What a result says, with the reason, if the programs stepped aside in its run.
const ASIDE: &str = "queue assignment: the programs stepped aside";
/// Bytes of the largest IP packet on the wire.
const MTU: u32 = 1_500;
/// Least time between two deliveries.
const INTERRUPT_US: u64 = 100;
/// What a boot takes at most on a busy machine, and a run beside its warm-up and its measurement, seconds.
const BOOT_S: u64 = 300;
const AROUND_RUN_S: u64 = 60;
/// How often a wait looks whether it is interrupted.
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);
/// What is kept of the machine's words for an error.
const WORDS_MAX: usize = 10;

/// Which configurations run in the virtual machine, how often, and over which card.
#[derive(Clone, Debug)]
pub struct MachineStudy<'a> {
    /// The directory of `vm` and `card_study.py`.
    pub lab: PathBuf,
    /// The program `isolane` that the machine attaches.
    pub isolane: PathBuf,
    /// Queueing disciplines, also with `+titan` or `+isolane` behind them.
    pub configs: Vec<String>,
    /// TCP flows of iperf3 that last as long as a run.
    pub flows: u32,
    /// Times that each configuration runs.
    pub rounds: u64,
    /// Transmit queues of the card, at least 2.
    pub queues: u16,
    /// Rate of the wire, with the overhead of Ethernet.
    pub rate: BitRate,
    /// Time before each measurement.
    pub warmup: Duration,
    /// Time of each measurement, after the warm-up.
    pub duration: Duration,
    /// Set from outside to end the study.
    pub interrupted: &'a AtomicBool,
}

/// Runs the study; `ended` gets each run, in order. A run's seed is its round. Fails if this machine lacks a part, or a program in
/// the virtual machine fails. Nothing is left behind.
pub fn run(study: &MachineStudy<'_>, ended: &mut dyn FnMut(NicResult)) -> Result<(), SoftNicError> {
    let mut bed = Bed::build(study)?;
    let all = study.configs.len() * study.rounds as usize;
    let mut runs = 0;
    let mut words: Vec<String> = Vec::new();
    let lines = bed.machine.lines()?;
    loop {
        if study.interrupted.load(Ordering::Relaxed) {
            return Err(SoftNicError::Interrupted);
        }
        let line = match lines.recv_timeout(LOOK) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if line == "card done" {
            ended(bed.measured.take().ok_or_else(|| invalid(&line))?);
            runs += 1;
        } else if !bed.follow(study, &line)? {
            words.push(line);
            words.drain(..words.len().saturating_sub(WORDS_MAX));
        }
    }
    // A signal from a terminal may have ended the machine first.
    if study.interrupted.load(Ordering::Relaxed) {
        return Err(SoftNicError::Interrupted);
    }
    let status = bed.machine.0.wait().ok();
    if !status.is_some_and(|status| status.success()) || runs != all {
        return Err(SoftNicError::Program {
            program: "lab/vm".to_owned(),
            problem: format!("ended after {runs} of {all} runs"),
            words: words.join("; "),
        });
    }
    Ok(())
}

fn invalid(line: &str) -> SoftNicError {
    SoftNicError::Program {
        program: "lab/card_study.py".to_owned(),
        problem: "printed an invalid line".to_owned(),
        words: line.to_owned(),
    }
}

struct Bed {
    // The order of the fields is that of the removal.
    machine: Machine,
    _server: Program,
    nic: Nic,
    _directory: Directory,
    _pair: Pair,
    began: Option<(String, u64)>,
    /// The run whose pings and last lines are to come.
    measured: Option<NicResult>,
}

impl Bed {
    fn build(study: &MachineStudy<'_>) -> Result<Self, SoftNicError> {
        let vm = study.lab.join("vm");
        if !vm.exists() {
            return Err(SoftNicError::Input(format!(
                "--lab {}: there is no program `vm`; name the directory `lab` of a checkout of Isolane",
                study.lab.display()
            )));
        }
        let pair = Pair::make()?;
        let to = spaces::open_receiver(pair.receiver(), MTU)?;
        let directory = Directory::make()?;
        let socket = directory.0.join("card");
        let card = Vhost::listen(&socket, study.queues)?;
        let options = NicOptions {
            rate: study.rate,
            discipline: Discipline::RoundRobin,
            interrupt: Duration::from_us(INTERRUPT_US),
            complete_checksums: false,
            processor: None,
        };
        let nic = Nic::start_from(card, to, options, None)?;
        let words = ["iperf3", "-s"].map(str::to_owned);
        Ok(Self {
            machine: Machine::start(study, &vm, &socket)?,
            _server: Program::start(pair.receiver(), None, &words)?,
            nic,
            _directory: directory,
            _pair: pair,
            began: None,
            measured: None,
        })
    }

    /// Does what a line of the machine's script demands; false if it is something else.
    fn follow(&mut self, study: &MachineStudy<'_>, line: &str) -> Result<bool, SoftNicError> {
        let invalid = || invalid(line);
        if let Some(rest) = line.strip_prefix("card begin ") {
            let (round, name) = rest.split_once(' ').ok_or_else(invalid)?;
            let round = round.parse().map_err(|_| invalid())?;
            self.nic.record()?;
            self.began = Some((name.to_owned(), round));
        } else if let Some(json) = line.strip_prefix("card end ") {
            let recorded = self.nic.recorded()?;
            let (record, length) = recorded.ok_or_else(invalid)?;
            let (name, round) = self.began.take().ok_or_else(invalid)?;
            let figures: BTreeMap<String, f64> =
                serde_json::from_str(json).map_err(|_| invalid())?;
            let mut result = result(study, &record, length, name, round);
            result.cpu_percent = *figures.get("cpu_percent").ok_or_else(invalid)?;
            let most = *figures.get("ring_bytes_max").ok_or_else(invalid)?;
            result.queue_bytes_max = vec![most as u64];
            self.measured = Some(result);
        } else if let Some(json) = line.strip_prefix("card pings ") {
            let times: Vec<f64> = serde_json::from_str(json).map_err(|_| invalid())?;
            let us: Vec<f64> = times.iter().map(|ms| ms * 1_000.0).collect();
            self.measured.as_mut().ok_or_else(invalid)?.ping_us = record::quantiles(&us);
        } else if let Some(json) = line.strip_prefix("card events ") {
            let events: BTreeMap<String, u64> =
                serde_json::from_str(json).map_err(|_| invalid())?;
            let result = self.measured.as_mut().ok_or_else(invalid)?;
            result.counts.extend(events);
        } else if let Some(reason) = line.strip_prefix("card aside ") {
            let result = self.measured.as_mut().ok_or_else(invalid)?;
            result.not_done.push(format!("{ASIDE}: {reason}"));
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}

fn result(
    study: &MachineStudy<'_>,
    record: &WireRecord,
    length: Duration,
    config: String,
    round: u64,
) -> NicResult {
    let sent = record::sent(record, study.flows, length, study.rate);
    let line = study.rate.as_gbps_f64();
    let mut not_done = Vec::new();
    crate::plan::note_rate(line, sent.wire_gbps, &mut not_done);
    NicResult {
        version: NIC_RESULT_VERSION,
        testbed: "vhost".to_owned(),
        config,
        flows: study.flows,
        seed: round,
        measured_s: length.as_secs_f64(),
        throughput_gbps: sent.flow_gbps.iter().sum(),
        cpu_percent: 0.0,
        ping_us: None,
        nfm_1ms: sent.nfm_1ms,
        nfm_1s: sent.nfm_1s,
        flow_gbps: sent.flow_gbps,
        queue_bytes: Vec::new(),
        queue_bytes_max: Vec::new(),
        completion_ms: None,
        counts: BTreeMap::from([("moves".to_owned(), sent.moves)]),
        not_done,
    }
}

/// The virtual machine; ended when dropped.
struct Machine(Child);

impl Machine {
    fn start(study: &MachineStudy<'_>, vm: &Path, socket: &Path) -> Result<Self, SoftNicError> {
        let seconds = |duration: Duration| format!("{}", duration.as_secs_f64());
        let runs = study.configs.len() as u64 * study.rounds;
        let run_s = (study.warmup + study.duration).as_secs_f64().ceil() as u64 + AROUND_RUN_S;
        let script = study.lab.join("card_study.py");
        let mut words = vec![
            script.display().to_string(),
            study.isolane.display().to_string(),
            study.flows.to_string(),
            seconds(study.warmup),
            seconds(study.duration),
            study.rounds.to_string(),
        ];
        words.extend(study.configs.iter().cloned());
        let started = command("setpriv")
            .args(["--pdeathsig", "TERM"])
            .arg(vm)
            .args(["--timeout", &(BOOT_S + runs * run_s).to_string()])
            .arg("--vhost")
            .arg(format!("{},{}", socket.display(), study.queues))
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        started
            .map(Self)
            .map_err(|error| SoftNicError::Machine(format!("running {}: {error}", vm.display())))
    }

    /// What it prints, line by line, until it ends.
    fn lines(&mut self) -> Result<Receiver<String>, SoftNicError> {
        let output = self.0.stdout.take().expect("it is piped, and taken once");
        let (sender, lines) = channel();
        std::thread::Builder::new()
            .name("lab-vm".to_owned())
            .spawn(move || {
                let mut read = BufReader::new(output).lines().map_while(Result::ok);
                // A study that has ended reads no more.
                let _ = read.try_for_each(|line| sender.send(line));
            })
            .map_err(|error| SoftNicError::Machine(format!("starting a thread: {error}")))?;
        Ok(lines)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(process) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            // `lab/vm` ends its machine and removes its files at this signal.
            let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

/// A directory of this process, removed when dropped.
struct Directory(PathBuf);

impl Directory {
    fn make() -> Result<Self, SoftNicError> {
        let path = std::env::temp_dir().join(format!("isolane-card-{}", std::process::id()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| SoftNicError::Machine(format!("making {}: {error}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
