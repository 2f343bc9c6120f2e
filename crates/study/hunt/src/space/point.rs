//! One workload of the search space, and the features by which it is varied.
//!
//! Every feature has a value that is a whole number: a size in bytes, a count, or the index of a named choice. That
//! lets mutation, minimal feature sets and surrogate models treat all features alike. Limits: a point is one uniform
//! application (every queue pair does the same), or two of them (`kind.rs`); where two directions of one differ, only memory
//! does. Source: collie 3.4 (the four dimensions), 3.11 (which settings the triggers name).

use isolane_rdma_scenario::model::ATOMIC_BYTES;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Names of [`Feature::Direction`].
pub const DIRECTIONS: &[&str] = &[
    "one-way",
    "bidirectional",
    "loopback",
    "backward",
    "inside-a",
    "inside-b",
];
/// Index of "one-way": all queue pairs from host A to host B.
pub const ONE_WAY: u64 = 0;
/// Index of "bidirectional": as many from B to A besides.
pub const BIDIRECTIONAL: u64 = 1;
/// Index of "loopback": half of the queue pairs from host A to itself, the others from B to A.
pub const LOOPBACK: u64 = 2;
/// Index of "backward": all queue pairs from host B to host A. Of attackers only, as the two below.
pub const BACKWARD: u64 = 3;
/// Index of "inside-a": all queue pairs within host A.
pub const INSIDE_A: u64 = 4;
/// Index of "inside-b": all queue pairs within host B.
pub const INSIDE_B: u64 = 5;
/// Names of [`Feature::Control`]: what a loop of control verbs creates and destroys, if there is one instead of data.
pub const CONTROLS: &[&str] = &["none", "memory-region", "queue-pair", "completion-queue"];
/// Names of [`Feature::Receives`].
pub const RECEIVES: &[&str] = &["posted", "never"];
/// Index of "never": SENDs meet no receive, which is an error at the other end.
pub const NEVER: u64 = 1;
/// Names of [`Feature::MemoryA`] and [`Feature::MemoryB`].
pub const MEMORIES: &[&str] = &["local", "remote-socket", "gpu"];
/// Names of [`Feature::Service`]: transport and verb, because not every pair of them exists.
pub const SERVICES: &[&str] = &[
    "rc-write",
    "rc-send",
    "rc-read",
    "uc-write",
    "uc-send",
    "ud-send",
    "rc-compare-swap",
];
/// Names of [`Feature::Second`]: none, then [`SERVICES`].
pub const SECONDS: &[&str] = &[
    "none",
    "rc-write",
    "rc-send",
    "rc-read",
    "uc-write",
    "uc-send",
    "ud-send",
    "rc-compare-swap",
];
/// How many of [`SERVICES`] every application has; the rest is of attackers only.
pub const ORDINARY_SERVICES: u64 = 6;
/// Indices of [`SERVICES`] with a receive queue.
pub const SENDS: [u64; 3] = [1, 4, 5];
/// Index of "rc-read".
pub const READ: u64 = 2;
/// Index of "ud-send".
pub const DATAGRAM: u64 = 5;
/// Index of "rc-compare-swap", CMP_AND_SWAP: one element of [`ATOMIC_BYTES`], so that its pattern means nothing.
pub const ATOMIC: u64 = 6;
/// The smallest element of all other services.
pub const ELEMENT_LEAST: u64 = 32;

/// A workload. Sizes are bytes; counts of queue pairs are per direction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// Index into [`DIRECTIONS`].
    pub direction: u64,
    /// The place of host A's buffers: index into [`MEMORIES`].
    pub memory_a: u64,
    /// The place of host B's buffers.
    pub memory_b: u64,
    /// Memory regions at each end of a direction, over all queue pairs.
    pub regions: u64,
    /// Length of each region.
    pub region_bytes: u64,
    /// Index into [`SERVICES`].
    pub service: u64,
    /// Queue pairs of each direction.
    pub queue_pairs: u64,
    /// Path MTU.
    pub mtu: u64,
    /// Work requests per doorbell ("WQE batch").
    pub post_list: u64,
    /// Work requests a queue pair may have outstanding.
    pub depth: u64,
    /// Receive queue length; 0 where the service has none.
    pub receive_depth: u64,
    /// Receives posted back at once; 0 where the service has none.
    pub receive_batch: u64,
    /// The request vector: each request's scatter-gather elements. Posted in turn, for ever. With n requests of
    /// m_i elements and k elements in all this is the paper's sum of m_i = k.
    pub requests: Vec<Vec<u64>>,
    /// Index into [`CONTROLS`]; a point with control verbs posts no data.
    #[serde(default, skip_serializing_if = "is_first")]
    pub control: u64,
    /// Index into [`RECEIVES`].
    #[serde(default, skip_serializing_if = "is_first")]
    pub receives: u64,
    /// The second kind of traffic, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second: Option<Box<Kind>>,
}

