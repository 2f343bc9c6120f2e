//! A backend without a machine: bytes in memory, moved at a rate, with faults on demand. For tests of code that drives
//! a backend.
//!
//! Method: what is above a limit moves to the next tier (or to the first of the application's far tiers) at
//! [`World::rate`] bytes per poll; what a raised limit leaves room for does not come back by itself. A [`FakeBackend`] and
//! its test share one [`World`] behind a lock. Units: bytes.

use super::{Backend, BackendKind, Progress, excess};
use crate::cgroup::Cgroup;
use crate::error::MemError;
use isolane_common_quantities::units::{Bytes, Instant};
use isolane_memory_policy::mercury::{AppId, TIERS_MAX, TierLimits};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// The state of one application on the fake machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FakeApp {
    /// Its control group.
    pub cgroup: String,
    /// What it holds.
    pub held: [Bytes; TIERS_MAX],
    /// Its limits; none before the first `apply`.
    pub limits: Option<TierLimits>,
    /// Tiers its far pages may use.
    pub far_tiers: Vec<u8>,
}

/// The state that test and backend share.
#[derive(Debug)]
pub struct World {
    /// Applications under control.
    pub apps: BTreeMap<AppId, FakeApp>,
    /// Control groups that have vanished.
    pub gone: BTreeSet<String>,
    /// Applications whose next `apply` is refused.
    pub refuse: BTreeSet<AppId>,
    /// Free bytes of each tier; none means plenty.
    pub free: [Option<Bytes>; TIERS_MAX],
    /// Bytes moved per application and poll.
    pub rate: Bytes,
    /// Calls in order, one word each with the application: `adopt 1`, `apply 1`, `release 1`.
    pub calls: Vec<String>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            apps: BTreeMap::new(),
            gone: BTreeSet::new(),
            refuse: BTreeSet::new(),
            free: [None; TIERS_MAX],
            rate: Bytes::from_mib(64),
            calls: Vec::new(),
        }
    }
}

/// A backend over a [`World`].
#[derive(Clone, Debug, Default)]
pub struct FakeBackend {
    world: Arc<Mutex<World>>,
    reached: BTreeSet<AppId>,
}

impl FakeBackend {
    /// A backend over an empty world.
    pub fn new() -> Self {
        Self::default()
    }

    /// The world, to look at and to change.
    pub fn world(&self) -> Arc<Mutex<World>> {
        Arc::clone(&self.world)
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no holder of the lock panics")
    }
}

impl Backend for FakeBackend {
    fn kind(&self) -> BackendKind {
        BackendKind::Fake
    }

    fn adopt(&mut self, app: AppId, cgroup: &Cgroup, far_tiers: &[u8]) -> Result<(), MemError> {
        self.reached.remove(&app);
        let mut world = self.lock();
        world.calls.push(format!("adopt {}", app.0));
        if world.gone.contains(cgroup.path()) {
            return Err(MemError::Gone(cgroup.to_string()));
        }
        let entry = world.apps.entry(app).or_default();
        entry.cgroup = cgroup.to_string();
        entry.far_tiers = far_tiers.to_vec();
        entry.limits = None;
        Ok(())
    }

    fn apply(&mut self, app: AppId, limits: &TierLimits) -> Result<(), MemError> {
        let mut world = self.lock();
        world.calls.push(format!("apply {}", app.0));
        if world.refuse.remove(&app) {
            return Err(MemError::NotPermitted {
                action: format!("limit {app}"),
            });
        }
        let entry = world.apps.get_mut(&app).ok_or(MemError::Unknown(app.0))?;
        entry.limits = Some(*limits);
        drop(world);
        self.reached.remove(&app);
        Ok(())
    }

