//! What no policy can repair: links with more load than they carry, objectives below the wire time.
//!
//! Load: mean payload per link in line rates of a host, at the start of each group, when most groups run. Each caller's
//! load is spread evenly over those it may call, and over the equal-cost links above a rack; a permutation
//! is taken as all-to-all, since the seed decides it. Fat trees carry between racks what their hosts can send. Closed
//! groups wait for their answers and overload nothing for long.
//! A mean above 1 can never be carried: admission lowers classes, but drops nothing, so queues grow as long
//! as the run lasts, and results depend on its length. That is a mistake, or the experiment itself; the scenario says
//! `overload = true` for the latter.
//!
//! Objective: the least time of the best call that the class has, on the shortest way, through empty queues.

use super::lists::rounded;
use crate::model::{
    Arrivals, CallSlo, FabricScenario, FabricTopology, Pattern, Shape, SizeDistribution, Traffic,
};
use isolane_common_quantities::units::{Bytes, Duration};
use isolane_common_toml_input::error::{InputError, Problem};
use isolane_common_toml_input::table::Table;

/// How far above 1 a sum of written loads may come out.
const LOAD_ERROR: f64 = 1e-9;

/// Mean load of every link that can be the narrow one.
struct Loads {
    /// From each host.
    up: Vec<f64>,
    /// To each host.
    down: Vec<f64>,
    /// Out of each rack, all its links together.
    out: Vec<f64>,
    into: Vec<f64>,
}

impl Loads {
    fn none(topology: &FabricTopology) -> Self {
        let (racks, _) = racks(topology);
        let hosts = topology.shape.hosts() as usize;
        Self {
            up: vec![0.0; hosts],
            down: vec![0.0; hosts],
            out: vec![0.0; racks],
            into: vec![0.0; racks],
        }
    }

    fn of(group: &Traffic, topology: &FabricTopology) -> Self {
        let mut loads = Self::none(topology);
        let Arrivals::Open { load, .. } = group.arrivals else {
            return loads;
        };
        let (_, per_rack) = racks(topology);
        let rack = |host: u32| (host / per_rack) as usize;
        match &group.pattern {
            Pattern::AllToAll { hosts }
            | Pattern::Permutation { hosts }
            | Pattern::Shuffle { hosts } => {
                let mut members = vec![0.0; loads.out.len()];
                for &host in hosts {
                    loads.up[host as usize] += load;
                    loads.down[host as usize] += load;
                    members[rack(host)] += 1.0;
                }
                let others = (hosts.len() - 1) as f64;
                for (index, &inside) in members.iter().enumerate() {
                    let leaving = load * inside * (hosts.len() as f64 - inside) / others;
                    loads.out[index] += leaving;
                    loads.into[index] += leaving;
                }
            }
            Pattern::Incast { senders, receiver } => {
                for &sender in senders {
                    loads.add(sender, *receiver, load, rack);
                }
            }
            Pattern::Pairs { pairs } => {
                let mut called = vec![0.0; loads.up.len()];
                for (from, _) in pairs {
                    called[*from as usize] += 1.0;
                }
                for &(from, to) in pairs {
                    loads.add(from, to, load / called[from as usize], rack);
                }
            }
        }
        loads
    }

    fn add(&mut self, from: u32, to: u32, load: f64, rack: impl Fn(u32) -> usize) {
        self.up[from as usize] += load;
        self.down[to as usize] += load;
        if rack(from) != rack(to) {
            self.out[rack(from)] += load;
            self.into[rack(to)] += load;
        }
    }

    fn lists(&self) -> [&[f64]; 4] {
        [&self.up, &self.down, &self.out, &self.into]
    }
}

fn racks(topology: &FabricTopology) -> (usize, u32) {
    match topology.shape {
        Shape::LeafSpine {
            leaves,
            hosts_per_leaf,
            ..
        } => (leaves as usize, hosts_per_leaf),
        Shape::TwoRacks { hosts_per_rack, .. } => (2, hosts_per_rack),
        Shape::SingleSwitch { .. } | Shape::FatTree { .. } => (1, topology.shape.hosts()),
    }
}

