//! Throttles less important streams while this helps.
//!
//! Problem: an application is worse than its objective, and the readings do not show whether another application
//! disturbs it or whether it needs more. Method (mercury 5.5.4): take bandwidth from less important streams until a
//! further cut improves nothing; if no cut helped, the cause is elsewhere. What to take follows lines 21-31 of
//! algorithm 4: near memory while far traffic is healthy, then processor time.
//!
//! Ours: cuts double while they help; the cut that did not help is taken back; where moving memory did not help,
//! processor time is tried (figure 5.4: beyond some point moving hurts); a stream without traffic is passed over; at most
//! four streams are tried in one go; and what was useless is not tried again for a time that doubles.
//!
//! Units: thousandths, bytes, steps. Limits: one trial at a time on a machine, so that effects are not confused.

use super::adapt::{Round, TRAFFIC_PARTS, after};
use super::state::size;
use super::{AppId, CPU_ONE, Limits, Reading, Reason, Sharing};

/// What is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Memory,
    Cpu,
}

/// An attempt to relieve an application.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    /// Who is to be relieved.
    pub(super) app: AppId,
    /// Who is throttled.
    pub(super) victim: AppId,
    by: By,
    /// Strain before the last cut.
    before: f64,
    /// The victim's limits before the last cut.
    undo: Limits,
    /// Steps that the next cut takes at once.
    size: u32,
    since: u64,
    since_instant: isolane_common_quantities::units::Instant,
    helped: bool,
    /// Moving this victim's memory was found to be no help.
    memory_useless: bool,
    tried: Vec<AppId>,
}

