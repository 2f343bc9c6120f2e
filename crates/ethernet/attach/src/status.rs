//! The report of an attachment: flows per queue, weights, reassignments, fairness, cost per packet.
//!
//! Method: queues, flows and counters are read from the programs' memory. Fairness is measured: every `SAMPLE` the sent
//! bytes of each flow are recorded in a table of slots of that length. NFM is that of titan 3, over 1 ms and 1 s, among
//! flows that were busy all the time. Cost comes from the kernel's own statistics of BPF programs, which are enabled
//! only during the measurement. Units: bytes with link headers, nanoseconds. NFM has none. Dropped packets count as
//! dropped, never as sent. Limits: bytes are counted when the device frees a packet, a whole segment at once; on
//! devices that only pass packets on, when they are passed on. The sampling program may be delayed, so the figure for 1
//! ms is an upper bound of what a capture on the wire would show. The completion program runs for every packet that the
//! machine frees, so its cost is reported per run, and summed per packet of this device.

use crate::containers::{self, NotCarried};
use crate::effect::Aside;
use crate::error::NicError;
use crate::journal::Journal;
use crate::link::{self, Route, Sizes};
use crate::options::{Options, Weights};
use crate::system::System;
use isolane_common_quantities::stats::fairness::{FairShare, SentTable, WeightedBytes, jain_index};
use isolane_common_quantities::units;
use isolane_common_quantities::units::Bytes;
use isolane_ethernet_bpf::{Dqa, FlowSnapshot, RunTime, RunTimeStatistics};
use serde::Serialize;
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

/// Version of the report's format.
const VERSION: u32 = 2;
/// Interval of samples, and length of a slot.
const SAMPLE: Duration = Duration::from_millis(1);
/// Slots per second.
const SECOND: usize = 1_000;
/// A flow counts as busy if it sent in each of this many parts of the measurement.
const PARTS: usize = 10;

/// What to measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Length of the fairness measurement; `None` skips it.
    pub fairness: Option<Duration>,
    /// Whether cost is measured too.
    pub cost: bool,
}

/// The report of one attachment.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Report {
    /// Version of the report's format.
    pub version: u32,
    /// Device name.
    pub device: String,
    /// Process id of the controller; `None` if it does not run, in which case the kernel still assigns queues.
    pub controller: Option<u32>,
    /// Why the programs step aside; `None` while they work.
    pub aside: Option<Aside>,
    /// The user's options.
    pub options: Options,
    /// Interface that receives queue weights; `None` if there is none.
    pub weight_interface: Option<String>,
    /// Current segment size limits.
    #[serde(flatten)]
    pub sizes: Sizes,
    /// Whether they are reduced because flows share queues.
    pub segments_reduced: bool,
    /// Reports of the queues.
    pub queues: Vec<QueueReport>,
    /// Containers whose cgroup takes no program of ours; their routed flows weigh one each.
    pub not_carried: Vec<NotCarried>,
    /// Number of flows with an entry.
    pub flows_known: usize,
    /// Flows with outstanding packets, or that sent during the measurement, largest first.
    pub flows: Vec<FlowReport>,
    /// Event counters since the attachment.
    pub events: Events,
    /// Fairness, if requested.
    pub fairness: Option<Fairness>,
    /// Cost, if requested.
    pub cost: Option<Cost>,
}

/// Report of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct QueueReport {
    /// Number of the queue.
    pub queue: u16,
    /// Number of flows with outstanding packets in it.
    pub flows: u32,
    /// Sum of their weights; a usual flow has 1.
    pub weight: f64,
    /// Bytes sent during the measurement. Each flow's bytes of a millisecond count at the queue where the flow is at
    /// the end of it.
    pub sent_bytes: u64,
}

/// Report of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct FlowReport {
    /// The kernel's hash of its packets.
    pub hash: u32,
    /// Number of its queue.
    pub queue: u16,
    /// Its weight; usually 1.
    pub weight: f64,
    /// Number of packets that the device has not sent yet.
    pub outstanding: u32,
    /// Bytes sent during the measurement.
    pub sent_bytes: u64,
    /// Number of changes of its queue.
    pub moves: u32,
    /// Cgroup id of its container; 0 without container weights.
    pub cgroup: u64,
}

