//! What the service runs on: this machine with the best that it has, or a made-up one.
//!
//! Method: thresholds set by hand come before measured ones; without either nothing counts as interference between
//! applications, and that is said. Units: as in the settings.

use super::ServiceError;
use super::fake::{FakeMachine, NEAR};
use super::settings::Settings;
use crate::controller::{About, ControlPolicy, Parts};
use crate::journal::{FileStore, boot};
use isolane_core::policy::mercury::{Fcfs, Fixed, Mercury, MercuryOptions, Sharing, Thresholds};
use isolane_core::units::Bytes;

/// Parts of the controller, and what it is told.
pub struct Machine {
    /// Everything outside the controller.
    pub parts: Parts,
    /// What is known of the machine.
    pub about: About,
}

/// Bandwidth that no near tier has: nothing is interference.
const ANY_BANDWIDTH: u64 = u64::MAX / 2;
/// A rate of hint faults that no machine reaches.
const ANY_FAULTS: f64 = 1e12;

/// By the settings.
///
/// # Errors
/// This machine has no tiers, no control groups, or no backend that works.
pub fn open(settings: &Settings) -> Result<Machine, ServiceError> {
    match &settings.fake {
        Some(directory) => {
            let machine = FakeMachine::new(directory)?;
            let (policy, about) = policy(settings, NEAR)?;
            let store = FileStore::open(&settings.run_dir, &boot())?;
            Ok(Machine {
                parts: Parts {
                    policy,
                    backend: Box::new(machine.clone()),
                    sensors: Box::new(machine.clone()),
                    groups: Box::new(machine),
                    store: Box::new(store),
                },
                about: About {
                    problems: vec![
                        "this machine is made up: nothing is measured, and nothing moves"
                            .to_owned(),
                    ],
                    ..about
                },
            })
        }
        None => Err(ServiceError::Settings("no machine".to_owned())),
    }
}

/// The policy of the settings for a machine whose near tier has so much memory, and what is known of the machine.
fn policy(
    settings: &Settings,
    near: Bytes,
) -> Result<(Box<dyn ControlPolicy>, About), ServiceError> {
    let by_hand = settings.local_bandwidth.is_some() && settings.hint_faults_per_s.is_some();
    let thresholds = Thresholds {
        local_bandwidth: settings.local_bandwidth.unwrap_or(ANY_BANDWIDTH),
        hint_faults_per_s: settings.hint_faults_per_s.unwrap_or(ANY_FAULTS),
    };
    let mut options = MercuryOptions::new(thresholds, near);
    let mercury = |options| {
        Mercury::new(options)
            .map_err(|error| ServiceError::Settings(format!("policy mercury: {error}")))
    };
    let policy: Box<dyn ControlPolicy> = match settings.policy.as_str() {
        "static" => Box::new(Fixed::default()),
        "fcfs" => Box::new(Fcfs::new(settings.local_bandwidth)),
        "weighted" => {
            options.sharing = Sharing::Weighted;
            Box::new(mercury(options)?)
        }
        _ => Box::new(mercury(options)?),
    };
    let is_mercury = matches!(settings.policy.as_str(), "mercury" | "weighted");
    let problems = match is_mercury && !by_hand {
        true => vec!["interference is not known here, so nothing is done against it: run isolane mem profile-machine".to_owned()],
        false => Vec::new(),
    };
    let about = About {
        policy: settings.policy.clone(),
        thresholds: by_hand.then_some((thresholds, false)),
        best_latency: None,
        best_bandwidth: None,
        problems,
    };
    Ok((policy, about))
}
