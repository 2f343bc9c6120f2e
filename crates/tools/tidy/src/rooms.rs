//! Every crate, its kind and the crates that it may use: the one table behind `ARCHITECTURE.md` and the checks of [`crate::layers`].
//!
//! The folder below `crates/` is wing and room; the package's name follows from it.

use Kind::{Plain, Pure, PureUnsafe, Unsafe};

/// What a crate may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Takes time, randomness and input as arguments; no `unsafe`.
    Pure,
    /// As [`Kind::Pure`], with `unsafe` hints to the processor.
    PureUnsafe,
    /// Touches the world through safe interfaces.
    Plain,
    /// Speaks to the kernel, to a foreign ABI or through shared memory.
    Unsafe,
}

impl Kind {
    /// Takes time, randomness and input as arguments.
    pub const fn is_pure(self) -> bool {
        matches!(self, Pure | PureUnsafe)
    }

    /// May hold `unsafe` code.
    pub const fn may_unsafe(self) -> bool {
        matches!(self, PureUnsafe | Unsafe)
    }
}

/// A crate and its place.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Folder below `crates/`: wing and room.
    pub folder: &'static str,
    /// What it may do.
    pub kind: Kind,
    /// What lives there, for `ARCHITECTURE.md`.
    pub about: &'static str,
    /// Folders of the crates that it may use, tests included; each one is listed above it, and each one is used.
    pub may_use: &'static [&'static str],
}

impl Room {
    /// The package's name.
    pub fn package(&self) -> String {
        match self.folder {
            "app/cli" => "isolane".to_owned(),
            "rdma/daemon" => "isolaned".to_owned(),
            folder => format!("isolane-{}", folder.replace('/', "-")),
        }
    }

    /// The wing: the first part of the folder.
    pub fn wing(&self) -> &'static str {
        self.folder
            .split('/')
            .next()
            .expect("a folder has a first part")
    }
}

const fn room(
    folder: &'static str,
    kind: Kind,
    about: &'static str,
    may_use: &'static [&'static str],
) -> Room {
    Room {
        folder,
        kind,
        about,
        may_use,
    }
}

