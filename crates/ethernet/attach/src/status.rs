//! What an attachment does: flows per queue, weights, reassignments, fairness, cost for each packet.
//!
//! Method: queues, flows and counters are read from the programs' memory. Fairness is measured: every `SAMPLE` the bytes
//! that each flow has got out are noted in a table of slots that long, and NFM is that of titan 3, over 1 ms and 1 s,
//! among flows that were busy all the time. Cost comes from the kernel's own statistics of BPF programs, which are on
//! only while it is asked.
//! Units: bytes with link headers, nanoseconds. NFM has none.
//! Dropped packets count as dropped, never as sent.
//! Limits: bytes are counted when the device frees a packet, a whole segment at once (on devices that only hand packets
//! over, when they are handed over), and sampled by a program that the machine may delay: at 1 ms the figure is an upper
//! bound on what a capture on the wire would give. The completion program runs for every packet that anything in the
//! machine frees, so its cost is told for each run, and summed for each packet of this device.

use crate::effect::Aside;
use crate::error::NicError;
use crate::journal::Journal;
use crate::link::{self, Route, Sizes};
use crate::options::Options;
use crate::system::System;
use isolane_common_quantities::stats::fairness::{FairShare, SentTable, WeightedBytes, jain_index};
use isolane_common_quantities::units;
use isolane_common_quantities::units::Bytes;
use isolane_ethernet_bpf::{Dqa, FlowSnapshot, RunTime, RunTimeStatistics};
use serde::Serialize;
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

/// The form of the report.
const VERSION: u32 = 1;
/// Between two samples, and a slot.
const SAMPLE: Duration = Duration::from_millis(1);
/// Slots of a second.
const SECOND: usize = 1_000;
/// Parts of the measurement in each of which a flow must have sent to count as busy.
const PARTS: usize = 10;

/// What is to be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// How long fairness is measured; none is not at all.
    pub fairness: Option<Duration>,
    /// Whether cost is measured meanwhile.
    pub cost: bool,
}

/// The report.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Report {
    /// Form of the report.
    pub version: u32,
    /// Device.
    pub device: String,
    /// The controller's process; none if it does not run, which leaves queue assignment as it is.
    pub controller: Option<u32>,
    /// Why the programs do nothing; none while they work.
    pub aside: Option<Aside>,
    /// What the user asked for.
    pub options: Options,
    /// Who is told queue weights; none if nobody is.
    pub weights_told_to: Option<String>,
    /// Largest segments now.
    #[serde(flatten)]
    pub sizes: Sizes,
    /// Whether they are reduced, as flows share queues.
    pub segments_reduced: bool,
    /// Queues.
    pub queues: Vec<QueueReport>,
    /// Flows that have an entry.
    pub flows_known: usize,
    /// Flows with anything outstanding, or that sent while it was measured, largest first.
    pub flows: Vec<FlowReport>,
    /// Events since it was attached.
    pub events: Events,
    /// Fairness, where it was asked for.
    pub fairness: Option<Fairness>,
    /// Cost, where it was asked for.
    pub cost: Option<Cost>,
}

/// A queue.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct QueueReport {
    /// Number.
    pub queue: u16,
    /// Flows with anything outstanding in it.
    pub flows: u32,
    /// Their weight together; one flow is 1.
    pub weight: f64,
    /// Bytes that left it while it was measured: each millisecond's bytes of a flow count where the flow is at its end.
    pub sent_bytes: u64,
}

/// A flow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct FlowReport {
    /// The kernel's hash of its packets.
    pub hash: u32,
    /// Its queue.
    pub queue: u16,
    /// Its weight; 1 is usual.
    pub weight: f64,
    /// Packets that the device has not sent yet.
    pub outstanding: u32,
    /// Bytes sent while it was measured.
    pub sent_bytes: u64,
    /// How often it took another queue.
    pub moves: u32,
    /// Its container's cgroup; 0 where containers do not count.
    pub cgroup: u64,
}

/// Events since it was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Events {
    /// Packets for which a queue was chosen, as their flow had nothing outstanding.
    pub assigned: u64,
    /// Packets that followed others of their flow.
    pub kept: u64,
    /// Of the assigned, those that took the latency queue.
    pub latency: u64,
    /// Packets left to the kernel because the table of flows was full.
    pub table_full: u64,
    /// Packets left to the kernel because the device reported nothing sent.
    pub stood_aside: u64,
    /// Times the kernel used another queue than it was told.
    pub overruled: u64,
    /// Packets that were dropped before the device sent them.
    pub dropped: u64,
    /// Flows whose completions were lost.
    pub healed: u64,
    /// Flows that lost their entry to another.
    pub evicted: u64,
}

