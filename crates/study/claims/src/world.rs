//! What claims are checked against: something that reads scenarios and runs them.
//!
//! The caller joins the parts (scenario parser, profiles, testbed): this crate stays free of files and devices,
//! and tests put in a world of their own.

use crate::audit::{AuditRequest, Findings};
use crate::device::DeviceChanges;
use crate::hunt::{HuntNumbers, HuntRun};
use crate::lab::{LabNumbers, LabRun};
use crate::nic::NicNumbers;
use isolane_ethernet_scenario::model::NicStudy;
use isolane_rdma_scenario::model::{Scenario, Transport, Verb};
use isolane_study_results::ethernet::NicResult;
use isolane_study_results::memory::MemResult;
use isolane_study_results::network::FabricResult;
use isolane_study_results::rdma::RunResult;

/// What a run of a claim gave.
#[derive(Clone, Debug, PartialEq)]
pub enum RunOutcome {
    /// Of RDMA hosts on a device.
    Hosts(Box<RunResult>),
    /// Of a network, which a scenario with a `[fabric]` table describes.
    Network(Box<FabricResult>),
    /// Of a host's network card; the mean of several where the claim requests it.
    Nic(NicNumbers),
    /// Of tiered memory, which a scenario with a `[memory]` table describes.
    Memory(Box<MemResult>),
    /// Of a hunt for anomalies.
    Hunt(HuntNumbers),
    /// Of a proof on real devices.
    Lab(LabNumbers),
}

/// Where bytes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bus {
    /// On the wire, with preamble and gap.
    Network,
    /// On PCIe, host to NIC.
    Pcie,
}

/// Bytes of one request, by the device's own arithmetic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestBytes {
    /// Where the bytes are counted.
    pub bus: Bus,
    /// Name of the profile that has the sizes of headers.
    pub profile: String,
    /// What the request does, which decides its headers.
    pub verb: Verb,
    /// How it is carried, which decides its headers too.
    pub transport: Transport,
    /// Payload of one request, bytes.
    pub payload: u64,
    /// Requests per doorbell (PCIe only).
    pub post_list: u64,
    /// Path MTU, bytes of payload per packet (network only).
    pub mtu: u64,
}

/// Scenarios, profiles and a testbed. Errors are messages for people; they become the reason of a miss.
pub trait World: Sync {
    /// The checked scenario of `text`; `file` names it in messages.
    fn scenario(&self, text: &str, file: &str) -> Result<Scenario, String>;

    /// What running `scenario` on its profile gives.
    fn run(&self, scenario: &Scenario) -> Result<RunResult, String>;

    /// What running `scenario` on its profile with these changes gives. Worlds of real devices cannot change them.
    fn run_on(&self, _scenario: &Scenario, _device: &DeviceChanges) -> Result<RunResult, String> {
        Err("device: only simulated devices can be changed".to_owned())
    }

    /// What running the network's scenario in `text` gives; `file` names it in messages.
    fn network(&self, text: &str, file: &str) -> Result<FabricResult, String>;

    /// What running the scenario of tiered memory in `text` gives; `file` names it in messages. Worlds without such
    /// memory return an error.
    fn memory(&self, _text: &str, file: &str) -> Result<MemResult, String> {
        Err(format!("{file} needs a testbed with tiered memory"))
    }

    /// What running the study of a network card gives. Worlds without cards return an error.
    fn nic(&self, study: &NicStudy) -> Result<NicResult, String> {
        Err(format!("{} needs a testbed with network cards", study.name))
    }

    /// What running the study on its card with these changes gives. Worlds of real cards cannot change them.
    fn nic_on(&self, _study: &NicStudy, _device: &DeviceChanges) -> Result<NicResult, String> {
        Err("device: only simulated cards can be changed".to_owned())
    }

    /// What a hunt with this seed gives. Worlds without hunts return an error.
    fn hunt(&self, _run: &HuntRun, _seed: u64) -> Result<HuntNumbers, String> {
        Err("run by `isolane hunt bench --check-claims`".to_owned())
    }

    /// What a proof of the lab measured. Worlds without a lab return an error.
    fn lab(&self, _run: &LabRun) -> Result<LabNumbers, String> {
        Err("measured by `make lab`, checked by `isolane claims --lab out/lab`".to_owned())
    }

    /// What an audit finds; `progress` is called with (runs done, runs of this audit).
    fn audit(
        &self,
        request: &AuditRequest,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Findings, String>;

    /// What the code of `system` gives for `name` with `arguments`, without a run.
    fn model(&self, system: &str, name: &str, arguments: &[(String, f64)]) -> Result<f64, String>;

    /// The value of `name` in `section` of `profile`.
    fn parameter(&self, profile: &str, section: &str, name: &str) -> Result<f64, String>;

    /// Bytes of one request on the wire.
    fn network_bytes(&self, request: &RequestBytes) -> Result<u64, String>;

    /// Bytes of one request on PCIe, from host to NIC.
    fn pcie_bytes(&self, request: &RequestBytes) -> Result<u64, String>;
}
