//! The experiments: scenarios between two or three hosts, in the order in which their parameters depend on each other.
//!
//! A requester's unit is the bottleneck if one host sends to two, a responder's if two hosts send to one. The share of
//! accesses that miss a cache shows in the mean latency of single requests, and the time of a miss in the median of
//! requests that always miss.

/// What an experiment measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Payload of all tenants, Gb/s.
    Goodput,
    /// Messages of all tenants, millions per second.
    Rate,
    /// Mean latency of the first tenant, us.
    Mean,
    /// Median latency of the first tenant, us.
    Median,
}

/// A scenario and the parameter that it shows.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Section and name of the parameter.
    pub parameter: (&'static str, &'static str),
    /// What is done, in words.
    pub what: &'static str,
    /// Tenants.
    pub tenants: &'static str,
    /// Measured time, microseconds.
    pub duration_us: u32,
    /// The result that counts.
    pub measure: Measure,
    /// Whether the parameter is a whole number.
    pub whole: bool,
    /// Whether it takes atomics.
    pub needs_atomics: bool,
    /// What the start is multiplied by, so that the parameter bounds no experiment before its own.
    pub start_at: f64,
}

const BASE: Experiment = Experiment {
    parameter: ("", ""),
    what: "",
    tenants: "",
    duration_us: 300,
    measure: Measure::Rate,
    whole: false,
    needs_atomics: false,
    start_at: 1.0,
};

/// Parameters of which experiments between hosts show one sum only.
pub const TOGETHER: &[&str] = &[
    "link.propagation_ns, link.switch_ns, pcie.read_ns, pcie.write_ns, pcie.mmio_ns and host.*: \
     one idle latency (given in full to link.propagation_ns)",
    "scheduler.window_bytes, scheduler.pipeline_ns: both lengthen the wait behind bulk pairs",
    "cache.context_miss_slots, cache.receive_*, receive.*, wqe.*, errors.*, control.*, congestion.*: not examined",
];

