//! One run of the guardian with programs that call, launchers that send listeners, and enforcers that are killed, by a seed.
//!
//! Method: what the guardian decides is the product's ([`isolane_rdma_enforcer::guardian::custody`]), and so is the table of taken
//! calls. This module is the loop around it, the kernel's listeners, and enforcers, which record each call before they take the
//! next one. Faults: the loop is late, enforcers are killed between any two of their steps, their connection is full, listeners
//! are sent twice, other processes take calls, one account sends more listeners than it may, programs end. Units: microseconds.
//! Limits: no sockets and no threads; the guardian is not killed (`make kills PROGRAM=guardian` kills the real one).

mod enforcer;
mod kernel;

use crate::Broken;
use enforcer::{Connection, Enforcer};
use isolane_common_linux::account::Account;
use isolane_common_quantities::rng::Stream;
use isolane_rdma_enforcer::guardian::OnDeath;
use isolane_rdma_enforcer::guardian::custody::{Custody, Origin, Seen, Told};
use isolane_rdma_enforcer::guardian::kept::{LISTENERS, NotKept, PENALTY};
use isolane_rdma_enforcer::guardian::table::Table;
use kernel::{Call, Filter};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Nothing.
    None,
    /// The loop does not report the end of some enforcers.
    ForgetsEnd,
    /// The connection confirms some listeners that it loses.
    LosesListeners,
    /// The loop does not report that some listeners have no callers left.
    KeepsListeners,
    /// An enforcer records an answer before it gives it.
    RecordsEarly,
}

crate::counts! {
    /// Steps.
    steps,
    /// Listeners that were kept.
    kept,
    /// Listeners that were rejected.
    rejected,
    /// Calls.
    calls,
    /// Kills of enforcers.
    kills,
    /// Calls that an enforcer had taken when it was killed.
    orphans,
}

/// Longest time of a step.
const STEP_MAX_US: u64 = 20_000;
/// Time with faults, and without at the end.
const FAULTY_US: u64 = 30_000_000;
const CALM_US: u64 = 9_000_000;
/// Longest time by which the guardian's loop is late, beyond its tick of 0.1 s.
const LATE_MAX_US: u64 = 300_000;
/// A call goes on after this time: the loop's tick and lateness, one call of a listener a round, and an enforcer's steps.
const ANSWERED_WITHIN_US: u64 = 2_500_000;
/// Programs at a time.
const PROGRAMS_MAX: usize = 12;
/// Users. The last one floods.
const USERS: u64 = 4;
const FLOODER: u32 = USERS as u32 - 1;

struct World {
    stream: Stream,
    defect: Defect,
    begun: Instant,
    now_us: u64,
    custody: Custody<Filter, Connection>,
    /// When the loop looks next.
    due_us: u64,
    enforcer: Option<Enforcer>,
    /// An enforcer that was killed, whose end the loop has not noticed.
    is_ending: bool,
    on_death: OnDeath,
    filters: BTreeMap<u64, Filter>,
    next: u64,
    /// Until when a user's listeners are rejected.
    penalties_us: BTreeMap<u32, u64>,
    report: Report,
}

/// Runs one seed. The error is the first broken invariant.
pub fn run(seed: u64, defect: Defect) -> Result<Report, Broken> {
    let begun = Instant::now();
    let table = Table::create().expect("memory for a table");
    let mut world = World {
        stream: Stream::named(seed, "guardian"),
        defect,
        begun,
        now_us: 0,
        custody: Custody::new(table, begun),
        due_us: 0,
        enforcer: None,
        is_ending: false,
        on_death: OnDeath::Open,
        filters: BTreeMap::new(),
        next: 0,
        penalties_us: BTreeMap::new(),
        report: Report::default(),
    };
    let played = world.play();
    let place = format!("{} ms", world.now_us / 1_000);
    played.map_err(|what| Broken::of("guardian", seed, place, what))?;
    Ok(world.report)
}

impl World {
    fn play(&mut self) -> Result<(), String> {
        self.launch(0)?;
        while self.now_us < FAULTY_US {
            self.step(true)?;
        }
        // Without an enforcer calls go on, whatever the last one wished.
        self.kill();
        self.run_until(CALM_US / 3)?;
        self.connect(OnDeath::Open);
        self.run_until(CALM_US / 3)?;
        self.kill();
        self.run_until(CALM_US / 3)?;
        for filter in self.filters.values() {
            filter.end();
        }
        self.run_until(CALM_US / 3)?;
        match self.custody.is_done(self.now()) {
            true => Ok(()),
            false => Err("the guardian does not end after its last program".to_owned()),
        }
    }

