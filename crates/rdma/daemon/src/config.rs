//! The daemon's configuration, independent of the file format.
//!
//! Units: rates in bits per second, durations in picoseconds of real time, sizes in bytes. Every field has a working default.

use crate::dilation::Dilation;
use isolane_common_linux::account::PlaceLimits;
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use isolane_rdma_policy::granularity::Granularity;
use isolane_rdma_session::message::Class;
use std::path::PathBuf;

/// The whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Path of the daemon's socket.
    pub socket: PathBuf,
    /// Permission bits of the socket: they decide who may connect.
    pub socket_mode: u32,
    /// The devices that the daemon serves.
    pub devices: Vec<DeviceConfig>,
    /// What gets one share of a device: a tenant (the default) or a process.
    pub granularity: Granularity,
    /// Time between two readings of the active meters and between two sets of leases ([`Config::period`]).
    pub period: Option<Duration>,
    /// A sender without activity for this time returns its share (justitia F; [`Config::idle_after`]).
    pub idle_after: Option<Duration>,
    /// Largest number of sessions.
    pub sessions_max: usize,
    /// Largest number of sessions of one account (user, container and user namespace), including root's. The limit
    /// keeps a tenant from using up descriptors or memory.
    pub sessions_per_account_max: usize,
    /// Rules that assign processes to tenants; the first match counts. A process without a match belongs to its owner.
    pub rules: Vec<Rule>,
    /// Tenants with a weight set by the operator.
    pub tenants: Vec<TenantConfig>,
    /// Whether a process without a rule may name its tenant and weight, within the next two limits.
    pub trust_names: bool,
    /// Whether a process that declares the latency class starts in it; its traffic is checked.
    pub trust_classes: bool,
    /// Largest weight that a process may name.
    pub own_weight_max: u32,
    /// Most tenants that one owner's processes may name at a time; further processes belong to the owner.
    pub own_names_max: usize,
    /// The clock of the devices: defaults that are times are longer by this factor.
    pub dilation: Dilation,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            socket: PathBuf::from(isolane_rdma_session::SOCKET_PATH),
            socket_mode: 0o666,
            devices: Vec::new(),
            granularity: Granularity::Tenant,
            period: None,
            idle_after: None,
            sessions_max: 4_096,
            sessions_per_account_max: 1_024,
            rules: Vec::new(),
            tenants: Vec::new(),
            trust_names: false,
            trust_classes: false,
            own_weight_max: OWN_WEIGHT_MAX,
            own_names_max: OWN_NAMES_MAX,
            dilation: Dilation::default(),
        }
    }
}

impl Config {
    /// Time between two readings of the active meters and between two sets of leases: 1 ms by default. Beside an emulated
    /// device a processor has time for the paper's reference period, 20 us of the device.
    pub fn period(&self) -> Duration {
        let emulated = self.dilation.real_time(PERIOD_EMULATED);
        self.period.unwrap_or(PERIOD.max(emulated))
    }

    /// A sender without activity for this time returns its share: 20 ms, or 20 periods beside an emulated device.
    pub fn idle_after(&self) -> Duration {
        let emulated = self.dilation.real_time(PERIOD_EMULATED * IDLE_PERIODS);
        self.idle_after
            .unwrap_or((PERIOD * IDLE_PERIODS).max(emulated))
    }

    /// Fails if a sender would count as idle between two readings. The defaults depend on the clock of the devices.
    pub fn check(&self) -> Result<(), OptionError> {
        let (period, idle_after) = (self.period(), self.idle_after());
        match idle_after < period {
            true => Err(OptionError::new(
                "idle_after",
                idle_after,
                format!("give at least the period, {period}"),
            )),
            false => Ok(()),
        }
    }

    /// Limits of session places. A quarter is reserved for accounts with few sessions.
    pub fn session_places(&self) -> PlaceLimits {
        PlaceLimits {
            total: self.sessions_max,
            per_account: self.sessions_per_account_max,
            reserve: self.sessions_max / 4,
            few: SESSIONS_FEW,
        }
    }
}

const PERIOD: Duration = Duration::from_ms(1);
const PERIOD_EMULATED: Duration = Duration::from_us(20);
/// Default of [`Config::idle_after`], in default periods.
const IDLE_PERIODS: u64 = 20;

