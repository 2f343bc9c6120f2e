//! From a scenario and a profile to a [`World`] ready to run.

use super::addresses::Addresses;
use super::apart::{Apart, WINDOW};
use super::arbiter::Sharing;
use super::cache::{Cache, MissSlots};
use super::chunks::Chunks;
use super::congestion::Timers;
use super::control::ControlLoop;
use super::device::Device;
use super::enforce::{Daemon, Enforcer};
use super::event::Event;
use super::lanes::{ALL_CLASSES, Lanes};
use super::meter::Meter;
use super::micro::{MicroNic, changes};
use super::nic::{Baseline, Buffer, Counts, Nic};
use super::peers::{Reports, Talks};
use super::policies::{Scheduler, Setup, SimError};
use super::process::{PatternEntry, Plan, Process};
use super::programs::Programs;
use super::queue_pair::{NONE, QueuePair, WorkRequest};
use super::sizes::PAGE;
use super::world::World;
use isolane_common_events::EventQueue;
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_rdma_scenario::model::{
    Arrival, DataTraffic, Host, Message, Scenario, Tenant, Traffic, Transport, Verb, Workload,
};
use isolane_rdma_scenario::profile::Profile;
use std::collections::VecDeque;

/// Payload of a reference message, bytes (justitia 4.3.2).
const REFERENCE_BYTES: u32 = 10;
/// Work requests that the send queue of a reference flow holds.
const REFERENCE_DEPTH: u32 = 64;
/// Messages of an open-loop pair that may wait, plus those in its queue and two lists, must fit its ring of post
/// times.
const OPEN_RING: u64 = 8192;
/// Send queue slots of a paced pair at least: chunks of split messages take slots of their own.
const PACED_RING: u64 = 256;
/// Unreliable pairs free a slot when the packet leaves, so slots must outlast the flight.
const UNRELIABLE_FACTOR: u64 = 4;

impl<const RECORDS: bool> World<RECORDS> {
    pub(crate) fn build(scenario: &Scenario, profile: &Profile) -> Result<Self, SimError> {
        let mut device = Device::of(profile);
        let setup = Setup::of(scenario, profile)?;
        if let Some(monitor) = &setup.monitor {
            device.behind_switch(monitor.latency.as_ps());
        }
        let seed = scenario.seed;
        let end = scenario.warmup.as_ps() + scenario.duration.as_ps();
        let tenants = scenario.tenants.len();
        let in_use = hosts_in_use(scenario);
        let mut world = Self {
            queue: EventQueue::new(),
            topology: scenario.topology,
            nics: vec![nic(&device, &setup); in_use.len()],
            in_use,
            buffer_of_class: setup.buffer_of_class(),
            device,
            pairs: Vec::new(),
            datagrams: Vec::new(),
            timers: Timers::default(),
            processes: Vec::new(),
            plans: Vec::new(),
            loops: Vec::new(),
            programs: Programs::default(),
            running: vec![false; tenants + 1],
            enforcer: Enforcer::default(),
            harmonic: None,
            meter: Meter::new(&vec![true; tenants]),
            dma_jitter: Stream::named(seed, "dma-jitter"),
            host_jitter: Stream::named(seed, "host-jitter"),
            addresses: Stream::named(seed, "addresses"),
            arrivals: Stream::named(seed, "arrivals"),
            end,
            horizon: end,
            baseline: Baseline::default(),
            sample_interval: scenario.sample_interval.as_ps().max(1),
            open_loop: vec![false; tenants],
            paced: vec![0; tenants],
            mtu_default: profile.value("link", "mtu_default_bytes") as u64,
            monitors: Vec::new(),
            layout: Addresses::default(),
            #[cfg(test)]
            moved: Vec::new(),
            border: None,
            trace: None,
            live: None,
        };
        world.monitors.resize_with(world.nics.len(), || None);
        #[cfg(test)]
        world.moved.resize(world.nics.len(), Vec::new());
        let paced = setup.pacing.is_some();
        let mut regions = 0;
        for (index, tenant) in scenario.tenants.iter().enumerate() {
            world.add_tenant(index as u16, tenant, paced, &mut regions);
        }
        world.add_daemons(scenario, &setup);
        for pair in &mut world.pairs {
            (pair.queue, pair.function) = setup.place_of(usize::from(pair.tenant));
        }
        world.set_micro();
        world.warm(seed);
        if setup.monitor.is_some() {
            world.attach_monitors();
        }
        if let Some(harmonic) = &setup.harmonic {
            world.start_harmonic(harmonic);
        }
        world
            .queue
            .schedule(Instant::ZERO + scenario.warmup, Event::Measure);
        Ok(world)
    }

