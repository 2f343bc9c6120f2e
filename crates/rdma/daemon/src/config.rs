//! What an operator sets; the file format is read elsewhere and ends here.
//!
//! Units: rates in bits per second, durations in picoseconds, sizes in bytes; every field has a default that works.

use isolane_common_linux::account::PlaceLimits;
use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use isolane_rdma_policy::granularity::Granularity;
use isolane_rdma_session::message::Class;
use std::path::PathBuf;

/// Everything.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where the daemon listens.
    pub socket: PathBuf,
    /// Permission bits of the socket: who may connect.
    pub socket_mode: u32,
    /// The devices it serves.
    pub devices: Vec<DeviceConfig>,
    /// What shares one part of a device: a tenant (the default) or a process.
    pub granularity: Granularity,
    /// Time between two looks at what is active, and between two sets of leases.
    pub period: Duration,
    /// A sender that shows no sign of life for this long gives its share back (justitia F).
    pub idle_after: Duration,
    /// Most sessions.
    pub sessions_max: usize,
    /// Most sessions of one account (user, container and user namespace), root's included: no tenant can use up
    /// descriptors or memory.
    pub sessions_per_account_max: usize,
    /// Who is who, first match wins; without a match a process belongs to its owner.
    pub rules: Vec<Rule>,
    /// Tenants with a weight of the operator's.
    pub tenants: Vec<TenantConfig>,
    /// Whether a process that no rule names may name its tenant and weight, within the two limits below.
    pub trust_names: bool,
    /// Whether a process that declares the latency class begins in it; what it posts is checked.
    pub trust_classes: bool,
    /// Largest weight by a process's own word.
    pub own_weight_max: u32,
    /// Most tenants that one owner's processes name at a time; further ones belong to the owner itself.
    pub own_names_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            socket: PathBuf::from(isolane_rdma_session::SOCKET_PATH),
            socket_mode: 0o666,
            devices: Vec::new(),
            granularity: Granularity::Tenant,
            period: Duration::from_ms(1),
            idle_after: Duration::from_ms(20),
            sessions_max: 4_096,
            sessions_per_account_max: 1_024,
            rules: Vec::new(),
            tenants: Vec::new(),
            trust_names: false,
            trust_classes: false,
            own_weight_max: OWN_WEIGHT_MAX,
            own_names_max: OWN_NAMES_MAX,
        }
    }
}

impl Config {
    /// Places for sessions. A quarter is kept for accounts with few sessions.
    pub fn session_places(&self) -> PlaceLimits {
        PlaceLimits {
            total: self.sessions_max,
            per_account: self.sessions_per_account_max,
            reserve: self.sessions_max / 4,
            few: SESSIONS_FEW,
        }
    }
}

/// Sessions of an account that still gets a place of the reserve: more than a machine's usual tenants have.
const SESSIONS_FEW: usize = 16;

/// A tenant that nobody weighed has 1: by its own word it gets at most four times as much.
const OWN_WEIGHT_MAX: u32 = 4;
/// With the weight above, one owner has at most 32 times the part of an owner that says nothing.
const OWN_NAMES_MAX: usize = 8;

/// Which policy a device has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyName {
    /// Everybody posts as they like; the daemon only counts.
    None,
    /// Justitia.
    #[default]
    Justitia,
}

impl PolicyName {
    /// The name that users know it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Justitia => "justitia",
        }
    }
}

/// One device. What is `None` follows from the rate of its port.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceConfig {
    /// Its name, like `mlx5_0`.
    pub name: String,
    /// Its policy.
    pub policy: PolicyName,
    /// Application-level bandwidth of the idle device.
    pub rate: Option<BitRate>,
    /// Messages per second of the idle device.
    pub message_rate_per_s: Option<u64>,
    /// The reference flow's 99th percentile that is to be kept.
    pub target: Option<Duration>,
    /// Time between reference messages.
    pub reference_period: Option<Duration>,
    /// Reference latencies over which the percentile is taken.
    pub reference_count: Option<usize>,
    /// Chunk while a latency flow exists.
    pub chunk: Option<Bytes>,
    /// Chunk while none does.
    pub chunk_without_latency: Option<Bytes>,
    /// What SafeUtil gains in one reference period while the target is met.
    pub additive_step: Option<BitRate>,
    /// How much of its rate a sender may save up, as time, while a latency flow exists.
    pub burst: Option<Duration>,
    /// The same while none does.
    pub burst_without_latency: Option<Duration>,
}

/// What a process must be for a rule, and what it then is. Patterns know `*`; what is `None` matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Pattern of its cgroup's path.
    pub cgroup: Option<String>,
    /// Its user.
    pub user: Option<u32>,
    /// Pattern of its program's name, as the process says it.
    pub program: Option<String>,
    /// Pattern of its tenant, as the process says it.
    pub claim: Option<String>,
    /// The tenant it belongs to; `{owner}`, `{user}`, `{claim}` and `{cgroup}` (the path's last part) stand for its own.
    /// `None` keeps what it would be without the rule.
    pub tenant: Option<String>,
    /// Its class, over its own word.
    pub class: Option<Class>,
    /// Its weight among its tenant's processes.
    pub weight: Option<u32>,
}

/// A tenant that the operator knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantConfig {
    /// Its name.
    pub name: String,
    /// Its weight among tenants.
    pub weight: u32,
}
