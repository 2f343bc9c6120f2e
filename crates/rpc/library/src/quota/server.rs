//! The server: a thread per client, one ledger.
//!
//! Method: time is the kernel's clock since boot, which counts suspension and cannot be set; it is counted from the server's start. The promise is stored
//! before its answer is sent. If the file names a key, clients must prove it before their requests are read
//! ([`super::seal`]). Limits: promises do not expire in a server that runs for
//! more than 213 days; at most [`CLIENTS_MAX`] clients at a time, three quarters of them of one address or local account;
//! further connections are closed at once, and the clients retry. A connection becomes a client with its first request
//! (under a key, its first sealed one). Before that it has one of [`STRANGERS_MAX`] places
//! ([`isolane_common_linux::listener`]) and [`PATIENCE`] for each line. Memory: all lines and answers together hold
//! [`MEMORY_MAX`] bytes at most; a connection has a stack of 256 KiB and one descriptor. Where the
//! limit of open files cannot be raised to what all clients need, fewer clients are taken, and a line says so.

use super::book::BookError;
use super::ledger::Ledger;
use super::line::{Address, Line, PATIENCE, listen};
use super::protocol::Answer;
use super::settings::{Place, Settings};
use super::store::etcd::EtcdStore;
use super::store::file::FileStore;
use super::store::{Store, StoreError};
use isolane_common_linux::key::{Key, KeyError};
use isolane_common_linux::listener::{Listener, STACK_BYTES};
use isolane_common_linux::pool::{Pool, PoolLimits};
use isolane_common_quantities::units::Instant;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::io;
use std::sync::{Arc, OnceLock};

/// Largest number of clients.
pub const CLIENTS_MAX: usize = 2_048;

/// Largest number of connections without a request.
pub const STRANGERS_MAX: usize = 64;

/// Largest memory of all lines and answers, bytes: four answers of the greatest length.
pub const MEMORY_MAX: u64 = 4 * super::line::ANSWER_MAX;

/// A client that sends nothing for this long is disconnected.
const IDLE: std::time::Duration = std::time::Duration::from_secs(600);

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum ServerError {
    /// The address cannot be used.
    #[error("cannot listen on {address}: {error}")]
    Listen { address: String, error: io::Error },
    /// The key file cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The book cannot be opened.
    #[error(transparent)]
    Book(#[from] BookError),
}

/// Prints a line in the server's log.
type Say = dyn Fn(&str) + Send + Sync;

/// A server that listens.
pub struct Server {
    listener: Listener,
    ledger: Arc<Ledger>,
    key: Option<Arc<Key>>,
    address: Address,
    /// Why it takes fewer clients than [`CLIENTS_MAX`].
    scarcity: Option<String>,
}

impl Server {
    /// Reads the key, opens the store and the address. Fails if one of them is in use or unusable, or the file's
    /// guarantees exceed the capacity.
    pub fn open(settings: &Settings) -> Result<Self, ServerError> {
        Self::over(settings, |settings| match &settings.place {
            Place::Folder(folder) => {
                let term_ms = settings.term.as_ps().div_ceil(1_000_000_000);
                FileStore::open(folder, term_ms).map(|store| Box::new(store) as _)
            }
            Place::Etcd { address, prefix } => Ok(Box::new(EtcdStore::new(*address, prefix))),
        })
    }

    /// As [`Server::open`], with the store that `open` opens.
    pub fn over(
        settings: &Settings,
        open: impl FnOnce(&Settings) -> Result<Box<dyn Store>, StoreError>,
    ) -> Result<Self, ServerError> {
        let key = settings.key_file.as_deref().map(Key::read).transpose()?;
        let store = open(settings).map_err(BookError::from)?;
        let ledger = Ledger::open(settings, store, now())?;
        let failed = |error| ServerError::Listen {
            address: settings.listen.to_string(),
            error,
        };
        let socket = listen(&settings.listen, settings.socket_mode).map_err(failed)?;
        let (limits, scarcity) = PoolLimits {
            strangers: PoolLimits::shared(STRANGERS_MAX),
            grace: std::time::Duration::ZERO,
            sessions: PoolLimits::reserved(CLIENTS_MAX),
            memory_bytes: MEMORY_MAX,
        }
        .within_open_files();
        let listener = Listener::new(socket, Pool::new("quota", limits)).map_err(failed)?;
        let port = listener.address().map(Address::Tcp);
        Ok(Self {
            address: port.unwrap_or_else(|| settings.listen.clone()),
            listener,
            ledger: Arc::new(ledger),
            key: key.map(Arc::new),
            scarcity,
        })
    }

    /// The listening address.
    pub fn address(&self) -> Address {
        self.address.clone()
    }

    /// Serves until the process ends; `say` gets failures of connections, and the beginning and end of failures of the
    /// store.
    pub fn serve(&self, say: impl Fn(&str) + Send + Sync + 'static) {
        let say: Arc<Say> = Arc::new(say);
        if let Some(line) = &self.scarcity {
            say(line);
        }
        let begin = |connection| {
            let (ledger, key) = (Arc::clone(&self.ledger), self.key.clone());
            let say = Arc::clone(&say);
            let attend = move || {
                // A closed connection is not reported, because unauthenticated hosts could fill the log.
                let _ = Line::of(connection)
                    .and_then(|mut line| talk(&mut line, &ledger, (key.as_deref(), &*say)));
            };
            let thread = std::thread::Builder::new().name("quota-client".to_owned());
            thread.stack_size(STACK_BYTES).spawn(attend).map(drop)
        };
        self.listener.serve(None, begin, &*say);
    }
}

/// Answers a client until it closes. Before its first request each line must end within [`PATIENCE`].
fn talk(line: &mut Line, ledger: &Ledger, (key, say): (Option<&Key>, &Say)) -> io::Result<()> {
    if let Some(key) = key {
        line.challenge(key)?;
    }
    let mut idle = PATIENCE;
    while let Some(request) = line.read(idle)? {
        let answer = match request {
            Ok(request) => {
                if let Err(full) = line.authenticated() {
                    return line.write(&Answer::Error(full.to_string()));
                }
                idle = IDLE;
                let answer = ledger.answer(now(), request);
                for line in ledger.take_lines() {
                    say(&line);
                }
                answer
            }
            Err(reason) => Answer::Error(reason),
        };
        line.write(&answer)?;
    }
    Ok(())
}

/// Time since the first call: a machine may have run for longer than the 213 days that u64 picoseconds last.
fn now() -> Instant {
    static BEGUN: OnceLock<Timespec> = OnceLock::new();
    let time = clock_gettime(ClockId::Boottime);
    since(*BEGUN.get_or_init(|| time), time)
}

/// At most [`Instant::MAX`].
fn since(begun: Timespec, now: Timespec) -> Instant {
    let ps = |time: Timespec| {
        i128::from(time.tv_sec) * 1_000_000_000_000 + i128::from(time.tv_nsec) * 1_000
    };
    let passed = (ps(now) - ps(begun)).max(0);
    Instant::from_ps(u64::try_from(passed).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_on_a_machine_that_has_run_for_years() {
        let at = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        let begun = at(3 * 365 * 86_400, 999_999_999);
        assert_eq!(since(begun, begun), Instant::ZERO);
        let later = at(begun.tv_sec + 2, 0);
        assert_eq!(since(begun, later), Instant::from_ps(1_000_000_001_000));
        assert_eq!(since(later, begun), Instant::ZERO);
        assert_eq!(since(at(0, 0), at(214 * 86_400, 0)), Instant::MAX);
    }
}
