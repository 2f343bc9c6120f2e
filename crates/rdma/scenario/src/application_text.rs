//! `[[tenant.application]]`: the text of a distributed application.
//!
//! Defaults are what the named publications state or what follows from it; `docs/internals/applications.md` lists each with its
//! source. None is fitted to a result under attack.

use crate::application::{Algorithm, ApplicationTraffic, Program, Servers};
use crate::check::DeviceLimits;
use crate::model::{Host, Message, Traffic, Transport, Verb, Workload};
use crate::spec::THREAD_PAIRS_MAX;
use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use isolane_common_toml_input::error::InputError;
use isolane_common_toml_input::table::Table;

const BUFFER: Bytes = Bytes::from_mib(1);
const CORE_RATE: BitRate = BitRate::from_gbps(80);
const SERVICE: Duration = Duration::from_ns(500);

/// Reads the `index`-th table of a tenant.
pub(crate) fn read(
    table: &Table<'_>,
    index: usize,
    limits: &DeviceLimits,
) -> Result<Workload, InputError> {
    let hosts = hosts(table)?;
    let program = program(table, hosts.len() as u64)?;
    let allreduce = matches!(program, Program::Allreduce { .. });
    let transport = table.choice("transport")?.unwrap_or(Transport::Rc);
    let verb = table.choice("verb")?.unwrap_or(Verb::Send);
    let mtu = match transport {
        Transport::Ud => limits.mtu_max,
        _ => limits.mtu_default,
    };
    if transport == Transport::Ud {
        if allreduce {
            return Err(table.wrong(
                "transport",
                "an allreduce needs every message: must be \"rc\"",
            ));
        }
        if verb == Verb::Write {
            return Err(table.wrong("verb", "WRITE must use \"rc\": must be \"send\""));
        }
        for key in ["request", "response"] {
            if sizes(table, key)?
                .iter()
                .any(|message| message.bytes().get() > u64::from(mtu))
            {
                let expected = format!("a datagram is one packet: must be at most {mtu} bytes");
                return Err(table.wrong(key, expected));
            }
        }
    }
    let name = match table.text("name")? {
        Some(name) => name.to_owned(),
        None => format!("application-{}", index + 1),
    };
    Ok(Workload {
        name,
        processes: 1,
        from: hosts[0],
        to: hosts[1],
        traffic: Traffic::Application(ApplicationTraffic {
            hosts,
            program,
            verb,
            transport,
            inline_bytes: table.count32("inline")?.unwrap_or(0).min(limits.inline_max),
            mtu,
        }),
    })
}

/// What the actors do, without keys that belong to another kind.
fn program(table: &Table<'_>, hosts: u64) -> Result<Program, InputError> {
    let allreduce = table.text("kind")? == Some("allreduce");
    let others: &[&str] = match allreduce {
        true => &[
            "servers",
            "threads",
            "server_threads",
            "window",
            "batch",
            "credits",
            "request",
            "response",
            "service",
        ],
        false => &["algorithm", "workers", "buffer", "reduce_rate", "copy_rate"],
    };
    if let Some(key) = others.iter().find(|key| table.has(key)) {
        return Err(table.wrong(key, "has no meaning for this kind: drop it"));
    }
    Ok(match allreduce {
        true => Program::Allreduce {
            algorithm: table.choice("algorithm")?.unwrap_or(Algorithm::Ring),
            workers: table.count32("workers")?.unwrap_or(1),
            buffer: table.size("buffer")?.unwrap_or(BUFFER),
            reduce_rate: table.rate("reduce_rate")?.unwrap_or(CORE_RATE),
            copy_rate: table.rate("copy_rate")?.unwrap_or(CORE_RATE),
        },
        false => store(table, hosts)?,
    })
}

fn store(table: &Table<'_>, hosts: u64) -> Result<Program, InputError> {
    let servers = table.choice("servers")?.unwrap_or(Servers::First);
    let threads = table.count32("threads")?.unwrap_or(1);
    let all = hosts * u64::from(threads);
    let pairs = all * (all - 1);
    if servers == Servers::Others && pairs > THREAD_PAIRS_MAX {
        let expected = format!(
            "with servers = \"others\" each thread on the {hosts} hosts calls all others, {pairs} pairs of threads: must be at \
             most {THREAD_PAIRS_MAX}, so use fewer threads or hosts"
        );
        return Err(table.wrong("threads", expected));
    }
    let server_threads = match servers {
        Servers::Others if table.has("server_threads") => {
            let expected = "with servers = \"others\" every thread serves: drop it";
            return Err(table.wrong("server_threads", expected));
        }
        Servers::Others => threads,
        Servers::First | Servers::All => table.count32("server_threads")?.unwrap_or(1),
    };
    let window = table.count32("window")?.unwrap_or(1);
    let batch = table.count32("batch")?.unwrap_or(1);
    if !window.is_multiple_of(batch) {
        let expected =
            format!("a thread has whole batches under way: must divide window, {window}");
        return Err(table.wrong("batch", expected));
    }
    Ok(Program::KeyValue {
        servers,
        threads,
        server_threads,
        window,
        batch,
        credits: table.count32("credits")?,
        request: sizes(table, "request")?,
        response: sizes(table, "response")?,
        service: table.duration("service")?.unwrap_or(SERVICE),
    })
}

fn hosts(table: &Table<'_>) -> Result<Vec<Host>, InputError> {
    let text = table
        .text("hosts")?
        .expect("opening checked that it is there");
    let mut hosts: Vec<Host> = Vec::new();
    // Single letters may do without commas.
    let names: Vec<String> = if text.contains(',') {
        text.split(',').map(|name| name.trim().to_owned()).collect()
    } else {
        let letters = text.chars().filter(|c| !c.is_whitespace());
        letters.map(String::from).collect()
    };
    for name in names.iter().filter(|name| !name.is_empty()) {
        match Host::named(name) {
            Some(host) if !hosts.contains(&host) => hosts.push(host),
            _ => {
                return Err(table.wrong(
                    "hosts",
                    "must be hosts a to z or aa to an, each once: \"a,b,c,d\"",
                ));
            }
        }
    }
    if hosts.len() < 2 {
        return Err(table.wrong("hosts", "must name at least two hosts: \"a,b\""));
    }
    Ok(hosts)
}

fn sizes(table: &Table<'_>, key: &'static str) -> Result<Vec<Message>, InputError> {
    let sizes = crate::traffic::messages(table, key)?;
    sizes.ok_or_else(|| table.missing(key, "a store needs its sizes: [\"64B\"]"))
}
