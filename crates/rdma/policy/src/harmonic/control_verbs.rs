//! Control verbs: limits on a tenant's objects and on its rate of verbs.
//!
//! Capacity is a hard limit: a verb that would exceed it is rejected, as a driver rejects one when the device has
//! no room. Rate is soft: a verb that comes too early is let through later, and never becomes an error, because
//! applications do not expect one. The n-th verb of a tenant passes no earlier than one interval after the verb
//! before it; time that a tenant let go by is not saved up, so it has no burst.
//!
//! Units: picoseconds, verbs per second, objects, bytes. The interval is rounded up: a tenant never exceeds its
//! rate. Source: harmonic 5.5.2 (records of times of earlier calls, sleep instead of an error). Limits: verbs
//! that free something are limited by rate and never by capacity.

use super::allocation::ControlProfile;
use isolane_common_quantities::units::{Duration, Instant};

/// Picoseconds in a second.
const SECOND: u64 = 1_000_000_000_000;

/// What a tenant has, or requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// Queue pairs.
    pub queue_pairs: u64,
    /// Work queue entries.
    pub work_requests: u64,
    /// Memory regions.
    pub memory_regions: u64,
    /// Completion queues.
    pub completion_queues: u64,
    /// Completion queue entries.
    pub completion_entries: u64,
    /// Bytes of memory regions.
    pub region_bytes: u64,
}

/// What is to become of a control verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on after this long, which is zero for a tenant within its rate.
    After(Duration),
    /// The tenant would have more of these than it may.
    Rejected(Limit),
}

/// What a rejected verb ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// As the profile calls it.
    pub name: &'static str,
    /// How many the tenant may have.
    pub most: u64,
    /// How many it would have.
    pub asked: u64,
}

/// The limiter of one tenant's control verbs on one host.
///
/// ```
/// use isolane_rdma_policy::harmonic::{ControlLimiter, ControlProfile, Objects, Verdict};
/// use isolane_common_quantities::units::{Duration, Instant};
/// let profile = ControlProfile {
///     memory_regions: Some(1),
///     control_requests_per_s: Some(1_000),
///     ..ControlProfile::default()
/// };
/// let mut limiter = ControlLimiter::new(profile);
/// let region = Objects { memory_regions: 1, region_bytes: 4096, ..Objects::default() };
/// assert_eq!(limiter.create(Instant::ZERO, &region), Verdict::After(Duration::ZERO));
/// assert!(matches!(limiter.create(Instant::ZERO, &region), Verdict::Rejected(_)));
/// // Within the rate of 1,000 per second the next verb waits for the rest of a millisecond.
/// assert_eq!(limiter.destroy(Instant::ZERO, &region), Duration::from_ms(1));
/// ```
#[derive(Clone, Debug)]
pub struct ControlLimiter {
    profile: ControlProfile,
    held: Objects,
    /// Time between two verbs.
    interval: Duration,
    /// When the next verb may pass.
    next: Instant,
    rejected: u64,
    delayed: u64,
}

impl ControlLimiter {
    /// A tenant that has nothing yet. A rate of zero counts as no limit; profiles are checked before.
    pub fn new(profile: ControlProfile) -> Self {
        let interval = profile
            .control_requests_per_s
            .filter(|&rate| rate > 0)
            .map_or(0, |rate| SECOND.div_ceil(rate));
        Self {
            profile,
            held: Objects::default(),
            interval: Duration::from_ps(interval),
            next: Instant::ZERO,
            rejected: 0,
            delayed: 0,
        }
    }

    /// The tenant has these from its start: they count, and are neither rejected nor delayed.
    pub fn hold(&mut self, objects: &Objects) {
        self.held = self.held.with(objects);
    }

    /// The tenant gets `objects` if it may have them, at any rate: for objects from before the policy counted. The
    /// error is the limit that it would exceed; it gets nothing then.
    pub fn admit(&mut self, objects: &Objects) -> Result<(), Limit> {
        let after = self.held.with(objects);
        if let Some(limit) = self.exceeded(&after) {
            self.rejected += 1;
            return Err(limit);
        }
        self.held = after;
        Ok(())
    }

    /// The tenant no longer has `objects`, at any rate.
    pub fn release(&mut self, objects: &Objects) {
        self.held = self.held.without(objects);
    }

    /// A verb that creates `objects` at `now`. A rejected one creates nothing, and costs no turn.
    pub fn create(&mut self, now: Instant, objects: &Objects) -> Verdict {
        match self.admit(objects) {
            Ok(()) => Verdict::After(self.wait(now)),
            Err(limit) => Verdict::Rejected(limit),
        }
    }

    /// A verb that destroys `objects` at `now`; how long it has to wait.
    pub fn destroy(&mut self, now: Instant, objects: &Objects) -> Duration {
        self.release(objects);
        self.wait(now)
    }

    /// Verbs rejected so far, and verbs delayed so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.rejected, self.delayed)
    }

    fn wait(&mut self, now: Instant) -> Duration {
        let wait = self.next.saturating_since(now);
        self.delayed += u64::from(!wait.is_zero());
        self.next = self.next.max(now).saturating_add(self.interval);
        wait
    }

    fn exceeded(&self, after: &Objects) -> Option<Limit> {
        let (profile, held) = (&self.profile, &self.held);
        let regions = profile.region_bytes.map(|bytes| bytes.get());
        let limits = [
            (
                "queue_pairs",
                profile.queue_pairs,
                held.queue_pairs,
                after.queue_pairs,
            ),
            (
                "work_requests",
                profile.work_requests,
                held.work_requests,
                after.work_requests,
            ),
            (
                "memory_regions",
                profile.memory_regions,
                held.memory_regions,
                after.memory_regions,
            ),
            (
                "completion_queues",
                profile.completion_queues,
                held.completion_queues,
                after.completion_queues,
            ),
            (
                "completion_entries",
                profile.completion_entries,
                held.completion_entries,
                after.completion_entries,
            ),
            (
                "region_total",
                regions,
                held.region_bytes,
                after.region_bytes,
            ),
        ];
        // A verb is checked against the limits of its own objects: a tenant over one limit may still create other
        // objects.
        limits
            .into_iter()
            .find(|(_, most, before, asked)| {
                asked > before && most.is_some_and(|most| *asked > most)
            })
            .map(|(name, most, _, asked)| Limit {
                name,
                most: most.expect("only a limit can be exceeded"),
                asked,
            })
    }
}

impl Objects {
    fn with(&self, more: &Self) -> Self {
        self.each(more, u64::saturating_add)
    }

    fn without(&self, fewer: &Self) -> Self {
        self.each(fewer, u64::saturating_sub)
    }

    fn each(&self, other: &Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            queue_pairs: combine(self.queue_pairs, other.queue_pairs),
            work_requests: combine(self.work_requests, other.work_requests),
            memory_regions: combine(self.memory_regions, other.memory_regions),
            completion_queues: combine(self.completion_queues, other.completion_queues),
            completion_entries: combine(self.completion_entries, other.completion_entries),
            region_bytes: combine(self.region_bytes, other.region_bytes),
        }
    }
}
