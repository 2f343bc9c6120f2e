//! Resources, workloads and numbers in words.

use isolane_rdma_scenario::application::{Algorithm, ApplicationTraffic, Program, Servers};
use isolane_rdma_scenario::model::{ControlObject, Host, Tenant, Traffic, Verb};
use isolane_rdma_simulator::rnic::trace::Resource;

/// A resource as the story names it.
pub fn title(resource: Resource) -> &'static str {
    match resource {
        Resource::RequesterUnits => "requester processing units",
        Resource::ResponderUnits => "receiving processing units",
        Resource::PcieToNic => "PCIe towards the NIC",
        Resource::PcieToHost => "PCIe towards the host",
        Resource::Wire => "link",
        Resource::Loopback => "loopback path",
        Resource::ContextSlots => "slots for queue-pair context misses",
        Resource::TranslationSlots => "slots for address translation misses",
        Resource::ReceiveSlots => "slots for receive work request misses",
        Resource::ContextRead => "reads of evicted queue-pair contexts",
        Resource::TranslationRead => "reads of evicted address translations",
        Resource::ReceiveRead => "reads of evicted receive work requests",
        Resource::NotReadyStall => "receiver-not-ready stalls of the receiving units",
        Resource::DropStall => "no-receive stalls of the receiving units",
        Resource::DeregistrationStall => "deregistration stalls of address translation",
        Resource::ReceiveBuffer => "receive buffer and its pauses",
        Resource::Commands => "command queue",
        Resource::Policy => "the policy's pacing",
        Resource::RateLimiter => "rate limiter of its hardware queue",
        Resource::Pacing => "congestion control",
        Resource::ReadLimit => "its own earlier READs or atomics",
        Resource::RetryTimer => "receiver-not-ready timer",
        Resource::Application => "its own application",
        Resource::Refill => "data on its way after a stall",
        Resource::Way => "fixed delays",
    }
}

/// A resource beside a plot, where there is room for about twenty letters.
pub fn short(resource: Resource) -> &'static str {
    match resource {
        Resource::RequesterUnits => "requester units",
        Resource::ResponderUnits => "receiving units",
        Resource::PcieToNic => "PCIe to NIC",
        Resource::PcieToHost => "PCIe to host",
        Resource::ContextSlots => "context miss slots",
        Resource::TranslationSlots => "address miss slots",
        Resource::ReceiveSlots => "receive miss slots",
        Resource::ContextRead => "context reads",
        Resource::TranslationRead => "address reads",
        Resource::ReceiveRead => "receive reads",
        Resource::NotReadyStall => "not-ready stalls",
        Resource::DropStall => "no-receive stalls",
        Resource::DeregistrationStall => "deregistrations",
        Resource::ReceiveBuffer => "receive buffer",
        Resource::Policy => "policy",
        Resource::RateLimiter => "rate limiter",
        Resource::ReadLimit => "own READs",
        Resource::RetryTimer => "not-ready timer",
        Resource::Application => "application",
        Resource::Refill => "refill after stall",
        other => title(other),
    }
}

/// A resource of `host` in a sentence: its title with an article where it takes one.
pub fn of_host(resource: Resource, host: Host) -> String {
    let article = match resource {
        Resource::RequesterUnits
        | Resource::ResponderUnits
        | Resource::Wire
        | Resource::Loopback
        | Resource::ContextSlots
        | Resource::TranslationSlots
        | Resource::ReceiveSlots
        | Resource::ReceiveBuffer
        | Resource::Commands
        | Resource::RateLimiter
        | Resource::RetryTimer => "the ",
        _ => "",
    };
    format!("{article}{} of host {}", title(resource), letter(host))
}

/// `text` with a capital first letter.
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// Whether a resource is a time in which a unit is stalled, not a unit that work fills.
pub fn is_stall(resource: Resource) -> bool {
    matches!(
        resource,
        Resource::NotReadyStall | Resource::DropStall | Resource::DeregistrationStall
    )
}

/// What a cache holds; `name` as in the result.
pub fn entries(name: &str) -> &str {
    match name {
        "contexts" => "queue-pair contexts",
        "translations" => "address translations",
        "protections" => "memory regions",
        "receives" => "receive work requests",
        other => other,
    }
}

