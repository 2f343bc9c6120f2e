//! What the control loop costs: one period and one admission beside 100 applications, files included.
//!
//! Method: a made-up machine in a temporary directory (files of the kernel's form), the real sensors, control groups,
//! journal and Mercury; the backend only takes notes, as migrations run on a thread of their own. The sensors of the
//! service have a thread of their own too; here they run within the step, and their time is reported apart. Half of the
//! applications are streams. Each figure is the median of repeated runs, with the least and the most. Units:
//! microseconds. Limits: reading a file in memory is cheaper than the kernel's making of one; `step_max_us` of a
//! running service has the real ones.

use isolane_common_linux::Root;
use isolane_common_quantities::units::{Bytes, Instant};
use isolane_memory_policy::mercury::{
    AppId, Mercury, MercuryOptions, Observation, PERIOD, TIERS_MAX, Thresholds,
};
use isolane_memory_service::application::pod::Place;
use isolane_memory_service::application::{Application, Slo};
use isolane_memory_service::backend::fake::FakeBackend;
use isolane_memory_service::controller::groups::HostGroups;
use isolane_memory_service::controller::{About, Controller, Parts};
use isolane_memory_service::indicator::machine::MachineSensors;
use isolane_memory_service::indicator::{Sensors, SourceInfo};
use isolane_memory_service::journal::FileStore;
use isolane_memory_service::protocol::{Answer, Request, Submission};
use isolane_memory_service::{Cgroup, MemError, MemoryHost};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const APPLICATIONS: u32 = 100;
const REPEATS: usize = 301;
const MIB: u64 = 1 << 20;
/// What a step and an admission may take, and a step in each period of a core.
const STEP_AIM_US: f64 = 2_000.0;
const ADMISSION_AIM_US: f64 = 10_000.0;
const CORE_AIM_PERCENT: f64 = 2.0;
/// The service's sensors look every 100 ms.
const LOOKS_PER_PERIOD: f64 = 2.0;

fn main() {
    // In memory, as `/run` is, where the service has its journal: a disk may write before a rename returns.
    let directory = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a temporary directory");
    let root = directory.path();
    machine(root);
    let (mut controller, looked) = start(root);
    let mut now = Instant::ZERO;
    for number in 0..APPLICATIONS {
        group(root, number);
        admit(&mut controller, now, number);
    }
    let (mut steps, mut looks) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        now = now.saturating_add(PERIOD);
        looked.store(0, Ordering::Relaxed);
        let begun = std::time::Instant::now();
        controller.step(now);
        let all_us = begun.elapsed().as_secs_f64() * 1e6;
        let look_us = looked.load(Ordering::Relaxed) as f64 / 1e3;
        steps.push(all_us - look_us);
        looks.push(look_us);
    }
    let mut admissions = Vec::new();
    for number in (APPLICATIONS..).take(21) {
        group(root, number);
        now = now.saturating_add(PERIOD);
        controller.step(now);
        let begun = std::time::Instant::now();
        admit(&mut controller, now, number);
        admissions.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    let step_us = show("control step, 100 applications", steps, STEP_AIM_US);
    let look_us = show("look of the sensors at them", looks, f64::NAN);
    show(
        "admission beside 100 and more",
        admissions,
        ADMISSION_AIM_US,
    );
    let share = (step_us + LOOKS_PER_PERIOD * look_us) / (PERIOD.as_ps() as f64 / 1e6);
    println!(
        "a step and {LOOKS_PER_PERIOD} looks in each period of {PERIOD}: {:.2} % of a core (aim {CORE_AIM_PERCENT} %)",
        share * 100.0
    );
}

/// The machine's sensors, and for how many nanoseconds they looked.
struct Timed(MachineSensors, Arc<AtomicU64>);

impl Sensors for Timed {
    fn adopt(&mut self, app: AppId, cgroup: &Cgroup) -> Result<(), MemError> {
        self.0.adopt(app, cgroup)
    }

    fn release(&mut self, app: AppId) {
        self.0.release(app);
    }

    fn observe(&mut self, now: Instant) -> Observation {
        let begun = std::time::Instant::now();
        let seen = self.0.observe(now);
        let nanoseconds = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.1.fetch_add(nanoseconds, Ordering::Relaxed);
        seen
    }

    fn held(&self, cgroup: &Cgroup) -> Option<[Bytes; TIERS_MAX]> {
        self.0.held(cgroup)
    }

    fn pressures(
        &self,
    ) -> std::collections::BTreeMap<AppId, isolane_memory_service::indicator::pressure::Pressure>
    {
        self.0.pressures()
    }

    fn sources(&self) -> Vec<SourceInfo> {
        self.0.sources()
    }
}

