//! Ctrl-C in commands that write nothing before they are done: the bar goes, one line says how far the work was, and the
//! program ends with the code of interrupted programs.
//!
//! Commands that keep what is done (audit, hunt, sweep) stop by a flag instead (`target::cancel_on_signal`).

use crate::output;
use crate::progress::Bar;
use crate::status::{INTERRUPTED, Status};
use anyhow::{Context, Result};
use std::process::exit;
use std::sync::{Arc, Mutex, PoisonError};

/// Ends the program at a signal until the results are being written.
#[derive(Debug)]
pub(crate) struct Stop {
    stage: Arc<Mutex<Stage>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing is written yet: a signal ends the program.
    Working,
    /// Results are being written, which takes no time: a first signal waits for them.
    Writing,
    /// That signal has come: another one does not wait.
    Signalled,
}

/// From now on Ctrl-C, SIGTERM and SIGHUP end the program at once, with what `bar` shows in a line.
pub(crate) fn at_once(bar: &Bar) -> Result<Stop> {
    let bar = bar.clone();
    at_once_with(move || {
        bar.finish_and_clear();
        words(&bar)
    })
}

/// The same for work whose progress is not known; `work` says what it was.
pub(crate) fn at_once_during(work: &str) -> Result<Stop> {
    let words = format!("isolane: interrupted during {work}; nothing was written");
    at_once_with(move || words.clone())
}

/// Ends the program at a signal, with the line that `words` gives.
fn at_once_with(words: impl Fn() -> String + Send + 'static) -> Result<Stop> {
    let stage = Arc::new(Mutex::new(Stage::Working));
    let seen = Arc::clone(&stage);
    ctrlc::set_handler(move || {
        let mut stage = seen.lock().unwrap_or_else(PoisonError::into_inner);
        match *stage {
            Stage::Working => {
                output::note(&words());
                exit(i32::from(INTERRUPTED));
            }
            Stage::Writing => *stage = Stage::Signalled,
            Stage::Signalled => exit(i32::from(INTERRUPTED)),
        }
    })
    .context("cannot catch Ctrl-C")?;
    Ok(Stop { stage })
}

impl Stop {
    /// The work is done: what follows writes the results, whole or not at all.
    pub(crate) fn done(&self) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = Stage::Writing;
    }
}

/// Says that work which a flag stopped has left nothing behind.
pub(crate) fn stopped(bar: &Bar) -> Status {
    output::note(&words(bar));
    Status::Interrupted
}

fn words(bar: &Bar) -> String {
    match bar.done() {
        Some(done) => format!("isolane: interrupted after {done}; nothing was written"),
        None => "isolane: interrupted; nothing was written".to_owned(),
    }
}
