//! A device's programs and maps: loaded once, pinned, opened by later processes.
//!
//! Problem: the data path must not depend on a process. Method: loading pins everything and ends; every other operation
//! works on the pinned objects, in any process. Order matters: completions are attached before egress counts the first
//! packet, and egress goes before completions do. Units: as in [`crate::settings`].

mod carry;
mod hand;

use crate::intf::{self, Config, Container, Flow, State};
use crate::settings::{Completion, CpuPools, DqaSettings, LoadOptions, WeightSource};
use crate::shared::Shared;
use crate::snapshot::{DqaCounters, FlowTable, QueueSnapshot, RunTime};
use crate::{EbpfError, ProgramCost, object, sys, tc};
use aya::programs::Program;
use isolane_common_linux::network_namespace;
use isolane_ethernet_policy::titan::QueueSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const MAPS: [&str; 6] = [
    "config",
    "state",
    "flows",
    "containers",
    "container_of",
    "counters",
];
const EGRESS: &str = "egress";
const STEER: &str = "steer";

/// Flows without any packet or completion for so long have lost their completions.
const STALE: Duration = Duration::from_secs(1);
/// Packets without completions for so long: leave the choice to the kernel. The kernel's own transmit watchdog waits as
/// long.
const FALLBACK: Duration = Duration::from_secs(5);

/// The programs of one device.
#[derive(Debug)]
pub struct Dqa {
    pins: PathBuf,
    egress: OwnedFd,
    steer: OwnedFd,
    completed: OwnedFd,
    dropped: OwnedFd,
    config: Shared<Config>,
    state: Shared<State>,
    flows: Shared<Flow>,
    containers: Shared<Container>,
    container_of: OwnedFd,
    counters: OwnedFd,
}

impl Dqa {
    /// Loads the programs for a device and pins them. They do nothing until [`Dqa::attach`]. Fails for bad options, and
    /// for pins that exist.
    pub fn load(options: &LoadOptions, settings: &DqaSettings) -> Result<Self, EbpfError> {
        options.check()?;
        settings.check(options.queues)?;
        let pins = &options.pins;
        if !matches!(Self::open(pins), Err(EbpfError::Absent { .. })) {
            return Err(EbpfError::Exists { path: pins.clone() });
        }
        Self::remove_part(pins);
        make_directory(pins)?;
        let loaded = load_and_pin(options, settings.weights).and_then(|()| {
            let mut dqa = Self::open_any(pins)?;
            dqa.configure(options)?;
            dqa.set(settings)?;
            Ok(dqa)
        });
        if loaded.is_err() {
            remove_pins(pins);
        }
        loaded
    }

    /// Opens what another process, or an earlier one, loaded. Fails if nothing or only a part is pinned there, or if it is
    /// of another version.
    pub fn open(pins: &Path) -> Result<Self, EbpfError> {
        let dqa = Self::open_any(pins)?;
        // The last word of the configuration.
        match dqa.config().net_cookie.load(Relaxed) {
            0 => Err(EbpfError::Absent { path: pins.into() }),
            _ => Ok(dqa),
        }
    }

