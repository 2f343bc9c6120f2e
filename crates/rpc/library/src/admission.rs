//! The application's handle: the table with the machine's clock and randomness, and its settings.
//!
//! Method: cheap to share (`Arc`); calls to known destinations never wait. The settings can be replaced while calls run,
//! by a call or by a change of their file; a file with a mistake changes nothing, and the mistake is kept for the caller.
//! Units: latencies are [`std::time::Duration`]. Limits: classes and the table's size cannot change.

use crate::clock;
use crate::metrics;
use crate::quota::client;
use crate::settings::{self, Settings};
use crate::table::{Ask, Table, Ticket, TicketError, Verdict};
use isolane_common_toml_input::error::InputError;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// Longest settings file, bytes: eight classes need a hundredth of it.
const FILE_MAX: u64 = 1 << 20;

/// Interval of checking the settings file for changes.
const WATCH_PERIOD: Duration = Duration::from_secs(1);

/// Why settings were rejected.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read the settings {}: {error}", .file.display())]
    Read {
        file: PathBuf,
        error: std::io::Error,
    },
    #[error("the settings {} have more than {FILE_MAX} bytes; give a shorter file", .file.display())]
    Long { file: PathBuf },
    /// The settings have a mistake.
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("{keys} cannot change while the program runs; restart it to apply the change")]
    Restart { keys: String },
    #[error("the settings came as text, not from a file; give the new text")]
    NoFile,
}

/// The replaceable part.
#[derive(Debug)]
struct Current {
    settings: Arc<Settings>,
    /// Modification time of the file when it was read.
    read: Option<SystemTime>,
}

/// Admission control of one process.
#[derive(Debug)]
pub struct Admission {
    table: Table,
    file: Option<PathBuf>,
    current: Mutex<Current>,
    stopped: AtomicBool,
    /// Messages for [`Admission::take_said`], the latest last.
    said: Mutex<VecDeque<String>>,
}

impl Admission {
    /// Makes an admission with these settings.
    pub fn new(settings: Settings) -> Self {
        Self::with(settings, None, None)
    }

    /// Makes an admission with the settings in `text`; messages use `name` for it. The error is the first mistake:
    /// line, key, value, what is allowed.
    pub fn from_text(name: &str, text: &str) -> Result<Self, SettingsError> {
        Ok(Self::new(settings::parse(name, text)?))
    }

    /// Makes an admission with the settings of a file, which [`Admission::reload_if_changed`] reads again. Fails if the
    /// file cannot be read or has a mistake.
    pub fn from_file(file: &Path) -> Result<Self, SettingsError> {
        let (settings, changed) = read(file)?;
        Ok(Self::with(settings, Some(file.to_owned()), changed))
    }

    fn with(settings: Settings, file: Option<PathBuf>, read: Option<SystemTime>) -> Self {
        Self {
            table: Table::new(&settings, clock::seed(), clock::coarse_ns()),
            file,
            current: Mutex::new(Current {
                settings: Arc::new(settings),
                read,
            }),
            stopped: AtomicBool::new(false),
            said: Mutex::default(),
        }
    }

    /// Decides on a call. The first call to a destination allocates its place, and with Aequitas 2 it may wait for calls to
    /// the place's last owner, some 100 ns each. Other calls never wait. Panics if the settings do not have the class.
    #[inline]
    pub fn decide(&self, ask: Ask<'_>) -> Verdict {
        let now_ns = match self.table.needs_exact_time() {
            true => clock::fine_ns(),
            false => clock::coarse_ns(),
        };
        self.table.decide(ask, now_ns, clock::random())
    }

    /// Reports the end of a call, `latency` after it was passed to the transport; `docs/internals/rpc.md` says what to
    /// measure. Fails if the ticket is not from this table, or its destination has left the table.
    pub fn complete(&self, ticket: Ticket, latency: Duration) -> Result<(), TicketError> {
        let latency_ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.table.complete(ticket, latency_ns, clock::fine_ns())
    }

    /// Reports the end of a call with a response of `response_bytes`: the objective covers the packets of both
    /// directions. `latency` excludes the server's own time. Fails as [`Admission::complete`] does.
    pub fn complete_read(
        &self,
        ticket: Ticket,
        response_bytes: u64,
        latency: Duration,
    ) -> Result<(), TicketError> {
        let latency_ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.table
            .complete_read(ticket, response_bytes, latency_ns, clock::fine_ns())
    }