/// What a rack's links carry together, in line rates of a host.
fn rack_capacity(topology: &FabricTopology) -> f64 {
    let host = topology.host_rate.as_gbps_f64();
    match topology.shape {
        Shape::LeafSpine {
            spines,
            uplink_rate,
            ..
        } => f64::from(spines) * uplink_rate.as_gbps_f64() / host,
        Shape::TwoRacks { uplink_rate, .. } => uplink_rate.as_gbps_f64() / host,
        Shape::SingleSwitch { .. } | Shape::FatTree { .. } => f64::INFINITY,
    }
}

/// Refuses a mean load above 1 at any link, unless the text says that it is meant.
pub(super) fn loads(top: &Table<'_>, scenario: &FabricScenario) -> Result<(), InputError> {
    if top.flag("overload")?.unwrap_or(false) {
        return Ok(());
    }
    let end = scenario.warmup + scenario.duration;
    let groups: Vec<Loads> = scenario
        .traffic
        .iter()
        .map(|group| Loads::of(group, &scenario.topology))
        .collect();
    let mut starts: Vec<Duration> = scenario.traffic.iter().map(|group| group.start).collect();
    starts.sort_unstable();
    starts.dedup();
    for start in starts {
        let running: Vec<usize> = scenario
            .traffic
            .iter()
            .enumerate()
            .filter(|(_, group)| group.start <= start && start < group.stop.unwrap_or(end))
            .map(|(index, _)| index)
            .collect();
        if let Some(problem) = overloaded(scenario, &groups, &running) {
            return Err(top.error_at("traffic", Problem::Promise { problem }));
        }
    }
    Ok(())
}

/// The link with the highest load, in words, if this is more than it carries.
fn overloaded(scenario: &FabricScenario, groups: &[Loads], running: &[usize]) -> Option<String> {
    let mut worst: Option<(f64, usize, usize)> = None;
    let rack = rack_capacity(&scenario.topology);
    let nic = scenario.topology.nic_rate.as_gbps_f64() / scenario.topology.host_rate.as_gbps_f64();
    let empty = Loads::none(&scenario.topology);
    for (kind, list) in empty.lists().into_iter().enumerate() {
        let capacity = [nic, 1.0, rack, rack][kind];
        for at in 0..list.len() {
            let sum: f64 = running
                .iter()
                .map(|&one| groups[one].lists()[kind][at])
                .sum();
            let load = sum / capacity;
            if load > 1.0 + LOAD_ERROR && worst.is_none_or(|(most, ..)| load > most) {
                worst = Some((load, kind, at));
            }
        }
    }
    let (load, kind, at) = worst?;
    let terms: Vec<String> = running
        .iter()
        .map(|&one| (one, groups[one].lists()[kind][at]))
        .filter(|(_, load)| *load > 0.0)
        .map(|(one, load)| format!("{} ({})", rounded(load), scenario.traffic[one].name))
        .collect();
    let link = match kind {
        0 => format!("the link from host {at}"),
        1 => format!("the link to host {at}"),
        2 => format!("the links out of rack {at}"),
        _ => format!("the links into rack {at}"),
    };
    let carries = match kind {
        0 => rounded(nic).to_string(),
        1 => "1".to_owned(),
        _ => format!("{} (all links of the rack together)", rounded(rack)),
    };
    Some(format!(
        "load: {link} would get {} line rates on average and carries {carries}: load {} is above 1, so its \
         queue grows as long as the run lasts. Divide the loads by {}, or say overload = true if that is the experiment",
        terms.join(" + "),
        rounded(load),
        rounded(load)
    ))
}

