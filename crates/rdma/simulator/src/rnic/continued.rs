//! Runs that go on: a warm-up that ends when everything has begun, then one measured time after another in one world.
//!
//! Problem: a run of fixed length is too short for thousands of queue pairs, whose contexts have to meet the caches, and far
//! too long for the same pairs where they meet them soon; and a run that turns out too short must not begin again, or it would only
//! repeat its start. Method: the warm-up ends a while after every queue pair has had as many requests done as
//! it posts at once at the start, or after so many events that all have met the caches (eight million), or when no
//! further pair got there for a while, at the latest after a given time. Each measured time begins with empty meters where
//! the one before ended; caches, queues, the policy and its timers go on.
//!
//! Where a policy holds work back, the warm-up goes on while the first postings will end in time, and while the NIC works off
//! what they left in its queues.
//!
//! Units: picoseconds. Limits: how far pairs are is looked up every 20 us; where one process posts for hundreds of pairs its
//! requests come in waves, long after the first burst is done, which the caller's rule has to notice. Workers of
//! applications and daemons' reference flows have no first burst and are not waited for.
//! Source: ours.

use super::enforce::Flow;
use super::meter::Meter;
use super::policies::SimError;
use super::queue_pair::{NONE, QueuePair};
use super::world::World;
use isolane_common_quantities::settle::{Counts, Latencies, WINDOWS, Windows};
use isolane_common_quantities::stats::Histogram;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_rdma_scenario::model::Scenario;
use isolane_rdma_scenario::profile::Profile;
use isolane_study_results::rdma::RunResult;

/// Time between two looks at how far the pairs are.
const LOOK: Duration = Duration::from_us(20);
/// Events after which a warm-up is over: some forty packets for each of 20,000 pairs in both directions, which one core
/// simulates in about a second.
const EVENTS_MAX: u64 = 8_000_000;
/// A receive buffer fills when a measured time adds more than this part, one over the number, of what makes it pause.
const FILLS: u64 = 32;
/// Later than any run ends.
const NEVER: Duration = Duration::from_ms(3_600_000);

/// When a warm-up ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarmUp {
    /// From the moment at which what was posted at the start is done, at least.
    pub settle: Duration,
    /// Without a further pair whose first posting is done, the rest counts as stuck after this time; absent: never.
    pub stuck: Option<Duration>,
    /// At the latest, after the start of the run.
    pub latest: Duration,
}

/// A run that goes on.
pub struct Continued<'a> {
    world: World,
    /// With the warm-up and the measured time so far.
    scenario: Scenario,
    profile: &'a Profile,
    at: Duration,
    /// Measured time and sample interval of the scenario as given.
    first: (Duration, Duration),
    /// Whether a receive buffer filled during the last measured time.
    filling: bool,
}

impl std::fmt::Debug for Continued<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Continued")
            .field("scenario", &self.scenario.name)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

impl<'a> Continued<'a> {
    /// Prepares `scenario` on the device that `profile` describes; its times are not used yet. Fails as [`super::run`]
    /// does.
    pub fn new(scenario: &Scenario, profile: &'a Profile) -> Result<Self, SimError> {
        let first = (scenario.duration, scenario.sample_interval);
        let mut scenario = scenario.clone();
        // Until a measured time begins, the world neither measures nor ends.
        scenario.warmup = NEVER;
        Ok(Self {
            world: <World>::build(&scenario, profile)?,
            scenario,
            profile,
            at: Duration::ZERO,
            first,
            filling: false,
        })
    }

    /// Warms up from the start; how long that took.
    pub fn warm_up(&mut self, how: &WarmUp) -> Duration {
        self.at = self.world.warm_up(how);
        self.at
    }

    /// Whether congestion control has slowed a sender down.
    pub fn is_congested(&self) -> bool {
        let mut nics = self.world.nics.iter();
        nics.any(|nic| nic.count.notifications_handled > 0)
    }

