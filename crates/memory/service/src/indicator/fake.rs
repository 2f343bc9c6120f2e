//! Sensors without a machine: return the values that a test set. Units as in the policy's types.

use super::{Sensors, SourceInfo};
use crate::cgroup::Cgroup;
use crate::error::MemError;
use isolane_common_quantities::units::Instant;
use isolane_memory_policy::mercury::{AppId, Observation};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What test and sensors share.
#[derive(Debug, Default)]
pub struct Seen {
    /// What the next `observe` returns, but for applications that are not adopted.
    pub observation: Observation,
    /// The adopted applications with their groups.
    pub adopted: BTreeMap<AppId, String>,
}

/// Sensors that return preset values.
#[derive(Clone, Debug, Default)]
pub struct FakeSensors {
    seen: Arc<Mutex<Seen>>,
}

impl FakeSensors {
    /// Sensors that see nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What they see, to change it.
    pub fn seen(&self) -> Arc<Mutex<Seen>> {
        Arc::clone(&self.seen)
    }
}

impl Sensors for FakeSensors {
    fn adopt(&mut self, app: AppId, cgroup: &Cgroup) -> Result<(), MemError> {
        let mut seen = self.seen.lock().expect("no holder of the lock panics");
        seen.adopted.insert(app, cgroup.to_string());
        Ok(())
    }

    fn release(&mut self, app: AppId) {
        let mut seen = self.seen.lock().expect("no holder of the lock panics");
        seen.adopted.remove(&app);
    }

    fn observe(&mut self, _now: Instant) -> Observation {
        let seen = self.seen.lock().expect("no holder of the lock panics");
        let mut observation = seen.observation.clone();
        observation
            .apps
            .retain(|view| seen.adopted.contains_key(&view.id));
        observation
    }

    fn pressures(&self) -> std::collections::BTreeMap<AppId, crate::indicator::pressure::Pressure> {
        std::collections::BTreeMap::new()
    }

    fn sources(&self) -> Vec<SourceInfo> {
        vec![SourceInfo {
            name: "fake",
            measures: "what the test says",
            works: true,
            seen: String::new(),
            remedy: None,
        }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_common_quantities::units::Bytes;
    use isolane_memory_policy::mercury::{AppView, TIERS_MAX};

    #[test]
    fn only_adopted_applications_are_seen() {
        let mut sensors = FakeSensors::new();
        let view = |id| AppView {
            id: AppId(id),
            held: [Bytes::ZERO; TIERS_MAX],
            latency: None,
            bandwidth: None,
            cpu_used: None,
        };
        sensors.seen().lock().unwrap().observation.apps = vec![view(1), view(2)];
        sensors
            .adopt(AppId(2), &Cgroup::new("/two").unwrap())
            .unwrap();
        let seen = sensors.observe(Instant::ZERO);
        assert_eq!(seen.apps, [view(2)]);
        sensors.release(AppId(2));
        assert_eq!(sensors.observe(Instant::ZERO).apps, []);
    }
}