    fn add_tenant(&mut self, number: u16, tenant: &Tenant, paced: bool, regions: &mut u64) {
        for workload in &tenant.workloads {
            self.add_workload(number, workload, paced, regions);
        }
        self.enforcer.tenants.push((tenant.weight, tenant.class));
        let changes = |starts| Event::Tenant {
            tenant: number,
            starts,
        };
        self.schedule(tenant.start.as_ps(), changes(true));
        if let Some(stop) = tenant.stop {
            self.schedule(stop.as_ps(), changes(false));
        }
    }

    fn add_workload(&mut self, tenant: u16, workload: &Workload, paced: bool, regions: &mut u64) {
        let (from, to) = (host_index(workload.from), host_index(workload.to));
        match &workload.traffic {
            Traffic::Application(application) => {
                self.add_program(tenant, application, paced, regions);
            }
            Traffic::Control(control) => {
                for number in 0..control.threads * workload.processes {
                    self.loops
                        .push(ControlLoop::new(control, tenant, from, number, *regions));
                    *regions += u64::from(control.objects) + 1;
                }
            }
            Traffic::Data(data) => {
                self.open_loop[usize::from(tenant)] |= matches!(data.arrival, Arrival::Open { .. });
                if let Arrival::Paced { rate } = data.arrival {
                    let directions = 1 + u64::from(data.bidirectional);
                    self.paced[usize::from(tenant)] +=
                        rate.as_bps() * u64::from(workload.processes) * directions;
                }
                self.plans.push(self.plan(data));
                let plan = self.plans.len() as u32 - 1;
                let answers = matches!(data.arrival, Arrival::PingPong);
                for _ in 0..workload.processes {
                    let first = self.add_process(tenant, data, plan, (from, to), paced, regions);
                    if answers || data.bidirectional {
                        let second =
                            self.add_process(tenant, data, plan, (to, from), paced, regions);
                        if answers {
                            for number in 0..data.queue_pairs {
                                self.pairs[(first + number) as usize].twin = second + number;
                                self.pairs[(second + number) as usize].twin = first + number;
                            }
                        }
                    }
                }
            }
        }
    }

    pub(crate) fn plan(&self, data: &DataTraffic) -> Plan {
        let entry = |message: &Message| PatternEntry {
            bytes: message.bytes().get(),
            elements: message.elements.len() as u16,
            changes: changes(message),
        };
        let depth = data.depth.max(data.post_list);
        Plan {
            pattern: data.pattern.iter().map(entry).collect(),
            post_list: data.post_list,
            depth,
            completion_every: completion_interval(data.completion_every, data.post_list, depth),
            receive_batch: data.receive_batch.min(data.receive_depth),
            retry_after: rnr_timer(data.min_rnr_timer).as_ps(),
            queue_pairs: u64::from(data.queue_pairs),
            max_read_atomic: data.max_read_atomic.max(1),
            inline_bytes: u64::from(data.inline_bytes).min(self.device.inline_max),
            arrival: data.arrival.clone(),
            weight: data.weight,
            iterations: data.iterations.unwrap_or(u64::MAX),
        }
    }

    /// Adds a process with its queue pairs; the number of the first.
    pub(crate) fn add_process(
        &mut self,
        tenant: u16,
        data: &DataTraffic,
        plan: u32,
        (host, peer): (u8, u8),
        paced: bool,
        regions: &mut u64,
    ) -> u32 {
        let process = self.processes.len() as u32;
        let first = self.pairs.len() as u32;
        let largest = data
            .pattern
            .iter()
            .map(|message| message.bytes().get())
            .max()
            .unwrap_or(1)
            .max(1);
        let pages = data.region_bytes.get().max(1).div_ceil(PAGE);
        let pages_per_message = largest.div_ceil(PAGE);
        let in_use = pages_per_message * u64::from(data.queue_pairs);
        self.processes.push(Process {
            cpu_free: 0,
            plan,
            regions: u64::from(data.memory_regions),
            pages_per_region: pages,
            // Several regions, or one much larger than what is in flight: accesses spread over all of it.
            random_access: data.memory_regions > 1 || pages >= 2 * in_use,
        });
        for number in 0..data.queue_pairs {
            let mut pair = queue_pair(process, tenant, (host, peer), data, paced);
            pair.region_base = *regions;
            pair.ordinal = (u64::from(number) * pages_per_message % pages) as u32;
            self.pairs.push(pair);
        }
        *regions += u64::from(data.memory_regions);
        first
    }