    /// Goes on for `time` without measuring.
    pub fn go_on(&mut self, time: Duration) {
        self.at += time;
        self.world.run_until(self.at - Duration::from_ps(1));
    }

    /// The simulated time so far.
    pub fn at(&self) -> Duration {
        self.at
    }

    /// Measures for `length` from now on; what each tenant did in equal windows of it.
    pub fn measure(&mut self, length: Duration) -> Vec<Windows> {
        let (duration, interval) = self.first;
        let stretch = length.as_ps() as f64 / duration.as_ps().max(1) as f64;
        let scenario = &mut self.scenario;
        scenario.warmup = self.at;
        scenario.duration = length;
        // As many points as in the scenario's own measured time.
        scenario.sample_interval =
            Duration::from_ps((interval.as_ps() as f64 * stretch).round() as u64);
        let before = self.world.fills(self.at);
        let windows = self.world.measure(scenario);
        self.at += length;
        let after = self.world.fills(self.at);
        self.filling = before
            .iter()
            .zip(&after)
            .any(|(before, after)| after.has_grown(before));
        windows
    }

    /// Whether a receive buffer filled during the last measured time without a pause. Once it is full, pauses and congestion
    /// control change what every tenant gets.
    pub fn is_filling(&self) -> bool {
        self.filling
    }

    /// What was measured last.
    pub fn result(&self) -> RunResult {
        self.world.result(&self.scenario, self.profile)
    }
}

/// How fast first postings that a policy holds back go on.
///
/// A core posts its first requests, then writes them to the NIC as the policy grants tokens. Until the core has caught up, the NIC
/// receives more than the policy's rate. All pairs of a process reach the end of this phase at nearly the same time, so a time without
/// a further pair says nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Drawn {
    at: Duration,
    unwritten: u64,
}

impl Drawn {
    /// Whether the first postings of `pairs` are written after `latest` if they go on as in the last `time`.
    fn is_hopeless<const RECORDS: bool>(
        &mut self,
        world: &World<RECORDS>,
        pairs: &[u32],
        at: Duration,
        time: Duration,
        latest: Duration,
    ) -> bool {
        let spent = at - self.at;
        if spent < time {
            return false;
        }
        let left = world.unwritten(pairs);
        let done = self.unwritten.saturating_sub(left);
        let is_first = self.at.is_zero();
        *self = Self {
            at,
            unwritten: left,
        };
        // left / done > (latest - at) / spent, without a division by zero.
        let ahead = latest.saturating_sub(at);
        !is_first
            && u128::from(left) * u128::from(spent.as_ps())
                > u128::from(done) * u128::from(ahead.as_ps())
    }
}

/// What the first postings leave in the NIC under a policy that holds work back: until a core has caught up, the NIC receives more
/// than it sends. The rest waits in front of other tenants' work long after the last first request is done.
#[derive(Clone, Copy, Debug, Default)]
struct Backlog {
    at: Duration,
    requests: u64,
    drains: bool,
}

impl Backlog {
    /// Whether it fell during the last `time` by more than one request of each of `pairs`, which chance can explain.
    fn drains<const RECORDS: bool>(
        &mut self,
        world: &World<RECORDS>,
        pairs: &[u32],
        at: Duration,
        time: Duration,
    ) -> bool {
        if at - self.at >= time {
            let requests = world.unfinished(pairs);
            *self = Self {
                at,
                requests,
                drains: self.requests > requests + pairs.len() as u64,
            };
        }
        self.drains
    }
}

/// How full one receive buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fill {
    bytes: u64,
    pause_at: u64,
    /// Pauses that its port has sent so far.
    pauses: u64,
    is_pausing: bool,
}

impl Fill {
    /// Whether it holds clearly more than `before`, and its port has not paused since, or has paused for the first time: then
    /// congestion control has yet to act.
    fn has_grown(&self, before: &Self) -> bool {
        let grown = self.bytes.saturating_sub(before.bytes);
        let has_paused = self.pauses > before.pauses || self.is_pausing;
        grown > self.pause_at / FILLS && (!has_paused || before.pauses == 0)
    }
}

