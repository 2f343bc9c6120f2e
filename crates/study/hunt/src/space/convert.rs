//! A point as a scenario that any testbed runs, and as the text of a scenario file.
//!
//! Queue pairs are spread over up to [`PROCESSES`] processes per direction, each a thread on a core of its own, so
//! that posting is not the limit; where that does not go evenly, some processes have one queue pair more. Regions
//! belong to processes: their number is rounded up to equal parts, at least one each. Each kind of traffic is one tenant, and no
//! policy runs. Both forms are made from one list of workloads, so that they cannot differ.

use super::point::{self, Feature, Point, SERVICES};
use isolane_common_quantities::units::{Bytes, Duration};
use isolane_rdma_scenario::model::{
    Class, ControlObject, ControlPhase, ControlTraffic, DataTraffic, Host, MemoryPlace, Message,
    Scenario, Tenant, Traffic, Transport, Verb, Workload,
};
use std::fmt::Write;

/// Processes of one direction at most: cores that a server easily has.
pub const PROCESSES: u64 = 16;
/// READs a queue pair may have outstanding: what `max_rd_atomic` of current NICs allows.
pub const OUTSTANDING_READS: u32 = 16;
/// Receive queue where none is used: the format's default.
const RECEIVE_DEPTH: u32 = 512;
/// The tenants that run the first and the second kind of traffic.
const TENANTS: [&str; 2] = ["hunt", "second"];

/// How long an experiment lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Before measuring.
    pub warmup: Duration,
    /// Measured.
    pub duration: Duration,
}

/// `processes` of `queue_pairs` each from one host to another.
struct Flow {
    name: String,
    processes: u64,
    queue_pairs: u64,
    from: Host,
    to: Host,
}

fn flows(point: &Point) -> Vec<Flow> {
    let all = point.queue_pairs;
    let ends = match point.direction {
        point::BIDIRECTIONAL => vec![(Host::A, Host::B, all), (Host::B, Host::A, all)],
        point::LOOPBACK => vec![
            (Host::A, Host::A, all / 2),
            (Host::B, Host::A, all - all / 2),
        ],
        point::BACKWARD => vec![(Host::B, Host::A, all)],
        point::INSIDE_A => vec![(Host::A, Host::A, all)],
        point::INSIDE_B => vec![(Host::B, Host::B, all)],
        _ => vec![(Host::A, Host::B, all)],
    };
    let mut flows = Vec::new();
    for (from, to, pairs) in ends {
        let processes = pairs.min(PROCESSES);
        let more = pairs % processes;
        let name = |part: &str| format!("{}{}{part}", from.letter(), to.letter()).to_lowercase();
        let parts = [
            ("", processes - more, pairs / processes),
            ("-more", more, pairs / processes + 1),
        ];
        for (part, processes, queue_pairs) in parts {
            if processes > 0 {
                flows.push(Flow {
                    name: name(part),
                    processes,
                    queue_pairs,
                    from,
                    to,
                });
            }
        }
    }
    flows
}

fn memory(point: &Point, host: Host) -> MemoryPlace {
    let index = if host == Host::A {
        point.memory_a
    } else {
        point.memory_b
    };
    match index {
        1 => MemoryPlace::RemoteSocket,
        2 => MemoryPlace::Gpu,
        _ => MemoryPlace::Local,
    }
}

fn service(point: &Point) -> (Transport, Verb) {
    match SERVICES[point.service as usize] {
        "rc-send" => (Transport::Rc, Verb::Send),
        "rc-read" => (Transport::Rc, Verb::Read),
        "uc-write" => (Transport::Uc, Verb::Write),
        "uc-send" => (Transport::Uc, Verb::Send),
        "ud-send" => (Transport::Ud, Verb::Send),
        "rc-compare-swap" => (Transport::Rc, Verb::CompareSwap),
        _ => (Transport::Rc, Verb::Write),
    }
}

