//! A story on the service's own loop, over a kernel of files.
//!
//! Method: the test plays the kernel every 100 ms: it keeps `memory.per_numa_high`, moves pages at the model's rate, and writes what
//! a kernel and a processor would count - `memory.numa_stat`, `meminfo`, `vmstat`, resctrl - while the chase reads each
//! tier's latency. How fast memory is follows from the model's balance of the same machine. Time is the test's.
//! Limits: pages are alike; a marked far page always faults.

use super::model::{self, MACHINE};
use super::{App, Change, Machine, Measured, Reported, Slo, Story};
use isolane_common_linux::Root;
use isolane_common_quantities::units::{Bytes, Duration, Instant};
use isolane_memory_policy::mercury::{Mercury, MercuryOptions, PERIOD, TIERS_MAX};
use isolane_memory_scenario::application::MemApplication;
use isolane_memory_scenario::machine::MemMachine;
use isolane_memory_service::MemoryHost;
use isolane_memory_service::application::pod::Place;
use isolane_memory_service::application::{self, Application};
use isolane_memory_service::backend::engine::{Context, Engine};
use isolane_memory_service::backend::per_numa_high::PerNumaHigh;
use isolane_memory_service::controller::groups::HostGroups;
use isolane_memory_service::controller::{About, Controller, Parts};
use isolane_memory_service::indicator::machine::{Chase, MachineSensors};
use isolane_memory_service::journal::FileStore;
use isolane_memory_service::protocol::{Answer, Request, Submission};
use isolane_memory_simulator::balance::{Balance, Demand, Problem};
use isolane_memory_simulator::bench;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Bytes of a cache line.
const LINE: f64 = 64.0;
const TIERING: &str = "/sys/devices/virtual/memory_tiering";
const NODE: &str = "/sys/devices/system/node";
const RESCTRL: &str = "/sys/fs/resctrl";

/// Steps of the kernel between two of the service.
const STEPS: u32 = 2;

/// The service over files.
pub(crate) struct Files;

impl Machine for Files {
    fn name(&self) -> &'static str {
        "the service over files"
    }

    /// Its latencies are those of a probe, which the policy believes at the third reading.
    fn answers_within_s(&self) -> f64 {
        0.65
    }

    fn play(&self, story: &Story) -> Reported {
        let directory = tempfile::tempdir().unwrap();
        let mut kernel = Kernel::new(directory.path(), story);
        let mut controller = kernel.service();
        let mut reported = Reported::default();
        let mut limits: BTreeMap<String, (Option<u64>, u32)> = BTreeMap::new();
        for tick in 0..story.seconds * 5 {
            let at_s = tick as f64 / 5.0;
            let now = Instant::ZERO.saturating_add(PERIOD * tick);
            for app in story.apps.iter().filter(|app| tick == app.start_s * 5) {
                let verdict = kernel.arrive(&mut controller, now, app);
                reported.verdicts.insert(app.name.to_owned(), verdict);
            }
            controller.step(now);
            let status = controller.status(now);
            for app in &status.applications {
                let new = (app.limits.tier_bytes[0], app.limits.cpu_per_mille);
                if limits.insert(app.name.clone(), new) != Some(new) {
                    reported.changes.push(Change {
                        at_s,
                        app: app.name.clone(),
                        near_limit: new.0,
                        cpu_share: f64::from(new.1) / 1e3,
                        reason: app.last_change.as_ref().unwrap().reason.clone(),
                    });
                }
            }
            for step in 0..STEPS {
                kernel.step(at_s + f64::from(step) / 10.0, 0.1);
            }
            if tick % 5 == 0 {
                reported.points.push((at_s, kernel.measured()));
            }
        }
        reported
    }
}

/// An application's process, as the kernel of the test sees it.
struct Process {
    app: App,
    /// Number of its monitoring group.
    number: u32,
    near: f64,
    far: f64,
    /// Bytes read so far, from the near tier and from all.
    read: (f64, f64),
    measured: Measured,
}

