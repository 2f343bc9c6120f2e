//! One run: starts workers, exchanges their addresses, starts traffic at one time, and collects results.
//!
//! Method: one worker per tenant and host, prepared with its [`Job`], connected to its peers, started with the same
//! delay, counted from one moment. Posting workers report when their time is over. Then the controller sends the
//! measured window to the passive workers, so both ends count the same time. The devices' counters are read at the beginning of the
//! measured time and shortly before its end: senders stop there, and a busy machine reads late.
//!
//! Limits: the start is as common as the messages are fast: microseconds apart on one machine, half a round trip
//! between machines; the warm-up covers it. Every step has a time-out, and a worker that ends early fails the run.

use crate::error::VerbsError;
use crate::fleet::Fleet;
use crate::message::{Event, Paced, Pacing, Request};
use isolane_rdma_scenario::model::{Host, Scenario};
use isolane_rdma_traffic::worker::{
    FailureKind, FromWorker, Options, Plan, Prepared, Report, ToWorker, connect, plan,
};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How long workers may take to register memory and make queue pairs.
const PREPARING: Duration = Duration::from_secs(120);
/// How long they may take to connect.
const CONNECTING: Duration = Duration::from_secs(60);
/// Time from the word to start until traffic begins: every worker has read it by then.
const LEAD: Duration = Duration::from_millis(300);
/// Part of the measured time, one over the number, by which the last reading of the counters may be late.
const LATE: u32 = 8;
/// How much later than planned a report may come.
const REPORTING: Duration = Duration::from_secs(30);
/// How long a passive worker may take to report, and any worker to end.
const ENDING: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// Per tenant, by host.
    pub(crate) reports: Vec<BTreeMap<Host, Report>>,
    /// Counters of the hosts' devices over most of the measured time.
    pub(crate) counters: BTreeMap<Host, Counted>,
}

/// By how much counters rose.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    /// In so many seconds.
    pub(crate) seconds: f64,
    /// By name.
    pub(crate) rises: BTreeMap<String, u64>,
}

/// The stage of a run, for a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The controller requests the list of devices from each machine.
    Connecting,
    /// Short runs find out what the devices can do.
    Calibrating,
    /// Workers make queue pairs and memory.
    Preparing,
    /// A daemon of the run's own begins to serve the devices.
    Pacing,
    /// Traffic runs for so long, warm-up included.
    Running(Duration),
    /// Workers report.
    Collecting,
}

/// One worker.
struct Member {
    tenant: usize,
    host: Host,
    link: usize,
    id: u32,
    posts: bool,
    prepared: Option<Prepared>,
    connected: bool,
    report: Option<Report>,
    ended: bool,
}

/// How long a daemon may take until it serves; its agent gives up before.
const PACING: Duration = Duration::from_secs(60);

/// A daemon and what it knows each tenant as, in the scenario's order.
#[derive(Clone, Debug)]
pub(crate) struct UnderDaemon {
    pub(crate) paced: Paced,
    pub(crate) tenants: Vec<Pacing>,
}

/// Runs `scenario` on `fleet`, under a daemon if one is named. Processes may still run after any result: the caller
/// clears the fleet.
pub(crate) fn conduct(
    fleet: &mut Fleet,
    scenario: &Scenario,
    under: Option<&UnderDaemon>,
    target: &str,
    cancel: &AtomicBool,
    stage: &(dyn Fn(Stage) + Sync),
) -> Result<Measured, VerbsError> {
    let plans = plans(fleet, scenario, target)?;
    if let Some(under) = under {
        stage(Stage::Pacing);
        pace(fleet, &under.paced, cancel)?;
    }
    stage(Stage::Preparing);
    let mut run = Run {
        names: scenario.tenants.iter().map(|t| t.name.clone()).collect(),
        members: Vec::new(),
        counted: BTreeMap::new(),
        fleet,
        cancel,
    };
    run.start(&plans, under);
    run.wait(PREPARING, "preparing", |member| member.prepared.is_some())?;
    run.connect(&plans, scenario, target)?;
    run.wait(CONNECTING, "connecting", |member| member.connected)?;
    let begin = Instant::now() + LEAD;
    for index in 0..run.members.len() {
        let left = begin.saturating_duration_since(Instant::now());
        let after_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        run.say(index, &ToWorker::Start { after_ns });
    }
    let [warmup, measured] =
        [scenario.warmup, scenario.duration].map(|time| Duration::from_nanos(time.as_ps() / 1000));
    stage(Stage::Running(LEAD + warmup + measured));
    run.listen_until(begin + warmup)?;
    run.read_counters();
    run.listen_until(begin + warmup + measured - measured / LATE)?;
    run.read_counters();
    run.listen_until(begin + warmup + measured)?;
    stage(Stage::Collecting);
    run.wait(REPORTING, "measuring", |member| {
        member.report.is_some() || !member.posts
    })?;
    run.stop_passive();
    run.wait(ENDING, "reporting", |member| member.report.is_some())?;
    for member in &run.members {
        let worker = member.id;
        run.fleet.send(member.link, &Request::Close { worker });
    }
    run.wait(ENDING, "ending", |member| member.ended)?;
    Ok(run.finish())
}

