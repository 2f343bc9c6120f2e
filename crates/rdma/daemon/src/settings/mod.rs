//! The operator's file: devices, peers, tenants, sockets.
//!
//! Problem: a mistake in the file must be reported and never guessed around. Method: [`parse()`] turns TOML into
//! checked values, [`Settings`]; later code never checks again. The event loop needs a [`Config`]; ports, peers,
//! metrics and the rest belong to attachments. Units: as written in the file ("92Gb/s", "20us"); checked types here.
//! Limits: at most [`FILE_MAX`] bytes.

pub mod assignment;
mod keys;
mod parse;

pub use parse::parse;

use crate::config::Config;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Default path of the daemon's file.
pub const FILE: &str = "/etc/isolane/isolaned.toml";
/// Default path of the socket for `isolane rdma top`.
pub const CONTROL_PATH: &str = "/run/isolane/control/isolaned.sock";
/// Name of the directory of assignments, beside the control socket.
const ASSIGNMENTS: &str = "assignments";
/// Longest file, bytes: a thousand tenants need a tenth of it.
pub const FILE_MAX: u64 = 1 << 20;
/// Largest number of peers of a device: each has a queue pair, a thread and a place in the device's receive memory.
pub const PEERS_MAX: usize = 64;
/// Default ratio of a measured target to the idle 99th percentile.
pub const TARGET_FACTOR: u32 = 2;

/// The whole file, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Configuration of the event loop.
    pub config: Config,
    /// Path of the socket for `isolane rdma top`.
    pub control: PathBuf,
    /// The daemon's own use of the devices, in the order of [`Config::devices`].
    pub ports: Vec<Port>,
    /// The peers of reference flows and reports.
    pub peers: Vec<Peer>,
    /// Connections with daemons of other machines.
    pub peering: Option<Peering>,
    /// Address of the metrics.
    pub metrics: Option<Listen>,
}

/// The daemon's own use of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Port number, from 1.
    pub number: u8,
    /// Entry of the GID table; `None` means the first usable one.
    pub gid_index: Option<u8>,
    /// Ratio of a measured target to the idle 99th percentile.
    pub target_factor: u32,
}

impl Default for Port {
    fn default() -> Self {
        Self {
            number: 1,
            gid_index: None,
            target_factor: TARGET_FACTOR,
        }
    }
}

/// A peer: the destination of a reference flow and of reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Our device, by its place in [`Config::devices`].
    pub device: usize,
    /// The peer's daemon and device.
    pub place: Place,
}

/// The peer's daemon and device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Another device of this daemon, by its place in [`Config::devices`].
    Here(usize),
    /// A device of another daemon.
    There {
        /// Address of the other daemon.
        address: SocketAddr,
        /// Name of its device.
        device: String,
    },
}

/// Connections with daemons of other machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peering {
    /// Listening address; `None`: this daemon only calls others.
    pub listen: Option<SocketAddr>,
    /// File with the key that all daemons of the cluster share.
    pub key_file: PathBuf,
}

/// An address of the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP address.
    Tcp(SocketAddr),
}

/// Why the file is rejected.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum SettingsError {
    #[error("cannot read the configuration {}: {error}; give another with --config", .file.display())]
    Read {
        file: PathBuf,
        error: std::io::Error,
    },
    #[error("the configuration {} has {bytes} bytes; at most {FILE_MAX} are read", .file.display())]
    Long { file: PathBuf, bytes: u64 },
    #[error(transparent)]
    Input(#[from] isolane_common_toml_input::error::InputError),
}

impl Settings {
    /// Settings without a file: the given devices, with [`Settings::default_peers`].
    pub fn for_devices(names: &[String]) -> Self {
        let named = |name: &String| crate::config::DeviceConfig {
            name: name.clone(),
            ..Default::default()
        };
        Self {
            config: Config {
                devices: names.iter().map(named).collect(),
                ..Config::default()
            },
            control: CONTROL_PATH.into(),
            ports: vec![Port::default(); names.len()],
            peers: Self::default_peers(names.len()),
            peering: None,
            metrics: None,
        }
    }

    /// Directory of the assignments: beside the control socket, where only root can write.
    pub fn assignments(&self) -> PathBuf {
        self.control.with_file_name(ASSIGNMENTS)
    }

    /// Default peers of the reference flow: two devices of this machine, or a single device with itself, which shows
    /// waiting in the RNIC but not in the network. With more devices there is no default.
    pub fn default_peers(devices: usize) -> Vec<Peer> {
        let here = |device, other| Peer {
            device,
            place: Place::Here(other),
        };
        match devices {
            1 => vec![here(0, 0)],
            2 => vec![here(0, 1), here(1, 0)],
            _ => Vec::new(),
        }
    }

    /// Keeps only these devices of the file, and the peers of these. The error is the first name that the file does not
    /// have.
    pub fn keep_devices<'a>(&mut self, names: &'a [String]) -> Result<(), &'a str> {
        let devices = std::mem::take(&mut self.config.devices);
        let ports = std::mem::take(&mut self.ports);
        let unknown = names
            .iter()
            .find(|name| devices.iter().all(|device| device.name != **name));
        if let Some(name) = unknown {
            (self.config.devices, self.ports) = (devices, ports);
            return Err(name);
        }
        let mut places = Vec::with_capacity(devices.len());
        for (device, port) in devices.into_iter().zip(ports) {
            let kept = names.contains(&device.name);
            places.push(kept.then_some(self.config.devices.len()));
            if kept {
                self.config.devices.push(device);
                self.ports.push(port);
            }
        }
        let moved = |peer: Peer| {
            Some(Peer {
                device: places[peer.device]?,
                place: match peer.place {
                    Place::Here(other) => Place::Here(places[other]?),
                    there => there,
                },
            })
        };
        self.peers = std::mem::take(&mut self.peers)
            .into_iter()
            .filter_map(moved)
            .collect();
        Ok(())
    }

    /// Reads and checks the file. Fails if the file cannot be read or has a mistake; the message names the line, the
    /// key, the value and what is allowed.
    pub fn read(file: &Path) -> Result<Self, SettingsError> {
        let failed = |error| SettingsError::Read {
            file: file.to_owned(),
            error,
        };
        let bytes = std::fs::metadata(file).map_err(failed)?.len();
        if bytes > FILE_MAX {
            return Err(SettingsError::Long {
                file: file.to_owned(),
                bytes,
            });
        }
        let text = std::fs::read_to_string(file).map_err(failed)?;
        Ok(parse(&file.to_string_lossy(), &text)?)
    }

    /// The keys of `next` that a running daemon cannot apply; empty if it can apply all.
    ///
    /// Rules, tenants, policies, rates and targets may change at run time. Sockets, devices and peers may not, because
    /// programs and other machines hold connections to them.
    pub fn needs_restart(&self, next: &Self) -> Vec<&'static str> {
        let names = |settings: &Self| -> Vec<String> {
            let devices = settings.config.devices.iter();
            devices.map(|device| device.name.clone()).collect()
        };
        let same = [
            ("socket", self.config.socket == next.config.socket),
            (
                "socket_mode",
                self.config.socket_mode == next.config.socket_mode,
            ),
            ("control_socket", self.control == next.control),
            (
                "granularity",
                self.config.granularity == next.config.granularity,
            ),
            (
                "device",
                names(self) == names(next)
                    && self.ports == next.ports
                    && self.config.dilation == next.config.dilation,
            ),
            ("peer", self.peers == next.peers),
            ("peering", self.peering == next.peering),
            ("metrics", self.metrics == next.metrics),
        ];
        let differs = same.into_iter().filter(|(_, same)| !same);
        differs.map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests;
