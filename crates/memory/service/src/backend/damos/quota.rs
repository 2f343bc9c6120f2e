//! The backend `damos_quota`: we read what is held, and set how much DAMON may migrate in the next window.
//!
//! Method: two schemes per group, cold pages out and hot pages in. While there is nothing to move a scheme rests: it
//! wants regions of an impossible size. Else its quota is half of what is still to move, for a window of `WINDOW_MS`, and
//! new values are committed every `COMMIT`, a shorter time. So what one window moves and what the next one adds before it
//! learns of that is at most the whole. Where the kernel takes longer over a commit, more windows pass, and the whole is
//! divided by as many.
//!
//! Memory without any access is demoted first. When this frees nothing more for `COLD_COMMITS`, used memory is demoted
//! too, because the limit must hold.
//!
//! The first window of a new scheme has no quota (kernels before 6.18): all that matches would move. So every scheme
//! begins at rest, with a short window (`ARMING`), and wakes when the kernel says that its quota is in force: on a busy
//! machine this takes seconds, and a scheme that woke earlier demoted a whole application.
//!
//! A quota is whole pages (`whole`): with one that it cannot use up, the kernel tries the same pages in every window.
//!
//! Units: bytes, milliseconds. Limits: DAMON charges a region's pages for any owner; see [`super::ranges`]. Source: the
//! kernel's documentation of DAMOS quotas; traced in the lab (`damon:damos_before_apply`).

use super::files::{Kdamond, MANY, NEVER, Scheme};
use super::{leaves, ranges};
use crate::backend::BackendKind;
use crate::backend::engine::{Context, Move, Mover, Work};
use crate::cgroup::Cgroup;
use crate::error::MemError;
use isolane_common_quantities::units::Bytes;
use isolane_memory_policy::mercury::AppId;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a quota counts over.
const WINDOW_MS: u64 = 400;

/// Between two commits.
const COMMIT: Duration = Duration::from_millis(200);

/// Most windows that are reckoned with: a thread that is slower begins fewer of them, too.
const WINDOWS_MAX: u64 = 6;

/// How long a new scheme rests at least: longer than its first window.
const ARMING: Duration = Duration::from_millis(400);

/// The first window.
const ARMING_WINDOW_MS: u64 = 100;

/// Below this a window moves the whole rest: halving further would never end.
const LAST: Bytes = Bytes::from_mib(2);

/// Commits without effect after which used memory may go far, too.
const COLD_COMMITS: u32 = 8;

/// Windows without effect before an application is reported stuck: about half a minute.
const PATIENCE: u32 = 150;

/// Between two looks for new groups below an application's.
const LOOK: Duration = Duration::from_secs(5);

const PAGE_BYTES: u64 = 4096;

/// Returns the time since some moment.
pub type Clock = Box<dyn Fn() -> Duration + Send>;

/// A clock that starts now.
pub fn real_clock() -> Clock {
    let start = std::time::Instant::now();
    Box::new(move || start.elapsed())
}

/// The mover.
pub struct Quota {
    kdamond: Kdamond,
    clock: Clock,
    groups: BTreeMap<AppId, Vec<Cgroup>>,
    /// The addresses of each application's pages.
    runs: BTreeMap<AppId, Option<Vec<(u64, u64)>>>,
    looked: Duration,
    committed: Duration,
    /// How long the kernel took over the last commit.
    taken: Duration,
    /// When schemes began to rest; none after they woke.
    arming: Option<Duration>,
    /// What each application had above its limits at best, and commits since.
    fruitless: BTreeMap<AppId, (Bytes, u32)>,
    /// The groups of the schemes that are written, in order.
    layout: Vec<(AppId, Cgroup)>,
}

impl Quota {
    /// Takes DAMON, with all schemes yet to come. Fails without DAMON, for a DAMON of another program, and for one
    /// without migration by schemes.
    pub fn open(context: &Context, clock: Clock) -> Result<Self, MemError> {
        let mut kdamond = Kdamond::open(&context.host, &context.tiers, BackendKind::DamosQuota)?;
        // The kernel shows whether it supports migration only when a scheme names it.
        let mut schemes = pair(context, "/", None, &Pace::default(), None);
        schemes.truncate(1);
        if let Err(error) = kdamond.write(&schemes).and_then(|()| kdamond.write(&[])) {
            kdamond.remove();
            return Err(error);
        }
        Ok(Self {
            kdamond,
            clock,
            groups: BTreeMap::new(),
            runs: BTreeMap::new(),
            looked: Duration::ZERO,
            committed: Duration::ZERO,
            taken: Duration::ZERO,
            arming: None,
            fruitless: BTreeMap::new(),
            layout: Vec::new(),
        })
    }

