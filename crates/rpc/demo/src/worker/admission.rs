//! The library in front of the client's connections.

use crate::job::{AdmissionClass, ClientJob};
use isolane_common_quantities::units::Duration as CoreDuration;
use isolane_rpc::admission::Admission;
use isolane_rpc::settings::{Algorithm, ClassSettings, Mode, Settings};
use isolane_rpc_policy::aequitas::{AequitasOptions, Probability};
use std::sync::Arc;

/// The admission of calls to one server.
#[derive(Debug)]
pub(super) struct Gate {
    admission: Arc<Admission>,
    server: String,
    controlled: u8,
}

impl Gate {
    pub(super) fn new(job: &ClientJob) -> Self {
        let controlled = job
            .admission
            .as_ref()
            .map_or(0, |admission| admission.classes.len());
        Self {
            admission: Arc::new(Admission::new(settings(job))),
            server: job.server.clone(),
            controlled: controlled as u8,
        }
    }

    pub(super) fn admission(&self) -> &Admission {
        &self.admission
    }

    pub(super) fn shared(&self) -> Arc<Admission> {
        Arc::clone(&self.admission)
    }

    pub(super) fn probabilities(&self) -> Vec<f64> {
        let table = self.admission.table();
        (0..self.controlled)
            .map(|class| {
                let probability = table.probability(self.server.as_bytes(), class);
                probability.unwrap_or(Probability::ONE).as_f64()
            })
            .collect()
    }
}

/// The job's admission as the library's settings; without one, calls are only counted.
fn settings(job: &ClientJob) -> Settings {
    let admission = job.admission.as_ref();
    let options = |class: usize| match admission {
        Some(admission) => admission.classes.get(class).map(options),
        None => (class + 1 < job.dscp.len()).then(|| AequitasOptions::new(UNUSED, 99.0)),
    };
    let classes = job
        .dscp
        .iter()
        .enumerate()
        .map(|(class, &dscp)| ClassSettings {
            name: format!("{NAME}{class}"),
            dscp,
            options: options(class),
            cut: Probability::ONE,
        });
    Settings {
        mode: match admission {
            None => Mode::Off,
            Some(admission) if admission.shadow => Mode::Shadow,
            Some(_) => Mode::Enforce,
        },
        algorithm: Algorithm::Aequitas,
        mtu_bytes: admission.map_or(1460, |admission| admission.mtu_bytes),
        idle_after: CoreDuration::from_secs(60),
        destinations_max: 1,
        metrics_destinations: 1,
        classes: classes.collect(),
        groups: Vec::new(),
        quota: None,
    }
}

/// One class of a job as the algorithm takes it.
pub(crate) fn options(class: &AdmissionClass) -> AequitasOptions {
    AequitasOptions {
        increment: Probability::from_f64(class.increment),
        decrement_per_mtu: Probability::from_f64(class.decrement_per_mtu),
        floor: Probability::from_f64(class.floor),
        ..AequitasOptions::new(
            CoreDuration::from_ps((class.target_per_mtu_us * 1e6) as u64),
            class.percentile,
        )
    }
}

/// The number of the class with this name in the library.
pub(super) fn class_named(name: &str) -> Option<u8> {
    name.strip_prefix(NAME)?.parse().ok()
}

/// Prefix of the classes' names; their numbers follow.
const NAME: &str = "class-";
/// The objective of a run that has none.
const UNUSED: CoreDuration = CoreDuration::from_secs(1);
