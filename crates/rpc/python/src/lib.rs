//! The Python module `isolane_native`: the admission of `isolane-rpc` for Python's RPC stacks.
//!
//! Problem: a Python client decides on every call, so deciding must cost about a microsecond, and must never wait.
//! Method: a thin class around [`isolane_rpc::admission::Admission`]; tickets are integers. The interceptors are Python, in
//! `python/isolane/rpc.py`. No call holds a lock of ours while Python runs; completions release nothing, for they take less
//! than handing the interpreter over.
//! Units: latencies in nanoseconds, sizes in bytes, probabilities from 0 to 1.
//! Limits: built for the stable interface of Python 3.10 and later, so one wheel fits all.
//! Source: Aequitas (in the thesis "cloud QoS"), section 3.5.
#![deny(unsafe_op_in_unsafe_fn)]

use isolane_rpc::admission::Admission as Inner;
use isolane_rpc::table::{Ask, Ticket};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The state of a process's destinations.
#[pyclass(frozen, module = "isolane_native", name = "Core")]
struct Core {
    inner: Arc<Inner>,
    classes: usize,
}

/// What a decision says, as a tuple: class to run in, downgraded, would be downgraded, ticket.
type Decision = (u8, bool, bool, u64);

#[pymethods]
impl Core {
    /// With the settings in `text`; messages use `name` for it.
    #[staticmethod]
    fn from_text(name: &str, text: &str) -> PyResult<Self> {
        Inner::from_text(name, text)
            .map_err(wrong)
            .and_then(Self::new)
    }

    /// With the settings of a file, which `reload` reads again.
    #[staticmethod]
    fn from_file(path: PathBuf) -> PyResult<Self> {
        Inner::from_file(&path).map_err(wrong).and_then(Self::new)
    }

    /// Decides on a call of `size` bytes to `destination` that requests the class `asked`.
    fn decide(&self, destination: &[u8], asked: usize, size: u64) -> PyResult<Decision> {
        if asked >= self.classes {
            let last = self.classes - 1;
            return Err(PyValueError::new_err(format!(
                "class {asked} is none of the settings'; give 0 (the highest) to {last}"
            )));
        }
        let verdict = self.inner.decide(Ask {
            destination,
            class: asked as u8,
            bytes: size,
        });
        Ok((
            verdict.class,
            verdict.downgraded,
            verdict.would_downgrade,
            verdict.ticket.word(),
        ))
    }

    /// A call with a response of `response_bytes` ended, `latency_ns` after it was handed to the transport. False when its
    /// destination has left meanwhile.
    fn complete(&self, ticket: u64, latency_ns: u64, response_bytes: u64) -> bool {
        let latency = Duration::from_nanos(latency_ns);
        self.inner
            .complete_read(Ticket::from_word(ticket), response_bytes, latency)
            .is_ok()
    }

    /// A call ended without an answer, `elapsed_ns` after it was handed to the transport. Whether that is a miss.
    fn give_up(&self, ticket: u64, elapsed_ns: u64) -> bool {
        let elapsed = Duration::from_nanos(elapsed_ns);
        let ticket = Ticket::from_word(ticket);
        self.inner.give_up(ticket, elapsed).unwrap_or(false)
    }

    /// The admit probability of a destination and class; nothing when none is known.
    fn probability(&self, destination: &[u8], asked: usize) -> Option<f64> {
        let class = u8::try_from(asked).ok().filter(|_| asked < self.classes)?;
        let probability = self.inner.table().probability(destination, class);
        probability.map(|probability| probability.as_f64())
    }

    /// Drops what is known of a destination; whether something was.
    fn forget(&self, destination: &[u8]) -> bool {
        self.inner.table().forget(destination)
    }

    /// OpenMetrics text.
    fn metrics(&self) -> String {
        self.inner.metrics()
    }

    /// The messages of the quota server's client since the last call, one line each.
    fn said(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let taken: Result<(), std::convert::Infallible> = self.inner.take_said(|said| {
            lines.extend(said.lines().map(str::to_owned));
            Ok(true)
        });
        match taken {
            Ok(()) => lines,
        }
    }

    /// Takes the settings of a text over while calls run.
    fn reload_text(&self, name: &str, text: &str) -> PyResult<()> {
        self.inner.reload_text(name, text).map_err(wrong)
    }

    /// Reads the file again, if it has changed. Whether other settings are in force.
    fn reload(&self) -> PyResult<bool> {
        self.inner.reload_if_changed().map_err(wrong)
    }

    /// Names and code points of the classes, the highest first.
    fn classes(&self) -> Vec<(String, u8)> {
        let settings = self.inner.settings();
        let classes = settings.classes.iter();
        classes
            .map(|class| (class.name.clone(), class.dscp))
            .collect()
    }

    /// enforce, shadow or off.
    fn mode(&self) -> &'static str {
        self.inner.settings().mode.name()
    }
}

impl Core {
    /// With a `[quota]` in the settings, its client is a thread that ends with the object.
    fn new(inner: Inner) -> PyResult<Self> {
        let classes = inner.settings().classes.len();
        let inner = Arc::new(inner);
        inner.start_quota_and_keep()?;
        Ok(Self { inner, classes })
    }
}

/// A mistake in settings is a value error, a file that cannot be read one of the system.
fn wrong(error: isolane_rpc::admission::SettingsError) -> PyErr {
    use isolane_rpc::admission::SettingsError;
    match error {
        SettingsError::Read { .. } => PyOSError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// The module.
#[pymodule]
fn isolane_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Core>()
}