/// All experiments.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        parameter: ("link", "rate_gbps"),
        what: "goodput of 1 MB WRITEs at the largest MTU",
        tenants: "[[tenant]]\nname = \"a\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = \"1MB\"\nqueue_pairs = 8\ndepth = 4\n",
        measure: Measure::Goodput,
        ..BASE
    },
    Experiment {
        parameter: ("link", "frame_bytes"),
        what: "goodput of 1 MB WRITEs at an MTU of 512 B",
        tenants: "[[tenant]]\nname = \"a\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = \"1MB\"\nqueue_pairs = 8\ndepth = 4\nmtu = 512\n",
        measure: Measure::Goodput,
        ..BASE
    },
    Experiment {
        parameter: ("processing", "write_ns"),
        what: "8 B WRITEs in lists from one host to two",
        tenants: "[[tenant]]\nname = \"a\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 8\ninline = 8\nqueue_pairs = 8\npost_list = 16\ndepth = 64\nprocesses = 6\n\
                  [[tenant]]\nname = \"b\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 8\ninline = 8\nqueue_pairs = 8\npost_list = 16\ndepth = 64\nprocesses = 6\nto = \"c\"\n",
        ..BASE
    },
    Experiment {
        parameter: ("processing", "send_ns"),
        what: "8 B SENDs in lists from one host to two",
        tenants: "[[tenant]]\nname = \"a\"\n[[tenant.traffic]]\nverb = \"send\"\nsize = 8\ninline = 8\nqueue_pairs = 8\npost_list = 16\ndepth = 64\nprocesses = 6\n\
                  [[tenant]]\nname = \"b\"\n[[tenant.traffic]]\nverb = \"send\"\nsize = 8\ninline = 8\nqueue_pairs = 8\npost_list = 16\ndepth = 64\nprocesses = 6\nto = \"c\"\n",
        ..BASE
    },
    Experiment {
        parameter: ("processing", "respond_fetch_add_ns"),
        what: "fetch-and-add from two hosts to one",
        tenants: "[[tenant]]\nname = \"a\"\n[[tenant.traffic]]\nverb = \"fetch-add\"\nqueue_pairs = 8\npost_list = 8\ndepth = 16\nprocesses = 4\n\
                  [[tenant]]\nname = \"b\"\n[[tenant.traffic]]\nverb = \"fetch-add\"\nqueue_pairs = 8\npost_list = 8\ndepth = 16\nprocesses = 4\nfrom = \"c\"\n",
        needs_atomics: true,
        ..BASE
    },
    Experiment {
        parameter: ("processing", "respond_compare_swap_ns"),
        what: "compare-and-swap from two hosts to one",
        tenants: "[[tenant]]\nname = \"a\"\n[[tenant.traffic]]\nverb = \"compare-swap\"\nqueue_pairs = 8\npost_list = 8\ndepth = 16\nprocesses = 4\n\
                  [[tenant]]\nname = \"b\"\n[[tenant.traffic]]\nverb = \"compare-swap\"\nqueue_pairs = 8\npost_list = 8\ndepth = 16\nprocesses = 4\nfrom = \"c\"\n",
        needs_atomics: true,
        ..BASE
    },
    Experiment {
        parameter: ("processing", "respond_write_ns"),
        what: "8 B WRITEs in lists from two hosts to one",
        tenants: "[[tenant]]\nname = \"a\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 8\ninline = 8\nqueue_pairs = 8\npost_list = 16\ndepth = 64\nprocesses = 6\n\
                  [[tenant]]\nname = \"b\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 8\ninline = 8\nqueue_pairs = 8\npost_list = 16\ndepth = 64\nprocesses = 6\nfrom = \"c\"\n",
        ..BASE
    },
    Experiment {
        parameter: ("processing", "respond_read_ns"),
        what: "8 B READs by two hosts from one",
        tenants: "[[tenant]]\nname = \"a\"\n[[tenant.traffic]]\nverb = \"read\"\nsize = 8\nqueue_pairs = 8\npost_list = 16\ndepth = 64\nprocesses = 6\n\
                  [[tenant]]\nname = \"b\"\n[[tenant.traffic]]\nverb = \"read\"\nsize = 8\nqueue_pairs = 8\npost_list = 16\ndepth = 64\nprocesses = 6\nfrom = \"c\"\n",
        ..BASE
    },
    Experiment {
        parameter: ("processing", "read_ns"),
        what: "8 B READs by one host from two",
        tenants: "[[tenant]]\nname = \"a\"\n[[tenant.traffic]]\nverb = \"read\"\nsize = 8\nqueue_pairs = 8\npost_list = 16\ndepth = 64\nprocesses = 6\n\
                  [[tenant]]\nname = \"b\"\n[[tenant.traffic]]\nverb = \"read\"\nsize = 8\nqueue_pairs = 8\npost_list = 16\ndepth = 64\nprocesses = 6\nto = \"c\"\n",
        ..BASE
    },
    Experiment {
        parameter: ("pcie", "rate_gbps"),
        what: "WRITEs of 257 B in both directions",
        tenants: "[[tenant]]\nname = \"a\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 257\nqueue_pairs = 8\npost_list = 16\ndepth = 64\nprocesses = 4\n\
                  [[tenant]]\nname = \"b\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 257\nqueue_pairs = 8\npost_list = 16\ndepth = 64\nprocesses = 4\nfrom = \"b\"\nto = \"a\"\n",
        measure: Measure::Goodput,
        start_at: 3.0,
        ..BASE
    },
    Experiment {
        parameter: ("link", "propagation_ns"),
        what: "one 8 B WRITE at a time",
        tenants: "[[tenant]]\nname = \"a\"\nclass = \"latency\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 8\ninline = 8\ndepth = 1\n",
        duration_us: 1000,
        measure: Measure::Median,
        ..BASE
    },
    Experiment {
        parameter: ("cache", "miss_ns"),
        what: "one WRITE at a time over regions that fit no cache",
        tenants: "[[tenant]]\nname = \"a\"\nclass = \"latency\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 64\ndepth = 1\nmemory_regions = 65536\n",
        duration_us: 4000,
        measure: Measure::Median,
        ..BASE
    },
    Experiment {
        parameter: ("cache", "translation_entries"),
        what: "one WRITE at a time over 8,192 pages of one region",
        tenants: "[[tenant]]\nname = \"a\"\nclass = \"latency\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 64\ndepth = 1\nregion = \"32MiB\"\n",
        duration_us: 20_000,
        measure: Measure::Mean,
        whole: true,
        ..BASE
    },
    Experiment {
        parameter: ("cache", "translation_miss_slots"),
        what: "64 B WRITEs over regions that fit no cache, all that the device takes",
        tenants: "[[tenant]]\nname = \"a\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 64\nqueue_pairs = 8\npost_list = 16\ndepth = 64\nprocesses = 6\nmemory_regions = 65536\n",
        measure: Measure::Rate,
        whole: true,
        ..BASE
    },
    Experiment {
        parameter: ("scheduler", "quantum_packets"),
        what: "one 8 B WRITE at a time behind four bulk pairs",
        tenants: "[[tenant]]\nname = \"a\"\nclass = \"latency\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 8\ninline = 8\ndepth = 1\n\
                  [[tenant]]\nname = \"b\"\nclass = \"bandwidth\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = \"1MB\"\nqueue_pairs = 4\ndepth = 2\n",
        duration_us: 4000,
        measure: Measure::Mean,
        whole: true,
        ..BASE
    },
    Experiment {
        parameter: ("scheduler", "engines"),
        what: "one 8 B WRITE at a time behind one bulk pair",
        tenants: "[[tenant]]\nname = \"a\"\nclass = \"latency\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 8\ninline = 8\ndepth = 1\n\
                  [[tenant]]\nname = \"b\"\nclass = \"bandwidth\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = \"1MB\"\nqueue_pairs = 1\ndepth = 2\n",
        duration_us: 4000,
        measure: Measure::Mean,
        whole: true,
        ..BASE
    },
];