    fn add_daemons(&mut self, scenario: &Scenario, setup: &Setup) {
        self.enforcer.daemons.resize_with(self.nics.len(), || None);
        let Some(pacing) = &setup.pacing else { return };
        self.set_costs(scenario, setup);
        let tenants = scenario.tenants.len() as u16;
        let mut regions = 1 << 40;
        let talks = Talks::of(&self.pairs, self.in_use.clone());
        for host in 0..self.nics.len() {
            if !self.in_use[host] {
                continue;
            }
            let policy = pacing.instance();
            let data = reference_traffic(self.mtu_default as u32);
            self.plans.push(self.plan(&data));
            let plan = self.plans.len() as u32 - 1;
            let ends = (host as u8, talks.favourite(host) as u8);
            let reference = self.add_process(tenants, &data, plan, ends, false, &mut regions);
            self.pairs[reference as usize].reference = true;
            let map = isolane_rdma_policy::granularity::FlowMap::new(setup.granularity);
            let mut daemon = Daemon::new(policy, host as u8, map, reference);
            daemon.reports = Reports::of(talks.peers(host), self.nics.len());
            self.enforcer.daemons[host] = Some(Box::new(daemon));
        }
        let pairs = self.pairs.len();
        for daemon in self.enforcer.daemons.iter_mut().flatten() {
            daemon.size_for(pairs);
        }
    }
}

pub(crate) fn host_index(host: Host) -> u8 {
    host.index() as u8
}

/// Which hosts some workload has an end on, up to the last such host. The first two are always there.
fn hosts_in_use(scenario: &Scenario) -> Vec<bool> {
    let mut in_use = vec![true; 2];
    for workload in scenario.tenants.iter().flat_map(|tenant| &tenant.workloads) {
        for host in workload.hosts().into_iter().map(Host::index) {
            if host >= in_use.len() {
                in_use.resize(host + 1, false);
            }
            in_use[host] = true;
        }
    }
    in_use
}

fn nic(device: &Device, setup: &Setup) -> Nic {
    let sharing = &setup.lanes.sharing;
    let weights = setup.apart.as_ref().map(|apart| &apart.weights);
    let cache = |entries| match weights {
        Some(weights) => Cache::with_quotas(entries, weights),
        None => Cache::new(entries),
    };
    let slots = |slots| match weights {
        Some(weights) => MissSlots::with_reserves(slots, device.miss, weights),
        None => MissSlots::new(slots, device.miss),
    };
    let mut lanes = Lanes::new(
        sharing,
        setup.functions(),
        device.engines,
        |class, function| setup.rate(class, function),
    );
    if let Scheduler::Chunks(chunks) = setup.scheduler {
        for lane in &mut lanes.lanes {
            lane.chunks = Some(Box::new(Chunks::new(chunks)));
        }
    }
    Nic {
        lanes,
        step_due: u64::MAX,
        paused_since: 0,
        requester_free: 0,
        turn_ready: 0,
        responder_free: 0,
        wire_free: vec![0; sharing.ranks()],
        loop_free: 0,
        ack_free: 0,
        pcie_in_free: 0,
        pcie_out_free: 0,
        watched: false,
        translation_blocked: 0,
        contexts: cache(device.contexts),
        translations: cache(device.translations),
        protections: cache(device.protections),
        receive_wqes: cache(device.receive_wqes / device.receive_wqe_prefetch.max(1) as usize),
        context_slots: slots(device.context_slots),
        translation_slots: slots(device.translation_slots),
        receive_slots: slots(device.context_slots),
        functions: if setup.functions.is_some() {
            vec![0; setup.functions()]
        } else {
            Vec::new()
        },
        waiting: VecDeque::new(),
        buffers: buffers(device, setup),
        pausing: 0,
        pausing_since: 0,
        draining: false,
        next_buffer: 0,
        port_free: 0,
        switch_pauses: 0,
        commands: vec![0; device.commands.max(1) as usize],
        apart: apart(device, setup),
        micro: MicroNic::new(&device.micro),
        count: Counts::default(),
    }
}