impl Round<'_> {
    /// Starts throttling for `index`; false when there is no application to throttle.
    pub(super) fn begin_trial(&mut self, index: usize, strain: f64) -> bool {
        let mut trial = Trial {
            app: self.book.apps[index].spec.id,
            victim: self.book.apps[index].spec.id,
            by: By::Cpu,
            before: strain,
            undo: Limits::NONE,
            size: 1,
            since: self.step,
            since_instant: self.now,
            helped: false,
            memory_useless: false,
            tried: Vec::new(),
        };
        let begun = self.next_victim(&mut trial, index, strain);
        if begun {
            *self.trial = Some(trial);
        }
        begun
    }

    /// Looks at what the last cut did, and goes on or ends.
    pub(super) fn advance_trial(&mut self) {
        let Some(mut trial) = self.trial.take() else {
            return;
        };
        let Some(index) = self.book.position(trial.app) else {
            return;
        };
        let waited = self.step - trial.since;
        let Some(strain) = self.strains[index] else {
            // Without a reading nothing is done; a trial without a reading ends at its present step.
            if waited < PATIENCE {
                *self.trial = Some(trial);
            }
            return;
        };
        if strain <= 1.0 {
            self.book.apps[index].control.relief_useless = false;
            return;
        }
        let Some(victim) = self.book.position(trial.victim) else {
            return;
        };
        let seen = self.view(index);
        let latency = self.book.apps[index].is_latency();
        let age = seen.and_then(|seen| match latency {
            true => seen.latency.map(|reading| reading.age),
            false => seen.bandwidth.map(|reading| reading.age),
        });
        let judged = after(self.now, age, Some(trial.since_instant));
        let moving = trial.by == By::Memory && !self.settled(victim);
        if (!judged || moving) && waited < PATIENCE {
            *self.trial = Some(trial);
            return;
        }
        let goes_on = if trial.before - strain >= trial.before * IMPROVEMENT {
            trial.helped = true;
            trial.size = (trial.size * 2).min(SIZE_MAX);
            self.cut(&mut trial, victim, strain) || self.next_victim(&mut trial, index, strain)
        } else {
            self.try_otherwise(&mut trial, index, victim, strain)
        };
        if goes_on {
            *self.trial = Some(trial);
            return;
        }
        let step = self.step;
        let control = &mut self.book.apps[index].control;
        control.relief_useless = !trial.helped;
        if trial.helped {
            control.relief.pause(step, RELIEF_PAUSE);
        } else {
            control.relief.fail(step, RELIEF_WAIT);
        }
    }

    /// The last cut did not help: takes it back, and tries processor time, then another application.
    fn try_otherwise(
        &mut self,
        trial: &mut Trial,
        index: usize,
        victim: usize,
        strain: f64,
    ) -> bool {
        let by = trial.by;
        self.take_back(trial, victim);
        trial.size = 1;
        trial.memory_useless = true;
        if by == By::Memory && self.cut_cpu(trial, victim, strain) {
            return true;
        }
        self.next_victim(trial, index, strain)
    }

    fn take_back(&mut self, trial: &Trial, victim: usize) {
        self.set_limits(victim, trial.undo, Reason::Leftover);
        if !trial.helped {
            self.book.apps[victim].control.squeezed_for = None;
        }
    }

    /// Turns to the next stream in the order of yielding.
    fn next_victim(&mut self, trial: &mut Trial, index: usize, strain: f64) -> bool {
        while trial.tried.len() < VICTIMS_MAX {
            let victims = self.victims(index);
            let next = victims.into_iter().find(|&place| {
                let id = self.book.apps[place].spec.id;
                !trial.tried.contains(&id) && self.may_be_throttled(place, index)
            });
            let Some(next) = next else { return false };
            trial.victim = self.book.apps[next].spec.id;
            trial.tried.push(trial.victim);
            trial.memory_useless = false;
            if self.cut(trial, next, strain) {
                return true;
            }
        }
        false
    }

    /// A stream with traffic; under weighted sharing one with more of it by weight.
    pub(super) fn may_be_throttled(&self, place: usize, index: usize) -> bool {
        let app = &self.book.apps[place];
        if app.is_latency() {
            return false;
        }
        let bandwidth = |place: usize| {
            let seen = self.view(place)?;
            seen.bandwidth.as_ref().and_then(Reading::fresh)
        };
        let theirs = bandwidth(place);
        let least = self.options.thresholds.local_bandwidth / TRAFFIC_PARTS;
        if theirs.is_some_and(|theirs| theirs < least) {
            return false;
        }
        if self.options.sharing == Sharing::Strict || place < index {
            return true;
        }
        let (Some(theirs), Some(own)) = (theirs, bandwidth(index)) else {
            return false;
        };
        let weight = |place: usize| u128::from(self.book.apps[place].spec.weight.max(1));
        // A quarter more by weight: the two never throttle each other in turn.
        u128::from(theirs) * weight(index) * 4 > u128::from(own) * weight(place) * 5
    }

    /// Takes a step of memory, or of processor time where far traffic is unhealthy or no memory is left.
    fn cut(&mut self, trial: &mut Trial, victim: usize, strain: f64) -> bool {
        let app = &self.book.apps[victim];
        let seen = self.view(victim);
        let near = seen.map_or(0, |seen| seen.held[0].get());
        let near = app.claim(seen).min(near);
        let far_room = self.seen.tiers.iter().skip(1).fold(0u64, |sum, tier| {
            sum.saturating_add(tier.capacity.get().saturating_sub(tier.used.get()))
        });
        let unit = (size(&app.spec, seen) / MEMORY_PARTS).max(self.options.memory_step.get());
        let take = (unit * u64::from(trial.size)).min(near).min(far_room);
        if take == 0 || trial.memory_useless || self.too_many_faults() {
            return self.cut_cpu(trial, victim, strain);
        }
        self.remember(trial, victim, strain, By::Memory);
        let reason = Reason::YieldsBandwidth(trial.app);
        self.set_near(victim, near - take, reason);
        true
    }

    fn cut_cpu(&mut self, trial: &mut Trial, victim: usize, strain: f64) -> bool {
        let cpu = self.book.apps[victim].limits.cpu.min(CPU_ONE);
        let floor = self.options.cpu_floor;
        if cpu <= floor {
            return false;
        }
        self.remember(trial, victim, strain, By::Cpu);
        // Never more than a third at once: what is left of a hard-throttled stream is small compared with a step.
        let take = (self.options.cpu_step * trial.size).min((cpu / 3).max(1));
        let less = (cpu - take).max(floor);
        self.set_cpu(victim, less, Reason::YieldsBandwidth(trial.app));
        true
    }

    fn remember(&mut self, trial: &mut Trial, victim: usize, strain: f64, by: By) {
        trial.by = by;
        trial.before = strain;
        trial.undo = self.book.apps[victim].limits;
        trial.since = self.step;
        trial.since_instant = self.now;
        self.squeezed(victim, trial.app);
    }
}

/// Less than half a percent is no improvement.
const IMPROVEMENT: f64 = 0.005;
/// At most four steps are taken at once.
const SIZE_MAX: u32 = 4;
/// A step of memory is a twentieth of what the stream has, as a step of processor time is.
const MEMORY_PARTS: u64 = 20;
const VICTIMS_MAX: usize = 4;
/// An effect that has not come after five seconds will not.
const PATIENCE: u64 = 25;
/// Steps before throttling is tried again: after it helped, and (doubling) after it did not.
const RELIEF_PAUSE: u64 = 10;
const RELIEF_WAIT: u64 = 25;
