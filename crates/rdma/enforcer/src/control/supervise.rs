//! The loop behind [`super::supervisor::Supervisor`].

use super::pace::Paces;
use super::reader::{REST, Read, Reader};
use super::supervisor::{Calls, Mode, Tenant, WAITING_MAX};
use super::waiting::{Entry, Waiting};
use crate::guardian::table::Table;
use crate::seccomp::call::{Class, Verb, classify};
use crate::seccomp::interrupt::{Armed, Interrupter};
use crate::seccomp::notify::{Listener, Notification, Received, Resumed, read_memory};
use isolane_common_linux::{events, say_error};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

/// Orders of the owner.
#[derive(Debug)]
pub(super) enum Command {
    Watch {
        listener: Listener,
        tenant: usize,
        slot: Option<usize>,
    },
    Report(Sender<Vec<Calls>>),
    Stop,
}

/// Largest number of epoll events per round.
const EVENTS: usize = 64;
const WAKE: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;
const SECOND: u64 = 1_000_000_000;

#[derive(Debug)]
struct Watched {
    listener: Listener,
    tenant: u32,
    slot: Option<usize>,
    /// Ids of calls that were received and not answered.
    taken: BTreeSet<u64>,
    paused: bool,
}

#[derive(Debug)]
struct Account {
    paces: Paces,
    calls: Calls,
    /// Whether the listeners are left unread because too many calls wait.
    paused: bool,
    /// The tenant's memory is not read before this time, nor before the abandoned helper has ended.
    unread: Option<(u64, Arc<AtomicBool>)>,
}

#[derive(Debug)]
pub(super) struct Loop {
    mode: Mode,
    accounts: Vec<Account>,
    watched: Vec<Option<Watched>>,
    waiting: Waiting,
    table: Option<Table>,
    reader: Reader,
    epoll: OwnedFd,
    timer: OwnedFd,
    armed: Option<u64>,
    wake: Arc<OwnedFd>,
    commands: Receiver<Command>,
    /// Slots of dropped listeners whose calls another process takes, until the owner collects them.
    shed: Arc<Mutex<Vec<usize>>>,
}

impl Loop {
    pub(super) fn new(
        tenants: Vec<Tenant>,
        mode: Mode,
        table: Option<Table>,
        wake: Arc<OwnedFd>,
        commands: Receiver<Command>,
        shed: Arc<Mutex<Vec<usize>>>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        epoll::add(&epoll, &*wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN)?;
        let mut events = Self {
            mode,
            accounts: Vec::new(),
            watched: Vec::new(),
            waiting: Waiting::default(),
            table,
            reader: Reader::new(read_memory),
            epoll,
            timer,
            armed: None,
            wake,
            commands,
            shed,
        };
        tenants.into_iter().for_each(|tenant| events.add(tenant));
        Ok(events)
    }

    /// Runs until [`Command::Stop`].
    pub(super) fn run(&mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        let interrupter = Interrupter::of_this_thread().expect("a timer for a new thread");
        loop {
            events::wait(&self.epoll, &mut events).expect("the set is ours and valid");
            let is_ours = |event: &epoll::Event| matches!(event.data.u64(), WAKE | TIMER);
            let woken = events.iter().any(|event| event.data.u64() == WAKE);
            if events.iter().any(|event| event.data.u64() == TIMER) {
                drain(&self.timer);
            }
            if !events.iter().all(is_ours) {
                let bounded = interrupter.arm();
                for event in events.iter().filter(|event| !is_ours(event)) {
                    self.ready(event.data.u64() as usize, event.flags, &bounded);
                }
            }
            self.release(now());
            if woken {
                drain(&self.wake);
                while let Ok(command) = self.commands.try_recv() {
                    if matches!(command, Command::Stop) {
                        self.release(u64::MAX);
                        return;
                    }
                    self.obey(command);
                }
            }
            self.arm();
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Watch {
                listener,
                tenant,
                slot,
            } => self.watch(listener, tenant, slot),
            // A caller that no longer waits needs no answer.
            Command::Report(reply) => drop(reply.send(self.report())),
            Command::Stop => {}
        }
    }

    fn add(&mut self, tenant: Tenant) {
        self.accounts.push(Account {
            paces: Paces::new(&tenant.limits),
            calls: Calls {
                tenant: tenant.name,
                ..Calls::default()
            },
            paused: false,
            unread: None,
        });
    }

    fn report(&self) -> Vec<Calls> {
        let report = |(place, account): (usize, &Account)| {
            let place = place as u32;
            let listeners = self.watched.iter().flatten();
            let mut calls = account.calls.clone();
            calls.waiting = self.waiting.of(place) as u64;
            calls.listeners = listeners.filter(|watched| watched.tenant == place).count() as u64;
            calls
        };
        self.accounts.iter().enumerate().map(report).collect()
    }