/// Event counters since the attachment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Events {
    /// Packets for which a queue was chosen, because their flow had no outstanding packets.
    pub assigned: u64,
    /// Packets that followed others of their flow.
    pub kept: u64,
    /// Assigned packets that took the latency queue.
    pub latency: u64,
    /// Packets left to the kernel's choice because the table of flows was full.
    pub table_full: u64,
    /// Packets left to the kernel's choice because the device reported no completions, or another processor was choosing the
    /// queue of their flow.
    pub stood_aside: u64,
    /// Choices whose effect is known, since one of their packets completed; packets that were dropped say nothing.
    pub checked: u64,
    /// Times that the driver or a filter used another queue than the chosen one.
    pub overruled: u64,
    /// Assigned packets that stayed in their socket's queue, because the choice came after the kernel's decision.
    pub kept_by_socket: u64,
    /// Packets dropped before the device sent them.
    pub dropped: u64,
    /// Flows with lost completions.
    pub healed: u64,
    /// Flows that lost their table entry to another flow.
    pub evicted: u64,
    /// Choices for routed flows whose container was noted at the container's cgroup.
    pub carried: u64,
}

/// Fairness among busy flows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Fairness {
    /// Length of the measurement, seconds.
    pub seconds: f64,
    /// Number of flows that sent all the time.
    pub busy_flows: usize,
    /// Worst NFM of all intervals of 1 ms; `None` with fewer than two busy flows.
    pub nfm_1ms: Option<f64>,
    /// Worst NFM of all intervals of 1 s; also `None` for measurements below a second.
    pub nfm_1s: Option<f64>,
    /// Jain index over the whole time; 1 is perfectly fair.
    pub jain: Option<f64>,
}

/// Least number of packets for a mean cost: one interrupt of 10 us during a run then adds at most 100 ns to the mean.
pub const COST_PACKETS_MIN: u64 = 100;

/// Cost of the programs during the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Cost {
    /// Packets of this device.
    pub packets: u64,
    /// Egress program, nanoseconds per packet; `None` for fewer than [`COST_PACKETS_MIN`] packets.
    pub egress_ns: Option<f64>,
    /// Completion program, nanoseconds per packet that the machine freed; `None` for as few.
    pub completion_ns: Option<f64>,
    /// Both, nanoseconds per packet of this device; `None` for as few.
    pub packet_ns: Option<f64>,
}

/// Reports on the device called `name`. Fails if the device does not exist or is not attached, or privileges are
/// missing.
pub fn report(system: &System, name: &str, asked: Asked) -> Result<Report, NicError> {
    let mut route = Route::open()?;
    let links = route.links()?;
    let link = link::named(&links, name)?;
    let not_attached = || NicError::NotAttached {
        place: system.place(),
        device: name.to_owned(),
    };
    let journal = Journal::find(system, &links, name)?.filter(|journal| journal.is_of(link));
    let journal = journal.ok_or_else(not_attached)?;
    let dqa = Dqa::open(&journal.pins)?;
    let (table, cost) = measure(&dqa, asked)?;
    assemble(system, &dqa, &journal, link.sizes, table, cost)
}

/// Sent bytes of flows by slot.
#[derive(Debug, Default)]
struct Samples {
    slots: usize,
    /// By flow: its first and last total, and the bytes of each slot.
    flows: BTreeMap<u32, Sampled>,
    /// Bytes by queue.
    queues: BTreeMap<u16, u64>,
}

#[derive(Debug)]
struct Sampled {
    last: u64,
    weight: u32,
    by_slot: BTreeMap<usize, u64>,
}

impl Samples {
    /// Records a flow's total at a slot; returns the increase.
    fn note(&mut self, slot: usize, key: u32, completed: u64, weight: u32) -> u64 {
        self.slots = self.slots.max(slot + 1);
        let first = Sampled {
            last: completed,
            weight: weight.max(1),
            by_slot: BTreeMap::new(),
        };
        let flow = self.flows.entry(key).or_insert(first);
        // An entry that another flow with the same hash took starts again.
        let sent = completed.saturating_sub(flow.last);
        flow.last = completed;
        if sent > 0 {
            *flow.by_slot.entry(slot).or_insert(0) += sent;
        }
        sent
    }

    fn sent(&self, key: u32) -> u64 {
        self.flows
            .get(&key)
            .map_or(0, |flow| flow.by_slot.values().sum())
    }