/// An account with fewer sessions than this may use the reserve: more than a usual tenant has.
const SESSIONS_FEW: usize = 16;

/// A tenant without a configured weight has weight 1; a named weight is at most four times that.
const OWN_WEIGHT_MAX: u32 = 4;
/// Together with the weight above, one owner gets at most 32 times the share of an owner that names nothing.
const OWN_NAMES_MAX: usize = 8;

/// The policy of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyName {
    /// No pacing; the daemon only counts.
    None,
    /// Justitia.
    #[default]
    Justitia,
}

impl PolicyName {
    /// The name in configurations and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Justitia => "justitia",
        }
    }
}

/// One device. A field that is `None` is derived from the rate of the port.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceConfig {
    /// Device name, such as `mlx5_0`.
    pub name: String,
    /// Its policy.
    pub policy: PolicyName,
    /// Payload rate of the idle device.
    pub rate: Option<BitRate>,
    /// Message rate of the idle device, per second.
    pub message_rate_per_s: Option<u64>,
    /// Upper bound of the reference flow's 99th percentile.
    pub target: Option<Duration>,
    /// Time between two reference messages.
    pub reference_period: Option<Duration>,
    /// Number of reference latencies in the percentile.
    pub reference_count: Option<usize>,
    /// Chunk size while a latency flow exists.
    pub chunk: Option<Bytes>,
    /// Chunk size while no latency flow exists.
    pub chunk_without_latency: Option<Bytes>,
    /// Increase of SafeUtil per reference period while the target is met.
    pub additive_step: Option<BitRate>,
    /// Credit that a sender may save while a latency flow exists, as time at its rate.
    pub burst: Option<Duration>,
    /// The same while no latency flow exists.
    pub burst_without_latency: Option<Duration>,
}

/// Conditions on a process and the resulting assignment. Patterns may contain `*`; a condition that is `None` matches
/// everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Pattern of the cgroup's path, for [`crate::identity`].
    pub cgroup: Option<String>,
    /// Identifier of the Kubernetes pod, with dashes.
    pub pod: Option<String>,
    /// User id.
    pub user: Option<u32>,
    /// Pattern of the program's name, which the process itself sends.
    pub program: Option<String>,
    /// Pattern of the tenant's name, which the process itself sends.
    pub claim: Option<String>,
    /// The tenant to assign. `{owner}`, `{user}`, `{claim}` and `{cgroup}` (the path's last part) are replaced by the
    /// process's values. `None` keeps the assignment without the rule.
    pub tenant: Option<String>,
    /// The class to assign; it overrides the class that the process sends.
    pub class: Option<Class>,
    /// Weight among the processes of the tenant.
    pub weight: Option<u32>,
    /// Whether processes of the latency class are watched: their queue pairs start in it, and the tenant loses it if it
    /// sends bulk. Otherwise their data path is not seen.
    pub watches_latency: bool,
}

/// A tenant in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantConfig {
    /// Its name.
    pub name: String,
    /// Weight among tenants.
    pub weight: u32,
}

/// The processes of a workload, by what the kernel says of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// Those in cgroups whose path matches the pattern.
    Cgroup(String),
    /// Those of the Kubernetes pod with this identifier, with dashes.
    Pod(String),
}

impl Members {
    /// The pattern of cgroups, where there is one.
    pub fn cgroup(&self) -> Option<&str> {
        match self {
            Self::Cgroup(pattern) => Some(pattern),
            Self::Pod(_) => None,
        }
    }

    /// The pod's identifier, where there is one.
    pub fn pod(&self) -> Option<&str> {
        match self {
            Self::Cgroup(_) => None,
            Self::Pod(identifier) => Some(identifier),
        }
    }
}

impl Default for Members {
    fn default() -> Self {
        Self::Cgroup(String::new())
    }
}

/// What the processes of one workload get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// The workload's processes.
    pub members: Members,
    /// The tenant; `None`: the processes' owner.
    pub tenant: Option<String>,
    /// The class; `None`: the daemon detects it.
    pub class: Option<Class>,
    /// Weight of the tenant; needs a tenant.
    pub weight: Option<u32>,
    /// The assignment ends when this path is gone.
    pub lasts_while: Option<PathBuf>,
}