    fn watch(&mut self, listener: Listener, tenant: usize, slot: Option<usize>) {
        assert!(tenant < self.accounts.len(), "a tenant in place {tenant}");
        let free = self.watched.iter().position(Option::is_none);
        let place = free.unwrap_or(self.watched.len());
        let data = EventData::new_u64(place as u64);
        if let Err(error) = epoll::add(&self.epoll, &listener, data, EventFlags::IN) {
            // Close the listener: unwatched, its calls would wait forever. After the close they fail with ENOSYS,
            // unless a guardian holds the listener.
            say_error(&format!(
                "isolane: a listener of {} cannot be watched: {error}",
                self.name(tenant)
            ));
            return;
        }
        let mut watched = Watched {
            listener,
            tenant: tenant as u32,
            slot,
            taken: BTreeSet::new(),
            paused: false,
        };
        self.take_over(&mut watched);
        if free.is_none() {
            self.watched.push(None);
        }
        self.watched[place] = Some(watched);
    }

    /// Resumes the calls that an earlier supervisor received and did not answer.
    fn take_over(&mut self, watched: &mut Watched) {
        let (Some(table), Some(slot)) = (&self.table, watched.slot) else {
            return;
        };
        let listener = &watched.listener;
        for id in table
            .perhaps_taken(slot)
            .filter(|&id| listener.is_waiting(id))
        {
            if matches!(listener.resume(id), Ok(Resumed::Continues)) {
                let calls = &mut self.accounts[watched.tenant as usize].calls;
                calls.trapped += 1;
                calls.resumed += 1;
            }
        }
        table.set(slot, None, None);
    }

    fn name(&self, tenant: usize) -> &str {
        &self.accounts[tenant].calls.tenant
    }

