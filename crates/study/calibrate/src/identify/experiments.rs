//! The experiments: scenarios between hosts, in the order in which their parameters depend on each other.
//!
//! Of a device in hardware, on three hosts: a requester's unit is the bottleneck if one host sends to two, a responder's if two
//! hosts send to one. The share of accesses that miss a cache shows in the mean latency of single requests, and the time of a
//! miss in the median of requests that always miss.
//!
//! Of a device in software, on two hosts: its only resource is the processor that runs all its parts, so each experiment shows
//! what one request, packet or byte takes of it. Requests are posted one at a time by one pair, as most programs do, because posting takes
//! the same processor.

use isolane_rdma_scenario::profile::Profile;

/// How the parameters of a device are found.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// In the order in which their parameters depend on each other.
    pub experiments: &'static [Experiment],
    /// Parameters of which the experiments show one sum only, or nothing.
    pub together: &'static [&'static str],
    /// Hosts, each with a device of its own.
    pub hosts: usize,
    /// Whether devices may be thousands of times faster or slower than the start, as software is on different processors.
    pub(super) any_speed: bool,
}

impl Method {
    /// For a device in hardware.
    const HARDWARE: Self = Self {
        experiments: HARDWARE,
        together: TOGETHER,
        hosts: 3,
        any_speed: false,
    };

    /// For a device in software.
    const SOFTWARE: Self = Self {
        experiments: SOFTWARE,
        together: TOGETHER_IN_SOFTWARE,
        hosts: 2,
        any_speed: true,
    };

    /// For devices like `profile`'s.
    pub fn of(profile: &Profile) -> Self {
        if profile.micro("copy_gbps") > 0.0 {
            Self::SOFTWARE
        } else {
            Self::HARDWARE
        }
    }
}

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
    /// Time before measuring, microseconds.
    pub warmup_us: u32,
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
    warmup_us: 200,
    duration_us: 300,
    measure: Measure::Rate,
    whole: false,
    needs_atomics: false,
    start_at: 1.0,
};

/// Parameters of which the experiments on hardware show one sum only.
const TOGETHER: &[&str] = &[
    "link.propagation_ns, link.switch_ns, pcie.read_ns, pcie.write_ns, pcie.mmio_ns and host.*: \
     one idle latency (given in full to link.propagation_ns)",
    "scheduler.window_bytes, scheduler.pipeline_ns: both lengthen the wait behind bulk pairs",
    "cache.context_miss_slots, cache.receive_*, receive.*, wqe.*, errors.*, control.*, congestion.*: not examined",
];

/// The same of a device in software.
const TOGETHER_IN_SOFTWARE: &[&str] = &[
    "processing.* of requester and responder, processing.ack_ns and host.*: one sum (given to processing.*_ns of the requester, \
     for atomics of the responder)",
    "link.rate_gbps, pcie.*: faster than the processor",
    "cache.*, scheduler.*, receive.*, wqe.*, errors.*, control.*, congestion.*: not examined",
];

/// Of a device in software.
const SOFT: Experiment = Experiment {
    warmup_us: 20_000,
    duration_us: 100_000,
    ..BASE
};

/// The experiments on a device in software.
const SOFTWARE: &[Experiment] = &[
    Experiment {
        parameter: ("processing", "write_ns"),
        what: "8 B WRITEs",
        tenants: "[[tenant]]\nname = \"a\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 8\ndepth = 64\n",
        ..SOFT
    },
    Experiment {
        parameter: ("processing", "send_ns"),
        what: "8 B SENDs",
        tenants: "[[tenant]]\nname = \"a\"\n[[tenant.traffic]]\nverb = \"send\"\nsize = 8\ndepth = 64\n",
        ..SOFT
    },
    Experiment {
        parameter: ("processing", "read_ns"),
        what: "8 B READs",
        tenants: "[[tenant]]\nname = \"a\"\n[[tenant.traffic]]\nverb = \"read\"\nsize = 8\ndepth = 64\n",
        ..SOFT
    },
    Experiment {
        parameter: ("processing", "respond_fetch_add_ns"),
        what: "fetch-and-add",
        tenants: "[[tenant]]\nname = \"a\"\n[[tenant.traffic]]\nverb = \"fetch-add\"\ndepth = 16\n",
        needs_atomics: true,
        ..SOFT
    },
    Experiment {
        parameter: ("processing", "respond_compare_swap_ns"),
        what: "compare-and-swap",
        tenants: "[[tenant]]\nname = \"a\"\n[[tenant.traffic]]\nverb = \"compare-swap\"\ndepth = 16\n",
        needs_atomics: true,
        ..SOFT
    },
    Experiment {
        parameter: ("microarchitecture", "copy_gbps"),
        what: "goodput of 128 KiB WRITEs at the largest MTU",
        tenants: "[[tenant]]\nname = \"a\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = \"128KiB\"\ndepth = 8\n",
        duration_us: 500_000,
        measure: Measure::Goodput,
        ..SOFT
    },
    Experiment {
        parameter: ("processing", "packet_ns"),
        what: "goodput of 128 KiB WRITEs at an MTU of 512 B",
        tenants: "[[tenant]]\nname = \"a\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = \"128KiB\"\ndepth = 8\nmtu = 512\n",
        duration_us: 500_000,
        measure: Measure::Goodput,
        ..SOFT
    },
    Experiment {
        parameter: ("link", "propagation_ns"),
        what: "one 8 B WRITE at a time",
        tenants: "[[tenant]]\nname = \"a\"\nclass = \"latency\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 8\ndepth = 1\n",
        measure: Measure::Median,
        ..SOFT
    },
];

/// The experiments on a device in hardware.
const HARDWARE: &[Experiment] = &[
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