/// What the queue pairs of one kind do; the fields are those of [`Point`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Kind {
    /// Index into [`SERVICES`].
    pub service: u64,
    /// Queue pairs.
    pub queue_pairs: u64,
    /// Path MTU.
    pub mtu: u64,
    /// Work requests per doorbell.
    pub post_list: u64,
    /// Work requests a queue pair may have outstanding.
    pub depth: u64,
    /// Receive queue length; 0 where the service has none.
    pub receive_depth: u64,
    /// Receives posted back at once; 0 where the service has none.
    pub receive_batch: u64,
    /// The request vector.
    pub requests: Vec<Vec<u64>>,
}

/// Whether a choice is the ordinary one.
fn is_first(value: &u64) -> bool {
    *value == 0
}

/// What is varied. The order is the one in which a minimal feature set drops features.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Feature {
    /// Which hosts send to which.
    Direction,
    /// Host A's memory.
    MemoryA,
    /// Host B's memory.
    MemoryB,
    /// Memory regions.
    Regions,
    /// Length of a region.
    RegionBytes,
    /// Transport and verb.
    Service,
    /// Queue pairs.
    QueuePairs,
    /// Path MTU.
    Mtu,
    /// Work requests per doorbell.
    PostList,
    /// Outstanding work requests.
    Depth,
    /// Receive queue length.
    ReceiveDepth,
    /// Receives posted at once.
    ReceiveBatch,
    /// Requests in the vector.
    Requests,
    /// Elements of the longest request.
    Elements,
    /// The smallest element.
    Smallest,
    /// The largest element.
    Largest,
    /// Control verbs in place of data; of attackers only.
    Control,
    /// Whether receives are posted; of attackers only.
    Receives,
    /// Transport and verb of a second kind of traffic, or none.
    Second,
    /// Queue pairs of the second kind.
    SecondQueuePairs,
    /// Its path MTU.
    SecondMtu,
    /// Its work requests per doorbell.
    SecondPostList,
    /// Its outstanding work requests.
    SecondDepth,
    /// Its receive queue length.
    SecondReceiveDepth,
    /// Its receives posted at once.
    SecondReceiveBatch,
    /// Requests in its vector.
    SecondRequests,
    /// Elements of its longest request.
    SecondElements,
    /// Its smallest element.
    SecondSmallest,
    /// Its largest element.
    SecondLargest,
}

/// A search dimension of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dimension {
    /// Host topology.
    Topology,
    /// Memory allocation settings.
    Memory,
    /// Transport settings.
    Transport,
    /// Message pattern.
    Pattern,
}

impl Feature {
    /// All of them, in the order of their definition.
    pub const ALL: [Self; 29] = [
        Self::Direction,
        Self::MemoryA,
        Self::MemoryB,
        Self::Regions,
        Self::RegionBytes,
        Self::Service,
        Self::QueuePairs,
        Self::Mtu,
        Self::PostList,
        Self::Depth,
        Self::ReceiveDepth,
        Self::ReceiveBatch,
        Self::Requests,
        Self::Elements,
        Self::Smallest,
        Self::Largest,
        Self::Control,
        Self::Receives,
        Self::Second,
        Self::SecondQueuePairs,
        Self::SecondMtu,
        Self::SecondPostList,
        Self::SecondDepth,
        Self::SecondReceiveDepth,
        Self::SecondReceiveBatch,
        Self::SecondRequests,
        Self::SecondElements,
        Self::SecondSmallest,
        Self::SecondLargest,
    ];
    /// How many of them, from the first, a point with one kind of traffic has.
    pub const OF_ONE_KIND: usize = 18;

