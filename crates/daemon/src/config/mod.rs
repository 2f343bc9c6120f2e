//! What the operator's file says: devices, peers, tenants, and where the daemon listens.
//!
//! Problem: a daemon that paces other people's programs must be told which NIC it has, who is who, and what each may
//! count on; a mistake in that file must be named, never guessed around.
//! Method: [`parse()`] turns TOML into checked values; later code never checks again. Who a process is follows from the
//! kernel's word (user, cgroup) by the first rule that fits; what the process says of itself counts only where no
//! rule speaks.
//! Units: as written in the file ("92Gb/s", "20us"); checked types here.
//! Limits: the file is read whole; [`FILE_MAX`] bytes at most.

mod keys;
mod parse;
mod rules;

pub use parse::parse;
pub use rules::{Assignment, Identity, TenantRule};

use isolane_core::units::{BitRate, Duration};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Where the daemon looks for its file when nobody says otherwise.
pub const FILE: &str = "/etc/isolane/isolaned.toml";
/// Where `isolane top` finds the daemon.
pub const CONTROL_PATH: &str = "/run/isolane/control.sock";
/// Longest file, bytes: a thousand tenants need a tenth of it.
pub const FILE_MAX: u64 = 1 << 20;
/// Largest weight that a process may claim by its own word, unless the file says otherwise.
pub const DECLARED_WEIGHT_MAX: u32 = 16;
/// A target that is measured is this many times the idle 99th percentile, unless the file says otherwise.
pub const TARGET_FACTOR: u32 = 2;

/// The whole file, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where shims find the daemon.
    pub socket: PathBuf,
    /// Who may connect there: the socket's mode bits.
    pub socket_mode: u32,
    /// Where `isolane top` finds the daemon.
    pub control: PathBuf,
    /// What decides the rates.
    pub policy: PolicyName,
    /// What one flow is.
    pub granularity: Granularity,
    /// Whether a process is believed when it says that it needs low latency.
    pub trust_declared: bool,
    /// Largest weight that a process may claim where no rule gives it one.
    pub declared_weight_max: u32,
    /// The devices that are served.
    pub devices: Vec<DeviceConfig>,
    /// The other ends that reference flow and reports go to.
    pub peers: Vec<PeerConfig>,
    /// How daemons of other machines reach this one.
    pub peering: Option<Peering>,
    /// Who is who; the first rule that fits counts.
    pub tenants: Vec<TenantRule>,
    /// Where metrics are read.
    pub metrics: Option<Listen>,
}

/// What decides the rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyName {
    /// Latency flows are protected by pacing the others (justitia).
    Justitia,
    /// Nobody is paced; everything is counted.
    None,
}

/// What one flow is (justitia 4, "granularity of control").
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Granularity {
    /// Each process.
    Application,
    /// All processes of a tenant together.
    Tenant,
}

/// One device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceConfig {
    /// Its name, like `mlx5_0`.
    pub name: String,
    /// Its port, from 1.
    pub port: u8,
    /// The entry of its GID table that the daemon's own queue pairs use; `None`: the first that suits.
    pub gid_index: Option<u8>,
    /// Payload rate of the idle device; `None`: what the port says.
    pub rate: Option<BitRate>,
    /// Message rate of the idle device; `None`: a cautious guess from the rate.
    pub messages_per_s: Option<u64>,
    /// What the reference flow's 99th percentile must stay below.
    pub target: Target,
    /// Time between two reference messages; `None`: chosen from the measured latency.
    pub reference_period: Option<Duration>,
    /// Latencies that the percentile is taken over.
    pub reference_count: usize,
}

/// Target of the reference flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// So many times the 99th percentile of the idle device, measured when the daemon starts.
    Auto {
        /// How many times.
        factor: u32,
    },
    /// As given.
    Fixed(Duration),
}

/// Another end of the network: the reference flow goes there, and reports are exchanged with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// Our device.
    pub device: String,
    /// The daemon there; `None`: this one, for two devices of one machine.
    pub address: Option<SocketAddr>,
    /// The device there.
    pub remote_device: String,
}

/// How daemons of other machines reach this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peering {
    /// Where this daemon listens for others; `None`: it only calls them.
    pub listen: Option<SocketAddr>,
    /// File of the key that all daemons of the cluster share.
    pub key_file: PathBuf,
}

/// Where metrics are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP address; without `expose` of this machine only.
    Tcp(SocketAddr),
}

/// Why the file cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read the configuration {}: {error}; give another with --config", .file.display())]
    Read {
        /// Which.
        file: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It is far too long to be a configuration.
    #[error("the configuration {} has {bytes} bytes; at most {FILE_MAX} are read", .file.display())]
    Long {
        /// Which.
        file: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// It says something that cannot be.
    #[error(transparent)]
    Input(#[from] isolane_scenario::error::InputError),
}

impl Config {
    /// What holds without a file: the given devices, nothing else.
    pub fn for_devices(names: &[String]) -> Self {
        Self {
            socket: isolane_proto::SOCKET_PATH.into(),
            socket_mode: 0o666,
            control: CONTROL_PATH.into(),
            policy: PolicyName::Justitia,
            granularity: Granularity::Application,
            trust_declared: true,
            declared_weight_max: DECLARED_WEIGHT_MAX,
            devices: names.iter().map(|name| DeviceConfig::named(name)).collect(),
            peers: Vec::new(),
            peering: None,
            tenants: Vec::new(),
            metrics: None,
        }
    }

    /// Reads and checks the file.
    ///
    /// # Errors
    /// When it cannot be read, or says something that cannot be; the message names the line, the key, the value and
    /// what is allowed.
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        let failed = |error| ConfigError::Read {
            file: file.to_owned(),
            error,
        };
        let bytes = std::fs::metadata(file).map_err(failed)?.len();
        if bytes > FILE_MAX {
            return Err(ConfigError::Long {
                file: file.to_owned(),
                bytes,
            });
        }
        let text = std::fs::read_to_string(file).map_err(failed)?;
        Ok(parse(&file.to_string_lossy(), &text)?)
    }

    /// The device of that name.
    pub fn device(&self, name: &str) -> Option<&DeviceConfig> {
        self.devices.iter().find(|device| device.name == name)
    }

    /// What of `next` a running daemon cannot take over, as keys of the file; empty: it can take all of it.
    ///
    /// Tenants, policy, trust, rates and targets may change under way; what the daemon listens on and which devices and
    /// peers it serves may not, since programs and other machines hold connections to them.
    pub fn needs_restart(&self, next: &Self) -> Vec<&'static str> {
        let names = |config: &Self| -> Vec<(String, u8, Option<u8>)> {
            let named =
                |device: &DeviceConfig| (device.name.clone(), device.port, device.gid_index);
            config.devices.iter().map(named).collect()
        };
        let same = [
            ("socket", self.socket == next.socket),
            ("socket_mode", self.socket_mode == next.socket_mode),
            ("control_socket", self.control == next.control),
            ("granularity", self.granularity == next.granularity),
            ("device", names(self) == names(next)),
            ("peer", self.peers == next.peers),
            ("peering", self.peering == next.peering),
            ("metrics", self.metrics == next.metrics),
        ];
        let differs = same.into_iter().filter(|(_, same)| !same);
        differs.map(|(key, _)| key).collect()
    }
}

impl DeviceConfig {
    /// A device of which only the name is known.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            port: 1,
            gid_index: None,
            rate: None,
            messages_per_s: None,
            target: Target::Auto {
                factor: TARGET_FACTOR,
            },
            reference_period: None,
            reference_count: 10_000,
        }
    }
}

#[cfg(test)]
mod tests;