    fn fairness(&self) -> Fairness {
        let busy: Vec<&Sampled> = self
            .flows
            .values()
            .filter(|flow| flow.is_busy(self.slots))
            .collect();
        let mut fairness = Fairness {
            seconds: self.slots as f64 / SECOND as f64,
            busy_flows: busy.len(),
            nfm_1ms: None,
            nfm_1s: None,
            jain: None,
        };
        if busy.len() < 2 {
            return fairness;
        }
        let weights: Vec<u32> = busy.iter().map(|flow| flow.weight).collect();
        let slot = units::Duration::from_ms(1);
        let mut table = SentTable::new(&weights, slot);
        table.extend_to(self.slots);
        for (index, flow) in busy.iter().enumerate() {
            for (number, bytes) in &flow.by_slot {
                let at = units::Instant::ZERO.saturating_add(slot * *number as u64);
                table.add(at, index, Bytes::new(*bytes));
            }
        }
        let whole: Vec<WeightedBytes> = table.sent_in(0..self.slots);
        fairness.nfm_1ms = table.nfm(1, FairShare::OfSent);
        fairness.nfm_1s = table.nfm(SECOND, FairShare::OfSent);
        fairness.jain = jain_index(&whole);
        fairness
    }
}

impl Sampled {
    fn is_busy(&self, slots: usize) -> bool {
        let length = slots.div_ceil(PARTS).max(1);
        let parts = slots.div_ceil(length);
        (0..parts).all(|part| {
            let range = part * length..(part + 1) * length;
            self.by_slot.range(range).next().is_some()
        })
    }
}

fn measure(dqa: &Dqa, asked: Asked) -> Result<(Option<Samples>, Option<Cost>), NicError> {
    let statistics = asked.cost.then(RunTimeStatistics::enable).transpose()?;
    let before = dqa.run_time()?;
    let samples = match (asked.fairness, asked.cost) {
        (Some(duration), _) => Some(sample(dqa, duration)),
        (None, true) => Some(sample(dqa, Duration::from_secs(1))),
        (None, false) => None,
    };
    let cost = statistics.map(|_| dqa.run_time()).transpose()?;
    Ok((samples, cost.map(|after| cost_of(&before, &after))))
}

fn sample(dqa: &Dqa, duration: Duration) -> Samples {
    let mut samples = Samples::default();
    let begun = Instant::now();
    while begun.elapsed() < duration {
        let slot = (begun.elapsed().as_nanos() / SAMPLE.as_nanos()) as usize;
        for flow in dqa.flows().iter() {
            let sent = samples.note(slot, flow.key, flow.completed_bytes(), flow.weight);
            *samples.queues.entry(flow.queue).or_insert(0) += sent;
        }
        let next = SAMPLE * (slot as u32 + 1);
        thread::sleep(next.saturating_sub(begun.elapsed()));
    }
    samples
}

fn cost_of(before: &RunTime, after: &RunTime) -> Cost {
    let time = |before: u64, after: u64| after.saturating_sub(before) as f64;
    let packets = after.egress.runs.saturating_sub(before.egress.runs);
    // A freed packet was sent or dropped; a program counts each case.
    let freed = |of: &RunTime| of.completed.runs + of.dropped.runs;
    let freeing = |of: &RunTime| of.completed.time_ns + of.dropped.time_ns;
    let frees = freed(after).saturating_sub(freed(before));
    let egress = time(before.egress.time_ns, after.egress.time_ns);
    let completed = time(freeing(before), freeing(after));
    let for_each = |time: f64, count: u64| (count >= COST_PACKETS_MIN).then(|| time / count as f64);
    Cost {
        packets,
        egress_ns: for_each(egress, packets),
        completion_ns: for_each(completed, frees),
        packet_ns: for_each(egress + completed, packets),
    }
}

