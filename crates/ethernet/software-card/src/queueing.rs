//! Which queue a flow takes, and how much may wait there: the BPF programs of `isolane-ethernet-bpf` on the sender's device.
//!
//! Problem: TUN takes frames out of the socket's account and never makes the kernel wait, so neither TCP Small Queues
//! nor byte limits act, and flows take queues by its own hash. Method: the programs at the device's egress assign
//! queues (by load, or by hash to compare with) and hold back what those limits would hold back; a steering program
//! passes the queue to TUN. A frame is done when the software NIC reports that its last packet has left the wire; where
//! software cuts segments, when the software NIC reads it. The pins are in a directory named after this process and are
//! removed with it; those of processes that are gone are removed first. Units: bytes; flow weights in parts of 1,024.
//! Limits: needs root, BPF with BTF, and a BPF file system. Source: titan 4.1; the kernel's TCP Small Queues (two
//! segments a flow) and byte queue limits.

use crate::error::SoftNicError;
use crate::spaces::DEVICE;
use crate::tun::Tun;
use isolane_common_linux::command::run;
use isolane_common_linux::namespaces;
use isolane_ethernet_bpf::{
    Completion, CpuPools, Dqa, DqaCounters, DqaSettings, Gate, LoadOptions, QueueSnapshot, bpffs,
};
use isolane_ethernet_policy::titan::{QueueSet, pools};
use isolane_ethernet_scenario::config::{Assignment, ByteLimit, NicConfig};
use isolane_ethernet_scenario::model::NicStudy;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What the directories of our pins begin with.
const PREFIX: &str = "soft-";
/// Most of a frame: 64 KiB and its headers.
const FRAME_BYTES: u64 = 65_536 + 128;
/// The value that byte queue limits reach by themselves: a frame under way, one for the next interrupt.
const DYNAMIC_BYTES: u64 = 2 * FRAME_BYTES;
/// Segments of a flow that TCP Small Queues lets wait below TCP.
const SMALL_QUEUE_FRAMES: u64 = 2;

/// The programs on the sender's device; gone when dropped.
#[derive(Debug)]
pub(crate) struct Queueing {
    dqa: Arc<Dqa>,
    pins: PathBuf,
    latency_queue: Option<u16>,
    longest: Arc<Vec<AtomicU64>>,
}

impl Queueing {
    /// Loads the programs, attaches them to the device in the namespace `sender`, and lets them steer `tun`. Fails if
    /// the kernel has no BPF, or refuses.
    pub(crate) fn attach(
        study: &NicStudy,
        sender: &str,
        tun: &mut Tun,
    ) -> Result<Self, SoftNicError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let root = bpffs::find_or_mount()?;
        remove_stale(&root);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let pins = root.join(format!("{PREFIX}{}-{number}", namespaces::maker()));
        let options = LoadOptions {
            ifindex: interface_index(sender)?,
            queues: study.card.queues,
            completion: match study.config.segmentation_offload {
                true => Completion::InHand,
                false => Completion::Freed,
            },
            hardware_segmentation: study.config.segmentation_offload,
            pins: pins.clone(),
            flows: 0,
        };
        let settings = settings(study);
        let latency_queue = settings.latency_queue;
        // From here on a failure drops this, and with it the pins.
        let guard = Pins(pins);
        let dqa = Arc::new(load_in(sender, &options, &settings)?);
        tun.set_steering(dqa.clone())?;
        let longest = (0..study.card.queues).map(|_| AtomicU64::new(0)).collect();
        Ok(Self {
            dqa,
            pins: guard.keep(),
            latency_queue,
            longest: Arc::new(longest),
        })
    }

    /// What the card's thread asks once a millisecond: the flow weight on each queue. The latency queue counts as heavy as
    /// the heaviest, since it is kept light for the sake of speed.
    pub(crate) fn loads(&self) -> impl FnMut() -> Vec<u64> + Send + use<> {
        let (dqa, longest, latency) = (self.dqa.clone(), self.longest.clone(), self.latency_queue);
        move || {
            let queues = dqa.queues();
            for (longest, queue) in longest.iter().zip(&queues) {
                longest.fetch_max(queue.bytes, Ordering::Relaxed);
            }
            loads(&queues, latency)
        }
    }

    /// Whether flows share a queue now, the latency queue apart.
    pub(crate) fn is_oversubscribed(&self) -> bool {
        let queues = self.dqa.queues();
        let bulk = queues
            .iter()
            .enumerate()
            .filter(|(index, _)| Some(*index) != self.latency_queue.map(usize::from));
        bulk.into_iter().any(|(_, queue)| queue.flows > 1)
    }

    /// The most that was seen in each queue, bytes, looked at once a millisecond.
    pub(crate) fn longest(&self) -> Vec<u64> {
        self.longest
            .iter()
            .map(|longest| longest.load(Ordering::Relaxed))
            .collect()
    }

    /// What the programs counted. Fails if the kernel does not say.
    pub(crate) fn counters(&self) -> Result<DqaCounters, SoftNicError> {
        Ok(self.dqa.counters()?)
    }
}

impl Drop for Queueing {
    fn drop(&mut self) {
        remove(&self.pins);
    }
}

/// A directory of pins that goes unless it is kept.
struct Pins(PathBuf);