/// The space's ranges fit 32 bits.
fn small(value: u64) -> u32 {
    u32::try_from(value).expect("the space's ranges fit 32 bits")
}

/// Loops of control verbs at `from`: as many threads as queue pairs, up to the cores of a server, sharing the regions.
fn control(point: &Point, name: &str, from: Host) -> Workload {
    let threads = point.queue_pairs.min(PROCESSES);
    Workload {
        name: name.to_owned(),
        processes: 1,
        from,
        to: from,
        traffic: Traffic::Control(ControlTraffic {
            object: match point.control {
                2 => ControlObject::QueuePair,
                3 => ControlObject::CompletionQueue,
                _ => ControlObject::MemoryRegion,
            },
            threads: small(threads),
            objects: small(point.regions.div_ceil(threads)),
            protection_domains: 1,
            region_bytes: match point.control {
                // Other objects have no regions; the format's default means none.
                2.. => Bytes::new(4_096),
                _ => Bytes::new(point.region_bytes),
            },
            phase: ControlPhase::Cycle,
        }),
    }
}

/// What `point`, which has one kind of traffic, runs.
pub fn workloads(point: &Point) -> Vec<Workload> {
    if point.control == 0 {
        return flows(point)
            .iter()
            .map(|flow| workload(point, flow))
            .collect();
    }
    let hosts: &[(&str, Host)] = match point.direction {
        point::BIDIRECTIONAL => &[("control-a", Host::A), ("control-b", Host::B)],
        point::BACKWARD | point::INSIDE_B => &[("control-b", Host::B)],
        _ => &[("control-a", Host::A)],
    };
    let all = hosts.iter().map(|&(name, host)| control(point, name, host));
    all.collect()
}

fn workload(point: &Point, flow: &Flow) -> Workload {
    let (transport, verb) = service(point);
    let processes = point.queue_pairs.min(PROCESSES);
    let messages = point.requests.iter().map(|request| Message {
        elements: request.iter().map(|&size| small(size)).collect(),
    });
    let traffic = DataTraffic {
        pattern: messages.collect(),
        queue_pairs: small(flow.queue_pairs),
        post_list: small(point.post_list),
        completion_every: small(point.post_list),
        receive_depth: match point.has_receives() {
            true => small(point.receive_depth.max(1)),
            false => RECEIVE_DEPTH,
        },
        receive_batch: match point.receives {
            point::NEVER => 0,
            _ => small(point.receive_batch.max(1)),
        },
        max_read_atomic: OUTSTANDING_READS,
        mtu: small(point.mtu),
        memory_regions: small(point.regions.div_ceil(processes)),
        region_bytes: Bytes::new(point.region_bytes),
        memory: memory(point, flow.from),
        remote_memory: memory(point, flow.to),
        ..DataTraffic::plain(verb, transport, Message::of(1), small(point.depth))
    };
    Workload {
        name: flow.name.clone(),
        processes: small(flow.processes),
        from: flow.from,
        to: flow.to,
        traffic: Traffic::Data(traffic),
    }
}

/// `point` as a scenario called `name` for the device `profile`.
pub fn scenario(point: &Point, name: &str, profile: &str, seed: u64, times: Times) -> Scenario {
    Scenario {
        warmup: times.warmup,
        seed,
        sample_interval: Duration::from_ps((times.duration.as_ps() / SAMPLES).max(1)),
        ..Scenario::plain(name, profile, times.duration, tenants(point))
    }
}

/// The tenants that run `point`: one for each kind of traffic.
pub fn tenants(point: &Point) -> Vec<Tenant> {
    let parts = point.parts();
    let named = parts.iter().zip(TENANTS);
    named.map(|(part, name)| tenant(part, name)).collect()
}

/// The tenant that runs `point`, which has one kind of traffic.
pub fn tenant(point: &Point, name: &str) -> Tenant {
    Tenant {
        workloads: workloads(point),
        ..Tenant::named(name, Class::Bandwidth)
    }
}

/// Points of the series on which the steady state is judged.
pub const SAMPLES: u64 = 40;

