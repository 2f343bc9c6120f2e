//! The backend `damos_goal`: schemes that tune themselves until a control group has its share of a near node.
//!
//! Method: per group and near node, one scheme takes cold pages away until the group's unused share of the node is what
//! its limit leaves, and one moves hot pages near until its used share is the limit. The kernel measures once in a window,
//! and gives each scheme its whole quota until the goal is reached (the tuner `temporal`). With the kernel's other tuner, a quota
//! begins at one byte and grows by the relative distance from the goal: it took minutes to its first page. We write limits
//! when they change. The thread runs from the start, so that a kernel that refuses it is known before any application.
//!
//! Units: ten-thousandths of a node, rounded down, so the limit is never exceeded by rounding. Limits: a window may move
//! a 256th of the node below the limit. An application with groups below its own gets its limit split evenly over them.
//! Source: the kernel's documentation of DAMOS quota goals; measured in the lab (proof `memory_goal`, Linux 7.2).

use super::files::{Goal, Kdamond, MANY, NEVER, Scheme};
use super::leaves;
use crate::backend::BackendKind;
use crate::backend::engine::{Context, Mover, Work};
use crate::cgroup::Cgroup;
use crate::error::MemError;
use isolane_common_quantities::units::Bytes;
use isolane_memory_policy::mercury::AppId;
use std::collections::BTreeMap;
use std::time::Duration;

/// The whole of a node.
const WHOLE_BP: u64 = 10_000;

/// What one scheme moves per window, relative to the node: a larger part would go farther below the limit.
const QUOTA_SHARE: u64 = 256;
const QUOTA_MIN: Bytes = Bytes::from_mib(1);
const QUOTA_MAX: Bytes = Bytes::from_mib(256);

const WINDOW_MS: u64 = 200;

/// Steps without effect before an application is reported stuck: half a minute.
const PATIENCE: u32 = 120;

const PAGE_BYTES: u64 = 4096;

/// The mover.
pub struct GoalDriven {
    kdamond: Kdamond,
    applications: BTreeMap<AppId, Application>,
}

/// An application's groups, and what was last requested.
struct Application {
    groups: Vec<Cgroup>,
    limit: Option<Bytes>,
    far: u32,
}

impl GoalDriven {
    /// Starts DAMON, and checks that it supports the goals. Fails without DAMON, for a DAMON of another program or of the
    /// kernel, and for one without these goals.
    pub fn open(context: &Context) -> Result<Self, MemError> {
        let mut kdamond = Kdamond::open(&context.host, &context.tiers, BackendKind::DamosGoal)?;
        let trial = schemes(context, "/", None, far_node(context, 1));
        let tried = kdamond.write(&trial).and_then(|()| kdamond.write(&[]));
        if let Err(error) = tried.and_then(|()| kdamond.commit()) {
            kdamond.remove();
            return Err(error);
        }
        Ok(Self {
            kdamond,
            applications: BTreeMap::new(),
        })
    }
}

impl Mover for GoalDriven {
    fn kind(&self) -> BackendKind {
        BackendKind::DamosGoal
    }

    fn begin(&mut self, context: &Context, app: AppId, cgroup: &Cgroup) -> Result<(), MemError> {
        let application = Application {
            groups: leaves(&context.host, cgroup),
            limit: None,
            far: far_node(context, 1),
        };
        self.applications.insert(app, application);
        Ok(())
    }

    fn step(&mut self, context: &Context, work: &[Work]) -> Vec<Result<bool, MemError>> {
        for work in work {
            let Some(application) = self.applications.get_mut(&work.app) else {
                continue;
            };
            if application.limit != work.limits[0] {
                application.limit = work.limits[0];
                let tier = work.demote.map_or(1, |demote| demote.to);
                application.far = far_node(context, tier);
            }
        }
        // An application without work now keeps its schemes: the engine rests, and the limit holds.
        let mut wanted = Vec::new();
        for application in self.applications.values() {
            let groups = application.groups.len().max(1) as u64;
            let each = application
                .limit
                .map(|limit| Bytes::new(limit.get() / groups));
            for group in &application.groups {
                wanted.extend(schemes(context, group.path(), each, application.far));
            }
        }
        let done = match self.kdamond.differs(&wanted) {
            true => self
                .kdamond
                .write(&wanted)
                .and_then(|()| self.kdamond.commit()),
            false => Ok(()),
        };
        let mut error = done.err();
        work.iter()
            .map(|work| error.take().map_or(Ok(work.demote.is_some()), Err))
            .collect()
    }

    fn end(&mut self, _context: &Context, app: AppId, _cgroup: &Cgroup) -> Result<(), MemError> {
        self.applications.remove(&app);
        Ok(())
    }

    fn patience(&self) -> u32 {
        PATIENCE
    }

    fn pause(&self) -> Duration {
        Duration::from_millis(250)
    }

    fn stop(&mut self, _context: &Context) {
        self.kdamond.remove();
    }
}

fn far_node(context: &Context, tier: usize) -> u32 {
    context
        .tiers
        .roomiest_node(&context.host, tier)
        .unwrap_or(0)
}

/// Two schemes per near node; at rest where there is no limit.
fn schemes(context: &Context, group: &str, limit: Option<Bytes>, far: u32) -> Vec<Scheme> {
    let tier = context.tiers.tiers.first().cloned().unwrap_or_default();
    let quota = tier.total_bytes / (tier.nodes.len().max(1) as u64) / QUOTA_SHARE;
    let quota_bytes = quota.clamp(QUOTA_MIN.get(), QUOTA_MAX.get());
    let mut found = Vec::new();
    for node in tier.nodes {
        // A tier's limit is split over its nodes by size, so the share is the same on each.
        let limit_bytes = limit.map_or(0, Bytes::get);
        let share =
            u128::from(limit_bytes) * u128::from(WHOLE_BP) / u128::from(tier.total_bytes.max(1));
        let share = u64::try_from(share).unwrap_or(WHOLE_BP).min(WHOLE_BP);
        let base = Scheme {
            action: "migrate_cold",
            node: far,
            cgroup: group.to_owned(),
            elsewhere: Vec::new(),
            accesses: (0, MANY),
            size_min: if limit.is_some() { PAGE_BYTES } else { NEVER },
            quota_bytes,
            window_ms: WINDOW_MS,
            goal: Some(Goal {
                metric: "node_memcg_free_bp",
                node,
                target_bp: WHOLE_BP - share,
            }),
        };
        found.push(Scheme {
            action: "migrate_hot",
            node,
            accesses: (1, MANY),
            goal: Some(Goal {
                metric: "node_memcg_used_bp",
                node,
                target_bp: share,
            }),
            ..base.clone()
        });
        found.push(base);
    }
    found
}
