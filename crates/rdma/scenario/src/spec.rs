//! The keys of the scenario format: names, kinds and ranges, in one place for the parser and the JSON schema.

use crate::model::MESSAGE_MAX;
use isolane_common_toml_input::keys::{DESCRIPTION, Key, Kind, NAME, SEED, count, key, required};

/// Queue pairs of one process.
pub(crate) const QUEUE_PAIRS_MAX: u64 = 20_000;
/// Work requests of one queue: what `max_qp_wr` of current NICs allows.
pub(crate) const DEPTH_MAX: u64 = 32_768;
/// Scatter-gather elements of one message: what `max_sge` of current NICs allows.
pub(crate) const ELEMENTS_MAX: usize = 30;
pub(crate) const PATTERN_MAX: usize = 1_024;
/// Workers of one host, threads of one host.
pub(crate) const THREADS_MAX: u64 = 64;
/// Pairs of a client's and a server's thread in one application, each with queue pairs of its own: what 40 hosts with 64
/// threads have with `servers = "all"`.
pub(crate) const THREAD_PAIRS_MAX: u64 = 40 * 40 * THREADS_MAX;
pub(crate) const PROCESSES_MAX: u64 = 1_024;
/// Memory regions, control objects, protection domains: what one process can sensibly hold.
pub(crate) const OBJECTS_MAX: u64 = 1 << 20;
pub(crate) const TENANTS_MAX: usize = 1_024;
/// Longest run, picoseconds.
const RUN_MAX_PS: u64 = 100_000_000_000_000;
/// Longest region, bytes (1 TiB).
pub(crate) const REGION_MAX: u64 = 1 << 40;

const ANY_TIME: Kind = Kind::duration(0, RUN_MAX_PS);
const SOME_TIME: Kind = Kind::duration(1, RUN_MAX_PS);
const MESSAGE: Kind = Kind::size(1, MESSAGE_MAX.get());
const REGION: Kind = Kind::size(1, REGION_MAX);
pub(crate) const HOST: Kind = Kind::Choice(&[
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s",
    "t", "u", "v", "w", "x", "y", "z", "aa", "ab", "ac", "ad", "ae", "af", "ag", "ah", "ai", "aj",
    "ak", "al", "am", "an",
]);
const MEMORY: Kind = Kind::Choice(&["local", "remote-socket", "gpu"]);
const PROCESSES: Kind = count(1, PROCESSES_MAX);

/// Keys of the top level.
#[rustfmt::skip]
pub(crate) const TOP: &[Key] = &[
    NAME,
    DESCRIPTION,
    required("profile", Kind::Text, "device profile of all hosts (`isolane catalog profiles` lists them)"),
    key("topology", Kind::Choice(&["back-to-back", "switch"]), "how the hosts are joined"),
    key("warmup", ANY_TIME, "time before measuring starts (200us)"),
    key("duration", SOME_TIME, "measured time (2ms)"),
    SEED,
    key("sample_interval", Kind::duration(1_000_000, RUN_MAX_PS), "width of one point of the time series (duration / 50)"),
    key("policy", Kind::Table, "the policy and its parameters"),
    key("network", Kind::Table, "a network in the place of cable or switch: [network]"),
    required("tenant", Kind::Tables, "the tenants"),
];

/// Keys of `[[tenant]]`.
#[rustfmt::skip]
pub(crate) const TENANT: &[Key] = &[
    required("name", Kind::Text, "unique name"),
    key("class", Kind::Choice(&["latency", "throughput", "bandwidth", "auto"]), "what the tenant says it needs"),
    key("weight", count(1, 1_000_000), "relative weight (1)"),
    key("guarantee", Kind::Table, "what the tenant has been promised and may not exceed (harmonic table 5.1)"),
    key("slo", Kind::Table, "what the tenant needs"),
    key("start", ANY_TIME, "when its workloads start, from the beginning of the run (0us)"),
    key("stop", SOME_TIME, "when they stop posting (end of the run)"),
    key("perftest", Kind::Commands, "perftest command line, or a list of them"),
    key("engine", Kind::Commands, "traffic engine command line, or a list of them"),
    key("workload", Kind::Text, "name from the catalogue"),
    key("processes", PROCESSES, "copies of the command line or workload"),
    key("from", HOST, "host whose processes post requests (a)"),
    key("to", HOST, "host at the other end (b)"),
    key("honour_iterations", Kind::Flag, "whether -n of a command line ends it (false)"),
    key("traffic", Kind::Tables, "data traffic written in full"),
    key("control", Kind::Tables, "loops of control verbs"),
    key("application", Kind::Tables, "distributed applications"),
];