/// How evenly busy flows got out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Fairness {
    /// How long it was measured, in seconds.
    pub seconds: f64,
    /// Flows that sent all the time.
    pub busy_flows: usize,
    /// The worst of all intervals of 1 ms; none with fewer than two busy flows.
    pub nfm_1ms: Option<f64>,
    /// The worst of all intervals of 1 s; none also below a second.
    pub nfm_1s: Option<f64>,
    /// Jain index over the whole time; 1 is even.
    pub jain: Option<f64>,
}

/// What the programs cost while it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Cost {
    /// Packets of this device.
    pub packets: u64,
    /// At egress, for each packet, in nanoseconds.
    pub egress_ns: Option<f64>,
    /// At completion, for each packet that anything in the machine freed.
    pub completion_ns: Option<f64>,
    /// Both, for each packet of this device.
    pub packet_ns: Option<f64>,
}

/// Reports on the device that is called `name`.
///
/// # Errors
/// A device that is not there or not attached; missing privileges.
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

/// Bytes of flows by slot.
#[derive(Debug, Default)]
struct Samples {
    slots: usize,
    /// By flow: what it had sent when it was first seen and last, and the bytes of each slot.
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
    /// Notes what a flow has got out by the slot; returns what is new of it.
    fn note(&mut self, slot: usize, key: u32, completed: u64, weight: u32) -> u64 {
        self.slots = self.slots.max(slot + 1);
        let first = Sampled {
            last: completed,
            weight: weight.max(1),
            by_slot: BTreeMap::new(),
        };
        let flow = self.flows.entry(key).or_insert(first);
        // An entry that another flow of the same hash took begins anew.
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
    // A packet that is freed was sent or dropped: a program for each.
    let freed = |of: &RunTime| of.completed.runs + of.dropped.runs;
    let freeing = |of: &RunTime| of.completed.time_ns + of.dropped.time_ns;
    let frees = freed(after).saturating_sub(freed(before));
    let egress = time(before.egress.time_ns, after.egress.time_ns);
    let completed = time(freeing(before), freeing(after));
    let for_each = |time: f64, count: u64| (count > 0).then(|| time / count as f64);
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
        weights_told_to: journal.weights_told_to.clone(),
        sizes,
        segments_reduced: journal.sizes.is_some(),
        queues: queues.collect(),
        flows_known: known.len(),
        flows,
        events: Events {
            assigned: counters.assigned,
            kept: counters.kept,
            latency: counters.sparse,
            table_full: counters.full,
            stood_aside: counters.untouched,
            overruled: counters.moved,
            dropped: counters.dropped,
            healed: counters.healed,
            evicted: counters.evicted,
        },
        fairness: samples.as_ref().map(Samples::fairness),
        cost,
    })
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

    /// Two flows for a second: the first sends 1,000 bytes in each millisecond, the second `bytes` in every `every`th.
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
        // In a millisecond the second flow sends nothing: the difference is twice the fair share of 500 bytes.
        assert_eq!((fairness.nfm_1ms, fairness.nfm_1s), (Some(2.0), Some(0.0)));
        assert_eq!(samples(1_000, 1).fairness().nfm_1ms, Some(0.0));
    }

    #[test]
    fn flows_that_pause_are_not_unfairly_treated() {
        let fairness = samples(2_000, 500).fairness();
        assert_eq!((fairness.busy_flows, fairness.nfm_1ms), (1, None));
    }

    #[test]
    fn a_cost_without_packets_is_none() {
        let none = RunTime::default();
        let cost = cost_of(&none, &none);
        assert_eq!((cost.packets, cost.packet_ns), (0, None));
        let mut after = none;
        (after.egress.runs, after.egress.time_ns) = (10, 500);
        (after.completed.runs, after.completed.time_ns) = (15, 250);
        (after.dropped.runs, after.dropped.time_ns) = (5, 150);
        let cost = cost_of(&none, &after);
        assert_eq!(
            (cost.egress_ns, cost.completion_ns),
            (Some(50.0), Some(20.0))
        );
        assert_eq!(cost.packet_ns, Some(90.0));
    }
}