/// Starts a daemon on the first machine, the only one of a run under it.
fn pace(fleet: &mut Fleet, paced: &Paced, cancel: &AtomicBool) -> Result<(), VerbsError> {
    fleet.send(0, &Request::Pace(paced.clone()));
    let until = Instant::now() + PACING;
    let machine = fleet.machine(0).to_owned();
    loop {
        match fleet.event(until, cancel)? {
            Some((_, Event::Paced)) => return Ok(()),
            Some((_, Event::Failed { reason })) => {
                return Err(VerbsError::Agent { machine, reason });
            }
            Some(_) => {}
            None => {
                let reason = format!("its daemon does not serve after {} s", PACING.as_secs());
                return Err(VerbsError::Agent { machine, reason });
            }
        }
    }
}

/// Every tenant's jobs, with the places' ports and addresses.
fn plans(fleet: &Fleet, scenario: &Scenario, target: &str) -> Result<Vec<Plan>, VerbsError> {
    let devices = Host::ALL
        .into_iter()
        .zip(&fleet.posts)
        .map(|(host, post)| (host, post.device.clone()));
    let options = Options {
        devices: devices.collect(),
        ..Options::default()
    };
    let plans = scenario.tenants.iter().map(|tenant| {
        let mut plan = plan(scenario, tenant, &options).map_err(|error| VerbsError::Scenario {
            scenario: scenario.name.clone(),
            target: target.to_owned(),
            reason: error.to_string(),
        })?;
        for (host, job) in &mut plan.jobs {
            let post = &fleet.posts[host.index()];
            job.port = post.port;
            job.gid_index = post.gid_index.map(u32::from);
        }
        Ok(plan)
    });
    plans.collect()
}

struct Run<'a> {
    names: Vec<String>,
    members: Vec<Member>,
    /// The last answer per session and device.
    counted: BTreeMap<(usize, String), Counted>,
    fleet: &'a mut Fleet,
    cancel: &'a AtomicBool,
}

