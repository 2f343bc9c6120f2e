//! One run of `isolaned`'s deciding part with processes that come, send, end and reconnect, by a seed.
//!
//! Method: the governor, its policies and the shared memory are the product's. This module is its event loop, with a
//! simulated clock, and the processes, which draw credit from their leases as the preload library does. Faults: the
//! daemon is killed or stops for a time, wake-ups and ends of connections are noticed late, processes are killed, the
//! configuration is loaded again with other rates and weights, peers report, and reference messages are late. Enforcers
//! (`enforcer.rs`) come, limit tenants over a socket, and are killed. After each
//! step the leases in the shared memory must keep the invariants. At the end faults stop, and tenants must share
//! each device by weight. Units: nanoseconds, bytes. Limits: processes have no sockets and no queue pairs; both directions are
//! opened, one is used.

mod checks;
mod enforcer;
mod event_loop;
mod processes;

use crate::Broken;
use enforcer::{Door, Enforcer};
use event_loop::Daemon;
use isolane_common_linux::account::Account;
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::BitRate;
use isolane_rdma_policy::RemoteState;
use isolane_rdma_session::message::Class;
use isolaned::config::{Config, DeviceConfig, TenantConfig};
use isolaned::governor::{Governor, SessionKey};
use isolaned::identity::Who;
use processes::Process;

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Nothing.
    None,
    /// The event loop does not report the end of some processes.
    ForgetsDeparture,
    /// The event loop reports the time of an earlier moment.
    StaleClock,
    /// A process ignores the end of its lease.
    IgnoresEnd,
    /// The event loop does not pass on a configuration that is loaded again.
    LosesReload,
    /// The event loop keeps the limits of an enforcer that has ended.
    KeepsLimits,
    /// The event loop loses some of an enforcer's messages.
    LosesLimits,
}

crate::counts! {
    /// Steps.
    steps,
    /// Sessions.
    sessions,
    /// Kills of the daemon and of processes.
    kills,
    /// Times that the daemon stopped.
    stops,
    /// Readings of active leases.
    leases,
    /// Enforcers.
    enforcers,
    /// Readings of leases under an enforcer's limit.
    limited,
}

const MS: u64 = 1_000_000;
/// The clock at the start: a machine that has run for some time.
const BEGIN_NS: u64 = 77_000 * MS;
/// Time with faults, without faults, and the part of the latter in which shares are measured.
const FAULTY_NS: u64 = 4_000 * MS;
const CALM_NS: u64 = 1_200 * MS;
const MEASURED_NS: u64 = 500 * MS;
/// Most processes at a time.
const PROCESSES_MAX: usize = 10;
/// Devices and their rates, megabits per second.
const DEVICES: [(&str, u64); 2] = [("rxe0", 80), ("rxe1", 800)];
/// Tenants, the operator's weights at the start.
const TENANTS: [(&str, u32); 3] = [("one", 1), ("two", 2), ("four", 4)];
/// Longest time of a step, and by which the event loop is late.
const STEP_MAX_NS: u64 = 800_000;
const LATE_MAX_NS: u64 = 30 * MS;
/// Longest time until an end is noticed, until a daemon starts again, and for which a daemon stops.
const NOTICE_MAX_NS: u64 = 50 * MS;
const DOWN_MAX_NS: u64 = 600 * MS;
const STOP_MAX_NS: u64 = 3_000 * MS;
/// A sender has a lease after this time, if the daemon runs: far above the event loop's delays, and the grace.
const HELD_WITHIN_NS: u64 = 300 * MS;
/// An active lease ends within this time after the daemon's last call: it is valid for a second, and the preload library
/// waits for 0.2 s more.
const ENDS_WITHIN_NS: u64 = 1_300 * MS;
/// The daemon knows an enforcer's limits, and that an enforcer has ended, this long after each: an enforcer and the event loop
/// run every few ms, and are late by at most 30 ms.
const TOLD_WITHIN_NS: u64 = 300 * MS;
/// What the stale clock is behind.
const STALE_NS: u64 = 1_300 * MS;
/// Parts of a tenant's due share that it must get in the calm time, percent.
const DUE_PERCENT: u64 = 85;

