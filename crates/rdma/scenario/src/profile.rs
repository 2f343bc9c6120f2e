//! A device profile: what one RDMA NIC and its host are made of, every number with its source.
//!
//! A profile holds parameters of mechanisms (engines, caches, buses, buffers), never results. `kind` says how
//! far a number can be trusted: read off a publication, fixed by a standard, worked out from published numbers,
//! or fitted to claims marked `calibration`. `docs/internals/rnic.md` explains each mechanism.

pub use crate::microarchitecture::MICROARCHITECTURE;
pub use crate::parameters::PARAMETERS;
pub use isolane_common_toml_input::sourced::Parameter;
use isolane_common_toml_input::sourced::Sourced;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a link carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LinkLayer {
    /// RoCEv2 over Ethernet.
    Roce,
    /// InfiniBand.
    Infiniband,
    /// iWARP (RDMA over TCP).
    Iwarp,
}

/// The device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Short name, as `--profile` takes it.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Which papers measured this device.
    pub papers: Vec<String>,
    /// What the link carries.
    pub link_layer: LinkLayer,
    /// Whether the device has RDMA atomics.
    pub atomics: bool,
    /// Virtual functions the device can make; 0 for none.
    pub virtual_functions: u32,
    /// Hardware traffic classes (lossless queues).
    pub traffic_classes: u32,
    /// Parameters by section and name; [`PARAMETERS`] lists them all, none may be missing.
    pub link: BTreeMap<String, Sourced>,
    /// PCIe and host memory.
    pub pcie: BTreeMap<String, Sourced>,
    /// Work queue elements.
    pub wqe: BTreeMap<String, Sourced>,
    /// The transmit scheduler.
    pub scheduler: BTreeMap<String, Sourced>,
    /// Processing units.
    pub processing: BTreeMap<String, Sourced>,
    /// On-NIC caches.
    pub cache: BTreeMap<String, Sourced>,
    /// The receive side.
    pub receive: BTreeMap<String, Sourced>,
    /// Error handling.
    pub errors: BTreeMap<String, Sourced>,
    /// Control verbs.
    pub control: BTreeMap<String, Sourced>,
    /// Congestion control (DCQCN reaction and notification points).
    pub congestion: BTreeMap<String, Sourced>,
    /// Host software: CPU cost of posting and polling.
    pub host: BTreeMap<String, Sourced>,
    /// The parameters of the device for Justitia; made by `isolane rdma calibrate`.
    pub justitia: BTreeMap<String, Sourced>,
    /// What requests cost next to a WRITE; made by `isolane rdma calibrate --request-costs`.
    pub harmonic: BTreeMap<String, Sourced>,
    /// Mechanisms that only some devices show; empty where the profile has none of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub microarchitecture: BTreeMap<String, Sourced>,
    /// Smallest token that reaches a rate, ascending (justitia 5.2, figure 10); made by `isolane rdma calibrate`.
    #[serde(default)]
    pub token_dictionary: Vec<TokenSize>,
}

/// One entry of the token dictionary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenSize {
    /// Up to this rate, Gb/s.
    pub rate_gbps: f64,
    /// the token of this size suffices, bytes.
    pub token_bytes: u64,
}

impl Profile {
    /// The parameter `name` of `section`. Panics if it is missing: a loaded profile has every member of [`PARAMETERS`],
    /// so asking for another name is our own mistake.
    pub fn value(&self, section: &str, name: &str) -> f64 {
        self.section(section)
            .and_then(|map| map.get(name))
            .unwrap_or_else(|| panic!("profile {} has no {section}.{name}", self.name))
            .value
    }

    /// What PCIe leaves to transactions and their headers in one direction, Gb/s: the rate after line coding, less the
    /// packets of the data link layer.
    pub fn pcie_transaction_gbps(&self) -> f64 {
        self.value("pcie", "rate_gbps") * (1.0 - self.value("pcie", "data_link_share"))
    }

    /// The value of a parameter of the microarchitecture, 0 where the profile has no such section.
    pub fn micro(&self, name: &str) -> f64 {
        let known = self.microarchitecture.get(name);
        known.map_or(0.0, |sourced| sourced.value)
    }

    /// The map behind a section's name, to change it.
    pub fn section_mut(&mut self, section: &str) -> Option<&mut BTreeMap<String, Sourced>> {
        Some(match section {
            "link" => &mut self.link,
            "pcie" => &mut self.pcie,
            "wqe" => &mut self.wqe,
            "scheduler" => &mut self.scheduler,
            "processing" => &mut self.processing,
            "cache" => &mut self.cache,
            "receive" => &mut self.receive,
            "errors" => &mut self.errors,
            "control" => &mut self.control,
            "congestion" => &mut self.congestion,
            "host" => &mut self.host,
            "justitia" => &mut self.justitia,
            "harmonic" => &mut self.harmonic,
            "microarchitecture" => &mut self.microarchitecture,
            _ => return None,
        })
    }

    /// The map behind a section's name.
    pub fn section(&self, section: &str) -> Option<&BTreeMap<String, Sourced>> {
        Some(match section {
            "link" => &self.link,
            "pcie" => &self.pcie,
            "wqe" => &self.wqe,
            "scheduler" => &self.scheduler,
            "processing" => &self.processing,
            "cache" => &self.cache,
            "receive" => &self.receive,
            "errors" => &self.errors,
            "control" => &self.control,
            "congestion" => &self.congestion,
            "host" => &self.host,
            "justitia" => &self.justitia,
            "harmonic" => &self.harmonic,
            "microarchitecture" => &self.microarchitecture,
            _ => return None,
        })
    }
}
