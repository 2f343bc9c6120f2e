//! The capabilities of a host's NICs: what the compiler may use.
//!
//! A host's devices are plain data, so `isolane rdma plan` also works on a file from another machine.

use serde::{Deserialize, Serialize};

/// Version of the file's format.
pub const HOST_VERSION: u32 = 2;
/// Priorities of 802.1p, traffic classes and receive buffers.
pub const PRIORITIES: usize = 8;

/// The devices of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// [`HOST_VERSION`].
    pub version: u32,
    /// Whether cgroups of this host can limit RDMA objects (the rdma controller of version 2).
    pub rdma_controller: bool,
    /// The devices, sorted by name.
    pub devices: Vec<HostDevice>,
}

/// One port of a device, with its RDMA device if it has one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostDevice {
    /// Name of the RDMA device, or of the network device where there is none.
    pub name: String,
    /// Whether `name` is an RDMA device.
    pub rdma: bool,
    /// Name of the network device; absent for InfiniBand without IPoIB.
    pub network_device: Option<String>,
    /// Kernel driver: `mlx5_core`, `ice`, `rdma_rxe`.
    pub driver: String,
    /// Link layer of the port.
    pub link_layer: LinkLayer,
    /// Rate of the port, bits per second; 0 if the port is down or does not report it.
    pub rate_bps: u64,
    /// Largest frame of the network device, bytes.
    pub mtu_bytes: u32,
    /// The device in devlink; absent if its driver does not register there.
    pub devlink: Option<Devlink>,
    /// Virtual functions and subfunctions of the device, sorted by name.
    pub functions: Vec<Function>,
    /// Data centre bridging; absent if the driver has none.
    pub bridging: Option<Bridging>,
    /// Rate limits of single queue pairs; absent if the device has none.
    pub pacing: Option<Pacing>,
}

/// Link layer of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinkLayer {
    /// RoCE, iWARP, or no RDMA.
    Ethernet,
    /// InfiniBand.
    Infiniband,
}

/// A device's name and mode in devlink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Devlink {
    /// Bus and device: `pci/0000:03:00.0`.
    pub handle: String,
    /// Mode of the embedded switch; absent if the device has none.
    pub switch_mode: Option<SwitchMode>,
}

/// Mode of the embedded switch of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SwitchMode {
    /// The driver fills the switch; rates of virtual functions are set at the physical function.
    Legacy,
    /// Each function has a port in devlink, with a rate.
    Switchdev,
}

/// A virtual function or subfunction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Function {
    /// `vf0`, `sf88`.
    pub name: String,
    /// How its rate can be set; absent if it cannot.
    pub rate: Option<FunctionRate>,
}

/// How the rate of a function can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FunctionRate {
    /// By devlink, at this port.
    Devlink {
        /// Index of the devlink port.
        port: u32,
    },
    /// At the physical function's network device, by the number of the virtual function.
    Legacy {
        /// Number of the virtual function.
        number: u32,
    },
}

/// Data centre bridging of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bridging {
    /// Traffic classes with a scheduler; 0 if the driver has no enhanced transmission selection.
    pub classes: u8,
    /// Priorities that the port can pause at once; 0 if it has no priority flow control.
    pub flow_control: u8,
    /// Priorities with flow control now, one bit each.
    pub flow_control_enabled: u8,
    /// Receive buffers; absent if the driver does not show them.
    pub buffers: Option<Buffers>,
}

/// Receive buffers of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Buffers {
    /// Size of all buffers together, bytes.
    pub total_bytes: u32,
}

/// Rate limits of single queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pacing {
    /// Slowest rate, kbit/s.
    pub least_kbps: u32,
    /// Fastest rate, kbit/s.
    pub most_kbps: u32,
}

impl Host {
    /// Parses a file that `isolane rdma plan --devices` wrote.
    pub fn parse(text: &str) -> Result<Self, String> {
        let host: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match host.version {
            HOST_VERSION => Ok(host),
            other => Err(format!(
                "version = {other}: must be {HOST_VERSION}; write the file again with this program"
            )),
        }
    }
}