struct Kernel {
    root: PathBuf,
    story: Story,
    machine: isolane_memory_simulator::Machine,
    /// Near memory that applications may use.
    capacity: f64,
    processes: Vec<Process>,
    latencies: Arc<Mutex<[Option<Duration>; TIERS_MAX]>>,
    read: (f64, f64),
    faults: f64,
}

impl Kernel {
    fn new(root: &Path, story: &Story) -> Self {
        let near = Bytes::new(story.near_gb * 1_000_000_000);
        let profile = MemMachine::named(MACHINE).unwrap();
        let machine = isolane_memory_simulator::Machine::new(&profile, &[Some(near), None]);
        let capacity = machine.tiers[0].capacity * (1.0 - machine.kernel.free);
        let mut kernel = Self {
            root: root.to_owned(),
            story: story.clone(),
            machine,
            capacity,
            processes: Vec::new(),
            latencies: Arc::default(),
            read: (0.0, 0.0),
            faults: 0.0,
        };
        for (path, text) in [
            (
                "/proc/mounts".to_owned(),
                "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
            ),
            (format!("{NODE}/has_memory"), "0-1\n"),
            (format!("{NODE}/has_cpu"), "0\n"),
            (format!("{TIERING}/memory_tier4/nodelist"), "0\n"),
            (format!("{TIERING}/memory_tier10/nodelist"), "1\n"),
            ("/proc/sys/kernel/numa_balancing".to_owned(), "2\n"),
            ("/sys/devices/system/cpu/online".to_owned(), "0-27\n"),
            (
                "/sys/fs/cgroup/cgroup.controllers".to_owned(),
                "cpuset cpu memory\n",
            ),
            (
                format!("{RESCTRL}/info/L3_MON/mon_features"),
                "mbm_total_bytes\nmbm_local_bytes\n",
            ),
            (format!("{RESCTRL}/mon_groups/none"), ""),
        ] {
            kernel.write(&path, text);
        }
        kernel.step(0.0, 0.0);
        kernel
    }

    /// The service, with the profile of this machine.
    fn service(&self) -> Controller {
        let host = MemoryHost::at(Root::at(&self.root));
        let (near, far) = (&self.machine.tiers[0], &self.machine.tiers[1]);
        let thousandths = |ratio: f64| (ratio * 1e3).round() as u32;
        let options = MercuryOptions {
            near_bandwidth: Some((near.most * LINE * 1e9) as u64),
            latency_ratio: thousandths(far.latency / near.latency),
            bandwidth_ratio: thousandths(near.most / far.most),
            ..MercuryOptions::new(
                bench::thresholds(&self.machine),
                Bytes::new(self.capacity as u64),
            )
        };
        let context = Context::new(host.clone()).unwrap();
        let parts = Parts {
            policy: Box::new(Mercury::new(options).unwrap()),
            backend: Box::new(Engine::new(context, PerNumaHigh::default())),
            sensors: Box::new(MachineSensors::new(
                host.clone(),
                Some(Box::new(Latencies(Arc::clone(&self.latencies)))),
            )),
            groups: Box::new(HostGroups::new(host)),
            store: Box::new(FileStore::open(&self.root.join("run"), "now").unwrap()),
        };
        Controller::start(Instant::ZERO, parts, About::default()).unwrap()
    }

    /// An application comes, with the profile that the simulator found; the verdict in its words.
    fn arrive(&mut self, controller: &mut Controller, now: Instant, app: &App) -> String {
        let group = format!("/sys/fs/cgroup/apps/{}", app.name);
        for (file, text) in [
            ("cgroup.procs", "1\n".to_owned()),
            ("cgroup.events", "populated 1\nfrozen 0\n".to_owned()),
            ("cpu.max", "max 100000\n".to_owned()),
            ("cpu.stat", "usage_usec 0\n".to_owned()),
            ("cpuset.cpus.effective", format!("0-{}\n", app.cores - 1)),
            (
                "memory.numa_stat",
                "anon N0=0 N1=0\nfile N0=0 N1=0\n".to_owned(),
            ),
            ("memory.per_numa_high", "max\nmax\n".to_owned()),
        ] {
            self.write(&format!("{group}/{file}"), &text);
        }
        let submission = Submission {
            application: self.application(app),
            place: Place::Cgroup(format!("/apps/{}", app.name)),
        };
        let (verdict, number) = match controller.answer(now, Request::Submit(submission), None) {
            Answer::Admitted(admission) if admission.lacks.is_none() => ("admitted", admission.id),
            Answer::Admitted(admission) => ("best-effort", admission.id),
            Answer::Refused(_) => return "refused".to_owned(),
            answer => panic!("{answer:?}"),
        };
        self.processes.push(Process {
            app: *app,
            number,
            near: 0.0,
            far: 0.0,
            read: (0.0, 0.0),
            measured: Measured {
                latency_ns: 0.0,
                gb_per_s: 0.0,
            },
        });
        verdict.to_owned()
    }