    fn run_until(&mut self, for_us: u64) -> Result<(), String> {
        let until_us = self.now_us + for_us;
        while self.now_us < until_us {
            self.step(false)?;
        }
        Ok(())
    }

    fn now(&self) -> Instant {
        self.begun + Duration::from_micros(self.now_us)
    }

    fn step(&mut self, is_faulty: bool) -> Result<(), String> {
        self.report.steps += 1;
        self.now_us += 1 + self.stream.below(STEP_MAX_US);
        if is_faulty {
            self.fault()?;
        }
        for filter in self.filters.values() {
            if self.stream.chance(1, 8) {
                self.report.calls += u64::from(filter.call(self.now_us));
            }
        }
        if let Some(enforcer) = &mut self.enforcer {
            let steps = self.stream.below(30);
            for _ in 0..steps {
                enforcer.step(&mut self.stream, self.defect == Defect::RecordsEarly);
            }
        }
        if self.now_us >= self.due_us {
            self.round();
            let late = is_faulty && self.stream.chance(1, 10);
            let late_us = if late { LATE_MAX_US } else { STEP_MAX_US };
            self.due_us = self.now_us + self.stream.below(late_us);
        }
        self.check()
    }

    fn fault(&mut self) -> Result<(), String> {
        match self.stream.below(300) {
            0..=19 => {
                let user = self.stream.below(USERS) as u32;
                self.launch(user)?;
            }
            20..=29 => {
                if let Some(filter) = self.any() {
                    filter.end();
                }
            }
            30..=39 => {
                // Sent again, by itself or by another process.
                if let Some(filter) = self.any()
                    && self.custody.listeners().any(|(_, kept)| kept.is(&filter))
                {
                    let kept = self.keep(filter, FLOODER + 1);
                    if kept != Err(NotKept::Duplicate) {
                        return Err(format!("a listener that is kept is sent again: {kept:?}"));
                    }
                }
            }
            40 => self.flood()?,
            41..=42 => {
                if let Some(filter) = self.any().filter(|filter| filter.user() == FLOODER) {
                    filter.take_by_another();
                }
            }
            43..=45 if self.enforcer.is_none() => {
                let on_death = match self.stream.chance(1, 2) {
                    true => OnDeath::Open,
                    false => OnDeath::Closed,
                };
                self.connect(on_death);
            }
            55 => self.kill(),
            60..=69 => {
                if let Some(enforcer) = &self.enforcer {
                    enforcer.fill(self.stream.below(3) as usize);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn any(&mut self) -> Option<Filter> {
        let count = self.filters.len() as u64;
        let at = self.stream.below(count.max(1)) as usize;
        self.filters.values().nth(at).cloned()
    }

    fn keep(&mut self, filter: Filter, user: u32) -> Result<(), NotKept> {
        let from = Origin {
            process: 1,
            user,
            has_authority: false,
            account: Account::of_user(user),
            bytes: b"{}",
        };
        let now = self.now();
        let kept = self.custody.keep(filter, from, now);
        match kept {
            Ok(()) => self.report.kept += 1,
            Err(_) => self.report.rejected += 1,
        }
        kept
    }

    /// A program starts, and its launcher sends its listener.
    fn launch(&mut self, user: u32) -> Result<(), String> {
        if self.filters.len() >= PROGRAMS_MAX {
            return Ok(());
        }
        let filter = Filter::new(self.next, user);
        self.next += 1;
        let is_penalised = self
            .penalties_us
            .get(&user)
            .is_some_and(|until| *until > self.now_us);
        match self.keep(filter.clone(), user) {
            Ok(()) if is_penalised => Err(format!("user {user} sends a listener in its penalty")),
            Ok(()) => {
                self.filters.insert(filter.number(), filter);
                Ok(())
            }
            Err(NotKept::Penalty) if is_penalised => Ok(()),
            Err(NotKept::Full(_)) if user == FLOODER => Ok(()),
            Err(reason) => Err(format!("a listener of user {user} is rejected: {reason:?}")),
        }
    }

    /// One user sends as many listeners as it gets places for, without programs behind them.
    fn flood(&mut self) -> Result<(), String> {
        for count in 0..=LISTENERS.per_account {
            let filter = Filter::new(self.next, FLOODER);
            self.next += 1;
            filter.end();
            match self.keep(filter, FLOODER) {
                Ok(()) if count == LISTENERS.per_account => {
                    return Err(format!("one user has more than {count} places"));
                }
                Ok(()) => {}
                Err(_) => break,
            }
        }
        Ok(())
    }

    fn connect(&mut self, on_death: OnDeath) {
        // The guardian rejects another one until it has noticed the end of the last.
        if self.custody.enforcer().is_some() || self.is_ending {
            return;
        }
        let memory = self.custody.table().as_fd().try_clone_to_owned();
        let connection = Connection::new(self.defect == Defect::LosesListeners);
        self.enforcer = Some(Enforcer::new(
            Table::open(memory.expect("a descriptor")).expect("the guardian's table"),
            connection.clone(),
        ));
        self.custody.connected(connection);
        let now = self.now();
        self.custody.told(Told::OnDeath(on_death), now);
        self.on_death = on_death;
    }

    fn kill(&mut self) {
        let Some(enforcer) = self.enforcer.take() else {
            return;
        };
        self.report.kills += 1;
        self.report.orphans += enforcer.orphans();
        let forgets = self.defect == Defect::ForgetsEnd && self.stream.chance(1, 3);
        self.is_ending = !forgets;
    }

    /// What `serve.rs` does in a round.
    fn round(&mut self) {
        let now = self.now();
        let ready: Vec<(usize, Seen)> = self
            .custody
            .listeners()
            .filter_map(|(slot, filter)| Some((slot, filter.look(self.custody.resumes())?)))
            .collect();
        for (slot, seen) in ready {
            if seen == Seen::Ended
                && self.defect == Defect::KeepsListeners
                && self.stream.chance(1, 3)
            {
                if let Some(filter) = self.custody.listener(slot) {
                    filter.hide();
                }
                continue;
            }
            if seen == Seen::Taken {
                self.penalise(slot);
            }
            self.custody.seen(slot, seen, now);
        }
        if std::mem::take(&mut self.is_ending) {
            self.custody.told(Told::Gone, now);
        }
        while let Some(slot) = self.enforcer.as_mut().and_then(Enforcer::sheds) {
            self.penalise(slot);
            self.custody.told(Told::Shed(slot), now);
        }
        self.custody.pass_on();
        self.filters
            .retain(|_, filter| filter.is_alive() || filter.has_calls());
    }

    fn penalise(&mut self, slot: usize) {
        if let Some(filter) = self.custody.listener(slot) {
            let until_us = self.now_us + PENALTY.as_micros() as u64;
            self.penalties_us.insert(filter.user(), until_us);
            // Its calls fail from now on, and its program ends.
            filter.end();
            filter.drop_calls();
        }
    }

    /// No call waits too long, and each listener is kept once.
    fn check(&self) -> Result<(), String> {
        let waits_for_enforcer = self.on_death == OnDeath::Closed && self.enforcer.is_none();
        let mut kept: Vec<u64> = self
            .custody
            .listeners()
            .map(|(_, filter)| filter.number())
            .collect();
        let count = kept.len();
        kept.sort_unstable();
        kept.dedup();
        if kept.len() != count {
            return Err("a listener is kept twice".to_owned());
        }
        for filter in self.filters.values() {
            if filter.is_alive() && kept.binary_search(&filter.number()).is_err() {
                return Err(format!(
                    "listener {} of a living program is not kept",
                    filter.number()
                ));
            }
            let oldest = filter.oldest(|call| *call != Call::Excused);
            let Some((id, since_us)) = oldest.filter(|_| !waits_for_enforcer) else {
                filter.waits_from(self.now_us);
                continue;
            };
            let waited_us = self.now_us - since_us.max(filter.waited_from_us());
            if waited_us > ANSWERED_WITHIN_US {
                return Err(format!(
                    "call {id} of listener {} waits for {} ms",
                    filter.number(),
                    waited_us / 1_000
                ));
            }
        }
        Ok(())
    }
}