/// The same scenario as a file for `isolane sim`, with `description`.
pub fn scenario_text(
    point: &Point,
    (name, description): (&str, &str),
    profile: &str,
    seed: u64,
    times: Times,
) -> String {
    let scenario = scenario(point, name, profile, seed, times);
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let mut text = format!(
        "name = {}\ndescription = {}\nprofile = {}\ntopology = \"switch\"\nwarmup = \"{}\"\nduration = \"{}\"\n\
         sample_interval = \"{}\"\nseed = {seed}\n",
        quoted(name),
        quoted(description),
        quoted(profile),
        scenario.warmup.exact(),
        scenario.duration.exact(),
        scenario.sample_interval.exact(),
    );
    for (part, name) in point.parts().iter().zip(TENANTS) {
        let head = format!("\n[[tenant]]\nname = \"{name}\"\nclass = \"bandwidth\"\n");
        text.push_str(&head);
        workloads_text(&mut text, part);
    }
    text
}

/// The workloads of `point`, which has one kind of traffic, as tables of the last `[[tenant]]` of `text`.
pub fn workloads_text(text: &mut String, point: &Point) {
    for workload in &workloads(point) {
        match &workload.traffic {
            Traffic::Data(data) => traffic_text(text, workload, data, point),
            Traffic::Control(control) => control_text(text, workload, control),
            Traffic::Application(_) => unreachable!("a point runs no application"),
        }
    }
}

fn control_text(text: &mut String, workload: &Workload, control: &ControlTraffic) {
    let object = match control.object {
        ControlObject::MemoryRegion => "memory-region",
        ControlObject::QueuePair => "queue-pair",
        ControlObject::CompletionQueue => "completion-queue",
    };
    let region = match control.object {
        ControlObject::MemoryRegion => format!("region = {}\n", control.region_bytes.get()),
        _ => String::new(),
    };
    writeln!(
        text,
        "\n[[tenant.control]]\nname = {:?}\nobject = {object:?}\nthreads = {}\nobjects = {}\n{region}from = {:?}",
        workload.name,
        control.threads,
        control.objects,
        workload.from.letter().to_ascii_lowercase().to_string(),
    )
    .expect("writing to a string never fails");
}

fn traffic_text(text: &mut String, workload: &Workload, data: &DataTraffic, point: &Point) {
    let host = |host: Host| host.letter().to_ascii_lowercase();
    let names = SERVICES[point.service as usize].split_once('-');
    let (transport, verb) = names.expect("a service is a transport and a verb");
    let place = |host: Host| match host {
        Host::A => Feature::MemoryA.shown(point.memory_a),
        _ => Feature::MemoryB.shown(point.memory_b),
    };
    let lines = [
        ("name", format!("{:?}", workload.name)),
        ("verb", format!("{verb:?}")),
        ("transport", format!("{transport:?}")),
        ("pattern", format!("{:?}", point.requests)),
        ("processes", workload.processes.to_string()),
        ("from", format!("{:?}", host(workload.from))),
        ("to", format!("{:?}", host(workload.to))),
        ("queue_pairs", data.queue_pairs.to_string()),
        ("post_list", data.post_list.to_string()),
        ("depth", data.depth.to_string()),
        ("mtu", data.mtu.to_string()),
        ("memory_regions", data.memory_regions.to_string()),
        ("region", data.region_bytes.get().to_string()),
        ("memory", format!("{:?}", place(workload.from))),
        ("remote_memory", format!("{:?}", place(workload.to))),
    ];
    text.push_str("\n[[tenant.traffic]]\n");
    for (key, value) in lines {
        writeln!(text, "{key} = {value}").expect("writing to a string never fails");
    }
    if point.has_receives() {
        let (depth, batch) = (data.receive_depth, data.receive_batch);
        writeln!(text, "receive_depth = {depth}\nreceive_batch = {batch}")
            .expect("writing to a string never fails");
    }
}