    fn application(&self, app: &App) -> Application {
        let result = model::result("mercury", &self.story);
        let found = result.app(app.name).unwrap().profile.unwrap();
        let near = &self.machine.tiers[0];
        let (slo, best) = match app.slo {
            Slo::LatencyNs(ns) => (
                application::Slo::LatencyPs(ns * 1_000),
                application::Slo::LatencyPs((near.latency * 1e3) as u64),
            ),
            Slo::GbPerS(gb) => (
                application::Slo::BandwidthBytesPerS(gb * 1_000_000_000),
                application::Slo::BandwidthBytesPerS((near.most * LINE * 1e9) as u64),
            ),
        };
        Application {
            name: app.name.to_owned(),
            slo,
            priority: app.priority,
            weight: application::WEIGHT,
            memory_bytes: Some(app.gb * 1_000_000_000),
            caps: Vec::new(),
            far_tiers: Vec::new(),
            floors: Default::default(),
            profile: Some(application::Profile {
                admissible: found.admissible,
                local_bytes: found.local_bytes,
                cpu_per_mille: (found.cpu_share * 1e3).ceil() as u32,
                bandwidth_bytes_per_s: (found.bandwidth_gb_per_s * 1e9) as u64,
                best,
            }),
        }
    }

    /// One step of the kernel, of the processor and of the applications.
    fn step(&mut self, at_s: f64, seconds: f64) {
        self.touch_and_move(seconds);
        let demands: Vec<Demand> = self
            .processes
            .iter()
            .map(|process| self.demand(process, at_s))
            .collect();
        let problem = Problem {
            tiers: &self.machine.tiers,
            slots: self.machine.slots,
            demands: &demands,
            background: [0.0; TIERS_MAX],
        };
        let balance = problem.solve(&Balance::default());
        let mut latencies = [None; TIERS_MAX];
        for (latency, response) in latencies.iter_mut().zip(&balance.response) {
            *latency = Some(Duration::from_ns_f64(balance.slot_wait + response));
        }
        *self.latencies.lock().unwrap() = latencies;
        let rates = balance.rates.iter().zip(&demands);
        for (process, (rate, demand)) in self.processes.iter_mut().zip(rates) {
            let bytes = rate * LINE * 1e9 * seconds;
            let near = bytes * demand.mix[0];
            process.read = (process.read.0 + near, process.read.1 + bytes);
            self.read = (self.read.0 + near, self.read.1 + bytes);
            process.measured = Measured {
                latency_ns: balance.latency(&demand.mix),
                gb_per_s: rate * LINE,
            };
            let marked = self.machine.kernel.scan.min(process.near + process.far) * seconds;
            self.faults += marked * demand.mix[1] / self.machine.kernel.page;
        }
        self.publish();
    }

    /// New memory is near as far as limit and tier allow; then limits are kept, and filled.
    fn touch_and_move(&mut self, seconds: f64) {
        let mut left = self.machine.kernel.migrate * seconds;
        let mut free = self.capacity
            - self
                .processes
                .iter()
                .map(|process| process.near)
                .sum::<f64>();
        for index in 0..self.processes.len() {
            let limit = self.limit(&self.processes[index]);
            let process = &mut self.processes[index];
            let new = process.app.gb as f64 * 1e9 - process.near - process.far;
            let near = new.min(limit - process.near).min(free).max(0.0);
            (process.near, process.far) = (process.near + near, process.far + new - near);
            let away = (process.near - limit).min(left).max(0.0);
            (process.near, process.far) = (process.near - away, process.far + away);
            let back = (limit - process.near)
                .min(process.far)
                .min(free - near)
                .min(left - away)
                .max(0.0);
            (process.near, process.far) = (process.near + back, process.far - back);
            free += away - near - back;
            left -= away + back;
        }
    }