    /// The same, also before the programs are configured.
    fn open_any(pins: &Path) -> Result<Self, EbpfError> {
        let open = |name: &str| {
            sys::open_pin(&pins.join(name)).map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => EbpfError::Absent { path: pins.into() },
                _ => EbpfError::File {
                    action: "open",
                    path: pins.join(name),
                    source,
                },
            })
        };
        let other = |source: io::Error| EbpfError::OtherVersion {
            path: pins.into(),
            detail: format!("a map is not of the expected size: {source}"),
        };
        let map = MAPS.map(open);
        let [config, state, flows, containers, container_of, counters] = map;
        let (config, state, flows, containers) = (config?, state?, flows?, containers?);
        let (container_of, counters) = (container_of?, counters?);
        sys::check_value_sizes(&[
            (config.as_fd(), size_of::<Config>()),
            (state.as_fd(), size_of::<State>()),
            (flows.as_fd(), intf::WAYS * size_of::<Flow>()),
            (containers.as_fd(), size_of::<Container>()),
            (container_of.as_fd(), size_of::<u32>()),
            (counters.as_fd(), intf::COUNTERS * size_of::<u64>()),
        ])
        .map_err(other)?;
        // SAFETY: sizes were just checked; the types mirror `bpf/intf.h` and consist of atomics.
        let (config, state, flows, containers) = unsafe {
            (
                Shared::<Config>::map(config.as_fd(), 1).map_err(other)?,
                Shared::<State>::map(state.as_fd(), 1).map_err(other)?,
                Shared::<Flow>::map(flows.as_fd(), intf::SETS * intf::WAYS).map_err(other)?,
                Shared::<Container>::map(containers.as_fd(), intf::CONTAINERS_MAX)
                    .map_err(other)?,
            )
        };
        Ok(Self {
            pins: pins.into(),
            egress: open(EGRESS)?,
            steer: open(STEER)?,
            completed: open("completed")?,
            dropped: open("dropped")?,
            config,
            state,
            flows,
            containers,
            container_of,
            counters,
        })
    }

    /// Starts: completions first, then our filter at the device's egress. Again is no error. Fails for a device that is
    /// gone or in another namespace, and without privileges.
    pub fn attach(&mut self) -> Result<(), EbpfError> {
        self.check_namespace()?;
        for (program, link) in [
            (&self.completed, "completed_link"),
            (&self.dropped, "dropped_link"),
        ] {
            let path = self.pins.join(link);
            if path.exists() {
                continue;
            }
            let attached = sys::attach_tracepoint(program.as_fd()).map_err(EbpfError::kernel(
                "attach to the tracepoint of freed packets",
            ))?;
            sys::pin(attached.as_fd(), &path).map_err(|source| EbpfError::File {
                action: "pin",
                path,
                source,
            })?;
        }
        let ifindex = self.ifindex();
        tc::ensure_clsact(ifindex, &self.config().clsact_added)
            .map_err(EbpfError::kernel(format!("add clsact to device {ifindex}")))?;
        self.config().untagged.store(0, Relaxed);
        let preference = tc::set_filter(ifindex, self.egress.as_fd()).map_err(
            EbpfError::kernel(format!("add a filter to device {ifindex}")),
        )?;
        self.config()
            .preference
            .store(u32::from(preference), Relaxed);
        Ok(())
    }

    /// Removes our filter and the pins, and also clsact if we added it and no other program uses it. Packets then
    /// follow the kernel's own choice. A device that is gone is no error. Fails in another namespace, and without
    /// privileges. Limit: a clsact without filters that another program added after a kill of [`Dqa::attach`] counts as ours.
    pub fn detach(self) -> Result<(), EbpfError> {
        self.check_namespace()?;
        let ifindex = self.ifindex();
        match tc::remove_filter(ifindex) {
            Err(error) if !is_absent(&error) => {
                return Err(EbpfError::kernel(format!(
                    "remove our filter from device {ifindex}"
                ))(error));
            }
            _ => {}
        }
        if self.config().clsact_added.load(Relaxed) != 0 {
            match tc::filters(ifindex) {
                // If another process has already removed it, nothing is left to do.
                Ok(filters) if filters.is_empty() => _ = tc::remove_clsact(ifindex),
                Err(error) if !is_absent(&error) => {
                    let action = format!("list the filters of device {ifindex}");
                    return Err(EbpfError::kernel(action)(error));
                }
                _ => {}
            }
        }
        remove_pins(&self.pins);
        Ok(())
    }

    /// Whether the programs were loaded for this thread's network namespace, not for an earlier one of the same number.
    pub fn is_here(&self) -> bool {
        self.check_namespace().is_ok()
    }

    /// Removes what a process that was killed while it loaded or removed the programs left of the pins: what
    /// [`Dqa::open`] calls absent. Such programs are attached to nothing.
    pub fn remove_part(pins: &Path) {
        remove_pins(pins);
    }

    /// Removes the pins alone: those of a network namespace that has ended, its devices and filters with it.
    pub fn discard(self) {
        remove_pins(&self.pins);
    }

    /// Changes settings, also while packets flow. Fails for a latency queue that the device lacks, and for too many
    /// processors.
    pub fn set(&mut self, settings: &DqaSettings) -> Result<(), EbpfError> {
        let config = self.config();
        let queues = config.queues.load(Relaxed) as u16;
        settings.check(queues)?;
        let gate = settings.gate;
        if config.gate_flow_bytes.load(Relaxed) == 0 && config.gate_queue_bytes.load(Relaxed) == 0 {
            self.recount_bytes();
        }
        config
            .gate_flow_bytes
            .store(gate.map_or(0, |gate| gate.flow_bytes), Relaxed);
        config
            .gate_queue_bytes
            .store(gate.map_or(0, |gate| gate.queue_bytes), Relaxed);
        config.weights.store(settings.weights as u32, Relaxed);
        let latency_queue = settings.latency_queue.map_or(intf::NO_QUEUE, u32::from);
        config.latency_queue.store(latency_queue, Relaxed);
        config.small_bytes.store(settings.small_bytes, Relaxed);
        for (place, weight) in config.dscp_weights.iter().zip(settings.dscp_weights) {
            place.store(weight, Relaxed);
        }
        for (place, set) in config.priority_queues.iter().zip(settings.priority_queues) {
            place.store(set.0, Relaxed);
        }
        if let CpuPools::PerProcessor(sets) = &settings.pools {
            for (index, place) in config.processor_queues.iter().enumerate() {
                let set = sets.get(index).copied().unwrap_or_default();
                place.store(set.0, Relaxed);
            }
        }
        let pools = settings.pools != CpuPools::Off;
        config.processor_pools.store(u32::from(pools), Relaxed);
        let enabled = match (settings.enabled, settings.by_hash) {
            (false, _) => intf::OFF,
            (true, false) => intf::BY_LOAD,
            (true, true) => intf::BY_HASH,
        };
        config.enabled.store(enabled, Relaxed);
        Ok(())
    }

    /// The device has another number of transmit queues now. Flows leave queues that went when they drain; until then
    /// the kernel puts their packets elsewhere, and the programs follow. Fails for no queue, more than 64, or a latency
    /// queue that is gone.
    pub fn set_queues(&mut self, queues: u16) -> Result<(), EbpfError> {
        crate::settings::check_queues(queues)?;
        let config = self.config();
        let latency = config.latency_queue.load(Relaxed);
        if latency != intf::NO_QUEUE && latency >= u32::from(queues) {
            return Err(EbpfError::BadInput(format!(
                "latency queue {latency} of {queues}: choose another one first"
            )));
        }
        config.queues.store(u32::from(queues), Relaxed);
        Ok(())
    }

    /// How long the programs wait before they take a flow's completions for lost (1 s), and those of the whole device
    /// (5 s; then packets pass untouched until something completes). For devices slower than that, and for tests.
    pub fn set_patience(&mut self, flow: Duration, device: Duration) {
        let config = self.config();
        let tick_ns = u128::from(config.tick_ns.load(Relaxed).max(1));
        let ticks = |time: Duration| (time.as_nanos() / tick_ns).clamp(1, u32::MAX.into()) as u32;
        config.stale_ticks.store(ticks(flow), Relaxed);
        config.fallback_ticks.store(ticks(device), Relaxed);
    }

    /// Gives the flows of a cgroup (version 2, with those below it) a weight to share and the queues they may use;
    /// an empty set means all. Fails for more than 256 containers.
    pub fn set_container(
        &mut self,
        cgroup: u64,
        weight: u32,
        queues: QueueSet,
    ) -> Result<(), EbpfError> {
        let known = self.container(cgroup)?;
        let free = || {
            self.containers
                .iter()
                .position(|container| container.cgroup.load(Relaxed) == 0)
        };
        let Some(index) = known.or_else(free) else {
            let most = intf::CONTAINERS_MAX;
            return Err(EbpfError::Containers { most });
        };
        let container = &self.containers[index];
        container.queues.store(queues.0, Relaxed);
        container.weight.store(weight.max(1), Relaxed);
        let value = (index as u32).to_ne_bytes();
        sys::map_update(self.container_of.as_fd(), &cgroup.to_ne_bytes(), &value)
            .map_err(EbpfError::kernel(format!("note the container {cgroup}")))?;
        // The last step: a place that has no entry in the map stays free.
        container.cgroup.store(cgroup, Relaxed);
        Ok(())
    }

    /// Forgets a container, and no longer notes its packets; its flows weigh one each from their next backlog on. Unknown
    /// ones are no error. Fails without privileges.
    pub fn remove_container(&mut self, cgroup: u64) -> Result<(), EbpfError> {
        self.stop_carrying(cgroup);
        let Some(index) = self.container(cgroup)? else {
            return Ok(());
        };
        sys::map_delete(self.container_of.as_fd(), &cgroup.to_ne_bytes())
            .map_err(EbpfError::kernel(format!("forget the container {cgroup}")))?;
        for flow in self.flows.iter() {
            let ours = index as u32 + 1;
            let _ = flow.container.compare_exchange(ours, 0, Relaxed, Relaxed);
        }
        let container = &self.containers[index];
        container.flows.store(0, Relaxed);
        container.cgroup.store(0, Relaxed);
        Ok(())
    }

    /// The flows, read where they are.
    pub fn flows(&self) -> FlowTable<'_> {
        FlowTable {
            flows: &self.flows,
            tick_ns: self.config().tick_ns.load(Relaxed),
        }
    }

    /// The queues, as many as are managed.
    pub fn queues(&self) -> Vec<QueueSnapshot> {
        let count = self.config().queues.load(Relaxed) as usize;
        let state = &self.state[0];
        let queues = state.load.iter().zip(&state.bytes).take(count);
        queues
            .map(|(load, bytes)| {
                let (weight, flows) = intf::load(load.load(Relaxed));
                QueueSnapshot {
                    weight,
                    flows,
                    bytes: bytes.load(Relaxed).max(0) as u64,
                }
            })
            .collect()
    }

    /// Events since loading. Fails without privileges.
    pub fn counters(&self) -> Result<DqaCounters, EbpfError> {
        let read = || -> io::Result<[u64; intf::COUNTERS]> {
            let bytes = intf::COUNTERS * 8;
            let mut values = vec![0; sys::possible_processors()? * bytes];
            sys::map_lookup(self.counters.as_fd(), &[0; 4], &mut values)?;
            let mut sums = [0; intf::COUNTERS];
            for (index, word) in values.chunks_exact(8).enumerate() {
                let word = word.try_into().expect("eight bytes");
                sums[index % intf::COUNTERS] += u64::from_ne_bytes(word);
            }
            Ok(sums)
        };
        let sums = read().map_err(EbpfError::kernel("read the programs' counters"))?;
        Ok(DqaCounters::of(&sums))
    }

    /// What the programs cost; times only while any process holds [`crate::RunTimeStatistics`]. Fails without
    /// privileges.
    pub fn run_time(&self) -> Result<RunTime, EbpfError> {
        let cost = |program: &OwnedFd| -> Result<ProgramCost, EbpfError> {
            sys::program_cost(program.as_fd())
                .map_err(EbpfError::kernel("read what the programs cost"))
        };
        Ok(RunTime {
            egress: cost(&self.egress)?,
            completed: cost(&self.completed)?,
            dropped: cost(&self.dropped)?,
            steer: cost(&self.steer)?,
        })
    }

    /// The socket filter that gives a TUN device the queue that egress chose (`TUNSETSTEERINGEBPF`).
    pub fn steering_program(&self) -> BorrowedFd<'_> {
        self.steer.as_fd()
    }

    /// The device's number in its namespace.
    pub fn ifindex(&self) -> u32 {
        self.config().ifindex.load(Relaxed)
    }

    /// Whether another filter takes our marks off the packets, so that completions go by the packets' hash alone: then
    /// a missed one is found only after a second.
    pub fn is_untagged(&self) -> bool {
        self.config().untagged.load(Relaxed) != 0
    }

    fn config(&self) -> &Config {
        &self.config[0]
    }

    fn configure(&mut self, options: &LoadOptions) -> Result<(), EbpfError> {
        let cookie = network_namespace::cookie().map_err(EbpfError::kernel(
            "name the network namespace (Linux 5.14 or newer)",
        ))?;
        let tick_ns = sys::tick_ns();
        let flows = match options.flows {
            0 => crate::FLOWS_MAX,
            flows => flows,
        };
        let config = self.config();
        config.queues.store(u32::from(options.queues), Relaxed);
        config.ifindex.store(options.ifindex, Relaxed);
        let sets_mask = flows / intf::WAYS as u32 - 1;
        config.sets_mask.store(sets_mask, Relaxed);
        config.completion.store(options.completion as u32, Relaxed);
        let segmentation = u32::from(options.hardware_segmentation);
        config.hardware_segmentation.store(segmentation, Relaxed);
        config.tick_ns.store(tick_ns, Relaxed);
        let last = u32::from(options.queues) - 1;
        self.state[0].last_queue.store(last, Relaxed);
        self.set_patience(STALE, FALLBACK);
        // Last: without it, the programs count as a part that a killed process left.
        self.config().net_cookie.store(cookie, Relaxed);
        Ok(())
    }

    /// Bytes of queues are counted only with a gate: before one is set, they are what the flows say.
    fn recount_bytes(&self) {
        let mut bytes = [0_i64; intf::QUEUES_MAX];
        for flow in self.flows().iter() {
            bytes[usize::from(flow.queue)] += i64::from(flow.outstanding_bytes);
        }
        for (place, bytes) in self.state[0].bytes.iter().zip(bytes) {
            place.store(bytes, Relaxed);
        }
    }

    fn container(&self, cgroup: u64) -> Result<Option<usize>, EbpfError> {
        let mut index = [0; 4];
        match sys::map_lookup(self.container_of.as_fd(), &cgroup.to_ne_bytes(), &mut index) {
            Ok(()) => Ok(Some(u32::from_ne_bytes(index) as usize)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(EbpfError::kernel("read the containers")(error)),
        }
    }

    fn check_namespace(&self) -> Result<(), EbpfError> {
        let here =
            network_namespace::cookie().map_err(EbpfError::kernel("name the network namespace"))?;
        match here == self.config().net_cookie.load(Relaxed) {
            true => Ok(()),
            false => Err(EbpfError::OtherNamespace {
                path: self.pins.clone(),
            }),
        }
    }
}