/// Every crate, from the bottom up.
pub const ROOMS: &[Room] = &[
    room(
        "common/linux",
        Unsafe,
        "netlink, cgroups, processes, namespaces, commands, keys in files, peers of Unix sockets, pools of connections",
        &[],
    ),
    room(
        "common/journal",
        Plain,
        "append-only files of lines that stay valid after a kill of the program or a full disk",
        &[],
    ),
    room(
        "common/quantities",
        Pure,
        "units, named random streams, statistics, the rule for settled runs",
        &[],
    ),
    room(
        "common/events",
        PureUnsafe,
        "the event queue of every simulator, and the processor's prefetch hint (the only `unsafe` line of the models)",
        &["common/quantities"],
    ),
    room(
        "common/text-output",
        Pure,
        "tables of the terminal's width, counts with their noun, metric families as OpenMetrics text",
        &[],
    ),
    room(
        "common/toml-input",
        Pure,
        "TOML tables read key by key, sizes and rates with units, errors with line and nearest spelling, numbers with their source, JSON schemas",
        &["common/quantities"],
    ),
    room(
        "rdma/inventory",
        Unsafe,
        "RDMA devices of a Linux host: kernel inventory, counters, and the checks of the doctor",
        &["common/linux"],
    ),
    room(
        "rdma/policy",
        Pure,
        "the trait of RDMA policies; Justitia, Harmonic, Palos, leases and the other policies",
        &["common/quantities"],
    ),
    room(
        "rdma/session",
        Unsafe,
        "the shared memory and the socket messages between preload library and daemon",
        &[],
    ),
    room(
        "rdma/verbs-sys",
        Unsafe,
        "the C interface of libibverbs, written by hand and compared with the header by a test; opened at run time",
        &[],
    ),
    room(
        "rdma/emulated-verbs",
        Unsafe,
        "a libibverbs whose devices are models: objects and lists of work become messages to the emulator",
        &["rdma/verbs-sys"],
    ),
    room(
        "rdma/preload",
        Unsafe,
        "the preload library: paces an unmodified application's work by its lease, and splits large messages",
        &["rdma/session", "rdma/verbs-sys"],
    ),
    room(
        "network/scenario",
        Pure,
        "scenarios of datacenter networks, published size distributions, ports with objectives",
        &["common/quantities", "common/toml-input"],
    ),
    room(
        "rdma/scenario",
        Pure,
        "scenarios, device profiles, the workload catalogue, perftest command lines",
        &["common/quantities", "common/toml-input", "network/scenario"],
    ),
    room(
        "rdma/enforcer",
        Unsafe,
        "Harmonic for tenants that are not trusted: control verbs delayed by seccomp, congestion notifications, caps on objects",
        &[
            "common/linux",
            "common/quantities",
            "rdma/inventory",
            "rdma/policy",
            "rdma/session",
            "rdma/scenario",
        ],
    ),
    room(
        "rdma/traffic",
        Unsafe,
        "the traffic engine on real devices, and the protocol between its workers and their controller",
        &["common/quantities", "rdma/verbs-sys", "rdma/scenario"],
    ),
    room(
        "rpc/policy",
        Pure,
        "Aequitas (admission of calls), quotas, delay bounds of weighted fair queueing",
        &["common/quantities"],
    ),
    room(
        "rpc/library",
        Unsafe,
        "Aequitas for RPC programs: a table of destinations, a layer for tonic, a C interface, the quota server",
        &[
            "common/journal",
            "common/linux",
            "common/quantities",
            "common/text-output",
            "common/toml-input",
            "rpc/policy",
        ],
    ),
    room(
        "rpc/demo",
        Plain,
        "real gRPC programs behind an overloaded weighted fair port, in network namespaces",
        &[
            "common/linux",
            "common/quantities",
            "rpc/policy",
            "rpc/library",
        ],
    ),
    room(
        "rpc/python",
        Unsafe,
        "the Python module `isolane_native` over `rpc/library`; the folder `python` has the package that uses it",
        &["rpc/library"],
    ),
    room(
        "ethernet/policy",
        Pure,
        "Titan: which transmit queue a flow takes, queue weights, segment sizes",
        &["common/quantities"],
    ),
    room(
        "ethernet/bpf",
        Unsafe,
        "Titan's queue assignment in the kernel: BPF programs (C, with the compiled object), their loader, typed maps",
        &["ethernet/policy"],
    ),
    room(
        "ethernet/attach",
        Plain,
        "Ethernet NICs of this host with several transmit queues, and Titan on them",
        &[
            "common/linux",
            "common/quantities",
            "common/text-output",
            "ethernet/policy",
            "ethernet/bpf",
        ],
    ),
    room(
        "ethernet/scenario",
        Pure,
        "studies of Ethernet NICs: configurations, cards, flows",
        &["common/quantities", "common/toml-input", "ethernet/policy"],
    ),
    room(
        "memory/policy",
        Pure,
        "Mercury: admission, near memory, bandwidth limits and their adaptation",
        &["common/quantities"],
    ),
    room(
        "memory/scenario",
        Pure,
        "machines with tiered memory, applications, scenarios",
        &["common/quantities", "common/toml-input", "memory/policy"],
    ),
    room(
        "memory/service",
        Unsafe,
        "tiered memory of a Linux host: tiers, owners of pages, backends, indicators, and Mercury on them",
        &[
            "common/linux",
            "common/quantities",
            "common/text-output",
            "common/toml-input",
            "rdma/inventory",
            "memory/policy",
        ],
    ),
    room(
        "rdma/daemon",
        Plain,
        "sessions, leases, reference flow, peers, metrics, the configuration file",
        &[
            "common/linux",
            "common/quantities",
            "common/text-output",
            "common/toml-input",
            "rdma/policy",
            "rdma/session",
            "rdma/verbs-sys",
            "rdma/preload",
            "rdma/enforcer",
            "ethernet/attach",
            "memory/service",
        ],
    ),
    room(
        "study/results",
        Pure,
        "the results of runs, common to all testbeds",
        &["common/quantities", "rdma/scenario", "ethernet/scenario"],
    ),
    room(
        "rdma/simulator",
        Pure,
        "the RNIC model: hosts, engines, caches, PCIe, wire, receive side, congestion control",
        &[
            "common/quantities",
            "common/events",
            "rdma/policy",
            "rdma/scenario",
            "study/results",
        ],
    ),
    room(
        "rdma/emulator",
        Unsafe,
        "the broker of emulated RDMA NICs: objects and memory of unmodified programs, on the RNIC model; the library that they load",
        &[
            "common/linux",
            "common/quantities",
            "rdma/verbs-sys",
            "rdma/emulated-verbs",
            "rdma/scenario",
            "rdma/simulator",
        ],
    ),
    room(
        "network/simulator",
        Pure,
        "packet-level networks: ports, transports, calls",
        &[
            "common/quantities",
            "common/events",
            "network/scenario",
            "rdma/scenario",
            "rpc/policy",
            "study/results",
            "rdma/simulator",
        ],
    ),
    room(
        "ethernet/simulator",
        Pure,
        "a Linux host's transmit path (TCP, software queues, card), and clusters of such hosts",
        &[
            "common/quantities",
            "common/events",
            "ethernet/policy",
            "ethernet/scenario",
            "study/results",
        ],
    ),
    room(
        "ethernet/software-card",
        Unsafe,
        "a network card in user space over multi-queue TUN, and the testbed of two namespaces around it",
        &[
            "common/linux",
            "common/quantities",
            "ethernet/policy",
            "ethernet/bpf",
            "ethernet/scenario",
            "study/results",
        ],
    ),
    room(
        "memory/simulator",
        Pure,
        "one machine with tiered memory: request slots, queues of tiers, pages that move",
        &[
            "common/quantities",
            "memory/policy",
            "memory/scenario",
            "study/results",
        ],
    ),
    room(
        "study/testbed",
        Plain,
        "the `Testbed` trait: runs tenants and reports results; the length of a run until it settles",
        &["common/quantities", "rdma/scenario", "study/results"],
    ),
    room(
        "study/testbed-simulator",
        Plain,
        "the simulators as a testbed",
        &[
            "common/quantities",
            "rdma/scenario",
            "study/results",
            "rdma/simulator",
            "network/simulator",
            "study/testbed",
        ],
    ),
    room(
        "study/audit",
        Plain,
        "the guarantee predicate, the verdict matrix, the cause of each broken pair",
        &[
            "common/journal",
            "common/quantities",
            "common/text-output",
            "common/toml-input",
            "rdma/policy",
            "rdma/scenario",
            "study/results",
            "study/testbed",
            "study/testbed-simulator",
        ],
    ),
    room(
        "study/claims",
        Plain,
        "the papers' quantitative statements as data, and their check",
        &[
            "common/quantities",
            "common/text-output",
            "common/toml-input",
            "rdma/policy",
            "network/scenario",
            "rdma/scenario",
            "rpc/policy",
            "ethernet/scenario",
            "memory/scenario",
            "study/results",
            "rdma/simulator",
            "network/simulator",
            "ethernet/simulator",
            "memory/simulator",
            "study/testbed",
            "study/testbed-simulator",
            "study/audit",
        ],
    ),
    room(
        "study/calibrate",
        Plain,
        "measures Justitia's parameters of a device, and fits calibrated parameters to claims",
        &[
            "common/toml-input",
            "rdma/scenario",
            "study/results",
            "study/testbed",
            "study/testbed-simulator",
            "study/claims",
        ],
    ),
    room(
        "study/explain",
        Plain,
        "why one attacker hurts one victim: compares two recorded runs and prints the chain of causes",
        &[
            "common/quantities",
            "rdma/scenario",
            "study/results",
            "rdma/simulator",
            "study/testbed",
            "study/testbed-simulator",
            "study/audit",
        ],
    ),
    room(
        "study/hunt",
        Plain,
        "the search of workloads for performance anomalies, and the smallest conditions of each",
        &[
            "common/journal",
            "common/quantities",
            "common/text-output",
            "common/toml-input",
            "rdma/scenario",
            "study/results",
            "study/testbed",
            "study/testbed-simulator",
            "study/audit",
        ],
    ),
    room(
        "study/recommend",
        Plain,
        "which policy meets the objectives of a scenario's tenants, and which tenant and resource prevent it",
        &[
            "common/quantities",
            "common/text-output",
            "rdma/scenario",
            "study/results",
            "study/testbed",
            "study/audit",
        ],
    ),
    room(
        "study/testbed-verbs",
        Plain,
        "real devices as a testbed: agents on one machine or several, workers, certificates, results",
        &[
            "common/linux",
            "common/quantities",
            "common/toml-input",
            "rdma/inventory",
            "rdma/scenario",
            "rdma/traffic",
            "study/results",
            "study/testbed",
            "study/testbed-simulator",
        ],
    ),
    room(
        "app/report",
        Plain,
        "results as self-contained HTML files; runs nothing",
        &[
            "network/scenario",
            "rdma/scenario",
            "ethernet/scenario",
            "study/results",
            "study/audit",
            "study/explain",
            "study/hunt",
            "study/recommend",
        ],
    ),
    room(
        "app/cli",
        Plain,
        "the program `isolane`: arguments, files, progress, signals, exit codes",
        &[
            "common/journal",
            "common/linux",
            "common/quantities",
            "common/text-output",
            "common/toml-input",
            "rdma/inventory",
            "rdma/session",
            "network/scenario",
            "rdma/scenario",
            "rdma/emulator",
            "rdma/enforcer",
            "rdma/traffic",
            "rpc/policy",
            "rpc/library",
            "rpc/demo",
            "ethernet/attach",
            "ethernet/scenario",
            "memory/policy",
            "memory/scenario",
            "memory/service",
            "rdma/daemon",
            "study/results",
            "network/simulator",
            "ethernet/simulator",
            "ethernet/software-card",
            "memory/simulator",
            "study/testbed",
            "study/testbed-simulator",
            "study/audit",
            "study/claims",
            "study/calibrate",
            "study/explain",
            "study/hunt",
            "study/recommend",
            "study/testbed-verbs",
            "app/report",
        ],
    ),
    room("tools/tidy", Plain, "tests of this repository's rules", &[]),
];

/// The room of `folder`.
pub fn room_of(folder: &str) -> Option<&'static Room> {
    ROOMS.iter().find(|room| room.folder == folder)
}

#[cfg(test)]
mod tests;