    /// The near node's line of `memory.per_numa_high`.
    fn limit(&self, process: &Process) -> f64 {
        let text = self.read_text(&format!(
            "/sys/fs/cgroup/apps/{}/memory.per_numa_high",
            process.app.name
        ));
        text.lines()
            .next()
            .and_then(|line| line.trim().parse().ok())
            .unwrap_or(f64::INFINITY)
    }

    fn demand(&self, process: &Process, at_s: f64) -> Demand {
        let app = &process.app;
        let access = MemApplication::named(model::kind(app)).unwrap();
        let busy = match app.surge_s > 0 && at_s >= app.surge_s as f64 {
            true => app.busy.1,
            false => app.busy.0,
        };
        let text = self.read_text(&format!("/sys/fs/cgroup/apps/{}/cpu.max", app.name));
        let words: Vec<f64> = text
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        let share = match words[..] {
            [quota, period] => quota / period / f64::from(app.cores),
            _ => 1.0,
        };
        let cores = f64::from(app.cores) * share.min(f64::from(busy) / 100.0);
        let all = (process.near + process.far).max(1.0);
        Demand {
            requests: cores * access.value("access", "requests_per_core"),
            think: access.value("access", "think_ns"),
            mix: [process.near / all, process.far / all, 0.0, 0.0],
        }
    }

    /// Writes what kernel and processor count.
    fn publish(&self) {
        let held = self
            .processes
            .iter()
            .map(|process| process.near)
            .sum::<f64>();
        let far = self
            .processes
            .iter()
            .map(|process| process.far)
            .sum::<f64>();
        for (node, total, used) in [
            (0, self.capacity, held),
            (1, self.machine.tiers[1].capacity, far),
        ] {
            let kib = |bytes: f64| (bytes.max(0.0) / 1024.0) as u64;
            let text = format!(
                "Node {node} MemTotal:       {} kB\nNode {node} MemFree:        {} kB\n",
                kib(total),
                kib(total - used)
            );
            self.write(&format!("{NODE}/node{node}/meminfo"), &text);
        }
        let faults = format!(
            "numa_hint_faults {}\nnuma_hint_faults_local 0\n",
            self.faults as u64
        );
        self.write("/proc/vmstat", &faults);
        self.count(RESCTRL, self.read);
        for process in &self.processes {
            let text = format!(
                "anon N0={} N1={}\nfile N0=0 N1=0\n",
                process.near as u64, process.far as u64
            );
            self.write(
                &format!("/sys/fs/cgroup/apps/{}/memory.numa_stat", process.app.name),
                &text,
            );
            self.count(
                &format!("{RESCTRL}/mon_groups/isolane-mem-{}", process.number),
                process.read,
            );
        }
    }

    fn count(&self, directory: &str, (local, total): (f64, f64)) {
        for (file, bytes) in [("mbm_local_bytes", local), ("mbm_total_bytes", total)] {
            self.write(
                &format!("{directory}/mon_data/mon_L3_00/{file}"),
                &format!("{}\n", bytes as u64),
            );
        }
    }

    fn measured(&self) -> BTreeMap<String, Measured> {
        self.processes
            .iter()
            .map(|process| (process.app.name.to_owned(), process.measured))
            .collect()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read_text(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path.trim_start_matches('/'))).unwrap()
    }
}

/// The latencies that the kernel of the test found last.
struct Latencies(Arc<Mutex<[Option<Duration>; TIERS_MAX]>>);

impl Chase for Latencies {
    fn latencies(&mut self) -> [Option<Duration>; TIERS_MAX] {
        *self.0.lock().unwrap()
    }
}