    /// Looks for groups that are new or gone below the applications'.
    fn look(&mut self, context: &Context, now: Duration) {
        if now.saturating_sub(self.looked) < LOOK {
            return;
        }
        self.looked = now;
        for (app, groups) in &mut self.groups {
            if let Some(first) = groups.first().cloned() {
                *groups = leaves(&context.host, &first);
                self.runs.insert(*app, picture(context, &first));
            }
        }
    }

    /// Counts commits without effect.
    fn count(&mut self, work: &[Work]) {
        for work in work {
            let Some(demote) = work.demote else {
                self.fruitless.remove(&work.app);
                continue;
            };
            let entry = self.fruitless.entry(work.app).or_insert((demote.bytes, 0));
            match demote.bytes < entry.0 {
                true => *entry = (demote.bytes, 0),
                false => entry.1 += 1,
            }
        }
    }

    /// The schemes that should be in force.
    fn wanted(&self, context: &Context, work: &[Work]) -> Vec<Scheme> {
        let mut schemes = Vec::new();
        for (app, group) in &self.layout {
            let work = match self.arming {
                Some(_) => None,
                None => work.iter().find(|work| work.app == *app),
            };
            let waited = self.fruitless.get(app).map_or(0, |(_, count)| *count);
            let pace = Pace {
                used: waited >= COLD_COMMITS,
                windows: windows(self.taken),
            };
            let runs = self.runs.get(app).and_then(|runs| runs.as_deref());
            schemes.extend(pair(context, group.path(), work, &pace, runs));
        }
        if self.arming.is_some() {
            for scheme in &mut schemes {
                scheme.window_ms = ARMING_WINDOW_MS;
            }
        }
        schemes
    }

    fn drive(&mut self, context: &Context, work: &[Work]) -> Result<(), MemError> {
        let now = (self.clock)();
        self.look(context, now);
        let layout: Vec<(AppId, Cgroup)> = self
            .groups
            .iter()
            .flat_map(|(app, groups)| groups.iter().map(|group| (*app, group.clone())))
            .filter(|(_, group)| context.host.has_cgroup(group))
            .collect();
        if layout != self.layout {
            self.layout = layout;
            self.arming = Some(now);
        } else if now.saturating_sub(self.committed) < COMMIT {
            return Ok(());
        }
        let is_over = |since: Duration| now.saturating_sub(since) >= ARMING;
        if self.arming.is_some_and(is_over) && self.kdamond.is_limited() {
            self.arming = None;
        }
        if self.arming.is_none() {
            self.count(work);
        }
        let schemes = self.wanted(context, work);
        if self.kdamond.differs(&schemes) {
            let done = self
                .kdamond
                .write(&schemes)
                .and_then(|()| self.kdamond.commit());
            if let Err(error) = done {
                // The schemes are as new the next time, and rest first: their first window has no quota.
                self.layout.clear();
                return Err(error);
            }
            // From after the commit, which waits for the kernel's thread.
            self.committed = (self.clock)();
            self.taken = self.committed.saturating_sub(now);
            if self.arming == Some(now) {
                self.arming = Some(self.committed);
            }
        }
        Ok(())
    }
}

impl Mover for Quota {
    fn kind(&self) -> BackendKind {
        BackendKind::DamosQuota
    }

    fn begin(&mut self, context: &Context, app: AppId, cgroup: &Cgroup) -> Result<(), MemError> {
        self.groups.insert(app, leaves(&context.host, cgroup));
        self.runs.insert(app, picture(context, cgroup));
        Ok(())
    }

    fn step(&mut self, context: &Context, work: &[Work]) -> Vec<Result<bool, MemError>> {
        let driven = self.drive(context, work);
        let active =
            |work: &Work| work.demote.is_some() || work.promote.is_some() || self.arming.is_some();
        match driven {
            Ok(()) => work.iter().map(|work| Ok(active(work))).collect(),
            Err(error) => {
                // One failure for all: the first application carries it, the others wait.
                let mut error = Some(error);
                work.iter()
                    .map(|work| error.take().map_or(Ok(active(work)), Err))
                    .collect()
            }
        }
    }

