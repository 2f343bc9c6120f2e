//! Progress on stderr: a bar where that is a terminal, else a line at each tenth of the work where the user wants it, or after
//! each round.

use crate::devices::{self, Stage};
use crate::output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Whether progress is wanted where stderr is no terminal.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct ProgressArguments {
    /// Print progress even if stderr is no terminal: a line at each tenth
    #[arg(long)]
    progress: bool,
}

/// How runs are done, and what is said meanwhile.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct RunArguments {
    /// Runs at once [default: one per core]
    #[arg(long, value_name = "N", value_parser = crate::numbers::whole::<u32>(1..=1024))]
    pub(crate) jobs: Option<u32>,
    #[command(flatten)]
    pub(crate) progress: ProgressArguments,
}

/// What the work is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Runs,
    Parts,
}

/// How far some work is, for people.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    bar: ProgressBar,
    unit: Unit,
    lines: Option<Arc<Lines>>,
}

/// Lines in place of a bar.
#[derive(Debug)]
struct Lines {
    begun: Instant,
    /// A line is printed at each of so many equal parts of the work.
    parts: u64,
    /// Parts that were printed.
    printed: AtomicU64,
}

/// Parts of the work between two lines, where the work has no rounds.
const TENTHS: u64 = 10;

impl ProgressArguments {
    /// A bar that counts runs, with the time left.
    pub(crate) fn runs(self) -> Bar {
        Bar::new(Unit::Runs, self.progress.then_some(TENTHS))
    }

    /// A bar for the part of the work that is done, with the time left.
    pub(crate) fn part(self) -> Bar {
        Bar::new(Unit::Parts, self.progress.then_some(TENTHS))
    }
}

impl Bar {
    /// A bar that counts runs, on a terminal only.
    pub(crate) fn of_runs() -> Self {
        ProgressArguments::default().runs()
    }

    /// A bar that counts runs; where stderr is no terminal, a line after each of `rounds` rounds.
    #[cfg(feature = "nic-hosts")]
    pub(crate) fn of_rounds(rounds: u64) -> Self {
        Self::new(Unit::Runs, Some(rounds))
    }

    /// Without a terminal, a line at each of `parts` equal parts, if wanted.
    fn new(unit: Unit, parts: Option<u64>) -> Self {
        let template = match unit {
            Unit::Runs => "{bar:40} {pos}/{len} runs{left} {msg}",
            Unit::Parts => "{bar:40} {percent} %{left}",
        };
        let style = ProgressStyle::with_template(template);
        let style = style
            .expect("the template is a constant that parses")
            .with_key("left", write_left);
        let drawn = std::io::stderr().is_terminal();
        let bar = match drawn {
            true => ProgressBar::new(0).with_style(style),
            false => ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()),
        };
        let lines = parts.filter(|_| !drawn).map(|parts| {
            Arc::new(Lines {
                begun: Instant::now(),
                parts,
                printed: AtomicU64::new(0),
            })
        });
        Self { bar, unit, lines }
    }

    /// Sets how much there is to do.
    pub(crate) fn set_length(&self, length: u64) {
        self.bar.set_length(length);
    }

    /// How much there is to do; 0 while unknown.
    pub(crate) fn length(&self) -> u64 {
        self.bar.length().unwrap_or(0)
    }

    /// Sets how much is done.
    pub(crate) fn set_position(&self, position: u64) {
        self.bar.set_position(position);
        self.print();
    }

    /// Adds to what is done.
    pub(crate) fn inc(&self, more: u64) {
        self.bar.inc(more);
        self.print();
    }

    /// Sets what the work is at, which a terminal shows behind the bar.
    #[cfg(feature = "nic-hosts")]
    pub(crate) fn set_message(&self, message: String) {
        self.bar.set_message(message);
    }

    /// Takes the bar off the screen, for good.
    pub(crate) fn finish_and_clear(&self) {
        let done = self.bar.position();
        self.bar.finish_and_clear();
        self.bar.set_draw_target(ProgressDrawTarget::hidden());
        // Finishing sets the position to the end, also where the work was interrupted.
        self.bar.set_position(done);
    }

    /// What is done, in words: `12 of 40 runs`, `42 % of the work`; none before anything is known.
    pub(crate) fn done(&self) -> Option<String> {
        let (done, all) = (self.bar.position(), self.length());
        (all > 0).then(|| match self.unit {
            Unit::Runs => format!(
                "{done} of {}",
                isolane_common_text_output::counted(all, "run")
            ),
            Unit::Parts => format!("{} % of the work", done * 100 / all),
        })
    }

    /// Prints a line where another part is done.
    fn print(&self) {
        let (Some(lines), Some(done)) = (&self.lines, self.done()) else {
            return;
        };
        let part = self.bar.position() * lines.parts / self.length();
        if lines.printed.fetch_max(part, Ordering::Relaxed) < part {
            let left = left(lines.begun.elapsed(), self.bar.position(), self.length());
            output::note(&format!("isolane: {done} done{left}"));
        }
    }
}

