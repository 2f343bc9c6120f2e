//! The types of real devices in a program that was built without the feature `rdma-hosts`: types without values.

use crate::commands::Absent;
use anyhow::Result;
use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::model::{Scenario, Tenant};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_hunt::space::convert::Times;
use isolane_study_results::rdma::RunResult;
use isolane_study_testbed::{Testbed, TestbedError};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Real devices: a type without values.
#[derive(Clone, Copy, Debug)]
pub(crate) enum VerbsTestbed {}

/// The stage of a run on real devices.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {}

impl VerbsTestbed {
    pub(crate) fn different_devices(&self) -> usize {
        match *self {}
    }

    pub(crate) fn check(&self, _: &Scenario) -> Result<(), TestbedError> {
        match *self {}
    }

    pub(crate) fn runs_tenant(&self, _: &Tenant) -> Result<(), String> {
        match *self {}
    }

    pub(crate) fn runs_policy(&self, _: &str) -> Result<(), String> {
        match *self {}
    }
}

impl Testbed for VerbsTestbed {
    fn name(&self) -> &str {
        match *self {}
    }

    fn run(&self, _: &Scenario, _: &Profile) -> Result<RunResult, TestbedError> {
        match *self {}
    }
}

/// Says that this program has no real devices.
pub(crate) fn open(
    target: &str,
    _: Option<&PathBuf>,
    _: impl FnOnce() -> Result<Arc<AtomicBool>>,
    _: impl Fn(Stage) + Send + Sync + 'static,
) -> Result<VerbsTestbed> {
    Err(Absent {
        what: format!("--target {target}"),
        feature: "rdma-hosts",
    }
    .into())
}

pub(crate) fn suit(devices: &VerbsTestbed, _: &mut Scenario, _: Option<Duration>) {
    match *devices {}
}

pub(crate) fn times(devices: &VerbsTestbed) -> Times {
    match *devices {}
}

pub(crate) fn environment(devices: &VerbsTestbed) -> Result<BTreeMap<String, String>> {
    match *devices {}
}

pub(crate) fn words(stage: Stage) -> (&'static str, Option<std::time::Duration>) {
    match stage {}
}

pub(crate) fn measured(devices: &VerbsTestbed, _: &Profile) -> Result<Profile> {
    match *devices {}
}