/// Prints the median and returns it.
fn show(what: &str, mut values: Vec<f64>, aim_us: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let (least, most) = (values[0], values[values.len() - 1]);
    let median = values[values.len() / 2];
    let aim = match aim_us.is_nan() {
        true => String::new(),
        false => format!("; aim {aim_us:.0} us"),
    };
    println!(
        "{what}: {median:.0} us (median of {}; {least:.0} to {most:.0}{aim})",
        values.len()
    );
    median
}

fn start(root: &Path) -> (Controller, Arc<AtomicU64>) {
    let looked = Arc::new(AtomicU64::new(0));
    let host = MemoryHost::at(Root::at(root));
    let thresholds = Thresholds {
        local_bandwidth: 80_000_000_000,
        hint_faults_per_s: 50_000.0,
    };
    let options = MercuryOptions::new(thresholds, Bytes::new(64 << 30));
    let parts = Parts {
        policy: Box::new(Mercury::new(options).expect("good options")),
        backend: Box::new(FakeBackend::new()),
        sensors: Box::new(Timed(
            MachineSensors::new(host.clone(), None),
            Arc::clone(&looked),
        )),
        groups: Box::new(HostGroups::new(host)),
        store: Box::new(FileStore::open(&root.join("run"), "now").expect("a journal")),
    };
    let mut controller =
        Controller::start(Instant::ZERO, parts, About::default()).expect("an empty journal");
    controller.step(Instant::ZERO);
    (controller, looked)
}

fn admit(controller: &mut Controller, now: Instant, number: u32) {
    let slo = match number % 2 {
        0 => Slo::LatencyPs(160_000),
        _ => Slo::BandwidthBytesPerS(1_000_000_000),
    };
    let application = Application {
        name: format!("app-{number}"),
        slo,
        priority: number,
        weight: 1_000,
        memory_bytes: Some(512 * MIB),
        caps: Vec::new(),
        far_tiers: Vec::new(),
        floors: Default::default(),
        profile: None,
    };
    let place = Place::Cgroup(format!("/apps/app-{number}"));
    let submission = Submission { application, place };
    let answer = controller.answer(now, Request::Submit(submission), None);
    assert!(matches!(answer, Answer::Admitted(_)), "{answer:?}");
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path.trim_start_matches('/'));
    fs::create_dir_all(path.parent().expect("not the root")).expect("a directory");
    fs::write(path, text).expect("a file");
}

fn machine(root: &Path) {
    let node = "/sys/devices/system/node";
    let tier = "/sys/devices/virtual/memory_tiering";
    let memory = |number: u32, mib: u64, free: u64| {
        format!(
            "Node {number} MemTotal:       {} kB\nNode {number} MemFree:        {} kB\n",
            mib << 10,
            free << 10
        )
    };
    for (path, text) in [
        (
            "/proc/mounts".to_owned(),
            "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n".to_owned(),
        ),
        (format!("{node}/has_memory"), "0-1\n".to_owned()),
        (format!("{node}/has_cpu"), "0\n".to_owned()),
        (format!("{tier}/memory_tier4/nodelist"), "0\n".to_owned()),
        (format!("{tier}/memory_tier10/nodelist"), "1\n".to_owned()),
        (format!("{node}/node0/meminfo"), memory(0, 65_536, 14_000)),
        (format!("{node}/node1/meminfo"), memory(1, 262_144, 200_000)),
        (
            "/proc/sys/kernel/numa_balancing".to_owned(),
            "2\n".to_owned(),
        ),
        (
            "/proc/vmstat".to_owned(),
            "numa_hint_faults 9\nnuma_hint_faults_local 3\n".to_owned(),
        ),
        (
            "/sys/devices/system/cpu/online".to_owned(),
            "0-31\n".to_owned(),
        ),
        (
            "/sys/fs/cgroup/cgroup.controllers".to_owned(),
            "cpuset cpu memory\n".to_owned(),
        ),
    ] {
        write(root, &path, &text);
    }
}

fn group(root: &Path, number: u32) {
    let numa = format!(
        "anon N0={} N1={}\nfile N0={MIB} N1=0\nkernel_stack N0=0 N1=0\nshmem N0=0 N1=0\n",
        400 * MIB,
        100 * MIB
    );
    for (file, text) in [
        ("cgroup.procs", format!("{number}\n")),
        ("cgroup.events", "populated 1\nfrozen 0\n".to_owned()),
        ("cpu.max", "max 100000\n".to_owned()),
        ("cpu.stat", "usage_usec 1000\nuser_usec 900\n".to_owned()),
        ("memory.numa_stat", numa),
    ] {
        write(
            root,
            &format!("/sys/fs/cgroup/apps/app-{number}/{file}"),
            &text,
        );
    }
}