/// `, about 3 min left`, from the time that the part so far took; nothing at the end.
fn left(spent: Duration, done: u64, all: u64) -> String {
    if done == 0 || done >= all {
        return String::new();
    }
    in_words(spent.mul_f64((all - done) as f64 / done as f64))
}

/// The time that the bar expects; nothing before the first run is done.
fn write_left(state: &ProgressState, text: &mut dyn fmt::Write) {
    if state.pos() > 0 && !state.is_finished() {
        // A failed write leaves the text out, and the bar is drawn again soon.
        let _ = text.write_str(&in_words(state.eta()));
    }
}

/// `, about 3 min left`.
fn in_words(time: Duration) -> String {
    let words = match time.as_secs_f64() {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5_400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3_600.0),
    };
    format!(", about {words} left")
}

/// How often a run in real time is drawn.
const TICK: Duration = Duration::from_millis(100);

/// A bar for runs that take their real time, and what moves it from stage to stage.
pub(crate) fn stages() -> (ProgressBar, impl Fn(Stage) + Send + Sync + 'static) {
    let bar = match std::io::stderr().is_terminal() {
        true => ProgressBar::new(0),
        false => ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()),
    };
    let shown = bar.clone();
    let stage = move |stage: Stage| {
        // Only now: a simulated run shows no bar.
        shown.enable_steady_tick(TICK);
        let (words, time) = devices::words(stage);
        let template = match time {
            Some(time) => {
                shown.reset_elapsed();
                format!(
                    "{{spinner}} {{msg}} {{elapsed}} of {:.1} s",
                    time.as_secs_f64()
                )
            }
            None => "{spinner} {msg}".to_owned(),
        };
        let style = ProgressStyle::with_template(&template);
        shown.set_style(style.expect("the template has only known keys"));
        shown.set_message(words);
    };
    (bar, stage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_time_spent() {
        let of = |seconds, done| left(Duration::from_secs(seconds), done, 10);
        assert_eq!(of(10, 5), ", about 10 s left");
        assert_eq!(of(600, 2), ", about 40 min left");
        assert_eq!(of(7_200, 2), ", about 8.0 h left");
        assert_eq!((of(3, 0), of(3, 10)), (String::new(), String::new()));
    }

    #[test]
    fn a_line_is_printed_once_for_each_tenth() {
        let bar = Bar {
            bar: ProgressBar::with_draw_target(Some(40), ProgressDrawTarget::hidden()),
            unit: Unit::Runs,
            lines: Some(Arc::new(Lines {
                begun: Instant::now(),
                parts: TENTHS,
                printed: AtomicU64::new(0),
            })),
        };
        let lines = bar.lines.clone().expect("it has lines");
        let printed = || lines.printed.load(Ordering::Relaxed);
        bar.inc(3);
        assert_eq!(printed(), 0);
        bar.inc(1);
        assert_eq!(
            (printed(), bar.done().unwrap()),
            (1, "4 of 40 runs".to_owned())
        );
        bar.set_position(40);
        assert_eq!(printed(), 10);
    }
}