/// Keys of `[tenant.guarantee]`: a performance profile (harmonic 5.3, table 5.1).
#[rustfmt::skip]
pub(crate) const GUARANTEE: &[Key] = &[
    key("queue_pairs", count(1, OBJECTS_MAX), "queue pairs at most"),
    key("work_requests", count(1, 1 << 32), "work queue entries at most"),
    key("memory_regions", count(1, OBJECTS_MAX), "memory regions at most"),
    key("completion_queues", count(1, OBJECTS_MAX), "completion queues at most"),
    key("completion_entries", count(1, 1 << 32), "completion queue entries at most"),
    key("region_total", REGION, "bytes of all memory regions at most"),
    key("rate", Kind::Rate, "bits per second of payload"),
    key("data_requests_per_s", count(1, 10_000_000_000), "normalised data requests per second"),
    key("control_requests_per_s", count(1, 10_000_000), "control verbs per second"),
    key("priority", count(0, 255), "0 is slowed down last when the NIC's caches are short (0)"),
];

/// Keys of `[tenant.slo]`.
pub(crate) const SLO: &[Key] = &[
    key("goodput_min", Kind::Rate, "payload per second at least"),
    key(
        "messages_per_s_min",
        count(1, 10_000_000_000),
        "messages per second at least",
    ),
    key("p50_max", SOME_TIME, "median latency at most"),
    key("p99_max", SOME_TIME, "99th percentile of latency at most"),
];

/// Keys of `[[tenant.traffic]]`.
#[rustfmt::skip]
pub(crate) const TRAFFIC: &[Key] = &[
    key("name", Kind::Text, "name within the tenant"),
    required("verb", Kind::Choice(&["write", "read", "send", "fetch-add", "compare-swap"]), "verb of every request"),
    key("transport", Kind::Choice(&["rc", "uc", "ud"]), "transport of every queue pair (rc)"),
    key("size", MESSAGE, "size of every message"),
    key("pattern", Kind::Pattern, "messages posted in turn"),
    key("queue_pairs", count(1, QUEUE_PAIRS_MAX), "queue pairs per process (1)"),
    key("post_list", count(1, DEPTH_MAX), "work requests per doorbell (1)"),
    key("depth", count(1, DEPTH_MAX), "work requests outstanding per queue pair (128)"),
    key("completion_every", count(1, DEPTH_MAX), "one in this many is signaled (post_list)"),
    key("receive_depth", count(1, DEPTH_MAX), "receive queue per queue pair (512)"),
    key("receive_batch", count(0, DEPTH_MAX), "receives posted back at once (1); 0 posts none"),
    key("min_rnr_timer", count(0, 31), "RNR timer code (12)"),
    key("max_read_atomic", count(1, 255), "READs and atomics outstanding per queue pair (16)"),
    key("inline", count(0, 1_024), "largest payload inside the work request, bytes (0)"),
    key("mtu", count(1, 65_536), "path MTU, bytes (the profile's)"),
    key("memory_regions", count(1, OBJECTS_MAX), "regions at each end (1)"),
    key("region", REGION, "length of each region (largest message, at least 4 KiB)"),
    key("arrival", Kind::Choice(&["closed", "ping-pong", "open", "paced"]), "how work is offered (closed)"),
    key("think", ANY_TIME, "closed: mean pause after each completion (0us)"),
    key("interval", SOME_TIME, "open: mean time between lists of one queue pair"),
    key("poisson", Kind::Flag, "open: exponential intervals (false)"),
    key("rate", Kind::Rate, "paced: offered payload rate per process"),
    key("bidirectional", Kind::Flag, "both ends send (false)"),
    key("iterations", count(1, i64::MAX as u64), "stop after this many work requests per queue pair"),
    key("memory", MEMORY, "where the sender's memory is (local)"),
    key("remote_memory", MEMORY, "where the receiver's memory is (local)"),
    key("processes", PROCESSES, "equal processes (1)"),
    key("weight", count(1, 1_000_000), "weight of each queue pair within its tenant (1)"),
    key("from", HOST, "host whose processes post requests (a)"),
    key("to", HOST, "host at the other end (b)"),
];