    /// Reports the end of a call without an answer, `elapsed` after it was passed to the transport: by its deadline, by
    /// cancellation or with its connection. `elapsed` is a lower bound of its latency: beyond the objective it counts
    /// as a miss, below it counts as nothing. Returns whether it counted as a miss. Fails as [`Admission::complete`]
    /// does.
    pub fn give_up(&self, ticket: Ticket, elapsed: Duration) -> Result<bool, TicketError> {
        let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        self.table.give_up(ticket, elapsed_ns, clock::fine_ns())
    }

    /// The table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The settings in force.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.current().settings)
    }

    /// The metrics as OpenMetrics text. Also removes idle destinations from the table.
    pub fn metrics(&self) -> String {
        self.table.sweep(clock::coarse_ns());
        let settings = self.settings();
        let report = self.table.report(settings.metrics_destinations);
        metrics::render(&report, &settings)
    }

    /// Applies other settings. Fails if they change the classes or the table's size; then nothing changes.
    pub fn reconfigure(&self, next: Settings) -> Result<(), SettingsError> {
        let mut current = self.current();
        let stuck = current.settings.needs_restart(&next);
        if !stuck.is_empty() {
            return Err(SettingsError::Restart {
                keys: stuck.join(", "),
            });
        }
        self.table.reconfigure(&next);
        current.settings = Arc::new(next);
        Ok(())
    }

    /// Applies the settings in a text. Fails if the text has a mistake or needs a restart; then nothing changes.
    pub fn reload_text(&self, name: &str, text: &str) -> Result<(), SettingsError> {
        self.reconfigure(settings::parse(name, text)?)
    }

    /// Reads the file again if it has changed. Returns whether other settings apply now. Fails if the file cannot be
    /// read, has a mistake or needs a restart; then nothing changes, and the file is read again only after its next
    /// change.
    pub fn reload_if_changed(&self) -> Result<bool, SettingsError> {
        let file = self.file.as_deref().ok_or(SettingsError::NoFile)?;
        let changed = std::fs::metadata(file)
            .and_then(|data| data.modified())
            .ok();
        {
            let mut current = self.current();
            if changed.is_some() && changed == current.read {
                return Ok(false);
            }
            current.read = changed;
        }
        let (settings, _) = read(file)?;
        self.reconfigure(settings)?;
        Ok(true)
    }

    /// Checks the file from a thread of its own every `period` while the admission exists. `say` gets one line after
    /// each change or failure. Fails if there is no file, or no thread can be started.
    pub fn watch(
        self: &Arc<Self>,
        period: Duration,
        say: impl Fn(&str) + Send + 'static,
    ) -> std::io::Result<()> {
        if self.file.is_none() {
            return Err(std::io::Error::other(SettingsError::NoFile));
        }
        let weak = Arc::downgrade(self);
        let watch = move || {
            loop {
                std::thread::sleep(period);
                let Some(admission) = weak.upgrade().filter(|admission| !admission.is_stopped())
                else {
                    return;
                };
                match admission.reload_if_changed() {
                    Ok(false) => {}
                    Ok(true) => say("the settings are reloaded"),
                    Err(error) => say(&format!("the settings are unchanged: {error}")),
                }
            }
        };
        let thread = std::thread::Builder::new().name("isolane-settings".to_owned());
        thread.spawn(watch).map(drop)
    }

    /// Starts the background work that the settings require while the admission exists: a check of the file every
    /// second, and the client of the quota server. `say` gets lines for people. Fails if no thread can be started.
    pub fn start(
        self: &Arc<Self>,
        say: impl Fn(&str) + Clone + Send + 'static,
    ) -> std::io::Result<()> {
        if self.file.is_some() {
            self.watch(WATCH_PERIOD, say.clone())?;
        }
        self.start_quota(say)
    }

    /// The same for the client of the quota server alone, for callers that reload their file themselves. Fails if no
    /// thread can be started.
    pub fn start_quota(
        self: &Arc<Self>,
        say: impl Fn(&str) + Send + 'static,
    ) -> std::io::Result<()> {
        let Some(quota) = &self.settings().quota else {
            return Ok(());
        };
        client::start(self, client::Options::new(quota), say)
    }

    /// [`Admission::start`] for callers without a callback: messages wait for [`Admission::take_said`]. Fails if no
    /// thread can be started.
    pub fn start_and_keep(self: &Arc<Self>) -> std::io::Result<()> {
        self.start(self.keeper())
    }

    /// [`Admission::start_quota`] in the same way. Fails if no thread can be started.
    pub fn start_quota_and_keep(self: &Arc<Self>) -> std::io::Result<()> {
        self.start_quota(self.keeper())
    }

    fn keeper(self: &Arc<Self>) -> impl Fn(&str) + Clone + Send + 'static {
        let weak = Arc::downgrade(self);
        move |line: &str| {
            if let Some(admission) = weak.upgrade() {
                admission.keep_said(line);
            }
        }
    }

    fn keep_said(&self, line: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() == SAID_MAX {
            said.pop_front();
        }
        said.push_back(line.to_owned());
    }

    /// Passes each waiting message to `look`, and removes it if `look` returns true. Fails as `look` does.
    pub fn take_said<E>(&self, look: impl FnOnce(&str) -> Result<bool, E>) -> Result<(), E> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let text = Vec::from(said.clone()).join("\n");
        if look(&text)? {
            said.clear();
        }
        Ok(())
    }

    /// Ends the work of [`Admission::start`], even while others hold the admission. Calls go on.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Largest number of messages kept for [`Admission::take_said`].
