//! Places and memory of connections: unauthenticated connections (*strangers*) apart from *sessions*.
//!
//! Problem: if all connections count alike, silent connections can block a service. Method: a connection starts as a
//! stranger and becomes a session when it is authenticated; only then it takes a session's place. A newcomer without a
//! stranger's place replaces the oldest stranger of its account, or of the account that has most ([`Waiting`]); a
//! stranger that has sent a whole request counts as younger than all that have not. A client that authenticates at once
//! is therefore never blocked, however many silent connections wait. Memory is counted before it is taken
//! ([`Entry::hold`]); when none is left in the bound, or the kernel has none, the connection that holds most is shed. Units: connections, bytes. Limits: the
//! service itself ends a connection that takes too long; a connection that is shed sees its end.

use crate::account::{Account, NoPlace, PlaceLimits, Places, Waiting, owner};
use crate::open_files;
use crate::stream::Stream;
use crate::tally::{Refusal, Shed, Tally};
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The grace of a service whose exchanges are short: a newcomer has this long until the next one takes its place.
pub const GRACE: Duration = Duration::from_millis(500);

/// How soon it is looked again whether connections that were shed have ended.
const LEAVING: Duration = Duration::from_millis(5);

/// Memory that stays free, bytes: for stacks of threads, arenas of the allocator, and what is not counted.
const SPARE_BYTES: u64 = 8 << 20;

/// Descriptors of a service besides its connections: files, its own sockets, and what a new connection needs for a moment.
const FILES_OF_SERVICE: u64 = 128;

/// Largest numbers of connections, and what they may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Unauthenticated connections.
    pub strangers: PlaceLimits,
    /// How long a stranger keeps its place at least. If all have newer places, a newcomer waits in the kernel.
    pub grace: Duration,
    /// Authenticated connections.
    pub sessions: PlaceLimits,
    /// Memory of requests and answers, bytes.
    pub memory_bytes: u64,
}

impl PoolLimits {
    /// Places for `total` connections. A newcomer replaces one of the account with most of them.
    pub const fn shared(total: usize) -> PlaceLimits {
        PlaceLimits {
            total,
            per_account: total,
            reserve: 0,
            few: 0,
        }
    }

    /// Places for `total` sessions, of which one account takes three quarters at most: it gets none of the rest.
    pub const fn reserved(total: usize) -> PlaceLimits {
        PlaceLimits {
            total,
            per_account: total - total / 4,
            reserve: total / 4,
            few: 2,
        }
    }
}

impl PoolLimits {
    /// Open files of all places, each with one, and of the service besides. Strangers that were shed and have not ended are
    /// as many as strangers at most.
    fn files(&self) -> u64 {
        2 * self.strangers.total as u64 + self.sessions.total as u64 + FILES_OF_SERVICE
    }

    /// Raises the limit of open files to what all places need, each with one descriptor. Where less is permitted, scales
    /// the sessions to it, so that no account can take the last descriptor; then also returns a line that says so.
    pub fn within_open_files(self) -> (Self, Option<String>) {
        let needed = self.files();
        let others = needed - self.sessions.total as u64;
        let most = open_files::raise_towards(needed);
        if most >= needed {
            return (self, None);
        }
        let total = usize::try_from(most.saturating_sub(others)).unwrap_or(usize::MAX);
        let sessions = self.sessions.scaled_to(total.max(1));
        let line = format!(
            "{most} files may be open, {needed} can be needed: at most {} of {} clients at a time, {} of one account; raise the limit with `ulimit -Hn {needed}` or LimitNOFILE={needed}",
            sessions.total, self.sessions.total, sessions.per_account
        );
        (Self { sessions, ..self }, Some(line))
    }
}

/// Why a connection gets no session, or no memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No session is free.
    #[error("too many clients at once: {0}; try again later")]
    Sessions(#[from] NoPlace),
    /// No memory is free, in the bound or on the machine.
    #[error(
        "all requests together hold {held_bytes} of {most_bytes} bytes, and {bytes} more are needed; try again later"
    )]
    Memory {
        /// Bytes that are held.
        held_bytes: u64,
        /// Bytes that may be held.
        most_bytes: u64,
        /// Bytes that are missing.
        bytes: u64,
    },
}

/// A stranger: whether it has sent a request, and the number that orders these.
type Key = (bool, u64);