/// What a NIC that keeps its tenants apart has for each of them.
fn apart(device: &Device, setup: &Setup) -> Option<Box<Apart>> {
    let apart = setup.apart.as_ref()?;
    let first = match setup.lanes.sharing {
        Sharing::Weighted { first, .. } => first,
        _ => 0,
    };
    let window = WINDOW / device.pcie.of(1).max(1);
    let apart = Apart::new(first, apart.turns.clone(), apart.weights.len(), window);
    Some(Box::new(apart))
}

/// One receive buffer for all classes, or a part of it for each.
fn buffers(device: &Device, setup: &Setup) -> Vec<Buffer> {
    let buffer = |classes: u16, part: u64, whole: u64| {
        let of = |bytes: u64| (u128::from(bytes) * u128::from(part) / u128::from(whole)) as u64;
        // However small its part, a class may hold two packets before it pauses.
        let packet = if part < whole { device.frame + PAGE } else { 0 };
        let pause_at = of(device.pause_at).max(2 * packet);
        Buffer {
            classes,
            packets: VecDeque::with_capacity(1024),
            buffered: 0,
            peak: 0,
            pause_at,
            resume_at: of(device.resume_at).min(pause_at - packet),
            held: VecDeque::new(),
            held_bytes: 0,
            ecn_at: of(device.switch_ecn),
            in_switch: 0,
            switch_at: of(device.switch_buffer),
        }
    };
    let parts = &setup.lanes.buffer_parts;
    let whole = parts.iter().sum();
    let split = parts.iter().enumerate();
    let mut buffers: Vec<Buffer> = split
        .map(|(class, &part)| buffer(1 << class, part, whole))
        .collect();
    if buffers.is_empty() {
        buffers.push(buffer(ALL_CLASSES, 1, 1));
    }
    buffers
}

fn queue_pair(
    process: u32,
    tenant: u16,
    (host, peer): (u8, u8),
    data: &DataTraffic,
    paced: bool,
) -> QueuePair {
    let depth = u64::from(data.depth.max(data.post_list));
    let mut slots = if data.transport == Transport::Rc {
        depth
    } else {
        depth * UNRELIABLE_FACTOR
    };
    if paced {
        slots = slots.max(PACED_RING);
    }
    let slots = slots.next_power_of_two();
    let at_once = slots.min(depth.next_power_of_two()) as usize;
    let open = matches!(data.arrival, Arrival::Open { .. });
    let times = if open {
        (3 * depth + OPEN_RING).next_power_of_two() as usize
    } else {
        depth.next_power_of_two() as usize
    };
    let receives = match data.receive_batch {
        0 => 0,
        _ => u64::from(data.receive_depth),
    };
    QueuePair {
        process,
        tenant,
        host,
        peer,
        verb: data.verb,
        transport: data.transport,
        mtu: data.mtu,
        twin: NONE,
        link: NONE,
        post_times: vec![0; times],
        receives_known: receives,
        slots: u32::try_from(slots).expect("scenarios bound the depth"),
        memory: data.memory,
        remote_memory: data.remote_memory,
        ring: vec![WorkRequest::default(); at_once].into_boxed_slice(),
        receives,
        reads_to_answer: VecDeque::with_capacity(if data.verb == Verb::Read { 32 } else { 0 }),
        ..QueuePair::default()
    }
}

/// One completion in this many requests: as in the scenario, unless the requests after the last completion could leave
/// less room than the next list needs, which would stop the pair forever. An application that polls in lists then
/// signals the last of each list.
fn completion_interval(asked: u32, post_list: u32, depth: u32) -> u32 {
    let asked = asked.clamp(1, depth);
    let step = greatest_common_divisor(asked, post_list);
    if asked - step + post_list <= depth {
        asked
    } else {
        step
    }
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

/// The reference flow: small inline WRITEs, one at a time or a few (justitia 4.3.2).
fn reference_traffic(mtu: u32) -> DataTraffic {
    let message = Message::of(REFERENCE_BYTES);
    DataTraffic {
        inline_bytes: REFERENCE_BYTES,
        mtu,
        ..DataTraffic::plain(Verb::Write, Transport::Rc, message, REFERENCE_DEPTH)
    }
}

/// The RNR NAK timer behind a code (IB specification, table of RNR NAK timer field encodings).
fn rnr_timer(code: u8) -> Duration {
    const TEN_US: [u64; 32] = [
        65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024,
        1_536, 2_048, 3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
    ];
    Duration::from_us(10 * TEN_US[usize::from(code & 31)])
}