fn assemble(
    system: &System,
    dqa: &Dqa,
    journal: &Journal,
    sizes: Sizes,
    samples: Option<Samples>,
    cost: Option<Cost>,
) -> Result<Report, NicError> {
    let known: Vec<FlowSnapshot> = dqa.flows().iter().collect();
    let sent = |key| samples.as_ref().map_or(0, |samples| samples.sent(key));
    let mut flows: Vec<FlowReport> = known
        .iter()
        .map(|flow| flow_report(flow, sent(flow.key)))
        .filter(|flow| flow.outstanding > 0 || flow.sent_bytes > 0)
        .collect();
    flows.sort_by_key(|flow| (std::cmp::Reverse(flow.sent_bytes), flow.hash));
    let queues = dqa
        .queues()
        .into_iter()
        .zip(0..)
        .map(|(queue, number)| QueueReport {
            queue: number,
            flows: queue.flows,
            weight: queue.weight as f64 / f64::from(isolane_ethernet_bpf::WEIGHT_ONE),
            sent_bytes: samples
                .as_ref()
                .and_then(|samples| samples.queues.get(&number).copied())
                .unwrap_or(0),
        });
    let counters = dqa.counters()?;
    Ok(Report {
        version: VERSION,
        device: journal.device.clone(),
        controller: journal.running(system).map(|controller| controller.process),
        aside: journal.aside,
        options: journal.options.clone(),
        weight_interface: journal.weight_interface.clone(),
        sizes,
        segments_reduced: journal.sizes.is_some(),
        queues: queues.collect(),
        not_carried: not_carried(system, dqa, journal),
        flows_known: known.len(),
        flows,
        events: Events {
            assigned: counters.assigned,
            kept: counters.kept,
            latency: counters.sparse,
            table_full: counters.full,
            stood_aside: counters.untouched,
            checked: counters.checked,
            overruled: counters.moved,
            kept_by_socket: counters.socket,
            dropped: counters.dropped,
            healed: counters.healed,
            evicted: counters.evicted,
            carried: counters.carried,
        },
        fairness: samples.as_ref().map(Samples::fairness),
        cost,
    })
}

fn not_carried(system: &System, dqa: &Dqa, journal: &Journal) -> Vec<NotCarried> {
    if journal.options.weights != Weights::Cgroup {
        return Vec::new();
    }
    let now = containers::list(system, &journal.options);
    containers::not_carried(dqa, &now, &journal.not_carried)
}

fn flow_report(flow: &FlowSnapshot, sent_bytes: u64) -> FlowReport {
    FlowReport {
        hash: flow.key,
        queue: flow.queue,
        weight: f64::from(flow.weight) / f64::from(isolane_ethernet_bpf::WEIGHT_ONE),
        outstanding: flow.outstanding,
        sent_bytes,
        moves: flow.moves,
        cgroup: flow.owner,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two flows for one second: the first sends 1,000 bytes in each millisecond, the second `bytes` every `every`
    /// milliseconds.
    fn samples(bytes: u64, every: usize) -> Samples {
        let mut samples = Samples::default();
        let (mut first, mut second) = (5_000, 0);
        samples.note(0, 1, first, 1_024);
        samples.note(0, 2, second, 1_024);
        for slot in 0..SECOND {
            first += 1_000;
            second += if slot % every == 0 { bytes } else { 0 };
            samples.note(slot, 1, first, 1_024);
            samples.note(slot, 2, second, 1_024);
        }
        samples
    }

    #[test]
    fn fairness_depends_on_the_interval() {
        let fairness = samples(2_000, 2).fairness();
        assert_eq!(fairness.busy_flows, 2);
        // In a millisecond without bytes of the second flow, the difference is twice the fair share of 500 bytes.
        assert_eq!((fairness.nfm_1ms, fairness.nfm_1s), (Some(2.0), Some(0.0)));
        assert_eq!(samples(1_000, 1).fairness().nfm_1ms, Some(0.0));
    }

    #[test]
    fn flows_that_pause_are_not_unfairly_treated() {
        let fairness = samples(2_000, 500).fairness();
        assert_eq!((fairness.busy_flows, fairness.nfm_1ms), (1, None));
    }

    #[test]
    fn a_cost_of_too_few_packets_is_none() {
        let none = RunTime::default();
        let cost = cost_of(&none, &none);
        assert_eq!((cost.packets, cost.packet_ns), (0, None));
        let mut after = none;
        (after.egress.runs, after.egress.time_ns) = (99, 4_950);
        (after.completed.runs, after.completed.time_ns) = (99, 1_000);
        let few = cost_of(&none, &after);
        assert_eq!(
            (few.packets, few.egress_ns, few.completion_ns, few.packet_ns),
            (99, None, None, None)
        );
        (after.egress.runs, after.egress.time_ns) = (100, 5_000);
        (after.completed.runs, after.completed.time_ns) = (150, 2_500);
        (after.dropped.runs, after.dropped.time_ns) = (50, 1_500);
        let cost = cost_of(&none, &after);
        assert_eq!(
            (cost.egress_ns, cost.completion_ns),
            (Some(50.0), Some(20.0))
        );
        assert_eq!(cost.packet_ns, Some(90.0));
    }
}