struct World {
    stream: Stream,
    /// Draws of enforcers.
    enforcing: Stream,
    door: Door,
    enforcer: Option<Enforcer>,
    /// When the last enforcer ended.
    enforced_ns: u64,
    defect: Defect,
    now_ns: u64,
    config: Config,
    daemon: Option<Daemon>,
    starts_ns: u64,
    processes: Vec<Process>,
    started: u32,
    report: Report,
}

/// Runs one seed. The error is the first broken invariant.
pub fn run(seed: u64, defect: Defect) -> Result<Report, Broken> {
    let mut world = World {
        stream: Stream::named(seed, "daemon"),
        enforcing: Stream::named(seed, "enforcer"),
        door: Door::open(),
        enforcer: None,
        enforced_ns: BEGIN_NS,
        defect,
        now_ns: BEGIN_NS,
        config: config(TENANTS.map(|(_, weight)| weight), 1),
        daemon: None,
        starts_ns: BEGIN_NS,
        processes: Vec::new(),
        started: 0,
        report: Report::default(),
    };
    let played = world.play();
    let place = format!("{} ms", (world.now_ns - BEGIN_NS) / MS);
    played.map_err(|what| Broken::of("daemon", seed, place, what))?;
    Ok(world.report)
}

/// Rates are divided by `slower`.
fn config(weights: [u32; TENANTS.len()], slower: u64) -> Config {
    let device = |(name, mbps): (&str, u64)| DeviceConfig {
        name: name.to_owned(),
        rate: Some(BitRate::from_bps(mbps * 1_000_000 / slower)),
        ..DeviceConfig::default()
    };
    let tenant = |((name, _), weight): ((&str, u32), u32)| TenantConfig {
        name: name.to_owned(),
        weight,
    };
    Config {
        devices: DEVICES.map(device).to_vec(),
        tenants: TENANTS.into_iter().zip(weights).map(tenant).collect(),
        trust_names: true,
        own_names_max: 64,
        ..Config::default()
    }
}

fn port_rates() -> Vec<BitRate> {
    vec![BitRate::from_gbps(10); DEVICES.len()]
}

impl World {
    fn play(&mut self) -> Result<(), String> {
        while self.now_ns < BEGIN_NS + FAULTY_NS {
            self.now_ns += 1 + self.stream.below(STEP_MAX_NS);
            self.fault();
            self.step()?;
        }
        self.become_calm();
        let measured_ns = BEGIN_NS + FAULTY_NS + CALM_NS - MEASURED_NS;
        while self.now_ns < measured_ns {
            self.now_ns += STEP_MAX_NS / 2;
            self.step()?;
        }
        let before: Vec<u64> = self.processes.iter().map(|process| process.sent).collect();
        while self.now_ns < measured_ns + MEASURED_NS {
            self.now_ns += STEP_MAX_NS / 2;
            self.step()?;
        }
        self.check_shares(&before)?;
        self.end()
    }

    fn is_calm(&self) -> bool {
        self.now_ns >= BEGIN_NS + FAULTY_NS
    }

    /// A delay of at most `most`; none in calm times.
    fn late(&mut self, most_ns: u64) -> u64 {
        match self.is_calm() {
            true => 0,
            false => self.stream.below(most_ns),
        }
    }

    /// One step of every process, of the daemon, and of the invariants.
    fn step(&mut self) -> Result<(), String> {
        self.report.steps += 1;
        if self.daemon.is_none() && self.now_ns >= self.starts_ns {
            self.start();
        }
        self.connect();
        let mut woken = Vec::new();
        for process in &mut self.processes {
            process.send(self.now_ns, self.defect == Defect::IgnoresEnd);
            if process.wakes(self.now_ns) {
                woken.extend(process.key);
            }
        }
        if let Some(enforcer) = &mut self.enforcer {
            enforcer.step(self.now_ns, &self.processes);
        }
        self.run_daemon(woken);
        self.check()
    }

