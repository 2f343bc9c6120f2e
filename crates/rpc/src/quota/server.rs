//! The server: a thread for each client, one ledger.
//!
//! Method: time is the kernel's clock since boot, which counts suspension and cannot be set. A request is answered
//! with the promise written down before the answer leaves.
//! Limits: at most [`CLIENTS_MAX`] connections at a time; more are closed at once, and their clients try again.

use super::book::BookError;
use super::ledger::Ledger;
use super::line::{Line, Listener};
use super::protocol::{Answer, Request};
use super::settings::{Place, Settings};
use super::store::etcd::EtcdStore;
use super::store::file::FileStore;
use super::store::{Store, StoreError};
use isolane_core::units::{Duration, Instant};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most connections at a time: a thread and two descriptors each.
pub const CLIENTS_MAX: usize = 2_048;

/// A connection that says nothing for so long is closed.
const IDLE: std::time::Duration = std::time::Duration::from_secs(600);

/// Why it cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// It cannot listen.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Where.
        address: String,
        /// Why.
        error: io::Error,
    },
    /// The book cannot be opened.
    #[error(transparent)]
    Book(#[from] BookError),
}

/// A server that is ready.
pub struct Server {
    listener: Listener,
    ledger: Arc<Ledger>,
    clients: Arc<AtomicUsize>,
}

impl Server {
    /// Takes the store and the address.
    ///
    /// # Errors
    /// When either is taken or cannot be used, or the file promises more than can be.
    pub fn open(settings: &Settings) -> Result<Self, ServerError> {
        let store: Result<Box<dyn Store>, StoreError> = match &settings.place {
            Place::Folder(folder) => {
                let term_ms = settings.term.as_ps().div_ceil(1_000_000_000);
                FileStore::open(folder, term_ms).map(|store| Box::new(store) as _)
            }
            Place::Etcd { address, prefix } => Ok(Box::new(EtcdStore::new(*address, prefix))),
        };
        let ledger = Ledger::open(settings, store.map_err(BookError::from)?, now())?;
        let bound = Listener::bind(&settings.listen, settings.socket_mode);
        let listener = bound.map_err(|error| ServerError::Listen {
            address: settings.listen.to_string(),
            error,
        })?;
        Ok(Self {
            listener,
            ledger: Arc::new(ledger),
            clients: Arc::default(),
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn address(&self) -> io::Result<super::line::Address> {
        self.listener.address()
    }

    /// Serves until the process ends; says what is wrong with a connection.
    pub fn serve(&self, say: impl Fn(&str)) {
        loop {
            match self.listener.accept(IDLE) {
                Ok(line) => {
                    if let Err(error) = self.attend(line) {
                        say(&format!("a client is sent away: {error}"));
                    }
                }
                Err(error) => {
                    say(&format!("cannot accept a client: {error}"));
                    // No descriptor is left: one may be free soon.
                    std::thread::sleep(std::time::Duration::from_millis(100));
                }
            }
        }
    }

    fn attend(&self, mut line: Line) -> io::Result<()> {
        let before = self.clients.fetch_add(1, Ordering::Relaxed);
        let leaves = Leaves(Arc::clone(&self.clients));
        if before >= CLIENTS_MAX {
            let full = Answer::Error(format!(
                "{CLIENTS_MAX} clients are connected; try again later"
            ));
            return line.write(&json(&full));
        }
        let ledger = Arc::clone(&self.ledger);
        let thread = std::thread::Builder::new().name("quota-client".to_owned());
        let attend = move || {
            let _leaves = leaves;
            // A client that goes is not worth a word.
            while let Ok(Some(text)) = line.read() {
                let answer = match serde_json::from_str::<Request>(&text) {
                    Ok(request) => ledger.answer(now(), request),
                    Err(error) => Answer::Error(format!("not a request: {error}")),
                };
                if line.write(&json(&answer)).is_err() {
                    return;
                }
            }
        };
        thread.stack_size(256 << 10).spawn(attend).map(drop)
    }
}

/// Counts a connection out.
struct Leaves(Arc<AtomicUsize>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn json(answer: &Answer) -> String {
    serde_json::to_string(answer).expect("answers are plain data")
}

fn now() -> Instant {
    let time = clock_gettime(ClockId::Boottime);
    let ns = Duration::from_ns(time.tv_nsec as u64);
    Instant::ZERO
        .saturating_add(Duration::from_secs(time.tv_sec as u64))
        .saturating_add(ns)
}