/// Refuses objectives that an idle network misses with every call.
pub(super) fn objectives(top: &Table<'_>, scenario: &FabricScenario) -> Result<(), InputError> {
    for (class, (start, map)) in top.tables("class")?.into_iter().enumerate() {
        let Some(slo) = scenario.classes[class].slo else {
            continue;
        };
        let best = scenario
            .traffic
            .iter()
            .filter(|group| group.mix[class] > 0.0)
            .flat_map(|group| {
                let of_class = class.min(group.sizes.len() - 1);
                calls(&group.sizes[of_class], scenario.ports.mtu)
            })
            .map(|size| IdleCall::of(size, scenario))
            .min_by_key(|call| call.judged(&slo));
        let Some(best) = best.filter(|best| best.judged(&slo) >= slo.target) else {
            continue;
        };
        let name = &scenario.classes[class].name;
        let place = Some(format!("class {name:?}"));
        let table = Table::open(top.source(), map, start, crate::keys::CLASS, place)?;
        let value = format!("{:?}", slo.target.to_string());
        let problem = Problem::value("slo.target", value, best.words(&slo, scenario));
        return Err(table.error_at("slo", problem));
    }
    Ok(())
}

/// Sizes that bound what a distribution can do: the smallest, and the largest with as little as possible in its last
/// packet.
fn calls(sizes: &SizeDistribution, mtu: Bytes) -> Vec<Bytes> {
    match sizes {
        SizeDistribution::Fixed { size } => vec![*size],
        SizeDistribution::Cumulative { points, .. } => {
            let smallest = points[0].0;
            let largest = points[points.len() - 1].0.get();
            let full = (largest - 1) / mtu.get() * mtu.get();
            vec![smallest, Bytes::new(full + 1).max(smallest)]
        }
    }
}

/// A call alone in the network, on its shortest way.
struct IdleCall {
    size: Bytes,
    packets: u64,
    /// The packets one after the other on a link of the host's rate.
    all_packets: Duration,
    /// The last packet through the port of the sending host, which may be faster.
    last_packet: Duration,
    /// An acknowledgement through the host's port and on the other link.
    answer: Duration,
    links: u64,
    total: Duration,
}

impl IdleCall {
    fn of(size: Bytes, scenario: &FabricScenario) -> Self {
        let rate = scenario.topology.host_rate;
        let (mtu, header) = (scenario.ports.mtu, scenario.ports.header);
        let packets = size.get().div_ceil(mtu.get());
        let on_wire = size.get() + packets * header.get();
        let last = size.get() - (packets - 1) * mtu.get() + header.get();
        let links = shortest_way(scenario.topology.shape);
        let nic = scenario.topology.nic_rate;
        let all_packets = rate.time_for(Bytes::new(on_wire));
        let last_packet = nic.time_for(Bytes::new(last));
        let answer = nic.time_for(header) + rate.time_for(header);
        // Links above the racks may be faster than any: only the host's links at both ends count as wire time.
        let propagation = scenario.topology.hop_delay * (2 * links);
        let total = all_packets + last_packet + answer + propagation;
        Self {
            size,
            packets,
            all_packets,
            last_packet,
            answer,
            links,
            total,
        }
    }

    fn judged(&self, slo: &CallSlo) -> Duration {
        match slo.per_mtu {
            true => self.total / self.packets,
            false => self.total,
        }
    }

    fn words(&self, slo: &CallSlo, scenario: &FabricScenario) -> String {
        let per_mtu = match slo.per_mtu {
            true => format!(" / {} = {} per MTU", self.packets, self.judged(slo)),
            false => String::new(),
        };
        format!(
            "below what an idle network takes. A call of {} needs {} packets: {} on a link of {}, {} for the last packet \
             through the sender's port, {} for the acknowledgement, 2 x {} links x {}: {}{per_mtu}; must be above {}",
            self.size,
            self.packets,
            self.all_packets,
            scenario.topology.host_rate,
            self.last_packet,
            self.answer,
            self.links,
            scenario.topology.hop_delay,
            self.total,
            self.judged(slo),
        )
    }
}

/// Links between the two hosts that are nearest.
fn shortest_way(shape: Shape) -> u64 {
    match shape {
        Shape::LeafSpine {
            hosts_per_leaf: 1, ..
        }
        | Shape::TwoRacks {
            hosts_per_rack: 1, ..
        } => 4,
        // One host per edge switch: through the pod's aggregation switch, or the cores where a pod has one edge switch.
        Shape::FatTree { k: 2 } => 6,
        _ => 2,
    }
}
