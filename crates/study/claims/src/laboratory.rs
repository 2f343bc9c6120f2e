//! The world of claims on a testbed: the library's profiles, and a runner of scenarios.

use crate::audit::{self, AuditRequest, Findings};
use crate::device::DeviceChanges;
use crate::models;
use crate::world::RequestBytes;
use crate::world::World;
use isolane_ethernet_scenario::model::NicStudy;
use isolane_ethernet_scenario::profile::NicProfile;
use isolane_memory_scenario as mem;
use isolane_network_scenario as fabric;
use isolane_network_simulator::run::Observers;
use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::model::Scenario;
use isolane_rdma_scenario::profile::{PARAMETERS, Profile};
use isolane_rdma_simulator::rnic::wire;
use isolane_study_results::ethernet::NicResult;
use isolane_study_results::memory::MemResult;
use isolane_study_results::network::FabricResult;
use isolane_study_results::rdma::RunResult;
use isolane_study_testbed::Testbed;

/// Profiles and workloads from a library, runs on a testbed.
pub struct Laboratory<'a> {
    /// What scenarios may name.
    pub library: &'a Library,
    /// Where they run.
    pub testbed: &'a dyn Testbed,
}

impl Laboratory<'_> {
    fn profile(&self, name: &str) -> Result<&Profile, String> {
        self.library.profile(name).ok_or_else(|| {
            format!(
                "there is no profile {name:?}{}",
                crate::error::nearest(name, self.library.profile_names())
            )
        })
    }
}

impl World for Laboratory<'_> {
    fn scenario(&self, text: &str, file: &str) -> Result<Scenario, String> {
        isolane_rdma_scenario::parse(text, file, self.library).map_err(|error| error.to_string())
    }

    fn run(&self, scenario: &Scenario) -> Result<RunResult, String> {
        let profile = self.profile(&scenario.profile)?;
        self.testbed
            .run(scenario, profile)
            .map_err(|error| error.to_string())
    }

    fn run_on(&self, scenario: &Scenario, device: &DeviceChanges) -> Result<RunResult, String> {
        let profile = device.of_rnic(self.profile(&scenario.profile)?)?;
        self.testbed
            .run(scenario, &profile)
            .map_err(|error| error.to_string())
    }

    fn network(&self, text: &str, file: &str) -> Result<FabricResult, String> {
        let scenario = fabric::parse(text, file).map_err(|error| error.to_string())?;
        isolane_network_simulator::run::run(&scenario, Observers::default())
            .map(|outcome| outcome.result)
            .map_err(|error| error.to_string())
    }

    fn memory(&self, text: &str, file: &str) -> Result<MemResult, String> {
        let scenario = mem::parse::parse(text, file).map_err(|error| error.to_string())?;
        Ok(isolane_memory_simulator::run(&scenario))
    }

    fn nic(&self, study: &NicStudy) -> Result<NicResult, String> {
        Ok(isolane_ethernet_simulator::run(
            study,
            &NicProfile::of_paper(),
        ))
    }

    fn nic_on(&self, study: &NicStudy, device: &DeviceChanges) -> Result<NicResult, String> {
        let profile = device.of_nic(&NicProfile::of_paper())?;
        Ok(isolane_ethernet_simulator::run(study, &profile))
    }

    fn audit(
        &self,
        request: &AuditRequest,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Findings, String> {
        let profile = request.device.of_rnic(self.profile(&request.profile)?)?;
        audit::run(request, &profile, self.library, self.testbed, progress)
    }

    fn model(&self, system: &str, name: &str, arguments: &[(String, f64)]) -> Result<f64, String> {
        models::value(system, name, arguments)
    }

    fn parameter(&self, profile: &str, section: &str, name: &str) -> Result<f64, String> {
        let profile = self.profile(profile)?;
        let map = profile.section(section).ok_or_else(|| {
            let sections = PARAMETERS.iter().map(|parameter| parameter.section);
            format!(
                "profiles have no section {section:?}{}",
                crate::error::nearest(section, sections)
            )
        })?;
        let sourced = map.get(name).ok_or_else(|| {
            format!(
                "profile {:?} has no {section}.{name}{}",
                profile.name,
                crate::error::nearest(name, map.keys().map(String::as_str))
            )
        })?;
        Ok(sourced.value)
    }

    fn network_bytes(&self, request: &RequestBytes) -> Result<u64, String> {
        let profile = self.profile(&request.profile)?;
        Ok(wire::network_bytes(
            profile,
            request.verb,
            request.payload,
            request.mtu,
        ))
    }

    fn pcie_bytes(&self, request: &RequestBytes) -> Result<u64, String> {
        let profile = self.profile(&request.profile)?;
        Ok(wire::pcie_bytes(
            profile,
            request.transport,
            request.payload,
            request.post_list,
        ))
    }
}

#[cfg(test)]
mod tests;