    /// Handles a listener that has a call or has no callers left.
    fn ready(&mut self, place: usize, flags: EventFlags, bounded: &Armed<'_>) {
        let Some(Some(watched)) = self.watched.get_mut(place) else {
            return;
        };
        if !flags.contains(EventFlags::IN) {
            if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
                self.forget(place);
            }
            return;
        }
        if watched.paused {
            return;
        }
        match watched.listener.receive(bounded) {
            Ok(Received::Call(notification)) => self.arrived(place, &notification),
            Ok(Received::Gone) => {}
            Ok(Received::Taken) => {
                let (tenant, slot) = (watched.tenant as usize, watched.slot);
                say_error(&format!(
                    "isolane: a listener of {} is dropped: another process takes its calls",
                    self.name(tenant)
                ));
                self.accounts[tenant].calls.shed += 1;
                let mut shed = self.shed.lock().unwrap_or_else(PoisonError::into_inner);
                shed.extend(slot);
                drop(shed);
                self.forget(place);
            }
            Err(error) => {
                let tenant = watched.tenant as usize;
                say_error(&format!(
                    "isolane: a listener of {} is lost: {error}",
                    self.name(tenant)
                ));
                self.forget(place);
            }
        }
    }

    fn arrived(&mut self, place: usize, notification: &Notification) {
        let watched = self.watched[place].as_mut().expect("the caller has it");
        watched.taken.insert(notification.id);
        note(self.table.as_ref(), watched);
        let (tenant, id) = (watched.tenant, notification.id);
        let verb = self.verb_of(place, notification);
        let account = &mut self.accounts[tenant as usize];
        account.calls.trapped += 1;
        *account.calls.verbs.entry(verb).or_default() += 1;
        let now = now();
        if self.mode == Mode::Shadow {
            account.observe(now, verb.class());
            return self.resume(place, id);
        }
        let due = account.paces.of_class(now, verb.class());
        if due > now {
            return self.hold(now, due, place, tenant, id, true);
        }
        self.ask_all(now, place, tenant, id);
    }

    /// Reads the verb from the caller's memory.
    fn verb_of(&mut self, place: usize, notification: &Notification) -> Verb {
        let watched = self.watched[place].as_ref().expect("the caller has it");
        let account = &mut self.accounts[watched.tenant as usize];
        let unknown = classify(&[]);
        if let Some((until, has_ended)) = &account.unread {
            if now() < *until || !has_ended.load(Ordering::Acquire) {
                return unknown;
            }
            account.unread = None;
        }
        match self.reader.read(notification.thread, notification.header) {
            // The bytes are the caller's only if the caller still waits.
            Ok(Read::Header(header)) if watched.listener.is_waiting(notification.id) => {
                classify(header.bytes())
            }
            Ok(Read::Header(_)) | Err(_) => unknown,
            Ok(Read::LeftBehind(has_ended)) => {
                let rest = u64::try_from(REST.as_nanos()).expect("seconds");
                account.unread = Some((now() + rest, has_ended));
                unknown
            }
        }
    }

    /// Checks the bucket of all calls after the class admitted the call.
    fn ask_all(&mut self, now: u64, place: usize, tenant: u32, id: u64) {
        let due = self.accounts[tenant as usize].paces.of_all(now);
        match due > now {
            true => self.hold(now, due, place, tenant, id, false),
            false => self.resume(place, id),
        }
    }

    fn hold(&mut self, now: u64, due: u64, place: usize, tenant: u32, id: u64, for_class: bool) {
        self.waiting.push(due, place as u32, tenant, id, for_class);
        let calls = &mut self.accounts[tenant as usize].calls;
        calls.delayed += 1;
        calls.delay_ns = calls.delay_ns.saturating_add(due - now);
        if self.waiting.of(tenant) >= WAITING_MAX {
            self.sweep(tenant);
            self.pause(tenant, self.waiting.of(tenant) >= WAITING_MAX);
        }
    }

    /// Removes waiting calls whose callers have ended.
    fn sweep(&mut self, tenant: u32) {
        let (watched, table) = (&mut self.watched, self.table.as_ref());
        let calls = &mut self.accounts[tenant as usize].calls;
        self.waiting.retain(|entry| {
            let Some(Some(of)) = watched.get_mut(entry.listener as usize) else {
                return false;
            };
            let stays = entry.tenant != tenant || of.listener.is_waiting(entry.id);
            if !stays {
                calls.gone += 1;
                of.taken.remove(&entry.id);
                note(table, of);
            }
            stays
        });
    }

    /// Pauses or resumes the reading of a tenant's listeners.
    fn pause(&mut self, tenant: u32, paused: bool) {
        let account = &mut self.accounts[tenant as usize];
        if account.paused == paused {
            return;
        }
        account.paused = paused;
        for (place, watched) in self.watched.iter_mut().enumerate() {
            let Some(watched) = watched.as_mut().filter(|watched| watched.tenant == tenant) else {
                continue;
            };
            watched.paused = paused;
            let flags = match paused {
                true => EventFlags::empty(),
                false => EventFlags::IN,
            };
            let data = EventData::new_u64(place as u64);
            epoll::modify(&self.epoll, &watched.listener, data, flags)
                .expect("the listener is in the set until it is forgotten");
        }
    }

    /// Resumes all calls whose turn has come.
    fn release(&mut self, now: u64) {
        while let Some(entry) = self.waiting.pop_due(now) {
            let Entry {
                listener,
                tenant,
                id,
                for_class,
                ..
            } = entry;
            match for_class && now < u64::MAX {
                true => self.ask_all(now, listener as usize, tenant, id),
                false => self.resume(listener as usize, id),
            }
            if self.accounts[tenant as usize].paused && self.waiting.of(tenant) < WAITING_MAX / 2 {
                self.pause(tenant, false);
            }
        }
    }

    fn resume(&mut self, place: usize, id: u64) {
        let Some(Some(watched)) = self.watched.get_mut(place) else {
            return;
        };
        let calls = &mut self.accounts[watched.tenant as usize].calls;
        match watched.listener.resume(id) {
            Ok(Resumed::Continues) => calls.resumed += 1,
            Ok(Resumed::Gone) => calls.gone += 1,
            Err(error) => say_error(&format!(
                "isolane: a call of {} cannot go on: {error}",
                calls.tenant
            )),
        }
        watched.taken.remove(&id);
        note(self.table.as_ref(), watched);
    }

    /// Removes a listener that has no callers left.
    fn forget(&mut self, place: usize) {
        let Some(watched) = self.watched[place].take() else {
            return;
        };
        // Closing the descriptor does not remove it from the set while the guardian holds a copy.
        let _ = epoll::delete(&self.epoll, &watched.listener);
        let calls = &mut self.accounts[watched.tenant as usize].calls;
        self.waiting.retain(|entry| {
            let stays = entry.listener as usize != place;
            calls.gone += u64::from(!stays);
            stays
        });
    }

    /// Sets the timer to the next turn.
    fn arm(&mut self) {
        let due = self.waiting.next_due();
        if due == self.armed {
            return;
        }
        self.armed = due;
        let at = due.unwrap_or(0);
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let value = Timespec {
            // At least one nanosecond: zero would disarm.
            tv_sec: (at / SECOND) as i64,
            tv_nsec: (at % SECOND).max(u64::from(due == Some(0))) as i64,
        };
        let spec = Itimerspec {
            it_interval: zero,
            it_value: value,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec)
            .expect("a valid time for a timer of ours");
    }
}

impl Account {
    /// Counts a call that would have waited. Such a call takes no turn.
    fn observe(&mut self, now: u64, class: Class) {
        let mut paces = self.paces.clone();
        let due = paces.of_class(now, class).max(paces.of_all(now));
        if due <= now {
            self.paces = paces;
            return;
        }
        self.calls.delayed += 1;
        self.calls.delay_ns = self.calls.delay_ns.saturating_add(due - now);
    }
}

/// Writes the ids of received calls to the table.
fn note(table: Option<&Table>, watched: &Watched) {
    if let (Some(table), Some(slot)) = (table, watched.slot) {
        let ends = (watched.taken.first(), watched.taken.last());
        table.set(slot, ends.0.copied(), ends.1.copied());
    }
}

fn drain(descriptor: &OwnedFd) {
    // Not readable any more: another round has received the call.
    let _ = rustix::io::read(descriptor, &mut [0_u8; 8]);
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * SECOND + time.tv_nsec as u64
}