    /// Its name in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direction => "direction",
            Self::MemoryA => "memory_a",
            Self::MemoryB => "memory_b",
            Self::Regions => "regions",
            Self::RegionBytes => "region_bytes",
            Self::Service => "service",
            Self::QueuePairs => "queue_pairs",
            Self::Mtu => "mtu",
            Self::PostList => "post_list",
            Self::Depth => "depth",
            Self::ReceiveDepth => "receive_depth",
            Self::ReceiveBatch => "receive_batch",
            Self::Requests => "requests",
            Self::Elements => "elements",
            Self::Smallest => "smallest",
            Self::Largest => "largest",
            Self::Control => "control",
            Self::Receives => "receives",
            Self::Second => "second",
            Self::SecondQueuePairs => "second_queue_pairs",
            Self::SecondMtu => "second_mtu",
            Self::SecondPostList => "second_post_list",
            Self::SecondDepth => "second_depth",
            Self::SecondReceiveDepth => "second_receive_depth",
            Self::SecondReceiveBatch => "second_receive_batch",
            Self::SecondRequests => "second_requests",
            Self::SecondElements => "second_elements",
            Self::SecondSmallest => "second_smallest",
            Self::SecondLargest => "second_largest",
        }
    }

    /// The dimension it belongs to.
    pub const fn dimension(self) -> Dimension {
        match self {
            Self::Direction | Self::MemoryA | Self::MemoryB => Dimension::Topology,
            Self::Regions | Self::RegionBytes => Dimension::Memory,
            Self::Service
            | Self::QueuePairs
            | Self::Mtu
            | Self::PostList
            | Self::Depth
            | Self::ReceiveDepth
            | Self::ReceiveBatch
            | Self::Control
            | Self::Receives => Dimension::Transport,
            Self::Requests | Self::Elements | Self::Smallest | Self::Largest => Dimension::Pattern,
            _ => match self.of_first() {
                Some(first) => first.dimension(),
                None => Dimension::Transport,
            },
        }
    }

    /// The names of its values, where they are named choices.
    pub const fn names(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Direction => Some(DIRECTIONS),
            Self::MemoryA | Self::MemoryB => Some(MEMORIES),
            Self::Service => Some(SERVICES),
            Self::Second => Some(SECONDS),
            Self::Control => Some(CONTROLS),
            Self::Receives => Some(RECEIVES),
            _ => None,
        }
    }

    /// True where only attackers of a victim vary it.
    pub const fn is_of_attackers(self) -> bool {
        matches!(self, Self::Control | Self::Receives)
    }

    /// True where its values are bytes.
    pub const fn is_size(self) -> bool {
        match self.of_first() {
            Some(first) => first.is_size(),
            None => matches!(
                self,
                Self::RegionBytes | Self::Mtu | Self::Smallest | Self::Largest
            ),
        }
    }

    /// True where it has a meaning for `point`.
    pub fn is_active(self, point: &Point) -> bool {
        if point.control != 0 {
            return match self {
                Self::Direction | Self::QueuePairs | Self::Regions | Self::Control => true,
                Self::RegionBytes => point.control == REGIONS_CONTROL,
                _ => false,
            };
        }
        match self {
            Self::ReceiveDepth | Self::ReceiveBatch => {
                point.has_receives() && point.receives != NEVER
            }
            Self::Receives => point.has_receives(),
            Self::Requests | Self::Elements | Self::Smallest | Self::Largest => {
                point.service != ATOMIC
            }
            _ => match self.of_first() {
                Some(first) => point.second.is_some() && first.is_active(&point.swapped()),
                None => true,
            },
        }
    }

    /// Its value at `point`.
    pub fn of(self, point: &Point) -> u64 {
        let elements = || point.requests.iter().flatten().copied();
        match self {
            Self::Direction => point.direction,
            Self::MemoryA => point.memory_a,
            Self::MemoryB => point.memory_b,
            Self::Regions => point.regions,
            Self::RegionBytes => point.region_bytes,
            Self::Service => point.service,
            Self::QueuePairs => point.queue_pairs,
            Self::Mtu => point.mtu,
            Self::PostList => point.post_list,
            Self::Depth => point.depth,
            Self::ReceiveDepth => point.receive_depth,
            Self::ReceiveBatch => point.receive_batch,
            Self::Requests => point.requests.len() as u64,
            Self::Elements => {
                let lengths = point.requests.iter().map(Vec::len);
                lengths.max().unwrap_or(0) as u64
            }
            Self::Smallest => elements().min().unwrap_or(0),
            Self::Largest => elements().max().unwrap_or(0),
            Self::Control => point.control,
            Self::Receives => point.receives,
            Self::Second => point.second.as_ref().map_or(0, |kind| kind.service + 1),
            _ => match (self.of_first(), &point.second) {
                (Some(first), Some(_)) => first.of(&point.swapped()),
                _ => 0,
            },
        }
    }

    /// `point` with another value of this feature, all others left where they can be. Nothing is checked.
    ///
    /// A longer vector or request repeats what is there; a shorter one is cut. A uniform pattern stays uniform: its
    /// smallest and its largest element move together. In a mixed one only the elements of the extreme move.
    pub fn set(self, point: &Point, value: u64) -> Point {
        let mut point = point.clone();
        match self {
            Self::Direction => point.direction = value,
            Self::MemoryA => point.memory_a = value,
            Self::MemoryB => point.memory_b = value,
            Self::Regions => point.regions = value,
            Self::RegionBytes => point.region_bytes = value,
            Self::Service => {
                let (had_receives, was_atomic) = (point.has_receives(), point.service == ATOMIC);
                point.service = value;
                match (was_atomic, value == ATOMIC) {
                    (false, true) => point.requests = atomic_pattern(),
                    (true, false) => point.requests = vec![vec![ELEMENT_LEAST]],
                    _ => {}
                }
                match (had_receives, point.has_receives()) {
                    (false, true) => {
                        point.receive_batch = 1;
                        point.receive_depth = point.depth + 1;
                    }
                    (true, false) => {
                        (point.receive_batch, point.receive_depth, point.receives) = (0, 0, 0);
                    }
                    _ => {}
                }
            }
            Self::QueuePairs => point.queue_pairs = value,
            Self::Mtu => point.mtu = value,
            Self::PostList => point.post_list = value,
            Self::Depth => point.depth = value,
            Self::ReceiveDepth => point.receive_depth = value,
            Self::ReceiveBatch => point.receive_batch = value,
            Self::Requests => resize(&mut point.requests, value),
            Self::Elements => {
                for request in &mut point.requests {
                    resize(request, value);
                }
            }
            Self::Smallest | Self::Largest => {
                let extreme = self.of(&point);
                for size in point.requests.iter_mut().flatten() {
                    if *size == extreme {
                        *size = value;
                    }
                }
            }
            Self::Control => point.control = value,
            Self::Receives => point.receives = value,
            Self::Second if value == 0 => point.second = None,
            Self::Second => {
                // A new second kind begins as the first one is, with its own service.
                let other = match point.second {
                    Some(_) => point.swapped(),
                    None => point.clone(),
                };
                point = point.beside(&Self::Service.set(&other, value - 1));
            }
            _ => {
                if let (Some(first), Some(_)) = (self.of_first(), &point.second) {
                    point = first.set(&point.swapped(), value).swapped();
                }
            }
        }
        point
    }

    /// A value as people read it.
    pub fn shown(self, value: u64) -> String {
        match self.names() {
            Some(names) => {
                let name = names.get(value as usize);
                name.map_or_else(|| value.to_string(), |name| (*name).to_owned())
            }
            None if self.is_size() => size_text(value),
            None => value.to_string(),
        }
    }
}