struct One {
    account: Account,
    stream: Arc<Stream>,
    since: Instant,
    /// `None`: a session, or a stranger that was shed.
    key: Option<Key>,
    is_session: bool,
    held_bytes: u64,
    /// It held most when no memory was left: it gets no more, and ends.
    gives_way: bool,
    /// A newcomer has its place: it ends.
    is_shed: bool,
}

struct State {
    next: u64,
    ones: BTreeMap<u64, One>,
    /// Number of the connection of each stranger.
    strangers: BTreeMap<Key, u64>,
    waiting: Waiting<Key>,
    sessions: Places,
    held_bytes: u64,
}

struct Shared {
    limits: PoolLimits,
    hang_up: fn(&Stream),
    tally: Tally,
    state: Mutex<State>,
    freed: Condvar,
}

/// The places; see the module.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("limits", &self.0.limits)
            .field("figures", &self.0.tally.figures())
            .finish()
    }
}

impl Pool {
    /// Makes an empty pool of a service. Panics if a limit is zero.
    pub fn new(service: &'static str, limits: PoolLimits) -> Self {
        Self::with_hang_up(service, limits, Stream::hang_up)
    }

    /// As [`Pool::new`]. `hang_up` must close a connection that is shed, even while a thread waits for it.
    pub fn with_hang_up(service: &'static str, limits: PoolLimits, hang_up: fn(&Stream)) -> Self {
        assert!(
            limits.strangers.total > 0 && limits.sessions.total > 0,
            "{limits:?}"
        );
        // A newcomer displaces another for its place, so none is kept.
        assert_eq!(limits.strangers.reserve, 0, "{limits:?}");
        Self(Arc::new(Shared {
            limits,
            hang_up,
            tally: Tally::of(service),
            state: Mutex::new(State {
                next: 0,
                ones: BTreeMap::new(),
                strangers: BTreeMap::new(),
                waiting: Waiting::new(limits.strangers),
                sessions: Places::default(),
                held_bytes: 0,
            }),
            freed: Condvar::new(),
        }))
    }

    /// Raises the limit of open files to what all places need, as far as permitted.
    pub(crate) fn raise_open_files(&self) {
        open_files::raise_towards(self.0.limits.files());
    }

    /// Adds a connection. A stranger that is in its way loses its place.
    pub fn enter(&self, account: Account, stream: Arc<Stream>) -> Entry {
        let mut shed = Vec::new();
        let mut state = self.0.lock();
        while let Some(key) = state.waiting.in_the_way(&account) {
            shed.push(state.shed(key));
        }
        let number = state.next;
        state.next += 1;
        let key = (false, number);
        state.waiting.add(key, account.clone());
        state.strangers.insert(key, number);
        let one = One {
            account,
            stream,
            since: Instant::now(),
            key: Some(key),
            is_session: false,
            held_bytes: 0,
            gives_way: false,
            is_shed: false,
        };
        state.ones.insert(number, one);
        self.0.tally.count(|figures| figures.accepted_total += 1);
        self.0.publish(state);
        for stream in shed {
            self.0.tally.shed(Shed::Place);
            (self.0.hang_up)(&stream);
            self.0.freed.notify_all();
        }
        Entry {
            shared: Arc::clone(&self.0),
            number,
        }
    }

    /// The time before which no newcomer finds a place; `None`: one does now. Connections that were shed and have not
    /// ended are as many as strangers at most.
    pub fn full_until(&self) -> Option<Instant> {
        let state = self.0.lock();
        let leaving = state.ones.len() - state.waiting.len() - state.sessions.used();
        if leaving >= self.0.limits.strangers.total {
            return Some(Instant::now() + LEAVING);
        }
        if state.waiting.len() < self.0.limits.strangers.total {
            return None;
        }
        let number = state.strangers[&state.waiting.of_greediest()?];
        let until = state.ones[&number].since + self.0.limits.grace;
        (until > Instant::now()).then_some(until)
    }

    /// Drops a connection for what it takes of the kernel: a stranger, if there is one. For a descriptor it is the oldest
    /// session of the owner that has most, where that owner has more sessions than the service has places for strangers.
    pub(crate) fn shed_for(&self, why: Shed) {
        let mut state = self.0.lock();
        let greedy = match why {
            Shed::Descriptor => state.greedy_session(self.0.limits.strangers.total),
            _ => None,
        };
        let shed = match greedy {
            Some(number) => {
                let one = state.ones.get_mut(&number).expect("it was found");
                one.gives_way = true;
                Some(Arc::clone(&one.stream))
            }
            None => state.waiting.of_greediest().map(|key| state.shed(key)),
        };
        self.0.publish(state);
        if let Some(stream) = shed {
            self.0.tally.shed(why);
            stream.hang_up();
        }
    }

