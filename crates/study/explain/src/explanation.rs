//! The result: why a victim lost what it lost, as plain data for JSON, the terminal and the HTML page.
//!
//! Units end the names: `us` is microseconds, `gbps` gigabits (10^9 bits) of payload per second, `per_s` is per second.
//! Shares and ratios run from 0 to 1. Latencies here are means over followed messages, since only means add up;
//! percentiles are in [`Loss`].

use isolane_rdma_scenario::model::Host;
use isolane_study_audit::cell::{Metrics, VictimKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the JSON form; raised when a field changes meaning or goes.
pub const EXPLANATION_VERSION: u32 = 3;

/// The story of one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// [`EXPLANATION_VERSION`].
    pub version: u32,
    /// The device profile's name.
    pub profile: String,
    /// The policy.
    pub policy: String,
    /// False where the policy needs hardware that is not on sale.
    #[serde(default = "on_sale")]
    pub on_sale: bool,
    /// Run seed.
    pub seed: u64,
    /// The victim.
    pub victim: String,
    /// What of it counts.
    pub kind: VictimKind,
    /// What it does, in words.
    pub victim_does: String,
    /// The attacker as the request names it.
    pub attacker: String,
    /// What it does, in words.
    pub attacker_does: String,
    /// False when the pair did not settle, so that its figures depend on how long it was measured.
    pub settled: bool,
    /// Time before measuring starts, microseconds.
    pub warmup_us: f64,
    /// Measured time, microseconds.
    pub measured_us: f64,
    /// When the attacker starts, microseconds of measured time.
    pub attack_us: f64,
    /// From when to when the attack is judged, microseconds of measured time: caches and queues are full by then.
    pub window_us: [f64; 2],
    /// What the victim lost.
    pub loss: Loss,
    /// Mean latency of followed messages.
    pub latency: MeanLatency,
    /// One sentence.
    pub verdict: String,
    /// Cause, resource, wait and loss, one sentence each.
    pub chain: Vec<Link>,
    /// Everything that added to the victim's latency, the largest part first.
    pub causes: Vec<Cause>,
    /// Where a message spends its time, in its order.
    pub stages: Vec<StageTime>,
    /// The victim's lookups in the NICs' caches.
    pub caches: Vec<CacheStory>,
    /// A typical message (of median latency), step by step: alone.
    pub message_alone: Vec<Step>,
    /// The same under attack.
    pub message_attacked: Vec<Step>,
    /// What happened over time.
    pub series: Series,
    /// A command line that repeats this.
    pub rerun: String,
}

/// Of results that do not say it.
fn on_sale() -> bool {
    true
}

/// What the victim lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Loss {
    /// The victim alone, in the same part of the run.
    pub alone: Metrics,
    /// The victim under attack.
    pub attacked: Metrics,
    /// What it kept of what counts: rate under attack / alone, or p99 alone / under attack. 0 when nothing completed.
    pub retained: f64,
    /// True when it lost more than [`HURT`].
    pub hurt: bool,
}

/// A loss up to this part is not called one: runs of equal length differ by about as much.
pub const HURT: f64 = 0.05;

/// Means over followed messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeanLatency {
    /// Alone, microseconds.
    pub alone_us: f64,
    /// Under attack, microseconds; for messages under way at the end if none completed.
    pub attacked_us: f64,
    /// Followed messages that completed, alone.
    pub messages_alone: u64,
    /// Followed messages that completed under attack.
    pub messages_attacked: u64,
    /// Followed messages that were still under way when the run under attack ended.
    pub unfinished: u64,
}

/// One link of the chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Link {
    /// `cause`, `resource`, `wait` or `loss`.
    pub role: String,
    /// The sentence.
    pub text: String,
}

/// A tenant's part of a wait or of a resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// The tenant, or `the policy`.
    pub tenant: String,
    /// Its part, 0 to 1.
    pub share: f64,
}

/// A resource that the victim waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cause {
    /// The resource.
    pub resource: String,
    /// The same in words.
    pub title: String,
    /// Whose NIC or host.
    pub host: Host,
    /// Wait per message, alone, microseconds.
    pub alone_us: f64,
    /// Wait per message under attack, microseconds.
    pub attacked_us: f64,
    /// The difference, microseconds; negative where the victim waits less.
    pub added_us: f64,
    /// Part of all that was added, 0 to 1.
    pub share: f64,
    /// The tenants that caused the wait under attack, the largest part first.
    pub caused_by: Vec<Part>,
    /// How busy the resource was alone, 0 to 1; absent where that has no meaning (a timer, a read's latency).
    pub busy_alone: Option<f64>,
    /// How busy it was under attack.
    pub busy_attacked: Option<f64>,
    /// Who kept it busy under attack: parts of the time it was busy, the largest first.
    pub occupants: Vec<Part>,
    /// One sentence.
    pub sentence: String,
}

/// Mean time in one stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageTime {
    /// The stage.
    pub stage: String,
    /// Waiting, alone, microseconds.
    pub waited_alone_us: f64,
    /// Served or on the way, alone, microseconds.
    pub served_alone_us: f64,
    /// Waiting under attack, microseconds.
    pub waited_attacked_us: f64,
    /// Served or on the way under attack, microseconds.
    pub served_attacked_us: f64,
}

/// The victim's fortune in one cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheStory {
    /// The cache.
    pub cache: String,
    /// Whose NIC.
    pub host: Host,
    /// Part of the victim's lookups that missed, alone.
    pub miss_ratio_alone: f64,
    /// The same under attack.
    pub miss_ratio_attacked: f64,
    /// The victim's entries that were evicted under attack, per second.
    pub evictions_per_s: f64,
    /// Who evicted them, the largest part first.
    pub evicted_by: Vec<Part>,
}

/// One step of one message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// What the message was doing.
    pub stage: String,
    /// What it waited for, or was served by.
    pub resource: String,
    /// Whose NIC or host.
    pub host: Host,
    /// Waiting, or served.
    pub waits: bool,
    /// Who was in front; absent while it was served.
    pub caused_by: Option<String>,
    /// When it began, microseconds since the message was posted.
    pub from_us: f64,
    /// How long it took, microseconds.
    pub us: f64,
}

/// What happened over time. All series have a value per point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// Width of a point, microseconds.
    pub point_us: f64,
    /// The victim's goodput with the attacker from `attack_us` on, gigabits per second.
    pub victim_gbps: Vec<f64>,
    /// The victim's goodput alone.
    pub alone_gbps: Vec<f64>,
    /// The attackers' goodput.
    pub attacker_gbps: Vec<f64>,
    /// 99th percentile of the victim's latency, microseconds; `null` where nothing completed.
    pub victim_p99_us: Vec<Option<f64>>,
    /// The same alone.
    pub alone_p99_us: Vec<Option<f64>>,
    /// What the occupancy is of: resource and host in words.
    pub occupancy_of: String,
    /// Its unit: `busy, %` or `bytes`.
    pub occupancy_unit: String,
    /// Occupancy of the resource that added most, by tenant.
    pub occupancy: Vec<Layer>,
    /// The victim's mean latency by what it waited for, microseconds; the last layer is service and fixed delays.
    pub waits: Vec<Layer>,
    /// Part of the victim's lookups that missed, by cache, percent.
    pub misses: Vec<Layer>,
}

/// One named series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Layer {
    /// Of whom, or of what.
    pub name: String,
    /// A value per point; `null` where it has none: a mean latency without completions, a part of no lookups.
    pub values: Vec<Option<f64>>,
}
