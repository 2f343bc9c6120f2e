//! The keys of a tiered-memory scenario, with kinds, ranges and meaning: what the parser checks and the schema shows.

use super::application::KINDS;
use super::model::MEM_POLICIES;
use isolane_common_toml_input::keys::{DESCRIPTION, Key, Kind, NAME, SEED, count, key, required};

/// Longest run, picoseconds (100,000 s).
const RUN_MAX_PS: u64 = 100_000_000_000_000_000;
/// Largest memory of one machine (1 PiB).
const MEMORY_MAX: u64 = 1 << 50;
/// Most applications of a scenario.
pub(crate) const APPS_MAX: usize = 200;

const TIME: Kind = Kind::duration(0, RUN_MAX_PS);
const SOME_TIME: Kind = Kind::duration(100_000_000_000, RUN_MAX_PS);
const MEMORY: Kind = Kind::size(0, MEMORY_MAX);
const SOME_MEMORY: Kind = Kind::size(1 << 20, MEMORY_MAX);
const PERCENT: Kind = Kind::number(0.0, 100.0);

/// Keys of the top level.
#[rustfmt::skip]
pub(crate) const TOP: &[Key] = &[
    NAME,
    DESCRIPTION,
    SEED,
    key("warmup", TIME, "time before measuring (0s)"),
    required("duration", SOME_TIME, "time measured, at least 100ms"),
    key("sample_interval", SOME_TIME, "time between two points of the series; none unless given"),
    required("memory", Kind::Table, "the machine"),
    key("policy", Kind::Table, "who moves pages and sets limits"),
    required("app", Kind::Tables, "the applications"),
];

/// Keys of `[memory]`.
#[rustfmt::skip]
pub(crate) const MEMORY_KEYS: &[Key] = &[
    required("machine", Kind::Text, "a machine's name"),
    key("local", SOME_MEMORY, "memory of the near tier that applications may use, at most what the machine has (all of it)"),
    key("far", SOME_MEMORY, "memory of the far tier that applications may use, at most what the machine has (all of it)"),
    key("farther", SOME_MEMORY, "memory of the third tier that applications may use, at most what the machine has (all of it)"),
];

/// Keys of `[policy]`.
pub(crate) const POLICY: &[Key] = &[required(
    "name",
    Kind::Choice(&MEM_POLICIES),
    "none, tpp, mercury, static, fcfs, weighted, memtis or colloid",
)];

/// Keys of `[[app]]`.
#[rustfmt::skip]
pub(crate) const APP: &[Key] = &[
    required("name", Kind::Text, "unique name"),
    required("kind", Kind::Choice(KINDS), "the model of its accesses"),
    required("working_set", SOME_MEMORY, "memory in use"),
    key("cores", count(1, 4_096), "processor cores (1)"),
    key("priority", count(0, 1_000_000), "larger is more important, unique (by order, the first highest)"),
    key("weight", count(1, 1_000_000), "under weighted: share of near memory (1000)"),
    key("slo_latency", Kind::duration(1_000, 1_000_000_000), "latency-sensitive: mean latency of its loads, at most"),
    key("slo_bandwidth", Kind::Rate, "bandwidth-intensive: memory bandwidth like 40GB/s, at least"),
    key("activity", PERCENT, "percent of its cores' time that has work (100)"),
    key("far_percent", PERCENT, "pages interleaved over near and far and kept there: percent far; managed unless given"),
    key("local_limit", MEMORY, "set by hand: near memory it may hold at most, under every policy that sets limits"),
    key("cpu_limit", PERCENT, "under static: processor time, percent of its cores (100)"),
    key("start", TIME, "when it starts (0s)"),
    key("stop", TIME, "when it ends; never unless given"),
    key("change", Kind::Tables, "how its load changes"),
];

/// Keys of `[[app.change]]`.
#[rustfmt::skip]
pub(crate) const CHANGE: &[Key] = &[
    required("at", TIME, "when it begins, from the start of the run"),
    key("until", TIME, "when it is reached, in a straight line (at once)"),
    key("working_set", SOME_MEMORY, "memory in use then (as before)"),
    key("activity", PERCENT, "percent of its cores' time that has work then (as before)"),
];
