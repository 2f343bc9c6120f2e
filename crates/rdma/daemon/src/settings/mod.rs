//! The operator's file: devices, peers, tenants, and where the daemon listens.
//!
//! Problem: a daemon that paces other people's programs must be told which NIC it has, who is who, and what each may
//! count on; a mistake in that file must be named, never guessed around.
//! Method: [`parse()`] turns TOML into checked values, [`Settings`]; later code never checks again. What the event
//! loop needs is a [`Config`]; ports, peers, metrics and the rest belong to what is attached to the loop.
//! Units: as written in the file ("92Gb/s", "20us"); checked types here.
//! Limits: the file is read whole; [`FILE_MAX`] bytes at most.

mod keys;
mod parse;

pub use parse::parse;

use crate::config::Config;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Where the daemon looks for its file when nobody says otherwise.
pub const FILE: &str = "/etc/isolane/isolaned.toml";
/// Where `isolane rdma top` finds the daemon.
pub const CONTROL_PATH: &str = "/run/isolane/control/isolaned.sock";
/// Longest file, bytes: a thousand tenants need a tenth of it.
pub const FILE_MAX: u64 = 1 << 20;
/// A target that is measured is this many times the idle 99th percentile, unless the file says otherwise.
pub const TARGET_FACTOR: u32 = 2;

/// The whole file, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What the event loop works by.
    pub config: Config,
    /// Where `isolane rdma top` finds the daemon.
    pub control: PathBuf,
    /// How the daemon's own queue pairs use the devices, in the order of [`Config::devices`].
    pub ports: Vec<Port>,
    /// The other ends that reference flow and reports go to.
    pub peers: Vec<Peer>,
    /// How daemons of other machines reach this one.
    pub peering: Option<Peering>,
    /// Where metrics are read.
    pub metrics: Option<Listen>,
}

/// How the daemon itself uses a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its port, from 1.
    pub number: u8,
    /// The entry of its GID table; `None`: the first that suits.
    pub gid_index: Option<u8>,
    /// Where the target is measured: times the idle 99th percentile.
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

/// Another end of the network: the reference flow goes there, and reports are exchanged with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Our device, by its place in [`Config::devices`].
    pub device: usize,
    /// Where it is.
    pub place: Place,
}

/// Where a peer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Another device of this daemon, by its place in [`Config::devices`].
    Here(usize),
    /// A device of another daemon.
    There {
        /// The daemon.
        address: SocketAddr,
        /// The device's name there.
        device: String,
    },
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
    /// A TCP address.
    Tcp(SocketAddr),
}

/// Why the file cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
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
    Input(#[from] isolane_common_toml_input::error::InputError),
}

impl Settings {
    /// What holds without a file: the given devices, with [`Settings::default_peers`].
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

    /// Where the reference flow goes when nobody says: between two devices, or from one to itself, which sees what
    /// waits in the NIC but nothing of the network; with more devices nowhere.
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

    /// Serves only these devices of the file; peers of others go with them.
    ///
    /// # Errors
    /// The name that the file does not have.
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

    /// Reads and checks the file.
    ///
    /// # Errors
    /// When it cannot be read, or says something that cannot be; the message names the line, the key, the value and
    /// what is allowed.
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

    /// What of `next` a running daemon cannot take over, as keys of the file; empty: it can take all of it.
    ///
    /// Rules, tenants, policies, rates and targets may change under way; what the daemon listens on and which devices
    /// and peers it serves may not, since programs and other machines hold connections to them.
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
                names(self) == names(next) && self.ports == next.ports,
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
