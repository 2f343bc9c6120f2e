//! Runs one study.
//!
//! Method: hosts, flows and pings are made from the study, events run until the measured time is over or, where flows
//! end, all have. Flows begin within 100 us of each other, as programs that are started together do. Checked in every
//! run: bytes are conserved for each flow. Limits: the observer is called every 65,536 events only. A cluster whose
//! flows do not end stops after the study's warm-up and measured time, if they are set, and reports the flows that
//! ended.

use crate::host::Host;
use crate::measure::Measure;
use crate::network::Network;
use crate::ping::Pings;
use crate::segment::{Acks, Segments};
use crate::settings::Settings;
use crate::tcp::flow::Flow;
use crate::world::{Event, World};
use isolane_common_events::EventQueue;
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::stats::fairness::FairShare;
use isolane_common_quantities::units::{Bytes, Duration, Instant};
use isolane_ethernet_scenario::model::{NicStudy, NicTraffic};
use isolane_ethernet_scenario::profile::NicProfile;
use isolane_study_results::ethernet::{Completions, NicResult, Quantiles};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Flows begin within this time.
const START_WITHIN: Duration = Duration::from_us(100);
/// Longest simulated time of flows that end.
const COMPLETION_MOST: Duration = Duration::from_secs(1_000);
/// Events between two calls of the observer.
const WATCHED: u32 = 1 << 16;

/// Who watches a run.
#[derive(Default)]
pub struct Observers<'a> {
    /// The run gives up soon after this becomes true.
    pub cancel: Option<&'a AtomicBool>,
    /// Called periodically with the part of the work that is done, 0 to 1.
    pub progress: Option<&'a mut dyn FnMut(f64)>,
}

impl std::fmt::Debug for Observers<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Observers")
            .field("cancel", &self.cancel)
            .finish_non_exhaustive()
    }
}

/// Why a run gave no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The observer cancelled it.
    #[error("the run was cancelled")]
    Cancelled,
}

/// Runs `study` on the hosts and cards of `profile`.
///
/// ```
/// use isolane_common_quantities::units::Duration;
/// use isolane_ethernet_scenario::{config, model::NicStudy, profile::NicProfile};
/// let config = config::named("T1").expect("Titan's first step");
/// let mut study = NicStudy::of_paper(*config, 3, 1);
/// study.warmup = Duration::from_ms(20);
/// study.duration = Duration::from_ms(20);
/// let result = isolane_ethernet_simulator::run(&study, &NicProfile::of_paper());
/// assert!(result.nfm_1ms < 0.1, "three flows, eight queues");
/// ```
pub fn run(study: &NicStudy, profile: &NicProfile) -> NicResult {
    run_with(study, profile, Observers::default()).expect("the default observer never cancels")
}

/// As [`run`], watched. Fails on [`Observers::cancel`].
pub fn run_with(
    study: &NicStudy,
    profile: &NicProfile,
    mut observers: Observers<'_>,
) -> Result<NicResult, RunError> {
    let mut world = world(study, profile);
    let until = world.measure.until;
    let mut warm = false;
    let mut steps = 0_u32;
    while let Some(now) = world.events.take_until(until) {
        let event = world.events.taken();
        if !warm && now >= world.measure.from {
            warm = true;
            world.measure.busy_before = world.hosts[0].busy();
        }
        world.handle(now, event);
        if ends(study) && world.measure.unfinished == 0 {
            break;
        }
        steps = steps.wrapping_add(1);
        if steps.is_multiple_of(WATCHED) {
            watch(&mut observers, &world)?;
        }
    }
    world.assert_conservation();
    Ok(result(study, &mut world))
}

fn watch(observers: &mut Observers<'_>, world: &World) -> Result<(), RunError> {
    let cancelled = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
    if observers.cancel.is_some_and(cancelled) {
        return Err(RunError::Cancelled);
    }
    if let Some(progress) = &mut observers.progress {
        let sized = world
            .flows
            .iter()
            .filter(|flow| flow.size < u64::MAX && flow.size > 0);
        let (done, all) = sized.fold((0.0, 0.0), |(done, all), flow| {
            (done + flow.una as f64, all + flow.size as f64)
        });
        progress(match all > 0.0 {
            true => done / all,
            false => world.now.as_ps() as f64 / world.measure.until.as_ps() as f64,
        });
    }
    Ok(())
}