/// Whether occupancy has a meaning: the resource has a capacity that work fills.
pub fn has_capacity(resource: Resource) -> bool {
    matches!(
        resource,
        Resource::RequesterUnits
            | Resource::ResponderUnits
            | Resource::PcieToNic
            | Resource::PcieToHost
            | Resource::Wire
            | Resource::Loopback
            | Resource::ContextSlots
            | Resource::TranslationSlots
            | Resource::ReceiveSlots
            | Resource::NotReadyStall
            | Resource::DropStall
            | Resource::DeregistrationStall
            | Resource::ReceiveBuffer
            | Resource::Commands
    )
}

/// The resource whose occupancy shows why `resource` made the victim wait.
pub fn occupied(resource: Resource) -> Resource {
    match resource {
        Resource::ContextRead => Resource::ContextSlots,
        Resource::TranslationRead => Resource::TranslationSlots,
        Resource::ReceiveRead => Resource::ReceiveSlots,
        Resource::RetryTimer => Resource::NotReadyStall,
        other => other,
    }
}

/// The host's letter.
pub fn letter(host: Host) -> char {
    const LETTERS: [char; 8] = ['A', 'B', 'C', 'D', 'E', 'F', 'G', 'H'];
    LETTERS[host as usize]
}

/// What a tenant does: `1536 queue pairs, WRITE of 64 B`.
pub fn does(tenant: &Tenant) -> String {
    let mut parts: Vec<String> = Vec::new();
    for workload in &tenant.workloads {
        let part = match &workload.traffic {
            Traffic::Data(data) => {
                let pairs = u64::from(workload.processes) * u64::from(data.queue_pairs);
                let sizes: Vec<u64> = data.pattern.iter().map(|m| m.bytes().get()).collect();
                let (least, most) = (sizes.iter().min(), sizes.iter().max());
                let size = match (least, most) {
                    (Some(least), Some(most)) if least == most => bytes(*least),
                    (Some(least), Some(most)) => format!("{} to {}", bytes(*least), bytes(*most)),
                    _ => "nothing".to_owned(),
                };
                let regions = match data.memory_regions {
                    0 | 1 => String::new(),
                    count => format!(" in {count} memory regions per process"),
                };
                let unposted = match (data.verb, data.receive_batch) {
                    (Verb::Send, 0) => ", with no receives posted",
                    _ => "",
                };
                let loopback = match workload.from == workload.to {
                    true => ", within one host",
                    false => "",
                };
                format!(
                    "{} of {size} on {pairs} queue {}{regions}{unposted}{loopback}",
                    data.verb.name(),
                    plural(pairs, "pair"),
                )
            }
            Traffic::Application(application) => program(application),
            Traffic::Control(control) => {
                let threads = u64::from(workload.processes) * u64::from(control.threads);
                let object = match control.object {
                    ControlObject::MemoryRegion => "memory regions",
                    ControlObject::QueuePair => "queue pairs",
                    ControlObject::CompletionQueue => "completion queues",
                };
                format!(
                    "creation and destruction of {object} from {threads} {}",
                    plural(threads, "thread")
                )
            }
        };
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    parts.join("; ")
}

/// What a distributed application does: `ring allreduce of 1 MiB among 4 hosts, 1 worker each`.
fn program(application: &ApplicationTraffic) -> String {
    let hosts = application.hosts.len();
    match &application.program {
        Program::Allreduce {
            algorithm,
            workers,
            buffer,
            ..
        } => {
            let shape = match algorithm {
                Algorithm::Ring => "ring",
                Algorithm::Tree => "tree",
            };
            format!(
                "{shape} allreduce of {} among {hosts} hosts, {workers} {} each",
                bytes(buffer.get()),
                plural(u64::from(*workers), "worker")
            )
        }
        Program::KeyValue {
            servers,
            threads,
            window,
            batch,
            ..
        } => {
            let clients =
                |count: usize| format!("from {count} client {}", plural(count as u64, "host"));
            let (way, each) = match servers {
                Servers::First => (clients(hosts - 1), "each"),
                Servers::All => (clients(hosts), "each"),
                Servers::Others => (format!("among all threads of {hosts} hosts"), "per host"),
            };
            let batches = match batch {
                1 => String::new(),
                _ => format!(" in batches of {batch}"),
            };
            format!(
                "key-value requests {way}, {threads} {} {each}, {window} on the way per thread{batches}",
                plural(u64::from(*threads), "thread")
            )
        }
    }
}

/// What several tenants do.
pub fn all_do(tenants: &[Tenant]) -> String {
    match tenants {
        [one] => does(one),
        several => {
            let texts = several.iter().map(|t| format!("{}: {}", t.name, does(t)));
            texts.collect::<Vec<_>>().join("; ")
        }
    }
}

fn plural(count: u64, word: &str) -> String {
    match count {
        1 => word.to_owned(),
        _ => format!("{word}s"),
    }
}

/// Bytes in the binary unit that divides them.
pub fn bytes(count: u64) -> String {
    match count {
        0 => "0 B".to_owned(),
        c if c % (1 << 20) == 0 => format!("{} MiB", c >> 20),
        c if c % (1 << 10) == 0 => format!("{} KiB", c >> 10),
        c => format!("{c} B"),
    }
}

/// Microseconds with about three significant digits.
pub fn us(value: f64) -> String {
    match value.abs() {
        v if v >= 10_000.0 => format!("{:.1} ms", value / 1000.0),
        v if v >= 100.0 => format!("{value:.0} us"),
        v if v >= 10.0 => format!("{value:.1} us"),
        v if v >= 0.1 => format!("{value:.2} us"),
        v if v > 0.0 => format!("{:.0} ns", value * 1000.0),
        _ => "0 us".to_owned(),
    }
}

/// A share, 0 to 1, in percent.
pub fn percent(ratio: f64) -> String {
    match ratio * 100.0 {
        p if p > 0.0 && p < 0.1 => "below 0.1 %".to_owned(),
        p if p > 0.0 && p < 10.0 || p > 99.0 && p < 99.95 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_common_quantities::units::Duration;
    use isolane_rdma_scenario::model::Transport;

    #[test]
    fn times_and_shares_keep_three_digits() {
        let times = [12_345.0, 123.4, 12.34, 1.234, 0.012, 0.0].map(us);
        assert_eq!(
            times.join(", "),
            "12.3 ms, 123 us, 12.3 us, 1.23 us, 12 ns, 0 us"
        );
        let shares = [0.0, 0.0004, 0.0123, 0.934, 0.998, 1.0].map(percent);
        assert_eq!(
            shares.join(", "),
            "0 %, below 0.1 %, 1.2 %, 93 %, 99.8 %, 100 %"
        );
        assert_eq!(bytes(65_536), "64 KiB");
    }

    #[test]
    fn a_store_is_told_by_who_calls_whom() {
        let told = |servers: Servers, batch: u32| {
            program(&ApplicationTraffic {
                hosts: vec![Host::A, Host::B],
                program: Program::KeyValue {
                    servers,
                    threads: 4,
                    server_threads: 4,
                    window: 16,
                    batch,
                    credits: None,
                    request: Vec::new(),
                    response: Vec::new(),
                    service: Duration::ZERO,
                },
                verb: Verb::Send,
                transport: Transport::Rc,
                inline_bytes: 0,
                mtu: 1024,
            })
        };
        assert_eq!(
            told(Servers::First, 1),
            "key-value requests from 1 client host, 4 threads each, 16 on the way per thread"
        );
        assert_eq!(
            told(Servers::Others, 8),
            "key-value requests among all threads of 2 hosts, 4 threads per host, 16 on the way per thread in batches of 8"
        );
    }

    #[test]
    fn every_resource_has_words_of_its_own() {
        let mut titles = Resource::ALL.map(title).to_vec();
        titles.sort_unstable();
        titles.dedup();
        assert_eq!(titles.len(), Resource::ALL.len());
        let mut labels = Resource::ALL.map(short).to_vec();
        assert!(labels.iter().all(|label| label.len() <= 20), "{labels:?}");
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), Resource::ALL.len());
    }
}