    fn start(&mut self) {
        let governor = Governor::new(self.config.clone(), port_rates(), self.now_ns);
        let governor = governor.expect("valid options");
        self.daemon = Some(Daemon::new(governor, self.now_ns));
    }

    /// Processes without a session connect, if a daemon answers.
    fn connect(&mut self) {
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        if self.now_ns < daemon.stopped_until_ns {
            return;
        }
        for process in &mut self.processes {
            if process.key.is_some() || self.now_ns < process.connects_ns {
                continue;
            }
            let who = Who {
                pid: process.number,
                user: 1_000,
                account: Account::of_user(1_000),
                cgroup: String::new(),
                claim: TENANTS[process.tenant].0.to_owned(),
                program: "test".to_owned(),
                class: Class::Bandwidth,
                weight: 1,
            };
            let begun = daemon
                .governor
                .arrive(self.now_ns, who)
                .expect("room for it");
            let device = DEVICES[process.device].0;
            let meters = daemon.governor.open(self.now_ns, begun.key, device);
            process.connected(begun.key, &begun.memory, meters[0], self.now_ns);
            daemon.called_ns = self.now_ns;
            daemon.sessions.insert(begun.session);
            daemon.numbers.insert(begun.key, begun.session);
            self.report.sessions += 1;
        }
    }

    /// Lets the event loop do what is due, unless it is late or stopped.
    fn run_daemon(&mut self, woken: Vec<SessionKey>) {
        let late_ns = self.late(LATE_MAX_NS);
        let is_late = self.stream.chance(1, 50);
        let latency_us = match self.is_calm() {
            true => 1,
            false => 1 + self.stream.below(400),
        };
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        daemon.wakes.extend(woken);
        if is_late {
            daemon.due_ns = daemon.due_ns.max(self.now_ns + late_ns);
        }
        if self.now_ns < daemon.due_ns.max(daemon.stopped_until_ns) {
            return;
        }
        let now_ns = match self.defect {
            Defect::StaleClock => self.now_ns.saturating_sub(STALE_NS).max(BEGIN_NS),
            _ => self.now_ns,
        };
        daemon.hear_enforcer(&self.door, self.defect);
        daemon.run(now_ns, self.now_ns, latency_us);
    }

    fn fault(&mut self) {
        match self.stream.below(1_000) {
            0..=9 if self.processes.len() < PROCESSES_MAX => {
                let (tenant, device) = (self.stream.below(3), self.stream.below(2));
                self.begin(tenant as usize, device as usize);
            }
            10..=15 if !self.processes.is_empty() => {
                let at = self.stream.below(self.processes.len() as u64) as usize;
                self.kill(at);
            }
            20..=59 if !self.processes.is_empty() => {
                let at = self.stream.below(self.processes.len() as u64) as usize;
                self.processes[at].is_hungry ^= true;
            }
            60 => self.kill_daemon(),
            61 => {
                let until = self.now_ns + self.stream.below(STOP_MAX_NS);
                if let Some(daemon) = &mut self.daemon {
                    daemon.stopped_until_ns = until;
                    self.report.stops += 1;
                }
            }
            62..=64 => {
                let weights = [(); 3].map(|()| 1 + self.stream.below(4) as u32);
                let slower = 1 + self.stream.below(4);
                self.reload(config(weights, slower));
            }
            65..=70 => {
                let weights = [(); 6].map(|()| self.stream.below(5));
                let device = self.stream.below(2) as usize;
                self.remote(device, RemoteState::of(weights, BitRate::ZERO));
            }
            71 if self.enforcer.is_none() => {
                let enforcer = Enforcer::start(&self.door, &mut self.enforcing, self.now_ns);
                self.enforcer = Some(enforcer);
                self.report.enforcers += 1;
            }
            72 if self.enforcing.chance(1, 4) => self.kill_enforcer(),
            _ => {}
        }
    }