/// Index of "memory-region" in [`CONTROLS`].
const REGIONS_CONTROL: u64 = 1;

/// The only pattern of an atomic.
pub fn atomic_pattern() -> Vec<Vec<u64>> {
    vec![vec![ATOMIC_BYTES]]
}

/// Bytes with the largest binary unit that keeps them whole.
pub fn size_text(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 && b.is_multiple_of(1 << 30) => format!("{}GiB", b >> 30),
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{}MiB", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{}KiB", b >> 10),
        b => format!("{b}B"),
    }
}

/// Makes `list` have `length` members, repeating it in turn.
fn resize<T: Clone>(list: &mut Vec<T>, length: u64) {
    let old = list.len().max(1);
    let length = usize::try_from(length).unwrap_or(usize::MAX).max(1);
    list.truncate(length);
    while list.len() < length {
        let next = list[list.len() - old].clone();
        list.push(next);
    }
}

impl Point {
    /// True where the service has a receive queue.
    pub fn has_receives(&self) -> bool {
        SENDS.contains(&self.service)
    }

    /// True where all elements have one size.
    pub fn is_uniform(&self) -> bool {
        Feature::Smallest.of(self) == Feature::Largest.of(self)
    }

    /// Bytes of the largest request.
    pub fn largest_request(&self) -> u64 {
        let sums = self.requests.iter().map(|r| r.iter().sum::<u64>());
        sums.max().unwrap_or(0)
    }

    /// Mean bytes of a request.
    pub fn mean_request(&self) -> f64 {
        let sum: u64 = self.requests.iter().flatten().sum();
        sum as f64 / self.requests.len().max(1) as f64
    }

    /// The whole point on one line.
    pub fn text(&self) -> String {
        let mut words: Vec<String> = Feature::ALL
            .into_iter()
            .filter(|feature| feature.dimension() != Dimension::Pattern && feature.is_active(self))
            .filter(|feature| {
                let rare = feature.is_of_attackers() || *feature == Feature::Second;
                !rare || feature.of(self) != 0
            })
            .map(|feature| format!("{}={}", feature.name(), feature.shown(feature.of(self))))
            .collect();
        if self.control != 0 {
            return words.join(" ");
        }
        let request = |request: &Vec<u64>| {
            let sizes: Vec<String> = request.iter().map(|&size| size_text(size)).collect();
            sizes.join("+")
        };
        let pattern = |requests: &[Vec<u64>]| {
            let requests: Vec<String> = requests.iter().map(request).collect();
            format!("pattern=[{}]", requests.join(", "))
        };
        words.push(pattern(&self.requests));
        if let Some(second) = &self.second {
            words.push(format!("second_{}", pattern(&second.requests)));
        }
        words.join(" ")
    }
}