impl Pins {
    fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            remove(&self.0);
        }
    }
}

fn remove(pins: &Path) {
    // What is gone already is no error; the filter goes with the device.
    let _ = fs::remove_dir_all(pins);
}

fn remove_stale(root: &Path) {
    let Ok(entries) = fs::read_dir(root) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if namespaces::is_stale(PREFIX, &name.to_string_lossy()) {
            remove(&entry.path());
        }
    }
}

fn loads(queues: &[QueueSnapshot], latency: Option<u16>) -> Vec<u64> {
    let mut loads: Vec<u64> = queues.iter().map(|queue| queue.weight).collect();
    let heaviest = loads.iter().copied().max().unwrap_or(0);
    if let Some(load) = latency.and_then(|queue| loads.get_mut(usize::from(queue))) {
        *load = heaviest;
    }
    loads
}

/// What the configuration asks of the programs.
fn settings(study: &NicStudy) -> DqaSettings {
    let config = &study.config;
    let queues = study.card.queues;
    let latency_queue = (config.latency_queue && queues > 1).then(|| queues - 1);
    let mut bulk = QueueSet::first(queues);
    if let Some(queue) = latency_queue {
        bulk = bulk.without(queue);
    }
    let processors = crate::plan::processors(study.card.processors).len() as u16;
    DqaSettings {
        pools: match config.pools {
            true => CpuPools::PerProcessor(pools::of_processors(processors, bulk)),
            false => CpuPools::Off,
        },
        latency_queue,
        gate: Some(gate(config)),
        by_hash: config.assignment == Assignment::Hash,
        ..DqaSettings::default()
    }
}

fn gate(config: &NicConfig) -> Gate {
    let segment = config.segment.get().min(FRAME_BYTES);
    let segment = match config.segmentation_offload {
        true => segment + 128,
        // Software cuts below the limit, which sees whole segments.
        false => FRAME_BYTES,
    };
    let flow = match config.small_queues {
        true => SMALL_QUEUE_FRAMES * segment,
        false => 0,
    };
    let queue = match config.byte_limit {
        ByteLimit::None => 0,
        ByteLimit::Dynamic => DYNAMIC_BYTES,
        ByteLimit::Fixed(bytes) => bytes.get(),
    };
    let word = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    Gate {
        flow_bytes: word(flow),
        queue_bytes: word(queue),
    }
}

/// Loads and attaches from inside the device's namespace, which is where the kernel looks for the device.
fn load_in(
    sender: &str,
    options: &LoadOptions,
    settings: &DqaSettings,
) -> Result<Dqa, SoftNicError> {
    let path = namespaces::file(sender);
    let machine = |error: std::io::Error| {
        SoftNicError::Machine(format!("entering the namespace `{sender}`: {error}"))
    };
    let space = File::open(&path).map_err(machine)?;
    std::thread::scope(|scope| {
        let loaded = scope.spawn(|| {
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(space.as_fd(), kind)
                .map_err(|error| machine(error.into()))?;
            let mut dqa = Dqa::load(options, settings)?;
            dqa.attach()?;
            Ok(dqa)
        });
        loaded.join().expect("loading does not panic")
    })
}

/// The device's number in its namespace.
fn interface_index(space: &str) -> Result<u32, SoftNicError> {
    let text = run(&format!("ip -n {space} -o link show dev {DEVICE}"))?;
    let number = text
        .split(':')
        .next()
        .and_then(|word| word.trim().parse().ok());
    number.ok_or_else(|| {
        SoftNicError::Machine(format!(
            "`ip -o link show dev {DEVICE}` says `{text}`: no number"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_ethernet_scenario::config::named;

    fn of(name: &str) -> DqaSettings {
        settings(&NicStudy::of_paper(*named(name).expect("known"), 3, 1))
    }

    #[test]
    fn limits_are_those_of_the_configuration() {
        let limits = |name| {
            of(name)
                .gate
                .map(|gate| (gate.flow_bytes, gate.queue_bytes))
        };
        assert_eq!(limits("C1"), Some((131_328, 131_328)));
        assert_eq!(limits("C2"), Some((0, 131_328)));
        assert_eq!(limits("C4"), Some((131_328, 0)));
        assert_eq!(limits("C6"), Some((131_328, 262_144)));
        assert_eq!(limits("C9"), Some((33_024, 262_144)));
    }

    #[test]
    fn assignment_pools_and_latency_queue_are_passed_on() {
        assert!(of("C6").by_hash && !of("T1").by_hash);
        assert_eq!(of("T3").latency_queue, None);
        assert_eq!(of("isolane").latency_queue, Some(7));
        assert_eq!(of("C6").pools, CpuPools::Off);
        assert_ne!(of("TX1").pools, CpuPools::Off);
    }

    #[test]
    fn the_latency_queue_weighs_as_much_as_the_heaviest() {
        let queue = |weight| QueueSnapshot {
            weight,
            ..QueueSnapshot::default()
        };
        let queues = [queue(2_048), queue(1_024), queue(0)];
        assert_eq!(loads(&queues, Some(2)), [2_048, 1_024, 2_048]);
        assert_eq!(loads(&queues, None), [2_048, 1_024, 0]);
    }
}