    fn kill_enforcer(&mut self) {
        if self.enforcer.take().is_some() {
            self.enforced_ns = self.now_ns;
            self.report.kills += 1;
        }
    }

    fn begin(&mut self, tenant: usize, device: usize) {
        self.started += 1;
        self.processes
            .push(Process::new(self.started, tenant, device));
    }

    /// A process is killed; the daemon notices later.
    fn kill(&mut self, at: usize) {
        let process = self.processes.swap_remove(at);
        let noticed_ns = self.now_ns + self.late(NOTICE_MAX_NS);
        let forgets = self.defect == Defect::ForgetsDeparture && self.stream.chance(1, 3);
        if let (Some(daemon), Some(key)) = (&mut self.daemon, process.key) {
            match forgets {
                true => daemon.forgets(key),
                false => _ = daemon.ends.insert(key, noticed_ns),
            }
        }
        self.report.kills += 1;
    }

    /// The daemon is killed; processes notice later, and connect to the next one.
    fn kill_daemon(&mut self) {
        if self.daemon.take().is_none() {
            return;
        }
        self.report.kills += 1;
        if let Some(enforcer) = &mut self.enforcer {
            // It learns that at its next step, and the next daemon may be there before.
            enforcer.heeded_ns = None;
        }
        self.starts_ns = self.now_ns + self.late(DOWN_MAX_NS);
        for at in 0..self.processes.len() {
            let noticed_ns = self.now_ns + self.late(NOTICE_MAX_NS);
            self.processes[at].loses_daemon(noticed_ns);
        }
    }

    fn reload(&mut self, config: Config) {
        let Some(daemon) = &mut self.daemon else {
            self.config = config;
            return;
        };
        if self.now_ns < daemon.stopped_until_ns {
            return;
        }
        self.config = config.clone();
        if self.defect != Defect::LosesReload {
            let done = daemon
                .governor
                .reconfigure(self.now_ns, config, port_rates());
            done.expect("valid options");
            daemon.called_ns = self.now_ns;
        }
        daemon.due_ns = self.now_ns;
    }

    fn remote(&mut self, device: usize, state: RemoteState) {
        if let Some(daemon) = &mut self.daemon
            && self.now_ns >= daemon.stopped_until_ns
        {
            daemon.governor.remote(self.now_ns, device, state);
            daemon.called_ns = self.now_ns;
            daemon.due_ns = self.now_ns;
        }
    }

    /// Ends the faults: a daemon with its first configuration, and senders of every tenant on every device.
    fn become_calm(&mut self) {
        self.kill_enforcer();
        self.kill_daemon();
        self.config = config(TENANTS.map(|(_, weight)| weight), 1);
        for process in &mut self.processes {
            process.is_hungry = false;
        }
        for tenant in 0..TENANTS.len() {
            for device in 0..DEVICES.len() {
                self.begin(tenant, device);
            }
        }
    }

    /// All processes end, and nothing is left.
    fn end(&mut self) -> Result<(), String> {
        while !self.processes.is_empty() {
            self.kill(0);
        }
        for _ in 0..1_000 {
            self.now_ns += STEP_MAX_NS;
            self.step()?;
        }
        let daemon = self
            .daemon
            .as_mut()
            .ok_or("no daemon after the calm time")?;
        let snapshot = daemon.governor.snapshot(self.now_ns);
        let left = (snapshot.sessions.len(), snapshot.tenants.len());
        match left == (0, 0) && daemon.governor.next_deadline_ns().is_none() {
            true => Ok(()),
            false => Err(format!("{left:?} sessions and tenants are left")),
        }
    }
}