    /// Hangs up every connection, for the end of the service.
    pub fn hang_up_all(&self) {
        let mut state = self.0.lock();
        for one in state.ones.values_mut() {
            one.gives_way = true;
            one.stream.hang_up();
        }
        self.0.freed.notify_all();
    }

    /// The service's counters.
    pub fn tally(&self) -> &Tally {
        &self.0.tally
    }
}

/// Whether the process's limits (`RLIMIT_DATA`, `RLIMIT_AS`) leave so much memory, besides a spare of 8 MiB. A trial by a mapping
/// would take the spare from threads that start meanwhile. True where the kernel does not say how much the process has.
pub fn has_memory(bytes: u64) -> bool {
    /// Opened once: where no descriptor is left, memory is still known.
    static USED: OnceLock<Option<File>> = OnceLock::new();
    let file = USED.get_or_init(|| File::open("/proc/self/status").ok());
    let mut text = [0; 4_096];
    let used = file
        .as_ref()
        .and_then(|file| file.read_at(&mut text, 0).ok())
        .and_then(|length| sizes(&text[..length]));
    let Some(used) = used else { return true };
    let needed = bytes.saturating_add(SPARE_BYTES);
    let limits = [Resource::As, Resource::Data].map(getrlimit);
    limits.iter().zip(used).all(|(limit, used)| {
        let most = limit.current.unwrap_or(u64::MAX);
        used.saturating_add(needed) <= most
    })
}

/// Bytes of the address space, and of data, of `/proc/PID/status`.
fn sizes(status: &[u8]) -> Option<[u64; 2]> {
    let text = String::from_utf8_lossy(status);
    let field = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        kib.checked_mul(1_024)
    };
    Some([field("VmSize:")?, field("VmData:")?])
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies the numbers of this moment to the counters.
    fn publish(&self, state: MutexGuard<'_, State>) {
        let served = state.strangers.keys().filter(|(served, _)| *served).count();
        self.tally.count(|figures| {
            figures.open = state.sessions.used() + served;
            figures.entering = state.waiting.len() - served;
            figures.body_bytes = state.held_bytes;
        });
    }
}

impl State {
    /// Takes a stranger's place. The connection stays until its entry is dropped.
    fn shed(&mut self, key: Key) -> Arc<Stream> {
        self.waiting.remove(key);
        let number = self.strangers.remove(&key).expect("each key has a number");
        let one = self.ones.get_mut(&number).expect("it has not left");
        one.key = None;
        one.is_shed = true;
        Arc::clone(&one.stream)
    }

    fn forget(&mut self, key: Key) {
        self.waiting.remove(key);
        self.strangers.remove(&key);
    }

    /// The oldest session of the owner that has most, where it has more than `many`. Those that end already do not count.
    fn greedy_session(&self, many: usize) -> Option<u64> {
        let sessions = || {
            let all = self.ones.iter();
            all.filter(|(_, one)| one.is_session && !one.gives_way)
        };
        let mut by_owner = BTreeMap::<_, usize>::new();
        for (_, one) in sessions() {
            *by_owner.entry(owner(&one.account)).or_default() += 1;
        }
        let (greedy, count) = by_owner.into_iter().max_by_key(|(_, count)| *count)?;
        let mut sessions = sessions();
        let oldest = sessions.find(|(_, one)| owner(&one.account) == greedy);
        oldest.filter(|_| count > many).map(|(number, _)| *number)
    }

    /// The connection that holds most, of the owner that holds most, unless it is `asking`.
    fn holds_most(&self, asking: u64) -> Option<u64> {
        let mut by_owner = BTreeMap::new();
        for one in self.ones.values() {
            *by_owner.entry(owner(&one.account)).or_insert(0) += one.held_bytes;
        }
        let candidates = self.ones.iter().filter(|(_, one)| !one.gives_way);
        let most =
            candidates.max_by_key(|(_, one)| (by_owner[&owner(&one.account)], one.held_bytes));
        let (number, one) = most?;
        (*number != asking && one.held_bytes > 0).then_some(*number)
    }
}

/// The place and the memory of one connection; returned on drop.
pub struct Entry {
    shared: Arc<Shared>,
    number: u64,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Entry").field(&self.number).finish()
    }
}