const _: () = assert!(Completion::Freed as u32 == 0);
const _: () = assert!(Completion::HandedOver as u32 == 1);
const _: () = assert!(Completion::InHand as u32 == 2);
const _: () = assert!(WeightSource::Flow as u32 == 0);
const _: () = assert!(WeightSource::Dscp as u32 == 1);
const _: () = assert!(WeightSource::Containers as u32 == 2);

/// Loads maps and the programs that this device's completions need, and pins them.
fn load_and_pin(options: &LoadOptions, weights: WeightSource) -> Result<(), EbpfError> {
    let refused = |error: &dyn std::error::Error| EbpfError::Refused {
        reason: chain(error),
    };
    let btf = aya::Btf::from_sys_fs().map_err(|error| refused(&error))?;
    let mut object = aya::EbpfLoader::new()
        .btf(Some(&btf))
        .load(object::DQA)
        .map_err(|error| refused(&error))?;
    for name in MAPS {
        let map = object.map(name).expect("the object has this map");
        map.pin(options.pins.join(name))
            .map_err(|error| refused(&error))?;
    }
    let (completed, dropped) = match options.completion {
        Completion::Freed | Completion::InHand => {
            (("completed", "consume_skb"), ("dropped", "kfree_skb"))
        }
        Completion::HandedOver => (
            ("handed_over", "net_dev_start_xmit"),
            ("dropped_before", "kfree_skb"),
        ),
    };
    let programs = [
        (EGRESS, "", EGRESS),
        (STEER, "", STEER),
        (completed.0, completed.1, "completed"),
        (dropped.0, dropped.1, "dropped"),
    ];
    let carry =
        (weights == WeightSource::Containers).then_some((carry::PROGRAM, "", carry::PROGRAM));
    for (name, tracepoint, pin) in programs.into_iter().chain(carry) {
        let program = object
            .program_mut(name)
            .expect("the object has this program");
        match program {
            Program::SchedClassifier(program) => program.load(),
            Program::SocketFilter(program) => program.load(),
            Program::BtfTracePoint(program) => program.load(tracepoint, &btf),
            Program::CgroupSkb(program) => program.load(),
            _ => unreachable!("the object has four kinds of programs"),
        }
        .map_err(|error| refused(&error))?;
        program
            .pin(options.pins.join(pin))
            .map_err(|error| refused(&error))?;
    }
    Ok(())
}

/// An error with its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut words: Vec<String> = causes.map(|error| error.to_string()).collect();
    words.dedup();
    words.join(": ")
}

fn make_directory(path: &Path) -> Result<(), EbpfError> {
    std::fs::create_dir_all(path).map_err(|source| EbpfError::File {
        action: "make",
        path: path.into(),
        source,
    })
}

/// Removes our pins and their directory; what others put there stays.
fn remove_pins(pins: &Path) {
    carry::remove_links(pins);
    let programs = [EGRESS, STEER, "completed", "dropped", carry::PROGRAM];
    let links = ["completed_link", "dropped_link"];
    for name in links.iter().chain(&programs).chain(&MAPS) {
        let _ = std::fs::remove_file(pins.join(name));
    }
    let _ = std::fs::remove_dir(pins);
}

/// No such device, no such qdisc, no such filter.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENODEV | libc::ENOENT | libc::EINVAL | libc::ENXIO)
    )
}