impl<const RECORDS: bool> World<RECORDS> {
    /// How full every receive buffer is at `at`.
    fn fills(&self, at: Duration) -> Vec<Fill> {
        let now = at.as_ps();
        let nics = self.nics.iter();
        let buffers = nics.flat_map(|nic| nic.buffers.iter().map(move |buffer| (nic, buffer)));
        let fills = buffers.map(|(nic, buffer)| Fill {
            bytes: {
                // Packets that have left are taken out when the next one arrives.
                let left = buffer.packets.iter().filter(|(leaves, _)| *leaves <= now);
                buffer.buffered - left.map(|(_, bytes)| u64::from(*bytes)).sum::<u64>()
            },
            pause_at: buffer.pause_at,
            pauses: nic.count.pauses_sent,
            is_pausing: nic.pausing != 0,
        });
        fills.collect()
    }

    /// Runs until what was posted at the start is done and a while has passed; how long that was.
    fn warm_up(&mut self, how: &WarmUp) -> Duration {
        let mut at = Duration::ZERO;
        let mut due = how.latest;
        let mut waiting: Vec<u32> = (0..self.pairs.len() as u32)
            .filter(|&pair| self.pairs[pair as usize].has_first_posting())
            .collect();
        let first = waiting.clone();
        let mut progress = at;
        let mut drawn = Drawn::default();
        let mut backlog = Backlog::default();
        let mut events = 0;
        while at < due {
            at = (at + LOOK).min(due);
            // What happens at the very end of the warm-up is measured, as in a run of fixed times.
            events += self.run_until(at - Duration::from_ps(1));
            if how.stuck.is_none() {
                // Only whether any pair is left counts then, so one that is left suffices.
                while waiting
                    .pop_if(|pair| self.is_first_posting_done(*pair))
                    .is_some()
                {}
            } else {
                let before = waiting.len();
                waiting.retain(|&pair| !self.is_first_posting_done(pair));
                if waiting.len() < before {
                    progress = at;
                }
            }
            let held = self.is_held_back();
            let drains = held
                && how
                    .stuck
                    .is_some_and(|time| backlog.drains(self, &first, at, time));
            let stuck = match held {
                true => how
                    .stuck
                    .is_some_and(|time| drawn.is_hopeless(self, &waiting, at, time, how.latest)),
                false => how.stuck.is_some_and(|stuck| at - progress >= stuck),
            };
            if (waiting.is_empty() && !drains) || stuck || self.is_long(at, events) {
                due = due.min(at + how.settle);
            }
        }
        at
    }

    fn is_first_posting_done(&self, pair: u32) -> bool {
        self.pairs[pair as usize].acknowledged >= self.depth_of(pair)
    }

    fn depth_of(&self, pair: u32) -> u64 {
        let plan = self.processes[self.pairs[pair as usize].process as usize].plan;
        u64::from(self.plans[plan as usize].depth)
    }

    /// Whether a daemon holds back work of a flow.
    fn is_held_back(&self) -> bool {
        let mut daemons = self.enforcer.daemons.iter().flatten();
        daemons.any(|daemon| daemon.flows.iter().any(Flow::is_held))
    }

    /// Requests of the first postings of `pairs` that are not written to the NIC yet.
    fn unwritten(&self, pairs: &[u32]) -> u64 {
        let left = |&pair: &u32| {
            let released = self.pairs[pair as usize].released;
            self.depth_of(pair).saturating_sub(released)
        };
        pairs.iter().map(left).sum()
    }

    /// Requests of `pairs` that are written to the NIC and not completed.
    fn unfinished(&self, pairs: &[u32]) -> u64 {
        let left = |&pair: &u32| {
            let pair = &self.pairs[pair as usize];
            pair.released.saturating_sub(pair.acknowledged)
        };
        pairs.iter().map(left).sum()
    }