impl Entry {
    /// Makes the connection a session. Repeating the call has no effect. Fails if all sessions are taken.
    pub fn authenticated(&mut self) -> Result<(), Refused> {
        let mut state = self.shared.lock();
        let State { ones, sessions, .. } = &mut *state;
        let one = ones.get_mut(&self.number).expect("it is there until drop");
        if one.is_session {
            return Ok(());
        }
        if let Err(full) = sessions.take(&self.shared.limits.sessions, &one.account) {
            self.shared.tally.refused(Refusal::Sessions);
            return Err(full.into());
        }
        one.is_session = true;
        if let Some(key) = one.key.take() {
            state.forget(key);
        }
        self.shared.publish(state);
        Ok(())
    }

    /// The connection has sent a whole request just now: a stranger without one is shed earlier.
    pub fn served(&mut self) {
        let mut state = self.shared.lock();
        let key = (true, state.next);
        state.next += 1;
        let one = state.ones.get_mut(&self.number);
        let one = one.expect("it is there until drop");
        if let Some(old) = one.key.replace(key) {
            let account = one.account.clone();
            state.forget(old);
            state.waiting.add(key, account);
            state.strangers.insert(key, self.number);
        } else {
            one.key = None;
        }
        self.shared.publish(state);
    }

    /// Counts memory before it is taken. If too little is left, the connection that holds most is shed, and this call
    /// waits until `until` for its memory. Fails if this connection itself holds most or was shed, or the time is over.
    pub fn hold(&mut self, bytes: u64, until: Instant) -> Result<(), Refused> {
        let mut state = self.shared.lock();
        while !self.claim(&mut state, bytes)? {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.shared.tally.refused(Refusal::Memory);
                return Err(self.refusal(&state, bytes));
            }
            let waited = self.shared.freed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.shared.publish(state);
        Ok(())
    }

    /// As [`Entry::hold`], for an event loop. False: the connection that was shed still ends; try again after its turn.
    pub fn try_hold(&mut self, bytes: u64) -> Result<bool, Refused> {
        let mut state = self.shared.lock();
        let is_held = self.claim(&mut state, bytes)?;
        self.shared.publish(state);
        Ok(is_held)
    }

    /// Counts memory if it is free. False: a connection that was shed will free some.
    fn claim(&self, state: &mut State, bytes: u64) -> Result<bool, Refused> {
        let most_bytes = self.shared.limits.memory_bytes;
        if state.held_bytes.saturating_add(bytes) <= most_bytes && has_memory(bytes) {
            state.held_bytes += bytes;
            let one = state.ones.get_mut(&self.number);
            one.expect("it is there until drop").held_bytes += bytes;
            return Ok(true);
        }
        // Others wait for the memory or the end of such a connection: it may not wait for theirs.
        let own = &state.ones[&self.number];
        if own.gives_way || own.is_shed {
            return Err(self.refusal(state, bytes));
        }
        let mut others = state.ones.iter();
        if others.any(|(number, one)| *number != self.number && one.gives_way && one.held_bytes > 0)
        {
            return Ok(false);
        }
        let Some(greedy) = state.holds_most(self.number) else {
            self.shared.tally.refused(Refusal::Memory);
            return Err(self.refusal(state, bytes));
        };
        let one = state.ones.get_mut(&greedy).expect("it was found");
        one.gives_way = true;
        one.stream.hang_up();
        self.shared.tally.shed(Shed::Memory);
        self.shared.freed.notify_all();
        Ok(false)
    }

    fn refusal(&self, state: &State, bytes: u64) -> Refused {
        Refused::Memory {
            held_bytes: state.held_bytes,
            most_bytes: self.shared.limits.memory_bytes,
            bytes,
        }
    }

    /// Returns so much memory, at most all that the connection holds.
    pub fn release(&mut self, bytes: u64) {
        let mut state = self.shared.lock();
        let one = state.ones.get_mut(&self.number);
        let held_bytes = &mut one.expect("it is there until drop").held_bytes;
        let freed = bytes.min(*held_bytes);
        *held_bytes -= freed;
        state.held_bytes -= freed;
        self.shared.publish(state);
        self.shared.freed.notify_all();
    }

    /// The service's counters.
    pub fn tally(&self) -> &Tally {
        &self.shared.tally
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let one = state.ones.remove(&self.number).expect("it entered");
        state.held_bytes -= one.held_bytes;
        if one.is_session {
            state.sessions.give_back(&one.account);
        }
        if let Some(key) = one.key {
            state.forget(key);
        }
        self.shared.publish(state);
        self.shared.freed.notify_all();
    }
}

#[cfg(test)]
mod tests;
