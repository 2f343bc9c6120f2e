//! `[[tenant.application]]`: distributed applications by the traffic they make.
//!
//! Units: bytes, picoseconds. Defaults are what the named publications state or what follows from it;
//! `docs/internals/applications.md` lists each with its source. None is fitted to a result under attack.

use crate::check::DeviceLimits;
use crate::model::{Host, Message, Traffic, Transport, Verb, Workload};
use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use isolane_common_toml_input::error::InputError;
use isolane_common_toml_input::table::Table;
use serde::Serialize;

/// Workers of one host, threads of one host.
pub(crate) const THREADS_MAX: u64 = 64;
const BUFFER: Bytes = Bytes::from_mib(1);
const CORE_RATE: BitRate = BitRate::from_gbps(80);
const SERVICE: Duration = Duration::from_ns(500);

/// A distributed application.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ApplicationTraffic {
    /// Where it runs, at least two and each once; of a store the first is the server.
    pub hosts: Vec<Host>,
    /// What its processes do.
    pub program: Program,
    /// Verb of every message, WRITE or SEND.
    pub verb: Verb,
    /// Transport of every queue pair, RC or UD.
    pub transport: Transport,
    /// Largest payload inside a work request, bytes.
    pub inline_bytes: u32,
    /// Path MTU, bytes.
    pub mtu: u32,
}

impl ApplicationTraffic {
    /// The largest of its datagrams, bytes, if that is more than the MTU.
    pub(crate) fn datagram_too_large(&self) -> Option<u64> {
        let Program::KeyValue {
            request, response, ..
        } = &self.program
        else {
            return None;
        };
        let sizes = request.iter().chain(response);
        let largest = sizes.map(|message| message.bytes().get()).max()?;
        (self.transport == Transport::Ud && largest > u64::from(self.mtu)).then_some(largest)
    }
}

/// What an application's processes do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Program {
    /// Workers add up a vector and all get the sum, again and again.
    Allreduce {
        /// Who sends to whom.
        algorithm: Algorithm,
        /// Workers on each host, at least 1.
        workers: u32,
        /// The vector of each worker.
        buffer: Bytes,
        /// How fast a core adds a received vector to its own.
        reduce_rate: BitRate,
        /// How fast a core hands a vector to a worker on its own host.
        copy_rate: BitRate,
    },
    /// Client threads send requests to one server, which answers each.
    KeyValue {
        /// Threads on each client host.
        threads: u32,
        /// Threads of the server; client threads are dealt out to them in turn.
        server_threads: u32,
        /// Requests of one client thread on their way.
        window: u32,
        /// Sizes of requests, in turn.
        request: Vec<Message>,
        /// Sizes of the answers to them.
        response: Vec<Message>,
        /// What one request costs a server thread, beyond taking and posting messages.
        service: Duration,
    },
}

/// How an allreduce passes vectors on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Parts of the vector go around a ring of all workers, twice.
    Ring,
    /// Whole vectors go up a binomial tree and back down.
    Tree,
}

/// Reads the `index`-th table of a tenant.
pub(crate) fn read(
    table: &Table<'_>,
    index: usize,
    limits: &DeviceLimits,
) -> Result<Workload, InputError> {
    let hosts = hosts(table)?;
    let allreduce = table.text("kind")? == Some("allreduce");
    let others: &[&str] = match allreduce {
        true => &[
            "threads",
            "server_threads",
            "window",
            "request",
            "response",
            "service",
        ],
        false => &["algorithm", "workers", "buffer", "reduce_rate", "copy_rate"],
    };
    if let Some(key) = others.iter().find(|key| table.has(key)) {
        return Err(table.wrong(key, "has no meaning for this kind: drop it"));
    }
    let program = match allreduce {
        true => Program::Allreduce {
            algorithm: table.choice("algorithm")?.unwrap_or(Algorithm::Ring),
            workers: table.count32("workers")?.unwrap_or(1),
            buffer: table.size("buffer")?.unwrap_or(BUFFER),
            reduce_rate: table.rate("reduce_rate")?.unwrap_or(CORE_RATE),
            copy_rate: table.rate("copy_rate")?.unwrap_or(CORE_RATE),
        },
        false => Program::KeyValue {
            threads: table.count32("threads")?.unwrap_or(1),
            server_threads: table.count32("server_threads")?.unwrap_or(1),
            window: table.count32("window")?.unwrap_or(1),
            request: sizes(table, "request")?,
            response: sizes(table, "response")?,
            service: table.duration("service")?.unwrap_or(SERVICE),
        },
    };
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