/// Whether the study is over when its flows are.
fn ends(study: &NicStudy) -> bool {
    matches!(study.traffic, NicTraffic::AllToAll { .. })
}

/// The hosts of `study` at rest, with what begins.
pub(crate) fn world(study: &NicStudy, profile: &NicProfile) -> World {
    let settings = Settings::new(study, profile);
    let (flows, pings, hosts, second, table) = match study.traffic {
        NicTraffic::Flows {
            flows,
            ping,
            ping_interval,
        } => {
            let mut list = long_flows(&settings, study.seed, flows);
            let mut random = Stream::named(study.seed, "ping");
            let pings = Pings {
                flow: flows,
                payload: ping.get() as u32,
                interval: ping_interval,
                processor: random.below(u64::from(settings.processors)) as u16,
                ..Pings::default()
            };
            let mut entry = Flow::new(&settings, study.seed, flows);
            entry.size = 0;
            list.push(entry);
            (list, Some(pings), 2, 0, flows)
        }
        NicTraffic::AllToAll {
            hosts,
            second_switch,
            bytes,
        } => {
            let list = all_to_all(&settings, study.seed, hosts as u16, bytes);
            (
                list,
                None,
                hosts as usize,
                second_switch as usize,
                hosts - 1,
            )
        }
    };
    let from = Instant::ZERO + study.warmup;
    let until = match ends(study) {
        true => from + COMPLETION_MOST,
        false => from + study.duration,
    };
    let mut measure = Measure::new(flows.len(), table, from, until);
    measure.unfinished = flows.iter().filter(|flow| flow.size > 0).count();
    let mut world = World {
        events: EventQueue::new(),
        now: Instant::ZERO,
        spent: Duration::ZERO,
        hosts: (0..hosts).map(|_| Host::new(&settings)).collect(),
        segments: Segments::new(),
        acks: Acks::default(),
        network: Network::new(hosts, second),
        measure,
        drops: Vec::new(),
        flows,
        pings: Pings::default(),
        settings,
    };
    let mut random = Stream::named(study.seed, "start");
    for flow in 0..world.flows.len() as u32 {
        if world.flows[flow as usize].size > 0 {
            let at = Instant::ZERO + random.duration_up_to(START_WITHIN);
            world.events.schedule(at, Event::Begin { flow });
        }
    }
    if let Some(pings) = pings.filter(|pings| !pings.interval.is_zero()) {
        let at = Instant::ZERO + random.duration_up_to(pings.interval);
        world.pings = pings;
        world.events.schedule(at, Event::Ping);
    }
    world
}

/// Flows from the first host to the second; half of the processors, every other one, take twice as many.
fn long_flows(settings: &Settings, seed: u64, count: u32) -> Vec<Flow> {
    let mut held = vec![0_u32; usize::from(settings.processors)];
    (0..count)
        .map(|index| {
            let mut flow = Flow::new(settings, seed, index);
            // The processor with the least for its part; a part is 2 or 1, so compare twice the single ones.
            let part = |processor: usize| {
                held[processor] * if processor.is_multiple_of(2) { 1 } else { 2 }
            };
            let processor = (0..held.len()).min_by_key(|processor| part(*processor));
            let processor = processor.expect("there are processors");
            held[processor] += 1;
            flow.processor = processor as u16;
            flow
        })
        .collect()
}

/// Every host to every other; the first host's flows come first, and connections of a host go round its processors.
fn all_to_all(settings: &Settings, seed: u64, hosts: u16, bytes: Bytes) -> Vec<Flow> {
    let mut flows = Vec::new();
    for source in 0..hosts {
        for step in 1..hosts {
            let mut flow = Flow::new(settings, seed, flows.len() as u32);
            flow.source = source;
            flow.destination = (source + step) % hosts;
            flow.processor = (step - 1) % settings.processors;
            flow.size = bytes.get();
            flows.push(flow);
        }
    }
    flows
}

