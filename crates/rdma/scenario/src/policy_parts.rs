//! The parts that policies are made of, with their parameters, in one place for the parser, the schema and the manual.

use crate::stack::{Feature, PolicyPart, Slot};
use isolane_common_toml_input::policy_parameter::{PolicyParameter, parameter};

/// Every part a scenario's policy may be made of, in the order in which a stack's name lists them. The simulator
/// reads each parameter: one that nothing reads must not be listed, for it would be accepted and do nothing.
#[rustfmt::skip]
pub const POLICIES: &[PolicyPart] = &[
    PolicyPart { name: "none", slots: &[Slot::Nothing], needs: Feature::Any, about: "nothing: the RDMA NIC without a policy", parameters: &[] },
    PolicyPart {
        name: "justitia",
        slots: &[Slot::Pacing],
        needs: Feature::Any,
        about: "splits large messages and paces tenants in software towards a latency target",
        parameters: &[
            parameter("target_us", (0.01, 1e6), "latency target (the profile's)"),
            parameter("ref_period_us", (0.1, 1e6), "time between two reference messages (20)"),
            parameter("ref_count", (1.0, 1e6), "samples of the reference flow's p99 (10000)"),
            parameter("token_bytes", (1.0, 1e9), "token while a latency flow exists (the profile's dictionary)"),
            parameter("token_without_latency_bytes", (1.0, 1e9), "token while no latency flow exists (1000000)"),
            parameter("additive_step_mbps", (0.001, 1e6), "increase of SafeUtil per period in which the target is met (8)"),
            parameter("token_backlog_max", (1.0, 1e6), "maximum number of unused tokens that are kept (5)"),
            parameter("idle_after_us", (1.0, 1e7), "time without activity and without work in the device, after which a flow returns its share (10000)"),
            parameter("count_latency_as_one", (0.0, 1.0), "1 counts all latency flows as one (1)"),
            GRANULARITY,
            parameter("trust_declared", (0.0, 1.0), "0 checks the messages of tenants that declare latency (1)"),
            parameter("classify", (0.0, 1.0), "1 detects the class of tenants that declare none, 0 puts them into the bandwidth class (1)"),
        ],
    },
    PolicyPart {
        name: "lite",
        slots: &[Slot::Pacing],
        needs: Feature::Any,
        about: "LITE's kernel-side rate limits for low-priority tenants",
        parameters: &[],
    },
    PolicyPart {
        name: "sw-chunking",
        slots: &[Slot::Pacing],
        needs: Feature::Any,
        about: "splits large messages in software into chunks of one bandwidth-delay product, as Flor does",
        parameters: &[
            parameter("chunk_bytes", (64.0, 1e9), "size of a chunk (one bandwidth-delay product: link rate x idle round trip)"),
            parameter("chunks_outstanding", (1.0, 1e4), "chunks that a queue pair may have in the RDMA NIC (2)"),
        ],
    },
    PolicyPart {
        name: "hw-priority",
        slots: &[Slot::Pacing, Slot::Classes],
        needs: Feature::Any,
        about: "maps latency tenants to a hardware queue of strict priority",
        parameters: &[parameter("reconfigure_us", (0.0, 1e7), "time to change a queue (the profile's)")],
    },
    PolicyPart {
        name: "palos",
        slots: &[Slot::Scheduler],
        needs: Feature::Any,
        about: "schedules chunks of data instead of packets inside the RDMA NIC, with weights per tenant and queue pair",
        parameters: &[
            parameter("quantum_bytes", (64.0, 1e6), "N of equation 2 for each active queue pair (the path MTU)"),
            parameter("priority_bytes_max", (0.0, 1e6), "largest message of the strict-priority queue; 0 switches the queue off (1024)"),
            parameter(
                "priority_share_max",
                (0.0, 1.0),
                "part of the link that labelled pairs may take before a mislabelled one loses its label (0.1)",
            ),
            parameter("clock_mhz", (1.0, 1e4), "clock of the scheduling stages (250)"),
            parameter("per_queue_pair", (0.0, 1.0), "1 makes every queue pair a group of its own (0: a tenant is a group)"),
        ],
    },
    PolicyPart {
        name: "hw-tc",
        slots: &[Slot::Classes],
        needs: Feature::TrafficClasses,
        about: "a hardware traffic class per tenant: its share of link and receive buffer",
        parameters: &[parameter("rate_limit", (0.0, 1.0), "1 also limits each class to its share (0: unused share goes to others)")],
    },
    PolicyPart {
        name: "vl-qos",
        slots: &[Slot::Classes],
        needs: Feature::TrafficClasses,
        about: "virtual lanes with high and low arbitration tables, as OpenSM sets them up",
        parameters: &[
            parameter("high_limit", (0.0, 255.0), "units of 4096 B that the high table may send before the low table sends; 255 is no limit (10)"),
            parameter("latency_high", (0.0, 1.0), "1 puts tenants that declare latency into the high table (1)"),
        ],
    },
    PolicyPart {
        name: "sriov",
        slots: &[Slot::Functions],
        needs: Feature::VirtualFunctions,
        about: "a virtual function per tenant: its own rate limiter and RC error handling",
        parameters: &[parameter("vf_rate_limit", (0.0, 1.0), "1 limits each function to its tenant's share of the link (1)")],
    },
    PolicyPart {
        name: "harmonic",
        slots: &[Slot::Monitor],
        needs: Feature::CongestionNotification,
        about: "monitors the RDMA NIC's PCIe port per tenant, and slows tenants by congestion notifications",
        parameters: &[
            parameter("t_basic_us", (1.0, 1e6), "T_basic of equation 5.1 (500)"),
            parameter("t_min_us", (1.0, 1e6), "T_min of equation 5.1 (200)"),
            parameter("poll_us", (1.0, 1e6), "time between two polls of the monitor (100)"),
            parameter("notifications_per_batch", (1.0, 64.0), "congestion notifications sent together at most (4)"),
            parameter("cache_misses_per_s", (0.0, 1e12), "metadata reads that count as severe cache misses (from the profile's miss slots)"),
            parameter(
                "explicit_rate",
                (0.0, 1.0),
                "1 sends senders a rate instead of notifications, which holds request rates of many queue pairs (0)",
            ),
            parameter("monitor_ns", (0.0, 1e5), "latency that the PCIe switch adds to every transaction (the prototype's)"),
        ],
    },
    PolicyPart {
        name: "isolane-sw",
        slots: &[Slot::Whole],
        needs: Feature::Any,
        about: "Isolane's policy for today's RDMA NICs: splitting, counters per tenant, hardware rate limits",
        parameters: &[],
    },
    PolicyPart {
        name: "isolane",
        slots: &[Slot::Whole],
        needs: Feature::Any,
        about: "Isolane's policy for an RDMA NIC that schedules chunks and accounts its resources per tenant",
        parameters: &[],
    },
];

const GRANULARITY: PolicyParameter = parameter(
    "granularity",
    (0.0, 2.0),
    "a flow is 0 a queue pair, 1 an application, 2 a tenant (2)",
);
