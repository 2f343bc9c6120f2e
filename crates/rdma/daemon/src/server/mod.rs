//! The event loop: waits, reads, calls the [`Governor`], writes.
//!
//! Problem: one thread serves a thousand processes within a millisecond, and none of them may block it. Method: one
//! epoll with the listening socket, every session's socket, process and event counter, one timer, and the attachments.
//! The governor settles after each batch of events, so leases are computed once, however many processes signal
//! together. When nothing is due, the loop sleeps without a timer. Limits: one thread; each session may send a few
//! messages before the others have their turn.

mod enforcers;
mod guests;
mod socket;

use crate::attachment::Attachment;
use crate::governor::{Governor, SessionKey};
use crate::session::{DEAF_NS, Heard, Link};
use guests::{GUESTS, Guest, Guests};
use isolane_common_linux::account::{Account, NoPlace};
use isolane_common_linux::events;
use isolane_common_linux::say_error;
use isolane_common_linux::tally::Shed;
use isolane_rdma_session::message::{NO_METER, ToDaemon, ToShim};
use isolane_rdma_session::region::REGION_BYTES;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use socket::{Accepted, ListeningSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

/// Why the daemon cannot run.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum ServerError {
    #[error("cannot {what} the socket {path}: {error}; choose another with --socket, or run with the privilege to write there", path = .path.display())]
    Socket {
        what: &'static str,
        path: PathBuf,
        error: Errno,
    },
    #[error("cannot make the directory {path} of the socket: {error}; choose another with --socket", path = .path.display())]
    Folder {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("a daemon answers at {path} already; stop it, or choose another socket with --socket", path = .path.display())]
    Taken { path: PathBuf },
    #[error("cannot {what}: {error}")]
    Kernel { what: &'static str, error: Errno },
}

/// The event loop; see the module.
pub struct Server {
    governor: Governor,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// Time of the armed timer.
    armed_ns: Option<u64>,
    listening: ListeningSocket,
    /// Kept open while epoll watches it.
    _stop: OwnedFd,
    links: Vec<(u32, Option<Link>)>,
    links_free: Vec<u32>,
    /// Link of each session, by the session's place.
    link_of: Vec<u32>,
    guests: Guests,
    /// Time from which a missing descriptor is reported again.
    full_next_ns: u64,
    enforcer: Option<Token>,
    deaf: Vec<(u64, Token)>,
    attachments: Vec<Box<dyn Attachment>>,
}

/// Source of an event: kind, place, and how many users the place had before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token {
    kind: u8,
    index: u32,
    epoch: u32,
}

impl Token {
    fn data(self) -> EventData {
        let bits = u64::from(self.kind) << 56 | u64::from(self.index) << 32 | u64::from(self.epoch);
        EventData::new_u64(bits)
    }

    fn of(data: EventData) -> Self {
        let bits = data.u64();
        Self {
            kind: (bits >> 56) as u8,
            index: (bits >> 32) as u32 & 0xff_ffff,
            epoch: bits as u32,
        }
    }

    fn of_daemon(kind: u8) -> Self {
        Self {
            kind,
            index: 0,
            epoch: 0,
        }
    }
}

const LISTENING: u8 = 0;
const TIMER: u8 = 1;
const STOP: u8 = 2;
const ATTACHMENT: u8 = 3;
const SOCKET: u8 = 4;
const PROCESS: u8 = 5;
const SIGNALS: u8 = 6;

/// Time of CLOCK_MONOTONIC, ns.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

