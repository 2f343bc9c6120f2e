//! Parameters of a device's profile that a run changes: `device = { "scheduler.engines" = 1 }`.
//!
//! Problem: a reason for a miss often names a parameter of the device, and a copy of the profile for each reason would hide
//! what differs. Units: those that end the parameters' names. Method: the profile is copied and the values replaced before
//! the run. Limits: values are not checked against each other, only against the range of their parameter.

use crate::error::nearest;
use isolane_common_toml_input::sourced::{Parameter, SourceKind, Sourced};
use isolane_ethernet_scenario::profile::{NIC_PARAMETERS, NicProfile};
use isolane_rdma_scenario::profile::{MICROARCHITECTURE, PARAMETERS, Profile};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// New values by `section.name`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceChanges(BTreeMap<String, f64>);

impl DeviceChanges {
    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the changes of `other`, which win.
    pub fn merge(&mut self, other: &Self) {
        self.0
            .extend(other.0.iter().map(|(path, value)| (path.clone(), *value)));
    }

    /// The `section.name` of each parameter that is changed.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// `profile` of an RDMA NIC with these values. Fails for a parameter that does not exist, or a value outside its
    /// range.
    pub fn of_rnic(&self, profile: &Profile) -> Result<Profile, String> {
        let mut changed = profile.clone();
        let known: Vec<&Parameter> = PARAMETERS.iter().chain(MICROARCHITECTURE).collect();
        for (path, value) in &self.0 {
            let parameter = named(path, *value, &known)?;
            let section = changed
                .section_mut(parameter.section)
                .expect("each parameter's section is one of a profile");
            section.insert(parameter.name.to_owned(), assumed(*value));
        }
        Ok(changed)
    }

    /// `profile` of an Ethernet NIC and its host with these values. Fails for a parameter that does not exist, or a
    /// value outside its range.
    pub fn of_nic(&self, profile: &NicProfile) -> Result<NicProfile, String> {
        let mut changed = profile.clone();
        let known: Vec<&Parameter> = NIC_PARAMETERS.iter().collect();
        for (path, value) in &self.0 {
            let parameter = named(path, *value, &known)?;
            let section = changed.sections.entry(parameter.section.to_owned());
            section
                .or_default()
                .insert(parameter.name.to_owned(), assumed(*value));
        }
        Ok(changed)
    }
}

impl FromIterator<(String, f64)> for DeviceChanges {
    fn from_iter<T: IntoIterator<Item = (String, f64)>>(entries: T) -> Self {
        Self(entries.into_iter().collect())
    }
}

/// The parameter that `path` names; `value` must be within its range.
fn named<'a>(path: &str, value: f64, known: &[&'a Parameter]) -> Result<&'a Parameter, String> {
    let path_of = |parameter: &Parameter| format!("{}.{}", parameter.section, parameter.name);
    let Some(parameter) = known.iter().find(|parameter| path_of(parameter) == path) else {
        let paths: Vec<String> = known.iter().map(|parameter| path_of(parameter)).collect();
        let hint = nearest(path, paths.iter().map(String::as_str));
        return Err(format!("device: there is no parameter {path:?}{hint}"));
    };
    match (parameter.min..=parameter.max).contains(&value) {
        true => Ok(parameter),
        false => Err(format!(
            "device: {path} = {value}: must be {} to {}",
            parameter.min, parameter.max
        )),
    }
}

/// A value that a run assumes.
fn assumed(value: f64) -> Sourced {
    Sourced {
        value,
        kind: SourceKind::Derived,
        source: "assumed by a run of a claim".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(path: &str, value: f64) -> DeviceChanges {
        DeviceChanges(BTreeMap::from([(path.to_owned(), value)]))
    }

    #[test]
    fn a_changed_parameter_is_in_the_copy_alone() {
        let profile = NicProfile::of_paper();
        let before = profile.value("cost", "segment_ns");
        let copy = changes("cost.segment_ns", before + 1.0).of_nic(&profile);
        assert_eq!(copy.unwrap().value("cost", "segment_ns"), before + 1.0);
        assert_eq!(profile.value("cost", "segment_ns"), before);
    }

    #[test]
    fn an_unknown_parameter_and_a_value_out_of_range_are_named() {
        let library = isolane_rdma_scenario::library::Library::embedded();
        let profile = library.profile("cx5-100g-roce").unwrap();
        let error = |path, value| changes(path, value).of_rnic(profile).unwrap_err();
        let unknown = error("scheduler.engine", 1.0);
        assert!(
            unknown.contains("did you mean \"scheduler.engines\"?"),
            "{unknown}"
        );
        let range = error("link.rate_gbps", -1.0);
        assert!(range.contains("link.rate_gbps = -1: must be"), "{range}");
    }
}