    /// Whether `events` until `at` and the looks of DCQCN's timers, which count as such, are enough of a warm-up.
    fn is_long(&mut self, at: Duration, events: u64) -> bool {
        events >= EVENTS_MAX || self.timers_looked(at.as_ps(), EVENTS_MAX - events)
    }

    /// Measures from the end of the warm-up of `scenario` for its duration, with empty meters.
    fn measure(&mut self, scenario: &Scenario) -> Vec<Windows> {
        self.meter = self.meter.emptied();
        for pair in &mut self.pairs {
            pair.bytes_delivered = 0;
        }
        self.sample_interval = scenario.sample_interval.as_ps().max(1);
        let end = scenario.warmup + scenario.duration;
        self.end = end.as_ps();
        self.start_measuring(scenario.warmup.as_ps());
        let length = scenario.duration / WINDOWS as u64;
        let mut marks = vec![self.counted()];
        let mut halves = Vec::new();
        for window in 1..=WINDOWS {
            let until = match window {
                WINDOWS => end,
                _ => scenario.warmup + length * window as u64,
            };
            self.run_until(until);
            marks.push(self.counted());
            if window == WINDOWS / 2 {
                halves = self.meter.take_latencies();
            }
        }
        let windows = (0..self.meter.tenants.len()).map(|tenant| Windows {
            before: scenario.warmup,
            length,
            counts: std::array::from_fn(|window| {
                since(&marks[window + 1][tenant], &marks[window][tenant])
            }),
            latencies: self.meter.latencies_of_halves(tenant, &halves[tenant]),
        });
        let windows = windows.collect();
        self.meter.put_latencies(halves);
        windows
    }

    fn counted(&self) -> Vec<Counts> {
        let tenants = self.meter.tenants.iter();
        tenants
            .map(|tenant| Counts {
                bytes: tenant.delivered,
                messages: tenant.messages,
                operations: tenant.operations,
                controls: tenant.controls,
            })
            .collect()
    }

    /// Takes the events until `end`, and none behind it; how many there were.
    pub(super) fn run_until(&mut self, end: Duration) -> u64 {
        let end = Instant::ZERO + end;
        let mut events = 0;
        while let Some(now) = self.queue.take_until(end) {
            self.look_ahead();
            self.handle(now.as_ps(), self.queue.taken());
            events += 1;
        }
        events
    }
}

impl QueuePair {
    /// Whether it posts as much as it may at the start: neither a worker's of an application nor a reference flow does.
    fn has_first_posting(&self) -> bool {
        !self.reference && self.link == NONE
    }
}

fn since(now: &Counts, then: &Counts) -> Counts {
    Counts {
        bytes: now.bytes - then.bytes,
        messages: now.messages - then.messages,
        operations: now.operations - then.operations,
        controls: now.controls - then.controls,
    }
}

impl Meter {
    /// Meters that have counted nothing; the pace of applications goes on.
    fn emptied(&self) -> Self {
        let mut empty = Self::new(&vec![true; self.tenants.len()]);
        for (empty, old) in empty.tenants.iter_mut().zip(&self.tenants) {
            empty.pace = old.pace.begun_again();
        }
        empty
    }

    /// What was recorded so far; recording goes on with nothing.
    fn take_latencies(&mut self) -> Vec<Option<Histogram>> {
        let tenants = self.tenants.iter_mut();
        tenants
            .map(|tenant| tenant.latencies.as_mut().map(std::mem::take))
            .collect()
    }

    fn latencies_of_halves(&self, tenant: usize, first: &Option<Histogram>) -> Latencies {
        match (first, &self.tenants[tenant].latencies) {
            (Some(first), Some(second)) => Latencies::of(first, second),
            _ => Latencies::default(),
        }
    }

    /// Puts back what was taken.
    fn put_latencies(&mut self, first: Vec<Option<Histogram>>) {
        for (tenant, first) in self.tenants.iter_mut().zip(first) {
            if let (Some(second), Some(first)) = (&mut tenant.latencies, first) {
                second.merge(&first);
            }
        }
    }
}

#[cfg(test)]
mod tests;
