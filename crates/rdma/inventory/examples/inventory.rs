//! Prints the kernel's RDMA inventory in the form of `rdma resource show` and `rdma statistic show`, so that both can
//! be compared line by line on a machine with devices: `inventory qp|cq|mr|pd|cm_id|ctx|srq|statistic|processes`.
//! `inventory speed` prints the time of one pass; `inventory limit CGROUP DEVICE CONTEXTS OBJECTS` sets limits.
//! `inventory window DEVICE SECONDS` prints the increase of each common counter of port 1.
#![forbid(unsafe_code)]

use isolane_common_linux::cgroup::{Limit, RdmaController, RdmaLimits};
use isolane_common_linux::{HostError, Root};
use isolane_rdma_inventory::counters;
use isolane_rdma_inventory::counters::{Extra, Window};
use isolane_rdma_inventory::inventory;
use isolane_rdma_inventory::inventory::Inventory;
use isolane_rdma_inventory::rdma::{Connection, Holder};
use std::time::{Duration, Instant};

fn main() {
    let kind = std::env::args().nth(1).unwrap_or_default();
    if let Err(error) = print(&kind) {
        eprintln!("inventory: {error}");
        std::process::exit(if error.is_no_rdma() { 3 } else { 1 });
    }
}

fn print(kind: &str) -> Result<(), HostError> {
    let mut connection = Connection::open()?;
    let all = Inventory::read(&mut connection, None)?;
    match kind {
        "qp" => queue_pairs(&all),
        "cq" => completion_queues(&all),
        "mr" => memory_regions(&all),
        "pd" => protection_domains(&all),
        "cm_id" => connection_identifiers(&all),
        "ctx" => {
            for entry in &all.contexts {
                println!(
                    "dev {} ctxn {} {}",
                    entry.device,
                    entry.number,
                    holder(&entry.holder)
                );
            }
        }
        "srq" => println!("{}", all.shared_receive_queues.len()),
        "statistic" => statistics(&mut connection, &all)?,
        "window" => window(),
        "speed" => speed(&mut connection)?,
        "limit" => limit()?,
        _ => processes(&all),
    }
    Ok(())
}

fn queue_pairs(all: &Inventory) {
    for entry in &all.queue_pairs {
        let port = entry.port.map_or("-".to_owned(), |port| port.to_string());
        println!(
            "link {}/{port} lqpn {}{} type {} state {}{}{}{}{} {}",
            entry.device,
            entry.number,
            named("rqpn", entry.remote_number),
            entry.kind,
            entry.state,
            named("rq-psn", entry.receive_sequence),
            named("sq-psn", entry.send_sequence),
            named("path-mig-state", entry.path_migration),
            named("pdn", entry.protection_domain),
            holder(&entry.holder)
        );
    }
}

fn completion_queues(all: &Inventory) {
    for entry in &all.completion_queues {
        println!(
            "dev {}{} cqe {} users {}{} {}",
            entry.device,
            named("cqn", entry.number),
            entry.entries,
            entry.users,
            named("ctxn", entry.context),
            holder(&entry.holder)
        );
    }
}

fn memory_regions(all: &Inventory) {
    for entry in &all.memory_regions {
        println!(
            "dev {}{}{}{} mrlen {}{} {}",
            entry.device,
            named("mrn", entry.number),
            named("rkey", entry.remote_key.map(|key| format!("{key:#x}"))),
            named("lkey", entry.local_key.map(|key| format!("{key:#x}"))),
            entry.length_bytes,
            named("pdn", entry.protection_domain),
            holder(&entry.holder)
        );
    }
}

fn protection_domains(all: &Inventory) {
    for entry in &all.protection_domains {
        println!(
            "dev {}{} users {}{} {}",
            entry.device,
            named("pdn", entry.number),
            entry.users,
            named("ctxn", entry.context),
            holder(&entry.holder)
        );
    }
}

fn connection_identifiers(all: &Inventory) {
    for entry in &all.connection_identifiers {
        println!(
            "link {}/{}{}{} state {} {}{}{}",
            entry.device,
            entry.port.map_or("-".to_owned(), |port| port.to_string()),
            named("cm-idn", entry.number),
            named("lqpn", entry.queue_pair),
            entry.state,
            holder(&entry.holder),
            named("src-addr", entry.source),
            named("dst-addr", entry.destination)
        );
    }
}

/// Counters change between two readings, so only their names are compared.
fn statistics(connection: &mut Connection, all: &Inventory) -> Result<(), HostError> {
    for device in &all.devices {
        for port in 1..=device.port_count {
            match connection.statistics(device, port) {
                Ok(counters) => {
                    let counters: Vec<_> = counters
                        .iter()
                        .map(|counter| format!(" {} {}", counter.name, counter.value))
                        .collect();
                    println!("link {}/{port}{}", device.name, counters.concat());
                }
                Err(error @ HostError::NotOffered { .. }) => eprintln!("{error}"),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

fn speed(connection: &mut Connection) -> Result<(), HostError> {
    const PASSES: u32 = 50;
    let begin = Instant::now();
    let mut queue_pairs = 0;
    for _ in 0..PASSES {
        queue_pairs = Inventory::read(connection, None)?.queue_pairs.len();
    }
    let each = begin.elapsed() / PASSES;
    println!("{queue_pairs} queue pairs, {} us a pass", each.as_micros());
    Ok(())
}

fn limit() -> Result<(), HostError> {
    let words: Vec<String> = std::env::args().skip(2).collect();
    let [cgroup, device, contexts, objects] = &words[..] else {
        eprintln!("inventory limit CGROUP DEVICE CONTEXTS OBJECTS");
        return Ok(());
    };
    let limit = |text: &String| text.parse().map_or(Limit::Max, Limit::AtMost);
    let limits = RdmaLimits {
        handles: limit(contexts),
        objects: limit(objects),
    };
    let root = Root::machine();
    let controller = RdmaController::of(&root, cgroup)?;
    controller.set_limits(device, limits)?;
    println!("{:?}", controller.limits()?.get(device));
    Ok(())
}

fn window() {
    let device = std::env::args().nth(2).unwrap_or_default();
    let seconds = std::env::args().nth(3).and_then(|text| text.parse().ok());
    let begin = Instant::now();
    let read = || {
        let taken_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        counters::read(&Root::machine(), &device, 1, &Extra::default(), taken_ns)
    };
    let before = read();
    std::thread::sleep(Duration::from_secs(seconds.unwrap_or(1)));
    if let Some(window) = Window::between(&before, &read()) {
        println!("seconds {:.3}", window.seconds);
        for (counter, rise) in &window.rises {
            println!("{counter} {rise}");
        }
    }
}

fn processes(all: &Inventory) {
    for entry in all.by_process(&Root::machine()) {
        println!("{entry:?}");
    }
    for (cgroup, group) in inventory::by_cgroup(&all.by_process(&Root::machine())) {
        println!("{cgroup}: {:?}", group.processes);
    }
}

fn named(name: &str, value: Option<impl std::fmt::Display>) -> String {
    value.map_or_else(String::new, |value| format!(" {name} {value}"))
}

fn holder(holder: &Holder) -> String {
    match holder {
        Holder::Process(id) => {
            let command = Root::machine().text(&format!("/proc/{id}/comm"));
            format!("pid {id} comm {}", command.unwrap_or_default())
        }
        Holder::Kernel(name) => format!("comm [{name}]"),
        Holder::Unknown => "comm -".to_owned(),
    }
}