/// Keys of `[[tenant.application]]`.
#[rustfmt::skip]
pub(crate) const APPLICATION: &[Key] = &[
    key("name", Kind::Text, "name within the tenant"),
    required("kind", Kind::Choice(&["allreduce", "key-value"]), "what its processes do"),
    required("hosts", Kind::Text, "letters of its hosts; of a store the first is the server"),
    key("verb", Kind::Choice(&["send", "write"]), "verb of every message (send)"),
    key("transport", Kind::Choice(&["rc", "ud"]), "transport of every queue pair (rc)"),
    key("inline", count(0, 1_024), "largest payload inside the work request, bytes (0)"),
    key("algorithm", Kind::Choice(&["ring", "tree"]), "allreduce: who sends to whom (ring)"),
    key("workers", count(1, THREADS_MAX), "allreduce: workers on each host (1)"),
    key("buffer", MESSAGE, "allreduce: each worker's vector (1MiB)"),
    key("reduce_rate", Kind::Rate, "allreduce: how fast a core adds vectors (80Gb/s)"),
    key("copy_rate", Kind::Rate, "allreduce: how fast a core hands a vector to its host's other worker (80Gb/s)"),
    key("servers", Kind::Choice(&["first", "all", "others"]), "key-value: who serves: the first host; all hosts, and each client asks every host in turn, its own too; or all other threads, and each thread calls and serves (first)"),
    key("threads", count(1, THREADS_MAX), "key-value: threads on each client host (1)"),
    key("server_threads", count(1, THREADS_MAX), "key-value: threads of each server (1)"),
    key("window", count(1, 256), "key-value: requests that a client thread has under way (1)"),
    key("batch", count(1, 256), "key-value: requests that a client sends together; the next batch follows when all are answered (1)"),
    key("credits", count(1, 256), "key-value: requests that a client may have on their way to one server thread; others wait (no limit)"),
    key("request", Kind::Pattern, "key-value: sizes of requests"),
    key("response", Kind::Pattern, "key-value: sizes of answers"),
    key("service", ANY_TIME, "key-value: what a request costs the server's thread (500ns)"),
];

/// Keys of `[[tenant.control]]`.
#[rustfmt::skip]
pub(crate) const CONTROL: &[Key] = &[
    key("name", Kind::Text, "name within the tenant"),
    required("object", Kind::Choice(&["memory-region", "queue-pair", "completion-queue"]), "what the loop creates and destroys"),
    key("threads", count(1, 256), "threads that issue verbs (1)"),
    key("objects", count(1, OBJECTS_MAX), "objects alive at once per thread (1)"),
    key("protection_domains", count(1, OBJECTS_MAX), "protection domains in use (1)"),
    key("region", REGION, "length of each region (4KiB)"),
    key("phase", Kind::Choice(&["cycle", "create", "destroy"]), "which half of the loop counts (cycle)"),
    key("processes", PROCESSES, "equal processes (1)"),
    key("from", HOST, "host it runs on (a)"),
];

/// Keys of `[[victim]]` and `[[attacker]]` in a catalogue.
#[rustfmt::skip]
pub(crate) const ENTRY: &[Key] = &[
    required("name", Kind::Text, "unique name within its role"),
    required("category", Kind::Choice(&["BW", "PCIe", "PU", "Cache", "Latency", "Application"]), "husky's group of the workload"),
    key(
        "column",
        Kind::Choice(&["bandwidth", "pu-error-rc", "pu-error-unreliable", "pu-data", "cache-control", "cache-data", "pcie-data"]),
        "column of husky table 4.3",
    ),
    required("resource", Kind::Text, "the resource it is meant to press on or to need"),
    key("class", Kind::Choice(&["latency", "throughput", "bandwidth", "auto"]), "class, where the command line has none"),
    key("command", Kind::Commands, "client command line, or a list of them"),
    key("traffic", Kind::Tables, "traffic, in full"),
    key("application", Kind::Tables, "distributed applications"),
    key("duration", SOME_TIME, "measured time that a verdict needs, at least"),
    key("processes", PROCESSES, "copies of each (1)"),
    key("direction", Kind::Choice(&["forward", "backward", "loopback-a", "loopback-b"]), "a to b, b to a, or within one host (forward)"),
    key("latency_bound", Kind::Table, "bound on p99 under attack"),
];