fn result(study: &NicStudy, world: &mut World) -> NicResult {
    let measure = &mut world.measure;
    let flows = match study.traffic {
        NicTraffic::Flows { flows, .. } => flows as usize,
        NicTraffic::AllToAll { .. } => world.flows.len(),
    };
    let end = match ends(study) {
        true => world.now,
        false => measure.until,
    };
    let measured = end.saturating_since(measure.from).max(Duration::from_ps(1));
    measure.extend_to(measured);
    let link = FairShare::OfLink(study.card.rate);
    let seconds = measured.as_secs_f64();
    let gbps = |bytes: u64| bytes as f64 * 8.0 / seconds / 1e9;
    let host = &world.hosts[0];
    let first = match ends(study) {
        true => measure.table_flows as usize,
        false => flows,
    };
    let busy = host.busy() - measure.busy_before;
    NicResult {
        measured_s: seconds,
        throughput_gbps: gbps(measure.sent[..first].iter().sum()),
        cpu_percent: busy.as_secs_f64() / seconds * 100.0,
        ping_us: quantiles(&mut world.pings.round_trips),
        nfm_1ms: measure.nfm(1, link),
        nfm_1s: measure.nfm(1_000, link),
        flow_gbps: measure.sent[..flows]
            .iter()
            .map(|bytes| gbps(*bytes))
            .collect(),
        queue_bytes: host.queues.iter().map(|queue| queue.sent_bytes).collect(),
        queue_bytes_max: host.queues.iter().map(|queue| queue.most).collect(),
        completion_ms: ends(study).then(|| completions(world)),
        counts: counts(world, link),
        ..NicResult::simulated(study.config.name, flows as u32, study.seed)
    }
}

fn quantiles(sample: &mut [Duration]) -> Option<Quantiles> {
    sample.sort_unstable();
    let last = sample.len().checked_sub(1)?;
    // The nearest rank, as `ping` users read it.
    let at = |part: f64| {
        sample[((sample.len() as f64 * part).ceil() as usize).clamp(1, last + 1) - 1].as_us_f64()
    };
    Some(Quantiles {
        count: sample.len() as u64,
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
    })
}

fn completions(world: &World) -> Completions {
    let ms = |at: Instant| at.saturating_since(Instant::ZERO).as_us_f64() / 1e3;
    let mut all: Vec<Instant> = world
        .flows
        .iter()
        .filter_map(|flow| flow.finished)
        .collect();
    all.sort_unstable();
    let spread = |host: usize| {
        let of_host = world
            .flows
            .iter()
            .filter(|flow| usize::from(flow.source) == host);
        let times = of_host.filter_map(|flow| flow.finished);
        let (first, last) = times.fold((Instant::MAX, Instant::ZERO), |(first, last), at| {
            (first.min(at), last.max(at))
        });
        last.saturating_since(first).as_us_f64() / 1e3
    };
    Completions {
        all_ms: all.into_iter().map(ms).collect(),
        spread_ms: (0..world.hosts.len()).map(spread).collect(),
    }
}

fn counts(world: &World, link: FairShare) -> BTreeMap<String, u64> {
    let measure = &world.measure;
    [
        ("retransmissions", measure.retransmissions),
        ("timeouts", measure.timeouts),
        ("drops", measure.drops),
        ("reordered", measure.reordered),
        ("moves", measure.moves),
        ("weight_writes", measure.weight_writes),
        ("interrupts", measure.interrupts),
        ("segments", measure.segments),
        ("packets", measure.packets),
        ("nfm_1ms_mean_thousandths", measure.mean_nfm_1ms(link)),
    ]
    .map(|(name, count)| (name.to_owned(), count))
    .into()
}

impl World {
    /// Every byte that left a card was received, dropped, or is on the way.
    fn assert_conservation(&self) {
        let mut way = vec![0_u64; self.flows.len()];
        self.network.add_crossing(&mut way);
        for arrival in self
            .hosts
            .iter()
            .flat_map(|host| &host.vectors)
            .flat_map(|vector| &vector.receive)
        {
            if arrival.kind == crate::segment::Kind::Data {
                way[arrival.flow as usize] += u64::from(arrival.payload);
            }
        }
        for (index, flow) in self.flows.iter().enumerate() {
            let known = flow.tally.received + flow.tally.dropped + way[index];
            assert_eq!(
                flow.tally.wire, known,
                "bytes of flow {index} are conserved"
            );
        }
    }
}
