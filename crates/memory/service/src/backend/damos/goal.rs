//! The backend `damos_goal`: schemes that tune themselves until a control group has its share of a near node.
//!
//! Method: per group and near node, one scheme takes cold pages away until the group's unused share of the node is what
//! its limit leaves, and one moves hot pages near until its used share is the limit. The kernel measures, and raises or
//! lowers the quotas by itself; we write limits when they change.
//!
//! Units: ten-thousandths of a node, rounded down, so the limit is never exceeded by rounding. Limits: needs
//! `node_memcg_used_bp` (Linux 6.19); no kernel of the lab has it, so made-up trees alone test it. An application with
//! groups below its own gets its limit split evenly over them.
//! Source: the kernel's documentation of DAMOS quota goals.

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

/// What one scheme may move per window at most: the tuning stays below it.
const QUOTA_MAX: Bytes = Bytes::from_mib(256);

const WINDOW_MS: u64 = 1_000;

const PAGE_BYTES: u64 = 4096;

/// The mover.
pub struct GoalDriven {
    kdamond: Kdamond,
    groups: BTreeMap<AppId, Vec<Cgroup>>,
}

impl GoalDriven {
    /// Takes DAMON, and checks that it supports the goals. Fails without DAMON, for a DAMON of another program, and for
    /// one without these goals.
    pub fn open(context: &Context) -> Result<Self, MemError> {
        let mut kdamond = Kdamond::open(&context.host, &context.tiers, BackendKind::DamosGoal)?;
        let trial = schemes(context, "/", Some(Bytes::ZERO));
        if let Err(error) = kdamond.write(&trial).and_then(|()| kdamond.write(&[])) {
            kdamond.remove();
            return Err(error);
        }
        Ok(Self {
            kdamond,
            groups: BTreeMap::new(),
        })
    }
}

impl Mover for GoalDriven {
    fn kind(&self) -> BackendKind {
        BackendKind::DamosGoal
    }

    fn begin(&mut self, context: &Context, app: AppId, cgroup: &Cgroup) -> Result<(), MemError> {
        self.groups.insert(app, leaves(&context.host, cgroup));
        Ok(())
    }

    fn step(&mut self, context: &Context, work: &[Work]) -> Vec<Result<bool, MemError>> {
        let mut wanted = Vec::new();
        for (app, groups) in &self.groups {
            let limit = work
                .iter()
                .find(|work| work.app == *app)
                .and_then(|work| work.limits[0]);
            let each = limit.map(|limit| Bytes::new(limit.get() / groups.len().max(1) as u64));
            for group in groups {
                wanted.extend(schemes(context, group.path(), each));
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
        self.groups.remove(&app);
        Ok(())
    }

    fn pause(&self) -> Duration {
        Duration::from_millis(250)
    }

    fn stop(&mut self, _context: &Context) {
        self.kdamond.remove();
    }
}

/// Two schemes per near node; at rest where there is no limit.
fn schemes(context: &Context, group: &str, limit: Option<Bytes>) -> Vec<Scheme> {
    let tier = context.tiers.tiers.first().cloned().unwrap_or_default();
    let far = context.tiers.roomiest_node(&context.host, 1).unwrap_or(0);
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
            quota_bytes: QUOTA_MAX.get(),
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