impl Server {
    /// Makes a daemon that listens at the configured path until `stop` is readable. Fails if the socket cannot be
    /// opened.
    pub fn new(mut governor: Governor, stop: OwnedFd) -> Result<Self, ServerError> {
        let configured = governor.config().session_places();
        let (sessions, guests) = socket::within_open_files(configured, GUESTS);
        if sessions.total < configured.total {
            governor.bound_sessions(sessions.total);
        }
        let config = governor.config();
        let listening = ListeningSocket::open(&config.socket, config.socket_mode)?;
        let failed = |what| move |error| ServerError::Kernel { what, error };
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed("make an epoll"))?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )
        .map_err(failed("make a timer"))?;
        let watch = |file: &OwnedFd, kind, flags| {
            epoll::add(&epoll, file, Token::of_daemon(kind).data(), flags)
                .map_err(failed("watch a descriptor"))
        };
        watch(&listening.socket, LISTENING, EventFlags::IN)?;
        // The timer is set again after each expiry, so its counter need not be read.
        watch(&timer, TIMER, EventFlags::IN | EventFlags::ET)?;
        watch(&stop, STOP, EventFlags::IN)?;
        Ok(Self {
            governor,
            epoll,
            timer,
            armed_ns: None,
            listening,
            _stop: stop,
            links: Vec::new(),
            links_free: Vec::new(),
            link_of: Vec::new(),
            guests: Guests::new(guests),
            full_next_ns: 0,
            enforcer: None,
            deaf: Vec::new(),
            attachments: Vec::new(),
        })
    }

    /// Adds an attachment. Fails if the kernel cannot watch its descriptor.
    pub fn attach(&mut self, attachment: Box<dyn Attachment>) -> Result<(), ServerError> {
        if let Some(file) = attachment.descriptor() {
            let token = Token {
                index: self.attachments.len() as u32,
                ..Token::of_daemon(ATTACHMENT)
            };
            epoll::add(&self.epoll, file, token.data(), EventFlags::IN).map_err(|error| {
                ServerError::Kernel {
                    what: "watch an attachment",
                    error,
                }
            })?;
        }
        self.attachments.push(attachment);
        Ok(())
    }

    /// Serves until the stop descriptor is readable, then ends all sessions. Fails if the kernel cannot wait for
    /// events.
    pub fn run(mut self) -> Result<(), ServerError> {
        let mut events = Vec::with_capacity(EVENTS);
        self.finish(now_ns())?;
        loop {
            events::wait(&self.epoll, &mut events).map_err(|error| ServerError::Kernel {
                what: "wait for events",
                error,
            })?;
            let now_ns = now_ns();
            for event in &events {
                let token = Token::of(event.data);
                if token.kind == STOP {
                    self.close();
                    return Ok(());
                }
                self.handle(token, now_ns);
            }
            self.finish(now_ns)?;
        }
    }

    fn handle(&mut self, token: Token, now_ns: u64) {
        match token.kind {
            LISTENING => self.admit(now_ns),
            TIMER => self.armed_ns = None,
            ATTACHMENT => {
                if let Some(attachment) = self.attachments.get_mut(token.index as usize) {
                    attachment.ready(now_ns, &mut self.governor);
                }
            }
            SOCKET => self.hear(token, now_ns),
            PROCESS => self.disconnect(token, now_ns, None),
            SIGNALS => self.signal(token, now_ns),
            _ => {}
        }
    }

    /// Handles due work, orders and looks, and sets the next timer.
    fn finish(&mut self, now_ns: u64) -> Result<(), ServerError> {
        self.resume_wakeups(now_ns);
        while let Some(guest) = self.guests.next_late(now_ns) {
            self.guests.tally.count(|figures| figures.late_total += 1);
            self.drop_guest(guest, now_ns, "no Hello within 2 s of the connection");
        }
        for attachment in &mut self.attachments {
            if attachment.deadline_ns().is_some_and(|due| due <= now_ns) {
                attachment.ready(now_ns, &mut self.governor);
            }
        }
        match self.governor.next_deadline_ns() {
            Some(due) if due <= now_ns => self.governor.advance(now_ns),
            _ => self.governor.settle(now_ns),
        }
        while let Some((device, order)) = self.governor.take_order() {
            for attachment in &mut self.attachments {
                attachment.order(now_ns, device, &order);
            }
        }
        while let Some(key) = self.governor.take_look() {
            if let Some(link) = self.link_of_session(key) {
                // A process that does not read its socket sees the counter in its memory.
                let _ = link.say(&ToShim::Look);
            }
        }
        self.arm()
    }

    fn arm(&mut self) -> Result<(), ServerError> {
        let attached = self.attachments.iter().filter_map(|one| one.deadline_ns());
        let deaf = self.deaf.iter().map(|(until, _)| *until);
        let own = [self.governor.next_deadline_ns(), self.guests.next_ns()];
        let due = attached.chain(deaf).chain(own.into_iter().flatten()).min();
        if due == self.armed_ns {
            return Ok(());
        }
        let nothing = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // Zero would disarm the timer.
        let at = due.map_or(nothing, |due| Timespec {
            tv_sec: (due.max(1) / 1_000_000_000).cast_signed(),
            tv_nsec: (due.max(1) % 1_000_000_000).cast_signed(),
        });
        let setting = Itimerspec {
            it_interval: nothing,
            it_value: at,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &setting).map_err(|error| {
            ServerError::Kernel {
                what: "set the timer",
                error,
            }
        })?;
        self.armed_ns = due;
        Ok(())
    }

    fn admit(&mut self, now_ns: u64) {
        for _ in 0..GUESTS_PER_TURN {
            match self.listening.accept() {
                Accepted::Nothing => return,
                Accepted::NoDescriptor => self.say_full(now_ns),
                Accepted::Connection(socket) => self.seat(socket, now_ns),
            }
        }
    }

    /// Once in ten seconds, so that connections do not fill the log.
    fn say_full(&mut self, now_ns: u64) {
        self.guests
            .tally
            .count(|figures| figures.starved_total += 1);
        if now_ns >= self.full_next_ns {
            self.full_next_ns = now_ns + 10_000_000_000;
            say_error(
                "isolaned: no file descriptor is left for one more process; raise the limit of open files (ulimit -n)",
            );
        }
    }

    fn seat(&mut self, socket: OwnedFd, now_ns: u64) {
        // The process has ended, or no descriptor is left: the closed socket shows it to the process.
        let Ok(link) = Link::new(socket, now_ns) else {
            return;
        };
        self.guests
            .tally
            .count(|figures| figures.accepted_total += 1);
        while let Some(guest) = self.guests.in_the_way(&link.account) {
            self.guests.tally.shed(Shed::Place);
            self.drop_guest(guest, now_ns, "too many processes connect at once; retry");
        }
        let index = self.links_free.pop().unwrap_or_else(|| {
            self.links.push((0, None));
            (self.links.len() - 1) as u32
        });
        let epoch = self.links[index as usize].0;
        let token = |kind| Token { kind, index, epoch };
        let watched = epoll::add(
            &self.epoll,
            &link.socket,
            token(SOCKET).data(),
            EventFlags::IN | EventFlags::RDHUP,
        )
        .and_then(|()| match link.process() {
            Some(process) => {
                epoll::add(&self.epoll, process, token(PROCESS).data(), EventFlags::IN)
            }
            None => Ok(()),
        });
        if watched.is_err() {
            self.links_free.push(index);
            return;
        }
        self.guests
            .add((now_ns, (index, epoch)), link.account.clone());
        self.links[index as usize].1 = Some(link);
        // If its `Hello` has already arrived, it needs no guest place.
        self.hear(token(SOCKET), now_ns);
    }

    /// Ends a guest's connection.
    fn drop_guest(&mut self, guest: Guest, now_ns: u64, reason: &str) {
        let (_, (index, epoch)) = guest;
        let token = Token {
            kind: SOCKET,
            index,
            epoch,
        };
        self.disconnect(token, now_ns, Some(reason.to_owned()));
        // There is nothing left to remove, unless the link was removed already.
        self.guests.remove(guest);
    }

    fn hear(&mut self, token: Token, now_ns: u64) {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(link) = self.link_mut(token) else {
                return;
            };
            match link.hear(now_ns) {
                Heard::Nothing => return,
                Heard::Gone => return self.disconnect(token, now_ns, None),
                Heard::Nonsense(reason) => return self.disconnect(token, now_ns, Some(reason)),
                Heard::Message(message) => match self.answer(token, message, now_ns) {
                    Ok(()) => {}
                    Err(reason) => return self.disconnect(token, now_ns, Some(reason)),
                },
            }
        }
    }

    /// Handles a message. An error ends the connection and is sent to the process.
    fn answer(&mut self, token: Token, message: ToDaemon, now_ns: u64) -> Result<(), String> {
        let link = self.link_mut(token).expect("it spoke");
        match (link.key, message) {
            (None, hello @ ToDaemon::Hello { .. }) if !self.enforces(token) => {
                self.greet(token, hello, now_ns)
            }
            (Some(key), ToDaemon::Open { device }) => {
                let meters = self.governor.open(now_ns, key, &device);
                self.link_mut(token).expect("as above").open(meters)
            }
            (Some(key), ToDaemon::OpenReads { device, source }) => {
                let reads = self.governor.open_reads(now_ns, key, &device, source);
                self.link_mut(token)
                    .expect("as above")
                    .open([NO_METER, reads])
            }
            (None, ToDaemon::Enforce) if !self.enforces(token) => self.heed(token),
            (_, message @ (ToDaemon::Limit { .. } | ToDaemon::Belongs { .. })) => {
                self.take_limit(token, &message)
            }
            (_, ToDaemon::Enforce | ToDaemon::Hello { .. }) => Err("a second greeting".to_owned()),
            (None, _) => Err("a device before Hello".to_owned()),
        }
    }

    fn greet(&mut self, token: Token, hello: ToDaemon, now_ns: u64) -> Result<(), String> {
        let link = self.link_mut(token).expect("it spoke");
        let who = link.who(hello).expect("it is a greeting");
        let guest = (link.since_ns, (token.index, token.epoch));
        while let Err(refusal) = self.governor.check_place(&who.account) {
            // Sessions that opened no device are dropped first.
            let Some(silent) = self.silent_session(&who.account, &refusal) else {
                break;
            };
            let reason = "dropped for another process, because this process opened no device";
            self.disconnect(silent, now_ns, Some(reason.to_owned()));
        }
        let begun = self.governor.arrive(now_ns, who).map_err(|refusal| {
            self.guests.tally.refused(refusal.reason());
            refusal.to_string()
        })?;
        self.guests.remove(guest);
        self.count_sessions();
        let key = begun.key;
        let welcome = ToShim::Welcome {
            session: begun.session,
            region_bytes: REGION_BYTES as u64,
            class: begun.class,
        };
        let place = key.index as usize;
        if self.link_of.len() <= place {
            self.link_of.resize(place + 1, 0);
        }
        self.link_of[place] = token.index;
        let (_, link) = &mut self.links[token.index as usize];
        let link = link.as_mut().expect("as above");
        link.key = Some(key);
        link.welcome(&welcome, begun.memory)
            .map_err(|error| format!("cannot make the event counter: {error}"))?;
        let signal_counter = link.signal_counter.as_ref().expect("just made");
        let token = Token {
            kind: SIGNALS,
            ..token
        };
        epoll::add(&self.epoll, signal_counter, token.data(), EventFlags::IN)
            .map_err(|error| format!("cannot watch the counter: {error}"))
    }

    /// The session without a device to drop for one of `account`: the oldest of the same account. If all places are
    /// taken, the oldest of the account that holds most and more than this account.
    fn silent_session(&self, account: &Account, refusal: &NoPlace) -> Option<Token> {
        let silent = || {
            let links = self.links.iter().zip(0..);
            links.filter_map(|((epoch, link), index)| {
                let link = link.as_ref()?;
                let token = Token {
                    kind: SOCKET,
                    index,
                    epoch: *epoch,
                };
                (link.key.is_some() && !link.opened).then_some((link, token))
            })
        };
        let oldest_of = |of: &dyn Fn(&Account) -> bool| {
            let candidates = silent().filter(|(link, _)| of(&link.account));
            let oldest = candidates.min_by_key(|(link, _)| link.since_ns);
            oldest.map(|(_, token)| token)
        };
        match refusal {
            NoPlace::Account { .. } => oldest_of(&|other| other.has_owner_of(account)),
            NoPlace::Reserved { .. } => {
                let places = self.governor.places();
                let greediest = places.greediest(silent().map(|(link, _)| &link.account))?;
                let is_greedier = places.of(greediest) > places.of(account);
                oldest_of(&|other| is_greedier && other == greediest)
            }
        }
    }

    fn signal(&mut self, token: Token, now_ns: u64) {
        let Some(link) = self.link_mut(token) else {
            return;
        };
        let is_heard = link.take_signal(now_ns);
        let Some(key) = link.key else { return };
        self.governor.signalled(now_ns, key);
        if !is_heard
            && let Some(signal_counter) = self
                .link(token)
                .and_then(|link| link.signal_counter.as_ref())
        {
            let silent = epoll::modify(
                &self.epoll,
                signal_counter,
                token.data(),
                EventFlags::empty(),
            );
            if silent.is_ok() {
                self.deaf.push((now_ns + DEAF_NS, token));
            }
        }
    }

    /// Watches the event counters of muted sessions again.
    fn resume_wakeups(&mut self, now_ns: u64) {
        if self.deaf.iter().all(|(until, _)| *until > now_ns) {
            return;
        }
        for (until, token) in std::mem::take(&mut self.deaf) {
            if until > now_ns {
                self.deaf.push((until, token));
            } else if let Some(signal_counter) = self
                .link(token)
                .and_then(|link| link.signal_counter.as_ref())
            {
                // Fails only for a closed descriptor.
                let _ = epoll::modify(&self.epoll, signal_counter, token.data(), EventFlags::IN);
            }
        }
    }

    /// Ends a connection and its session; the process receives `reason`.
    fn disconnect(&mut self, token: Token, now_ns: u64, reason: Option<String>) {
        if self.link(token).is_none() {
            return;
        }
        let enforced = self.enforces(token);
        let (epoch, link) = &mut self.links[token.index as usize];
        *epoch = epoch.wrapping_add(1);
        let link = link.take().expect("it was there");
        self.links_free.push(token.index);
        if let Some(reason) = reason {
            let _ = link.say(&ToShim::Refused { reason });
        }
        match link.key {
            Some(key) => {
                self.governor.depart(now_ns, key);
                self.count_sessions();
            }
            None if enforced => self.unheed(),
            None => {
                let place = (token.index, token.epoch);
                self.guests.remove((link.since_ns, place));
            }
        }
        // The process may hold copies of the counter, so epoll would watch it beyond our close.
        let watched = [
            link.signal_counter.as_ref().map(AsFd::as_fd),
            Some(link.socket.as_fd()),
            link.process(),
        ];
        for file in watched.into_iter().flatten() {
            // Fails only for a descriptor that was never watched.
            let _ = epoll::delete(&self.epoll, file);
        }
    }

    fn count_sessions(&self) {
        let open = self.governor.places().used();
        self.guests.tally.count(|figures| figures.open = open);
    }

    fn close(&mut self) {
        self.governor.release_all();
        for (_, link) in &self.links {
            if let Some(link) = link {
                let _ = link.say(&ToShim::Look);
            }
        }
        for attachment in &mut self.attachments {
            attachment.close();
        }
    }

    fn link(&self, token: Token) -> Option<&Link> {
        let (epoch, link) = self.links.get(token.index as usize)?;
        (*epoch == token.epoch).then_some(link.as_ref()?)
    }

    fn link_mut(&mut self, token: Token) -> Option<&mut Link> {
        let (epoch, link) = self.links.get_mut(token.index as usize)?;
        match *epoch == token.epoch {
            true => link.as_mut(),
            false => None,
        }
    }

    fn link_of_session(&self, key: SessionKey) -> Option<&Link> {
        let index = *self.link_of.get(key.index as usize)?;
        let (_, link) = self.links.get(index as usize)?;
        link.as_ref().filter(|link| link.key == Some(key))
    }
}

/// Events per epoll call.
const EVENTS: usize = 256;
/// New connections per turn.
const GUESTS_PER_TURN: usize = 64;
/// Messages of one process per turn.
const MESSAGES_PER_TURN: usize = 4;