    fn poll(&mut self, _now: Instant) -> Vec<Progress> {
        let mut world = self.world.lock().expect("no holder of the lock panics");
        let ids: Vec<AppId> = world.apps.keys().copied().collect();
        let mut found = Vec::new();
        for app in ids {
            if world.gone.contains(&world.apps[&app].cgroup) {
                world.apps.remove(&app);
                found.push(Progress::Gone { app });
                continue;
            }
            let moved = move_some(&mut world, app);
            let entry = &world.apps[&app];
            let Some(limits) = entry.limits else { continue };
            let over = excess(&entry.held, &limits);
            let held = entry.held;
            if over.iter().all(|bytes| *bytes == Bytes::ZERO) {
                if self.reached.insert(app) {
                    found.push(Progress::Reached { app, held });
                }
            } else {
                self.reached.remove(&app);
                found.push(match moved {
                    Ok(_) => Progress::Moving { app, held },
                    Err(why) => Progress::Stuck { app, held, why },
                });
            }
        }
        found
    }

    fn release(&mut self, app: AppId) -> Result<(), MemError> {
        self.reached.remove(&app);
        let mut world = self.lock();
        world.calls.push(format!("release {}", app.0));
        let known = world.apps.remove(&app);
        known.map(|_| ()).ok_or(MemError::Unknown(app.0))
    }
}

/// Moves one poll's worth; an error when the far tier has no room.
fn move_some(world: &mut World, app: AppId) -> Result<Bytes, MemError> {
    let entry = world.apps[&app].clone();
    let Some(limits) = entry.limits else {
        return Ok(Bytes::ZERO);
    };
    let over = excess(&entry.held, &limits);
    let mut moved = Bytes::ZERO;
    for (tier, over) in over.into_iter().enumerate().take(TIERS_MAX - 1) {
        let target = entry
            .far_tiers
            .iter()
            .map(|far| usize::from(*far))
            .find(|far| *far > tier && *far < TIERS_MAX)
            .unwrap_or(tier + 1);
        let wanted = over.min(world.rate.saturating_sub(moved));
        let amount = wanted.min(world.free[target].unwrap_or(wanted));
        if let Some(free) = &mut world.free[target] {
            *free = free.saturating_sub(amount);
        }
        if let Some(entry) = world.apps.get_mut(&app) {
            entry.held[tier] = entry.held[tier].saturating_sub(amount);
            entry.held[target] += amount;
        }
        moved += amount;
        if amount == Bytes::ZERO && wanted > Bytes::ZERO {
            return Err(MemError::FarFull {
                tier: target,
                free: Bytes::ZERO,
                needed: wanted,
            });
        }
    }
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::near;

    fn backend(held_mib: u64) -> FakeBackend {
        let mut backend = FakeBackend::new();
        let group = Cgroup::new("/app").unwrap();
        backend.adopt(AppId(1), &group, &[]).unwrap();
        let world = backend.world();
        let mut world = world.lock().unwrap();
        world.apps.get_mut(&AppId(1)).unwrap().held[0] = Bytes::from_mib(held_mib);
        drop(world);
        backend
    }

    #[test]
    fn excess_moves_at_the_rate_and_is_reported_once() {
        let mut backend = backend(100);
        backend.apply(AppId(1), &near(10)).unwrap();
        let polls: Vec<String> = (0..4)
            .map(|_| {
                format!("{:?}", backend.poll(Instant::ZERO))
                    .chars()
                    .take(7)
                    .collect()
            })
            .collect();
        assert_eq!(polls, ["[Moving", "[Reache", "[]", "[]"]);
        let world = backend.world();
        assert_eq!(
            world.lock().unwrap().apps[&AppId(1)].held[1],
            Bytes::from_mib(90)
        );
    }

    #[test]
    fn a_full_far_tier_is_stuck_and_a_vanished_group_is_gone() {
        let mut backend = backend(100);
        backend.world().lock().unwrap().free[1] = Some(Bytes::ZERO);
        backend.apply(AppId(1), &near(10)).unwrap();
        assert!(matches!(
            backend.poll(Instant::ZERO)[..],
            [Progress::Stuck {
                why: MemError::FarFull { .. },
                ..
            }]
        ));
        backend
            .world()
            .lock()
            .unwrap()
            .gone
            .insert("/app".to_owned());
        assert!(matches!(
            backend.poll(Instant::ZERO)[..],
            [Progress::Gone { .. }]
        ));
        assert!(matches!(
            backend.release(AppId(1)),
            Err(MemError::Unknown(1))
        ));
    }
}