    fn end(&mut self, _context: &Context, app: AppId, _cgroup: &Cgroup) -> Result<(), MemError> {
        self.groups.remove(&app);
        self.runs.remove(&app);
        self.fruitless.remove(&app);
        Ok(())
    }

    fn pause(&self) -> Duration {
        COMMIT
    }

    /// One pass over a tier that others fill takes many windows.
    fn patience(&self) -> u32 {
        PATIENCE
    }

    fn stop(&mut self, _context: &Context) {
        self.kdamond.remove();
    }
}

/// The addresses of an application's pages.
fn picture(context: &Context, cgroup: &Cgroup) -> Option<Vec<(u64, u64)>> {
    let processes = context.host.processes(cgroup).ok()?;
    ranges::runs(&context.host, &processes)
}

/// How fast pages move, and which.
struct Pace {
    /// Used memory goes far as well.
    used: bool,
    /// Windows that pass before a quota learns what the first of them has moved.
    windows: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            used: false,
            windows: windows(Duration::ZERO),
        }
    }
}

/// One that is under way, and those that begin until the next commit is in force, where one takes so long.
fn windows(taken: Duration) -> u64 {
    let lag = u64::try_from((taken + COMMIT).as_millis()).unwrap_or(u64::MAX);
    (1 + lag.div_ceil(WINDOW_MS)).min(WINDOWS_MAX)
}

/// The two schemes of a group: at rest without work.
fn pair(
    context: &Context,
    group: &str,
    work: Option<&Work>,
    pace: &Pace,
    runs: Option<&[(u64, u64)]>,
) -> Vec<Scheme> {
    let cold = Kind {
        action: "migrate_cold",
        wanted: work.and_then(|work| work.demote),
        resting: (0, 1),
        accesses: (0, if pace.used { MANY } else { 0 }),
    };
    let hot = Kind {
        action: "migrate_hot",
        wanted: work.and_then(|work| work.promote),
        resting: (1, 0),
        accesses: (1, MANY),
    };
    [cold, hot]
        .into_iter()
        .map(|kind| scheme(context, group, kind, pace.windows, runs))
        .collect()
}

/// A quota that the kernel can use up, so that its next window goes on where this one ended: an odd number of whole pages.
///
/// The kernel charges whole pages, and notes where it was when nothing of the quota is left. A quota that ends within a page
/// is never used up: every window begins at the first address again and gets no farther than the one before. Of
/// what follows the noted place the kernel leaves out the first page. It must not be the head of a huge page, whose turn that
/// would have been: heads are even pages, and windows of odd lengths leave out odd ones.
pub(super) fn whole(bytes: u64) -> u64 {
    ((bytes / PAGE_BYTES).saturating_sub(1) | 1) * PAGE_BYTES
}

/// One direction.
struct Kind {
    action: &'static str,
    wanted: Option<Move>,
    resting: (usize, usize),
    accesses: (u64, u64),
}

fn scheme(
    context: &Context,
    group: &str,
    kind: Kind,
    windows: u64,
    runs: Option<&[(u64, u64)]>,
) -> Scheme {
    let Kind {
        action,
        wanted,
        resting,
        accesses,
    } = kind;
    let (from, to) = wanted.map_or(resting, |wanted| (wanted.from, wanted.to));
    let own = context.tiers.addresses(&context.host, from);
    let mut all: Vec<(u64, u64)> = (0..context.tiers.len())
        .flat_map(|tier| context.tiers.addresses(&context.host, tier))
        .collect();
    all.sort_unstable();
    let quota = wanted.map_or(PAGE_BYTES, |wanted| match wanted.bytes <= LAST {
        true => whole(wanted.bytes.get()),
        false => whole(wanted.bytes.get() / windows),
    });
    Scheme {
        action,
        node: context.tiers.roomiest_node(&context.host, to).unwrap_or(0),
        cgroup: group.to_owned(),
        elsewhere: ranges::left_out(runs, &own, &all),
        accesses,
        size_min: if wanted.is_some() { PAGE_BYTES } else { NEVER },
        quota_bytes: quota,
        window_ms: WINDOW_MS,
        goal: None,
    }
}