const SAID_MAX: usize = 16;

/// The settings of a file, and its modification time.
fn read(file: &Path) -> Result<(Settings, Option<SystemTime>), SettingsError> {
    let failed = |error| SettingsError::Read {
        file: file.to_owned(),
        error,
    };
    let data = std::fs::metadata(file).map_err(failed)?;
    let mut text = String::new();
    // A device or a growing file has no reliable size.
    let open = File::open(file).map_err(failed)?;
    let read = open.take(FILE_MAX + 1).read_to_string(&mut text);
    let bytes = read.map_err(failed)? as u64;
    if bytes > FILE_MAX {
        return Err(SettingsError::Long {
            file: file.to_owned(),
        });
    }
    let settings = settings::parse(&file.to_string_lossy(), &text)?;
    Ok((settings, data.modified().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = include_str!("../tests/data/two-classes.toml");

    fn ask() -> Ask<'static> {
        Ask {
            destination: b"host:1",
            class: 0,
            bytes: 32_768,
        }
    }

    #[test]
    fn a_slow_call_lowers_what_the_next_ones_get() {
        let admission = Admission::from_text("t", TEXT).unwrap();
        let verdict = admission.decide(ask());
        assert!(!verdict.downgraded && verdict.class == 0);
        assert_eq!(verdict.ticket.mtus(), 23);
        let latency = Duration::from_secs(1);
        admission.complete(verdict.ticket, latency).unwrap();
        let probability = admission.table().probability(b"host:1", 0).unwrap();
        assert!((probability.as_f64() - 0.77).abs() < 1e-6);
        assert!(
            admission
                .metrics()
                .contains("isolane_rpc_missed_total{class=\"high\"} 1")
        );
    }

    #[test]
    fn a_file_without_an_end_is_refused() {
        let error = Admission::from_file(Path::new("/dev/zero")).unwrap_err();
        assert!(error.to_string().contains("more than 1048576"), "{error}");
    }

    #[test]
    fn a_changed_file_is_taken_over_and_a_wrong_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rpc.toml");
        let mut seconds = 0;
        // The file system's clock may be coarser than the test is fast.
        let mut write = |text: &str| {
            std::fs::write(&file, text).unwrap();
            seconds += 10;
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + seconds);
            let open = std::fs::File::options().write(true).open(&file).unwrap();
            open.set_modified(time).unwrap();
        };
        write(TEXT);
        let admission = Admission::from_file(&file).unwrap();
        assert!(!admission.reload_if_changed().unwrap());
        write(&format!("mode = \"shadow\"\n{TEXT}"));
        assert!(admission.reload_if_changed().unwrap());
        assert_eq!(admission.table().mode(), settings::Mode::Shadow);
        write(&format!("mode = \"shado\"\n{TEXT}"));
        let error = admission.reload_if_changed().unwrap_err().to_string();
        assert!(
            error.contains("rpc.toml:1") && error.contains("shadow"),
            "{error}"
        );
        assert_eq!(admission.table().mode(), settings::Mode::Shadow);
        assert!(!admission.reload_if_changed().unwrap(), "said once");
        write(&TEXT.replace("46", "34"));
        let error = admission.reload_if_changed().unwrap_err().to_string();
        assert_eq!(
            error,
            "class (number, name, dscp) cannot change while the program runs; restart it to apply the change"
        );
    }
}