impl Run<'_> {
    fn start(&mut self, plans: &[Plan], under: Option<&UnderDaemon>) {
        for (tenant, plan) in plans.iter().enumerate() {
            for (host, job) in &plan.jobs {
                let id = self.fleet.next_worker();
                let link = self.fleet.posts[host.index()].link;
                self.members.push(Member {
                    tenant,
                    host: *host,
                    link,
                    id,
                    posts: job.posts(),
                    prepared: None,
                    connected: false,
                    report: None,
                    ended: false,
                });
                let pacing = under.map(|under| under.tenants[tenant].clone());
                let worker = id;
                self.fleet.send(link, &Request::Spawn { worker, pacing });
                self.say(
                    self.members.len() - 1,
                    &ToWorker::Job(Box::new(job.clone())),
                );
            }
        }
    }

    fn connect(
        &mut self,
        plans: &[Plan],
        scenario: &Scenario,
        target: &str,
    ) -> Result<(), VerbsError> {
        for (tenant, plan) in plans.iter().enumerate() {
            let of_tenant = self.members.iter().filter(|member| member.tenant == tenant);
            let prepared = of_tenant
                .filter_map(|member| Some((member.host, member.prepared.clone()?)))
                .collect();
            let mut peers = connect(plan, &prepared).map_err(|error| VerbsError::Scenario {
                scenario: scenario.name.clone(),
                target: target.to_owned(),
                reason: error.to_string(),
            })?;
            for index in 0..self.members.len() {
                let member = &self.members[index];
                if member.tenant == tenant {
                    let peers = peers.remove(&member.host).unwrap_or_default();
                    self.say(index, &ToWorker::Connect { peers });
                }
            }
        }
        Ok(())
    }

    /// Passive workers end, with the window that their tenant's posting workers measured.
    fn stop_passive(&mut self) {
        for index in 0..self.members.len() {
            if self.members[index].report.is_some() {
                continue;
            }
            let tenant = self.members[index].tenant;
            let mut of_tenant = self.members.iter().filter(|member| member.tenant == tenant);
            let window = of_tenant.find_map(|member| Some(member.report.as_ref()?.window));
            self.say(index, &ToWorker::Stop { window });
        }
    }

    fn say(&self, index: usize, message: &ToWorker) {
        let member = &self.members[index];
        let line = serde_json::to_string(message).expect("messages are plain data");
        let request = Request::Say {
            worker: member.id,
            line,
        };
        self.fleet.send(member.link, &request);
    }

    /// Sends one request per device, also when several hosts use the device.
    fn read_counters(&self) {
        let mut asked: Vec<(usize, &str)> = Vec::new();
        for post in &self.fleet.posts {
            if !asked.contains(&(post.link, &post.device)) {
                asked.push((post.link, &post.device));
                let request = Request::Counters {
                    device: post.device.clone(),
                    port: post.port,
                };
                self.fleet.send(post.link, &request);
            }
        }
    }

    /// Takes what comes until `until`.
    fn listen_until(&mut self, until: Instant) -> Result<(), VerbsError> {
        while let Some((link, event)) = self.fleet.event(until, self.cancel)? {
            self.take(link, event)?;
        }
        Ok(())
    }

    /// Takes what comes until `done` holds for every worker.
    fn wait(
        &mut self,
        patience: Duration,
        doing: &str,
        done: impl Fn(&Member) -> bool,
    ) -> Result<(), VerbsError> {
        let until = Instant::now() + patience;
        loop {
            let Some(missing) = self.members.iter().position(|member| !done(member)) else {
                return Ok(());
            };
            match self.fleet.event(until, self.cancel)? {
                Some((link, event)) => self.take(link, event)?,
                None => {
                    let reason = format!(
                        "its worker has been {doing} for {} s without an answer",
                        patience.as_secs()
                    );
                    return Err(self.traffic(missing, reason));
                }
            }
        }
    }

    fn take(&mut self, link: usize, event: Event) -> Result<(), VerbsError> {
        match event {
            Event::Said { worker, line } => match self.member(link, worker) {
                Some(index) => self.hear(index, &line),
                None => Ok(()),
            },
            Event::Ended {
                worker,
                how,
                complaint,
                ..
            } => match self.member(link, worker) {
                Some(index) => self.end(index, &how, &complaint),
                None => Ok(()),
            },
            Event::Counters {
                device,
                seconds,
                rises,
            } => {
                self.counted
                    .insert((link, device), Counted { seconds, rises });
                Ok(())
            }
            Event::Failed { reason } => Err(VerbsError::Agent {
                machine: self.fleet.machine(link).to_owned(),
                reason,
            }),
            Event::Welcome { .. } | Event::Paced | Event::Described { .. } | Event::Cleared => {
                Ok(())
            }
        }
    }

    fn member(&self, link: usize, worker: u32) -> Option<usize> {
        self.members
            .iter()
            .position(|member| member.link == link && member.id == worker)
    }

    fn hear(&mut self, index: usize, line: &str) -> Result<(), VerbsError> {
        let message = serde_json::from_str(line).map_err(|error| {
            let start: String = line.chars().filter(|c| !c.is_control()).take(100).collect();
            let reason = format!("its worker said {start:?}, which is no message: {error}");
            self.traffic(index, reason)
        })?;
        let member = &mut self.members[index];
        match message {
            FromWorker::Prepared(prepared) => member.prepared = Some(prepared),
            FromWorker::Connected => member.connected = true,
            FromWorker::Progress(_) => {}
            FromWorker::Report(report) => member.report = Some(*report),
            FromWorker::Failed(failure) => {
                let (tenant, place) = self.whose(index);
                let reason = failure.message;
                return Err(match failure.kind {
                    FailureKind::Job => VerbsError::Job {
                        tenant,
                        place,
                        reason,
                    },
                    FailureKind::Machine => VerbsError::Machine {
                        tenant,
                        place,
                        reason,
                    },
                    FailureKind::Traffic => VerbsError::Traffic {
                        tenant,
                        place,
                        reason,
                    },
                });
            }
        }
        Ok(())
    }

    fn end(&mut self, index: usize, how: &str, complaint: &str) -> Result<(), VerbsError> {
        let member = &mut self.members[index];
        member.ended = true;
        if member.report.is_some() {
            return Ok(());
        }
        let said = match complaint.is_empty() {
            true => String::new(),
            false => format!(": {complaint}"),
        };
        let reason = format!("its worker ended before its report, with {how}{said}");
        Err(self.traffic(index, reason))
    }

    fn whose(&self, index: usize) -> (String, String) {
        let member = &self.members[index];
        let post = &self.fleet.posts[member.host.index()];
        (
            self.names[member.tenant].clone(),
            format!("host {} ({})", member.host.letter(), post.words),
        )
    }

    fn traffic(&self, index: usize, reason: String) -> VerbsError {
        let (tenant, place) = self.whose(index);
        VerbsError::Traffic {
            tenant,
            place,
            reason,
        }
    }

    fn finish(self) -> Measured {
        let mut measured = Measured {
            reports: vec![BTreeMap::new(); self.names.len()],
            counters: BTreeMap::new(),
        };
        for member in self.members {
            let report = member
                .report
                .expect("a run ends when every worker reported");
            measured.reports[member.tenant].insert(member.host, report);
        }
        for (host, post) in Host::ALL.into_iter().zip(&self.fleet.posts) {
            let counted = self.counted.get(&(post.link, post.device.clone()));
            measured
                .counters
                .insert(host, counted.cloned().unwrap_or_default());
        }
        measured
    }
}
